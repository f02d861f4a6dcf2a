//! Many servers in one file: the output of each command, with available and unavailable servers.

use std::path::Path;
use std::time::{Duration, Instant};

use ropeway_testing::{Fault, FaultTrigger, Script};
use serde_json::{Value, json};

use crate::temp_home::{TempHome, entry, having};

/// Returns a server that records its messages, to detect whether it was started.
fn recorded(temp_home: &TempHome, alias: &str) -> Value {
    entry(alias, &Script { record_file: Some(record(temp_home, alias)), ..Script::default() })
}

fn record(temp_home: &TempHome, alias: &str) -> std::path::PathBuf {
    temp_home.path().join(format!("{alias}.record"))
}

/// Returns the servers that were started since the last check.
fn started(temp_home: &TempHome, aliases: &[&str]) -> Vec<String> {
    let was_started = |alias: &&&str| std::fs::remove_file(record(temp_home, alias)).is_ok();
    aliases.iter().filter(was_started).map(ToString::to_string).collect()
}

fn hangs() -> Script {
    Script::default()
        .fault(FaultTrigger::method("server/discover"), Fault::Hang)
        .fault(FaultTrigger::method("initialize"), Fault::Hang)
}

/// One server in each state.
pub(crate) fn mixed() -> TempHome {
    TempHome::with(&[
        entry("good", &Script::default()),
        json!({"alias": "broken", "command": "/no/such/program"}),
        json!({"alias": "secretive", "command": "true", "env": {"TOKEN": "${NO_SUCH_SECRET}"}}),
        json!({"alias": "off", "command": "true", "enabled": false}),
        having(entry("unwanted", &Script::default()), json!({"tools": ["nothing"]})),
    ])
}

#[test]
fn a_call_by_server_and_tool_starts_only_that_server() {
    let temp_home = TempHome::new();
    temp_home.configure(&[recorded(&temp_home, "a"), recorded(&temp_home, "b")]);
    for name in ["a.echo", "mcp_a_echo", "a.mcp_a_echo"] {
        assert_eq!(temp_home.run(&format!("call {name} message=hi")).expect(0).stdout, "hi\n");
        assert_eq!(started(&temp_home, &["a", "b"]), ["a"], "{name}");
    }
    assert_eq!(temp_home.run("prompt b.plain").expect(0).stderr, "");
    assert_eq!(started(&temp_home, &["a", "b"]), ["b"]);
    temp_home.run("tools a").expect(0);
    assert_eq!(started(&temp_home, &["a", "b"]), ["a"]);
}

#[test]
fn an_ambiguous_name_lists_the_servers() {
    let temp_home = TempHome::with(&[entry("a", &Script::default()), entry("b", &Script::default())]);
    let run = temp_home.run("call echo message=hi").expect(2);
    assert_eq!(run.stderr, "error: tool `echo` is ambiguous\n  name the server: `a.echo`, `b.echo`\n");
    let run = temp_home.run("prompt plain").expect(2);
    assert_eq!(run.stderr, "error: prompt `plain` is ambiguous\n  name the server: `a.plain`, `b.plain`\n");
    let run = temp_home.run("read test://hello").expect(2);
    assert_eq!(run.stderr, "error: resource `test://hello` is ambiguous\n  name one of the servers before it: a, b\n");
    assert_eq!(temp_home.run("read b test://hello").expect(0).stdout, "hello\n");
}

