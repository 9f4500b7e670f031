//! Batches on their way from being prepared to being written: state must hold what they intend before the store is asked.
//! Several may be on their way, so that a store of state that takes its time takes them together.

use std::collections::VecDeque;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;

use super::write::{Batch, Gate};
use crate::error::Result;
use crate::state::State;
use crate::store::Item;

pub struct Announcing<'s> {
    state: &'s State,
    gate: Gate,
    commits: FuturesOrdered<BoxFuture<'s, Result<Batch>>>,
    /// State holds them; they wait until there is room for them.
    announced: VecDeque<Batch>,
}

impl<'s> Announcing<'s> {
    pub fn to(gate: Gate, state: &'s State) -> Self {
        Announcing { state, gate, commits: FuturesOrdered::new(), announced: VecDeque::new() }
    }

    /// Have a batch announced. Settling another and intending this one share a transaction.
    pub fn push(&mut self, settled: Vec<Item>, mut batch: Batch) {
        let (state, mut items) = (self.state, settled);
        items.append(&mut batch.announced);
        self.commits.push_back(Box::pin(async move { state.commit(items).await.map(|()| batch) }));
    }

    /// Hand on what is announced, in order, until no more than so many are left. Whoever stops waiting in between loses none.
    pub async fn hand_on(&mut self, left: usize) -> Result<()> {
        while self.commits.len() + self.announced.len() > left {
            tokio::select! {
                Some(announced) = self.commits.next() => self.announced.push_back(announced?),
                room = self.gate.room(), if !self.announced.is_empty() => {
                    let room = room?;
                    if let Some(batch) = self.announced.pop_front() {
                        room.send(batch);
                    }
                }
            }
        }
        Ok(())
    }
}
