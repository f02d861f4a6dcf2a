//! Commands without a configuration file use the servers of other clients, once the user accepts them.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::chat_terminal::Window;
use crate::client_files::{Home, demo};
use crate::temp_home::TRUST;
use crate::{Ropeway, Run};

const QUESTION: &str = "Trust this file? [y/N] ";
const QUESTIONS: &str = "Trust these files? [y/N] ";

/// A home folder without a configuration file and with an empty trust store.
struct Clients(Home);

impl Clients {
    fn new() -> Self {
        Self(Home::new())
    }

    /// Creates a home folder with the demo server in Cursor.
    fn with_cursor() -> Self {
        let clients = Self::new();
        clients.0.write(".cursor/mcp.json", &servers(&[("mine", demo_entry())]));
        clients
    }

    fn command(&self, arguments: &[&str]) -> Ropeway {
        self.0.command(arguments).with(|command| {
            command.env_remove(TRUST);
        })
    }

    fn run(&self, arguments: &[&str]) -> Run {
        self.command(arguments).run()
    }

    fn window(&self, arguments: &[&str]) -> Window {
        Window::open(self.command(arguments))
    }

    /// Returns a server that creates a file when it starts.
    fn marker(&self) -> (Value, PathBuf) {
        let marker = self.0.path("started");
        (json!({"command": "touch", "args": [marker]}), marker)
    }

    /// Returns the names of the servers that `ropeway tools` lists.
    fn servers(&self) -> Vec<String> {
        let listed = self.run(&["tools", "--json"]).expect(0).json();
        let names = listed["servers"].as_array().expect("servers").iter();
        names.map(|server| server["server"].as_str().expect("a name").to_owned()).collect()
    }
}

fn demo_entry() -> Value {
    json!({"command": env!("CARGO_BIN_EXE_ropeway"), "args": ["demo-server"]})
}

/// Returns the demo server with other settings.
fn other_entry() -> Value {
    json!({"command": env!("CARGO_BIN_EXE_ropeway"), "args": ["demo-server"], "env": {"A": "b"}})
}

fn servers(servers: &[(&str, Value)]) -> String {
    let servers: serde_json::Map<String, Value> =
        servers.iter().map(|(name, server)| ((*name).to_owned(), server.clone())).collect();
    json!({ "mcpServers": servers }).to_string()
}

/// Collapses whitespace.
fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn without_a_terminal_the_demo_server_runs_and_the_others_are_named() {
    let clients = Clients::new();
    let (marker, started) = clients.marker();
    clients.0.write(".cursor/mcp.json", &servers(&[("mine", marker)]));
    for arguments in [&["tools"][..], &["call", "calculate", "expression=6*7"], &["health"], &["prompts"]] {
        let run = clients.run(arguments).expect(0);
        assert_eq!(
            run.stderr.lines().collect::<Vec<_>>(),
            [
                "1 server of Cursor not used (not trusted): use `--trust` for one run, `ropeway trust` or `ropeway import`"
            ],
            "{arguments:?}"
        );
    }
    assert_eq!(clients.servers(), ["demo"]);
    assert!(!started.exists());
}

#[test]
fn other_clients_are_asked_about_once_and_used_from_then_on() {
    let clients = Clients::with_cursor();
    clients.0.write("work/.mcp.json", &servers(&[("theirs", other_entry())]));
    let mut window = clients.window(&["call", "mine.calculate", "expression=6*7"]);
    let review = unwrapped(&window.see(QUESTIONS));
    for words in [
        "No configuration file found. Other clients have servers:",
        "/.cursor/mcp.json is not trusted yet. Content:",
        "work/.mcp.json is not trusted yet. Content:",
        "server `mine`",
        "server `theirs`",
        "In total, it runs 2 commands with your permissions. Trust these files? [y/N]",
    ] {
        assert!(review.contains(words), "{words}: {review}");
    }
    window.press("y\r");
    window.see("42");
    window.end().expect(0);
    let run = clients.run(&["call", "mine.calculate", "expression=6*7"]).expect(0);
    assert_eq!((run.stdout.trim(), run.stderr.as_str()), ("42", ""));
    assert!(clients.run(&["tools", "mine"]).expect(0).stdout.contains("calculate"));
    assert_eq!(clients.run(&["health", "mine", "--json"]).expect(0).json()["servers"][0]["server"], "mine");
}

