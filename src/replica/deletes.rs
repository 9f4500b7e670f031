//! When a key that is gone was deleted. etcd does not say; its history, asked at one revision after another, does.

use super::drain::Drainer;
use super::outcome::Outcome;
use super::packing::Planned;
use crate::error::Result;
use crate::etcd::request::key_at;
use crate::etcd::{RangeRequest, TxnRequest};

/// Keys looked at per transaction of reads.
const LOOKS_MAX: usize = 100;

/// A key that was there at `low` and is not at `high`.
struct Search {
    /// Of the write, in its batch.
    index: usize,
    low: i64,
    high: i64,
}

impl Search {
    fn middle(&self) -> i64 {
        self.low + (self.high - self.low) / 2
    }

    fn is_over(&self) -> bool {
        self.high - self.low <= 1
    }
}

impl Drainer<'_> {
    /// Which delete each of these writes lost to, as of a revision. What cannot be found out (it is compacted away, or
    /// etcd is) is left to what the mirror knows: it stops nothing.
    pub(super) async fn find_deletes(&self, writes: &mut [(Planned, Outcome)], upto: i64) {
        let lost = |(index, write): (usize, &(Planned, Outcome))| {
            let low = write.0.expected;
            let gone = matches!(write.1, Outcome::Gone { at: None }) && 0 < low && low < upto;
            gone.then_some(Search { index, low, high: upto })
        };
        let mut searches: Vec<Search> = writes.iter().enumerate().filter_map(lost).collect();
        // A writer may expect any revision: only one the key really had is where a search can begin.
        let begins = |search: &Search| search.low;
        match self.are_there(writes, &searches, begins).await {
            Ok(there) => retain(&mut searches, &there),
            Err(_) => return,
        }
        while searches.iter().any(|search| !search.is_over()) {
            let Ok(there) = self.are_there(writes, &searches, Search::middle).await else { return };
            for (search, there) in searches.iter_mut().zip(there).filter(|(search, _)| !search.is_over()) {
                let middle = search.middle();
                *(if there { &mut search.low } else { &mut search.high }) = middle;
            }
        }
        for Search { index, high, .. } in searches {
            writes[index].1 = Outcome::Gone { at: Some(high) };
        }
    }

    /// Whether the key of each search was there at a revision.
    async fn are_there(
        &self,
        writes: &[(Planned, Outcome)],
        searches: &[Search],
        at: impl Fn(&Search) -> i64,
    ) -> Result<Vec<bool>> {
        let mut there = Vec::with_capacity(searches.len());
        for chunk in searches.chunks(LOOKS_MAX.min(self.build.row_max())) {
            let look = |search: &Search| {
                let key = writes[search.index].0.row.key.clone();
                RangeRequest { keys_only: true, ..key_at(key, at(search)) }.into()
            };
            let request = TxnRequest { success: chunk.iter().map(look).collect(), ..TxnRequest::default() };
            let answer = self.replica.etcd.txn(request).await?;
            there.extend(answer.responses.iter().map(|it| it.found().is_some()));
        }
        Ok(there)
    }
}

fn retain(searches: &mut Vec<Search>, there: &[bool]) {
    let mut there = there.iter();
    searches.retain(|_| there.next().copied().unwrap_or(false));
}
