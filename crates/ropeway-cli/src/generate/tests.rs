//! Tests of generated code: equal to the files in `tests/generated`, which other tests compile and run.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::{Language, ServerInterface, ToolInterface};

const LANGUAGES: [(Language, &str); 3] = [(Language::Ts, "ts"), (Language::Rust, "rs"), (Language::Cli, "py")];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/generated")
}

/// Returns a server with the tools of a `tools/list` result.
fn server(alias: &str, title: &str, tools: &Value) -> ServerInterface {
    let text = |tool: &Value, word: &str| tool[word].as_str().unwrap_or_default().to_owned();
    let tool = |tool: &Value| ToolInterface {
        name: text(tool, "name"),
        call_name: format!("{alias}.{}", text(tool, "name")),
        library_name: format!("{alias}.{}", text(tool, "name")),
        description: text(tool, "description"),
        input: tool["inputSchema"].clone(),
        output: tool.get("outputSchema").cloned(),
    };
    let tools = tools.as_array().expect("tools").iter().map(tool).collect();
    ServerInterface { alias: alias.to_owned(), title: title.to_owned(), options: Vec::new(), tools }
}

fn odd() -> ServerInterface {
    let text = std::fs::read_to_string(folder().join("tools.json")).expect("a file");
    server("odd", "odd-server 1.0", &serde_json::from_str(&text).expect("JSON"))
}

fn generate(language: Language, tools: Value) -> String {
    language.generate(&server("s", "t", &tools))
}

/// Returns the code for one tool with one argument of this type, without the common part.
fn typescript_of(schema: Value) -> String {
    let code = generate(Language::Ts, json!([{"name": "t", "inputSchema": {"properties": {"x": schema}}}]));
    let (_, code) = code.split_once("export interface TArguments {\n  x?: ").expect("the arguments");
    code.split_once(";\n}").expect("an end").0.to_owned()
}

#[test]
fn odd_schemas_give_the_code_that_is_compiled_by_other_tests() {
    for (language, extension) in LANGUAGES {
        let (code, path) = (language.generate(&odd()), folder().join(format!("odd.{extension}")));
        if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
            std::fs::write(&path, &code).expect("a file");
        }
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(stored == code, "{} differs: run with UPDATE_SNAPSHOTS=1", path.display());
    }
}

