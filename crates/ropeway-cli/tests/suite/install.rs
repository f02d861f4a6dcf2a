//! `ropeway install`: the entry is added to the files of all clients, and removed without a trace.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::client_files::{Home, demo};

/// The clients and their files below the home folder.
const CLIENTS: [(&str, &str); 7] = [
    ("claude-desktop", ".config/Claude/claude_desktop_config.json"),
    ("claude-code", ".claude.json"),
    ("cursor", ".cursor/mcp.json"),
    ("vscode", ".config/Code/User/mcp.json"),
    ("windsurf", ".codeium/windsurf/mcp_config.json"),
    ("codex", ".codex/config.toml"),
    ("zed", ".config/zed/settings.json"),
];

fn home() -> Home {
    let home = Home::with_clients();
    home.write("work/ropeway.yaml", &format!("servers:\n{}{}", demo("mine"), demo("fetch")));
    home
}

#[test]
fn install_and_remove_leave_the_files_as_they_were() {
    let home = home();
    for (client, file) in CLIENTS {
        let before = home.read(file);
        let run = home.run(&["install", client]).expect(0);
        assert!(run.stdout.starts_with("Added `ropeway` to "), "{}", run.stdout);
        let installed = home.read(file);
        assert!(installed != before && installed.contains("--require-trust"), "{client}: {installed}");
        let again = home.run(&["install", client, "--profile", "mine"]).expect(0);
        assert!(again.stdout.starts_with("Added"), "{}", again.stdout);
        assert!(home.read(file).contains("--profile"), "{client}");
        home.run(&["install", client, "--remove"]).expect(0);
        assert_eq!(home.read(file), before, "{client}");
        let run = home.run(&["install", client, "--remove"]).expect(0);
        assert!(run.stdout.contains("has no entry `ropeway`"), "{}", run.stdout);
        if client != "claude-desktop" {
            home.run(&["install", client, "--http"]).expect(0);
            assert!(home.read(file).contains("http://127.0.0.1:8931/mcp"), "{client}");
            home.run(&["install", client, "--remove"]).expect(0);
            assert_eq!(home.read(file), before, "{client}");
        }
    }
}

#[test]
fn the_url_of_a_gateway_with_tls_and_keys_comes_with_a_note_about_its_key() {
    let home = home();
    let gateway = "gateway: {listen: \"0.0.0.0:8931\", tls: {cert: a.pem, key: a.key}, auth: {keys_file: keys.json}}\n";
    home.write("work/team.yaml", &format!("servers: []\n{gateway}"));
    let run = home.run(&["install", "cursor", "--http", "--config", "team.yaml"]).expect(0);
    assert!(home.read(".cursor/mcp.json").contains("https://127.0.0.1:8931/mcp"), "{}", home.read(".cursor/mcp.json"));
    assert!(run.stdout.contains("`ropeway key new NAME`"), "{}", run.stdout);
}

#[test]
fn an_installed_entry_is_found_by_import() {
    for (client, _) in CLIENTS {
        let home = home();
        home.run(&["install", client, "--name", "all"]).expect(0);
        let run = home.run(&["import", "--from", client, "--only", "all", "--to", "new.yaml"]).expect(0);
        let imported = home.read("work/new.yaml");
        assert!(imported.contains("serve") && imported.contains("--stdio"), "{client}: {}{imported}", run.stdout);
        // Unless it is named, it would start itself.
        let run = home.run(&["import", "--from", client, "--to", "other.yaml"]).expect(0);
        assert!(run.stdout.contains("it is a Ropeway gateway"), "{client}: {}", run.stdout);
    }
}

#[test]
fn an_installed_entry_starts_a_gateway() {
    let home = home();
    let trust = home.command(&["trust"]).with(|command| {
        command.env_remove(crate::temp_home::TRUST);
    });
    trust.run().expect(0);
    home.run(&["install", "cursor"]).expect(0);
    let file: Value = serde_json::from_str(&home.read(".cursor/mcp.json")).expect("JSON");
    let entry = &file["mcpServers"]["ropeway"];
    assert_eq!(entry["command"], env!("CARGO_BIN_EXE_ropeway"));
    let args: Vec<&str> = entry["args"].as_array().expect("args").iter().filter_map(Value::as_str).collect();
    let command = home.command(&args).with(|command| {
        command.env_remove(crate::temp_home::TRUST).current_dir("/").stdin(Stdio::piped());
    });
    let mut running = command.start();
    let mut input = running.child.stdin.take().expect("a pipe");
    input.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n").expect("a request");
    drop(input);
    let run = running.end().expect(0);
    assert_eq!(run.json(), json!({"jsonrpc": "2.0", "id": 1, "result": {}}), "{}", run.stderr);
}

