//! A test case: one request in several dialects.

use ropeway::lowering::Toolset;
use ropeway::message::{Conversation, Dialect, ToolCall};
use ropeway::provider::{ChatRequest, ProviderError, ProviderSettings};
use ropeway::tool::ToolDefinition;
use ropeway_providers::{EncodedRequest, encode};
use serde_json::{Value, json};

/// A request, independent of the dialect.
pub(super) struct Case {
    pub(super) name: String,
    conversation: Conversation,
    tools: Option<Toolset>,
    ask: fn(&mut ChatRequest<'_>),
    /// The only dialect of the case, with its model and settings, if limited to one.
    only: Option<Only>,
}

struct Only {
    dialect: Dialect,
    model: &'static str,
    set: fn(&mut ProviderSettings),
}

impl Case {
    pub(super) fn new(name: impl Into<String>, conversation: Conversation) -> Self {
        Self { name: name.into(), conversation, tools: None, ask: |_| {}, only: None }
    }

    pub(super) fn with_tools(mut self, tools: Vec<ToolDefinition>) -> Self {
        self.tools = Some(Toolset::new(tools));
        self
    }

    pub(super) fn asking(mut self, ask: fn(&mut ChatRequest<'_>)) -> Self {
        self.ask = ask;
        self
    }

    pub(super) fn only(mut self, dialect: Dialect, model: &'static str, set: fn(&mut ProviderSettings)) -> Self {
        self.only = Some(Only { dialect, model, set });
        self
    }

    /// Returns the dialects of the case.
    pub(super) fn dialects(&self) -> Vec<Dialect> {
        self.only.as_ref().map_or_else(|| Dialect::ALL.to_vec(), |only| vec![only.dialect])
    }

    /// Encodes the request.
    pub(super) fn encode(&self, dialect: Dialect) -> EncodedRequest {
        self.try_encode(dialect).unwrap_or_else(|error| panic!("`{}` for {dialect}: {error}", self.name))
    }

    /// Encodes the request, if it is valid.
    pub(super) fn try_encode(&self, dialect: Dialect) -> Result<EncodedRequest, ProviderError> {
        let mut settings = settings(dialect);
        let mut asked = model(dialect);
        if let Some(only) = &self.only {
            asked = only.model;
            (only.set)(&mut settings);
        }
        let mut request = ChatRequest::new(asked, &self.conversation);
        if let Some(tools) = &self.tools {
            request = request.with_tools(tools);
        }
        (self.ask)(&mut request);
        encode(&settings, &request)
    }
}

/// Settings for a dialect, with a distinct host.
pub(super) fn settings(dialect: Dialect) -> ProviderSettings {
    let path = match dialect {
        Dialect::Responses | Dialect::Chat => "/v1",
        _ => "",
    };
    ProviderSettings::new(dialect).with_base_url(format!("https://{dialect}.example.com{path}")).with_key("test-key")
}

/// A model of the dialect.
pub(super) fn model(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Anthropic => "claude-opus-5-5",
        Dialect::Responses => "gpt-6-sol",
        Dialect::Gemini => "gemini-3.8-flash",
        Dialect::Chat => "local-model",
    }
}

/// The tools that most cases offer.
pub(super) fn tools() -> Vec<ToolDefinition> {
    vec![
        ToolDefinition::new("wind").with_description("Reads the wind at a station").with_input_schema(json!({
            "type": "object",
            "properties": {"station": {"type": "string"}, "unit": {"type": "string", "enum": ["km/h", "m/s"]}},
            "required": ["station"]
        })),
        ToolDefinition::new("cabins")
            .with_description("Counts the cabins on the line")
            .with_input_schema(json!({"type": "object", "properties": {}})),
    ]
}

pub(super) fn call(id: &str, name: &str, arguments: Value) -> ToolCall {
    ToolCall::new(id, name, arguments.as_object().cloned().expect("an object"))
}
