//! One client message: which era it belongs to, whether it is valid, and who handles it.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::catalog::profile::Selector;
use crate::client::clients::{ModernIdentity, ModernKeys};
use crate::client::running::RunningRequests;
use crate::client::{Client, ClientDescription, ClientId, Principal};
use crate::method::Method;
use crate::observe::{IncomingTrace, PendingRecord, RecordSlot, RequestStart};
use crate::request::errors::ErrorReply;
pub(crate) use crate::request::exchange::Dispatch;
use crate::request::header_view::HeaderView;
use crate::request::limits::CallClient;
use crate::request::methods;
use crate::request::reply::Reply;
use crate::request::requester::Requester;
use crate::request::subscribe;
use crate::shared::GatewayShared;
use ropeway_core::sync::lock;
use ropeway_mcp::protocol::{
    ClientMessage, ClientParams, Era, LEGACY_VERSIONS, MODERN, check_header, is_modern, meta, read_client_message,
};

/// The client that sent a message.
pub(crate) struct Caller<'a> {
    pub(crate) client: ClientRef,
    pub(crate) selector: Selector,
    pub(crate) principal: Principal,
    /// An HTTP request's headers. `None` on pipes.
    pub(crate) headers: Option<HeaderView<'a>>,
}

impl Caller<'_> {
    fn requester<'a>(
        &'a self,
        client: Arc<Client>,
        body: &'a Bytes,
        id: &'a RawValue,
        record: &'a RecordSlot,
    ) -> Requester<'a> {
        let counted = match &self.client {
            ClientRef::Http { connection } if client.is_anonymous => {
                CallClient::Anonymous { connection: *connection, description: client.isolation_key }
            }
            ClientRef::Http { .. } => CallClient::Known(client.id.number()),
            ClientRef::Pipe(pipe) => CallClient::Known(pipe.id.number()),
        };
        Requester { client, counted, headers: self.headers.as_ref(), body, id, record }
    }
}

/// Identifies the client before its message is read.
pub(crate) enum ClientRef {
    /// A client over HTTP, with its connection's number. It is modern, not initialized, or named by its session id.
    Http { connection: u64 },
    /// The client at the other end of a pipe.
    Pipe(Arc<PipeClient>),
}

/// A client on a pipe, which may use both eras.
pub(crate) struct PipeClient {
    /// The id that the pipe's calls are counted by, whatever the client sends as its description.
    id: ClientId,
    isolation_key: u64,
    /// The requests in progress, whatever their era.
    requests: Arc<RunningRequests>,
    legacy: Mutex<Option<Arc<Client>>>,
    modern: Mutex<Option<Arc<Client>>>,
}

impl PipeClient {
    /// Creates a client that has not sent a message. Clients with equal keys share their isolated connections.
    pub(crate) fn new(isolation_key: Option<u64>) -> Self {
        let isolation_key = isolation_key.unwrap_or_else(|| fastrand::u64(..));
        Self {
            id: ClientId::next(),
            isolation_key,
            requests: Arc::default(),
            legacy: Mutex::default(),
            modern: Mutex::default(),
        }
    }

    /// Returns the legacy client, once it is initialized.
    pub(crate) fn legacy(&self) -> Option<Arc<Client>> {
        lock(&self.legacy).clone()
    }

    /// Returns the requests in progress.
    pub(crate) fn requests(&self) -> &Arc<RunningRequests> {
        &self.requests
    }

    /// Ends everything that waits for the client, because the pipe is closed.
    pub(crate) fn close(&self) -> Vec<Arc<Client>> {
        let clients: Vec<_> =
            [&self.legacy, &self.modern].into_iter().filter_map(|client| lock(client).take()).collect();
        clients.iter().for_each(|client| client.close());
        self.requests.cancel_all();
        clients
    }
}

