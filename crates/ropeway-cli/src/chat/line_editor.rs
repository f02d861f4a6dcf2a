//! Reads lines from the terminal, with editing, history and completion, on a separate thread.

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::Duration;

use rustix::io::ioctl_fionread;
use rustix::termios::{InputModes, LocalModes, OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcsetattr};
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{
    Cmd, CompletionType, ConditionalEventHandler, Config, Context, Event, EventContext, EventHandler, ExternalPrinter,
    Helper, KeyCode, KeyEvent, Modifiers, RepeatCount,
};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::line_completion::{self, ToolWord};
use crate::failure::Failure;
use crate::files::user_folders::state_folder;
use crate::secrets::redaction;

/// Maximum history lines.
const MAX_HISTORY: usize = 1000;

/// Time after which an open prompt handles signals.
const PROMPT_START: Duration = Duration::from_millis(200);

/// Maximum time for a prompt to end after a signal.
const PROMPT_END: Duration = Duration::from_secs(1);

/// Time without a key after which the user has stopped typing.
const TYPING_PAUSE: Duration = Duration::from_millis(300);

/// Maximum pauses to wait for a user who keeps typing.
const MAX_PAUSES: usize = 20;

/// The original terminal modes, while they are changed.
///
/// It is global because the watchdog and the signal handlers restore the terminal without access to the chat. The lock is held
/// only while the modes are read or set, never during a prompt.
static SAVED_MODES: Mutex<Option<Termios>> = Mutex::new(None);

/// What a prompt returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LineInput {
    /// One line, or several pasted at once.
    Line(String),
    /// Ctrl-C.
    Interrupted {
        /// Nothing was typed.
        empty: bool,
    },
    /// Ctrl-D, or the terminal was closed.
    End,
}

/// A handle to the thread that reads lines.
///
/// [`start`](Self::start) spawns the thread, which owns the rustyline editors and blocks in them. Requests go through a channel
/// and replies through a oneshot, so only one prompt is open at a time, and only the thread writes `open_prompt`. A dropped
/// prompt future leaves the prompt open; [`close_prompt`](Self::close_prompt) ends it.
///
/// `startup` is locked before [`SAVED_MODES`], and neither across `.await`. Dropping the editor closes the channel: the thread
/// ends after its open prompt, and is not joined.
pub(crate) struct LineEditor {
    requests: mpsc::Sender<ReadRequest>,
    /// When the open prompt was shown.
    open_prompt: watch::Receiver<Option<Instant>>,
    /// Disables echo until the first prompt.
    startup: Mutex<Option<EchoGuard>>,
    tools: ToolWords,
}

/// Lists the tools for completion, once it is known how.
type ToolWords = Arc<OnceLock<Box<dyn Fn() -> Vec<ToolWord> + Send + Sync>>>;

struct ReadRequest {
    prompt: String,
    kind: PromptKind,
    reply: oneshot::Sender<LineInput>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PromptKind {
    /// With history and completion.
    Message,
    /// Without either. Input typed before the prompt is discarded.
    Question,
    /// Repeats a question and keeps typed input.
    Again,
    /// A question that one key answers. Input typed before the prompt is discarded.
    Key {
        /// The last key was no answer, so more keys may follow it.
        is_typing: bool,
    },
}

impl LineEditor {
    /// Starts the thread. With `keeps_history`, messages are saved to the history file.
    pub(crate) fn start(keeps_history: bool) -> Result<Self, Failure> {
        let (request, requests) = mpsc::channel::<ReadRequest>();
        let (opened, open_prompt) = watch::channel(None);
        let tools = ToolWords::default();
        let known_tools = tools.clone();
        let thread = std::thread::Builder::new().name("line".to_owned()).spawn(move || {
            // Without an editor, every prompt returns `LineInput::End`.
            if let Ok(mut reader) = LineReader::new(keeps_history, known_tools) {
                for request in requests {
                    opened.send_replace(Some(Instant::now()));
                    let (reply, read) = reader.read(request);
                    opened.send_replace(None);
                    // The receiver may have stopped waiting.
                    let _ = reply.send(read);
                }
            }
        });
        thread.map_err(|error| Failure::usage("could not read the terminal").caused_by(&error))?;
        Ok(Self { requests: request, open_prompt, startup: Mutex::new(Some(EchoGuard::begin())), tools })
    }