#[test]
fn suggestions_include_the_server() {
    let temp_home = TempHome::with(&[entry("alpha", &Script::default()), entry("files", &Script::default())]);
    for (typed, words) in [
        ("tools fiels", "unknown server or tool `fiels`\n  did you mean `files`?"),
        ("tools ecoh", "unknown server or tool `ecoh`\n  did you mean `alpha.echo` or `files.echo`?"),
        ("tools zzz", "unknown server or tool `zzz`\n  configured servers: alpha, files"),
        ("health zzz", "unknown server `zzz`\n  configured servers: alpha, files"),
        ("call files echo message=hi", "invalid argument `echo`\n"),
        ("call files echo message=hi", "\n  did you mean `files.echo`?\n"),
        ("call files.ecoh", "unknown tool `ecoh`\n  did you mean `echo`?"),
        ("call fiels.echo", "unknown tool `fiels.echo`\n  did you mean `alpha.echo` or `files.echo`?"),
        ("prompt files.plian", "unknown prompt `files.plian`\n  did you mean `files.plain`?"),
        ("prompt files.greet", "prompt `greet` requires argument `name`\n  try name=VALUE"),
        ("prompt files.greet nmae=x", "prompt `greet` has no argument `nmae`\n  did you mean `name`?"),
        ("prompt files.greet nmae=x", "greet(name: string)"),
        ("prompt files.greet --nmae x", "prompt `greet` has no argument `nmae`\n"),
        ("read nope://x", "no server lists `nope://x`"),
        ("read files nope://x", "server `files` has no resource `nope://x`\n"),
        ("tools ./nope", "`./nope` does not exist\n"),
        ("health ./nope", "`./nope` does not exist\n"),
        ("call ./nope echo", "`./nope` does not exist\n"),
        ("tools /tmp", "`/tmp` is a directory, not a program\n"),
        ("call files.echo", "invalid arguments for tool `files.echo`\n  required property `message` is missing"),
    ] {
        let run = temp_home.run(typed).expect(2);
        assert!(run.stderr.contains(words), "{typed}: {}", run.stderr);
        assert_eq!(run.stdout, "", "{typed}");
    }
}

#[test]
fn lists_accept_several_servers() {
    let temp_home = TempHome::with(&["a", "b", "c"].map(|alias| entry(alias, &Script::default())));
    for command in ["health", "resources", "prompts", "tools"] {
        let list = temp_home.run(&format!("{command} a c --json")).expect(0).json();
        let servers: Vec<&Value> =
            list["servers"].as_array().expect("servers").iter().map(|it| &it["server"]).collect();
        assert_eq!(servers, ["a", "c"], "{command}");
        let stderr = temp_home.run(&format!("{command} a d")).expect(2).stderr;
        assert!(stderr.starts_with("error: unknown server ") && stderr.contains(" `d`\n"), "{command}: {stderr}");
    }
    let events = temp_home.run("events a c --json --timeout 2s").stdout;
    assert!(events.contains("\"server\":\"c\"") && !events.contains("\"server\":\"b\""), "{events}");
}

#[test]
fn a_tool_that_a_filter_hides_names_the_filter() {
    let deny = having(entry("a", &Script::default()), json!({"tools": {"deny": ["echo"]}}));
    let allow = having(entry("b", &Script::default()), json!({"tools": {"allow": ["add"]}}));
    let temp_home = TempHome::with(&[deny, allow]);
    for (typed, server, key) in [
        ("call a.echo message=hi", "a", "tools.deny"),
        ("tools a.echo", "a", "tools.deny"),
        ("call b.echo message=hi", "b", "tools.allow"),
    ] {
        let run = temp_home.run(typed).expect(2);
        let words =
            format!("error: tool `{server}.echo` is hidden by a filter\n  see `{key}` of server `{server}` in ");
        assert!(run.stderr.starts_with(&words) && run.stderr.ends_with("ropeway.yaml\n"), "{typed}: {}", run.stderr);
    }
    assert!(temp_home.run("call b.ecko").expect(2).stderr.contains("unknown tool `ecko`"));
}

#[test]
fn unavailable_servers_do_not_hide_the_others() {
    let temp_home = mixed();
    let list = temp_home.run("tools").expect(0).stdout;
    for words in [
        "● good · 16 tools · scripted",
        "  good.echo(message: string)\n      Says it back\n",
        "✗ broken · down\n    could not start `/no/such/program`: No such file or directory (os error 2)\n    correct the path of the command\n    try `ropeway doctor broken`\n",
        "○ secretive · skipped: `NO_SUCH_SECRET` is not set\n    set it in the environment, or in a .env next to",
        "○ off · disabled\n",
        "◐ unwanted · all 16 tools are filtered out\n    see `tools` and `tool_allowlist` of `unwanted` in ropeway.yaml\n",
    ] {
        assert!(list.contains(words), "{words}\n{list}");
    }
    let statuses: Vec<Value> = temp_home.run("tools --json").expect(0).json()["servers"]
        .as_array()
        .expect("servers")
        .iter()
        .map(|server| json!([server["server"], server["status"]["state"], server["tools"].as_array().map(Vec::len)]))
        .collect();
    let expected = json!([
        ["good", "ready", 16],
        ["broken", "down", 0],
        ["secretive", "skipped", 0],
        ["off", "disabled", 0],
        ["unwanted", "filtered_to_zero", 0]
    ]);
    assert_eq!(json!(statuses), expected);
    // The exit code is that of the worst server.
    temp_home.run("health").expect(3);
}

