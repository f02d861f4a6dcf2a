//! `ropeway doctor`: diagnoses server problems.

use std::path::Path;
use std::time::Duration;

use anstyle::Style;
use futures_util::{StreamExt as _, stream};
use ropeway_config::{Config, ServerEntry, ServerSettings};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::config::problems_text;
use crate::config::config_file::ConfigFile;
use crate::config::config_paths::find_path;
use crate::connect::command_context::CommandContext;
use crate::connect::lockfile::{self, LoadedLock};
use crate::connect::server_options::ServerOptions;
use crate::connect::servers::{ServerSource, Servers};
use crate::doctor::{Environment, ExamineSettings, Finding, Report, examine, examine_entry};
use crate::failure::{Exit, Failure, worst_exit};
use crate::output::print::print_paged;
use crate::terminal::status_icon::StatusIcon;
use crate::terminal::text::terminal_width;

const FAINT: Style = Style::new().dimmed();

/// Time reserved for the report.
const MARGIN: Duration = Duration::from_millis(200);

/// Maximum servers examined concurrently.
const AT_ONCE: usize = 8;

/// Diagnose server problems and suggest fixes
#[derive(Debug, clap::Args)]
pub(super) struct Doctor {
    /// Only examine these servers
    #[arg(value_name = "SERVER", conflicts_with_all = ["stdio", "url"])]
    names: Vec<String>,
    #[command(flatten)]
    server: ServerOptions,
}

impl Doctor {
    pub(super) async fn run(self, context: CommandContext) -> Result<Exit, Failure> {
        if let Some(file) = self.server.config_file()? {
            file.admit(context.trust)?;
            return self.examine_configured(file, context).await;
        }
        let mut servers = self.server.servers(&context)?;
        for name in &self.names {
            servers = servers.only(name)?;
        }
        let settings = examine_settings(&servers, None, &context);
        let [ServerEntry { settings: ServerSettings::Known(config), .. }] = &servers.config.servers[..] else {
            let failure = Failure::usage("no server to examine");
            return Err(match servers.source {
                ServerSource::Clients => failure.hint(format!("name one of the servers: {}", aliases(&servers))),
                _ => failure,
            });
        };
        let label = format!("examining {}", config.alias);
        let examined = examine(config, &settings);
        let report = context.status.during(&label, examined).await;
        let servers = json!({"servers": [report.json()]});
        context.print_long(&servers, || report.render(terminal_width(&std::io::stdout())))?;
        Ok(report.exit())
    }

    /// Examines a file's servers.
    async fn examine_configured(self, file: ConfigFile, context: CommandContext) -> Result<Exit, Failure> {
        let config = match file.parse() {
            Ok(config) => config,
            Err(error) if error.problems.is_empty() || context.json => return Err(Failure::config(&error)),
            Err(error) => {
                print_paged(&context.pager, &problems_text(&error))?;
                return Ok(Exit::Usage);
            }
        };
        let file = file.path.as_path();
        let servers = Servers::new(config, ServerSource::File(file.to_owned())).eager().lists_servers();
        let servers = self.server.with_era(servers);
        servers.redact_secrets();
        servers.show_warnings();
        let locked = lockfile::load(&servers)?;
        let settings = examine_settings(&servers, locked.as_ref(), &context);
        let entries = chosen(&servers, &self.names)?;
        // A single disabled server is a problem, as in `ropeway tools`.
        let is_alone = entries.len() == 1;
        let examine_server = async |entry: &ServerEntry| match &entry.settings {
            _ if !entry.enabled => switched_off(entry, &servers.config, is_alone),
            ServerSettings::Missing { secrets } => without(secrets, entry, &servers.config),
            ServerSettings::Invalid { reason } | ServerSettings::Down { cause: reason } => unsupported(reason, entry),
            ServerSettings::Known(config) => match locked.as_ref().and_then(|locked| locked.start_refusal(entry)) {
                Some(reason) => not_locked(&reason, entry),
                None => examine_entry(entry, config, &settings).await,
            },
        };
        let label = match &entries[..] {
            [entry] => format!("examining {}", entry.alias),
            entries => format!("examining {} servers", entries.len()),
        };
        let reports = stream::iter(entries.iter().map(examine_server)).buffered(AT_ONCE).collect();
        let reports: Vec<Report> = context.status.during(&label, reports).await;
        let records: Vec<Value> = reports.iter().map(Report::json).collect();
        let record = json!({"config": file, "warnings": servers.config.warnings, "servers": records});
        context.print_long(&record, || show(file, &reports))?;
        Ok(worst_exit(reports.iter().map(Report::exit)))
    }
}

