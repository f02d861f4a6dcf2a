//! The `ropeway` command: the tools of MCP servers, from a terminal.

mod answer;
mod argument;
mod clients;
mod command;
mod demo;
mod doctor;
mod dotenv;
mod duration;
mod each;
mod excerpt;
mod failure;
mod file;
mod literal;
mod mark;
mod places;
mod schema;
mod server;
mod servers;
mod session;
mod signature;
mod status;
mod suggest;
mod table;
mod target;
mod text;
mod veil;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    command::CommandLine::parse().run()
}
