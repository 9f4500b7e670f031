//! The audit: every class of drift named, every repairable one healed, nothing touched by looking.

use std::process::{Child, Output};
use std::sync::Arc;

use trueup::clock::Clock;
use trueup::config::{Drift, Heal};
use trueup::pipeline::Ask;
use trueup::pipeline::audit::{Audit, Budget};
use trueup::store::sqlite::Sqlite;
use trueup::store::{Access, SharedStore};

use super::place::{Home, undo};
use crate::flow::rig::{Rig, contents, fill};
use crate::flow::scripted::{Say, Script, Told};
use crate::support;

const ALL: Budget = Budget { one_in: 1, requests_per_second: None };

async fn audit(rig: &Rig) -> Audit {
    rig.line().await.audit(ALL, None).await.unwrap()
}

async fn repair(rig: &Rig) -> Audit {
    rig.line().await.audit(ALL, Some(Ask::plain("repair"))).await.unwrap()
}

fn found(audit: &Audit) -> Vec<(&str, &str)> {
    audit.drift.iter().map(|one| (one.key.as_str(), one.class)).collect()
}

/// One of each class that a repair heals, and a stranger's key.
async fn drifted() -> Rig {
    // `sync` would leave all of it: a repair heals whatever `drift` says.
    let drift = Drift { edited: Heal::Report, missing: Heal::Report, extra: Heal::Report };
    let rig = Rig { drift, ..Rig::new() };
    rig.give_many(6, "x").await;
    rig.run().await;
    rig.intrude("k00", "edited").await;
    rig.remove("k01").await;
    rig.give(&[("k02", "newer"), ("new", "1")]).await;
    rig.take_away(&["k03"]).await;
    rig.intrude("theirs", "x").await;
    rig
}

#[tokio::test]
async fn every_class_is_named_and_looking_changes_nothing() {
    let rig = drifted().await;
    let (store, state) = (contents(&rig.target).await, rig.state_bytes().await);
    let audit = audit(&rig).await;
    let expected = [
        ("k00", "edited"),
        ("k01", "missing"),
        ("k02", "stale"),
        ("k03", "extra"),
        ("new", "stale"),
        ("theirs", "foreign"),
    ];
    assert_eq!(found(&audit), expected);
    assert_eq!((audit.counts["intact"], audit.repaired, audit.is_clean()), (4, 0, false));
    assert_eq!((contents(&rig.target).await, rig.state_bytes().await), (store, state));
}

#[tokio::test]
async fn a_repair_heals_all_but_what_is_foreign() {
    let rig = drifted().await;
    let repaired = repair(&rig).await;
    assert_eq!((found(&repaired), repaired.repaired), (vec![("theirs", "foreign")], 5));
    assert!(repaired.is_clean(), "foreign alone is in order");
    rig.remove("theirs").await;
    rig.in_step().await;
}

/// A new record whose key somebody else holds was stale besides, and could never be repaired.
#[tokio::test]
async fn a_key_somebody_else_holds_is_foreign_and_nothing_else() {
    let rig = Rig::new();
    rig.give(&[("a", "ours"), ("b", "1")]).await;
    rig.intrude("a", "theirs").await;
    rig.run().await;
    assert_eq!(found(&audit(&rig).await), [("a", "foreign")]);
    let repaired = repair(&rig).await;
    assert!(repaired.is_clean() && repaired.repaired == 0);
    assert_eq!(rig.value("a").await.as_deref(), Some("theirs"));
}

#[tokio::test]
async fn a_scope_that_cannot_be_read_is_unproven_and_stays_so() {
    let script = Script::new();
    let rig = Rig::over(script.clone());
    script.say(&[
        Say::Seen("a", "one", "1"),
        Say::Complete("one", None),
        Say::Seen("b", "two", "1"),
        Say::Complete("two", None),
    ]);
    rig.run().await;
    script.say(&[Say::Seen("a", "one", "1"), Say::Complete("one", None), Say::Broken("two")]);
    let audit = repair(&rig).await;
    assert_eq!(found(&audit), [("two", "unproven")]);
    assert!(audit.drift[0].error.is_some() && !audit.is_clean());
    assert_eq!(rig.value("b").await.as_deref(), Some("1"));
}

/// Records that a shape keeps when the source has them no more were called extra, for ever.
#[tokio::test]
async fn what_a_shape_keeps_with_a_mark_is_not_extra() {
    let script = Script::new();
    let rig = Rig { shape: Arc::new(Told { marks_absent: true }), ..Rig::over(script.clone()) };
    script.say(&[Say::Seen("a", "", "1"), Say::Seen("b", "", "1"), Say::Complete("", None)]);
    rig.run().await;
    script.say(&[Say::Seen("b", "", "1"), Say::Complete("", None)]);
    assert_eq!(found(&audit(&rig).await), [("a", "stale")], "not marked yet");
    rig.run().await;
    assert_eq!(found(&audit(&rig).await), [], "kept, marked, and in order");
}

