//! `ropeway key`: creates, lists, changes and revokes gateway client keys.

use std::path::PathBuf;
use std::time::Duration;

use anstyle::Style;
use clap::Subcommand;
use jiff::Timestamp;
use ropeway_config::Rate;
use ropeway_core::suggest;
use ropeway_gateway::{ClientKey, KeyFile, KeyFileError, KeyLimits, NewKey};
use serde_json::{Value, json};

use super::serve::known_profile;
use crate::connect::command_context::CommandContext;
use crate::connect::server_options::ServerOptions;
use crate::connect::servers::Servers;
use crate::failure::{Exit, Failure};
use crate::output::print::{print, print_json, print_unredacted, say};
use crate::terminal::duration;
use crate::terminal::status_icon::StatusIcon;
use crate::terminal::table::{Cell, Overflow, Table};
use crate::terminal::text::terminal_width;

/// Appended to `--help`.
pub(super) const EXAMPLES: &str = "\
Examples:
  ropeway key new alice
  ropeway key new ci --expires 30d --profile coding --tools 'git.*' --rate 10/s
  ropeway key new prometheus --operator
  ropeway key list
  ropeway key set alice --operator
  ropeway key revoke ci

A client sends its key as `Authorization: Bearer KEY`. The keys are in the file `gateway.auth.keys_file` of the \
configuration; a running gateway applies changes at once.";

const NEW_EXAMPLES: &str = "\
Examples:
  ropeway key new alice
  ropeway key new ci --expires 30d --rate 10/s
  ropeway key new reader --tools 'read_*' --tools 'git.log'
  ropeway key new prometheus --operator > key.txt

The key is printed once, on standard output; the file contains only its digest.";

const LIST_EXAMPLES: &str = "\
Examples:
  ropeway key list
  ropeway key list --json";

const SET_EXAMPLES: &str = "\
Examples:
  ropeway key set alice --operator
  ropeway key set alice --no-operator

The secret of the key stays valid. A running gateway applies the change at once.";

const REVOKE_EXAMPLES: &str = "\
Examples:
  ropeway key revoke ci
  ropeway key revoke ci --file keys.json";

const FAINT: Style = Style::new().dimmed();

/// Create, list, change and revoke keys of gateway clients
#[derive(Debug, clap::Args)]
pub(super) struct Key {
    #[command(subcommand)]
    command: KeyCommand,
}

#[derive(Debug, Subcommand)]
enum KeyCommand {
    #[command(after_long_help = NEW_EXAMPLES)]
    New(New),
    /// List keys
    #[command(after_long_help = LIST_EXAMPLES)]
    List(KeyLocation),
    #[command(after_long_help = SET_EXAMPLES)]
    Set(Set),
    /// Revoke a key
    ///
    /// The gateway refuses its next request. Calls in progress are finished.
    #[command(after_long_help = REVOKE_EXAMPLES)]
    Revoke(Revoke),
}

/// Create a key and print it
#[derive(Debug, clap::Args)]
struct New {
    /// Name of the client: up to 64 letters, digits, `_`, `.`, `-` and `@`
    #[arg(value_name = "NAME")]
    name: String,
    /// Time after which the key expires (12h, 30d); never by default
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    expires: Option<Duration>,
    /// Make the client an operator, who sees metrics, events and errors, and signs in to shared accounts
    #[arg(long)]
    operator: bool,
    /// Profile or server that the client may use, instead of all (repeatable)
    #[arg(long = "profile", value_name = "NAME")]
    profiles: Vec<String>,
    /// Tools that the client may use: a glob of tool names, or of SERVER.TOOL (repeatable)
    #[arg(long, value_name = "GLOB")]
    tools: Vec<String>,
    /// Maximum requests per time (10/s, 600/m, 1000/h)
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Maximum concurrent calls
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    calls: Option<u32>,
    /// Maximum sessions in memory
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    sessions: Option<u32>,
    #[command(flatten)]
    location: KeyLocation,
}

