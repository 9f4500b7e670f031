//! What became of a queued write: read off etcd's answer or, when the answer was lost, off etcd's history. Pure.

use bytes::Bytes;

use super::ConflictRule;
use super::packing::Planned;
use crate::etcd::request::{delete, key, put, unmoved};
use crate::etcd::{Compare, PutRequest, RangeRequest, RequestOp, ResponseOp, TxnRequest};

/// Decided, one way or another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Applied {
        revision: i64,
    },
    /// Deleting what etcd does not have.
    Noop,
    /// Somebody else wrote.
    Conflict {
        winning: i64,
    },
    /// Somebody else deleted the key, or it never was; at this revision, once that is found out.
    Gone {
        at: Option<i64>,
    },
    /// It was sent, etcd has compacted what would show whether it happened, and has this now (`None` = no such key).
    Uncertain {
        now: Option<i64>,
    },
    Failed {
        why: String,
    },
}

impl Outcome {
    pub fn status(&self) -> &'static str {
        match self {
            Outcome::Applied { .. } => "applied",
            Outcome::Noop => "noop",
            Outcome::Conflict { .. } | Outcome::Gone { .. } | Outcome::Uncertain { .. } => "conflict",
            Outcome::Failed { .. } => "failed",
        }
    }

    pub fn revision(&self) -> Option<i64> {
        match self {
            Outcome::Applied { revision } | Outcome::Conflict { winning: revision } => Some(*revision),
            Outcome::Gone { at } | Outcome::Uncertain { now: at } => *at,
            Outcome::Noop | Outcome::Failed { .. } => None,
        }
    }

    /// Why it was not applied, for a person.
    pub fn reason(&self, planned: &Planned) -> Option<String> {
        match self {
            Outcome::Gone { at: None } => {
                Some(format!("expected revision {}, but etcd has no such key", planned.expected))
            }
            Outcome::Gone { at: Some(at) } => {
                Some(format!("expected revision {}, but the key was deleted at {at}", planned.expected))
            }
            Outcome::Conflict { winning } => {
                Some(format!("expected revision {}, etcd has revision {winning}", planned.expected))
            }
            Outcome::Uncertain { now } => {
                let now = now.map_or("no such key".to_owned(), |now| format!("revision {now}"));
                Some(format!(
                    "it may have happened: it was sent on revision {}, etcd has {now} and has compacted what would show it",
                    planned.expected
                ))
            }
            Outcome::Failed { why } => Some(why.clone()),
            Outcome::Applied { .. } | Outcome::Noop => None,
        }
    }

    /// What people find it under in the events, if it is for them to know.
    pub fn event(&self) -> Option<&'static str> {
        match self {
            Outcome::Uncertain { .. } => Some("uncertain"),
            Outcome::Failed { .. } => Some("failed"),
            _ => None,
        }
    }

    /// What etcd has instead, if it surely met another write; 0 = nothing.
    pub fn winning(&self) -> Option<i64> {
        match self {
            Outcome::Conflict { winning } => Some(*winning),
            Outcome::Gone { .. } => Some(0),
            Outcome::Applied { .. } | Outcome::Noop | Outcome::Uncertain { .. } | Outcome::Failed { .. } => {
                None
            }
        }
    }

    /// Parked for a person?
    pub fn is_held(&self, rule: ConflictRule) -> bool {
        rule == ConflictRule::Hold && self.status() == "conflict"
    }

    fn met(there: Option<i64>) -> Self {
        there.map_or(Outcome::Gone { at: None }, |winning| Outcome::Conflict { winning })
    }
}

/// How writes stand in a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Side by side, each with its own condition.
    Row,
    /// The same, in branches of this many.
    Branches(usize),
    /// In branches of this many, of which all writes happen or none: less for the server to do. Why a branch did not
    /// happen is not known; its writes are to be sent again, each with its own condition.
    Together(usize),
}

