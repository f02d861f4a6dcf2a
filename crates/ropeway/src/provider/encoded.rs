//! A request in a dialect: what goes over the wire, and what it takes to understand the answer.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{ChatRequest, Decoder, ProviderError, ProviderErrorKind, ProviderSettings, ToolChoice};
use crate::lowering::LoweredTools;
use crate::message::{Dialect, ModelEndpoint};
use crate::secret::{self, Redactor, Secret};

/// An HTTP request, ready to be sent.
#[derive(Clone)]
#[non_exhaustive]
pub struct HttpRequest {
    /// The method.
    pub method: &'static str,
    /// The URL, with its query.
    pub url: String,
    /// The headers.
    pub headers: Vec<(String, Secret)>,
    /// The body: JSON.
    pub body: Bytes,
}

impl fmt::Debug for HttpRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A key may stand in the URL.
        let url = Redactor::new(&secret::in_url(&self.url)).hide(&self.url).into_owned();
        let mut shown = f.debug_struct("HttpRequest");
        shown
            .field("method", &self.method)
            .field("url", &url)
            .field("headers", &self.headers)
            .field("body", &self.body);
        shown.finish()
    }
}

/// A request in a dialect.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EncodedRequest {
    /// What goes over the wire.
    pub request: HttpRequest,
    /// What a person should know: tools that were left out, settings that this provider does not take.
    pub warnings: Vec<String>,
    speaker: ModelEndpoint,
    lowered: Arc<LoweredTools>,
    /// The tools in the body, by their place among the lowered ones.
    offered: Vec<usize>,
    /// Where their JSON stands in the body.
    place: Range<usize>,
    /// Where the whole field stands, with the comma before it, if the request makes sense without it.
    field: Option<Range<usize>>,
}

impl EncodedRequest {
    /// Reads the answer to this request.
    pub fn decoder(&self) -> Decoder {
        Decoder::new(self.speaker.clone(), self.lowered.clone())
    }

    /// The name of a tool by its place in the request.
    pub fn tool(&self, place: u32) -> Option<&str> {
        self.offered.get(place as usize).map(|&at| self.lowered.tools[at].name.as_str())
    }

    /// The same request without one of its tools; `None` if there is no such tool, or if one must be called and it is the last.
    pub fn without_tool(&self, place: u32) -> Option<Self> {
        let place = place as usize;
        if place >= self.offered.len() {
            return None;
        }
        let mut offered = self.offered.clone();
        offered.remove(place);
        if offered.is_empty() {
            return self.without_tools();
        }
        let body = &self.request.body;
        let tools = join(&self.lowered, &offered);
        let body = [&body[..self.place.start], tools.as_bytes(), &body[self.place.end..]].concat();
        let place = self.place.start..self.place.start + tools.len();
        let shorter = self.place.len() - tools.len();
        let field = self.field.clone().map(|field| field.start..field.end - shorter);
        let request = HttpRequest { body: body.into(), ..self.request.clone() };
        Some(Self { request, offered, place, field, ..self.clone() })
    }

    /// The same request without any tools; `None` if there are none, or if it makes no sense without them.
    pub fn without_tools(&self) -> Option<Self> {
        let field = self.field.clone().filter(|_| !self.offered.is_empty())?;
        let body = &self.request.body;
        let body = [&body[..field.start], &body[field.end..]].concat();
        let request = HttpRequest { body: body.into(), ..self.request.clone() };
        Some(Self { request, offered: Vec::new(), place: 0..0, field: None, ..self.clone() })
    }

    /// The model that is asked.
    pub(super) fn model(&self) -> &str {
        &self.speaker.model
    }

    /// How many tools there are in it.
    pub(super) fn tools(&self) -> usize {
        self.offered.len()
    }

