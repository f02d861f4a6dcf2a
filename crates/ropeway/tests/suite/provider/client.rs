//! Requests over a socket: streaming, timeouts, retries, rejections, proxies and keys.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use ropeway::lowering::Toolset;
use ropeway::message::Dialect;
use ropeway::provider::{
    Provider, ProviderError, ProviderErrorKind, ProviderSettings, ProviderTimeouts, Proxy, Quirks, Recording, Reply,
    ReplyEvent, RetryPolicy, StopReason, ToolChoice,
};
use ropeway::secret::Secret;
use ropeway::testing::{ModelAnswer, ModelServer};
use ropeway::tool::ToolDefinition;
use ropeway_providers::Exchange;
use serde_json::{Value, json};

use super::{KEY, end, question, request, rest, settings, shown, soon, word};

async fn started(answers: impl IntoIterator<Item = ModelAnswer>) -> ModelServer {
    ModelServer::start(answers).await.expect("a server")
}

fn provider(settings: ProviderSettings) -> Provider {
    Provider::new(settings).expect("a provider")
}

fn hello() -> ModelAnswer {
    ModelAnswer::events(word("Hello.") + &end())
}

async fn complete(provider: &Provider) -> Result<Reply, ProviderError> {
    provider.complete(&request(&question())).await
}

async fn error_of(settings: ProviderSettings) -> ProviderError {
    complete(&provider(settings)).await.expect_err("no answer")
}

fn once() -> RetryPolicy {
    RetryPolicy { max_retries: 0, ..RetryPolicy::default() }
}

fn refused(status: u16) -> Exchange {
    Exchange::new(status, "").with_header("content-type", "text/plain")
}

/// Creates a provider that replays these exchanges.
fn scripted(exchanges: impl IntoIterator<Item = Exchange>) -> Provider {
    Provider::replaying(ProviderSettings::new(Dialect::Chat), Recording::new(exchanges))
}

