//! Builds the gateway: its servers, its lock, its keys and its journal.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use ropeway_bridge::BridgeBuilder;
use ropeway_config::{GatewaySettings, Secret};
use ropeway_gateway::{Gateway, GatewayError, KeyError, KeyFileError, KeySource, OtlpSettings};

use crate::config::config_paths::is_user_file;
use crate::connect::command_context::CommandContext;
use crate::connect::lockfile;
use crate::connect::servers::{ServerSource, Servers, token_handlers};
use crate::failure::{Exit, Failure};
use crate::files::user_folders::state_folder;
use crate::output::print::say;
use crate::sandbox;
use crate::secrets::redaction;
use crate::terminal::style::warning;
use crate::trust::sha256;

/// The variable with the keys that seal sessions and cursors, separated by commas.
const KEYS: &str = "ROPEWAY_GATEWAY_KEYS";

/// The variable with the path to a file with such keys, one per line.
const KEYS_FILE: &str = "ROPEWAY_GATEWAY_KEYS_FILE";

/// Builds the gateway. `is_ephemeral` makes sessions end with it; `is_plain` ignores ropeway.lock.
pub(super) fn build(
    servers: &Servers,
    context: &CommandContext,
    is_ephemeral: bool,
    is_plain: bool,
) -> Result<Gateway, Failure> {
    let locked = if is_plain { None } else { lockfile::load(servers)? };
    let bridge = |builder: BridgeBuilder| {
        let builder = builder.events(context.events.clone()).redact(redaction::redactor());
        // A gateway never asks for a sign-in: it uses the stored sign-ins, and notices new ones.
        let builder = builder.sandbox_launcher(sandbox::launcher()).handlers(token_handlers());
        match &locked {
            Some(locked) => builder.lock(locked.lock.clone(), locked.policy),
            None => builder,
        }
    };
    let mut builder = Gateway::builder(servers.config.clone()).bridge(bridge).for_commands(is_plain);
    // The person who reads it may be in another directory.
    if let ServerSource::File(path) = &servers.source
        && !is_user_file(path)
    {
        builder = builder.config_file(std::path::absolute(path).unwrap_or_else(|_| path.clone()));
    }
    if is_ephemeral {
        builder = builder.keys(KeySource::Ephemeral);
    } else {
        let folder = gateway_folder()?;
        builder = builder.keys(keys(&servers.config.gateway, folder.as_deref())?);
        if let Some(folder) = folder {
            builder = builder.journal(folder.join(journal_name(&servers.source)));
        }
    }
    let (otlp, warnings) = OtlpSettings::from_variables(|name| std::env::var(name).ok());
    warnings.iter().for_each(|words| say(&warning(words)));
    if let Some(otlp) = otlp {
        builder = builder.otlp(otlp);
    }
    builder.build().map_err(gateway_failure)
}

/// Returns the folder for keys and journals, which only this user can read.
fn gateway_folder() -> Result<Option<PathBuf>, Failure> {
    let Some(folder) = state_folder().map(|folder| folder.join("gateway")) else { return Ok(None) };
    let created = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    created.map_err(|error| Failure::usage(format!("could not create `{}`", folder.display())).caused_by(&error))?;
    Ok(Some(folder))
}

/// Returns the keys from the configuration, the environment, or the state folder.
fn keys(settings: &GatewaySettings, folder: Option<&Path>) -> Result<KeySource, Failure> {
    if !settings.missing_keys.is_empty() {
        let names = settings.missing_keys.join("`, `");
        let are = if settings.missing_keys.len() == 1 { "is" } else { "are" };
        return Err(Failure::usage(format!("`gateway.keys` needs `{names}`, which {are} not set"))
            .hint("with other keys, the gateway would refuse the sessions of its clients"));
    }
    if !settings.keys.is_empty() {
        return Ok(KeySource::Given(settings.keys.clone()));
    }
    let given = std::env::var(KEYS).unwrap_or_default();
    let given: Vec<Secret> = given.split(',').map(str::trim).filter(|key| !key.is_empty()).map(Secret::new).collect();
    if !given.is_empty() {
        return Ok(KeySource::Given(given));
    }
    if let Some(path) = std::env::var_os(KEYS_FILE).filter(|path| !path.is_empty()) {
        return Ok(KeySource::File(path.into()));
    }
    Ok(folder.map_or(KeySource::Ephemeral, |folder| KeySource::File(folder.join("keys"))))
}

/// Returns the journal's name for a configuration file. Each file has its own sessions.
fn journal_name(source: &ServerSource) -> String {
    let path = match source {
        ServerSource::File(path) => std::fs::canonicalize(path).unwrap_or_else(|_| path.clone()),
        ServerSource::Line | ServerSource::Clients | ServerSource::Demo => PathBuf::new(),
    };
    format!("sessions-{}.jsonl", &sha256(&path.to_string_lossy())[..16])
}

/// Converts a gateway error to a failure with a fix.
pub(super) fn gateway_failure(error: GatewayError) -> Failure {
    match error {
        GatewayError::Bridge(error) => Failure::start(error),
        GatewayError::Io(error) => Failure::new(Exit::Unreachable, "the gateway stopped listening").caused_by(&error),
        error => {
            let failure = Failure::usage(error.to_string()).caused_by_source(&error);
            match error {
                GatewayError::Keys(KeyError::Exposed { .. }) => {
                    failure.hint("try `chmod 600` on the file `gateway/keys` of the state folder")
                }
                GatewayError::Keys(KeyError::Malformed { .. } | KeyError::Count { .. }) => {
                    failure.hint("a key is 32 random bytes: try `openssl rand -base64 32`")
                }
                GatewayError::ClientKeys(KeyFileError::Read { path, source })
                    if source.kind() == ErrorKind::NotFound =>
                {
                    failure.hint(format!("try `ropeway key new NAME --file {}` to create it", path.display()))
                }
                GatewayError::ClientKeys(KeyFileError::Exposed { path, .. }) => {
                    failure.hint(format!("try `chmod 600 {}`", path.display()))
                }
                _ => failure,
            }
        }
    }
}
