//! The same registry on every store it is for.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use trueup::state::Status;

use super::desk::{Desk, did};
use crate::support::cloudflare::{ACCOUNT, Kv, NAMESPACE, TOKEN};
use crate::support::{etcd, postgres, python};

/// The core of the scenarios: 1, 2, 3, 4, 5, 7, and the state lost in the end.
async fn holds(desk: &Desk) {
    desk.ran([60, 0, 0, 0]).await;
    let first = desk.held("policy:").await;
    assert_eq!((first.len(), desk.held("queue:").await.len()), (60, 60));
    assert_eq!(desk.last_commit().await, Some(desk.hub.head()));
    desk.clock.advance(Duration::from_secs(24 * 3600));
    desk.ran([0, 0, 0, 60]).await;
    assert_eq!(desk.held("policy:").await, first);

    desk.hub.put("policies/p07.md", "# Revised\n");
    desk.hub.rename("policies/p08.md", "moved/p08.md");
    desk.hub.rename("policies/p09.md", "policies/renamed.md");
    desk.hub.remove("policies/p10.md");
    desk.clock.advance(Duration::from_secs(24 * 3600));
    desk.ran([1, 2, 2, 56]).await;
    let second = desk.held("policy:").await;
    let same = first.iter().filter(|(key, value)| second.get(*key) == Some(*value)).count();
    assert_eq!((second.len(), same), (59, 56));
    assert_eq!(desk.policy("p08").await["path"], "moved/p08.md");
    assert!(!desk.held("queue:").await.contains_key("queue:p10"));

    for end in ["state.db", "state.db-wal", "state.db-shm"] {
        drop(std::fs::remove_file(desk.folder.path().join(end)));
    }
    desk.hub.asked();
    desk.clock.advance(Duration::from_secs(24 * 3600));
    let report = desk.ran([0, 0, 0, 59]).await;
    assert_eq!((report.writes, desk.hub.asked()[2]), (0, 0), "what is there is not written again");
    assert_eq!(desk.held("policy:").await, second);
}

#[tokio::test]
async fn the_registry_holds_on_the_embedded_store() {
    holds(&Desk::with_policies(60)).await;
}

#[tokio::test]
async fn the_registry_holds_on_etcd() {
    let mut desk = Desk::with_policies(60);
    desk.into = format!("\"etcd://{}/registry-{}/\"", etcd().await.endpoints(), std::process::id());
    holds(&desk).await;
}

#[tokio::test]
async fn the_registry_holds_on_postgresql() {
    let mut desk = Desk::with_policies(60);
    desk.into = format!("\"{}\"", postgres().await.fresh_database());
    holds(&desk).await;
}

#[tokio::test]
async fn the_registry_holds_on_cloudflare() {
    let mut desk = Desk::with_policies(60);
    let kv = Kv::start(Some(desk.clock.clone()));
    desk.into = kv.config(&desk.folder.path().join("cf-token"));
    holds(&desk).await;
    assert_eq!(kv.offences(), Vec::<String>::new());
}