    /// Prompts for a message.
    pub(crate) async fn message(&self, prompt: &str) -> LineInput {
        self.read(prompt, PromptKind::Message).await
    }

    /// Asks a question. Input typed before the prompt is discarded.
    pub(crate) async fn question(&self, prompt: &str) -> LineInput {
        self.read(prompt, PromptKind::Question).await
    }

    /// Repeats the last question.
    pub(crate) async fn again(&self, prompt: &str) -> LineInput {
        self.read(prompt, PromptKind::Again).await
    }

    /// Asks a question that one key answers; a terminal that cannot report keys reads a line. Input typed before the prompt is
    /// discarded, and with `is_typing` also the keys that follow without a pause.
    pub(crate) async fn key(&self, prompt: &str, is_typing: bool) -> LineInput {
        self.read(prompt, PromptKind::Key { is_typing }).await
    }

    /// Completes these tool names.
    pub(crate) fn complete_tools(&self, tools: impl Fn() -> Vec<ToolWord> + Send + Sync + 'static) {
        let _ = self.tools.set(Box::new(tools));
    }

    /// Closes the open prompt, if any, and erases its line. What was typed is discarded.
    ///
    /// The thread blocks in rustyline, which ends a prompt for keys and for SIGINT only, so the signal is sent to this process. rustyline handles
    /// it while a prompt is open.
    pub(crate) async fn close_prompt(&self) {
        let mut open = self.open_prompt.clone();
        let Some(shown) = *open.borrow_and_update() else { return };
        tokio::time::sleep_until(shown + PROMPT_START).await;
        if !edits_lines() || *open.borrow_and_update() != Some(shown) {
            return;
        }
        // It fails only if the signal may not be sent.
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::INT);
        let closed = tokio::time::timeout(PROMPT_END, open.wait_for(|now| *now != Some(shown))).await;
        if closed.is_err() {
            return restore();
        }
        // rustyline has moved to the next line.
        let _ = std::io::stdout().write_all(b"\x1b[A\r\x1b[2K");
    }

    async fn read(&self, prompt: &str, kind: PromptKind) -> LineInput {
        drop(self.startup.lock().unwrap_or_else(PoisonError::into_inner).take());
        let (reply, read) = oneshot::channel();
        // A stopped thread drops the sender, which reads as end-of-file.
        let _ = self.requests.send(ReadRequest { prompt: prompt.to_owned(), kind, reply });
        read.await.unwrap_or(LineInput::End)
    }
}

fn saved_modes() -> MutexGuard<'static, Option<Termios>> {
    SAVED_MODES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Disables terminal echo while it lives, so that typed keys do not mix with the model's text. Ctrl-C still works, and the
/// next prompt reads the typed keys.
pub(crate) struct EchoGuard(Option<Termios>);

impl EchoGuard {
    pub(crate) fn begin() -> Self {
        let mut saved = saved_modes();
        let now = tcgetattr(std::io::stdin()).ok();
        if let Some(mut silent) = now.clone() {
            silent.local_modes.remove(LocalModes::ECHO);
            // Enter must stay a carriage return: the prompt reads a line feed as Ctrl-J.
            if edits_lines() {
                silent.input_modes.remove(InputModes::ICRNL);
            }
            *saved = now.clone();
            // The terminal may be closed.
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &silent);
        }
        Self(now)
    }
}

impl Drop for EchoGuard {
    fn drop(&mut self) {
        let mut saved = saved_modes();
        if let Some(original) = &self.0 {
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, original);
            *saved = None;
        }
    }
}

