//! Prompts a call's client for a sign-in to the call's server, and waits for it.
//!
//! The client gets a URL for the gateway's page, not for the authorization server: the page authenticates the user, so that
//! another user cannot use the link
//! ([phishing](https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation#phishing)).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::client::notification::notification;
use crate::client::outbound::{Frame, FrameKind};
use crate::client::principal::Principal;
use crate::observe::{SignInAction, SignInOutcome, SignInRecord};
use crate::request::errors::ErrorReply;
use crate::request::exchange::Exchange;
use crate::shared::GatewayShared;
use crate::upstream::sign_in::{AccountKey, Waiter};
use crate::upstream::sign_in_rights::{login_command, sign_in_account};
use ropeway_core::sync::{OnDrop, lock};
use ropeway_core::tool::Alias;
use ropeway_mcp::oauth::Challenge;
use ropeway_mcp::protocol::{Era, RpcError};
use ropeway_mcp::{AnswerSink, Callers, LinkKey, ServerRequest, ServerRequestMethod};

/// How long a call waits for a sign-in.
const OFFER_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Interval between checks for stored tokens, which a sign-in in a terminal may also change.
const STORE_INTERVAL: Duration = Duration::from_secs(1);

/// The link for the gateway's own server requests. Servers' links count from zero.
const OWN_LINK: LinkKey = LinkKey(u64::MAX);

/// A call that a server refused because of its authorization.
pub(crate) struct RefusedCall<'a> {
    pub(crate) exchange: &'a Arc<Exchange>,
    pub(crate) server: &'a Alias,
    pub(crate) challenge: Option<Challenge>,
}

/// Lets the user sign in. Fails if the call cannot continue.
pub(crate) async fn offer(shared: &Arc<GatewayShared>, call: RefusedCall<'_>) -> Result<(), ErrorReply> {
    let RefusedCall { exchange, server, challenge } = call;
    let client = &exchange.client;
    let required = |reason| sign_in_required(shared, exchange, server, reason);
    let can_ask = client.capabilities.url && (client.era == Era::Legacy || exchange.request.get().is_some());
    let key = sign_in_account(shared, &client.principal, server).ok().filter(|_| can_ask);
    let (Some(key), Some(url)) = (key, page_url(shared, server)) else { return Err(required("")) };
    let is_scope = challenge.as_ref().is_some_and(Challenge::is_insufficient_scope);
    let waiter = shared.sign_ins.waiting.join(&key, challenge);
    let signed_in = async {
        if !waiter.is_first {
            return waiter.wait().await;
        }
        let server_request = SignInElicitation::new(server, &url, is_scope);
        let is_signed_in = tokio::select! {
            is_signed_in = waiter.wait() => is_signed_in,
            () = stored(shared, &key) => {
                shared.upstreams.apply_tokens(&key).await;
                true
            }
            is_signed_in = server_request.ask_and_wait(exchange, &waiter) => is_signed_in,
        };
        waiter.end(is_signed_in);
        if is_signed_in && client.era == Era::Legacy {
            server_request.complete(exchange);
        }
        is_signed_in
    };
    tokio::select! {
        signed_in = tokio::time::timeout(OFFER_TIMEOUT, signed_in) => {
            let (outcome, result) = match signed_in {
                Ok(true) => (SignInOutcome::Ok, Ok(())),
                Ok(false) => (SignInOutcome::Declined, Err(required("; it was declined or failed"))),
                Err(_) => (SignInOutcome::TimedOut, Err(required("; it took too long"))),
            };
            // The other calls have shared the offer.
            if waiter.is_first {
                let record = SignInRecord::new(&client.principal, SignInAction::Offer, server.as_str(), outcome);
                shared.observer.add_sign_in(record.with_shared(key.1.is_none()));
            }
            result
        }
        () = shared.draining.cancelled() => Err(ErrorReply::overloaded("the gateway is stopping")),
    }
}

/// Returns the error for a call whose server needs a sign-in.
pub(crate) fn sign_in_required(
    shared: &GatewayShared,
    exchange: &Exchange,
    server: &Alias,
    reason: &str,
) -> ErrorReply {
    let advice = sign_in_advice(shared, &exchange.client.principal, server);
    ErrorReply::needs_sign_in(server, format!("server `{server}` needs a sign-in{reason}: {advice}"))
}

/// Returns how a principal can sign in to a server.
pub(crate) fn sign_in_advice(shared: &GatewayShared, principal: &Principal, server: &Alias) -> String {
    let account = shared.upstreams.account(server, principal);
    if account.is_none() && !principal.is_operator() {
        return "ask an operator of the gateway to sign in".to_owned();
    }
    let command = login_command(shared, server, account.as_deref());
    let page = match (page_url(shared, server), shared.settings().page) {
        (Some(url), _) => format!(", or open {url}"),
        (None, true) => ", or open the page of the gateway".to_owned(),
        (None, false) => String::new(),
    };
    format!("run `{command}`{page}")
}

/// Returns the URL for a server's sign-in page, if browsers can reach it.
fn page_url(shared: &GatewayShared, server: &Alias) -> Option<String> {
    let settings = shared.settings();
    let configured = settings.auth.jwt.as_ref().and_then(|jwt| jwt.resource.as_deref()).and_then(origin_of);
    let origin = configured.or_else(|| shared.page_origin.get().cloned()).filter(|_| settings.page)?;
    Some(format!("{origin}/#/servers/{}", percent_encoded(server.as_str())))
}

