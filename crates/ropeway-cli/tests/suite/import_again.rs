//! `ropeway import` into existing files, for project directories, and next to git.

use std::process::Command;

use serde_json::{Value, json};

use crate::chat_terminal::Window;
use crate::client_files::Home;

const TOKEN: &str = "ghp_0123456789abcdefghij";

/// Returns a home in which Cursor has a server with tokens in `env`, a header, an argument and a URL.
fn home() -> Home {
    let home = Home::new();
    let servers = json!({"mcpServers": {
        "github": {"command": "github-mcp", "args": ["--token", "s3cr3t-argument"], "env": {"GITHUB_TOKEN": TOKEN}},
        "linear": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer lin_api_0123456789"}},
    }});
    home.write(".cursor/mcp.json", &servers.to_string());
    home
}

fn names(value: &Value) -> Vec<&str> {
    value.as_array().expect("a list").iter().filter_map(Value::as_str).collect()
}

#[test]
fn secrets_are_written_even_if_the_servers_exist() {
    let home = home();
    home.run(&["import"]).expect(0);
    let text = home.read("work/ropeway.yaml");
    assert!(!home.path("work/.env").exists());
    let again = home.run(&["import"]).expect(0);
    assert!(again.stdout.contains("can be moved to .env with --secrets"), "{}", again.stdout);
    let run = home.run(&["import", "--secrets"]).expect(0);
    assert_eq!(home.read("work/ropeway.yaml"), text, "its references are right");
    let secrets = home.read("work/.env");
    for secret in [TOKEN, "s3cr3t-argument", "lin_api_0123456789"] {
        assert!(secrets.contains(secret) && !run.stdout.contains(secret), "{secret}\n{secrets}");
    }
    let report = home.run(&["config", "check", "--json"]).expect(0).json();
    assert_eq!(report["warnings"], json!([]), "nothing is missing");
    let result = home.run(&["import", "--secrets", "--json"]).expect(0).json();
    assert_eq!(
        (&result["written"], &result["moved"], &result["secrets_file"]),
        (&json!(false), &json!([]), &json!(null))
    );
    assert_eq!(home.read("work/.env"), secrets);
}

#[test]
fn literals_of_an_existing_server_become_references() {
    let home = home();
    let file = format!(
        "servers:\n  # mine\n  - alias: github # why\n    command: github-mcp\n    args: [--token, 's3cr3t-argument']\n    env:\n      \
         GITHUB_TOKEN: {TOKEN}  # secret\n      LEVEL: debug\n  - {{alias: linear, url: https://example.com/mcp, headers: \
         {{Authorization: \"Bearer mine-0123456789\"}}}}\n"
    );
    home.write("work/ropeway.yaml", &file);
    let dry = home.run(&["import", "--secrets", "--dry-run"]).expect(0);
    assert_eq!(home.read("work/ropeway.yaml"), file);
    home.run(&["import", "--secrets"]).expect(0);
    let text = home.read("work/ropeway.yaml");
    let expected = file
        .replace("'s3cr3t-argument'", "\"${GITHUB_TOKEN_2}\"")
        .replace(TOKEN, "\"${GITHUB_TOKEN}\"")
        .replace("mine-0123456789", "${LINEAR_TOKEN}");
    assert_eq!((text.as_str(), dry.stdout.as_str()), (expected.as_str(), expected.as_str()));
    let secrets = home.read("work/.env");
    let values = [format!("GITHUB_TOKEN='{TOKEN}'\n"), "LINEAR_TOKEN='mine-0123456789'\n".to_owned()];
    assert!(values.iter().all(|line| secrets.contains(line)), "{secrets}");
    // The value of the file wins over that of the other client.
    assert!(!secrets.contains("lin_api_"), "{secrets}");
}

#[test]
fn a_value_in_env_is_never_replaced_and_a_difference_is_reported() {
    let home = home();
    home.run(&["import"]).expect(0);
    home.write("work/.env", "GITHUB_TOKEN=mine\n# a comment\nLINEAR_TOKEN=\"lin\\u0061\"\n");
    let run = home.run(&["import", "--secrets"]).expect(0);
    let secrets = home.read("work/.env");
    assert!(secrets.starts_with("GITHUB_TOKEN=mine\n# a comment\nLINEAR_TOKEN=\"lin\\u0061\"\n"), "{secrets}");
    assert!(!secrets.contains(TOKEN) && !secrets.contains("lin_api_"), "{secrets}");
    for name in ["GITHUB_TOKEN", "LINEAR_TOKEN"] {
        assert!(run.stdout.contains(&format!("`{name}` of `")), "{name}: {}", run.stdout);
    }
    assert_eq!(
        run.stdout.matches("keeps its value, which differs from the one in Cursor").count(),
        2,
        "{}",
        run.stdout
    );
}

#[test]
fn another_program_of_the_same_name_gets_no_secrets() {
    let home = home();
    let file = "servers:\n  - {alias: github, command: my-own, env: {GITHUB_TOKEN: '${GITHUB_TOKEN}'}}\n";
    home.write("work/ropeway.yaml", file);
    home.run(&["import", "--secrets", "--only", "github"]).expect(0);
    assert_eq!(home.read("work/ropeway.yaml"), file);
    assert!(!home.path("work/.env").exists());
}

