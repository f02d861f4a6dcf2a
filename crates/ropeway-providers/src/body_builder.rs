//! Builds a request's JSON body.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::encoded_request::{EncodedRequest, join_tools};
use super::error::ProviderError;
use super::http_message::HttpRequest;
use super::request::{ChatRequest, ToolChoice};
use super::settings::ProviderSettings;
use ropeway_core::lowering::LoweredTools;
use ropeway_core::message::{Dialect, ModelEndpoint};
use ropeway_core::secret::Secret;

/// Writes a body's fields in order, the tools last.
///
/// Fields in the request's `extra` take precedence.
pub(super) struct BodyBuilder<'a> {
    settings: &'a ProviderSettings,
    request: &'a ChatRequest<'a>,
    lowered: Arc<LoweredTools>,
    json: Vec<u8>,
    warnings: Vec<String>,
    error: Option<serde_json::Error>,
}

impl<'a> BodyBuilder<'a> {
    pub(super) fn new(settings: &'a ProviderSettings, request: &'a ChatRequest<'a>) -> Self {
        let lowered = request.tools.as_ref().map(|tools| tools.lowered(settings.dialect)).unwrap_or_default();
        let warnings = lowered.warnings().collect();
        Self { settings, request, lowered, json: vec![b'{'], warnings, error: None }
    }

    /// Returns the tools, lowered to the dialect.
    pub(super) fn lowered(&self) -> Arc<LoweredTools> {
        self.lowered.clone()
    }

    pub(super) fn warn(&mut self, warning: impl Into<String>) {
        self.warnings.push(warning.into());
    }

    /// Returns `true` if the request offers tools. Some providers reject a tool choice without them.
    pub(super) fn has_tools(&self) -> bool {
        !self.lowered.tools.is_empty()
    }

    /// Writes a field, unless `extra` has it.
    pub(super) fn field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) {
        if !self.request.extra.contains_key(name) {
            self.write(name, value);
        }
    }

    /// Writes a field if it has a value.
    pub(super) fn field_if_some<T: Serialize>(&mut self, name: &str, value: Option<T>) {
        if let Some(value) = value {
            self.field(name, &value);
        }
    }

    fn write<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) {
        self.write_name(name);
        if let Err(error) = serde_json::to_writer(&mut self.json, value) {
            self.error.get_or_insert(error);
        }
    }

    fn write_name(&mut self, name: &str) {
        if self.json.len() > 1 {
            self.json.push(b',');
        }
        self.json.extend_from_slice(Value::from(name).to_string().as_bytes());
        self.json.push(b':');
    }

    /// Writes the `extra` fields and the tools. `only` is the one tool to offer, if the choice is limited to it.
    pub(super) fn finish(
        mut self,
        endpoint: ModelEndpoint,
        url: String,
        headers: Vec<(String, Secret)>,
        only: Option<&str>,
    ) -> Result<EncodedRequest, ProviderError> {
        let dialect = self.settings.dialect;
        let request = self.request;
        for (name, value) in request.extra.iter().filter(|(name, _)| *name != "tools") {
            self.write(name, value);
        }
        let mut offered: Vec<usize> = (0..self.lowered.tools.len()).collect();
        if let Some(only) = only {
            offered.retain(|&at| self.lowered.tools[at].name == only);
        }
        let max = self.settings.max_tools();
        if offered.len() > max {
            let over = offered.len() - max;
            self.warn(format!("left out {over} of {} tools: {dialect} supports at most {max}", offered.len()));
            offered.truncate(max);
        }
        // Tools that the provider runs itself, such as web search.
        let provider_tools: &[Value] = request.extra.get("tools").and_then(Value::as_array).map_or(&[], Vec::as_slice);
        let mut tools_range = 0..0;
        let start = self.json.len();
        if !offered.is_empty() || !provider_tools.is_empty() {
            self.write_name("tools");
            self.json.push(b'[');
            if !offered.is_empty() {
                let (before, after) = match dialect {
                    Dialect::Gemini => ("{\"functionDeclarations\":[", "]}"),
                    _ => ("", ""),
                };
                self.json.extend_from_slice(before.as_bytes());
                tools_range.start = self.json.len();
                if offered.len() == self.lowered.tools.len() {
                    self.json.extend_from_slice(self.lowered.json().as_bytes());
                } else {
                    self.json.extend_from_slice(join_tools(&self.lowered, &offered).as_bytes());
                }
                tools_range.end = self.json.len();
                self.json.extend_from_slice(after.as_bytes());
            }
            for (at, tool) in provider_tools.iter().enumerate() {
                if at > 0 || !offered.is_empty() {
                    self.json.push(b',');
                }
                self.json.extend_from_slice(tool.to_string().as_bytes());
            }
            self.json.push(b']');
        }
        let is_optional =
            request.tool_choice == ToolChoice::Auto && request.parallel_calls.is_none() && provider_tools.is_empty();
        let tools_field = (is_optional && start > 1).then_some(start..self.json.len());
        self.json.push(b'}');
        if let Some(error) = self.error {
            return Err(ProviderError::unusable(dialect, "could not serialize the request").with_source(error));
        }
        Ok(EncodedRequest {
            request: HttpRequest { method: "POST", url, headers, body: self.json.into() },
            warnings: self.warnings,
            endpoint,
            lowered: self.lowered,
            offered,
            tools_range,
            tools_field,
        })
    }
}
