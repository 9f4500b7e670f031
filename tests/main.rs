//! Every integration test, in one binary: one link, and servers that tests share start once.
// Tests read as stories and may speak; rules of style and of printing are for the program.
#![allow(clippy::pedantic, clippy::type_complexity, clippy::manual_is_multiple_of)]
#![allow(clippy::print_stdout, clippy::print_stderr)]
#![allow(clippy::unwrap_used)] // a test that cannot unwrap has failed, which is what unwrap says

mod browser;
mod cli;
mod config;
mod conformance;
mod convergence;
mod faults;
mod flow;
mod server;
mod shared;
mod support;
mod systems;
mod trust;
