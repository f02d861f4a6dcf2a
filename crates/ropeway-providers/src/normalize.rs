//! Normalizes a conversation for every dialect: each tool call is followed by its result, and ids are valid and unique.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde_json::Map;

use super::media_kinds::MediaKinds;
use super::reply_builder::RAW_ARGUMENTS;
use ropeway_core::content::ContentPart;
use ropeway_core::json;
use ropeway_core::lowering::LoweredTools;
use ropeway_core::message::{
    AssistantMessage, AssistantPart, AssistantText, CallArguments, Conversation, Message, ModelEndpoint, ToolCall,
    ToolResult,
};
use ropeway_core::tool::Arguments;

/// Maximum call id length in OpenAI Responses.
const MAX_ID: usize = 64;

/// A missing result's content.
const NO_RESULT: &str = "the call was interrupted and returned no result";

/// One message in a normalized conversation.
#[derive(Debug, PartialEq)]
pub(super) enum NormalizedMessage<'a> {
    /// Consecutive user messages, merged.
    User(Vec<Cow<'a, ContentPart>>),
    /// A message from the model.
    Assistant(NormalizedReply<'a>),
    /// One result for each call in the message before, in the calls' order.
    ToolResults(Vec<NormalizedResult<'a>>),
}

/// A message from the model. Its opaque parts are present only if it is sent back to its endpoint.
#[derive(Debug, PartialEq)]
pub(super) struct NormalizedReply<'a> {
    /// The original message, if it is sent back to its endpoint.
    pub(super) native: Option<&'a AssistantMessage>,
    /// The parts, at least one.
    pub(super) parts: Vec<NormalizedPart<'a>>,
}

/// A part in a [`NormalizedReply`].
#[derive(Debug, PartialEq)]
pub(super) enum NormalizedPart<'a> {
    /// Text; empty only if it is sent back to its endpoint.
    Text(&'a AssistantText),
    /// Reasoning that is sent back to its endpoint.
    Reasoning(&'a AssistantText),
    Call(NormalizedCall<'a>),
    /// An opaque part that is sent back to its endpoint.
    Opaque(&'a Map<String, serde_json::Value>),
}

/// A tool call, with the dialect's names.
#[derive(Debug, PartialEq)]
pub(super) struct NormalizedCall<'a> {
    /// A unique id made of letters, digits, `_` and `-`.
    pub(super) id: String,
    /// The dialect's name for the tool.
    pub(super) wire_name: String,
    /// The arguments. Invalid ones are an object that holds them as text.
    pub(super) arguments: Cow<'a, Arguments>,
    /// The arguments as the model wrote them, if they are sent back to their endpoint and are unchanged.
    pub(super) raw_arguments: Option<&'a str>,
    /// Additional fields, if they are sent back to their endpoint.
    pub(super) extra: Option<&'a Map<String, serde_json::Value>>,
}

/// A tool call's result, with the dialect's names.
#[derive(Debug, PartialEq)]
pub(super) struct NormalizedResult<'a> {
    /// The call's id.
    pub(super) id: String,
    /// The dialect's name for the tool.
    pub(super) wire_name: String,
    /// The result's parts.
    pub(super) content: Cow<'a, [ContentPart]>,
    /// Whether the call failed.
    pub(super) is_error: bool,
}

/// Normalizes a conversation for the model at `endpoint`. These kinds of media are replaced by text descriptions.
pub(super) fn normalize<'a>(
    conversation: &'a Conversation,
    endpoint: &ModelEndpoint,
    lowered: &LoweredTools,
    described_media: MediaKinds,
) -> Vec<NormalizedMessage<'a>> {
    let mut normalizer =
        Normalizer { lowered, described_media, ids: HashSet::new(), next_suffix: HashMap::new(), messages: Vec::new() };
    let mut messages = conversation.messages.iter().peekable();
    while let Some(message) = messages.next() {
        match message {
            Message::User { content } => normalizer.push_user(content.iter().map(Cow::Borrowed)),
            // Results without a call.
            Message::Tool { results } => results.iter().for_each(|result| normalizer.push_orphan(result)),
            Message::Assistant(reply) => {
                let mut results: Vec<&ToolResult> = Vec::new();
                let mut user_parts: Vec<Cow<'a, ContentPart>> = Vec::new();
                while let Some(next) = messages.next_if(|next| !matches!(next, Message::Assistant(_))) {
                    match next {
                        Message::Tool { results: more } => results.extend(more),
                        Message::User { content } => user_parts.extend(content.iter().map(Cow::Borrowed)),
                        Message::Assistant(_) => {}
                    }
                }
                let native = reply.from.as_ref().is_some_and(|from| from.accepts_parts_of(endpoint));
                normalizer.push_assistant(reply, native, results);
                normalizer.push_user(user_parts);
            }
        }
    }
    normalizer.messages
}

