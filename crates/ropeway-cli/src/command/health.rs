//! `ropeway health`: shows server status.

use anstyle::Style;
use ropeway_bridge::registry::{ServerState, ServerStatus};
use ropeway_bridge::{BridgeHealth as Record, ServerHealth};
use ropeway_core::duration::format_duration;
use ropeway_mcp::Era;

use crate::connect::advice::{STARTING, ServerAdvice, is_available, status_line};
use crate::connect::command_context::CommandContext;
use crate::connect::server_options::ServerOptions;
use crate::connect::session::Session;
use crate::failure::{Exit, Failure, worst_exit};
use crate::terminal::status_icon::StatusIcon;
use crate::terminal::style::faint;
use crate::terminal::table::{Cell, Overflow, Table};
use crate::terminal::text::{clean_line, columns, cut, fold, terminal_width, wrap};

const FAINT: Style = Style::new().dimmed();

/// Maximum server output lines shown.
const SERVER_LINES: usize = 5;

/// Columns omitted on narrow terminals, in order: version, era, protocol, latency, tools.
const LEAST_IMPORTANT: [usize; 5] = [6, 2, 3, 4, 5];

/// Appended to `--help`.
pub(super) const EXAMPLES: &str = "\
Examples:
  ropeway health
  ropeway health files github
  ropeway health --json --timeout 5s";

/// Show server status
#[derive(Debug, clap::Args)]
pub(super) struct Health {
    /// Only show these servers
    #[arg(value_name = "SERVER")]
    names: Vec<String>,
    #[command(flatten)]
    server: ServerOptions,
}

impl Health {
    pub(super) async fn run(self, context: CommandContext) -> Result<Exit, Failure> {
        let servers = self.server.servers(&context)?.lists_servers().only_these(&self.names)?;
        Session::with_any(servers, &context, async |session| {
            let health = session.health().await;
            context.print_long(&health, || show(&health, &session.advice))?;
            let failing = health.servers.iter().filter(|server| !server.is_healthy());
            let failing = failing.map(|server| ServerStatus::new(server.server.clone(), server.state.clone()));
            Ok(worst_exit(failing.map(|status| session.exit_of(&status))))
        })
        .await
    }
}

fn show(health: &Record, advice: &ServerAdvice) -> String {
    if health.servers.is_empty() {
        return advice.no_servers();
    }
    let width = terminal_width(&std::io::stdout());
    let header = ["SERVER", "STATE", "ERA", "PROTOCOL", "LATENCY", "TOOLS", "VERSION"];
    let mut table = Table::new(&header, Overflow::Cut).with_narrowest_last(8).with_optional(&LEAST_IMPORTANT);
    health.servers.iter().for_each(|server| table.row(row(server, advice)));
    let details = health.servers.iter().map(|server| details(server, advice, width.unwrap_or(usize::MAX)));
    table.render(width, 0) + &details.collect::<String>()
}

fn row(server: &ServerHealth, advice: &ServerAdvice) -> [Cell; 7] {
    let mark = if server.is_healthy() || StatusIcon::for_state(&server.state) != StatusIcon::Good {
        StatusIcon::for_state(&server.state)
    } else {
        StatusIcon::Bad
    };
    let faint = |text: Option<&str>| Cell::new(text.unwrap_or("-")).styled(FAINT);
    let era = server.era.map(Era::as_str);
    let version = match (&server.name, &server.version) {
        (Some(name), Some(version)) => Some(format!("{name} {version}")),
        (name, version) => name.clone().or_else(|| version.clone()),
    };
    [
        Cell::new(server.server.as_str()),
        if advice.is_starting(&server.server) {
            StatusIcon::Half.cell("starting")
        } else {
            mark.cell(state(&server.state))
        },
        faint(era),
        faint(server.protocol_version.as_deref()),
        faint(server.latency.map(format_duration).as_deref()),
        if is_available(&server.state) { Cell::new(&server.tools.to_string()) } else { faint(None) },
        faint(version.as_deref()),
    ]
}

