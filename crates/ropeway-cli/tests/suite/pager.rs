//! Output longer than the screen is shown in a pager.

use std::path::PathBuf;

use ropeway_testing::Script;
use rustix::process::Signal;
use serde_json::{Map, Value, json};

use crate::Ropeway;
use crate::chat_terminal::Window;
use crate::temp_home::{TempHome, entry};

/// Creates a place with a tool whose description is longer than a screen.
fn long() -> TempHome {
    let many: Map<String, Value> = (0..100).map(|at| (format!("argument_{at}"), json!({"type": "string"}))).collect();
    let tool = json!({"name": "long", "inputSchema": {"type": "object", "properties": many}});
    let script = Script { builtin_tools: false, ..Script::legacy() };
    TempHome::with(&[entry("s", &script.tool(tool, json!({"content": []})))])
}

/// Returns a pager that stores its input, and optionally waits for a line.
fn pager(temp_home: &TempHome, waits: bool) -> String {
    let wait = if waits { "echo reading; read line < /dev/stderr; echo left" } else { "" };
    let kept = temp_home.path().join("paged");
    let script = format!("cat > {}; echo paged; {wait}\n", kept.display());
    format!("sh {}", temp_home.write("pager.sh", &script).display())
}

fn paged(temp_home: &TempHome) -> Option<String> {
    std::fs::read_to_string(temp_home.path().join("paged")).ok()
}

fn with_pager(temp_home: &TempHome, words: &[&str], pager: &str) -> Ropeway {
    temp_home.ropeway(words).with(|command| {
        command.env("ROPEWAY_PAGER", pager);
    })
}

/// Returns all output and the exit code.
fn shown(ropeway: Ropeway) -> (String, Option<i32>) {
    let mut window = Window::open(ropeway);
    let text = window.rest();
    (text, window.end().code)
}

#[test]
fn output_longer_than_the_screen_is_paged() {
    let temp_home = long();
    let pager = pager(&temp_home, false);
    for words in [&["tools", "s.long"][..], &["call", "s.long", "--help"], &["tools", "s"]] {
        let (text, code) = shown(with_pager(&temp_home, words, &pager));
        assert_eq!((text.trim(), code), ("paged", Some(0)), "{words:?}");
        let paged = paged(&temp_home).expect("a text");
        assert!(paged.contains("argument_99") && !paged.contains('\u{1b}'), "{paged}");
        std::fs::remove_file(temp_home.path().join("paged")).expect("the file");
    }
}

#[test]
fn short_output_and_pipes_are_not_paged() {
    let temp_home = long();
    let pager = pager(&temp_home, false);
    for words in [&["tools", "s.long", "--no-pager"][..], &["tools", "--names"], &["tools", "s.long", "--json"]] {
        let (text, code) = shown(with_pager(&temp_home, words, &pager));
        assert!(code == Some(0) && !text.contains("paged"), "{words:?}: {text}");
    }
    let dumb = with_pager(&temp_home, &["tools", "s.long"], &pager);
    let mut window = Window::with(dumb, |command| {
        command.env("TERM", "dumb");
    });
    assert!(window.rest().contains("argument_99"));
    assert_eq!(window.end().code, Some(0));
    let piped = with_pager(&temp_home, &["tools", "s.long"], &pager).run().expect(0);
    assert!(piped.stdout.contains("argument_99"));
    assert_eq!(paged(&temp_home), None);
}

#[test]
fn a_missing_or_disabled_pager_is_not_used() {
    let temp_home = long();
    for pager in ["/no/such/pager --flag", "", "cat", "'open"] {
        let (text, code) = shown(with_pager(&temp_home, &["tools", "s.long"], pager));
        assert!(code == Some(0) && text.contains("argument_99"), "{pager}: {text}");
        assert!(!text.contains("error"), "{text}");
    }
}

#[test]
fn a_pager_that_exits_early_is_not_an_error() {
    let temp_home = long();
    for pager in ["true", "head -n 2", "sh -c 'exit 3'"] {
        let (text, code) = shown(with_pager(&temp_home, &["tools", "s.long"], pager));
        assert!(code == Some(0) && !text.contains("error") && !text.contains("argument_99"), "{pager}: {text}");
    }
}

#[test]
fn ropeway_pager_wins_over_pager() {
    let temp_home = long();
    let usual = |own: Option<&str>| {
        shown(temp_home.ropeway(&["tools", "s.long"]).with(|command| {
            command.env("PAGER", "echo usual");
            match own {
                Some(own) => command.env("ROPEWAY_PAGER", own),
                None => command.env_remove("ROPEWAY_PAGER"),
            };
        }))
    };
    assert_eq!(usual(None).0.trim(), "usual");
    assert_eq!(usual(Some("echo own")).0.trim(), "own");
    assert!(usual(Some("")).0.contains("argument_99"));
}

#[test]
fn a_pager_ends_with_the_command_and_the_servers_before_it() {
    let temp_home = long();
    let pager = pager(&temp_home, true);
    let mut window = Window::open(with_pager(&temp_home, &["tools", "s.long"], &pager));
    window.see("reading");
    let servers =
        window.others().into_iter().filter(|id| crate::process_marker::command_line(*id).contains("scripted-server"));
    assert_eq!(servers.count(), 0, "no server runs while a person reads");
    window.signal(Signal::TERM);
    // If the pager is still running, the mark of the window fails the test.
    assert_eq!(window.end().code, Some(143));
}

#[test]
fn an_interrupt_is_for_the_pager() {
    let temp_home = long();
    let pager = pager(&temp_home, true);
    let mut window = Window::open(with_pager(&temp_home, &["tools", "s.long"], &pager));
    window.see("reading");
    // Only this process receives the signal; the pager continues.
    window.signal(Signal::INT);
    window.press("\n");
    window.see("left");
    assert_eq!(window.end().code, Some(0));
}

#[test]
fn an_interrupt_just_before_the_pager_exits_is_ignored() {
    let temp_home = long();
    let pager = format!("sh {}", temp_home.write("pager.sh", "cat > /dev/null; kill -INT $PPID\n").display());
    // The signal can be handled before or after the exit of the pager.
    for _ in 0..20 {
        let (text, code) = shown(with_pager(&temp_home, &["tools", "s.long"], &pager));
        assert_eq!((text.as_str(), code), ("", Some(0)));
    }
}

#[test]
fn less_shows_the_first_page_and_exits_with_a_key() {
    let setsid = PathBuf::from("/usr/bin/setsid");
    let temp_home = long();
    // A separate controlling terminal, from which less reads keys.
    let words = ["--ctty", "--wait", env!("CARGO_BIN_EXE_ropeway"), "tools", "s.long"];
    let ropeway = temp_home.of(&setsid, &words).with(|command| {
        command.env_remove("ROPEWAY_PAGER").env_remove("PAGER").env_remove("LESS");
    });
    let mut window = Window::open(ropeway);
    let page = window.see(":\u{1b}[K");
    assert!(page.contains("s.long") && !page.contains("argument_99"), "{page}");
    // An interrupt does not end less: it sounds the bell.
    window.press("\u{3}");
    window.see("\u{7}");
    // Around an interrupt, less discards keys, and it does not always prompt again.
    window.press_until("G", "argument_99");
    window.press_until_end("q");
    assert_eq!(window.end().code, Some(0));
}
