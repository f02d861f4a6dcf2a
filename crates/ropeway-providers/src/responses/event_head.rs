//! An event's type, position and text, which is all that most events have.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess};
use serde_json::Value;
use serde_json::value::RawValue;

use super::event_frame::{EventFrame, ResponseFields};
use super::output_item::{ItemRef, ReasoningRef, ReasoningSource};
use crate::loose_object::{LooseObject, ObjectFields};
use ropeway_core::loose_json::BorrowedText;

/// The common event fields.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct EventHead<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) item_id: Cow<'a, str>,
    pub(super) output_index: Option<u64>,
    pub(super) content_index: Option<u64>,
    pub(super) summary_index: Option<u64>,
    #[serde(borrow)]
    pub(super) delta: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) text: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) refusal: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) arguments: Cow<'a, str>,
    #[serde(borrow, deserialize_with = "response_head")]
    pub(super) response: Option<ResponseHead<'a>>,
    #[serde(rename = "error", deserialize_with = "is_error")]
    pub(super) is_error: bool,
}

/// A response's id and model.
#[derive(Default)]
pub(super) struct ResponseHead<'a> {
    pub(super) id: Cow<'a, str>,
    pub(super) model: Cow<'a, str>,
}

impl<'a> ObjectFields<'a> for ResponseHead<'a> {
    fn read_field<M: MapAccess<'a>>(&mut self, name: Cow<'a, str>, object: &mut M) -> Result<(), M::Error> {
        match &*name {
            "id" => self.id = object.next_value::<BorrowedText<'_>>()?.0,
            "model" => self.model = object.next_value::<BorrowedText<'_>>()?.0,
            _ => _ = object.next_value::<IgnoredAny>()?,
        }
        Ok(())
    }
}

fn response_head<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ResponseHead<'de>>, D::Error> {
    let response = Option::<LooseObject<_>>::deserialize(deserializer)?;
    Ok(response.map(|LooseObject(head)| head))
}

/// Returns `true` for an error. Some servers send an empty value with each event.
fn is_error<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let error = <&RawValue>::deserialize(deserializer)?;
    Ok(!matches!(error.get(), "null" | "false" | "\"\"" | "{}"))
}

impl<'a> EventHead<'a> {
    /// Reads an event's fields when some have an unexpected type.
    pub(super) fn of(EventFrame { fields, response }: &'a EventFrame) -> Self {
        let text = |name| fields.get(name).and_then(Value::as_str).unwrap_or_default().into();
        let number = |name| fields.get(name).and_then(Value::as_u64);
        let head = |response: &'a ResponseFields| {
            let text = |value: &'a Value| value.as_str().unwrap_or_default().into();
            ResponseHead { id: text(&response.id), model: text(&response.model) }
        };
        let is_error = |error: &Value| match error {
            Value::Null | Value::Bool(false) => false,
            Value::String(text) => !text.is_empty(),
            Value::Object(fields) => !fields.is_empty(),
            _ => true,
        };
        Self {
            kind: text("type"),
            item_id: text("item_id"),
            output_index: number("output_index"),
            content_index: number("content_index"),
            summary_index: number("summary_index"),
            delta: text("delta"),
            text: text("text"),
            refusal: text("refusal"),
            arguments: text("arguments"),
            response: response.as_ref().map(head),
            is_error: fields.get("error").is_some_and(is_error),
        }
    }

    pub(super) fn item(&self) -> ItemRef<'_> {
        ItemRef { id: &self.item_id, output_index: self.output_index }
    }

    pub(super) fn reasoning(&self, source: ReasoningSource) -> ReasoningRef {
        let index = match source {
            ReasoningSource::Summary => self.summary_index,
            ReasoningSource::Content => self.content_index,
        };
        (source, index.unwrap_or_default())
    }

    /// Returns `true` for events that are not ignored.
    pub(super) fn is_known(&self) -> bool {
        let event = self.kind.strip_prefix("response.").unwrap_or_default();
        let done = event.strip_suffix(".done").or(event.strip_suffix(".added")).unwrap_or_default();
        self.is_error
            || matches!(&*self.kind, "" | "error")
            || matches!(
                event,
                "created" | "in_progress" | "queued" | "completed" | "incomplete" | "failed" | "cancelled"
            )
            || matches!(done, "output_item" | "content_part" | "output_text" | "refusal" | "function_call_arguments")
            || matches!(done, "reasoning_summary_text" | "reasoning_text")
    }
}