/// Change a key
#[derive(Debug, clap::Args)]
struct Set {
    /// Name or id of the key
    #[arg(value_name = "NAME")]
    name: String,
    /// Make the client an operator, who sees metrics, events and errors, and signs in to shared accounts
    #[arg(long, required_unless_present = "no_operator", conflicts_with = "no_operator")]
    operator: bool,
    /// Make the client an ordinary one
    #[arg(long)]
    no_operator: bool,
    #[command(flatten)]
    location: KeyLocation,
}

#[derive(Debug, clap::Args)]
struct Revoke {
    /// Name or id of the key
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    location: KeyLocation,
}

/// Options that select the file with the keys.
#[derive(Debug, clap::Args)]
struct KeyLocation {
    /// File with the keys, instead of `gateway.auth.keys_file`
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Configuration file, if not the one in use
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
}

impl KeyLocation {
    /// Returns the file, and the configuration that names it.
    fn find(&self, context: &CommandContext) -> Result<(KeyFile, Option<Servers>), Failure> {
        if let Some(file) = &self.file {
            return Ok((KeyFile::new(file), None));
        }
        let options = ServerOptions { config: self.config.clone(), ..ServerOptions::default() };
        let servers = options.own_servers(context)?;
        let Some(file) = servers.config.gateway.auth.keys_file.clone() else {
            return Err(Failure::usage("`gateway.auth.keys_file` is not set")
                .hint("add `gateway: {auth: {keys_file: keys.json}}` to ropeway.yaml, or try `--file FILE`"));
        };
        Ok((KeyFile::new(file), Some(servers)))
    }
}

impl Key {
    pub(super) fn run(self, context: &CommandContext) -> Result<Exit, Failure> {
        match self.command {
            KeyCommand::New(command) => command.run(context),
            KeyCommand::List(location) => list(&location, context),
            KeyCommand::Set(command) => command.run(context),
            KeyCommand::Revoke(command) => command.run(context),
        }
    }
}

impl New {
    fn run(self, context: &CommandContext) -> Result<Exit, Failure> {
        let (file, servers) = self.location.find(context)?;
        if let Some(servers) = &servers {
            self.profiles.iter().try_for_each(|profile| known_profile(profile, servers))?;
        }
        let mut limits = KeyLimits::default();
        limits.rate = self.rate;
        limits.calls = self.calls.map(|calls| calls as usize);
        limits.sessions = self.sessions.map(|sessions| sessions as usize);
        let mut new = NewKey::new(self.name);
        new.lifetime = self.expires;
        new.operator = self.operator;
        new.profiles = self.profiles;
        new.tools = self.tools;
        new.limits = limits;
        let (key, record) = file.add(new).map_err(|error| failure(&error))?;
        if context.json {
            let mut shown = describe(&record);
            shown["key"] = key.expose().into();
            shown["file"] = json!(file.path());
            // The key itself is a secret, and is meant to be printed here only.
            print_unredacted(&format!("{shown:#}\n"))?;
            return Ok(Exit::Done);
        }
        print_unredacted(&format!("{}\n", key.expose()))?;
        let expires = record.expires.map(|expires| format!(", valid until {}", date(expires))).unwrap_or_default();
        say(&format!(
            "added key `{}` (id {}{expires}) to {}; it is not shown again\n",
            record.name,
            record.id,
            file.path().display()
        ));
        Ok(Exit::Done)
    }
}

impl Set {
    fn run(self, context: &CommandContext) -> Result<Exit, Failure> {
        let (file, _) = self.location.find(context)?;
        let keys = file.read().map_err(|error| failure(&error))?;
        let changed = file.set_operator(&self.name, self.operator).map_err(|error| failure(&error))?;
        if changed.is_empty() {
            return Err(unknown_key(&self.name, &keys));
        }
        if context.json {
            print_json(&json!({"changed": changed.iter().map(describe).collect::<Vec<_>>()}))?;
        } else {
            let role = if self.operator { "an operator" } else { "not an operator" };
            for key in changed {
                print(&format!("key `{}` (id {}) is {role}\n", key.name, key.id))?;
            }
        }
        Ok(Exit::Done)
    }
}

