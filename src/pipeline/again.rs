//! Exports of what did not change: an export that is new to the pipeline, or leads elsewhere than before, has every key
//! still to do; and a person may ask for all of them. Web hooks and commands are about changes, and are never repeated.

use std::collections::BTreeSet;

use super::lines::Lines;
use super::{Ask, Pipeline};
use crate::error::Result;
use crate::queue::{self, Effect, Task};
use crate::state::journal::Change;
use crate::state::{Base, Pointer, Report, decode_line, keys};
use crate::store::{Item, What};

/// Keys enqueued together.
const TOGETHER: usize = 500;

impl Pipeline {
    /// Have every key exported where nobody can know that it was. A look at one key is not about all of them, and a run
    /// that failed is no time for it.
    pub(super) async fn export_again(&self, ask: &Ask, report: &Report) -> Result<()> {
        if ask.only.is_some() || report.cause.is_some() {
            return Ok(());
        }
        let exports = self.then.iter().filter(|then| matches!(then.effect, Effect::Export(_)));
        let now: BTreeSet<String> = exports.map(|then| then.name.clone()).collect();
        let place = keys::exports(&self.name);
        let before: Option<BTreeSet<String>> = self.state.read(&place).await?;
        // Of a state that does not tell, all of them are thought to be done: so it was before this was kept.
        let known = before.as_ref().unwrap_or(&now);
        for name in &now {
            match known.contains(name) {
                false => self.export_all(name, Change::Add, report).await?,
                true if ask.exports => self.export_all(name, Change::Update, report).await?,
                true => {}
            }
        }
        // Last: whatever breaks off before is begun anew, which does no harm.
        if before.as_ref() == Some(&now) { Ok(()) } else { self.state.put(&place, &now).await }
    }

    async fn export_all(&self, then: &str, change: Change, report: &Report) -> Result<()> {
        let mut known = Lines::of(self.state.store().clone(), keys::bases(&self.name), What::Values);
        let mut some = Vec::with_capacity(TOGETHER);
        while let Some(line) = known.pop().await? {
            let base: Base = decode_line(&line)?;
            some.push((keys::below(&keys::bases(&self.name), &line.key).to_owned(), base));
            if some.len() == TOGETHER {
                self.export_some(then, change, std::mem::take(&mut some), report).await?;
            }
        }
        self.export_some(then, change, some, report).await
    }

    /// What waits already is left as it is.
    async fn export_some(
        &self,
        then: &str,
        change: Change,
        some: Vec<(String, Base)>,
        report: &Report,
    ) -> Result<()> {
        if some.is_empty() {
            return Ok(());
        }
        let tasks: Vec<String> = some.iter().map(|(name, _)| keys::task(&self.name, then, name)).collect();
        let waiting = self.state.read_each::<Task>(&tasks).await?;
        // A store that shows its writes late may not have been read in full.
        let told = self.store.caps().strong_read;
        let mut items: Vec<Item> = Vec::new();
        for ((name, base), _) in some.iter().zip(waiting).filter(|(_, waiting)| waiting.is_none()) {
            let write = Pointer { run: report.id.as_str().into(), ..Pointer::unset() };
            let bytes = told.then(|| base.bytes_hash());
            let task = Task::new(base.key(name).to_owned(), change, bytes, write, self.clock.now());
            items.extend(queue::enqueue(&self.name, then, name, &task)?);
        }
        self.state.commit_in_parts(items).await
    }
}