fn state(state: &ServerState) -> &'static str {
    match state {
        ServerState::Ready { .. } => "ready",
        ServerState::Cached { .. } => "idle",
        ServerState::Connecting => "connecting",
        ServerState::NeedsAuth => "needs auth",
        ServerState::Down { .. } => "down",
        ServerState::Skipped { .. } => "skipped",
        ServerState::Invalid { .. } => "not started",
        ServerState::FilteredToZero { .. } => "no tools",
        ServerState::Hidden { .. } => "hidden",
        ServerState::Disabled => "disabled",
        _ => "not started",
    }
}

/// Formats a server and its status, in one line if it fits.
fn heading(mark: StatusIcon, server: &ServerHealth, words: &str, width: usize) -> String {
    let plain = clean_line(&format!("{} {} · {words}", mark.symbol(), server.server));
    if columns(&plain) <= width {
        return status_line(mark, &server.server, words, "");
    }
    let (style, sign) = (mark.style(), mark.symbol());
    let text = fold(&plain, width, 4);
    // Keeps the first line aligned with other headings.
    format!("{style}{sign}{style:#}{}", text.trim_start().strip_prefix(sign).unwrap_or(&text))
}

/// Formats a server's problem, its output and advice.
fn details(server: &ServerHealth, advice: &ServerAdvice, width: usize) -> String {
    if advice.is_starting(&server.server) {
        return format!("\n{}", heading(StatusIcon::Half, server, STARTING, width));
    }
    let unresponsive = !server.is_healthy() && StatusIcon::for_state(&server.state) == StatusIcon::Good;
    if let (Some(note), false, None) = (&server.note, unresponsive, &server.last_error) {
        return format!("\n{}", heading(StatusIcon::Half, server, &clean_line(note), width));
    }
    let mut status = ServerStatus::new(server.server.clone(), server.state.clone());
    let mut text = match (&server.state, &server.last_error) {
        (ServerState::Cached { .. } | ServerState::Disabled, _) | (ServerState::Ready { .. }, None) => {
            return String::new();
        }
        (ServerState::Ready { .. }, Some(error)) => {
            // The server is connected but has or had an error.
            let state = if unresponsive { "not responding" } else { "reported an error" };
            if unresponsive {
                status.state = ServerState::Down { cause: error.clone() };
            }
            let ago = server.last_error_ago.filter(|ago| ago.as_secs() > 1);
            let ago = ago.map(|ago| format!(" · {} ago", format_duration(ago))).unwrap_or_default();
            let mark = if unresponsive { StatusIcon::Bad } else { StatusIcon::Half };
            heading(mark, server, &format!("{state}{ago}"), width) + &wrap(&clean_line(error), width, 4)
        }
        (state, _) => {
            let cause = match state {
                ServerState::Down { cause } => {
                    let remedy =
                        advice.remedy(&server.server).map(|remedy| faint(&wrap(&clean_line(&remedy), width, 4)));
                    wrap(&clean_line(cause), width, 4) + &remedy.unwrap_or_default()
                }
                _ => String::new(),
            };
            heading(StatusIcon::for_state(state), server, &advice.status_text(state), width) + &cause
        }
    };
    if !server.is_healthy() {
        // The error may repeat the last output line.
        let cause = server.last_error.as_deref().unwrap_or_default();
        let is_new = |said: &&String| !said.trim().is_empty() && !cause.contains(said.trim());
        let said: Vec<&String> = server.stderr.iter().filter(is_new).collect();
        for said in &said[said.len().saturating_sub(SERVER_LINES)..] {
            text.push_str(&faint(&cut(&format!("    stderr: {}", clean_line(said)), width)));
        }
    }
    advice.for_status(&status).into_iter().for_each(|advice| text.push_str(&faint(&wrap(&advice, width, 4))));
    format!("\n{text}")
}
