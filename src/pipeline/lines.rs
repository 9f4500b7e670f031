//! A store's listing as one ordered run of lines, read ahead page by page beside whoever consumes it.

use std::collections::VecDeque;

use tokio::sync::mpsc;

use crate::error::Result;
use crate::store::{Listed, PAGE, Query, SharedStore, What};

/// Pages read ahead: one being read while one is consumed.
const AHEAD: usize = 2;

pub struct Lines {
    prefix: String,
    /// Until the first line is asked for, nothing is read.
    unread: Option<(SharedStore, What)>,
    pages: mpsc::Receiver<Result<Vec<Listed>>>,
    page: VecDeque<Listed>,
}

impl Lines {
    pub fn of(store: SharedStore, prefix: impl Into<String>, what: What) -> Self {
        let (_, pages) = mpsc::channel(AHEAD);
        Lines { prefix: prefix.into(), unread: Some((store, what)), pages, page: VecDeque::new() }
    }

    fn start(&mut self, store: SharedStore, what: What) {
        let (sender, pages) = mpsc::channel(AHEAD);
        self.pages = pages;
        let below = self.prefix.clone();
        tokio::spawn(async move {
            let mut after: Option<String> = None;
            loop {
                let page =
                    store.list(Query { prefix: &below, after: after.as_deref(), limit: PAGE, what }).await;
                let more = page.as_ref().is_ok_and(|page| page.more);
                after = page.as_ref().ok().and_then(|page| page.items.last().map(|line| line.key.clone()));
                if sender.send(page.map(|page| page.items)).await.is_err() || !more {
                    return;
                }
            }
        });
    }

    /// Make sure the next line is at hand, if there is one. Cheap when it is.
    pub async fn fill(&mut self) -> Result<()> {
        if let Some((store, what)) = self.unread.take() {
            self.start(store, what);
        }
        while self.page.is_empty() {
            match self.pages.recv().await {
                Some(page) => self.page = page?.into(),
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// The next line's name below the prefix; call `fill` first.
    pub fn peek(&self) -> Option<&str> {
        self.page.front().map(|line| &line.key[self.prefix.len()..])
    }

    pub async fn pop(&mut self) -> Result<Option<Listed>> {
        self.fill().await?;
        Ok(self.page.pop_front())
    }

    /// The next few lines, at most so many; none = the end.
    pub async fn some(&mut self, most: usize) -> Result<Vec<Listed>> {
        self.fill().await?;
        let few = most.min(self.page.len());
        Ok(self.page.drain(..few).collect())
    }

    /// Skip to `name` and take its line, if the listing has one.
    pub async fn take(&mut self, name: &str) -> Result<Option<Listed>> {
        self.take_past(name, drop).await
    }

    /// The same, handing over what is skipped.
    pub async fn take_past(&mut self, name: &str, mut skipped: impl FnMut(Listed)) -> Result<Option<Listed>> {
        loop {
            self.fill().await?;
            match self.peek() {
                Some(next) if next < name => self.page.pop_front().into_iter().for_each(&mut skipped),
                Some(next) if next == name => return Ok(self.page.pop_front()),
                _ => return Ok(None),
            }
        }
    }
}