#[test]
fn a_single_unavailable_server_is_a_failure_with_a_fix() {
    let temp_home = mixed();
    for (name, code, words) in [
        ("broken", 3, "error: server `broken` is unavailable\n  caused by: could not start `/no/such/program`"),
        ("secretive", 2, "error: server `secretive` is skipped: `NO_SUCH_SECRET` is not set\n  set it in"),
        ("off", 2, "error: server `off` is disabled\n  see `enabled` of `off`"),
    ] {
        for command in [format!("tools {name}"), format!("resources {name}"), format!("call {name}.echo message=hi")] {
            let run = temp_home.run(&command).expect(code);
            // The configuration warning appears even if the command does not use the server.
            let warned = "warning: server `secretive` is skipped: secret `NO_SUCH_SECRET` is not set\n";
            let expected = if name == "secretive" { words.to_owned() } else { format!("{warned}{words}") };
            assert!(run.stderr.starts_with(&expected), "{command}: {}", run.stderr);
            assert_eq!(run.stdout, "", "{command}");
        }
    }
    let run = temp_home.run("tools unwanted").expect(0);
    assert!(run.stdout.starts_with("◐ unwanted · all 16 tools are filtered out"), "{}", run.stdout);
}

#[test]
fn a_list_without_available_servers_has_their_exit_code() {
    let broken = json!({"alias": "broken", "command": "/no/such/program"});
    let skipped = json!({"alias": "secretive", "command": "true", "args": ["${NO_SUCH_SECRET}"]});
    let off = json!({"alias": "off", "command": "true", "enabled": false});
    for (servers, code, words) in [
        (&[broken, off.clone()][..], 3, "could not start"),
        (&[skipped, off.clone()], 2, "`NO_SUCH_SECRET` is not set"),
        (&[off.clone(), having(off, json!({"alias": "also-off"}))], 0, "○ also-off · disabled"),
        (&[], 0, "No servers configured in"),
    ] {
        let run = TempHome::with(servers).run("tools").expect(code);
        assert!(run.stdout.contains(words), "{}", run.stdout);
    }
}

#[test]
fn a_slow_server_does_not_hide_the_others() {
    let temp_home = TempHome::with(&[entry("quick", &Script::default()), entry("slow", &hangs())]);
    for (typed, words) in [
        ("tools", "  quick.echo(message: string)\n"),
        ("resources", "  test://hello  text/plain · 5 B\n"),
        ("prompts", "quick.greet(name)\n"),
        ("health", "quick   ● ready"),
    ] {
        let begun = Instant::now();
        let run = temp_home.run(&format!("{typed} --timeout 4s")).expect(5);
        assert!(run.stdout.contains(words), "{typed}: {}", run.stdout);
        assert!(run.stdout.contains("◐ slow · no response within 4 s"), "{typed}: {}", run.stdout);
        assert!(begun.elapsed() < Duration::from_secs(15), "{typed} took {:?}", begun.elapsed());
    }
    // The cache knows who has the tool.
    assert_eq!(temp_home.run("call add a=1 b=2 --timeout 5s").expect(0).json(), json!({"sum": 3.0}));
    let temp_home = TempHome::with(&[entry("quick", &Script::default()), entry("slow", &hangs())]);
    let run = temp_home.run("call add a=1 b=2 --timeout 1s").expect(5);
    assert!(run.stderr.starts_with("error: server `slow` did not respond within 1 s"), "{}", run.stderr);
    assert!(run.stderr.contains("try `SERVER.TOOL` to start only that server"), "{}", run.stderr);
    assert_eq!(temp_home.run("call quick.add a=1 b=2 --timeout 5s").expect(0).json(), json!({"sum": 3.0}));
}

