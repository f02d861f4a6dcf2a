//! JSON lines over a pair of byte streams: a child's pipes, or a pipe inside this process.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::cancel::CancelOnDrop;
use super::stdio::{ChildGroup, Stderr};
use super::{Request, loss};
use crate::mcp::answer::Answer;
use crate::mcp::fault::{ConnectErrorKind, Fault};
use crate::mcp::host::{Host, Reply, ReplyPath};
use crate::mcp::inbox::{Clocks, Inbox};
use crate::mcp::message_log;
use crate::protocol::{self, Remains};
use crate::sync::lock;
use crate::tool::CallContext;

/// What one read asks for at least.
const CHUNK: usize = 64 << 10;

/// How much is taken in before others get their turn.
const TURN: usize = 256 << 10;

/// A read buffer that has grown past this is let go once it is empty.
const KEEP: usize = 1 << 20;

/// How many messages are gathered before they are written from where the last one came: few enough that the server
/// has work while more are made, and enough to spare it a wake-up for each.
const GATHER: usize = 16;

/// How many bytes may wait for a server that does not read; one message may be larger.
const BACKLOG: usize = 64 << 20;

/// How many bytes may wait before replies to the server's own requests are dropped. All messages wait in one buffer, so
/// their number costs nothing.
const REPLY_BACKLOG: usize = 1 << 20;

/// How much of a line that is no message is looked at to tell what it says.
const NOISE: usize = 16 << 10;

/// How long a child that has hung up is waited for, to learn how it ended.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// A link of JSON lines.
pub(crate) struct Lines {
    inbox: Arc<Inbox>,
    outbox: Arc<Mutex<Outbox>>,
    lost: watch::Receiver<Option<Arc<ConnectErrorKind>>>,
    closing: mpsc::UnboundedSender<Ending>,
    keeper: JoinHandle<()>,
    stderr: Option<Arc<Stderr>>,
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lines")
    }
}

/// Why a link is ended from our side.
enum Ending {
    /// Its owner closes it; the child has this long to end by itself.
    Closed(Duration),
    /// The server does not take in what we say.
    Deaf,
}

type Reader = Box<dyn AsyncRead + Send + Unpin>;
type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// What waits to be written. Callers write from where they stand; what does not fit at once is left to the pump.
struct Outbox {
    writer: Option<Writer>,
    waiting: Vec<u8>,
    written: usize,
    /// How many messages wait.
    gathered: usize,
    pump: Option<Waker>,
    /// How far the writing had come when it failed.
    failed_at: usize,
}

impl Outbox {
    /// How many bytes wait.
    fn backlog(&self) -> usize {
        self.waiting.len() - self.written
    }

    /// Writes as much as can be written now. An error ends the writing for good.
    fn flush(&mut self, cx: &mut Context<'_>) {
        while self.written < self.waiting.len() {
            let Some(writer) = &mut self.writer else { break };
            match Pin::new(writer).poll_write(cx, &self.waiting[self.written..]) {
                Poll::Ready(Ok(count)) if count > 0 => self.written += count,
                Poll::Ready(_) => {
                    self.writer = None;
                    self.failed_at = self.written;
                }
                Poll::Pending => return,
            }
        }
        self.waiting.clear();
        self.written = 0;
        self.gathered = 0;
        if self.waiting.capacity() > KEEP {
            self.waiting = Vec::new();
        }
    }
}

impl Lines {
    /// Starts to read and write.
    pub(crate) fn start(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        inbox: Arc<Inbox>,
        limit: usize,
        child: Option<(ChildGroup, Arc<Stderr>)>,
    ) -> Arc<Self> {
        let outbox = Outbox {
            writer: Some(Box::new(writer)),
            waiting: Vec::new(),
            written: 0,
            gathered: 0,
            pump: None,
            failed_at: 0,
        };
        let outbox = Arc::new(Mutex::new(outbox));
        let (lost_sender, lost) = watch::channel(None);
        let (closing, closed) = mpsc::unbounded_channel();
        let (child, stderr) = child.unzip();
        let pump = Pump {
            reader: Box::new(reader),
            buffer: BytesMut::with_capacity(CHUNK),
            searched: 0,
            skipping: None,
            limit,
            inbox: inbox.clone(),
            reply: Arc::new(WayBack { outbox: Arc::downgrade(&outbox), host: inbox.host().clone() }),
            outbox: outbox.clone(),
        };
        let keeper =
            Keeper { inbox: inbox.clone(), outbox: outbox.clone(), child, stderr: stderr.clone(), lost: lost_sender };
        let keeper = tokio::spawn(keeper.run(pump, closed));
        Arc::new(Self { inbox, outbox, lost, closing, keeper, stderr })
    }

