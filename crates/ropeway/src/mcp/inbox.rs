//! The inbox of a link: answers find their requests, everything else finds the host.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::answer::Answer;
use super::fault::{ConnectErrorKind, Fault, hidden};
use super::host::{Host, Reply};
use super::message_log;
use super::transport::Request;
use crate::event::Event;
use crate::json;
use crate::protocol::{self, FrameError, Incoming, Remains, RpcError};
use crate::sync::lock;
use crate::tool::{CallContext, Progress, TimeoutKind};
use crate::web::SseEvent;

/// How many bytes of the message of a progress notification are passed on.
const MOST_MESSAGE: usize = 16 << 10;

/// The two clocks of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    pub(crate) idle: Duration,
    pub(crate) deadline: Instant,
    pub(crate) started: Instant,
}

/// Where everything that a server sends on one link arrives.
#[derive(Debug)]
pub(crate) struct Inbox {
    host: Arc<Host>,
    next_id: AtomicU64,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    slots: HashMap<u64, Slot, BuildHasherDefault<CountHasher>>,
    standing: usize,
    /// How many callers wait, also those whose answer has come and who have not taken it yet.
    callers: usize,
    /// Set once the link is no more: no request can be opened then.
    lost: Option<Arc<ConnectErrorKind>>,
    /// The last error that named no request, while several were waiting.
    orphan: Option<(Instant, RpcError)>,
}

/// Our own numbers, one after the other, need no mixing to be spread evenly.
#[derive(Debug, Default)]
struct CountHasher(u64);

impl Hasher for CountHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The table looks at the high bits as well as the low ones.
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// A request that waits for its answer.
#[derive(Debug)]
struct Slot {
    answer: oneshot::Sender<Result<Answer, Fault>>,
    heard: Instant,
    progress: f64,
    cx: CallContext,
    standing: bool,
}

impl Open {
    fn insert(&mut self, id: u64, slot: Slot) {
        self.standing += usize::from(slot.standing);
        self.slots.insert(id, slot);
    }

    fn remove(&mut self, id: u64) -> Option<Slot> {
        let slot = self.slots.remove(&id)?;
        self.standing -= usize::from(slot.standing);
        Some(slot)
    }

    /// How many requests wait for an answer.
    fn waiting(&self) -> usize {
        self.slots.len() - self.standing
    }

    /// The only request that waits for an answer, if there is just one.
    fn only(&self) -> Option<u64> {
        if self.waiting() != 1 {
            return None;
        }
        self.slots.iter().find(|(_, slot)| !slot.standing).map(|(id, _)| *id)
    }
}

impl Inbox {
    pub(crate) fn new(host: Arc<Host>) -> Self {
        Self { host, next_id: AtomicU64::new(1), open: Mutex::default() }
    }

    pub(crate) fn host(&self) -> &Arc<Host> {
        &self.host
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        lock(&self.open)
    }