#[tokio::test]
async fn what_was_undone_is_stale_and_a_repair_leaves_it_to_people() {
    let rig = Rig::new();
    rig.give(&[("a", "1")]).await;
    rig.run().await;
    rig.give(&[("a", "2")]).await;
    let run = rig.run().await;
    undo(&rig, &run.id).await;
    let repaired = repair(&rig).await;
    assert_eq!((found(&repaired), repaired.repaired), (vec![("a", "stale")], 0));
    assert_eq!(rig.value("a").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn a_sample_looks_at_some_values_and_at_every_version() {
    let rig = Rig::new();
    rig.give_many(30, "x").await;
    rig.run().await;
    rig.intrude("k07", "edited").await;
    let audit = rig.line().await.audit(Budget { one_in: 10, ..ALL }, None).await.unwrap();
    assert_eq!(found(&audit), [("k07", "edited")]);
}

#[test]
fn the_program_ends_with_three_while_drift_remains_and_foreign_alone_with_zero() {
    let home = Home::new("[pipelines.notes]\nfrom = { files = \"notes\" }\ninto = \"file:out\"\n");
    home.write("notes/a", "1");
    home.write("notes/b", "1");
    home.ends(&["sync"], 0);
    home.ends(&["audit"], 0);
    home.write("out/a", "edited");
    home.write("out/theirs", "x");
    let audit = home.ends(&["audit"], 3);
    let drift = &audit["audits"][0]["drift"];
    assert_eq!((&drift[0]["key"], &drift[0]["class"]), (&"a".into(), &"edited".into()));
    assert_eq!((&drift[1]["key"], &drift[1]["class"]), (&"theirs".into(), &"foreign".into()));
    assert_eq!(audit["audits"][0]["counts"]["intact"], 1);
    let repaired = home.ends(&["audit", "--repair"], 0);
    assert_eq!(repaired["audits"][0]["repaired"], 1);
    assert_eq!(home.read("out/a").as_deref(), Some("1"));
    assert_eq!(home.read("out/theirs").as_deref(), Some("x"));
    home.ends(&["audit"], 0);
}

/// How a program ended, and the most memory it held in kB, as seen until shortly before its end.
async fn weighed(mut child: Child) -> (Output, u64) {
    // Looks of a minute each: a slow disk makes an audit slow, which is not what is tested.
    const LOOKS_MAX: u32 = 10;
    let (mut peak, mut looks) = (0_u64, 0);
    let mut ended = false;
    while !ended {
        assert!(looks < LOOKS_MAX, "it does not end");
        looks += 1;
        ended = support::eventually(async || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
            let line = status.lines().find(|line| line.starts_with("VmHWM:"));
            let now = line.and_then(|line| line.split_whitespace().nth(1));
            peak = peak.max(now.and_then(|number| number.parse().ok()).unwrap_or(0));
            child.try_wait().unwrap().is_some()
        })
        .await;
    }
    (child.wait_with_output().unwrap(), peak)
}

/// A hundred thousand keys in less memory than would hold them a few times over.
#[tokio::test]
async fn a_large_audit_stays_within_bounded_memory() {
    const KEYS: usize = 100_000;
    const KILOBYTES_MAX: u64 = 200_000;
    let home = Home::new(
        "[stores]\norigin = \"sqlite:origin.db\"\n\n[pipelines.all]\nfrom = { store = \"origin\" }\ninto = \"sqlite:out.db\"\n",
    );
    let origin: SharedStore = Arc::new(Sqlite::open(&home.path("origin.db"), Access::Write).unwrap());
    let value = "v".repeat(2_000);
    fill(&origin, (0..KEYS).map(|at| (format!("k{at:06}"), format!("{value}{at}")))).await;
    drop(origin);
    home.ends(&["sync"], 0);
    let (output, peak) = weighed(home.command(&["audit"]).spawn().unwrap()).await;
    assert!(output.status.success());
    assert!(String::from_utf8(output.stdout).unwrap().contains("\"intact\":100000"));
    assert!(peak > 0 && peak < KILOBYTES_MAX, "{peak} kB");
}

#[tokio::test]
async fn an_audit_asks_the_store_no_faster_than_its_budget() {
    let rig = Rig::new();
    let origin: SharedStore = rig.origin.clone();
    fill(&origin, (0..3_500).map(|number| (format!("k{number:04}"), "1".to_owned()))).await;
    rig.run().await;
    let before = rig.clock.elapsed_ms();
    let audit = rig.line().await.audit(Budget { requests_per_second: Some(1), ..ALL }, None).await.unwrap();
    assert!(audit.is_clean());
    assert!(rig.clock.elapsed_ms() - before >= 2_000, "several pages, one a second");
}
