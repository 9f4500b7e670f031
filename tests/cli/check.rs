//! `trueup check` says what a run would meet, before there is one, and leaves nothing behind.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use super::home::{Home, Ran, untouched};
use crate::support::cloudflare::Kv;
use crate::support::leash::free_ports;
use crate::support::pooler::Pooler;
use crate::support::postgres::query;
use crate::support::{self, Etcd, s3};

/// Notes into a store, given as the config gives it.
fn into(store: &str) -> Home {
    let home = Home::new(&format!("[pipelines.notes]\nfrom = {{ files = \"notes\" }}\ninto = {store}\n"));
    home.write("notes/a.md", "a note\n");
    home
}

/// The same config, with a store that has a name.
fn with_store(home: &Home, named: &str) {
    let config = fs::read_to_string(home.path("trueup.toml")).unwrap();
    home.write("trueup.toml", &format!("[stores]\n{named}\n{config}"));
}

impl Ran {
    /// The line about this, and what to do where it failed.
    #[track_caller]
    fn about(&self, what: &str) -> (String, String) {
        let json: Value = self.json();
        let checks = json["checks"].as_array().unwrap();
        let found = checks.iter().find(|check| check["what"] == what);
        let found = found.unwrap_or_else(|| panic!("nothing about {what} in {json}"));
        match &found["error"] {
            Value::Null => (found["findings"].to_string(), String::new()),
            error => (error["message"].to_string(), error["remedy"].to_string()),
        }
    }

    /// It failed with this message and this remedy.
    #[track_caller]
    fn refuses(&self, what: &str, message: &str, remedy: &str) {
        let (said, advised) = self.about(what);
        assert!(said.contains(message) && advised.contains(remedy), "{said}\n{advised}");
    }
}

fn checked(home: &Home, code: i32) -> Ran {
    home.run(&["check", "--json"]).ends(code)
}

#[test]
fn a_folder_or_file_that_may_not_be_written_is_told_and_nothing_is_made() {
    for store in ["\"file:closed/out\"", "\"sqlite:closed/new/x.db\""] {
        let home = into(store);
        home.write("closed/keep", "");
        fs::set_permissions(home.path("closed"), Permissions::from_mode(0o555)).unwrap();
        let before = home.tree();
        let ran = home.run_as_nobody(&["check", "--json"]).ends(6);
        untouched(&before, &home.tree(), "check");
        ran.refuses("notes into", "closed", "Let the user that trueup runs as write to");
        // Neither may the state.
        ran.refuses("state", "may be written", "Let the user");
        fs::set_permissions(home.path("closed"), Permissions::from_mode(0o777)).unwrap();
        fs::set_permissions(home.path(""), Permissions::from_mode(0o777)).unwrap();
        home.run_as_nobody(&["check"]).ends(0);
    }
}

#[test]
fn a_file_in_the_place_of_a_folder_is_told() {
    let home = into("\"sqlite:notes/a.md/x.db\"");
    let code = home.run(&["check"]).code;
    assert_ne!(code, 0);
    assert_eq!(home.run(&["sync"]).code, code, "a run would have ended so, too");
}

#[tokio::test]
async fn a_role_that_may_not_write_is_told_the_grant_it_lacks() {
    let admin = support::postgres().await.fresh_database();
    let role = format!("weak_{}", admin.rsplit('_').next().unwrap());
    let weak = admin.replacen("postgres@", &format!("{role}@"), 1);
    query(&admin, &format!("create role {role} login"));
    let home = into(&format!("\"{weak}\""));
    checked(&home, 6).refuses("notes into", "may not make the table", "GRANT CREATE ON SCHEMA public");
    home.run(&["sync"]).ends(6);

    // Somebody else made the table.
    into(&format!("\"{admin}\"")).run(&["sync"]).ends(0);
    query(&admin, &format!("grant select, insert on trueup_kv to {role}"));
    checked(&home, 6).refuses("notes into", "UPDATE, DELETE", "GRANT UPDATE, DELETE ON");
    query(&admin, &format!("grant update, delete on trueup_kv to {role}"));
    checked(&home, 6).refuses("notes into", "sequence", "GRANT USAGE ON SEQUENCE");
    query(&admin, &format!("grant usage on sequence trueup_kv_version to {role}"));
    checked(&home, 0);
    home.write("notes/b.md", "another\n");
    home.run(&["sync", "--json"]).run();
    assert_eq!(
        query(&admin, "select count(*) from trueup_kv where key = 'b.md'"),
        "1",
        "what is granted is enough"
    );
}

