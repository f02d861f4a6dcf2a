//! Reading configuration files.

mod chat;
mod edit;
mod foreign;
mod manifest;
mod meaning;
mod problems;
mod secrets;
mod tool_reference;

use std::path::Path;

use super::{Config, ConfigError, Secrets, ServerConfig, ServerEntry, ServerSettings};

/// The meaning of a `ropeway.yaml`, without any secret.
fn parse(text: &str) -> Result<Config, ConfigError> {
    parse_with(text, &Secrets::none())
}

fn parse_with(text: &str, secrets: &Secrets) -> Result<Config, ConfigError> {
    // No such folder, so there is no `.env` beside the file either.
    Config::parse(text, Path::new("nowhere/ropeway.yaml"), secrets)
}

/// What is wrong with a `ropeway.yaml`, without the name of the folder.
fn problems(text: &str) -> Vec<String> {
    let error = parse(text).expect_err("a broken file").to_string();
    error.lines().map(|line| line.trim_start_matches("nowhere/").to_owned()).collect()
}

/// The settings of a server that lacks nothing.
fn known(entry: &ServerEntry) -> &ServerConfig {
    match &entry.settings {
        ServerSettings::Known(config) => config,
        ServerSettings::Missing { secrets } => panic!("secrets are missing: {secrets:?}"),
        ServerSettings::Invalid { reason } => panic!("not started: {reason}"),
    }
}
