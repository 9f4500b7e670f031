//! The engine's figures: what a pass costs against the least that could do the same work, and what it needs in
//! memory. `./x bench ratios --write` keeps them in `docs/benchmarks.md`.

mod engine;
mod harness;

use std::process::ExitCode;

fn main() -> ExitCode {
    harness::main("ratios", engine::JOBS, engine::GROUPS)
}
