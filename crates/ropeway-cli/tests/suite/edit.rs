//! `ropeway add` and `ropeway remove` change one entry and keep the rest of the file.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use crate::client_files::{Home, demo};

const COMMENTED: &str = "\
# Mine.
defaults:
  start: lazy  # all of them

servers:
  # The clock.
  - alias: time
    command: uvx
    args: [mcp-server-time]

  - alias: web   # keep
    url: https://example.com/mcp

collisions: suffix
";

#[test]
fn a_server_is_added_behind_the_others_and_all_else_is_kept() {
    let home = Home::with_config(COMMENTED);
    let run = home
        .run(&["add", "files", "--lazy", "--env", "LEVEL=debug", "--prefix", "", "--", "npx", "-y", "server"])
        .expect(0);
    let added = "
  - alias: files
    command: npx
    args: [-y, server]
    env:
      LEVEL: debug
    prefix: \"\"
    start: lazy
";
    let expected = COMMENTED.replace("mcp\n\ncollisions", &format!("mcp\n{added}\ncollisions"));
    assert_eq!(home.read("work/ropeway.yaml"), expected);
    assert!(run.stdout.ends_with("\nNext: ropeway tools files\n"), "{}", run.stdout);
    assert!(run.stdout.contains("    - alias: files\n      command: npx\n"), "{}", run.stdout);
}

#[test]
fn a_server_behind_a_url_is_added() {
    let home = Home::new();
    home.run(&[
        "add",
        "old",
        "--url",
        "http://127.0.0.1:1/sse",
        "--transport",
        "sse",
        "--header",
        "X-Mode: fast",
        "--bearer",
        "${TOKEN}",
    ])
    .expect(0);
    let text = home.read("work/ropeway.yaml");
    let expected = "\
servers:
  - alias: old
    transport: sse
    url: http://127.0.0.1:1/sse
    headers:
      X-Mode: fast
    auth:
      bearer: \"${TOKEN}\"
";
    assert!(text.ends_with(expected), "{text}");
}

#[test]
fn the_file_is_that_of_this_folder_of_the_user_or_the_one_in_use() {
    let home = Home::new();
    home.run(&["add", "own", "--global", "--", "x"]).expect(0);
    assert!(home.read(".config/ropeway/ropeway.yaml").contains("alias: own"));
    // The file in use is now the user's.
    home.run(&["add", "second", "--", "x"]).expect(0);
    assert!(home.read(".config/ropeway/ropeway.yaml").contains("alias: second"));
    assert_eq!(home.files(), [""; 0]);
    home.run(&["add", "third", "--config", "other.yaml", "--", "x"]).expect(0);
    assert_eq!(home.files(), ["other.yaml"]);
    let run = home.run(&["add", "third", "--config", "mcp.json", "--", "x"]).expect(2);
    assert!(run.stderr.contains("it is the file of another client"), "{}", run.stderr);
}

#[test]
fn a_file_in_the_format_of_another_client_is_not_edited() {
    for (text, what, made) in [
        ("mcpServers:\n  x: {command: run}\n", "it has the format of another client", "convert it"),
        ("services:\n  mcp:\n    - {name: x, command: run}\n", "it is a manifest", "edit it by hand, or convert it"),
    ] {
        let home = Home::with_config(text);
        let file = home.path("work/ropeway.yaml").display().to_string();
        let expected =
            format!("error: cannot edit `{file}`: {what}\n  {made} with `ropeway import {file} --to FILE.yaml`\n");
        for typed in [&["add", "z", "--", "x"][..], &["remove", "x"]] {
            assert_eq!(home.run(typed).expect(2).stderr, expected);
        }
        assert_eq!(home.read("work/ropeway.yaml"), text);
        home.run(&["import", &file, "--to", "ours.yaml"]).expect(0);
        assert!(home.read("work/ours.yaml").contains("- alias: x\n    command: run\n"));
    }
}

#[test]
fn a_name_that_is_taken_is_refused_with_its_line() {
    let home = Home::with_config(COMMENTED);
    let run = home.run(&["add", "web", "--", "x"]).expect(2);
    let file = home.path("work/ropeway.yaml").display().to_string();
    let expected = format!(
        "error: {file}:11: server `web` already exists\n  choose another name, or try `ropeway remove web` first\n"
    );
    assert_eq!((run.stdout.as_str(), run.stderr), ("", expected));
    assert_eq!(home.read("work/ropeway.yaml"), COMMENTED);
}

