//! Sampling: answers `sampling/createMessage` requests from servers with a model.
//!
//! See <https://modelcontextprotocol.io/specification/2025-06-18/client/sampling>.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::sampling_params::SamplingParams;
use ropeway_core::error_chain::chain;
use ropeway_core::setters::setters;
use ropeway_core::sync::lock;
use ropeway_core::tool::{Alias, BoxError, BoxFuture};
use ropeway_mcp::protocol::code;
use ropeway_mcp::{HandlerError, SamplingRequest};
use ropeway_providers::{ChatRequest, Provider, ProviderError, ProviderErrorKind, ReasoningEffort, Reply, StopReason};

/// Default maximum tokens in a reply.
const MAX_TOKENS: u32 = 4096;

/// Default maximum concurrent requests per server.
const CONCURRENCY: usize = 4;

/// Default maximum requests per server in total.
const MAX_REQUESTS: usize = 100;

/// Default maximum bytes in a request's parameters.
const MAX_BYTES: usize = 1 << 20;

/// The error code for a request that the user rejected, from the specification.
const REJECTED: i64 = -1;

type Approve = Arc<dyn Fn(SamplingRequest) -> BoxFuture<'static, bool> + Send + Sync>;

/// Answers sampling requests from servers with a model.
///
/// Cheap to clone; clones share their limits. A server chooses the messages, the system prompt, the temperature and the stop
/// sequences. The host sets the provider, the model and the maximum tokens. The request contains nothing from the host's
/// conversations, and the result omits the model's reasoning.
#[derive(Clone)]
pub struct SamplingHandler {
    provider: Provider,
    model: String,
    max_tokens: u32,
    effort: Option<ReasoningEffort>,
    approve: Option<Approve>,
    concurrency: usize,
    max_requests: usize,
    max_bytes: usize,
    servers: Arc<Mutex<HashMap<Alias, ServerUsage>>>,
}

/// One server's requests so far.
#[derive(Clone)]
struct ServerUsage {
    /// Number of accepted requests.
    count: usize,
    /// Limits concurrent requests, per server.
    permits: Arc<Semaphore>,
}

impl SamplingHandler {
    /// Creates a handler with default limits.
    pub fn new(provider: Provider, model: impl Into<String>) -> Self {
        Self {
            provider,
            model: model.into(),
            max_tokens: MAX_TOKENS,
            effort: None,
            approve: None,
            concurrency: CONCURRENCY,
            max_requests: MAX_REQUESTS,
            max_bytes: MAX_BYTES,
            servers: Arc::default(),
        }
    }

    /// Requires approval before each request.
    #[must_use]
    pub fn with_approval<F, R>(mut self, approve: F) -> Self
    where
        F: Fn(SamplingRequest) -> R + Send + Sync + 'static,
        R: Future<Output = bool> + Send + 'static,
    {
        self.approve = Some(Arc::new(move |request| Box::pin(approve(request))));
        self
    }

    /// Returns the function for [`Handlers::on_sampling`](ropeway_mcp::Handlers::on_sampling).
    pub fn handler(
        &self,
    ) -> impl Fn(SamplingRequest) -> BoxFuture<'static, Result<Value, BoxError>> + Clone + Send + Sync + 'static {
        let sampling = self.clone();
        move |request| {
            let sampling = sampling.clone();
            Box::pin(async move { sampling.answer(request).await.map_err(BoxError::from) })
        }
    }

