//! `ropeway chat` at a terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use ropeway_core::message::Dialect;
use ropeway_testing::{Fault, FaultTrigger, ModelAnswer, Script, ScriptedReply};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::chat::{Model, PATIENCE};
use crate::temp_home::entry;
use crate::terminal::Terminal;
use crate::{Ropeway, Run, Running};

/// The prompt of the chat.
pub(crate) const PROMPT: &str = "› ";
/// The end of the question about a call.
const ASKED: &str = "(? for help) ";
pub(crate) const CTRL_C: &str = "\u{3}";
pub(crate) const CTRL_D: &str = "\u{4}";

/// A terminal window with a chat.
pub(crate) struct Window {
    running: Running,
    keys: File,
    shown: Arc<(Mutex<Shown>, Condvar)>,
    /// The number of bytes that were checked.
    seen: usize,
}

#[derive(Default)]
struct Shown {
    bytes: Vec<u8>,
    is_over: bool,
}

impl Window {
    pub(crate) fn open(ropeway: Ropeway) -> Self {
        Self::with(ropeway, |_| {})
    }

    /// Opens a window; `elsewhere` may redirect streams.
    pub(crate) fn with(ropeway: Ropeway, elsewhere: impl FnOnce(&mut std::process::Command)) -> Self {
        Self::sized(ropeway, 100, |command| {
            command.env("NO_COLOR", "1");
            elsewhere(command);
        })
    }

    /// Opens a window of this width with a changed command.
    pub(crate) fn sized(ropeway: Ropeway, columns: u16, change: impl FnOnce(&mut std::process::Command)) -> Self {
        let (ours, theirs) = Terminal { columns, coloured: false }.open();
        let Ropeway { mut command, process_marker, temp_home } = ropeway;
        command.stdin(theirs.try_clone().expect("a terminal")).stdout(theirs.try_clone().expect("a terminal"));
        command.stderr(theirs).env("TERM", "xterm-256color");
        change(&mut command);
        let child = command.spawn().expect("ropeway starts");
        drop(command);
        let shown = Arc::new((Mutex::new(Shown::default()), Condvar::new()));
        let (mut screen, told) = (ours.try_clone().expect("a terminal"), shown.clone());
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            loop {
                // Reading fails once the other end of the terminal is closed.
                let length = screen.read(&mut piece).unwrap_or(0);
                let mut shown = told.0.lock().expect("what is shown");
                shown.bytes.extend_from_slice(&piece[..length]);
                shown.is_over = length == 0;
                told.1.notify_all();
                if length == 0 {
                    return;
                }
            }
        });
        Self { running: Running { child, process_marker, temp_home }, keys: ours, shown, seen: 0 }
    }

    /// Waits for a text and returns all output since the last call, without cursor movements.
    pub(crate) fn see(&mut self, text: &str) -> String {
        let began = Instant::now();
        let mut shown = self.shown.0.lock().expect("what is shown");
        loop {
            let all = String::from_utf8_lossy(&shown.bytes[self.seen..]).into_owned();
            if let Some(at) = all.find(text) {
                let length = at + text.len();
                self.seen += length;
                return anstream::adapter::strip_str(&all[..length]).to_string();
            }
            let left = PATIENCE.saturating_sub(began.elapsed());
            assert!(!shown.is_over && !left.is_zero(), "`{text}` is not shown, but {all:?}");
            shown = self.shown.1.wait_timeout(shown, left).expect("what is shown").0;
        }
    }

    /// Waits for the end of the output and returns all of it since the last call.
    pub(crate) fn rest(&mut self) -> String {
        let began = Instant::now();
        let mut shown = self.shown.0.lock().expect("what is shown");
        while !shown.is_over {
            let left = PATIENCE.saturating_sub(began.elapsed());
            assert!(!left.is_zero(), "it does not end: {:?}", String::from_utf8_lossy(&shown.bytes));
            shown = self.shown.1.wait_timeout(shown, left).expect("what is shown").0;
        }
        let all = String::from_utf8_lossy(&shown.bytes[self.seen..]).replace("\r\n", "\n");
        self.seen = shown.bytes.len();
        anstream::adapter::strip_str(&all).to_string()
    }

    /// Returns the child processes of the command.
    pub(crate) fn others(&self) -> Vec<u32> {
        self.running.others()
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("a terminal");
    }

    /// Presses keys once a second until a text is shown.
    pub(crate) fn press_until(&mut self, keys: &str, text: &str) {
        let is_shown = |shown: &Shown, seen: usize| String::from_utf8_lossy(&shown.bytes[seen..]).contains(text);
        self.press_while(keys, |shown, seen| !shown.is_over && !is_shown(shown, seen));
        self.see(text);
    }

    /// Presses keys once a second until the program closes the terminal.
    pub(crate) fn press_until_end(&mut self, keys: &str) {
        self.press_while(keys, |shown, _| !shown.is_over);
    }

    fn press_while(&mut self, keys: &str, is_wanted: impl Fn(&Shown, usize) -> bool) {
        let began = Instant::now();
        let (screen, seen) = (self.shown.clone(), self.seen);
        let mut shown = screen.0.lock().expect("what is shown");
        while is_wanted(&shown, seen) {
            assert!(began.elapsed() < PATIENCE, "no effect: {:?}", String::from_utf8_lossy(&shown.bytes[seen..]));
            // Without a reader, writing fails.
            let _ = self.keys.write_all(keys.as_bytes());
            let is_wanted = |shown: &mut Shown| is_wanted(shown, seen);
            shown = screen.1.wait_timeout_while(shown, Duration::from_secs(1), is_wanted).expect("what is shown").0;
        }
    }

    /// Waits for the prompt and types a line.
    pub(crate) fn say(&mut self, line: &str) {
        self.see(PROMPT);
        self.press(&format!("{line}\r"));
    }

    /// Sends SIGINT, as a terminal does for Ctrl-C outside of the line editor.
    pub(crate) fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = Pid::from_raw(self.running.child.id().try_into().expect("an id")).expect("an id");
        kill_process(id, signal).expect("a process");
    }

    /// Changes the number of columns.
    pub(crate) fn resize(&self, columns: u16) {
        let size = rustix::termios::Winsize { ws_row: 50, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&self.keys, size).expect("a size");
    }

    /// Waits for the exit and returns all output.
    pub(crate) fn end_with_screen(self, code: i32) -> String {
        let shown = self.shown.clone();
        self.running.end().expect(code);
        let began = Instant::now();
        let mut shown_now = shown.0.lock().expect("what is shown");
        while !shown_now.is_over && began.elapsed() < PATIENCE {
            shown_now = shown.1.wait_timeout(shown_now, PATIENCE).expect("what is shown").0;
        }
        String::from_utf8_lossy(&shown_now.bytes).into_owned()
    }

    /// Returns `true` if the terminal echoes input.
    pub(crate) fn is_loud(&self) -> bool {
        let modes = rustix::termios::tcgetattr(&self.keys).expect("a terminal").local_modes;
        modes.contains(rustix::termios::LocalModes::ECHO)
    }

    /// Waits for the exit and returns the raw output since the last call.
    pub(crate) fn end_shown(self) -> (String, Run) {
        let Self { running, keys, shown: screen, seen } = self;
        let run = running.end();
        let shown = screen.0.lock().expect("what is shown");
        let is_over = |shown: &mut Shown| !shown.is_over;
        let (shown, waited) = screen.1.wait_timeout_while(shown, PATIENCE, is_over).expect("what is shown");
        assert!(!waited.timed_out(), "the terminal is still open");
        drop(keys);
        (String::from_utf8_lossy(&shown.bytes[seen..]).into_owned(), run)
    }

    /// Waits for the exit and checks that no child process is left.
    pub(crate) fn end(self) -> Run {
        self.running.end()
    }
}

