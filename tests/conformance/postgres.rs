//! PostgreSQL keeps the contract of a store.

use trueup::error::Kind;
use trueup::postgres::PostgresPlace;
use trueup::store::postgres::PostgresStore;
use trueup::store::{Access, Expect, Item, Mode, Outcome, Store, StoreExt, What};

use super::stores::conforms;
use crate::support;

async fn store(dsn: &str, access: Access) -> PostgresStore {
    PostgresStore::open(&PostgresPlace::parse(dsn).unwrap(), None, access).await.unwrap()
}

#[tokio::test]
async fn postgres_keeps_the_contract() {
    let dsn = support::postgres().await.fresh_database();
    conforms(&store(&dsn, Access::Write).await).await;
}

#[tokio::test]
async fn one_row_per_key_in_the_table_the_url_names() {
    let postgres = support::postgres().await;
    let dsn = postgres.fresh_database();
    let store = store(&format!("{dsn}?table=Mine"), Access::Write).await;
    for value in ["1", "2", "3"] {
        store.write_one(Item::put("a", value)).await.unwrap();
    }
    let sql = "select key, convert_from(value, 'UTF8') from \"Mine\"";
    assert_eq!(support::postgres::query(&dsn, sql), "a|3");
}

#[tokio::test]
async fn reading_creates_no_table() {
    let postgres = support::postgres().await;
    let dsn = postgres.fresh_database();
    let store = store(&dsn, Access::Read).await;
    assert!(store.list_all("", What::Keys).await.unwrap().is_empty());
    assert!(store.get_one("a").await.unwrap().is_none());
    assert_eq!(
        support::postgres::query(&dsn, "select count(*) from pg_tables where tablename = 'trueup_kv'"),
        "0"
    );
}

/// The first to be done with making the table works on it, while the others were about to make it, too.
#[tokio::test(flavor = "multi_thread")]
async fn writers_that_open_a_new_table_at_once_all_get_to_work() {
    for _ in 0..20 {
        let dsn = support::postgres().await.fresh_database();
        let write = async |writer: usize| {
            let store = store(&dsn, Access::Write).await;
            for round in 0..10 {
                let items = [Item::put(format!("{writer} {round}"), "1").expecting(Expect::Absent)];
                let written = store.write(items.into(), Mode::All).await.unwrap();
                assert!(matches!(written[..], [Ok(Outcome::Applied(_))]), "{written:?}");
            }
        };
        futures::future::join_all((0..6).map(write)).await;
        assert_eq!(support::postgres::query(&dsn, "select count(*) from trueup_kv"), "60");
    }
}

#[tokio::test]
async fn a_table_of_before_is_given_what_notices_changes_while_it_is_written() {
    let dsn = support::postgres().await.fresh_database();
    let old = store(&dsn, Access::Write).await;
    old.write_one(Item::put("a", "1")).await.unwrap();
    support::postgres::query(&dsn, "drop trigger outside on trueup_kv; drop function trueup_kv_outside");
    let write = async {
        for round in 0..200 {
            old.write_one(Item::put("b", round.to_string())).await.unwrap();
        }
    };
    let open = futures::future::join_all((0..6).map(|_| store(&dsn, Access::Write)));
    futures::join!(write, open);
    let before = old.get_one("a").await.unwrap().unwrap().version;
    support::postgres::query(&dsn, "update trueup_kv set value = 'x' where key = 'a'");
    assert_ne!(old.get_one("a").await.unwrap().unwrap().version, before);
}

#[tokio::test]
async fn a_terminated_backend_is_replaced() {
    let postgres = support::postgres().await;
    let dsn = postgres.fresh_database();
    let store = store(&dsn, Access::Write).await;
    store.write_one(Item::put("a", "1")).await.unwrap();
    support::postgres::query(
        &dsn,
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'trueup' and datname = current_database()",
    );
    support::until("the connection is seen to be gone", || store.connections_idle() == 0).await;
    assert!(store.get_one("a").await.unwrap().is_some());
}

#[tokio::test]
async fn rows_that_row_security_hides_are_an_error_and_not_gone() {
    let admin = support::postgres().await.fresh_database();
    let whole = store(&admin, Access::Write).await;
    for key in ["a", "b"] {
        whole.write_one(Item::put(key, "1")).await.unwrap();
    }
    let query = |sql: &str| support::postgres::query(&admin, sql);
    let role = format!("blind_{}", admin.rsplit('_').next().unwrap());
    query(&format!("create role {role} login; grant select on trueup_kv to {role}"));
    let blind = store(&admin.replacen("postgres@", &format!("{role}@"), 1), Access::Read).await;
    assert_eq!(blind.list_all("", What::Keys).await.unwrap().len(), 2);
    query("alter table trueup_kv enable row level security");
    for policy in ["", "create policy half on trueup_kv using (key < 'b')"] {
        query(policy);
        let listed = blind.list_all("", What::Keys).await.unwrap_err();
        let read = blind.get_one("b").await.unwrap_err();
        for error in [listed, read] {
            assert_eq!(error.kind(), Kind::Unauthorized, "{error}");
            assert!(error.remedy().contains("BYPASSRLS"), "{}", error.remedy());
        }
        let checked = blind.check(Access::Read).await.unwrap_err();
        assert!(checked.remedy().contains(&format!("ALTER ROLE {role} BYPASSRLS;")), "{}", checked.remedy());
    }
    query(&format!("alter role {role} bypassrls"));
    assert_eq!(blind.list_all("", What::Keys).await.unwrap().len(), 2);
    blind.check(Access::Read).await.unwrap();
}