/// Returns `true` if rustyline reads single keys; on these terminals it reads whole lines.
fn edits_lines() -> bool {
    let is_plain = |terminal: &std::ffi::OsStr| ["dumb", "cons25", "emacs"].iter().any(|name| terminal == *name);
    !std::env::var_os("TERM").is_some_and(|terminal| is_plain(&terminal))
}

/// Restores the original terminal modes, if they are changed.
pub(crate) fn restore() {
    if let Some(before) = saved_modes().take() {
        // The terminal may be closed.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &before);
        let _ = std::io::stdout().write_all(b"\x1b[?2004l\r\n");
    }
}

/// Reads lines on the editor thread.
struct LineReader {
    messages: rustyline::Editor<EditorHelper, FileHistory>,
    answers: rustyline::Editor<EditorHelper, FileHistory>,
    history: Option<PathBuf>,
    is_empty: Arc<AtomicBool>,
    continuations: Continuations,
    key: KeyAnswer,
}

impl LineReader {
    fn new(keeps_history: bool, tools: ToolWords) -> rustyline::Result<Self> {
        let is_empty = Arc::new(AtomicBool::new(true));
        let continuations = Continuations::default();
        let key = KeyAnswer::default();
        let mut messages = new_editor(Some(tools), &is_empty)?;
        bind_newlines(&mut messages, &continuations);
        let answers = answer_editor(&is_empty, &key)?;
        let history = keeps_history.then(history_file).flatten();
        if let Some(file) = &history {
            // The file may not exist yet.
            let _ = messages.load_history(file);
        }
        Ok(Self { messages, answers, history, is_empty, continuations, key })
    }

    fn read(&mut self, ReadRequest { prompt, kind, reply }: ReadRequest) -> (oneshot::Sender<LineInput>, LineInput) {
        let outer = saved_modes().clone();
        *saved_modes() = outer.clone().or_else(|| tcgetattr(std::io::stdin()).ok());
        self.is_empty.store(true, Ordering::Relaxed);
        match kind {
            PromptKind::Question => self.discard_typeahead(false),
            PromptKind::Key { is_typing } => self.discard_typeahead(is_typing),
            PromptKind::Message | PromptKind::Again => {}
        }
        self.key.expect(matches!(kind, PromptKind::Key { .. }));
        let editor = if kind == PromptKind::Message { &mut self.messages } else { &mut self.answers };
        let line = editor.readline(&prompt);
        *saved_modes() = outer;
        let continuations = std::mem::take(&mut *self.continuations.lock().unwrap_or_else(PoisonError::into_inner));
        let line = line.map(|line| join_continuations(line, &continuations));
        let line = line.map(|line| self.key.take().map_or(line, String::from));
        if let (Ok(line), PromptKind::Message) = (&line, kind) {
            self.add_to_history(line);
        }
        let read = match line {
            Ok(line) => LineInput::Line(line),
            Err(ReadlineError::Interrupted) => LineInput::Interrupted { empty: self.is_empty.load(Ordering::Relaxed) },
            Err(_) => LineInput::End,
        };
        (reply, read)
    }

    /// Discards input that was typed before the prompt.
    fn discard_typeahead(&mut self, is_typing: bool) {
        // An editor buffers the input behind the end of a line.
        if let Ok(fresh) = answer_editor(&self.is_empty, &self.key) {
            self.answers = fresh;
        }
        discard_keys(is_typing);
    }

    fn add_to_history(&mut self, line: &str) {
        // Typed secrets must not enter the history.
        if redaction::redact(line) != line {
            return;
        }
        let is_new = self.messages.add_history_entry(line).unwrap_or(false);
        if let Some(file) = self.history.as_ref().filter(|_| is_new) {
            // Failing to save the history does not affect the chat.
            let _ = self.messages.append_history(file);
            // Restrict the file to its owner.
            let _ = std::fs::set_permissions(file, Permissions::from_mode(0o600));
        }
    }
}

