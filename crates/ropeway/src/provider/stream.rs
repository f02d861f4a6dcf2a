//! A reply as it comes in: a request is sent, if need be again, and its answer handed on piece by piece.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use serde_json::Value;

use super::tail::Tail;
use super::wire::Exchanging;
use super::{
    Decoder, EncodedRequest, HttpRequest, MediaSupport, Provider, ProviderError, ProviderErrorKind, Reply, ReplyEvent,
    not_taken, trouble,
};
use crate::json;
use crate::message::Dialect;
use crate::sync::lock;
use crate::web::{SseEvent, SseParser, brief, looks_like_events};

/// How large one event of an answer may be: pictures come in one piece.
const LARGEST_EVENT: usize = 64 << 20;

/// How large a whole answer may be.
const LARGEST_ANSWER: usize = 512 << 20;

/// How many tools are left out of one request one by one, because the provider does not take them; then all are.
const MOST_LEFT_OUT: usize = 8;

/// How often one answer may be continued.
const MOST_CONTINUATIONS: usize = 32;

type Whole = dyn Future<Output = Result<Reply, ProviderError>> + Send;

/// The answer of a model as it comes in. Dropping it ends the request.
pub struct ReplyStream {
    dialect: Dialect,
    /// Does all the work when it is polled, and ends with the whole answer.
    work: Option<Pin<Box<Whole>>>,
    outbox: Outbox,
    ready: VecDeque<ReplyEvent>,
}

impl ReplyStream {
    /// The answer to a request; `in_words` is the same request without any media, if it has some.
    pub(super) fn new(
        provider: Provider,
        encoded: Result<EncodedRequest, ProviderError>,
        in_words: Option<EncodedRequest>,
    ) -> Self {
        let outbox = Outbox::default();
        let dialect = provider.dialect();
        let work = Work { provider, outbox: outbox.clone(), warnings: Vec::new(), held: Vec::new(), handed_on: false };
        Self { dialect, work: Some(Box::pin(work.run(encoded, in_words))), outbox, ready: VecDeque::new() }
    }

    /// The next piece; `None` after the last one, which is [`ReplyEvent::Finished`] or an error.
    ///
    /// A future that is dropped before it is done loses nothing.
    pub async fn next(&mut self) -> Option<Result<ReplyEvent, ProviderError>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Reads on to the end, and gives the whole answer.
    pub async fn finish(mut self) -> Result<Reply, ProviderError> {
        while let Some(event) = self.next().await {
            if let ReplyEvent::Finished(reply) = event? {
                return Ok(*reply);
            }
        }
        // Only a stream that was read to its end before comes here.
        Err(ProviderError::new(ProviderErrorKind::Unusable, self.dialect, "the answer was read already"))
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<ReplyEvent, ProviderError>>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            let Some(work) = &mut self.work else { return Poll::Ready(None) };
            let outcome = work.as_mut().poll(cx);
            self.ready.extend(self.outbox.take());
            match outcome {
                Poll::Pending if self.ready.is_empty() => return Poll::Pending,
                Poll::Pending => {}
                Poll::Ready(Ok(reply)) => {
                    self.work = None;
                    self.ready.push_back(ReplyEvent::Finished(Box::new(reply)));
                }
                Poll::Ready(Err(error)) => {
                    self.work = None;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }
}

impl fmt::Debug for ReplyStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplyStream").field("is_over", &self.work.is_none()).finish_non_exhaustive()
    }
}

/// Where the work leaves what the stream hands on.
#[derive(Clone, Default)]
struct Outbox(Arc<Mutex<Vec<ReplyEvent>>>);

impl Outbox {
    fn take(&self) -> Vec<ReplyEvent> {
        std::mem::take(&mut lock(&self.0))
    }

