//! New keys that go into the table together, by one statement: to begin and to end one costs as much as a row does.

use rusqlite::{Connection, Statement};

use super::{CAPS, INLINE_MAX};
use crate::store::{Expect, Item, Op, check_limits};

/// Rows of such a statement.
pub(super) const ROWS: usize = 50;

/// Whether a key may be among those that are put if it is not there yet, whatever is to be done if it is.
fn may_be_new(item: &Item) -> bool {
    let Op::Put { value, .. } = &item.op else { return false };
    value.len() <= INLINE_MAX
        && !matches!(item.expect, Expect::Exactly(_))
        && check_limits(&CAPS, item).is_ok()
}

pub(super) fn go_together(one: &Item, other: &Item) -> bool {
    may_be_new(one) && may_be_new(other)
}

/// The statement.
pub(super) struct Several<'c>(Statement<'c>);

impl<'c> Several<'c> {
    pub fn prepare(connection: &'c Connection) -> rusqlite::Result<Self> {
        let rows = vec!["(?, ?, ?, ?)"; ROWS].join(", ");
        // One that may be broken off in the middle would keep a copy of every page it changes. This one may not: what fails
        // ends the transaction, and what was put until then goes with it.
        let insert = format!(
            "INSERT OR FAIL INTO kv(key, version, fingerprint, value) VALUES {rows} ON CONFLICT(key) DO NOTHING"
        );
        connection.prepare(&insert).map(Several)
    }

    /// Put those that are new, with versions from `first` on. How many there were comes back.
    pub fn put(&mut self, items: &[Item; ROWS], first: i64) -> rusqlite::Result<usize> {
        let mut at = 0;
        for (item, version) in items.iter().zip(first..) {
            let Op::Put { value, fingerprint } = &item.op else { return Ok(0) };
            self.0.raw_bind_parameter(at + 1, item.key.as_str())?;
            self.0.raw_bind_parameter(at + 2, version)?;
            self.0.raw_bind_parameter(at + 3, fingerprint.as_ref().map(|print| print.0.as_slice()))?;
            self.0.raw_bind_parameter(at + 4, &value[..])?;
            at += 4;
        }
        self.0.raw_execute()
    }
}
