//! The head of an event: what it is, where it belongs, and the piece of text in it, which is all that most events have.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::output::{Place, Source, Thought};

/// What an event is, and where it belongs.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Head<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) item_id: Cow<'a, str>,
    pub(super) output_index: Option<u64>,
    pub(super) content_index: Option<u64>,
    pub(super) summary_index: Option<u64>,
    #[serde(borrow)]
    pub(super) delta: Cow<'a, str>,
    pub(super) error: Option<IgnoredAny>,
}

impl<'a> Head<'a> {
    /// The same out of a frame in which something is not as it should be.
    pub(super) fn of(frame: &'a Map<String, Value>) -> Self {
        let text = |name| frame.get(name).and_then(Value::as_str).unwrap_or_default().into();
        let number = |name| frame.get(name).and_then(Value::as_u64);
        Self {
            kind: text("type"),
            item_id: text("item_id"),
            output_index: number("output_index"),
            content_index: number("content_index"),
            summary_index: number("summary_index"),
            delta: text("delta"),
            error: frame.get("error").filter(|error| !error.is_null()).map(|_| IgnoredAny),
        }
    }

    pub(super) fn place(&self) -> Place<'_> {
        Place { id: &self.item_id, output_index: self.output_index }
    }

    pub(super) fn thought(&self, source: Source) -> Thought {
        let number = match source {
            Source::Summary => self.summary_index,
            Source::Content => self.content_index,
        };
        (source, number.unwrap_or_default())
    }

    /// Is this one of the events that have something to tell?
    pub(super) fn is_known(&self) -> bool {
        let event = self.kind.strip_prefix("response.").unwrap_or_default();
        let done = event.strip_suffix(".done").or(event.strip_suffix(".added")).unwrap_or_default();
        self.error.is_some()
            || matches!(&*self.kind, "" | "error")
            || matches!(
                event,
                "created" | "in_progress" | "queued" | "completed" | "incomplete" | "failed" | "cancelled"
            )
            || matches!(done, "output_item" | "content_part" | "output_text" | "refusal" | "function_call_arguments")
            || matches!(done, "reasoning_summary_text" | "reasoning_text")
    }
}