#[test]
fn a_no_is_remembered_until_the_servers_change() {
    let clients = Clients::with_cursor();
    let mut window = clients.window(&["call", "calculate", "expression=6*7"]);
    window.see(QUESTION);
    window.press("n\r");
    let hint = "1 server of Cursor not used (declined): change that with `ropeway trust` or `ropeway import`";
    assert!(unwrapped(&window.see("42")).contains(hint));
    window.end().expect(0);
    let mut window = clients.window(&["call", "calculate", "expression=6*7"]);
    let shown = unwrapped(&window.see("42"));
    assert!(shown.contains(hint) && !shown.contains("Trust"), "{shown}");
    window.end().expect(0);
    assert_eq!(clients.servers(), ["demo"]);
    let listed = clients.run(&["trust", "--list", "--json"]).expect(0).json();
    assert_eq!(listed["files"][0]["state"], "declined");

    clients.0.write(".cursor/mcp.json", &servers(&[("other", demo_entry())]));
    let mut window = clients.window(&["tools"]);
    assert!(window.see(QUESTION).contains("server `other`"));
    window.press("n\r");
    window.end().expect(0);
    let run = clients.run(&["trust"]).expect(0);
    assert!(run.stdout.contains("/.cursor/mcp.json is now trusted"), "{}", run.stdout);
    assert!(clients.run(&["tools", "other"]).expect(0).stdout.contains("calculate"));
}

#[test]
fn the_own_file_wins() {
    let clients = Clients::new();
    let (marker, started) = clients.marker();
    clients.0.write(".cursor/mcp.json", &servers(&[("marker", marker.clone())]));
    clients.0.write("work/.mcp.json", &servers(&[("marker", marker)]));
    clients.0.write(".config/ropeway/ropeway.yaml", &format!("servers:\n{}", demo("own")));
    for arguments in [&["tools"][..], &["tools", "--trust"], &["call", "own.calculate", "expression=6*7"]] {
        let run = clients.run(arguments).expect(0);
        assert_eq!(run.stderr, "", "{arguments:?}");
    }
    let mut window = clients.window(&["tools"]);
    assert!(!window.see("calculate").contains("Trust"));
    window.end().expect(0);
    assert!(!started.exists());
}

#[test]
fn an_option_that_names_a_server_excludes_other_clients() {
    let clients = Clients::with_cursor();
    let run = clients.run(&["tools", "--trust", "--stdio", concat!(env!("CARGO_BIN_EXE_ropeway"), " demo-server")]);
    assert_eq!(run.expect(0).stderr, "");
}

#[test]
fn the_trust_option_accepts_other_clients_for_one_run() {
    let clients = Clients::with_cursor();
    let run = clients.run(&["call", "mine.calculate", "expression=6*7", "--trust"]).expect(0);
    assert_eq!((run.stdout.trim(), run.stderr.as_str()), ("42", ""));
    assert!(!clients.0.path(".local/state/ropeway/trust.json").exists());
    assert_eq!(clients.servers(), ["demo"]);
}

#[test]
fn other_content_of_a_user_file_needs_no_new_consent() {
    let clients = Clients::new();
    let file = |starts: u32, server: Value| {
        let here = clients.0.path("work");
        let text = json!({
            "numStartups": starts,
            "mcpServers": {"mine": server},
            "projects": {
                here.to_str().expect("text"): {"mcpServers": {"here": demo_entry()}, "lastCost": starts},
                "/elsewhere": {"mcpServers": {"elsewhere": demo_entry()}},
            },
        });
        clients.0.write(".claude.json", &text.to_string());
    };
    file(1, demo_entry());
    clients.run(&["trust"]).expect(0);
    file(2, demo_entry());
    // A server of another project is not started here.
    assert_eq!(clients.servers(), ["mine", "here"]);
    file(3, json!({"command": "other"}));
    assert_eq!(clients.servers(), ["demo"]);
    let mut window = clients.window(&["tools"]);
    let review = unwrapped(&window.see(QUESTION));
    assert!(review.contains("changed since it was trusted") && review.contains("runs other (before: "), "{review}");
    window.press("n\r");
    window.end().expect(0);
    // The servers that were accepted before are still accepted.
    file(4, demo_entry());
    assert_eq!(clients.servers(), ["mine", "here"]);
}

#[test]
fn a_server_of_two_clients_runs_once_and_another_of_its_name_is_renamed() {
    let clients = Clients::with_cursor();
    clients.0.write(".codeium/windsurf/mcp_config.json", &servers(&[("mine", demo_entry())]));
    clients.0.write(".gemini/settings.json", &servers(&[("mine", other_entry())]));
    clients.run(&["trust"]).expect(0);
    assert_eq!(clients.servers(), ["mine", "mine-gemini"]);
}