    pub(crate) fn stderr(&self) -> Option<&Arc<Stderr>> {
        self.stderr.as_ref()
    }

    pub(crate) async fn request(
        &self,
        request: &Request<'_>,
        cx: &CallContext,
        clocks: Clocks,
    ) -> Result<Answer, Fault> {
        let mut waiting = self.inbox.expect(cx, request)?;
        let cancel = CancelOnDrop::new(waiting.id(), request.cancellable, |message| drop(self.send(message, true)));
        if let Err(fault) = self.send(request.encode(waiting.id(), cx), waiting.alone()) {
            cancel.disarm();
            return Err(fault);
        }
        let outcome = waiting.answer(cx, clocks).await;
        cancel.settle(&outcome);
        outcome
    }

    /// Sends one message. `now` writes from here; otherwise the pump writes what has gathered in one go.
    pub(crate) fn send(&self, message: Vec<u8>, now: bool) -> Result<(), Fault> {
        message_log::sent(self.inbox.host(), &message);
        let sent = send(&self.outbox, message, now);
        sent.map_err(|NotSent { started, cause }| {
            // A server that does not listen is as good as gone; who is already lost has a better reason.
            let _ = self.closing.send(Ending::Deaf);
            let cause = self.lost.borrow().clone().unwrap_or_else(|| Arc::new(cause));
            Fault::Lost { started, cause }
        })
    }

    pub(crate) async fn lost(&self) -> Arc<ConnectErrorKind> {
        loss::wait(self.lost.clone()).await
    }