    /// Leaves events, and waits until they are taken.
    async fn put(&self, events: &mut Vec<ReplyEvent>) {
        if events.is_empty() {
            return;
        }
        lock(&self.0).append(events);
        // Nobody need be woken: whoever polls this takes the events, and polls again when it wants more.
        let mut waited = false;
        poll_fn(|_| match std::mem::replace(&mut waited, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }
}

/// All that happens between a request and its whole answer.
struct Work {
    provider: Provider,
    outbox: Outbox,
    /// What a person should know, besides what the decoder has to say.
    warnings: Vec<String>,
    /// Events that say nothing of the answer itself: while there are no others, the request may be sent again.
    held: Vec<ReplyEvent>,
    handed_on: bool,
}

impl Work {
    async fn run(
        mut self,
        encoded: Result<EncodedRequest, ProviderError>,
        in_words: Option<EncodedRequest>,
    ) -> Result<Reply, ProviderError> {
        let outcome = match encoded {
            Ok(encoded) => self.answer(encoded, in_words).await,
            Err(error) => Err(error),
        };
        outcome.map_err(|error| error.hidden(&self.provider.mask))
    }

    /// Sends the request, if need be again, until there is an answer or no hope.
    async fn answer(
        &mut self,
        mut encoded: EncodedRequest,
        mut in_words: Option<EncodedRequest>,
    ) -> Result<Reply, ProviderError> {
        for warning in std::mem::take(&mut encoded.warnings) {
            self.warn(&warning).await;
        }
        let (mut retried, mut left_out) = (0, 0);
        let mut refused = MediaSupport::NONE;
        loop {
            let mut error = match self.attempt(&encoded).await {
                Ok(reply) => {
                    // Not before it is sure that the media were the reason.
                    self.provider.not_taken.remember(encoded.model(), refused);
                    return Ok(reply);
                }
                Err(error) if self.handed_on => return Err(error),
                Err(error) => error,
            };
            if let Some((place, name)) = error.tool.and_then(|place| Some((place, encoded.tool(place)?.to_owned()))) {
                let (fewer, what) = match left_out < MOST_LEFT_OUT {
                    true => (encoded.without_tool(place), format!("tool `{name}` is left out")),
                    false => {
                        let count = encoded.tools();
                        let why = format!("{left_out} were not taken, and `{name}` is not either");
                        (encoded.without_tools(), format!("all {count} other tools are left out: {why}"))
                    }
                };
                if let Some(fewer) = fewer {
                    left_out += 1;
                    self.warn(&format!("{what}: {}", error.message)).await;
                    encoded = fewer;
                    continue;
                }
                error.message = format!("tool `{name}` is not taken: {}", error.message);
            }
            if may_be_for_media(&error)
                && let Some(without) = in_words.take()
            {
                let model = encoded.model();
                refused = not_taken::not_taken(&error.message).unwrap_or_default();
                let warning = match refused {
                    MediaSupport::NONE => {
                        format!("what is not text was described in words to model `{model}`: {}", error.message)
                    }
                    media => format!("model `{model}` takes no {media}: what is not text was described in words"),
                };
                self.warn(&warning).await;
                encoded = without;
                continue;
            }
            let Some(pause) = self.provider.settings.retries.pause(&error, retried, fastrand::f64()) else {
                if retried > 0 {
                    error.message = format!("{} (tried {} times)", error.message, retried + 1);
                }
                return Err(error);
            };
            retried += 1;
            let wait = crate::duration::format_duration(pause);
            let words = self.provider.mask.hide(&error.message);
            tracing::debug!("the model request failed, trying again in {wait}: {words}");
            tokio::time::sleep(pause).await;
        }
    }

    /// Sends the request once, and again only to hear more of the same answer.
    async fn attempt(&mut self, encoded: &EncodedRequest) -> Result<Reply, ProviderError> {
        self.held.clear();
        let mut decoder = encoded.decoder();
        let mut continued = None;
        for _ in 0..=MOST_CONTINUATIONS {
            let request = continued.as_ref().unwrap_or(&encoded.request);
            let tail = self.read(request, &mut decoder).await?;
            match decoder.continuation() {
                Some(token) => continued = Some(encoded.with_field("continuationToken", &token.into()).request),
                None => return self.end(&mut decoder, &tail).await,
            }
        }
        let message = format!("the answer was continued {MOST_CONTINUATIONS} times and did not end");
        Err(ProviderError::new(ProviderErrorKind::Truncated, self.provider.dialect(), message))
    }

    /// Reads one answer to its end; gives its tail.
    async fn read(&mut self, request: &HttpRequest, decoder: &mut Decoder) -> Result<Tail, ProviderError> {
        let mut exchange = self.provider.send(request).await?;
        if !exchange.is_accepted() {
            return Err(exchange.refusal().await);
        }
        let outcome = self.listen(&mut exchange, decoder).await;
        if outcome.is_ok() && decoder.is_over() {
            exchange.done().await;
            return outcome;
        }
        outcome.map_err(|error| exchange.name(error))
    }

    async fn listen(&mut self, exchange: &mut Exchanging, decoder: &mut Decoder) -> Result<Tail, ProviderError> {
        let (mut chunk, mut size) = self.beginning(exchange).await?;
        let mut parser = SseParser::new(LARGEST_EVENT);
        let mut tail = Tail::default();
        loop {
            size += chunk.len();
            self.check_size(size)?;
            tail.keep(&chunk);
            let is_news = self.take(&chunk, &mut parser, decoder).await?;
            if decoder.is_over() {
                return Ok(tail);
            }
            let has_stopped = decoder.has_stopped();
            // A server that only shows that it is alive is not waited for any longer.
            if has_stopped && is_news {
                exchange.has_stopped(self.provider.settings.timeouts.idle);
            }
            match exchange.chunk().await {
                Ok(Some(next)) => chunk = next,
                Ok(None) => break,
                // Everything was said: not every server closes, nor closes well.
                Err(error)
                    if has_stopped
                        && matches!(error.kind, ProviderErrorKind::Timeout | ProviderErrorKind::Connection) =>
                {
                    break;
                }
                Err(error) if error.kind == ProviderErrorKind::Connection => {
                    let message = "the answer broke off".to_owned();
                    return Err(ProviderError { kind: ProviderErrorKind::Truncated, message, ..error });
                }
                Err(error) => return Err(error),
            }
        }
        // Not every server ends its last event; one that was cut in its middle is no event.
        match self.take(b"\n\n", &mut parser, decoder).await {
            Err(error) if error.kind != ProviderErrorKind::Unreadable => Err(error),
            _ => Ok(tail),
        }
    }

    fn check_size(&self, size: usize) -> Result<(), ProviderError> {
        match size > LARGEST_ANSWER {
            true => Err(self.unreadable(format!("the answer is larger than {} MiB", LARGEST_ANSWER >> 20))),
            false => Ok(()),
        }
    }

    /// Reads until it is sure that events come; gives what came, and how much blank space stood before it.
    async fn beginning(&mut self, exchange: &mut Exchanging) -> Result<(Bytes, usize), ProviderError> {
        let (mut start, mut blank) = (Bytes::new(), 0);
        let mut ended = false;
        loop {
            let bare = start.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&start);
            match bare.first() {
                Some(b'{' | b'[') => return Err(self.not_events(exchange, start, true).await),
                Some(_) if exchange.promises_events() || looks_like_events(bare) => return Ok((start, blank)),
                // The longest beginning that tells an event is `event:`.
                Some(_) if ended || bare.len() > 6 => return Err(self.not_events(exchange, start, false).await),
                None if ended => {
                    let error = ProviderError::new(
                        ProviderErrorKind::Truncated,
                        self.provider.dialect(),
                        "the answer is empty",
                    );
                    return Err(error);
                }
                _ => {}
            }
            match exchange.chunk().await? {
                Some(chunk) if start.is_empty() => {
                    // Blank space says nothing: it is not kept, and the first byte is still to come.
                    let skipped = chunk.len() - chunk.trim_ascii_start().len();
                    blank += skipped;
                    self.check_size(blank)?;
                    start = chunk.slice(skipped..);
                    if !start.is_empty() {
                        exchange.has_begun(self.provider.settings.timeouts.idle);
                    }
                }
                Some(chunk) => start = [start, chunk].concat().into(),
                None => ended = true,
            }
        }
    }

    /// What a body says that is no stream of events.
    async fn not_events(&self, exchange: &mut Exchanging, start: Bytes, is_json: bool) -> ProviderError {
        let body = exchange.rest(start.into()).await;
        if is_json && let Some(error) = json::from_slice(&body).ok().and_then(|body| self.told(&body)) {
            return error;
        }
        let what = if is_json { "the answer is JSON and not a stream" } else { "the answer is not a stream of events" };
        self.unreadable(format!("{what}: `{}`", brief(&body, &self.provider.mask)))
    }

    /// The trouble that a JSON text tells of, if it does.
    fn told(&self, body: &Value) -> Option<ProviderError> {
        let first = body.as_array().and_then(|items| items.first()).unwrap_or(body);
        let is_trouble = first.get("error").is_some_and(|error| !error.is_null()) || first["type"] == "error";
        is_trouble.then(|| trouble::in_stream(self.provider.dialect(), body))
    }

    fn unreadable(&self, message: String) -> ProviderError {
        ProviderError::new(ProviderErrorKind::Unreadable, self.provider.dialect(), message)
    }

    /// Takes a piece of an answer, and hands on what it tells; did an event end in it?
    async fn take(
        &mut self,
        chunk: &[u8],
        parser: &mut SseParser,
        decoder: &mut Decoder,
    ) -> Result<bool, ProviderError> {
        let mut frames: Vec<SseEvent> = Vec::new();
        parser.push(chunk, |frame| frames.push(frame));
        let mut events = Vec::new();
        let mut outcome = Ok(());
        for frame in &frames {
            if frame.remains.is_some() {
                let message = format!("an event of the answer is larger than {} MiB", LARGEST_EVENT >> 20);
                outcome = Err(self.unreadable(message));
            } else if !frame.data.trim_ascii().is_empty() {
                outcome = decoder.frame(&frame.data, &mut events);
            }
            if outcome.is_err() || decoder.is_over() {
                break;
            }
        }
        // What came before the trouble is told before it.
        self.hand_on(events).await;
        outcome.map(|()| frames.iter().any(|frame| !frame.data.trim_ascii().is_empty()))
    }

    /// The whole answer, once the stream has ended.
    async fn end(&mut self, decoder: &mut Decoder, tail: &Tail) -> Result<Reply, ProviderError> {
        let mut events = Vec::new();
        let ended = decoder.end(&mut events);
        self.hand_on(events).await;
        let mut reply = ended.map_err(|error| match error.kind {
            // Some tell their trouble in plain JSON, behind the events.
            ProviderErrorKind::Truncated => tail.json().and_then(|json| self.told(&json)).unwrap_or(error),
            _ => error,
        })?;
        self.outbox.put(&mut self.held).await;
        let told = std::mem::take(&mut reply.warnings);
        reply.warnings = std::mem::take(&mut self.warnings);
        reply.warnings.extend(told.iter().map(|warning| self.provider.mask.hide(warning).into_owned()));
        Ok(reply)
    }

    /// Hands on what the decoder made, as soon as there is more than a bill.
    async fn hand_on(&mut self, events: Vec<ReplyEvent>) {
        for mut event in events {
            match &mut event {
                ReplyEvent::Usage(_) => {}
                ReplyEvent::Warning(warning) => *warning = self.provider.mask.hide(warning).into_owned(),
                _ => self.handed_on = true,
            }
            self.held.push(event);
        }
        if self.handed_on {
            self.outbox.put(&mut self.held).await;
        }
    }

    async fn warn(&mut self, warning: &str) {
        let warning = self.provider.mask.hide(warning).into_owned();
        self.warnings.push(warning.clone());
        self.outbox.put(&mut vec![ReplyEvent::Warning(warning)]).await;
    }
}

/// May a request be refused for the pictures, sounds or documents in it? Providers have many words for one that is broken, too
/// large, or one too many, and a conversation that holds it would be refused for ever.
fn may_be_for_media(error: &ProviderError) -> bool {
    let is_no = matches!(error.kind, ProviderErrorKind::InvalidRequest | ProviderErrorKind::TooLarge);
    error.is_media() || (is_no && error.tool.is_none() && !error.is_retryable())
}
