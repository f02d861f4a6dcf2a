//! One client on a pair of byte streams: JSON lines, many requests at a time.
//!
//! See [stdio](https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#stdio).

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::catalog::profile::Selector;
use crate::client::Client;
use crate::listener::line_io::{Line, LineReader, LineWriter};
use crate::listener::step::{Step, close_pipe, step, texts};
use crate::observe::RefusedRequest;
use crate::request::dispatch::{Caller, ClientRef, Dispatch, PipeClient, dispatch};
use crate::request::errors::ErrorReply;
use crate::request::exchange::{Exchange, Work};
use crate::request::reply::Reply;
use crate::shared::GatewayShared;

/// No message is read while the client has this many bytes to read.
const MAX_UNREAD: usize = 4 << 20;

/// Responses are collected up to this size before they are written. Requests in progress then wait as well.
const BATCH: usize = 16 << 10;

/// Time for the last responses to a client that has closed its output.
const LAST_WRITE: Duration = Duration::from_secs(1);

/// Answers a message that is not part of the protocol; `None` for all others.
pub(crate) type PrivateMethods<'a> = &'a (dyn Fn(&[u8]) -> Option<Reply> + Send + Sync);

/// One client, and the profile that it selects.
pub(crate) struct Pipe {
    pub(crate) shared: Arc<GatewayShared>,
    pub(crate) client: Arc<PipeClient>,
    pub(crate) selector: Selector,
}

impl Pipe {
    /// Serves the client until its input ends, its output fails, or the gateway stops. Requests in progress are cancelled then.
    pub(crate) async fn serve<R, W>(self, mut reader: LineReader<R>, output: W, private: PrivateMethods<'_>)
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let mut writer = LineWriter::new(output);
        let mut running = FuturesUnordered::new();
        let run = |exchange: Arc<Exchange>, work: Work| {
            let shared = Arc::clone(&self.shared);
            async move { (step(&shared, &exchange, work).await, exchange) }
        };
        loop {
            let legacy = self.client.legacy();
            let may_take = writer.len() < BATCH;
            tokio::select! {
                biased;
                Some((Step { messages, work }, exchange)) = running.next(), if may_take && !running.is_empty() => {
                    messages.into_iter().for_each(|message| writer.push(message));
                    if let Some(work) = work {
                        running.push(run(exchange, work));
                    }
                }
                frames = frames_of(legacy.as_deref()), if may_take => {
                    frames.into_iter().for_each(|message| writer.push(message));
                }
                written = writer.write(), if !writer.is_done() => {
                    if written.is_err() {
                        break;
                    }
                }
                // A client may send many requests before it reads the first response.
                line = reader.next(), if writer.len() < MAX_UNREAD => {
                    let Ok(Some(line)) = line else { break };
                    match self.receive(line, private) {
                        Dispatch::Accepted => {}
                        Dispatch::Done { reply, .. } | Dispatch::Opened { reply, .. } => writer.push(reply.into_bytes()),
                        Dispatch::Running { exchange, work } => running.push(run(exchange, work)),
                    }
                }
                () = self.shared.draining.cancelled(), if running.is_empty() => break,
            }
        }
        drop(running);
        close_pipe(&self.shared, &self.client);
        let _ = tokio::time::timeout(LAST_WRITE, writer.write()).await;
    }

    /// Counts a message that is refused before it is read, and adds it to the audit log.
    fn add_refused(&self, rule: &'static str) {
        self.shared.observer.add_refused_request(RefusedRequest::new(self.shared.auth.local(), rule));
    }

    fn receive(&self, line: Line, private: PrivateMethods<'_>) -> Dispatch {
        let text = match line {
            Line::Message(text) => text,
            Line::TooLong => {
                self.add_refused("body");
                let limit = self.shared.settings().limits.message;
                let error = ErrorReply::invalid_request(format!("the message exceeds {limit} bytes"));
                return Dispatch::Done { status: error.status, reply: Reply::error(None, &error) };
            }
            Line::NoRoom(error) => {
                self.add_refused(error.rule());
                let error = ErrorReply::over_share(error);
                return Dispatch::Done { status: error.status, reply: Reply::error(None, &error) };
            }
        };
        if let Some(reply) = private(&text) {
            return Dispatch::Done { status: 200, reply };
        }
        let client = ClientRef::Pipe(Arc::clone(&self.client));
        let principal = self.shared.auth.local().clone();
        let caller = Caller { client, selector: self.selector.clone(), principal, headers: None };
        dispatch(&self.shared, &caller, &text)
    }
}

/// Waits for frames that belong to no request.
async fn frames_of(client: Option<&Client>) -> Vec<Bytes> {
    let Some(client) = client else { return pending().await };
    client.outbound.ready().await;
    texts(client.outbound.take())
}
