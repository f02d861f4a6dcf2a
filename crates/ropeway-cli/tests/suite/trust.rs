//! Trust in project files: an untrusted file has no effect before the user accepts it.

use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::chat::Model;
use crate::chat_terminal::Window;
use crate::client_files::{Home, demo};
use crate::temp_home::TRUST;
use crate::{Ropeway, Run};

const QUESTION: &str = "Trust this file? [y/N] ";

/// An untrusted project directory, with an empty trust store.
struct Project(Home);

impl Project {
    fn new(config: &str) -> Self {
        Self(Home::with_config(config))
    }

    /// Creates a project with the demo server.
    fn with_demo() -> Self {
        Self::new(&format!("servers:\n{}", demo("mine")))
    }

    fn command(&self, arguments: &[&str]) -> Ropeway {
        self.0.command(arguments).with(|command| {
            command.env_remove(TRUST).env_remove("ROPEWAY_CONFIG");
        })
    }

    fn run(&self, arguments: &[&str]) -> Run {
        self.command(arguments).run()
    }

    fn configure(&self, config: &str) {
        self.0.write("work/ropeway.yaml", config);
    }

    fn file(&self) -> PathBuf {
        self.0.path("work/ropeway.yaml")
    }

    fn store(&self) -> PathBuf {
        self.0.path(".local/state/ropeway/trust.json")
    }

    /// Returns a server that creates a file when it starts.
    fn marker(&self) -> (String, PathBuf) {
        let marker = self.0.path("started");
        (format!("  - alias: marker\n    command: touch\n    args: ['{}']\n", marker.display()), marker)
    }
}

/// Collapses whitespace.
fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn an_untrusted_file_starts_reads_and_connects_to_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("a listener");
    let port = listener.local_addr().expect("an address").port();
    let project = Project::new("");
    let (marker, started) = project.marker();
    let config = format!(
        "servers:\n{marker}  - alias: web\n    url: http://127.0.0.1:{port}/mcp\n    headers: {{X-One: '${{AWS_SECRET_ACCESS_KEY}}', X-Two: '${{file:pipe}}'}}\nchat: {{provider: anthropic, base_url: 'http://127.0.0.1:{port}', key: '${{ANTHROPIC_API_KEY}}'}}\n"
    );
    project.configure(&config);
    for pipe in ["work/pipe", "work/secrets.env"] {
        assert!(Command::new("mkfifo").arg(project.0.path(pipe)).status().expect("mkfifo").success());
    }
    // Reading this file would cause a warning.
    project.0.write("work/.env", "this line is broken\nAWS_SECRET_ACCESS_KEY=from-dotenv\n");
    let command = |arguments: &[&str]| {
        project.command(arguments).with(|command| {
            command.env("AWS_SECRET_ACCESS_KEY", "aws-s3cret").env("ANTHROPIC_API_KEY", "anthropic-s3cret");
        })
    };
    for arguments in [
        &["tools"][..],
        &["tools", "--json"],
        &["tools", "web"],
        &["call", "web.x"],
        &["call", "x", "--json"],
        &["health"],
        &["doctor"],
        &["doctor", "--json"],
        &["resources"],
        &["read", "x://y"],
        &["prompts"],
        &["prompt", "x"],
        &["events", "--timeout", "5s"],
        &["chat", "-p", "hi"],
        &["chat", "--models"],
        &["config", "check", "--connect"],
        &["add", "more", "--", "cat"],
    ] {
        let run = command(arguments).run().expect(2);
        let expected = ["ropeway.yaml` is not trusted; it was not used", "run `ropeway trust`", "ROPEWAY_TRUST=1"];
        assert!(expected.iter().all(|words| run.stderr.contains(words)), "{arguments:?}: {}", run.stderr);
        let shown = run.stdout + &run.stderr;
        assert!(!shown.contains("s3cret") && !shown.contains("left out"), "{arguments:?}: {shown}");
    }
    for arguments in [&[][..], &["--json"], &["config", "check"], &["config", "path"], &["config", "path", "--json"]] {
        let run = command(arguments).run().expect(0);
        assert!(run.stdout.contains("trust"), "{arguments:?}: {}", run.stdout);
        let shown = run.stdout + &run.stderr;
        assert!(!shown.contains("s3cret") && !shown.contains("left out"), "{arguments:?}: {shown}");
    }
    assert_eq!(project.0.read("work/ropeway.yaml"), config);
    assert!(!started.exists() && !project.store().exists());
    assert_eq!(listener.accept().expect_err("nobody came").kind(), ErrorKind::WouldBlock);
    // With `--trust` the file has these effects, so the checks above are meaningful.
    fs::remove_file(project.0.path("work/pipe")).expect("removed");
    project.0.write("work/pipe", "a secret");
    let run = command(&["tools", "marker", "--trust", "--timeout", "20s"]).run();
    assert!(started.exists(), "{}", run.stderr);
    assert!(!project.store().exists(), "nothing is remembered");
}

