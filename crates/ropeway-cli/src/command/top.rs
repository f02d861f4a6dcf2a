//! `ropeway top`: a gateway's live request statistics.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::Duration;

use ropeway_config::Secret;
use ropeway_gateway::{GatewayStats, StatsError, fetch_stats};

use super::gateway_status::files_in_use;
use super::top_view::{Window, render, to_json};
use crate::connect::command_context::CommandContext;
use crate::connect::gateway_client::{self, GatewayProblem};
use crate::failure::{Exit, Failure};
use crate::output::print::{ReaderState, print_json, reader_closed, write};
use crate::secrets::redaction;
use crate::terminal::duration;
use crate::terminal::text::{clean_json, terminal_width};

/// Time limit per request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Shortest time between two updates.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// The variable that holds the key for a gateway that requires one.
pub(super) const KEY: &str = "ROPEWAY_KEY";

/// Moves to the top left corner and clears the screen.
const CLEAR: &str = "\u{1b}[H\u{1b}[J";

/// Table rows without a terminal.
const ROWS: usize = 20;

/// Appended to `--help`.
pub(super) const EXAMPLES: &str = "\
Examples:
  ropeway top
  ropeway top http://127.0.0.1:8931
  ropeway top --once --json
  ropeway top https://gateway.example

The first view counts all requests since the start of the gateway; each later view counts those since the previous \
one. If the gateway requires a key, it is read from the variable ROPEWAY_KEY.";

/// Show live request statistics of a gateway
///
/// Shows requests per second, latencies and errors of each server and tool, until Ctrl-C. Without a URL, shows the gateway that
/// `ropeway up` started. Without a terminal, each view is printed below the previous one.
#[derive(Debug, clap::Args)]
pub(super) struct Top {
    /// URL of a gateway, if not the one that `ropeway up` started
    #[arg(value_name = "URL")]
    url: Option<String>,
    /// Print the statistics since the start, and exit
    #[arg(long)]
    once: bool,
    /// Time between two views
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration::parse)]
    interval: Duration,
    /// Configuration file, if not the one in use
    #[arg(short, long, value_name = "FILE", conflicts_with = "url")]
    config: Option<PathBuf>,
}

/// The gateway whose statistics are shown.
enum Source {
    Url(String, Option<Secret>),
    Socket(PathBuf),
}

impl Top {
    /// Returns `true` if JSON is printed as one document.
    pub(super) fn is_document(&self) -> bool {
        self.once
    }

    pub(super) async fn run(self, context: CommandContext) -> Result<Exit, Failure> {
        let source = self.source()?;
        let mut stats = source.fetch().await?;
        if self.once {
            let window = Window::since_start(&stats);
            if context.json {
                print_json(&to_json(&window))?;
            } else {
                write(&redaction::redact(&render(&window, terminal_width(&std::io::stdout()), usize::MAX)))?;
            }
            return Ok(Exit::Done);
        }
        let mut window = Window::since_start(&stats);
        loop {
            if self.show(&window, context.json)? == ReaderState::Closed {
                return Ok(Exit::Done);
            }
            tokio::select! {
                () = tokio::time::sleep(self.interval.max(MIN_INTERVAL)) => {}
                () = reader_closed() => return Ok(Exit::Done),
            }
            let next = source.fetch().await?;
            window = Window::between(&stats, &next);
            stats = next;
        }
    }

    fn source(&self) -> Result<Source, Failure> {
        if let Some(url) = &self.url {
            return Ok(Source::Url(url.clone(), key()));
        }
        let files = files_in_use(self.config.clone())?.filter(|files| files.folder.is_dir());
        let files = files.ok_or_else(not_running)?;
        files.check_folder()?;
        Ok(Source::Socket(files.socket))
    }

    /// Prints one view.
    fn show(&self, window: &Window, json: bool) -> Result<ReaderState, Failure> {
        if json {
            return write(&(clean_json(&redaction::redact(&to_json(window).to_string())) + "\n"));
        }
        let stdout = std::io::stdout();
        let is_screen = stdout.is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let rows = terminal_size::terminal_size_of(&stdout).map(|(_, terminal_size::Height(rows))| usize::from(rows));
        let text = render(window, terminal_width(&stdout), rows.filter(|_| is_screen).unwrap_or(ROWS));
        let text = redaction::redact(&text);
        write(&if is_screen { format!("{CLEAR}{text}") } else { format!("{text}\n") })
    }
}

impl Source {
    async fn fetch(&self) -> Result<GatewayStats, Failure> {
        match self {
            Self::Url(url, key) => fetch_stats(url, key.as_ref(), REQUEST_TIMEOUT)
                .await
                .map_err(|error| url_failure(url, "statistics", &error)),
            Self::Socket(socket) => {
                let no_response = || {
                    Failure::new(Exit::Unreachable, "the gateway does not respond")
                        .hint("try `ropeway up` to restart it, or `ropeway down`")
                };
                let stats = gateway_client::stats(socket, REQUEST_TIMEOUT).await.map_err(|problem| match problem {
                    GatewayProblem::NotRunning => not_running(),
                    GatewayProblem::NoResponse => no_response(),
                })?;
                serde_json::from_value(stats).map_err(|_| no_response())
            }
        }
    }
}

/// Returns the gateway key, if the variable is set.
pub(super) fn key() -> Option<Secret> {
    std::env::var(KEY).ok().filter(|key| !key.is_empty()).map(Secret::new)
}

fn not_running() -> Failure {
    Failure::new(Exit::Unreachable, "no gateway is running").hint("try `ropeway up`, or `ropeway top URL`")
}

/// Returns the failure for a request that asks a gateway for statistics or events.
pub(super) fn url_failure(url: &str, what: &str, error: &StatsError) -> Failure {
    let shown = redaction::redact(url).into_owned();
    match error {
        StatsError::InvalidUrl => Failure::usage(format!("`{shown}` is not an http:// or https:// URL")),
        StatsError::NeedsKey => Failure::new(Exit::NeedsAuth, format!("the gateway at `{shown}` requires a key"))
            .hint(format!("set the variable `{KEY}` to a key of the gateway")),
        StatsError::RejectedKey => Failure::new(Exit::NeedsAuth, format!("the gateway at `{shown}` rejects the key"))
            .hint(format!("the variable `{KEY}` has another key, or one that was revoked or has expired")),
        StatsError::NotOperator => {
            Failure::new(Exit::NeedsAuth, format!("the {what} of `{shown}` need the key of an operator"))
                .hint(format!("set the variable `{KEY}` to a key of `ropeway key new NAME --operator`"))
        }
        error => Failure::new(Exit::Unreachable, format!("could not read the {what} of `{shown}`")).caused_by(error),
    }
}
