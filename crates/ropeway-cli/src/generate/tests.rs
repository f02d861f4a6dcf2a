//! Tests of generated code: equal to the files in `tests/generated`, which other tests compile and run.

use std::path::{Path, PathBuf};

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

/// Writes the code for recorded servers, one module each, so that compilers can check all of it:
/// `ROPEWAY_CORPUS` is a folder of records with a `tools_list`, and `ROPEWAY_GENERATED` receives the files.
#[test]
#[ignore = "needs recorded servers"]
fn code_for_recorded_servers_is_written() {
    let variable = |name: &str| PathBuf::from(std::env::var_os(name).unwrap_or_else(|| panic!("{name} is not set")));
    let (corpus, output) = (variable("ROPEWAY_CORPUS"), variable("ROPEWAY_GENERATED"));
    let mut tools = 0;
    let mut modules = String::new();
    let mut records: Vec<PathBuf> =
        std::fs::read_dir(&corpus).expect("records").map(|entry| entry.expect("an entry").path()).collect();
    records.sort();
    for (at, path) in records.iter().enumerate() {
        let record: Value = serde_json::from_str(&std::fs::read_to_string(path).expect("a file")).expect("JSON");
        let Some(list) = record["tools_list"].get("tools").filter(|tools| tools.is_array()) else { continue };
        tools += list.as_array().map_or(0, Vec::len);
        let name = record["server_info"]["name"].as_str().unwrap_or("server");
        for (language, extension) in LANGUAGES {
            let code = language.generate(&server(name, name, list));
            std::fs::write(output.join(format!("server_{at}.{extension}")), code).expect("a file");
        }
        modules.push_str(&format!("pub mod server_{at};\n"));
    }
    std::fs::write(output.join("lib.rs"), modules).expect("a file");
    println!("{tools} tools");
    assert!(tools > 0);
}