#[test]
fn a_file_is_trusted_by_content_and_changes_are_described() {
    let project = Project::with_demo();
    project.run(&["tools"]).expect(2);
    let run = project.run(&["trust"]).expect(0);
    assert!(run.stderr.contains("server `mine`\n  runs  ") && run.stderr.contains(" demo-server\n"), "{}", run.stderr);
    assert!(run.stdout.ends_with("ropeway.yaml is now trusted\n"), "{}", run.stdout);
    assert!(project.run(&["trust"]).expect(0).stdout.contains("is already trusted"));
    let run = project.run(&["call", "calculate", "expression=6*7"]).expect(0);
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("42\n", ""));
    // The state is readable by its owner only.
    let mode = |path: &Path| fs::metadata(path).expect("a file").permissions().mode() & 0o777;
    assert_eq!((mode(&project.store()), mode(project.store().parent().expect("a folder"))), (0o600, 0o700));

    let (marker, started) = project.marker();
    project.configure(&format!("servers:\n{}    env: {{A: '${{B:-c}}'}}\n{marker}", demo("mine")));
    let run = project.run(&["tools"]).expect(2);
    let expected = [
        "changed since it was trusted",
        "server `mine`: now sets A=${B:-c}",
        "server `marker` added: runs touch ",
        "run `ropeway trust`",
    ];
    assert!(expected.iter().all(|words| run.stderr.contains(words)), "{}", run.stderr);
    assert!(!started.exists());
    let run = project.run(&["trust"]).expect(0);
    assert!(run.stderr.contains("Changes\n") && run.stderr.contains("now sets A=${B:-c}"), "{}", run.stderr);
    project.run(&["health", "mine"]).expect(0);
}

#[test]
fn comments_and_layout_need_no_new_trust() {
    let project = Project::new(&format!("servers:\n{}", demo("mine")));
    project.run(&["trust"]).expect(0);
    project.configure(&format!("# mine\n\nservers: # all\n{}\n", demo("mine").replace("args: [", "args: [  ")));
    project.run(&["health", "mine"]).expect(0);
    assert!(project.run(&["trust"]).expect(0).stdout.contains("is already trusted"));
    project.configure(&format!("servers:\n{}", demo("mine").replace("demo-server", "demo-server, x")));
    project.run(&["health", "mine"]).expect(2);
    // A comment that becomes content is a change.
    project.configure(&format!("servers:\n{}#   cwd: /\n", demo("mine")));
    project.run(&["health", "mine"]).expect(0);
    project.configure(&format!("servers:\n{}    cwd: /\n", demo("mine")));
    project.run(&["health", "mine"]).expect(2);
}