/// Discards typed keys, and those that follow them without a pause: a user who is typing has not read the question yet.
fn discard_keys(mut is_typing: bool) {
    let input = std::io::stdin();
    let Ok(modes) = tcgetattr(&input) else { return };
    let mut unbuffered = modes.clone();
    // Otherwise an unfinished line is not counted.
    unbuffered.local_modes.remove(LocalModes::ICANON);
    // The terminal may be closed.
    let _ = tcsetattr(&input, OptionalActions::Now, &unbuffered);
    for _ in 0..MAX_PAUSES {
        is_typing |= ioctl_fionread(&input).is_ok_and(|bytes| bytes > 0);
        let _ = tcflush(&input, QueueSelector::IFlush);
        if !std::mem::take(&mut is_typing) {
            break;
        }
        std::thread::sleep(TYPING_PAUSE);
    }
    let _ = tcsetattr(&input, OptionalActions::Now, &modes);
}

/// Ends a prompt at its first key.
#[derive(Clone, Default)]
struct KeyAnswer {
    is_expected: Arc<AtomicBool>,
    pressed: Arc<Mutex<Option<char>>>,
}

impl KeyAnswer {
    fn expect(&self, is_expected: bool) {
        self.is_expected.store(is_expected, Ordering::Relaxed);
        self.take();
    }

    fn take(&self) -> Option<char> {
        self.pressed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl ConditionalEventHandler for KeyAnswer {
    fn handle(&self, event: &Event, _: RepeatCount, _: bool, context: &EventContext) -> Option<Cmd> {
        // Pasted text and keys such as arrows are no answers.
        let Some(KeyEvent(KeyCode::Char(key), Modifiers::NONE)) = event.get(0) else { return None };
        if !self.is_expected.load(Ordering::Relaxed) || !context.line().is_empty() {
            return None;
        }
        *self.pressed.lock().unwrap_or_else(PoisonError::into_inner) = Some(*key);
        // The editor has not inserted the key.
        if key.is_ascii_graphic() {
            let _ = write!(std::io::stdout(), "{key}").and_then(|()| std::io::stdout().flush());
        }
        Some(Cmd::AcceptLine)
    }
}

/// Creates an editor for answers, which one key can end.
fn answer_editor(
    is_empty: &Arc<AtomicBool>,
    key: &KeyAnswer,
) -> rustyline::Result<rustyline::Editor<EditorHelper, FileHistory>> {
    let mut editor = new_editor(None, is_empty)?;
    editor.bind_sequence(Event::Any, EventHandler::Conditional(Box::new(key.clone())));
    Ok(editor)
}

/// Creates an editor. With `tools`, it completes.
fn new_editor(
    tools: Option<ToolWords>,
    is_empty: &Arc<AtomicBool>,
) -> rustyline::Result<rustyline::Editor<EditorHelper, FileHistory>> {
    let config = Config::builder()
        .history_ignore_space(true)
        .max_history_size(MAX_HISTORY)?
        .completion_type(CompletionType::List)
        .completion_show_all_if_ambiguous(true)
        .build();
    let mut editor = rustyline::Editor::with_config(config)?;
    let printer = if tools.is_some() { None } else { editor.create_external_printer().ok() };
    editor.set_helper(Some(EditorHelper {
        tools,
        files: FilenameCompleter::new(),
        is_empty: is_empty.clone(),
        _printer: printer.map(|printer| Box::new(printer) as Box<dyn ExternalPrinter>),
    }));
    Ok(editor)
}

/// Binds the keys that start a new line.
fn bind_newlines(editor: &mut rustyline::Editor<EditorHelper, FileHistory>, continuations: &Continuations) {
    for key in [
        KeyEvent(KeyCode::Char('J'), Modifiers::CTRL),
        KeyEvent(KeyCode::Enter, Modifiers::ALT),
        KeyEvent(KeyCode::Char('J'), Modifiers::CTRL_ALT),
    ] {
        editor.bind_sequence(key, EventHandler::Simple(Cmd::Newline));
    }
    let enter = KeyEvent(KeyCode::Enter, Modifiers::NONE);
    editor.bind_sequence(enter, EventHandler::Conditional(Box::new(ContinuationHandler(continuations.clone()))));
}

/// Inserts a line break for Enter behind a backslash. The backslash is removed when the message is sent.
struct ContinuationHandler(Continuations);

/// The text up to and including each backslash that was followed by Enter. Pasted backslashes are not included.
type Continuations = Arc<Mutex<Vec<String>>>;

impl ConditionalEventHandler for ContinuationHandler {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext) -> Option<Cmd> {
        let (line, at) = (context.line(), context.pos());
        if at < line.len() || !continues(line) {
            return None;
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned());
        Some(Cmd::Newline)
    }
}

/// Returns `true` if the line ends in an unescaped backslash.
fn continues(line: &str) -> bool {
    let rest = line.trim_end_matches('\\');
    (line.len() - rest.len()) % 2 == 1
}

/// Removes the backslashes that were followed by Enter.
fn join_continuations(mut line: String, continuations: &[String]) -> String {
    // From the last one to the first, so that the earlier positions stay valid.
    for before in continuations.iter().rev() {
        if line.strip_prefix(before.as_str()).is_some_and(|rest| rest.starts_with('\n')) {
            line.remove(before.len() - 1);
        }
    }
    line
}

/// Returns the history file, in a directory that is private to the user.
fn history_file() -> Option<PathBuf> {
    let folder = state_folder()?;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).ok()?;
    let file = folder.join("chat-history");
    // Only a regular file can be the history.
    let is_usable = std::fs::symlink_metadata(&file).map_or(true, |metadata| metadata.is_file());
    is_usable.then_some(file)
}

