//! `ropeway lock`: accepts the tool definitions of the servers.

use std::io::{BufRead as _, IsTerminal as _};

use anstyle::{AnsiColor, Style};
use ropeway::bridge::ToolListing;
use ropeway::lock::{Difference, DifferenceKind, Lock as Contents, LockFile};
use ropeway::registry::{ServerState, ServerStatus};
use ropeway::tool::{Alias, ToolDefinition};
use serde_json::{Value, json};

use crate::connect::advice::{is_absent, is_there, tools as count};
use crate::connect::command_context::Setting;
use crate::connect::lockfile;
use crate::connect::server_options::ServerOptions;
use crate::connect::servers::Source;
use crate::connect::session::Session;
use crate::failure::{Exit, Failure};
use crate::output::print::{print, print_json, say};
use crate::terminal::style::{faint, warning};
use crate::terminal::text::{cut, escape_unseen};

/// Number of characters of a description that are shown.
const DESCRIPTION: usize = 200;

/// Shown at the end of `--help`.
pub(super) const EXAMPLES: &str = "\
Examples:
  ropeway lock
  ropeway lock files
  ropeway lock --check

ropeway.lock, next to the configuration file, holds the definitions of the tools that you accepted:
description, schemas and annotations, each with a digest. `lock` in the configuration file says what
happens to tools that differ from it:

  off     nothing
  warn    use them; warn about changed tools (default if ropeway.lock exists)
  strict  new and changed tools are neither listed nor called until `ropeway lock` accepts them";

/// The exit codes, for `--help`.
pub(super) const EXIT_CODES: &str = "\
Exit codes:
  0    accepted, or nothing differs
  1    a tool differs (--check), or the differences were not accepted
  2    invalid usage or configuration, or a broken lock
  3    server unreachable or protocol error
  4    server needs authentication
  5    timeout";

/// Accept the tools of the servers as they are, in ropeway.lock
#[derive(Debug, clap::Args)]
pub(super) struct Lock {
    /// Only these servers
    #[arg(value_name = "SERVER")]
    servers: Vec<String>,
    /// Write nothing; exit with 1 if a tool differs
    #[arg(long, conflicts_with = "yes")]
    check: bool,
    /// Accept without asking
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    server: ServerOptions,
}

/// What was found out.
struct Review {
    /// The servers that were reached, with their tools.
    reached: Vec<(Alias, Vec<ToolDefinition>)>,
    /// The servers that were not.
    unreached: Vec<ServerStatus>,
    /// Servers of the lock that the configuration does not have any more.
    removed: Vec<Alias>,
    differences: Vec<Difference>,
}

impl Lock {
    pub(super) async fn run(self, setting: Setting) -> Result<Exit, Failure> {
        let servers = self.server.servers(&setting)?;
        let Source::File(config) = servers.source.clone() else {
            let failure = Failure::usage("no configuration file to lock");
            let is_given = servers.source == Source::Line;
            let failure =
                if is_given { failure.hint("servers given with --stdio or --url have no lock") } else { failure };
            return Err(failure.hint("`ropeway add` adds a server to a configuration file"));
        };
        let known: Vec<Alias> = servers.names().into_iter().cloned().collect();
        let all = self.servers.is_empty();
        // Which servers were skipped is said with those that were not reached.
        let servers = servers.only_these(&self.servers)?.awake().unlocked().lists_servers();
        let file = LockFile::beside(&config);
        let contents = file.read().map_err(|error| lockfile::failure(&error))?;
        let exists = contents.is_some();
        let contents = contents.map(|(lock, _)| lock).unwrap_or_default();
        let review = Session::with_any(servers, &setting, async |session| {
            session.arrive().await?;
            let removed = contents.servers().filter(|alias| all && !known.contains(alias)).cloned().collect();
            Ok(Review::new(&contents, session.listing(), removed))
        })
        .await?;
        let has_changes = !review.differences.is_empty();
        let mut written = false;
        if !setting.json {
            print(&review.text(&contents, &file, exists))?;
        }
        for verdict in &review.unreached {
            say(&warning(&format!("{verdict}; its tools were not checked")));
        }
        if !self.check && (has_changes || !exists) {
            if self.asks(&setting) && !accepted(review.differences.len()).await {
                return Ok(Exit::ToolError);
            }
            lockfile::change(&config, |lock| review.accept(lock))?;
            written = true;
        }
        if setting.json {
            print_json(&review.json(&file, written))?;
        } else if written {
            print(&format!("wrote {}\n", file.path().display()))?;
        }
        Ok(match () {
            () if self.check && has_changes => Exit::ToolError,
            () => review.exit(),
        })
    }

