//! The systems, each by the scenarios it must stand, against the servers it is for.

mod archive;
mod registry;
mod replica;
mod tables;
mod workspace;
