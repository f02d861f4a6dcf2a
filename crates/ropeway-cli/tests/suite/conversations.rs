//! Saved conversations: `chat --continue`, `--resume`, `--list` and `--no-save`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use ropeway_testing::{Script, ScriptedReply};
use serde_json::{Value, json};

use crate::chat::{Model, mode, said};
use crate::chat_terminal::{CTRL_D, PROMPT, Window};
use crate::temp_home::{entry, having};
use crate::terminal::Terminal;
use crate::{Ropeway, Run};

impl Model {
    /// Returns a chat without model options.
    fn bare(&self, arguments: &[&str]) -> Ropeway {
        self.temp_home.ropeway(&[&["chat"], arguments].concat()).with(|command| {
            for name in ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "GEMINI_API_KEY", "GOOGLE_API_KEY"] {
                command.env_remove(name);
            }
            for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
                command.env_remove(name);
            }
        })
    }

    fn folder(&self) -> PathBuf {
        self.temp_home.path().join(".local/state/ropeway/conversations")
    }

    /// Returns the conversation files, by name.
    fn files(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(self.folder()).into_iter().flatten().flatten().map(|file| file.path());
        let mut files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).collect();
        files.sort();
        files
    }

    fn list(&self) -> Vec<Value> {
        self.bare(&["--list", "--json"]).run().expect(0).json().as_array().expect("a list").clone()
    }
}

fn saying(texts: &[&str]) -> Model {
    Model::saying(texts.iter().map(|text| ScriptedReply::text(*text)))
}

#[test]
fn a_prompt_is_saved_and_continued_with_the_same_model() {
    let model = saying(&["Noted.", "Seven.", "Again."]);
    let run = model.run(&["-p", "remember 7", "--no-tools", "--system", "Be brief."]).expect(0);
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("Noted.\n", ""));
    // The model and its URL are not given again.
    let run = model.bare(&["--continue", "-p", "which number?", "--no-tools"]).run().expect(0);
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("Seven.\n", ""));
    let heard = [("system", "Be brief."), ("user", "remember 7"), ("assistant", "Noted."), ("user", "which number?")];
    assert_eq!(model.wait_for(), said(&heard));
    let listed = model.list();
    assert_eq!(listed.len(), 1);
    assert_eq!((&listed[0]["title"], &listed[0]["turns"]), (&json!("remember 7"), &json!(2)));
    assert_eq!((&listed[0]["model"], &listed[0]["folder"]), (&json!("parrot"), &json!(model.temp_home.path())));
    assert_eq!(mode(&model.folder()), 0o700);
    assert_eq!(mode(&model.files()[0]), 0o600);
    // An option wins over the saved model, with a note.
    let run = model.bare(&["--continue", "-p", "and now?", "--no-tools", "--model", "cockatoo"]).run().expect(0);
    assert!(run.stderr.starts_with("continuing with `cockatoo` at 127.0.0.1:"), "{}", run.stderr);
    assert_eq!(model.server.bodies()[2]["model"], "cockatoo");
    assert_eq!(model.list()[0]["model"], "cockatoo");
}

#[test]
fn a_conversation_is_resumed_by_a_prefix_of_its_id() {
    let model = saying(&["One.", "Two.", "Three."]);
    model.run(&["-p", "first", "--no-tools"]).expect(0);
    model.run(&["-p", "second", "--no-tools"]).expect(0);
    let listed = model.list();
    assert_eq!(listed.iter().map(|entry| entry["title"].as_str()).collect::<Vec<_>>(), [Some("second"), Some("first")]);
    let id = listed[1]["id"].as_str().expect("an id");
    model.bare(&["--resume", id, "-p", "more", "--no-tools"]).run().expect(0);
    assert_eq!(model.wait_for(), said(&[("user", "first"), ("assistant", "One."), ("user", "more")]));
    // It is the latest one now.
    assert_eq!(model.list()[0]["id"], json!(id));

    let file = PathBuf::from(listed[0]["file"].as_str().expect("a file"));
    let text = std::fs::read_to_string(&file).expect("a conversation");
    for copy in ["aaaaaaa1", "aaaaaaa2"] {
        let copied = file.with_file_name(format!("{copy}.jsonl"));
        std::fs::write(&copied, text.replacen(listed[0]["id"].as_str().expect("an id"), copy, 1)).expect("a file");
        std::fs::set_permissions(&copied, std::fs::Permissions::from_mode(0o600)).expect("permissions");
    }
    let run = model.bare(&["--resume", "aaaaaaa", "-p", "more"]).run().expect(2);
    assert!(run.stderr.starts_with("error: `aaaaaaa` matches 2 conversations\n"), "{}", run.stderr);
    assert!(run.stderr.contains("aaaaaaa1 second") && run.stderr.contains("aaaaaaa2 second"), "{}", run.stderr);
    let run = model.bare(&["--resume", "zzz", "-p", "more"]).run().expect(2);
    assert!(run.stderr.starts_with("error: unknown conversation `zzz`\n"), "{}", run.stderr);
    assert!(run.stderr.contains("chat --list"), "{}", run.stderr);
}

