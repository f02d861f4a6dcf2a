//! `ropeway events`: what happens on the servers, as it happens.

use std::time::{Duration, Instant};

use anstyle::Style;
use ropeway::bridge::Bridge;
use ropeway::config::Secrets;
use ropeway::event::Event;
use ropeway::tool::Alias;

use super::{Setting, print};
use crate::failure::{Exit, Failure};
use crate::mark::Mark;
use crate::server::ServerOptions;
use crate::servers::Source;
use crate::text::{clean_json, clean_line};

const NAME: Style = Style::new().bold();
const FAINT: Style = Style::new().dimmed();

/// Follow what happens on the servers, until Ctrl-C
///
/// The servers are started, kept running and started again when they end; a changed configuration file is followed.
#[derive(Debug, clap::Args)]
pub(super) struct Follow {
    /// Only this server
    #[arg(value_name = "SERVER")]
    name: Option<String>,
    #[command(flatten)]
    server: ServerOptions,
}

impl Follow {
    pub(super) async fn run(self, setting: Setting) -> Result<Exit, Failure> {
        let servers = self.server.servers()?.maybe_only(self.name.as_deref())?;
        let source = servers.source.clone();
        let bridge = Bridge::builder(servers.config).events(setting.events.clone()).build().map_err(Failure::start)?;
        let mut events = bridge.events();
        if let (Source::File(file), None) = (&source, &self.name) {
            bridge.watch(file, Secrets::from_env());
        }
        let began = Instant::now();
        let follow = async {
            while let Some(event) = events.next().await {
                print(&match setting.json {
                    true => clean_json(&serde_json::to_string(&event).unwrap_or_default()) + "\n",
                    false => show(&event, began.elapsed()),
                })?;
            }
            Ok::<_, Failure>(Exit::Done)
        };
        let start = async {
            match bridge.start().await {
                Ok(_) => std::future::pending().await,
                Err(error) => Failure::start(error),
            }
        };
        let over = async {
            match &setting.deadline {
                Some(deadline) => tokio::time::sleep_until(deadline.at()).await,
                None => std::future::pending().await,
            }
        };
        let done = tokio::select! {
            done = follow => done,
            failure = start => Err(failure),
            // It was asked for so much and no more.
            () = over => Ok(Exit::Done),
        };
        bridge.stop().await;
        done
    }
}

/// One event in one line.
fn show(event: &Event, at: Duration) -> String {
    let (mark, words) = match event {
        Event::Connecting { failures: 0, .. } => (Mark::Half, "connecting".to_owned()),
        Event::Connecting { failures, .. } => (Mark::Half, format!("connecting, after {failures} failures")),
        Event::Ready { protocol_version, .. } => (Mark::Good, format!("ready, MCP {protocol_version}")),
        Event::Down { cause, retry_in, .. } => {
            let next = retry_in.map(|time| format!("; next try in {} ms", time.as_millis())).unwrap_or_default();
            (Mark::Bad, format!("down: {cause}{next}"))
        }
        Event::NeedsAuth { .. } => (Mark::Bad, "needs authentication".to_owned()),
        Event::Closed { .. } => (Mark::Off, "closed".to_owned()),
        Event::ToolsChanged { .. } => (Mark::Half, "its tools have changed".to_owned()),
        Event::PromptsChanged { .. } => (Mark::Half, "its prompts have changed".to_owned()),
        Event::ResourcesChanged { .. } => (Mark::Half, "its resources have changed".to_owned()),
        Event::ResourceUpdated { uri, .. } => (Mark::Half, format!("`{uri}` has changed")),
        Event::ToolCalled { tool, took, is_error, .. } => {
            let mark = if *is_error { Mark::Bad } else { Mark::Good };
            (mark, format!("{tool} answered in {:.1} ms", took.as_secs_f64() * 1000.0))
        }
        Event::ToolFailed { tool, took, cause, .. } => {
            (Mark::Bad, format!("{tool} failed after {:.1} ms: {cause}", took.as_secs_f64() * 1000.0))
        }
        Event::Progress { progress, .. } => {
            let total = progress.total.map(|total| format!(" of {total}")).unwrap_or_default();
            let message = progress.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
            (Mark::Half, format!("progress {}{total}{message}", progress.progress))
        }
        Event::Log { level, logger, data, .. } => {
            let logger = logger.as_ref().map(|logger| format!(" {logger}")).unwrap_or_default();
            let text = data.as_str().map_or_else(|| data.to_string(), str::to_owned);
            (Mark::Off, format!("{level}{logger}: {text}"))
        }
        Event::Warning { message, .. } => (Mark::Half, message.clone()),
        Event::Reloaded { started, stopped, restarted } => {
            let list = |what: &str, servers: &[Alias]| {
                let names: Vec<&str> = servers.iter().map(Alias::as_str).collect();
                (!names.is_empty()).then(|| format!("{what} {}", names.join(", ")))
            };
            let parts = [list("started", started), list("stopped", stopped), list("restarted", restarted)];
            let parts: Vec<String> = parts.into_iter().flatten().collect();
            let words = if parts.is_empty() { "no server has changed".to_owned() } else { parts.join("; ") };
            (Mark::Good, format!("the configuration was read again: {words}"))
        }
        Event::Lagged { missed } => (Mark::Bad, format!("{missed} events came too fast to be shown")),
        other => (Mark::Off, serde_json::to_string(other).unwrap_or_default()),
    };
    let (style, sign) = (mark.style(), mark.sign());
    let server = event.server().map_or("ropeway", Alias::as_str);
    let at = at.as_secs_f64();
    format!(
        "{FAINT}{at:8.3}s{FAINT:#} {style}{sign}{style:#} {NAME}{}{NAME:#} {}\n",
        clean_line(server),
        clean_line(&words)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_a_server_says() {
        let event = Event::Warning { server: Some("web".into()), message: "odd\n\u{1b}[2Jthing".into() };
        let text = anstream::adapter::strip_str(&show(&event, Duration::from_millis(1500))).to_string();
        assert_eq!(text, "   1.500s ◐ web odd thing\n");
    }
}
