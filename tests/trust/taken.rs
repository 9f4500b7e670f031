//! Work taken by somebody outside: leases, tokens, and what a stale one may not do.

use std::time::Duration;

use trueup::error::Kind;
use trueup::queue::outside::{Filter, done, fail, take};
use trueup::queue::{self, FollowUp};
use trueup::state::State;

use super::place::Home;
use crate::flow::rig::Rig;

const LEASE: Duration = Duration::from_secs(60);

async fn waiting() -> (Rig, State) {
    let rig = Rig { then: vec![FollowUp::outside()], ..Rig::new() };
    rig.give(&[("a", "1"), ("b", "1")]).await;
    rig.run().await;
    let state = rig.state().await;
    (rig, state)
}

fn only(key: &str) -> Filter {
    Filter { key: Some(key.to_owned()), ..Filter::default() }
}

#[tokio::test]
async fn what_is_taken_is_nobody_elses_until_the_lease_is_over() {
    let (rig, state) = waiting().await;
    let clock = rig.clock.as_ref();
    let taken = take(&state, clock, &Filter::default(), 1, LEASE).await.unwrap();
    assert_eq!((taken.len(), taken[0].what.key.as_str(), taken[0].what.state()), (1, "a", "taken"));
    let rest = take(&state, clock, &Filter::default(), 10, LEASE).await.unwrap();
    assert_eq!(rest.iter().map(|one| one.what.key.as_str()).collect::<Vec<_>>(), ["b"]);
    assert!(take(&state, clock, &Filter::default(), 10, LEASE).await.unwrap().is_empty());
    rig.clock.advance(LEASE);
    assert_eq!(take(&state, clock, &Filter::default(), 10, LEASE).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_stale_token_is_refused() {
    let (rig, state) = waiting().await;
    let first = take(&state, rig.clock.as_ref(), &only("a"), 1, LEASE).await.unwrap()[0].what.fence;
    rig.clock.advance(LEASE);
    let second = take(&state, rig.clock.as_ref(), &only("a"), 1, LEASE).await.unwrap()[0].what.fence;
    assert_ne!(first, second);
    let refused = done(&state, &only("a"), Some(first)).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Conflict);
    assert!(fail(&state, rig.clock.as_ref(), &only("a"), Some(first), "x").await.is_err());
    done(&state, &only("a"), Some(second)).await.unwrap();
    assert_eq!(done(&state, &only("a"), Some(second)).await.unwrap_err().kind(), Kind::NotFound);
}

/// Tokens began at one for every version of a task: who had taken the older one could settle the newer.
#[tokio::test]
async fn a_token_of_an_older_version_does_not_fit_a_newer_one() {
    let (rig, state) = waiting().await;
    let old = take(&state, rig.clock.as_ref(), &only("a"), 1, LEASE).await.unwrap()[0].what.fence;
    rig.give(&[("a", "2")]).await;
    rig.run().await;
    let new = take(&state, rig.clock.as_ref(), &only("a"), 1, LEASE).await.unwrap();
    assert_eq!(new.len(), 1, "a newer version is open, whoever had taken the older one");
    assert_eq!(done(&state, &only("a"), Some(old)).await.unwrap_err().kind(), Kind::Conflict);
    assert_eq!(queue::waiting(&state).await.unwrap().len(), 2);
}

#[tokio::test]
async fn three_failures_make_a_dead_letter_and_a_newer_version_settles_it() {
    let (rig, state) = waiting().await;
    let clock = rig.clock.as_ref();
    for attempt in 1..=3 {
        let token = take(&state, clock, &only("a"), 1, LEASE).await.unwrap()[0].what.fence;
        let failed = fail(&state, clock, &only("a"), Some(token), "no disk").await.unwrap();
        assert_eq!(failed.what.attempts, attempt);
    }
    let letters = queue::dead::all(&state).await.unwrap();
    assert_eq!((letters.len(), letters[0].what.cause.message.as_str()), (1, "no disk"));
    assert!(!letters[0].what.cause.remedy.is_empty());
    assert_eq!(queue::waiting(&state).await.unwrap().len(), 1);
    rig.give(&[("a", "2")]).await;
    rig.run().await;
    assert!(queue::dead::all(&state).await.unwrap().is_empty());
    let waiting = queue::waiting(&state).await.unwrap();
    assert_eq!((waiting[0].what.key.as_str(), waiting[0].what.attempts), ("a", 0));
    queue::dead::retry(&state, &letters).await.unwrap();
    assert_eq!(
        queue::waiting(&state).await.unwrap()[0].what,
        waiting[0].what,
        "an old letter replaces nothing"
    );
}

#[tokio::test]
async fn a_newer_version_replaces_an_older_task() {
    let (rig, state) = waiting().await;
    let old = queue::waiting(&state).await.unwrap()[0].what.clone();
    rig.take_away(&["a"]).await;
    rig.run().await;
    let new = queue::waiting(&state).await.unwrap()[0].what.clone();
    assert_eq!((new.key.as_str(), new.change.name(), new.bytes), ("a", "delete", None));
    assert_ne!(old.write, new.write);
}

/// The queue by the program: nothing answers at port 9, so everything waits for whoever takes it.
#[test]
fn the_program_hands_work_out_and_takes_it_back() {
    let home = Home::new(
        "[pipelines.notes]\nfrom = { files = \"notes\" }\ninto = \"file:out\"\nthen = { webhook = \"http://127.0.0.1:9/hook\" }\n",
    );
    home.write("notes/a", "1");
    home.write("notes/b", "1");
    let run = home.ends(&["sync"], 0);
    assert_eq!((&run["runs"][0]["dead"], &run["runs"][0]["added"]), (&0.into(), &2.into()));
    let listed = home.ends(&["queue", "ls"], 0);
    let one = &listed["queue"][0];
    assert_eq!(
        (&one["key"], &one["pipeline"], &one["state"], &one["attempts"]),
        (&"a".into(), &"notes".into(), &"open".into(), &0.into())
    );
    assert!(one["then"].as_str().unwrap().starts_with("webhook-") && one["error"].is_string(), "{one}");
    home.ends(&["queue", "work"], 3);
    assert_eq!(
        home.ends(&["queue", "ls"], 0)["queue"][0]["attempts"],
        0,
        "nobody answered: that counts for nothing"
    );

    let taken = home.ends(&["queue", "take", "--limit", "5"], 0);
    assert_eq!(taken["queue"].as_array().unwrap().len(), 2);
    let token = taken["queue"][0]["token"].to_string();
    home.ends(&["queue", "done", "a", "--token", "1"], 1);
    home.ends(&["queue", "done", "a", "--token", &token], 0);
    home.ends(&["queue", "done", "a"], 1);
    for attempt in 1..=3 {
        let failed = home.ends(&["queue", "fail", "b", "--error", "no luck"], 0);
        assert_eq!(failed["attempts"], attempt);
    }
    dead_letters_are_shown_retried_and_dropped(&home);
}

fn dead_letters_are_shown_retried_and_dropped(home: &Home) {
    let dead = home.ends(&["dead", "ls"], 0);
    let letter = &dead["dead"][0];
    assert_eq!(
        (&letter["key"], &letter["message"], &letter["attempts"]),
        (&"b".into(), &"no luck".into(), &3.into())
    );
    assert!(letter["since"].is_string() && letter["kind"].is_string() && letter["remedy"].is_string());
    assert_eq!(home.ends(&["dead", "show", "b"], 0)["dead"][0]["change"], "add");
    home.ends(&["dead", "show", "a"], 1);
    home.ends(&["dead", "retry"], 2);
    home.ends(&["dead", "retry", "b"], 3);
    assert_eq!(home.ends(&["queue", "ls"], 0)["queue"][0]["attempts"], 0);
    for _ in 1..=3 {
        home.ends(&["queue", "fail", "b"], 0);
    }
    assert_eq!(home.ends(&["dead", "drop", "--all"], 0)["dropped"], 1);
    assert_eq!(home.ends(&["dead", "ls"], 0)["dead"].as_array().unwrap().len(), 0);
    assert_eq!(home.ends(&["queue", "ls"], 0)["queue"].as_array().unwrap().len(), 0);
}
