//! Edits of files.

use std::path::Path;

use proptest::prelude::*;

use super::parse;
use crate::edit::{EditError, add, add_with, remove, servers_of, update, write};
use crate::raw::{RawAuth, RawDuration, RawMap, RawServer, RawShorthand, RawTransport};
use crate::{Config, Secrets, json_schema};

fn new() -> RawServer {
    let mut server = RawServer::new("new");
    server.command = Some("npx".into());
    server.args = ["-y", "@scope/server", "8080", "yes", "a b"].map(Into::into).to_vec();
    server.env = RawMap::from_iter([("TOKEN", "${TOKEN}")]);
    server
}

const HEADER: &str = "\
# For help in your editor: ropeway config schema > ropeway.schema.json
# yaml-language-server: $schema=ropeway.schema.json
";

const NEW: &str = "  - alias: new
    command: npx
    args: [-y, \"@scope/server\", \"8080\", \"yes\", \"a b\"]
    env:
      TOKEN: \"${TOKEN}\"
";

#[test]
fn comments_are_added_and_removed_with_their_server() {
    let before = "servers:\n    - alias: a\n      command: x\n";
    let notes = ["from afar".to_owned(), "two\nlines".to_owned()];
    let after = add_with(before, &new(), &notes).unwrap();
    let added = "    # from afar\n    # two\n    # lines\n    - alias: new\n";
    assert!(after.starts_with(&format!("{before}{added}")), "{after}");
    assert_eq!(remove(&after, "new").unwrap(), before);
}

const FILE: &str = "# mine
defaults: {start: lazy}   # odd   spacing

servers:
  # the first
  - alias: a
    command:   x   # why
    args:
    - one

  # the second,
  # on two lines
  - alias: b
    url: http://b
    # about b
# the end
collisions: suffix
";

#[test]
fn adding_a_server_changes_nothing_else() {
    let edited = add(FILE, &new()).unwrap();
    assert_eq!(edited, FILE.replace("    # about b\n", &format!("    # about b\n\n{NEW}")));
    assert_eq!(remove(&edited, "new").unwrap(), FILE);
    let windows = FILE.replace('\n', "\r\n");
    let expected = FILE.replace("    # about b\n", &format!("    # about b\n\n{NEW}")).replace('\n', "\r\n");
    assert_eq!(add(&windows, &new()).unwrap(), expected);
}

#[test]
fn a_new_file_refers_to_its_schema() {
    assert_eq!(add("", &new()).unwrap(), format!("{HEADER}servers:\n{NEW}"));
}

#[test]
fn a_server_is_added_to_files_of_every_style() {
    let flat = NEW.lines().map(|line| format!("{}\n", &line[2..])).collect::<String>();
    let cases = [
        ("", format!("{HEADER}servers:\n{NEW}")),
        ("# only this", format!("# only this\nservers:\n{NEW}")),
        ("servers: []\n", format!("servers:\n{NEW}")),
        ("servers: [] # none yet\ncollisions: error\n", format!("servers: # none yet\n{NEW}collisions: error\n")),
        ("servers:\ncollisions: error", format!("servers:\n{NEW}collisions: error")),
        ("collisions: error", format!("collisions: error\nservers:\n{NEW}")),
        ("servers:\n- alias: a\n  command: x", format!("servers:\n- alias: a\n  command: x\n{flat}")),
        ("servers:\n  - {alias: a, command: x}\n", format!("servers:\n  - {{alias: a, command: x}}\n{NEW}")),
    ];
    for (text, expected) in cases {
        let edited = add(text, &new()).unwrap();
        assert_eq!(edited, expected);
        assert_eq!(parse(&edited).unwrap().servers.last().unwrap().alias.as_str(), "new");
    }
}

#[test]
fn a_server_is_removed_with_its_own_comment() {
    let a = "  # the first\n  - alias: a\n    command:   x   # why\n    args:\n    - one\n\n";
    assert_eq!(remove(FILE, "a").unwrap(), FILE.replace(a, ""));
    let b = "\n  # the second,\n  # on two lines\n  - alias: b\n    url: http://b\n    # about b\n";
    let without = FILE.replace(b, "");
    assert_eq!(remove(FILE, "b").unwrap(), without);
    let none = without.replace(a.trim_end(), "").replace(
        "servers:

",
        "servers: []
",
    );
    assert_eq!(remove(&without, "a").unwrap(), none);
}

#[test]
fn edits_that_are_not_possible_fail() {
    let message = |result: Result<String, EditError>| result.unwrap_err().to_string();
    assert_eq!(
        message(add("servers:\n  - {alias: new, command: x}\n", &new())),
        "server `new` already exists (line 2)"
    );
    assert_eq!(message(remove(FILE, "aa")), "unknown server `aa` (did you mean `a`?)");
    let flow = "servers: [{alias: a, command: x}]\n";
    let lines = format!("could not edit the file automatically: add these lines to `servers`\n{NEW}");
    assert_eq!(message(add(flow, &new())), lines);
    assert_eq!(
        message(remove(flow, "a")),
        "could not edit the file automatically: remove the server `a`\nline 1: servers: [{alias: a, command: x}]"
    );
    let anchored = "servers:\n  - &a {alias: a, command: x}\n  - {<<: *a, alias: b}\n";
    assert!(message(remove(anchored, "a")).starts_with("could not edit the file automatically"));
    let named = "enabled_servers: [a]\nservers:\n  - {alias: a, command: x}\n";
    assert_eq!(message(remove(named, "a")), "`enabled_servers` refers to `a` (line 1); remove it there first");
    assert_eq!(message(add("servers: [", &new())), "could not edit an invalid file");
}

#[test]
fn written_files_have_the_expected_text() {
    let mut web = RawServer::new("web");
    web.transport = Some(RawTransport::Sse);
    web.url = Some("https://x/${KEY}".into());
    web.auth = Some(RawAuth::Bearer("${TOKEN}".into()));
    web.tools = Some(RawShorthand::Short(vec!["read_*".into(), "*".into()]));
    web.timeouts = Some(serde_json::from_str(r#"{"connect": 1.5}"#).unwrap());
    assert_eq!(web.timeouts.unwrap().connect, Some(RawDuration(std::time::Duration::from_millis(1500))));
    let notes = ["${KEY}: a key".to_owned()];
    let text = write([(&new(), &[][..]), (&web, &notes[..])]);
    let expected = format!(
        "{HEADER}servers:\n{NEW}\n  # ${{KEY}}: a key\n  - alias: web\n    transport: sse\n    url: \"https://x/${{KEY}}\"\n    auth:\n      bearer: \"${{TOKEN}}\"\n    tools: [read_*, \"*\"]\n    timeouts:\n      connect: 1500ms\n"
    );
    assert_eq!(text, expected);
    assert_eq!(write([]), format!("{HEADER}servers: []\n"));
}

#[test]
fn long_keys_and_notes_with_control_characters_are_written_as_yaml() {
    let mut server = new();
    server.env = RawMap::from_iter([("K".repeat(1_100), "v")]);
    let notes = ["a\u{feff}mark, \u{1b}[1m\u{85}a next line\u{2028}and\ra return".to_owned()];
    let text = write([(&server, &notes[..])]);
    assert!(text.contains("  # a mark,  [1m a next line and a return\n"), "{text}");
    let config = parse(&text).expect("a configuration");
    assert_eq!(config.servers.len(), 1);
}

#[test]
fn the_schema_in_the_repository_matches_the_types() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ropeway.schema.json");
    let schema = format!("{:#}\n", json_schema());
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(&path, &schema).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(stored, schema, "`UPDATE_SCHEMA=1 cargo test -p ropeway-config --lib the_schema` updates it");
}

#[test]
fn the_schema_accepts_the_same_files_as_the_parser() {
    let schema = jsonschema::validator_for(&json_schema()).unwrap();
    let good = serde_json::json!({
        "defaults": {"timeouts": {"connect": "30s", "idle": 5}, "prefix": ""},
        "servers": [
            {"alias": "a", "command": "x", "args": ["y", 5], "env": {"A": 1, "B": true}, "tools": ["*"], "reconnect": false},
            {"alias": "b", "url": "http://b", "transport": "http", "auth": {"bearer": "t"}, "tools": {"hide": {"x": ["y"]}},
             "limits": {"message_bytes": "64M"}, "resources": {"tools": true}, "start": "lazy", "era": "modern"},
        ],
        "collisions": "last-wins",
    });
    assert!(
        schema.is_valid(&good),
        "{:?}",
        schema.iter_errors(&good).map(|error| error.to_string()).collect::<Vec<_>>()
    );
    parse(&good.to_string()).unwrap();
    for bad in [
        r#"{"servers": [{"command": "x"}]}"#,
        r#"{"servers": [{"alias": "a b", "command": "x"}]}"#,
        r#"{"servers": [{"alias": "a", "command": "x", "transport": "stdoi"}]}"#,
        r#"{"servers": [{"alias": "a", "command": "x", "timeouts": {"connect": "soon"}}]}"#,
        r#"{"servers": [{"alias": "a", "url": "http://x", "auth": {"bearer": "a", "basic": {"user": "b", "password": "c"}}}]}"#,
        r#"{"defaults": {"command": "x"}, "servers": []}"#,
        r#"{"sevrers": []}"#,
    ] {
        assert!(!schema.is_valid(&serde_json::from_str(bad).unwrap()), "{bad}");
        parse(bad).unwrap_err();
    }
}

/// Generates text similar to a configuration, so that parsers do not stop at the first character.
fn nearly() -> impl Strategy<Value = String> {
    let words = [
        "servers",
        "alias",
        "command",
        "mcpServers",
        "env",
        ":",
        ": ",
        "- ",
        "\n",
        "\n  ",
        "\n    ",
        "{",
        "}",
        "[",
        "]",
        "\"",
        "'",
        ",",
        "&a ",
        "*a",
        "<<: ",
        "#",
        "//",
        "/*",
        "${",
        "}",
        "$$",
        "|",
        ">",
        "!",
        "\t",
        "=",
        "[[",
        "é",
        "\u{feff}",
        "\\u12",
        "0x",
        "1e9",
        "---",
        "...",
        "%",
        "?",
        "@",
        "~",
        "a",
        "b",
    ];
    let word = prop_oneof![4 => proptest::sample::select(words.to_vec()).prop_map(str::to_owned), 1 => any::<String>()];
    proptest::collection::vec(word, 0..40).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_causes_a_panic(text in nearly()) {
        for name in ["nowhere/x.yaml", "nowhere/x.json", "nowhere/x.toml", "nowhere/x"] {
            let _ = Config::parse(&text, Path::new(name), &Secrets::none());
            let _ = crate::read_foreign(&text, Path::new(name));
        }
        let _ = add(&text, &new());
        let _ = remove(&text, "a");
    }

    #[test]
    fn every_string_survives_writing_and_reading(texts in proptest::collection::vec(any::<String>(), 1..4)) {
        let mut server = RawServer::new("a");
        server.command = Some("x".into());
        server.args = texts.iter().map(|text| text.as_str().into()).collect();
        server.env = texts.iter().enumerate().map(|(index, text)| (format!("{text}{index}"), text.as_str())).collect();
        let text = add("servers: []\n", &server).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert!(text.starts_with("servers:\n  - alias: a\n"));
    }
}

#[test]
fn updating_values_changes_nothing_else() {
    let text = "# mine\nservers:\n  - alias: a\n    command: x\n    args: [--key, 'it''s', \"two\\twords\"] # why\n    env:\n      T: plain # because\n      \
                U: plain\n  - {alias: b, command: y, env: {T: plain}}\n";
    let mut server = servers_of(text).expect("servers").remove(0);
    server.args = ["--key", "${A}", "${B}"].map(Into::into).to_vec();
    server.env = RawMap::from_iter([("T", "${C}"), ("U", "${C}")]);
    let edited = update(text, &server).expect("edited");
    let expected = "# mine\nservers:\n  - alias: a\n    command: x\n    args: [--key, \"${A}\", \"${B}\"] # why\n    env:\n      T: \"${C}\" # because\n      \
                    U: \"${C}\"\n  - {alias: b, command: y, env: {T: plain}}\n";
    assert_eq!(edited, expected);
}

#[test]
fn a_value_that_cannot_be_replaced_safely_needs_a_manual_edit() {
    let folded = "servers:\n  - alias: a\n    command: x\n    env:\n      T: |\n        one\n        two\n";
    let mut server = servers_of(folded).expect("servers").remove(0);
    server.env = RawMap::from_iter([("T", "${C}")]);
    assert!(matches!(update(folded, &server), Err(EditError::ManualEdit { .. })));
    // The same string would be replaced by two values.
    let twice = "servers:\n  - {alias: a, command: x, env: {T: same, U: same}}\n";
    let mut server = servers_of(twice).expect("servers").remove(0);
    server.env = RawMap::from_iter([("T", "${C}"), ("U", "${D}")]);
    assert!(matches!(update(twice, &server), Err(EditError::ManualEdit { .. })));
    assert!(matches!(update(twice, &RawServer::new("b")), Err(EditError::UnknownServer { .. })));
}