#[test]
fn a_chat_ends_with_ctrl_d() {
    let model = Model::saying([ScriptedReply::text("Hello!"), ScriptedReply::text("Again.")]);
    let mut window = Window::open(model.chat(&[]));
    let header = window.see("/help for commands");
    assert!(header.contains("built-in demo server") && header.contains("parrot · "), "{header}");
    window.say("hi there");
    window.see("Hello!");
    window.see("10 input tokens, 5 output tokens · ");
    window.say("/tools");
    window.see("calculate(expression: string)");
    window.say("/servers");
    window.see("● demo · 6 tools");
    window.say("/tolos");
    window.see("did you mean `/tools`?");
    // The arrow key recalls the history.
    window.say("\u{1b}[A\u{1b}[A\u{1b}[A\u{1b}[A");
    window.see("Again.");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
    let said: Vec<_> = model.server.bodies()[1]["messages"].as_array().expect("messages").clone();
    assert_eq!(said.last().expect("a message")["content"], "hi there");
    let history = model.temp_home.path().join(".local/state/ropeway/chat-history");
    assert!(std::fs::read_to_string(history).expect("a file").contains("hi there\n/tools\n"));
}

#[test]
fn a_paste_of_several_lines_is_one_message() {
    let model = Model::saying([ScriptedReply::text("Read.")]);
    let mut window = Window::open(model.chat(&["--no-tools"]));
    window.say("\u{1b}[200~one\rtwo\u{1b}[201~");
    window.see("Read.");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
    assert_eq!(model.server.bodies()[0]["messages"][0]["content"], "one\ntwo");
}

#[test]
fn calls_need_approval() {
    let call = |id: &str, words: &str| ScriptedReply::call(id, "fail", json!({"message": words}));
    let model = Model::saying([
        call("a", "first"),
        call("b", "second"),
        call("c", "third"),
        call("d", "fourth"),
        ScriptedReply::text("Done."),
    ]);
    let mut window = Window::open(model.chat(&["--ask", "demo.fail"]));
    window.say("go");
    let question = window.see("Allow? y/n/a/q (? for help) ");
    // The arguments are shown once.
    assert_eq!(question.matches("first").count(), 1, "{question}");
    window.press("?");
    let help = window.see(ASKED);
    assert!(help.contains("y  allow this call") && !help.contains("keep allowed"), "{help}");
    // The last letter of the word is an answer, but the word is not.
    window.press("wha");
    window.see("y  allow this call");
    window.see(ASKED);
    window.press("y");
    window.see("✗");
    window.see("first");
    window.see("● demo.fail(message: \"second\")");
    window.see(ASKED);
    window.press("n");
    window.see("Reason (optional): ");
    window.press("not now\r");
    window.see("rejected by the user: not now");
    window.see("● demo.fail(message: \"third\")");
    window.see(ASKED);
    window.press("a");
    let rest = window.see("Done.");
    assert!(rest.contains("fourth") && !rest.contains("Allow?"), "{rest}");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
    let results = model.server.bodies()[4]["messages"].to_string();
    assert!(results.contains("first") && results.contains("rejected by the user: not now"), "{results}");
}