#[tokio::test]
async fn a_reply_is_emitted_while_it_arrives() {
    let server = started([ModelAnswer::events(word("Hel")).wait().then(word("lo.") + &end())]).await;
    let mut stream = provider(settings(&server)).stream(&request(&question()));
    let first = stream.next().await.expect("an event").expect("no error");
    assert_eq!(first, ReplyEvent::Text("Hel".into()));
    server.go_on();
    let mut events: Vec<ReplyEvent> =
        rest(&mut stream).await.into_iter().map(|event| event.expect("no error")).collect();
    let Some(ReplyEvent::Finished(reply)) = events.pop() else { panic!("finished, not {events:?}") };
    assert_eq!(events, [ReplyEvent::Text("lo.".into())]);
    assert_eq!(
        (reply.message.to_text(), reply.stop, reply.id.as_deref()),
        ("Hello.".into(), StopReason::EndTurn, Some("a1"))
    );
    assert!(stream.next().await.is_none());
    let sent = &server.requests()[0];
    assert_eq!((sent.method.as_str(), sent.path.as_str()), ("POST", "/v1/chat/completions"));
    assert_eq!(sent.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert_eq!(sent.header("user-agent"), Some(concat!("ropeway/", env!("CARGO_PKG_VERSION"))));
}

#[tokio::test]
async fn a_cancelled_next_loses_no_event() {
    let server = started([ModelAnswer::events(word("Hel")).wait().then(word("lo.") + &end())]).await;
    let mut stream = provider(settings(&server)).stream(&request(&question()));
    let mut text = String::new();
    let mut told = false;
    // Each future is polled once, and dropped if pending.
    while let Some(event) = {
        let mut polled = None;
        while polled.is_none() {
            {
                let mut next = Box::pin(stream.next());
                poll_fn(|cx| {
                    if let Poll::Ready(event) = next.as_mut().poll(cx) {
                        polled = Some(event);
                    }
                    Poll::Ready(())
                })
                .await;
            }
            tokio::task::yield_now().await;
        }
        polled.flatten()
    } {
        if let ReplyEvent::Text(piece) = event.expect("no error") {
            text.push_str(&piece);
        }
        if !std::mem::replace(&mut told, true) {
            server.go_on();
        }
    }
    assert_eq!(text, "Hello.");
}

#[tokio::test]
async fn dropping_the_stream_closes_the_connection() {
    let server = started([ModelAnswer::events(word("Hel")).stall()]).await;
    let mut stream = provider(settings(&server)).stream(&request(&question()));
    stream.next().await.expect("an event").expect("no error");
    drop(stream);
    soon(server.left()).await;
}

#[tokio::test]
async fn dropping_the_stream_early_cancels_the_request() {
    let server = started([ModelAnswer::silence()]).await;
    let provider = provider(settings(&server));
    let conversation = question();
    tokio::select! {
        answer = provider.complete(&request(&conversation)) => panic!("no answer, not {answer:?}"),
        () = soon(server.asked(1)) => {}
    }
    soon(server.left()).await;
}

#[tokio::test]
async fn a_request_is_retried_before_the_first_content() {
    let busy = ModelAnswer::json(503, &json!({"error": {"message": "busy"}}));
    let server = started([busy, ModelAnswer::events("").cut_off(), hello()]).await;
    let reply = complete(&provider(settings(&server))).await.expect("a reply");
    assert_eq!(reply.message.to_text(), "Hello.");
    let bodies = server.bodies();
    assert_eq!(bodies.len(), 3);
    assert!(bodies.iter().all(|body| body == &bodies[0]));
}

#[tokio::test]
async fn a_request_is_not_retried_after_the_first_content() {
    let server = started([ModelAnswer::events(word("Hel")).cut_off(), hello()]).await;
    let mut stream = provider(settings(&server)).stream(&request(&question()));
    let events = rest(&mut stream).await;
    let [Ok(ReplyEvent::Text(text)), Err(error)] = events.as_slice() else { panic!("not {events:?}") };
    assert_eq!(text, "Hel");
    assert_eq!(
        (error.kind, error.to_string()),
        (ProviderErrorKind::Truncated, "connection lost during the reply".into())
    );
    assert!(std::error::Error::source(error).is_some());
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn usage_alone_does_not_prevent_a_retry() {
    let began = json!({"type": "message_start", "message": {"id": "m", "model": "c", "usage": {"input_tokens": 9}}});
    let failed = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let broken = format!("event: message_start\ndata: {began}\n\nevent: error\ndata: {failed}\n\n");
    let exchanges = [Exchange::events(&broken), Exchange::events(&broken), Exchange::events(broken)];
    let provider = Provider::replaying(ProviderSettings::new(Dialect::Anthropic), Recording::new(exchanges));
    let events = rest(&mut provider.stream(&request(&question()))).await;
    let [Err(error)] = events.as_slice() else { panic!("one error, not {events:?}") };
    assert_eq!(error.kind, ProviderErrorKind::Overloaded);
    assert!(error.to_string().ends_with("(after 3 attempts)"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_requested_backoff_is_used() {
    for (name, value, pause) in [
        ("retry-after", "7", Duration::from_secs(7)),
        ("retry-after-ms", "1500", Duration::from_millis(1500)),
        ("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT", Duration::ZERO),
    ] {
        let provider = scripted([refused(429).with_header(name, value), Exchange::events(word("Hello.") + &end())]);
        let start = tokio::time::Instant::now();
        complete(&provider).await.expect("a reply");
        assert_eq!(start.elapsed(), pause, "{name}: {value}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_too_long_backoff_is_returned_to_the_caller() {
    let start = tokio::time::Instant::now();
    let error = complete(&scripted([refused(429).with_header("retry-after", "61")])).await.expect_err("no answer");
    assert_eq!((error.kind, error.retry_after), (ProviderErrorKind::RateLimited, Some(Duration::from_secs(61))));
    let late = refused(503).with_header("Retry-After", "Sun, 07 Nov 2094 08:49:37 GMT");
    let error = complete(&scripted([late])).await.expect_err("no answer");
    assert!(error.retry_after.is_some_and(|wish| wish > Duration::from_secs(86_400)));
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn backoff_doubles_and_the_error_counts_attempts() {
    let start = tokio::time::Instant::now();
    let error = complete(&scripted([refused(500), refused(502), refused(500)])).await.expect_err("no answer");
    assert_eq!(error.to_string(), "the provider returned HTTP 500 (after 3 attempts)");
    let pause = start.elapsed();
    assert!(pause > Duration::from_millis(1124) && pause <= Duration::from_millis(1502), "{pause:?}");
}

#[tokio::test(start_paused = true)]
async fn final_errors_are_not_retried() {
    for status in [400, 401, 403, 404, 413] {
        let error = complete(&scripted([refused(status)])).await.expect_err("no answer");
        assert_eq!(error.to_string(), format!("the provider returned HTTP {status}"));
    }
}

#[tokio::test]
async fn a_stalled_stream_times_out() {
    let server = started([ModelAnswer::events(word("Hel")).stall()]).await;
    let mut timeouts = ProviderTimeouts::default();
    timeouts.idle = Duration::from_millis(30);
    let mut stream = provider(settings(&server).with_timeouts(timeouts)).stream(&request(&question()));
    let events = rest(&mut stream).await;
    let [Ok(ReplyEvent::Text(_)), Err(error)] = events.as_slice() else { panic!("not {events:?}") };
    assert_eq!(
        (error.kind, error.to_string()),
        (ProviderErrorKind::Timeout, "the reply stalled: no data for 30 ms".into())
    );
    soon(server.left()).await;
}

#[tokio::test]
async fn a_silent_provider_times_out() {
    for silent in [ModelAnswer::silence(), ModelAnswer::events("").stall(), ModelAnswer::events("").then("\n").wait()] {
        let server = started([silent.clone(), silent]).await;
        let mut timeouts = ProviderTimeouts::default();
        timeouts.first_byte = Duration::from_millis(150);
        timeouts.idle = Duration::from_millis(150);
        let mut retries = RetryPolicy::default();
        (retries.max_retries, retries.initial_backoff) = (1, Duration::ZERO);
        let error = error_of(settings(&server).with_timeouts(timeouts).with_retries(retries)).await;
        assert_eq!(error.kind, ProviderErrorKind::Timeout);
        assert!(error.to_string().contains("150 ms") && error.to_string().ends_with("(after 2 attempts)"), "{error}");
        assert_eq!(server.requests().len(), 2);
    }
}

#[tokio::test]
async fn blank_lines_are_not_the_first_byte() {
    let server = started([ModelAnswer::events("\n").then("\r\n ").wait()]).await;
    let mut timeouts = ProviderTimeouts::default();
    (timeouts.first_byte, timeouts.idle) = (Duration::from_millis(150), Duration::from_secs(2));
    let error = error_of(settings(&server).with_timeouts(timeouts).with_retries(once())).await;
    let message = "no response from the provider within 150 ms".to_owned();
    assert_eq!((error.kind, error.to_string()), (ProviderErrorKind::Timeout, message));
}

/// A reply in each dialect with a stop reason, but without its end.
fn stopped() -> [(Dialect, String); 3] {
    let frames = |frames: &[Value]| frames.iter().map(|frame| format!("data: {frame}\n\n")).collect::<String>();
    let candidate = json!({"content": {"parts": [{"text": "Hello."}], "role": "model"}, "finishReason": "STOP"});
    let anthropic = [
        json!({"type": "message_start", "message": {"id": "m", "model": "c"}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hello."}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
    ];
    let chat = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    [
        (Dialect::Anthropic, frames(&anthropic)),
        (Dialect::Gemini, frames(&[json!({"candidates": [candidate]})])),
        (Dialect::Chat, word("Hello.") + &frames(&[chat])),
    ]
}

#[tokio::test]
async fn a_stopped_reply_survives_a_lost_connection() {
    for (dialect, text) in stopped() {
        let server =
            started([ModelAnswer::events(text.clone()).stall(), ModelAnswer::events(text.clone()).cut_off()]).await;
        let mut timeouts = ProviderTimeouts::default();
        timeouts.idle = Duration::from_millis(100);
        let settings =
            ProviderSettings::new(dialect).with_base_url(server.url()).with_timeouts(timeouts).with_retries(once());
        let provider = provider(settings);
        for _ in 0..2 {
            let reply = complete(&provider).await.expect("a reply");
            assert_eq!((reply.message.to_text(), reply.stop), ("Hello.".into(), StopReason::EndTurn), "{dialect}");
        }
    }
}

#[tokio::test]
async fn a_stopped_reply_waits_only_briefly_for_more() {
    for (dialect, text) in stopped() {
        let server = started([ModelAnswer::events(text).stall()]).await;
        let provider = provider(ProviderSettings::new(dialect).with_base_url(server.url()));
        let mut stream = provider.stream(&request(&question()));
        stream.next().await.expect("an event").expect("no error");
        tokio::time::pause();
        let start = tokio::time::Instant::now();
        let reply = stream.finish().await.expect("a reply");
        assert_eq!(reply.message.to_text(), "Hello.");
        assert!(start.elapsed() < Duration::from_secs(6), "{dialect}: {:?}", start.elapsed());
        tokio::time::resume();
    }
}

#[tokio::test]
async fn a_response_that_is_not_a_stream_is_described() {
    use ProviderErrorKind::{ContextLength, Overloaded, RateLimited, Server, Truncated, Unreadable};
    let page = "<!DOCTYPE html><html><head><title>502</title></head><body><h1>Bad Gateway</h1></body></html>";
    let whole = json!({"id": "x", "choices": [{"message": {"content": "Hello."}}]});
    for (answer, kind, message) in [
        (ModelAnswer::events(""), Truncated, "the reply is empty"),
        (ModelAnswer::new(200, "text/plain", " \n "), Truncated, "the reply is empty"),
        (ModelAnswer::events(word("Hel")), Truncated, "the reply was cut off"),
        (ModelAnswer::events(": hi\n\n"), Truncated, "the reply was cut off"),
        (ModelAnswer::events(word("Hel") + "data: {\"choi"), Truncated, "the reply was cut off"),
        (ModelAnswer::new(502, "text/html", page), Server, "the provider returned HTTP 502: 502 Bad Gateway"),
        (ModelAnswer::new(529, "text/plain", ""), Overloaded, "the provider returned HTTP 529"),
        (ModelAnswer::new(200, "text/html", page), Unreadable, "expected an event stream: `502 Bad Gateway`"),
        (ModelAnswer::new(200, "text/plain", "Hi"), Unreadable, "expected an event stream: `Hi`"),
        (
            ModelAnswer::json(200, &whole),
            Unreadable,
            "expected an event stream, found JSON: `{\"id\":\"x\",\"choices\":[{\"message\":{\"content\":\"Hello.\"}}]}`",
        ),
        (
            ModelAnswer::json(200, &json!({"error": {"message": "too fast", "type": "rate_limit_error"}})),
            RateLimited,
            "the provider ended the reply: too fast",
        ),
        (
            ModelAnswer::json(200, &json!([{"error": {"message": "prompt is too long"}}])),
            ContextLength,
            "the provider ended the reply: prompt is too long",
        ),
        (
            ModelAnswer::events(word("Hel") + "{\n  \"error\": {\"code\": 503, \"message\": \"gone\"}\n}\n"),
            Overloaded,
            "the provider ended the reply: gone",
        ),
    ] {
        let server = started([answer]).await;
        let error = error_of(settings(&server).with_retries(once())).await;
        assert_eq!((error.kind, error.to_string().as_str()), (kind, message));
    }
}

#[tokio::test]
async fn events_are_read_without_content_type_and_last_blank_line() {
    let text = word("Hello.") + &end();
    let pieces = |answer: ModelAnswer| text.trim_end().bytes().fold(answer, |answer, byte| answer.then([byte]));
    let server = started([pieces(ModelAnswer::new(200, "text/plain", "\r\n"))]).await;
    let reply = complete(&provider(settings(&server))).await.expect("a reply");
    assert_eq!((reply.message.to_text(), reply.warnings), ("Hello.".into(), vec![]));
}

#[tokio::test]
async fn errors_within_the_stream_have_the_request_id() {
    let failed = json!({"error": {"message": "boom", "code": 500}});
    let answer = ModelAnswer::events(word("Hel") + &format!("data: {failed}\n\n")).with_header("X-Request-Id", "r-7");
    let server = started([answer]).await;
    let error = error_of(settings(&server)).await;
    assert_eq!((error.kind, error.request_id.as_deref()), (ProviderErrorKind::Server, Some("r-7")));
}

#[tokio::test]
async fn a_connection_error_hides_the_address() {
    let server = started([]).await;
    let settings = settings(&server).with_retries(once());
    let url = server.url();
    drop(server);
    // The listener closes when its task is aborted.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    let error = error_of(settings).await;
    assert_eq!(
        (error.kind, error.to_string()),
        (ProviderErrorKind::Connection, "could not connect to the provider".into())
    );
    let cause = std::error::Error::source(&error).expect("a cause").to_string();
    assert!(cause.contains("refused") && !cause.contains(&url), "{cause}");
}

#[tokio::test]
async fn invalid_settings_are_rejected_at_once() {
    let told = |settings: ProviderSettings| {
        let error = Provider::new(settings).expect_err("unusable");
        assert_eq!(error.kind, ProviderErrorKind::Unusable);
        error.to_string()
    };
    let chat = || ProviderSettings::new(Dialect::Chat).with_key(KEY);
    assert_eq!(told(chat().with_base_url("ftp://a")), "invalid URL `ftp://a`");
    assert_eq!(told(chat().with_base_url(format!("http://a:b?key={KEY}"))), "invalid URL `http://a:b?key=***`");
    assert_eq!(told(chat().with_header("a b", "c")), "invalid header `a b`");
    assert_eq!(told(chat().with_proxy(Proxy::Url(Secret::new("http://")))), "invalid proxy URL");
    let error = error_of(ProviderSettings::new(Dialect::Chat).with_key(format!("{KEY}\n"))).await;
    assert_eq!((error.kind, error.to_string()), (ProviderErrorKind::Unusable, "invalid header `authorization`".into()));
}

#[tokio::test]
async fn the_configured_proxy_is_used() {
    let proxy = started([hello()]).await;
    let address = proxy.url().replace("http://", "http://ada:open-sesame@");
    let settings = ProviderSettings::new(Dialect::Chat)
        .with_base_url("http://model.invalid/v1")
        .with_proxy(Proxy::Url(Secret::new(address)));
    complete(&provider(settings)).await.expect("a reply");
    let asked = &proxy.requests()[0];
    assert_eq!(asked.path, "http://model.invalid/v1/chat/completions");
    assert_eq!(asked.header("proxy-authorization"), Some("Basic YWRhOm9wZW4tc2VzYW1l"));
}

#[tokio::test]
async fn credentials_in_the_base_url_are_sent_without_a_key() {
    let server = started([hello(), hello(), hello()]).await;
    let base_url = format!("{}/v1", server.url()).replace("http://", "http://ada:open-sesame@");
    let plain = ProviderSettings::new(Dialect::Chat).with_base_url(base_url);
    let keyed = plain.clone().with_key(KEY);
    let own = keyed.clone().with_header("Authorization", "Own way");
    for settings in [plain, keyed, own] {
        complete(&provider(settings)).await.expect("a reply");
    }
    let sent: Vec<Vec<String>> = server
        .requests()
        .iter()
        .map(|request| {
            let fields = request.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("authorization"));
            fields.map(|(_, value)| value.clone()).collect()
        })
        .collect();
    let bearer = format!("Bearer {KEY}");
    assert_eq!(sent, [["Basic YWRhOm9wZW4tc2VzYW1l"], [bearer.as_str()], ["Own way"]]);
}

#[tokio::test]
async fn redirects_to_other_hosts_are_not_followed() {
    let moved = |to: &str| ModelAnswer::new(307, "text/plain", "").with_header("Location", to);
    let other = started([hello()]).await;
    let server = started([moved("/v2/chat"), hello(), moved(&format!("{}/v1", other.url()))]).await;
    let provider = provider(settings(&server));
    complete(&provider).await.expect("a reply");
    let paths: Vec<String> = server.requests().into_iter().map(|request| request.path).collect();
    assert_eq!(paths, ["/v1/chat/completions", "/v2/chat"]);
    let error = complete(&provider).await.expect_err("no answer");
    let message = format!("the provider redirected to `{}/v1`; redirects are not followed", other.url());
    assert_eq!((error.kind, error.status, error.to_string()), (ProviderErrorKind::NotFound, Some(307), message));
    assert_eq!(other.requests(), []);
}

#[tokio::test]
async fn no_error_shows_the_key() {
    let echo = format!("no such key: {KEY}, Bearer {KEY}, and {}", KEY.replace('-', "%2D"));
    let long = format!("{}{KEY}", "x".repeat(1990));
    let failed = json!({"error": {"message": echo, "type": KEY, "code": KEY}});
    for answer in [
        ModelAnswer::json(401, &failed),
        ModelAnswer::json(400, &json!({"error": {"message": long, "code": KEY}})).with_header("x-request-id", KEY),
        ModelAnswer::new(502, "text/html", format!("<html>{echo}</html>")),
        ModelAnswer::new(200, "text/html", format!("<html>{echo}</html>")),
        ModelAnswer::json(200, &failed),
        ModelAnswer::json(200, &json!([KEY])),
        ModelAnswer::events(format!("data: {failed}\n\n")),
        ModelAnswer::events(format!("data: {KEY}\n\n")),
        ModelAnswer::new(301, "text/plain", "").with_header("Location", &format!("http://b.invalid/?key={KEY}")),
        ModelAnswer::events("").cut_off(),
    ] {
        for dialect in Dialect::ALL {
            let server = started([answer.clone(), answer.clone(), answer.clone()]).await;
            let plain = ProviderSettings::new(dialect).with_retries(once());
            let in_url = plain.clone().with_base_url(format!("{}/v1?api_key={KEY}", server.url()));
            let plain = plain.with_base_url(server.url());
            let in_header = plain.clone().with_header("X-Team", format!("Team {KEY}"));
            for settings in [plain.with_key(KEY), in_url, in_header] {
                let provider = provider(settings);
                let error = complete(&provider).await.expect_err("no answer");
                for text in [shown(&error), format!("{provider:?}{:?}", provider.stream(&request(&question())))] {
                    for key in ["0123456", "sk-test", "sk%2Dtest"] {
                        assert!(!text.contains(key), "{dialect}: {text}");
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn every_body_of_a_rejection_has_the_same_kind() {
    use ProviderErrorKind::*;
    let page = "<!DOCTYPE html><html><head><title>Sorry</title></head><body><h1>No</h1></body></html>";
    for (status, kind, code, message) in [
        (400, InvalidRequest, "invalid_request_error", "messages: at least one message is required"),
        (401, Auth, "authentication_error", "invalid x-api-key"),
        (403, Auth, "permission_error", "Your API key does not have permission to use the specified resource."),
        (404, NotFound, "not_found_error", "model: claude-9"),
        (413, TooLarge, "request_too_large", "Request exceeds the maximum size"),
        (429, RateLimited, "rate_limit_error", "This request would exceed your organization's rate limit"),
        (500, Server, "api_error", "Internal server error"),
        (503, Overloaded, "overloaded_error", "Overloaded"),
        (529, Overloaded, "overloaded_error", "Overloaded"),
    ] {
        let told = json!({"type": "error", "error": {"type": code, "message": message}, "request_id": "req_1"});
        let refused = format!("the provider returned HTTP {status}");
        for (answer, text, code, id) in [
            (ModelAnswer::json(status, &told), format!("{refused}: {message}"), Some(code), Some("req_1")),
            (ModelAnswer::new(status, "text/html", page), format!("{refused}: Sorry No"), None, None),
            (ModelAnswer::new(status, "text/plain", ""), refused.clone(), None, None),
        ] {
            let server = started([answer]).await;
            let settings = ProviderSettings::new(Dialect::Anthropic).with_base_url(server.url()).with_key(KEY);
            let error = error_of(settings.with_retries(once())).await;
            assert_eq!(
                (error.kind, error.status, error.code.as_deref(), error.request_id.as_deref(), error.to_string()),
                (kind, Some(status), code, id, text)
            );
        }
    }
}

fn weather(name: &str) -> ToolDefinition {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    ToolDefinition::new(name).with_description("Tells the weather.").with_input_schema(schema)
}

fn bad_tool(place: usize) -> ModelAnswer {
    let message = format!("Invalid schema for function in tools[{place}]: no (key {KEY})");
    let param = format!("tools[{place}].function.parameters");
    let error = json!({"message": message, "type": "invalid_request_error", "param": param, "code": "invalid"});
    ModelAnswer::json(400, &json!({ "error": error }))
}

fn names(body: &Value) -> Vec<&str> {
    let tools = body["tools"].as_array().into_iter().flatten();
    tools.filter_map(|tool| tool["function"]["name"].as_str()).collect()
}

#[tokio::test]
async fn a_rejected_tool_is_left_out() {
    let server = started([bad_tool(1), bad_tool(0), hello()]).await;
    let tools = Toolset::new(["a", "b", "c"].map(weather));
    let conversation = question();
    let provider = provider(settings(&server).with_retries(once()));
    let mut stream = provider.stream(&request(&conversation).with_tools(&tools));
    let mut events: Vec<ReplyEvent> =
        rest(&mut stream).await.into_iter().map(|event| event.expect("no error")).collect();
    let Some(ReplyEvent::Finished(reply)) = events.pop() else { panic!("finished, not {events:?}") };
    let left_out = |name: &str, place: usize| {
        format!(
            "left out tool `{name}`: the provider returned HTTP 400: Invalid schema for function in tools[{place}]: no (key ***)"
        )
    };
    let warnings = [left_out("b", 1), left_out("a", 0)];
    let expected = warnings.clone().map(ReplyEvent::Warning).into_iter().chain([ReplyEvent::Text("Hello.".into())]);
    assert_eq!(events, expected.collect::<Vec<_>>());
    assert_eq!(reply.warnings, warnings);
    assert_eq!(server.bodies().iter().map(names).collect::<Vec<_>>(), [vec!["a", "b", "c"], vec!["a", "c"], vec!["c"]]);
}

#[tokio::test]
async fn a_required_tool_that_is_rejected_is_named() {
    let server = started([bad_tool(0)]).await;
    let (tools, conversation) = (Toolset::new([weather("only")]), question());
    let asked = request(&conversation).with_tools(&tools).with_tool_choice(ToolChoice::Required);
    let error = provider(settings(&server)).complete(&asked).await.expect_err("no answer");
    assert!(error.to_string().starts_with("tool `only` was rejected: the provider returned HTTP 400"), "{error}");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn the_only_tool_is_left_out_if_it_is_optional() {
    let server = started([bad_tool(0), hello()]).await;
    let (tools, conversation) = (Toolset::new([weather("only")]), question());
    let asked = request(&conversation).with_tools(&tools);
    let reply = provider(settings(&server)).complete(&asked).await.expect("a reply");
    assert_eq!(reply.warnings.len(), 1);
    assert!(reply.warnings[0].starts_with("left out tool `only`: "), "{:?}", reply.warnings);
    assert!(!server.bodies()[1].as_object().expect("an object").contains_key("tools"));
}

#[tokio::test]
async fn after_eight_rejected_tools_all_are_left_out() {
    let server = started((0..9).map(|_| bad_tool(0)).chain([hello()])).await;
    let tools = Toolset::new((0..20).map(|number| weather(&format!("t{number}"))));
    let conversation = question();
    let asked = request(&conversation).with_tools(&tools);
    let reply = provider(settings(&server)).complete(&asked).await.expect("a reply");
    assert_eq!((reply.message.to_text(), reply.warnings.len()), ("Hello.".into(), 9));
    assert_eq!(
        reply.warnings[8],
        "left out all 12 remaining tools: 8 tools were rejected, and so was `t8`: the provider returned HTTP 400: Invalid schema for function in tools[0]: no (key ***)"
    );
    let bodies = server.bodies();
    assert_eq!((bodies.len(), names(&bodies[8]).len()), (10, 12));
    assert!(!bodies[9].as_object().expect("an object").contains_key("tools"));
}

#[tokio::test]
async fn after_eight_rejected_tools_a_required_call_fails() {
    let server = started((0..20).map(|_| bad_tool(0))).await;
    let tools = Toolset::new((0..20).map(|number| weather(&format!("t{number}"))));
    let conversation = question();
    let asked = request(&conversation).with_tools(&tools).with_tool_choice(ToolChoice::Required);
    let error = provider(settings(&server)).complete(&asked).await.expect_err("no answer");
    assert!(error.to_string().starts_with("tool `t8` was rejected"), "{error}");
    assert_eq!(server.requests().len(), 9);
}

#[tokio::test]
async fn a_paused_reply_is_continued() {
    let part = |text: &str, more: Value| {
        let mut candidate = json!({"content": {"parts": [{"text": text}], "role": "model"}, "index": 0});
        candidate.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        ModelAnswer::events(format!("data: {}\r\n\r\n", json!({"candidates": [candidate]})))
    };
    let paused = part("Hel", json!({"finishReason": "CONTINUATION", "continuationToken": "t1"}));
    let server = started([paused, part("lo.", json!({"finishReason": "STOP"}))]).await;
    let settings = ProviderSettings::new(Dialect::Gemini).with_base_url(server.url()).with_key(KEY);
    let reply = complete(&provider(settings)).await.expect("a reply");
    assert_eq!((reply.message.to_text(), reply.stop), ("Hello.".into(), StopReason::EndTurn));
    let [first, mut second] = server.bodies().try_into().expect("two requests");
    let token = second.as_object_mut().expect("an object").remove("continuationToken");
    assert_eq!((token, second), (Some(json!("t1")), first));
}

#[tokio::test]
async fn an_oversized_event_is_unreadable() {
    let huge = format!("data: {}\n\n", "x".repeat(64 << 20));
    let error = complete(&scripted([Exchange::events(huge)])).await.expect_err("no answer");
    let message = "an event of the reply exceeds 64 MiB";
    assert_eq!((error.kind, error.to_string().as_str()), (ProviderErrorKind::Unreadable, message));
}

#[tokio::test]
async fn warnings_come_first_and_are_in_the_reply() {
    let server = started([ModelAnswer::new(503, "text/plain", ""), hello()]).await;
    let (tools, conversation) = (Toolset::new(["a", "b"].map(weather)), question());
    let mut quirks = Quirks::default();
    quirks.max_tools = Some(1);
    let provider = provider(settings(&server).with_quirks(quirks));
    let mut stream = provider.stream(&request(&conversation).with_tools(&tools));
    let mut events: Vec<ReplyEvent> =
        rest(&mut stream).await.into_iter().map(|event| event.expect("no error")).collect();
    let Some(ReplyEvent::Finished(reply)) = events.pop() else { panic!("finished, not {events:?}") };
    let warning = "left out 1 of 2 tools: chat supports at most 1".to_owned();
    assert_eq!(events, [ReplyEvent::Warning(warning.clone()), ReplyEvent::Text("Hello.".into())]);
    assert_eq!((reply.warnings, server.requests().len()), (vec![warning], 2));
}

#[tokio::test]
async fn an_invalid_request_is_the_only_event() {
    let server = started([hello()]).await;
    let conversation = question();
    let asked = request(&conversation).with_tool_choice(ToolChoice::Tool("nobody".into()));
    let settings = ProviderSettings::new(Dialect::Anthropic).with_base_url(server.url());
    let events = rest(&mut provider(settings).stream(&asked)).await;
    let [Err(error)] = events.as_slice() else { panic!("one error, not {events:?}") };
    assert_eq!(error.kind, ProviderErrorKind::Unusable);
    assert_eq!(server.requests(), []);
}

#[tokio::test]
async fn connections_are_reused() {
    let server = started([hello(), hello()]).await;
    let provider = provider(settings(&server));
    for _ in 0..2 {
        complete(&provider.clone()).await.expect("a reply");
    }
    assert_eq!((server.requests().len(), server.connections()), (2, 1));
}
