//! The systems, each by the scenarios it must stand, against the servers it is for.

mod archive;
mod registry;
pub mod replica;
mod tables;
pub mod workspace;
