//! What a sighting means against the baseline. Pure: one identity at a time, no I/O, no clock.

use crate::config::{Drift, Heal};
use crate::record::Fingerprint;
use crate::state::journal::Change;

use super::plan::{Action, Seen, Why};

/// What is known of an identity from earlier runs.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    pub stamp: Fingerprint,
    /// The source's body version at that time.
    pub body: Body<'a>,
    /// The store's version after our last write.
    pub version: &'a str,
}

/// A body version as a record tells it. Most are never asked for.
#[derive(Debug, Clone, Copy)]
pub enum Body<'a> {
    Is(&'a str),
    /// The digits of this fingerprint, as it is told.
    Fingerprint(&'a str),
}

impl Body<'_> {
    pub fn is(self, version: &str) -> bool {
        match self {
            Body::Is(known) => known == version,
            Body::Fingerprint(told) => Fingerprint::read(told).is_some_and(|print| print.is_told_by(version)),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    Same,
    Act(Action),
    /// The store was changed behind our back, and the config says to leave it.
    Drifted(&'static str),
}

/// An entry is there. Is there anything to do about it?
pub fn sighted(
    stamp: Fingerprint,
    body: &str,
    known: Option<Known<'_>>,
    seen: &Seen,
    drift: Drift,
) -> Finding {
    let Some(known) = known else { return Finding::Act(Action::Change(Change::Add, Why::New)) };
    if stamp != known.stamp {
        let why = if known.body.is(body) { Why::Path } else { Why::Sha };
        return Finding::Act(Action::Change(Change::Update, why));
    }
    unchanged(known.version, seen, drift)
}

/// The source says what it said before. Does the store?
pub fn unchanged(version: &str, seen: &Seen, drift: Drift) -> Finding {
    match seen {
        Seen::NotAsked => Finding::Same,
        Seen::At(found) if found.0 == version => Finding::Same,
        Seen::At(_) => heal(drift.edited, "edited"),
        Seen::Nothing => heal(drift.missing, "missing"),
    }
}

fn heal(policy: Heal, class: &'static str) -> Finding {
    match policy {
        Heal::Heal => Finding::Act(Action::Change(Change::Update, Why::Drift)),
        Heal::Adopt if class == "edited" => Finding::Act(Action::Restamp),
        Heal::Adopt | Heal::Report => Finding::Drifted(class),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Version;

    const UPDATE: fn(Why) -> Finding = |why| Finding::Act(Action::Change(Change::Update, why));

    #[test]
    fn a_body_that_is_its_own_fingerprint_is_known_however_that_is_told() {
        let print = Fingerprint::of(b"body");
        let digits = print.to_string();
        let letters = print.with_letters(|letters| String::from_utf8(letters.to_vec()).unwrap());
        for told in [&digits, &letters] {
            assert!(Body::Fingerprint(told).is(&digits), "{told}");
            assert!(!Body::Fingerprint(told).is(&letters) && !Body::Fingerprint(told).is(""), "{told}");
        }
        assert!(Body::Is("1").is("1") && !Body::Is(&letters).is(&digits));
    }

    #[test]
    fn every_combination_has_one_meaning() {
        let (old, new) = (Fingerprint::of(b"old"), Fingerprint::of(b"new"));
        let known = Some(Known { stamp: old, body: Body::Is("b1"), version: "7" });
        let at = |version: &str| Seen::At(Version(version.into()));
        let policy = |edited| Drift { edited, ..Drift::default() };
        let heal = policy(Heal::Heal);
        for (stamp, body, known, seen, drift, expected) in [
            (new, "b1", None, Seen::NotAsked, heal, Finding::Act(Action::Change(Change::Add, Why::New))),
            (new, "b1", None, at("7"), heal, Finding::Act(Action::Change(Change::Add, Why::New))),
            (old, "b1", known, Seen::NotAsked, heal, Finding::Same),
            (old, "b1", known, at("7"), heal, Finding::Same),
            (old, "b1", known, at("8"), heal, UPDATE(Why::Drift)),
            (old, "b1", known, at("8"), policy(Heal::Report), Finding::Drifted("edited")),
            (old, "b1", known, at("8"), policy(Heal::Adopt), Finding::Act(Action::Restamp)),
            (old, "b1", known, Seen::Nothing, heal, UPDATE(Why::Drift)),
            (new, "b2", known, at("7"), heal, UPDATE(Why::Sha)),
            (new, "b1", known, at("7"), heal, UPDATE(Why::Path)),
            (new, "b2", known, Seen::Nothing, policy(Heal::Report), UPDATE(Why::Sha)),
        ] {
            assert_eq!(
                sighted(stamp, body, known, &seen, drift),
                expected,
                "{body} {known:?} {seen:?} {drift:?}"
            );
        }
    }
}