    /// The same request with one more field in its body.
    pub(super) fn with_field(&self, name: &str, value: &Value) -> Self {
        let field = format!("{{{}:{value},", Value::from(name));
        let body = [field.as_bytes(), &self.request.body[1..]].concat();
        let moved = |range: &Range<usize>| range.start + field.len() - 1..range.end + field.len() - 1;
        let (place, whole) = (moved(&self.place), self.field.as_ref().map(moved));
        Self { request: HttpRequest { body: body.into(), ..self.request.clone() }, place, field: whole, ..self.clone() }
    }
}

fn join(lowered: &LoweredTools, places: &[usize]) -> String {
    let texts: Vec<&str> = places.iter().map(|&at| lowered.tools[at].json.get()).collect();
    texts.join(",")
}

/// A body in the making: fields in the order they are written, the tools last.
///
/// What the caller wants to say himself wins over what we say.
pub(super) struct Body<'a> {
    settings: &'a ProviderSettings,
    request: &'a ChatRequest<'a>,
    lowered: Arc<LoweredTools>,
    json: Vec<u8>,
    warnings: Vec<String>,
    broken: Option<serde_json::Error>,
}

impl<'a> Body<'a> {
    pub(super) fn new(settings: &'a ProviderSettings, request: &'a ChatRequest<'a>) -> Self {
        let lowered = request.tools.map(|tools| tools.lowered(settings.dialect)).unwrap_or_default();
        let warnings = lowered.warnings().collect();
        Self { settings, request, lowered, json: vec![b'{'], warnings, broken: None }
    }

    /// The tools as the dialect takes them.
    pub(super) fn lowered(&self) -> Arc<LoweredTools> {
        self.lowered.clone()
    }

    /// Tells what a person should know.
    pub(super) fn warn(&mut self, warning: impl Into<String>) {
        self.warnings.push(warning.into());
    }

    /// Will there be tools? Not all providers take a choice without them.
    pub(super) fn has_tools(&self) -> bool {
        !self.lowered.tools.is_empty()
    }

    /// Writes a field.
    pub(super) fn field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) {
        if self.request.extra.contains_key(name) {
            return;
        }
        self.write(name, value);
    }

    /// Writes a field, if there is something to say.
    pub(super) fn field_if_some<T: Serialize>(&mut self, name: &str, value: Option<T>) {
        if let Some(value) = value {
            self.field(name, &value);
        }
    }

    fn write<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) {
        self.name(name);
        if let Err(error) = serde_json::to_writer(&mut self.json, value) {
            self.broken.get_or_insert(error);
        }
    }

    fn name(&mut self, name: &str) {
        if self.json.len() > 1 {
            self.json.push(b',');
        }
        self.json.extend_from_slice(Value::from(name).to_string().as_bytes());
        self.json.push(b':');
    }

    /// Writes what the caller wants to say himself, and the tools; `only` is the one that may be called, if there is such.
    pub(super) fn finish(
        mut self,
        speaker: ModelEndpoint,
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
        let most = self.settings.quirks.most_tools.or(crate::lowering::most_tools(dialect)).unwrap_or(usize::MAX);
        if offered.len() > most {
            let over = offered.len() - most;
            self.warn(format!("{over} of {} tools are left out: {dialect} takes no more than {most}", offered.len()));
            offered.truncate(most);
        }
        // Tools that run at the provider stand beside ours.
        let others: &[Value] = request.extra.get("tools").and_then(Value::as_array).map_or(&[], Vec::as_slice);
        let mut place = 0..0;
        let before = self.json.len();
        if !offered.is_empty() || !others.is_empty() {
            self.name("tools");
            self.json.push(b'[');
            if !offered.is_empty() {
                let (before, after) = match dialect {
                    Dialect::Gemini => ("{\"functionDeclarations\":[", "]}"),
                    _ => ("", ""),
                };
                self.json.extend_from_slice(before.as_bytes());
                place.start = self.json.len();
                match offered.len() == self.lowered.tools.len() {
                    true => self.json.extend_from_slice(self.lowered.json().as_bytes()),
                    false => self.json.extend_from_slice(join(&self.lowered, &offered).as_bytes()),
                }
                place.end = self.json.len();
                self.json.extend_from_slice(after.as_bytes());
            }
            for (at, other) in others.iter().enumerate() {
                if at > 0 || !offered.is_empty() {
                    self.json.push(b',');
                }
                self.json.extend_from_slice(other.to_string().as_bytes());
            }
            self.json.push(b']');
        }
        let is_free = request.tool_choice == ToolChoice::Auto && request.parallel_calls.is_none() && others.is_empty();
        let field = (is_free && before > 1).then_some(before..self.json.len());
        self.json.push(b'}');
        if let Some(error) = self.broken {
            let broken =
                ProviderError::new(ProviderErrorKind::Unusable, dialect, "the request cannot be written as JSON");
            return Err(broken.with_source(error));
        }
        Ok(EncodedRequest {
            request: HttpRequest { method: "POST", url, headers, body: self.json.into() },
            warnings: self.warnings,
            speaker,
            lowered: self.lowered,
            offered,
            place,
            field,
        })
    }
}

