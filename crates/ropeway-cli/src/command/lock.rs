//! `ropeway lock`: accepts the servers' tool definitions.

use std::io::{BufRead as _, IsTerminal as _};

use anstyle::{AnsiColor, Style};
use ropeway_bridge::ToolListing;
use ropeway_bridge::registry::{ServerState, ServerStatus};
use ropeway_config::lock::{Difference, DifferenceKind, Lock as Contents, LockFile, SandboxDifference};
use ropeway_config::{LockPolicy, Sandbox};
use ropeway_core::tool::{Alias, ToolDefinition};
use serde_json::{Value, json};

use crate::connect::advice::{is_available, is_unavailable, tool_count as count};
use crate::connect::command_context::CommandContext;
use crate::connect::lockfile;
use crate::connect::server_options::ServerOptions;
use crate::connect::servers::ServerSource;
use crate::connect::session::Session;
use crate::failure::{Exit, Failure};
use crate::output::print::{print, print_json, say};
use crate::terminal::style::{faint, warning};
use crate::terminal::text::{cut, escape_invisible};

/// Maximum description width in columns.
const DESCRIPTION: usize = 200;

/// Appended to `--help`.
pub(super) const EXAMPLES: &str = "\
Examples:
  ropeway lock
  ropeway lock files
  ropeway lock --check

ropeway.lock, next to the configuration file, stores the accepted tool definitions: descriptions, schemas and \
annotations, each with a digest. `lock` in the configuration file sets how tools that differ from it are handled:

  off     ignore differences
  warn    warn about changed tools (default if ropeway.lock exists)
  strict  hide new and changed tools until `ropeway lock` accepts them";

/// The exit codes, for `--help`.
pub(super) const EXIT_CODES: &str = "\
Exit codes:
  0    accepted, or no differences
  1    tools differ (--check), or the differences were not accepted
  2    invalid usage, configuration or lock file
  3    server unreachable or protocol error
  4    server needs authentication
  5    timeout";

/// Record the current tool definitions in ropeway.lock
#[derive(Debug, clap::Args)]
pub(super) struct Lock {
    /// Only check these servers
    #[arg(value_name = "SERVER")]
    servers: Vec<String>,
    /// Write nothing; exit with 1 if a tool differs
    #[arg(long, conflicts_with = "yes")]
    check: bool,
    /// Accept without asking on a terminal; without one, `lock` never asks
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    server: ServerOptions,
}

/// The differences between the lock and the servers.
struct Review {
    /// The available servers with their tools.
    reached: Vec<(Alias, Vec<ToolDefinition>)>,
    /// The unavailable servers.
    unreached: Vec<ServerStatus>,
    /// Locked servers that were removed from the configuration.
    removed: Vec<Alias>,
    differences: Vec<Difference>,
    /// Available commands without tools that the lock does not contain.
    added: Vec<Alias>,
    /// The available servers with their sandboxes.
    sandboxes: Vec<(Alias, Option<Sandbox>)>,
    sandbox_differences: Vec<SandboxDifference>,
}