#[test]
fn the_entry_of_another_program_is_not_replaced() {
    let home = home();
    let text = "{\"mcpServers\": {\"ropeway\": {\"command\": \"npx\", \"args\": [\"other\"]}}}\n";
    home.write(".cursor/mcp.json", text);
    for more in [&[][..], &["--remove"]] {
        let run = home.run(&[&["install", "cursor"], more].concat()).expect(2);
        assert!(run.stderr.contains("has an entry `ropeway` that is not ropeway's (`npx`)"), "{}", run.stderr);
        assert_eq!(home.read(".cursor/mcp.json"), text);
    }
    home.run(&["install", "cursor", "--force"]).expect(0);
    assert!(home.read(".cursor/mcp.json").contains("serve"));
}

#[test]
fn a_dry_run_prints_only_its_own_entry_and_writes_nothing() {
    let home = home();
    // Another VS Code, whose file would be used instead.
    fs::remove_dir_all(home.path("Library")).expect("a folder");
    for (client, file) in CLIENTS {
        let before = home.read(file);
        let run = home.run(&["install", client, "--dry-run"]).expect(0);
        assert!(run.stderr.starts_with("Would add to ") && run.stderr.contains(file), "{}", run.stderr);
        assert!(run.stdout.contains("--require-trust"), "{}", run.stdout);
        assert_eq!(home.read(file), before);
        // The output is the file that a new client would get.
        fs::remove_file(home.path(file)).expect("a file");
        let added = home.run(&["install", client]).expect(0);
        assert!(added.stdout.contains(file), "{}", added.stdout);
        assert_eq!(home.read(file), run.stdout, "{client}");
        let removed = home.run(&["install", client, "--remove", "--dry-run"]).expect(0);
        assert!(removed.stderr.starts_with("Would remove from "), "{}", removed.stderr);
        // In any order of its keys.
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
        assert_eq!(lines(&removed.stdout), lines(&run.stdout), "{client}");
        home.run(&["install", client, "--remove"]).expect(0);
        home.write(file, &before);
    }
}

#[test]
fn a_dry_run_prints_no_secrets() {
    let home = home();
    let token = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
    let headers = json!({"Authorization": format!("Bearer {token}"), "X-Team": "blue"});
    let own = json!({"url": "http://127.0.0.1:8931/mcp?api_key=s3cr3t-value", "headers": headers});
    let other = json!({"command": "x", "env": {"BRAVE_API_KEY": "BSAabcdefghijklmnop123456"}});
    home.write(".cursor/mcp.json", &json!({"mcpServers": {"brave": other, "ropeway": own}}).to_string());
    for more in [&[][..], &["--remove"], &["--json"], &["--remove", "--json"]] {
        let run = home.run(&[&["install", "cursor", "--dry-run"], more].concat()).expect(0);
        for secret in [token, "s3cr3t-value", "BSAabc", "brave"] {
            assert!(!run.stdout.contains(secret) && !run.stderr.contains(secret), "{}{}", run.stdout, run.stderr);
        }
        assert_eq!(run.stdout.contains("blue"), more.contains(&"--remove"), "{}", run.stdout);
    }
}

#[test]
fn a_project_file_outside_of_the_project_is_refused() {
    let home = home();
    let (project, elsewhere) = (home.path("work"), home.path("elsewhere"));
    fs::create_dir(&elsewhere).expect("a folder");
    let folder = project.join(".vscode");
    let _ = fs::remove_dir_all(&folder);
    let install = || home.run(&["install", "vscode", "--project"]);
    symlink(&elsewhere, &folder).expect("a link");
    let run = install().expect(2);
    let words = "leads out of the project, to `";
    assert!(run.stderr.contains(words) && run.stderr.contains("elsewhere"), "{}", run.stderr);
    assert_eq!(fs::read_dir(&elsewhere).expect("a folder").count(), 0);
    fs::remove_file(&folder).expect("a link");
    fs::create_dir(&folder).expect("a folder");
    for target in [elsewhere.join("mcp.json"), elsewhere.join("missing/mcp.json")] {
        symlink(&target, folder.join("mcp.json")).expect("a link");
        install().expect(2);
        assert!(!target.exists());
        fs::remove_file(folder.join("mcp.json")).expect("a link");
    }
    // A link within the project is followed.
    fs::remove_dir(&folder).expect("a folder");
    fs::create_dir(project.join("editor")).expect("a folder");
    symlink("editor", &folder).expect("a link");
    install().expect(0);
    assert!(project.join("editor/mcp.json").exists());
}

