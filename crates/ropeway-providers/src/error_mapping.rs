//! Maps provider errors to a [`ProviderErrorKind`]: error responses, and errors within a stream.
//!
//! Providers differ in their codes and messages, compatible servers even more. Codes and messages take precedence over the status.
//! References: [Anthropic](https://docs.anthropic.com/en/api/errors),
//! [OpenAI](https://platform.openai.com/docs/guides/error-codes),
//! [Gemini](https://ai.google.dev/gemini-api/docs/troubleshooting).

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};

use super::error::{ProviderError, ProviderErrorKind};
use super::media_support::unsupported_media;
use ropeway_core::json;
use ropeway_core::message::Dialect;
use ropeway_web::readable;

/// Maximum characters in a provider's message.
const MAX_MESSAGE: usize = 2000;

/// The conversation exceeds the context window.
const CONTEXT_LENGTH: [&str; 12] = [
    "context_length_exceeded",
    "exceed_context_size",
    "model_context_window_exceeded",
    "prompt is too long",
    "maximum context length",
    "exceeds the available context size",
    "reduce the length of the messages",
    "exceeds the maximum number of tokens allowed",
    "context window",
    "exceed context limit",
    "input is too long",
    "than the context length",
];

/// The account's quota or credit is used up.
const QUOTA: [&str; 8] = [
    "insufficient_quota",
    "billing_hard_limit_reached",
    "credit_balance_exhausted",
    "spend_limit_exceeded",
    "enforced_spend_limit_reached",
    "organization_usage_limit_exceeded",
    "credit balance is too low",
    "billing_error",
];

/// The key is missing, invalid, or lacks a permission.
const AUTH: [&str; 6] = [
    "invalid_api_key",
    "api_key_invalid",
    "authentication_error",
    "permission_error",
    "unauthenticated",
    "permission_denied",
];

/// The provider is overloaded.
const OVERLOADED: [&str; 4] = ["overloaded", "over capacity", "unavailable", "loading model"];

/// The rate limit was exceeded.
const RATE_LIMITED: [&str; 4] = ["rate_limit", "resource_exhausted", "too_many_requests", "ramp_limit"];

/// The model or the URL does not exist.
const NOT_FOUND: [&str; 3] = ["model_not_found", "not_found_error", "not_found"];

/// The request is too large.
const TOO_LARGE: [&str; 2] = ["request_too_large", "payload too large"];

/// An image or audio clip could not be decoded. Some servers report this as an internal error, but a retry does not help.
const BAD_MEDIA: [&str; 6] = [
    "failed to load image",
    "failed to decode image",
    "cannot identify image file",
    "could not process image",
    "unable to process input image",
    "invalid image data",
];

/// Maps a response with an error status.
pub(super) fn from_response(
    dialect: Dialect,
    status: u16,
    header: &dyn Fn(&str) -> Option<String>,
    body: &[u8],
    now: SystemTime,
) -> ProviderError {
    let details = ErrorDetails::of_body(body);
    let message = match details.message.trim() {
        "" => format!("the provider returned HTTP {status}"),
        message => format!("the provider returned HTTP {status}: {message}"),
    };
    let mut error = details.into_error(dialect, Some(status), message);
    error.status = Some(status);
    error.request_id = header("request-id").or_else(|| header("x-request-id")).or(error.request_id);
    error.retry_after = retry_after(header, now).or(error.retry_after);
    error.should_retry = match header("x-should-retry").as_deref().map(str::trim) {
        Some("true") => Some(true),
        Some("false") => Some(false),
        // A conflict ends with the other request.
        _ if matches!(status, 409 | 425) => Some(true),
        _ => None,
    };
    error
}

/// Maps an error within a stream: the error object, or the event that contains it.
pub(super) fn from_event(dialect: Dialect, frame: &Value) -> ProviderError {
    let details = ErrorDetails::of(frame);
    let message = match details.message.trim() {
        "" => frame.to_string(),
        message => message.to_owned(),
    };
    let status = details.status;
    let mut error = details.into_error(dialect, status, format!("the provider ended the reply: {}", shorten(&message)));
    error.status = status;
    error
}

/// Reads when to retry from the headers. OpenAI and Azure send `retry-after-ms`.
fn retry_after(header: &dyn Fn(&str) -> Option<String>, now: SystemTime) -> Option<Duration> {
    let milliseconds = || {
        let value: f64 = header("retry-after-ms")?.trim().parse().ok()?;
        Duration::try_from_secs_f64(value / 1000.0).ok()
    };
    milliseconds().or_else(|| ropeway_web::retry_after(&header("retry-after")?, now))
}