#[test]
fn a_schema_reads_like_a_type_of_typescript() {
    for (schema, expected) in [
        (json!({"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}), "(string | null)[]"),
        (json!({"enum": ["a", 1, true, null]}), r#""a" | 1 | true | null"#),
        (json!({"const": 1e30}), "number"),
        (json!({"type": "integer", "nullable": true}), "number | null"),
        (json!({"type": "array", "prefixItems": [{"type": "string"}], "items": false, "minItems": 1}), "[string]"),
        (json!({"type": "object", "additionalProperties": {"type": "number"}}), "{\n    [key: string]: number;\n  }"),
        (json!(false), "never"),
        (json!({"$ref": "elsewhere.json"}), "unknown"),
    ] {
        assert_eq!(typescript_of(schema.clone()), expected, "{schema}");
    }
}

#[test]
fn text_of_a_server_is_in_comments_and_literals_only() {
    let evil = "*/ evil() /* \u{2028}evil()\n```\nevil()\n```\n\"; evil(); '; evil(); ${evil()} `evil()` \\\" evil()";
    let schema = json!({"description": evil, "enum": [evil], "default": evil});
    let tools = json!([{"name": evil, "description": evil, "inputSchema": {"properties": {evil: schema}, "required": [evil]},
        "outputSchema": {"$ref": "#/$defs/evil", "$defs": {"evil": {"title": evil, "properties": {evil: schema}}}}}]);
    for (language, _) in LANGUAGES {
        let code = language.generate(&server(evil, evil, &tools));
        for line in code.lines() {
            let line = line.trim_start();
            let (comments, quotes): (&[&str], &[char]) = match language {
                Language::Ts => (&["//", "/*", "*"], &['"']),
                Language::Rust => (&["//"], &['"']),
                Language::Cli => (&["#"], &['"', '\'']),
            };
            let is_comment = comments.iter().any(|start| line.starts_with(start));
            let read = if is_comment { line.to_owned() } else { without_literals(line, quotes) };
            assert!(is_comment || !read.contains("evil()"), "{language:?}: {line}");
            assert!(!read.contains("```") && !read.contains('\u{2028}'), "{language:?}: {line}");
            assert!(!read.trim_end_matches("*/").contains("*/"), "{language:?}: {line}");
        }
    }
}

/// Removes string literals from a line of code.
fn without_literals(line: &str, quotes: &[char]) -> String {
    let (mut outside, mut quote, mut is_escaped) = (String::new(), None, false);
    for c in line.chars() {
        match (quote, c) {
            (None, c) if quotes.contains(&c) => quote = Some(c),
            (None, c) => outside.push(c),
            (Some(_), _) if is_escaped => is_escaped = false,
            (Some(_), '\\') => is_escaped = true,
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
        }
    }
    assert!(quote.is_none(), "a literal does not end: {line}");
    outside
}

#[test]
fn html_and_links_of_a_server_are_plain_text_in_rust_docs() {
    let evil = r"<script>evil()</script> &lt;b&gt; \<i> [a](javascript:evil()) [std]: https://evil.example";
    let schema = json!({"properties": {"x": {"description": evil, "default": ["<b>"]}}});
    let code = generate(Language::Rust, json!([{"name": "t", "description": evil, "inputSchema": schema}]));
    let docs: Vec<&str> = code.lines().filter_map(|line| line.trim_start().strip_prefix("/// ")).collect();
    let escaped =
        r"\<script\>evil()\</script\> \&lt;b\&gt; \\\<i\> \[a\](javascript:evil()) \[std\]: https://evil.example";
    assert_eq!(docs.iter().filter(|line| **line == escaped).count(), 2, "{docs:#?}");
    assert!(docs.contains(&r#"Default: \["\<b\>"\]"#), "{docs:#?}");
}

#[test]
fn comments_contain_no_directives_for_the_typescript_compiler() {
    for directive in ["@ts-ignore", "@ts-expect-error", "@TS-nocheck", "@jsxImportSource evil"] {
        let schema = json!({"properties": {"x": {"description": directive}}});
        let description = format!("Text\n{directive}");
        let code = generate(Language::Ts, json!([{"name": "t", "description": description, "inputSchema": schema}]));
        assert!(!code.contains(directive), "{code}");
        assert_eq!(code.matches(&directive.replace('@', "@ ")).count(), 2, "{code}");
    }
}

#[test]
fn every_alias_gives_a_valid_class_name() {
    let tools = json!([{"name": "t", "inputSchema": {}}]);
    for alias in ["s.e.r.v.e.r", "SERVER", "ServerClient", "// methods", "self", "1", "同", "", "a.b:c/d"] {
        for (language, start) in [(Language::Rust, "pub struct "), (Language::Ts, "export class ")] {
            let code = language.generate(&server(alias, "t", &tools));
            let names = code.lines().filter_map(|line| line.strip_prefix(start)?.strip_suffix("Client {"));
            let [name] = names.collect::<Vec<_>>()[..] else { panic!("one class for `{alias}`: {code}") };
            assert!(name.starts_with(|c: char| c.is_ascii_alphabetic()), "`{alias}` gives {name}");
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric()), "`{alias}` gives {name}");
        }
        let code = Language::Rust.generate(&server(alias, "t", &tools));
        assert!(code.contains(&format!("/// The tools of server `{alias}`, as methods.\n")), "{code}");
    }
}

#[test]
fn numbers_that_python_cannot_read_are_left_out_of_a_script() {
    let long = "9".repeat(5_000);
    let schema = format!(
        r#"{{"properties": {{"a": {{"default": {long}}}, "b": {{"default": [{{"x": {long}}}]}}, "c": {{"const": {long}}},
            "d": {{"enum": [1, {long}]}}, "e": {{"default": 7}}}}}}"#
    );
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    let code = generate(Language::Cli, json!([{"name": "t", "inputSchema": schema}]));
    assert!(!code.contains("99999"), "{code}");
    assert!(code.contains(r#""default":7"#), "{code}");
}

/// Runs `rustfmt --check` with these settings.
fn assert_formatted(code: &str, settings: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("rustfmt.toml"), settings).expect("a file");
    std::fs::write(folder.path().join("code.rs"), code).expect("a file");
    let mut command = Command::new("rustfmt");
    let output = command.args(["--check", "--edition", "2021", "code.rs"]).current_dir(folder.path()).output();
    let output = output.expect("rustfmt");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && printed.is_empty(), "{printed}");
}

