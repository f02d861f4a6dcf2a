//! Sampling: a model that servers may ask.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::lock;
use super::wish::Wish;
use crate::mcp::{Refusal, SamplingRequest, chain};
use crate::protocol::code;
use crate::provider::{ChatRequest, Provider, ProviderError, ProviderErrorKind, ReasoningEffort, Reply, StopReason};
use crate::tool::{Alias, BoxError, BoxFuture};

/// How many tokens of an answer a server may ask for where nothing else is said.
const MAX_TOKENS: u32 = 4096;

/// How many requests of one server are worked on at once where nothing else is said.
const CONCURRENCY: usize = 4;

/// How many requests of one server are answered in all where nothing else is said.
const MOST_REQUESTS: usize = 100;

/// How many bytes of messages a server may send where nothing else is said.
const MAX_BYTES: usize = 1 << 20;

/// What the protocol has for a request that the user turned down.
const REJECTED: i64 = -1;

type Approve = Arc<dyn Fn(SamplingRequest) -> BoxFuture<'static, bool> + Send + Sync>;

/// A model that servers may ask, with what they may ask for.
///
/// Cheap to clone; clones share their bounds. A server chooses its own words and nothing else: model, provider and the most
/// tokens are the host's, and nothing of the host's conversations goes along. What the model thinks stays here.
#[derive(Clone)]
pub struct SamplingHandler {
    provider: Provider,
    model: String,
    max_tokens: u32,
    effort: Option<ReasoningEffort>,
    approve: Option<Approve>,
    concurrency: usize,
    most: usize,
    max_bytes: usize,
    /// What each server has asked so far.
    servers: Arc<Mutex<HashMap<Alias, Asked>>>,
}

/// What one server has asked so far.
#[derive(Clone)]
struct Asked {
    /// How many requests were let through.
    count: usize,
    /// Those that are worked on. Its own: no server waits for another.
    permits: Arc<Semaphore>,
}

impl SamplingHandler {
    /// Lets servers ask this model.
    pub fn new(provider: Provider, model: impl Into<String>) -> Self {
        Self {
            provider,
            model: model.into(),
            max_tokens: MAX_TOKENS,
            effort: None,
            approve: None,
            concurrency: CONCURRENCY,
            most: MOST_REQUESTS,
            max_bytes: MAX_BYTES,
            servers: Arc::default(),
        }
    }

    /// The most tokens of an answer; a server that asks for more gets these.
    #[must_use]
    pub fn with_max_tokens(mut self, tokens: u32) -> Self {
        self.max_tokens = tokens.max(1);
        self
    }

    /// How hard the model thinks before it answers a server. What it thinks counts against the server's tokens.
    #[must_use]
    pub fn with_effort(mut self, effort: ReasoningEffort) -> Self {
        self.effort = Some(effort);
        self
    }

    /// Asks before each request whether it may be made.
    #[must_use]
    pub fn with_approval<F, R>(mut self, approve: F) -> Self
    where
        F: Fn(SamplingRequest) -> R + Send + Sync + 'static,
        R: Future<Output = bool> + Send + 'static,
    {
        self.approve = Some(Arc::new(move |request| Box::pin(approve(request))));
        self
    }

