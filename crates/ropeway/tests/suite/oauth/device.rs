//! Sign-ins on another device.

use std::time::Duration;

use ropeway::oauth::OAuthError;
use serde_json::json;
use tokio::time::Instant;

use super::authorization_server::AuthorizationServer;
use super::start;
use super::wire::Answer;

#[tokio::test(start_paused = true)]
async fn a_device_waits_and_slows_down() {
    let server = AuthorizationServer::start().await;
    server.change(|behaviour| {
        behaviour.device_errors = vec!["authorization_pending", "slow_down", "authorization_pending"];
        behaviour.challenge_scope = Some("read".to_owned());
    });
    let mut sign_in = start(&server).await.expect("a sign-in");
    assert!(sign_in.has_device_flow());
    let device = sign_in.device().await.expect("a code");
    assert_eq!(device.user_code, "WDJB-MJHT");
    assert_eq!(device.verification_uri, format!("{}/activate", server.url));
    assert!(device.verification_uri_complete.is_some());
    let started = Instant::now();
    let credentials = sign_in.wait_for_device(&device).await.expect("credentials");
    assert_eq!(credentials.granted, ["read"]);
    assert!(credentials.tokens.refresh_token.is_some());
    // 5 + 5 seconds, and 10 + 10 after the request to slow down.
    let waited = started.elapsed();
    assert!(waited >= Duration::from_secs(30) && waited < Duration::from_secs(40), "{waited:?}");
    assert!(!format!("{device:?}").contains("device-"), "{device:?}");
}

#[tokio::test(start_paused = true)]
async fn a_device_sign_in_ends_when_it_is_denied_or_expires() {
    let server = AuthorizationServer::start().await;
    let wait = async |errors: &[&'static str]| {
        server.change(|behaviour| behaviour.device_errors = errors.to_vec());
        let mut sign_in = start(&server).await.expect("a sign-in");
        let device = sign_in.device().await.expect("a code");
        sign_in.wait_for_device(&device).await
    };
    assert!(matches!(wait(&["access_denied"]).await, Err(OAuthError::Denied { .. })));
    assert!(matches!(wait(&["expired_token"]).await, Err(OAuthError::Expired)));
    assert!(matches!(wait(&["invalid_client"]).await, Err(OAuthError::Refused { .. })));
    let started = Instant::now();
    assert!(matches!(wait(&["authorization_pending"; 400]).await, Err(OAuthError::Expired)));
    assert!(started.elapsed() <= Duration::from_secs(905), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_token_endpoint_that_is_down_for_a_moment_does_not_end_it() {
    let server = AuthorizationServer::start().await;
    let mut sign_in = start(&server).await.expect("a sign-in");
    let device = sign_in.device().await.expect("a code");
    server.answer_times(2, "/token", Answer::html(502));
    assert!(sign_in.wait_for_device(&device).await.is_ok());
}

#[tokio::test]
async fn invalid_device_responses_are_refused() {
    let fine = json!({"device_code": "d", "user_code": "U", "verification_uri": "https://auth.example/activate"});
    for (name, value, is_fine) in [
        ("interval", json!(0), true),
        ("expires_in", json!("600"), true),
        ("verification_uri", json!("http://auth.example/activate"), false),
        ("verification_uri", json!("javascript:alert(1)"), false),
        ("verification_uri_complete", json!("file:///etc/passwd"), false),
        ("verification_uri_complete", json!(format!("https://auth.example/{}", "x".repeat(100_000))), false),
        ("user_code", json!("x".repeat(1000)), false),
        ("device_code", json!(null), false),
    ] {
        let server = AuthorizationServer::start().await;
        let mut body = fine.clone();
        body[name] = value.clone();
        server.answer("/device", Answer::json(200, &body));
        let device = start(&server).await.expect("a sign-in").device().await;
        assert_eq!(device.is_ok(), is_fine, "{name} {value}: {device:?}");
    }
}

#[tokio::test]
async fn a_server_without_a_device_flow_is_reported() {
    let server = AuthorizationServer::start().await;
    server.set_metadata("device_authorization_endpoint", json!(null));
    let mut sign_in = start(&server).await.expect("a sign-in");
    assert!(!sign_in.has_device_flow());
    assert!(matches!(sign_in.device().await, Err(OAuthError::Unsupported { .. })));
}
