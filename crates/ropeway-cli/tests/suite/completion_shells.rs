//! Completion in bash, zsh and fish, also with broken configurations.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ropeway_testing::Script;
use serde_json::{Value, json};

use crate::Run;
use crate::process_marker::ProcessMarker;
use crate::temp_home::{TRUST, TempHome, entry};
use crate::terminal::Terminal;

/// Time limit of a shell on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The variable of the completion timeout, which is raised for loaded machines.
const TIMEOUT: (&str, &str) = ("ROPEWAY_COMPLETION_TIMEOUT", "60s");

/// A tool whose name and choices contain special characters of every shell.
const ODD: &str = "odd name's:$(x);y";

fn demo() -> Value {
    json!({"alias": "demo", "command": env!("CARGO_BIN_EXE_ropeway"), "args": ["demo-server"]})
}

fn odd() -> Value {
    let schema = json!({"type": "object", "properties": {"kind of": {"enum": ["a b", "$HOME"]}}});
    let answer = json!({"content": [{"type": "text", "text": "odd-answer\n"}]});
    entry("odd", &Script::default().tool(json!({"name": ODD, "inputSchema": schema}), answer))
}

/// Returns a directory with two cached servers and one that hangs.
fn temp_home() -> TempHome {
    let temp_home = TempHome::with(&[demo(), odd()]);
    temp_home.run("tools").expect(0);
    let hangs = json!({"alias": "hangs", "command": "sleep", "args": ["1000"]});
    temp_home.configure(&[demo(), odd(), hangs]);
    let bin = temp_home.path().join("bin");
    std::fs::create_dir(&bin).expect("a folder");
    symlink(env!("CARGO_BIN_EXE_ropeway"), bin.join("ropeway")).expect("a link");
    temp_home
}

/// Returns the completions of the last word.
fn offered(temp_home: &TempHome, words: &[&str]) -> Vec<String> {
    let ropeway = temp_home.ropeway(&[&["complete", "zsh", "ropeway"], words].concat()).with(|command| {
        command.env(TIMEOUT.0, TIMEOUT.1);
    });
    let run = ropeway.run().expect(0);
    assert_eq!(run.stderr, "", "{words:?}");
    run.stdout.lines().filter_map(|line| line.split('\t').next().map(str::to_owned)).collect()
}

#[test]
fn servers_tools_arguments_and_choices_are_offered_while_a_server_hangs() {
    let temp_home = temp_home();
    assert_eq!(offered(&temp_home, &["call", ""]), ["demo.", "odd.", "hangs."]);
    assert_eq!(offered(&temp_home, &["tools", "d"]), ["demo"]);
    assert_eq!(offered(&temp_home, &["call", "demo.c"]), ["demo.calculate", "demo.chart", "demo.countdown"]);
    assert_eq!(offered(&temp_home, &["call", "calc"]), ["calculate"]);
    assert_eq!(offered(&temp_home, &["call", "hangs."]), [""; 0]);
    assert_eq!(offered(&temp_home, &["call", "odd.odd"]), [format!("odd.{ODD}")]);
    assert_eq!(offered(&temp_home, &["call", "demo.chart", ""]), ["values=", "title=", "kind="]);
    assert_eq!(offered(&temp_home, &["call", "demo.chart", "values=1", "--kind=bar", "ti"]), ["title="]);
    assert_eq!(offered(&temp_home, &["call", "demo.chart", "kind="]), ["kind=bar", "kind=line"]);
    assert_eq!(offered(&temp_home, &["call", "demo.chart", "--kind=b"]), ["--kind=bar"]);
    assert_eq!(offered(&temp_home, &["call", "demo.chart", "--ti"]), ["--timeout", "--title="]);
}

#[test]
fn tools_are_offered_without_their_server_even_if_two_have_them() {
    let temp_home = TempHome::with(&["a", "b"].map(|alias| entry(alias, &Script::default())));
    temp_home.run("tools").expect(0);
    assert_eq!(offered(&temp_home, &["call", "ec"]), ["echo"]);
    assert_eq!(offered(&temp_home, &["tools", "ec"]), ["echo"]);
    assert_eq!(offered(&temp_home, &["tools", "a.ec"]), ["a.echo"]);
    assert_eq!(offered(&temp_home, &["tools", ""]), ["a", "b"]);
}

