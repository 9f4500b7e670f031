//! When pipelines are due. `rhythm` is the arithmetic of one cron expression, `agenda` the order in which many come
//! up, `slots` the memory that keeps one slot from running twice, `pauses` what a person stopped, `overview` what is
//! shown of all that.
//!
//! It runs nothing and waits for nothing: whoever has a clock asks what is due, claims the slot, and runs the pipeline.

pub mod agenda;
pub mod overview;
pub mod pauses;
pub mod rhythm;
pub mod slots;

pub use agenda::Agenda;
pub use rhythm::Rhythm;
pub use slots::{Claim, Slots};
