//! Authorized requests: sends them, and retries with another token if the server refuses them.
//!
//! A request that a server answers with 401, or with 403 for missing scopes, was not executed
//! ([error handling](https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization#error-handling)).

use std::future::Future;

use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};
use reqwest::{Method, Response, StatusCode, Url};

use super::http_client::HttpClient;
use crate::error::{ConnectErrorKind, RequestError};
use crate::host::Host;
use crate::message_log;
use crate::oauth::{Access, Authorizer, Challenge, MAX_RECOVERIES, OAuthError, Refusal, Waiting};
use crate::pending::PendingRequests;
use crate::request::Request;

/// The header with the nonce for DPoP proofs ([RFC 9449](https://www.rfc-editor.org/rfc/rfc9449#section-8)).
const DPOP_NONCE: &str = "dpop-nonce";

/// An authorized request's destination, and who waits for it.
pub(super) struct Target<'a> {
    pub(super) method: Method,
    pub(super) url: &'a Url,
    pub(super) host: &'a Host,
    pub(super) waiting: Waiting,
    /// The pending request, whose idle timeout does not include sign-in time.
    pub(super) pending: Option<(&'a PendingRequests, u64)>,
}

/// Returns whether a caller waits for a request, or only the connection.
pub(super) fn waiting(request: &Request<'_>) -> Waiting {
    if request.cx.is_background() { Waiting::Background } else { Waiting::Call }
}

impl HttpClient {
    /// Sends a request. If the server refuses it and another token can be obtained, sends it again.
    ///
    /// `send` is called with the authorization headers, if the client has an authorizer.
    pub(super) async fn send_authorized<F>(
        &self,
        target: Target<'_>,
        send: impl Fn(Option<Access>) -> F + Send + Sync,
    ) -> Result<Response, RequestError>
    where
        F: Future<Output = Result<Response, RequestError>> + Send,
    {
        match &self.auth {
            None => send(None).await,
            Some(auth) => Box::pin(self.send_with(auth, target, send)).await,
        }
    }

    async fn send_with<F>(
        &self,
        auth: &std::sync::Arc<Authorizer>,
        target: Target<'_>,
        send: impl Fn(Option<Access>) -> F + Send + Sync,
    ) -> Result<Response, RequestError>
    where
        F: Future<Output = Result<Response, RequestError>> + Send,
    {
        let (mut recoveries, mut has_nonce) = (0, false);
        loop {
            let access =
                auth.authorize(&target.method, target.url).await.map_err(|error| failed(error, None, false))?;
            let response = send(Some(access.clone())).await?;
            let nonce = remember_nonce(auth, target.url, response.headers());
            let Some(refusal) = refusal(auth, &access, &response) else {
                if response.status() != StatusCode::UNAUTHORIZED {
                    auth.accepted(&access);
                }
                return Ok(response);
            };
            if refusal.challenge.as_ref().is_some_and(Challenge::wants_nonce)
                && nonce
                && !std::mem::replace(&mut has_nonce, true)
            {
                continue;
            }
            // The body is read now, because a sign-in may take minutes.
            let rejected = self.error_response(response).await;
            message_log::error_status(target.host, rejected.status.as_u16(), &rejected.body);
            recoveries += 1;
            if recoveries > MAX_RECOVERIES {
                let error = OAuthError::Rejected { is_scope: refusal.is_scope, said: None };
                return Err(failed(error, rejected.challenge, false));
            }
            let _paused = target.pending.map(|(pending, id)| pending.pause(id));
            if let Err(error) = auth.recover(&refusal, target.waiting).await {
                // A scope that one call needs must not end the session for the others.
                let keeps_session = refusal.is_scope && target.waiting == Waiting::Call;
                return Err(failed(error, rejected.challenge, keeps_session));
            }
        }
    }
}

/// Remembers a response's nonce. Returns `true` if it has one.
pub(super) fn remember_nonce(auth: &Authorizer, url: &Url, headers: &HeaderMap) -> bool {
    let nonce = headers.get(DPOP_NONCE).and_then(|value| value.to_str().ok());
    nonce.inspect(|nonce| auth.remember_nonce(url, nonce)).is_some()
}

/// Returns why the server refused a request, if another token may help.
pub(super) fn refusal(auth: &Authorizer, access: &Access, response: &Response) -> Option<Refusal> {
    let status = response.status();
    if !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        return None;
    }
    let headers = response.headers();
    let lines = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
    let challenge = Challenge::parse(lines);
    let is_scope = challenge.as_ref().is_some_and(Challenge::is_insufficient_scope);
    if status == StatusCode::FORBIDDEN && !is_scope {
        return None;
    }
    // The server requires other credentials.
    let is_other = challenge.is_none() && headers.contains_key(WWW_AUTHENTICATE);
    if is_other && !auth.is_configured() && !access.has_token() {
        return None;
    }
    Some(Refusal { generation: access.generation, challenge, is_scope })
}

/// Converts an authorization error. The request was not executed, and is not retried on another session.
fn failed(error: OAuthError, challenge: Option<String>, keeps_session: bool) -> RequestError {
    let cause = match error {
        OAuthError::SignInRequired { .. } | OAuthError::Denied { description: None } => {
            ConnectErrorKind::NeedsAuth { challenge }
        }
        error => ConnectErrorKind::Auth(error),
    };
    RequestError::disconnected(keeps_session, cause)
}
