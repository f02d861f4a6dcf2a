//! Tool call outcomes.

mod parse;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

use crate::content::{ContentPart, plain_text};
use crate::error_chain::chain;
use crate::message::{ToolCall, ToolResult};
use crate::schema::{self, ValueChange};
use crate::tool::{ArgumentProblem, CallError, CallId, Origin, ToolOutput};

pub use self::parse::ResultError;

/// A tool call's outcome. Every call returns one, even for an unknown tool.
///
/// Its JSON form has the keys `id`, `tool`, `origin`, `took_ms`, `data`, `meta`, and where applicable `error`, `changes`,
/// `warnings` and `extra`.
///
/// # Examples
///
/// ```
/// use ropeway::envelope::{Envelope, EnvelopeData};
///
/// fn print(envelope: &Envelope) {
///     match envelope.data() {
///         EnvelopeData::Json(value) => println!("{value}"),
///         EnvelopeData::Text(text) => println!("{text}"),
///         EnvelopeData::Parts(parts) => println!("{} parts", parts.len()),
///     }
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
#[doc(alias = "mcpEnvelope")]
pub struct Envelope {
    /// The call's id.
    pub id: CallId,
    /// Name that the tool was called by.
    pub tool: String,
    /// The tool's origin.
    pub origin: Origin,
    /// The call's duration.
    pub took: Duration,
    /// The result as the tool returned it.
    pub meta: EnvelopeMeta,
    /// The structured content cast to the output schema, if the cast changed it.
    pub cast: Option<Value>,
    /// Changes made by the cast.
    pub changes: Vec<ValueChange>,
    /// Mismatches between the structured content and the output schema.
    pub warnings: Vec<ArgumentProblem>,
    /// The result's other fields.
    pub extra: Map<String, Value>,
    /// The error, if the call has no result. The content then explains it to the model.
    pub error: Option<Arc<CallError>>,
}

/// The result as the tool returned it.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct EnvelopeMeta {
    /// Whether the call failed.
    pub is_error: bool,
    /// The result's content.
    pub content: Vec<ContentPart>,
    /// Structured content; `Some(Value::Null)` for an explicit `null`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Value>,
    /// The `_meta` that the server sent.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub server_meta: Option<Map<String, Value>>,
}

/// An envelope's data, as returned by [`Envelope::data`].
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(untagged)]
pub enum EnvelopeData<'a> {
    /// Structured content, cast to the output schema.
    Json(&'a Value),
    /// The text of a result that has only text parts.
    Text(Cow<'a, str>),
    /// The parts of a result with other content.
    Parts(&'a [ContentPart]),
}

impl Envelope {
    /// Creates a result's envelope.
    pub fn from_output(
        id: CallId,
        tool: impl Into<String>,
        origin: Origin,
        took: Duration,
        output: ToolOutput,
    ) -> Self {
        let ToolOutput { content, structured, is_error, meta, extra, .. } = output;
        Self {
            id,
            tool: tool.into(),
            origin,
            took,
            meta: EnvelopeMeta { is_error, content, structured_content: structured, server_meta: meta },
            cast: None,
            changes: Vec::new(),
            warnings: Vec::new(),
            extra,
            error: None,
        }
    }

    /// Creates an error's envelope. The content explains it to a model, with a next step.
    pub fn from_error(
        id: CallId,
        tool: impl Into<String>,
        origin: Origin,
        took: Duration,
        error: impl Into<Arc<CallError>>,
    ) -> Self {
        let error = error.into();
        let output = ToolOutput::error(explain(&error));
        Self { error: Some(error), ..Self::from_output(id, tool, origin, took, output) }
    }

    /// Casts the structured content to an output schema. Failed results are not cast.
    #[must_use]
    pub fn cast_to(mut self, schema: &Value) -> Self {
        let Some(structured) = self.meta.structured_content.as_ref().filter(|_| !self.meta.is_error) else {
            return self;
        };
        let cast = schema::cast(schema, structured);
        self.cast = match cast.value {
            Cow::Owned(value) => Some(value),
            Cow::Borrowed(_) => None,
        };
        self.changes = cast.changes;
        self.warnings = cast.warnings;
        self
    }

    /// Converts the envelope into the message for a model: the content, or, if it is empty, the structured content as
    /// JSON.
    pub fn to_result(&self, call: &ToolCall) -> ToolResult {
        ToolResult { is_error: self.meta.is_error, ..ToolResult::new(call, self.parts().into_owned()) }
    }

    /// Returns the parts for a model, borrowed if possible.
    pub fn parts(&self) -> Cow<'_, [ContentPart]> {
        match (&self.meta.content[..], &self.meta.structured_content) {
            ([], Some(structured)) => vec![ContentPart::text(structured.to_string())].into(),
            (parts, _) => parts.into(),
        }
    }

    /// Returns the structured content, including `null`, if present; otherwise the text, or the parts if some are not text.
    pub fn data(&self) -> EnvelopeData<'_> {
        if let Some(value) = self.cast.as_ref().or(self.meta.structured_content.as_ref()) {
            return EnvelopeData::Json(value);
        }
        self.content()
    }

    /// Returns the content's text, or its parts if some are not text.
    fn content(&self) -> EnvelopeData<'_> {
        match &self.meta.content[..] {
            [ContentPart::Text { text, .. }] => EnvelopeData::Text(Cow::Borrowed(text)),
            parts => plain_text(parts).map_or(EnvelopeData::Parts(parts), |text| EnvelopeData::Text(Cow::Owned(text))),
        }
    }
}

