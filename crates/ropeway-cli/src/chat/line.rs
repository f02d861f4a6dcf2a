//! A line that a person types: with editing, history and completion, on a thread of its own.

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use rustix::termios::{LocalModes, OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcsetattr};
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{Config, Context, Helper};
use tokio::sync::oneshot;

use super::slash;
use crate::failure::Failure;
use crate::servers::state_folder;

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
pub(crate) struct Editor(mpsc::Sender<Ask>);

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
    /// An editor on the terminal of this process.
    pub(crate) fn start() -> Result<Self, Failure> {
        let (ask, asked) = mpsc::channel::<Ask>();
        let thread = std::thread::Builder::new().name("line".to_owned()).spawn(move || {
            // Without an editor nobody can be asked: whoever asks hears so.
            if let Ok(mut desk) = Desk::new() {
                asked.iter().for_each(|ask| desk.ask(ask));
            }
        });
        thread.map_err(|error| Failure::usage("could not read the terminal").caused_by(&error))?;
        Ok(Self(ask))
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
        let (typed, read) = oneshot::channel();
        // Where nobody reads, nothing is typed.
        let _ = self.0.send(Ask { prompt: prompt.to_owned(), kind, typed });
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
}

impl Desk {
    fn new() -> rustyline::Result<Self> {
        let is_empty = Arc::new(AtomicBool::new(true));
        let mut messages = editor(true, &is_empty)?;
        let answers = editor(false, &is_empty)?;
        let history = history_file();
        if let Some(file) = &history {
            // There need not be one.
            let _ = messages.load_history(file);
        }
        Ok(Self { messages, answers, history, is_empty })
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

/// The file of lines that were typed, in a folder that only the user may look into.
fn history_file() -> Option<PathBuf> {
    let folder = state_folder()?;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).ok()?;
    Some(folder.join("chat-history"))
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
