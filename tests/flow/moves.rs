//! A record whose key changes: the new key is there before the old one goes, and the old one does go.

use std::sync::Arc;

use trueup::store::faulty::{Faulty, Mishap};

use super::rig::Rig;
use super::scripted::{Say, Script, Told};
use Say::{Complete, Seen};

async fn moving() -> (Arc<Script>, Rig) {
    let script = Script::new();
    let rig = Rig { shape: Arc::new(Told::default()), ..Rig::over(script.clone()) };
    script.say(&[Seen("doc", "", "key=old text"), Complete("", None)]);
    rig.ran(1, 0, 0, 0).await;
    script.say(&[Seen("doc", "", "key=new text"), Complete("", None)]);
    (script, rig)
}

#[tokio::test]
async fn a_moved_record_leaves_its_old_key() {
    let (_, rig) = moving().await;
    rig.ran(0, 1, 0, 0).await;
    assert_eq!((rig.value("old").await, rig.value("new").await.as_deref()), (None, Some("key=new text")));
    rig.at_rest().await;
    rig.ran(0, 0, 0, 1).await;
}

/// The new key was taken, so nothing could be written there; the old one had been deleted by then.
#[tokio::test]
async fn the_old_key_stays_when_the_new_one_is_taken() {
    let (_, mut rig) = moving().await;
    rig.intrude("new", "theirs").await;
    for _ in 0..2 {
        let report = rig.run().await;
        assert_eq!((report.counts.held, report.counts.updated), (1, 0), "{report:#?}");
        assert_eq!(rig.value("old").await.as_deref(), Some("key=old text"));
        assert_eq!(rig.value("new").await.as_deref(), Some("theirs"));
    }
    rig.adopt = true;
    rig.ran(0, 1, 0, 0).await;
    assert_eq!((rig.value("old").await, rig.value("new").await.as_deref()), (None, Some("key=new text")));
    rig.at_rest().await;
}

#[tokio::test]
async fn a_move_that_broke_off_is_completed_by_the_next_run() {
    for mishap in [Mishap::Reject, Mishap::FailAfterWrite] {
        for call in 1..12 {
            let (_, mut rig) = moving().await;
            let whole = rig.target.clone();
            let target = Arc::new(Faulty::new(whole.clone(), rig.clock.clone()));
            target.from(call, mishap);
            rig.target = target;
            // It may fail or not; what counts is what the next one makes of it.
            drop(rig.line().await.run(&trueup::pipeline::Ask::plain("test")).await);
            rig.target = whole;
            rig.run().await;
            assert_eq!(rig.value("old").await, None, "{mishap:?} from call {call} on");
            assert_eq!(rig.value("new").await.as_deref(), Some("key=new text"), "{mishap:?} {call}");
            rig.at_rest().await;
        }
    }
}
