//! A store that does not take everything, and remembers what it was asked to write.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use trueup::error::{Error, Kind, Result};
use trueup::pipeline::Pipeline;
use trueup::store::{Access, Caps, Item, Mode, Op, Outcome, Page, Query, SharedStore, Store, Stored};

use super::desk::Desk;

type Refuses = Box<dyn Fn(&str) -> bool + Send + Sync>;

pub struct Picky {
    inner: SharedStore,
    refuses: Mutex<Refuses>,
    /// Of the next write only items for which this holds arrive; then it hangs for ever, as a process that died.
    torn: Mutex<Option<Refuses>>,
    hung: tokio::sync::Notify,
    /// Whether the store says that it can write all or nothing.
    atomic: bool,
    calls: Mutex<Vec<(Mode, Vec<String>)>>,
}

impl Picky {
    /// The desk's pipeline on its own store, made picky.
    pub async fn at(desk: &Desk, atomic: bool) -> (Pipeline, Arc<Picky>) {
        let line = desk.line(Access::Write).await;
        let picky = Arc::new(Picky {
            inner: line.store.clone(),
            refuses: Mutex::new(Box::new(|_| false)),
            torn: Mutex::new(None),
            hung: tokio::sync::Notify::new(),
            atomic,
            calls: Mutex::default(),
        });
        (Pipeline { store: picky.clone(), ..line }, picky)
    }

    pub fn refuse(&self, refuses: impl Fn(&str) -> bool + Send + Sync + 'static) {
        *self.refuses.lock().unwrap() = Box::new(refuses);
    }

    pub fn tear(&self, arrives: impl Fn(&str) -> bool + Send + Sync + 'static) {
        *self.torn.lock().unwrap() = Some(Box::new(arrives));
    }

    pub async fn until_torn(&self) {
        self.hung.notified().await;
    }

    /// Keys of every write so far, with its mode.
    pub fn calls(&self) -> Vec<(Mode, Vec<String>)> {
        self.calls.lock().unwrap().clone()
    }
}

#[async_trait]
impl Store for Picky {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn caps(&self) -> Caps {
        let caps = self.inner.caps();
        Caps { atomic_max: if self.atomic { caps.atomic_max } else { 0 }, ..caps }
    }

    async fn get(&self, keys: &[&str]) -> Result<Vec<Option<Stored>>> {
        self.inner.get(keys).await
    }

    async fn list(&self, query: Query<'_>) -> Result<Page> {
        self.inner.list(query).await
    }

    async fn write(&self, items: Vec<Item>, mode: Mode) -> Result<Vec<Result<Outcome>>> {
        self.calls.lock().unwrap().push((mode, items.iter().map(|item| item.key.clone()).collect()));
        let torn = self.torn.lock().unwrap().take();
        if let Some(arrives) = torn {
            let some = items.into_iter().filter(|item| arrives(&item.key)).collect();
            self.inner.write(some, Mode::Each).await?;
            self.hung.notify_one();
            std::future::pending::<()>().await;
            return Ok(Vec::new());
        }
        let refused: Vec<bool> = items.iter().map(|item| self.refuses.lock().unwrap()(&item.key)).collect();
        let no = || Err(Error::new(Kind::Unavailable, "not this key"));
        if mode == Mode::All && refused.contains(&true) {
            let one = |refused: bool| if refused { no() } else { Ok(Outcome::Untouched) };
            return Ok(refused.into_iter().map(one).collect());
        }
        let taken = items.into_iter().zip(&refused).filter(|(_, refused)| !**refused);
        let taken: Vec<Item> = taken.map(|(item, _)| item).collect();
        assert!(mode == Mode::All || !taken.iter().any(|item| item.op == Op::Check));
        let mut outcomes = self.inner.write(taken, mode).await?.into_iter();
        Ok(refused.into_iter().map(|refused| if refused { no() } else { outcomes.next().unwrap() }).collect())
    }
}
