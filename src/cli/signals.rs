//! Signals that ask to stop: once = after what is in flight, twice = now.

use std::future::poll_fn;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a person's Ctrl-C sends, and what a supervisor does.
fn kinds() -> [SignalKind; 2] {
    [SignalKind::interrupt(), SignalKind::terminate()]
}

pub const STOPPING: &str = "Stopping after what is in flight; once more to stop at once.";

/// Heed these from now on, not from whenever a task comes to run: until then they end the process the hard way.
/// `ask` is called for each, and answers `false` when it was asked before: then the process ends at once.
pub fn heed(ask: impl Fn() -> bool + Send + 'static) {
    let mut heard: Vec<Signal> = kinds().into_iter().filter_map(|kind| signal(kind).ok()).collect();
    tokio::spawn(async move {
        loop {
            poll_fn(|context| {
                let came = heard.iter_mut().any(|one| one.poll_recv(context).is_ready());
                if came { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            if !ask() {
                std::process::exit(130);
            }
        }
    });
}
