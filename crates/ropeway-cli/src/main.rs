//! The `ropeway` binary's entry point.

use std::process::ExitCode;

fn main() -> ExitCode {
    ropeway_cli::main()
}
