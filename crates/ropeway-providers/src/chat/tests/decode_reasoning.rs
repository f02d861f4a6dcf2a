//! Decoding of reasoning and unknown fields.

use serde_json::{Value, json};

use super::{delta, events, finish, parts, reply};
use crate::ReplyEvent;

fn extra(chunks: &[Value]) -> Value {
    json!(reply(chunks).message.extra)
}

fn thought(text: &str) -> ReplyEvent {
    ReplyEvent::Reasoning(text.to_owned())
}

#[test]
fn reasoning_is_read_under_either_name() {
    for name in ["reasoning_content", "reasoning"] {
        let chunks = [
            delta(json!({"role": "assistant", "content": null, name: ""})),
            delta(json!({name: "h"})),
            delta(json!({name: "m"})),
            delta(json!({"content": "ok"})),
            finish("stop"),
        ];
        assert_eq!(events(&chunks), [thought("h"), thought("m"), ReplyEvent::Text("ok".to_owned())]);
        let expected = json!([
            {"type": "reasoning", "text": "hm", "extra": {"fields": [name]}},
            {"type": "text", "text": "ok"},
        ]);
        assert_eq!(parts(&chunks), expected);
    }
}

#[test]
fn reasoning_under_both_names_is_emitted_once() {
    let chunks = [delta(json!({"reasoning_content": "hm", "reasoning": "hm"})), finish("stop")];
    assert_eq!(events(&chunks), [thought("hm")]);
    let fields = json!(["reasoning_content", "reasoning"]);
    assert_eq!(parts(&chunks), json!([{"type": "reasoning", "text": "hm", "extra": {"fields": fields}}]));
}

#[test]
fn different_reasoning_under_both_names_is_kept() {
    let piece = |a: &str, b: &str| delta(json!({"reasoning_content": a, "reasoning": b}));
    let chunks = [piece("h", "x"), piece("m", "y"), finish("stop")];
    assert_eq!(events(&chunks), [thought("h"), thought("m")]);
    assert_eq!(extra(&chunks), json!({"reasoning": "xy"}));
}

#[test]
fn details_are_merged_by_type_and_index() {
    let details = |details: Value, text: &str| delta(json!({"reasoning": text, "reasoning_details": details}));
    let chunks = [
        details(json!([{"type": "reasoning.text", "text": "h", "format": "f", "index": 0}]), "h"),
        details(json!([{"type": "reasoning.text", "text": "m", "format": "f", "index": 0}]), "m"),
        details(json!([{"type": "reasoning.text", "text": null, "signature": "s", "format": "f", "index": 0}]), ""),
        details(json!([{"type": "reasoning.summary", "summary": "so", "index": 0}]), ""),
        details(json!([{"type": "reasoning.text", "text": "next", "index": 1}]), ""),
        details(json!([{"type": "reasoning.encrypted", "data": "x", "id": "c1", "index": 0}]), ""),
        details(json!([{"type": "reasoning.encrypted", "data": "y", "id": "c2", "index": 0}]), ""),
        finish("stop"),
    ];
    let expected = json!([
        {"type": "reasoning.text", "text": "hm", "format": "f", "index": 0, "signature": "s"},
        {"type": "reasoning.summary", "summary": "so", "index": 0},
        {"type": "reasoning.text", "text": "next", "index": 1},
        {"type": "reasoning.encrypted", "data": "x", "id": "c1", "index": 0},
        {"type": "reasoning.encrypted", "data": "y", "id": "c2", "index": 0},
    ]);
    assert_eq!(extra(&chunks), json!({ "reasoning_details": expected }));
}

#[test]
fn only_recent_details_are_merged() {
    let detail = |index: usize, text: &str| json!({"type": "reasoning.text", "text": text, "index": index});
    let piece = |index: usize, text: &str| delta(json!({ "reasoning_details": [detail(index, text)] }));
    let many = (0..20_000).map(|index| piece(index, "a"));
    let chunks: Vec<Value> = many.chain([piece(19_990, "b"), piece(0, "b"), finish("stop")]).collect();
    let mut expected: Vec<Value> = (0..20_000).map(|index| detail(index, "a")).collect();
    expected[19_990] = detail(19_990, "ab");
    expected.push(detail(0, "b"));
    assert!(extra(&chunks) == json!({ "reasoning_details": expected }), "only the last few are looked at");
}

#[test]
fn details_without_an_index_merge_with_their_neighbour() {
    let details = |details: Value| delta(json!({ "reasoning_details": details }));
    let chunks = [
        details(json!([{"type": "reasoning.text", "text": "h"}, {"type": "reasoning.text", "text": "m"}])),
        details(json!([{"type": "reasoning.encrypted", "data": "x"}, 5])),
        details(json!([{"type": "reasoning.text", "text": "again"}])),
        finish("stop"),
    ];
    let expected = json!([
        {"type": "reasoning.text", "text": "hm"},
        {"type": "reasoning.encrypted", "data": "x"},
        5,
        {"type": "reasoning.text", "text": "again"},
    ]);
    assert_eq!(extra(&chunks), json!({ "reasoning_details": expected }));
    // Only the details hold this reasoning. It is emitted as text and returns as details.
    assert_eq!(events(&chunks), [thought("hm"), thought("again")]);
    assert_eq!(parts(&chunks), json!([{"type": "reasoning", "text": "hmagain"}]));
}

#[test]
fn unknown_fields_are_merged_by_type() {
    let chunks = [
        delta(
            json!({"reasoning_opaque": "a", "channel": "final", "images": [1], "deep": {"id": "x", "text": "a", "n": 1}, "once": true, "none": null}),
        ),
        delta(
            json!({"reasoning_opaque": "b", "channel": "final", "images": [2], "deep": {"id": "x", "text": "b", "n": 2, "new": 3}}),
        ),
        finish("stop"),
    ];
    let expected = json!({
        "reasoning_opaque": "ab", "channel": "final", "images": [1, 2], "deep": {"id": "x", "text": "ab", "n": 2, "new": 3}, "once": true,
    });
    assert_eq!(extra(&chunks), expected);
}
