//! Legacy clients' event streams, which can be resumed with `Last-Event-ID`.
//!
//! See [Resumability](https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#resumability-and-redelivery). An
//! event id is the stream's sealed name and a plain sequence number, so that a restarted gateway can report which request is
//! lost.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::client::event_stream::{EventReader, EventStream};
use crate::client::seal::{KeyRing, SealKind};
use crate::client::{Client, ClientId};
use ropeway_core::sync::lock;

/// Maximum event bytes in all streams together.
const MAX_BYTES: usize = 64 << 20;

/// Maximum number of ended streams that are kept for one client.
const MAX_ENDED: usize = 64;

/// How long a stream without a reader is kept.
const KEPT_FOR: Duration = Duration::from_secs(5 * 60);

/// How long an event id can resume its stream, or name the lost request.
const TOKEN_LIFE: Duration = Duration::from_secs(60 * 60);

/// Minimum time between two searches for streams that are too old.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// Maximum `Last-Event-ID` length.
const MAX_EVENT_ID: usize = 4 << 10;

/// All legacy clients' event streams.
///
/// The table, a stream's writer and its reader share each stream. The table's lock comes before a stream's own lock, and is never
/// held across an `.await`. A stream that is removed here stays usable for the writer and reader that still hold it, but can no
/// longer be resumed.
pub(crate) struct Streams {
    keys: Arc<KeyRing>,
    /// Distinguishes this process from earlier ones.
    epoch: u64,
    bytes: Arc<AtomicUsize>,
    table: Mutex<Table>,
}

struct Table {
    next_number: u64,
    by_client: HashMap<ClientId, Vec<Arc<EventStream>>>,
    swept: Instant,
}

/// The result of [`Streams::resume`].
pub(crate) enum Resumed {
    /// The stream continues with the events that the client has missed.
    Found(EventReader),
    /// The events are lost. `request` identifies the request that the stream answered.
    Lost { request: Option<Box<RawValue>>, is_restarted: bool },
    /// The id does not name an event for this client.
    Unknown,
}

/// An event id's sealed content.
#[derive(Serialize, Deserialize)]
struct Token {
    stream: u64,
    /// Identifies the process.
    epoch: u64,
    /// The client's session, the only one that may use the id.
    session: Box<str>,
    /// The request that the stream answers, by id.
    request: Option<Box<RawValue>>,
}

impl Streams {
    pub(crate) fn new(keys: Arc<KeyRing>) -> Self {
        let table = Table { next_number: 1, by_client: HashMap::new(), swept: Instant::now() };
        Self { keys, epoch: fastrand::u64(..), bytes: Arc::default(), table: Mutex::new(table) }
    }

    /// Opens a stream: for a request's response, or the client's standalone stream, which replaces the previous one.
    ///
    /// A client has one request stream per call, and calls are limited. A stream never ends before its call.
    pub(crate) fn open(&self, client: &Client, request: Option<&RawValue>) -> Arc<EventStream> {
        self.trim();
        let mut table = lock(&self.table);
        let number = table.next_number;
        table.next_number += 1;
        let (session, request_id) = (client.session.clone(), request.map(ToOwned::to_owned));
        let token = Token { stream: number, epoch: self.epoch, session, request: request_id };
        let payload = serde_json::to_vec(&token).unwrap_or_default();
        let token = self.keys.seal(SealKind::Event, client.principal.id(), TOKEN_LIFE, &payload);
        let stream = Arc::new(EventStream::new(number, request.is_none(), token, Arc::clone(&self.bytes)));
        let streams = table.by_client.entry(client.id).or_default();
        if stream.is_standalone() {
            streams.iter().filter(|other| other.is_standalone()).for_each(|other| other.close());
        }
        let ended = streams.iter().filter(|other| other.has_ended()).count();
        let mut forgotten = ended.saturating_sub(MAX_ENDED);
        streams.retain(|other| {
            let is_forgotten = forgotten > 0 && other.has_ended();
            forgotten -= usize::from(is_forgotten);
            !is_forgotten
        });
        streams.push(Arc::clone(&stream));
        stream
    }