#[test]
fn later_changes_of_the_file_survive_the_removal() {
    let home = home();
    for (client, file) in CLIENTS {
        let before = home.read(file);
        home.run(&["install", client]).expect(0);
        let edited = if client == "codex" {
            format!("added = 1\n{}", home.read(file))
        } else {
            home.read(file).replacen('{', "{ \"added\": 1,", 1)
        };
        home.write(file, &edited);
        home.run(&["install", client, "--remove"]).expect(0);
        let after = home.read(file);
        let expected = match client {
            "codex" => format!("added = 1\n{before}"),
            _ => before.replacen('{', "{ \"added\": 1,", 1),
        };
        assert_eq!(after, expected, "{client}");
    }
}

#[test]
fn a_file_that_was_created_is_removed_again() {
    let home = Home::with_config(&format!("servers:\n{}", demo("mine")));
    for client in ["claude-code", "cursor", "vscode", "codex", "zed"] {
        let run = home.run(&["install", client, "--project", "--json"]).expect(0);
        let file = run.json()["file"].as_str().expect("a path").to_owned();
        assert!(file.starts_with(&*home.path("work").to_string_lossy()), "{file}");
        home.run(&["install", client, "--project", "--remove"]).expect(0);
        assert!(fs::metadata(&file).is_err(), "{file}");
    }
    for client in ["claude-desktop", "windsurf"] {
        let run = home.run(&["install", client, "--project"]).expect(2);
        assert!(run.stderr.contains("has no project files"), "{}", run.stderr);
    }
}

#[test]
fn without_a_configuration_the_demo_server_is_installed_only_by_force() {
    let home = Home::with_clients();
    let before = home.read(".cursor/mcp.json");
    let run = home.run(&["install", "cursor"]).expect(2);
    assert!(run.stderr.contains("no configuration file found") && run.stderr.contains("`--force`"), "{}", run.stderr);
    assert_eq!(home.read(".cursor/mcp.json"), before);
    home.run(&["install", "cursor", "--force"]).expect(0);
    home.run(&["install", "cursor", "--remove"]).expect(0);
    assert_eq!(home.read(".cursor/mcp.json"), before);
}

#[test]
fn a_url_without_a_gateway_comes_with_a_note_to_start_one() {
    let home = home();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    home.write("work/team.yaml", &format!("servers: []\ngateway: {{listen: \"{address}\"}}\n"));
    let install = || home.run(&["install", "cursor", "--http", "--config", "team.yaml", "--force"]).expect(0).stdout;
    let note = format!("nothing listens on {address}: start `ropeway serve` before the client");
    let text = install();
    assert!(!text.contains(&note), "{text}");
    drop(listener);
    let text = install();
    assert!(text.contains(&note), "{text}");
}

#[test]
fn an_entry_for_any_client_is_printed() {
    let home = home();
    let entry = |more: &[&str]| home.run(&[&["install", "mcp-json"], more].concat()).expect(0).json();
    let found = entry(&["--name", "all"]);
    let args = json!(["serve", "--stdio", "--config", home.path("work/ropeway.yaml"), "--require-trust"]);
    let expected = json!({"command": env!("CARGO_BIN_EXE_ropeway"), "args": args});
    assert_eq!(found, json!({"mcpServers": {"all": expected}}));
    let url = json!({"url": "http://127.0.0.1:8931/mcp/mine"});
    assert_eq!(entry(&["--http", "--profile", "mine"]), json!({"mcpServers": {"ropeway": url}}));
    let run = home.run(&["install", "mcp-json", "--remove"]).expect(2);
    assert!(run.stderr.contains("changes no file"), "{}", run.stderr);
}

#[test]
fn gemini_has_a_key_of_its_own_for_urls() {
    let home = home();
    home.write(".gemini/settings.json", "{\"theme\": \"dark\"}\n");
    home.run(&["install", "gemini", "--http"]).expect(0);
    let file: Value = serde_json::from_str(&home.read(".gemini/settings.json")).expect("JSON");
    assert_eq!(file["mcpServers"]["ropeway"], json!({"httpUrl": "http://127.0.0.1:8931/mcp"}));
    home.run(&["install", "gemini"]).expect(0);
    home.run(&["install", "gemini", "--remove"]).expect(0);
    assert_eq!(home.read(".gemini/settings.json"), "{\"theme\": \"dark\"}\n");
}

