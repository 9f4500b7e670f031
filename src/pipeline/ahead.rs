//! Batches to come. While one is written, what the next one needs is already on its way from the source.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

use futures::FutureExt as _;
use futures::future::{BoxFuture, MaybeDone, maybe_done};

use super::prepare::{Prepare, Ready};
use super::steps::Feed;
use crate::error::{Error, Result};

/// Bodies that the listing brought along are written in batches of about this size, whatever their number.
const BATCH_BYTES_MAX: usize = 1 << 20;

type Fetched<P> = (VecDeque<<P as Prepare>::Draft>, Vec<<P as Prepare>::Step>);

pub struct Ahead<'a, P: Prepare> {
    preparer: &'a P,
    steps: Feed<'a, P::Step>,
    belongs: &'a (dyn Fn(&P::Step) -> bool + Sync),
    /// Steps per batch.
    size: usize,
    /// Fetched, and to be prepared.
    here: VecDeque<P::Draft>,
    coming: Option<MaybeDone<BoxFuture<'a, Fetched<P>>>>,
    /// Steps that had to wait, because the bodies before theirs were large.
    left: Vec<P::Step>,
}

impl<'a, P: Prepare> Ahead<'a, P> {
    pub fn of(
        preparer: &'a P,
        steps: Feed<'a, P::Step>,
        belongs: &'a (dyn Fn(&P::Step) -> bool + Sync),
        size: usize,
    ) -> Self {
        let (here, left) = (VecDeque::new(), Vec::new());
        Ahead { preparer, steps, belongs, size, here, coming: None, left }
    }

    /// The next batch; `None` = that was all.
    pub async fn batch(&mut self, number: u32) -> Result<Option<Vec<Ready>>> {
        if self.here.is_empty() {
            self.receive().await?;
        }
        if self.here.is_empty() {
            return Ok(None);
        }
        self.preparer.batch(number, &mut self.here).await.map(Some)
    }

    /// Wait for work, and let what is coming come meanwhile: a request nobody looks after runs out of time.
    pub async fn beside<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            if let Some(coming) = &mut self.coming {
                let _ = Pin::new(coming).poll(context);
            }
            work.as_mut().poll(context)
        })
        .await
    }

    async fn receive(&mut self) -> Result<()> {
        if self.coming.is_none() {
            self.send_for().await?;
        }
        let Some(mut coming) = self.coming.take() else { return Ok(()) };
        (&mut coming).await;
        let fetched = Pin::new(&mut coming).take_output();
        (self.here, self.left) = fetched.ok_or_else(|| Error::bug("a batch was fetched and is not there"))?;
        self.send_for().await
    }

    /// Ask for what the steps after those need. Nobody waits for it here.
    async fn send_for(&mut self) -> Result<()> {
        let steps = self.take().await?;
        if steps.is_empty() {
            return Ok(());
        }
        let mut coming = maybe_done(self.preparer.fetch(steps).boxed());
        poll_fn(|context| {
            let _ = Pin::new(&mut coming).poll(context);
            Poll::Ready(())
        })
        .await;
        self.coming = Some(coming);
        Ok(())
    }

    async fn take(&mut self) -> Result<Vec<P::Step>> {
        let mut taken = std::mem::take(&mut self.left);
        let mut bytes = taken.iter().map(P::bytes).sum::<usize>();
        while taken.len() < self.size && bytes < BATCH_BYTES_MAX {
            let Some(step) = self.steps.next().await.transpose()? else { break };
            if (self.belongs)(&step) {
                bytes += P::bytes(&step);
                taken.push(step);
            }
        }
        Ok(taken)
    }
}
