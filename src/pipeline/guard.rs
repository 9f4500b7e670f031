//! The guard: over a threshold, every change of that kind is held and the rest goes on. Pure.
//!
//! What was held stays held for as long as as much of it is wanted: that there are more keys by now, or so few that a
//! percentage says nothing, is nobody's decision.

use crate::config::{Guard, Limit};

/// How many changes of each kind a plan holds, against how many keys are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Population {
    pub known: u64,
    pub updates: u64,
    pub deletes: u64,
}

/// Changes of one kind that were held before and are still wanted, and how many keys were known when they were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waiting {
    pub changes: u64,
    pub known: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waitings {
    pub updates: Waiting,
    pub deletes: Waiting,
}

impl Waiting {
    /// One more that was held by this rule.
    pub fn add(&mut self, rule: &str) {
        self.changes += 1;
        self.known = self.known.max(known_then(rule).unwrap_or(0));
    }
}

/// How many keys were known, by the rule's own words. A plain number asks for none.
fn known_then(rule: &str) -> Option<u64> {
    rule.rsplit_once("% of ")?.1.parse().ok()
}

/// It was this guard that held it, and no decision of a person.
pub fn is_by_guard(rule: &str) -> bool {
    rule.starts_with("max_update ") || rule.starts_with("max_delete ")
}

/// The rule that holds each kind, in the words a person reads; `None` = let it go on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holds {
    pub updates: Option<String>,
    pub deletes: Option<String>,
}

pub fn judge(guard: &Guard, population: Population, waiting: Waitings) -> Holds {
    let over = |name: &str, limit: Limit, count: u64, waiting: Waiting| {
        let sides = [(count, population.known), (waiting.changes, waiting.known)];
        let (_, known) =
            sides.into_iter().find(|(count, known)| exceeds(limit, *count, *known, guard.above))?;
        Some(match limit {
            Limit::Percent(percent) => format!("{name} {percent}% of {known}"),
            Limit::Count(most) => format!("{name} {most}"),
        })
    };
    Holds {
        updates: over("max_update", guard.max_update, population.updates, waiting.updates),
        deletes: over("max_delete", guard.max_delete, population.deletes, waiting.deletes),
    }
}

fn exceeds(limit: Limit, count: u64, known: u64, above: u64) -> bool {
    match limit {
        Limit::Count(most) => count > most,
        Limit::Percent(percent) => known > above && count as f64 * 100.0 > percent * known as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_held_only_over_its_threshold() {
        let percent = Limit::Percent;
        let count = Limit::Count;
        for (limit, above, known, deletes, held) in [
            (percent(30.0), 10, 94, 28, false),
            (percent(30.0), 10, 94, 29, true),
            (percent(30.0), 10, 10, 10, false), // at or below `above`, a percentage says nothing
            (percent(30.0), 10, 11, 4, true),
            (percent(30.0), 10, 0, 0, false),
            (percent(0.0), 0, 5, 1, true),
            (percent(100.0), 0, 5, 5, false),
            (count(5), 10, 8, 5, false),
            (count(5), 10, 8, 6, true), // a plain number always applies
            (count(0), 10, 1, 1, true),
        ] {
            let guard = Guard { max_delete: limit, max_update: Limit::Percent(100.0), above };
            let holds = judge(&guard, Population { known, updates: 0, deletes }, Waitings::default());
            assert_eq!(holds.deletes.is_some(), held, "{limit:?} above {above}: {deletes} of {known}");
        }
    }

    #[test]
    fn what_was_held_stays_held_while_as_much_of_it_is_wanted() {
        let of = |changes: u64, rule: &str| {
            let mut deletes = Waiting::default();
            (0..changes).for_each(|_| deletes.add(rule));
            Waitings { deletes, ..Waitings::default() }
        };
        let held = |known: u64, deletes: u64, waiting: Waitings| {
            judge(&Guard::default(), Population { known, updates: 0, deletes }, waiting).deletes
        };
        assert_eq!(held(25, 7, Waitings::default()), None);
        // More keys came, or so many went that a percentage says nothing.
        let rule = "max_delete 30% of 20";
        assert_eq!(held(25, 7, of(7, rule)).as_deref(), Some(rule));
        assert_eq!(held(9, 7, of(7, rule)).as_deref(), Some(rule));
        // Most of it came back.
        assert_eq!(held(25, 6, of(6, rule)), None);
        // A person raised the threshold.
        let lenient = Guard { max_delete: Limit::Percent(40.0), ..Guard::default() };
        let population = Population { known: 25, updates: 0, deletes: 7 };
        assert_eq!(judge(&lenient, population, of(7, rule)), Holds::default());
    }

    #[test]
    fn the_rule_names_the_threshold_and_the_population() {
        let holds =
            judge(&Guard::default(), Population { known: 94, updates: 0, deletes: 90 }, Waitings::default());
        assert_eq!(holds.deletes.as_deref(), Some("max_delete 30% of 94"));
        assert_eq!(holds.updates, None);
    }
}
