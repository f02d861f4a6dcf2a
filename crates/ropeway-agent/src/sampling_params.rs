//! `sampling/createMessage` parameters, parsed from untrusted JSON.

use serde_json::Value;

use ropeway_core::content::ContentPart;
use ropeway_core::message::{AssistantMessage, AssistantPart, AssistantText, Conversation, Message};
use ropeway_mcp::HandlerError;
use ropeway_mcp::protocol::code;

/// A sampling request's supported parameters.
#[derive(Debug, PartialEq)]
pub(super) struct SamplingParams {
    pub(super) conversation: Conversation,
    pub(super) max_tokens: u32,
    pub(super) temperature: Option<f64>,
    pub(super) stop_sequences: Vec<String>,
}

fn invalid(message: impl Into<String>) -> HandlerError {
    HandlerError { code: code::INVALID_PARAMS, message: message.into() }
}

impl SamplingParams {
    /// Parses the parameters. Ignores `modelPreferences`, `includeContext` and `metadata`: the host decides about those.
    pub(super) fn parse(params: &Value) -> Result<Self, HandlerError> {
        let Value::Object(params) = params else { return Err(invalid("the parameters must be an object")) };
        let field = |name: &str| params.get(name).filter(|value| !value.is_null());
        for name in ["tools", "toolChoice"] {
            if field(name).is_some() {
                return Err(invalid(format!("`{name}` is not supported: `sampling.tools` was not declared")));
            }
        }
        let messages = field("messages").and_then(Value::as_array).filter(|messages| !messages.is_empty());
        let messages = messages.ok_or_else(|| invalid("`messages` must be a non-empty array"))?;
        let mut conversation = Conversation::new();
        for (at, read) in messages.iter().map(message).enumerate() {
            conversation.push(read.map_err(|problem| invalid(format!("`messages[{at}]`: {problem}")))?);
        }
        if let Some(system) = field("systemPrompt") {
            let system = system.as_str().ok_or_else(|| invalid("`systemPrompt` must be a string"))?;
            conversation.system = Some(system.to_owned()).filter(|system| !system.is_empty());
        }
        Ok(Self {
            conversation,
            max_tokens: field("maxTokens")
                .and_then(tokens)
                .ok_or_else(|| invalid("`maxTokens` must be a positive integer"))?,
            temperature: field("temperature").map(temperature).transpose()?,
            stop_sequences: field("stopSequences").map(stop_sequences).transpose()?.unwrap_or_default(),
        })
    }
}

/// Returns a positive token count, at most `u32::MAX`.
fn tokens(value: &Value) -> Option<u32> {
    // JSON writers without integers write `100.0`.
    let whole = |number: &f64| number.fract() == 0.0 && *number >= 1.0;
    match value.as_u64() {
        Some(0) => None,
        Some(tokens) => Some(u32::try_from(tokens).unwrap_or(u32::MAX)),
        // The cast saturates.
        None => value.as_f64().filter(whole).map(|number| number as u32),
    }
}

fn temperature(value: &Value) -> Result<f64, HandlerError> {
    let number = value.as_f64().filter(|number| (0.0..=2.0).contains(number));
    number.ok_or_else(|| invalid("`temperature` must be a number from 0 to 2"))
}

fn stop_sequences(value: &Value) -> Result<Vec<String>, HandlerError> {
    let texts = value.as_array().map(|texts| texts.iter().map(|text| text.as_str().map(str::to_owned)).collect());
    let texts: Option<Vec<String>> = texts.flatten();
    let texts = texts.ok_or_else(|| invalid("`stopSequences` must be an array of strings"))?;
    // Providers refuse empty stop sequences.
    Ok(texts.into_iter().filter(|text| !text.is_empty()).collect())
}

fn message(value: &Value) -> Result<Message, String> {
    let content = match value.get("content") {
        Some(Value::Array(blocks)) if !blocks.is_empty() => blocks.iter().map(part).collect::<Result<Vec<_>, _>>()?,
        Some(text @ (Value::Object(_) | Value::String(_))) => vec![part(text)?],
        _ => return Err("`content` must be a block or an array of blocks".to_owned()),
    };
    match value.get("role").and_then(Value::as_str) {
        Some("user") => Ok(content.into()),
        Some("assistant") => {
            let text = |part: ContentPart| match part {
                ContentPart::Text { text, .. } => Ok(AssistantPart::Text(AssistantText { text, ..Default::default() })),
                _ => Err("assistant content must be text".to_owned()),
            };
            let parts = content.into_iter().map(text).collect::<Result<_, _>>()?;
            Ok(AssistantMessage::new(parts).into())
        }
        _ => Err("`role` must be `user` or `assistant`".to_owned()),
    }
}