/// Handles one client message.
pub(crate) fn dispatch(shared: &Arc<GatewayShared>, caller: &Caller<'_>, body: &Bytes) -> Dispatch {
    let failed = |id: Option<&RawValue>, error: &ErrorReply| Dispatch::Done {
        status: error.status,
        reply: Reply::error(id, error),
    };
    match read_client_message(body) {
        // Answering an invalid response could start an endless answer loop.
        Err(error) if error.is_response && caller.headers.is_none() => Dispatch::Accepted,
        Err(error) => failed(error.id, &ErrorReply::invalid_message(&error)),
        Ok(ClientMessage::Request { id, method, params }) => {
            let record = RecordSlot::new(begin_record(shared, caller, body, id, &method));
            match request(shared, caller, (body, &record), id, &method, params) {
                Ok(dispatch) => {
                    if let Dispatch::Done { reply, .. } | Dispatch::Opened { reply, .. } = &dispatch {
                        record.finish(reply.len());
                    }
                    dispatch
                }
                Err(error) => {
                    record.fail(error.code, error.message.len());
                    failed(Some(id), &error)
                }
            }
        }
        Ok(ClientMessage::Notification { method, params }) => match notification(shared, caller, &method, params) {
            Ok(()) => Dispatch::Accepted,
            Err(error) => failed(None, &error),
        },
        Ok(ClientMessage::Response { id, outcome }) => match response(shared, caller, id, outcome) {
            Ok(()) => Dispatch::Accepted,
            Err(error) => failed(None, &error),
        },
    }
}

fn begin_record(
    shared: &GatewayShared,
    caller: &Caller<'_>,
    body: &Bytes,
    id: &RawValue,
    method: &str,
) -> PendingRecord {
    shared.observer.begin(RequestStart {
        method: Method::parse(method),
        method_name: method,
        id: id.get(),
        principal: caller.principal.shared_id(),
        key_id: caller.principal.key_id(),
        bytes_in: body.len(),
    })
}

fn note_client(record: &RecordSlot, client: &Client) {
    record.note(|record| record.note_client(client.label(), client.profile.clone()));
}

/// Notes a request's target, arguments and trace.
fn note_params(record: &RecordSlot, caller: &Caller<'_>, params: &ClientParams<'_>) {
    let header = |name: &str| caller.headers.as_ref().and_then(|headers| (headers.get)(name));
    let trace = IncomingTrace::read(params, header);
    let target = params.target.as_ref().map(|(_, target)| &**target);
    record.note(|record| record.note_params(target, params.arguments.map(RawValue::get), trace));
}

fn request(
    shared: &Arc<GatewayShared>,
    caller: &Caller<'_>,
    (body, record): (&Bytes, &RecordSlot),
    id: &RawValue,
    method: &str,
    params: Option<&RawValue>,
) -> Result<Dispatch, ErrorReply> {
    let known = Method::parse(method);
    let target = known.and_then(Method::target);
    let params = ClientParams::read(params, target).map_err(|problem| {
        let is_modern = caller.headers.as_ref().is_some_and(|headers| headers.version.is_some_and(is_modern));
        let error = ErrorReply::invalid_params(problem);
        if is_modern { ErrorReply { status: 400, ..error } } else { error }
    })?;
    note_params(record, caller, &params);
    if is_modern_request(caller, known, &params) {
        check_modern(caller, method, known, &params)?;
        let known = known.filter(|known| known.is_in(Era::Modern));
        let method = known.ok_or_else(|| ErrorReply::method_not_found(method, Era::Modern))?;
        let client = modern_client(shared, caller, &params)?;
        note_client(record, &client);
        return methods::handle(shared, caller.requester(client, body, id, record), method, &params);
    }
    check_legacy(caller)?;
    if known == Some(Method::Initialize) {
        return initialize(shared, caller, (id, record), &params);
    }
    let client = legacy_client(shared, caller)?;
    let client = match client {
        Some(client) => client,
        // A client may check whether the gateway is alive before it initializes.
        None if known == Some(Method::Ping) => return Ok(methods::pong(shared, id)),
        None => return Err(ErrorReply::not_initialized()),
    };
    note_client(record, &client);
    let known = known.filter(|known| known.is_in(Era::Legacy));
    let method = known.ok_or_else(|| ErrorReply::method_not_found(method, Era::Legacy))?;
    methods::handle(shared, caller.requester(client, body, id, record), method, &params)
}

