//! Attachments of a prompt: standard input, `--attach` and `@FILE`.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use ropeway_core::message::Dialect;
use ropeway_testing::ScriptedReply;
use serde_json::{Value, json};

use crate::chat::{Model, said};
use crate::chat_terminal::{CTRL_D, PROMPT, Window};

/// A minimal PNG image.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01";

fn saying(texts: &[&str]) -> Model {
    Model::saying(texts.iter().map(|text| ScriptedReply::text(*text)))
}

impl Model {
    /// Runs a prompt with this standard input.
    fn beside(&self, input: impl Into<Stdio>, arguments: &[&str]) -> crate::Ropeway {
        let input = input.into();
        self.chat(&[&["-p", "add them", "--no-tools"], arguments].concat()).with(|command| {
            command.stdin(input);
        })
    }
}

#[test]
fn standard_input_is_added_to_a_prompt() {
    let model = saying(&["A.", "B."]);
    let file = model.temp_home.write("data", "1 and 2\n");
    let run = model.beside(std::fs::File::open(file).expect("a file"), &[]).run().expect(0);
    assert_eq!(run.stderr, "");
    assert_eq!(model.wait_for(), said(&[("user", "[standard input]\n1 and 2\n\nadd them")]));
    let run = model.fed(&["-p", "add them", "--no-tools"], "3 and 4\n").expect(0);
    assert_eq!(run.stderr, "");
    assert_eq!(model.wait_for(), said(&[("user", "[standard input]\n3 and 4\n\nadd them")]));
}

#[test]
fn empty_standard_input_does_not_block() {
    let model = saying(&["A.", "B.", "C."]);
    model.beside(Stdio::null(), &[]).run().expect(0);
    model.fed(&["-p", "add them", "--no-tools"], " \n").expect(0);
    // Some parent processes leave a silent socket open.
    let (_open, silent) = UnixStream::pair().expect("sockets");
    model.beside(OwnedFd::from(silent), &[]).run().expect(0);
    for body in model.server.bodies() {
        assert_eq!(body["messages"], json!([{"role": "user", "content": "add them"}]));
    }
}

#[test]
fn a_socket_that_sends_data_is_added() {
    let model = saying(&["A."]);
    let (mut ours, theirs) = UnixStream::pair().expect("sockets");
    ours.write_all(b"5 and 6").expect("a socket");
    drop(ours);
    model.beside(OwnedFd::from(theirs), &[]).run().expect(0);
    assert_eq!(model.wait_for(), said(&[("user", "[standard input]\n5 and 6\nadd them")]));
}

#[test]
fn standard_input_is_bounded_in_size_and_time() {
    let model = saying(&[]);
    let huge = model.temp_home.path().join("huge");
    std::fs::File::create(&huge).and_then(|file| file.set_len(1 << 30)).expect("a sparse file");
    let run = model.beside(std::fs::File::open(&huge).expect("a file"), &[]).run().expect(2);
    assert!(run.stderr.starts_with("error: standard input is larger than 10 MiB\n"), "{}", run.stderr);
    std::fs::write(&huge, b"caf\xe9").expect("a file");
    let run = model.beside(std::fs::File::open(&huge).expect("a file"), &[]).run().expect(2);
    assert!(run.stderr.starts_with("error: standard input is not UTF-8 text\n"), "{}", run.stderr);
    let (silent, _open) = std::io::pipe().expect("a pipe");
    let run = model.beside(silent, &["--timeout", "1s"]).run().expect(5);
    assert!(run.stderr.contains("standard input is still open; use `< /dev/null` to skip it"), "{}", run.stderr);
    assert_eq!(model.server.requests().len(), 0);
}

/// Returns the parts of the last message to the model.
fn parts(model: &Model) -> Vec<Value> {
    let bodies = model.server.bodies();
    let message = bodies.last().and_then(|body| body["messages"].as_array()?.last().cloned()).expect("a message");
    message["content"].as_array().cloned().unwrap_or_default()
}

#[test]
fn files_are_sent_with_their_names() {
    let model = saying(&["Seen.", "Still seen."]);
    model.temp_home.write("my notes.txt", "buy milk");
    std::fs::write(model.temp_home.path().join("photo.png"), PNG).expect("a file");
    std::fs::write(model.temp_home.path().join("paper.pdf"), b"%PDF-1.4\n").expect("a file");
    let prompt = "look at @photo.png, and @\"my notes.txt\" (@~/paper.pdf) for @ada and ada@example.com";
    model.run(&["-p", prompt, "--attach", "photo.png", "--no-tools"]).expect(0);
    let sent = parts(&model);
    let text = |part: &Value| part["text"].as_str().unwrap_or_default().to_owned();
    let image = |part: &Value| part["image_url"]["url"].as_str().is_some_and(|url| url.starts_with("data:image/png;"));
    assert_eq!(text(&sent[0]), "[attached file: photo.png]");
    assert!(image(&sent[1]), "{}", sent[1]);
    assert!(sent.iter().any(|part| text(part).contains("my notes.txt]\nbuy milk")), "{sent:?}");
    assert!(sent.iter().any(|part| part["file"]["filename"] == "paper.pdf"), "{sent:?}");
    assert_eq!(text(sent.last().expect("a prompt")), prompt);
    // Attached files are part of the saved conversation.
    model.run(&["--continue", "-p", "what was it?", "--no-tools"]).expect(0);
    let first = model.server.bodies()[1]["messages"][0]["content"].as_array().cloned().expect("parts");
    assert_eq!(first, sent);
    let listed = model.temp_home.run("chat --list --json").expect(0).json();
    assert!(listed[0]["title"].as_str().is_some_and(|title| title.starts_with("look at @photo.png, ")), "{listed}");
}

