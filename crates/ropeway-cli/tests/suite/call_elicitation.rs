//! Elicitation in `ropeway call`.

use std::time::Duration;

use ropeway_testing::Script;
use serde_json::json;

use crate::chat_terminal::{CTRL_C, CTRL_D, Window};
use crate::real;
use crate::temp_home::{TempHome, entry, having};

fn asking(script: &Script) -> TempHome {
    TempHome::with(&[entry("scripted", script)])
}

#[test]
fn a_form_is_filled_in_during_a_call() {
    for (script, columns) in [(Script::legacy(), 40), (Script::modern(), 80), (Script::legacy(), 200)] {
        let temp_home = asking(&script);
        let mut window = Window::sized(temp_home.ropeway(&["call", "scripted.elicit"]), columns, |command| {
            command.env("NO_COLOR", "1");
        });
        window.see("scripted asks:");
        window.see("What is your name?");
        window.see("name (default: nobody): ");
        window.press("Ada\r");
        window.see("Submit? [y]es / [n]o: ");
        window.press("y\r");
        window.see("accept");
        window.see("Ada");
        window.end().expect(0);
    }
}

#[test]
fn a_page_is_opened_or_declined_during_a_call() {
    for (key, action) in [("y\r", "accept"), ("n\r", "decline"), (CTRL_D, "cancel"), (CTRL_C, "decline")] {
        let temp_home = asking(&Script::legacy());
        let mut window = Window::open(temp_home.ropeway(&["call", "scripted.elicit", "mode=url"]));
        window.see("https://example.com/form");
        window.see("continue? [y]es / [n]o: ");
        window.press(key);
        window.see(action);
        window.end().expect(0);
    }
}

#[test]
fn ctrl_c_at_a_second_question_ends_the_call() {
    for script in [Script::legacy(), Script::modern()] {
        let temp_home = asking(&script);
        let mut window = Window::open(temp_home.ropeway(&["call", "scripted.elicit", "mode=url", "rounds=1000"]));
        window.see("[n]o: ");
        window.press(CTRL_C);
        window.see("declined; Ctrl-C again ends the command");
        window.see("[n]o: ");
        window.press(CTRL_C);
        window.end().expect(130);
    }
}

#[test]
fn a_server_that_keeps_asking_is_stopped() {
    let temp_home = asking(&Script::legacy());
    let mut window = Window::open(temp_home.ropeway(&["call", "scripted.elicit", "mode=url", "rounds=1000"]));
    for _ in 0..10 {
        window.see("[n]o: ");
        window.press("n\r");
    }
    window.see("it asked the user more than 10 questions");
    window.end().expect(3);
}

#[test]
fn a_server_is_not_idle_while_the_user_answers() {
    let patient = having(entry("scripted", &Script::legacy()), json!({"timeouts": {"idle": "2s"}}));
    let temp_home = TempHome::with(&[patient]);
    let mut window = Window::open(temp_home.ropeway(&["call", "scripted.elicit"]));
    window.see("name (default: nobody): ");
    std::thread::sleep(Duration::from_secs(4));
    window.press("Ada\r");
    window.see("[n]o: ");
    window.press("y\r");
    window.see("accept");
    window.end().expect(0);
}

#[test]
fn an_unanswered_question_restores_the_terminal_at_the_timeout() {
    let temp_home = asking(&Script::legacy());
    let mut window = Window::open(temp_home.ropeway(&["call", "scripted.elicit", "--timeout", "3s"]));
    window.see("name (default: nobody): ");
    window.see("did not respond within 3 s");
    assert!(window.is_loud());
    window.end().expect(5);
}

#[test]
fn without_a_terminal_questions_are_declined_with_a_warning() {
    let told = "warning: declined a request for input from server `scripted`: input needs a terminal and no --json\n";
    for script in [Script::legacy(), Script::modern()] {
        let run = asking(&script).run("call scripted.elicit").expect(0);
        assert!(run.stdout.contains("decline"), "{}", run.stdout);
        assert_eq!(run.stderr, told);
        let run = asking(&script).run("call scripted.elicit --json").expect(0);
        assert!(run.json()["data"].to_string().contains("decline"), "{}", run.stdout);
        assert_eq!(run.stderr, told);
    }
}

#[test]
fn a_real_server_asks_during_a_call() {
    let temp_home = TempHome::new();
    let server = real::stdio_words("everything");
    let listed = temp_home.run(&format!("tools --json --stdio {server}")).expect(0).json().to_string();
    assert!(listed.contains("trigger-elicitation-request"), "{listed}");
    let words = shlex::split(&format!("call trigger-elicitation-request --stdio {server}")).expect("words");
    let mut window = Window::open(temp_home.ropeway(&words.iter().map(String::as_str).collect::<Vec<_>>()));
    window.see(" asks:");
    window.see("String (Your full, legal name): ");
    window.press("Ada\r");
    window.see(": ");
    window.press(CTRL_C);
    window.see("declined; Ctrl-C again ends the command");
    window.see("declined to provide");
    window.end().expect(0);
}

/// A legacy server that withdraws its question after a second, and answers the call after another one.
const FICKLE: &str = r#"
say() { printf '%s\n' "$1"; }
while read -r line; do
  id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
  case "$line" in
    *'"initialize"'*) say '{"jsonrpc":"2.0","id":'"$id"',"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"fickle","version":"1"}}}' ;;
    *'"tools/list"'*) say '{"jsonrpc":"2.0","id":'"$id"',"result":{"tools":[{"name":"ask","inputSchema":{"type":"object"}}]}}' ;;
    *'"tools/call"'*)
      say '{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"Which colour?","requestedSchema":{"type":"object","properties":{"colour":{"type":"string"}}}}}'
      sleep 1
      say '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q"}}'
      sleep 1
      say '{"jsonrpc":"2.0","id":'"$id"',"result":{"content":[{"type":"text","text":"chosen without you"}]}}' ;;
  esac
done
"#;

#[test]
fn a_question_that_the_server_withdraws_disappears() {
    let temp_home = TempHome::with(&[
        json!({"alias": "fickle", "command": "sh", "args": ["-c", FICKLE.replace('$', "$$")], "era": "legacy"}),
    ]);
    let mut window = Window::open(temp_home.ropeway(&["call", "fickle.ask"]));
    window.see("Which colour?");
    window.see("colour (optional): ");
    window.see("fickle withdrew the question");
    window.see("chosen without you");
    assert!(window.is_loud());
    window.end().expect(0);
}