fn aliases(servers: &Servers) -> String {
    servers.names().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns the settings for a session with these servers.
pub(super) fn examine_settings<'a>(
    servers: &Servers,
    locked: Option<&'a LoadedLock>,
    context: &CommandContext,
) -> ExamineSettings<'a> {
    ExamineSettings {
        environment: Environment::of_process(),
        handlers: servers.handlers.clone(),
        lock: locked.map(|locked| (&locked.lock, locked.policy)),
        config: match &servers.source {
            ServerSource::File(path) => Some(path.clone()),
            ServerSource::Line | ServerSource::Clients | ServerSource::Demo => None,
        },
        named_config: match &servers.source {
            ServerSource::File(path) if find_path().as_ref() != Some(path) => Some(path.clone()),
            _ => None,
        },
        limit: patience(context),
    }
}

/// Returns how much time `--timeout` leaves, if set.
fn patience(context: &CommandContext) -> Option<Duration> {
    let deadline = context.deadline.as_ref()?;
    Some(deadline.at().saturating_duration_since(Instant::now()).saturating_sub(MARGIN))
}

/// Returns the named servers, or all.
fn chosen(servers: &Servers, names: &[String]) -> Result<Vec<ServerEntry>, Failure> {
    if names.is_empty() {
        return Ok(servers.config.servers.clone());
    }
    let one = |name: &String| servers.clone().only(name).map(|only| only.config.servers);
    Ok(names.iter().map(one).collect::<Result<Vec<_>, _>>()?.concat())
}

fn switched_off(entry: &ServerEntry, config: &Config, is_alone: bool) -> Report {
    let fix = if config.excludes(&entry.alias) {
        format!("add `{}` to `enabled_servers`", entry.alias)
    } else {
        "set `enabled: true`".to_owned()
    };
    let words = "the server is disabled";
    let found =
        if is_alone { Finding::problem("settings", Exit::Usage, words) } else { Finding::note("settings", words) };
    let found = found.fix(fix);
    Report { server: entry.alias.clone(), findings: vec![found] }
}

/// Reports a server with an unsupported key.
fn unsupported(reason: &str, entry: &ServerEntry) -> Report {
    let found = Finding::problem("settings", Exit::Usage, reason.to_owned())
        .fix("correct or remove the key, or define the server in a ropeway.yaml");
    Report { server: entry.alias.clone(), findings: vec![found] }
}

/// Reports a server that a strict lock does not start.
fn not_locked(reason: &str, entry: &ServerEntry) -> Report {
    let found = Finding::problem("lock", Exit::Usage, reason.to_owned())
        .fix("review the command in the configuration file, and accept it with `ropeway lock`");
    Report { server: entry.alias.clone(), findings: vec![found] }
}

/// Reports a server with missing secrets.
fn without(secrets: &[String], entry: &ServerEntry, config: &Config) -> Report {
    let files: Vec<String> = config.files.iter().map(|file| format!("`{}`", file.display())).collect();
    let finding = |name: &String| {
        let found = format!("`{name}` is not set in the environment or in {}", files.join(", "));
        let line = files.first().map(|file| format!(", or a line `{name}=…` in {file}")).unwrap_or_default();
        Finding::problem("secrets", Exit::Usage, found).fix(format!("`export {name}=…`{line}"))
    };
    Report { server: entry.alias.clone(), findings: secrets.iter().map(finding).collect() }
}

fn show(file: &Path, reports: &[Report]) -> String {
    let width = terminal_width(&std::io::stdout());
    let mut text = reports.iter().map(|report| report.render(width)).collect::<Vec<_>>().join("\n");
    match reports {
        [] => text = format!("{FAINT}no servers configured in {}{FAINT:#}\n", file.display()),
        [_] => {}
        many => {
            let count = |wanted: fn(&Report) -> bool| many.iter().filter(|report| wanted(report)).count();
            let failing = count(|report| report.exit() != Exit::Done);
            let noted = count(|report| report.exit() == Exit::Done && !report.is_clean());
            let ok = many.len() - failing - noted;
            let mark = if failing > 0 { StatusIcon::Bad } else { StatusIcon::Good };
            let parts = [(ok, "ok"), (noted, "with notes"), (failing, "with problems")];
            let parts: Vec<String> =
                parts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
            let style = mark.style();
            text.push_str(&format!(
                "\n{style}{}{style:#} {} servers: {}\n",
                mark.symbol(),
                many.len(),
                parts.join(", ")
            ));
        }
    }
    text
}
