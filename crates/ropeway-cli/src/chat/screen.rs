//! The screen of a chat: where the steps of a turn are written while they happen.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use ropeway::agent::{Step, TurnOutcome};
use ropeway::envelope::Envelope;
use ropeway::registry::ServerStatus;
use ropeway::tool::CallId;
use serde::Serialize;

use super::markdown::Markdown;
use super::results::Results;
use super::show;
use crate::connect::advice::{ServerAdvice, is_pending, is_unavailable, status_line};
use crate::failure::Failure;
use crate::output::print::{ReaderState, say, write};
use crate::output::render_result::{SaveFolder, render_files};
use crate::secrets::redaction::{self, StreamFilter};
use crate::terminal::status::{self, Status};
use crate::terminal::status_icon::StatusIcon;
use crate::terminal::text::{clean_line, screen_columns, strip_model_prefix, terminal_width};

const FAINT: Style = Style::new().dimmed();
const WARNING: Style = AnsiColor::Yellow.on_default();

/// How long an answer may pause before that is shown.
const PAUSE: Duration = Duration::from_millis(500);

/// Where the steps of a turn are written.
pub(crate) struct Screen {
    form: Form,
    /// Where files of answers are put.
    folder: Option<PathBuf>,
    /// What the model says.
    text: StreamFilter,
    /// What the model thinks.
    thoughts: StreamFilter,
    /// Renders both, where a terminal shows them.
    markdown: Option<Renderers>,
    /// Behind what the cursor stands.
    open: Open,
    /// The model is in the midst of an answer.
    is_speaking: bool,
    /// The calls that are being made.
    running: Vec<(CallId, String)>,
    /// The call whose line was written last.
    last: Option<CallId>,
    /// How the servers stood when it was told last.
    told: Vec<ServerStatus>,
    results: Results,
    reader: ReaderState,
}

/// The renderers of the model's words, each for the stream that these go to.
struct Renderers {
    text: Markdown,
    thoughts: Option<Markdown>,
}

impl Renderers {
    /// Returns the renderers for a terminal that shows more than bare text.
    fn for_terminal() -> Option<Self> {
        let is_dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
        if is_dumb || !std::io::stdout().is_terminal() {
            return None;
        }
        let is_bare = |choice| choice == anstream::ColorChoice::Never;
        let error = std::io::stderr();
        let thoughts = error.is_terminal().then(|| Markdown::faint(is_bare(anstream::AutoStream::choice(&error))));
        Some(Self { text: Markdown::new(is_bare(anstream::AutoStream::choice(&std::io::stdout()))), thoughts })
    }
}

/// In which form steps are written.
enum Form {
    /// For scripts: every step is a line of JSON.
    Json,
    /// For people: the model's text, and beside it what else happens.
    People {
        /// Also what the model thinks.
        thoughts: bool,
    },
}

/// A line that is not at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Nothing,
    Text,
    Thoughts,
}

/// The last line for scripts.
#[derive(Serialize)]
struct Final<'a> {
    step: &'static str,
    #[serde(flatten)]
    outcome: &'a TurnOutcome,
}

/// The last line for scripts when there is no outcome.
#[derive(Serialize)]
struct Failed {
    step: &'static str,
    error: String,
    exit: u8,
}

/// Tells scripts why there is no outcome.
pub(crate) fn failed(failure: &Failure) -> Result<(), Failure> {
    let line = json_line(&Failed { step: "failed", error: failure.line(), exit: failure.exit() as u8 })?;
    write(&line).map(drop)
}

/// A value as a line for scripts.
fn json_line(value: &impl Serialize) -> Result<String, Failure> {
    let json =
        redaction::to_json(value, false).map_err(|error| Failure::usage("the result is not JSON").caused_by(&error))?;
    Ok(json + "\n")
}

impl Screen {
    /// A screen for scripts.
    pub(crate) fn for_scripts(folder: Option<PathBuf>) -> Self {
        Self::new(Form::Json, folder, StreamFilter::raw)
    }

    /// A screen for people.
    pub(crate) fn for_people(thoughts: bool, folder: Option<PathBuf>) -> Self {
        Self {
            markdown: Renderers::for_terminal(),
            ..Self::new(Form::People { thoughts }, folder, StreamFilter::default)
        }
    }

