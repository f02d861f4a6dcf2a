//! An HTTP session's streams.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::sync::mpsc;

use crate::action::Action;
use crate::driver::Driver;

/// A session and its streams.
pub(super) struct HttpSession {
    pub(super) driver: Arc<Driver>,
    pub(super) streams: Arc<Mutex<SessionStreams>>,
}

/// Routes a session's messages to its streams.
#[derive(Default)]
pub(super) struct SessionStreams {
    requests: HashMap<String, mpsc::UnboundedSender<Action>>,
    /// The GET stream, or legacy HTTP+SSE's only stream.
    general: Option<mpsc::UnboundedSender<Action>>,
    /// Actions for `general` while it is not open.
    backlog: Vec<Action>,
}

impl SessionStreams {
    pub(super) fn route(&mut self, action: Action) {
        match action {
            Action::Done { to } => {
                if let Some(stream) = self.requests.remove(&to.to_string()) {
                    let _ = stream.send(Action::Done { to });
                }
            }
            Action::CloseOutput => *self = Self::default(),
            Action::Send { to: Some(ref to), .. } | Action::Raw { to: Some(ref to), .. } => {
                match self.requests.get(&to.to_string()) {
                    // Messages on a stream without a reader are lost.
                    Some(stream) => drop(stream.send(action)),
                    None => self.send_general(action),
                }
            }
            action => self.send_general(action),
        }
    }

    pub(super) fn send_general(&mut self, action: Action) {
        let unsaid = match &self.general {
            Some(stream) => stream.send(action).err().map(|unsaid| unsaid.0),
            None => Some(action),
        };
        self.backlog.extend(unsaid);
    }

    pub(super) fn open_general(&mut self) -> mpsc::UnboundedReceiver<Action> {
        let (sender, receiver) = mpsc::unbounded_channel();
        for action in self.backlog.drain(..) {
            let _ = sender.send(action);
        }
        self.general = Some(sender);
        receiver
    }

    pub(super) fn register(&mut self, id: &Value) -> mpsc::UnboundedReceiver<Action> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.requests.insert(id.to_string(), sender);
        receiver
    }
}

/// An event stream, with its pending actions and its position.
pub(super) struct SseStream {
    pub(super) name: String,
    pub(super) events: u64,
    pub(super) actions: mpsc::UnboundedReceiver<Action>,
}

/// Why writing an event stream ended.
pub(super) enum StreamEnd {
    /// Everything was sent.
    Ended,
    /// The client disconnected.
    Disconnected,
    /// The stream was cut before its end.
    Cut,
}