/// Denies a call without a reason.
fn deny(window: &mut Window) {
    window.press("n");
    window.see("Reason (optional): ");
    window.press("\r");
}

/// A tool, which a server may change.
fn note() -> Value {
    json!({"name": "note", "description": "Writes a note", "annotations": {"readOnlyHint": true},
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}})
}

fn shell() -> Value {
    json!({"name": "note", "description": "Runs a command", "annotations": {"readOnlyHint": false},
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}, "shell": {"type": "string"}},
            "required": ["text", "shell"]}})
}

/// Opens a chat with the server `files`, which has the tool `note`.
fn noting(sayings: impl IntoIterator<Item = ScriptedReply>) -> Model {
    let model = Model::saying(sayings);
    let script = Script::default().tool(note(), json!({"content": [{"type": "text", "text": "noted"}]}));
    model.temp_home.configure(&[entry("files", &script)]);
    model
}

fn write_note(id: &str) -> ScriptedReply {
    ScriptedReply::call(id, "mcp_files_note", json!({"text": id, "shell": "sh"}))
}

fn change_note(id: &str) -> ScriptedReply {
    ScriptedReply::call(id, "mcp_files_grow", json!({"name": "note", "definition": shell()}))
}

/// Waits for the question about a changed tool. A call that is made before the change is known is refused, and the model tries
/// again.
fn changed_question(window: &mut Window) -> String {
    loop {
        window.see("changed ");
        if window.see(" it was ").contains("since") {
            return window.see(ASKED);
        }
    }
}

#[test]
fn an_always_allowed_tool_needs_approval_again_when_it_changes() {
    let sayings = [write_note("a"), write_note("b"), change_note("c")].into_iter();
    let model = noting(sayings.chain(["d", "e", "f", "g"].map(write_note)));
    let mut window = Window::open(model.chat(&["--allow", "files.grow"]));
    window.say("go");
    // The read-only hint of the server is not trusted.
    window.see("● files.note");
    window.see("Allow? y/n/a/k/r/q (? for help) ");
    window.press("a");
    let between = window.see("files.grow");
    assert!(!between.contains("Allow?"), "{between}");
    let changes = changed_question(&mut window);
    for change in
        ["- description changed", "- required argument `shell` added", "- hint `readOnlyHint` changed to false"]
    {
        assert!(changes.contains(change), "{changes}");
    }
    assert!(changes.contains("y/n/a/k/q"), "{changes}");
    window.press("q");
    window.see("cancelled · ");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
}

#[test]
fn approvals_survive_a_switch_of_the_model() {
    let sayings =
        [write_note("a"), ScriptedReply::text("One."), write_note("b"), change_note("c"), ScriptedReply::text("Two.")];
    let model = noting(sayings.into_iter().chain(["d", "e", "f", "g"].map(write_note)));
    let mut window = Window::open(model.chat(&["--allow", "files.grow"]));
    window.say("go");
    window.see(ASKED);
    window.press("a");
    window.see("One.");
    window.say("/model other --force");
    window.see("switched to other");
    window.say("go");
    let second = window.see("Two.");
    assert!(!second.contains("Allow?"), "{second}");
    window.say("/model third --force");
    window.see("switched to third");
    window.say("go");
    changed_question(&mut window);
    window.press("q");
    window.see("cancelled · ");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
}

#[test]
fn read_only_tools_are_allowed_at_once_until_one_changes() {
    let echo = |id: &str| ScriptedReply::call(id, "mcp_files_echo", json!({"message": id}));
    let sayings = [write_note("a"), echo("b"), write_note("c"), change_note("d")].into_iter();
    let model = noting(sayings.chain(["e", "f", "g", "h"].map(write_note)));
    let mut window = Window::open(model.chat(&["--allow", "files.grow"]));
    window.say("go");
    window.see("/r/q (? for help) ");
    window.press("r");
    let between = window.see("files.grow");
    assert!(!between.contains("Allow?"), "{between}");
    changed_question(&mut window);
    window.press("q");
    window.see("cancelled · ");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
}

#[test]
fn kept_approvals_apply_to_later_chats_and_create_no_lock() {
    let model = noting([write_note("a"), ScriptedReply::text("One."), write_note("b"), ScriptedReply::text("Two.")]);
    let mut window = Window::open(model.chat(&[]));
    window.say("go");
    window.see(ASKED);
    window.press("k");
    window.see("kept in ");
    window.see("One.");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
    assert!(!model.temp_home.path().join("ropeway.lock").exists());
    let folder = model.temp_home.path().join(".local/state/ropeway/approvals");
    let files = std::fs::read_dir(&folder).expect("a folder").flatten().map(|file| file.path());
    let files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    assert!(std::fs::read_to_string(&files[0]).expect("a file").contains("\"always\": \"sha256:"));
    let mut window = Window::open(model.chat(&[]));
    window.say("go");
    let second = window.see("Two.");
    assert!(!second.contains("Allow?") && second.contains("noted"), "{second}");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
}

