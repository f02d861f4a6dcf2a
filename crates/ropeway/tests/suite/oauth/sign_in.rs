//! Sign-ins in a browser: registration, callbacks, scopes and proofs.

use std::time::SystemTime;

use ropeway::config::OAuthSettings;
use ropeway::oauth::{OAuthError, SignIn, SignInOptions};
use ropeway_config::ClientAuthMethod;
use ropeway_mcp::oauth::Challenge;
use serde_json::json;

use super::authorization_server::AuthorizationServer;
use super::wire::browse;
use super::{REDIRECT, options, sign_in, sign_in_with, start};

fn scopes(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[tokio::test]
async fn a_sign_in_finds_registers_and_exchanges_the_code() {
    let server = AuthorizationServer::start().await;
    let credentials = sign_in(&server).await.expect("credentials");
    assert_eq!(credentials.server, server.mcp());
    assert_eq!(credentials.resource, server.mcp());
    assert_eq!(credentials.issuer, server.url);
    assert_eq!(credentials.token_endpoint, format!("{}/token", server.url));
    assert_eq!(credentials.revocation_endpoint, Some(format!("{}/revoke", server.url)));
    assert!(credentials.client.registered && credentials.tokens.refresh_token.is_some());
    assert!(credentials.tokens.expires_at.is_some_and(|end| end > SystemTime::now()));
    let registration = server.requests("/register")[0].json();
    assert_eq!(registration["redirect_uris"], json!([REDIRECT]));
    assert_eq!(registration["application_type"], "native");
    let form = &server.token_requests("authorization_code")[0];
    assert_eq!(form["resource"], server.mcp());
    assert!(!form.contains_key("scope"));
    let shown = format!("{credentials:?}");
    assert!(!shown.contains(credentials.tokens.access_token.expose()), "{shown}");
}

#[tokio::test]
async fn the_secret_of_a_registration_authenticates_the_client() {
    for method in ["client_secret_basic", "client_secret_post"] {
        let server = AuthorizationServer::start().await;
        server.change(|behaviour| behaviour.registered_method = method);
        server.set_metadata("token_endpoint_auth_methods_supported", json!([method]));
        let credentials = sign_in(&server).await.expect("credentials");
        assert_eq!(credentials.client.auth_method.name(), method);
        assert!(credentials.client.client_secret.is_some());
        assert_eq!(server.requests("/register")[0].json()["token_endpoint_auth_method"], method);
    }
}

#[tokio::test]
async fn a_configured_client_is_not_registered() {
    let server = AuthorizationServer::start().await;
    server.add_client("me", Some("s3cret"), "client_secret_basic");
    let settings = OAuthSettings::new().with_client_id("me").with_client_secret("s3cret");
    let credentials = sign_in_with(options(&server, settings)).await.expect("credentials");
    assert_eq!(credentials.client.auth_method, ClientAuthMethod::ClientSecretBasic);
    assert!(server.requests("/register").is_empty());
}

#[tokio::test]
async fn a_client_metadata_document_is_used_where_it_is_supported() {
    let document = "https://client.example/metadata.json";
    let settings = OAuthSettings::new().with_client_metadata_url(document);
    let server = AuthorizationServer::start().await;
    server.set_metadata("client_id_metadata_document_supported", true);
    let credentials = sign_in_with(options(&server, settings.clone())).await.expect("credentials");
    assert_eq!(credentials.client.client_id, document);
    assert!(server.requests("/register").is_empty());
    server.set_metadata("client_id_metadata_document_supported", false);
    let credentials = sign_in_with(options(&server, settings)).await.expect("credentials");
    assert!(credentials.client.registered);
}

#[tokio::test]
async fn a_sign_in_names_the_previous_issuer_if_it_changed() {
    let server = AuthorizationServer::start().await;
    let before = sign_in(&server).await.expect("credentials");
    let (same, other) = (server.url.clone(), "https://other.example".to_owned());
    for (issuer, expected) in [
        (same.clone(), None),
        (format!("{same}/"), None),
        (format!("{same}/x/"), Some(format!("{same}/x/"))),
        (other.clone(), Some(other)),
    ] {
        let mut previous = before.clone();
        previous.issuer = issuer;
        let options = SignInOptions::new(server.mcp()).with_previous(Some(previous));
        let sign_in = SignIn::start(options).await.expect("started");
        assert_eq!(sign_in.previous_issuer(), expected.as_deref());
    }
}

#[tokio::test]
async fn a_server_that_registers_no_clients_names_the_key_to_set() {
    let server = AuthorizationServer::start().await;
    server.set_metadata("registration_endpoint", json!(null));
    let error = sign_in(&server).await.expect_err("no registration");
    assert!(
        matches!(&error, OAuthError::Unsupported { what } if what.contains("set `auth.oauth.client_id`")),
        "{error}"
    );
}

#[tokio::test]
async fn scopes_come_from_the_challenge_or_the_metadata() {
    let server = AuthorizationServer::start().await;
    server.set_resource("scopes_supported", json!(["read", "write"]));
    assert_eq!(start(&server).await.expect("a sign-in").scopes(), ["read", "write"]);
    server.change(|behaviour| behaviour.challenge_scope = Some("read".to_owned()));
    server.set_metadata("scopes_supported", json!(["read", "offline_access"]));
    let credentials = sign_in(&server).await.expect("credentials");
    assert_eq!(credentials.granted, ["read", "offline_access"]);
}

#[tokio::test]
async fn a_step_up_requests_the_granted_scopes_again() {
    let server = AuthorizationServer::start().await;
    server.change(|behaviour| behaviour.challenge_scope = Some("read".to_owned()));
    let first = sign_in(&server).await.expect("credentials");
    let challenge = Challenge::parse([r#"Bearer error="insufficient_scope", scope="write""#]);
    let again = SignInOptions::new(server.mcp()).with_challenge(challenge).with_previous(Some(first.clone()));
    let second = sign_in_with(again).await.expect("credentials");
    assert_eq!(second.granted, scopes(&["write", "read"]));
    assert_eq!(second.client, first.client);
    assert_eq!(server.requests("/register").len(), 1);
}

#[tokio::test]
async fn nothing_of_another_authorization_server_is_used() {
    let (old, new) = (AuthorizationServer::start().await, AuthorizationServer::start().await);
    old.change(|behaviour| behaviour.challenge_scope = Some("old".to_owned()));
    let first = sign_in(&old).await.expect("credentials");
    let again = SignInOptions::new(new.mcp()).with_previous(Some(first.clone()));
    let second = sign_in_with(again).await.expect("credentials");
    assert_ne!(second.client.client_id, first.client.client_id);
    assert_eq!((second.issuer.as_str(), second.granted.len()), (new.url.as_str(), 0));
    assert_eq!(new.requests("/register").len(), 1);
}

#[tokio::test]
async fn iss_must_be_the_issuer_exactly() {
    let server = AuthorizationServer::start().await;
    let finish = async |advertised: bool, iss: Option<Option<String>>| {
        server.set_metadata("authorization_response_iss_parameter_supported", advertised);
        server.change(|behaviour| behaviour.iss = iss);
        sign_in(&server).await
    };
    assert!(finish(true, Some(None)).await.is_ok());
    assert!(finish(false, None).await.is_ok());
    let before = server.requests("/token").len();
    for (advertised, iss) in [
        (true, None),
        (true, Some(Some("https://evil.example".to_owned()))),
        (false, Some(Some("https://evil.example".to_owned()))),
        (true, Some(Some(format!("{}/", server.url)))),
        (true, Some(Some(server.url.replace("http", "HTTP")))),
    ] {
        let result = finish(advertised, iss.clone()).await;
        assert!(matches!(result, Err(OAuthError::Mismatch { .. })), "{iss:?}");
    }
    assert_eq!(server.requests("/token").len(), before, "no code was sent");
}

#[tokio::test]
async fn a_callback_of_another_page_does_not_end_the_sign_in() {
    let server = AuthorizationServer::start().await;
    let mut sign_in = start(&server).await.expect("a sign-in");
    let url = sign_in.prepare(REDIRECT).await.expect("a URL");
    for forged in [
        format!("{REDIRECT}?code=evil&state=guess"),
        format!("{REDIRECT}?error=access_denied"),
        REDIRECT.to_owned(),
        "http://127.0.0.1:8/other?code=evil".to_owned(),
    ] {
        let result = sign_in.finish(&forged).await;
        assert!(matches!(result, Err(OAuthError::Mismatch { .. })), "{forged}: {result:?}");
    }
    let callback = browse(&url).await;
    assert!(sign_in.finish(&callback).await.is_ok());
}

#[tokio::test]
async fn a_second_callback_is_refused() {
    let server = AuthorizationServer::start().await;
    let mut sign_in = start(&server).await.expect("a sign-in");
    assert!(matches!(sign_in.finish(REDIRECT).await, Err(OAuthError::NotInProgress)));
    let url = sign_in.prepare(REDIRECT).await.expect("a URL");
    let callback = browse(&url).await;
    assert!(sign_in.finish(&callback).await.is_ok());
    assert!(matches!(sign_in.finish(&callback).await, Err(OAuthError::NotInProgress)));
    assert_eq!(server.token_requests("authorization_code").len(), 1);
}

#[tokio::test]
async fn a_state_that_the_server_changed_is_refused() {
    let server = AuthorizationServer::start().await;
    server.change(|behaviour| behaviour.state = Some("another".to_owned()));
    assert!(matches!(sign_in(&server).await, Err(OAuthError::Mismatch { .. })));
    assert!(server.requests("/token").is_empty());
}

#[tokio::test]
async fn a_declined_sign_in_is_reported_as_such() {
    let server = AuthorizationServer::start().await;
    server.change(|behaviour| behaviour.denies = true);
    assert!(matches!(sign_in(&server).await, Err(OAuthError::Denied { .. })));
}

#[tokio::test]
async fn a_redirect_uri_of_another_machine_over_http_is_refused() {
    let server = AuthorizationServer::start().await;
    let mut sign_in = start(&server).await.expect("a sign-in");
    let result = sign_in.prepare("http://callback.example/").await;
    assert!(matches!(result, Err(OAuthError::Settings { .. })), "{result:?}");
}

#[tokio::test]
async fn an_authorization_server_without_pkce_is_refused() {
    let server = AuthorizationServer::start().await;
    for methods in [json!(null), json!(["plain"])] {
        server.set_metadata("code_challenge_methods_supported", methods);
        assert!(matches!(sign_in(&server).await, Err(OAuthError::Unsupported { .. })));
    }
}

#[tokio::test]
async fn tokens_are_bound_to_a_key_where_the_server_requires_it() {
    for nonce in [false, true] {
        let server = AuthorizationServer::start().await;
        server.change(|behaviour| (behaviour.dpop, behaviour.dpop_nonce) = (true, nonce));
        let credentials = sign_in(&server).await.expect("credentials");
        assert!(credentials.tokens.dpop && credentials.dpop_key.is_some());
        assert_eq!(server.token_requests("authorization_code").len(), if nonce { 2 } else { 1 });
        let refreshed =
            ropeway_mcp::oauth::refresh_credentials(&credentials, &OAuthSettings::new()).await.expect("tokens");
        assert_ne!(refreshed.tokens.access_token, credentials.tokens.access_token);
        assert_eq!(refreshed.dpop_key, credentials.dpop_key);
    }
}

#[tokio::test]
async fn an_unbound_token_is_refused_if_proofs_are_configured() {
    let server = AuthorizationServer::start().await;
    let result = sign_in_with(options(&server, OAuthSettings::new().with_dpop(true))).await;
    assert!(matches!(result, Err(OAuthError::Mismatch { .. })), "{result:?}");
}

#[tokio::test]
async fn errors_do_not_contain_secrets_that_were_sent() {
    let server = AuthorizationServer::start().await;
    server.add_client("me", Some("s3cret-of-the-client"), "client_secret_post");
    let settings = OAuthSettings::new()
        .with_client_id("me")
        .with_client_secret("s3cret-of-the-client")
        .with_token_endpoint_auth(ClientAuthMethod::ClientSecretPost);
    let body = json!({"error": "invalid_grant", "error_description": "bad s3cret-of-the-client"});
    server.answer("/token", super::wire::Answer::json(400, &body));
    let error = sign_in_with(options(&server, settings)).await.expect_err("refused");
    assert_eq!(error.to_string(), "the authorization server refused the request: invalid_grant (bad ***)");
    assert!(!format!("{error:?}").contains("s3cret"));
}

#[tokio::test]
async fn the_tokens_of_a_sign_in_are_accepted_until_they_expire() {
    let server = AuthorizationServer::start().await;
    let credentials = sign_in(&server).await.expect("credentials");
    let call = async |method: &str| {
        let request = reqwest::Client::new().post(server.mcp()).body(json!({"id": 1, "method": method}).to_string());
        let token = credentials.tokens.access_token.expose();
        let header = format!("{} {token}", credentials.tokens.scheme());
        let response = request.header("authorization", header).send().await.expect("a response");
        let challenge = response.headers().get("www-authenticate").and_then(|value| value.to_str().ok());
        (response.status().as_u16(), Challenge::parse(challenge))
    };
    assert_eq!(call("tools/list").await, (200, None));
    server.change(|behaviour| behaviour.required_scope = Some("write".to_owned()));
    let (status, challenge) = call("tools/call").await;
    assert!(status == 403 && challenge.is_some_and(|challenge| challenge.is_insufficient_scope()));
    server.expire_access_tokens();
    let (status, challenge) = call("tools/list").await;
    assert_eq!((status, challenge.and_then(|challenge| challenge.error).as_deref()), (401, Some("invalid_token")));
}