#[test]
fn only_conversations_of_this_directory_are_continued() {
    let model = saying(&["One."]);
    let run = model.bare(&["--continue", "-p", "hi"]).run().expect(2);
    assert!(run.stderr.starts_with("error: no conversation to continue in `/"), "{}", run.stderr);
    model.run(&["-p", "first", "--no-tools"]).expect(0);
    let other = model.temp_home.path().join("other");
    std::fs::create_dir(&other).expect("a folder");
    let run = model.bare(&["--continue", "-p", "hi"]).with(|command| {
        command.current_dir(&other);
    });
    let run = run.run().expect(2);
    assert!(run.stderr.contains("run `ropeway chat --list` to list those of other directories"), "{}", run.stderr);
    let list = model.bare(&["--list"]).run().expect(0);
    assert!(list.stdout.starts_with("ID        LAST TURN"), "{}", list.stdout);
    assert!(list.stdout.contains("  1      ~       first"), "{}", list.stdout);
}

#[test]
fn the_list_fits_the_terminal() {
    let model = saying(&["One."]);
    model.run(&["-p", &"a long prompt ".repeat(30), "--no-tools"]).expect(0);
    for columns in [20, 40, 80, 200] {
        let screen = Terminal { columns, coloured: false }.show(model.bare(&["--list"]));
        assert_eq!(screen.code, Some(0));
        // Text is never laid out for fewer than 30 columns.
        let widest = screen.text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(usize::from(columns.max(30))), "{columns}: {}", screen.text);
        assert!(screen.text.contains("a long prompt"), "{}", screen.text);
        assert!(screen.text.contains(model.list()[0]["id"].as_str().expect("an id")), "{}", screen.text);
    }
}

#[test]
fn saving_can_be_disabled_or_moved_to_another_directory() {
    let model = saying(&["One.", "Two.", "Three.", "Four."]);
    model.run(&["-p", "hi", "--no-tools", "--no-save"]).expect(0);
    let with = |folder: &str| {
        let folder = folder.to_owned();
        model.chat(&["-p", "hi", "--no-tools"]).with(|command| {
            command.env("ROPEWAY_CONVERSATIONS_DIR", folder);
        })
    };
    with("").run().expect(0);
    assert!(!model.folder().exists());
    let elsewhere = model.temp_home.path().join("elsewhere");
    with(elsewhere.to_str().expect("a path")).run().expect(0);
    assert!(!model.folder().exists());
    assert_eq!(mode(&elsewhere), 0o700);
    assert_eq!(std::fs::read_dir(&elsewhere).expect("a folder").count(), 2, "a conversation and the lock");
    // An unwritable directory causes a warning, and the answer is still printed.
    let run = with("/dev/null/no-folder").run().expect(0);
    assert_eq!(run.stdout, "Four.\n");
    assert!(run.stderr.starts_with("warning: could not save the conversation: "), "{}", run.stderr);
    let run = model.bare(&["--list"]).run().expect(0);
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("", "No saved conversations.\n"));
    let off = model.bare(&["--continue", "-p", "hi"]).with(|command| {
        command.env("ROPEWAY_CONVERSATIONS_DIR", "");
    });
    assert!(off.run().expect(2).stderr.contains("ROPEWAY_CONVERSATIONS_DIR is empty"));
}

#[test]
fn no_secret_is_part_of_a_saved_conversation() {
    let model = saying(&["It is sk-of-the-parrot, is it not?"]);
    let run = model.chat(&["-p", "my key is sk-of-the-parrot", "--no-tools", "--key-env", "PARROT_KEY"]);
    let run = run.with(|command| {
        command.env("PARROT_KEY", "sk-of-the-parrot");
    });
    run.run().expect(0);
    let text = std::fs::read_to_string(&model.files()[0]).expect("a file");
    assert!(text.contains("my key is ***") && !text.contains("sk-of"), "{text}");
    // The variable is needed again and not set.
    let run = model.bare(&["--continue", "-p", "and?", "--no-tools"]).run().expect(4);
    assert!(run.stderr.contains("`PARROT_KEY` is not set"), "{}", run.stderr);
    assert!(
        run.stderr.contains("the model of the conversation is not available: `parrot` at 127.0.0.1:"),
        "{}",
        run.stderr
    );
}