#[test]
fn a_failed_listing_is_reported_next_to_the_others() {
    let refuses = Script::default()
        .fault(FaultTrigger::method("resources/list"), Fault::Error(json!({"code": -32000, "message": "no shelf"})));
    let never = Script::default().fault(FaultTrigger::method("resources/list"), Fault::Hang);
    let temp_home =
        TempHome::with(&[entry("good", &Script::default()), entry("refuses", &refuses), entry("never", &never)]);
    let run = temp_home.run("resources --timeout 4s").expect(5);
    assert!(run.stdout.contains("● good · 3 resources, 1 template\n"), "{}", run.stdout);
    assert!(
        run.stdout.contains("✗ refuses · request failed\n    server `refuses` returned error -32000: no shelf\n"),
        "{}",
        run.stdout
    );
    assert!(run.stdout.contains("◐ never · no response within 4 s\n"), "{}", run.stdout);
    let list = temp_home.run("resources --json --timeout 4s").expect(5).json();
    assert_eq!(list["servers"][1]["error"], "server `refuses` returned error -32000: no shelf");
    assert_eq!(list["servers"][2]["error"], "no response within 4 s");
}

#[test]
fn every_command_has_its_json() {
    let temp_home =
        TempHome::with(&[entry("a", &Script::default()), json!({"alias": "broken", "command": "/no/such"})]);
    let json = |typed: &str, code| temp_home.run(&format!("{typed} --json")).expect(code).json();

    let found = json("tools --find 'two numbers'", 0);
    assert_eq!(found["found"][0]["tool"]["name"], "mcp_a_add");
    assert!(found["found"][0]["score"].as_f64().is_some_and(|score| score > 0.0));
    assert_eq!(found["servers"][1]["state"], "down");

    let resources = json("resources", 0);
    assert_eq!(resources["servers"][0]["resources"][0]["uri"], "test://hello");
    assert_eq!(resources["servers"][0]["templates"][0]["uriTemplate"], "test://items/{id}");
    assert_eq!(resources["servers"][1]["status"]["state"], "down");
    assert_eq!(resources["servers"][1].get("resources"), None);

    let read = json("read a test://hello", 0);
    assert_eq!(
        read,
        json!({"server": "a", "contents": [{"uri": "test://hello", "mimeType": "text/plain", "text": "hello"}]})
    );

    let prompts = json("prompts", 0);
    assert_eq!(prompts["servers"][0]["prompts"][0]["name"], "greet");
    let prompt = json("prompt a.greet name=Ada", 0);
    assert_eq!(prompt["messages"][0]["role"], "user");

    let health = json("health", 3);
    let server = &health["servers"][0];
    assert_eq!(
        (&server["server"], &server["status"]),
        (&json!("a"), &json!({"state": "ready", "outcome": "ready", "tools": 16}))
    );
    assert_eq!((&server["era"], &server["protocol_version"]), (&json!("modern"), &json!("2026-07-28")));
    assert!(server["latency_ms"].as_f64().is_some_and(|latency| latency > 0.0), "{server}");
    let cause = "could not start `/no/such`: No such file or directory (os error 2)";
    assert_eq!(health["servers"][1]["status"], json!({"state": "down", "outcome": "down", "cause": cause}));
    assert_eq!(health["servers"][1]["last_error"], cause);

    let call = json("call a.echo message=hi", 0);
    assert_eq!((&call["tool"], &call["origin"]["server"]), (&json!("mcp_a_echo"), &json!("a")));
    let welcome = json("", 0);
    assert_eq!(
        welcome,
        json!({"config": temp_home.path().join("ropeway.yaml"), "servers": ["a", "broken"], "trusted": true})
    );
}

