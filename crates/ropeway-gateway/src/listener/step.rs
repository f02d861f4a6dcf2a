//! Messages for a request in progress, for every kind of listener.

use std::sync::Arc;

use bytes::Bytes;

use crate::client::outbound::Frame;
use crate::request::dispatch::PipeClient;
use crate::request::exchange::{Exchange, Next, Work, next};
use crate::shared::GatewayShared;

/// The next messages for one client request.
pub(crate) struct Step {
    /// Messages in the order in which they have to be sent.
    pub(crate) messages: Vec<Bytes>,
    /// The work, unless the last message is the response.
    pub(crate) work: Option<Work>,
}

/// Waits for a request's next messages. Dropping the future cancels the request.
pub(crate) async fn step(shared: &Arc<GatewayShared>, exchange: &Arc<Exchange>, mut work: Work) -> Step {
    match next(exchange, &mut work).await {
        Next::Frames(frames) => Step { messages: texts(frames), work: Some(work) },
        Next::ServerRequests(asked) => {
            let reply = shared.parked.park(Arc::clone(exchange), work, asked);
            Step { messages: vec![reply.into_bytes()], work: None }
        }
        Next::Outcome(outcome) => {
            // Frames that arrived together with the response belong before it.
            let mut messages = texts(exchange.outbound.take());
            let reply = outcome.into_reply(&exchange.id(), exchange.client.era);
            messages.extend(reply.map(|(_, reply)| reply.into_bytes()));
            Step { messages, work: None }
        }
    }
}

/// Releases a client's resources on a pipe, because the pipe is closed.
pub(crate) fn close_pipe(shared: &GatewayShared, pipe: &PipeClient) {
    for client in pipe.close() {
        shared.forget(&client);
    }
    shared.parked.close_of(pipe.requests());
}

/// Returns the frames' texts.
pub(crate) fn texts(frames: Vec<Frame>) -> Vec<Bytes> {
    frames.into_iter().map(|frame| frame.text).collect()
}
