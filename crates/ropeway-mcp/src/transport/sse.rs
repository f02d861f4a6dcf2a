//! HTTP+SSE (2024-11-05): messages are sent as POSTs, and all responses arrive on one event stream.
//!
//! See [HTTP with SSE](https://modelcontextprotocol.io/specification/2024-11-05/basic/transports#http-with-sse).

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use reqwest::{Method, Url};

use super::authorized::{Target, waiting};
use super::background_tasks::BackgroundTasks;
use super::cancel::CancelOnDrop;
use super::disconnect::DisconnectReason;
use super::http::authorize;
use super::http_client::{HttpClient, ResponseBody, SseStream};
use super::outgoing::{Notifier, OutgoingQueue, reply_sender, send_later};
use crate::error::{ConnectErrorKind, RequestError};
use crate::host::{Host, ReplySender};
use crate::message_log;
use crate::oauth::{Access, Waiting};
use crate::pending::PendingRequests;
use crate::raw_response::RequestResult;
use crate::request::Request;
use ropeway_config::HttpServer;

/// Timeout for the `endpoint` event.
const ENDPOINT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum endpoint URL size.
const MAX_ENDPOINT_BYTES: usize = 8 << 10;

/// A link over HTTP+SSE.
#[derive(Debug)]
pub(crate) struct Sse {
    this: Weak<Self>,
    pending: Arc<PendingRequests>,
    client: HttpClient,
    /// The URL that messages are sent to.
    endpoint: Url,
    disconnected: DisconnectReason,
    tasks: BackgroundTasks,
    outgoing: OutgoingQueue,
}

impl Sse {
    /// Opens the stream and waits for the `endpoint` event.
    pub(crate) async fn open(
        server: &HttpServer,
        pending: Arc<PendingRequests>,
        limit: usize,
    ) -> Result<Arc<Self>, Arc<ConnectErrorKind>> {
        let client = HttpClient::new(server, limit, pending.host())?;
        let target = Target {
            method: Method::GET,
            url: &client.url,
            host: pending.host(),
            waiting: Waiting::Background,
            pending: None,
        };
        let get = |access: Option<Access>| {
            let sending = authorize(client.get(), access.as_ref()).send();
            async { sending.await.map_err(|error| RequestError::disconnected(false, client.connect_error(error))) }
        };
        let response = client.send_authorized(target, get).await.map_err(RequestError::into_connect_error)?;
        if !response.status().is_success() {
            return Err(client.error_response(response).await.into_request_error().into_connect_error());
        }
        let opening = async {
            let ResponseBody::Events(mut events) =
                client.body(response).await.map_err(RequestError::into_connect_error)?
            else {
                return Err(protocol_error("the response is not an event stream"));
            };
            while let Some(event) = events.next().await.map_err(RequestError::into_connect_error)? {
                if event.event.as_deref() == Some("endpoint") {
                    return Ok((endpoint(&client.url, &event.data)?, events));
                }
            }
            Err(Arc::new(ConnectErrorKind::Hangup { said: None }))
        };
        let (endpoint, events) = tokio::time::timeout(ENDPOINT_TIMEOUT, opening)
            .await
            .map_err(|_| Arc::new(ConnectErrorKind::Timeout { after: ENDPOINT_TIMEOUT, said: None }))??;
        let link = Arc::new_cyclic(|this| Self {
            this: this.clone(),
            pending,
            client,
            endpoint,
            disconnected: DisconnectReason::default(),
            tasks: BackgroundTasks::default(),
            outgoing: OutgoingQueue::default(),
        });
        let reply = reply_sender(&link.this);
        link.tasks.spawn(read(link.this.clone(), link.pending.clone(), reply, events, limit));
        Ok(link)
    }

    fn disconnect(&self, cause: Arc<ConnectErrorKind>) {
        self.pending.fail_all(&cause);
        self.retire(cause);
    }

    /// Marks the link as closed for new requests. Pending ones may still succeed.
    fn retire(&self, cause: Arc<ConnectErrorKind>) {
        self.disconnected.set(cause);
    }