    /// How many requests of one server are worked on at once, the question whether they may be made included; others wait.
    #[must_use]
    pub fn with_concurrency(mut self, requests: usize) -> Self {
        self.concurrency = requests.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// How many requests of each server are answered in all; the rest is refused. 100 where nothing is said.
    #[must_use]
    pub fn with_most_requests(mut self, requests: usize) -> Self {
        self.most = requests;
        self
    }

    /// How many bytes of messages a request may have; a larger one is refused. 1 MiB where nothing is said.
    #[must_use]
    pub fn with_max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// What answers servers, for [`Handlers::on_sampling`](crate::mcp::Handlers::on_sampling).
    pub fn handler(
        &self,
    ) -> impl Fn(SamplingRequest) -> BoxFuture<'static, Result<Value, BoxError>> + Clone + Send + Sync + 'static {
        let sampling = self.clone();
        move |request| {
            let sampling = sampling.clone();
            Box::pin(async move { sampling.answer(request).await.map_err(BoxError::from) })
        }
    }

    async fn answer(&self, request: SamplingRequest) -> Result<Value, Refusal> {
        // A person is not asked about what cannot be done.
        if is_longer(&request.params, self.max_bytes) {
            let message = format!("the messages have more than {} bytes", self.max_bytes);
            return Err(Refusal { code: code::INVALID_PARAMS, message });
        }
        let wish = Wish::read(&request.params)?;
        let server = request.server.clone();
        let permits = self.asked(&server)?;
        // Nobody ever closes it.
        let _permit = permits.acquire().await;
        // Others may have been let through meanwhile.
        self.asked(&server)?;
        if let Some(approve) = &self.approve
            && !approve(request).await
        {
            return Err(Refusal { code: REJECTED, message: "the user rejected the sampling request".to_owned() });
        }
        self.count(&server)?;
        let mut chat = ChatRequest::new(&self.model, &wish.conversation);
        chat.max_tokens = Some(wish.max_tokens.min(self.max_tokens));
        chat.temperature = wish.temperature;
        chat.stop_sequences = wish.stop_sequences;
        chat.effort = self.effort;
        match self.provider.complete(&chat).await {
            Ok(reply) => Ok(result(&reply, &self.model)),
            Err(error) => {
                tracing::warn!(%server, "a sampling request was not answered: {}", chain(&error));
                Err(refusal(&error))
            }
        }
    }

    /// The permits of a server that has not asked too often.
    fn asked(&self, server: &Alias) -> Result<Arc<Semaphore>, Refusal> {
        self.with_asked(server, |asked| asked.permits.clone())
    }

    /// Counts a request that is let through.
    fn count(&self, server: &Alias) -> Result<(), Refusal> {
        self.with_asked(server, |asked| asked.count += 1)
    }

    fn with_asked<T>(&self, server: &Alias, then: impl FnOnce(&mut Asked) -> T) -> Result<T, Refusal> {
        let mut servers = lock(&self.servers);
        let none = || Asked { count: 0, permits: Arc::new(Semaphore::new(self.concurrency)) };
        let asked = servers.entry(server.clone()).or_insert_with(none);
        if asked.count >= self.most {
            let message = format!("no more than {} sampling requests are answered", self.most);
            return Err(Refusal { code: code::INTERNAL, message });
        }
        Ok(then(asked))
    }
}

impl fmt::Debug for SamplingHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampling")
            .field("model", &self.model)
            .field("max_tokens", &self.max_tokens)
            .field("most", &self.most)
            .finish_non_exhaustive()
    }
}

/// Are parameters longer than this, as text? They are not written down to be measured.
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

/// The result that a server gets: the answer's text and nothing that is private to the model.
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
        // The field is left out where there is no word for it that a server could know.
        _ => return result,
    };
    result["stopReason"] = stop.into();
    result
}

