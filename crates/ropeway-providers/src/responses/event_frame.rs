//! A whole event, for events with more than a text.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::loose_object::{LooseObject, ObjectFields};
use ropeway_core::json;

/// An event's fields.
#[derive(Debug, Default)]
pub(super) struct EventFrame {
    pub(super) fields: Map<String, Value>,
    /// `None` if it is not an object.
    pub(super) response: Option<ResponseFields>,
}

/// The response fields that are decoded. The others repeat the request with all its tools, and are skipped.
#[derive(Debug, Default)]
pub(super) struct ResponseFields {
    pub(super) id: Value,
    pub(super) model: Value,
    pub(super) status: Value,
    pub(super) error: Value,
    pub(super) output: Value,
    pub(super) incomplete_details: Value,
    pub(super) usage: Value,
}

impl<'a> ObjectFields<'a> for ResponseFields {
    fn read_field<M: MapAccess<'a>>(&mut self, name: Cow<'a, str>, object: &mut M) -> Result<(), M::Error> {
        match &*name {
            "id" => self.id = object.next_value()?,
            "model" => self.model = object.next_value()?,
            "status" => self.status = object.next_value()?,
            "error" => self.error = object.next_value()?,
            "output" => self.output = object.next_value()?,
            "incomplete_details" => self.incomplete_details = object.next_value()?,
            "usage" => self.usage = object.next_value()?,
            _ => _ = object.next_value::<IgnoredAny>()?,
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for EventFrame {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EventFrameVisitor)
    }
}

struct EventFrameVisitor;

impl<'de> Visitor<'de> for EventFrameVisitor {
    type Value = EventFrame;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut event: M) -> Result<EventFrame, M::Error> {
        let mut frame = EventFrame::default();
        while let Some(name) = event.next_key::<String>()? {
            if name == "response" {
                let response: Box<RawValue> = event.next_value()?;
                frame.response = match response.get() {
                    text if text.starts_with('{') => {
                        Some(json::from_str::<LooseObject<_>>(text).map_err(M::Error::custom)?.0)
                    }
                    _ => None,
                };
            } else {
                frame.fields.insert(name, event.next_value()?);
            }
        }
        Ok(frame)
    }
}
