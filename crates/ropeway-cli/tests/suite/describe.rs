//! Descriptions of one tool: `ropeway tools SERVER.TOOL` and `ropeway call SERVER.TOOL --help`.

use std::path::Path;
use std::process::{Command, Stdio};

use ropeway_testing::Script;
use serde_json::{Map, Value, json};

use crate::real::configured;
use crate::temp_home::{TempHome, entry};
use crate::terminal::Terminal;
use crate::{Ropeway, Run};

/// Returns a server whose only tool has this schema.
fn server(schema: Value) -> Value {
    let tool = json!({"name": "one", "description": "Does it.", "inputSchema": schema});
    let script = Script { builtin_tools: false, ..Script::legacy() };
    entry("s", &script.tool(tool, json!({"content": [{"type": "text", "text": "done"}]})))
}

/// Returns the output in a window of this width.
fn shown(temp_home: &TempHome, words: &[&str], columns: u16) -> String {
    let screen = Terminal { columns, coloured: false }.show(temp_home.ropeway(words));
    assert_eq!(screen.code, Some(0), "{}", screen.text);
    screen.text
}

/// Returns the command line below `Example`.
fn example(text: &str) -> String {
    text.split_once("\nExample\n").expect("an example").1.to_owned()
}

/// Runs a command line in a shell with the binary on its PATH.
fn paste(temp_home: &TempHome, line: &str) -> Run {
    let folder = Path::new(env!("CARGO_BIN_EXE_ropeway")).parent().expect("a folder");
    let mut command = Command::new("sh");
    command.args(["-c", line]).stdin(Stdio::null()).current_dir(temp_home.path()).env("HOME", temp_home.path());
    command.env("PATH", format!("{}:/usr/bin:/bin", folder.display())).env("ROPEWAY_TRUST", "1");
    Run::from(command.output().expect("a shell"))
}

#[test]
fn a_tool_is_described_with_everything_about_it() {
    let text = Run::of(&["tools", "demo.chart"]).expect(0).stdout;
    let expected = r#"demo.chart
    Chart

    Draws numbers as a chart and returns a PNG image of 640 by 360 pixels.

Arguments
    values: number[] (required)
        The values, from left to right.
        1 to 500 items
    title: string
        Title above the chart.
        at most 200 characters
    kind: "bar" | "line" (default "bar")
        Chart type.
    other arguments are refused

Hints (from the server, trusted)
    read-only: changes nothing
    closed world: reaches no external systems

Example
    ropeway call demo.chart values='[1]'
"#;
    assert_eq!(text, expected);
}

#[test]
fn a_required_argument_with_an_invalid_default_is_shown_as_required() {
    let temp_home = TempHome::with(&[server(json!({"type": "object", "required": ["kind", "n"], "properties": {
        "kind": {"enum": ["a", "b"], "default": "c"}, "n": {"type": "integer", "default": "five"},
    }}))]);
    let listed = temp_home.run("tools s").expect(0).stdout;
    assert!(listed.contains("\none(kind: \"a\" | \"b\", n: integer)\n"), "{listed}");
    let described = temp_home.run("call s.one --help").expect(0).stdout;
    let arguments = "Arguments\n    kind: \"a\" | \"b\" (required)\n    n: integer (required)\n";
    assert!(described.contains(arguments), "{described}");
    // The example can be pasted.
    paste(&temp_home, &example(&described)).expect(0);
    temp_home.run("call s.one").expect(2);
}

#[test]
fn help_behind_a_tool_prints_the_same_as_tools() {
    for tool in ["demo.chart", "demo.statistics", "demo.time"] {
        let described = Run::of(&["tools", tool]).expect(0).stdout;
        assert_eq!(Run::of(&["call", tool, "--help"]).expect(0).stdout, described);
        assert_eq!(Run::of(&["call", tool, "seconds=3", "-h", "--no-pager"]).expect(0).stdout, described);
    }
    assert!(Run::of(&["call", "chart", "--help"]).expect(0).stdout.starts_with("demo.chart\n"));
    for words in [&["call", "--help"][..], &["--help", "call", "chart"], &["help", "call"]] {
        let help = Run::of(words).expect(0).stdout;
        assert!(help.contains("Usage: ropeway "), "{help}");
        assert!(!help.contains("PNG image"), "{help}");
    }
}

#[test]
fn an_unknown_tool_gets_the_nearest_right_name() {
    for words in [["tools", "demo.chrat"], ["call", "demo.chrat"]] {
        let run = Ropeway::new(&words).with(|command| {
            command.arg(if words[0] == "call" { "--help" } else { "--no-pager" });
        });
        let run = run.run().expect(2);
        assert_eq!((run.stdout.as_str(), run.stderr.contains("did you mean `chart`?")), ("", true), "{}", run.stderr);
    }
    let temp_home = TempHome::with(&[server(json!({"type": "object"}))]);
    let run = temp_home.run("tools t.one").expect(2);
    assert!(run.stderr.contains("unknown server `t`"), "{}", run.stderr);
}