    async fn answer(&self, request: SamplingRequest) -> Result<Value, HandlerError> {
        // Invalid requests are refused before approval is requested.
        if is_longer(&request.params, self.max_bytes) {
            let message = format!("request exceeds {} bytes", self.max_bytes);
            return Err(HandlerError { code: code::INVALID_PARAMS, message });
        }
        let params = SamplingParams::parse(&request.params)?;
        let server = request.server.clone();
        let permits = self.permits(&server)?;
        // Fails only on a closed semaphore, and this one is never closed.
        let _permit = permits.acquire().await;
        // Other requests may have used up the limit since.
        self.permits(&server)?;
        if let Some(approve) = &self.approve
            && !approve(request).await
        {
            return Err(HandlerError { code: REJECTED, message: "the user rejected the sampling request".to_owned() });
        }
        self.count(&server)?;
        let mut chat = ChatRequest::new(&self.model, &params.conversation);
        chat.max_tokens = Some(params.max_tokens.min(self.max_tokens));
        chat.temperature = params.temperature;
        chat.stop_sequences = params.stop_sequences;
        chat.effort = self.effort;
        match self.provider.complete(&chat).await {
            Ok(reply) => Ok(result(&reply, &self.model)),
            Err(error) => {
                tracing::warn!(%server, "sampling request failed: {}", chain(&error));
                Err(refusal(&error))
            }
        }
    }

    /// Returns the permits for a server that has not reached its limit.
    fn permits(&self, server: &Alias) -> Result<Arc<Semaphore>, HandlerError> {
        self.with_usage(server, |usage| usage.permits.clone())
    }

    /// Counts an accepted request.
    fn count(&self, server: &Alias) -> Result<(), HandlerError> {
        self.with_usage(server, |usage| usage.count += 1)
    }

    fn with_usage<T>(&self, server: &Alias, then: impl FnOnce(&mut ServerUsage) -> T) -> Result<T, HandlerError> {
        let mut servers = lock(&self.servers);
        let none = || ServerUsage { count: 0, permits: Arc::new(Semaphore::new(self.concurrency)) };
        let usage = servers.entry(server.clone()).or_insert_with(none);
        if usage.count >= self.max_requests {
            let message = format!("limit of {} sampling requests reached", self.max_requests);
            return Err(HandlerError { code: code::INTERNAL, message });
        }
        Ok(then(usage))
    }
}

setters!(SamplingHandler {
    /// Sets the maximum tokens of a reply. A server that requests more gets this many; 4096 by default.
    with_max_tokens(tokens: u32) => max_tokens = tokens.max(1);
    /// Sets the reasoning effort. Reasoning counts against the maximum tokens.
    with_effort(effort: ReasoningEffort) => effort = Some(effort);
    /// Sets the maximum concurrent requests of one server, including those that await approval. Further requests wait.
    with_concurrency(requests: usize) => concurrency = requests.clamp(1, Semaphore::MAX_PERMITS);
    /// Sets the maximum requests of each server in total. Further requests are refused; 100 by default.
    with_max_requests(requests: usize) => max_requests = requests;
    /// Sets the maximum bytes of a request. Larger requests are refused; 1 MiB by default.
    with_max_bytes(bytes: usize) => max_bytes = bytes;
});

impl fmt::Debug for SamplingHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SamplingHandler")
            .field("model", &self.model)
            .field("max_tokens", &self.max_tokens)
            .field("max_requests", &self.max_requests)
            .finish_non_exhaustive()
    }
}

