//! What people trust trueup with: undo, follow-up work, why, audit, ownership; each on real stores and by the program.

mod absence;
mod answers;
mod audit;
mod drained;
pub mod exports;
mod hooks;
mod outside;
mod ownership;
mod pins;
mod place;
mod sealed;
mod taken;
mod told;
mod undo;
mod waiting;
mod why;