#[test]
fn a_change_deep_in_a_long_argument_is_reported() {
    let config = |end: &str| {
        let server = json!({"alias": "a", "command": "sh", "args": ["-c", format!("{} {end}", "true;".repeat(1000))]});
        json!({"servers": [server]}).to_string()
    };
    let project = Project::new(&config("exec server"));
    let run = project.run(&["trust"]).expect(0);
    assert!(run.stderr.contains("true; exec server"), "the review is whole: {}", run.stderr);
    project.configure(&config("touch OWNED"));
    let run = project.run(&["tools"]).expect(2);
    assert!(run.stderr.contains("server `a`: runs sh -c") && !run.stderr.contains("formatting"), "{}", run.stderr);
}

#[test]
fn trusted_files_are_listed_and_revoked() {
    let project = Project::with_demo();
    assert_eq!(project.run(&["trust", "--list"]).expect(0).stdout, "no trusted files\n");
    let accepted = project.run(&["trust", "--json"]).expect(0).json();
    assert_eq!((&accepted["trusted"], &accepted["review"][0]["title"]), (&json!(true), &json!("server `mine`")));
    let path = |state: &str| {
        let listed = project.run(&["trust", "--list", "--json"]).expect(0).json();
        let files = listed["files"].as_array().expect("files").clone();
        assert_eq!((files.len(), &files[0]["state"]), (1, &json!(state)));
        assert_eq!(files[0]["sha256"], accepted["sha256"]);
        files[0]["file"].clone()
    };
    assert_eq!(path("trusted"), json!(fs::canonicalize(project.file()).expect("a path")));
    let paths = || project.run(&["config", "path", "--json"]).expect(0).json();
    let trust = |paths: &Value| paths["places"][0]["trust"].clone();
    assert_eq!(trust(&paths()), "trusted");
    assert!(project.run(&["config", "path"]).expect(0).stdout.contains("ropeway.yaml, trusted"));
    project.configure("servers: []\n");
    path("changed");
    assert_eq!(trust(&paths()), "changed");
    let list = project.run(&["trust", "--list"]).expect(0).stdout;
    assert!(list.contains("changed") && list.contains("ropeway.yaml"), "{list}");
    fs::remove_file(project.file()).expect("removed");
    path("missing");
    assert!(project.run(&["trust", "--revoke"]).expect(0).stdout.contains("is no longer trusted"));
    assert!(project.run(&["trust", "--revoke"]).expect(0).stdout.contains("was not trusted"));
    let run = project.run(&["trust"]).expect(2);
    assert!(run.stderr.contains("no project file"), "{}", run.stderr);

    project.0.write("other/ropeway.yaml", "servers: []\n");
    project.run(&["trust", "../other/ropeway.yaml"]).expect(0);
    let revoked = project.run(&["trust", "--revoke", "../other/ropeway.yaml", "--json"]).expect(0).json();
    assert_eq!(revoked["revoked"], true);
}

#[test]
fn named_files_and_the_trust_option_need_no_review() {
    let project = Project::with_demo();
    let with = |name: &'static str, value: &'static str, arguments: &[&str]| {
        project.command(arguments).with(|command| {
            command.env(name, value);
        })
    };
    project.run(&["tools", "--trust"]).expect(0);
    project.run(&["--trust", "tools"]).expect(0);
    with(TRUST, "1", &["tools"]).run().expect(0);
    with(TRUST, "0", &["tools"]).run().expect(2);
    with(TRUST, "", &["tools"]).run().expect(2);
    for arguments in [&["tools"][..], &["tools", "--trust"], &["completions", "bash"]] {
        let run = with(TRUST, "yes", arguments).run().expect(2);
        assert!(run.stderr.contains("invalid value `yes` for `ROPEWAY_TRUST`"), "{}", run.stderr);
    }
    project.run(&["tools", "--config", "ropeway.yaml"]).expect(0);
    project.run(&["config", "check", "ropeway.yaml", "--connect"]).expect(0);
    let run = with("ROPEWAY_CONFIG", "ropeway.yaml", &["tools"]).run().expect(0);
    let warning =
        "warning: `ROPEWAY_CONFIG` is the relative path `ropeway.yaml`, which trusts the file of every directory";
    assert_eq!(run.stderr.matches(warning).count(), 1, "{}", run.stderr);
    for run in [project.run(&["trust", "--trust"]), with(TRUST, "1", &["trust"]).run()] {
        assert!(run.expect(2).stderr.contains("apply to a single run"));
    }
    assert!(!project.store().exists(), "nothing is remembered");
    // Without a file, the demo server needs no trust.
    fs::remove_file(project.file()).expect("removed");
    project.run(&["tools"]).expect(0);
    // The user's own file needs no trust, but a link to it from elsewhere does.
    project.0.write(".config/ropeway/ropeway.yaml", &format!("servers:\n{}", demo("own")));
    project.run(&["health", "own"]).expect(0);
    let own = project.0.path(".config/ropeway");
    let inside = project.command(&["health", "own"]).with(|command| {
        command.current_dir(&own);
    });
    inside.run().expect(0);
    assert!(project.run(&["trust"]).expect(0).stdout.contains("needs no trust: it is the user configuration file"));
    std::os::unix::fs::symlink(own.join("ropeway.yaml"), project.file()).expect("a link");
    let run = project.run(&["health", "own"]).expect(2);
    assert!(
        run.stderr.contains("is not trusted") && run.stderr.contains("the file is a symbolic link to"),
        "{}",
        run.stderr
    );
}

