//! `ropeway config`: problems of a file, and the searched locations.

use ropeway_testing::Script;
use serde_json::{Value, json};

use crate::client_files::{Home, demo};
use crate::fault_run::scripted;

#[test]
fn every_problem_is_shown_with_its_line_and_a_mark_under_the_place() {
    let home = Home::with_config(
        "servers:\n  - alias: a\n    transport: stdoi\n    command: x\n  - alias: b\n    comand: y\n",
    );
    let run = home.run(&["config", "check"]).expect(2);
    let file = home.path("work/ropeway.yaml").display().to_string();
    assert_eq!(run.stderr, "");
    let expected = format!(
        "{file}:3:16: servers[0].transport: expected one of `stdio`, `sse`, `streamable-http`, found `stdoi` (did you mean `stdio`?)
  3 │     transport: stdoi
    │                ^
"
    );
    assert!(run.stdout.starts_with(&expected), "{}", run.stdout);
    assert!(run.stdout.contains("(did you mean `command`?)\n  6 │     comand: y\n    │     ^\n"), "{}", run.stdout);
    assert!(run.stdout.ends_with(&format!("\n✗ {file} has 2 problems\n")), "{}", run.stdout);
}

#[test]
fn problems_for_scripts_have_all_their_parts() {
    let home = Home::with_config("servers:\n  - alias: a\n    transport: stdoi\n    command: x\n");
    let report = home.run(&["config", "check", "--json"]).expect(2).json();
    assert_eq!(
        report,
        json!({"file": home.path("work/ropeway.yaml"), "ok": false, "problems": [{
            "line": 3, "column": 16, "path": "servers[0].transport",
            "message": "servers[0].transport: expected one of `stdio`, `sse`, `streamable-http`, found `stdoi` (did you mean `stdio`?)",
            "found": "`stdoi`",
            "expected": "one of `stdio`, `sse`, `streamable-http`", "suggestion": "stdio",
        }]})
    );
}

#[test]
fn a_secret_beside_a_problem_is_not_shown() {
    let home =
        Home::with_config("servers:\n  - {alias: a, url: 'http://h/', auth: {bearer: s3cret-s3cret}, transprot: x}\n");
    let run = home.run(&["config", "check"]).expect(2);
    assert!(run.stdout.contains("auth: {bearer: ***}, transprot: x}"), "{}", run.stdout);
    assert!(!run.stdout.contains("s3cret"), "{}", run.stdout);
}

#[test]
fn a_valid_file_is_reported_with_its_warnings() {
    let home = Home::with_config(
        "servers:\n  - {alias: a, command: x, env: {T: '${NO_SUCH_VARIABLE}'}}\n  - {alias: b, command: y, enabled: false}\n",
    );
    let run = home.run(&["config", "check"]).expect(0);
    let expected = format!(
        "◐ server `a` is skipped: secret `NO_SUCH_VARIABLE` is not set
● {} is valid: 2 servers, 1 disabled
  tool names were not checked; `ropeway config check --connect` checks them
",
        home.path("work/ropeway.yaml").display()
    );
    assert_eq!(run.stdout, expected);
    let report = home.run(&["config", "check", "--json"]).expect(0).json();
    assert_eq!(
        (&report["ok"], &report["warnings"], &report["names"]),
        (&json!(true), &json!(["server `a` is skipped: secret `NO_SUCH_VARIABLE` is not set"]), &Value::Null)
    );
}

#[test]
fn the_chat_section_is_checked_and_its_key_is_not_shown() {
    let home = Home::with_config("chat: {provider: claude, key: '${NO_SUCH_VARIABLE}'}\n");
    let run = home.run(&["config", "check"]).expect(0);
    let expected = format!(
        "◐ ignored `chat.key`: secret `NO_SUCH_VARIABLE` is not set\n● {} is valid: 0 servers\n",
        home.path("work/ropeway.yaml").display()
    );
    assert_eq!(run.stdout, expected);
    let home = Home::with_config("servers: []\nchat: {key: s3cret-s3cret, provder: claude}\n");
    let run = home.run(&["config", "check"]).expect(2);
    let expected = format!(
        "{file}:2:28: chat: unknown key `provder` (did you mean `provider`?)\n  2 │ chat: {{key: ***, provder: claude}}\n",
        file = home.path("work/ropeway.yaml").display()
    );
    assert!(run.stdout.starts_with(&expected), "{}", run.stdout);
}

#[test]
fn files_of_other_clients_are_checked_as_they_are() {
    let home = Home::with_clients();
    for file in [
        ".config/Claude/claude_desktop_config.json",
        ".claude.json",
        ".cursor/mcp.json",
        ".config/Code/User/mcp.json",
        ".config/Code/User/settings.json",
        ".codeium/windsurf/mcp_config.json",
        ".codex/config.toml",
        ".config/zed/settings.json",
    ] {
        let path = home.path(file).display().to_string();
        let run = home.run(&["config", "check", &path]).expect(0);
        assert!(run.stdout.contains(&format!("{path} is valid")), "{}", run.stdout);
    }
}