#[test]
fn an_invalid_entry_is_not_written() {
    let home = Home::with_config(COMMENTED);
    for (arguments, words) in [
        (&["add", "a"][..], "server `a` needs a command or a URL"),
        (&["add", "a b", "--", "x"], "found `a b`"),
        (&["add", "a", "--url", "ftp://h"], "`http://` or `https://`"),
        (&["add", "a", "--", "https://h/mcp"], "the command is a URL"),
        (&["add", "a", "--", "${SHELL}"], "without `${…}`"),
        (&["add", "a", "--env", "NAME", "--", "x"], "--env must be NAME=VALUE"),
        (&["add", "a", "--cwd", "nowhere", "--", "x"], "`nowhere` is not a directory"),
        (&["add", "a", "--url", "http://h", "--header", "none"], "--header must be \"Name: value\""),
    ] {
        let run = home.run(arguments).expect(2);
        assert!(run.stderr.contains(words), "{arguments:?}: {}", run.stderr);
    }
    assert_eq!(home.read("work/ropeway.yaml"), COMMENTED);
    home.write("work/ropeway.yaml", "servers:\n  - alias: a\n    comand: x\n");
    let run = home.run(&["add", "b", "--", "x"]).expect(2);
    assert!(
        run.stderr.contains("(did you mean `command`?)") && run.stderr.contains("nothing was changed"),
        "{}",
        run.stderr
    );
}

#[test]
fn an_invalid_option_is_reported_by_its_name() {
    let home = Home::new();
    let url = "a URL that starts with `http://` or `https://`";
    for (arguments, words) in [
        (
            &["add", "bad name", "--", "x"][..],
            "NAME: expected up to 64 letters, digits, `_`, `.` and `-`, found `bad name` (did you mean `bad-name`?)"
                .to_owned(),
        ),
        (&["add", "a", "--url", "ftp://h"], format!("--url: expected {url}, found `ftp://h`")),
        (
            &["add", "a", "--url", "example.com/mcp"],
            format!("--url: expected {url}, found `example.com/mcp` (did you mean `https://example.com/mcp`?)"),
        ),
        (
            &["add", "a", "--url", "http://h", "--header", "bad header: x"],
            "--header: invalid header name `bad***`".to_owned(),
        ),
        (
            &["add", "a", "--url", "http://h", "--bearer", "${T"],
            "--bearer: missing `}` after `${` (write `$$` for a dollar sign)".to_owned(),
        ),
    ] {
        let run = home.run(arguments).expect(2);
        assert_eq!(run.stderr.split_whitespace().collect::<Vec<_>>().join(" "), format!("error: {words}"));
    }
    assert_eq!(home.files(), [""; 0]);
}

#[test]
fn words_that_were_quoted_together_are_not_a_program() {
    let home = Home::new();
    let run = home.run(&["add", "q", "--", "npx -y foo"]).expect(2);
    assert_eq!(
        run.stderr,
        "error: program `npx -y foo` not found\n  try without quotes: `ropeway add q -- npx -y foo`\n"
    );
    home.write("work/my server", "");
    home.run(&["add", "q", "--", "./my server"]).expect(0);
}

#[test]
fn an_added_server_missing_in_enabled_servers_is_disabled() {
    let home = Home::with_config("enabled_servers: [a]\nservers:\n  - {alias: a, command: x}\n");
    let run = home.run(&["add", "b", "--", "x"]).expect(0);
    let words = "\n`b` is disabled until `enabled_servers` includes it.\n";
    assert!(run.stdout.contains(words), "{}", run.stdout);
    assert_eq!(home.run(&["add", "c", "--json", "--", "x"]).expect(0).json()["enabled"], false);
    let report = home.run(&["doctor", "b", "--json"]).expect(2).json();
    let fix = &report["servers"][0]["findings"][0]["fix"];
    assert_eq!(fix, "add `b` to `enabled_servers`");
}

#[test]
fn several_secrets_are_reported_together() {
    let home = Home::new();
    let typed = ["--env", "API_KEY=s3cret-s3cret", "--env", "TOKEN=0ther-s3cret", "--", "x"];
    let run = home.run(&[&["add", "a", "--secrets", "--dry-run"], &typed[..]].concat()).expect(0);
    let file = home.path("work/.env").display().to_string();
    let end = "The secrets of `env.API_KEY`, `env.TOKEN` would be stored as `A_API_KEY`, `A_TOKEN` in .env.\n";
    assert!(run.stdout.replace(&file, ".env").ends_with(end), "{}", run.stdout);
    let run = home.run(&[&["add", "a"], &typed[..]].concat()).expect(0);
    let words = "\nThe secrets of `env.API_KEY`, `env.TOKEN` were replaced by `${A_API_KEY}`, `${A_TOKEN}`. \
                 --secrets stores them in a .env next to the file, --literal in the file itself.\n";
    assert!(run.stdout.contains(words), "{}", run.stdout);
}

