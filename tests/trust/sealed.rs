//! Sealed plans: what was looked at is what is done, or nothing is, and the refusal names the difference.

use std::time::Duration;

use trueup::clock::{Clock, TestClock};
use trueup::error::{Error, Kind};
use trueup::pipeline::Ask;
use trueup::pipeline::seal::Sealed;
use trueup::state::{Report, Status, keys};
use trueup::store::SharedStore;

use super::place::{Home, every_store, whole};
use crate::flow::rig::{NOW, Rig, contents, did};

const DIGEST: &str = "the settings as they were";

async fn seal(rig: &Rig) -> Sealed {
    rig.line().await.seal(&Ask::plain("plan"), DIGEST).await.unwrap()
}

async fn apply(rig: &Rig, sealed: Sealed) -> Result<Report, Error> {
    rig.line().await.run_sealed(sealed, Ask::plain("plan"), DIGEST).await
}

/// Some records in step, then one to add, one to update, one to delete.
async fn ahead_by_three(rig: &Rig) {
    rig.give(&[("kept", "1"), ("changed", "1"), ("gone", "1")]).await;
    rig.run().await;
    rig.give(&[("changed", "2"), ("new", "1")]).await;
    rig.take_away(&["gone"]).await;
}

/// Refused as a conflict that says so, with nothing done and no run begun.
async fn is_refused(rig: &Rig, sealed: Sealed, why: &str) {
    let runs = rig.state().await.keys(keys::RUNS).await.unwrap();
    let before = contents(&rig.target).await;
    let error = apply(rig, sealed).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict, "{error}");
    assert!(error.to_string().contains(why), "{error} does not say: {why}");
    assert!(error.remedy().contains("trueup plan"), "{}", error.remedy());
    assert_eq!(contents(&rig.target).await, before, "a refused plan writes nothing");
    assert_eq!(rig.state().await.keys(keys::RUNS).await.unwrap(), runs, "a refused plan is no run");
}

#[tokio::test]
async fn a_sealed_plan_is_applied_as_it_was_seen_on_every_store() {
    let folder = crate::support::temp();
    for target in every_store(&folder, "sealed").await {
        let rig = Rig { target, ..Rig::new() };
        ahead_by_three(&rig).await;
        let sealed = seal(&rig).await;
        assert_eq!(sealed.steps.len(), 3);
        let caps = rig.target.caps();
        assert_eq!(sealed.best_effort, !(caps.cas && caps.strong_read), "{}", rig.target.name());
        let sealed = Sealed::parse(&sealed.to_text().unwrap()).unwrap();
        let again = sealed.clone();
        let report = apply(&rig, sealed).await.unwrap();
        assert_eq!((report.status, did(&report)), (Status::Ok, [1, 1, 1, 1]), "{}", rig.target.name());
        rig.in_step().await;
        is_refused(&rig, again, "no longer called for").await;
    }
}

#[tokio::test]
async fn a_store_that_moved_is_refused_on_every_store() {
    let folder = crate::support::temp();
    for target in every_store(&folder, "sealed-moved").await {
        let rig = Rig { target, ..Rig::new() };
        ahead_by_three(&rig).await;
        let sealed = seal(&rig).await;
        rig.intrude("gone", "somebody's").await;
        let before = whole(&rig.target).await;
        is_refused(&rig, sealed, "gone changed in the store since").await;
        assert_eq!(whole(&rig.target).await, before, "{}", rig.target.name());
    }
}

#[tokio::test]
async fn a_source_that_moved_is_refused_with_the_key_that_did() {
    let rig = Rig::new();
    ahead_by_three(&rig).await;
    let sealed = seal(&rig).await;
    rig.give(&[("changed", "3")]).await;
    is_refused(&rig, sealed.clone(), "the source of changed changed since").await;
    rig.give(&[("changed", "2"), ("more", "1")]).await;
    is_refused(&rig, sealed.clone(), "the add of more is new since").await;
    rig.take_away(&["more"]).await;
    rig.give(&[("gone", "1")]).await;
    is_refused(&rig, sealed.clone(), "the delete of gone is no longer called for").await;
    // As it was when it was sealed: nothing stands in the way.
    rig.take_away(&["gone"]).await;
    assert_eq!(apply(&rig, sealed).await.unwrap().status, Status::Ok);
    rig.in_step().await;
}

#[tokio::test]
async fn a_plan_ages_and_its_settings_may_change() {
    let rig = Rig::new();
    ahead_by_three(&rig).await;
    let sealed = seal(&rig).await;
    let line = rig.line().await;
    let other = line.run_sealed(sealed.clone(), Ask::plain("plan"), "other settings").await.unwrap_err();
    assert!(other.to_string().contains("the config of line changed since"), "{other}");
    rig.clock.advance(Duration::from_secs(24 * 3600));
    assert_eq!(apply(&rig, sealed.clone()).await.unwrap().status, Status::Ok, "24 hours to the millisecond");
    ahead_by_three(&rig).await;
    let sealed = seal(&rig).await;
    rig.clock.advance(Duration::from_millis(24 * 3600 * 1000 + 1));
    is_refused(&rig, sealed, "more than 24 hours ago").await;
    let early = Rig { clock: TestClock::at("2025-12-31T00:00:00Z", 1), ..rig };
    is_refused(&early, seal_at(&early, NOW).await, "yet to come").await;
}

/// Sealed by a machine whose clock says so.
async fn seal_at(rig: &Rig, time: &str) -> Sealed {
    let mut line = rig.line().await;
    line.clock = TestClock::at(time, 1);
    line.seal(&Ask::plain("plan"), DIGEST).await.unwrap()
}

