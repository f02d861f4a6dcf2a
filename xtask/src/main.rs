//! Ropeway's chores: `cargo xtask COMMAND`.

#![allow(unreachable_pub, reason = "a program has no outside: `pub` here says beyond the file")]

mod bench;
mod conformance;
mod fuzz;
mod llm;
mod place;
mod process;
mod servers;
mod test;

use std::process::ExitCode;

const HELP: &str = "\
Ropeway's chores

Usage: cargo xtask COMMAND

Commands:
  test                          formatting, lints, all tests, real servers, conformance: the one test command
  bench engine|bridge|providers|agent|redaction [--json] [--quick]
                                runs a benchmark: one connection; many servers and the command line; the model dialects;
                                the agent; looking for secrets in text
  conformance client [--scenario NAME]
                                runs the official conformance suite's client scenarios, one by one
  fuzz [TARGET] [--seconds N] [--mutator]
                                runs the fuzz targets, or one of them, N seconds each (default 60), under libFuzzer where a C++
                                compiler is and cargo-fuzz can be installed, else on mutations of fuzz/corpus/
  fuzz TARGET --keep FILE       adds an input to the target's corpus
  llm [ARGUMENT...]             fetches a real model (1.2 GB, once), starts it here, asks it over three dialects,
                                and lets an agent use real servers with it
  servers                       installs the real servers that tests talk to, at pinned versions, into target/servers/
  help                          prints this text

With CI=true in the environment, `test` takes a skipped test for a failed one.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["test"] => test::run(),
        ["bench", ..] => bench::run(&args[1..]),
        ["conformance", "client"] => conformance::run(None),
        ["conformance", "client", "--scenario", name] => conformance::run(Some(name)),
        ["fuzz", ..] => fuzz::run(&args[1..]),
        ["llm", ..] => llm::ask(&args[1..]),
        ["servers"] => servers::run(),
        ["help" | "--help" | "-h"] => {
            println!("{HELP}");
            Ok(())
        }
        _ => {
            eprintln!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
