//! Setting aside the items a store refuses, and putting their errors back in their places among the outcomes.

use super::{Caps, Item, Mode, Outcome, check_limits, check_lone};
use crate::error::{Error, Result};

/// The errors of refused items, by their place in the batch.
pub(super) struct Refused(Vec<(usize, Error)>);

/// What goes on, and what does not. The usual limits are checked here, `own` are a store's.
pub(super) fn sift(
    items: Vec<Item>,
    mode: Mode,
    caps: &Caps,
    own: impl Fn(&Item) -> Result<()>,
) -> (Vec<Item>, Refused) {
    let mut refused = Vec::new();
    let mut good = Vec::with_capacity(items.len());
    for (at, item) in items.into_iter().enumerate() {
        match check_limits(caps, &item).and_then(|()| check_lone(&item, mode)).and_then(|()| own(&item)) {
            Ok(()) => good.push(item),
            Err(error) => refused.push((at, error.while_(item.key))),
        }
    }
    (good, Refused(refused))
}

impl Refused {
    /// All or nothing, and something was refused: the outcomes without asking the store any further.
    pub fn stops(&self, mode: Mode) -> bool {
        mode == Mode::All && !self.0.is_empty()
    }

    pub fn untouched(self, good: usize) -> Vec<Result<Outcome>> {
        self.among((0..good).map(|_| Ok(Outcome::Untouched)).collect())
    }

    /// The errors among the outcomes of the rest.
    pub fn among(self, outcomes: Vec<Result<Outcome>>) -> Vec<Result<Outcome>> {
        if self.0.is_empty() {
            return outcomes;
        }
        let mut rest = outcomes.into_iter();
        let mut all = Vec::with_capacity(rest.len() + self.0.len());
        for (at, error) in self.0 {
            while all.len() < at {
                let Some(outcome) = rest.next() else { break };
                all.push(outcome);
            }
            all.push(Err(error));
        }
        all.extend(rest);
        all
    }
}
