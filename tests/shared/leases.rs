//! Leases by themselves: who gets one, when, and what a lost one forbids.

use std::sync::Arc;
use std::time::Duration;

use trueup::clock::{Clock, SharedClock, SystemClock, TestClock};
use trueup::error::Kind;
use trueup::state::lease::{Leases, Standing, TTL};
use trueup::state::{State, keys};
use trueup::store::memory::Memory;
use trueup::store::{Item, SharedStore, StoreExt};

use super::{Server, fresh_state, open_state};
use crate::support::eventually;

const BEAT: &str =
    r#"{"machine":"elsewhere","pid":7,"since":"2020-01-01T00:00:00.000Z","fence":3,"id":1,"beat":"#;

async fn beat(store: &SharedStore, number: u32) {
    let record = format!(r#"{BEAT}{number},"renewed":"2020-01-01T00:00:00.000Z"}}"#);
    store.write_one(Item::put(keys::lease("line"), record)).await.unwrap();
    store.write_one(Item::put(keys::fence("line"), "3")).await.unwrap();
}

#[tokio::test]
async fn a_silent_lease_is_taken_after_its_whole_time_and_never_before() {
    let store: SharedStore = Arc::new(Memory::new());
    let clock = TestClock::at("2026-01-01T00:00:00Z", 1);
    beat(&store, 1).await;
    let leases = Leases::new(store.clone(), clock.clone());
    let started = clock.elapsed_ms();
    let lease = leases.acquire("line").await.unwrap();
    let waited = Duration::from_millis(clock.elapsed_ms() - started);
    assert!(waited >= TTL && waited < TTL + Duration::from_secs(1), "{waited:?}");
    let fence = store.get_one(&keys::fence("line")).await.unwrap().unwrap();
    assert_eq!(fence.value, "4", "it grows by one");
    drop(lease);
}

/// What its record says about time is for people: decades old, and still alive because it moves.
#[tokio::test]
async fn a_lease_that_moves_is_busy_whatever_its_clock_says() {
    let store: SharedStore = Arc::new(Memory::new());
    beat(&store, 1).await;
    let leases = Leases::new(store.clone(), SystemClock::new());
    let (acquired, ()) = tokio::join!(leases.acquire("line"), beat_on(&store));
    let error = acquired.err().unwrap();
    assert_eq!(error.kind(), Kind::Busy);
    assert!(error.to_string().contains("elsewhere, process 7, since 2020"), "{error}");
    assert_eq!(leases.standing(&["line"]).await.unwrap(), [Standing::Alive]);
}

async fn beat_on(store: &SharedStore) {
    SystemClock::new().sleep(Duration::from_millis(100)).await;
    beat(store, 2).await;
}

/// A machine whose clock is wrong by so many hours.
struct Skewed(SharedClock, i64);

#[async_trait::async_trait]
impl Clock for Skewed {
    fn now(&self) -> jiff::Timestamp {
        self.0.now() + jiff::SignedDuration::from_hours(self.1)
    }

    fn elapsed_ms(&self) -> u64 {
        self.0.elapsed_ms()
    }

    async fn sleep(&self, wait: Duration) {
        self.0.sleep(wait).await;
    }

    fn random(&self) -> u64 {
        self.0.random()
    }
}

async fn hand_over(server: Server) {
    let url = fresh_state(server).await;
    let store = open_state(&url).await;
    // Two machines whose clocks are a century apart.
    let early = Arc::new(Skewed(SystemClock::new(), -50 * 365 * 24));
    let late = Arc::new(Skewed(SystemClock::new(), 50 * 365 * 24));
    let (one, two) = (Leases::new(store.clone(), early), Leases::new(open_state(&url).await, late));
    let first = one.acquire("line").await.unwrap();
    assert_eq!(two.acquire("line").await.err().unwrap().kind(), Kind::Busy);
    assert_eq!(two.holder("line").await.unwrap().unwrap().fence, 1);
    let state = State::open(store.clone()).await.unwrap().fenced(Some(first.fence()));
    state.put("meta/test", &1).await.unwrap();
    first.release().await;

    // One that runs out stays where it is: only who gives it back takes it away.
    let gone = async || store.get_one(&keys::lease("line")).await.unwrap().is_none();
    assert!(eventually(gone).await, "what was given back is free, and nobody has to wait for its end");
    let second = two.acquire("line").await.unwrap();
    let refused = state.put("meta/test", &2).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Conflict);
    assert!(refused.to_string().contains("lost the lease"), "{refused}");
    assert_eq!(State::look(store).await.unwrap().read::<u32>("meta/test").await.unwrap(), Some(1));
    second.release().await;
    assert_eq!(two.holder("line").await.unwrap(), None);
}

#[tokio::test]
async fn who_has_handed_over_cannot_write_any_more_on_etcd() {
    hand_over(Server::Etcd).await;
}

#[tokio::test]
async fn who_has_handed_over_cannot_write_any_more_on_postgres() {
    hand_over(Server::Postgres).await;
}

/// Of many that want it at once one has it.
#[tokio::test]
async fn one_of_many_gets_a_free_lease() {
    for server in [Server::Etcd, Server::Postgres] {
        let store = open_state(&fresh_state(server).await).await;
        let leases: Vec<Leases> = (0..6).map(|_| Leases::new(store.clone(), SystemClock::new())).collect();
        let all = futures::future::join_all(leases.iter().map(|leases| leases.acquire("line"))).await;
        assert_eq!(all.iter().filter(|one| one.is_ok()).count(), 1, "{server:?}");
    }
}

/// A lease nobody renews ends the work it guards before anybody else may begin.
#[tokio::test]
async fn work_ends_when_its_lease_is_taken_away() {
    let store: SharedStore = Arc::new(Memory::new());
    let leases = Leases::new(store.clone(), SystemClock::new());
    let lease = leases.acquire("line").await.unwrap();
    beat(&store, 9).await;
    let endless = lease.guard(std::future::pending::<trueup::error::Result<()>>());
    let error = tokio::time::timeout(TTL, endless).await.expect("it ends in time").unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
}
