//! Every integration test, in one binary: one link, and servers that tests share start once.
#![allow(clippy::unwrap_used)] // a test that cannot unwrap has failed, which is what unwrap says

mod cli;
mod config;
mod conformance;
mod convergence;
mod faults;
mod flow;
mod support;
mod systems;
