//! Metadata: where it is found, and metadata that must not be used.

use ropeway::config::OAuthSettings;
use ropeway::oauth::{OAuthError, SignIn, SignInOptions};
use serde_json::json;

use super::authorization_server::AuthorizationServer;
use super::wire::Answer;
use super::{options, sign_in, start};

const AUTHORIZATION_SERVER: &str = "/.well-known/oauth-authorization-server";
const RESOURCE: &str = "/.well-known/oauth-protected-resource/mcp";
const ROOT_RESOURCE: &str = "/.well-known/oauth-protected-resource";

fn not_found() -> Answer {
    Answer::text(404, "text/plain", "not found")
}

#[tokio::test]
async fn metadata_is_found_without_a_challenge_and_at_the_root() {
    let server = AuthorizationServer::start().await;
    server.change(|behaviour| behaviour.names_metadata = false);
    assert!(sign_in(&server).await.is_ok());
    server.answer(RESOURCE, not_found());
    assert!(sign_in(&server).await.is_ok());
    // Applications of one page answer every path with it.
    server.answer(RESOURCE, Answer::html(200));
    assert!(sign_in(&server).await.is_ok());
}

#[tokio::test]
async fn an_issuer_with_a_path_has_three_metadata_urls() {
    for place in [
        "/.well-known/oauth-authorization-server/tenant1",
        "/.well-known/openid-configuration/tenant1",
        "/tenant1/.well-known/openid-configuration",
    ] {
        let server = AuthorizationServer::start().await;
        let issuer = format!("{}/tenant1", server.url);
        server.set_resource("authorization_servers", json!([issuer]));
        server.set_metadata("issuer", issuer.as_str());
        let metadata = server.state().metadata.clone();
        server.answer(place, Answer::json(200, &metadata));
        assert_eq!(start(&server).await.expect("a sign-in").issuer(), issuer, "{place}");
    }
}

#[tokio::test]
async fn servers_of_2025_03_26_have_their_authorization_server_at_the_origin() {
    let server = AuthorizationServer::start().await;
    server.remove_resource_metadata();
    server.set_metadata("code_challenge_methods_supported", json!(null));
    assert_eq!(sign_in(&server).await.expect("credentials").resource, server.mcp());
    server.answer(AUTHORIZATION_SERVER, not_found());
    server.change(|behaviour| behaviour.iss = None);
    let credentials = sign_in(&server).await.expect("credentials");
    assert_eq!(credentials.token_endpoint, format!("{}/token", server.url));
}

#[tokio::test]
async fn metadata_of_another_resource_is_refused() {
    let server = AuthorizationServer::start().await;
    for resource in ["https://evil.example/mcp".to_owned(), format!("{}/other", server.url)] {
        server.set_resource("resource", resource.as_str());
        let result = start(&server).await;
        assert!(matches!(result, Err(OAuthError::Mismatch { .. })), "{result:?}");
    }
    assert!(server.requests(AUTHORIZATION_SERVER).is_empty());
}

#[tokio::test]
async fn metadata_at_another_origin_is_refused() {
    let (server, other) = (AuthorizationServer::start().await, AuthorizationServer::start().await);
    let header = format!("Bearer resource_metadata=\"{}{RESOURCE}\"", other.url);
    server.answer("/mcp", Answer::text(401, "text/plain", "").with("www-authenticate", &header));
    let result = start(&server).await;
    assert!(matches!(result, Err(OAuthError::Blocked { .. })), "{result:?}");
    assert!(other.requests(RESOURCE).is_empty());
}

