//! Development tasks: `cargo xtask COMMAND`.

#![allow(unreachable_pub, reason = "in a program, `pub` means visible outside of the file")]

mod attack;
mod background;
mod bench;
mod clients;
mod conformance;
mod deploy;
mod dist;
mod fuzz;
mod gateway;
mod licences;
mod llm;
mod needs;
mod page;
mod paths;
mod process;
mod protected;
mod servers;
mod soak;
mod test;

use std::process::ExitCode;

const HELP: &str = "\
Development tasks of Ropeway

Usage: cargo xtask COMMAND

Commands:
  test                          Run all checks: formatting, lints, tests, real servers, conformance
  attack [--short] [--case NAME] [--way http|unix|tls|sse] [--program PATH] [--json FILE]
                                Run hostile HTTP clients against the gateway, with goals for its memory and for the
                                slowest call of a good client meanwhile; builds the optimized program unless one is given
  bench engine|bridge|providers|agent|redaction|gateway|sessions [--json] [--quick]
                                Run a benchmark: one connection; many servers and the command line; the model dialects;
                                the agent; redaction of text; the gateway; its sessions
  clients [--short] [--client NAME] [--way NAME] [--server NAME] [--only CHECK]
                                Run the same checks with real MCP clients directly and through the gateway (HTTP, stdio,
                                keys, two gateways, a restart, a slow server); what is worse through it fails
  clients [--tool NAME] [--arguments JSON] URL | --stdio COMMAND [ARGUMENT...]
                                List tools, call one, read a resource and get a prompt of one endpoint with each client
  conformance client [--auth] [--scenario NAME]
                                Run the client scenarios of the official conformance suite
  conformance server [--through-gateway [--behind legacy|modern]] [--scenario NAME]
                                Run the server scenarios against the reference server, or against `ropeway serve` in
                                front of one
  deploy                        Restart two gateways behind HAProxy under load, and check their metrics with promtool
  dist [--host]                 Build the static release binary with man pages, completions and checksums into target/dist-files/;
                                --host builds for this machine
  fuzz [TARGET] [--seconds N] [--mutator]
                                Run all fuzz targets or one, N seconds each (default 60); with libFuzzer if a C++ compiler
                                and cargo-fuzz are available, otherwise with mutations of fuzz/corpus/
  fuzz TARGET --keep FILE       Add an input to the corpus of a target
  llm [ARGUMENT...]             Download a real model (1.2 GB, once), run it locally, test it over three dialects,
                                and run an agent with real servers
  page                          Test the web page of the gateway in headless Chromium with five real servers and a hostile one,
                                that of a gateway with keys, and sign-ins at a real authorization server;
                                writes screenshots to target/page/
  servers                       Install the real servers of the tests, at pinned versions, into target/servers/
  soak [--minutes N] [--pause MILLISECONDS] [--seed N]
                                Run mixed load on `ropeway serve` while servers are killed, the configuration is reloaded
                                and the gateway is restarted (default 1 minute, no pause between the calls of a session)
  help                          Print this help

With CI=true in the environment, `test` fails if a test is skipped.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["test"] => test::run(),
        ["attack", ..] => attack::run(&args[1..]),
        ["bench", ..] => bench::run(&args[1..]),
        ["clients", ..] => clients::run(&args[1..]),
        ["conformance", "client", ..] => conformance::client::run(&args[2..]),
        ["conformance", "server", ..] => conformance::server::run(&args[2..]),
        ["deploy"] => deploy::run(),
        ["dist", ..] => dist::run(&args[1..]),
        ["fuzz", ..] => fuzz::run(&args[1..]),
        ["llm", ..] => llm::ask(&args[1..]),
        ["page"] => page::run(),
        ["servers"] => servers::run(),
        ["soak", ..] => soak::run(&args[1..]),
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
