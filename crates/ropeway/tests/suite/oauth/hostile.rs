//! Authorization servers and protected servers that attack the client.

use std::sync::Arc;

use ropeway::config::{OAuthGrant, OAuthSettings};
use ropeway::mcp::{Handlers, Mcp};
use ropeway::oauth::{OAuthError, SignIn};
use ropeway::secret::AccountRedactor;
use ropeway::tool::CallError;
use serde_json::json;

use super::authorization_server::AuthorizationServer;
use super::connection::{Asked, call, chain, connection, http, signed_in};
use super::wire::Answer;
use super::{options, sign_in_with};

/// Calls the tool several times at once.
async fn calls(mcp: &Mcp, count: usize) -> Vec<Result<String, CallError>> {
    let tasks: Vec<_> = (0..count)
        .map(|_| {
            tokio::spawn({
                let mcp = mcp.clone();
                async move { call(&mcp).await }
            })
        })
        .collect();
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(task.await.expect("a task"));
    }
    outcomes
}

#[tokio::test]
async fn concurrent_calls_share_one_replacement_of_a_token_that_expires_at_once() {
    let server = AuthorizationServer::start().await;
    server.change(|behaviour| behaviour.expires_in = Some(0));
    let mcp = connection(http(&server), Handlers::new().with_token_store(signed_in(&server).await));
    mcp.connect().await.expect("connected");
    let before = server.token_requests("refresh_token").len();
    assert!(calls(&mcp, 20).await.iter().all(Result::is_ok));
    let refreshes = server.token_requests("refresh_token").len() - before;
    assert!((1..=4).contains(&refreshes), "{refreshes} refreshes");
}

#[tokio::test]
async fn concurrent_calls_share_the_failure_of_a_token_endpoint() {
    let server = AuthorizationServer::start().await;
    server.change(|behaviour| behaviour.expires_in = Some(0));
    let mcp = connection(http(&server), Handlers::new().with_token_store(signed_in(&server).await));
    mcp.connect().await.expect("connected");
    server.answer("/token", Answer::html(500));
    let before = server.requests("/token").len();
    assert!(calls(&mcp, 20).await.iter().all(Result::is_err));
    let requests = server.requests("/token").len() - before;
    assert!((1..=4).contains(&requests), "{requests} requests");
}

#[tokio::test]
async fn stored_tokens_of_a_pinned_issuer_are_used_whether_or_not_it_ends_with_a_slash() {
    let server = AuthorizationServer::start().await;
    let (asked, store) = (Asked::default(), signed_in(&server).await);
    for (issuer, expected) in
        [(format!("{}/", server.url), 0), (server.url.clone(), 0), (format!("{}/x", server.url), 1)]
    {
        let handlers = asked.host().with_token_store(store.clone());
        let mcp = connection(http(&server).with_auth(OAuthSettings::new().with_issuer(issuer)), handlers);
        // The last issuer is not the one of the server.
        assert_eq!(mcp.connect().await.is_ok(), expected == 0);
        assert_eq!(asked.count(), expected);
    }
}

#[tokio::test]
async fn a_challenge_and_a_redirect_of_any_length_are_bounded() {
    let server = AuthorizationServer::start().await;
    let long = "x".repeat(100_000);
    for answer in [
        Answer::json(401, &json!({})).with("www-authenticate", &format!("Bearer scope=\"{long}\"")),
        Answer::redirect(&format!("https://other.example/{long}")),
    ] {
        server.answer("/mcp", answer);
        let error = connection(http(&server), Handlers::new()).connect().await.expect_err("no token");
        let text = format!("{error:?}");
        assert!(text.len() < 20_000, "{} bytes", text.len());
    }
}

#[tokio::test]
async fn a_host_learns_the_tokens_of_a_connection() {
    let server = AuthorizationServer::start().await;
    let (known, others) = (Arc::new(AccountRedactor::new()), Arc::new(AccountRedactor::new()));
    let store = signed_in(&server).await;
    let handlers = Handlers::new().with_token_store(store);
    let handlers = handlers.with_token_redactor(known.clone()).with_token_redactor(others.clone());
    let mcp = connection(http(&server), handlers);
    mcp.connect().await.expect("connected");
    let tokens = || -> Vec<String> {
        let state = server.state();
        state.access_tokens.keys().chain(state.refresh_tokens.keys()).cloned().collect()
    };
    let redacted = |text: &str| known.current().redact(text).into_owned();
    assert_eq!(redacted(&tokens().join(" ")), "*** ***");
    server.expire_access_tokens();
    call(&mcp).await.expect("a result");
    assert_eq!(redacted(&tokens().join(" ")), "*** ***", "the refreshed tokens");
    assert_eq!(redacted("web"), "web");
    assert_eq!(others.current(), known.current());
}

fn confidential() -> OAuthSettings {
    OAuthSettings::new().with_client_id("me").with_client_secret("client-s3cret")
}

/// Two authorization servers that know the client, and a protected server that names the first one.
async fn two_servers() -> (AuthorizationServer, AuthorizationServer) {
    let (honest, hostile) = (AuthorizationServer::start().await, AuthorizationServer::start().await);
    for server in [&honest, &hostile] {
        server.add_client("me", Some("client-s3cret"), "client_secret_basic");
    }
    (honest, hostile)
}

#[tokio::test]
async fn a_server_cannot_have_the_secret_of_a_client_sent_elsewhere() {
    let (server, hostile) = two_servers().await;
    let first = sign_in_with(options(&server, confidential())).await.expect("credentials");
    server.set_resource("authorization_servers", json!([hostile.url]));
    let again = options(&server, confidential()).with_previous(Some(first.clone()));
    let error = sign_in_with(again).await.expect_err("another authorization server");
    assert!(matches!(error, OAuthError::Settings { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(&hostile.url) && text.contains(&server.url) && text.contains("set `issuer`"), "{text}");
    assert!(hostile.requests("/token").is_empty());
    // A person who knows of the change confirms it.
    let settings = confidential().with_issuer(hostile.url.clone());
    let confirmed = options(&server, settings).with_previous(Some(first.clone()));
    assert_eq!(SignIn::start(confirmed).await.expect("a sign-in").issuer(), hostile.url);
    // A client without a secret has nothing to lose.
    let public = OAuthSettings::new().with_client_id("me");
    assert!(SignIn::start(options(&server, public).with_previous(Some(first))).await.is_ok());
}

#[tokio::test]
async fn a_server_cannot_have_the_secret_of_a_machine_sent_elsewhere() {
    let (server, hostile) = two_servers().await;
    let auth = confidential().with_grant(OAuthGrant::ClientCredentials);
    let mcp = connection(http(&server).with_auth(auth), Handlers::new());
    mcp.connect().await.expect("connected");
    call(&mcp).await.expect("a result");
    server.set_resource("authorization_servers", json!([hostile.url]));
    server.expire_access_tokens();
    let error = call(&mcp).await.expect_err("another authorization server");
    assert!(chain(&error).contains("the issuer does not match"), "{}", chain(&error));
    assert!(hostile.requests("/token").is_empty());
    server.set_resource("authorization_servers", json!([server.url]));
    call(&mcp).await.expect("the first authorization server");
}
