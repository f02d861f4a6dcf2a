//! A client's request before and while it runs: its id, its limits, and its cancellation.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::client::running::RunningRequest;
use crate::client::shares::{Hold, Resource};
use crate::client::{Client, LogLevel};
use crate::observe::RecordSlot;
use crate::request::errors::{BUSY_WAIT, ErrorReply};
use crate::request::exchange::{AttachedRequest, CallPermits, Dispatch, Exchange, Outcome, Work};
use crate::request::header_view::HeaderView;
use crate::request::limits::{CallClient, TooManyCalls};
use crate::request::server_params::Forwarded;
use crate::shared::GatewayShared;
use ropeway_mcp::protocol::{ClientParams, Era};

/// A request and the client that sent it.
pub(crate) struct Requester<'a> {
    pub(crate) client: Arc<Client>,
    /// The client that the request is counted by.
    pub(crate) counted: CallClient,
    pub(crate) headers: Option<&'a HeaderView<'a>>,
    /// The whole message. Parameters are slices of it.
    pub(crate) body: &'a Bytes,
    pub(crate) id: &'a RawValue,
    pub(crate) record: &'a RecordSlot,
}

/// A request in progress, and everything that ends with it.
pub(crate) struct Started {
    pub(crate) exchange: Arc<Exchange>,
    /// `None` for a stream, which is not a call.
    pub(crate) permits: Option<CallPermits>,
}

impl Requester<'_> {
    /// Returns the slice of the message that a value was read from.
    pub(crate) fn slice(&self, value: &RawValue) -> Bytes {
        self.body.slice_ref(value.get().as_bytes())
    }

    /// Returns the parts that are forwarded unchanged, with the request's trace context.
    pub(crate) fn forwarded(&self, params: &ClientParams<'_>) -> Forwarded {
        Forwarded::of(params, &self.record.read(|record| record.forwarding()).unwrap_or_default())
    }

    /// Registers the request, so that the client can cancel it by its id. `None` for modern HTTP clients, which cancel by closing
    /// the request.
    fn register(&self) -> Result<Option<RunningRequest>, ErrorReply> {
        if self.client.is_anonymous {
            return Ok(None);
        }
        self.client.begin(self.id).map(Some).ok_or_else(ErrorReply::duplicate_id)
    }

    /// Begins a request that takes time.
    pub(crate) fn start(&self, shared: &GatewayShared, params: &ClientParams<'_>) -> Result<Started, ErrorReply> {
        self.check_draining(shared)?;
        let attached = self.attach(shared, params)?;
        let permits = self.take_call(shared)?;
        let exchange = Exchange::new(self.client.clone(), attached);
        exchange.set_record(self.record.take());
        Ok(Started { exchange, permits: Some(permits) })
    }

    /// Counts a call for the client, its principal and the gateway.
    fn take_call(&self, shared: &GatewayShared) -> Result<CallPermits, ErrorReply> {
        let principal = &self.client.principal;
        let own_limit = principal.limits().calls.unwrap_or(usize::MAX);
        let share =
            shared.shares.take_within(Resource::Calls, principal.holdings(), 1, own_limit).map_err(|error| {
                self.record.note(|record| record.note_denied(error.rule()));
                ErrorReply::over_share(error)
            })?;
        let client = shared.limits.call(self.counted).map_err(|error| {
            self.record.note(|record| record.note_denied(TooManyCalls::RULE));
            ErrorReply::limited(error.to_string(), BUSY_WAIT)
        })?;
        Ok(CallPermits { _share: share, _client: client })
    }

    /// Begins a request whose response is a stream. It counts as a stream, not as a call, until the hold is dropped.
    pub(crate) fn start_stream(
        &self,
        shared: &GatewayShared,
        params: &ClientParams<'_>,
    ) -> Result<(Started, Hold), ErrorReply> {
        self.check_draining(shared)?;
        let attached = self.attach(shared, params)?;
        let principal = &self.client.principal;
        let per_session = shared.settings().limits.streams_per_client;
        let own_limit = principal.limits().sessions.map_or(usize::MAX, |sessions| sessions.saturating_mul(per_session));
        let hold = shared.shares.take_within(Resource::Streams, principal.holdings(), 1, own_limit);
        let hold = hold.map_err(|error| {
            self.record.note(|record| record.note_denied(error.rule()));
            ErrorReply::over_share(error)
        })?;
        let exchange = Exchange::new(self.client.clone(), attached);
        exchange.set_record(self.record.take());
        Ok((Started { exchange, permits: None }, hold))
    }

    fn check_draining(&self, shared: &GatewayShared) -> Result<(), ErrorReply> {
        if shared.draining.is_cancelled() {
            self.record.note(|record| record.note_denied("draining"));
            return Err(ErrorReply::overloaded("the gateway is stopping"));
        }
        Ok(())
    }

    /// Registers the request, and reads its parts that a retry may change.
    pub(crate) fn attach(
        &self,
        shared: &GatewayShared,
        params: &ClientParams<'_>,
    ) -> Result<AttachedRequest, ErrorReply> {
        let level = match params.meta.log_level.as_deref().filter(|_| self.client.era == Era::Modern) {
            Some(name) => Some(LogLevel::parse(name).ok_or_else(|| ErrorReply::unknown_level(name))?),
            None => None,
        };
        let running = self.register()?;
        if let Some(level) = level {
            shared.want_log_level(level);
        }
        let token = params.meta.progress_token.map(ToOwned::to_owned);
        Ok(AttachedRequest { id: self.id.to_owned(), token, log_level: level, running })
    }
}

impl Started {
    /// Creates the request's work. A call counts until it is cancelled or its response is sent.
    pub(crate) fn run<F>(
        self,
        shared: &Arc<GatewayShared>,
        work: impl FnOnce(Arc<Exchange>) -> F + Send + 'static,
    ) -> Dispatch
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let Self { exchange, permits } = self;
        let guard = shared.exchanges.enter(&exchange);
        let exchange_ = exchange.clone();
        let work: Work = Box::pin(async move {
            let held = (permits, guard);
            // The future takes kilobytes. Created here, it is not moved twice.
            let outcome = work(exchange_).await;
            let (permits, guard) = held;
            permits.into_iter().for_each(|permits| guard.exchange().keep(permits));
            outcome
        });
        Dispatch::Running { exchange, work }
    }
}