impl Lock {
    pub(super) async fn run(self, context: CommandContext) -> Result<Exit, Failure> {
        let servers = self.server.own_servers(&context)?;
        let ServerSource::File(config) = servers.source.clone() else {
            let failure = Failure::usage("no configuration file to lock");
            let is_given = servers.source == ServerSource::Line;
            let failure =
                if is_given { failure.hint("servers given with --stdio or --url have no lock") } else { failure };
            return Err(failure.hint("try `ropeway add` to create a configuration file"));
        };
        let known: Vec<Alias> = servers.names().into_iter().cloned().collect();
        // A server with missing secrets is not started, and its sandbox is not known.
        let complete = servers.config.servers.iter().filter(|entry| entry.config().is_some());
        let sandboxes = complete.map(|entry| (entry.alias.clone(), entry.sandbox().cloned())).collect();
        let all = self.servers.is_empty();
        // Skipped servers are reported as unavailable.
        let commands = servers.config.servers.iter().filter(|entry| entry.stdio().is_some());
        let commands: Vec<Alias> = commands.map(|entry| entry.alias.clone()).collect();
        let mut servers = servers.only_these(&self.servers)?.eager().without_lock().lists_servers();
        // A gateway in the background does not start what is not locked.
        servers.may_use_gateway &= servers.config.lock != Some(LockPolicy::Strict);
        let file = LockFile::beside(&config);
        let contents = file.read().map_err(|error| lockfile::lock_failure(&error))?;
        let exists = contents.is_some();
        let contents = contents.map(|(lock, _)| lock).unwrap_or_default();
        let review = Session::with_any(servers, &context, async |session| {
            session.wait_for_servers().await?;
            let removed = contents.servers().filter(|alias| all && !known.contains(alias)).cloned().collect();
            Ok(Review::new(&contents, session.listing(), &commands, removed).with_sandboxes(&contents, sandboxes))
        })
        .await?;
        let count = review.differences.len() + review.sandbox_differences.len() + review.added.len();
        let has_changes = count > 0;
        let mut written = false;
        if !context.json {
            print(&review.text(&contents, &file, exists))?;
        }
        for status in &review.unreached {
            say(&warning(&format!("{status}; its tools were not checked")));
        }
        if !self.check && (has_changes || !exists) {
            if self.asks(&context) && !accepted(count).await {
                return Ok(Exit::ToolError);
            }
            lockfile::change(&config, |lock| review.accept(lock))?;
            written = true;
        }
        if context.json {
            print_json(&review.json(&file, written))?;
        } else if written {
            print(&format!("wrote {}\n", file.path().display()))?;
        }
        Ok(match () {
            () if self.check && has_changes => Exit::ToolError,
            () => review.exit(),
        })
    }

    fn asks(&self, context: &CommandContext) -> bool {
        !self.yes && !context.json && std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
    }
}

/// Asks the user. Any answer but yes is a no.
async fn accepted(differences: usize) -> bool {
    let what = if differences == 1 { "this difference".to_owned() } else { format!("these {differences} differences") };
    if print(&format!("Accept {what}? [y/N] ")).is_err() {
        return false;
    }
    let read = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line).map(|_| line)
    });
    matches!(read.await, Ok(Ok(line)) if matches!(line.trim().to_lowercase().as_str(), "y" | "yes"))
}

impl Review {
    fn new(contents: &Contents, listing: ToolListing, commands: &[Alias], removed: Vec<Alias>) -> Self {
        let (mut reached, mut unreached, mut differences, mut added) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for status in listing.statuses {
            let alias = status.server.clone();
            if is_available(&status.state) {
                let tools: Vec<ToolDefinition> =
                    listing.registry.of_server(&alias).map(|tool| tool.definition().clone()).collect();
                differences.extend(contents.compare(&alias, &tools));
                if tools.is_empty() && commands.contains(&alias) && !contents.contains(&alias) {
                    added.push(alias.clone());
                }
                reached.push((alias, tools));
            } else if is_unavailable(&status.state) {
                unreached.push(status);
            }
        }
        for alias in &removed {
            differences.extend(contents.compare(alias, []));
        }
        let (sandboxes, sandbox_differences) = (Vec::new(), Vec::new());
        Self { reached, unreached, removed, differences, added, sandboxes, sandbox_differences }
    }

    /// Compares all sandboxes. Those of unavailable servers are reported if they are wider, and never accepted.
    fn with_sandboxes(mut self, contents: &Contents, mut sandboxes: Vec<(Alias, Option<Sandbox>)>) -> Self {
        let is_reached = |alias: &Alias| self.reached.iter().any(|(reached, _)| reached == alias);
        let compared =
            sandboxes.iter().filter_map(|(alias, sandbox)| contents.compare_sandbox(alias, sandbox.as_ref()));
        self.sandbox_differences = compared.filter(|it| it.widens() || is_reached(&it.server)).collect();
        sandboxes.retain(|(alias, _)| is_reached(alias));
        self.sandboxes = sandboxes;
        self
    }

    fn accept(&self, lock: &mut Contents) {
        self.reached.iter().for_each(|(alias, tools)| lock.accept(alias, tools));
        self.sandboxes.iter().for_each(|(alias, sandbox)| lock.accept_sandbox(alias, sandbox.as_ref()));
        self.removed.iter().for_each(|alias| lock.remove(alias));
    }

    fn tool(&self, difference: &Difference) -> Option<&ToolDefinition> {
        let (_, tools) = self.reached.iter().find(|(alias, _)| *alias == difference.server)?;
        tools.iter().find(|tool| tool.own_name() == difference.tool)
    }