#[test]
fn a_tool_name_without_its_server_is_described_for_every_server() {
    let temp_home = TempHome::with(&[
        server(json!({"type": "object"})),
        entry("t", &Script::default()),
        entry("u", &Script::default()),
        json!({"alias": "broken", "command": "/no/such/program"}),
    ]);
    let one = temp_home.run("tools one").expect(0).stdout;
    assert!(one.starts_with("s.one\n"), "{one}");
    assert_eq!(temp_home.run("tools one").expect(0).stdout, one, "with a cache");
    let both = temp_home.run("tools echo --names").expect(0).stdout;
    assert_eq!(both, "t.echo\nu.echo\n");
    assert_eq!(temp_home.run("tools one echo t --names").expect(0).stdout.lines().next(), Some("s.one"));
    assert_eq!(temp_home.run("tools one --json").expect(0).json()["name"], "mcp_s_one");
    let stderr = temp_home.run("tools noe").expect(2).stderr;
    assert!(stderr.starts_with("error: unknown server or tool `noe`\n  did you mean `s.one`?\n"), "{stderr}");
    assert!(stderr.contains("server `broken` is "), "{stderr}");
}

#[test]
fn several_servers_and_tools_are_selected_at_once() {
    let temp_home = TempHome::with(&[server(json!({"type": "object"})), entry("t", &Script::default())]);
    let text = temp_home.run("tools s.one t.echo").expect(0).stdout;
    assert!(text.starts_with("s.one\n") && text.contains("\n\nt.echo\n"), "{text}");
    let text = temp_home.run("tools s.one t").expect(0).stdout;
    assert!(text.starts_with("s.one\n") && text.contains("\n\n● t · "), "{text}");
    assert!(temp_home.run("tools s t").expect(0).stdout.contains("  s.one()\n"));

    let one = temp_home.run("tools s.one --json").expect(0).json();
    assert_eq!(json!([one["name"], one["description"]]), json!(["mcp_s_one", "Does it."]));
    let two = temp_home.run("tools s.one t.echo --json").expect(0).json();
    assert_eq!(json!([two[0]["name"], two[1]["name"]]), json!(["mcp_s_one", "mcp_t_echo"]));
    let mixed = temp_home.run("tools s t.echo --json").expect(0).json();
    let names = |at: usize| mixed["servers"][at]["tools"].as_array().expect("tools").len();
    assert_eq!([names(0), names(1)], [1, 1], "{mixed}");
    let refused = temp_home.run("tools s.one --find x").expect(2);
    assert!(refused.stderr.contains("--find cannot be combined with a tool name"), "{}", refused.stderr);
}

#[test]
fn a_server_that_is_down_is_a_failure_for_its_tools() {
    let temp_home = TempHome::with(&[json!({"alias": "gone", "command": "/no/such/program"})]);
    let run = temp_home.run("tools gone.x").expect(3);
    assert!(run.stderr.starts_with("error: server `gone` is unavailable"), "{}", run.stderr);
}

#[test]
fn names_for_scripts_are_one_per_line_and_nothing_else() {
    let broken = json!({"alias": "gone", "command": "/no/such/program"});
    let temp_home = TempHome::with(&[server(json!({"type": "object"})), broken, entry("t", &Script::default())]);
    let run = temp_home.run("tools --names").expect(0);
    let names: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(names[..2], ["s.one", "t.echo"]);
    assert!(names.iter().all(|name| name.starts_with("t.") || *name == "s.one"), "{names:?}");
    assert!(run.stderr.contains("gone"), "{}", run.stderr);
    assert_eq!(temp_home.run("tools s --names").expect(0).stdout, "s.one\n");
    assert_eq!(temp_home.run("tools t.echo --names").expect(0).stdout, "t.echo\n");
    assert_eq!(temp_home.run("tools t.echo --names --json").expect(0).json(), json!(["t.echo"]));
    assert!(temp_home.run("tools --find echo --names").expect(0).stdout.starts_with("t.echo\n"));
    for name in names {
        let run = temp_home.run(&format!("tools {name}")).expect(0);
        assert!(run.stdout.starts_with(&format!("{name}\n")), "{}", run.stdout);
    }
}

#[test]
fn a_description_fits_windows_of_every_width() {
    let long = "Counts the words of a text that may be rather long, and says how many there are of each.";
    let schema = json!({"type": "object", "required": ["options"], "properties": {
        "mode": {"enum": ["alpha", "beta", "gamma", "delta", "epsilon"], "default": "alpha", "description": long},
        "options": {"type": "array", "minItems": 1, "items": {"type": "object", "properties": {
            "nested": {"type": "object", "description": long, "properties": {"deep": {"type": "integer", "maximum": 9}}}}}},
    }});
    let temp_home = TempHome::with(&[server(schema)]);
    for columns in [20, 40, 80, 200] {
        let text = shown(&temp_home, &["tools", "s.one"], columns);
        let (description, example) = text.split_once("\nExample\n").expect("an example");
        for line in description.lines() {
            assert!(line.chars().count() <= usize::from(columns), "{columns}: {line}\n{text}");
        }
        assert!(example.lines().count() >= 1, "{text}");
        for words in ["options:", "object[]", "nested:", "deep:", "integer", "\"epsilon\"", "(required)"] {
            assert!(text.contains(words), "{columns}: {words}\n{text}");
        }
    }
}

