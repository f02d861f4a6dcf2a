//! A request of a client before and while it runs: its id, its limits, and its cancellation.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::client::{Client, LogLevel};
use super::errors::ErrorReply;
use super::exchange::{AttachedRequest, Dispatch, Exchange, Outcome, Work};
use super::header_view::HeaderView;
use super::limits::{CallClient, CallPermit};
use super::running::RunningRequest;
use super::shared::GatewayShared;
use crate::protocol::{ClientParams, Era};

/// A request and the client that sent it.
pub(crate) struct Requester<'a> {
    pub(crate) client: Arc<Client>,
    /// What the request counts for.
    pub(crate) counted: CallClient,
    pub(crate) headers: Option<&'a HeaderView<'a>>,
    /// The whole message. Parameters are slices of it.
    pub(crate) body: &'a Bytes,
    pub(crate) id: &'a RawValue,
}

/// A request in progress, and everything that ends with it.
pub(crate) struct Started {
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) permit: CallPermit,
}

impl Requester<'_> {
    /// Returns the slice of the message that a value was read from.
    pub(crate) fn slice(&self, value: &RawValue) -> Bytes {
        self.body.slice_ref(value.get().as_bytes())
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
        if shared.draining.is_cancelled() {
            return Err(ErrorReply::overloaded("the gateway is stopping"));
        }
        let attached = self.attach(shared, params)?;
        let permit = shared.limits.call(self.counted);
        let permit = permit.map_err(|error| ErrorReply::refused(error.status(), error.to_string()))?;
        let exchange = Exchange::new(self.client.clone(), attached);
        Ok(Started { exchange, permit })
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
    /// Makes the work of the request, which counts as a call until it ends.
    pub(crate) fn run<F>(self, shared: &Arc<GatewayShared>, work: impl FnOnce(Arc<Exchange>) -> F) -> Dispatch
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let Self { exchange, permit } = self;
        let guard = shared.exchanges.enter(&exchange);
        let work = work(exchange.clone());
        let work: Work = Box::pin(async move {
            let _held = (permit, guard);
            work.await
        });
        Dispatch::Running { exchange, work }
    }
}
