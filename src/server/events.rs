//! What is going on, as it goes on. Every listener has a bounded backlog: one that falls behind is let go, and nobody
//! waits for it.

use std::sync::{Arc, Mutex};

use serde::Serialize;
use tokio::sync::broadcast;

use crate::error::Fault;
use crate::pipeline::Progress;
use crate::state::Report;

/// Events a listener may be behind: minutes of a busy run.
const BACKLOG: usize = 1_024;
/// Items between two messages about the same step: a bar moves, a wire does not fill.
const ADVANCE_EVERY: u64 = 100;

#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A run entered a step; `items` is how many it will take, if that is known.
    Step { pipeline: String, step: &'static str, items: Option<u64> },
    /// Items of the step done so far.
    Advance { pipeline: String, done: u64 },
    /// A run ended.
    Run { run: Box<Report> },
    /// A run could not start.
    NotStarted { pipeline: String, error: Fault },
}

impl Event {
    pub fn name(&self) -> &'static str {
        match self {
            Event::Step { .. } => "step",
            Event::Advance { .. } => "advance",
            Event::Run { .. } => "run",
            Event::NotStarted { .. } => "not_started",
        }
    }
}

#[derive(Clone)]
pub struct Events(broadcast::Sender<Event>);

impl Default for Events {
    fn default() -> Self {
        Events(broadcast::Sender::new(BACKLOG))
    }
}

impl Events {
    pub fn listen(&self) -> broadcast::Receiver<Event> {
        self.0.subscribe()
    }

    pub fn listeners(&self) -> usize {
        self.0.receiver_count()
    }

    pub fn ended(&self, report: &Report) {
        // The errors of a large run are for the one who asks for the run.
        let run = Report { errors: Vec::new(), groups: std::collections::BTreeMap::new(), ..report.clone() };
        self.tell(Event::Run { run: Box::new(run) });
    }

    pub fn not_started(&self, pipeline: &str, fault: &Fault) {
        self.tell(Event::NotStarted { pipeline: pipeline.to_owned(), error: fault.clone() });
    }

    pub fn progress(&self) -> Arc<dyn Progress> {
        Arc::new(Live { events: self.clone(), at: Mutex::new(At::default()) })
    }

    /// Nobody listening is no error.
    fn tell(&self, event: Event) {
        drop(self.0.send(event));
    }
}

/// How far one run is.
#[derive(Default)]
struct At {
    pipeline: String,
    done: u64,
    told: u64,
}

struct Live {
    events: Events,
    at: Mutex<At>,
}

impl Progress for Live {
    fn step(&self, pipeline: &str, name: &'static str, items: Option<u64>) {
        tracing::info!(pipeline, step = name, items, "step");
        if let Ok(mut at) = self.at.lock() {
            *at = At { pipeline: pipeline.to_owned(), done: 0, told: 0 };
        }
        self.events.tell(Event::Step { pipeline: pipeline.to_owned(), step: name, items });
    }

    fn advance(&self, items: u64) {
        let Ok(mut at) = self.at.lock() else { return };
        at.done += items;
        if at.done - at.told >= ADVANCE_EVERY {
            at.told = at.done;
            self.events.tell(Event::Advance { pipeline: at.pipeline.clone(), done: at.done });
        }
    }
}
