//! JSON output for a call: one document with each result part once.

use std::path::PathBuf;

use ropeway_core::content::{ContentPart, EmbeddedResource, ResourceContents, decode_base64};
use ropeway_core::envelope::Envelope;
use serde_json::{Value, json};

use crate::failure::{Exit, Failure};
use crate::output::render_result::{SaveFolder, is_structured_copy, is_text_copy};

/// The files that a result's parts were saved to.
#[derive(Debug, Default)]
pub(crate) struct SavedParts(Vec<Option<PathBuf>>);

impl SavedParts {
    /// Saves a result's binary parts.
    pub(crate) fn save(parts: &[ContentPart], folder: &SaveFolder) -> Result<Self, Failure> {
        let save = |part: &ContentPart| {
            let (mime_type, base64) = match part {
                ContentPart::Image(blob) | ContentPart::Audio(blob) => (blob.mime_type.as_str(), blob.base64()),
                ContentPart::Resource(EmbeddedResource {
                    mime_type, contents: ResourceContents::Blob(base64), ..
                }) => (mime_type.as_deref().unwrap_or("application/octet-stream"), base64.as_str()),
                _ => return Ok(None),
            };
            decode_base64(base64).ok().map(|bytes| folder.save(mime_type, &bytes)).transpose()
        };
        parts.iter().map(save).collect::<Result<_, Failure>>().map(Self)
    }

    /// Returns the files' paths.
    pub(crate) fn paths(&self) -> impl Iterator<Item = String> {
        self.0.iter().flatten().map(|path| path.display().to_string())
    }

    /// Returns the parts as JSON. A saved part has `path` instead of base64 data.
    pub(crate) fn parts(&self, parts: &[ContentPart]) -> Vec<Value> {
        let part = |(at, part): (usize, &ContentPart)| {
            let mut value = json!(part);
            if let Some(path) = self.0.get(at).and_then(Option::as_ref) {
                let fields = if value.get("resource").is_some() { &mut value["resource"] } else { &mut value };
                if let Some(fields) = fields.as_object_mut() {
                    fields.shift_remove("data");
                    fields.shift_remove("blob");
                    fields.insert("path".to_owned(), json!(path.display().to_string()));
                }
            }
            value
        };
        parts.iter().enumerate().map(part).collect()
    }
}

