//! The `ropeway` command: the tools of MCP servers, from a terminal.

mod abreast;
mod answer;
mod argument;
mod chat;
mod clients;
mod command;
mod deadline;
mod demo;
mod describe;
mod doctor;
mod dotenv;
mod duration;
mod each;
mod example;
mod excerpt;
mod failure;
mod file;
#[cfg(test)]
mod fuzz;
mod help;
mod literal;
mod lockfile;
mod mark;
mod model;
mod names;
mod outline;
mod pager;
mod places;
mod schema;
mod selector;
mod server;
mod servers;
mod session;
mod setting;
mod signature;
mod status;
mod suggest;
mod table;
mod target;
mod telling;
mod text;
mod trust;
mod veil;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::CommandLine::read().run()
}
