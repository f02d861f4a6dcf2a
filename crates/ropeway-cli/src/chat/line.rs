//! A line that a person types: with editing, history and completion, on a thread of its own.

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use rustix::termios::{InputModes, LocalModes, OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcsetattr};
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{
    Cmd, ConditionalEventHandler, Config, Context, Event, EventContext, EventHandler, Helper, KeyCode, KeyEvent,
    Modifiers, RepeatCount,
};
use tokio::sync::oneshot;

use super::slash;
use crate::failure::Failure;
use crate::files::user_folders::state_folder;
use crate::secrets::redaction;

/// How many lines are remembered.
const MOST_LINES: usize = 1000;

/// How the terminal was before we changed it, while it is changed.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// What a person does at a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    /// Types a line, or several at once.
    Line(String),
    /// Presses Ctrl-C.
    Interrupted {
        /// Nothing was typed.
        empty: bool,
    },
    /// Presses Ctrl-D, or is gone.
    End,
}

/// Asks for lines.
pub(crate) struct Editor {
    asks: mpsc::Sender<Ask>,
    /// Keeps the terminal quiet until the first line is asked for.
    startup: Mutex<Option<Quiet>>,
}

struct Ask {
    prompt: String,
    kind: Kind,
    typed: oneshot::Sender<Typed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Remembered, and completed.
    Message,
    /// Neither. What was typed before it was asked is no answer to it.
    Question,
    /// The same question once more.
    Again,
}

impl Editor {
    /// An editor on the terminal of this process. With `keeps_history`, messages are kept for the next one.
    pub(crate) fn start(keeps_history: bool) -> Result<Self, Failure> {
        let (ask, asked) = mpsc::channel::<Ask>();
        let thread = std::thread::Builder::new().name("line".to_owned()).spawn(move || {
            // Without an editor nobody can be asked: whoever asks hears so.
            if let Ok(mut desk) = Desk::new(keeps_history) {
                asked.iter().for_each(|ask| desk.ask(ask));
            }
        });
        thread.map_err(|error| Failure::usage("could not read the terminal").caused_by(&error))?;
        Ok(Self { asks: ask, startup: Mutex::new(Some(Quiet::begin())) })
    }

    /// Asks for a message.
    pub(crate) async fn message(&self, prompt: &str) -> Typed {
        self.read(prompt, Kind::Message).await
    }

    /// Asks a question. What was typed before, nobody has typed as an answer to it.
    pub(crate) async fn question(&self, prompt: &str) -> Typed {
        self.read(prompt, Kind::Question).await
    }

    /// Asks the question once more that was asked last.
    pub(crate) async fn again(&self, prompt: &str) -> Typed {
        self.read(prompt, Kind::Again).await
    }

    async fn read(&self, prompt: &str, kind: Kind) -> Typed {
        drop(self.startup.lock().unwrap_or_else(PoisonError::into_inner).take());
        let (typed, read) = oneshot::channel();
        // Where nobody reads, nothing is typed.
        let _ = self.asks.send(Ask { prompt: prompt.to_owned(), kind, typed });
        read.await.unwrap_or(Typed::End)
    }
}

fn before() -> MutexGuard<'static, Option<Termios>> {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While this lives, the terminal does not show what is typed: it would stand amidst what the model says. Ctrl-C means the
/// same as ever, and what is typed is there at the next prompt.
pub(crate) struct Quiet(Option<Termios>);

impl Quiet {
    pub(crate) fn begin() -> Self {
        let mut kept = before();
        let now = tcgetattr(std::io::stdin()).ok();
        if let Some(mut quiet) = now.clone() {
            quiet.local_modes.remove(LocalModes::ECHO);
            // Enter stays a carriage return, as at the prompt: a line feed is Ctrl-J there.
            if is_edited() {
                quiet.input_modes.remove(InputModes::ICRNL);
            }
            *kept = now.clone();
            // A terminal that is gone shows nothing anyway.
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &quiet);
        }
        Self(now)
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let mut kept = before();
        if let Some(loud) = &self.0 {
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, loud);
            *kept = None;
        }
    }
}