/// Completion for rustyline.
struct EditorHelper {
    /// Completes messages; answers have no completion.
    tools: Option<ToolWords>,
    files: FilenameCompleter,
    /// Whether the line is empty, which rustyline does not report with Ctrl-C.
    is_empty: Arc<AtomicBool>,
    /// With a printer, rustyline waits for keys and signals with select(2). Otherwise it reads the terminal, and a signal that another thread
    /// handles does not end the prompt.
    _printer: Option<Box<dyn ExternalPrinter>>,
}

impl Completer for EditorHelper {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let typed = line.get(..at).unwrap_or(line);
        let Some(tools) = &self.tools else { return Ok((at, Vec::new())) };
        match typed.split_once(' ') {
            Some(("/save" | "/load", _)) => self.files.complete_path(line, at),
            _ => Ok(line_completion::complete(typed, || tools.get().map(|tools| tools()).unwrap_or_default())),
        }
    }
}

impl Hinter for EditorHelper {
    type Hint = String;

    fn hint(&self, line: &str, _: usize, _: &Context<'_>) -> Option<String> {
        self.is_empty.store(line.is_empty(), Ordering::Relaxed);
        None
    }
}

impl Highlighter for EditorHelper {}
impl Validator for EditorHelper {}
impl Helper for EditorHelper {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unescaped_backslash_continues_a_line() {
        let lines = ["a\\", "a\\\\\\", "\\", "a", "a\\\\", "a\\ "].map(continues);
        assert_eq!(lines, [true, true, true, false, false, false]);
    }

    #[test]
    fn only_backslashes_typed_before_enter_are_removed() {
        let typed = |line: &str, continuations: &[&str]| {
            join_continuations(
                line.to_owned(),
                &continuations.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>(),
            )
        };
        assert_eq!(typed("a\\\nb\\\nc", &["a\\", "a\\\nb\\"]), "a\nb\nc");
        assert_eq!(typed("pasted\\\nb", &[]), "pasted\\\nb");
        assert_eq!(typed("changed\\\nb", &["a\\"]), "changed\\\nb");
    }
}
