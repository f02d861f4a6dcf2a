//! An envelope: the record of one finished call.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

use crate::content::{ContentPart, plain_text};
use crate::error_chain::chain;
use crate::message::{ToolCall, ToolResult};
use crate::schema::{self, ValueChange};
use crate::tool::{ArgumentProblem, CallError, CallId, Origin, TimeoutKind, ToolOutput};

/// The record of one finished call. Every call ends in exactly one, also one that found no tool.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Envelope {
    /// The call.
    pub id: CallId,
    /// The name that the tool was called by.
    pub tool: String,
    /// Where the tool comes from.
    pub origin: Origin,
    /// How long the call took.
    pub took: Duration,
    /// The answer as it came.
    pub meta: EnvelopeMeta,
    /// The structured content as the output schema wants it, where that differs from what came.
    pub cast: Option<Value>,
    /// What the cast has changed.
    pub changes: Vec<ValueChange>,
    /// Where the structured content does not fit the output schema.
    pub warnings: Vec<ArgumentProblem>,
    /// Every other field of the answer as it came.
    pub extra: Map<String, Value>,
    /// Why there is no answer of the tool; the content says so in words for the model.
    pub error: Option<Arc<CallError>>,
}

/// The answer of a tool as it came.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct EnvelopeMeta {
    /// The call failed.
    pub is_error: bool,
    /// The parts of the answer.
    pub content: Vec<ContentPart>,
    /// The structured result; `Some(Value::Null)` when the server said `null`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Value>,
    /// The answer's `_meta`.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub server_meta: Option<Map<String, Value>>,
}

/// What a call came to.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(untagged)]
pub enum EnvelopeData<'a> {
    /// Structured content, cast to the output schema.
    Json(&'a Value),
    /// The answer as one string: it is text only.
    Text(Cow<'a, str>),
    /// The parts of the answer: some are not text.
    Parts(&'a [ContentPart]),
}

impl Envelope {
    /// The record of a call that was answered.
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

    /// The record of a call that has no answer: an error, in words that tell a model what to do next.
    pub fn from_error(
        id: CallId,
        tool: impl Into<String>,
        origin: Origin,
        took: Duration,
        error: impl Into<Arc<CallError>>,
    ) -> Self {
        let error = error.into();
        let output = ToolOutput::error(for_model(&error));
        Self { error: Some(error), ..Self::from_output(id, tool, origin, took, output) }
    }

    /// Casts the structured content to an output schema. A failed call has nothing that the schema speaks of.
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

    /// The answer as a model is told of it: the parts, or the structured content where there are none.
    pub fn to_result(&self, call: &ToolCall) -> ToolResult {
        ToolResult { is_error: self.meta.is_error, ..ToolResult::new(call, self.parts().into_owned()) }
    }

    /// The parts that a model is told, not copied where they are those that came.
    pub fn parts(&self) -> Cow<'_, [ContentPart]> {
        match (&self.meta.content[..], &self.meta.structured_content) {
            ([], Some(structured)) => vec![ContentPart::text(structured.to_string())].into(),
            (parts, _) => parts.into(),
        }
    }

    /// What the call came to: the structured content when there is some, also `null`; else the text; else the parts.
    pub fn data(&self) -> EnvelopeData<'_> {
        if let Some(value) = self.cast.as_ref().or(self.meta.structured_content.as_ref()) {
            return EnvelopeData::Json(value);
        }
        match &self.meta.content[..] {
            [ContentPart::Text(only)] => EnvelopeData::Text(Cow::Borrowed(&only.text)),
            parts => plain_text(parts).map_or(EnvelopeData::Parts(parts), |text| EnvelopeData::Text(Cow::Owned(text))),
        }
    }
}

/// The failure of a call in the JSON of an envelope.
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
        // Whole microseconds: local calls take less than a millisecond.
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

