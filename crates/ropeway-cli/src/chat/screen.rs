//! Shows a turn's steps as they happen.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use ropeway_agent::{Step, TurnOutcome};
use ropeway_bridge::registry::ServerStatus;
use ropeway_core::envelope::Envelope;
use ropeway_core::tool::CallId;
use serde::Serialize;

use super::call_display;
use super::json_steps::{FinalLine, json_line};
use super::markdown::Markdown;
use super::results::Results;
use crate::connect::advice::{ServerAdvice, is_pending, is_unavailable, status_line};
use crate::failure::Failure;
use crate::output::print::{ReaderState, say, write};
use crate::output::render_result::{SaveFolder, render_files};
use crate::secrets::redaction::StreamFilter;
use crate::terminal::status::{self, Status};
use crate::terminal::status_icon::StatusIcon;
use crate::terminal::text::{clean_line, screen_columns, strip_model_prefix, terminal_width};

const FAINT: Style = Style::new().dimmed();
const WARNING: Style = AnsiColor::Yellow.on_default();

/// Pause in an answer after which the status line is shown.
const STATUS_DELAY: Duration = Duration::from_millis(500);

/// Shows a turn's steps on standard output and standard error.
///
/// The chat owns it and calls it from one task, so it needs no lock. The redaction filters and the
/// renderers buffer text that is not final, and `open` tells which of the two streams has an
/// unfinished line. That line must end before anything else is printed: [`end`](Self::end) flushes
/// the buffers and writes the line break. Dropping the screen flushes nothing; a turn calls `end`
/// when it finishes.
///
/// `last` is the call that printed the last line, if any. Its result then follows without the
/// tool's name. Once the reader has closed standard output, [`is_closed`](Self::is_closed) returns
/// `true` and the turn is cancelled.
pub(crate) struct Screen {
    format: OutputFormat,
    /// The directory from `--save-files`.
    folder: Option<PathBuf>,
    /// Redacts the model's text.
    text: StreamFilter,
    /// Redacts the model's reasoning.
    reasoning: StreamFilter,
    /// Renders both on a terminal.
    markdown: Option<Renderers>,
    /// The unfinished line that the cursor is on.
    open: OpenLine,
    /// The model's answer has started and not ended.
    is_streaming: bool,
    /// Running calls and their names.
    running: Vec<(CallId, String)>,
    /// The call that printed the last line.
    last: Option<CallId>,
    /// The server statuses that were shown last.
    last_statuses: Vec<ServerStatus>,
    results: Results,
    reader: ReaderState,
}

/// Markdown renderers for the model's text and reasoning.
struct Renderers {
    text: Markdown,
    reasoning: Option<Markdown>,
}

impl Renderers {
    /// Returns `None` if standard output is not a terminal, or is a dumb one.
    fn for_terminal() -> Option<Self> {
        let is_dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
        if is_dumb || !std::io::stdout().is_terminal() {
            return None;
        }
        let is_bare = |choice| choice == anstream::ColorChoice::Never;
        let error = std::io::stderr();
        let reasoning = error.is_terminal().then(|| Markdown::faint(is_bare(anstream::AutoStream::choice(&error))));
        Some(Self { text: Markdown::new(is_bare(anstream::AutoStream::choice(&std::io::stdout()))), reasoning })
    }
}

/// The output format.
enum OutputFormat {
    /// JSON Lines for scripts.
    Json,
    /// The model's text on standard output, other steps on standard error.
    Text {
        /// Shows the model's reasoning.
        reasoning: bool,
    },
}

/// An unfinished line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenLine {
    Nothing,
    Text,
    Reasoning,
}

impl Screen {
    /// Creates a screen that writes JSON Lines.
    pub(crate) fn for_scripts(folder: Option<PathBuf>) -> Self {
        Self::new(OutputFormat::Json, folder, StreamFilter::raw)
    }

    /// Creates a screen that writes text.
    pub(crate) fn for_people(reasoning: bool, folder: Option<PathBuf>) -> Self {
        Self {
            markdown: Renderers::for_terminal(),
            ..Self::new(OutputFormat::Text { reasoning }, folder, StreamFilter::default)
        }
    }

    /// Turns Markdown rendering off, or on if the terminal supports it.
    pub(crate) fn set_plain(&mut self, is_plain: bool) {
        let is_json = matches!(self.format, OutputFormat::Json);
        self.markdown = (!is_plain && !is_json).then(Renderers::for_terminal).flatten();
    }

    /// Returns `true` if Markdown is not rendered.
    pub(super) fn is_plain(&self) -> bool {
        self.markdown.is_none()
    }

    pub(super) fn results(&self) -> &Results {
        &self.results
    }