/// What a server is told when the model has no answer. The provider's own words are for the host.
fn refusal(error: &ProviderError) -> Refusal {
    let (code, message) = match error.kind {
        ProviderErrorKind::ContextLength | ProviderErrorKind::TooLarge => {
            (code::INVALID_PARAMS, "the messages are longer than the model takes")
        }
        ProviderErrorKind::Unusable | ProviderErrorKind::InvalidRequest | ProviderErrorKind::Media => {
            (code::INVALID_PARAMS, "the model does not take this request")
        }
        ProviderErrorKind::RateLimited | ProviderErrorKind::Overloaded => {
            (code::INTERNAL, "the model has too much to do: try again later")
        }
        _ => (code::INTERNAL, "the model could not be asked"),
    };
    Refusal { code, message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::message::Dialect;
    use crate::provider::{Exchange, ProviderSettings, Recording, RetryPolicy};

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

    fn asking(text: &str) -> Value {
        json!({"maxTokens": 100, "messages": [{"role": "user", "content": {"type": "text", "text": text}}]})
    }

    async fn ask(sampling: &SamplingHandler, params: Value) -> Result<Value, (i64, String)> {
        let answer = sampling.handler()(SamplingRequest::new("peer", params)).await;
        answer.map_err(|error| match error.downcast::<Refusal>() {
            Ok(refusal) => (refusal.code, refusal.message),
            Err(error) => panic!("{error}"),
        })
    }

    #[tokio::test]
    async fn a_server_gets_the_text_of_an_answer_and_none_of_the_thoughts() {
        for (finish, stop) in [("stop", "endTurn"), ("length", "maxTokens"), ("content_filter", "contentFilter")] {
            let sampling = SamplingHandler::new(provider([said("Hello.", finish)]), "m");
            let content = json!({"type": "text", "text": "Hello."});
            let expected = json!({"role": "assistant", "content": content, "model": "m-2", "stopReason": stop});
            assert_eq!(ask(&sampling, asking("Hi")).await, Ok(expected));
        }
    }

    #[tokio::test]
    async fn what_a_server_wishes_for_is_sent_within_the_bounds_and_nothing_else_is() {
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
    async fn a_server_hears_that_the_model_failed_but_not_what_the_provider_said() {
        let told = |status, body: Value| {
            Exchange::new(status, body.to_string()).with_header("content-type", "application/json")
        };
        let private = |message: &str| json!({"error": {"message": format!("{message} for account acme-7 with {KEY}")}});
        let cases = [
            (told(401, private("bad key")), (code::INTERNAL, "the model could not be asked")),
            (told(429, private("slow down")), (code::INTERNAL, "the model has too much to do: try again later")),
            (told(400, private("no such field")), (code::INVALID_PARAMS, "the model does not take this request")),
            (told(500, private("oops")), (code::INTERNAL, "the model could not be asked")),
            (
                Exchange::failed(ProviderErrorKind::Connection, "acme-7"),
                (code::INTERNAL, "the model could not be asked"),
            ),
        ];
        for (answer, (code, words)) in cases {
            let sampling = SamplingHandler::new(provider([answer]), "m");
            assert_eq!(ask(&sampling, asking("Hi")).await, Err((code, words.to_owned())));
        }
    }

    #[tokio::test]
    async fn a_request_that_is_turned_down_is_not_made_and_nonsense_is_not_asked_about() {
        let questions: Arc<Mutex<Vec<SamplingRequest>>> = Arc::default();
        let sink = questions.clone();
        let sampling = SamplingHandler::new(provider([]), "m").with_approval(move |request| {
            sink.lock().expect("no panic").push(request);
            async { false }
        });
        let rejected = (-1, "the user rejected the sampling request".to_owned());
        assert_eq!(ask(&sampling, asking("Hi")).await, Err(rejected));
        assert!(ask(&sampling, json!({})).await.is_err());
        assert_eq!(*questions.lock().expect("no panic"), [SamplingRequest::new("peer", asking("Hi"))]);
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_requests_are_worked_on_at_once_and_of_each_server_only_so_many_in_all() {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (count, top) = (now.clone(), most.clone());
        let answers = std::iter::repeat_n(said("Hello.", "stop"), 8);
        let sampling = SamplingHandler::new(provider(answers), "m")
            .with_concurrency(2)
            .with_most_requests(5)
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
            requests.spawn(async move { ask(&sampling, asking("Hi")).await });
        }
        let answers = requests.join_all().await;
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 5);
        let refused = (code::INTERNAL, "no more than 5 sampling requests are answered".to_owned());
        assert_eq!(answers.iter().filter_map(|answer| answer.as_ref().err()).collect::<Vec<_>>(), [&refused]);
        assert_eq!(most.load(Ordering::Relaxed), 2);
        // Another server has its own number.
        let other = sampling.handler()(SamplingRequest::new("other", asking("Hi"))).await;
        assert!(other.is_ok(), "{other:?}");
    }

    #[tokio::test]
    async fn messages_that_are_too_long_and_requests_that_were_turned_down_cost_nothing() {
        let long = SamplingHandler::new(provider([]), "m").with_max_bytes(100);
        let refused = (code::INVALID_PARAMS, "the messages have more than 100 bytes".to_owned());
        assert_eq!(ask(&long, asking(&"x".repeat(100))).await, Err(refused));
        let answers = Arc::new(Mutex::new(vec![true, false, false]));
        let sampling = SamplingHandler::new(provider([said("Hello.", "stop")]), "m").with_most_requests(1);
        let sampling =
            sampling.with_approval(move |_| std::future::ready(answers.lock().expect("no panic").pop() == Some(true)));
        let asked = [
            ask(&sampling, asking("Hi")).await,
            ask(&sampling, asking("Hi")).await,
            ask(&sampling, asking("Hi")).await,
        ];
        assert_eq!(asked.map(|answer| answer.is_ok()), [false, false, true], "only what was let through is counted");
    }
}
