//! Legacy HTTP+SSE (2024-11-05): messages go out as POSTs, everything comes in on one event stream.

use std::sync::{Arc, Weak};
use std::time::Duration;

use reqwest::Url;

use super::Request;
use super::cancel::CancelOnDrop;
use super::errands::Errands;
use super::loss::Loss;
use super::outgoing::{Messenger, Outgoing, mention, reply};
use super::web::{Body, Events, Web};
use crate::config::HttpServer;
use crate::mcp::answer::Answer;
use crate::mcp::fault::{ConnectErrorKind, Fault};
use crate::mcp::host::{Host, Reply};
use crate::mcp::inbox::{Clocks, Inbox};
use crate::mcp::message_log;
use crate::tool::CallContext;

/// How long the server may take to say where messages go.
const ENDPOINT: Duration = Duration::from_secs(10);

/// The longest endpoint that is a URL.
const LONGEST_ENDPOINT: usize = 8 << 10;

/// A link over legacy HTTP+SSE.
#[derive(Debug)]
pub(crate) struct Sse {
    this: Weak<Self>,
    inbox: Arc<Inbox>,
    web: Web,
    /// Where messages go.
    endpoint: Url,
    lost: Loss,
    errands: Errands,
    outgoing: Outgoing,
}

impl Sse {
    /// Opens the stream and waits to hear where messages go.
    pub(crate) async fn open(
        server: &HttpServer,
        inbox: Arc<Inbox>,
        limit: usize,
    ) -> Result<Arc<Self>, Arc<ConnectErrorKind>> {
        let web = Web::new(server, limit, inbox.host().mask().clone())?;
        let response = web.get().send().await.map_err(|error| web.broken(error))?;
        if !response.status().is_success() {
            return Err(web.refused(response).await.into_fault().into_connect_error());
        }
        let opening = async {
            let Body::Events(mut events) = web.body(response).await.map_err(Fault::into_connect_error)? else {
                return Err(protocol_error("the server opened no event stream"));
            };
            while let Some(event) = events.next().await.map_err(Fault::into_connect_error)? {
                if event.event.as_deref() == Some("endpoint") {
                    return Ok((endpoint(&web.url, &event.data)?, events));
                }
            }
            Err(Arc::new(ConnectErrorKind::Hangup { said: None }))
        };
        let (endpoint, events) = tokio::time::timeout(ENDPOINT, opening)
            .await
            .map_err(|_| Arc::new(ConnectErrorKind::Timeout { after: ENDPOINT, said: None }))??;
        let link = Arc::new_cyclic(|this| Self {
            this: this.clone(),
            inbox,
            web,
            endpoint,
            lost: Loss::default(),
            errands: Errands::default(),
            outgoing: Outgoing::default(),
        });
        let reply = reply(&link.this);
        link.errands.run(read(link.this.clone(), link.inbox.clone(), reply, events, limit));
        Ok(link)
    }

    fn lose(&self, cause: Arc<ConnectErrorKind>) {
        self.inbox.lose(&cause);
        self.retire(cause);
    }

    /// The link cannot be used any more; what is under way on it may still end well.
    fn retire(&self, cause: Arc<ConnectErrorKind>) {
        self.lost.set(cause);
    }

    pub(crate) async fn request(
        &self,
        request: &Request<'_>,
        cx: &CallContext,
        clocks: Clocks,
    ) -> Result<Answer, Fault> {
        let mut waiting = self.inbox.expect(cx, request)?;
        let id = waiting.id();
        let message = request.encode(id, cx);
        let cancel = CancelOnDrop::new(id, request.cancellable, |message| mention(&self.this, message));
        let posted = async {
            match self.notify(message).await {
                // The answer comes on the stream.
                Ok(()) => std::future::pending().await,
                Err(fault) => fault,
            }
        };
        let outcome = tokio::select! {
            biased;
            outcome = waiting.answer(cx, clocks) => outcome,
            fault = posted => Err(fault),
        };
        cancel.settle(&outcome);
        outcome
    }

    pub(crate) async fn lost(&self) -> Arc<ConnectErrorKind> {
        self.lost.wait().await
    }

    pub(crate) fn close(&self) {
        self.lose(Arc::new(ConnectErrorKind::Closed));
        self.errands.stop();
    }
}

impl Messenger for Sse {
    fn errands(&self) -> &Errands {
        &self.errands
    }

    fn outgoing(&self) -> &Outgoing {
        &self.outgoing
    }

    fn host(&self) -> &Arc<Host> {
        self.inbox.host()
    }

    async fn notify(&self, message: Vec<u8>) -> Result<(), Fault> {
        message_log::sent(self.inbox.host(), &message);
        let sent = self.web.post(self.endpoint.clone(), message.into()).send().await;
        let response = match sent {
            Ok(response) => response,
            Err(error) => {
                let started = !error.is_connect();
                let cause = Arc::new(self.web.broken(error));
                if !started {
                    self.lose(cause.clone());
                }
                return Err(Fault::Lost { started, cause });
            }
        };
        if response.status().is_success() {
            return Ok(());
        }
        let refused = self.web.refused(response).await;
        message_log::refused(self.inbox.host(), refused.status.as_u16(), &refused.body);
        let fault = refused.into_fault();
        if let Fault::Lost { started: false, cause } = &fault {
            self.retire(cause.clone());
        }
        Err(fault)
    }
}

fn protocol_error(what: &str) -> Arc<ConnectErrorKind> {
    Arc::new(ConnectErrorKind::Protocol(what.to_owned()))
}

/// Where messages go: on the origin of the stream, or nowhere.
fn endpoint(stream: &Url, data: &[u8]) -> Result<Url, Arc<ConnectErrorKind>> {
    if data.len() > LONGEST_ENDPOINT {
        return Err(protocol_error("the server named an endpoint that is too long"));
    }
    let text = String::from_utf8_lossy(data);
    let url = stream.join(text.trim()).map_err(|_| protocol_error("the server named an endpoint that is no URL"))?;
    if url.origin() != stream.origin() {
        return Err(protocol_error("the server named an endpoint on another origin"));
    }
    Ok(url)
}

async fn read(link: Weak<Sse>, inbox: Arc<Inbox>, reply: Reply, mut events: Box<Events>, limit: usize) {
    let cause = loop {
        match events.next().await {
            Ok(Some(event)) if matches!(event.event.as_deref(), None | Some("message")) => {
                inbox.receive_event(&event, &reply, None, limit);
            }
            Ok(Some(_)) => {}
            Ok(None) => break Arc::new(ConnectErrorKind::Hangup { said: None }),
            Err(fault) => break fault.into_connect_error(),
        }
    };
    if let Some(link) = link.upgrade() {
        link.lose(cause);
    }
}