/// A bare repository of so many policies, made without a working tree.
fn large_repository(at: &Path, count: usize) {
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command.arg("-C").arg(at).args(args).stdout(Stdio::null());
        command
    };
    std::fs::create_dir(at).unwrap();
    assert!(git(&["init", "--quiet", "--bare", "--initial-branch=main"]).status().unwrap().success());
    let mut import = git(&["fast-import", "--quiet"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut said = String::from("commit refs/heads/main\ncommitter n <e@example.org> 0 +0000\ndata 1\nx\n");
    // As long as regulations are: a bulk request's worth of them is more than other stores' batches hold.
    let rest = "shall not ".repeat(820);
    for number in 0..count {
        let text = format!("{}\n{rest}\n", super::desk::policy(number));
        said.push_str(&format!("M 644 inline policies/p{number:05}.md\ndata {}\n{text}\n", text.len()));
    }
    import.stdin.take().unwrap().write_all(said.as_bytes()).unwrap();
    assert!(import.wait().unwrap().success());
}

#[tokio::test]
async fn on_cloudflare_ten_thousand_policies_are_two_bulk_requests_and_a_lost_state_is_rebuilt_by_listing() {
    let mut desk = Desk::new();
    let (kv, at) = (Kv::start(Some(desk.clock.clone())), desk.folder.path().join("repository"));
    large_repository(&at, 10_000);
    desk.from = format!("{{ git = \"{}\" }}", at.display());
    desk.into = kv.config(&desk.folder.path().join("cf-token"));
    desk.ran([10_000, 0, 0, 0]).await;
    assert_eq!(kv.bulk_writes(), [10_000, 10_000, 2], "policies with their queue entries, then the metadata");
    for end in ["state.db", "state.db-wal", "state.db-shm"] {
        drop(std::fs::remove_file(desk.folder.path().join(end)));
    }
    kv.server.forget();
    desk.clock.advance(Duration::from_secs(24 * 3600));
    let report = desk.ran([0, 0, 0, 10_000]).await;
    assert_eq!(
        (report.writes, kv.server.count("/values/policy")),
        (0, 0),
        "keys and their metadata say it all"
    );
    assert_eq!(kv.server.count("prefix=policy"), 10, "a thousand keys each");
    assert_eq!(kv.offences(), Vec::<String>::new());
}

#[tokio::test]
async fn on_cloudflare_reads_that_lag_lead_to_no_second_write_and_no_deletion() {
    let mut desk = Desk::with_policies(30);
    let kv = Kv::start(Some(desk.clock.clone()));
    desk.into = kv.config(&desk.folder.path().join("cf-token"));
    kv.lag();
    desk.ran([30, 0, 0, 0]).await;
    desk.ran([0, 0, 0, 30]).await;
    desk.hub.put("policies/p07.md", "# Revised\n");
    let report = desk.ran([0, 1, 0, 29]).await;
    assert_eq!(report.status, Status::Ok);
    kv.catch_up();
    assert_eq!(desk.policy("p07").await["title"], "Revised");
}

#[tokio::test]
async fn scenario_20_on_cloudflare_keys_it_did_not_take_are_named_and_written_next_time() {
    let mut desk = Desk::with_policies(120);
    let kv = Kv::start(None);
    desk.into = kv.config(&desk.folder.path().join("cf-token"));
    kv.refuse(&["policy:p61", "policy:p77"]);
    let report = desk.run().await;
    assert_eq!((report.writes, report.counts.failed, report.status), (118, 2, Status::Partial));
    kv.refuse(&[]);
    let report = desk.run().await;
    assert_eq!((report.writes, did(&report)), (2, [2, 0, 0, 118]));
}

/// What the service's own client reads is what was written.
#[tokio::test]
async fn the_official_client_reads_what_was_written() {
    let mut desk = Desk::with_policies(12);
    let kv = Kv::start(None);
    desk.into = kv.config(&desk.folder.path().join("cf-token"));
    desk.ran([12, 0, 0, 0]).await;
    let python =
        tokio::task::spawn_blocking(|| python::with("cloudflare", "cloudflare==5.*").join("bin/python"));
    let python = python.await.unwrap();
    let script = format!(
        "import json, cloudflare\n\
         client = cloudflare.Cloudflare(api_token='{TOKEN}', base_url='{}')\n\
         keys = [k for k in client.kv.namespaces.keys.list('{NAMESPACE}', account_id='{ACCOUNT}', prefix='policy:')]\n\
         print(len(keys), keys[3].name, keys[3].metadata['row']['title'])\n\
         got = client.kv.namespaces.values.get('policy:p03', account_id='{ACCOUNT}', namespace_id='{NAMESPACE}')\n\
         print(json.loads(got.read())['path'])\n",
        kv.server.url("/client/v4")
    );
    let done =
        tokio::task::spawn_blocking(move || Command::new(python).args(["-c", &script]).output().unwrap());
    let done = done.await.unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert_eq!(
        said,
        "12 policy:p03 Policy 3\npolicies/p03.md\n",
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}
