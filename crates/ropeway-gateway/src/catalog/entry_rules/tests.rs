//! The rules as a table, and the entry of a real server.

use super::*;

/// What happens to an entry.
enum Expected {
    Same,
    Becomes(&'static str),
    Refused(&'static str),
}

use Expected::{Becomes, Refused, Same};

fn check(kind: ListKind, era: Era, rows: &[(&str, Expected)]) {
    for (entry, expected) in rows {
        let checked = check_entry(kind, entry, era);
        match expected {
            Same => assert_eq!(checked.as_deref(), Ok(*entry)),
            Becomes(other) => assert_eq!(checked.as_deref(), Ok(*other), "{entry}"),
            Refused(reason) => assert_eq!(checked, Err((*reason).to_owned()), "{entry}"),
        }
    }
}

#[test]
fn a_tool_of_a_real_server_gets_its_type() {
    // `@modelcontextprotocol/server-gitlab` 2025.4.25.
    let entry = r#"{"name":"search","inputSchema":{"$schema":"http://json-schema.org/draft-07/schema#"}}"#;
    let expected =
        r#"{"name":"search","inputSchema":{"type":"object","$schema":"http://json-schema.org/draft-07/schema#"}}"#;
    for era in [Era::Legacy, Era::Modern] {
        assert_eq!(check_entry(ListKind::Tools, entry, era).as_deref(), Ok(expected));
    }
}

#[test]
fn tools_are_mended_or_refused() {
    let rows = [
        (r#"{"name":"a","inputSchema":{"type":"object"}}"#, Same),
        (
            r#"{ "name" : "a", "inputSchema": {"properties": {"x": {"maximum":1e400}}, "type" : "object"}, "z":[ ]}"#,
            Same,
        ),
        (r#"{"name":"a","inputSchema":{}}"#, Becomes(r#"{"name":"a","inputSchema":{"type":"object"}}"#)),
        (r#"{"name":"a"}"#, Becomes(r#"{"name":"a","inputSchema":{"type":"object"}}"#)),
        (
            r##"{"name":"a", "inputSchema": { "$ref":"#/$defs/a", "$defs":{"a":{ }} } }"##,
            Becomes(r##"{"name":"a", "inputSchema": {"type":"object", "$ref":"#/$defs/a", "$defs":{"a":{ }} } }"##),
        ),
        (
            r#"{"name":"a","inputSchema":{"z":1.0,"type":["null", "object"],"a":2}}"#,
            Becomes(r#"{"name":"a","inputSchema":{"z":1.0,"type":"object","a":2}}"#),
        ),
        (r#"{"name":"a","inputSchema":{"type":"string"}}"#, Refused("has an `inputSchema` of the type `string`")),
        (r#"{"name":"a","inputSchema":{"type":7}}"#, Refused("has an `inputSchema` of the type `7`")),
        (r#"{"name":"a","inputSchema":true}"#, Refused("has an `inputSchema` that is not an object")),
        (
            r#"{"name":"a","title":null,"description":3,"inputSchema":{"type":"object"},"icons":[{"sizes":"48x48"}],"_meta":[]}"#,
            Becomes(r#"{"name":"a","inputSchema":{"type":"object"}}"#),
        ),
        (
            r#"{"name":"a","inputSchema":{"type":"object"},"annotations":{"title":1,"readOnlyHint":"yes","openWorldHint":true,"x":null}}"#,
            Becomes(r#"{"name":"a","inputSchema":{"type":"object"},"annotations":{"openWorldHint":true,"x":null}}"#),
        ),
        (
            r#"{"name":"a","inputSchema":{"type":"object"},"annotations":"none","execution":{"taskSupport":"maybe"}}"#,
            Becomes(r#"{"name":"a","inputSchema":{"type":"object"},"execution":{}}"#),
        ),
        (r#"{"name":"a","inputSchema":{"type":"object"},"icons":[{"src":"x","sizes":["any"],"theme":"dark"}]}"#, Same),
        (
            r#"{"name":"a","description":"cut \ud83d","inputSchema":{"type":"object"}}"#,
            Becomes(r#"{"name":"a","description":"cut \ufffd","inputSchema":{"type":"object"}}"#),
        ),
    ];
    check(ListKind::Tools, Era::Legacy, &rows);
    check(ListKind::Tools, Era::Modern, &rows);
    let deep = format!(r#"{{"name":"a","inputSchema":{}1{}}}"#, r#"{"a":"#.repeat(300), "}".repeat(300));
    assert_eq!(check_entry(ListKind::Tools, &deep, Era::Modern), Err("is nested too deeply".to_owned()));
}

#[test]
fn legacy_clients_get_schemas_as_they_were_then() {
    let rows = [
        (
            r#"{"name":"a","inputSchema":{"type":"object","properties":{"a":true,"b":false,"c":{"type":"x"},"d":null},"required":["a"]}}"#,
            r#"{"name":"a","inputSchema":{"type":"object","properties":{"a":{},"b":{"not":{}},"c":{"type":"x"},"d":{}},"required":["a"]}}"#,
        ),
        (
            r#"{"name":"a","inputSchema":{"type":"object","properties":[],"required":true}}"#,
            r#"{"name":"a","inputSchema":{"type":"object"}}"#,
        ),
        (
            r#"{"name":"a","inputSchema":{"type":"object"},"outputSchema":{"type":"array"}}"#,
            r#"{"name":"a","inputSchema":{"type":"object"}}"#,
        ),
        (
            r#"{"name":"a","inputSchema":{"type":"object"},"outputSchema":{"anyOf":[]}}"#,
            r#"{"name":"a","inputSchema":{"type":"object"},"outputSchema":{"type":"object","anyOf":[]}}"#,
        ),
        (
            r##"{"name":"a","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"a":{"$ref":"#/gone"}}}}"##,
            r#"{"name":"a","inputSchema":{"type":"object"}}"#,
        ),
        (
            r#"{"name":"a","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"a":{"type":"date"}}}}"#,
            r#"{"name":"a","inputSchema":{"type":"object"}}"#,
        ),
    ];
    for (entry, legacy) in rows {
        check(ListKind::Tools, Era::Modern, &[(entry, Same)]);
        check(ListKind::Tools, Era::Legacy, &[(entry, Becomes(legacy))]);
    }
    let fine = r##"{"name":"a","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"type":{"enum":[{"type":"x"}]},"$ref":{"$ref":"#/$defs/a%20b"},"x":{"$ref":"#n"}},"$defs":{"a b":{"$anchor":"n"}}}}"##;
    check(ListKind::Tools, Era::Legacy, &[(fine, Same)]);
}

#[test]
fn resources_templates_and_prompts_are_mended() {
    let resources = [
        (
            r#"{"uri":"a:b","name":"n","size":3,"mimeType":"text/plain","annotations":{"audience":["user"],"priority":0.5,"lastModified":"2024-02-29T23:59:00.5+02:00"}}"#,
            Same,
        ),
        (r#"{"uri":"a:\"b"}"#, Becomes(r#"{"uri":"a:\"b","name":"a:\"b"}"#)),
        (r#"{"uri":"a:b","name":7}"#, Becomes(r#"{"uri":"a:b","name":"a:b"}"#)),
        (
            r#"{"uri":"a:b","name":"n","title":null,"size":"3","mimeType":null,"annotations":{"audience":["all"],"priority":2,"lastModified":"yesterday","x":1}}"#,
            Becomes(r#"{"uri":"a:b","name":"n","annotations":{"x":1}}"#),
        ),
        (r#"{"uri":"a:b","name":"n","annotations":null}"#, Becomes(r#"{"uri":"a:b","name":"n"}"#)),
    ];
    check(ListKind::Resources, Era::Legacy, &resources);
    check(
        ListKind::Templates,
        Era::Legacy,
        &[
            (r#"{"uriTemplate":"a:{b}","name":"n"}"#, Same),
            (r#"{"uriTemplate":"a:{b}","mimeType":1}"#, Becomes(r#"{"uriTemplate":"a:{b}","name":"a:{b}"}"#)),
        ],
    );
    check(
        ListKind::Prompts,
        Era::Legacy,
        &[
            (r#"{"name":"a","arguments":[ {"name":"x", "required": true} ]}"#, Same),
            (r#"{"name":"a","arguments":null}"#, Becomes(r#"{"name":"a"}"#)),
            (
                r#"{"name":"a","arguments":[{"name":"x","required":"yes","description":null},{"description":"y"},7]}"#,
                Becomes(r#"{"name":"a","arguments":[{"name":"x"}]}"#),
            ),
        ],
    );
}

#[test]
fn timestamps_are_those_of_the_clients() {
    for valid in ["2025-01-01T00:00:00Z", "2025-01-01T00:00Z", "2000-02-29T23:59:59.123456-11:30"] {
        assert!(is_timestamp(valid), "{valid}");
    }
    for invalid in [
        "",
        "2025-01-01",
        "2025-01-01T00:00:00",
        "2025-02-29T00:00:00Z",
        "2025-01-01 00:00:00Z",
        "2025-01-01T24:00:00Z",
        "2025-01-01T00:00:00.Z",
        "2025-1-1T00:00:00Z",
        "2025-01-01T00:00:00+0200",
        "1T1Z",
        "TZ",
        "2025-01-01T+Z",
    ] {
        assert!(!is_timestamp(invalid), "{invalid}");
    }
}
