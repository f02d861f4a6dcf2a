//! The `ropeway` command: the tools of MCP servers, from a terminal.

mod abreast;
mod answer;
mod argument;
mod arrival;
mod call_syntax;
mod chat;
mod clients;
mod command;
mod command_rewrite;
mod command_words;
mod completion;
mod deadline;
mod demo;
mod describe;
mod doctor;
mod dotenv;
mod duration;
mod each;
mod elicit;
mod exact_output;
mod example;
mod excerpt;
mod failure;
mod file;
#[cfg(test)]
mod fuzz;
mod gitignore;
mod help;
mod json_output;
mod likely_servers;
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
mod verbose_log;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::run_words(std::env::args_os().collect())
}