    /// Finds an event's stream and continues after the event. An ended standalone stream is reopened.
    pub(crate) fn resume(&self, client: &Client, last_event: &str) -> Resumed {
        let Some((token, sequence)) = last_event.rsplit_once('.').filter(|_| last_event.len() <= MAX_EVENT_ID) else {
            return Resumed::Unknown;
        };
        let payload = self.keys.open(SealKind::Event, client.principal.id(), token).ok();
        let token: Option<Token> = payload.and_then(|payload| serde_json::from_slice(&payload).ok());
        let token = token.filter(|token| token.session == client.session);
        let (Some(Token { stream: number, epoch, request, .. }), Ok(sequence)) = (token, sequence.parse::<u64>())
        else {
            return Resumed::Unknown;
        };
        if epoch != self.epoch {
            return Resumed::Lost { request, is_restarted: true };
        }
        let table = lock(&self.table);
        let streams = table.by_client.get(&client.id).map(Vec::as_slice).unwrap_or_default();
        let Some(stream) = streams.iter().find(|stream| stream.number() == number) else {
            return Resumed::Lost { request, is_restarted: false };
        };
        if stream.is_standalone() {
            let others = streams.iter().filter(|other| other.is_standalone() && other.number() != number);
            others.for_each(|other| other.close());
            stream.reopen();
        }
        Resumed::Found(stream.read_from(sequence.saturating_add(1)))
    }

    /// Ends a client's streams and drops their events.
    pub(crate) fn close_client(&self, client: ClientId) {
        let streams = lock(&self.table).by_client.remove(&client);
        streams.into_iter().flatten().for_each(|stream| stream.close());
    }

    /// Returns the number of streams that have a reader or may still get events.
    pub(crate) fn live(&self) -> usize {
        let table = lock(&self.table);
        table.by_client.values().flatten().filter(|stream| stream.is_live()).count()
    }

    /// Removes streams that went unread for too long, except those for running calls. While all streams together are too large,
    /// streams without a reader lose their events, ended ones first; an ended stream without events is removed.
    pub(crate) fn trim(&self) {
        let mut table = lock(&self.table);
        let now = Instant::now();
        if now.duration_since(table.swept) >= SWEEP_EVERY {
            table.swept = now;
            table.retain(|stream| stream.is_running() || !stream.is_unread_for(KEPT_FOR, now));
        }
        if self.bytes.load(Ordering::Relaxed) <= MAX_BYTES {
            return;
        }
        let unread = table.by_client.values().flatten().filter(|stream| !stream.has_reader());
        let mut unread: Vec<_> = unread.cloned().collect();
        unread.sort_by_key(|stream| (!stream.has_ended(), stream.number()));
        let is_full = |_: &&Arc<EventStream>| self.bytes.load(Ordering::Relaxed) > MAX_BYTES;
        unread.iter().take_while(is_full).for_each(|stream| stream.forget());
        table.retain(|stream| !stream.is_forgotten());
    }
}

