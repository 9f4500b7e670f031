//! A state without a journal, to see what the journal costs: what would go there is dropped on the way to the disk.
//! The engine itself has no such switch, because the journal is also what makes a crash harmless. The records are
//! still put together, so what is measured is nearly all, not all of the cost.

use async_trait::async_trait;
use trueup::error::Result;
use trueup::store::{Caps, Item, Mode, Outcome, Page, Query, SharedStore, Store, Stored};

pub struct Unjournaled(pub SharedStore);

fn is_journal(item: &Item) -> bool {
    ["journal/", "blob/", "open/", "weight/"].iter().any(|top| item.key.starts_with(top))
}

#[async_trait]
impl Store for Unjournaled {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn caps(&self) -> Caps {
        self.0.caps()
    }

    async fn get(&self, keys: &[&str]) -> Result<Vec<Option<Stored>>> {
        self.0.get(keys).await
    }

    async fn list(&self, query: Query<'_>) -> Result<Page> {
        self.0.list(query).await
    }

    async fn write(&self, items: Vec<Item>, mode: Mode) -> Result<Vec<Result<Outcome>>> {
        let dropped: Vec<bool> = items.iter().map(is_journal).collect();
        let kept: Vec<Item> = items.into_iter().filter(|item| !is_journal(item)).collect();
        let mut outcomes =
            if kept.is_empty() { Vec::new() } else { self.0.write(kept, mode).await? }.into_iter();
        let answer = |dropped: bool| if dropped { None } else { outcomes.next() };
        Ok(dropped.into_iter().map(answer).map(|one| one.unwrap_or(Ok(Outcome::AlreadySo(None)))).collect())
    }
}