#[test]
fn an_unreadable_file_is_a_failure() {
    let home = Home::new();
    let run = home.run(&["config", "check"]).expect(2);
    assert!(run.stderr.starts_with("error: no configuration file found\n"), "{}", run.stderr);
    let run = home.run(&["config", "check", "nowhere.yaml"]).expect(2);
    assert_eq!(
        run.stderr,
        "error: could not read `nowhere.yaml`\n  caused by: No such file or directory (os error 2)\n"
    );
    home.write("work/tabs.yaml", "servers:\n\t- alias: a\n");
    let run = home.run(&["config", "check", "tabs.yaml"]).expect(2);
    assert!(
        run.stdout.starts_with("tabs.yaml:2:2:") && run.stdout.ends_with("✗ tabs.yaml has 1 problem\n"),
        "{}",
        run.stdout
    );
}

#[test]
fn colliding_tools_are_an_error_unless_the_file_allows_them() {
    let servers = format!("servers:\n{}    prefix: ''\n{}    prefix: ''\n", demo("one"), demo("two"));
    let home = Home::with_config(&servers);
    home.run(&["config", "check"]).expect(0);
    let run = home.run(&["config", "check", "--connect"]).expect(2);
    let first =
        "✗ tool `calculate` of server `one` and tool `calculate` of server `two` have the same name `calculate`";
    assert!(run.stdout.starts_with(first), "{}", run.stdout);
    assert!(run.stdout.contains("→ change the `prefix` of one of the servers"), "{}", run.stdout);
    assert!(run.stdout.ends_with("ropeway.yaml has tool name collisions: 2 servers, 6 tools\n"), "{}", run.stdout);
    home.write("work/ropeway.yaml", &format!("collisions: suffix\n{servers}"));
    let report = home.run(&["config", "check", "--connect", "--json"]).expect(0).json();
    assert_eq!((&report["ok"], &report["names"]["tools"]), (&json!(true), &json!(12)));
    assert_eq!(report["names"]["collisions"][0]["fate"], json!({"renamed": "calculate_2"}));
}

#[test]
fn names_and_schemas_that_models_reject_are_noted() {
    let tool = |name: &str, schema: Value| json!({"name": name, "description": "x", "inputSchema": schema});
    let odd = json!({"type": "object", "properties": {"a": {"type": "nonsense"}}});
    let script = Script::default()
        .tool(tool("a b", json!({"type": "object"})), json!({"content": []}))
        .tool(tool("odd", odd), json!({"content": []}));
    let words = shlex::split(&scripted(&script)).expect("words");
    let home = Home::with_config(
        &json!({"servers": [
            {"alias": "s", "command": words[0], "args": words[1..]},
            {"alias": "gone", "command": "/no/such/program"},
            {"alias": "off", "command": "/no/such/program", "enabled": false},
        ]})
        .to_string(),
    );
    let report = home.run(&["config", "check", "--connect", "--json"]).expect(0).json();
    let names = &report["names"];
    assert_eq!(names["changed"], json!([{"server": "s", "tool": "a b", "name": "mcp_s_a_b"}]));
    assert_eq!((&names["odd"][0]["server"], &names["odd"][0]["tool"]), (&json!("s"), &json!("odd")));
    assert_eq!(names["unknown"].as_array().map(Vec::len), Some(1));
    assert_eq!(names["unknown"][0]["server"], "gone");
}

#[test]
fn the_searched_paths_are_listed_in_order() {
    let home = Home::new();
    home.write(".config/ropeway/ropeway.yml", "servers: []\n");
    home.write("ropeway.yaml", "servers: []\n");
    let report = home.run(&["config", "path", "--json"]).expect(0).json();
    assert_eq!(report["used"], json!(home.path("ropeway.yaml")));
    let places: Vec<Value> = report["places"].as_array().expect("places").clone();
    let expected = json!([
        {"reason": "folder", "path": home.path("work/ropeway.yaml"), "exists": false},
        {"reason": "folder", "path": home.path("ropeway.yaml"), "exists": true, "trust": "untrusted"},
    ]);
    assert_eq!(Value::from(places[..2].to_vec()), expected);
    let own = json!({"reason": "user", "path": home.path(".config/ropeway/ropeway.yml"), "exists": true});
    assert_eq!(places.last(), Some(&own));
    // The file of the variable is used even if it does not exist.
    let named = home.command(&["config", "path", "--json"]).with(|command| {
        command.env("ROPEWAY_CONFIG", "/no/such/file");
    });
    let report = named.run().expect(0).json();
    assert_eq!(report["used"], "/no/such/file");
    assert_eq!(report["places"][0], json!({"reason": "variable", "path": "/no/such/file", "exists": false}));
}

#[test]
fn the_schema_is_the_one_that_ships() {
    let schema = Home::new().run(&["config", "schema"]).expect(0).json();
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ropeway.schema.json");
    let shipped: Value = serde_json::from_str(&std::fs::read_to_string(shipped).expect("a file")).expect("JSON");
    assert_eq!(schema, shipped);
}