    pub(crate) async fn close(&self, patience: Duration) {
        let _ = self.closing.send(Ending::Closed(patience));
        // The keeper drops the sender when all is over.
        let mut lost = self.lost.clone();
        while lost.changed().await.is_ok() {}
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// Why a message was not sent.
struct NotSent {
    /// A part of it was written: the server may have read all but the end of its line.
    started: bool,
    cause: ConnectErrorKind,
}

impl NotSent {
    fn hung_up(started: bool) -> Self {
        Self { started, cause: ConnectErrorKind::Hangup { said: None } }
    }
}

fn send(outbox: &Mutex<Outbox>, mut message: Vec<u8>, now: bool) -> Result<(), NotSent> {
    message.push(b'\n');
    let mut outbox = lock(outbox);
    if outbox.writer.is_none() {
        return Err(NotSent::hung_up(false));
    }
    let idle = outbox.waiting.is_empty();
    if outbox.written > outbox.waiting.len() / 2 {
        // What is written is done with, also while more keeps coming.
        let written = std::mem::take(&mut outbox.written);
        outbox.waiting.drain(..written);
    }
    if outbox.backlog() + message.len() > BACKLOG.max(message.len()) {
        let cause = ConnectErrorKind::Broken("the server does not read its input".into());
        return Err(NotSent { started: false, cause });
    }
    let start = outbox.waiting.len();
    if idle {
        outbox.waiting = message;
    } else {
        outbox.waiting.extend_from_slice(&message);
    }
    outbox.gathered += 1;
    if (now && idle) || outbox.gathered == GATHER {
        outbox.flush(&mut Context::from_waker(Waker::noop()));
        if outbox.writer.is_none() {
            return Err(NotSent::hung_up(outbox.failed_at > start));
        }
    }
    // What is left is the pump's: it takes its place at the pipe again, in case it was taken from here.
    if !outbox.waiting.is_empty()
        && let Some(pump) = &outbox.pump
    {
        pump.wake_by_ref();
    }
    Ok(())
}

/// A way back to the server for answers to its requests.
struct WayBack {
    outbox: Weak<Mutex<Outbox>>,
    host: Arc<Host>,
}

impl ReplyPath for WayBack {
    fn has_room(&self) -> bool {
        self.outbox.upgrade().is_some_and(|outbox| lock(&outbox).backlog() < REPLY_BACKLOG)
    }

    fn send(&self, message: Vec<u8>) {
        let Some(outbox) = self.outbox.upgrade() else { return };
        // A handler may have taken so long that there was room before it began, and is none now.
        let backlog = lock(&outbox).backlog();
        if backlog > 0 && backlog + message.len() > BACKLOG / 2 {
            return self.host.drop_reply();
        }
        message_log::sent(&self.host, &message);
        // A link that is no more needs no answer.
        let _ = send(&outbox, message, true);
    }
}

/// Reads lines and hands them to the inbox; writes what callers left behind.
struct Pump {
    reader: Reader,
    buffer: BytesMut,
    /// How far the buffer holds no newline.
    searched: usize,
    skipping: Option<Remains>,
    limit: usize,
    inbox: Arc<Inbox>,
    reply: Reply,
    outbox: Arc<Mutex<Outbox>>,
}

impl Pump {
    /// Runs until the server's output ends; gives the error that ended it, if it was one.
    async fn run(mut self) -> Option<std::io::Error> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<std::io::Error>> {
        let deaf = {
            let mut outbox = lock(&self.outbox);
            match &mut outbox.pump {
                Some(pump) => pump.clone_from(cx.waker()),
                pump => *pump = Some(cx.waker().clone()),
            }
            outbox.flush(cx);
            outbox.writer.is_none()
        };
        let mut taken = 0;
        loop {
            if taken >= TURN {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.make_room();
            let read = pin!(self.reader.read_buf(&mut self.buffer)).poll(cx);
            match read {
                // Nobody takes in what we say, and all that was answered is read.
                Poll::Pending if deaf => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => {
                    // A last line need not end in a newline; one that breaks off is part of the loss.
                    let rest = self.buffer.split().freeze();
                    let _ = self.inbox.receive(&rest, &self.reply, None);
                    return Poll::Ready(None);
                }
                Poll::Ready(Ok(count)) => {
                    taken += count;
                    self.lines();
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Some(error)),
            }
        }
    }

    fn make_room(&mut self) {
        if self.buffer.is_empty() && self.buffer.capacity() > KEEP {
            self.buffer = BytesMut::with_capacity(CHUNK);
        }
        if self.buffer.capacity() - self.buffer.len() < CHUNK / 8 {
            // Doubling, so that a long line is copied a few times and not once for each read.
            self.buffer.reserve(CHUNK.max(self.buffer.len()));
        }
    }

    /// Takes all complete lines out of the buffer.
    fn lines(&mut self) {
        while let Some(end) = memchr::memchr(b'\n', &self.buffer[self.searched..]) {
            let line = self.buffer.split_to(self.searched + end + 1).freeze();
            self.searched = 0;
            self.line(line.slice(..line.len() - 1));
        }
        self.searched = self.buffer.len();
        if self.buffer.len() > self.limit || self.skipping.is_some() {
            self.skipping.get_or_insert_default().take(&self.buffer);
            self.buffer.clear();
            self.searched = 0;
        }
    }

    fn line(&mut self, line: Bytes) {
        if let Some(mut skipped) = self.skipping.take() {
            skipped.take(&line);
            return self.inbox.settle_broken(&skipped, None, Fault::TooLarge { limit: self.limit });
        }
        if line.len() > self.limit {
            return self.inbox.settle_broken(&Remains::of(&line), None, Fault::TooLarge { limit: self.limit });
        }
        let line = match line.strip_prefix(b"\xEF\xBB\xBF") {
            Some(bare) => line.slice_ref(bare),
            None => line,
        };
        let bare = line.trim_ascii();
        if bare.is_empty() {
            return;
        }
        if let Err(malformed) = self.inbox.receive(&line, &self.reply, None) {
            self.odd(&line, bare.first() == Some(&b'{'), &malformed);
        }
    }

    /// A line that is no message: noise, unless it looks like the answer that somebody waits for.
    #[cold]
    fn odd(&mut self, line: &Bytes, looks_like_json: bool, malformed: &protocol::FrameError) {
        let remains = Remains::of(line);
        let is_json = !matches!(malformed, protocol::FrameError::NotJson(_));
        if looks_like_json && !is_json && remains.request_id().is_some() {
            return self.inbox.settle_broken(
                &remains,
                None,
                Fault::Unreadable(self.inbox.host().hide(&cause(malformed))),
            );
        }
        self.inbox.host().count_noise();
        // Hidden before it is cut: half a secret would not be found.
        let text = self.inbox.host().hide(&String::from_utf8_lossy(&line[..line.len().min(NOISE)]));
        let text: String = text.chars().take(200).collect();
        tracing::debug!(server = %self.inbox.host().alias(), "noise on stdout: {text}");
    }
}

fn cause(malformed: &protocol::FrameError) -> String {
    match malformed {
        protocol::FrameError::NotJson(error) => error.to_string(),
        protocol::FrameError::NotRpc => malformed.to_string(),
    }
}

/// Keeps the link: notices its end, tells everybody, and ends the child.
struct Keeper {
    inbox: Arc<Inbox>,
    outbox: Arc<Mutex<Outbox>>,
    child: Option<ChildGroup>,
    stderr: Option<Arc<Stderr>>,
    lost: watch::Sender<Option<Arc<ConnectErrorKind>>>,
}

/// Ends a task when its owner goes.
struct Owned<T>(JoinHandle<T>);

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Keeper {
    async fn run(mut self, pump: Pump, mut closing: mpsc::UnboundedReceiver<Ending>) {
        let mut pump = Owned(tokio::spawn(pump.run()));
        let mut patience = None;
        let cause = tokio::select! {
            ended = &mut pump.0 => self.hung_up(ended.ok().flatten()).await,
            status = exited(&mut self.child) => {
                // Its last answers may still be in the pipe, which a grandchild may hold open.
                let _ = tokio::time::timeout(LAST_WORDS, &mut pump.0).await;
                ConnectErrorKind::Exited { status, said: self.said().await }
            }
            ending = closing.recv() => match ending {
                Some(Ending::Deaf) => self.hung_up(None).await,
                Some(Ending::Closed(given)) => {
                    patience = Some(given);
                    ConnectErrorKind::Closed
                }
                None => ConnectErrorKind::Closed,
            },
        };
        let cause = Arc::new(cause);
        // The server's input ends here: the mildest way to ask it to go.
        lock(&self.outbox).writer = None;
        self.inbox.lose(&cause);
        self.lost.send_replace(Some(cause));
        if let Some(child) = &mut self.child {
            // Whoever closes a link that is lost already may be in a greater hurry than we are.
            child.end(patience.unwrap_or(Duration::from_millis(500))).await;
        }
        if let Some(stderr) = &self.stderr {
            stderr.stop();
        }
    }

    async fn hung_up(&mut self, error: Option<std::io::Error>) -> ConnectErrorKind {
        if let Some(error) = error {
            return ConnectErrorKind::Broken(Box::new(error));
        }
        if self.child.is_none() {
            return ConnectErrorKind::Hangup { said: None };
        }
        match tokio::time::timeout(LAST_WORDS, exited(&mut self.child)).await {
            Ok(status) => ConnectErrorKind::Exited { status, said: self.said().await },
            Err(_) => ConnectErrorKind::Hangup { said: self.said().await },
        }
    }

    /// The line on stderr that says why the child failed, which may come a little after the end.
    async fn said(&self) -> Option<String> {
        match &self.stderr {
            Some(stderr) => stderr.reason().await,
            None => None,
        }
    }
}

/// Waits for the child to end; for ever when there is none.
async fn exited(child: &mut Option<ChildGroup>) -> String {
    match child {
        Some(child) => child.exited().await,
        None => std::future::pending().await,
    }
}
