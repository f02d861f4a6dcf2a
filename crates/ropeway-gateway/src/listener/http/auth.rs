//! Request authentication.

use hyper::Response;
use hyper::header::{AUTHORIZATION, HOST, HeaderValue, WWW_AUTHENTICATE};
use hyper::http::request::Parts;

use super::body::Body;
use super::response::RefusedBy;
use super::{head, response};
use crate::catalog::profile::Selector;
use crate::client::auth::{Authorization, Denial, Token};
use crate::client::principal::Principal;
use crate::observe::RefusedRequest;
use crate::shared::GatewayShared;

/// Returns a request's principal. On a Unix socket (`is_local`), that is the user who runs the gateway.
pub(super) async fn authenticate(
    shared: &GatewayShared,
    is_local: bool,
    head: &Parts,
) -> Result<Principal, Box<Response<Body>>> {
    let auth = &shared.auth;
    if is_local {
        return Ok(auth.local().clone());
    }
    let token = match head.headers.get(AUTHORIZATION) {
        None => Token::Missing,
        Some(_) if head::is_repeated(&head.headers, &AUTHORIZATION) => Token::Malformed,
        Some(value) => value.to_str().map_or(Token::Malformed, Token::parse),
    };
    let authorization = Authorization { token, host: head::text(&head.headers, &HOST) };
    auth.authenticate(authorization).await.map_err(|denial| {
        tracing::debug!(status = denial.status, "request refused: {}", denial.message);
        Box::new(refuse(&denial))
    })
}

/// Refuses a request without a principal.
fn refuse(denial: &Denial) -> Response<Body> {
    let rule = if denial.status == 403 { "scopes" } else { "authentication" };
    let mut response = response::refused_by(rule, response::refuse(denial.status, &*denial.message));
    let challenge = denial.challenge.as_deref().and_then(|challenge| HeaderValue::from_str(challenge).ok());
    if let Some(challenge) = challenge {
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    response
}

/// Checks that a principal may use a profile.
pub(super) fn check_profile(principal: &Principal, selector: &Selector) -> Result<(), Box<Response<Body>>> {
    if principal.allows_profile(selector.name()) {
        return Ok(());
    }
    let response = response::refuse(403, "Forbidden: the key or token is not for this profile");
    Err(Box::new(response::refused_by("profiles", response)))
}

/// Counts a request that was refused before its message was read, and adds it to the audit log. `principal` is `None` if the
/// request is not authenticated.
pub(super) fn record_refusal(shared: &GatewayShared, principal: Option<&Principal>, response: &mut Response<Body>) {
    if let Some(RefusedBy(rule)) = response.extensions_mut().remove() {
        let key_id = principal.and_then(Principal::key_id);
        let principal = principal.map(Principal::shared_id).unwrap_or_default();
        shared.observer.add_refused_request(RefusedRequest { principal, key_id, rule });
    }
}

/// Describes the gateway as a protected resource, so that clients find the authorization server.
pub(super) fn resource_metadata(shared: &GatewayShared, head: &Parts) -> Response<Body> {
    let host = head::text(&head.headers, &HOST);
    match shared.auth.resource_metadata(&shared.settings().name, host) {
        Some(metadata) => response::document(200, metadata),
        None => response::refuse(404, "Not Found: the gateway does not accept OAuth tokens"),
    }
}