    fn new(format: OutputFormat, folder: Option<PathBuf>, flow: fn() -> StreamFilter) -> Self {
        Self {
            format,
            folder,
            text: flow(),
            reasoning: flow(),
            markdown: None,
            open: OpenLine::Nothing,
            is_streaming: false,
            running: Vec::new(),
            last: None,
            last_statuses: Vec::new(),
            results: Results::default(),
            reader: ReaderState::Open,
        }
    }

    /// Returns `true` if standard output was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.reader == ReaderState::Closed
    }

    /// Waits for the next step. Shows the status line unless a line is unfinished.
    pub(crate) async fn waiting<T>(&self, status: &Status, step: impl Future<Output = T>) -> T {
        if self.open != OpenLine::Nothing || matches!(self.format, OutputFormat::Json) {
            return step.await;
        }
        let mut step = pin!(step);
        if self.is_streaming {
            // Short pauses between two lines of an answer need no status.
            if let Ok(done) = tokio::time::timeout(STATUS_DELAY, step.as_mut()).await {
                return done;
            }
        }
        let names: Vec<&str> = self.running.iter().map(|(_, name)| name.as_str()).collect();
        let label = if names.is_empty() { "waiting for the model".to_owned() } else { names.join(", ") };
        status.during(&label, step).await
    }

    /// Returns `true` if this call printed the last line on the terminal.
    pub(super) fn shows_call(&self, call: &CallId) -> bool {
        self.last.as_ref() == Some(call) && std::io::stderr().is_terminal()
    }

    /// Clears the Ctrl-C echo if it is alone on its line.
    pub(crate) fn clear_echo(&self) {
        if self.open == OpenLine::Nothing {
            status::clear_line();
        }
    }

    pub(crate) fn step(&mut self, step: &Step, help: &ServerAdvice, status: &Status) -> Result<(), Failure> {
        match (&self.format, step) {
            (_, Step::Text { text }) => {
                self.end_of(OpenLine::Reasoning)?;
                let shown = self.text.push(text);
                self.write_text(shown)
            }
            (_, Step::Reasoning { text }) => {
                self.end_of(OpenLine::Text)?;
                let shown = self.reasoning.push(text);
                self.write_reasoning(shown)
            }
            (OutputFormat::Json, step) => {
                self.end()?;
                if let (Step::CallFinished { envelope, .. }, Some(_)) = (step, &self.folder) {
                    self.files(envelope)?.iter().for_each(|file| say(&format!("{file}\n")));
                }
                self.line(step)
            }
            (OutputFormat::Text { .. }, step) => self.event(step, help, status),
        }
    }

    /// Shows a step other than text in the text format.
    fn event(&mut self, step: &Step, help: &ServerAdvice, status: &Status) -> Result<(), Failure> {
        match step {
            Step::Servers { statuses } => {
                self.end()?;
                self.server_statuses(statuses, help);
            }
            Step::Answered { .. } => self.end()?,
            Step::CallStarted { call, tool, origin, arguments, summary } => {
                self.end()?;
                let name = call_display::tool_name(tool, origin);
                say(&call_display::started_line(&name, arguments, summary.as_deref(), width()));
                self.running.push((call.clone(), name));
                self.last = Some(call.clone());
                status.forget();
            }
            Step::CallProgress { progress, .. } => status.progress(progress.clone()),
            Step::CallFinished { call, envelope } => {
                self.end()?;
                self.finished(call, envelope)?;
                status.forget();
            }
            Step::Warning { message } => {
                self.end()?;
                self.warn(message);
            }
            // Later library versions may add steps.
            _ => {}
        }
        Ok(())
    }

    fn finished(&mut self, call: &CallId, envelope: &Envelope) -> Result<(), Failure> {
        let at = self.running.iter().position(|(id, _)| id == call);
        let name = at
            .map_or_else(|| call_display::tool_name(&envelope.tool, &envelope.origin), |at| self.running.remove(at).1);
        let is_plain = self.last.take().as_ref() == Some(call);
        let files = self.files(envelope)?;
        self.results.add(&name, envelope);
        say(&call_display::finished_line(envelope, (!is_plain).then_some(name.as_str()), &files, width()));
        Ok(())
    }

    /// Returns a line for each file in a result. Saves the file to the directory first, if one is
    /// set.
    fn files(&self, envelope: &Envelope) -> Result<Vec<String>, Failure> {
        let folder = self.folder.as_ref().map(|path| SaveFolder::new(path, &envelope.tool));
        render_files(envelope.meta.content.iter(), folder.as_ref())
    }

    /// Shows the servers that are connecting or unavailable, unless that was shown before.
    pub(crate) fn server_statuses(&mut self, statuses: &[ServerStatus], help: &ServerAdvice) {
        if matches!(self.format, OutputFormat::Json) {
            return;
        }
        for status in statuses.iter().filter(|status| !self.last_statuses.contains(status)) {
            let was_connecting = || {
                let before = self.last_statuses.iter().find(|last_statuses| last_statuses.server == status.server);
                before.is_some_and(|last_statuses| is_pending(&last_statuses.state))
            };
            match &status.state {
                outcome if is_pending(outcome) => {
                    say(&status_line(StatusIcon::Half, &status.server, "still connecting", ""))
                }
                outcome if is_unavailable(outcome) => say(&help.problem_text(status, width())),
                _ if was_connecting() => say(&help.heading(status, "")),
                _ => continue,
            }
            self.last = None;
        }
        self.last_statuses = statuses.to_vec();
    }

    pub(crate) fn warn(&mut self, message: &str) {
        self.last = None;
        say(&format!("{WARNING}warning:{WARNING:#} {}\n", clean_line(&strip_model_prefix(message))));
    }

    /// Ends a turn; writes the last JSON line.
    pub(crate) fn outcome(&mut self, outcome: &TurnOutcome) -> Result<(), Failure> {
        self.running.clear();
        self.last = None;
        match self.format {
            OutputFormat::Json => self.line(&FinalLine::new(outcome)),
            OutputFormat::Text { .. } => Ok(()),
        }
    }

    /// Writes buffered text and ends its line.
    pub(crate) fn end(&mut self) -> Result<(), Failure> {
        self.end_of(OpenLine::Reasoning)?;
        self.end_of(OpenLine::Text)?;
        self.is_streaming = false;
        Ok(())
    }

    fn end_of(&mut self, what: OpenLine) -> Result<(), Failure> {
        match what {
            OpenLine::Reasoning => {
                let rest = self.reasoning.end();
                self.write_reasoning(rest)?;
                if let Some(markdown) = self.markdown.as_mut().and_then(|markdown| markdown.reasoning.as_mut()) {
                    say(&markdown.end());
                    self.close(OpenLine::Reasoning);
                }
            }
            OpenLine::Text => {
                let rest = self.text.end();
                self.write_text(rest)?;
                if let Some(markdown) = &mut self.markdown {
                    let rest = markdown.text.end();
                    self.write(&rest)?;
                    self.close(OpenLine::Text);
                }
            }
            OpenLine::Nothing => {}
        }
        if self.open == what {
            self.close(what);
            match what {
                OpenLine::Reasoning => say("\n"),
                OpenLine::Text => self.write("\n")?,
                OpenLine::Nothing => {}
            }
        }
        Ok(())
    }

    /// Marks this text's line as finished.
    fn close(&mut self, what: OpenLine) {
        if self.open == what {
            self.set_open(OpenLine::Nothing);
        }
    }

    fn set_open(&mut self, open: OpenLine) {
        self.open = open;
        status::keep_line(open != OpenLine::Nothing && std::io::stdout().is_terminal());
    }

    fn write_text(&mut self, text: String) -> Result<(), Failure> {
        if text.is_empty() {
            return Ok(());
        }
        if matches!(self.format, OutputFormat::Json) {
            return self.line(&Step::Text { text });
        }
        self.last = None;
        self.is_streaming = true;
        let (text, is_open) = match &mut self.markdown {
            Some(Renderers { text: markdown, .. }) => {
                let shown = markdown.push(&text, screen_columns(&std::io::stdout()));
                (shown, !markdown.is_at_start())
            }
            None => {
                let is_open = !text.ends_with('\n');
                (text, is_open)
            }
        };
        self.set_open(if is_open { OpenLine::Text } else { OpenLine::Nothing });
        self.write(&text)
    }

    fn write_reasoning(&mut self, text: String) -> Result<(), Failure> {
        if text.is_empty() {
            return Ok(());
        }
        match self.format {
            OutputFormat::Json => self.line(&Step::Reasoning { text })?,
            OutputFormat::Text { reasoning: true } => {
                self.last = None;
                let renderer = self.markdown.as_mut().and_then(|markdown| markdown.reasoning.as_mut());
                let (text, is_open) = match renderer {
                    Some(markdown) => {
                        let shown = markdown.push(&text, screen_columns(&std::io::stderr()));
                        (shown, !markdown.is_at_start())
                    }
                    None => (format!("{FAINT}{text}{FAINT:#}"), !text.ends_with('\n')),
                };
                self.set_open(if is_open { OpenLine::Reasoning } else { OpenLine::Nothing });
                say(&text);
            }
            OutputFormat::Text { reasoning: false } => {}
        }
        Ok(())
    }

    fn line(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let line = json_line(value)?;
        self.write(&line)
    }

    fn write(&mut self, text: &str) -> Result<(), Failure> {
        self.reader = write(text)?;
        Ok(())
    }
}

/// Returns standard error's width.
fn width() -> usize {
    terminal_width(&std::io::stderr()).unwrap_or(120)
}
