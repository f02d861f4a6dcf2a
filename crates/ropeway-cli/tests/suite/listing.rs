//! Lists of servers that are unavailable or partly available.

use ropeway_testing::{Fault, FaultTrigger, Script};
use serde_json::{Value, json};

use crate::many::mixed;
use crate::temp_home::{TempHome, entry, having};

#[test]
fn tools_hidden_by_a_name_collision_are_reported() {
    let bare = |alias: &str| having(entry(alias, &Script::default()), json!({"prefix": "", "tools": ["echo", "add"]}));
    let temp_home = TempHome::with(&[bare("a"), bare("b")]);
    let list = temp_home.run("tools").expect(0).stdout;
    let why = "2 tools hidden: `a` has the same tool names; see `ropeway config check\n    --connect`\n";
    let (_, group) = list.split_once("● b · 2 tools").expect("the server");
    let (_, lines) = group.split_once('\n').expect("lines");
    assert!(lines.starts_with(&format!("    {why}")), "{list}");
    let list = temp_home.run("tools --json").expect(0).json();
    let hidden: Vec<&Value> = list["servers"].as_array().expect("servers").iter().map(|it| &it["hidden"]).collect();
    assert_eq!(hidden, [&Value::Null, &json!(2)]);
}

#[test]
fn json_lists_have_one_form_for_any_number_of_servers() {
    let temp_home = mixed();
    for (name, code, outcome) in [("broken", 3, "down"), ("secretive", 2, "skipped"), ("off", 2, "disabled")] {
        for command in ["tools", "resources", "prompts"] {
            let list = temp_home.run(&format!("{command} {name} --json")).expect(code).json();
            let servers = list["servers"].as_array().expect("servers");
            assert_eq!(servers.len(), 1, "{list}");
            let server = json!([servers[0]["server"], servers[0]["status"]["state"]]);
            assert_eq!(server, json!([name, outcome]), "{command}");
        }
    }
    let refuses = Script::default()
        .fault(FaultTrigger::method("resources/list"), Fault::Error(json!({"code": -32000, "message": "no"})));
    let temp_home = TempHome::with(&[entry("refuses", &refuses)]);
    let list = temp_home.run("resources --json").expect(1).json();
    assert_eq!(list["servers"][0]["error"], "server `refuses` returned error -32000: no");
}

#[test]
fn an_unknown_name_is_not_a_usage_error_if_all_servers_are_down() {
    let broken = |alias: &str| json!({"alias": alias, "command": "/no/such/program"});
    let temp_home = TempHome::with(&[broken("one"), broken("two")]);
    for typed in ["call x", "read foo://x", "prompt x"] {
        let run = temp_home.run(typed).expect(3);
        assert!(
            run.stderr.ends_with("  unavailable servers: one, two (see `ropeway health`)\n"),
            "{typed}: {}",
            run.stderr
        );
    }
    let temp_home = TempHome::with(&[broken("one"), entry("good", &Script::default())]);
    for typed in ["call xyz", "read foo://x", "prompt xyz"] {
        let run = temp_home.run(typed).expect(2);
        assert!(run.stderr.contains("  server `one` is "), "{typed}: {}", run.stderr);
    }
}

#[test]
fn the_instructions_of_a_server_come_before_its_tools() {
    let script = Script { instructions: Some("Ask me\nanything.".to_owned()), ..Script::default() };
    let temp_home = TempHome::with(&[entry("a", &script), entry("b", &Script::default())]);
    let list = temp_home.run("tools a").expect(0).stdout;
    assert!(list.contains("MCP 2026-07-28\n  Ask me\n  anything.\n\necho("), "{list}");
    assert!(!temp_home.run("tools").expect(0).stdout.contains("Ask me"));
}

#[test]
fn without_servers_every_command_shows_how_to_add_one() {
    let temp_home = TempHome::with(&[]);
    for typed in ["", "tools", "resources", "prompts", "health"] {
        let text = temp_home.run(typed).expect(0).stdout;
        assert!(text.starts_with("No servers configured in ") && text.contains("`ropeway add NAME"), "{typed}: {text}");
    }
}

#[test]
fn a_dead_server_shows_its_last_output_once_and_no_tools() {
    let dies = "echo starting up >&2; echo DATABASE_URL is not set >&2; exit 7";
    let temp_home = TempHome::with(&[json!({"alias": "dies", "command": "sh", "args": ["-c", dies]})]);
    let text = temp_home.run("health").expect(3).stdout;
    assert_eq!(text.matches("DATABASE_URL").count(), 1, "{text}");
    let row = text.lines().find(|line| line.starts_with("dies")).expect("its row");
    assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["dies", "✗", "down", "-", "-", "-", "-", "-"], "{text}");
}