/// Determines whether a request is modern.
fn is_modern_request(caller: &Caller<'_>, method: Option<Method>, params: &ClientParams<'_>) -> bool {
    let version = caller.headers.as_ref().and_then(|headers| headers.version);
    version.is_some_and(is_modern)
        || params.meta.protocol_version.is_some()
        || matches!(method, Some(Method::Discover | Method::Listen))
}

/// Checks a modern request in the specification's order.
fn check_modern(
    caller: &Caller<'_>,
    method: &str,
    known: Option<Method>,
    params: &ClientParams<'_>,
) -> Result<(), ErrorReply> {
    let version = params.meta.protocol_version.as_deref();
    let version = version.ok_or_else(|| ErrorReply::missing_meta(meta::PROTOCOL_VERSION))?;
    if params.meta.capabilities.is_none() {
        return Err(ErrorReply::missing_meta(meta::CLIENT_CAPABILITIES));
    }
    let mismatch = |error| ErrorReply::header_mismatch(&error);
    if let Some(headers) = &caller.headers {
        check_header("MCP-Protocol-Version", headers.version, Some(version)).map_err(mismatch)?;
    }
    if version != MODERN {
        return Err(ErrorReply::unsupported_version(version));
    }
    if let Some(headers) = &caller.headers {
        check_header("Mcp-Method", headers.method, Some(method)).map_err(mismatch)?;
        let is_modern = |method: &Method| method.is_in(Era::Modern);
        if known.filter(is_modern).and_then(Method::target).is_some() {
            let target = params.target.as_ref().map(|(_, target)| &**target);
            check_header("Mcp-Name", headers.name, target).map_err(mismatch)?;
        }
    }
    Ok(())
}

fn check_legacy(caller: &Caller<'_>) -> Result<(), ErrorReply> {
    let version = caller.headers.as_ref().and_then(|headers| headers.version);
    if version.is_some_and(|version| !LEGACY_VERSIONS.contains(&version)) {
        return Err(ErrorReply::unsupported_legacy_version());
    }
    Ok(())
}

