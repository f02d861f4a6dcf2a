//! Refresh and revocation.

use ropeway::config::OAuthSettings;
use ropeway::oauth::OAuthError;
use ropeway_mcp::oauth::{refresh_credentials, revoke};
use serde_json::json;

use super::authorization_server::AuthorizationServer;
use super::wire::Answer;
use super::{options, sign_in, sign_in_with};

#[tokio::test]
async fn a_refresh_replaces_the_tokens() {
    let server = AuthorizationServer::start().await;
    server.change(|behaviour| {
        behaviour.challenge_scope = Some("read".to_owned());
        behaviour.registered_method = "client_secret_basic";
    });
    let first = sign_in(&server).await.expect("credentials");
    let second = refresh_credentials(&first, &OAuthSettings::new()).await.expect("tokens");
    assert_ne!(second.tokens.access_token, first.tokens.access_token);
    assert_ne!(second.tokens.refresh_token, first.tokens.refresh_token);
    assert_eq!((&second.granted, &second.tokens.scopes), (&first.granted, &first.tokens.scopes));
    assert_eq!(server.token_requests("refresh_token")[0]["resource"], server.mcp());
}

#[tokio::test]
async fn a_refresh_token_that_is_not_replaced_is_kept() {
    let server = AuthorizationServer::start().await;
    server.change(|behaviour| behaviour.rotates_refresh_tokens = false);
    let first = sign_in(&server).await.expect("credentials");
    let second = refresh_credentials(&first, &OAuthSettings::new()).await.expect("tokens");
    assert_eq!(second.tokens.refresh_token, first.tokens.refresh_token);
}

#[tokio::test]
async fn a_refresh_token_that_is_refused_is_an_invalid_grant() {
    let server = AuthorizationServer::start().await;
    let first = sign_in(&server).await.expect("credentials");
    server.revoke_refresh_tokens();
    let error = refresh_credentials(&first, &OAuthSettings::new()).await.expect_err("refused");
    assert!(error.is_invalid_grant() && !error.is_transient(), "{error:?}");
    server.change(|behaviour| behaviour.issues_refresh_tokens = false);
    let without = sign_in(&server).await.expect("credentials");
    let error = refresh_credentials(&without, &OAuthSettings::new()).await.expect_err("no refresh token");
    assert!(error.is_invalid_grant(), "{error:?}");
}

#[tokio::test]
async fn a_token_endpoint_that_is_down_is_not_an_invalid_grant() {
    let server = AuthorizationServer::start().await;
    let first = sign_in(&server).await.expect("credentials");
    for answer in [Answer::html(502), Answer::Close, Answer::json(500, &json!({"error": "server_error"}))] {
        server.answer_times(1, "/token", answer);
        let error = refresh_credentials(&first, &OAuthSettings::new()).await.expect_err("down");
        assert!(error.is_transient() && !error.is_invalid_grant(), "{error:?}");
    }
    assert!(refresh_credentials(&first, &OAuthSettings::new()).await.is_ok());
}

#[tokio::test]
async fn a_configured_secret_that_changed_is_used_for_the_next_refresh() {
    let server = AuthorizationServer::start().await;
    server.add_client("me", Some("old-s3cret"), "client_secret_basic");
    let settings = OAuthSettings::new().with_client_id("me").with_client_secret("old-s3cret");
    let credentials = sign_in_with(options(&server, settings.clone())).await.expect("credentials");
    server.add_client("me", Some("new-s3cret"), "client_secret_basic");
    let error = refresh_credentials(&credentials, &settings).await.expect_err("refused");
    assert!(error.is_invalid_client(), "{error:?}");
    assert!(refresh_credentials(&credentials, &settings.with_client_secret("new-s3cret")).await.is_ok());
}

#[tokio::test]
async fn stored_endpoints_are_checked_as_well() {
    let server = AuthorizationServer::start().await;
    let mut credentials = sign_in(&server).await.expect("credentials");
    credentials.token_endpoint = "http://169.254.169.254/token".to_owned();
    let result = refresh_credentials(&credentials, &OAuthSettings::new()).await;
    assert!(matches!(result, Err(OAuthError::Blocked { .. })), "{result:?}");
}

#[tokio::test]
async fn a_sign_out_revokes_both_tokens() {
    let server = AuthorizationServer::start().await;
    server.change(|behaviour| behaviour.registered_method = "client_secret_post");
    let credentials = sign_in(&server).await.expect("credentials");
    let revocation = revoke(&credentials, &OAuthSettings::new()).await.expect("revoked");
    assert_eq!((revocation.refresh_token, revocation.access_token), (Some(true), true), "{revocation:?}");
    let hints: Vec<_> =
        server.requests("/revoke").iter().map(|request| request.form()["token_type_hint"].clone()).collect();
    assert_eq!(hints, ["refresh_token", "access_token"]);
    assert!(server.state().access_tokens.is_empty() && server.state().refresh_tokens.is_empty());
}

#[tokio::test]
async fn a_server_without_revocation_is_not_an_error() {
    let server = AuthorizationServer::start().await;
    server.set_metadata("revocation_endpoint", json!(null));
    let credentials = sign_in(&server).await.expect("credentials");
    let revocation = revoke(&credentials, &OAuthSettings::new()).await.expect("nothing to do");
    assert!(!revocation.is_supported && revocation.problem.is_none(), "{revocation:?}");
}

#[tokio::test]
async fn tokens_that_are_not_revoked_are_reported() {
    let server = AuthorizationServer::start().await;
    let credentials = sign_in(&server).await.expect("credentials");
    let unsupported = Answer::json(400, &json!({"error": "unsupported_token_type"}));
    server.answer("/revoke", unsupported);
    let revocation = revoke(&credentials, &OAuthSettings::new()).await.expect("an answer");
    assert_eq!((revocation.refresh_token, revocation.access_token), (Some(false), false), "{revocation:?}");
    assert!(revocation.is_supported && revocation.problem.is_none(), "{revocation:?}");
    assert!(!credentials.revoke(&OAuthSettings::new()).await.expect("an answer"));
    server.answer("/revoke", Answer::html(500));
    let revocation = revoke(&credentials, &OAuthSettings::new()).await.expect("an answer");
    assert!(matches!(revocation.problem, Some(OAuthError::Invalid { .. })), "{revocation:?}");
    let error = credentials.revoke(&OAuthSettings::new()).await.expect_err("refused");
    assert!(matches!(error, OAuthError::Invalid { .. }), "{error:?}");
    server.state().answers.clear();
    // Many servers revoke refresh tokens only.
    server.change(|behaviour| behaviour.revokes_access_tokens = false);
    let revocation = revoke(&credentials, &OAuthSettings::new()).await.expect("an answer");
    assert_eq!((revocation.refresh_token, revocation.access_token), (Some(true), false), "{revocation:?}");
    assert!(revocation.problem.is_none(), "{revocation:?}");
}
