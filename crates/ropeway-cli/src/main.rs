//! The `ropeway` command: the tools of MCP servers, from a terminal.

mod abreast;
mod answer;
mod argument;
mod chat;
mod clients;
mod command;
mod deadline;
mod demo;
mod doctor;
mod dotenv;
mod duration;
mod each;
mod excerpt;
mod failure;
mod file;
#[cfg(test)]
mod fuzz;
mod gitignore;
mod help;
mod literal;
mod lockfile;
mod mark;
mod model;
mod names;
mod places;
mod schema;
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
mod verbose_log;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    command::CommandLine::parse().run()
}