    fn asks(&self, setting: &Setting) -> bool {
        !self.yes && !setting.json && std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
    }
}

/// Asks the person; everything but a yes is a no.
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
    fn new(contents: &Contents, listing: ToolListing, removed: Vec<Alias>) -> Self {
        let (mut reached, mut unreached, mut differences) = (Vec::new(), Vec::new(), Vec::new());
        for verdict in listing.verdicts {
            let alias = verdict.server.clone();
            if is_there(&verdict.outcome) {
                let tools: Vec<ToolDefinition> =
                    listing.registry.of_server(&alias).map(|tool| tool.definition().clone()).collect();
                differences.extend(contents.compare(&alias, &tools));
                reached.push((alias, tools));
            } else if is_absent(&verdict.outcome) {
                unreached.push(verdict);
            }
        }
        for alias in &removed {
            differences.extend(contents.compare(alias, []));
        }
        Self { reached, unreached, removed, differences }
    }

    fn accept(&self, lock: &mut Contents) {
        self.reached.iter().for_each(|(alias, tools)| lock.accept(alias, tools));
        self.removed.iter().for_each(|alias| lock.remove(alias));
    }

    fn tool(&self, difference: &Difference) -> Option<&ToolDefinition> {
        let (_, tools) = self.reached.iter().find(|(alias, _)| *alias == difference.server)?;
        tools.iter().find(|tool| tool.own_name() == difference.tool)
    }

    /// The differences, for people.
    fn text(&self, contents: &Contents, file: &LockFile, exists: bool) -> String {
        let mut text = String::new();
        if !exists {
            text.push_str(&format!("{} does not exist\n", file.path().display()));
        }
        for difference in &self.differences {
            let name = escape_unseen(&format!("{}.{}", difference.server, difference.tool));
            let now = self.tool(difference).and_then(|tool| tool.source().description.as_deref());
            match &difference.kind {
                DifferenceKind::New => {
                    let about = now.map(|text| format!(": {}", described(text)));
                    text.push_str(&line('+', AnsiColor::Green, &name, &format!("new{}", about.unwrap_or_default())));
                }
                DifferenceKind::Gone => text.push_str(&line('-', AnsiColor::Red, &name, "gone")),
                DifferenceKind::Changed(changes) => {
                    text.push_str(&line('~', AnsiColor::Yellow, &name, "changed"));
                    for change in changes {
                        text.push_str(&format!("    {}\n", escape_unseen(&change.to_string())));
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
        if self.differences.is_empty() && exists {
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
        json!({"lock": file.path(), "written": written, "differences": differences, "unreached": self.unreached})
    }

    /// The exit code that the servers that were not reached give.
    fn exit(&self) -> Exit {
        let any = |is: fn(&ServerState) -> bool| self.unreached.iter().any(|verdict| is(&verdict.outcome));
        match () {
            () if self.unreached.is_empty() => Exit::Done,
            () if any(|outcome| {
                !matches!(outcome, ServerState::NeedsAuth | ServerState::Skipped { .. } | ServerState::Invalid { .. })
            }) =>
            {
                Exit::Unreachable
            }
            () if any(|outcome| *outcome == ServerState::NeedsAuth) => Exit::NeedsAuth,
            () => Exit::Usage,
        }
    }
}

/// The beginning of a description in one line. Nothing in it is hidden, since a person accepts it.
fn described(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    cut(&escape_unseen(&line), DESCRIPTION)
}

fn line(sign: char, colour: AnsiColor, name: &str, words: &str) -> String {
    const NAME: Style = Style::new().bold();
    let style = colour.on_default();
    format!("{style}{sign}{style:#} {NAME}{name}{NAME:#} {words}\n")
}