/// Writes the data as text: structured content as compact JSON, text as it is, and one line for each other part. If the
/// structured content is `null`, writes the content instead, unless it is empty.
impl fmt::Display for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let data = match self.data() {
            EnvelopeData::Json(Value::Null) if !self.meta.content.is_empty() => self.content(),
            data => data,
        };
        match data {
            EnvelopeData::Json(value) => write!(f, "{value}"),
            EnvelopeData::Text(text) => f.write_str(&text),
            EnvelopeData::Parts(parts) => {
                for (at, part) in parts.iter().enumerate() {
                    if at > 0 {
                        f.write_str("\n")?;
                    }
                    write!(f, "{part}")?;
                }
                Ok(())
            }
        }
    }
}

/// An envelope's `error` in JSON.
#[derive(serde::Serialize)]
struct ErrorRecord {
    kind: &'static str,
    message: String,
    retryable: bool,
}

impl From<&CallError> for ErrorRecord {
    fn from(error: &CallError) -> Self {
        Self { kind: error.kind(), message: chain(error), retryable: error.is_transient() }
    }
}

impl Serialize for Envelope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &self.id)?;
        map.serialize_entry("tool", &self.tool)?;
        map.serialize_entry("origin", &self.origin)?;
        // With microsecond precision: local calls take less than a millisecond.
        map.serialize_entry("took_ms", &(self.took.as_micros() as f64 / 1000.0))?;
        map.serialize_entry("data", &self.data())?;
        map.serialize_entry("meta", &self.meta)?;
        if let Some(error) = &self.error {
            map.serialize_entry("error", &ErrorRecord::from(&**error))?;
        }
        if !self.changes.is_empty() {
            map.serialize_entry("changes", &self.changes)?;
        }
        if !self.warnings.is_empty() {
            map.serialize_entry("warnings", &self.warnings)?;
        }
        if !self.extra.is_empty() {
            map.serialize_entry("extra", &self.extra)?;
        }
        map.end()
    }
}

/// Explains an error to a model: the failure, its cause and the next step.
fn explain(error: &CallError) -> String {
    let mut text = String::from("Error: ");
    match error {
        CallError::InvalidArguments { tool, problems } => {
            text.push_str(&format!("invalid arguments for tool `{tool}`, which was not called."));
            for problem in problems {
                text.push_str(&format!("\n- {problem}"));
            }
            text.push('\n');
        }
        CallError::UnknownTool { nearest, .. } if !nearest.is_empty() => {
            let names: Vec<String> = nearest.iter().map(|name| format!("`{name}`")).collect();
            text.push_str(&format!("{error}. Did you mean {}? ", names.join(", ")));
        }
        CallError::UnlistedTool { nearest, find_with, call_with, .. } => {
            let names: Vec<String> = nearest.iter().map(|name| format!("`{name}`")).collect();
            let names = names.join(", ");
            let next = match &nearest[..] {
                [] => format!("Find a tool with `{find_with}` and call it with `{call_with}`."),
                [_] => format!("Did you mean {names}? Call `{call_with}` with that name."),
                _ => format!("Did you mean {names}? Call `{call_with}` with one of these names."),
            };
            return format!("{text}{error}. {next}");
        }
        _ => text.push_str(&format!("{}. ", chain(error).trim_end_matches('.'))),
    }
    text.push_str(next_step(error));
    text
}