#[tokio::test]
async fn tables_must_be_ours() {
    let admin = support::postgres().await.fresh_database();
    let role = format!("weak_{}", admin.rsplit('_').next().unwrap());
    query(&admin, &format!("create role {role} login; grant create on schema public to {role}"));
    query(&admin, "create table things(id bigint); grant all on things to public");
    let weak = admin.replacen("postgres@", &format!("{role}@"), 1);
    let api = support::http::Server::start(|_| support::http::Reply::ok("[]"));
    let home = Home::new(&format!(
        "[pipelines.things]\nas = \"rows\"\ninto = {{ tables = \"{weak}\" }}\n\
         from = {{ rest = {{ base = \"{}\", resources = [{{ name = \"things\", path = \"/\", key = \"id\",\n\
         columns = {{ id = \"integer\" }} }}] }} }}\n",
        api.url("")
    ));
    query(&admin, "drop table things");
    checked(&home, 0);
    home.run(&["sync"]).ends(0);
    query(&admin, "alter table things owner to postgres; grant all on things to public");
    checked(&home, 6).refuses("things into", "things", &format!("OWNER TO {role}"));
    assert_eq!(home.run(&["sync"]).code, 6, "a run would have ended so, too");
}

#[tokio::test]
async fn a_pooler_that_breaks_sessions_is_found_out_and_one_that_keeps_them_is_fine() {
    let direct = support::postgres().await.fresh_database();
    for (mode, code) in [("transaction", 2), ("session", 0)] {
        let pooler = Pooler::start(&direct, mode).await;
        let home = into(&format!("\"{}\"", pooler.dsn(&direct)));
        let ran = checked(&home, code);
        if code == 2 {
            ran.refuses("notes into", "pooler", "pool_mode = session");
        }
    }
    checked(&into(&format!("\"{direct}\"")), 0);
}

#[tokio::test]
async fn a_server_that_takes_no_writes_is_told() {
    let dsn = support::postgres().await.fresh_database();
    let database = dsn.rsplit('/').next().unwrap();
    query(&dsn, &format!("alter database {database} set default_transaction_read_only = on"));
    checked(&into(&format!("\"{dsn}\"")), 5).refuses("notes into", "takes no writes", "primary");
}

#[tokio::test]
async fn an_etcd_role_that_may_only_read_is_told() {
    let etcd = Etcd::start(1).await;
    etcd.ask_who_is_there("/notes/");
    let at = |user: &str| into(&format!("\"etcd://{user}:secret@{}/notes/\"", etcd.endpoints()));
    checked(&at("weak"), 6).refuses("notes into", "permission denied", "readwrite --prefix=true /notes/");
    let home = at("root");
    let (findings, _) = checked(&home, 0).about("notes into");
    assert!(findings.contains("etcd 3."), "{findings}");
    home.run(&["sync"]).ends(0);
    let held = etcd.ctl(&["--user=root:secret", "get", "--prefix", "", "--keys-only"]);
    assert_eq!(held.trim(), "/notes/a.md", "checking left nothing");
}