#[test]
fn at_a_terminal_the_review_is_shown_and_asked_once() {
    let project = Project::new(&format!(
        "servers:\n{}  - {{alias: web, url: 'http://127.0.0.1:9/mcp', headers: {{X: '${{AWS_SECRET_ACCESS_KEY}}'}}, enabled: false}}\n",
        demo("mine")
    ));
    for answer in ["n\r", "\r", "yess\r", "\u{4}"] {
        let mut window = Window::open(project.command(&["tools"]));
        let review = window.see(QUESTION);
        for words in ["is not trusted yet", "server `mine`", "demo-server", "connects to  http://127.0.0.1:9/mcp"] {
            assert!(review.contains(words), "{words}: {review}");
        }
        let count =
            "It runs 1 command with your permissions, connects to 1 URL, and reads 1 environment variable and 1 file.";
        for words in ["sends $AWS_SECRET_ACCESS_KEY to 127.0.0.1:9", count] {
            assert!(unwrapped(&review).contains(words), "{words}: {review}");
        }
        window.press(answer);
        window.see("is not trusted; nothing was started");
        window.end().expect(2);
    }
    assert!(!project.store().exists());
    let mut window = Window::open(project.command(&["call", "calculate", "expression=6*7"]));
    window.see(QUESTION);
    window.press("y\r");
    window.see("42");
    window.end().expect(0);
    project.run(&["call", "calculate", "expression=6*7"]).expect(0);

    project.configure(&project.0.read("work/ropeway.yaml").replace("[demo-server]", "[demo-server, --evil]"));
    let mut window = Window::open(project.command(&["trust"]));
    let review = unwrapped(&window.see(QUESTION));
    assert!(review.contains("changed since it was trusted"), "{review}");
    assert!(review.contains("server `mine`: runs ") && review.contains(" demo-server --evil (before: "), "{review}");
    window.press("Yes\r");
    window.see("is now trusted");
    window.end().expect(0);
}

#[test]
fn signals_at_the_question_end_the_command() {
    let project = Project::with_demo();
    // Before a chat starts, SIGINT is not handled, and a shell without job control makes its children ignore it.
    for (arguments, signal) in [(&["tools"][..], Signal::INT), (&["chat", "--model", "m"], Signal::TERM)] {
        let mut window = Window::open(project.command(arguments));
        window.see(QUESTION);
        window.signal(signal);
        assert!(window.end().code != Some(0));
    }
    assert!(!project.store().exists());
}