/// Returns true if keys are read one by one: rustyline leaves the lines of these terminals to the kernel.
fn is_edited() -> bool {
    let is_plain = |terminal: &std::ffi::OsStr| ["dumb", "cons25", "emacs"].iter().any(|name| terminal == *name);
    !std::env::var_os("TERM").is_some_and(|terminal| is_plain(&terminal))
}

/// Gives the terminal back as it was, should it be changed right now.
pub(crate) fn restore() {
    if let Some(before) = before().take() {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &before);
        let _ = std::io::stdout().write_all(b"\x1b[?2004l\r\n");
    }
}

/// The editor on its thread.
struct Desk {
    messages: rustyline::Editor<Hands, FileHistory>,
    answers: rustyline::Editor<Hands, FileHistory>,
    history: Option<PathBuf>,
    is_empty: Arc<AtomicBool>,
    continued: Continued,
}

impl Desk {
    fn new(keeps_history: bool) -> rustyline::Result<Self> {
        let is_empty = Arc::new(AtomicBool::new(true));
        let continued = Continued::default();
        let mut messages = editor(true, &is_empty)?;
        bind_newlines(&mut messages, &continued);
        let answers = editor(false, &is_empty)?;
        let history = keeps_history.then(history_file).flatten();
        if let Some(file) = &history {
            // There need not be one.
            let _ = messages.load_history(file);
        }
        Ok(Self { messages, answers, history, is_empty, continued })
    }

    fn ask(&mut self, Ask { prompt, kind, typed }: Ask) {
        let outer = before().clone();
        *before() = outer.clone().or_else(|| tcgetattr(std::io::stdin()).ok());
        self.is_empty.store(true, Ordering::Relaxed);
        if kind == Kind::Question {
            self.forget();
        }
        let editor = if kind == Kind::Message { &mut self.messages } else { &mut self.answers };
        let line = editor.readline(&prompt);
        *before() = outer;
        let continued = std::mem::take(&mut *self.continued.lock().unwrap_or_else(PoisonError::into_inner));
        let line = line.map(|line| joined(line, &continued));
        if let (Ok(line), Kind::Message) = (&line, kind) {
            self.remember(line);
        }
        let read = match line {
            Ok(line) => Typed::Line(line),
            Err(ReadlineError::Interrupted) => Typed::Interrupted { empty: self.is_empty.load(Ordering::Relaxed) },
            Err(_) => Typed::End,
        };
        // Whoever asked may have gone.
        let _ = typed.send(read);
    }

    /// Forgets what is typed and not read yet.
    fn forget(&mut self) {
        // An editor keeps what it has read behind the end of a line.
        if let Ok(fresh) = editor(false, &self.is_empty) {
            self.answers = fresh;
        }
        let _ = tcflush(std::io::stdin(), QueueSelector::IFlush);
    }

    fn remember(&mut self, line: &str) {
        // A secret that was typed is not kept, neither here nor on disk.
        if redaction::redact(line) != line {
            return;
        }
        let is_new = self.messages.add_history_entry(line).unwrap_or(false);
        if let Some(file) = self.history.as_ref().filter(|_| is_new) {
            // A line that cannot be remembered was typed all the same.
            let _ = self.messages.append_history(file);
            // Restrict the file to its owner.
            let _ = std::fs::set_permissions(file, Permissions::from_mode(0o600));
        }
    }
}

fn editor(completes: bool, is_empty: &Arc<AtomicBool>) -> rustyline::Result<rustyline::Editor<Hands, FileHistory>> {
    let config = Config::builder().history_ignore_space(true).max_history_size(MOST_LINES)?.build();
    let mut editor = rustyline::Editor::with_config(config)?;
    editor.set_helper(Some(Hands { completes, files: FilenameCompleter::new(), is_empty: is_empty.clone() }));
    Ok(editor)
}

