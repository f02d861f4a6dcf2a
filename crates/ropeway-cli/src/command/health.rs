//! `ropeway health`: how the servers do.

use std::time::Duration;

use anstyle::{AnsiColor, Style};
use ropeway::bridge::{Health as Record, ServerHealth};
use ropeway::mcp::Era;
use ropeway::registry::Outcome;

use super::{Setting, print, print_json};
use crate::failure::{Exit, Failure};
use crate::mark::Mark;
use crate::server::ServerOptions;
use crate::session::Session;
use crate::table::{Cell, Overflow, Table};
use crate::text::{clean_line, terminal_width, wrap};

const FAINT: Style = Style::new().dimmed();
const BAD: Style = AnsiColor::Red.on_default();

/// How many of a server's last lines are shown.
const SERVER_LINES: usize = 5;

/// Show how the servers do
#[derive(Debug, clap::Args)]
pub(super) struct Health {
    /// Only this server
    #[arg(value_name = "SERVER")]
    name: Option<String>,
    #[command(flatten)]
    server: ServerOptions,
}

impl Health {
    pub(super) async fn run(self, setting: Setting) -> Result<Exit, Failure> {
        let servers = self.server.servers()?.maybe_only(self.name.as_deref())?;
        Session::with_any(servers, setting.deadline, setting.status, async |session| {
            let health = session.health().await?;
            match setting.json {
                true => print_json(&health)?,
                false => print(&show(&health))?,
            }
            Ok(exit(&health))
        })
        .await
    }
}

/// Done when all are well; else the worst that is the matter.
fn exit(health: &Record) -> Exit {
    let ill: Vec<&Outcome> =
        health.servers.iter().filter(|server| !server.is_well()).map(|server| &server.outcome).collect();
    match () {
        () if ill.is_empty() => Exit::Done,
        () if ill.iter().any(|outcome| matches!(outcome, Outcome::Down { .. } | Outcome::Ready { .. })) => {
            Exit::Unreachable
        }
        () if ill.iter().any(|outcome| matches!(outcome, Outcome::NeedsAuth)) => Exit::NeedsAuth,
        () if ill.iter().any(|outcome| matches!(outcome, Outcome::Connecting)) => Exit::Timeout,
        () => Exit::Usage,
    }
}

fn show(health: &Record) -> String {
    let width = terminal_width(&std::io::stdout());
    let mut table = Table::new(&["SERVER", "STATE", "ERA", "PROTOCOL", "LATENCY", "TOOLS", "VERSION"], Overflow::Cut);
    health.servers.iter().for_each(|server| table.row(row(server)));
    let mut text = table.render(width, 0);
    for server in &health.servers {
        text.push_str(&details(server, width.unwrap_or(usize::MAX)));
    }
    if health.servers.is_empty() {
        text = "No server is configured.\n".to_owned();
    }
    text
}

fn row(server: &ServerHealth) -> [Cell; 7] {
    let mark =
        if server.is_well() || Mark::of(&server.outcome) != Mark::Good { Mark::of(&server.outcome) } else { Mark::Bad };
    let faint = |text: Option<&str>| Cell::new(text.unwrap_or("-")).styled(FAINT);
    let era = server.era.map(|era| match era {
        Era::Legacy => "legacy",
        Era::Modern => "modern",
    });
    let version = match (&server.name, &server.version) {
        (Some(name), Some(version)) => Some(format!("{name} {version}")),
        (name, version) => name.clone().or_else(|| version.clone()),
    };
    [
        Cell::new(server.server.as_str()),
        mark.cell(state(&server.outcome)),
        faint(era),
        faint(server.protocol_version.as_deref()),
        faint(server.latency.map(latency).as_deref()),
        Cell::new(&server.tools.to_string()),
        faint(version.as_deref()),
    ]
}

fn state(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Ready { .. } => "ready",
        Outcome::Cached { .. } => "asleep",
        Outcome::Connecting => "connecting",
        Outcome::NeedsAuth => "needs auth",
        Outcome::Down { .. } => "down",
        Outcome::Skipped { .. } => "skipped",
        Outcome::FilteredToZero { .. } => "no tools wanted",
        Outcome::Disabled => "disabled",
        _ => "not started",
    }
}

fn latency(latency: Duration) -> String {
    match latency.as_micros() {
        micros @ 0..1000 => format!("{micros} µs"),
        micros @ 1000..10_000 => format!("{:.1} ms", micros as f64 / 1000.0),
        micros => format!("{} ms", micros / 1000),
    }
}

/// What is the matter with a server, and its last words.
fn details(server: &ServerHealth, width: usize) -> String {
    let why = match &server.outcome {
        Outcome::Skipped { .. } | Outcome::NeedsAuth | Outcome::FilteredToZero { .. } => {
            Some(Mark::words(&server.outcome))
        }
        _ => server.last_error.clone(),
    };
    if why.is_none() && (server.is_well() || server.stderr.is_empty()) {
        return String::new();
    }
    let mut text = format!("\n{}\n", clean_line(server.server.as_str()));
    if let Some(why) = why {
        let ago =
            server.last_error_ago.filter(|ago| ago.as_secs() > 1).map(|ago| format!(" ({} s ago)", ago.as_secs()));
        let why = wrap(&format!("{}{}", clean_line(&why), ago.unwrap_or_default()), width, 2);
        text.push_str(&format!("{BAD}{}{BAD:#}\n", why.trim_end()));
    }
    if !server.is_well() {
        for line in server.stderr.iter().rev().take(SERVER_LINES).rev() {
            text.push_str(&format!("  {FAINT}stderr: {}{FAINT:#}\n", clean_line(line)));
        }
        text.push_str(&format!("  {FAINT}`ropeway doctor {}` looks for the cause{FAINT:#}\n", server.server));
    }
    text
}