#[tokio::test]
async fn buckets_are_tried_for_conditional_writes() {
    for (bucket, told) in [(s3::new_bucket(), ""), (s3::new_bucket_without_conditions(), "If-None-Match")] {
        let home = into("\"bucket\"");
        let store = s3::config(&bucket, &home.path("word"));
        with_store(&home, &format!("bucket = {store}"));
        let (findings, _) = checked(&home, 0).about("notes into");
        assert!(findings.contains(told) && (told.is_empty() == (findings == "[]")), "{findings}");
        assert_eq!(home.keys("bucket"), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_namespace_is_checked_and_left_as_it_is() {
    let kv = Kv::start(None);
    let home = into("\"kv\"");
    let store = kv.config(&home.path("token"));
    with_store(&home, &format!("kv = {store}"));
    checked(&home, 0);
    assert_eq!(home.keys("kv"), Vec::<String>::new());
    home.write("token", "another");
    checked(&home, 6);
}

#[test]
fn where_follow_up_work_goes_and_stores_nobody_uses_are_reached_too() {
    let port = free_ports(1)[0];
    let home = into("\"memory:\"");
    let config = fs::read_to_string(home.path("trueup.toml")).unwrap();
    let dead = format!("etcd://127.0.0.1:{port}/x/");
    home.write("trueup.toml", &format!("{config}then = {{ export = \"{dead}\" }}\n"));
    checked(&home, 5).refuses("notes then", &port.to_string(), "etcd");
    home.write("trueup.toml", &config);
    with_store(&home, &format!("spare = \"{dead}\""));
    checked(&home, 5).refuses("store", "refused", "etcd");
}

fn replica(etcd: &str, postgres: &str) -> Home {
    Home::new(&format!("[replicas.services]\netcd = \"{etcd}\"\npostgres = \"{postgres}\"\n"))
}

#[tokio::test]
async fn both_sides_of_a_replica_are_checked() {
    let (etcd, dsn) = (support::etcd().await, support::postgres().await.fresh_database());
    let at = format!("etcd://{}/check-{}/", etcd.endpoints(), std::process::id());
    let home = replica(&at, &dsn);
    let (findings, _) = checked(&home, 0).about("services postgres");
    assert!(findings.contains("trueup replica init services"), "{findings}");
    assert_eq!(query(&dsn, "select count(*) from pg_tables where tablename like 'etcd%'"), "0");
    home.run(&["replica", "init", "services"]).ends(0);
    let ran = checked(&home, 0);
    assert_eq!(ran.about("services postgres").0, "[]");
    assert!(ran.about("services etcd").0.contains("etcd 3."));

    let nowhere = format!("127.0.0.1:{}", free_ports(1)[0]);
    checked(&replica(&format!("etcd://{nowhere}/x/"), &dsn), 5).refuses("services etcd", "", "etcd is up");
    let dead = format!("postgres://postgres@{nowhere}/x");
    checked(&replica(&at, &dead), 5).refuses("services postgres", "", "PostgreSQL is up");
    let pooler = Pooler::start(&dsn, "transaction").await;
    checked(&replica(&at, &pooler.dsn(&dsn)), 2).refuses("services postgres", "pooler", "session mode");
}

#[tokio::test]
async fn the_recipe_of_a_replica_runs_as_it_is_where_both_servers_are() {
    let (etcd, dsn) = (support::etcd().await, support::postgres().await.fresh_database());
    let at = format!("etcd://{}/recipe-{}/", etcd.endpoints(), std::process::id());
    let home = Home::new("");
    home.remove("trueup.toml");
    let said = home.run(&["init", "replica"]).ends(0).out;
    assert!(said.contains("trueup replica init services"), "{said}");
    for args in [&["check"][..], &["replica", "init", "services"], &["check", "--json"]] {
        let mut command = home.command(args);
        Ran::of(command.env("ETCD_URL", &at).env("POSTGRES_URL", &dsn).output().unwrap()).ends(0);
    }
}

#[tokio::test]
async fn a_replica_whose_role_lacks_a_right_is_told_which() {
    let (etcd, admin) = (support::etcd().await, support::postgres().await.fresh_database());
    let role = format!("weak_{}", admin.rsplit('_').next().unwrap());
    query(&admin, &format!("create role {role} login"));
    let weak = admin.replacen("postgres@", &format!("{role}@"), 1);
    let at = format!("etcd://{}/check-role-{}/", etcd.endpoints(), std::process::id());
    checked(&replica(&at, &weak), 6).refuses(
        "services postgres",
        "replica's tables",
        "GRANT CREATE ON SCHEMA",
    );
    query(&admin, &format!("grant create on schema public to {role}"));
    checked(&replica(&at, &weak), 0);
    replica(&at, &weak).run(&["replica", "init", "services"]).ends(0);
    checked(&replica(&at, &weak), 0);
    query(&admin, "alter table etcd_wal owner to postgres");
    checked(&replica(&at, &weak), 6).refuses("services postgres", "no right to", "GRANT SELECT");
}

#[test]
fn a_folder_that_may_not_be_written_is_called_by_its_name() {
    let home = into("\"sqlite:notes.db\"");
    fs::set_permissions(home.path(""), Permissions::from_mode(0o755)).unwrap();
    let ran = home.run_as_nobody(&["check", "--json"]).ends(6);
    let folder = fs::canonicalize(home.path("")).unwrap();
    let remedy = format!("write to {}.", folder.display());
    ran.refuses("notes into", folder.to_str().unwrap(), &remedy);
}

#[test]
fn a_file_in_the_place_of_a_folder_of_values_is_told_alike_by_all() {
    for store in ["\"file:out\"", "\"file:out/deeper\""] {
        let home = into(store);
        home.write("out", "a file\n");
        for verb in ["check", "plan", "audit", "sync"] {
            let ran = home.run(&[verb, "--json"]).ends(2);
            let said = format!("{}{}", ran.out, ran.err);
            assert!(said.contains("a file") && said.contains("Name a folder instead"), "{verb}: {said}");
        }
        assert_eq!(fs::read_to_string(home.path("out")).unwrap(), "a file\n");
    }
}