#[tokio::test]
async fn a_plan_for_one_key_does_that_one_and_a_full_one_reads_everything() {
    let rig = Rig::new();
    ahead_by_three(&rig).await;
    let only = Ask { only: Some("changed".into()), ..Ask::plain("plan") };
    let sealed = rig.line().await.seal(&only, DIGEST).await.unwrap();
    let report = apply(&rig, sealed).await.unwrap();
    assert_eq!(did(&report)[..3], [0, 1, 0]);
    assert_eq!((rig.value("changed").await.as_deref(), rig.value("new").await), (Some("2"), None));
    let full = Ask { full: true, ..Ask::plain("plan") };
    let sealed = rig.line().await.seal(&full, DIGEST).await.unwrap();
    assert!(sealed.full && sealed.cursors.is_empty());
    assert_eq!(apply(&rig, sealed).await.unwrap().status, Status::Ok);
    rig.in_step().await;
}

/// Random plans, each sealed and then met by one of: nothing, an edit at the source, an edit in the store, a changed
/// byte in the file. Only the first is applied.
#[tokio::test]
async fn random_plans_are_applied_untouched_and_refused_otherwise() {
    for seed in 0..120u64 {
        let dice = TestClock::at(NOW, seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let below = |most: u64| dice.random() % most;
        let rig = Rig::new();
        for round in 0..2 {
            for _ in 0..4 + below(12) {
                let key = format!("k{:02}", below(20));
                if below(4) == 0 {
                    rig.take_away(&[&key]).await;
                } else {
                    rig.give(&[(&key, &format!("{}", below(5)))]).await;
                }
            }
            if round == 0 {
                rig.run().await;
            }
        }
        let sealed = seal(&rig).await;
        if sealed.steps.is_empty() {
            continue;
        }
        let planned = sealed.steps[usize::try_from(below(sealed.steps.len() as u64)).unwrap()].key.clone();
        match below(4) {
            0 => {
                let report = apply(&rig, sealed).await.unwrap();
                assert_eq!(report.status, Status::Ok, "seed {seed}: {report:#?}");
                rig.in_step().await;
            }
            1 => {
                rig.give(&[(&planned, "another")]).await;
                is_refused(&rig, sealed, &planned).await;
            }
            2 => {
                rig.intrude(&planned, "another").await;
                is_refused(&rig, sealed, &planned).await;
            }
            _ => altered_bytes_are_noticed(&sealed, &dice, seed),
        }
    }
}

fn altered_bytes_are_noticed(sealed: &Sealed, dice: &TestClock, seed: u64) {
    let text = sealed.to_text().unwrap();
    assert_eq!(&Sealed::parse(&format!("{text}\n")).unwrap(), sealed, "an editor's newline is no change");
    for _ in 0..40 {
        let mut bytes = text.clone().into_bytes();
        let at = usize::try_from(dice.random() % bytes.len() as u64).unwrap();
        match dice.random() % 3 {
            0 => bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' },
            1 => drop(bytes.remove(at)),
            _ => bytes.insert(at, b' '),
        }
        let Ok(altered) = String::from_utf8(bytes) else { continue };
        let error = Sealed::parse(&altered).expect_err("an altered plan");
        assert_eq!(error.kind(), Kind::Conflict, "seed {seed}, byte {at}: {error}");
    }
}

#[tokio::test]
async fn what_cannot_be_seen_is_an_error_and_never_an_empty_plan() {
    let home = Home::new(
        "[stores]\nout = \"sqlite:out.db\"\n[pipelines.p]\nfrom = { files = \"in\" }\ninto = \"out\"\n",
    );
    let ended = home.run(&["plan", "--out", "p.plan"]);
    assert_eq!(ended.json["error"]["kind"], "not_found", "{ended:#?}");
    assert_ne!(ended.code, 0);
    assert_eq!(home.read("p.plan"), None, "no plan file for what was not seen");
}

#[tokio::test]
async fn the_program_applies_its_own_file_and_refuses_an_altered_one() {
    let home = Home::new(
        "[stores]\nout = \"sqlite:out.db\"\n[pipelines.p]\nfrom = { files = \"in\" }\ninto = \"out\"\n\
         then = { webhook = \"http://127.0.0.1:1/\", secret_env = \"HOOK_SECRET\" }\n",
    );
    home.write("in/a", "1");
    let canary = "canary-4711";
    let output = home.command(&["plan", "--out", "p.plan"]).env("HOOK_SECRET", canary).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = home.read("p.plan").unwrap();
    assert!(!text.contains(canary), "a plan holds no secret");
    assert!(!home.path("out.db").exists(), "a plan creates no store");
    home.write("altered.plan", text.replace("\"add\"", "\"delete\""));
    let altered = home.ends(&["sync", "--plan", "altered.plan"], 1);
    assert_eq!(altered["error"]["kind"], "conflict", "{altered}");
    home.write("in/b", "1");
    let moved = home.ends(&["sync", "--plan", "p.plan"], 1);
    assert!(moved["error"]["message"].as_str().unwrap().contains("the add of b is new since"), "{moved}");
    home.remove("in/b");
    let ran = home.run(&["sync", "--plan", "p.plan"]);
    assert_eq!(ran.json["runs"][0]["added"], 1, "{ran:#?}");
    let held: SharedStore = std::sync::Arc::new(
        trueup::store::sqlite::Sqlite::open(&home.path("out.db"), trueup::store::Access::Read).unwrap(),
    );
    assert_eq!(contents(&held).await.len(), 1);
}
