//! Tests of content parts.

use bytes::Bytes;
use serde::de::DeserializeSeed as _;
use serde_json::Value;
use serde_json::json;

use super::*;

fn read(block: Value) -> ContentPart {
    serde_json::from_str(&block.to_string()).expect("well-formed JSON always reads")
}

#[test]
fn content_blocks_of_a_message_become_parts() {
    let blocks = json!([{"type": "text", "text": "a"}, {"type": "odd", "n": 1}, "plain"]);
    assert_eq!(
        ContentPart::from_blocks(blocks),
        [ContentPart::text("a"), ContentPart::text(r#"{"type":"odd","n":1}"#), ContentPart::text("plain")]
    );
    assert_eq!(ContentPart::from_blocks(json!({"type": "text", "text": "a"})), [ContentPart::text("a")]);
    assert_eq!(ContentPart::from_blocks(Value::Null), []);
}

#[test]
fn images_audio_and_files_are_made_in_one_call() {
    let block = |part: ContentPart| serde_json::to_value(part).expect("JSON");
    assert_eq!(
        block(ContentPart::image("image/png", "AAAA")),
        json!({"type": "image", "data": "AAAA", "mimeType": "image/png"})
    );
    assert_eq!(
        block(ContentPart::audio("audio/wav", "AAAA")),
        json!({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"})
    );
    assert_eq!(
        block(ContentPart::file("notes.md", "# Notes")),
        json!({"type": "resource", "resource": {"uri": "notes.md", "text": "# Notes"}})
    );
}

#[test]
fn every_block_type_round_trips_without_loss() {
    for block in [
        json!({"type": "text", "text": "hi", "annotations": {"audience": ["system"]}, "x": 1}),
        json!({"type": "image", "data": "AAAA", "mimeType": "image/png", "_meta": {"a": null}}),
        json!({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}),
        json!({"type": "resource_link", "uri": "file:///a", "name": "a", "mimeType": "text/plain", "size": 3}),
        json!({"type": "resource", "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "x", "y": 2}, "z": 1}),
        json!({"type": "resource", "resource": {"uri": "file:///a", "blob": "AAAA"}}),
    ] {
        assert_eq!(serde_json::to_value(read(block.clone())).expect("a part is JSON"), block);
    }
}

#[test]
fn a_block_of_an_unknown_type_becomes_text_with_its_json() {
    for block in [
        json!({"type": "hologram", "data": [1, 2]}),
        json!({"type": "text", "text": null}),
        json!({"type": "image", "data": 3}),
        json!({"type": 7}),
        json!({}),
        json!({"type": "resource", "resource": {"uri": "u", "text": "a", "blob": "b"}}),
        json!({"type": "resource", "resource": "file:///a"}),
    ] {
        let part = read(block.clone());
        let text = part.as_text().expect("a text part");
        assert_eq!(serde_json::from_str::<Value>(text).expect("JSON"), block);
    }
}

#[test]
fn a_plain_value_instead_of_a_block_becomes_text() {
    assert_eq!(read(json!("hello")).as_text(), Some("hello"));
    assert_eq!(read(json!(3)).as_text(), Some("3"));
    assert_eq!(read(json!([1, {"a": 2}])).as_text(), Some("[1,{\"a\":2}]"));
    assert_eq!(read(Value::Null).as_text(), Some("null"));
}

#[test]
fn a_link_without_a_name_is_named_by_its_uri() {
    let ContentPart::ResourceLink(link) = read(json!({"type": "resource_link", "uri": "file:///a"})) else {
        panic!("a link");
    };
    assert_eq!(link.name, "file:///a");
}

#[test]
fn the_media_type_of_an_image_is_guessed_from_its_data() {
    let ContentPart::Image(png) = read(json!({"type": "image", "data": "iVBORw0KGgoAAAA="})) else {
        panic!("an image")
    };
    assert_eq!(png.mime_type, "image/png");
}

#[test]
fn large_data_shares_the_memory_of_its_message() {
    let data = "QUJD".repeat(10_000);
    let message = Bytes::from(json!({"type": "image", "data": data, "mimeType": "image/png"}).to_string());
    let mut deserializer = serde_json::Deserializer::from_slice(&message);
    let part = PartSeed(SourceBytes(Some(&message))).deserialize(&mut deserializer).expect("a part");
    let ContentPart::Image(image) = part else { panic!("an image") };
    assert_eq!(&*image.base64, data);
    assert!(message.as_ptr_range().contains(&image.base64.as_ptr()));
    // Text outside of the source is copied.
    assert_eq!(SourceBytes(Some(&Bytes::from_static(b"short"))).share(&data), None);
}

#[test]
fn padding_and_line_breaks_in_base64_are_optional() {
    for text in ["aGVsbG8=", "aGVsbG8", "aGVs\nbG8=\r\n"] {
        assert_eq!(decode_base64(text).expect("base64"), b"hello");
    }
    assert!(decode_base64("not base64!").is_err());
}

#[test]
fn only_text_parts_join_to_plain_text() {
    let texts = [ContentPart::text("a"), ContentPart::text("b")];
    assert_eq!(plain_text(&texts).as_deref(), Some("a\nb"));
    assert_eq!(plain_text(&[]).as_deref(), Some(""));
    assert_eq!(plain_text(&[ContentPart::text("a"), ContentPart::Image(Blob::new("image/png", b"x"))]), None);
}