    pub(crate) async fn request(&self, request: &Request<'_>) -> RequestResult {
        let mut receiver = self.pending.register(request)?;
        let id = receiver.id();
        let message = request.encode(id);
        let cancel = CancelOnDrop::new(id, request.cancellable, |message| send_later(&self.this, message));
        let posted = async {
            match self.post(message.into(), waiting(request), Some(id)).await {
                // The response arrives on the stream.
                Ok(()) => std::future::pending().await,
                Err(error) => error,
            }
        };
        let outcome = tokio::select! {
            biased;
            outcome = receiver.recv(request) => outcome,
            error = posted => Err(error),
        };
        cancel.finish(&outcome);
        outcome
    }

    /// Sends a message. `id` is its pending request's id, if it has one.
    async fn post(&self, message: Bytes, waiting: Waiting, id: Option<u64>) -> Result<(), RequestError> {
        let target = Target {
            method: Method::POST,
            url: &self.endpoint,
            host: self.pending.host(),
            waiting,
            pending: id.map(|id| (&*self.pending, id)),
        };
        let send = |access: Option<Access>| {
            message_log::sent(self.pending.host(), &message);
            let post = self.client.post(self.endpoint.clone(), message.clone());
            let sending = authorize(post, access.as_ref()).send();
            async {
                sending.await.map_err(|error| {
                    let started = !error.is_connect();
                    let cause = Arc::new(self.client.connect_error(error));
                    if !started {
                        self.disconnect(cause.clone());
                    }
                    RequestError::Disconnected { started, cause }
                })
            }
        };
        let response = match self.client.send_authorized(target, send).await {
            Ok(response) => response,
            Err(error) => {
                if let RequestError::Disconnected { started: false, cause } = &error
                    && !matches!(**cause, ConnectErrorKind::Auth(_))
                {
                    self.retire(cause.clone());
                }
                return Err(error);
            }
        };
        if response.status().is_success() {
            return Ok(());
        }
        let rejected = self.client.error_response(response).await;
        message_log::error_status(self.pending.host(), rejected.status.as_u16(), &rejected.body);
        let error = rejected.into_call_error(waiting);
        if let RequestError::Disconnected { started: false, cause } = &error {
            self.retire(cause.clone());
        }
        Err(error)
    }

    pub(crate) async fn disconnected(&self) -> Arc<ConnectErrorKind> {
        self.disconnected.wait().await
    }

    pub(crate) fn close(&self) {
        self.disconnect(Arc::new(ConnectErrorKind::Closed));
        self.tasks.abort_all();
    }
}

impl Notifier for Sse {
    fn tasks(&self) -> &BackgroundTasks {
        &self.tasks
    }

    fn outgoing(&self) -> &OutgoingQueue {
        &self.outgoing
    }

    fn host(&self) -> &Arc<Host> {
        self.pending.host()
    }

    async fn notify(&self, message: Vec<u8>) -> Result<(), RequestError> {
        self.post(message.into(), Waiting::Background, None).await
    }
}

fn protocol_error(message: &str) -> Arc<ConnectErrorKind> {
    Arc::new(ConnectErrorKind::Protocol(message.to_owned()))
}

/// Resolves the endpoint, which must have the stream's origin.
fn endpoint(stream: &Url, data: &[u8]) -> Result<Url, Arc<ConnectErrorKind>> {
    if data.len() > MAX_ENDPOINT_BYTES {
        return Err(protocol_error("the endpoint URL is too long"));
    }
    let text = String::from_utf8_lossy(data);
    let url = stream.join(text.trim()).map_err(|_| protocol_error("the endpoint is not a valid URL"))?;
    if url.origin() != stream.origin() {
        return Err(protocol_error("the endpoint has another origin"));
    }
    Ok(url)
}

async fn read(
    link: Weak<Sse>,
    pending: Arc<PendingRequests>,
    reply: ReplySender,
    mut events: Box<SseStream>,
    limit: usize,
) {
    let cause = loop {
        match events.next().await {
            Ok(Some(event)) if matches!(event.event.as_deref(), None | Some("message")) => {
                pending.receive_event(&event, &reply, None, limit);
            }
            Ok(Some(_)) => {}
            Ok(None) => break Arc::new(ConnectErrorKind::Hangup { said: None }),
            Err(error) => break error.into_connect_error(),
        }
    };
    if let Some(link) = link.upgrade() {
        link.disconnect(cause);
    }
}