#[test]
fn files_that_cannot_be_read_are_skipped_with_a_warning() {
    let clients = Clients::with_cursor();
    clients.0.write(".codex/config.toml", "[mcp_servers.a\n");
    for pipe in [".claude.json", "work/.mcp.json"] {
        assert!(Command::new("mkfifo").arg(clients.0.path(pipe)).status().expect("mkfifo").success());
    }
    clients.0.write(".gemini/settings.json", "");
    let huge = std::fs::File::create(clients.0.path(".gemini/settings.json")).expect("a file");
    huge.set_len(1 << 40).expect("a sparse file");
    let run = clients.run(&["call", "mine.calculate", "expression=6*7", "--trust"]).expect(0);
    assert_eq!(run.stdout.trim(), "42");
    let warnings: Vec<&str> = run.stderr.lines().collect();
    assert_eq!(warnings.len(), 2, "{}", run.stderr);
    for (warning, words) in
        warnings.iter().zip(["/.codex/config.toml` of Codex: ", "/.gemini/settings.json` of Gemini CLI: "])
    {
        assert!(warning.starts_with("warning: skipped `") && warning.contains(words), "{warning}");
    }
}

#[test]
fn consent_to_other_clients_can_be_revoked() {
    let clients = Clients::with_cursor();
    clients.0.write("work/.mcp.json", &servers(&[("theirs", other_entry())]));
    clients.run(&["trust"]).expect(0);
    assert_eq!(clients.servers(), ["theirs", "mine"]);
    let listed = clients.run(&["trust", "--list", "--json"]).expect(0).json();
    let states: Vec<&Value> = listed["files"].as_array().expect("files").iter().map(|file| &file["state"]).collect();
    assert_eq!(states, ["trusted", "trusted"]);
    clients.run(&["trust", "--revoke", "../.cursor/mcp.json"]).expect(0);
    assert_eq!(clients.servers(), ["theirs"]);
    clients.run(&["trust", "../.cursor/mcp.json"]).expect(0);
    assert_eq!(clients.servers(), ["theirs", "mine"]);
    clients.run(&["trust", "--revoke"]).expect(0);
    assert_eq!(clients.servers(), ["demo"]);
}

#[test]
fn no_env_file_of_the_project_is_read_for_other_clients() {
    let clients = Clients::new();
    let server =
        json!({"command": env!("CARGO_BIN_EXE_ropeway"), "args": ["demo-server"], "env": {"A": "${SET_HERE}"}});
    clients.0.write(".cursor/mcp.json", &servers(&[("mine", server)]));
    clients.0.write("work/.env", "SET_HERE=evil\n");
    let run = clients.run(&["health", "--trust"]);
    assert!(run.stdout.contains("`SET_HERE` is not set"), "{}\n{}", run.stdout, run.stderr);
}

#[test]
fn gateways_and_keys_use_only_the_own_configuration() {
    let clients = Clients::with_cursor();
    for arguments in [&["lock"][..], &["up"], &["install", "zed"]] {
        let run = clients.run(arguments).expect(2);
        assert!(!run.stderr.contains("Cursor"), "{arguments:?}: {}", run.stderr);
    }
}

#[test]
fn a_folder_that_a_person_stands_in_cannot_replace_servers_of_other_clients() {
    let clients = Clients::new();
    let server = |name: &str| {
        let script =
            format!("pwd > {}; exec {} demo-server\n", clients.0.path(name).display(), env!("CARGO_BIN_EXE_ropeway"));
        clients.0.write(&format!("work/{name}.sh"), &script);
        json!({"command": "sh", "args": [format!("{name}.sh")]})
    };
    clients.0.write("work/.mcp.json", &servers(&[("theirs", server("theirs"))]));
    clients.0.write(".cursor/mcp.json", &servers(&[("mine", server("mine"))]));
    clients.run(&["tools", "theirs", "--trust"]).expect(0);
    clients.run(&["tools", "mine", "--trust"]).expect(3);
    assert!(clients.0.read("theirs").ends_with("/work\n") && !clients.0.path("mine").exists());
    std::fs::rename(clients.0.path("work/mine.sh"), clients.0.path("mine.sh")).expect("moved");
    clients.run(&["tools", "mine", "--trust"]).expect(0);
    assert!(!clients.0.read("mine").ends_with("/work\n"));
}
