//! Checks of what this module reads, for any input. The fuzz targets run them.

use std::path::Path;

use serde_json::Value;

use super::node::{Kind, Node};
use super::raw::RawServer;
use super::read::parse_tree;
use super::reference::{Part, literal, parts, rewrite};
use super::secrets::variables;
use super::{Config, ConfigError, Secrets, decode, edit, emit, json as jsonc, read_foreign, yaml as yaml_text};

/// A folder that no machine has, so that no input reads a file beside it.
const FOLDER: &str = "/nonexistent/ropeway-fuzz";

/// Reads a YAML file, and edits it.
pub(crate) fn yaml_file(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    file(&text, "ropeway.yaml");
    let server = RawServer { command: Some("run".to_owned()), ..RawServer::new("added") };
    if let Ok(added) = edit::add(&text, &server) {
        assert!(yaml_text::parse(added.trim_start_matches('\u{feff}')).is_ok(), "`{added}` is not YAML");
        if let Ok(removed) = edit::remove(&added, "added") {
            let aliases = |text: &str| edit::add(text, &server).is_ok();
            assert!(aliases(&removed), "a removed server is still in `{removed}`");
        }
    }
}

/// Reads a JSON file with comments; what is JSON is read as a JSON parser reads it.
pub(crate) fn json_file(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    file(&text, "settings.json");
    let Ok(value) = serde_json::from_str::<Value>(&text) else { return };
    match jsonc::parse(&text) {
        Ok(node) => assert!(is_same(&node, &value), "{node:?} is not {value}"),
        // A key that is there twice is an error to us, and so is a deep file.
        Err(problem) => assert!(problem.line > 0, "{problem}"),
    }
    if let Value::Object(map) = &value
        && !map.is_empty()
    {
        let lines = emit::map_lines(map).join("\n");
        match yaml_text::parse(&lines) {
            Ok(node) => assert!(is_same(&node, &value), "{lines} is not {value}"),
            Err(problem) => assert!(depth(&value) > 30, "{problem} in {lines}"),
        }
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

/// Reads a TOML file.
pub(crate) fn toml_file(data: &[u8]) {
    file(&String::from_utf8_lossy(data), "config.toml");
}

/// Reads a file of either kind. A problem is at a place of the text, and a server of another client is the same after it was written.
fn file(text: &str, name: &str) {
    let origin = Path::new(FOLDER).join(name);
    let secrets = Secrets::from_map([("A", "value of a"), ("HOME", FOLDER)]);
    match Config::parse(text, &origin, &secrets) {
        Ok(config) => {
            let mut aliases: Vec<&str> = config.servers.iter().map(|entry| entry.alias.as_str()).collect();
            aliases.sort_unstable();
            assert!(aliases.windows(2).all(|pair| pair[0] != pair[1]), "two servers of one alias: {aliases:?}");
        }
        Err(error) => check(&error, text),
    }
    match read_foreign(text, &origin) {
        Ok(foreign) => {
            let written = edit::write(foreign.servers.iter().map(|found| (&found.server, found.notes.as_slice())));
            let tree = parse_tree(&written, Path::new("ropeway.yaml"));
            let tree = tree.unwrap_or_else(|error| panic!("{error} in {written}"));
            let servers = tree.get("servers").map(Node::items).unwrap_or_default();
            assert_eq!(servers.len(), foreign.servers.len(), "{written}");
            for (node, found) in servers.iter().zip(&foreign.servers) {
                let server =
                    decode::decode::<RawServer>(node, "").unwrap_or_else(|problem| panic!("{problem} in {written}"));
                assert_eq!(server, found.server, "{written}");
            }
        }
        Err(error) => check(&error, text),
    }
}

/// Every problem is at a place of the text, or is one of the whole file.
fn check(error: &ConfigError, text: &str) {
    assert!(!error.problems.is_empty(), "an error without a problem");
    // To YAML a carriage return ends a line, to JSON it does not.
    let returns = text.replace("\r\n", "\n").replace('\r', "\n");
    let widths = [text, &returns].map(|text| text.split('\n').map(|line| line.chars().count()).collect::<Vec<_>>());
    for problem in &error.problems {
        assert!(!problem.found.is_empty(), "a problem without words");
        let is_inside = |widths: &Vec<usize>| match problem.line {
            0 => true,
            line if line == widths.len() + 1 => problem.column == 1,
            line => widths.get(line - 1).is_some_and(|width| (1..=width + 2).contains(&problem.column)),
        };
        assert!(widths.iter().any(is_inside), "{}:{} is not in the text: {problem}", problem.line, problem.column);
    }
}

/// Whether a tree is the same as a JSON value.
fn is_same(node: &Node, value: &Value) -> bool {
    match (&node.kind, value) {
        (Kind::Scalar { text, plain: false }, Value::String(other)) => text == other,
        // A word that can only be a text needs no quotes.
        (Kind::Scalar { text, plain: true }, Value::String(other)) => {
            text == other && super::node::plain(text) == super::node::Plain::Text
        }
        (Kind::Scalar { text, plain: true }, Value::Null) => text == "null",
        (Kind::Scalar { text, plain: true }, Value::Bool(truth)) => *text == truth.to_string(),
        (Kind::Scalar { text, plain: true }, Value::Number(number)) => {
            text.parse::<f64>().ok() == number.as_f64() || *text == number.to_string()
        }
        (Kind::List(items), Value::Array(values)) => {
            items.len() == values.len() && items.iter().zip(values).all(|(item, value)| is_same(item, value))
        }
        (Kind::Map(entries), Value::Object(map)) => {
            entries.len() == map.len()
                && entries.iter().all(|entry| map.get(&entry.key).is_some_and(|value| is_same(&entry.value, value)))
        }
        _ => false,
    }
}

/// Reads lines of `NAME=value`: problems are at lines of the text, and every value is the same after it was written in quotes.
pub(crate) fn dotenv(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (read, problems) = variables(&text);
    let lines = text.split('\n').count();
    for problem in &problems {
        assert!((1..=lines).contains(&problem.line), "line {} of {lines}", problem.line);
    }
    for (name, value) in &read {
        assert!(!name.contains('\n') && !name.contains('='), "the name {name:?}");
        let escaped: String = value
            .chars()
            .flat_map(|c| match c {
                '\n' => vec!['\\', 'n'],
                '\r' => vec!['\\', 'r'],
                '"' | '\\' | '$' | '`' => vec!['\\', c],
                c => vec![c],
            })
            .collect();
        let (again, problems) = variables(&format!("NAME=\"{escaped}\"\n"));
        assert!(problems.is_empty(), "{value:?} cannot be written");
        assert_eq!(again.get("NAME"), Some(value));
    }
}

/// The parts of a text are the text; a text that means itself is read as itself; rewriting twice is rewriting once.
pub(crate) fn reference(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(parts) = parts(&text) {
        let literals: usize =
            parts.iter().map(|part| if let Part::Literal(text) = part { text.len() } else { 0 }).sum();
        assert!(literals <= text.len());
    }
    let own = literal(&text);
    let read = parts(&own).expect("a text that means itself");
    let whole: String = read
        .iter()
        .map(|part| match part {
            Part::Literal(text) => *text,
            part => panic!("{part:?} in {own:?}"),
        })
        .collect();
    assert_eq!(whole, text);
    let workspace = Path::new("/work space/${x}");
    let once = rewrite(&text, workspace, |name| name.replace(|c: char| !c.is_ascii_alphanumeric(), "_"));
    if parts(&text).is_ok() {
        assert!(parts(&once).is_ok(), "{text:?} was rewritten to {once:?}");
        assert_eq!(rewrite(&once, workspace, str::to_owned), once);
    }
}
