//! `ropeway events`: prints server events.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anstyle::Style;
use ropeway_bridge::registry::{ServerState, ServerStatus};
use ropeway_config::Secrets;
use ropeway_core::event::{Event, timestamp};
use ropeway_core::tool::Alias;
use ropeway_gateway::{GatewayEvents, StatsError, follow_events};
use ropeway_mcp::is_ending;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::UnixStream;
use url::Url;

use super::top::{self, url_failure};
use crate::config::config_file::ConfigFile;
use crate::config::config_paths::Origin;
use crate::connect::advice::ServerAdvice;
use crate::connect::command_context::CommandContext;
use crate::connect::running_gateway;
use crate::connect::server_options::ServerOptions;
use crate::connect::servers::ServerSource;
use crate::connect::session::{build_bridge, load_lock};
use crate::failure::{Exit, Failure};
use crate::model::is_loopback;
use crate::output::print::{ReaderState, reader_closed, say, write};
use crate::secrets::redaction;
use crate::terminal::status_icon::StatusIcon;
use crate::terminal::text::{clean_line, columns, cut, terminal_width};
use crate::trust::ReloadGuard;

const NAME: Style = Style::new().bold();
const FAINT: Style = Style::new().dimmed();

/// Time for a gateway to answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Shown for events that are not about a server.
const OURSELVES: &str = "ropeway";

/// Maximum server name width in columns.
const WIDEST_SERVER: usize = 20;

/// Minimum message width in columns.
const NARROWEST: usize = 20;

/// Print the events of servers until Ctrl-C
///
/// Follows the gateway that `ropeway up` started, or the one behind a URL, whose key is read from the variable ROPEWAY_KEY. Without a
/// gateway, or with --direct, starts the servers: those that stop are restarted, and changes to the configuration file are applied,
/// unless servers are named; a changed project file is applied once it is trusted again.
#[derive(Debug, clap::Args)]
pub(super) struct Follow {
    /// Only the events of these servers
    #[arg(value_name = "SERVER")]
    names: Vec<String>,
    #[command(flatten)]
    server: ServerOptions,
}

impl Follow {
    pub(super) async fn run(self, context: CommandContext) -> Result<Exit, Failure> {
        if let Some(url) = self.server.url.as_ref().filter(|_| !self.server.direct)
            && let Some(feed) = EventFeed::of_url(url).await?
        {
            return self.follow(feed, &context).await;
        }
        let servers = self.server.servers(&context)?.only_these(&self.names)?;
        if let Some(socket) = running_gateway::socket(&servers).await
            && let Some(feed) = EventFeed::of_socket(&socket).await
        {
            return self.follow(feed, &context).await;
        }
        let (source, config_file) = (servers.source.clone(), servers.file.clone());
        let locked = load_lock(&servers)?;
        let bridge = build_bridge(servers, locked.as_ref(), &context)?;
        let mut events = bridge.events();
        if let (ServerSource::File(file), true) = (&source, self.names.is_empty()) {
            // A changed project file is applied only after it is trusted.
            match &config_file {
                Some(ConfigFile { path, text, origin: Origin::Project }) => {
                    let follower = ReloadGuard::new(path, text, context.trust);
                    bridge.watch_accepted(file, Secrets::from_env(), move |text| follower.accepts(text));
                }
                _ => bridge.watch(file, Secrets::from_env()),
            }
        }
        let began = Instant::now();
        let layout = Layout::new(&bridge.servers(), terminal_width(&std::io::stdout()));
        let print_event = |event: &Event| {
            // The servers end with this process.
            if is_ending() {
                return Ok(ReaderState::Open);
            }
            if context.json {
                write(&json_line(event, SystemTime::now()))
            } else {
                write(&redaction::redact(&layout.show(event, began.elapsed())))
            }
        };
        let advice = ServerAdvice::new(source, None);
        // Disabled servers have no events.
        let idle = |state: &ServerState| matches!(state, ServerState::Disabled);
        for ServerStatus { server, state, .. } in bridge.statuses().into_iter().filter(|status| idle(&status.state)) {
            print_event(&Event::Warning { server: Some(server), message: advice.status_text(&state) })?;
        }
        let follow = async {
            while let Some(event) = events.next().await {
                if print_event(&event)? == ReaderState::Closed {
                    break;
                }
            }
            Ok::<_, Failure>(Exit::Done)
        };
        let start = async {
            match bridge.start().await {
                Ok(_) => std::future::pending().await,
                Err(error) => Failure::start(error),
            }
        };
        let done = tokio::select! {
            done = follow => done,
            failure = start => Err(failure),
            // Reaching `--timeout` is success.
            () = until_deadline(&context) => Ok(Exit::Done),
            // The next event may be far away, so the pipe is watched.
            () = reader_closed() => Ok(Exit::Done),
        };
        bridge.stop().await;
        done
    }