/// The details in an error's body.
#[derive(Debug, Default)]
struct ErrorDetails {
    message: String,
    /// The error's codes and types, the most specific first.
    codes: Vec<String>,
    /// The HTTP status in the body.
    status: Option<u16>,
    request_id: Option<String>,
    retry_after: Option<Duration>,
    /// The request field that the error is about.
    param: String,
}

impl ErrorDetails {
    fn of_body(body: &[u8]) -> Self {
        match json::from_slice::<Value>(body) {
            Ok(value) if value.is_object() || value.is_array() => {
                let details = Self::of(&value);
                // JSON with an unknown shape is still the best message.
                if details.message.is_empty() {
                    Self { message: shorten(&String::from_utf8_lossy(body)), ..details }
                } else {
                    details
                }
            }
            _ => Self { message: shorten(&readable(&String::from_utf8_lossy(body))), ..Self::default() },
        }
    }

    fn of(frame: &Value) -> Self {
        let frame = frame.as_array().and_then(|frames| frames.first()).unwrap_or(frame);
        let inner = |frame: &Value| frame.get("error").filter(|error| !error.is_null()).cloned();
        let error = inner(frame)
            .or_else(|| inner(frame.get("response")?))
            .or_else(|| inner(frame.get("choices")?.get(0)?))
            .unwrap_or_else(|| frame.clone());
        let mut details = match &error {
            Value::String(message) => Self { message: shorten(message), ..Self::default() },
            Value::Object(fields) => Self::of_fields(fields),
            _ => Self::default(),
        };
        let id = frame.get("request_id").and_then(Value::as_str);
        details.request_id = id.map(str::to_owned);
        details
    }

    fn of_fields(fields: &Map<String, Value>) -> Self {
        let mut details = Self::default();
        let text = |name: &str| fields.get(name).and_then(Value::as_str);
        let message = text("message").or_else(|| text("detail")).or_else(|| text("title"));
        details.message =
            message.map(shorten).or_else(|| fields.get("detail").map(Value::to_string)).unwrap_or_default();
        let detail = fields.get("details").and_then(|details| details.get("error_code")).and_then(Value::as_str);
        let codes = [detail, text("code"), text("status"), text("type")];
        details.codes = codes.into_iter().flatten().filter(|code| *code != "error").map(str::to_owned).collect();
        let number = fields.get("code").or_else(|| fields.get("status"));
        details.status =
            number.and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok()).filter(|code| *code >= 400);
        details.param = text("param").unwrap_or_default().to_owned();
        for detail in fields.get("details").and_then(Value::as_array).into_iter().flatten() {
            details.codes.extend(detail.get("reason").and_then(Value::as_str).map(str::to_owned));
            let delay = detail.get("retryDelay").and_then(Value::as_str).and_then(|delay| delay.strip_suffix('s'));
            let delay =
                delay.and_then(|delay| delay.parse().ok()).and_then(|delay| Duration::try_from_secs_f64(delay).ok());
            details.retry_after = delay.or(details.retry_after);
        }
        details
    }

    /// Returns `true` if a code or the message contains any of these patterns.
    fn mentions(&self, patterns: &[&str]) -> bool {
        self.has_code(patterns) || contains_any(&self.message, patterns)
    }

    /// Returns `true` if a code contains any of these patterns, which are too common to be searched in the message.
    fn has_code(&self, patterns: &[&str]) -> bool {
        self.codes.iter().any(|code| contains_any(code, patterns))
    }

    fn kind(&self, status: Option<u16>) -> ProviderErrorKind {
        let is_client = status.is_none_or(|status| status < 500);
        match status {
            _ if self.mentions(&CONTEXT_LENGTH) && status != Some(429) => ProviderErrorKind::ContextLength,
            _ if self.mentions(&QUOTA) => ProviderErrorKind::Quota,
            Some(401 | 403) => ProviderErrorKind::Auth,
            _ if is_client && self.has_code(&AUTH) => ProviderErrorKind::Auth,
            Some(402) => ProviderErrorKind::Quota,
            Some(413) => ProviderErrorKind::TooLarge,
            Some(429) => ProviderErrorKind::RateLimited,
            Some(503 | 529) => ProviderErrorKind::Overloaded,
            _ if unsupported_media(&self.message).is_some() => ProviderErrorKind::Media,
            _ if self.mentions(&BAD_MEDIA) => ProviderErrorKind::InvalidRequest,
            _ if self.has_code(&TOO_LARGE) => ProviderErrorKind::TooLarge,
            _ if self.has_code(&RATE_LIMITED) => ProviderErrorKind::RateLimited,
            _ if self.has_code(&OVERLOADED) || (!is_client && self.mentions(&OVERLOADED)) => {
                ProviderErrorKind::Overloaded
            }
            Some(404) => ProviderErrorKind::NotFound,
            _ if is_client && self.has_code(&NOT_FOUND) => ProviderErrorKind::NotFound,
            Some(408 | 504) => ProviderErrorKind::Timeout,
            Some(400..500) => ProviderErrorKind::InvalidRequest,
            _ if self.has_code(&["invalid", "bad_request", "failed_precondition"]) => ProviderErrorKind::InvalidRequest,
            _ => ProviderErrorKind::Server,
        }
    }

    fn into_error(self, dialect: Dialect, status: Option<u16>, message: String) -> ProviderError {
        let kind = self.kind(status);
        let mut error = ProviderError::new(kind, dialect, message);
        if kind == ProviderErrorKind::InvalidRequest {
            error.tool = tool_index(dialect, &self.param).or_else(|| tool_index(dialect, &self.message));
        }
        error.code = self.codes.into_iter().next();
        error.request_id = self.request_id;
        error.retry_after = self.retry_after;
        error
    }
}

