//! Others work on a store, too: with SQL, with backups, by making it anew. What it holds then is not what we know of it,
//! whatever its numbers say.

use super::place::Home;
use crate::support;
use crate::support::postgres::query;

/// A store of SQL, empty: its URL, and how its values are read and written by others.
struct Sql {
    url: String,
    dsn: Option<String>,
}

impl Sql {
    async fn both() -> [Sql; 2] {
        let dsn = support::postgres().await.fresh_database();
        [Sql { url: "sqlite:kv.db".into(), dsn: None }, Sql { url: dsn.clone(), dsn: Some(dsn) }]
    }

    fn change(&self, home: &Home, key: &str, value: &str) {
        match &self.dsn {
            Some(dsn) => {
                let sql = format!("update trueup_kv set value = '{value}'::bytea where key = '{key}'");
                query(dsn, &sql);
            }
            None => {
                let file = rusqlite::Connection::open(home.path("kv.db")).unwrap();
                let table = if value.len() > 1_024 { "large" } else { "kv" };
                let which =
                    if table == "large" { "id = (select large from kv where key = ?1)" } else { "key = ?1" };
                let sql = format!("update {table} set value = cast(?2 as blob) where {which}");
                assert_eq!(file.execute(&sql, (key, value)).unwrap(), 1);
            }
        }
    }

    fn forget(&self, home: &Home) {
        match &self.dsn {
            Some(dsn) => drop(query(dsn, "drop table trueup_kv")),
            None => home.remove("kv.db"),
        }
    }
}

fn value(home: &Home, store: &str, key: &str) -> String {
    home.ends(&["kv", "get", store, key], 0)["value"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_value_that_was_changed_with_sql_is_healed() {
    for store in Sql::both().await {
        let url = &store.url;
        let home = Home::new(&format!("[pipelines.p]\nfrom = {{ files = \"src\" }}\ninto = \"{url}\"\n"));
        let (ours, theirs) = ("ours ".repeat(1_000), "by hand ".repeat(1_000));
        home.write("src/a", "ours");
        home.write("src/b", "ours");
        home.write("src/large", &ours);
        home.ends(&["sync"], 0);
        for (key, changed, before) in [("a", "by hand", "ours"), ("large", &theirs, &ours)] {
            store.change(&home, key, changed);
            let run = home.ends(&["sync"], 0)["runs"][0].clone();
            assert_eq!((&run["updated"], &run["unchanged"]), (&1.into(), &2.into()), "{url} {key}: {run}");
            assert_eq!(value(&home, url, key), before);
            let run = home.ends(&["sync"], 0)["runs"][0].clone();
            assert_eq!(run["unchanged"], 3, "{url} {key}: {run}");
        }
    }
}

#[tokio::test]
async fn a_value_that_was_changed_with_sql_is_new_to_whoever_reads_the_store() {
    for store in Sql::both().await {
        let url = &store.url;
        let from = format!("from = {{ store = \"{url}\" }}");
        let home = Home::new(&format!("[pipelines.q]\n{from}\ninto = \"file:out\"\n"));
        home.ends(&["kv", "put", url, "a", "first"], 0);
        home.ends(&["sync"], 0);
        store.change(&home, "a", "second");
        home.ends(&["sync"], 0);
        assert_eq!(home.read("out/a").as_deref(), Some("second"), "{url}");
    }
}

/// It counts from where it never was: what was written first into the new one is not what was first in the old one.
#[tokio::test]
async fn a_store_that_was_made_anew_is_another() {
    for store in Sql::both().await {
        let url = &store.url;
        let from = format!("from = {{ store = \"{url}\" }}");
        let home = Home::new(&format!("[pipelines.q]\n{from}\ninto = \"file:out\"\n"));
        home.ends(&["kv", "put", url, "a", "old"], 0);
        home.ends(&["sync"], 0);
        store.forget(&home);
        home.ends(&["kv", "put", url, "a", "new"], 0);
        home.ends(&["sync"], 0);
        assert_eq!(home.read("out/a").as_deref(), Some("new"), "{url}");
    }
}

/// Lost, filled again, and then the old one is found: it is as it was before, and that is seen.
#[tokio::test]
async fn a_backup_that_was_put_back_is_brought_up_to_date() {
    let home = Home::new("[pipelines.p]\nfrom = { files = \"src\" }\ninto = \"sqlite:kv.db\"\n");
    home.write("src/a", "one");
    home.write("src/b", "one");
    home.ends(&["sync"], 0);
    std::fs::rename(home.path("kv.db"), home.path("backup.db")).unwrap();
    home.write("src/a", "two");
    home.ends(&["sync"], 0);
    std::fs::rename(home.path("backup.db"), home.path("kv.db")).unwrap();
    home.ends(&["sync"], 0);
    assert_eq!(value(&home, "sqlite:kv.db", "a"), "two");
}
