//! `ropeway import` with real files of other clients.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::chat_terminal::Window;
use crate::client_files::Home;
use crate::temp_home::TRUST;

/// The secrets in the files of the clients.
const SECRETS: [&str; 6] = [
    "ghp_desktop0123456789abcdef",
    "s3cr3t-of-the-shop",
    "lin_api_claude0123456789",
    "BSA-cursor-0123456789",
    "figd_windsurf0123456789",
    "ctx7sk-codex-0123456789",
];

fn names(value: &Value) -> Vec<&str> {
    value.as_array().expect("a list").iter().filter_map(Value::as_str).collect()
}

#[test]
fn the_servers_of_all_seven_clients_become_one_file() {
    let home = Home::with_clients();
    let run = home.run(&["import"]).expect(0);
    for client in ["Claude Desktop", "Claude Code", "Cursor", "VS Code", "Windsurf", "Codex", "Zed"] {
        assert!(run.stdout.contains(client), "{client}\n{}", run.stdout);
    }
    let text = home.read("work/ropeway.yaml");
    for secret in SECRETS {
        assert!(!run.stdout.contains(secret) && !text.contains(secret), "{secret}");
    }
    assert_eq!(home.files(), ["ropeway.yaml"]);
    let report = home.run(&["config", "check", "--json"]).expect(0).json();
    assert_eq!(
        names(&report["servers"]),
        [
            "filesystem",
            "github",
            "linear",
            "github-claude-code",
            "postgres",
            "Brave-Search",
            "perplexity",
            "fetch",
            "time",
            "playwright",
            "figma",
            "context7",
            "docs",
            "sqlite"
        ]
    );
    for line in [
        "  # from Claude Desktop, Cursor\n  - alias: filesystem\n",
        "  # from VS Code, Windsurf\n  - alias: fetch\n",
        "      - \"postgresql://shop:${POSTGRES_PASSWORD}@localhost/shop\"\n    cwd: /home/ada/shop\n",
        "      Authorization: \"Bearer ${LINEAR_TOKEN}\"\n",
        "      GITHUB_PERSONAL_ACCESS_TOKEN: \"${GITHUB_PERSONAL_ACCESS_TOKEN}\"\n",
        "  # ${perplexity_key}: Perplexity API Key\n",
        "      bearer: \"${DOCS_TOKEN}\"\n    tools:\n      allow: [search, fetch]\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn a_second_import_changes_nothing() {
    let home = Home::with_clients();
    home.run(&["import", "--secrets"]).expect(0);
    let (text, secrets) = (home.read("work/ropeway.yaml"), home.read("work/.env"));
    let result = home.run(&["import", "--secrets", "--json"]).expect(0).json();
    assert_eq!((&result["written"], &result["servers"]), (&json!(false), &json!([])));
    assert_eq!((home.read("work/ropeway.yaml"), home.read("work/.env")), (text, secrets));
}

#[test]
fn secrets_are_written_to_a_private_env_file_on_request() {
    let home = Home::with_clients();
    // The existing file is readable by others.
    std::fs::write(home.path("work/.env"), "MINE=1\n").expect("a file");
    std::fs::set_permissions(home.path("work/.env"), std::fs::Permissions::from_mode(0o644)).expect("permissions");
    let run = home.run(&["import", "--secrets"]).expect(0);
    let kept = home.read("work/.env");
    assert!(kept.starts_with("MINE=1\n"), "{kept}");
    for secret in SECRETS {
        assert!(!run.stdout.contains(secret) && kept.contains(secret), "{secret}\n{kept}");
    }
    assert_eq!(std::fs::metadata(home.path("work/.env")).expect("a file").permissions().mode() & 0o777, 0o600);
    // Values that no file contains must be set.
    let report = home.run(&["config", "check", "--json"]).expect(0).json();
    assert_eq!(
        names(&report["warnings"]),
        [
            "server `github-claude-code` is skipped: secret `GITHUB_TOKEN` is not set",
            "server `perplexity` is skipped: secret `perplexity_key` is not set",
            "server `docs` is skipped: secret `DOCS_TOKEN` is not set",
        ]
    );
}

#[test]
fn a_dry_run_prints_the_file_and_writes_none() {
    let home = Home::with_clients();
    let run = home.run(&["import", "--dry-run", "--secrets"]).expect(0);
    assert_eq!(home.files(), [""; 0]);
    for secret in SECRETS {
        assert!(!run.stdout.contains(secret) && !run.stderr.contains(secret), "{secret}");
    }
    assert!(run.stderr.contains("Would add 14 servers to"), "{}", run.stderr);
    home.run(&["import"]).expect(0);
    assert_eq!(home.read("work/ropeway.yaml"), run.stdout);
}

#[test]
fn existing_servers_and_comments_are_preserved() {
    let home = Home::with_clients();
    let mine = "servers:\n  # mine\n  - alias: github\n    command: my-own\n";
    home.write("work/ropeway.yaml", mine);
    let result = home.run(&["import", "--from", "claude-desktop", "--json"]).expect(0).json();
    assert_eq!(names(&result["servers"]), ["filesystem"]);
    assert_eq!(names(&result["notes"]), ["already in the file, not changed: `github`"]);
    let text = home.read("work/ropeway.yaml");
    assert!(text.starts_with(mine), "{text}");
    assert!(text.contains("  # from Claude Desktop\n  - alias: filesystem\n"), "{text}");
}

#[test]
fn servers_and_clients_can_be_selected() {
    let home = Home::with_clients();
    let result = home
        .run(&["import", "--from", "codex", "--from", "zed", "--only", "docs", "sqlite", "--json"])
        .expect(0)
        .json();
    assert_eq!(names(&result["servers"]), ["docs", "sqlite"]);
    let run = home.run(&["import", "--only", "githbu"]).expect(2);
    assert!(run.stderr.contains("did you mean `github`?"), "{}", run.stderr);
}

#[test]
fn a_broken_file_is_reported_and_the_others_are_imported() {
    let home = Home::with_clients();
    home.write(".cursor/mcp.json", "{\"mcpServers\": {\n");
    home.write(".codex/config.toml", "[mcp_servers.a\n");
    let result = home.run(&["import", "--json"]).expect(0).json();
    let broken: Vec<&Value> =
        result["found"].as_array().expect("files").iter().filter(|file| file["error"].is_string()).collect();
    assert_eq!(broken.iter().map(|file| &file["client"]).collect::<Vec<_>>(), ["cursor", "codex"]);
    assert!(names(&result["servers"]).contains(&"sqlite"));
}

#[test]
fn files_in_the_current_and_configured_directories_are_found() {
    let home = Home::new();
    let server = |name: &str| format!("{{\"mcpServers\": {{\"{name}\": {{\"command\": \"{name}\"}}}}}}");
    home.write("work/.mcp.json", &server("project"));
    home.write("work/.cursor/mcp.json", &server("cursor-project"));
    home.write("work/.vscode/mcp.json", "{\"servers\": {\"workspace\": {\"command\": \"${workspaceFolder}/run\"}}}");
    home.write("work/.zed/settings.json", "{\"context_servers\": {\"zed-project\": {\"command\": \"z\"}}}");
    home.write("work/.codex/config.toml", "[mcp_servers.codex-project]\ncommand = \"c\"\n");
    home.write("codex/config.toml", "[mcp_servers.codex-own]\ncommand = \"d\"\n");
    home.write("xdg/Claude/claude_desktop_config.json", &server("desktop"));
    let import = home.command(&["import", "--json"]).with(|command| {
        command.env("CODEX_HOME", home.path("codex")).env("XDG_CONFIG_HOME", home.path("xdg"));
    });
    let result = import.run().expect(0).json();
    assert_eq!(
        names(&result["servers"]),
        ["desktop", "project", "cursor-project", "workspace", "codex-own", "codex-project", "zed-project"]
    );
    let run = home.path("work/run").display().to_string();
    assert!(home.read("work/ropeway.yaml").contains(&format!("command: {run}\n")));
}

#[test]
fn only_a_named_file_is_read() {
    let home = Home::with_clients();
    let file = home.path(".codex/config.toml").display().to_string();
    let result = home.run(&["import", &file, "--to", "new/ropeway.yaml", "--json"]).expect(0).json();
    assert_eq!(names(&result["servers"]), ["context7", "docs"]);
    assert!(home.read("work/new/ropeway.yaml").contains("# from file\n"));
    home.run(&["import", "nowhere.json"]).expect(2);
    home.write("work/empty.json", "{}");
    home.run(&["import", "empty.json", "--to", "other.yaml"]).expect(2);
    assert_eq!(home.files(), ["empty.json", "new"]);
}

#[test]
fn a_password_that_is_a_common_word_is_replaced_only_in_place() {
    let home = Home::new();
    let server =
        r#"{"mcpServers": {"postgres": {"command": "postgres-mcp", "args": ["pg://postgres:postgres@localhost/db"]}}}"#;
    home.write(".cursor/mcp.json", server);
    let run = home.run(&["import", "--dry-run"]).expect(0);
    assert!(run.stdout.contains("  - alias: postgres\n    command: postgres-mcp\n"), "{}", run.stdout);
    assert!(run.stderr.contains("~/.cursor/mcp.json  postgres\n"), "{}", run.stderr);
    home.run(&["import", "--secrets"]).expect(0);
    assert_eq!(home.read("work/ropeway.yaml"), run.stdout);
    assert!(
        home.read("work/.env").ends_with("POSTGRES_URL='pg://postgres:postgres@localhost/db'\n"),
        "{}",
        home.read("work/.env")
    );
}

#[test]
fn an_invalid_server_does_not_prevent_the_import_of_others() {
    let home = Home::new();
    let servers = r#"{"mcpServers": {"odd": {"command": "${TOOLS:-/opt}/bin/srv"}, "fine": {"command": "x"}}}"#;
    home.write("work/.mcp.json", servers);
    home.run(&["import", "--dry-run"]).expect(0);
    let result = home.run(&["import", "--json"]).expect(0).json();
    assert_eq!(names(&result["servers"]), ["fine"]);
    let note = names(&result["notes"])[0];
    assert!(note.starts_with("skipped `odd` of Claude Code: `command` is "), "{note}");
}

#[test]
fn files_without_servers_are_skipped() {
    let home = Home::new();
    home.write(".config/Code/User/settings.json", r#"{"http.proxySupport": "servers", "a": 1}"#);
    home.write(".config/zed/settings.json", "{ /* nothing */ }");
    let result = home.run(&["import", "--json"]).expect(0).json();
    assert_eq!((&result["found"], &result["written"]), (&json!([]), &json!(false)));
}

#[test]
fn a_server_that_cannot_be_reviewed_is_not_imported() {
    let home = Home::new();
    let evil = r#""evil": {"command": "sh", "args": ["-c", "touch OWNED"], "env": {"N": "${PATH:-\u0000}"}}"#;
    let far = r#""far": {"url": "${WHERE:-nourl}"}"#;
    home.write("work/.mcp.json", &format!(r#"{{"mcpServers": {{{evil}, {far}, "fine": {{"command": "x"}}}}}}"#));
    home.write("work/.env", "WHERE=http://127.0.0.1/\n");
    home.write(".config/ropeway/.env", "WHERE=http://127.0.0.1/\n");
    for (arguments, file) in [
        (&["import", "--global", "--json"][..], ".config/ropeway/ropeway.yaml"),
        (&["import", "--to", "ropeway.yaml", "--json"], "work/ropeway.yaml"),
    ] {
        let result = home.run(arguments).expect(0).json();
        assert_eq!(names(&result["servers"]), ["fine"]);
        for (note, name) in names(&result["notes"]).iter().zip(["evil", "far"]) {
            assert!(note.starts_with(&format!("skipped `{name}` of Claude Code: ")), "{note}");
        }
        let text = home.read(file);
        assert!(!text.contains("OWNED") && !text.contains("nourl"), "{text}");
    }
}

#[test]
fn the_review_shows_every_server_as_written() {
    let home = Home::new();
    let good = r#""good": {"command": "x", "env": {"GITHUB_TOKEN": "ghp_0123456789abcdefghij"}}"#;
    let other = r#""other": {"command": "touch", "args": ["OWNED"]}"#;
    home.write("work/.mcp.json", &format!(r#"{{"mcpServers": {{{good}, {other}}}}}"#));
    let import = home.command(&["import", "--only", "good"]).with(|command| {
        command.env_remove(TRUST);
    });
    let mut window = Window::open(import);
    let review = window.see("Trust this file? [y/N] ");
    // The literal becomes a reference, which would resolve to the user's own token.
    for words in ["server `good`", "receives  $GOOD_GITHUB_TOKEN", "server `other`", "touch OWNED"] {
        assert!(review.contains(words), "{words}: {review}");
    }
    window.press("n\r");
    window.end().expect(2);
    assert_eq!(home.files(), [".mcp.json"]);
}

#[test]
fn secrets_are_not_written_through_a_link() {
    let home = Home::with_clients();
    home.write(".bashrc", "alias a=b\n");
    std::os::unix::fs::symlink("../.bashrc", home.path("work/.env")).expect("a link");
    let run = home.run(&["import", "--secrets"]).expect(2);
    assert!(run.stderr.contains("is a symbolic link to") && run.stderr.contains(".bashrc"), "{}", run.stderr);
    assert_eq!(home.read(".bashrc"), "alias a=b\n");
    assert_eq!(home.files(), [".env"]);
}

#[test]
fn a_dangling_link_does_not_create_the_user_file() {
    let home = Home::with_clients();
    std::os::unix::fs::symlink("../.config/ropeway/ropeway.yaml", home.path("work/ropeway.yaml")).expect("a link");
    for arguments in [&["import"][..], &["add", "a", "--", "x"]] {
        let run = home.run(arguments).expect(2);
        assert!(run.stderr.contains("broken symbolic link"), "{}", run.stderr);
    }
    assert!(!home.path(".config/ropeway/ropeway.yaml").exists());
}

#[test]
fn a_pipe_instead_of_the_secrets_file_is_refused() {
    let home = Home::with_clients();
    let made = std::process::Command::new("mkfifo").arg(home.path("work/.env")).status().expect("mkfifo");
    assert!(made.success());
    let run = home.run(&["import", "--dry-run"]).expect(2);
    assert!(run.stderr.contains("not a regular file"), "{}", run.stderr);
}

#[test]
fn a_note_about_a_server_stays_on_its_line() {
    let home = Home::new();
    home.write("work/.mcp.json", r#"{"mcpServers": {"a": {"command": "x", "odd\nAdded 9 servers": 1}}}"#);
    let run = home.run(&["import"]).expect(0);
    assert!(run.stdout.contains("ignored unsupported key `odd\\nAdded 9 servers` of server `a`"), "{}", run.stdout);
}

#[test]
fn an_import_without_files_is_reported() {
    let home = Home::new();
    let run = home.run(&["import"]).expect(0);
    assert!(run.stdout.starts_with("No configuration files of other clients found"), "{}", run.stdout);
    assert_eq!(home.files(), [""; 0]);
}