#[test]
fn the_reviewed_content_runs_even_if_the_file_changes() {
    let project = Project::with_demo();
    let (marker, started) = project.marker();
    let mut window = Window::open(project.command(&["call", "calculate", "expression=6*7"]));
    window.see(QUESTION);
    project.configure(&format!("servers:\n{}{marker}", demo("mine")));
    window.press("y\r");
    window.see("42");
    window.end().expect(0);
    assert!(!started.exists());
    // The stored content is the reviewed one.
    let run = project.run(&["tools"]).expect(2);
    assert!(run.stderr.contains("server `marker` added: runs touch"), "{}", run.stderr);
    assert!(!started.exists());
}

#[test]
fn the_chat_settings_are_reviewed_before_the_chat_starts() {
    let project = Project::new(
        "servers: []\nchat: {provider: chat, base_url: 'http://127.0.0.1:9/v1', model: parrot, tools: {allow: ['*']}}\n",
    );
    let mut window = Window::open(project.command(&["chat"]));
    let review = window.see(QUESTION);
    assert!(review.contains("connects to            chat at http://127.0.0.1:9/v1"), "{review}");
    assert!(review.contains("allows without asking  *"), "{review}");
    window.press("y\r");
    window.see("/help for commands");
    window.see("› ");
    window.press("\u{4}");
    window.end().expect(0);
}

#[test]
fn a_link_is_shown_with_its_target_and_trusted_with_it() {
    let project = Project::new("");
    project.0.write("shared/ropeway.yaml", &format!("servers:\n{}", demo("mine")));
    fs::remove_file(project.file()).expect("removed");
    std::os::unix::fs::symlink("../shared/ropeway.yaml", project.file()).expect("a link");
    // Trust in the target does not extend to the link.
    project.run(&["trust", "../shared/ropeway.yaml"]).expect(0);
    project.run(&["tools"]).expect(2);
    let run = project.run(&["trust"]).expect(0);
    let target = fs::canonicalize(project.0.path("shared/ropeway.yaml")).expect("a path");
    assert!(
        run.stderr.contains(&format!("warning: the file is a symbolic link to `{}`", target.display())),
        "{}",
        run.stderr
    );
    project.run(&["tools"]).expect(0);
    project.0.write("other/ropeway.yaml", &format!("servers:\n{}", demo("mine")));
    fs::remove_file(project.file()).expect("removed");
    std::os::unix::fs::symlink("../other/ropeway.yaml", project.file()).expect("a link");
    project.run(&["tools"]).expect(2);
}

#[test]
fn a_broken_store_is_renamed_and_a_newer_one_is_not_changed() {
    let project = Project::with_demo();
    project.run(&["trust"]).expect(0);
    let aside = project.store().with_file_name("trust.json.broken-1");
    fs::write(project.store(), "garbage").expect("written");
    for arguments in [&["tools"][..], &["trust", "--list"], &["trust", "--revoke"]] {
        let run = project.run(arguments).expect(2);
        assert!(run.stderr.contains("trust.json` is damaged"), "{arguments:?}: {}", run.stderr);
    }
    project.run(&["tools", "--trust"]).expect(0);
    assert_eq!(fs::read_to_string(project.store()).expect("a file"), "garbage");
    let run = project.run(&["trust"]).expect(0);
    assert!(run.stderr.contains("the trust store was damaged: moved it to"), "{}", run.stderr);
    assert_eq!(fs::read_to_string(aside).expect("a file"), "garbage");
    project.run(&["tools"]).expect(0);

    let newer = r#"{"version": 9, "anything": []}"#;
    fs::write(project.store(), newer).expect("written");
    for arguments in [&["tools"][..], &["trust"], &["trust", "--list"]] {
        let run = project.run(arguments).expect(2);
        assert!(run.stderr.contains("written by a newer version of ropeway"), "{arguments:?}: {}", run.stderr);
    }
    assert_eq!(fs::read_to_string(project.store()).expect("a file"), newer);
}