    /// Prints a gateway's events until it stops.
    async fn follow(&self, mut feed: EventFeed, context: &CommandContext) -> Result<Exit, Failure> {
        say("following the events of the running gateway\n");
        let began = Instant::now();
        let names: Vec<Alias> = self.names.iter().map(|name| Alias::from(name.as_str())).collect();
        let layout = Layout::new(&names, terminal_width(&std::io::stdout()));
        let is_wanted = |event: &Value| {
            names.is_empty()
                || event["server"].as_str().is_some_and(|server| names.iter().any(|name| name.as_str() == server))
        };
        let print_all = async {
            while let Some(event) = feed.next().await? {
                if !is_wanted(&event) {
                    continue;
                }
                let text = if context.json {
                    redaction::to_json(&event, false).unwrap_or_default() + "\n"
                } else {
                    redaction::redact(&layout.show(&read_event(event), began.elapsed())).into_owned()
                };
                if write(&text)? == ReaderState::Closed {
                    return Ok(Exit::Done);
                }
            }
            say("the gateway has stopped\n");
            Ok::<_, Failure>(Exit::Done)
        };
        tokio::select! {
            done = print_all => done,
            () = until_deadline(context) => Ok(Exit::Done),
            () = reader_closed() => Ok(Exit::Done),
        }
    }
}

async fn until_deadline(context: &CommandContext) {
    match &context.deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.at()).await,
        None => std::future::pending().await,
    }
}

/// Returns `true` if a request to a URL is encrypted, or stays on this machine.
fn is_private(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| url.scheme() == "https" || is_loopback(&url))
}

/// A gateway's events.
enum EventFeed {
    Url(String, GatewayEvents),
    Socket(Lines<BufReader<UnixStream>>),
}

impl EventFeed {
    /// Follows the gateway behind a URL. Returns `None` if another MCP server is there.
    async fn of_url(url: &str) -> Result<Option<Self>, Failure> {
        // Any MCP server may be there: only a gateway that asks for the key gets it.
        let mut followed = follow_events(url, None, REQUEST_TIMEOUT).await;
        if let (Err(StatsError::NeedsKey), Some(key)) = (&followed, top::key().filter(|_| is_private(url))) {
            followed = follow_events(url, Some(&key), REQUEST_TIMEOUT).await;
        }
        match followed {
            Ok(events) => Ok(Some(Self::Url(url.to_owned(), events))),
            Err(error @ (StatsError::RejectedKey | StatsError::NotOperator)) => Err(url_failure(url, "events", &error)),
            Err(_) => Ok(None),
        }
    }

    /// Follows the gateway behind a socket.
    async fn of_socket(socket: &Path) -> Option<Self> {
        let mut stream = UnixStream::connect(socket).await.ok()?;
        let preamble = json!({"ropeway": 1, "events": true});
        stream.write_all(format!("{preamble}\n").as_bytes()).await.ok()?;
        let mut lines = BufReader::new(stream).lines();
        // The gateway confirms that it sends events.
        lines.next_line().await.ok()??;
        Some(Self::Socket(lines))
    }

    /// Waits for the next event. Returns `None` when the gateway stops.
    async fn next(&mut self) -> Result<Option<Value>, Failure> {
        match self {
            Self::Url(url, events) => events.next().await.map_err(|error| url_failure(url, "events", &error)),
            Self::Socket(lines) => {
                let line = lines.next_line().await.ok().flatten();
                Ok(line.and_then(|line| serde_json::from_str(&line).ok()))
            }
        }
    }
}

