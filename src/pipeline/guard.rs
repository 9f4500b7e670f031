//! The guard: over a threshold, every change of that kind is held and the rest goes on. Pure.

use crate::config::{Guard, Limit};

/// How many changes of each kind a plan holds, against how many keys are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Population {
    pub known: u64,
    pub updates: u64,
    pub deletes: u64,
}

/// The rule that holds each kind, in the words a person reads; `None` = let it go on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holds {
    pub updates: Option<String>,
    pub deletes: Option<String>,
}

pub fn judge(guard: &Guard, population: Population) -> Holds {
    let over = |name: &str, limit: Limit, count: u64| {
        exceeds(limit, count, population.known, guard.above).then(|| match limit {
            Limit::Percent(percent) => format!("{name} {percent}% of {}", population.known),
            Limit::Count(most) => format!("{name} {most}"),
        })
    };
    Holds {
        updates: over("max_update", guard.max_update, population.updates),
        deletes: over("max_delete", guard.max_delete, population.deletes),
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
            let holds = judge(&guard, Population { known, updates: 0, deletes });
            assert_eq!(holds.deletes.is_some(), held, "{limit:?} above {above}: {deletes} of {known}");
        }
    }

    #[test]
    fn the_rule_names_the_threshold_and_the_population() {
        let holds = judge(&Guard::default(), Population { known: 94, updates: 0, deletes: 90 });
        assert_eq!(holds.deletes.as_deref(), Some("max_delete 30% of 94"));
        assert_eq!(holds.updates, None);
    }
}