/// Returns a modern request's client. Requests with the same description share it.
fn modern_client(
    shared: &Arc<GatewayShared>,
    caller: &Caller<'_>,
    params: &ClientParams<'_>,
) -> Result<Arc<Client>, ErrorReply> {
    let profile = shared.profile(&caller.selector)?;
    let info = params.meta.client_info.map_or(r#"{"name":"unknown","version":"0"}"#, RawValue::get);
    let capabilities = params.meta.capabilities.map_or("{}", RawValue::get);
    for (key, text) in [(meta::CLIENT_INFO, info), (meta::CLIENT_CAPABILITIES, capabilities)] {
        methods::check_description(key, Some(text)).map_err(|error| ErrorReply { status: 400, ..error })?;
    }
    let is_same = |client: &Client| {
        *client.description.info == *info
            && *client.description.capabilities == *capabilities
            && client.profile == profile
            && client.principal.is_clone(&caller.principal)
    };
    let create = |keys: ModernKeys| {
        let description =
            ClientDescription { version: MODERN.into(), capabilities: capabilities.into(), info: info.into() };
        let (principal, key) = (caller.principal.clone(), Some(keys.isolation));
        let is_anonymous = matches!(caller.client, ClientRef::Http { .. });
        let mut client = Client::new(Era::Modern, description, principal, profile.clone(), key);
        client.user_key = keys.user;
        client.is_anonymous = is_anonymous;
        if let ClientRef::Pipe(pipe) = &caller.client {
            client.requests = pipe.requests.clone();
        }
        Arc::new(client)
    };
    match &caller.client {
        ClientRef::Pipe(pipe) => {
            let mut modern = lock(&pipe.modern);
            match &*modern {
                Some(client) if is_same(client) => Ok(client.clone()),
                _ => {
                    let keys = ModernKeys { isolation: pipe.isolation_key, user: pipe.isolation_key };
                    Ok(modern.insert(create(keys)).clone())
                }
            }
        }
        ClientRef::Http { .. } => {
            let identity = ModernIdentity { principal: caller.principal.id(), profile: &profile, info, capabilities };
            Ok(shared.modern_clients.find_or_insert(identity, is_same, create))
        }
    }
}

/// Returns a legacy request's client. `None` if a pipe is not initialized.
fn legacy_client(shared: &Arc<GatewayShared>, caller: &Caller<'_>) -> Result<Option<Arc<Client>>, ErrorReply> {
    match &caller.client {
        ClientRef::Pipe(pipe) => Ok(pipe.legacy()),
        ClientRef::Http { .. } => {
            let session = caller.headers.as_ref().and_then(|headers| headers.session);
            let session = session.ok_or_else(ErrorReply::session_required)?;
            let (client, subscriptions) = shared.session(session, &caller.principal)?;
            subscribe::restore(shared, &client, subscriptions);
            // The path selects the profile, and a session belongs to one.
            if client.profile != shared.profile(&caller.selector)? {
                return Err(ErrorReply::session_not_found());
            }
            Ok(Some(client))
        }
    }
}

fn initialize(
    shared: &Arc<GatewayShared>,
    caller: &Caller<'_>,
    (id, record): (&RawValue, &RecordSlot),
    params: &ClientParams<'_>,
) -> Result<Dispatch, ErrorReply> {
    let profile = shared.profile(&caller.selector)?;
    let description = methods::describe_client(params)?;
    let reply = methods::initialized(shared, id, (&profile, &caller.principal), &description);
    match &caller.client {
        ClientRef::Pipe(pipe) => {
            let mut legacy = lock(&pipe.legacy);
            if legacy.is_some() {
                return Err(ErrorReply::invalid_request("the client is already initialized"));
            }
            let key = Some(pipe.isolation_key);
            let mut client = Client::new(Era::Legacy, description, caller.principal.clone(), profile, key);
            client.requests = pipe.requests.clone();
            let client = Arc::new(client);
            note_client(record, &client);
            shared.clients.add(&client);
            *legacy = Some(client);
            Ok(Dispatch::Done { status: 200, reply })
        }
        ClientRef::Http { .. } => {
            let created = shared.create_session(&description, &caller.principal, &profile);
            if let Err(error) = &created {
                let rule = if error.status == 429 { "sessions_per_principal" } else { "sessions" };
                record.note(|record| record.note_denied(rule));
            }
            let (session, client) = created?;
            note_client(record, &client);
            Ok(Dispatch::Opened { session, reply })
        }
    }
}

fn notification(
    shared: &Arc<GatewayShared>,
    caller: &Caller<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<(), ErrorReply> {
    let version = caller.headers.as_ref().and_then(|headers| headers.version);
    let clients: Vec<Arc<Client>> = match &caller.client {
        ClientRef::Pipe(pipe) => {
            [&pipe.legacy, &pipe.modern].iter().filter_map(|client| lock(client).clone()).collect()
        }
        // A modern client cancels an HTTP request by closing it, and has no other notifications.
        _ if version.is_some_and(is_modern) => return Ok(()),
        _ => legacy_client(shared, caller)?.into_iter().collect(),
    };
    match method {
        "notifications/cancelled" => {
            let params = params.map(|params| ClientParams::read(Some(params), None));
            if let Some(id) = params.and_then(|params| params.ok()?.get("requestId")) {
                clients.iter().for_each(|client| client.requests.cancel(id));
            }
        }
        "notifications/initialized" => {
            clients.iter().for_each(|client| shared.upstreams.offer_roots(client));
        }
        "notifications/roots/list_changed" => {
            clients.iter().for_each(|client| shared.upstreams.roots_changed(client));
        }
        _ => {}
    }
    Ok(())
}

fn response(
    shared: &Arc<GatewayShared>,
    caller: &Caller<'_>,
    id: &RawValue,
    outcome: Result<&RawValue, &RawValue>,
) -> Result<(), ErrorReply> {
    let Some(client) = legacy_client(shared, caller)? else { return Ok(()) };
    let answer = outcome.map(ToOwned::to_owned).map_err(ToOwned::to_owned);
    if !client.answer(id, answer) {
        tracing::debug!("ignored a response to an unknown question");
    }
    Ok(())
}