struct Normalizer<'a, 'l> {
    lowered: &'l LoweredTools,
    described_media: MediaKinds,
    /// The call ids so far.
    ids: HashSet<String>,
    /// The next number to append to a repeated id.
    next_suffix: HashMap<String, usize>,
    messages: Vec<NormalizedMessage<'a>>,
}

impl<'a> Normalizer<'a, '_> {
    fn push_user(&mut self, parts: impl IntoIterator<Item = Cow<'a, ContentPart>>) {
        let described_media = self.described_media;
        let parts = parts.into_iter().filter(|part| part.as_text().is_none_or(|text| !text.is_empty()));
        let mut parts = parts.map(|part| described_media.describe(part)).peekable();
        if parts.peek().is_none() {
            return;
        }
        match self.messages.last_mut() {
            Some(NormalizedMessage::User(before)) => before.extend(parts),
            _ => self.messages.push(NormalizedMessage::User(parts.collect())),
        }
    }

    fn push_assistant(&mut self, reply: &'a AssistantMessage, native: bool, results: Vec<&'a ToolResult>) {
        let mut parts = Vec::new();
        let mut normalized = Vec::new();
        // Ids may repeat, even within one message: the first unused result belongs to the first call.
        let mut by_id: HashMap<&str, Vec<&'a ToolResult>> = HashMap::new();
        for result in results.iter().rev() {
            by_id.entry(&result.call).or_default().push(result);
        }
        for part in &reply.parts {
            parts.push(match part {
                AssistantPart::Text(text) if native || !text.text.is_empty() => NormalizedPart::Text(text),
                AssistantPart::Reasoning(reasoning) if native => NormalizedPart::Reasoning(reasoning),
                AssistantPart::Opaque { json } if native => NormalizedPart::Opaque(json),
                AssistantPart::ToolCall(call) => {
                    let made = self.call(call, native);
                    let result = by_id.get_mut(call.id.as_str()).and_then(Vec::pop);
                    normalized.push(normalize_result(&made, result, self.described_media));
                    NormalizedPart::Call(made)
                }
                _ => continue,
            });
        }
        if !parts.is_empty() {
            let native = native.then_some(reply);
            // Consecutive messages from the model are merged.
            match self.messages.last_mut() {
                Some(NormalizedMessage::Assistant(before)) if before.native.is_none() && native.is_none() => {
                    before.parts.extend(parts)
                }
                _ => self.messages.push(NormalizedMessage::Assistant(NormalizedReply { native, parts })),
            }
        }
        if !normalized.is_empty() {
            self.messages.push(NormalizedMessage::ToolResults(normalized));
        }
        let mut left: HashSet<*const ToolResult> = by_id.into_values().flatten().map(std::ptr::from_ref).collect();
        for result in results {
            if left.remove(&std::ptr::from_ref(result)) {
                self.push_orphan(result);
            }
        }
    }

    /// Adds a result without a call, as a user message.
    fn push_orphan(&mut self, result: &'a ToolResult) {
        let line = format!("[a result of the tool `{}`]", result.tool);
        let content = result.content.iter().map(Cow::Borrowed);
        self.push_user(std::iter::once(Cow::Owned(ContentPart::text(line))).chain(content));
    }

    fn call(&mut self, call: &'a ToolCall, native: bool) -> NormalizedCall<'a> {
        let tool = self.lowered.get(&call.name);
        let wire_name =
            tool.map_or_else(|| ropeway_core::lowering::wire_name(&call.name), |tool| tool.wire_name.clone());
        let arguments = match (&call.arguments, tool) {
            (CallArguments::Object(arguments), Some(tool)) => tool.to_wire(arguments),
            (CallArguments::Object(arguments), None) => Cow::Borrowed(arguments),
            (CallArguments::Broken { text, .. }, _) => {
                Cow::Owned(Arguments::from_iter([("invalid_arguments".to_owned(), text.clone().into())]))
            }
        };
        let extra = native.then_some(&call.extra);
        let raw_arguments = extra.and_then(|extra| extra.get(RAW_ARGUMENTS)?.as_str());
        // Providers may reject lone surrogates, which Ropeway accepts.
        let raw_arguments =
            raw_arguments.filter(|text| matches!(json::without_lone_surrogates(text), Cow::Borrowed(_)));
        let raw_arguments = raw_arguments.filter(|text| match (&call.arguments, json::from_str(text)) {
            (CallArguments::Object(now), Ok(then)) => match tool {
                Some(tool) => tool.from_wire(then) == *now,
                None => then == *now,
            },
            _ => false,
        });
        NormalizedCall { id: self.unique_id(&call.id), wire_name, arguments, raw_arguments, extra }
    }

    /// Returns an id that every dialect accepts and that no other call has.
    fn unique_id(&mut self, id: &str) -> String {
        let valid = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
        let mut wanted: String = id.chars().map(valid).collect();
        if wanted.is_empty() {
            wanted.push_str("call");
        }
        if wanted.len() > MAX_ID {
            let end = format!("_{:08x}", ropeway_core::hash::short(id));
            wanted.truncate(MAX_ID - end.len());
            wanted.push_str(&end);
        }
        if self.ids.insert(wanted.clone()) {
            return wanted;
        }
        let next = self.next_suffix.entry(wanted.clone()).or_insert(2);
        loop {
            let end = format!("_{next}");
            *next += 1;
            let unique = format!("{}{end}", &wanted[..wanted.len().min(MAX_ID - end.len())]);
            if self.ids.insert(unique.clone()) {
                return unique;
            }
        }
    }
}