#[test]
fn a_failed_first_answer_leaves_no_conversation() {
    let model = Model::answering([]);
    model.run(&["-p", "hi", "--no-tools", "--timeout", "5s"]);
    assert_eq!(model.files(), [] as [PathBuf; 0]);
}

#[test]
fn unusable_files_are_reported_and_never_block() {
    let model = saying(&["One.", "More."]);
    model.run(&["-p", "first", "--no-tools"]).expect(0);
    let file = |id: &str| model.folder().join(format!("{id}.jsonl"));
    let whole = std::fs::read_to_string(&model.files()[0]).expect("a file");
    let id = model.files()[0].file_stem().and_then(|id| id.to_str()).expect("an id").to_owned();
    let renamed = whole.replacen(&id, "bbbbbbb2", 1);
    std::fs::write(file("bbbbbbb1"), "{\"ropeway_conversation\": 2}\n").expect("a file");
    std::fs::write(file("bbbbbbb2"), &renamed[..renamed.len() - 5]).expect("a file");
    std::fs::File::create(file("bbbbbbb3")).and_then(|file| file.set_len(1 << 32)).expect("a sparse file");
    let made = std::process::Command::new("mkfifo").arg(file("bbbbbbb4")).status().expect("mkfifo");
    assert!(made.success());
    std::fs::write(file("bbbbbbb5"), [0xff; 100]).expect("a file");
    let problems = [
        ("bbbbbbb1", "unsupported format version 2 (expected 1); update ropeway"),
        ("bbbbbbb2", "file is truncated"),
        ("bbbbbbb3", "larger than 128 MiB"),
        ("bbbbbbb4", "not a regular file"),
        ("bbbbbbb5", "file is truncated"),
    ];
    for (id, _) in problems.iter().filter(|(id, _)| *id != "bbbbbbb4") {
        std::fs::set_permissions(file(id), std::fs::Permissions::from_mode(0o600)).expect("permissions");
    }
    let list = model.bare(&["--list"]).run().expect(0);
    assert!(list.stdout.contains("first"), "{}", list.stdout);
    for (id, problem) in problems {
        let shown = file(id).display().to_string();
        assert!(list.stderr.contains(&format!("could not read `{shown}`: {problem}")), "{}", list.stderr);
        let run = model.bare(&["--resume", id, "-p", "more"]).run().expect(2);
        assert!(run.stderr.contains(&format!("`{shown}`: {problem}")), "{}", run.stderr);
    }
    assert_eq!(model.list().iter().filter(|entry| entry["error"].is_string()).count(), 5);
    // Unusable files do not hide the usable one.
    let run = model.bare(&["--continue", "-p", "more", "--no-tools"]).run().expect(0);
    assert_eq!(run.stdout, "More.\n");
}

fn leave(mut window: Window) -> Run {
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end()
}

#[test]
fn the_line_about_a_continued_chat_is_cut_between_words() {
    let model = saying(&["Noon."]);
    model.run(&["-p", "please tell me which of these will call get_current_time now", "--no-tools"]).expect(0);
    let mut window = Window::sized(model.bare(&["--continue", "--no-tools"]), 80, |command| {
        command.env("NO_COLOR", "1");
    });
    window.see(" · 1 turn · please tell me which of these will call…\r\n");
    // The recap shows what was sent like the prompt does.
    window.see("Noon.");
    leave(window).expect(0);
}

#[test]
fn a_chat_shows_how_to_continue_it() {
    let model = saying(&["Hello!", "Still here.", "Fresh."]);
    let mut window = Window::open(model.chat(&["--no-tools"]));
    window.say("hi there");
    window.see("Hello!");
    window.see(PROMPT);
    window.press(CTRL_D);
    let id = model.list()[0]["id"].as_str().expect("an id").to_owned();
    window.see(&format!("continue this conversation with `ropeway chat --resume {id}`"));
    window.end().expect(0);
    let mut window = Window::open(model.bare(&["--continue", "--no-tools"]));
    window.see(&format!("continuing {id} · 1 turn · hi there"));
    window.see(PROMPT);
    window.say("and now?");
    window.see("Still here.");
    // `/clear` starts another conversation.
    window.say("/clear");
    window.see("conversation cleared");
    window.say("something else");
    window.see("Fresh.");
    leave(window).expect(0);
    let titles: Vec<Value> = model.list().iter().map(|entry| entry["title"].clone()).collect();
    assert_eq!(titles, ["something else", "hi there"]);
    assert_eq!(model.list()[1]["turns"], 2);
}

