//! The entry point of the `ropeway` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    ropeway_cli::main()
}
