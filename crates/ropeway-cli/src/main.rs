//! The `ropeway` command: the tools of MCP servers, from a terminal.

mod answer;
mod argument;
mod command;
mod deadline;
mod demo;
mod doctor;
mod duration;
mod each;
mod failure;
mod help;
mod mark;
mod names;
mod schema;
mod server;
mod servers;
mod session;
mod setting;
mod signature;
mod status;
mod suggest;
mod table;
mod text;
mod veil;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    command::CommandLine::parse().run()
}