#[test]
fn a_conversation_that_two_terminals_continue_becomes_two() {
    let model = saying(&["Hello!", "To one.", "To the other.", "Later."]);
    model.run(&["-p", "hi", "--no-tools"]).expect(0);
    let mut one = Window::open(model.bare(&["--continue", "--no-tools"]));
    one.see(PROMPT);
    let mut other = Window::open(model.bare(&["--continue", "--no-tools"]));
    other.see(PROMPT);
    one.press("here\r");
    one.see("To one.");
    one.see(PROMPT);
    other.press("there\r");
    other.see("To the other.");
    other.see("was continued elsewhere; saving this one as ");
    other.say("more");
    let rest = other.see("Later.");
    assert!(!rest.contains("elsewhere"), "{rest}");
    leave(other).expect(0);
    one.press(CTRL_D);
    one.end().expect(0);
    let turns: Vec<Value> = model.list().iter().map(|entry| entry["turns"].clone()).collect();
    assert_eq!(turns, [3, 2]);
    let texts: Vec<String> = model.files().iter().map(|file| std::fs::read_to_string(file).expect("a file")).collect();
    assert_eq!(texts.iter().filter(|text| text.contains("here") && text.contains("To one.")).count(), 1);
}

#[test]
fn an_existing_directory_keeps_its_permissions() {
    let model = Model::saying([ScriptedReply::text("Hello!")]);
    let folder = model.temp_home.path().join("shared");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).expect("rights");
    let chat = model.chat(&["--no-tools", "-p", "hi"]).with(|command| {
        command.env("ROPEWAY_CONVERSATIONS_DIR", &folder);
    });
    chat.run().expect(0);
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("a file").permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o755);
    let files = std::fs::read_dir(&folder).expect("a folder").flatten();
    assert!(files.map(|file| mode(&file.path())).all(|mode| mode == 0o600));
}

#[test]
fn history_is_kept_without_secrets_unless_saving_is_disabled() {
    let talk = |arguments: &[&str]| {
        let model = Model::saying([ScriptedReply::text("One."), ScriptedReply::text("Two.")]);
        let token = having(entry("s", &Script::default()), json!({"env": {"TOKEN": "${KNOWN_TOKEN}"}}));
        model.temp_home.configure(&[token]);
        let mut window = Window::open(model.chat(arguments).with(|command| {
            command.env("KNOWN_TOKEN", "correct-horse-battery");
        }));
        for (line, answer) in [("first line", "One."), ("it is correct-horse-battery", "Two.")] {
            window.see(PROMPT);
            window.press(&format!("{line}\r"));
            window.see(answer);
        }
        window.see(PROMPT);
        window.press(CTRL_D);
        window.end().expect(0);
        std::fs::read_to_string(model.temp_home.path().join(".local/state/ropeway/chat-history")).unwrap_or_default()
    };
    let kept = talk(&[]);
    assert!(kept.contains("first line") && !kept.contains("correct-horse"), "{kept}");
    assert_eq!(talk(&["--no-save"]), "");
}

#[test]
fn a_continued_chat_shows_the_last_exchange_and_keeps_its_servers() {
    let model = saying(&["Seven,\nof course.", "Again.", "All."]);
    let script = |name: &str| {
        let tool = json!({"name": name, "inputSchema": {"type": "object"}});
        Script::default().tool(tool, json!({"content": []}))
    };
    model.temp_home.configure(&[entry("one", &script("first")), entry("two", &script("second"))]);
    model.run(&["one", "-p", "which number?"]).expect(0);
    let mut window = Window::open(model.bare(&["--continue"]));
    let recap = window.see("of course.");
    assert!(recap.contains("1 turn · only one · which number?") && recap.contains("  › which number?"), "{recap}");
    window.say("more");
    window.see("Again.");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
    let tools = |at: usize| model.server.bodies()[at]["tools"].to_string();
    assert!(tools(1).contains("mcp_one_first") && !tools(1).contains("mcp_two_"), "{}", tools(1));
    // Names choose other servers, and are kept in turn.
    model.bare(&["two", "--continue", "-p", "and now?"]).run().expect(0);
    assert!(tools(2).contains("mcp_two_second") && !tools(2).contains("mcp_one_"), "{}", tools(2));
    // A server that is gone is left out.
    model.temp_home.configure(&[entry("one", &script("first"))]);
    let run = model.bare(&["--continue", "--models"]).run();
    assert!(run.stderr.contains("server `two` of this conversation is not configured"), "{}", run.stderr);
}