#[test]
fn the_file_of_another_client_is_read_directly() {
    let temp_home = TempHome::new();
    let script = serde_json::to_string(&Script::default()).expect("a script is JSON");
    let server = json!({"command": crate::fault_run::binary(), "args": [script]});
    temp_home.write("claude.json", &json!({"mcpServers": {"one": server, "two": {"command": "/no/such"}}}).to_string());
    let run = temp_home.run("tools --config claude.json").expect(0);
    assert!(run.stdout.contains("● one · 16 tools"), "{}", run.stdout);
    assert!(run.stdout.contains("try `ropeway doctor two --config claude.json`"), "{}", run.stdout);
    assert_eq!(temp_home.run("call one.echo message=hi --config claude.json").expect(0).stdout, "hi\n");
}

#[test]
fn a_configuration_is_found_above_the_folder_and_by_its_variable() {
    let temp_home = TempHome::with(&[entry("a", &Script::default())]);
    let below = temp_home.path().join("x/y");
    std::fs::create_dir_all(&below).expect("folders");
    let run = temp_home.ropeway(&["tools", "--json"]).with(|command| {
        command.current_dir(&below).env("HOME", temp_home.path().join("home"));
    });
    assert_eq!(run.run().expect(0).json()["servers"][0]["server"], "a");

    let other = TempHome::new();
    let file = temp_home.path().join("ropeway.yaml");
    let run = other.ropeway(&["tools", "--json"]).with(|command| {
        command.env("ROPEWAY_CONFIG", &file);
    });
    assert_eq!(run.run().expect(0).json()["servers"][0]["server"], "a");

    let folder = other.path().join(".config/ropeway");
    std::fs::create_dir_all(&folder).expect("folders");
    std::fs::copy(&file, folder.join("ropeway.yaml")).expect("a copy");
    assert_eq!(other.run("tools --json").expect(0).json()["servers"][0]["server"], "a");
}

#[test]
fn a_lazy_server_is_remembered_from_one_command_to_the_next() {
    let temp_home = TempHome::new();
    let lazy = having(recorded(&temp_home, "lazy"), json!({"start": "lazy"}));
    temp_home.configure(&[lazy, recorded(&temp_home, "eager")]);
    let both = ["lazy", "eager"];

    let first = temp_home.run("tools").expect(0).stdout;
    assert!(first.contains("● lazy · 16 tools"), "{first}");
    assert_eq!(started(&temp_home, &both), both);

    let second = temp_home.run("tools").expect(0).stdout;
    assert!(
        second.contains("◐ lazy · 16 tools (cached; starts on the first call)\n  lazy.echo(message: string)\n"),
        "{second}"
    );
    assert_eq!(started(&temp_home, &both), ["eager"]);
    assert_eq!(temp_home.run("health --json").expect(0).json()["servers"][0]["status"]["state"], "cached");
    assert_eq!(started(&temp_home, &both), ["eager"]);

    // A call, a selection by name or a request for uncached content starts the server.
    for typed in ["call lazy.echo message=hi", "tools lazy", "resources lazy", "read lazy test://hello"] {
        temp_home.run(typed).expect(0);
        assert_eq!(started(&temp_home, &both), ["lazy"], "{typed}");
    }
    assert!(temp_home.run("prompts").expect(0).stdout.contains("lazy.greet(name)"));
    assert_eq!(started(&temp_home, &both), both);
}

#[test]
fn a_renamed_tool_goes_by_its_new_name() {
    let temp_home = TempHome::with(&[
        having(entry("a", &Script::default()), json!({"tools": {"allow": ["echo", "add"], "rename": {"echo": "say"}}})),
        json!({"alias": "off", "command": "true", "enabled": false}),
    ]);
    let list = temp_home.run("tools").expect(0).stdout;
    assert!(list.contains("● a · 2 tools") && list.contains("  a.say(message: string)\n"), "{list}");
    for name in ["a.say", "say", "a.echo", "mcp_a_say"] {
        assert_eq!(temp_home.run(&format!("call {name} message=hi")).expect(0).stdout, "hi\n", "{name}");
    }
}