#[test]
fn without_a_store_an_answer_applies_to_one_run() {
    let project = Project::with_demo();
    // Root can write into any directory, but not below a file.
    project.0.write(".local", "in the way");
    assert!(project.run(&["trust"]).expect(2).stderr.contains("use `--trust` to trust the file for one run"));
    project.run(&["tools", "--trust"]).expect(0);
    let mut window = Window::open(project.command(&["call", "calculate", "expression=6*7"]));
    window.see(QUESTION);
    window.press("y\r");
    window.see("the answer applies to this run only");
    window.see("42");
    window.end().expect(0);
    project.run(&["tools"]).expect(2);
    // `ropeway add` writes the file, which needs trust later.
    fs::remove_file(project.file()).expect("removed");
    let run = project.run(&["add", "time", "--", "cat"]).expect(0);
    assert!(
        run.stderr.contains("warning: ") && run.stderr.contains("run `ropeway trust ropeway.yaml`"),
        "{}",
        run.stderr
    );
}

#[test]
fn concurrent_trust_commands_lose_nothing() {
    let project = Project::new("servers: []\n");
    let names: Vec<String> = (0..8).map(|number| format!("../{number}/ropeway.yaml")).collect();
    names.iter().for_each(|name| project.0.write(&name[3..], "servers: []\n"));
    let running: Vec<_> = names.iter().map(|name| project.command(&["trust", name]).start()).collect();
    running.into_iter().for_each(|running| drop(running.end().expect(0)));
    let listed = project.run(&["trust", "--list", "--json"]).expect(0).json();
    let files = listed["files"].as_array().expect("files");
    assert!(files.len() == 8 && files.iter().all(|file| file["state"] == "trusted"), "{listed}");
}

#[test]
fn a_file_that_others_own_or_may_write_causes_a_warning() {
    let project = Project::with_demo();
    fs::set_permissions(project.file(), fs::Permissions::from_mode(0o666)).expect("permissions");
    let run = project.run(&["tools"]).expect(2);
    assert!(run.stderr.contains("the file is writable by all users"), "{}", run.stderr);
    fs::set_permissions(project.file(), fs::Permissions::from_mode(0o600)).expect("permissions");
    project.run(&["trust"]).expect(0);
    project.run(&["tools"]).expect(0);
    // Only root can give a file away.
    if fs::metadata(project.file()).expect("a file").uid() == 0
        && std::os::unix::fs::chown(project.file(), Some(12345), None).is_ok()
    {
        let run = project.run(&["tools"]).expect(2);
        assert!(run.stderr.contains("the file is owned by another user (uid 12345)"), "{}", run.stderr);
    }
}

#[test]
fn trust_with_yes_shows_the_file_and_does_not_ask() {
    let project = Project::with_demo();
    let mut window = Window::open(project.command(&["trust", "-y"]));
    let shown = window.see("is now trusted");
    assert!(shown.contains("server `mine`") && !shown.contains(QUESTION), "{shown}");
    window.end().expect(0);
    project.run(&["tools"]).expect(0);
    project.run(&["trust", "--yes", "--revoke"]).expect(2);
}

#[test]
fn add_keeps_a_trusted_file_trusted_and_refuses_an_untrusted_one() {
    let project = Project::new("");
    fs::remove_file(project.file()).expect("removed");
    let demo_server = [env!("CARGO_BIN_EXE_ropeway"), "demo-server"];
    project.run(&[&["add", "one", "--"][..], &demo_server].concat()).expect(0);
    project.run(&["health", "one"]).expect(0);
    project.run(&[&["add", "two", "--"][..], &demo_server].concat()).expect(0);
    project.run(&["health", "two"]).expect(0);
    project.run(&["remove", "two"]).expect(0);
    project.run(&["health", "one"]).expect(0);
    // An edit by ropeway does not trust the changes of others.
    let (marker, started) = project.marker();
    let changed = project.0.read("work/ropeway.yaml") + &marker;
    project.configure(&changed);
    let run = project.run(&[&["add", "two", "--"][..], &demo_server].concat()).expect(2);
    assert!(run.stderr.contains("changed since it was trusted"), "{}", run.stderr);
    assert_eq!(project.0.read("work/ropeway.yaml"), changed);
    project.run(&["--trust", "add", "two", "--", demo_server[0], demo_server[1]]).expect(0);
    project.run(&["remove", "two"]).expect(0);
    project.run(&["add", "--config", "ropeway.yaml", "three", "--", "cat"]).expect(0);
    project.run(&["health", "one"]).expect(2);
    assert!(!started.exists());
}