/// Writes as what a transaction holds.
pub(super) fn requests_of(batch: &[Planned], form: Form) -> Vec<RequestOp> {
    let side_by_side = |writes: &[Planned]| -> Vec<RequestOp> { writes.iter().map(request_of).collect() };
    let branch = |writes: &[Planned]| match form {
        Form::Together(_) => TxnRequest {
            compare: writes.iter().map(condition_of).collect(),
            success: writes.iter().map(write_of).collect(),
            failure: Vec::new(),
        },
        _ => TxnRequest { success: side_by_side(writes), ..TxnRequest::default() },
    };
    match form {
        Form::Row => side_by_side(batch),
        Form::Branches(size) | Form::Together(size) => {
            batch.chunks(size).map(|writes| branch(writes).into()).collect()
        }
    }
}

/// etcd's answers in the order of the writes; a write without an outcome did not happen and is not decided. `None` = they
/// do not fit the question.
pub(super) fn outcomes_of(
    batch: &[Planned],
    form: Form,
    answers: &[ResponseOp],
    revision: i64,
) -> Option<Vec<Option<Outcome>>> {
    let one = |(planned, answer)| answered(planned, answer, revision).map(Some);
    let (Form::Branches(size) | Form::Together(size)) = form else {
        return batch.iter().zip(answers).map(one).collect();
    };
    let mut outcomes = Vec::with_capacity(batch.len());
    for (writes, answer) in batch.chunks(size).zip(answers) {
        let branch = answer.txn()?;
        match form {
            Form::Together(_) if !branch.succeeded => outcomes.extend(writes.iter().map(|_| None)),
            Form::Together(_) => outcomes.extend(branch.responses.iter().map(|it| Some(done(it, revision)))),
            _ => {
                let each: Option<Vec<_>> = writes.iter().zip(&branch.responses).map(one).collect();
                outcomes.extend(each?);
            }
        }
    }
    Some(outcomes)
}

/// One write as an inner transaction: if the key is as expected, write; else say what is there.
fn request_of(planned: &Planned) -> RequestOp {
    let look = RangeRequest { keys_only: true, ..key(planned.row.key.clone()) };
    TxnRequest {
        compare: vec![condition_of(planned)],
        success: vec![write_of(planned)],
        failure: vec![look.into()],
    }
    .into()
}

fn condition_of(planned: &Planned) -> Compare {
    unmoved(planned.row.key.clone(), planned.expected)
}

fn write_of(planned: &Planned) -> RequestOp {
    let at = Bytes::from(planned.row.key.clone());
    match &planned.row.value {
        // A lease stays attached. On a missing key etcd would fail the whole transaction for asking.
        Some(value) => PutRequest { ignore_lease: planned.expected > 0, ..put(at, value.clone()) }.into(),
        None => delete(at).into(),
    }
}

/// What etcd answered for one write. `revision` is the outer transaction's: inner ones have none.
fn answered(planned: &Planned, answer: &ResponseOp, revision: i64) -> Option<Outcome> {
    let inner = answer.txn()?;
    let first = inner.responses.first();
    if inner.succeeded {
        return first.map(|it| done(it, revision));
    }
    Some(missed(planned, first.and_then(ResponseOp::found).map(|pair| pair.mod_revision)))
}

/// The key was as expected. If that was to be absent, deleting it wrote nothing.
fn done(answer: &ResponseOp, revision: i64) -> Outcome {
    if answer.deleted() == Some(0) { Outcome::Noop } else { Outcome::Applied { revision } }
}

fn missed(planned: &Planned, there: Option<i64>) -> Outcome {
    match (&planned.row.value, there) {
        (None, None) => Outcome::Noop,
        (_, there) => Outcome::met(there),
    }
}

/// What a look at a key says about deleting it.
pub(super) fn looked(planned: &Planned, there: Option<i64>) -> Outcome {
    missed(planned, there)
}

/// The answer was lost. `before` and `after` are the key's `mod_revision` right before and at the revision of the
/// transaction, and nobody but that transaction wrote there.
pub(super) fn recovered(deletes: bool, before: Option<i64>, after: Option<i64>, revision: i64) -> Outcome {
    match (deletes, before, after) {
        (false, _, Some(at)) if at == revision => Outcome::Applied { revision },
        (true, Some(_), None) => Outcome::Applied { revision },
        (true, None, None) => Outcome::Noop,
        (_, _, there) => Outcome::met(there),
    }
}

