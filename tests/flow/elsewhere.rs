//! A config that leads to another store than it did: what is known of the one says nothing of the other.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use trueup::error::Kind;
use trueup::pipeline::Ask;
use trueup::store::SharedStore;
use trueup::store::memory::Memory;

use super::rig::Rig;
use crate::convergence::seams::{Fuse, Seam};

/// A store that is not listed on every pass.
fn blind(name: &str) -> SharedStore {
    Arc::new(Seam {
        inner: Arc::new(Memory::named(name)),
        fuse: Fuse::new(None),
        done_before: false,
        page: 100,
        blind: true,
        failed_lists: AtomicU64::new(0),
    })
}

/// Nothing had changed at the source, so nothing was written, and the run was ok: the new store stayed empty.
#[tokio::test]
async fn another_store_is_filled_even_if_nobody_lists_it_otherwise() {
    let mut rig = Rig { target: blind("one"), ..Rig::new() };
    rig.give(&[("a", "1"), ("b", "2")]).await;
    rig.ran(2, 0, 0, 0).await;
    rig.ran(0, 0, 0, 2).await;

    rig.target = blind("two");
    rig.ran(0, 2, 0, 0).await;
    assert_eq!((rig.value("a").await.as_deref(), rig.value("b").await.as_deref()), (Some("1"), Some("2")));
    rig.ran(0, 0, 0, 2).await;
}

/// A run that could not see to everything leaves the question open for the next one.
#[tokio::test]
async fn a_look_at_one_key_is_not_the_whole_new_store() {
    let mut rig = Rig { target: blind("one"), ..Rig::new() };
    rig.give(&[("a", "1"), ("b", "2")]).await;
    rig.ran(2, 0, 0, 0).await;

    rig.target = blind("two");
    rig.run_only("a").await;
    assert_eq!((rig.value("a").await.as_deref(), rig.value("b").await), (Some("1"), None));
    rig.ran(0, 1, 0, 1).await;
    assert_eq!(rig.value("b").await.as_deref(), Some("2"));
}

/// It would have taken away from the new store what another run had put there.
#[tokio::test]
async fn a_run_is_undone_in_its_own_store_or_not_at_all() {
    let mut rig = Rig { target: blind("one"), ..Rig::new() };
    rig.give(&[("a", "1")]).await;
    let first = rig.ran(1, 0, 0, 0).await;
    let one = std::mem::replace(&mut rig.target, blind("two"));
    rig.ran(0, 1, 0, 0).await;

    let ask = Ask::plain("undo");
    let refused = rig.line().await.undo(&first.id, &ask, None).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Config);
    assert!(refused.to_string().contains("wrote to one, and `into` leads to two"), "{refused}");
    assert_eq!(rig.line().await.preview_undo(&first.id).await.unwrap_err().kind(), Kind::Config);
    assert_eq!(rig.value("a").await.as_deref(), Some("1"));

    rig.target = one;
    assert_eq!(rig.value("a").await.as_deref(), Some("1"));
    rig.line().await.undo(&first.id, &ask, None).await.unwrap();
    assert_eq!(rig.value("a").await, None);
}
