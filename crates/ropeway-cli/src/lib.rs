//! The `ropeway` command: MCP servers' tools, from a terminal.
//!
//! This crate is a program, not a library: use [`ropeway`] in programs. It has a library target only because cargo compiles
//! that one at the same time as `ropeway`, and a binary target after it.

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
mod generate;
mod model;
mod output;
mod sandbox;
mod secrets;
mod sign_in;
mod terminal;
mod trust;

use std::process::ExitCode;

/// Runs this process's command line.
pub fn main() -> ExitCode {
    command::run_words(std::env::args_os().collect())
}