/// A server that runs in the project directory.
const IN_PROJECT: &str =
    r#""local": {"command": "srv", "args": ["--root=${workspaceFolder}/x"]}, "fine": {"command": "y"}"#;

#[test]
fn the_workspace_of_a_user_file_is_not_the_home_directory() {
    let home = Home::new();
    home.write(".cursor/mcp.json", &format!("{{\"mcpServers\": {{{IN_PROJECT}}}}}"));
    let result = home.run(&["import", "--json"]).expect(0).json();
    assert_eq!(names(&result["servers"]), ["fine"]);
    let notes = names(&result["notes"]).join("\n");
    for words in ["server `local` is skipped", "`${workspaceFolder}`", "--workspace DIR"] {
        assert!(notes.contains(words), "{words}: {notes}");
    }
    home.write("shop/readme", "");
    let folder = home.path("shop").display().to_string();
    home.run(&["import", "--workspace", &folder]).expect(0);
    let text = home.read("work/ropeway.yaml");
    assert!(text.contains(&format!("--root={folder}/x")), "{text}");
    let run = home.run(&["import", "--workspace", "/no/such/folder"]).expect(2);
    assert!(run.stderr.contains("`/no/such/folder` is not a directory"), "{}", run.stderr);
}

#[test]
fn the_workspace_of_a_project_file_is_its_project() {
    let home = Home::new();
    home.write("shop/.vscode/mcp.json", &format!("{{\"servers\": {{{IN_PROJECT}}}}}"));
    let file = home.path("shop/.vscode/mcp.json").display().to_string();
    home.run(&["import", &file, "--global"]).expect(0);
    let text = home.read(".config/ropeway/ropeway.yaml");
    assert!(text.contains(&format!("--root={}/x", home.path("shop").display())), "{text}");
    // A copy somewhere else belongs to no project.
    home.write("backup.json", &format!("{{\"servers\": {{{IN_PROJECT}}}}}"));
    let file = home.path("backup.json").display().to_string();
    let result = home.run(&["import", &file, "--to", "other.yaml", "--json"]).expect(0).json();
    assert_eq!(names(&result["servers"]), ["fine"]);
}

#[test]
fn the_user_is_asked_for_the_workspace_directory() {
    let home = Home::new();
    home.write(".cursor/mcp.json", &format!("{{\"mcpServers\": {{{IN_PROJECT}}}}}"));
    home.write("shop/readme", "");
    let mut window = Window::open(home.command(&["import"]));
    let asked = window.see("Directory [skip these servers]: ");
    assert!(asked.contains("~/.cursor/mcp.json uses ${workspaceFolder} for `local`"), "{asked}");
    window.press("/no/such/folder\r");
    window.see("`/no/such/folder` is not a directory");
    window.see("Directory [skip these servers]: ");
    window.press("~/shop\r");
    window.see("Added 2 servers");
    window.end().expect(0);
    assert!(home.read("work/ropeway.yaml").contains(&format!("--root={}/x", home.path("shop").display())));

    let mut window = Window::open(home.command(&["import", "--to", "other.yaml"]));
    window.see("Directory [skip these servers]: ");
    window.press("\r");
    window.see("Added 1 server to");
    window.end().expect(0);
    // A deselected server causes no question.
    let mut window = Window::open(home.command(&["import", "--to", "third.yaml", "--only", "fine"]));
    let shown = window.see("Added 1 server to");
    assert!(!shown.contains("Directory ["), "{shown}");
    window.end().expect(0);
}

#[test]
fn a_file_with_secrets_that_git_does_not_ignore_is_warned_about() {
    let is_git = Command::new("git").arg("--version").output().is_ok_and(|output| output.status.success());
    let home = home();
    let warns = |arguments: &[&str]| {
        let run = home.run(arguments).expect(0);
        let text = run.stdout + &run.stderr;
        (text.contains("warning: git does not ignore"), text)
    };
    let (is_warned, text) = warns(&["import", "--secrets", "--only", "github"]);
    assert!(!is_warned, "without git: {text}");
    if is_git {
        let mut git = Command::new("git");
        git.args(["init", "--quiet"]).current_dir(home.path("work")).env("HOME", home.path(""));
        assert!(git.status().expect("git").success());
    } else {
        std::fs::create_dir(home.path("work/.git")).expect("a folder");
    }
    std::fs::remove_file(home.path("work/.env")).expect("a file");
    let (is_warned, text) = warns(&["import", "--secrets", "--only", "github"]);
    assert!(is_warned && text.replace('\n', " ").contains("add a line `.env` to .gitignore"), "{text}");
    let (is_warned, text) = warns(&["add", "b", "--secrets", "--env", "API_KEY=s3cr3t-s3cr3t", "--", "x"]);
    assert!(is_warned, "{text}");
    home.write("work/.gitignore", "target\n.env\n");
    let (is_warned, text) = warns(&["import", "--secrets"]);
    assert!(!is_warned, "{text}");
}