/// Returns the failure for a command that names no key.
fn unknown_key(name: &str, keys: &[ClientKey]) -> Failure {
    let failure = Failure::usage(format!("unknown key `{name}`"));
    match suggest::did_you_mean(name, keys.iter().map(|key| key.name.as_str())) {
        Some(question) => failure.hint(question),
        None => failure.hint("try `ropeway key list`"),
    }
}

impl Revoke {
    fn run(self, context: &CommandContext) -> Result<Exit, Failure> {
        let (file, _) = self.location.find(context)?;
        let keys = file.read().map_err(|error| failure(&error))?;
        let revoked = file.revoke(&self.name).map_err(|error| failure(&error))?;
        if revoked.is_empty() {
            return Err(unknown_key(&self.name, &keys));
        }
        if context.json {
            print_json(&json!({"revoked": revoked.iter().map(describe).collect::<Vec<_>>()}))?;
        } else {
            for key in revoked {
                print(&format!("revoked key `{}` (id {})\n", key.name, key.id))?;
            }
        }
        Ok(Exit::Done)
    }
}

fn list(location: &KeyLocation, context: &CommandContext) -> Result<Exit, Failure> {
    let (file, _) = location.find(context)?;
    let keys = file.read().map_err(|error| failure(&error))?;
    if context.json {
        print_json(&json!({"file": file.path(), "keys": keys.iter().map(describe).collect::<Vec<_>>()}))?;
        return Ok(Exit::Done);
    }
    if keys.is_empty() {
        print("no keys\n")?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&["", "NAME", "ID", "CREATED", "EXPIRES", "RIGHTS"], Overflow::Wrap);
    for key in &keys {
        let state = if key.is_expired() { StatusIcon::Off.cell("expired") } else { StatusIcon::Good.cell("valid") };
        let expires = key.expires.map_or_else(|| "never".to_owned(), date);
        table.row([
            state,
            Cell::new(&key.name),
            Cell::new(&key.id).styled(FAINT),
            Cell::new(&date(key.created)).styled(FAINT),
            Cell::new(&expires),
            Cell::new(&rights(key)),
        ]);
    }
    print(&table.render(terminal_width(&std::io::stdout()), 0))?;
    Ok(Exit::Done)
}

/// Describes what a key may do, in one line.
fn rights(key: &ClientKey) -> String {
    let list = |name: &str, values: &Option<Vec<String>>| {
        values.as_ref().map(|values| format!("{name} {}", values.join(", ")))
    };
    let limits = key.limits.unwrap_or_default();
    let number = |name: &str, value: Option<usize>| value.map(|value| format!("{value} {name}"));
    let parts = [
        key.operator.then(|| "operator".to_owned()),
        list("profiles", &key.profiles),
        list("tools", &key.tools),
        limits.rate.map(|rate| rate.to_string()),
        number("calls", limits.calls),
        number("sessions", limits.sessions),
        number("bytes per body", limits.body),
        number("bytes per result", limits.result),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Describes a key as JSON, without its digest.
fn describe(key: &ClientKey) -> Value {
    let mut shown = json!({
        "name": key.name,
        "id": key.id,
        "created": timestamp(key.created),
        "expires": key.expires.map(timestamp),
        "expired": key.is_expired(),
        "operator": key.operator,
        "profiles": key.profiles,
        "tools": key.tools,
    });
    shown["limits"] = json!(key.limits.unwrap_or_default());
    shown
}

fn timestamp(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.unwrap_or(Timestamp::MAX).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn date(seconds: u64) -> String {
    timestamp(seconds).split('T').next().unwrap_or_default().to_owned()
}

fn failure(error: &KeyFileError) -> Failure {
    let failure = Failure::usage(error.to_string()).caused_by_source(error);
    match error {
        KeyFileError::Duplicate { name } => {
            failure.hint(format!("try another name, or `ropeway key revoke {name}` first"))
        }
        KeyFileError::Exposed { path, .. } => failure.hint(format!("try `chmod 600 {}`", path.display())),
        KeyFileError::Read { path, source } if source.kind() == std::io::ErrorKind::NotFound => {
            failure.hint(format!("try `ropeway key new NAME --file {}` to create it", path.display()))
        }
        _ => failure,
    }
}