#[test]
fn an_example_can_be_pasted_whatever_the_width() {
    let temp_home = TempHome::new();
    for tool in ["calculate", "chart", "countdown", "fail", "statistics", "time"] {
        for columns in [20, 80] {
            let text = shown(&temp_home, &["tools", &format!("demo.{tool}")], columns);
            let run = paste(&temp_home, &example(&text));
            // Only the tool knows which expressions and time zones are valid.
            assert!(matches!(run.code, Some(0 | 1)), "{tool} ended with {:?}: {}\n{text}", run.code, run.stderr);
        }
    }
    let odd = json!({"type": "object", "required": ["it's", "a b", "n"], "properties": {
        "it's": {"const": "$HOME `x` \"y\" \\ '"}, "a b": {"type": "array", "items": {"type": "integer"}}, "n": {"type": "number"}}});
    let temp_home = TempHome::with(&[server(odd)]);
    let run = paste(&temp_home, &example(&shown(&temp_home, &["tools", "s.one"], 40))).expect(0);
    assert_eq!(run.stdout, "done\n");
}

#[test]
fn deep_schemas_are_spelled_out_in_signatures_and_lists() {
    let inner = json!({"type": "object", "required": ["tags"], "properties": {
        "tags": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}}}});
    let schema = json!({"type": "object", "required": ["a"], "properties": {
        "a": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "array", "items": inner}}}}}});
    let temp_home = TempHome::with(&[server(schema), entry("t", &Script::default())]);
    let list = temp_home.run("tools").expect(0).stdout;
    assert!(list.contains("  s.one(a: {b?: {tags: string[][]}[]}[])\n"), "{list}");
    let one = temp_home.run("tools s").expect(0).stdout;
    assert!(one.contains("one(a: {b?: {tags: string[][]}[]}[])\n"), "{one}");
    for columns in [20, 40] {
        let text = shown(&temp_home, &["tools", "s"], columns);
        let line = text.lines().find(|line| line.contains("a: ")).expect("the argument");
        assert!(line.contains("[]") && line.chars().count() <= usize::from(columns), "{text}");
    }
}

#[test]
fn hostile_schemas_are_described_within_bounds() {
    let many = |count: usize, end: &str, field: Value| {
        (0..count).map(|at| (format!("p{at}{end}"), field.clone())).collect::<Map<String, Value>>()
    };
    let odd = many(500, "\u{1b}[2J", json!({"$ref": "#/$defs/t", "description": "\u{9b}31m\u{202e}x"}));
    let tree = json!({"type": "object", "properties": {
        "t": {"$ref": "#/$defs/t"}, "n": {"type": "array", "items": {"$ref": "#/$defs/t"}}}});
    let names: Vec<&String> = odd.keys().collect();
    let recursive = json!({"type": "object", "properties": odd, "required": names, "$defs": {"t": tree}});
    // As many as fit into one argument of the server's command line.
    let huge = json!({"type": "object", "properties": many(10_000, "", json!({}))});
    let wrong = json!({"type": 7, "properties": {"a": 3, "b": [], "c": {"type": {}, "enum": "x", "items": 1, "anyOf": {},
        "required": 5, "default": {"\u{1b}]0;t\u{7}": null}, "minimum": "x", "pattern": {}, "description": []}}, "required": {"a": 1}});
    for schema in [huge, recursive, wrong] {
        let temp_home = TempHome::with(&[server(schema)]);
        for typed in ["tools s.one", "tools s", "tools", "tools s.one --names", "call s.one --help"] {
            let run = temp_home.run(typed).expect(0);
            assert!(run.stdout.len() < 200_000, "{typed} prints {} bytes", run.stdout.len());
            let harmful = |c: char| c.is_control() && c != '\n' || matches!(c, '\u{202e}' | '\u{9b}');
            assert!(!run.stdout.contains(harmful), "{typed}: {:?}", run.stdout.chars().find(|c| harmful(*c)));
        }
    }
}

#[test]
fn tools_of_real_servers_are_described_and_their_examples_run() {
    let (temp_home, _launches) = configured(&["filesystem", "memory", "everything"]);
    let edit = temp_home.run("tools filesystem.edit_file").expect(0).stdout;
    let nested = "    edits: object[] (required)\n        oldText: string (required)\n            Text to search for - must match exactly\n";
    assert!(edit.contains(nested), "{edit}");
    assert!(edit.contains("    destructive: may delete or overwrite\n"), "{edit}");
    let create = temp_home.run("tools memory.create_entities").expect(0).stdout;
    assert!(create.contains("        observations: string[] (required)\n"), "{create}");
    for tool in ["memory.create_entities", "everything.get-annotated-message", "everything.get-sum"] {
        let text = temp_home.run(&format!("tools {tool}")).expect(0).stdout;
        paste(&temp_home, &example(&text)).expect(0);
    }
    let list = temp_home.run("tools memory").expect(0).stdout;
    assert!(list.contains("observations: string[]}[]") && !list.contains("any[]"), "{list}");
}