#[test]
fn project_files_of_other_clients_are_reviewed_before_import() {
    let project = Project::new("");
    fs::remove_file(project.file()).expect("removed");
    let theirs = r#"{"mcpServers": {"evil": {"command": "touch", "args": ["${HOME}/x"]}, "broken": {"command": 1}}}"#;
    project.0.write("work/.mcp.json", theirs);
    let run = project.run(&["import"]).expect(2);
    assert!(run.stderr.contains(".mcp.json` is not trusted"), "{}", run.stderr);
    assert!(run.stderr.contains("run `ropeway trust .mcp.json` to review"), "{}", run.stderr);
    assert!(!project.file().exists());
    let run = project.run(&["import", "--dry-run"]).expect(2);
    assert!(run.stderr.contains(".mcp.json` is not trusted"), "{}", run.stderr);
    let run = project.run(&["--trust", "import", "--dry-run"]).expect(0);
    assert!(run.stdout.contains("command: touch"), "{}", run.stdout);
    let mut window = Window::open(project.command(&["import"]));
    let review = window.see(QUESTION);
    assert!(review.contains("server `evil`") && review.contains("runs      touch "), "{review}");
    window.press("y\r");
    window.see("ropeway health");
    window.end().expect(0);
    assert!(project.run(&["config", "path"]).expect(0).stdout.contains("ropeway.yaml, trusted"));
    // A named file and the user's own files need no trust.
    fs::remove_file(project.file()).expect("removed");
    project.0.write("theirs.json", theirs);
    project.run(&["import", "../theirs.json"]).expect(0);
    fs::remove_file(project.file()).expect("removed");
    fs::remove_file(project.0.path("work/.mcp.json")).expect("removed");
    project.0.write(".cursor/mcp.json", theirs);
    project.run(&["import"]).expect(0);
}

