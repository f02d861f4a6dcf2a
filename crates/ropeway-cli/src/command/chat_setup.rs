//! Preparation for `ropeway chat`: handlers, limits and the first message.

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use ropeway_agent::{ModelOptions, TurnLimits};
use ropeway_config::{ChatSettings, ServerEntry, ServerSettings, Transport};
use ropeway_mcp::{ElicitationAnswer, Handlers};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

use crate::chat::Question;
use crate::connect::servers::{Servers, token_handlers};
use crate::failure::Failure;
use crate::sign_in::offer::on_sign_in;
use crate::terminal::style::faint;
use crate::terminal::text::{terminal_width, wrap};

/// Time after which a chat without a terminal starts once one server is ready, without and with packages to
/// download.
const SERVER_PATIENCE: Duration = Duration::from_secs(10);
const DOWNLOAD_PATIENCE: Duration = Duration::from_secs(60);

/// Returns handlers that forward server requests to the user, if any.
pub(super) fn handlers(desk: Option<mpsc::Sender<Question>>) -> Handlers {
    let inputs = desk.clone();
    let handlers = token_handlers().on_elicitation(move |elicitation| {
        let desk = inputs.clone();
        async move {
            let Some(desk) = desk else { return Ok(ElicitationAnswer::Decline) };
            let (answer, answered) = oneshot::channel();
            // A closed channel is a cancellation.
            let _ = desk.send(Question::Server(Box::new(elicitation), answer)).await;
            Ok(answered.await.unwrap_or(ElicitationAnswer::Cancel))
        }
    });
    let Some(desk) = desk else { return handlers };
    on_sign_in(handlers, move |question| {
        let desk = desk.clone();
        // A closed channel declines.
        async move { drop(desk.send(Question::SignIn(question)).await) }
    })
}

/// Returns the time after which a chat without a terminal starts once one server is ready.
pub(super) fn patience(servers: &Servers) -> Duration {
    let may_download = |entry: &ServerEntry| match &entry.settings {
        ServerSettings::Known(config) => match &config.transport {
            Transport::Stdio(server) => server.is_package_runner(),
            _ => false,
        },
        _ => false,
    };
    if servers.config.servers.iter().any(may_download) { DOWNLOAD_PATIENCE } else { SERVER_PATIENCE }
}

pub(super) fn interrupts() -> Result<Signal, Failure> {
    signal(SignalKind::interrupt()).map_err(|error| Failure::usage("could not listen for Ctrl-C").caused_by(&error))
}

/// Returns the `-p` message.
pub(super) fn message(prompt: &str) -> Result<String, Failure> {
    let mut text = prompt.to_owned();
    if prompt == "-" {
        text.clear();
        std::io::stdin()
            .read_to_string(&mut text)
            .map_err(|error| Failure::usage("could not read standard input").caused_by(&error))?;
    }
    match text.trim() {
        "" => Err(Failure::usage("the message is empty").hint("try -p 'What time is it?'")),
        _ => Ok(text),
    }
}

pub(super) fn limits(steps: Option<u32>) -> TurnLimits {
    let limits = TurnLimits::default();
    match steps {
        Some(steps) => limits.with_steps(steps as usize),
        None => limits,
    }
}

pub(super) fn options(chat: &ChatSettings) -> ModelOptions {
    let mut options = ModelOptions::default();
    options.max_tokens = chat.max_tokens;
    options.temperature = chat.temperature;
    options.effort = chat.effort;
    options
}

/// Returns the note about the demo server.
pub(super) fn demo_note() -> String {
    let width = terminal_width(&std::io::stderr()).unwrap_or(usize::MAX);
    let note = "No servers configured; using the built-in demo server. Add one with `ropeway add NAME -- COMMAND`, or use \
        `--stdio COMMAND` or `--url URL`.";
    faint(&wrap(note, width, 0))
}

/// Returns `true` if `--resume` names a file, not an id.
pub(super) fn is_file(path: &Path) -> bool {
    path.components().count() > 1 || path.extension().is_some() || path.exists()
}
