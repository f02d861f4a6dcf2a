//! Ctrl-C at a terminal, outside of an interactive chat.

use ropeway_testing::ModelAnswer;

use crate::chat::Model;
use crate::chat_terminal::Window;
use crate::temp_home::TempHome;
use crate::{Ropeway, Run};

const CTRL_C: &str = "\u{3}";

/// Waits for some words, presses Ctrl-C, and returns all later output.
fn interrupt(ropeway: Ropeway, words: &str) -> (String, Run) {
    let mut window = Window::open(ropeway);
    window.see(words);
    // The terminal echoes `^C`. Its signal goes to the foreground group, which has no process of the test.
    window.press(CTRL_C);
    // The terminal discards pending output when it handles the key, so the signal is sent only after the echo.
    window.see("^C");
    window.signal(rustix::process::Signal::INT);
    window.end_shown()
}

/// Returns `true` if a shell prompt would start at the beginning of a line.
fn is_at_start(shown: &str) -> bool {
    shown.ends_with('\n') || shown.ends_with("\r\u{1b}[2K")
}

#[test]
fn ctrl_c_clears_a_status_line_and_resets_the_cursor() {
    let (shown, run) = interrupt(Ropeway::new(&["call", "countdown", "seconds=60"]), "waiting for");
    assert_eq!(run.code, Some(130));
    assert!(is_at_start(&shown), "{shown:?}");
}

#[test]
fn ctrl_c_ends_the_line_of_a_question_and_of_events() {
    let temp_home = TempHome::new();
    temp_home.write("ropeway.yaml", "servers: []\n");
    let ask = temp_home.ropeway(&["trust"]).with(|command| {
        command.env_remove(crate::temp_home::TRUST);
    });
    for (ropeway, words) in [(ask, "[y/N] "), (Ropeway::new(&["events"]), "ready")] {
        let (shown, run) = interrupt(ropeway, words);
        assert_eq!(run.code, Some(130), "{shown:?}");
        assert!(is_at_start(&shown), "{shown:?}");
    }
}

#[test]
fn ctrl_c_keeps_the_text_received_so_far() {
    let half = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Half of an answer\"}}]}\n\n";
    let model = Model::answering([ModelAnswer::events(half).stall()]);
    let (shown, run) = interrupt(model.chat(&["-p", "go"]), "Half of an ");
    assert_eq!(run.code, Some(130));
    assert!(is_at_start(&shown) && !shown.contains("\u{1b}[2K"), "{shown:?}");
}

#[test]
fn ctrl_c_writes_no_line_where_no_terminal_shows_it() {
    let child = Ropeway::new(&["call", "countdown", "seconds=60"]).start();
    // The server is the first process that it starts.
    let began = std::time::Instant::now();
    while child.others().is_empty() && began.elapsed() < crate::chat::PATIENCE {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    crate::process_marker::signal("INT", child.child.id());
    let run = child.end();
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (Some(130), "", ""));
}