#[test]
fn a_secret_on_the_line_becomes_a_reference_and_is_not_shown() {
    let home = Home::new();
    let run = home.run(&["add", "git", "--url", "http://127.0.0.1:1/", "--bearer", "s3cret-s3cret"]).expect(0);
    assert!(home.read("work/ropeway.yaml").contains("bearer: \"${GIT_TOKEN}\""));
    assert!(run.stdout.contains("Set `GIT_TOKEN` to use the server"), "{}", run.stdout);
    assert!(!run.stdout.contains("s3cret"), "{}", run.stdout);
    // A value that a variable already holds is replaced by a reference to that variable.
    let set = home.command(&["add", "set", "--env", "API_KEY=s3cret-s3cret", "--", "x"]).with(|command| {
        command.env("MY_KEY", "s3cret-s3cret");
    });
    let run = set.run().expect(0);
    assert!(home.read("work/ropeway.yaml").contains("API_KEY: \"${MY_KEY}\""), "{}", run.stdout);
    assert!(!run.stdout.contains("Set `") && !run.stdout.contains("was replaced"), "{}", run.stdout);
    let run = home.run(&["add", "kept", "--secrets", "--env", "API_KEY=s3cret-s3cret", "--", "x"]).expect(0);
    assert!(
        home.read("work/.env").ends_with("KEPT_API_KEY='s3cret-s3cret'\n") && !run.stdout.contains("Set `"),
        "{}",
        run.stdout
    );
    let mode = std::fs::metadata(home.path("work/.env")).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let run = home.run(&["add", "open", "--literal", "--env", "API_KEY=s3cret-s3cret", "--", "x"]).expect(0);
    assert!(run.stdout.contains("API_KEY: ***\n"), "{}", run.stdout);
    assert!(home.read("work/ropeway.yaml").contains("API_KEY: s3cret-s3cret"));
}

#[test]
fn a_token_in_a_file_stays_there() {
    let home = Home::new();
    home.write("work/token", "s3cret-s3cret\n");
    home.run(&["add", "web", "--url", "http://127.0.0.1:1/", "--bearer", "@token"]).expect(0);
    let reference = format!("bearer: \"${{file:{}}}\"", home.path("work/token").display());
    assert!(home.read("work/ropeway.yaml").contains(&reference), "{}", home.read("work/ropeway.yaml"));
    let report = home.run(&["config", "check", "--json"]).expect(0).json();
    assert_eq!(report["warnings"], json!([]));
    home.run(&["add", "other", "--url", "http://127.0.0.1:1/", "--bearer", "@nowhere"]).expect(2);
}

#[test]
fn a_dry_run_writes_nothing() {
    let home = Home::with_config(COMMENTED);
    let run = home.run(&["add", "a", "--dry-run", "--secrets", "--env", "KEY=s3cret-s3cret", "--", "x"]).expect(0);
    assert!(run.stdout.contains("ropeway.yaml:\n"), "{}", run.stdout);
    let run = home.run(&["remove", "web", "--dry-run"]).expect(0);
    assert!(run.stdout.contains("ropeway.yaml:\n    - alias: web   # keep\n"), "{}", run.stdout);
    assert_eq!(home.read("work/ropeway.yaml"), COMMENTED);
    assert_eq!(home.files(), ["ropeway.yaml"]);
}

#[test]
fn links_and_permissions_are_kept() {
    let home = Home::new();
    home.write("real.yaml", "servers: []\n");
    std::fs::set_permissions(home.path("real.yaml"), std::fs::Permissions::from_mode(0o640)).expect("permissions");
    std::os::unix::fs::symlink("../real.yaml", home.path("work/ropeway.yaml")).expect("a link");
    home.run(&["add", "a", "--", "x"]).expect(0);
    assert!(std::fs::symlink_metadata(home.path("work/ropeway.yaml")).expect("a link").is_symlink());
    let metadata = std::fs::metadata(home.path("real.yaml")).expect("a file");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o640);
    assert_eq!(home.read("real.yaml"), "servers:\n  - alias: a\n    command: x\n");
    assert_eq!(home.files(), ["ropeway.yaml"]);
}

