//! `ropeway chat` at a terminal: Markdown, widths, line breaks in messages, models and results.

use ropeway_core::message::Dialect;
use ropeway_testing::{ModelAnswer, ScriptedReply};
use serde_json::{Value, json};

use crate::chat::Model;
use crate::chat_terminal::{CTRL_D, PROMPT, Window};

const TEXT: &str = "\
# Result

Some **bold words** and `code`, see [the docs](https://example.com/docs) for all that there is to know.

1. First item with enough words to wrap at forty columns
   - nested item
2. Second

```sh
echo 'a line of code that is longer than forty columns'
```

> A quote with a few words in it

| Name | Value |
|------|------:|
| one  | 1     |
";

fn coloured(command: &mut std::process::Command) {
    command.env_remove("NO_COLOR");
}

/// Returns the lines of an answer on a terminal of this width.
fn lines(text: &str, columns: u16, arguments: &[&str], change: impl FnOnce(&mut std::process::Command)) -> Vec<String> {
    let model = Model::saying([ScriptedReply::text(text)]);
    let mut window = Window::sized(model.chat(&[&["--no-tools"], arguments].concat()), columns, change);
    window.say("go");
    window.see("\u{1b}[?2004l");
    let shown = window.see("tokens");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
    let mut lines: Vec<String> = shown.split("\r\n").map(last_of_line).collect();
    // The typed line comes before, the usage after it.
    lines.pop();
    lines.into_iter().skip_while(String::is_empty).collect()
}

/// Removes a status line that was overwritten.
fn last_of_line(line: &str) -> String {
    line.rsplit('\r').next().unwrap_or_default().trim_end().to_owned()
}

#[test]
fn markdown_is_rendered_at_40_columns() {
    let expected = [
        "Result",
        "",
        "Some bold words and code, see the docs",
        "(https://example.com/docs) for all that",
        "there is to know.",
        "",
        "1. First item with enough words to wrap",
        "   at forty columns",
        "   • nested item",
        "2. Second",
        "",
        "```sh",
        "echo 'a line of code that is longer than forty columns'",
        "```",
        "",
        "│ A quote with a few words in it",
        "",
        "Name │ Value",
        "─────┼──────",
        "one  │     1",
    ];
    assert_eq!(lines(TEXT, 40, &[], coloured), expected);
}

#[test]
fn markdown_is_rendered_at_80_and_200_columns() {
    for columns in [80, 200] {
        let lines = lines(TEXT, columns, &[], coloured);
        let first = "Some bold words and code, see the docs (https://example.com/docs) for all that";
        assert!(lines[2].starts_with(first) && lines[2].len() <= usize::from(columns), "{lines:?}");
        assert!(lines.contains(&"1. First item with enough words to wrap at forty columns".to_owned()), "{lines:?}");
        assert_eq!(lines.last().map(String::as_str), Some("one  │     1"));
    }
}

#[test]
fn words_wrap_on_a_terminal_of_20_columns() {
    let lines = lines("- one two three four five\n- 日本語の文章を書く", 20, &[], coloured);
    assert_eq!(lines, ["• one two three four", "  five", "• 日本語の文章を書く"]);
}

#[test]
fn without_colours_markers_show_the_structure() {
    let lines = lines(TEXT, 80, &[], |command| {
        command.env("NO_COLOR", "1");
    });
    assert_eq!(lines[0], "# Result");
    assert!(lines[2].starts_with("Some **bold words** and `code`, see the docs (https://"), "{lines:?}");
    assert!(lines.contains(&"│ A quote with a few words in it".to_owned()), "{lines:?}");
}

#[test]
fn text_is_not_rendered_with_plain_or_without_a_terminal() {
    let source: Vec<&str> = TEXT.lines().collect();
    assert_eq!(lines(TEXT, 40, &["--plain"], coloured), source);
    let model = Model::saying([ScriptedReply::text(TEXT)]);
    assert_eq!(model.chat(&["--no-tools", "-p", "go"]).run().expect(0).stdout, TEXT);
    let model = Model::saying([ScriptedReply::text(TEXT)]);
    let window = Window::sized(model.chat(&["--no-tools", "-p", "go"]), 40, |command| {
        command.env("TERM", "dumb");
    });
    assert_eq!(window.end_with_screen(0).replace("\r\n", "\n"), TEXT);
}

#[test]
fn rendering_is_toggled_in_a_chat() {
    let model = Model::saying(["**one**", "**two**", "**three**"].map(ScriptedReply::text));
    let mut window = Window::sized(model.chat(&["--no-tools"]), 80, coloured);
    window.say("a");
    window.see("\u{1b}[1mone\u{1b}[0m\r\n");
    window.say("/plain");
    window.see("Markdown rendering is off");
    window.say("b");
    window.see("**two**\r\n");
    window.say("/plain");
    window.see("Markdown rendering is on");
    window.say("c");
    window.see("\u{1b}[1mthree\u{1b}[0m\r\n");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
}

#[test]
fn words_are_shown_as_they_arrive_and_follow_a_resize() {
    let events = ScriptedReply::text("one two three four five six seven eight").events(Dialect::Chat);
    let at = events.find("five").and_then(|at| events[..at].rfind("data:")).expect("a word");
    let model = Model::answering([ModelAnswer::events(&events[..at]).wait().then(&events[at..])]);
    let mut window = Window::sized(model.chat(&["--no-tools"]), 80, coloured);
    window.say("go");
    window.see("one two three four ");
    window.resize(20);
    model.server.go_on();
    window.see("\r\nfive six seven eight\r\n");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
}

#[test]
fn a_message_has_line_breaks_by_three_keys() {
    let model = Model::saying([ScriptedReply::text("Read.")]);
    let mut window = Window::open(model.chat(&["--no-tools"]));
    window.say("one\\\rtwo\u{a}three\u{1b}\rfour\\\\");
    window.see("Read.");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
    assert_eq!(model.server.bodies()[0]["messages"][0]["content"], "one\ntwo\nthree\nfour\\\\");
}

#[test]
fn a_line_that_is_typed_ahead_is_sent_at_the_next_prompt() {
    let events = ScriptedReply::text("It was a dark night").events(Dialect::Chat);
    let at = events.find("night").and_then(|at| events[..at].rfind("data:")).expect("a word");
    for terminal in ["xterm-256color", "dumb"] {
        let first = ModelAnswer::events(&events[..at]).wait().then(&events[at..]);
        let model = Model::answering([first, ScriptedReply::text("Heard.").answer(Dialect::Chat)]);
        let mut window = Window::sized(model.chat(&["--no-tools"]), 80, |command| {
            command.env("TERM", terminal);
        });
        window.say("tell");
        window.see("It was a dark ");
        window.press("and then?\r");
        model.server.go_on();
        window.see("Heard.");
        window.see(PROMPT);
        window.press(CTRL_D);
        window.end().expect(0);
        let said: Vec<Value> = model.server.bodies()[1]["messages"].as_array().expect("messages").clone();
        assert_eq!(said.last().expect("a message")["content"], "and then?");
    }
}

fn models(names: &[&str]) -> ModelAnswer {
    let models: Vec<Value> = names.iter().map(|name| json!({"id": name})).collect();
    ModelAnswer::json(200, &json!({"object": "list", "data": models}))
}

#[test]
fn models_are_listed_and_a_name_is_checked() {
    let list = || models(&["parrot", "cockatoo", "mag\u{1b}[2Jpie"]);
    let missing = ModelAnswer::json(404, &json!({"error": {"message": "no list here"}}));
    let model = Model::answering([list(), list(), list(), missing]);
    let mut window = Window::open(model.chat(&["--no-tools"]));
    window.say("/model");
    let listed = window.see("magpie");
    assert!(listed.contains("● parrot") && listed.contains("cockatoo"), "{listed}");
    window.say("/model cockato");
    window.see("error: unknown model `cockato`");
    window.see("did you mean `cockatoo`?");
    window.see("`/model cockato --force` skips the check");
    window.say("/model cockatoo");
    window.see("switched to cockatoo");
    window.say("/model other");
    window.see("warning: using `other` unchecked: could not list models");
    window.see("switched to other");
    window.say("/model third --force");
    window.see("switched to third");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
    assert_eq!(model.server.requests().len(), 4);
}

#[test]
fn listing_models_times_out() {
    let model = Model::answering([ModelAnswer::silence()]);
    let mut window = Window::open(model.chat(&["--no-tools"]));
    window.say("/model");
    window.see("error: listing models timed out after 5 s");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
}

#[test]
fn the_complete_result_of_a_call_is_shown_on_request() {
    let call = |id: &str, text: &str| ScriptedReply::call(id, "fail", json!({"message": text}));
    let model =
        Model::saying([call("a", "one\ntwo\nthree"), call("b", "four\u{1b}[2J\nfive"), ScriptedReply::text("Done.")]);
    let mut window = Window::open(model.chat(&["--yes"]));
    window.say("go");
    window.see("(+2 lines)");
    window.see("Done.");
    window.say("/expand");
    let shown = window.see("five");
    assert!(shown.contains("demo.fail · ") && shown.contains("four\r\n"), "{shown}");
    window.say("/expand 2");
    window.see("one\r\ntwo\r\nthree\r\n");
    window.say("/expand 9");
    window.see("error: no result 9: only the last 2 results are stored");
    window.say("/expnd");
    window.see("did you mean `/expand`?");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
}

#[test]
fn the_cost_is_shown_where_the_provider_states_it() {
    let model = Model::saying([ScriptedReply::text("A.").charging(0.0012), ScriptedReply::text("B.")]);
    let mut window = Window::open(model.chat(&["--no-tools"]));
    window.say("a");
    window.see("10 input tokens, 5 output tokens · $0.0012 · ");
    window.say("b");
    let usage = window.see(PROMPT);
    assert!(usage.contains("10 input tokens, 5 output tokens · ") && !usage.contains('$'), "{usage}");
    window.press(CTRL_D);
    window.end().expect(0);
    let model = Model::saying([ScriptedReply::text("A.").charging(0.25)]);
    let run = model.chat(&["--no-tools", "--json", "-p", "a"]).run().expect(0);
    let last: Value = serde_json::from_str(run.stdout.lines().last().expect("a line")).expect("JSON");
    assert_eq!(last["usage"]["cost"], 0.25);
}

#[test]
fn ctrl_c_within_text_leaves_the_cursor_on_a_new_line() {
    let events = ScriptedReply::text("It was **a dark** night").events(Dialect::Chat);
    let at = events.find("night").and_then(|at| events[..at].rfind("data:")).expect("a word");
    let stalled = || ModelAnswer::events(&events[..at]).stall();
    for columns in [20, 80] {
        let model = Model::answering([stalled()]);
        let mut window = Window::sized(model.chat(&["--no-tools", "-p", "go"]), columns, coloured);
        window.see("dark\u{1b}[0m ");
        window.interrupt();
        let screen = window.end_with_screen(130);
        assert!(screen.ends_with("dark\u{1b}[0m \r\n"), "{screen:?}");
        let model = Model::answering([stalled()]);
        let mut window = Window::sized(model.chat(&["--no-tools"]), columns, coloured);
        window.say("go");
        window.see("dark\u{1b}[0m ");
        window.interrupt();
        window.see("\r\n\u{1b}[2mcancelled · ");
        window.see(PROMPT);
        window.press(CTRL_D);
        window.end().expect(0);
    }
}