#[test]
fn prompts_and_resources_are_offered_once_they_were_listed() {
    let temp_home = TempHome::with(&[demo(), entry("files", &Script::default())]);
    assert_eq!(offered(&temp_home, &["prompt", ""]), ["demo.", "files."]);
    assert_eq!(offered(&temp_home, &["read", ""]), ["demo", "files"]);
    temp_home.run("prompts").expect(0);
    temp_home.run("resources").expect(0);
    let prompts = offered(&temp_home, &["prompt", ""]);
    assert!(prompts.contains(&"files.greet".to_owned()), "{prompts:?}");
    assert!(prompts.iter().all(|prompt| prompt.starts_with("files.")), "{prompts:?}");
    assert_eq!(offered(&temp_home, &["prompt", "files.gr"]), ["files.greet"]);
    let uris = ["test://hello", "test://picture", "test://counter"];
    assert_eq!(offered(&temp_home, &["read", ""])[..], [&["files"][..], &uris].concat());
    assert_eq!(offered(&temp_home, &["read", "files", ""]), uris);
    assert_eq!(offered(&temp_home, &["read", "demo", ""]), [""; 0]);
    assert_eq!(offered(&temp_home, &["read", "test://h"]), ["test://hello"]);
}

#[test]
fn only_servers_that_can_ask_for_it_are_offered_for_a_login() {
    let temp_home = TempHome::with(&[demo(), json!({"alias": "web", "url": "https://example.com/mcp"})]);
    assert_eq!(offered(&temp_home, &["login", ""]), ["web"]);
    assert_eq!(offered(&temp_home, &["health", ""]), ["demo", "web"]);
}

#[test]
fn a_broken_configuration_completes_nothing_silently() {
    let temp_home = temp_home();
    let folder = temp_home.path().join(".cache/ropeway/tools");
    for file in folder.read_dir().expect("a folder").flatten() {
        std::fs::write(file.path(), "{\"version\": 3, \"tools\": [").expect("written");
    }
    assert_eq!(offered(&temp_home, &["call", "demo."]), [""; 0]);
    assert_eq!(offered(&temp_home, &["call", ""]), ["demo.", "odd.", "hangs."]);
    for text in ["servers: [", "\0", "servers: {alias: 7}", ""] {
        temp_home.write("ropeway.yaml", text);
        assert_eq!(offered(&temp_home, &["call", ""]), [""; 0], "{text:?}");
    }
    // A pipe without a writer.
    let made = Command::new("mkfifo").arg(temp_home.path().join("pipe")).status().expect("mkfifo runs");
    assert!(made.success());
    let run = temp_home.run("complete zsh ropeway call --config pipe ''").expect(0);
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("", ""));
    for words in [&["complete"][..], &["complete", "tcsh", "x"], &["complete", "bash", "x"], &["complete", "zsh"]] {
        let run = temp_home.ropeway(words).run().expect(0);
        assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("", ""), "{words:?}");
    }
}

#[test]
fn a_changed_entry_forgets_its_tools() {
    let temp_home = temp_home();
    let mut changed = demo();
    changed["args"] = json!(["demo-server", "--trust"]);
    temp_home.configure(&[changed, odd()]);
    assert_eq!(offered(&temp_home, &["call", "demo."]), [""; 0]);
}

#[test]
fn an_untrusted_file_completes_only_server_names() {
    let temp_home = temp_home();
    let words = |words: &[&str]| {
        let ropeway = temp_home.ropeway(&[&["complete", "zsh", "ropeway"], words].concat()).with(|command| {
            command.env_remove(TRUST).env(TIMEOUT.0, TIMEOUT.1);
        });
        let run: Run = ropeway.run().expect(0);
        assert_eq!(run.stderr, "");
        run.stdout
    };
    assert_eq!(words(&["call", ""]), "demo.\t\nodd.\t\nhangs.\t\n");
    assert_eq!(words(&["call", "demo."]), "");
}

/// A shell in a window.
struct Shell {
    child: Child,
    keys: File,
    screen: Arc<Mutex<String>>,
    _mark: ProcessMarker,
}

