//! The engine as a library: one situation after another, on stores in memory and a clock that stands still.

mod ahead;
mod decisions;
mod drift;
mod elsewhere;
mod first;
mod guard;
mod history;
mod moves;
mod narrowed;
mod owners;
pub mod rig;
mod scopes;
pub mod scripted;
mod setbacks;
mod sync;
mod unusable;
mod weight;