/// Returns `true` if the parameters are longer than this as JSON, without writing them all.
fn is_longer(params: &Value, bytes: usize) -> bool {
    struct Room(usize);
    impl std::io::Write for Room {
        fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(buffer.len()).ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(buffer.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    serde_json::to_writer(Room(bytes), params).is_err()
}

/// Returns the result for the server: the reply's text, without reasoning.
fn result(reply: &Reply, model: &str) -> Value {
    let model = reply.model.as_deref().unwrap_or(model);
    let content = json!({"type": "text", "text": reply.message.to_text()});
    let mut result = json!({"role": "assistant", "content": content, "model": model});
    let stop = match reply.stop {
        StopReason::EndTurn => "endTurn",
        StopReason::StopSequence => "stopSequence",
        StopReason::MaxTokens | StopReason::ContextWindow => "maxTokens",
        StopReason::Refusal => "refusal",
        StopReason::ContentFilter => "contentFilter",
        // The specification has no value for other reasons.
        _ => return result,
    };
    result["stopReason"] = stop.into();
    result
}

/// Returns the error for the server. The provider's message may be confidential and is only logged.
fn refusal(error: &ProviderError) -> HandlerError {
    let (code, message) = match error.kind {
        ProviderErrorKind::ContextLength | ProviderErrorKind::TooLarge => {
            (code::INVALID_PARAMS, "the messages are too long for the model")
        }
        ProviderErrorKind::Unusable | ProviderErrorKind::InvalidRequest | ProviderErrorKind::Media => {
            (code::INVALID_PARAMS, "the model does not accept this request")
        }
        ProviderErrorKind::RateLimited | ProviderErrorKind::Overloaded => {
            (code::INTERNAL, "the model is overloaded; try again later")
        }
        _ => (code::INTERNAL, "the model request failed"),
    };
    HandlerError { code, message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use ropeway_core::message::Dialect;
    use ropeway_providers::{Exchange, ProviderSettings, Recording, RetryPolicy};

    const KEY: &str = "sk-test-0123456789";

    fn provider(answers: impl IntoIterator<Item = Exchange>) -> Provider {
        let retries = RetryPolicy { max_retries: 0, ..RetryPolicy::default() };
        let settings = ProviderSettings::new(Dialect::Chat)
            .with_base_url("http://127.0.0.1:9/v1")
            .with_key(KEY)
            .with_retries(retries);
        Provider::replaying(settings, Recording::new(answers))
    }

    fn said(text: &str, finish: &str) -> Exchange {
        let delta = json!({"id": "a", "model": "m-2", "choices": [{"index": 0, "delta": {"reasoning_content": "secret thoughts", "content": text}}]});
        let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]});
        Exchange::events(format!("data: {delta}\n\ndata: {end}\n\ndata: [DONE]\n\n"))
    }

    fn request(text: &str) -> Value {
        json!({"maxTokens": 100, "messages": [{"role": "user", "content": {"type": "text", "text": text}}]})
    }

    async fn ask(sampling: &SamplingHandler, params: Value) -> Result<Value, (i64, String)> {
        let answer = sampling.handler()(SamplingRequest::new("peer", params)).await;
        answer.map_err(|error| match error.downcast::<HandlerError>() {
            Ok(refusal) => (refusal.code, refusal.message),
            Err(error) => panic!("{error}"),
        })
    }

    #[tokio::test]
    async fn a_server_gets_the_text_of_a_reply_without_reasoning() {
        for (finish, stop) in [("stop", "endTurn"), ("length", "maxTokens"), ("content_filter", "contentFilter")] {
            let sampling = SamplingHandler::new(provider([said("Hello.", finish)]), "m");
            let content = json!({"type": "text", "text": "Hello."});
            let expected = json!({"role": "assistant", "content": content, "model": "m-2", "stopReason": stop});
            assert_eq!(ask(&sampling, request("Hi")).await, Ok(expected));
        }
    }

    #[tokio::test]
    async fn supported_parameters_are_sent_within_the_limits() {
        let params = json!({
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "What is it?"}, {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}]},
                {"role": "assistant", "content": {"type": "text", "text": "A picture."}},
                {"role": "user", "content": "Of what?"},
            ],
            "systemPrompt": "Be brief.", "maxTokens": 1_000_000, "temperature": 0.5, "stopSequences": ["END", ""],
            "modelPreferences": {"hints": [{"name": "other"}]}, "includeContext": "allServers", "metadata": {"user": "x"}, "_meta": {},
        });
        let body = json!({
            "model": "m", "stream": true, "stream_options": {"include_usage": true},
            "max_tokens": 512, "temperature": 0.5, "stop": ["END"],
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "What is it?"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "auto"}}]},
                {"role": "assistant", "content": "A picture."},
                {"role": "user", "content": "Of what?"},
            ],
        });
        let answer = said("A cat.", "stop").to_request("http://127.0.0.1:9/v1/chat/completions", body);
        let sampling = SamplingHandler::new(provider([answer]), "m").with_max_tokens(512);
        let answer = ask(&sampling, params).await;
        assert_eq!(answer.as_ref().map(|result| &result["content"]["text"]), Ok(&json!("A cat.")));
    }

    #[tokio::test]
    async fn a_server_does_not_see_the_message_of_the_provider() {
        let failed = |status, body: Value| {
            Exchange::new(status, body.to_string()).with_header("content-type", "application/json")
        };
        let private = |message: &str| json!({"error": {"message": format!("{message} for account acme-7 with {KEY}")}});
        let cases = [
            (failed(401, private("bad key")), (code::INTERNAL, "the model request failed")),
            (failed(429, private("slow down")), (code::INTERNAL, "the model is overloaded; try again later")),
            (failed(400, private("no such field")), (code::INVALID_PARAMS, "the model does not accept this request")),
            (failed(500, private("oops")), (code::INTERNAL, "the model request failed")),
            (Exchange::failed(ProviderErrorKind::Connection, "acme-7"), (code::INTERNAL, "the model request failed")),
        ];
        for (answer, (code, words)) in cases {
            let sampling = SamplingHandler::new(provider([answer]), "m");
            assert_eq!(ask(&sampling, request("Hi")).await, Err((code, words.to_owned())));
        }
    }

    #[tokio::test]
    async fn a_rejected_request_is_not_made_and_an_invalid_one_not_shown() {
        let questions: Arc<Mutex<Vec<SamplingRequest>>> = Arc::default();
        let sink = questions.clone();
        let sampling = SamplingHandler::new(provider([]), "m").with_approval(move |request| {
            sink.lock().expect("no panic").push(request);
            async { false }
        });
        let rejected = (-1, "the user rejected the sampling request".to_owned());
        assert_eq!(ask(&sampling, request("Hi")).await, Err(rejected));
        assert!(ask(&sampling, json!({})).await.is_err());
        assert_eq!(*questions.lock().expect("no panic"), [SamplingRequest::new("peer", request("Hi"))]);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_limited_concurrently_and_in_total_per_server() {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (count, top) = (now.clone(), most.clone());
        let answers = std::iter::repeat_n(said("Hello.", "stop"), 8);
        let sampling = SamplingHandler::new(provider(answers), "m")
            .with_concurrency(2)
            .with_max_requests(5)
            .with_approval(move |_| {
                let (count, top) = (count.clone(), top.clone());
                async move {
                    top.fetch_max(count.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                    count.fetch_sub(1, Ordering::Relaxed);
                    true
                }
            });
        let mut requests = tokio::task::JoinSet::new();
        for _ in 0..6 {
            let sampling = sampling.clone();
            requests.spawn(async move { ask(&sampling, request("Hi")).await });
        }
        let answers = requests.join_all().await;
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 5);
        let refused = (code::INTERNAL, "limit of 5 sampling requests reached".to_owned());
        assert_eq!(answers.iter().filter_map(|answer| answer.as_ref().err()).collect::<Vec<_>>(), [&refused]);
        assert_eq!(most.load(Ordering::Relaxed), 2);
        // Each server has its own limit.
        let other = sampling.handler()(SamplingRequest::new("other", request("Hi"))).await;
        assert!(other.is_ok(), "{other:?}");
    }

    #[tokio::test]
    async fn rejected_and_oversized_requests_are_not_counted() {
        let long = SamplingHandler::new(provider([]), "m").with_max_bytes(100);
        let refused = (code::INVALID_PARAMS, "request exceeds 100 bytes".to_owned());
        assert_eq!(ask(&long, request(&"x".repeat(100))).await, Err(refused));
        let answers = Arc::new(Mutex::new(vec![true, false, false]));
        let sampling = SamplingHandler::new(provider([said("Hello.", "stop")]), "m").with_max_requests(1);
        let sampling =
            sampling.with_approval(move |_| std::future::ready(answers.lock().expect("no panic").pop() == Some(true)));
        let asked = [
            ask(&sampling, request("Hi")).await,
            ask(&sampling, request("Hi")).await,
            ask(&sampling, request("Hi")).await,
        ];
        assert_eq!(asked.map(|answer| answer.is_ok()), [false, false, true], "only accepted requests are counted");
    }
}