/// Returns a server whose types have long names and are nested.
fn long_names() -> ServerInterface {
    let nested = |name: &str, inner: Value| json!({"properties": {name: {"type": "array", "items": inner}}});
    let map = |values: Value| json!({"type": "object", "additionalProperties": values});
    let cell = json!({"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "null"}]});
    let leaf = nested("children_of_children", json!({"properties": {"names": {"enum": ["a"]}}}));
    let schema = json!({"type": "object", "required": ["data"], "properties": {
        "data": {"type": "array", "items": map(cell)},
        "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}], "items": false, "minItems": 2},
        "children": {"type": "array", "items": nested("children", leaf)},
        "customProperties": map(json!({"properties": {"kindOfProperty": map(json!({"properties": {"value_of_the_kind": {}}}))}})),
    }});
    let tool = json!({"name": "generate_spreadsheet_of_organization", "inputSchema": schema, "outputSchema": schema});
    server("s", "t", &json!([tool]))
}

#[test]
fn rust_code_has_the_default_format_of_rustfmt() {
    for server in [odd(), long_names()] {
        let code = Language::Rust.generate(&server);
        let (head, rest) = code.split_once("#![cfg_attr(rustfmt, rustfmt::skip)]\n").expect("an attribute");
        assert_formatted(&format!("{head}{rest}"), "");
    }
}

#[test]
fn rust_code_is_accepted_by_cargo_fmt_with_any_settings() {
    assert_formatted(&Language::Rust.generate(&odd()), "max_width = 60\nhard_tabs = true\n");
}

#[test]
fn the_first_two_lines_of_a_script_select_no_encoding() {
    let code = Language::Cli.generate(&server("coding: utf-7", "coding: utf-7", &json!([])));
    assert!(code.lines().take(2).all(|line| !line.contains("coding")), "{code}");
}

#[test]
fn the_same_tools_give_the_same_bytes() {
    for (language, _) in LANGUAGES {
        assert_eq!(language.generate(&odd()), language.generate(&odd()));
    }
}

#[test]
fn a_small_schema_that_describes_very_many_types_is_bounded() {
    let wide =
        |to: &str| json!({"anyOf": vec![json!({"type": "array", "items": {"properties": {"x": {"$ref": to}}}}); 200]});
    let mut nested = json!({"type": "string"});
    for _ in 0..3 {
        nested = json!({"properties": (0..40).map(|at| (format!("p{at}"), nested.clone())).collect::<serde_json::Map<_, _>>()});
    }
    let mut definitions = serde_json::Map::new();
    for at in 0..300 {
        definitions.insert(format!("d{at}"), wide(&format!("#/$defs/d{}", at + 1)));
    }
    let chain = json!({"properties": {"a": {"$ref": "#/$defs/d0"}, "b": nested}, "$defs": definitions});
    let began = std::time::Instant::now();
    for (language, _) in LANGUAGES {
        let code = generate(language, json!([{"name": "t", "inputSchema": chain}]));
        assert!(code.len() < 20_000_000, "{}", code.len());
    }
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
}

#[test]
fn definitions_that_name_each_other_twice_are_read_once() {
    let names = |to: usize| json!([{"$ref": format!("#/$defs/d{to}")}, {"allOf": [{"$ref": format!("#/$defs/d{to}")}, {"title": "x"}]}]);
    let mut definitions: serde_json::Map<String, Value> =
        (0..60).map(|at| (format!("d{at}"), json!({"anyOf": names(at + 1)}))).collect();
    definitions.insert("d60".to_owned(), json!({"type": "object", "properties": {"x": {"type": "string"}}}));
    let schema = json!({"$ref": "#/$defs/d0", "$defs": definitions});
    for (language, _) in LANGUAGES {
        assert!(generate(language, json!([{"name": "t", "inputSchema": schema}])).len() < 1_000_000);
    }
}

#[test]
fn very_many_equal_names_are_numbered_quickly() {
    let tools: Vec<Value> = (0..5_000).map(|_| json!({"name": "同", "inputSchema": {}})).collect();
    let began = std::time::Instant::now();
    let code = generate(Language::Ts, json!(tools));
    assert!(code.contains("  tool5000(args: Tool"), "the last tool");
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
}

#[test]
fn hostile_keywords_do_not_panic() {
    for (word, value) in crate::describe::schema::hostile_keywords() {
        let schema = json!({"properties": {"p": {word: value}}, "required": ["p"], word: value});
        for (language, _) in LANGUAGES {
            generate(language, json!([{"name": "t", "inputSchema": schema, "outputSchema": schema}]));
        }
    }
}

/// Returns the tools of this folder, and of the recorded servers in the folder `ROPEWAY_CORPUS`, or next to the repository.
fn recorded() -> Vec<(String, Value)> {
    let read =
        |path: &Path| -> Value { serde_json::from_str(&std::fs::read_to_string(path).expect("a file")).expect("JSON") };
    let mut all = vec![("odd".to_owned(), read(&folder().join("tools.json")))];
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
    let corpus = std::env::var_os("ROPEWAY_CORPUS").map_or_else(beside, PathBuf::from).join("servers");
    let entries = std::fs::read_dir(corpus).into_iter().flatten();
    let mut records: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    records.sort();
    for record in records.iter().map(|path| read(path)) {
        let name = record["server_info"]["name"].as_str().unwrap_or("server").to_owned();
        all.extend(
            record["tools_list"].get("tools").filter(|tools| tools.is_array()).map(|tools| (name, tools.clone())),
        );
    }
    all
}

/// With `ROPEWAY_GENERATED`, the code is written to this folder, one module per server, so that compilers can check it.
#[test]
fn code_for_recorded_servers_has_all_of_their_tools() {
    let output = std::env::var_os("ROPEWAY_GENERATED").map(PathBuf::from);
    let write = |name: String, text: &str| {
        output.iter().for_each(|folder| std::fs::write(folder.join(&name), text).expect("a file"));
    };
    let mut modules = String::new();
    for (at, (name, tools)) in recorded().iter().enumerate() {
        let server = server(name, name, tools);
        for (language, extension) in LANGUAGES {
            let code = language.generate(&server);
            let is_plain = |name: &&str| name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
            for tool in server.tools.iter().map(|tool| tool.name.as_str()).filter(is_plain) {
                assert!(code.contains(tool), "`{tool}` of {name} is not in the code ({extension})");
            }
            write(format!("server_{at}.{extension}"), &code);
        }
        modules.push_str(&format!("pub mod server_{at};\n"));
    }
    write("lib.rs".to_owned(), &modules);
}
