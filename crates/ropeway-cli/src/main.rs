//! The `ropeway` command: the tools of MCP servers, from a terminal.

mod arguments;
mod catalog;
mod chat;
mod clients;
mod command;
mod completion;
mod config;
mod connect;
mod demo;
mod describe;
mod doctor;
mod failure;
mod files;
#[cfg(test)]
mod fuzz;
mod model;
mod output;
mod sandbox;
mod secrets;
mod sign_in;
mod terminal;
mod trust;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::run_words(std::env::args_os().collect())
}