impl Shell {
    fn start(temp_home: &TempHome, columns: u16, words: &[&str]) -> Self {
        let (ours, theirs) = Terminal { columns, coloured: false }.open();
        // A new session with the window as its controlling terminal.
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait"]).args(words).current_dir(temp_home.path()).env_clear();
        let path = format!("{}:/usr/bin:/bin", temp_home.path().join("bin").display());
        command.env("PATH", path).env("HOME", temp_home.path()).env("TERM", "xterm").env("LC_ALL", "C.UTF-8");
        command.env(TRUST, "1").env(TIMEOUT.0, TIMEOUT.1);
        let copy = || Stdio::from(theirs.try_clone().expect("a terminal"));
        command.stdin(copy()).stdout(copy()).stderr(copy());
        let process_marker = ProcessMarker::new();
        process_marker.put_on(&mut command);
        let child = command.spawn().expect("a shell starts");
        drop(command);
        drop(theirs);
        let screen = Arc::new(Mutex::new(String::new()));
        let (shown, mut reader) = (screen.clone(), ours.try_clone().expect("a terminal"));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                shown.lock().expect("a screen").push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Self { child, keys: ours, screen, _mark: process_marker }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the shell reads");
    }

    /// Waits for text on the screen after the previous match.
    fn until(&self, words: &str) {
        let began = Instant::now();
        loop {
            let mut screen = self.screen.lock().expect("a screen");
            if let Some(at) = screen.find(words) {
                screen.drain(..at + words.len());
                return;
            }
            let shown = screen.clone();
            drop(screen);
            assert!(began.elapsed() < PATIENCE, "no {words:?}:\n{shown}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // An error means that it has already exited.
        let _ = self.keys.write_all(b"\x03\nexit\n");
        let began = Instant::now();
        while self.child.try_wait().is_ok_and(|end| end.is_none()) && began.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Types prefixes of words in a shell and runs the completed command.
fn completes(shell: &[&str], setup: &str, script: &str) {
    let temp_home = temp_home();
    let text = Run::of(&["completions", script]).expect(0).stdout;
    temp_home.write("script", &text);
    for columns in [40, 80, 200] {
        let mut shell = Shell::start(&temp_home, columns, shell);
        shell.press(&format!("{setup}\n"));
        shell.press("echo rea''dy\n");
        shell.until("ready");
        shell.press("ropeway call demo.calc\texpr\t40+2\n");
        shell.until("42");
        shell.press("ropeway call odd.odd\t\n");
        shell.until("odd-answer");
        shell.press("ropeway call demo.chart values=1 ki\tb\t ; echo do''ne\n");
        shell.until("image/png");
        shell.until("done");
    }
}

#[test]
fn bash_completes_real_names_in_a_window_of_any_width() {
    let setup = "bind 'set enable-bracketed-paste off'; PS1='> '; . ./script";
    completes(&["bash", "--norc", "--noprofile", "-i"], setup, "bash");
}

#[test]
fn zsh_completes_real_names_in_a_window_of_any_width() {
    let setup = "PS1='> '; autoload -U compinit; compinit -u -D; . ./script";
    completes(&["zsh", "-f", "-i"], setup, "zsh");
}

#[test]
fn fish_completes_real_names_in_a_window_of_any_width() {
    completes(&["fish", "--no-config", "-i"], "source ./script", "fish");
}

#[test]
fn fish_offers_real_names_with_their_descriptions() {
    let temp_home = temp_home();
    temp_home.write("script.fish", &Run::of(&["completions", "fish"]).expect(0).stdout);
    let path = format!("{}:/usr/bin:/bin", temp_home.path().join("bin").display());
    let complete = |line: &str| {
        let ask = format!("source script.fish; complete -C {}", shlex::try_quote(line).expect("a word"));
        let mut fish = temp_home.ropeway(&[]);
        let mut command = Command::new("fish");
        command
            .args(["--no-config", "-c", &ask])
            .current_dir(temp_home.path())
            .env_clear()
            .env("HOME", temp_home.path());
        command.env("PATH", &path).env(TRUST, "1").env(TIMEOUT.0, TIMEOUT.1).stdin(Stdio::null());
        fish.process_marker.put_on(&mut command);
        fish.command = command;
        fish.run().expect(0).stdout
    };
    assert_eq!(complete("ropeway comp"), "completions\tPrint a shell completion script\n");
    assert_eq!(complete("ropeway call demo.calc"), "demo.calculate\tEvaluates an arithmetic expression\n");
    assert!(complete("ropeway call demo.chart ti").starts_with("title=\t"));
    assert_eq!(complete("ropeway call demo.chart kind="), "kind=bar\nkind=line\n");
    assert_eq!(complete("ropeway call odd.odd"), format!("odd.{ODD}\n"));
    assert_eq!(complete("ropeway call \"odd.odd"), format!("odd.{ODD}\n"));
    assert!(complete("ropeway tools --config scr").contains("script.fish"));
}
