//! Authorization servers and protected servers that attack the client.

use ropeway::config::OAuthSettings;
use ropeway::mcp::{Handlers, Mcp};
use ropeway::tool::CallError;

use super::authorization_server::AuthorizationServer;
use super::connection::{Asked, call, connection, http, signed_in};
use super::wire::Answer;

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