#[test]
fn servers_that_the_client_has_already_are_named() {
    let home = home();
    let run = home.run(&["install", "windsurf"]).expect(0);
    assert!(run.stdout.contains("also configured there: fetch\n"), "{}", run.stdout);
    assert!(run.stdout.contains("run `ropeway trust`"), "{}", run.stdout);
    let run = home.run(&["install", "windsurf", "--profile", "mien"]).expect(2);
    assert!(run.stderr.contains("unknown profile or server `mien`"), "{}", run.stderr);
    let run = home.run(&["install", "claude-desktop", "--http"]).expect(2);
    assert!(run.stderr.contains("does not support `--http`"), "{}", run.stderr);
}

#[test]
fn a_broken_file_is_not_changed() {
    let home = home();
    for (client, file) in CLIENTS {
        home.write(file, "{ broken");
        let run = home.run(&["install", client]).expect(2);
        assert!(run.stderr.contains("cannot edit") && run.stderr.contains("nothing was changed"), "{}", run.stderr);
        assert_eq!(home.read(file), "{ broken");
    }
}

#[test]
fn a_renamed_program_recognizes_its_own_entry() {
    let home = home();
    let renamed = home.path("rw");
    // A copy by this process could still be open for writing in a child of another test, and would not start then.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_ropeway")).arg(&renamed).status().expect("cp");
    assert!(copied.success());
    let run = |words: &[&str]| home.command_of(&renamed, words).run();
    for (client, file) in CLIENTS {
        let before = home.read(file);
        for name in ["ropeway", "all"] {
            run(&["install", client, "--name", name]).expect(0);
            assert!(home.read(file).contains("/rw"), "{client}: {}", home.read(file));
            run(&["install", client, "--name", name, "--profile", "mine"]).expect(0);
            // The original program recognises it, too.
            home.run(&["install", client, "--name", name]).expect(0);
            run(&["install", client, "--name", name]).expect(0);
            run(&["install", client, "--name", name, "--remove"]).expect(0);
            assert_eq!(home.read(file), before, "{client}");
        }
    }
    // The arguments alone do not make an entry ropeway's.
    let text = "{\"mcpServers\": {\"mine\": {\"command\": \"other\", \"args\": [\"serve\", \"--stdio\"]}}}\n";
    home.write(".cursor/mcp.json", text);
    let run = run(&["install", "cursor", "--name", "mine"]).expect(2);
    assert!(run.stderr.contains("not ropeway's (`other`)"), "{}", run.stderr);
}

#[test]
fn an_empty_name_is_refused() {
    let home = home();
    for (client, file) in CLIENTS {
        let before = home.read(file);
        for (name, problem) in [("", "empty"), (" ", "empty"), ("a\nb", "control characters")] {
            for more in [&[][..], &["--remove"]] {
                let run = home.run(&[&["install", client, "--name", name], more].concat()).expect(2);
                assert!(run.stderr.contains("--name <NAME>") && run.stderr.contains(problem), "{}", run.stderr);
            }
        }
        assert_eq!(home.read(file), before);
    }
}

#[test]
fn a_byte_order_mark_is_kept() {
    let home = home();
    for (client, file) in CLIENTS {
        let before = format!("\u{feff}{}", home.read(file));
        home.write(file, &before);
        home.run(&["install", client]).expect(0);
        let installed = home.read(file);
        assert!(installed.starts_with('\u{feff}') && installed.contains("--stdio"), "{client}: {installed}");
        assert_eq!(installed.matches('\u{feff}').count(), 1, "{client}");
        let run = home.run(&["install", client]).expect(0);
        assert!(run.stdout.contains("already has the entry"), "{}", run.stdout);
        home.run(&["install", client, "--remove"]).expect(0);
        assert_eq!(home.read(file), before, "{client}");
    }
}

#[test]
fn duplicate_keys_are_not_edited() {
    let home = home();
    let text = "{\n  \"mcpServers\": {\"a\": {}},\n  \"mcpServers\": {\"b\": {}}\n}\n";
    home.write(".cursor/mcp.json", text);
    for more in [&[][..], &["--remove"]] {
        let run = home.run(&[&["install", "cursor"], more].concat()).expect(2);
        assert!(run.stderr.contains("duplicate key `mcpServers` in lines 2 and 3"), "{}", run.stderr);
        assert_eq!(home.read(".cursor/mcp.json"), text);
    }
}

