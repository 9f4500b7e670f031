//! `trueup serve`, from the outside: the real process on a free port, asked over HTTP, stopped and killed.

mod answers;
mod described;
mod documented;
mod doors;
mod metering;
mod notices;
mod pages;
pub mod replicas;
pub mod rig;
mod signals;
mod simulated;
mod slots;
mod workspaces;
