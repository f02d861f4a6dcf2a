//! Typed results: an envelope's data as a Rust value.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Envelope, EnvelopeData};
use crate::tool::CallError;

/// The error that [`Envelope::parse`] returns.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResultError {
    /// The call has no result.
    #[error("could not call tool `{tool}`")]
    Call {
        /// Name that the tool was called by.
        tool: String,
        /// The reason; [`CallError::kind`] names it.
        #[source]
        source: Arc<CallError>,
    },
    /// The tool reported an error.
    #[error("tool `{tool}` reported an error: {message}")]
    Tool {
        /// Name that the tool was called by.
        tool: String,
        /// The result's content.
        message: String,
    },
    /// The result does not match the type.
    #[error("the result of tool `{tool}` is not a `{expected}`")]
    Mismatch {
        /// Name that the tool was called by.
        tool: String,
        /// The type's name.
        expected: &'static str,
        /// The first difference.
        #[source]
        source: Arc<serde_json::Error>,
    },
}

impl ResultError {
    /// Returns a short name for the reason: the [`CallError`]'s, `tool_error` or `mismatch`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Call { source, .. } => source.kind(),
            Self::Tool { .. } => "tool_error",
            Self::Mismatch { .. } => "mismatch",
        }
    }

    /// Returns the name that the tool was called by.
    pub fn tool(&self) -> &str {
        match self {
            Self::Call { tool, .. } | Self::Tool { tool, .. } | Self::Mismatch { tool, .. } => tool,
        }
    }
}

impl Envelope {
    /// Deserializes a successful call's [data](Self::data).
    ///
    /// Text becomes a string if the type accepts one; otherwise it is parsed as JSON, because many servers return JSON as text. Other
    /// content becomes a list of [`ContentPart`](crate::content::ContentPart)s.
    ///
    /// # Errors
    ///
    /// Fails if the call failed, if the tool reported an error, or if the data does not match the type.
    ///
    /// # Examples
    ///
    /// ```
    /// use ropeway::prelude::*;
    /// use serde_json::json;
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Sum {
    ///     sum: f64,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let mut tools = Registry::default();
    /// tools.register(LocalTool::new(ToolDefinition::new("add"), |_, _| async { Ok(json!({"sum": 3})) }));
    /// let Sum { sum } = tools.call("add", ()).await.parse().expect("a sum");
    /// assert_eq!(sum, 3.0);
    /// let error = tools.call("subtract", ()).await.parse::<Sum>().map(|_| ()).expect_err("no such tool");
    /// assert_eq!((error.tool(), error.kind()), ("subtract", "unknown_tool"));
    /// # }
    /// ```
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ResultError> {
        let tool = || self.tool.clone();
        if let Some(source) = &self.error {
            return Err(ResultError::Call { tool: tool(), source: source.clone() });
        }
        if self.meta.is_error {
            return Err(ResultError::Tool { tool: tool(), message: self.to_string() });
        }
        let parsed = match self.data() {
            EnvelopeData::Json(value) => T::deserialize(value),
            EnvelopeData::Text(text) => {
                let string = T::deserialize(&Value::String(text.clone().into_owned()));
                string.or_else(|_| serde_json::from_str(&text))
            }
            parts @ EnvelopeData::Parts(_) => serde_json::to_value(parts).and_then(T::deserialize),
        };
        parsed.map_err(|error| ResultError::Mismatch {
            tool: tool(),
            expected: std::any::type_name::<T>(),
            source: Arc::new(error),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::content::ContentPart;
    use crate::error_chain::chain;
    use crate::tool::{CallId, Origin, ToolOutput};

    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Sum {
        sum: f64,
    }

    fn answered(output: impl Into<ToolOutput>) -> Envelope {
        Envelope::from_output(CallId("7".to_owned()), "add", Origin::Local, Duration::ZERO, output.into())
    }

    #[test]
    fn structured_content_and_json_text_become_a_struct() {
        assert_eq!(answered(json!({"sum": 3})).parse::<Sum>().ok(), Some(Sum { sum: 3.0 }));
        assert_eq!(answered("{\"sum\": 3}").parse::<Sum>().ok(), Some(Sum { sum: 3.0 }));
        let schema = json!({"properties": {"sum": {"type": "number"}}});
        assert_eq!(answered(json!({"sum": "3"})).cast_to(&schema).parse::<Sum>().ok(), Some(Sum { sum: 3.0 }));
    }

    #[test]
    fn text_stays_a_string_if_the_type_is_one() {
        assert_eq!(answered("42").parse::<String>().ok().as_deref(), Some("42"));
        assert_eq!(answered("42").parse::<u8>().ok(), Some(42));
    }

    #[test]
    fn other_content_becomes_its_parts() {
        let parts = vec![ContentPart::text("a"), ContentPart::image("image/png", "eA==")];
        assert_eq!(answered(parts.clone()).parse::<Vec<ContentPart>>().ok(), Some(parts));
    }

    #[test]
    fn an_error_names_the_tool_and_the_kind() {
        let failed = |envelope: Envelope| {
            let error = envelope.parse::<Sum>().expect_err("an error");
            assert_eq!(error.tool(), "add");
            (error.kind(), chain(&error))
        };
        let cancelled =
            Envelope::from_error(CallId("7".to_owned()), "add", Origin::Local, Duration::ZERO, CallError::Cancelled);
        assert_eq!(failed(cancelled).0, "cancelled");
        let (kind, words) = failed(answered(ToolOutput::error("no numbers")));
        assert_eq!((kind, words.as_str()), ("tool_error", "tool `add` reported an error: no numbers"));
        let (kind, words) = failed(answered(json!({"total": 3})));
        assert_eq!(kind, "mismatch");
        assert!(words.starts_with("the result of tool `add` is not a `") && words.contains("`sum`"), "{words}");
    }
}
