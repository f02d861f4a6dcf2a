//! A request in a dialect: the bytes to send, and the context to decode the response.

use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;

use super::http_message::HttpRequest;
use ropeway_core::lowering::LoweredTools;
use ropeway_core::message::ModelEndpoint;

/// A request in a provider's dialect, made by `encode`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EncodedRequest {
    /// The HTTP request to send.
    pub request: HttpRequest,
    /// Tools that were left out, and settings that the provider does not support.
    pub warnings: Vec<String>,
    pub(super) endpoint: ModelEndpoint,
    pub(super) lowered: Arc<LoweredTools>,
    /// The tools in the body, as indexes into the lowered ones.
    pub(super) offered: Vec<usize>,
    /// The range in the body that holds the tools' JSON.
    pub(super) tools_range: Range<usize>,
    /// The range in the body that holds the whole field, with the comma before it, if the request is valid without it.
    pub(super) tools_field: Option<Range<usize>>,
}

impl EncodedRequest {
    /// Returns the name of the tool at this index in the request.
    pub fn tool_name(&self, index: u32) -> Option<&str> {
        self.offered.get(index as usize).map(|&at| self.lowered.tools[at].name.as_str())
    }

    /// Returns the same request without the tool at this index.
    ///
    /// Returns `None` if the index is out of range, or if it is the last tool and one must be called.
    pub fn without_tool(&self, index: u32) -> Option<Self> {
        let index = index as usize;
        if index >= self.offered.len() {
            return None;
        }
        let mut offered = self.offered.clone();
        offered.remove(index);
        if offered.is_empty() {
            return self.without_tools();
        }
        let (body, range) = (&self.request.body, &self.tools_range);
        let tools = join_tools(&self.lowered, &offered);
        let body = [&body[..range.start], tools.as_bytes(), &body[range.end..]].concat();
        let removed = range.len() - tools.len();
        let tools_range = range.start..range.start + tools.len();
        let tools_field = self.tools_field.clone().map(|field| field.start..field.end - removed);
        let request = HttpRequest { body: body.into(), ..self.request.clone() };
        Some(Self { request, offered, tools_range, tools_field, ..self.clone() })
    }

    /// Returns the same request without tools, or `None` if it has none or is not valid without them.
    pub fn without_tools(&self) -> Option<Self> {
        let field = self.tools_field.clone().filter(|_| !self.offered.is_empty())?;
        let body = &self.request.body;
        let body = [&body[..field.start], &body[field.end..]].concat();
        let request = HttpRequest { body: body.into(), ..self.request.clone() };
        Some(Self { request, offered: Vec::new(), tools_range: 0..0, tools_field: None, ..self.clone() })
    }

    pub(super) fn model(&self) -> &str {
        &self.endpoint.model
    }

    pub(super) fn tool_count(&self) -> usize {
        self.offered.len()
    }

    /// Returns the same request with one more field in its body.
    pub(super) fn with_field(&self, name: &str, value: &Value) -> Self {
        let field = format!("{{{}:{value},", Value::from(name));
        let body = [field.as_bytes(), &self.request.body[1..]].concat();
        let shift = |range: &Range<usize>| range.start + field.len() - 1..range.end + field.len() - 1;
        let (tools_range, tools_field) = (shift(&self.tools_range), self.tools_field.as_ref().map(shift));
        let request = HttpRequest { body: body.into(), ..self.request.clone() };
        Self { request, tools_range, tools_field, ..self.clone() }
    }
}

/// Joins the JSON for the tools at these indexes.
pub(super) fn join_tools(lowered: &LoweredTools, indexes: &[usize]) -> String {
    let texts: Vec<&str> = indexes.iter().map(|&at| lowered.tools[at].json.get()).collect();
    texts.join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{ChatRequest, ProviderSettings, ToolChoice, encode};
    use ropeway_core::lowering::Toolset;
    use ropeway_core::message::{Conversation, Dialect};
    use ropeway_core::tool::ToolDefinition;

    fn body(encoded: &EncodedRequest) -> Value {
        serde_json::from_slice(&encoded.request.body).expect("JSON")
    }

    /// Returns the tool names in a body, for any dialect.
    fn names(encoded: &EncodedRequest) -> Vec<String> {
        let body = body(encoded);
        let tools = body.get("tools").and_then(Value::as_array).cloned().unwrap_or_default();
        let declared = |tool: &Value| match tool.get("functionDeclarations") {
            Some(Value::Array(declarations)) => declarations.clone(),
            _ => vec![tool.get("function").unwrap_or(tool).clone()],
        };
        tools.iter().flat_map(declared).map(|tool| tool["name"].as_str().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn tools_can_be_removed_one_by_one_in_every_dialect() {
        let conversation = Conversation::new().with("hi");
        let tools = Toolset::new(["a", "b", "c"].map(ToolDefinition::new));
        for dialect in Dialect::ALL {
            let request = ChatRequest::new("m", &conversation).with_tools(&tools);
            let whole = encode(&ProviderSettings::new(dialect), &request).expect("a request");
            assert_eq!(names(&whole), ["a", "b", "c"], "{dialect}");
            assert_eq!((whole.tool_name(1), whole.tool_name(3)), (Some("b"), None));
            let two = whole.without_tool(1).expect("two tools").with_field("more", &json!(1));
            assert_eq!((names(&two), two.tool_name(1)), (vec!["a".to_owned(), "c".to_owned()], Some("c")));
            assert_eq!(body(&two)["more"], 1);
            let none = two.without_tool(0).and_then(|one| one.without_tool(0)).expect("no tools");
            let bare =
                encode(&ProviderSettings::new(dialect), &ChatRequest::new("m", &conversation)).expect("a request");
            let mut expected = body(&bare);
            expected["more"] = 1.into();
            assert_eq!(body(&none), expected, "{dialect}");
            assert!(none.without_tool(0).is_none() && whole.without_tool(3).is_none());
            assert_eq!(whole.without_tools().map(|none| body(&none)), Some(body(&bare)), "{dialect}");
            assert!(none.without_tools().is_none());
        }
    }

    #[test]
    fn the_last_tool_stays_if_one_must_be_called() {
        let conversation = Conversation::new().with("hi");
        let tools = Toolset::new([ToolDefinition::new("a")]);
        for dialect in Dialect::ALL {
            let request =
                ChatRequest::new("m", &conversation).with_tools(&tools).with_tool_choice(ToolChoice::Required);
            let encoded = encode(&ProviderSettings::new(dialect), &request).expect("a request");
            assert!(encoded.without_tool(0).is_none() && encoded.without_tools().is_none(), "{dialect}");
        }
    }
}