fn normalize_result<'a>(
    call: &NormalizedCall<'a>,
    result: Option<&'a ToolResult>,
    described_media: MediaKinds,
) -> NormalizedResult<'a> {
    let (id, wire_name) = (call.id.clone(), call.wire_name.clone());
    match result {
        Some(result) => NormalizedResult {
            id,
            wire_name,
            content: described_media.describe_all(&result.content),
            is_error: result.is_error,
        },
        None => {
            let content = Cow::Owned(vec![ContentPart::text(NO_RESULT)]);
            NormalizedResult { id, wire_name, content, is_error: true }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use ropeway_core::message::Dialect;

    fn endpoint(endpoint: &str) -> ModelEndpoint {
        ModelEndpoint { dialect: Dialect::Chat, endpoint: endpoint.to_owned(), model: "m".to_owned() }
    }

    fn conversation(messages: serde_json::Value) -> Conversation {
        serde_json::from_value(json!({"messages": messages})).expect("a conversation")
    }

    /// Formats normalized messages: `user: a b`, `assistant: text call[id]`, `results: id=text`.
    fn summary(conversation: &Conversation) -> Vec<String> {
        let shown = |parts: &[ContentPart]| {
            parts.iter().map(|part| part.as_text().unwrap_or("(no text)").to_owned()).collect::<Vec<_>>().join(" ")
        };
        let messages = normalize(conversation, &endpoint("here"), &LoweredTools::default(), MediaKinds::NONE);
        messages
            .iter()
            .map(|message| match message {
                NormalizedMessage::User(parts) => {
                    let parts: Vec<ContentPart> = parts.iter().map(|part| part.clone().into_owned()).collect();
                    format!("user: {}", shown(&parts))
                }
                NormalizedMessage::Assistant(reply) => {
                    let parts = reply.parts.iter().map(|part| match part {
                        NormalizedPart::Text(text) => format!("`{}`", text.text),
                        NormalizedPart::Reasoning(reasoning) => format!("({})", reasoning.text),
                        NormalizedPart::Call(call) => format!("{}[{}]", call.wire_name, call.id),
                        NormalizedPart::Opaque(_) => "opaque".to_owned(),
                    });
                    format!("assistant: {}", parts.collect::<Vec<_>>().join(" "))
                }
                NormalizedMessage::ToolResults(normalized) => {
                    let outcome = |outcome: &NormalizedResult<'_>| {
                        let mark = if outcome.is_error { "!" } else { "" };
                        format!("{}{mark}={}", outcome.id, shown(&outcome.content))
                    };
                    format!("results: {}", normalized.iter().map(outcome).collect::<Vec<_>>().join(", "))
                }
            })
            .collect()
    }

    fn call(id: &str) -> serde_json::Value {
        json!({"type": "tool_call", "id": id, "name": "t", "arguments": {}})
    }

    fn result(id: &str, text: &str) -> serde_json::Value {
        json!({"call": id, "tool": "t", "content": [{"type": "text", "text": text}]})
    }

    fn user(text: &str) -> serde_json::Value {
        json!({"role": "user", "content": [{"type": "text", "text": text}]})
    }

    #[test]
    fn results_follow_their_calls_in_the_order_of_the_calls() {
        let conversation = conversation(json!([
            user("a"),
            user("b"),
            {"role": "assistant", "parts": [{"type": "text", "text": "hm"}, call("x"), call("y")]},
            {"role": "tool", "results": [result("y", "2")]},
            user("meanwhile"),
            {"role": "tool", "results": [result("x", "1")]},
        ]));
        assert_eq!(
            summary(&conversation),
            ["user: a b", "assistant: `hm` t[x] t[y]", "results: x=1, y=2", "user: meanwhile"]
        );
    }

    #[test]
    fn a_call_without_a_result_gets_an_error_result() {
        let conversation = conversation(json!([{"role": "assistant", "parts": [call("x")]}]));
        assert_eq!(summary(&conversation), ["assistant: t[x]".to_owned(), format!("results: x!={NO_RESULT}")]);
    }

    #[test]
    fn a_result_without_a_call_becomes_a_user_message() {
        let conversation = conversation(json!([
            {"role": "tool", "results": [result("x", "1")]},
            {"role": "assistant", "parts": [call("a")]},
            {"role": "tool", "results": [result("a", "2"), result("a", "3"), result("z", "4")]},
        ]));
        assert_eq!(
            summary(&conversation),
            [
                "user: [a result of the tool `t`] 1",
                "assistant: t[a]",
                "results: a=2",
                "user: [a result of the tool `t`] 3 [a result of the tool `t`] 4"
            ]
        );
    }

    #[test]
    fn ids_are_made_valid_and_unique() {
        let long = "x".repeat(80);
        let conversation = conversation(json!([
            {"role": "assistant", "parts": [call("a"), call("a"), call(""), call("b/c"), call(&long)]},
            {"role": "tool", "results": [result("a", "1"), result("a", "2"), result("b/c", "3")]},
            {"role": "assistant", "parts": [call("a")]},
        ]));
        let messages = normalize(&conversation, &endpoint("here"), &LoweredTools::default(), MediaKinds::NONE);
        let ids: Vec<&str> = messages
            .iter()
            .filter_map(|message| match message {
                NormalizedMessage::ToolResults(normalized) => {
                    Some(normalized.iter().map(|outcome| outcome.id.as_str()))
                }
                _ => None,
            })
            .flatten()
            .collect();
        assert_eq!([ids[0], ids[1], ids[2], ids[3], ids[5]], ["a", "a_2", "call", "b_c", "a_3"]);
        assert_eq!(ids[4].len(), MAX_ID);
        assert!(summary(&conversation)[1].starts_with("results: a=1, a_2=2, call!="));
    }

    #[test]
    fn many_equal_ids_take_linear_time() {
        let conversation = conversation(json!([{"role": "assistant", "parts": vec![call("a"); 20_000]}]));
        let messages = normalize(&conversation, &endpoint("here"), &LoweredTools::default(), MediaKinds::NONE);
        let NormalizedMessage::ToolResults(normalized) = &messages[1] else { panic!("results") };
        // A search from the first number on would take minutes.
        let counted = std::iter::once("a".to_owned()).chain((2..=20_000).map(|number| format!("a_{number}")));
        assert!(normalized.iter().map(|outcome| outcome.id.clone()).eq(counted));
    }

    #[test]
    fn opaque_parts_return_only_to_their_endpoint() {
        let reply = |endpoint: &str| {
            json!({"role": "assistant", "from": {"dialect": "chat", "endpoint": endpoint, "model": "m"}, "parts": [
                {"type": "reasoning", "text": "secret"}, {"type": "private", "json": {}}, {"type": "text", "text": ""}, {"type": "text", "text": "open"}
            ], "extra": {"x": 1}})
        };
        assert_eq!(summary(&conversation(json!([reply("here")]))), ["assistant: (secret) opaque `` `open`"]);
        assert_eq!(summary(&conversation(json!([reply("there")]))), ["assistant: `open`"]);
    }

    #[test]
    fn invalid_arguments_are_wrapped_in_an_object() {
        let conversation = conversation(json!([{"role": "assistant", "parts": [
            {"type": "tool_call", "id": "x", "name": "t", "broken_arguments": {"text": "{\"a", "problem": "cut"}}
        ]}]));
        let messages = normalize(&conversation, &endpoint("here"), &LoweredTools::default(), MediaKinds::NONE);
        let NormalizedMessage::Assistant(NormalizedReply { parts, .. }) = &messages[0] else { panic!("an reply") };
        let NormalizedPart::Call(call) = &parts[0] else { panic!("a call") };
        assert_eq!(serde_json::to_value(&*call.arguments).expect("JSON"), json!({"invalid_arguments": "{\"a"}));
    }

    #[test]
    fn unchanged_arguments_are_sent_as_the_model_wrote_them() {
        let raw_arguments = |arguments: serde_json::Value| {
            let conversation = conversation(json!([{
                "role": "assistant",
                "from": {"dialect": "chat", "endpoint": "here", "model": "m"},
                "parts": [{"type": "tool_call", "id": "x", "name": "t", "arguments": arguments, "extra": {"arguments": "{ \"a\": 1.0 }"}}],
            }]));
            let messages = normalize(&conversation, &endpoint("here"), &LoweredTools::default(), MediaKinds::NONE);
            let NormalizedMessage::Assistant(NormalizedReply { parts, .. }) = &messages[0] else { panic!("an reply") };
            let NormalizedPart::Call(call) = &parts[0] else { panic!("a call") };
            call.raw_arguments.map(str::to_owned)
        };
        assert_eq!(raw_arguments(json!({"a": 1.0})), Some("{ \"a\": 1.0 }".to_owned()));
        assert_eq!(raw_arguments(json!({"a": 2})), None);
    }

    #[test]
    fn empty_messages_are_dropped() {
        let conversation = Conversation::new()
            .with(Vec::<ContentPart>::new())
            .with(AssistantMessage::default())
            .with("")
            .with(AssistantMessage::text(""))
            .with("hi");
        assert_eq!(summary(&conversation), ["user: hi"]);
    }
}