#[test]
fn a_picture_that_is_read_is_kept_on_request() {
    let temp_home = TempHome::with(&[entry("a", &Script::default())]);
    let run = temp_home.run("read test://picture").expect(0);
    assert_eq!(run.stdout, "test://picture\nimage/png, 8 B\n");
    assert_eq!(run.stderr, "use --save PATH to save binary content\n");
    let run = temp_home.run("read test://picture --save out").expect(0);
    assert_eq!(run.stdout, "test://picture\nimage/png, 8 B → out/a-1.png\n");
    assert_eq!(std::fs::read(temp_home.path().join("out/a-1.png")).expect("a file"), b"\x89PNG\r\n\x1a\n");
    let run = temp_home.run("read test://picture --json --save out").expect(0);
    let document = run.json();
    assert_eq!(
        (&document["contents"][0]["path"], &document["saved"]),
        (&json!("out/a-2.png"), &json!(["out/a-2.png"]))
    );
    assert_eq!(temp_home.run("read test://picture --json").expect(0).json()["contents"][0]["blob"], "iVBORw0KGgo=");
    assert!(run.stderr.contains("out/a-2.png"), "{}", run.stderr);
    // A URI that matches a template need not be listed.
    assert_eq!(temp_home.run("read test://items/7").expect(0).stderr, "");
}

#[test]
fn events_of_every_command_are_added_to_a_log_file() {
    let temp_home =
        TempHome::with(&[entry("a", &Script::default()), json!({"alias": "broken", "command": "/no/such"})]);
    let events = || {
        let text = std::fs::read_to_string(temp_home.path().join("log")).unwrap_or_default();
        let line = |line: &str| serde_json::from_str::<Value>(line).expect("a line of JSON");
        text.lines().map(line).collect::<Vec<_>>()
    };
    temp_home.run("tools --log-file log").expect(0);
    let first = events();
    assert!(first.iter().any(|event| event["event"] == "server.ready" && event["server"] == "a"), "{first:?}");
    assert!(first.iter().any(|event| event["event"] == "server.down" && event["server"] == "broken"), "{first:?}");
    assert!(first.iter().all(|event| event["time"].as_str().is_some_and(|time| time.ends_with('Z'))), "{first:?}");

    temp_home.run("call a.echo message=quiet --log-file log").expect(0);
    let second = events();
    assert_eq!(&second[..first.len()], &first[..]);
    let called = |events: &[Value]| events.iter().rfind(|event| event["event"] == "mcp.tool_called").cloned();
    let call = called(&second).expect("the call");
    assert_eq!((&call["tool"], call.get("arguments"), call.get("result")), (&json!("echo"), None, None));

    temp_home.run("call a.echo message=loud --log-file log --log-payloads").expect(0);
    let call = called(&events()).expect("the call");
    assert_eq!(call["arguments"], json!({"message": "loud"}));

    let run = temp_home.run("tools --log-payloads").expect(2);
    assert!(run.stderr.contains("--log-file"), "{}", run.stderr);
    let run = temp_home.run("tools --log-file /no/such/folder/log").expect(2);
    assert!(run.stderr.contains("could not write `/no/such/folder/log`"), "{}", run.stderr);
    assert!(!Path::new("/no/such/folder").exists());
}

#[test]
fn a_log_file_with_payloads_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let temp_home = TempHome::with(&[entry("a", &Script::default())]);
    let mode = || std::fs::metadata(temp_home.path().join("log")).expect("a log").permissions().mode() & 0o777;
    temp_home.run("call a.echo message=hi --log-file log").expect(0);
    assert_eq!(mode(), 0o600);
    // An existing log keeps its permissions, except with payloads.
    std::fs::set_permissions(temp_home.path().join("log"), std::fs::Permissions::from_mode(0o644))
        .expect("permissions");
    temp_home.run("call a.echo message=hi --log-file log").expect(0);
    assert_eq!(mode(), 0o644);
    temp_home.run("call a.echo message=hi --log-file log --log-payloads").expect(0);
    assert_eq!(mode(), 0o600);
}

#[test]
fn the_era_option_applies_to_configured_servers() {
    let temp_home = TempHome::with(&[entry("a", &Script::default()), entry("b", &Script::default())]);
    for (era, expected) in [("legacy", "legacy"), ("modern", "modern"), ("auto", "modern")] {
        let list = temp_home.run(&format!("tools --json --era {era}")).expect(0).json();
        assert_eq!([&list["servers"][0]["era"], &list["servers"][1]["era"]], [expected; 2]);
    }
}