#[test]
fn the_line_ends_of_a_file_are_kept() {
    let home = home();
    for (client, file) in CLIENTS {
        let before = home.read(file).replace("\r\n", "\n").replace('\n', "\r\n");
        home.write(file, &before);
        home.run(&["install", client]).expect(0);
        let installed = home.read(file);
        assert_eq!(installed.matches("\r\n").count(), installed.matches('\n').count(), "{client}: {installed:?}");
        // Without its record, the entry is removed from the changed file.
        fs::remove_dir_all(home.path(".local/state/ropeway/installed")).expect("a record");
        home.run(&["install", client, "--remove"]).expect(0);
        assert_eq!(home.read(file), before, "{client}");
    }
}

/// A configuration of Goose, with comments.
const GOOSE: &str = "\
GOOSE_PROVIDER: openai # mine
extensions:
  developer:
    bundled: true
    enabled: true
    name: developer
    timeout: 300
    type: builtin

  # The time
  time:
    name: time
    type: stdio
    cmd: uvx
    args:
    - mcp-server-time
    enabled: true
    envs: {}

# Last
GOOSE_MODEL: 'x'
";

#[test]
fn the_file_of_goose_keeps_every_byte() {
    let home = home();
    let file = ".config/goose/config.yaml";
    for before in [GOOSE, "GOOSE_MODEL: x", "extensions: {} # none\n", "# nothing\n"] {
        home.write(file, before);
        let run = home.run(&["install", "goose", "--dry-run"]).expect(0);
        assert!(run.stdout.starts_with("extensions:\n  ropeway:\n    "), "{}", run.stdout);
        assert_eq!(home.read(file), before);
        let run = home.run(&["install", "goose"]).expect(0);
        assert!(run.stdout.starts_with("Added `ropeway` to "), "{}", run.stdout);
        let installed = home.read(file);
        let kept = |line: &&str| line.starts_with("extensions: {") || installed.contains(*line);
        assert!(before.lines().filter(|line| !kept(line)).count() == 0 && installed.contains("cmd"), "{installed}");
        home.run(&["install", "goose", "--profile", "mine"]).expect(0);
        assert!(home.read(file).contains("--profile"), "{}", home.read(file));
        home.run(&["install", "goose", "--remove"]).expect(0);
        assert_eq!(home.read(file), before);
    }
    fs::remove_file(home.path(file)).expect("a file");
    home.run(&["install", "goose", "--http"]).expect(0);
    assert!(home.read(file).contains("uri: http://127.0.0.1:8931/mcp\n"), "{}", home.read(file));
    home.run(&["install", "goose", "--remove"]).expect(0);
    assert!(!home.path(file).exists());
}

#[test]
fn an_entry_of_goose_is_removed_after_other_changes() {
    let home = home();
    let file = ".config/goose/config.yaml";
    home.write(file, GOOSE);
    home.run(&["install", "goose"]).expect(0);
    let changed = home.read(file).replace("GOOSE_MODEL: 'x'", "GOOSE_MODEL: y");
    home.write(file, &changed);
    home.run(&["install", "goose", "--remove"]).expect(0);
    assert_eq!(home.read(file), GOOSE.replace("GOOSE_MODEL: 'x'", "GOOSE_MODEL: y"));
    home.write(file, "extensions: {ropeway: {type: stdio, name: x, cmd: other, args: []}}\n");
    let run = home.run(&["install", "goose"]).expect(2);
    assert!(run.stderr.contains("is not ropeway's (`other`)"), "{}", run.stderr);
    home.write(file, "extensions: [\n");
    let run = home.run(&["install", "goose"]).expect(2);
    assert!(run.stderr.contains("invalid YAML"), "{}", run.stderr);
}

#[test]
fn the_servers_of_goose_are_imported() {
    let home = Home::new();
    home.write(".config/goose/config.yaml", GOOSE);
    let result = home.run(&["import", "--from", "goose", "--json"]).expect(0).json();
    assert_eq!((&result["servers"], &result["notes"]), (&json!(["time"]), &json!([])));
    assert!(
        home.read("work/ropeway.yaml")
            .contains("  # from Goose\n  - alias: time\n    transport: stdio\n    command: uvx\n")
    );
}