impl Table {
    /// Keeps the streams that satisfy a condition.
    fn retain(&mut self, is_kept: impl Fn(&EventStream) -> bool) {
        self.by_client.retain(|_, streams| {
            streams.retain(|stream| is_kept(stream));
            !streams.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::client::{ClientDescription, Principal};
    use ropeway_mcp::protocol::Era;

    fn client(principal: &str) -> Client {
        let description =
            ClientDescription { version: "2025-11-25".into(), capabilities: "{}".into(), info: "{}".into() };
        Client::new(Era::Legacy, description, Principal::from(principal), "default".into(), None)
    }

    fn keys() -> Arc<KeyRing> {
        Arc::new(KeyRing::generate().unwrap())
    }

    fn id(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    async fn next(reader: &EventReader) -> Option<String> {
        let event = poll_fn(|cx| reader.poll_next(cx)).await?;
        Some(String::from_utf8_lossy(&event).into_owned())
    }

    /// Returns an event's id.
    fn id_of(event: &str) -> &str {
        event.strip_prefix("id: ").unwrap().split('\n').next().unwrap()
    }

    #[tokio::test]
    async fn a_stream_continues_after_the_last_event() {
        let (streams, client) = (Streams::new(keys()), client(""));
        let stream = streams.open(&client, Some(&id("7")));
        let reader = stream.read();
        assert!(stream.push(b"one") && stream.push(b"two"));
        let first = next(&reader).await.unwrap();
        drop(reader);
        let Resumed::Found(reader) = streams.resume(&client, id_of(&first)) else { panic!("the stream is lost") };
        assert!(next(&reader).await.unwrap().ends_with("data: two\n\n"));
    }

    #[tokio::test]
    async fn foreign_and_malformed_event_ids_are_unknown() {
        let (streams, owner) = (Streams::new(keys()), client("alice"));
        let stream = streams.open(&owner, None);
        stream.prime();
        let event = next(&stream.read()).await.unwrap();
        let resume = |client: &Client, id: &str| matches!(streams.resume(client, id), Resumed::Unknown);
        assert!(resume(&client("bob"), id_of(&event)));
        let mut other_session = client("alice");
        other_session.session = "other".into();
        assert!(resume(&other_session, id_of(&event)));
        for malformed in ["", ".", "x.1", "1", &format!("{}x", id_of(&event)), &"x.".repeat(5000)] {
            assert!(resume(&owner, malformed), "{malformed:.20}");
        }
    }

    #[tokio::test]
    async fn a_restarted_gateway_finds_the_request_that_was_lost() {
        let (keys, client) = (keys(), client(""));
        let before = Streams::new(Arc::clone(&keys));
        let stream = before.open(&client, Some(&id("\"r\"")));
        stream.prime();
        let event = next(&stream.read()).await.unwrap();
        let after = Streams::new(keys);
        let Resumed::Lost { request, is_restarted: true } = after.resume(&client, id_of(&event)) else {
            panic!("the event is unknown")
        };
        assert_eq!(request.unwrap().get(), "\"r\"");
    }

    #[tokio::test]
    async fn a_client_has_a_stream_for_each_of_its_calls() {
        let (streams, client) = (Streams::new(keys()), client(""));
        let standalone = streams.open(&client, None);
        let calls: Vec<_> = (0..100).map(|number| streams.open(&client, Some(&id(&number.to_string())))).collect();
        assert!(!standalone.has_ended() && calls.iter().all(|stream| !stream.has_ended()));
        assert_eq!(streams.live(), 101);
        streams.close_client(client.id);
        assert!(standalone.has_ended() && calls.iter().all(|stream| stream.has_ended()));
        assert_eq!(streams.live(), 0);
    }

    #[tokio::test]
    async fn an_ended_standalone_stream_is_opened_again() {
        let (streams, client) = (Streams::new(keys()), client(""));
        let first = streams.open(&client, None);
        first.prime();
        let event = next(&first.read()).await.unwrap();
        assert!(first.push(b"missed"));
        let second = streams.open(&client, None);
        assert!(first.has_ended());
        let Resumed::Found(reader) = streams.resume(&client, id_of(&event)) else { panic!("the stream is lost") };
        assert!(second.has_ended() && !first.has_ended(), "one standalone stream at a time");
        assert!(next(&reader).await.unwrap().ends_with("data: missed\n\n"));
        assert!(first.push(b"new"));
        assert!(next(&reader).await.unwrap().ends_with("data: new\n\n"));
    }

    #[tokio::test]
    async fn a_second_standalone_stream_replaces_the_first() {
        let (streams, client) = (Streams::new(keys()), client(""));
        let (request, first) = (streams.open(&client, Some(&id("1"))), streams.open(&client, None));
        let second = streams.open(&client, None);
        assert_eq!([request.has_ended(), first.has_ended(), second.has_ended()], [false, true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn events_without_a_reader_are_forgotten_after_a_while() {
        let (streams, client) = (Streams::new(keys()), client(""));
        let stream = streams.open(&client, Some(&id("1")));
        stream.prime();
        let reader = stream.read();
        let event = next(&reader).await.unwrap();
        stream.close();
        drop((stream, reader));
        assert!(streams.bytes.load(Ordering::Relaxed) > 0);
        tokio::time::advance(KEPT_FOR + SWEEP_EVERY).await;
        streams.trim();
        assert_eq!(streams.bytes.load(Ordering::Relaxed), 0);
        let lost = streams.resume(&client, id_of(&event));
        assert!(matches!(lost, Resumed::Lost { request: Some(_), is_restarted: false }));
    }

    #[tokio::test]
    async fn all_streams_together_are_bounded() {
        let streams = Streams::new(keys());
        let clients: Vec<Client> = (0..5).map(|_| client("")).collect();
        for client in &clients {
            let stream = streams.open(client, Some(&id("1")));
            assert!(stream.push(&vec![b'x'; MAX_BYTES / 4]));
            stream.close();
        }
        streams.trim();
        assert!(streams.bytes.load(Ordering::Relaxed) <= MAX_BYTES);
        assert!(!lock(&streams.table).by_client.contains_key(&clients[0].id), "the oldest goes first");
    }

    #[tokio::test(start_paused = true)]
    async fn a_running_call_keeps_its_stream_however_much_is_stored() {
        let (streams, owner) = (Streams::new(keys()), client(""));
        let running = streams.open(&owner, Some(&id("1")));
        assert!(running.push(&vec![b'x'; MAX_BYTES]) && running.push(b"last"));
        let ended = streams.open(&owner, Some(&id("2")));
        assert!(ended.push(b"x"));
        ended.close();
        let full = streams.open(&client(""), Some(&id("3")));
        assert!(full.push(&vec![b'x'; MAX_BYTES + 1]));
        let _reader = full.read();
        tokio::time::advance(KEPT_FOR + SWEEP_EVERY).await;
        streams.trim();
        assert!(!running.has_ended() && running.push(b"response"));
        running.close();
        let kept = lock(&streams.table).by_client[&owner.id].len();
        assert_eq!(kept, 1, "the ended stream is forgotten");
    }
}
