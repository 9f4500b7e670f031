//! PostgreSQL keeps the contract of a store.

use trueup::error::Kind;
use trueup::postgres::PostgresPlace;
use trueup::store::postgres::PostgresStore;
use trueup::store::{Access, Item, Store, StoreExt, What};

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
