//! The systems, each by the scenarios it must stand, against the servers it is for.

mod archive;
mod replica;
mod tables;
