//! Arguments → run → exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    trueup::cli::main()
}
