//! A token endpoint and a registration endpoint that misbehave.

use ropeway::oauth::OAuthError;
use serde_json::json;

use super::authorization_server::AuthorizationServer;
use super::sign_in;
use super::wire::Answer;

#[tokio::test]
async fn invalid_responses_are_described() {
    for (answer, text) in [
        (Answer::html(200), "not a JSON object: Please log in"),
        (Answer::html(500), "HTTP 500: Please log in"),
        (Answer::json(503, &json!({"message": "down"})), "HTTP 503"),
        (Answer::Huge, "larger than 1 MiB"),
        (Answer::json(200, &json!({"token_type": "Bearer"})), "it has no `access_token`"),
        (Answer::json(200, &json!({"access_token": "a", "token_type": "mac"})), "token_type"),
        (Answer::redirect("http://evil.example/"), "a redirect to `http://evil.example/`, which is not followed"),
    ] {
        let server = AuthorizationServer::start().await;
        server.answer("/token", answer);
        let error = sign_in(&server).await.expect_err(text);
        assert!(matches!(error, OAuthError::Invalid { .. }) && error.is_transient(), "{error:?}");
        assert!(error.to_string().contains(text) && error.to_string().contains("/token"), "{error}");
    }
}

#[tokio::test]
async fn a_closed_connection_is_reported() {
    let server = AuthorizationServer::start().await;
    server.answer("/token", Answer::Close);
    let result = sign_in(&server).await;
    assert!(matches!(result, Err(OAuthError::Unreachable { .. })), "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn a_response_that_never_comes_ends_after_30_seconds() {
    let server = AuthorizationServer::start().await;
    server.answer("/token", Answer::Silent);
    let started = tokio::time::Instant::now();
    let result = sign_in(&server).await;
    assert!(matches!(result, Err(OAuthError::Timeout { .. })), "{result:?}");
    assert!((29..=35).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
}

#[tokio::test]
async fn an_error_with_status_200_is_an_error() {
    let server = AuthorizationServer::start().await;
    server.answer("/token", Answer::json(200, &json!({"error": "bad_verification_code"})));
    let result = sign_in(&server).await;
    assert!(
        matches!(&result, Err(OAuthError::Refused { error, .. }) if error == "bad_verification_code"),
        "{result:?}"
    );
}

#[tokio::test]
async fn a_server_without_oauth_is_not_taken_for_one_without_registration() {
    let server = AuthorizationServer::start().await;
    server.remove_resource_metadata();
    for path in ["/.well-known/oauth-authorization-server", "/register"] {
        server.answer(path, Answer::text(404, "text/plain", ""));
    }
    let error = sign_in(&server).await.expect_err("no OAuth").to_string();
    assert!(error.contains("has no OAuth metadata") && error.contains("set `auth.bearer`"), "{error}");
}

#[tokio::test]
async fn a_registration_that_fails_is_reported() {
    for (answer, text) in [
        (Answer::json(400, &json!({"error": "invalid_redirect_uri"})), "invalid_redirect_uri"),
        (Answer::text(404, "text/plain", ""), "set `auth.oauth.client_id`"),
        (Answer::html(200), "not a JSON object"),
        (Answer::json(201, &json!({"client_id": ""})), "it has no `client_id`"),
        (Answer::Huge, "larger than 1 MiB"),
    ] {
        let server = AuthorizationServer::start().await;
        server.answer("/register", answer);
        let error = sign_in(&server).await.expect_err(text).to_string();
        assert!(error.contains(text), "{error}");
    }
}
