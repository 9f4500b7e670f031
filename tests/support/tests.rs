#![allow(unused_imports)] // benches bring these servers along, and run no tests
//! The servers tests rely on do what their names say.

use std::process::{Command, Stdio};

use super::leash::{DataFolder, Leash, state_of};
use super::postgres::query;
use super::{Etcd, Postgres, etcd, postgres, trueup, until};

#[test]
fn the_program_is_built() {
    assert!(trueup().arg("--version").output().unwrap().status.success());
}

#[test]
fn a_server_ends_and_its_folder_goes_when_the_leash_is_let_go() {
    let folder = DataFolder::new("leash");
    let leash = Leash::start(&["sleep", "600"], "KILL", &folder.path().join("log"));
    let (server, path) = (leash.server_id(), folder.path().to_owned());
    assert!(state_of(server).is_some() && path.is_dir());
    drop(leash);
    drop(folder);
    assert!(state_of(server).is_none());
    assert!(!path.exists());
}

/// Nothing of ours runs when a process is killed: the kernel closing its end of the pipe has to do.
#[tokio::test]
async fn a_server_ends_when_the_process_that_holds_the_leash_is_killed() {
    let folder = DataFolder::new("leash");
    let mut holder = Command::new("sleep").arg("600").stdout(Stdio::piped()).spawn().unwrap();
    let pipe = Stdio::from(holder.stdout.take().unwrap());
    let leash = Leash::on(pipe, &["sleep", "600"], "KILL", &folder.path().join("log"));
    assert!(!leash.ended());
    holder.kill().unwrap();
    holder.wait().unwrap();
    until("the server is gone", || state_of(leash.server_id()).is_none()).await;
}

#[tokio::test]
async fn one_etcd_node_keeps_what_it_is_given() {
    let etcd = etcd().await;
    etcd.ctl(&["put", "/support/one", "1"]);
    assert_eq!(etcd.ctl(&["get", "/support/one", "--print-value-only"]), "1\n");
}

#[tokio::test]
async fn three_etcd_nodes_survive_the_loss_of_their_leader() {
    let etcd = Etcd::start(3).await;
    etcd.ctl(&["put", "key", "before"]);
    let leader = etcd.leading().await;
    etcd.kill(leader);
    until("another node leads", || etcd.leader().is_some_and(|next| next != leader)).await;
    etcd.ctl(&["put", "key", "after"]);
    etcd.restart(leader).await;
    assert_eq!(etcd.ctl(&["get", "key", "--print-value-only"]), "after\n");
}

#[tokio::test]
async fn a_restarted_etcd_has_its_data_and_a_paused_one_answers_later() {
    let etcd = Etcd::start(1).await;
    etcd.ctl(&["put", "key", "kept"]);
    etcd.kill(0);
    assert_eq!(etcd.leader(), None);
    etcd.restart(0).await;
    assert_eq!(etcd.ctl(&["get", "key", "--print-value-only"]), "kept\n");
    etcd.pause();
    assert_eq!(etcd.leader(), None, "nobody answers");
    etcd.resume();
    until("it answers again", || etcd.leader() == Some(0)).await;
}

#[tokio::test]
async fn fresh_databases_are_apart() {
    let postgres = postgres().await;
    let (one, two) = (postgres.fresh_database(), postgres.fresh_database());
    query(&one, "create table t (n int)");
    assert_eq!(query(&one, "select count(*) from t"), "0");
    assert_eq!(query(&two, "select count(*) from pg_tables where tablename = 't'"), "0");
}

#[tokio::test]
async fn a_killed_postgres_comes_back_with_its_data() {
    let postgres = Postgres::start_with(&["wal_level=logical"]).await;
    let dsn = postgres.fresh_database();
    assert_eq!(query(&dsn, "show wal_level"), "logical");
    query(&dsn, "create table t as select 7 as n");
    postgres.kill().await;
    postgres.restart().await;
    assert_eq!(query(&dsn, "select n from t"), "7");
    postgres.restart().await;
    assert_eq!(query(&dsn, "select n from t"), "7");
}