/// Returns `true` if a text contains any of these lowercase patterns, ignoring case.
fn contains_any(text: &str, patterns: &[&str]) -> bool {
    let text = text.to_ascii_lowercase();
    patterns.iter().any(|pattern| text.contains(pattern))
}

/// Finds a tool's index in a message: `tools.3.custom.name`, `tools[3].function`, `function_declarations[3]`.
fn tool_index(dialect: Dialect, message: &str) -> Option<u32> {
    // Gemini has all declarations in one tool, whose own index means nothing.
    let lists: &[&str] = match dialect {
        Dialect::Gemini => &["function_declarations", "functionDeclarations"],
        _ => &["function_declarations", "functionDeclarations", "tools"],
    };
    lists.iter().find_map(|list| {
        message.match_indices(list).find_map(|(at, _)| {
            let number = message[at + list.len()..].strip_prefix(['.', '['])?;
            let digits = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
            number[..digits].parse().ok()
        })
    })
}

/// Joins a message into one line and limits its length.
fn shorten(message: &str) -> String {
    let line: String = message.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rejection(status: u16, headers: &[(&str, &str)], body: &str) -> ProviderError {
        let header =
            |name: &str| headers.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned());
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").expect("a date");
        from_response(Dialect::Chat, status, &header, body.as_bytes(), now)
    }

    fn kind(status: u16, body: Value) -> ProviderErrorKind {
        rejection(status, &[], &body.to_string()).kind
    }

    #[test]
    fn the_status_determines_the_kind_without_a_message() {
        use ProviderErrorKind::*;
        for (status, expected, retryable) in [
            (400, InvalidRequest, false),
            (401, Auth, false),
            (403, Auth, false),
            (404, NotFound, false),
            (408, Timeout, true),
            (409, InvalidRequest, true),
            (413, TooLarge, false),
            (422, InvalidRequest, false),
            (429, RateLimited, true),
            (500, Server, true),
            (502, Server, true),
            (503, Overloaded, true),
            (504, Timeout, true),
            (529, Overloaded, true),
        ] {
            for body in
                ["", "<html><body><h1>Sorry</h1></body></html>", "{}", "{\"error\":null}", "nonsense", "[]", "3"]
            {
                let error = rejection(status, &[], body);
                assert_eq!((error.kind, error.is_retryable()), (expected, retryable), "{status} {body}");
                assert_eq!(error.status, Some(status));
                assert!(error.to_string().starts_with(&format!("the provider returned HTTP {status}")), "{error}");
            }
        }
    }

    #[test]
    fn codes_and_messages_take_precedence_over_the_status() {
        use ProviderErrorKind::*;
        let anthropic =
            |kind: &str, message: &str| json!({"type": "error", "error": {"type": kind, "message": message}});
        let openai = |code: &str, message: &str| json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": code}});
        let gemini = |status: &str, message: &str, reason: &str| json!({"error": {"code": 400, "message": message, "status": status, "details": [{"reason": reason}]}});
        for (expected, status, body) in [
            (
                ContextLength,
                400,
                anthropic("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
            ),
            (ContextLength, 400, openai("context_length_exceeded", "too long")),
            (
                ContextLength,
                400,
                anthropic(
                    "invalid_request_error",
                    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
                ),
            ),
            (ContextLength, 400, json!({"message": "Input is too long for requested model."})),
            (ContextLength, 400, json!({"error": "the prompt is greater than the context length (4096)"})),
            (
                ContextLength,
                400,
                gemini(
                    "INVALID_ARGUMENT",
                    "The input token count (9) exceeds the maximum number of tokens allowed (8)",
                    "",
                ),
            ),
            (
                ContextLength,
                400,
                json!({"error": {"code": 400, "message": "request (12 tokens) exceeds the available context size (8 tokens), try increasing it", "type": "exceed_context_size_error"}}),
            ),
            (ContextLength, 500, json!({"error": {"message": "This model's maximum context length is 8 tokens"}})),
            (Quota, 429, openai("insufficient_quota", "You exceeded your current quota")),
            (Quota, 400, anthropic("invalid_request_error", "Your credit balance is too low to access the API")),
            (Auth, 400, gemini("INVALID_ARGUMENT", "API key not valid", "API_KEY_INVALID")),
            (RateLimited, 429, gemini("RESOURCE_EXHAUSTED", "quota", "")),
            (Overloaded, 500, json!({"error": {"type": "overloaded_error", "message": "Overloaded"}})),
            (NotFound, 400, openai("model_not_found", "no such model")),
            (InvalidRequest, 400, json!({"detail": [{"loc": ["body"], "msg": "field required"}]})),
            (
                Media,
                500,
                json!({"error": {"code": 500, "message": "image input is not supported", "type": "server_error"}}),
            ),
            (Media, 404, openai("404", "No endpoints found that support image input")),
            (Media, 422, json!({"error": "this model does not support images"})),
            (
                Media,
                415,
                json!({"object": "error", "message": "m is not a multimodal model", "type": "BadRequestError", "code": 400}),
            ),
            (Media, 400, gemini("INVALID_ARGUMENT", "Audio input modality is not enabled for models/m", "")),
            (RateLimited, 429, openai("rate_limit_exceeded", "image input is not supported")),
            (NotFound, 404, openai("404", "No endpoints found that support tool use")),
            (InvalidRequest, 400, anthropic("invalid_request_error", "Could not process image")),
            (InvalidRequest, 500, json!({"error": {"code": 500, "message": "Failed to load image or audio file"}})),
            (InvalidRequest, 400, json!({"error": "model is required"})),
            (InvalidRequest, 400, json!({"object": "error", "message": "bad", "type": "BadRequestError", "code": 400})),
            (Server, 500, json!([{"error": {"code": 500, "message": "x", "status": "INTERNAL"}}])),
        ] {
            assert_eq!(kind(status, body.clone()), expected, "{body}");
        }
    }

    #[test]
    fn a_rejection_has_a_message_a_code_and_a_request_id() {
        let body = json!({"type": "error", "error": {"type": "rate_limit_error", "message": "slow\n down", "details": {"error_code": "ramp_limit_exceeded"}}, "request_id": "req_1"});
        let error = rejection(429, &[("retry-after", "3")], &body.to_string());
        assert_eq!(error.to_string(), "the provider returned HTTP 429: slow down");
        assert_eq!(error.code.as_deref(), Some("ramp_limit_exceeded"));
        assert_eq!(error.request_id.as_deref(), Some("req_1"));
        assert_eq!(error.retry_after, Some(Duration::from_secs(3)));
        let page = rejection(502, &[("x-request-id", "abc")], "<html><title>Bad</title> <body>Gateway</body></html>");
        assert_eq!(page.to_string(), "the provider returned HTTP 502: Bad Gateway");
        assert_eq!(page.request_id.as_deref(), Some("abc"));
        let long = rejection(500, &[], &"é".repeat(5000));
        assert_eq!(long.to_string().chars().count(), "the provider returned HTTP 500: ".len() + MAX_MESSAGE + 1);
    }

    #[test]
    fn retry_delays_are_read_in_every_form() {
        let delay = |headers: &[(&str, &str)]| rejection(429, headers, "").retry_after;
        assert_eq!(delay(&[("retry-after", "7")]), Some(Duration::from_secs(7)));
        assert_eq!(delay(&[("retry-after", "1.5")]), Some(Duration::from_millis(1500)));
        assert_eq!(delay(&[("retry-after", "Sun, 06 Nov 1994 08:49:40 GMT")]), Some(Duration::from_secs(3)));
        assert_eq!(delay(&[("retry-after", "9"), ("retry-after-ms", "250")]), Some(Duration::from_millis(250)));
        assert_eq!(delay(&[("retry-after", "soon")]), None);
        assert_eq!(delay(&[("retry-after", "-1")]), None);
        let body = json!({"error": {"code": 429, "details": [{"@type": "RetryInfo", "retryDelay": "36.5s"}]}});
        assert_eq!(rejection(429, &[], &body.to_string()).retry_after, Some(Duration::from_millis(36500)));
    }

    #[test]
    fn a_provider_may_say_whether_to_retry() {
        assert!(!rejection(500, &[("x-should-retry", "false")], "").is_retryable());
        assert!(rejection(400, &[("x-should-retry", "true")], "").is_retryable());
    }

    #[test]
    fn a_rejected_tool_is_found_by_its_index() {
        let index = |message: &str| rejection(400, &[], &json!({"error": {"message": message}}).to_string()).tool;
        assert_eq!(index("tools.12.custom.input_schema: JSON schema is invalid"), Some(12));
        assert_eq!(index("GenerateContentRequest.tools[0].function_declarations[3].parameters: bad"), Some(3));
        assert_eq!(index("Invalid schema for function"), None);
        assert_eq!(index("no tools. 3 cheers; tools[x]"), None);
        let by_field =
            json!({"error": {"message": "Invalid 'tools[1].function.name'", "param": "tools[1].function.name"}});
        assert_eq!(rejection(400, &[], &by_field.to_string()).tool, Some(1));
        assert_eq!(rejection(500, &[], &by_field.to_string()).tool, None);
    }

    #[test]
    fn the_index_of_geminis_tool_list_is_not_that_of_a_tool() {
        let index = |message: &str| {
            let body = json!({"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}).to_string();
            from_response(Dialect::Gemini, 400, &|_| None, body.as_bytes(), SystemTime::UNIX_EPOCH).tool
        };
        assert_eq!(index("Invalid JSON payload received. Unknown name \"x\" at 'tools[0]': Cannot find field."), None);
        assert_eq!(index("* GenerateContentRequest.tools[0].function_declarations[2].name: Invalid"), Some(2));
        assert_eq!(index("at 'tools[0].functionDeclarations[1].parameters'"), Some(1));
    }

    #[test]
    fn errors_within_a_stream_have_the_same_kinds() {
        use ProviderErrorKind::*;
        for (expected, frame) in [
            (Overloaded, json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})),
            (RateLimited, json!({"type": "error", "code": "rate_limit_exceeded", "message": "slow", "param": null})),
            (
                Server,
                json!({"type": "response.failed", "response": {"error": {"code": "server_error", "message": "x"}}}),
            ),
            (Server, json!({"error": {"message": "Provider disconnected", "type": "server_error", "code": 502}})),
            (Overloaded, json!({"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}})),
            (InvalidRequest, json!({"type": "error", "error": {"type": "invalid_request_error", "message": "x"}})),
            (ContextLength, json!({"error": {"code": "context_length_exceeded", "message": "x"}})),
            (Server, json!({"choices": [{"error": {"code": 502, "message": "x"}, "finish_reason": "error"}]})),
            (Server, json!("odd")),
        ] {
            assert_eq!(from_event(Dialect::Chat, &frame).kind, expected, "{frame}");
        }
        let error = from_event(
            Dialect::Anthropic,
            &json!({"type": "error", "error": {"type": "api_error", "message": "boom"}, "request_id": "r"}),
        );
        assert_eq!(error.to_string(), "the provider ended the reply: boom");
        assert_eq!((error.code.as_deref(), error.request_id.as_deref()), (Some("api_error"), Some("r")));
    }

    proptest::proptest! {
        #[test]
        fn no_body_makes_it_panic(status in 300u16..600, body in ".{0,80}") {
            let error = rejection(status, &[], &body);
            proptest::prop_assert_eq!(error.status, Some(status));
        }
    }
}