#[test]
fn commands_that_start_no_server_show_the_warnings_of_the_file_too() {
    let home = Home::with_config(&format!(
        "servers:\n{}  - alias: skipped\n    command: x\n    env: {{A: '${{NOT_SET_HERE}}'}}\n",
        demo("demo")
    ));
    let warning = "warning: server `skipped` is skipped: secret `NOT_SET_HERE` is not set\n";
    let without_model = ["chat", "-p", "hi", "--provider", "xai"];
    for (arguments, code) in [(&[][..], 0), (&without_model[..], 4)] {
        let run = home.command(arguments).with(|command| {
            command.env_remove("XAI_API_KEY");
        });
        let run = run.run().expect(code);
        assert_eq!(run.stderr.matches(warning).count(), 1, "{arguments:?}: {}", run.stderr);
    }
    // The warning also appears if the file has only this server.
    let alone = Home::with_config("servers:\n  - {alias: skipped, command: x, env: {A: '${NOT_SET_HERE}'}}\n");
    assert_eq!(alone.run(&[]).expect(0).stderr, warning);
}

#[test]
fn names_without_a_match_are_found_with_connected_servers() {
    let server = format!("command: {}, args: [demo-server]", env!("CARGO_BIN_EXE_ropeway"));
    let tools = "{allow: [calculate, chrat], hide: {calculate: [expresion]}, preset: {'*': {zone: UTC}}}";
    let text = format!(
        "servers:\n  - {{alias: clock, {server},\n     tools: {tools}}}\n  - {{alias: gone, command: /no/such/program, tools: [x]}}\n\
         chat: {{tools: {{deny: [clock.calculat, 'gone.*']}}}}\n"
    );
    let home = Home::with_config(&text);
    home.run(&["config", "check"]).expect(0);
    let run = home.run(&["config", "check", "--connect"]).expect(2);
    let file = home.path("work/ropeway.yaml").display().to_string();
    for line in [
        format!("{file}:3:33: servers[0].tools.allow[1]: server `clock` has no tool `chrat` (did you mean `chart`?)\n"),
        "no argument `expresion` (did you mean `expression`?)\n".to_owned(),
        format!(
            "{file}:5:23: chat.tools.deny[0]: no tool matches `clock.calculat` (did you mean `clock.calculate`?)\n"
        ),
        "◐ `gone`: not connected; tool and argument names were not checked\n".to_owned(),
        format!("✗ {file} has 3 names without a match: "),
    ] {
        assert!(run.stdout.contains(&line), "{line}\n{}", run.stdout);
    }
    let report = home.run(&["config", "check", "--connect", "--json"]).expect(2).json();
    assert_eq!(report["ok"], false);
    let problems: Vec<&Value> =
        report["problems"].as_array().expect("problems").iter().map(|it| &it["suggestion"]).collect();
    assert_eq!(problems, ["chart", "expression", "clock.calculate"]);
    assert_eq!(report["names"]["unchecked"], json!(["gone"]));
}

#[test]
fn the_file_to_check_is_named_by_an_option_too() {
    let home = Home::with_config("servers: []\n");
    home.write("work/other.yaml", "servers:\n  - {alias: a, comand: x}\n");
    let named = home.run(&["config", "check", "other.yaml"]).expect(2).stdout;
    assert_eq!(home.run(&["config", "check", "--config", "other.yaml"]).expect(2).stdout, named);
    assert!(named.contains("(did you mean `command`?)"), "{named}");
    let both = home.run(&["config", "check", "other.yaml", "--config", "other.yaml"]).expect(2);
    assert!(both.stderr.contains("cannot be used with"), "{}", both.stderr);
}

#[test]
fn a_named_server_without_a_file_is_not_the_demo_server() {
    let home = Home::new();
    for words in [
        &["tools", "github"][..],
        &["tools", "github.search"],
        &["call", "github.search", "q=x"],
        &["call", "github.search", "--help"],
        &["health", "github"],
        &["doctor", "github"],
        &["resources", "github"],
        &["read", "github", "test://x"],
        &["prompts", "github"],
        &["prompt", "github.ask"],
        &["events", "github"],
    ] {
        let run = home.run(words).expect(2);
        assert_eq!(run.stdout, "", "{words:?}");
        assert!(
            run.stderr.starts_with("error: unknown server `github`: no configuration file found\n"),
            "{words:?}: {}",
            run.stderr
        );
        let searched = format!("`{}` and the directories above", home.path("work/ropeway.yaml").display());
        for words in [searched.as_str(), "`ropeway add github -- COMMAND`", "`ropeway import`", "`--config FILE`"] {
            assert!(run.stderr.contains(words), "{words}: {}", run.stderr);
        }
    }
    assert!(home.run(&["tools", "demmo"]).expect(2).stderr.contains("did you mean `demo`?"));
    let stderr = home.run(&["tools", "chrat"]).expect(2).stderr;
    assert!(stderr.starts_with("error: unknown server or tool `chrat`\n  did you mean `chart`?\n"), "{stderr}");
    assert!(home.run(&["tools", "chart"]).expect(0).stdout.starts_with("demo.chart\n"));
    for words in [&["tools", "demo"][..], &["tools"], &["call", "demo.time"], &["call", "time"], &["health", "demo"]] {
        home.run(words).expect(0);
    }
}