/// Records in a state directory that the content of a file was written on this machine.
fn trust(state: &Path, file: &Path) {
    let content = std::fs::read(file).expect("a file");
    let digest = ring::digest::digest(&ring::digest::SHA256, &content);
    let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let record = json!({"path": file.canonicalize().expect("a path"), "sha256": digest,
        "owner": std::fs::metadata(file).expect("a file").uid(), "accepted": "2026-01-01T00:00:00Z"});
    let store = state.join("trust.json");
    std::fs::write(&store, json!({"version": 1, "files": [record]}).to_string()).expect("a store");
    std::fs::set_permissions(store, std::fs::Permissions::from_mode(0o600)).expect("permissions");
}

#[test]
fn approvals_in_a_lock_count_only_on_the_machine_that_gave_them() {
    let model = noting([
        write_note("a"),
        ScriptedReply::text("One."),
        write_note("b"),
        ScriptedReply::text("Two."),
        write_note("c"),
        ScriptedReply::text("Three."),
    ]);
    let leave = |mut window: Window| {
        window.see(PROMPT);
        window.press(CTRL_D);
        window.end().expect(0);
    };
    let mut window = Window::open(model.chat(&[]));
    window.say("go");
    window.see(ASKED);
    window.press("k");
    window.see("One.");
    leave(window);
    // Earlier versions kept approvals in the lock of the project, and trusted its content.
    let state = model.temp_home.path().join(".local/state/ropeway");
    let mut kept = std::fs::read_dir(state.join("approvals")).expect("a folder").flatten().map(|file| file.path());
    let kept = kept.find(|path| path.extension().is_some_and(|end| end == "json")).expect("a file");
    let lock = model.temp_home.path().join("ropeway.lock");
    std::fs::rename(kept, &lock).expect("moved");
    trust(&state, &lock);
    let mut window = Window::open(model.chat(&[]));
    window.say("go");
    let second = window.see("Two.");
    assert!(!second.contains("Allow?") && second.contains("noted"), "{second}");
    leave(window);
    // A lock file from another machine allows nothing.
    let forged = std::fs::read_to_string(&lock).expect("a lock") + "\n";
    std::fs::write(&lock, forged).expect("a lock");
    let mut window = Window::open(model.chat(&[]));
    window.see("ignoring approvals in ropeway.lock that were not given on this machine");
    window.say("go");
    window.see(ASKED);
    deny(&mut window);
    window.see("Three.");
    leave(window);
}

#[test]
fn a_tool_that_changes_during_the_question_is_not_called() {
    let change = json!({"name": "note", "definition": shell()});
    let both = write_note("a").and_call("b", "mcp_files_grow", change);
    let model = noting([both, ScriptedReply::text("Done.")]);
    let mut window = Window::open(model.chat(&["--allow", "files.grow"]));
    window.say("go");
    // The other call changes the tool while the question is open.
    window.see(ASKED);
    std::thread::sleep(std::time::Duration::from_secs(1));
    window.press("y");
    // The tool needs approval again, or is refused if the change is seen only at the call.
    window.see("changed ");
    if window.see(" it was ").contains("since") {
        window.see(ASKED);
        deny(&mut window);
    }
    let rest = window.see("Done.");
    assert!(!rest.contains("noted") && !rest.contains("grown"), "{rest}");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
}

#[test]
fn long_arguments_are_shown_completely_on_request() {
    let message = format!("{}the midst{}", "x".repeat(4000), "y".repeat(4000));
    let model =
        Model::saying([ScriptedReply::call("a", "fail", json!({"message": message})), ScriptedReply::text("Done.")]);
    let mut window = Window::open(model.chat(&["--ask", "demo.fail"]));
    window.say("go");
    let asked = window.see("Allow? y/n/a/s/q (? for help) ");
    assert!(asked.contains("characters hidden") && !asked.contains("midst"), "{asked}");
    window.press("s");
    window.see("midst");
    window.see(ASKED);
    deny(&mut window);
    window.see("Done.");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
}

#[test]
fn input_typed_before_a_question_does_not_answer_it() {
    let call = |id: &str| ScriptedReply::call(id, "fail", json!({"message": id}));
    let model = Model::saying([call("first"), call("second"), ScriptedReply::text("Done.")]);
    let mut window = Window::open(model.chat(&["--ask", "demo.fail"]));
    window.see(PROMPT);
    // All input arrives before the first question, and the rest before the next one.
    window.press("go\ry\ry\ry\r");
    window.see("● demo.fail(message: \"first\")");
    window.see(ASKED);
    window.press("n");
    window.see("Reason (optional): ");
    window.press("no\ry\ry\r");
    window.see("rejected by the user: no");
    window.see("● demo.fail(message: \"second\")");
    window.see(ASKED);
    deny(&mut window);
    window.see("Done.");
    let results = model.server.bodies()[2]["messages"].to_string();
    assert_eq!(results.matches("rejected by the user").count(), 2, "{results}");
    window.signal(Signal::TERM);
    window.end().expect(143);
}