#[tokio::test]
async fn endpoints_on_private_addresses_and_plain_http_are_refused() {
    for name in ["token_endpoint", "registration_endpoint", "device_authorization_endpoint", "revocation_endpoint"] {
        for url in ["http://169.254.169.254/latest", "https://10.0.0.1/", "http://auth.example/"] {
            let server = AuthorizationServer::start().await;
            server.set_metadata(name, url);
            let error = start(&server).await.expect_err(url);
            assert!(matches!(error, OAuthError::Blocked { .. }), "{name} {url}: {error}");
        }
    }
    let server = AuthorizationServer::start().await;
    for url in ["http://auth.example/authorize", "javascript:alert(1)", "file:///etc/passwd"] {
        server.set_metadata("authorization_endpoint", url);
        assert!(matches!(start(&server).await, Err(OAuthError::Blocked { .. })), "{url}");
    }
}

#[tokio::test]
async fn an_issuer_on_a_private_address_is_refused_unless_it_is_allowed() {
    let server = AuthorizationServer::start().await;
    server.set_resource("authorization_servers", json!(["https://192.168.255.254"]));
    let error = start(&server).await.expect_err("blocked").to_string();
    assert!(error.contains("add `192.168.255.254` to `allow_private`"), "{error}");
}

#[tokio::test]
async fn an_issuer_that_does_not_match_its_metadata_is_refused() {
    let server = AuthorizationServer::start().await;
    for issuer in ["https://evil.example".to_owned(), server.url.replace("127.0.0.1", "localhost")] {
        server.set_metadata("issuer", issuer.as_str());
        let result = start(&server).await;
        assert!(matches!(&result, Err(OAuthError::Mismatch { what, .. }) if what == "issuer"), "{result:?}");
    }
}

#[tokio::test]
async fn only_the_pinned_issuer_is_accepted() {
    let server = AuthorizationServer::start().await;
    let pinned = |issuer: &str| options(&server, OAuthSettings::new().with_issuer(issuer));
    assert!(SignIn::start(pinned(&server.url)).await.is_ok());
    let result = SignIn::start(pinned("https://auth.example")).await;
    assert!(matches!(result, Err(OAuthError::Mismatch { .. })), "{result:?}");
}

#[tokio::test]
async fn the_next_authorization_server_is_used_if_the_first_one_is_down() {
    let server = AuthorizationServer::start().await;
    server.set_resource("authorization_servers", json!(["http://127.0.0.1:9", server.url]));
    assert_eq!(start(&server).await.expect("a sign-in").issuer(), server.url);
}

#[tokio::test]
async fn metadata_that_is_html_an_error_or_too_large_is_reported() {
    for (answer, text) in [
        (Answer::html(200), "not a JSON object: Please log in"),
        (Answer::html(500), "HTTP 500: Please log in"),
        (Answer::Huge, "larger than 1 MiB"),
        (Answer::json(200, &json!([1])), "not a JSON object"),
        (Answer::json(200, &json!({})), "it has no `resource`"),
        (
            Answer::redirect("https://evil.example/x?token=1"),
            "a redirect to `https://evil.example/x`, which is not followed",
        ),
    ] {
        let server = AuthorizationServer::start().await;
        server.answer(RESOURCE, answer.clone());
        server.answer(ROOT_RESOURCE, answer.clone());
        server.answer(AUTHORIZATION_SERVER, not_found());
        let error = start(&server).await.expect_err(text).to_string();
        assert!(error.contains(text), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn metadata_that_never_comes_ends_in_time() {
    let server = AuthorizationServer::start().await;
    server.answer(AUTHORIZATION_SERVER, Answer::Silent);
    server.answer("/.well-known/openid-configuration", Answer::Silent);
    let started = tokio::time::Instant::now();
    let result = start(&server).await;
    assert!(matches!(result, Err(OAuthError::Timeout { .. })), "{result:?}");
    assert!(started.elapsed().as_secs() <= 65, "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_server_that_is_down_is_reported() {
    let result = SignIn::start(SignInOptions::new("http://127.0.0.1:9/mcp")).await;
    assert!(matches!(result, Err(OAuthError::Unreachable { .. })), "{result:?}");
    let result = SignIn::start(SignInOptions::new("not a URL")).await;
    assert!(matches!(result, Err(OAuthError::Settings { .. })), "{result:?}");
}