/// What a model is told about a call that has no answer: what happened, why, and what to do next.
fn for_model(error: &CallError) -> String {
    let mut text = String::from("Error: ");
    match error {
        CallError::InvalidArguments { tool, problems } => {
            text.push_str(&format!("the arguments do not fit tool `{tool}`, which was not called."));
            for problem in problems {
                text.push_str(&format!("\n- {problem}"));
            }
            text.push('\n');
        }
        CallError::UnknownTool { nearest, .. } if !nearest.is_empty() => {
            let names: Vec<String> = nearest.iter().map(|name| format!("`{name}`")).collect();
            text.push_str(&format!("{error}. Near to it: {}. ", names.join(", ")));
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
        CallError::NotConnected { .. } => "Do not call it again; go on without it, or tell the user.",
        CallError::Unavailable { .. } => {
            "It is not known whether the call had an effect. Try it once more if that is safe; else go on without it."
        }
        CallError::NeedsAuth { .. } => "Tell the user to sign in to this server; until then the call cannot work.",
        CallError::Timeout { clock: TimeoutKind::Idle, .. } => {
            "It is not known whether the call had an effect. Try it once more if that is safe; else go on without it."
        }
        CallError::Timeout { .. } => {
            "It is not known whether the call had an effect. Ask for less at once if you can; else go on without it."
        }
        CallError::Stopped { .. } => {
            "It is not known whether the call had an effect. Do not call it again; go on without it, or tell the user."
        }
        CallError::Failed { .. } if error.is_transient() => {
            "The same call may succeed later: try it once more, or go on without it."
        }
        CallError::Cancelled => "Do not call it again unless the user asks for it.",
        CallError::Denied { .. } => "Do not try it again; go on without it, or tell the user.",
        CallError::Changed { .. } => {
            "Call it again if it still does what you need; the user decides about the changed tool."
        }
        CallError::Hidden { .. } => "Do not call it again; go on without it, or tell the user.",
        CallError::Refused { code: -32602, .. } => "Check the arguments against the tool's schema and call it again.",
        CallError::Refused { .. } => "Try another way, or tell the user.",
        CallError::TooLarge { .. } => "Ask for less: a narrower query, a smaller range, fewer items.",
        CallError::Protocol { .. } => "The server is at fault; go on without this tool, or tell the user.",
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
    fn text_reads_as_one_string_that_is_not_copied() {
        let envelope = answered(ToolOutput::text("a"));
        assert!(matches!(envelope.data(), EnvelopeData::Text(Cow::Borrowed("a"))));
        let two = answered(output(json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]})));
        assert_eq!(two.data(), EnvelopeData::Text("a\nb".into()));
        assert_eq!(answered(ToolOutput::default()).data(), EnvelopeData::Text("".into()));
        assert!(matches!(envelope.parts(), Cow::Borrowed(parts) if parts == [ContentPart::text("a")]));
    }

    #[test]
    fn an_answer_with_other_parts_reads_as_parts() {
        let envelope = answered(ContentPart::Image(Blob::new("image/png", b"x")).into());
        assert_eq!(envelope.data(), EnvelopeData::Parts(&envelope.meta.content));
    }

    #[test]
    fn a_model_is_told_the_parts_or_the_structured_content_where_there_are_none() {
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
    fn structured_content_comes_first_and_null_is_some() {
        assert_eq!(answered(ToolOutput::structured(json!({"a": 1}))).data(), EnvelopeData::Json(&json!({"a": 1})));
        assert_eq!(answered(ToolOutput::structured(Value::Null)).data(), EnvelopeData::Json(&Value::Null));
    }

    #[test]
    fn what_came_is_kept_beside_what_was_made_of_it() {
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
        // A failure that the tool itself reports is an answer.
        let answer = serde_json::to_value(answered(ToolOutput::error("no"))).expect("JSON");
        assert_eq!(answer.get("error"), None);
    }

    #[test]
    fn a_cast_that_changes_nothing_copies_nothing() {
        let envelope = answered(ToolOutput::structured(json!({"n": 3}))).cast_to(&json!({"type": "object"}));
        assert_eq!(envelope.cast, None);
        assert_eq!(envelope.data(), EnvelopeData::Json(&json!({"n": 3})));
    }

    #[test]
    fn what_a_failed_tool_answers_is_not_cast() {
        let output = ToolOutput { is_error: true, ..ToolOutput::structured(json!({"code": "3"})) };
        let envelope = answered(output).cast_to(&json!({"properties": {"code": {"type": "integer"}}}));
        assert_eq!(envelope.data(), EnvelopeData::Json(&json!({"code": "3"})));
    }

    #[test]
    fn nothing_that_a_server_sent_is_lost() {
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
    fn wrong_arguments_are_explained_path_by_path() {
        let problem = |path: &str, reason: &str| ArgumentProblem { path: path.to_owned(), reason: reason.to_owned() };
        let problems = vec![problem("/a", "must be an integer, not a string"), problem("", "`b` is missing")];
        assert_eq!(
            failed(CallError::InvalidArguments { tool: "look".to_owned(), problems }),
            "Error: the arguments do not fit tool `look`, which was not called.\n\
             - at `/a`: must be an integer, not a string\n\
             - `b` is missing\n\
             Correct the arguments and call the tool again."
        );
    }

    #[test]
    fn each_cause_is_told_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("could not start `npx`: {0}")]
        struct Loud(#[source] std::io::Error);

        let cause = Loud(std::io::Error::other("no such file"));
        assert_eq!(
            failed(CallError::Unavailable { server: "web".into(), source: Box::new(cause) }),
            "Error: server `web` is unavailable: could not start `npx`: no such file. It is not known whether the call \
             had an effect. Try it once more if that is safe; else go on without it."
        );
    }

    #[test]
    fn every_error_ends_with_what_to_do_next() {
        let server = || crate::tool::Alias::new("web");
        for error in [
            CallError::NotConnected { server: server() },
            CallError::Stopped { server: server() },
            CallError::NeedsAuth { server: server(), challenge: None },
            CallError::Timeout {
                server: server(),
                after: Duration::from_secs(3),
                clock: TimeoutKind::Idle,
                hint: None,
            },
            CallError::Timeout {
                server: server(),
                after: Duration::from_secs(3),
                clock: TimeoutKind::Total,
                hint: None,
            },
            CallError::Cancelled,
            CallError::UnknownTool { tool: "x".to_owned(), nearest: Vec::new() },
            CallError::UnknownTool { tool: "x".to_owned(), nearest: vec!["y".to_owned()] },
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