#[test]
fn all_four_providers_get_text_images_and_pdfs_with_their_names() {
    for (provider, dialect) in [
        ("anthropic", Dialect::Anthropic),
        ("openai", Dialect::Responses),
        ("gemini", Dialect::Gemini),
        ("chat", Dialect::Chat),
    ] {
        let model = Model::answering([ScriptedReply::text("Seen.").answer(dialect)]);
        model.temp_home.write("notes.txt", "buy milk");
        std::fs::write(model.temp_home.path().join("photo.png"), PNG).expect("a file");
        std::fs::write(model.temp_home.path().join("paper.pdf"), b"%PDF-1.4\n").expect("a file");
        let files = ["--attach", "notes.txt", "--attach", "photo.png", "--attach", "paper.pdf"];
        let run =
            model.chat(&[&["--provider", provider, "--no-tools", "-p", "look"], &files[..]].concat()).run().expect(0);
        assert_eq!(run.stdout, "Seen.\n", "{}", run.stderr);
        let body = model.server.bodies()[0].to_string();
        for words in ["notes.txt", "buy milk", "photo.png", "iVBORw0KGgo", "paper.pdf", "JVBERi0xLjQK", "look"] {
            assert!(body.contains(words), "{provider} lacks {words}: {body}");
        }
        std::fs::write(model.temp_home.path().join("moving.gif"), b"GIF89a\0\0").expect("a file");
        let run = model.chat(&["--provider", provider, "--no-tools", "-p", "@moving.gif"]).run();
        let is_refused =
            run.stderr.starts_with("error: could not attach `moving.gif`: Gemini does not support GIF images\n");
        assert_eq!((is_refused, run.code == Some(2)), (dialect == Dialect::Gemini, dialect == Dialect::Gemini));
    }
}

#[test]
fn an_invalid_attachment_ends_the_command_before_the_request() {
    let model = saying(&[]);
    let temp_home = model.temp_home.path();
    std::fs::create_dir(temp_home.join("folder")).expect("a folder");
    std::fs::write(temp_home.join("photo.png"), "<html>not found</html>").expect("a file");
    std::fs::write(temp_home.join("program"), b"\x7fELF\x02\0").expect("a file");
    std::fs::File::create(temp_home.join("huge.txt")).and_then(|file| file.set_len(1 << 30)).expect("a sparse file");
    let made = std::process::Command::new("mkfifo").arg(temp_home.join("pipe")).status().expect("mkfifo");
    assert!(made.success());
    for (name, problem) in [
        ("folder", "is a directory"),
        ("pipe", "not a regular file"),
        ("/dev/zero", "not a regular file"),
        ("missing.txt", "no such file"),
        ("huge.txt", "larger than 32 MiB"),
        ("program", "binary data is not supported; only text, images and PDFs can be attached"),
        ("photo.png", "contains text, but its name ends in `.png`"),
    ] {
        let words = format!("error: could not attach `{name}`: {problem}\n");
        let run = model.run(&["-p", "look", "--attach", name, "--no-tools"]).expect(2);
        assert!(run.stderr.starts_with(&words), "{}", run.stderr);
        let run = model.run(&["-p", &format!("look at @{name}."), "--no-tools"]).expect(2);
        assert!(run.stderr.starts_with(&words), "{}", run.stderr);
    }
    assert_eq!(model.server.requests().len(), 0);
}

#[test]
fn lines_of_a_script_and_messages_from_standard_input_attach_nothing() {
    let model = saying(&["A.", "B."]);
    model.temp_home.write("secret.txt", "the secret");
    model.fed(&["--no-tools"], "look at @secret.txt\n").expect(0);
    model.fed(&["--no-tools", "-p", "-"], "look at @secret.txt\n").expect(0);
    for body in model.server.bodies() {
        assert!(!body.to_string().contains("the secret"), "{body}");
    }
}

#[test]
fn files_are_attached_in_a_chat_unless_one_is_invalid() {
    let model = saying(&["Read.", "Done."]);
    model.temp_home.write("notes.txt", "buy milk");
    model.temp_home.write("other.txt", "and bread");
    let mut window = Window::open(model.chat(&["--no-tools", "--attach", "notes.txt"]));
    window.say("compare with @missing.txt");
    window.see("could not attach `missing.txt`: no such file");
    window.say("compare with @other.txt");
    window.see("attached notes.txt (text, 8 B)");
    window.see("attached other.txt (text, 9 B)");
    window.see("Read.");
    window.say("thanks @ada");
    window.see("Done.");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
    let bodies = model.server.bodies();
    assert_eq!(bodies.len(), 2);
    let first = bodies[0]["messages"][0]["content"].to_string();
    assert!(first.contains("buy milk") && first.contains("and bread"), "{first}");
    assert_eq!(bodies[1]["messages"][2]["content"], "thanks @ada");
}