/// Binds the keys that start a new line.
fn bind_newlines(editor: &mut rustyline::Editor<Hands, FileHistory>, continued: &Continued) {
    for key in [
        KeyEvent(KeyCode::Char('J'), Modifiers::CTRL),
        KeyEvent(KeyCode::Enter, Modifiers::ALT),
        KeyEvent(KeyCode::Char('J'), Modifiers::CTRL_ALT),
    ] {
        editor.bind_sequence(key, EventHandler::Simple(Cmd::Newline));
    }
    let enter = KeyEvent(KeyCode::Enter, Modifiers::NONE);
    editor.bind_sequence(enter, EventHandler::Conditional(Box::new(LineEnd(continued.clone()))));
}

/// Enter behind a backslash, which starts a new line. The backslash stands until the message is sent.
struct LineEnd(Continued);

/// What stood before each backslash that Enter was pressed behind, that one included. Pasted ones are text.
type Continued = Arc<Mutex<Vec<String>>>;

impl ConditionalEventHandler for LineEnd {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext) -> Option<Cmd> {
        let (line, at) = (context.line(), context.pos());
        if at < line.len() || !continues(line) {
            return None;
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned());
        Some(Cmd::Newline)
    }
}

/// Returns true if the line ends in a backslash that no other one escapes.
fn continues(line: &str) -> bool {
    let rest = line.trim_end_matches('\\');
    (line.len() - rest.len()) % 2 == 1
}

/// Removes the backslashes that Enter was pressed behind.
fn joined(mut line: String, continued: &[String]) -> String {
    // From the last one to the first, since each shortens what follows it.
    for before in continued.iter().rev() {
        if line.strip_prefix(before.as_str()).is_some_and(|rest| rest.starts_with('\n')) {
            line.remove(before.len() - 1);
        }
    }
    line
}

/// The file of lines that were typed, in a folder that only the user may look into.
fn history_file() -> Option<PathBuf> {
    let folder = state_folder()?;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).ok()?;
    let file = folder.join("chat-history");
    // A link or a pipe is not what was written here.
    let is_usable = std::fs::symlink_metadata(&file).map_or(true, |metadata| metadata.is_file());
    is_usable.then_some(file)
}

/// What helps to type a line.
struct Hands {
    completes: bool,
    files: FilenameCompleter,
    /// Is nothing typed? The editor does not tell what was when it is interrupted.
    is_empty: Arc<AtomicBool>,
}

impl Completer for Hands {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let typed = line.get(..at).unwrap_or(line);
        if !self.completes || !typed.starts_with('/') {
            return Ok((at, Vec::new()));
        }
        match typed.split_once(' ') {
            None => {
                let pair = |name: &str| Pair { display: name.to_owned(), replacement: format!("{name} ") };
                Ok((0, slash::names().filter(|name| name.starts_with(typed)).map(pair).collect()))
            }
            Some(("/save" | "/load", _)) => self.files.complete_path(line, at),
            Some(_) => Ok((at, Vec::new())),
        }
    }
}

impl Hinter for Hands {
    type Hint = String;

    fn hint(&self, line: &str, _: usize, _: &Context<'_>) -> Option<String> {
        self.is_empty.store(line.is_empty(), Ordering::Relaxed);
        None
    }
}

impl Highlighter for Hands {}
impl Validator for Hands {}
impl Helper for Hands {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_on_behind_a_backslash_of_its_own() {
        let lines = ["a\\", "a\\\\\\", "\\", "a", "a\\\\", "a\\ "].map(continues);
        assert_eq!(lines, [true, true, true, false, false, false]);
    }

    #[test]
    fn only_backslashes_that_were_typed_before_enter_are_removed() {
        let typed = |line: &str, continued: &[&str]| {
            joined(line.to_owned(), &continued.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(typed("a\\\nb\\\nc", &["a\\", "a\\\nb\\"]), "a\nb\nc");
        assert_eq!(typed("pasted\\\nb", &[]), "pasted\\\nb");
        assert_eq!(typed("changed\\\nb", &["a\\"]), "changed\\\nb");
    }
}