    /// Opens a slot for a request; its number is also its progress token.
    ///
    /// A standing request stays open by design: it does not count where it matters how many wait for an answer.
    pub(crate) fn expect(&self, cx: &CallContext, request: &Request<'_>) -> Result<Waiting<'_>, Fault> {
        let standing = request.standing;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        if let Some(trace) = request.trace {
            trace.span.record("jsonrpc.request.id", id);
        }
        let (answer, receiver) = oneshot::channel();
        let started = Instant::now();
        let slot = Slot { answer, heard: started, progress: f64::NEG_INFINITY, cx: cx.clone(), standing };
        let mut open = self.open();
        if let Some(cause) = &open.lost {
            return Err(Fault::Lost { started: false, cause: cause.clone() });
        }
        open.insert(id, slot);
        open.callers += usize::from(!standing);
        Ok(Waiting { inbox: self, id, started, answer: receiver, standing, alone: open.callers == 1 })
    }

    /// Does the request still wait for its answer?
    pub(crate) fn is_waiting(&self, id: u64) -> bool {
        self.open().slots.contains_key(&id)
    }

    /// Takes one text of the server: a message or a batch. What names no request belongs to `owner`, if there is one.
    pub(crate) fn receive(&self, text: &Bytes, reply: &Reply, owner: Option<u64>) -> Result<(), FrameError> {
        message_log::received(&self.host, text);
        if let Some((id, range)) = protocol::quick_answer(text) {
            self.settle(id, Ok(Answer::likely(text.slice(range), text.clone())));
            return Ok(());
        }
        // Of a batch each message is parsed by itself, and one that cannot be parsed is passed over.
        if text.trim_ascii_start().starts_with(b"[")
            && let Cow::Owned(repaired) = json::decodable(text)
        {
            return self.receive_messages(&repaired.into(), reply, owner);
        }
        match self.receive_messages(text, reply, owner) {
            Err(FrameError::NotJson(error)) => match json::repair(text) {
                Some(repaired) => {
                    if let Err(error) = std::str::from_utf8(text) {
                        self.host.warn(&format!("replaced invalid UTF-8 in a message: {error}"));
                    }
                    self.receive_messages(&repaired.into(), reply, owner)
                }
                None => Err(FrameError::NotJson(error)),
            },
            received => received,
        }
    }

    fn receive_messages(&self, text: &Bytes, reply: &Reply, owner: Option<u64>) -> Result<(), FrameError> {
        protocol::read(text, |message| match message {
            Incoming::Answer { id, outcome } => {
                let outcome = outcome.map(|raw| Answer::certain(text.slice_ref(raw.get().as_bytes())));
                match (id.or(owner), outcome) {
                    (Some(id), Ok(answer)) => self.settle(id, Ok(answer)),
                    (Some(id), Err(error)) => self.settle(id, Err(Fault::Refused(hidden(error, self.host.mask())))),
                    (None, Err(error)) => self.settle_orphan(hidden(error, self.host.mask())),
                    (None, Ok(_)) => self.host.warn("a result that names no request was passed over"),
                }
            }
            Incoming::Request { id, method, params } => self.host.asked(id, &method, params, reply),
            Incoming::Notification { method, params } => match &*method {
                "notifications/progress" => self.progress(params),
                _ => self.host.told(&method, params),
            },
        })
    }

    /// Takes one event of the server, unless it is empty.
    pub(crate) fn receive_event(&self, event: &SseEvent, reply: &Reply, owner: Option<u64>, limit: usize) {
        if let Some(ends) = &event.remains {
            return self.settle_broken(&Remains::from(ends.clone()), owner, Fault::TooLarge { limit });
        }
        if event.data.trim_ascii().is_empty() {
            return;
        }
        if let Err(malformed) = self.receive(&event.data, reply, owner) {
            self.host.warn(&format!("an event was passed over: {malformed}"));
        }
    }

    /// Hands an outcome to the request that waits for it. A second answer finds nobody.
    pub(crate) fn settle(&self, id: u64, outcome: Result<Answer, Fault>) {
        let slot = self.open().remove(id);
        match slot {
            // An error only says that the caller has gone.
            Some(slot) => drop(slot.answer.send(outcome)),
            None => {
                tracing::debug!(server = %self.host.alias(), "ignored an answer to request {id}, which is not pending")
            }
        }
    }

    /// An error without an id belongs to the only request there is; among several, it becomes a hint.
    pub(crate) fn settle_orphan(&self, error: RpcError) {
        let mut open = self.open();
        match open.only().and_then(|id| open.remove(id)) {
            Some(slot) => {
                drop(open);
                drop(slot.answer.send(Err(Fault::Refused(error))));
            }
            None => {
                open.orphan = Some((Instant::now(), error.clone()));
                drop(open);
                self.host.warn(&format!("an error that names no request: {error}"));
            }
        }
    }

    /// A message that could not be taken whole: fails the request that it answers, if that can be told.
    pub(crate) fn settle_broken(&self, remains: &Remains, owner: Option<u64>, fault: Fault) {
        self.host.warn(&format!("a message was passed over: {fault}"));
        if !remains.is_answer() {
            return;
        }
        if let Some(id) = remains.request_id().or(owner).or_else(|| self.open().only()) {
            self.settle(id, Err(fault));
        }
    }

    /// The link is no more: everything that waits fails now, everything later at once.
    pub(crate) fn lose(&self, cause: &Arc<ConnectErrorKind>) {
        let slots = {
            let mut open = self.open();
            if open.lost.is_none() {
                open.lost = Some(cause.clone());
            }
            open.standing = 0;
            std::mem::take(&mut open.slots)
        };
        for slot in slots.into_values() {
            drop(slot.answer.send(Err(Fault::Lost { started: true, cause: cause.clone() })));
        }
    }

    fn progress(&self, params: Option<&RawValue>) {
        let Some(params) = params.and_then(|raw| json::from_str::<Value>(raw.get()).ok()) else { return };
        let token = match &params["progressToken"] {
            Value::Number(token) => token.as_u64(),
            Value::String(token) => token.parse().ok(),
            _ => None,
        };
        let value = params["progress"].as_f64().unwrap_or_default();
        let cx = {
            let mut open = self.open();
            let Some(slot) = token.and_then(|token| open.slots.get_mut(&token)) else { return };
            slot.heard = Instant::now();
            // Progress never goes back: what is late is a sign of life and nothing else.
            if value <= slot.progress {
                return;
            }
            slot.progress = value;
            slot.cx.clone()
        };
        let progress = Progress {
            progress: value,
            total: params["total"].as_f64(),
            message: params["message"].as_str().map(|message| self.host.hide_part(message, MOST_MESSAGE)),
        };
        if self.host.events().heard() {
            self.host.tell_bounded(|| Event::Progress {
                server: self.host.alias().clone(),
                call: cx.id().clone(),
                progress: progress.clone(),
            });
        }
        // The listener is the host's; what it does must not end the reading.
        if catch_unwind(AssertUnwindSafe(|| cx.report(progress))).is_err() {
            self.host.warn("the listener of a call's progress panicked");
        }
    }

    fn heard(&self, id: u64) -> Option<Instant> {
        self.open().slots.get(&id).map(|slot| slot.heard)
    }
}

/// A request on its way. Dropping it closes its slot.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    inbox: &'a Inbox,
    id: u64,
    started: Instant,
    answer: oneshot::Receiver<Result<Answer, Fault>>,
    standing: bool,
    alone: bool,
}