fn part(block: &Value) -> Result<ContentPart, String> {
    // The specification requires a block; some servers send the bare text.
    if let Value::String(text) = block {
        return Ok(ContentPart::text(text));
    }
    let kind = block.get("type").and_then(Value::as_str).ok_or("a block must have a `type`")?;
    // `from_block` never fails: it converts a malformed block into text.
    let part = ContentPart::from_block(block.clone());
    match (kind, &part) {
        ("text", ContentPart::Text { .. }) if block.get("text").is_some_and(Value::is_string) => Ok(part),
        ("image", ContentPart::Image(_)) | ("audio", ContentPart::Audio(_)) => Ok(part),
        ("text", _) => Err("a block of type `text` must have a `text`".to_owned()),
        ("image" | "audio", _) => Err(format!("a block of type `{kind}` must have `data` and `mimeType`")),
        ("tool_use" | "tool_result", _) => {
            Err(format!("a block of type `{kind}` is not supported: `sampling.tools` was not declared"))
        }
        // An unknown type's name may have any length, so the message does not repeat it.
        _ => Err("a block must be of type `text`, `image` or `audio`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(text: &str) -> Value {
        json!({"maxTokens": 100, "messages": [{"role": "user", "content": {"type": "text", "text": text}}]})
    }

    fn problem(params: Value) -> String {
        let refusal = SamplingParams::parse(&params).expect_err("a refusal");
        assert_eq!(refusal.code, code::INVALID_PARAMS);
        refusal.message
    }

    #[test]
    fn invalid_parameters_are_refused_with_a_clear_message() {
        let with = |name: &str, value: Value| {
            let mut params = request("Hi");
            params[name] = value;
            params
        };
        let message = |message: Value| with("messages", json!([message]));
        let block = |block: Value| message(json!({"role": "user", "content": block}));
        let tokens = "`maxTokens` must be a positive integer";
        let messages = "`messages` must be a non-empty array";
        let cases = [
            (json!(null), "the parameters must be an object"),
            (json!([1]), "the parameters must be an object"),
            (json!({"maxTokens": 1}), messages),
            (with("messages", json!([])), messages),
            (with("messages", json!("hi")), messages),
            (with("maxTokens", json!(null)), tokens),
            (with("maxTokens", json!(0)), tokens),
            (with("maxTokens", json!(-5)), tokens),
            (with("maxTokens", json!(1.5)), tokens),
            (with("maxTokens", json!("100")), tokens),
            (with("temperature", json!("hot")), "`temperature` must be a number from 0 to 2"),
            (with("temperature", json!(-0.1)), "`temperature` must be a number from 0 to 2"),
            (with("stopSequences", json!("x")), "`stopSequences` must be an array of strings"),
            (with("stopSequences", json!([1])), "`stopSequences` must be an array of strings"),
            (with("systemPrompt", json!(["x"])), "`systemPrompt` must be a string"),
            (with("tools", json!([])), "`tools` is not supported: `sampling.tools` was not declared"),
            (with("toolChoice", json!({})), "`toolChoice` is not supported: `sampling.tools` was not declared"),
            (message(json!(7)), "`messages[0]`: `content` must be a block or an array of blocks"),
            (
                message(json!({"role": "user", "content": []})),
                "`messages[0]`: `content` must be a block or an array of blocks",
            ),
            (message(json!({"role": "system", "content": "x"})), "`messages[0]`: `role` must be `user` or `assistant`"),
            (
                message(
                    json!({"role": "assistant", "content": {"type": "image", "data": "AAAA", "mimeType": "image/png"}}),
                ),
                "`messages[0]`: assistant content must be text",
            ),
            (block(json!({"text": "x"})), "`messages[0]`: a block must have a `type`"),
            (block(json!({"type": "text", "text": 3})), "`messages[0]`: a block of type `text` must have a `text`"),
            (block(json!({"type": "image"})), "`messages[0]`: a block of type `image` must have `data` and `mimeType`"),
            (block(json!({"type": "hologram"})), "`messages[0]`: a block must be of type `text`, `image` or `audio`"),
            (
                block(json!([{"type": "tool_use", "id": "a", "name": "t", "input": {}}])),
                "`messages[0]`: a block of type `tool_use` is not supported: `sampling.tools` was not declared",
            ),
            (
                block(json!({"type": "tool_result", "toolUseId": "a", "content": []})),
                "`messages[0]`: a block of type `tool_result` is not supported: `sampling.tools` was not declared",
            ),
        ];
        for (params, expected) in cases {
            assert_eq!(problem(params.clone()), expected, "{params}");
        }
    }

    #[test]
    fn deviations_from_the_specification_are_accepted() {
        let params = json!({"maxTokens": 5e12, "temperature": null, "stopSequences": null, "systemPrompt": "",
            "messages": [{"role": "user", "content": "Hi"}]});
        let user = Message::from("Hi");
        let expected = SamplingParams {
            conversation: Conversation::new().with(user),
            max_tokens: u32::MAX,
            temperature: None,
            stop_sequences: Vec::new(),
        };
        assert_eq!(SamplingParams::parse(&params), Ok(expected));
        assert_eq!(tokens(&json!(100.0)), Some(100));
    }
}
