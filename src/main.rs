//! Arguments → run → exit code.

use std::process::ExitCode;

/// A pass is many small values made on one thread and dropped on another.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    trueup::cli::main()
}