impl Waiting<'_> {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// No other caller was waiting when this request was opened. One whose answer has come counts until it takes the
    /// answer: when many are answered at once, the first of them is not alone, and what they send next goes together.
    pub(crate) fn alone(&self) -> bool {
        self.alone
    }

    /// Waits for the answer, the cancel switch, or a clock.
    pub(crate) async fn answer(&mut self, cx: &CallContext, clocks: Clocks) -> Result<Answer, Fault> {
        let clock = tokio::time::sleep_until(clocks.deadline.min(self.started + clocks.idle));
        let mut clock = std::pin::pin!(clock);
        loop {
            tokio::select! {
                biased;
                answer = &mut self.answer => {
                    // The sender only goes without a word when the whole inbox goes.
                    let gone = || Fault::Lost { started: true, cause: Arc::new(ConnectErrorKind::Closed) };
                    return answer.unwrap_or_else(|_| Err(gone()));
                }
                () = cx.cancelled(), if cx.cancel().is_some() => return Err(Fault::Cancelled),
                () = &mut clock => {
                    let now = Instant::now();
                    let heard = self.inbox.heard(self.id).unwrap_or(self.started);
                    let heard = self.inbox.host.questions.waited_until().map_or(heard, |until| heard.max(until));
                    let orphan = || self.inbox.open().orphan.clone();
                    // What was said before this request was made is not about it.
                    let hint = || orphan().filter(|(at, _)| *at >= self.started).map(|(_, error)| error);
                    if now >= clocks.deadline {
                        return Err(Fault::Timeout { after: clocks.deadline - clocks.started, clock: TimeoutKind::Total, hint: hint() });
                    }
                    if now >= heard + clocks.idle {
                        return Err(Fault::Timeout { after: clocks.idle, clock: TimeoutKind::Idle, hint: hint() });
                    }
                    clock.as_mut().reset(clocks.deadline.min(heard + clocks.idle));
                }
            }
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut open = self.inbox.open();
        open.remove(self.id);
        open.callers -= usize::from(!self.standing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Events;
    use crate::mcp::host::Handlers;
    use crate::secret::Redactor;

    #[test]
    fn a_caller_counts_until_it_has_taken_its_answer() {
        let inbox =
            Inbox::new(Arc::new(Host::new("s".into(), Handlers::new(), Events::default(), Redactor::default())));
        let (cx, request) = (CallContext::default(), Request::new("ping", b"{}"));
        let open = || inbox.expect(&cx, &request).expect("a link that is there");
        let (first, second) = (open(), open());
        assert!(first.alone() && !second.alone());
        for waiting in [&first, &second] {
            inbox.settle(waiting.id(), Ok(Answer::certain(Bytes::from_static(b"{}"))));
        }
        drop(first);
        let third = open();
        assert!(!third.alone(), "the second has not taken its answer yet");
        drop((second, third));
        assert!(open().alone());
    }
}