/// The answer was lost, and what history would show is compacted away: what is there now may still tell. `now` are the
/// `create_revision` and the `mod_revision` of what is there.
pub(super) fn guessed(deletes: bool, expected: i64, now: Option<(i64, i64)>, revision: i64) -> Outcome {
    let Some((made, at)) = now else {
        return if deletes { Outcome::Noop } else { Outcome::Uncertain { now: None } };
    };
    // A later write hides the revision of ours, but not that ours made the key.
    if made == revision || at == revision {
        return Outcome::Applied { revision };
    }
    // Nobody has changed it since, so we have not either. Or it was there all along: then it was not deleted, and what was
    // made after the revision that was expected never had that one.
    if at < revision || made < revision && (deletes || made > expected) {
        return Outcome::Conflict { winning: at };
    }
    Outcome::Uncertain { now: Some(at) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_now_tells_some_outcomes_and_not_others() {
        let (r, applied) = (9, Outcome::Applied { revision: 9 });
        let uncertain = |now| Outcome::Uncertain { now };
        let cases = [
            ("put, untouched since", false, Some((3, 9)), applied.clone()),
            ("put that made the key, overwritten", false, Some((9, 12)), applied),
            (
                "put, and nobody changed the key since before",
                false,
                Some((3, 7)),
                Outcome::Conflict { winning: 7 },
            ),
            ("put on what was made later", false, Some((5, 12)), Outcome::Conflict { winning: 12 }),
            ("put, overwritten or lost", false, Some((3, 12)), uncertain(Some(12))),
            ("put, deleted and made again, or lost", false, Some((11, 12)), uncertain(Some(12))),
            ("put, deleted since or before", false, None, uncertain(None)),
            ("delete, and nothing there", true, None, Outcome::Noop),
            ("delete of what was there all along", true, Some((3, 12)), Outcome::Conflict { winning: 12 }),
            ("delete, untouched since before", true, Some((3, 7)), Outcome::Conflict { winning: 7 }),
            ("delete, made again or made before", true, Some((11, 12)), uncertain(Some(12))),
        ];
        for (what, deletes, now, outcome) in cases {
            assert_eq!(guessed(deletes, 3, now, r), outcome, "{what}");
        }
    }

    /// Deletes of nothing travel with other writes, and must not pass for something that happened.
    #[test]
    fn a_delete_that_found_nothing_is_a_noop_whatever_it_travels_with() {
        use crate::etcd::response_op::Response;
        use crate::etcd::{DeleteRangeResponse, TxnResponse};
        let row = super::super::packing::Pending {
            id: 1,
            nonce: None,
            key: "k".to_owned(),
            value: None,
            base: 0,
            expected: 0,
            exact: false,
            attempts: 0,
        };
        let planned = Planned { row, expected: 0, chain: 0 };
        let answer = |deleted| {
            let delete = DeleteRangeResponse { deleted, ..Default::default() };
            let responses = vec![ResponseOp { response: Some(Response::ResponseDeleteRange(delete)) }];
            let inner = TxnResponse { succeeded: true, responses, ..Default::default() };
            ResponseOp { response: Some(Response::ResponseTxn(inner)) }
        };
        assert_eq!(answered(&planned, &answer(0), 9), Some(Outcome::Noop));
        assert_eq!(answered(&planned, &answer(1), 9), Some(Outcome::Applied { revision: 9 }));
    }

    #[test]
    fn history_tells_every_outcome_apart() {
        let (r, applied) = (9, Outcome::Applied { revision: 9 });
        let cases = [
            ("put applied", false, Some(5), Some(9), applied.clone()),
            ("put created", false, None, Some(9), applied.clone()),
            ("put lost to another write", false, Some(7), Some(7), Outcome::Conflict { winning: 7 }),
            ("put lost to a delete", false, None, None, Outcome::Gone { at: None }),
            ("delete applied", true, Some(5), None, applied),
            ("delete of nothing", true, None, None, Outcome::Noop),
            ("delete lost to a write", true, Some(7), Some(7), Outcome::Conflict { winning: 7 }),
        ];
        for (what, deletes, before, after, outcome) in cases {
            assert_eq!(recovered(deletes, before, after, r), outcome, "{what}");
        }
    }
}