/// Reads an event. If it was truncated, or comes from a newer gateway, it is shown by its name.
fn read_event(event: Value) -> Event {
    let server = event["server"].as_str().map(Alias::from);
    let message = event["event"].as_str().unwrap_or("unknown event").to_owned();
    serde_json::from_value(event).unwrap_or(Event::Warning { server, message })
}

/// Formats an event as a JSON line, as in a log file.
fn json_line(event: &Event, at: SystemTime) -> String {
    let mut line = json!({"time": timestamp(at)});
    if let (Some(line), Ok(Value::Object(event))) = (line.as_object_mut(), serde_json::to_value(event)) {
        line.extend(event);
    }
    redaction::to_json(&line, false).unwrap_or_default() + "\n"
}

/// The layout for event lines.
struct Layout {
    server: usize,
    /// The terminal's width.
    width: Option<usize>,
}

impl Layout {
    fn new(servers: &[Alias], width: Option<usize>) -> Self {
        let names = servers.iter().map(Alias::as_str).chain([OURSELVES]);
        Self { server: names.map(columns).max().unwrap_or(0).min(WIDEST_SERVER), width }
    }

    /// Formats an event in one line.
    fn show(&self, event: &Event, at: Duration) -> String {
        let (mark, words) = (mark(event), event.to_string());
        let (style, sign) = (mark.style(), mark.symbol());
        let server = cut(&clean_line(event.server().map_or(OURSELVES, Alias::as_str)), self.server);
        let space = " ".repeat(self.server - columns(&server));
        let at = format!("{:8.3}s", at.as_secs_f64());
        let room = self.width.map(|width| width.saturating_sub(columns(&at) + self.server + 5).max(NARROWEST));
        let words = room.map_or_else(|| clean_line(&words), |room| cut(&clean_line(&words), room));
        format!("{FAINT}{at}{FAINT:#} {style}{sign}{style:#} {NAME}{server}{NAME:#}{space}  {words}\n")
    }
}

/// Returns an event's icon.
fn mark(event: &Event) -> StatusIcon {
    match event {
        Event::Ready { .. } | Event::ToolCalled { is_error: false, .. } | Event::Reloaded { .. } => StatusIcon::Good,
        Event::Down { .. }
        | Event::NeedsAuth { .. }
        | Event::ToolCalled { .. }
        | Event::ToolFailed { .. }
        | Event::Lagged { .. } => StatusIcon::Bad,
        Event::Closed { .. } | Event::Log { .. } => StatusIcon::Off,
        _ => StatusIcon::Half,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(event: &Event, width: Option<usize>) -> String {
        let layout = Layout::new(&["web".into(), "a-longer-name".into()], width);
        anstream::adapter::strip_str(&layout.show(event, Duration::from_millis(1500))).to_string()
    }

    #[test]
    fn an_event_with_any_server_text_is_one_line() {
        let event = Event::Warning { server: Some("web".into()), message: "odd\n\u{1b}[2Jthing".into() };
        assert_eq!(shown(&event, None), "   1.500s ◐ web            odd thing\n");
        assert_eq!(shown(&event, Some(50)), "   1.500s ◐ web            odd thing\n");
        let event = Event::Warning { server: None, message: "word ".repeat(100) };
        assert_eq!(shown(&event, Some(50)), "   1.500s ◐ ropeway        word word word word wo…\n");
    }

    #[test]
    fn events_are_formatted_in_one_line() {
        let server: Alias = "web".into();
        let down = |retry_in| Event::Down { server: server.clone(), cause: "no".into(), retry_in };
        for (event, expected) in [
            (Event::Connecting { server: server.clone(), failures: 1 }, "connecting, after 1 failure"),
            (down(None), "down: no"),
            (down(Some(Duration::ZERO)), "down, retrying now: no"),
            (down(Some(Duration::from_millis(1230))), "down, retrying in 1.2 s: no"),
            (
                Event::Reloaded { started: vec!["a".into()], stopped: vec![], restarted: vec!["b".into(), "c".into()] },
                "configuration reloaded: started a; restarted b, c",
            ),
        ] {
            assert_eq!(event.to_string(), expected);
        }
    }
}