#[test]
fn quitting_a_turn_returns_to_the_prompt() {
    let call = || ScriptedReply::call("a", "fail", json!({}));
    let model = Model::saying([call(), call(), ScriptedReply::text("Fine.")]);
    let mut window = Window::open(model.chat(&["--ask", "*"]));
    for keys in ["q", CTRL_C] {
        window.say("go");
        window.see(ASKED);
        window.press(keys);
        window.see("cancelled · ");
    }
    window.say("something else");
    window.see("Fine.");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
}

#[test]
fn ctrl_c_cancels_a_call_and_the_next_message_is_answered() {
    let call = ScriptedReply::call("a", "countdown", json!({"seconds": 60}));
    let model = Model::saying([call, ScriptedReply::text("Still here.")]);
    let mut window = Window::open(model.chat(&[]));
    window.say("count");
    window.see("● demo.countdown(seconds: 60)");
    window.interrupt();
    window.see("✗");
    window.see("cancelled · ");
    window.say("are you there?");
    window.see("Still here.");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
    let said = model.server.bodies()[1]["messages"].clone();
    assert_eq!(said.as_array().map(Vec::len), Some(4), "{said}");
}

#[test]
fn ctrl_c_cancels_an_answer_and_keeps_its_start() {
    let events = ScriptedReply::text("It was a dark night").events(Dialect::Chat);
    let half = events.find("night").and_then(|at| events[..at].rfind("data:")).expect("a word");
    let model = Model::answering([
        ModelAnswer::events(&events[..half]).stall(),
        ScriptedReply::text("Ok.").answer(Dialect::Chat),
    ]);
    let mut window = Window::open(model.chat(&["--no-tools"]));
    window.say("tell");
    window.see("It was a dark ");
    window.interrupt();
    window.see("cancelled · ");
    window.say("go on");
    window.see("Ok.");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
    let said = model.server.bodies()[1]["messages"].clone();
    assert_eq!(said[1], json!({"role": "assistant", "content": "It was a dark "}));
}

#[test]
fn input_typed_during_an_answer_appears_at_the_next_prompt() {
    let events = ScriptedReply::text("It was a dark night").events(Dialect::Chat);
    let half = events.find("night").and_then(|at| events[..at].rfind("data:")).expect("a word");
    let model = Model::answering([ModelAnswer::events(&events[..half]).stall()]);
    let mut window = Window::open(model.chat(&["--no-tools"]));
    window.say("tell");
    window.see("It was a dark ");
    window.press("typed ahead");
    window.interrupt();
    let meanwhile = window.see("cancelled · ");
    assert!(!meanwhile.contains("ahead"), "{meanwhile}");
    window.see("typed ahead");
    // The terminal echoes input again.
    window.signal(Signal::TERM);
    window.see("\u{1b}[?2004l");
    assert!(window.is_loud());
    window.end().expect(143);
}

#[test]
fn a_signal_during_a_turn_restores_the_terminal() {
    let model = Model::answering([ModelAnswer::silence()]);
    let mut window = Window::open(model.chat(&["--no-tools"]));
    assert!(window.is_loud());
    window.say("hi");
    // The echo of the typed line ends here.
    window.see("\u{1b}[?2004l");
    model.asked(1);
    assert!(!window.is_loud());
    window.signal(Signal::TERM);
    window.see("\u{1b}[?2004l");
    assert!(window.is_loud());
    window.end().expect(143);
}

#[test]
fn ctrl_c_clears_a_line_and_twice_at_an_empty_prompt_leaves() {
    let model = Model::saying([]);
    let mut window = Window::open(model.chat(&["--no-tools"]));
    window.see(PROMPT);
    window.press("half a");
    window.see("half a");
    window.press(CTRL_C);
    window.see(PROMPT);
    window.press(CTRL_C);
    window.see("press Ctrl-C again or Ctrl-D to leave");
    // Typing something else resets the count.
    window.say("/expand");
    window.see("no tool calls yet");
    window.see(PROMPT);
    window.press(CTRL_C);
    window.see("press Ctrl-C again or Ctrl-D to leave");
    window.see(PROMPT);
    window.press(CTRL_C);
    window.end().expect(130);
    assert_eq!(model.server.requests().len(), 0);
}

#[test]
fn repeated_ctrl_c_leaves_the_chat() {
    let model = Model::answering([ModelAnswer::silence()]);
    let mut window = Window::open(model.chat(&[]));
    window.say("hi");
    model.asked(1);
    window.interrupt();
    window.see(PROMPT);
    window.press(CTRL_C);
    window.see(PROMPT);
    window.press(CTRL_C);
    window.end().expect(130);
}

#[test]
fn a_failed_request_is_reported_and_can_be_retried() {
    let failed = ModelAnswer::json(400, &json!({"error": {"message": "not today"}}));
    let model = Model::answering([failed, ScriptedReply::text("Now.").answer(Dialect::Chat)]);
    let mut window = Window::open(model.chat(&["--no-tools"]));
    window.say("hi");
    window.see("error: request to model `parrot` failed");
    window.see("not today");
    window.say("/model cockatoo --force");
    window.say("/retry");
    window.see("Now.");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
    let bodies = model.server.bodies();
    assert_eq!(bodies[1]["messages"], bodies[0]["messages"]);
    assert_eq!((&bodies[0]["model"], &bodies[1]["model"]), (&json!("parrot"), &json!("cockatoo")));
}