    /// Shows the model's text as it came, or rendered where the terminal can.
    pub(crate) fn set_plain(&mut self, is_plain: bool) {
        let is_json = matches!(self.form, Form::Json);
        self.markdown = (!is_plain && !is_json).then(Renderers::for_terminal).flatten();
    }

    /// Returns true if the model's text is shown as it came.
    pub(super) fn is_plain(&self) -> bool {
        self.markdown.is_none()
    }

    /// The results of calls so far.
    pub(super) fn results(&self) -> &Results {
        &self.results
    }

    fn new(form: Form, folder: Option<PathBuf>, flow: fn() -> StreamFilter) -> Self {
        Self {
            form,
            folder,
            text: flow(),
            thoughts: flow(),
            markdown: None,
            open: Open::Nothing,
            is_speaking: false,
            running: Vec::new(),
            last: None,
            told: Vec::new(),
            results: Results::default(),
            reader: ReaderState::Open,
        }
    }

    /// Has the reader of what is written left?
    pub(crate) fn is_unread(&self) -> bool {
        self.reader == ReaderState::Closed
    }

    /// Waits for the next step, and shows what is waited for where that disturbs nothing.
    pub(crate) async fn waiting<T>(&self, status: &Status, step: impl Future<Output = T>) -> T {
        if self.open != Open::Nothing || matches!(self.form, Form::Json) {
            return step.await;
        }
        let mut step = pin!(step);
        if self.is_speaking {
            // Between two lines of an answer there is nothing to be waited for.
            if let Ok(done) = tokio::time::timeout(PAUSE, step.as_mut()).await {
                return done;
            }
        }
        let names: Vec<&str> = self.running.iter().map(|(_, name)| name.as_str()).collect();
        let label = if names.is_empty() { "waiting for the model".to_owned() } else { names.join(", ") };
        status.during(&label, step).await
    }

    /// Wipes what a terminal shows of Ctrl-C, where it stands alone.
    pub(crate) fn wipe_echo(&self) {
        if self.open == Open::Nothing {
            status::clear_line();
        }
    }

    /// Shows a step.
    pub(crate) fn step(&mut self, step: &Step, help: &ServerAdvice, status: &Status) -> Result<(), Failure> {
        match (&self.form, step) {
            (_, Step::Text { text }) => {
                self.end_of(Open::Thoughts)?;
                let shown = self.text.push(text);
                self.say_text(shown)
            }
            (_, Step::Reasoning { text }) => {
                self.end_of(Open::Text)?;
                let shown = self.thoughts.push(text);
                self.say_thoughts(shown)
            }
            (Form::Json, step) => {
                self.end()?;
                if let (Step::CallFinished { envelope, .. }, Some(_)) = (step, &self.folder) {
                    self.files(envelope)?.iter().for_each(|file| say(&format!("{file}\n")));
                }
                self.line(step)
            }
            (Form::People { .. }, step) => self.event(step, help, status),
        }
    }

