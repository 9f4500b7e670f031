//! Every figure of docs/benchmarks.md, in one program: `./x bench [SYSTEM] [--quick] [--only GROUP] [--write]`.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // a bench that cannot unwrap has failed; it is a stopwatch

mod archive;
mod engine;
mod harness;
mod registry;
mod replica;
mod serve;
#[allow(dead_code)] // the tests' servers bring more than is used here
#[path = "../tests/support/mod.rs"]
mod support;
mod tables;
mod workspace;

use std::process::ExitCode;

use harness::System;

/// As the program has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SYSTEMS: &[System] = &[
    System { name: "engine", jobs: engine::JOBS, groups: engine::GROUPS },
    System { name: "registry", jobs: registry::JOBS, groups: registry::GROUPS },
    System { name: "archive", jobs: archive::JOBS, groups: archive::GROUPS },
    System { name: "tables", jobs: tables::JOBS, groups: tables::GROUPS },
    System { name: "replica", jobs: replica::JOBS, groups: replica::GROUPS },
    System { name: "workspace", jobs: workspace::JOBS, groups: workspace::GROUPS },
    System { name: "serve", jobs: serve::JOBS, groups: serve::GROUPS },
];

fn main() -> ExitCode {
    trueup::tls::choose();
    harness::main(SYSTEMS)
}
