//! The systems, each by the scenarios it must stand.

mod archive;