    /// Shows a step that is not text, to people.
    fn event(&mut self, step: &Step, help: &ServerAdvice, status: &Status) -> Result<(), Failure> {
        match step {
            Step::Servers { verdicts } => {
                self.end()?;
                self.verdicts(verdicts, help);
            }
            Step::Answered { .. } => self.end()?,
            Step::CallStarted { call, tool, origin, arguments, summary } => {
                self.end()?;
                let name = show::name(tool, origin);
                say(&show::started(&name, arguments, summary.as_deref(), width()));
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
            // What is told by later versions of it.
            _ => {}
        }
        Ok(())
    }

    fn finished(&mut self, call: &CallId, envelope: &Envelope) -> Result<(), Failure> {
        let at = self.running.iter().position(|(id, _)| id == call);
        let name = at.map_or_else(|| show::name(&envelope.tool, &envelope.origin), |at| self.running.remove(at).1);
        let is_plain = self.last.take().as_ref() == Some(call);
        let files = self.files(envelope)?;
        self.results.add(&name, envelope);
        say(&show::finished(envelope, (!is_plain).then_some(name.as_str()), &files, width()));
        Ok(())
    }

    /// The files of an answer, each in a line, put into the folder where there is one.
    fn files(&self, envelope: &Envelope) -> Result<Vec<String>, Failure> {
        let folder = self.folder.as_ref().map(|path| SaveFolder::new(path, &envelope.tool));
        render_files(envelope.meta.content.iter(), folder.as_ref())
    }

    /// Shows the servers that should be there and are not, unless that is known.
    pub(crate) fn verdicts(&mut self, verdicts: &[ServerStatus], help: &ServerAdvice) {
        if matches!(self.form, Form::Json) {
            return;
        }
        for verdict in verdicts.iter().filter(|verdict| !self.told.contains(verdict)) {
            let was_connecting = || {
                let before = self.told.iter().find(|told| told.server == verdict.server);
                before.is_some_and(|told| is_pending(&told.outcome))
            };
            match &verdict.outcome {
                outcome if is_pending(outcome) => {
                    say(&status_line(StatusIcon::Half, &verdict.server, "still connecting", ""))
                }
                outcome if is_unavailable(outcome) => say(&help.problem_text(verdict, width())),
                _ if was_connecting() => say(&help.heading(verdict, "")),
                _ => continue,
            }
            self.last = None;
        }
        self.told = verdicts.to_vec();
    }

    /// Says that something is odd.
    pub(crate) fn warn(&mut self, message: &str) {
        self.last = None;
        say(&format!("{WARNING}warning:{WARNING:#} {}\n", clean_line(&strip_model_prefix(message))));
    }

    /// Tells scripts what a turn came to.
    pub(crate) fn outcome(&mut self, outcome: &TurnOutcome) -> Result<(), Failure> {
        self.running.clear();
        self.last = None;
        match self.form {
            Form::Json => self.line(&Final { step: "final", outcome }),
            Form::People { .. } => Ok(()),
        }
    }

    /// Writes what was held back of the text, and ends its line.
    pub(crate) fn end(&mut self) -> Result<(), Failure> {
        self.end_of(Open::Thoughts)?;
        self.end_of(Open::Text)?;
        self.is_speaking = false;
        Ok(())
    }

    fn end_of(&mut self, what: Open) -> Result<(), Failure> {
        match what {
            Open::Thoughts => {
                let rest = self.thoughts.end();
                self.say_thoughts(rest)?;
                if let Some(markdown) = self.markdown.as_mut().and_then(|markdown| markdown.thoughts.as_mut()) {
                    say(&markdown.end());
                    self.close(Open::Thoughts);
                }
            }
            Open::Text => {
                let rest = self.text.end();
                self.say_text(rest)?;
                if let Some(markdown) = &mut self.markdown {
                    let rest = markdown.text.end();
                    self.write(&rest)?;
                    self.close(Open::Text);
                }
            }
            Open::Nothing => {}
        }
        if self.open == what {
            self.close(what);
            match what {
                Open::Thoughts => say("\n"),
                Open::Text => self.write("\n")?,
                Open::Nothing => {}
            }
        }
        Ok(())
    }

    /// The line of this text is at its end.
    fn close(&mut self, what: Open) {
        if self.open == what {
            self.set_open(Open::Nothing);
        }
    }

    fn set_open(&mut self, open: Open) {
        self.open = open;
        status::keep_line(open != Open::Nothing && std::io::stdout().is_terminal());
    }

    fn say_text(&mut self, text: String) -> Result<(), Failure> {
        if text.is_empty() {
            return Ok(());
        }
        if matches!(self.form, Form::Json) {
            return self.line(&Step::Text { text });
        }
        self.last = None;
        self.is_speaking = true;
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
        self.set_open(if is_open { Open::Text } else { Open::Nothing });
        self.write(&text)
    }

    fn say_thoughts(&mut self, text: String) -> Result<(), Failure> {
        if text.is_empty() {
            return Ok(());
        }
        match self.form {
            Form::Json => self.line(&Step::Reasoning { text })?,
            Form::People { thoughts: true } => {
                self.last = None;
                let renderer = self.markdown.as_mut().and_then(|markdown| markdown.thoughts.as_mut());
                let (text, is_open) = match renderer {
                    Some(markdown) => {
                        let shown = markdown.push(&text, screen_columns(&std::io::stderr()));
                        (shown, !markdown.is_at_start())
                    }
                    None => (format!("{FAINT}{text}{FAINT:#}"), !text.ends_with('\n')),
                };
                self.set_open(if is_open { Open::Thoughts } else { Open::Nothing });
                say(&text);
            }
            Form::People { thoughts: false } => {}
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

/// How many columns there are for what is not the model's text.
fn width() -> usize {
    terminal_width(&std::io::stderr()).unwrap_or(120)
}
