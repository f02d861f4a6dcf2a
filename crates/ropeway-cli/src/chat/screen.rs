//! The screen of a chat: where the steps of a turn are written while they happen.

use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use ropeway::agent::{Outcome, Step};
use ropeway::envelope::Envelope;
use ropeway::registry::Verdict;
use ropeway::tool::CallId;
use serde::Serialize;

use super::show;
use crate::answer::{Folder, show_files};
use crate::command::{Reader, say, write};
use crate::failure::Failure;
use crate::help::{Help, is_absent};
use crate::status::{self, Status};
use crate::text::{clean_line, terminal_width, without_prefix};
use crate::veil::{self, Flow};

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
    text: Flow,
    /// What the model thinks.
    thoughts: Flow,
    /// Behind what the cursor stands.
    open: Open,
    /// The model is in the midst of an answer.
    is_speaking: bool,
    /// The calls that are being made.
    running: Vec<(CallId, String)>,
    /// The call whose line was written last.
    last: Option<CallId>,
    /// How the servers stood when it was told last.
    told: Vec<Verdict>,
    reader: Reader,
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
    outcome: &'a Outcome,
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
    let json = veil::json(value, false).map_err(|error| Failure::usage("the result is not JSON").caused_by(&error))?;
    Ok(json + "\n")
}

impl Screen {
    /// A screen for scripts.
    pub(crate) fn for_scripts(folder: Option<PathBuf>) -> Self {
        Self::new(Form::Json, folder, Flow::raw)
    }

    /// A screen for people.
    pub(crate) fn for_people(thoughts: bool, folder: Option<PathBuf>) -> Self {
        Self::new(Form::People { thoughts }, folder, Flow::default)
    }

    fn new(form: Form, folder: Option<PathBuf>, flow: fn() -> Flow) -> Self {
        Self {
            form,
            folder,
            text: flow(),
            thoughts: flow(),
            open: Open::Nothing,
            is_speaking: false,
            running: Vec::new(),
            last: None,
            told: Vec::new(),
            reader: Reader::Stays,
        }
    }

    /// Has the reader of what is written left?
    pub(crate) fn is_unread(&self) -> bool {
        self.reader == Reader::Left
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
            status::wipe();
        }
    }

    /// Shows a step.
    pub(crate) fn step(&mut self, step: &Step, help: &Help, status: &Status) -> Result<(), Failure> {
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
    fn event(&mut self, step: &Step, help: &Help, status: &Status) -> Result<(), Failure> {
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
        say(&show::finished(envelope, (!is_plain).then_some(name.as_str()), &files, width()));
        Ok(())
    }

    /// The files of an answer, each in a line, put into the folder where there is one.
    fn files(&self, envelope: &Envelope) -> Result<Vec<String>, Failure> {
        let folder = self.folder.as_ref().map(|path| Folder::new(path, &envelope.tool));
        show_files(envelope.meta.content.iter(), folder.as_ref())
    }

    /// Shows the servers that should be there and are not, unless that is known.
    pub(crate) fn verdicts(&mut self, verdicts: &[Verdict], help: &Help) {
        if matches!(self.form, Form::Json) {
            return;
        }
        for verdict in verdicts.iter().filter(|verdict| is_absent(&verdict.outcome) && !self.told.contains(verdict)) {
            say(&help.trouble(verdict, width()));
            self.last = None;
        }
        self.told = verdicts.to_vec();
    }

    /// Says that something is odd.
    pub(crate) fn warn(&mut self, message: &str) {
        self.last = None;
        say(&format!("{WARNING}warning:{WARNING:#} {}\n", clean_line(&without_prefix(message))));
    }

    /// Tells scripts what a turn came to.
    pub(crate) fn outcome(&mut self, outcome: &Outcome) -> Result<(), Failure> {
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
            }
            Open::Text => {
                let rest = self.text.end();
                self.say_text(rest)?;
            }
            Open::Nothing => {}
        }
        if self.open == what {
            self.open = Open::Nothing;
            match what {
                Open::Thoughts => say("\n"),
                Open::Text => self.write("\n")?,
                Open::Nothing => {}
            }
        }
        Ok(())
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
        self.open = if text.ends_with('\n') { Open::Nothing } else { Open::Text };
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
                self.open = if text.ends_with('\n') { Open::Nothing } else { Open::Thoughts };
                say(&format!("{FAINT}{text}{FAINT:#}"));
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