#[test]
fn a_rejected_message_is_not_sent_again_with_the_next_one() {
    let rejected = || ModelAnswer::json(400, &json!({"error": {"message": "not that"}}));
    let says = |text: &str| ScriptedReply::text(text).answer(Dialect::Chat);
    let model = Model::answering([says("Hello."), rejected(), says("Fine."), rejected()]);
    let mut window = Window::open(model.chat(&["--no-tools"]));
    window.say("hi");
    window.see("Hello.");
    window.say("boom");
    window.see("the message was removed from the conversation; `/retry` sends it again");
    window.say("/undo");
    window.see("already removed");
    window.say("something else");
    window.see("Fine.");
    // The arrow key recalls the rejected message.
    window.say("\u{1b}[A\u{1b}[A\u{1b}[A");
    window.see("`/retry` sends it again");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
    let texts = |at: usize| {
        let messages = model.server.bodies()[at]["messages"].as_array().expect("messages").clone();
        messages.iter().filter_map(|it| it["content"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(texts(2), ["hi", "Hello.", "something else"]);
    assert_eq!(texts(3).last().map(String::as_str), Some("boom"));
    let saved = model.temp_home.path().join(".local/state/ropeway/conversations");
    let files = std::fs::read_dir(saved).expect("a folder").flatten().map(|file| file.path());
    let text: String = files.filter_map(|path| std::fs::read_to_string(path).ok()).collect();
    assert!(text.contains("something else") && !text.contains("boom"), "{text}");
}

#[test]
fn a_message_that_failed_for_now_can_be_sent_again_or_removed() {
    let busy = || ModelAnswer::json(500, &json!({"error": {"message": "overloaded"}}));
    // A request is tried three times.
    let mut answers = vec![ScriptedReply::text("Hello.").answer(Dialect::Chat)];
    answers.extend((0..6).map(|_| busy()));
    answers.push(ScriptedReply::text("Now.").answer(Dialect::Chat));
    let model = Model::answering(answers);
    let mut window = Window::open(model.chat(&["--no-tools"]));
    window.say("hi");
    window.see("Hello.");
    for _ in 0..2 {
        window.say("boom");
        window.see("`/retry` sends the message again; `/undo` removes it");
        window.say("/undo");
        window.see("removed: boom");
    }
    window.say("fine");
    window.see("Now.");
    window.say("/undo");
    window.see("removed: fine");
    window.say("/undo");
    window.see("removed: hi");
    window.say("/undo");
    window.see("no message to undo");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
    let bodies = model.server.bodies();
    let last = bodies.last().expect("a request")["messages"].to_string();
    assert!(last.contains("fine") && !last.contains("boom"), "{last}");
    let saved = model.temp_home.path().join(".local/state/ropeway/conversations");
    let files = std::fs::read_dir(saved).expect("a folder").flatten().map(|file| file.path());
    assert_eq!(files.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).count(), 0, "nothing is left");
}

#[test]
fn a_turn_that_fails_after_a_call_can_be_removed() {
    let rejected = ModelAnswer::json(400, &json!({"error": {"message": "not that"}}));
    let call = ScriptedReply::call("a", "calculate", json!({"expression": "1+1"})).answer(Dialect::Chat);
    let model = Model::answering([call, rejected, ScriptedReply::text("Fine.").answer(Dialect::Chat)]);
    let mut window = Window::open(model.chat(&[]));
    window.say("boom");
    window.see("`/undo` removes its message and all that followed");
    window.say("/undo");
    window.see("removed: boom");
    window.say("something else");
    window.see("Fine.");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
    assert_eq!(model.server.bodies()[2]["messages"].as_array().map(Vec::len), Some(1));
}

#[test]
fn an_invalid_call_is_refused_without_a_question() {
    let call = ScriptedReply::call("a", "countdown", json!({"seconds": "many"}));
    let model = Model::saying([call, ScriptedReply::text("Done.")]);
    let mut window = Window::open(model.chat(&["--ask", "*"]));
    window.say("go");
    let shown = window.see("Done.");
    assert!(shown.contains("invalid arguments") && !shown.contains("Allow?"), "{shown}");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
}

#[test]
fn a_file_that_is_written_is_shown_as_a_difference_in_80_columns() {
    let content =
        "one\ntwo\nthree \u{1b}[2J words that are long enough to be wrapped at the end of a line of a window\n";
    let tool = json!({"name": "write_file", "inputSchema": {"type": "object",
        "properties": {"path": {"type": "string"}, "content": {"type": "string"}}}});
    let script = Script::default().tool(tool, json!({"content": [{"type": "text", "text": "written"}]}));
    let call = |id: &str, path: &str| {
        ScriptedReply::call(id, "mcp_files_write_file", json!({"path": path, "content": content}))
    };
    let model = Model::saying([call("a", "notes.txt"), call("b", "new.txt"), ScriptedReply::text("Done.")]);
    model.temp_home.configure(&[entry("files", &script)]);
    model.temp_home.write("notes.txt", "one\n2\nthree\n");
    let mut window = Window::sized(model.chat(&[]), 80, |command| {
        command.env("NO_COLOR", "1");
    });
    window.say("go");
    let question = window.see("Allow? y/n/a/k/s/q (? for help) ").replace('\r', "");
    let shown = "  path: \"notes.txt\"\n  content (replaces 3 lines):\n    │   one\n    │ - 2\n    │ - three\n    │ + two\n    \
        │ + three \\u001b[2J words that are long enough to be wrapped at the end of a\n    │ line of a window\nAllow?";
    assert!(question.contains(shown), "{question}");
    window.press("s");
    window.see("    │ two\r\n");
    window.see(ASKED);
    deny(&mut window);
    let second = window.see("Allow? y/n/a/k/q (? for help) ");
    // A status line is overwritten.
    let lines: Vec<&str> = second.lines().filter_map(|line| line.rsplit('\r').next()).collect();
    let second = lines.join("\n");
    assert!(second.contains("  content:\n    │ one\n    │ two\n"), "{second}");
    assert!(second.lines().all(|line| line.chars().count() <= 80), "{second}");
    window.press("q");
    window.see("cancelled · ");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
}

#[test]
fn a_prompt_of_a_server_is_sent_to_the_model() {
    let model = Model::saying([ScriptedReply::text("Reviewed.")]);
    model.temp_home.configure(&[entry("scripted", &Script::legacy())]);
    let mut window = Window::open(model.chat(&[]));
    window.say("/prompt scripted.greet name=Ada");
    window.see("Reviewed.");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
    let said = model.server.bodies()[0]["messages"].to_string();
    assert!(said.contains("Ada"), "{said}");
}

#[test]
fn an_elicitation_is_answered_field_by_field() {
    let ask = |id: &str, mode: &str| ScriptedReply::call(id, "mcp_scripted_elicit", json!({"mode": mode}));
    let model = Model::saying([ask("a", "form"), ask("b", "url"), ask("c", "form"), ScriptedReply::text("Thanks.")]);
    model.temp_home.configure(&[entry("scripted", &Script::legacy())]);
    let mut window = Window::open(model.chat(&["--yes"]));
    window.say("ask me");
    window.see("scripted asks:");
    window.see("What is your name?");
    window.see("name (default: nobody): ");
    window.press("Ada\r");
    window.see("Submit? [y]es / [n]o: ");
    window.press("y\r");
    window.see("https://example.com/form");
    window.see("Host: ");
    window.see("[n]o: ");
    window.press("n\r");
    window.see("name (default: nobody): ");
    window.press(CTRL_C);
    window.see("Thanks.");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
    let bodies = model.server.bodies();
    let results: Vec<String> = bodies[3]["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| message["content"].to_string())
        .collect();
    let words = ["accept", "decline", "decline"];
    assert_eq!(results.len(), 3, "{results:?}");
    assert!(results.iter().zip(words).all(|(result, word)| result.contains(word)), "{results:?}");
    assert!(results[0].contains("Ada"), "{results:?}");
}

#[test]
fn three_times_ctrl_c_leaves_a_server_that_keeps_asking() {
    for script in [Script::legacy(), Script::modern()] {
        for (mode, prompt) in [("form", "name (default: nobody): "), ("url", "continue? [y]es / [n]o: ")] {
            let ask = ScriptedReply::call("a", "mcp_scripted_elicit", json!({"mode": mode, "rounds": 1000}));
            let model = Model::saying([ask]);
            model.temp_home.configure(&[entry("scripted", &script)]);
            let mut window = Window::open(model.chat(&["--yes"]));
            window.say("ask me");
            window.see(prompt);
            window.press(CTRL_C);
            window.see("press Ctrl-C again to end the turn");
            window.see(prompt);
            window.press(CTRL_C);
            window.see("cancelled · ");
            window.see(PROMPT);
            window.press(CTRL_C);
            window.end().expect(130);
        }
    }
}

#[test]
fn a_server_may_ask_ten_questions_in_one_call() {
    let ask = ScriptedReply::call("a", "mcp_scripted_elicit", json!({"mode": "url", "rounds": 1000}));
    let model = Model::saying([ask, ScriptedReply::text("Enough.")]);
    model.temp_home.configure(&[entry("scripted", &Script::legacy())]);
    let mut window = Window::open(model.chat(&["--yes"]));
    window.say("ask me");
    for _ in 0..10 {
        window.see("continue? [y]es / [n]o: ");
        window.press("n\r");
    }
    let rest = window.see("Enough.");
    assert!(rest.contains("it asked the user more than 10 questions") && !rest.contains("Have you"), "{rest}");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
    let told = model.server.bodies()[1]["messages"].to_string();
    assert!(told.contains("it asked the user more than 10 questions"), "{told}");
}

#[test]
fn ctrl_c_at_an_approval_ends_the_turn_and_twice_more_the_chat() {
    let model = Model::saying([ScriptedReply::call("a", "fail", json!({}))]);
    let mut window = Window::open(model.chat(&["--ask", "*"]));
    window.say("go");
    window.see(ASKED);
    window.press(CTRL_C);
    window.see("cancelled · ");
    window.see(PROMPT);
    window.press(CTRL_C);
    window.see("press Ctrl-C again or Ctrl-D to leave");
    window.see(PROMPT);
    window.press(CTRL_C);
    window.end().expect(130);
}

#[test]
fn ctrl_c_ends_a_command_that_waits_for_a_server() {
    let model = Model::saying([]);
    let hangs = Script::legacy().fault(FaultTrigger::method("prompts/get"), Fault::Hang);
    model.temp_home.configure(&[entry("scripted", &hangs)]);
    let mut window = Window::open(model.chat(&[]));
    window.say("/prompt scripted.greet name=Ada");
    window.see("\u{1b}[?2004l");
    let began = Instant::now();
    // The first signal may arrive before the command starts.
    loop {
        window.interrupt();
        std::thread::sleep(std::time::Duration::from_millis(200));
        let shown = window.shown.0.lock().expect("what is shown");
        if String::from_utf8_lossy(&shown.bytes[window.seen..]).contains("cancelled") {
            break;
        }
        assert!(began.elapsed() < PATIENCE);
    }
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
}

#[test]
fn tab_completes_a_command() {
    let model = Model::saying([]);
    model.temp_home.write("talk-of-yesterday.json", "{\"messages\": []}");
    let mut window = Window::open(model.chat(&["--no-tools"]));
    window.see(PROMPT);
    window.press("/lo\ttalk\t\r");
    window.see("loaded 0 messages from talk-of-yesterday.json");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
}

#[test]
fn tab_completes_files_and_tools_in_a_message() {
    let model = Model::saying([ScriptedReply::text("Seen.")]);
    model.temp_home.write("talk-of-yesterday.txt", "words of yesterday");
    let mut window = Window::open(model.chat(&[]));
    window.see(PROMPT);
    window.press("read @talk\t with calcu\t\r");
    window.see("Seen.");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
    let sent = model.server.bodies()[0]["messages"].to_string();
    assert!(sent.contains("words of yesterday"), "{sent}");
    assert!(sent.contains("read @talk-of-yesterday.txt with demo.calculate"), "{sent}");
}

#[test]
fn a_chat_with_many_tools_says_how_the_model_finds_them() {
    let tool = |number: usize| json!({"name": format!("tool_{number}"), "inputSchema": {"type": "object"}});
    let script = (0..120).fold(Script::default(), |script, number| script.tool(tool(number), json!({"content": []})));
    let call = ScriptedReply::call("a", "tool_77", json!({}));
    let model = Model::saying([call, ScriptedReply::text("Done.")]);
    model.temp_home.configure(&[entry("files", &script)]);
    let mut window = Window::open(model.chat(&[]));
    window.see(" tools · /help for commands");
    window.see("too many tools to send all; the model finds them with `find_tools`");
    window.say("go");
    window.see("Done.");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
    let told = model.server.bodies()[1]["messages"].to_string();
    assert!(told.contains("Did you mean") && told.contains("`mcp_files_tool_77`"), "{told}");
    assert!(told.contains("Call `call_tool` with"), "{told}");
}

#[test]
fn a_signal_at_the_prompt_restores_the_terminal() {
    let model = Model::saying([]);
    let mut window = Window::open(model.chat(&[]));
    window.see(PROMPT);
    window.signal(Signal::TERM);
    window.see("\u{1b}[?2004l");
    window.end().expect(143);
}

#[test]
fn a_timeout_is_reported_at_every_stage_of_a_chat() {
    let model = Model::saying([ScriptedReply::call("a", "fail", json!({}))]);
    let mut window = Window::open(model.chat(&["--timeout", "2s"]));
    window.see(PROMPT);
    let told = window.see("error: the chat timed out after 2 s");
    assert!(!told.contains("did not respond") && told.matches("timed out").count() == 1, "{told}");
    window.end().expect(5);
    let mut window = Window::open(model.chat(&["--timeout", "3s", "--ask", "*"]));
    window.say("go");
    window.see(ASKED);
    window.see("error: the chat timed out after 3 s");
    window.end().expect(5);
}

#[test]
fn a_conversation_is_saved_below_home_and_loaded_again() {
    let model = Model::saying([ScriptedReply::text("Hello!"), ScriptedReply::text("Again.")]);
    let mut window = Window::open(model.chat(&["--no-tools"]));
    window.say("hi");
    window.see("Hello!");
    window.say("/save ~/talk.json");
    window.see("saved to ");
    window.say("/save /dev/null");
    window.see("`/dev/null` is not a regular file");
    window.say("/clear");
    window.say("/load ~/talk.json");
    window.see("loaded 2 messages from ");
    window.say("more");
    window.see("Again.");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
    assert!(model.temp_home.path().join("talk.json").is_file() && !model.temp_home.path().join("~").exists());
    let said = model.server.bodies()[1]["messages"].clone();
    let texts: Vec<&str> = said.as_array().expect("messages").iter().filter_map(|it| it["content"].as_str()).collect();
    assert_eq!(texts, ["hi", "Hello!", "more"]);
}

#[test]
fn a_chat_with_redirected_output_explains_its_input() {
    let model = Model::saying([ScriptedReply::text("Hello!")]);
    let mut window = Window::with(model.chat(&["--no-tools"]), |command| {
        command.stdout(std::process::Stdio::piped());
    });
    window.see("each line is a message; calls that need approval are denied");
    window.press("hi\r");
    model.asked(1);
    window.press(CTRL_D);
    assert_eq!(window.end().expect(0).stdout, "Hello!\n");
}
