//! Tests of whole configuration files.

mod chat;
mod edit;
mod foreign;
mod gateway;
mod manifest;

mod problems;
mod sandbox;
mod secrets;
mod server_auth;
mod settings;
mod tool_reference;

use std::path::Path;

use crate::{Config, ConfigError, Secrets, ServerConfig, ServerEntry, ServerSettings};

/// Parses a `ropeway.yaml` without secrets.
fn parse(text: &str) -> Result<Config, ConfigError> {
    parse_with(text, &Secrets::none())
}

fn parse_with(text: &str, secrets: &Secrets) -> Result<Config, ConfigError> {
    // The folder does not exist, so no `.env` is read.
    Config::parse(text, Path::new("nowhere/ropeway.yaml"), secrets)
}

/// Returns the problems of a `ropeway.yaml`, without the folder.
fn problems(text: &str) -> Vec<String> {
    let error = parse(text).expect_err("a broken file").to_string();
    error.lines().map(|line| line.trim_start_matches("nowhere/").to_owned()).collect()
}

/// Returns the settings of a server without missing secrets.
fn known(entry: &ServerEntry) -> &ServerConfig {
    match &entry.settings {
        ServerSettings::Known(config) => config,
        ServerSettings::Missing { secrets } => panic!("secrets are missing: {secrets:?}"),
        ServerSettings::Invalid { reason } | ServerSettings::Down { cause: reason } => panic!("not started: {reason}"),
    }
}