/// Returns a URL's scheme, host and port.
fn origin_of(url: &str) -> Option<String> {
    let url = reqwest::Url::parse(url).ok().filter(|url| matches!(url.scheme(), "https" | "http"))?;
    Some(url.origin().ascii_serialization())
}

/// Encodes a name for a URL fragment.
fn percent_encoded(name: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    name.bytes().map(|byte| if plain(&byte) { char::from(byte).into() } else { format!("%{byte:02X}") }).collect()
}

/// Waits until an account's tokens are stored, whether here or on a terminal.
async fn stored(shared: &GatewayShared, (server, account): &AccountKey) {
    let (store, account) = (&shared.sign_ins.store, account.as_deref());
    let Some(target) = shared.bridge.sign_in_target(server) else { return std::future::pending().await };
    let mut stamp = store.stamp(&target.url, account);
    loop {
        tokio::time::sleep(STORE_INTERVAL).await;
        if store.changed_since(&target.url, account, &stamp) {
            stamp = store.stamp(&target.url, account);
            // Signing out is also a change.
            if matches!(store.load(&target.url, account).await, Ok(Some(_))) {
                return;
            }
        }
    }
}

/// The server request to the client.
struct SignInElicitation {
    /// The elicitation id. Modern clients do not get it.
    id: String,
    params: Box<RawValue>,
}

impl SignInElicitation {
    fn new(server: &Alias, url: &str, is_scope: bool) -> Self {
        let id = format!("rw-{:016x}", fastrand::u64(..));
        let reason = if is_scope { "asks for further permissions" } else { "needs a sign-in" };
        let message = format!("Server `{server}` {reason}. Open the page of the gateway, and sign in there.");
        let params = json!({"mode": "url", "message": message, "url": url, "elicitationId": id});
        let params = RawValue::from_string(params.to_string()).unwrap_or_default();
        Self { id, params }
    }

    /// Prompts the client, and waits for the sign-in if the user agrees.
    async fn ask_and_wait(&self, exchange: &Arc<Exchange>, waiter: &Waiter) -> bool {
        let is_accepted = match exchange.client.era {
            Era::Modern => self.ask_modern(exchange).await,
            Era::Legacy => self.ask_legacy(exchange).await,
        };
        is_accepted && waiter.wait().await
    }

    async fn ask_legacy(&self, exchange: &Exchange) -> bool {
        let method = ServerRequestMethod::Elicit { url: true }.as_str();
        let answer = exchange.client.ask(&exchange.outbound, method, &self.params).await;
        matches!(answer, Ok(Ok(result)) if is_accept(&result))
    }

    /// Adds the server request to the next response. The client answers with a retry.
    async fn ask_modern(&self, exchange: &Arc<Exchange>) -> bool {
        let (sender, answer) = oneshot::channel();
        let sink = Arc::new(SignInAnswer(Mutex::new(Some(sender))));
        let id = RawValue::from_string(format!("\"{}\"", self.id)).unwrap_or_default();
        let callers = Callers { keys: vec![exchange.key], is_certain: true };
        let method = ServerRequestMethod::Elicit { url: true };
        let server_request =
            ServerRequest::new((OWN_LINK, id.clone()), method, self.params.clone(), (callers, 1), sink);
        exchange.ask(server_request);
        // Removes the server request if it was not sent yet.
        let is_own =
            |server_request: &ServerRequest| server_request.link == OWN_LINK && server_request.id.get() == id.get();
        let _withdrawn = OnDrop(|| {
            exchange.withdraw(is_own);
        });
        answer.await.unwrap_or(false)
    }

    /// Notifies a legacy client that the sign-in is complete.
    fn complete(&self, exchange: &Exchange) {
        let params = json!({"elicitationId": self.id}).to_string();
        let message = notification("notifications/elicitation/complete", &params);
        exchange.outbound.send(Frame::new(FrameKind::Change, message));
    }
}

/// Receives a modern client's answer.
struct SignInAnswer(Mutex<Option<oneshot::Sender<bool>>>);

impl AnswerSink for SignInAnswer {
    fn send(&self, outcome: Result<&RawValue, RpcError>) {
        if let Some(sender) = lock(&self.0).take() {
            let _ = sender.send(outcome.is_ok_and(is_accept));
        }
    }

    fn is_awaited(&self) -> bool {
        lock(&self.0).as_ref().is_some_and(|sender| !sender.is_closed())
    }
}

fn is_accept(answer: &RawValue) -> bool {
    serde_json::from_str::<Value>(answer.get()).is_ok_and(|answer| answer["action"] == "accept")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_servers_are_encoded_for_the_address_of_the_page() {
        assert_eq!(percent_encoded("git-hub_1.x"), "git-hub_1.x");
        assert_eq!(percent_encoded("a b/c#é"), "a%20b%2Fc%23%C3%A9");
    }

    #[test]
    fn the_page_is_at_the_origin_of_the_resource() {
        assert_eq!(origin_of("https://a.example:8443/x/mcp?y").as_deref(), Some("https://a.example:8443"));
        assert_eq!(origin_of("urn:gateway"), None);
    }
}