/// The headers of a request to a model; those of the settings win.
pub(super) fn headers(settings: &ProviderSettings, own: &[(&str, &str)]) -> Vec<(String, Secret)> {
    let content = [("content-type", "application/json"), ("accept", "text/event-stream")];
    headers_with(settings, &[&content, own].concat())
}

/// These headers, and the key; those of the settings win.
pub(super) fn headers_with(settings: &ProviderSettings, own: &[(&str, &str)]) -> Vec<(String, Secret)> {
    use super::settings::KeyHeader;
    let mut headers: Vec<(String, Secret)> = Vec::new();
    headers.extend(own.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value))));
    if let Some(key) = &settings.key {
        headers.push(match &settings.key_header {
            KeyHeader::Bearer => ("authorization".to_owned(), Secret::new(format!("Bearer {}", key.expose()))),
            KeyHeader::Named(name) => (name.clone().into_owned(), key.clone()),
        });
    }
    headers.retain(|(name, _)| !settings.headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)));
    headers.extend(settings.headers.iter().cloned());
    headers
}

/// Fields that go back to where they came from.
pub(super) type Extra = Map<String, Value>;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::lowering::Toolset;
    use crate::message::Conversation;
    use crate::provider::encode;
    use crate::tool::ToolDefinition;

    fn body(encoded: &EncodedRequest) -> Value {
        serde_json::from_slice(&encoded.request.body).expect("JSON")
    }

    /// The names of the tools in a body, wherever the dialect has them.
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
    fn a_tool_can_be_taken_out_of_a_request_in_every_dialect_down_to_the_last() {
        let conversation = Conversation::new().with("hi");
        let tools = Toolset::new(["a", "b", "c"].map(ToolDefinition::new));
        for dialect in Dialect::ALL {
            let request = ChatRequest::new("m", &conversation).with_tools(&tools);
            let whole = encode(&ProviderSettings::new(dialect), &request).expect("a request");
            assert_eq!(names(&whole), ["a", "b", "c"], "{dialect}");
            assert_eq!((whole.tool(1), whole.tool(3)), (Some("b"), None));
            let two = whole.without_tool(1).expect("two tools").with_field("more", &json!(1));
            assert_eq!((names(&two), two.tool(1)), (vec!["a".to_owned(), "c".to_owned()], Some("c")));
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
    fn a_key_is_sent_in_a_header_that_is_named_at_run_time() {
        let mut settings = ProviderSettings::new(Dialect::Chat).with_key("k");
        settings.key_header = crate::provider::KeyHeader::named(format!("x-{}-key", "team"));
        let sent = headers(&settings, &[]);
        let sent: Vec<_> = sent.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
        assert_eq!(sent, [("content-type", "application/json"), ("accept", "text/event-stream"), ("x-team-key", "k")]);
    }

    #[test]
    fn the_last_tool_stays_where_one_must_be_called() {
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