/// Returns a call's document. `data` is the result; `meta` has only what `data` lacks.
pub(crate) fn document(envelope: &Envelope, saved: &SavedParts) -> serde_json::Result<Value> {
    let mut document = serde_json::to_value(envelope)?;
    let parts = &envelope.meta.content;
    let mut values = saved.parts(parts);
    let (data, left) = match (&envelope.meta.structured_content, &parts[..]) {
        (Some(structured), parts) => {
            let is_text = is_text_copy(structured, parts);
            let mut kept = parts.iter().map(|part| {
                let is_text_copy =
                    is_structured_copy(part, structured) || (is_text && matches!(part, ContentPart::Text { .. }));
                !is_text_copy
            });
            values.retain(|_| kept.next().unwrap_or(true));
            (None, values)
        }
        (None, []) => (None, Vec::new()),
        (None, [ContentPart::Text { text, .. }]) => {
            // Annotations do not belong to the text.
            let rest = values.first_mut().and_then(Value::as_object_mut).and_then(|fields| {
                fields.shift_remove("text");
                (fields.len() > 1).then(|| Value::Object(std::mem::take(fields)))
            });
            (Some(json!(text)), rest.into_iter().collect())
        }
        (None, _) => (Some(Value::Array(values)), Vec::new()),
    };
    if let Some(data) = data {
        document["data"] = data;
    }
    if let Some(meta) = document["meta"].as_object_mut() {
        if left.is_empty() {
            meta.shift_remove("content");
        } else {
            meta.insert("content".to_owned(), Value::Array(left));
        }
        if envelope.cast.is_none() {
            meta.shift_remove("structured_content");
        }
    }
    let paths: Vec<String> = saved.paths().collect();
    if !paths.is_empty() {
        document["saved"] = json!(paths);
    }
    if envelope.meta.is_error && envelope.error.is_none() {
        let failure = Failure::new(Exit::ToolError, format!("tool `{}` failed", envelope.tool));
        document["error"] = failure.kind("tool_error").record();
    }
    Ok(document)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ropeway_core::tool::{CallId, Origin};

    use super::*;

    fn document_of(result: Value) -> Value {
        let output = serde_json::from_value(result).expect("an object always reads");
        let envelope = Envelope::from_output(CallId("1".to_owned()), "t", Origin::Local, Duration::ZERO, output);
        let mut document = document(&envelope, &SavedParts::default()).expect("JSON");
        let fields = document.as_object_mut().expect("an object");
        fields.retain(|name, _| !["id", "tool", "origin", "took_ms"].contains(&name.as_str()));
        document
    }

    #[test]
    fn each_part_of_a_result_is_held_once() {
        let text = |text: &str| json!({"type": "text", "text": text});
        let image = json!({"type": "image", "data": "aGk=", "mimeType": "image/png"});
        for (result, expected) in [
            (json!({"content": [text("a")]}), json!({"data": "a", "meta": {"is_error": false}})),
            (
                json!({"content": [{"type": "text", "text": "a", "annotations": {"priority": 1}}]}),
                json!({"data": "a", "meta": {"is_error": false,
                    "content": [{"type": "text", "annotations": {"priority": 1}}]}}),
            ),
            (
                json!({"content": [text("a"), text("b")]}),
                json!({"data": [text("a"), text("b")], "meta": {"is_error": false}}),
            ),
            (json!({"content": [text("a"), image]}), json!({"data": [text("a"), image], "meta": {"is_error": false}})),
            (json!({"content": []}), json!({"data": "", "meta": {"is_error": false}})),
            (
                json!({"content": [text("{\"a\":1}")], "structuredContent": {"a": 1}}),
                json!({"data": {"a": 1}, "meta": {"is_error": false}}),
            ),
            (
                json!({"content": [text("words")], "structuredContent": {"content": "words"}}),
                json!({"data": {"content": "words"}, "meta": {"is_error": false}}),
            ),
            (
                json!({"content": [text("other"), image], "structuredContent": {"a": 1}}),
                json!({"data": {"a": 1}, "meta": {"is_error": false, "content": [text("other"), image]}}),
            ),
            (
                json!({"content": [text("no")], "isError": true}),
                json!({"data": "no", "meta": {"is_error": true}, "error": {"kind": "tool_error",
                    "message": "tool `t` failed", "retryable": false, "exit_code": 1}}),
            ),
        ] {
            assert_eq!(document_of(result), expected);
        }
    }

    #[test]
    fn a_cast_result_keeps_the_content_as_it_came() {
        let output = serde_json::from_value(json!({"content": [], "structuredContent": {"n": "3"}})).expect("a result");
        let schema = json!({"properties": {"n": {"type": "integer"}}});
        let envelope = Envelope::from_output(CallId("1".to_owned()), "t", Origin::Local, Duration::ZERO, output);
        let document = document(&envelope.cast_to(&schema), &SavedParts::default()).expect("JSON");
        assert_eq!(
            (&document["data"], &document["meta"]["structured_content"]),
            (&json!({"n": 3}), &json!({"n": "3"}))
        );
    }

    #[test]
    fn a_saved_part_has_its_path_in_place_of_its_bytes() {
        let folder = tempfile::tempdir().expect("a folder");
        let parts: Vec<ContentPart> = serde_json::from_value(json!([
            {"type": "text", "text": "a"},
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "a:b", "blob": "aGk=", "mimeType": "audio/wav"}},
            {"type": "audio", "data": "!", "mimeType": "audio/wav"},
        ]))
        .expect("parts");
        let saved = SavedParts::save(&parts, &SaveFolder::new(folder.path(), "t")).expect("saved");
        let paths: Vec<String> = saved.paths().collect();
        let values = saved.parts(&parts);
        assert_eq!(values[1], json!({"type": "image", "mimeType": "image/png", "path": paths[0]}));
        assert_eq!(values[2]["resource"], json!({"uri": "a:b", "mimeType": "audio/wav", "path": paths[1]}));
        assert_eq!((values[3]["data"].as_str(), paths.len()), (Some("!"), 2));
    }
}
