//! Argument completion
//! ([completion](https://modelcontextprotocol.io/specification/2025-11-25/server/utilities/completion)).

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::call;
use super::client::Mcp;
use super::connection::Connection;
use super::prompts::to_text_arguments;
use crate::protocol::code;
use crate::protocol::field::{boolean, count, list, take};
use ropeway_core::tool::{Arguments, CallContext, CallError};

/// Suggested values for an argument.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Completion {
    /// The suggested values, best first.
    pub values: Vec<String>,
    /// The total number of values, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// Whether the server has more values than these.
    pub has_more: bool,
}

impl Mcp {
    /// Requests completions for a prompt argument's partial `value`. `context` holds the other arguments.
    ///
    /// Returns an empty [`Completion`] if the server does not support completion.
    pub async fn complete_prompt(
        &self,
        prompt: &str,
        argument: &str,
        value: &str,
        context: Arguments,
        cx: &CallContext,
    ) -> Result<Completion, CallError> {
        let reference = json!({"type": "ref/prompt", "name": prompt});
        let argument = json!({"name": argument, "value": value});
        complete(&self.inner.connection, reference, argument, context, cx).await
    }

    /// Requests completions for a resource template variable's partial `value`. `context` holds the other variables.
    ///
    /// Returns an empty [`Completion`] if the server does not support completion.
    pub async fn complete_resource(
        &self,
        uri_template: &str,
        variable: &str,
        value: &str,
        context: Arguments,
        cx: &CallContext,
    ) -> Result<Completion, CallError> {
        let reference = json!({"type": "ref/resource", "uri": uri_template});
        let argument = json!({"name": variable, "value": value});
        complete(&self.inner.connection, reference, argument, context, cx).await
    }
}

/// Requests suggestions for a prompt or resource template argument. Returns none if the server does not support completion.
async fn complete(
    connection: &Arc<Connection>,
    reference: Value,
    argument: Value,
    context: Arguments,
    cx: &CallContext,
) -> Result<Completion, CallError> {
    let mut params = Map::from_iter([("ref".to_owned(), reference), ("argument".to_owned(), argument)]);
    let context = to_text_arguments(context);
    if !context.is_empty() {
        params.insert("context".to_owned(), json!({"arguments": context}));
    }
    match call::request(connection, "completion/complete", params, cx).await {
        Ok(result) => Ok(Completion::read(result)),
        Err(CallError::Refused { code: code::METHOD_NOT_FOUND, .. }) => Ok(Completion::default()),
        Err(error) => Err(error),
    }
}

impl Completion {
    fn read(mut result: Value) -> Self {
        let Some(Value::Object(mut fields)) = result.get_mut("completion").map(Value::take) else {
            return Self::default();
        };
        let text = |value| match value {
            Value::String(text) => Some(text),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let values = take(&mut fields, "values", list).unwrap_or_default();
        Self {
            values: values.into_iter().filter_map(text).collect(),
            total: take(&mut fields, "total", count),
            has_more: take(&mut fields, "hasMore", boolean).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_is_read_with_any_optional_fields() {
        let completion = |values: &[&str], total, has_more| {
            let values = values.iter().map(|value| (*value).to_owned()).collect();
            Completion { values, total, has_more }
        };
        let read = |fields| Completion::read(json!({"completion": fields}));
        let full = read(json!({"values": ["a", 2, null], "total": 7, "hasMore": true}));
        assert_eq!(full, completion(&["a", "2"], Some(7), true));
        assert_eq!(read(json!({"values": ["a"], "total": null})), completion(&["a"], None, false));
        assert_eq!(read(json!([])), Completion::default());
        assert_eq!(Completion::read(json!({})), Completion::default());
    }
}
