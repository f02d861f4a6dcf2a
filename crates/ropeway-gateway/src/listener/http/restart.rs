//! Server restarts by operators, from the web page.

use std::sync::Arc;

use hyper::Response;
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, HeaderValue};
use hyper::http::request::Parts;

use super::body::Body;
use super::page_request::named_server;
use super::{api, response};
use crate::client::principal::Principal;
use crate::observe::RestartRecord;
use crate::request::errors::ErrorReply;
use crate::shared::GatewayShared;
use ropeway_core::error_chain::chain;
use ropeway_core::tool::Alias;

/// Restarts a server for an operator, and responds when it is connected or has failed.
pub(super) async fn restart(
    shared: &Arc<GatewayShared>,
    principal: &Principal,
    head: &Parts,
    body: Incoming,
) -> Response<Body> {
    if !principal.is_operator() {
        return api::not_operator();
    }
    let server = match named_server(shared, principal, head, body).await {
        Ok(server) => Alias::from(&*server),
        Err(refused) => return refused,
    };
    if shared.bridge.server(&server).is_none() {
        return response::refuse(404, "the server is unknown, disabled or not started");
    }
    if let Err(wait) = shared.restart_limit.take(&server) {
        let error = ErrorReply::limited(format!("server `{server}` was restarted a moment ago"), wait);
        return response::refused_by("restart", response::error(&error));
    }
    let (shared, principal) = (shared.clone(), principal.clone());
    // A browser that disconnects must not leave the server stopped.
    let restarting = tokio::spawn(async move {
        let reason = format!("requested by {}", principal.id());
        let restarted = tokio::select! {
            restarted = shared.upstreams.restart(&server, &reason) => restarted.map_err(|error| chain(&error)),
            () = shared.draining.cancelled() => Err("the gateway is stopping".to_owned()),
        };
        shared.observer.add_restart(RestartRecord::new(&principal, server, restarted.is_ok()));
        restarted
    });
    let mut response = match restarting.await {
        Ok(Ok(())) => response::document(200, r#"{"restarted":true}"#),
        Ok(Err(reason)) => response::error(&ErrorReply::refused(502, reason)),
        Err(_) => response::error(&ErrorReply::refused(502, "the restart was interrupted")),
    };
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