fn next_step(error: &CallError) -> &'static str {
    match error {
        CallError::InvalidArguments { .. } => "Correct the arguments and call the tool again.",
        CallError::UnknownTool { .. } => "Call only tools that you were offered, by their exact names.",
        CallError::NotConnected { .. } => "Do not call it again; continue without it, or tell the user.",
        CallError::Unavailable { .. } => {
            "It is not known whether the call had an effect. Try it once more if that is safe; otherwise continue without it."
        }
        CallError::NeedsAuth { .. } => "Tell the user to sign in to this server; until then, calls to it fail.",
        CallError::Timeout { idle: true, .. } => {
            "It is not known whether the call had an effect. Try it once more if that is safe; otherwise continue without it."
        }
        CallError::Timeout { .. } => {
            "It is not known whether the call had an effect. Request less data if you can; otherwise continue without it."
        }
        CallError::Stopped { .. } => {
            "It is not known whether the call had an effect. Do not call it again; continue without it, or tell the user."
        }
        CallError::Failed { .. } if error.is_transient() => {
            "The same call may succeed later: try it once more, or continue without it."
        }
        CallError::Cancelled => "Do not call it again unless the user asks for it.",
        CallError::Denied { .. } => "Do not try it again; continue without it, or tell the user.",
        CallError::Changed { .. } => {
            "Call it again if it still does what you need; the changed tool may need approval from the user."
        }
        CallError::Hidden { .. } => "Do not call it again; continue without it, or tell the user.",
        CallError::Refused { code: -32602, .. } => "Check the arguments against the tool's schema and call it again.",
        CallError::Refused { .. } => "Try another way, or tell the user.",
        CallError::TooLarge { .. } => "Request less data: a narrower query, a smaller range or fewer items.",
        CallError::Protocol { .. } => "The server is at fault; continue without this tool, or tell the user.",
        _ => "Try another way, or tell the user.",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::content::Blob;

    fn answered(output: ToolOutput) -> Envelope {
        Envelope::from_output(CallId("7".to_owned()), "look", Origin::Local, Duration::from_micros(1500), output)
    }

    fn failed(error: CallError) -> String {
        let envelope = Envelope::from_error(CallId("7".to_owned()), "look", Origin::Local, Duration::ZERO, error);
        assert!(envelope.meta.is_error && envelope.error.is_some());
        match envelope.data() {
            EnvelopeData::Text(text) => text.into_owned(),
            other => panic!("{other:?}"),
        }
    }

    fn output(wire: Value) -> ToolOutput {
        serde_json::from_value(wire).expect("a result")
    }

    #[test]
    fn text_parts_are_joined_and_a_single_one_is_borrowed() {
        let envelope = answered(ToolOutput::text("a"));
        assert!(matches!(envelope.data(), EnvelopeData::Text(Cow::Borrowed("a"))));
        let two = answered(output(json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]})));
        assert_eq!(two.data(), EnvelopeData::Text("a\nb".into()));
        assert_eq!(answered(ToolOutput::default()).data(), EnvelopeData::Text("".into()));
        assert!(matches!(envelope.parts(), Cow::Borrowed(parts) if parts == [ContentPart::text("a")]));
    }

    #[test]
    fn a_result_with_an_image_has_parts() {
        let envelope = answered(ContentPart::Image(Blob::new("image/png", b"x")).into());
        assert_eq!(envelope.data(), EnvelopeData::Parts(&envelope.meta.content));
    }

    #[test]
    fn a_model_gets_the_content_or_the_structured_content() {
        let call = ToolCall::new("c", "look", Map::new());
        let told = |wire: Value| answered(output(wire)).to_result(&call);
        let both = told(json!({"content": [{"type": "text", "text": "a"}], "structuredContent": {"a": 1}}));
        assert_eq!(both, ToolResult::new(&call, vec![ContentPart::text("a")]));
        let bare = told(json!({"content": [], "structuredContent": {"a": 1}}));
        assert_eq!(bare, ToolResult::new(&call, vec![ContentPart::text("{\"a\":1}")]));
        let failed = told(json!({"content": [{"type": "text", "text": "no"}], "isError": true}));
        assert_eq!(failed, ToolResult::error(&call, "no"));
    }

    #[test]
    fn structured_content_takes_precedence_even_null() {
        assert_eq!(answered(ToolOutput::structured(json!({"a": 1}))).data(), EnvelopeData::Json(&json!({"a": 1})));
        assert_eq!(answered(ToolOutput::structured(Value::Null)).data(), EnvelopeData::Json(&Value::Null));
    }

    #[test]
    fn the_text_beside_a_structured_null_is_printed() {
        let printed = |wire: Value| answered(output(wire)).to_string();
        assert_eq!(printed(json!({"content": [{"type": "text", "text": "a"}], "structuredContent": null})), "a");
        assert_eq!(printed(json!({"content": [], "structuredContent": null})), "null");
        let mixed = json!([{"type": "text", "text": "a"}, {"type": "image", "mimeType": "image/png", "data": "eA=="}]);
        assert_eq!(printed(json!({"content": mixed, "structuredContent": null})), "a\n[image/png, 4 bytes of base64]");
    }

    #[test]
    fn the_original_is_kept_beside_the_cast() {
        let schema =
            json!({"properties": {"n": {"type": "integer"}, "unit": {"default": "m"}, "b": {"type": "boolean"}}});
        let envelope = answered(ToolOutput::structured(json!({"n": "3", "b": "maybe"}))).cast_to(&schema);
        assert_eq!(envelope.data(), EnvelopeData::Json(&json!({"n": 3, "b": "maybe", "unit": "m"})));
        assert_eq!(envelope.meta.structured_content, Some(json!({"n": "3", "b": "maybe"})));
        assert_eq!(
            serde_json::to_value(&envelope).expect("JSON"),
            json!({
                "id": "7",
                "tool": "look",
                "origin": "local",
                "took_ms": 1.5,
                "data": {"n": 3, "b": "maybe", "unit": "m"},
                "meta": {
                    "is_error": false,
                    "content": [{"type": "text", "text": "{\"n\":\"3\",\"b\":\"maybe\"}"}],
                    "structured_content": {"n": "3", "b": "maybe"},
                },
                "changes": [{"path": "/n", "edit": "coerced", "from": "3"}, {"path": "/unit", "edit": "filled"}],
                "warnings": [{"path": "/b", "reason": "must be a boolean, not a string"}],
            })
        );
    }

    #[test]
    fn the_json_of_a_failed_call_has_its_kind_message_and_retryable() {
        let record = |error: CallError| {
            let envelope = Envelope::from_error(CallId("7".to_owned()), "look", Origin::Local, Duration::ZERO, error);
            serde_json::to_value(&envelope).expect("JSON")["error"].clone()
        };
        let source = std::io::Error::other("broken pipe");
        assert_eq!(
            record(CallError::Unavailable { server: "web".into(), source: Box::new(source) }),
            json!({"kind": "unavailable", "message": "server `web` is unavailable: broken pipe", "retryable": true})
        );
        assert_eq!(
            record(CallError::Cancelled),
            json!({"kind": "cancelled", "message": "the call was cancelled", "retryable": false})
        );
        // A failure that the tool reports is a result.
        let answer = serde_json::to_value(answered(ToolOutput::error("no"))).expect("JSON");
        assert_eq!(answer.get("error"), None);
    }

    #[test]
    fn an_unchanged_cast_is_not_stored() {
        let envelope = answered(ToolOutput::structured(json!({"n": 3}))).cast_to(&json!({"type": "object"}));
        assert_eq!(envelope.cast, None);
        assert_eq!(envelope.data(), EnvelopeData::Json(&json!({"n": 3})));
    }

    #[test]
    fn failed_results_are_not_cast() {
        let output = ToolOutput { is_error: true, ..ToolOutput::structured(json!({"code": "3"})) };
        let envelope = answered(output).cast_to(&json!({"properties": {"code": {"type": "integer"}}}));
        assert_eq!(envelope.data(), EnvelopeData::Json(&json!({"code": "3"})));
    }

    #[test]
    fn all_fields_of_a_result_are_kept() {
        let envelope = answered(output(json!({
            "content": [{"type": "text", "text": "a"}], "structuredContent": null, "isError": true, "_meta": {"b": 1}, "later": 2,
        })));
        assert_eq!(
            serde_json::to_value(&envelope).expect("JSON"),
            json!({
                "id": "7", "tool": "look", "origin": "local", "took_ms": 1.5, "data": null,
                "meta": {"is_error": true, "content": [{"type": "text", "text": "a"}], "structured_content": null, "_meta": {"b": 1}},
                "extra": {"later": 2},
            })
        );
    }

    #[test]
    fn invalid_arguments_are_listed_by_path() {
        let problem = |path: &str, reason: &str| ArgumentProblem { path: path.to_owned(), reason: reason.to_owned() };
        let problems = vec![problem("/a", "must be an integer, not a string"), problem("", "`b` is missing")];
        assert_eq!(
            failed(CallError::InvalidArguments { tool: "look".to_owned(), problems }),
            "Error: invalid arguments for tool `look`, which was not called.\n\
             - at `/a`: must be an integer, not a string\n\
             - `b` is missing\n\
             Correct the arguments and call the tool again."
        );
    }

    #[test]
    fn each_cause_is_written_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("could not start `npx`: {0}")]
        struct Loud(#[source] std::io::Error);

        let cause = Loud(std::io::Error::other("no such file"));
        assert_eq!(
            failed(CallError::Unavailable { server: "web".into(), source: Box::new(cause) }),
            "Error: server `web` is unavailable: could not start `npx`: no such file. It is not known whether the call \
             had an effect. Try it once more if that is safe; otherwise continue without it."
        );
    }

    fn unlisted(nearest: &[&str]) -> CallError {
        CallError::UnlistedTool {
            tool: "x".to_owned(),
            nearest: nearest.iter().map(|name| (*name).to_owned()).collect(),
            find_with: "find_tools".to_owned(),
            call_with: "call_tool".to_owned(),
        }
    }

    #[test]
    fn an_unlisted_tool_is_suggested_through_the_tool_that_calls_it() {
        let near = "Error: unknown tool `x`. Did you mean `y`? Call `call_tool` with that name.";
        assert_eq!(failed(unlisted(&["y"])), near);
        let far = "Error: unknown tool `x`. Find a tool with `find_tools` and call it with `call_tool`.";
        assert_eq!(failed(unlisted(&[])), far);
    }

    #[test]
    fn every_error_ends_with_a_next_step() {
        let server = || crate::tool::Alias::new("web");
        for error in [
            CallError::NotConnected { server: server() },
            CallError::Stopped { server: server() },
            CallError::NeedsAuth { server: server(), challenge: None },
            CallError::Timeout { server: server(), after: Duration::from_secs(3), idle: true, hint: None },
            CallError::Timeout { server: server(), after: Duration::from_secs(3), idle: false, hint: None },
            CallError::Cancelled,
            CallError::UnknownTool { tool: "x".to_owned(), nearest: Vec::new() },
            CallError::UnknownTool { tool: "x".to_owned(), nearest: vec!["y".to_owned()] },
            unlisted(&[]),
            unlisted(&["y"]),
            unlisted(&["y", "z"]),
            CallError::Refused { server: server(), code: -32602, message: "no.".to_owned(), data: None },
            CallError::Refused { server: server(), code: -32603, message: "no".to_owned(), data: None },
            CallError::Protocol { server: server(), source: "odd".into() },
            CallError::TooLarge { server: server(), limit: 3 },
            CallError::Failed { tool: "x".to_owned(), source: "odd".into() },
            CallError::Denied { tool: "x".to_owned(), reason: "the user said no".to_owned() },
        ] {
            let said = failed(error);
            assert!(said.starts_with("Error: ") && said.ends_with('.') && !said.contains(".."), "{said}");
        }
    }
}