#[test]
fn without_a_terminal_import_skips_untrusted_project_files() {
    let project = Project::new("");
    fs::remove_file(project.file()).expect("removed");
    project.0.write("work/.vscode/mcp.json", r#"{"servers": {"theirs": {"command": "touch"}}}"#);
    project.0.write(".cursor/mcp.json", r#"{"mcpServers": {"mine": {"command": "cat"}}}"#);
    let run = project.run(&["import"]).expect(0);
    let warning = "is not trusted and was skipped; run `ropeway trust .vscode/mcp.json` to import it";
    assert!(unwrapped(&run.stderr).contains(warning), "{}", run.stderr);
    let text = project.0.read("work/ropeway.yaml");
    assert!(text.contains("alias: mine") && !text.contains("theirs"), "{text}");
    // Nothing else has the server.
    let run = project.run(&["import", "--only", "theirs"]).expect(2);
    assert!(run.stderr.contains("mcp.json` is not trusted"), "{}", run.stderr);
    project.run(&["trust", ".vscode/mcp.json"]).expect(0);
    project.run(&["import"]).expect(0);
    assert!(project.0.read("work/ropeway.yaml").contains("theirs"));
}

#[test]
fn a_dry_run_counts_and_prints_what_the_import_adds() {
    let project = Project::new("");
    fs::remove_file(project.file()).expect("removed");
    project.0.write("work/.vscode/mcp.json", r#"{"servers": {"theirs": {"command": "touch"}}}"#);
    project.0.write(".cursor/mcp.json", r#"{"mcpServers": {"mine": {"command": "cat"}}}"#);
    let dry = project.run(&["import", "--dry-run"]).expect(0);
    let warning = "is not trusted and would be skipped; run `ropeway trust .vscode/mcp.json` to import it";
    assert!(unwrapped(&dry.stderr).contains(warning), "{}", dry.stderr);
    assert!(dry.stderr.contains("Would add 1 server to "), "{}", dry.stderr);
    let run = project.run(&["import"]).expect(0);
    assert!(run.stdout.contains("Added 1 server to "), "{}", run.stdout);
    assert_eq!(project.0.read("work/ropeway.yaml"), dry.stdout);
}

#[test]
fn a_changed_project_file_is_reloaded_only_once_trusted() {
    let project = Project::with_demo();
    project.run(&["trust"]).expect(0);
    let mut running = project.command(&["events", "--timeout", "60s"]).start();
    let mut lines = BufReader::new(running.child.stdout.take().expect("output")).lines().map_while(Result::ok);
    let mut until = |words: &str| {
        let mut seen = Vec::new();
        lines
            .by_ref()
            .inspect(|line| seen.push(line.clone()))
            .find(|line| line.contains(words))
            .unwrap_or_else(|| panic!("{words}: {seen:#?}"))
    };
    until("ready");
    let (marker, started) = project.marker();
    project.configure(&format!("servers:\n{}{marker}", demo("mine")));
    let told = until("using the previous one");
    assert!(told.contains("is not trusted; run `ropeway trust`"), "{told}");
    assert!(!started.exists());
    project.configure(&format!("servers:\n{}{}", demo("mine"), demo("other")));
    until("is not trusted; run `ropeway trust`");
    project.run(&["trust"]).expect(0);
    until("configuration reloaded: started other");
    assert!(!started.exists());
    crate::process_marker::signal("INT", running.child.id());
    running.end().expect(130);
}

#[test]
fn environment_keys_are_not_sent_to_the_url_of_a_trusted_project() {
    let list = json!({"data": [{"id": "parrot"}], "object": "list"});
    let model = Model::answering(std::iter::repeat_with(|| ropeway_testing::ModelAnswer::json(200, &list)).take(8));
    let url = model.server.url();
    let project = Project::new(&format!("chat: {{provider: anthropic, base_url: '{url}'}}\n"));
    project.run(&["trust"]).expect(0);
    let models = |arguments: &[&str]| {
        let run = project.command(&[&["chat", "--models"][..], arguments].concat()).with(|command| {
            command.env("ANTHROPIC_API_KEY", "anthropic-s3cret").env_remove("ANTHROPIC_BASE_URL");
        });
        run.run()
    };
    let sent = || {
        let requests = model.server.requests();
        requests.last().and_then(|request| request.header("x-api-key").map(str::to_owned))
    };
    models(&[]).expect(0);
    assert_eq!(sent(), None);
    models(&["--provider", "anthropic", "--base-url", &url]).expect(0);
    assert_eq!(sent().as_deref(), Some("anthropic-s3cret"));
    // A key that the file names is sent, and the review shows that.
    project.configure(&format!("chat: {{provider: anthropic, base_url: '{url}', key: '${{ANTHROPIC_API_KEY}}'}}\n"));
    let run = project.run(&["trust"]).expect(0);
    let host = url.trim_start_matches("http://");
    assert!(run.stderr.contains(&format!("sends        $ANTHROPIC_API_KEY to {host}")), "{}", run.stderr);
    models(&[]).expect(0);
    assert_eq!(sent().as_deref(), Some("anthropic-s3cret"));
    // Otherwise it is an error, before any request.
    project.configure("chat: {provider: anthropic, base_url: 'http://evil.invalid/v1'}\n");
    project.run(&["trust"]).expect(0);
    let run = models(&[]).expect(4);
    assert!(
        run.stderr.contains("refusing to send the API key in `ANTHROPIC_API_KEY` to `http://evil.invalid/v1`"),
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains("add `key: ${ANTHROPIC_API_KEY}` under `chat`"), "{}", run.stderr);
}