    /// Formats the differences.
    fn text(&self, contents: &Contents, file: &LockFile, exists: bool) -> String {
        let mut text = String::new();
        if !exists {
            text.push_str(&format!("{} does not exist\n", file.path().display()));
        }
        for SandboxDifference { server, changes, .. } in &self.sandbox_differences {
            text.push_str(&line('~', AnsiColor::Yellow, &escape_invisible(server.as_str()), "sandbox changed"));
            for change in changes {
                let note = if change.widens { " (wider)" } else { "" };
                text.push_str(&format!("    {}{note}\n", escape_invisible(&change.text)));
            }
        }
        for server in &self.added {
            text.push_str(&line('+', AnsiColor::Green, &escape_invisible(server.as_str()), "new: no tools"));
        }
        for difference in &self.differences {
            let name = escape_invisible(&format!("{}.{}", difference.server, difference.tool));
            let now = self.tool(difference).and_then(|tool| tool.original().description.as_deref());
            match &difference.kind {
                DifferenceKind::New => {
                    let about = now.map(|text| format!(": {}", described(text)));
                    text.push_str(&line('+', AnsiColor::Green, &name, &format!("new{}", about.unwrap_or_default())));
                }
                DifferenceKind::Gone => text.push_str(&line('-', AnsiColor::Red, &name, "removed")),
                DifferenceKind::Changed(changes) => {
                    text.push_str(&line('~', AnsiColor::Yellow, &name, "changed"));
                    for change in changes {
                        text.push_str(&format!("    {}\n", escape_invisible(&change.to_string())));
                    }
                    let was = contents.get(&difference.server, &difference.tool);
                    let was = was.and_then(|tool| tool.definition.as_ref()?.description.as_deref());
                    if let (Some(was), Some(now)) = (was, now)
                        && was != now
                    {
                        let lines = format!("    was: {}\n    now: {}\n", described(was), described(now));
                        text.push_str(&faint(&lines));
                    }
                }
            }
        }
        if self.differences.is_empty() && self.sandbox_differences.is_empty() && self.added.is_empty() && exists {
            let all = self.reached.iter().map(|(_, tools)| tools.len()).sum();
            text.push_str(&format!("{} is up to date: {}\n", file.path().display(), count(all)));
        }
        text
    }

    fn json(&self, file: &LockFile, written: bool) -> Value {
        let differences: Vec<Value> = self
            .differences
            .iter()
            .map(|difference| {
                let mut record = json!({"server": difference.server, "tool": difference.tool});
                if let (Some(record), Ok(Value::Object(kind))) =
                    (record.as_object_mut(), serde_json::to_value(&difference.kind))
                {
                    record.extend(kind);
                }
                record
            })
            .collect();
        let sandbox = |difference: &SandboxDifference| {
            let changes: Vec<&str> = difference.changes.iter().map(|change| change.text.as_str()).collect();
            json!({"server": difference.server, "changes": changes, "widens": difference.widens()})
        };
        let sandboxes: Vec<Value> = self.sandbox_differences.iter().map(sandbox).collect();
        let (lock, unreached) = (file.path(), &self.unreached);
        json!({"lock": lock, "written": written, "differences": differences, "added": self.added, "sandboxes": sandboxes,
            "unreached": unreached})
    }

    /// Returns the exit code for the unavailable servers.
    fn exit(&self) -> Exit {
        let any = |is: fn(&ServerState) -> bool| self.unreached.iter().any(|status| is(&status.state));
        match () {
            () if self.unreached.is_empty() => Exit::Done,
            () if any(|state| {
                !matches!(state, ServerState::NeedsAuth | ServerState::Skipped { .. } | ServerState::Invalid { .. })
            }) =>
            {
                Exit::Unreachable
            }
            () if any(|state| *state == ServerState::NeedsAuth) => Exit::NeedsAuth,
            () => Exit::Usage,
        }
    }
}

/// Formats a description in one line with invisible characters escaped, because the user approves it.
fn described(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    cut(&escape_invisible(&line), DESCRIPTION)
}

fn line(sign: char, colour: AnsiColor, name: &str, words: &str) -> String {
    const NAME: Style = Style::new().bold();
    let style = colour.on_default();
    format!("{style}{sign}{style:#} {NAME}{name}{NAME:#} {words}\n")
}
