//! The keys of the state, spelled once. Pipeline names hold no `/`, so a prefix ending in `/` is exact.

pub const FORMAT: &str = "meta/format";
/// The newest run id, so that ids only grow even if the clock does not.
pub const NEWEST_RUN: &str = "meta/run";
pub const RUNS: &str = "run/";
pub const LAST: &str = "last/";
pub const HELD: &str = "held/";

pub fn run(run: &str) -> String {
    format!("run/{run}")
}

pub fn last(pipeline: &str) -> String {
    format!("last/{pipeline}")
}

pub fn bases(pipeline: &str) -> String {
    format!("base/{pipeline}/")
}

pub fn base(pipeline: &str, identity: &str) -> String {
    // One for every key of every store: in one go.
    ["base/", pipeline, "/", identity].concat()
}

pub fn tombstone(pipeline: &str, identity: &str) -> String {
    format!("gone/{pipeline}/{identity}")
}

pub fn tombstones(pipeline: &str) -> String {
    format!("gone/{pipeline}/")
}

pub fn cursors(pipeline: &str) -> String {
    format!("cursor/{pipeline}/")
}

/// The store the baseline tells of.
pub fn place(pipeline: &str) -> String {
    format!("place/{pipeline}")
}

/// The settings the cursors were made under.
pub fn reading(pipeline: &str) -> String {
    format!("reading/{pipeline}")
}

pub fn journals(pipeline: &str) -> String {
    format!("journal/{pipeline}/")
}

pub fn journal_of(pipeline: &str, run: &str) -> String {
    format!("journal/{pipeline}/{run}/")
}

pub fn journal(pipeline: &str, run: &str, batch: u32) -> String {
    format!("journal/{pipeline}/{run}/{batch:07}")
}

/// What differed from "all applied" in a batch; absent when nothing did.
pub fn outcomes(pipeline: &str, run: &str, batch: u32) -> String {
    format!("outcome/{pipeline}/{run}/{batch:07}")
}

pub fn outcomes_of(pipeline: &str, run: &str) -> String {
    format!("outcome/{pipeline}/{run}/")
}

pub fn open_batches(pipeline: &str) -> String {
    format!("open/{pipeline}/")
}

pub fn open_batch(pipeline: &str, run: &str, batch: u32) -> String {
    format!("open/{pipeline}/{run}/{batch:07}")
}

/// A large prior value, by content hash, kept and forgotten with its run.
pub fn blob(pipeline: &str, run: &str, sha256: &str) -> String {
    format!("blob/{pipeline}/{run}/{sha256}")
}

pub fn blobs_of(pipeline: &str, run: &str) -> String {
    format!("blob/{pipeline}/{run}/")
}

/// How many bytes of journal a run wrote; there is one for every run that has a journal.
pub fn weights(pipeline: &str) -> String {
    format!("weight/{pipeline}/")
}

pub fn weight(pipeline: &str, run: &str) -> String {
    format!("weight/{pipeline}/{run}")
}

/// `slot` is `sync`, or the run an undo is about: each may wait for a person by itself.
pub fn held(pipeline: &str, slot: &str) -> String {
    format!("held/{pipeline}/{slot}")
}

pub fn held_of(pipeline: &str) -> String {
    format!("held/{pipeline}/")
}

pub fn all_held_items(pipeline: &str) -> String {
    format!("held-item/{pipeline}/")
}

pub fn held_items(pipeline: &str, plan: &str) -> String {
    format!("held-item/{pipeline}/{plan}/")
}

pub fn held_item(pipeline: &str, plan: &str, identity: &str) -> String {
    format!("held-item/{pipeline}/{plan}/{identity}")
}

/// Decisions a person made about one identity: undone, or rejected.
pub fn decisions(pipeline: &str) -> String {
    format!("decision/{pipeline}/")
}

pub fn decision(pipeline: &str, identity: &str) -> String {
    format!("decision/{pipeline}/{identity}")
}

/// Items present but unusable, reported on every run until they change.
pub fn parked(pipeline: &str) -> String {
    format!("parked/{pipeline}/")
}

pub fn parked_item(pipeline: &str, identity: &str) -> String {
    format!("parked/{pipeline}/{identity}")
}

/// Changes the store refused in one run after another.
pub fn failing(pipeline: &str, identity: &str) -> String {
    format!("failing/{pipeline}/{identity}")
}

/// Follow-up work still to be done; one per identity and follow-up, so a newer version replaces an older one.
pub const QUEUE: &str = "queue/";

pub fn queue_of(pipeline: &str) -> String {
    format!("queue/{pipeline}/")
}

pub fn queue(pipeline: &str, then: &str) -> String {
    format!("queue/{pipeline}/{then}/")
}

pub fn task(pipeline: &str, then: &str, identity: &str) -> String {
    format!("queue/{pipeline}/{then}/{identity}")
}

/// Follow-up work that was given up.
pub const DEAD: &str = "dead/";

pub fn dead(pipeline: &str, then: &str, identity: &str) -> String {
    format!("dead/{pipeline}/{then}/{identity}")
}

/// The exports every key was enqueued for.
pub fn exports(pipeline: &str) -> String {
    format!("exports/{pipeline}")
}

/// Documents that wait for their export.
pub fn bodies(pipeline: &str) -> String {
    format!("body/{pipeline}/")
}

pub fn body(pipeline: &str, identity: &str) -> String {
    format!("body/{pipeline}/{identity}")
}

/// What a registry remembers of its own records.
pub fn registry(pipeline: &str) -> String {
    format!("registry/{pipeline}")
}

/// Queue entries and dead letters as they were last published, by their keys.
pub fn published(pipeline: &str) -> String {
    format!("published/{pipeline}/")
}

/// That stock was taken of the store, and when.
pub fn stock(pipeline: &str) -> String {
    format!("stock/{pipeline}")
}

/// A file that was there before us, by the identity it has.
pub fn found(pipeline: &str, identity: &str) -> String {
    format!("found/{pipeline}/{identity}")
}

/// What the last run left, as one sum.
pub fn footing(pipeline: &str) -> String {
    format!("footing/{pipeline}")
}

/// Rows of an older layout that wait for a current one.
pub fn older_rows(pipeline: &str) -> String {
    format!("older/{pipeline}/")
}

pub fn older_row(pipeline: &str, key: &str) -> String {
    format!("older/{pipeline}/{key}")
}

/// What was told about how a pipeline's runs end.
pub fn notified(pipeline: &str) -> String {
    format!("notified/{pipeline}")
}

/// The slot of its schedule a pipeline was last run for.
pub const SLOTS: &str = "slot/";

pub fn slot(pipeline: &str) -> String {
    format!("slot/{pipeline}")
}

/// That a person paused a pipeline's schedule.
pub const PAUSES: &str = "pause/";

pub fn pause(pipeline: &str) -> String {
    format!("pause/{pipeline}")
}

/// Who runs a pipeline, or works on its queue, where the state is shared: changed again and again by its holder.
pub const LEASES: &str = "lease/";

pub fn lease(name: &str) -> String {
    format!("lease/{name}")
}

/// How often a lease was acquired; changed by nothing else.
pub fn fence(name: &str) -> String {
    format!("fence/{name}")
}

/// A part of a value that is too large for the store.
pub fn part(key: &str, number: usize) -> String {
    format!("{key}/{number:05}")
}

/// The part of a key below its prefix.
pub fn below<'a>(prefix: &str, key: &'a str) -> &'a str {
    key.strip_prefix(prefix).unwrap_or(key)
}
