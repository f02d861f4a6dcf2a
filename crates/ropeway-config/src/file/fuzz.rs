//! Invariants that this module's parsers keep for any input, for the fuzz targets.

use std::path::Path;

use serde_json::Value;

use super::format::parse_tree;
use super::import::read_foreign;
use super::node::{Node, NodeKind, PlainScalar, parse_plain};
use super::problem::ConfigError;
use super::raw::RawServer;
use super::reference::{Part, escape, parts, rewrite};
use super::secrets::Secrets;
use super::variables::{Dotenv, parse_dotenv};
use super::{decode, edit, json as jsonc, yaml as yaml_text, yaml_writer};
use crate::settings::Config;

/// A folder that does not exist, so that no input reads a file.
const FOLDER: &str = "/nonexistent/ropeway-fuzz";

/// Reads and edits a YAML file.
pub fn yaml_file(data: &[u8]) {
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

/// Reads a JSON file with comments. Strict JSON is read like `serde_json` does.
pub fn json_file(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    file(&text, "settings.json");
    let Ok(value) = serde_json::from_str::<Value>(&text) else { return };
    match jsonc::parse(&text) {
        Ok(node) => assert!(is_same(&node, &value), "{node:?} is not {value}"),
        // Duplicate keys and deep nesting are errors only here.
        Err(problem) => assert!(problem.line > 0, "{problem}"),
    }
    if let Value::Object(map) = &value
        && !map.is_empty()
    {
        let lines = yaml_writer::map_lines(map).join("\n");
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
pub fn toml_file(data: &[u8]) {
    file(&String::from_utf8_lossy(data), "config.toml");
}

/// Reads a file as native and as foreign. Problems are at positions in the text, and imported servers survive writing
/// and reading.
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

/// Checks that every problem is at a position in the text, or concerns the whole file.
fn check(error: &ConfigError, text: &str) {
    assert!(!error.problems.is_empty(), "an error without a problem");
    // A carriage return ends a line in YAML but not in JSON.
    let returns = text.replace("\r\n", "\n").replace('\r', "\n");
    let widths = [text, &returns].map(|text| text.split('\n').map(|line| line.chars().count()).collect::<Vec<_>>());
    for problem in &error.problems {
        assert!(!problem.found.is_empty(), "a problem without a message");
        let is_inside = |widths: &Vec<usize>| match problem.line {
            0 => true,
            line if line == widths.len() + 1 => problem.column == 1,
            line => widths.get(line - 1).is_some_and(|width| (1..=width + 2).contains(&problem.column)),
        };
        assert!(widths.iter().any(is_inside), "{}:{} is not in the text: {problem}", problem.line, problem.column);
    }
}

/// Returns `true` if a tree is equal to a JSON value.
fn is_same(node: &Node, value: &Value) -> bool {
    match (&node.kind, value) {
        (NodeKind::Scalar { text, plain: false }, Value::String(other)) => text == other,
        // A string that cannot be anything else needs no quotes.
        (NodeKind::Scalar { text, plain: true }, Value::String(other)) => {
            text == other && parse_plain(text) == PlainScalar::String
        }
        (NodeKind::Scalar { text, plain: true }, Value::Null) => text == "null",
        (NodeKind::Scalar { text, plain: true }, Value::Bool(truth)) => *text == truth.to_string(),
        (NodeKind::Scalar { text, plain: true }, Value::Number(number)) => {
            text.parse::<f64>().ok() == number.as_f64() || *text == number.to_string()
        }
        (NodeKind::List(items), Value::Array(values)) => {
            items.len() == values.len() && items.iter().zip(values).all(|(item, value)| is_same(item, value))
        }
        (NodeKind::Map(entries), Value::Object(map)) => {
            entries.len() == map.len()
                && entries.iter().all(|entry| map.get(&entry.key).is_some_and(|value| is_same(&entry.value, value)))
        }
        _ => false,
    }
}

/// Reads `NAME=value` lines. Problems are at lines in the text, and values survive quoting.
pub fn dotenv(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Dotenv { variables: read, problems, .. } = parse_dotenv(&text);
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
        let Dotenv { variables: again, problems, .. } = parse_dotenv(&format!("NAME=\"{escaped}\"\n"));
        assert!(problems.is_empty(), "{value:?} cannot be written");
        assert_eq!(again.get("NAME"), Some(value));
    }
}

/// Splits and rewrites references. An escaped string is read as itself, and rewriting is idempotent.
pub fn reference(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(parts) = parts(&text) {
        let literals: usize =
            parts.iter().map(|part| if let Part::Literal(text) = part { text.len() } else { 0 }).sum();
        assert!(literals <= text.len());
    }
    let escaped = escape(&text);
    let read = parts(&escaped).expect("an escaped string");
    let whole: String = read
        .iter()
        .map(|part| match part {
            Part::Literal(text) => *text,
            part => panic!("{part:?} in {escaped:?}"),
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