#[test]
fn a_program_that_does_not_exist_is_added_with_a_warning() {
    let home = Home::new();
    let run = home.run(&["add", "a", "--", "no-such-command"]).expect(0);
    assert!(run.stderr.contains("warning: command `no-such-command` not found on PATH"), "{}", run.stderr);
    assert!(run.stdout.starts_with("Created ropeway.yaml:\n"), "{}", run.stdout);
    let run = home.run(&["add", "b", "--", "cat"]).expect(0);
    assert_eq!(run.stderr, "");
    assert!(run.stdout.starts_with("Added to ropeway.yaml:\n"), "{}", run.stdout);
    let run = home.run(&["add", "c", "--check", "--", "no-such-command"]).expect(3);
    assert!(run.stdout.contains("The entry was kept; `ropeway remove c` deletes it."), "{}", run.stdout);
    assert!(home.read("work/ropeway.yaml").contains("alias: c"));
}

#[test]
fn a_server_with_a_path_from_a_subdirectory_runs_there() {
    let home = Home::with_config("servers: []\n");
    home.write("work/sub/data/server.sh", "");
    let cwd = |folder: &str, name: &str, command: &[&str]| {
        let add = home.command(&[&["add", name, "--json", "--"], command].concat()).with(|add| {
            add.current_dir(home.path(folder));
        });
        let lines = add.run().expect(0).json()["lines"].clone();
        let mut lines = lines.as_array().expect("lines").iter().filter_map(serde_json::Value::as_str);
        lines.find_map(|line| line.trim().strip_prefix("cwd: ").map(str::to_owned))
    };
    // Without `cwd`, a server runs in the directory of the file.
    assert_eq!(cwd("work", "a", &["./sub/data/server.sh"]), None);
    assert_eq!(cwd("work", "b", &["files", "sub"]), None);
    assert_eq!(cwd("work/sub", "c", &["npx", "-y", "@scope/server"]), None);
    assert_eq!(cwd("work/sub", "d", &["data"]), None, "a program on PATH");
    for (name, command) in
        [("e", ["./data/server.sh", "x"]), ("f", ["files", "data"]), ("g", ["files", "--db=data/server.sh"])]
    {
        assert_eq!(cwd("work/sub", name, &command).as_deref(), Some("sub"), "{name}");
    }
    home.run(&["add", "h", "--cwd", "sub/data", "--", "x"]).expect(0);
    assert!(home.read("work/ropeway.yaml").contains("cwd: sub/data\n"));
}

#[test]
fn a_server_can_be_tried_at_once() {
    let home = Home::new();
    let program = env!("CARGO_BIN_EXE_ropeway");
    let run = home.run(&["add", "demo", "--check", "--", program, "demo-server"]).expect(0);
    assert!(run.stdout.ends_with("  ● ok  tools      6 tools\n"), "{}", run.stdout);
    let report = home.run(&["add", "gone", "--check", "--json", "--", "/no/such/program"]).expect(3).json();
    assert_eq!((&report["written"], &report["report"]["healthy"]), (&json!(true), &json!(false)));
    assert_eq!(home.run(&["call", "demo.calculate", "expression=1+1"]).expect(0).stdout, "2\n");
}

#[test]
fn servers_are_removed_with_their_comments() {
    let home = Home::with_config(COMMENTED);
    let run = home.run(&["remove", "time"]).expect(0);
    assert_eq!(
        home.read("work/ropeway.yaml"),
        COMMENTED.replace("  # The clock.\n  - alias: time\n    command: uvx\n    args: [mcp-server-time]\n\n", "")
    );
    assert!(run.stdout.contains("    # The clock.\n    - alias: time\n"), "{}", run.stdout);
    let result = home.run(&["remove", "web", "--json"]).expect(0).json();
    assert_eq!(result, json!({"file": home.path("work/ropeway.yaml"), "removed": ["web"], "written": true}));
    home.run(&["config", "check"]).expect(0);
}

#[test]
fn a_mistyped_name_removes_nothing_and_suggests_the_right_one() {
    let home = Home::with_config(COMMENTED);
    let run = home.run(&["remove", "time", "wbe"]).expect(2);
    assert!(run.stderr.ends_with("unknown server `wbe`\n  did you mean `web`?\n"), "{}", run.stderr);
    assert_eq!(home.read("work/ropeway.yaml"), COMMENTED);
    let run = Home::new().run(&["remove", "a"]).expect(2);
    assert!(run.stderr.starts_with("error: `ropeway.yaml` does not exist\n"), "{}", run.stderr);
}

#[test]
fn a_broken_server_can_be_removed() {
    let home = Home::with_config(&format!("servers:\n  - alias: broken\n    comand: x\n{}", demo("demo")));
    home.run(&["remove", "broken"]).expect(0);
    assert_eq!(home.read("work/ropeway.yaml"), format!("servers:\n{}", demo("demo")));
}
