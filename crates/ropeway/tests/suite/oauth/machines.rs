//! Grants without a person: client credentials, workload identity, and an identity provider.

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use ropeway::config::{IdentityProvider, OAuthGrant, OAuthSettings, PrivateKey, Secret, TokenSource};
use ropeway::oauth::{OAuthError, obtain_credentials};
use serde_json::json;

use super::authorization_server::AuthorizationServer;
use super::wire::Answer;

fn client_credentials() -> OAuthSettings {
    OAuthSettings::new().with_grant(OAuthGrant::ClientCredentials).with_client_id("machine")
}

/// Returns a key as PEM, and its public point.
fn key() -> (String, Vec<u8>) {
    use base64::Engine as _;
    let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
    let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).expect("a key");
    let body = base64::engine::general_purpose::STANDARD.encode(document.as_ref());
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n");
    (pem, pair.public_key().as_ref().to_vec())
}

#[tokio::test]
async fn client_credentials_with_a_secret() {
    let server = AuthorizationServer::start().await;
    server.add_client("machine", Some("s3cret"), "client_secret_basic");
    server.set_resource("scopes_supported", json!(["read"]));
    let settings = client_credentials().with_client_secret("s3cret");
    let credentials = obtain_credentials(&server.mcp(), &settings, None).await.expect("credentials");
    assert_eq!(credentials.granted, ["read"]);
    assert_eq!(credentials.tokens.refresh_token, None);
    assert!(server.requests("/register").is_empty());
    let wrong = client_credentials().with_client_secret("wrong-s3cret");
    let error = obtain_credentials(&server.mcp(), &wrong, None).await.expect_err("refused");
    assert!(error.is_invalid_client() && !error.to_string().contains("wrong"), "{error}");
}

#[tokio::test]
async fn client_credentials_with_a_key() {
    let server = AuthorizationServer::start().await;
    let (pem, public) = key();
    server.change(|behaviour| behaviour.client_key = Some(public));
    let settings = client_credentials().with_private_key(PrivateKey::new(pem));
    assert!(obtain_credentials(&server.mcp(), &settings, None).await.is_ok());
    let form = &server.token_requests("client_credentials")[0];
    assert_eq!(form["client_assertion_type"], "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
    let (other, _) = key();
    let settings = client_credentials().with_private_key(PrivateKey::new(other));
    let error = obtain_credentials(&server.mcp(), &settings, None).await.expect_err("another key");
    assert!(error.is_invalid_client(), "{error}");
    let settings = client_credentials().with_private_key(PrivateKey::new("nonsense"));
    let result = obtain_credentials(&server.mcp(), &settings, None).await;
    assert!(matches!(result, Err(OAuthError::Key { .. })), "{result:?}");
}

#[tokio::test]
async fn an_assertion_has_the_time_of_the_server() {
    let server = AuthorizationServer::start().await;
    let (pem, public) = key();
    server.change(|behaviour| behaviour.client_key = Some(public));
    let ahead = std::time::SystemTime::now() + std::time::Duration::from_secs(300);
    let date = httpdate::fmt_http_date(ahead);
    let refused = Answer::json(401, &json!({"error": "invalid_client", "error_description": "iat"}));
    server.answer_times(1, "/token", refused.with("date", &date));
    let settings = client_credentials().with_private_key(PrivateKey::new(pem));
    assert!(obtain_credentials(&server.mcp(), &settings, None).await.is_ok());
    let times: Vec<u64> =
        server.token_requests("client_credentials").iter().map(|form| issued_at(&form["client_assertion"])).collect();
    assert!(times.len() == 2 && (290..=310).contains(&(times[1] - times[0])), "{times:?}");
}

fn issued_at(token: &str) -> u64 {
    let claims = token.split('.').nth(1).and_then(super::proofs::decode).expect("claims");
    serde_json::from_slice::<serde_json::Value>(&claims).expect("JSON")["iat"].as_u64().expect("a time")
}

#[tokio::test]
async fn a_workload_exchanges_its_assertion_once() {
    let server = AuthorizationServer::start().await;
    let grant = OAuthGrant::WorkloadIdentity { assertion: TokenSource::Value("unused".into()) };
    let settings = OAuthSettings::new().with_grant(grant);
    let valid = Secret::new("w0rkload-assertion");
    assert!(obtain_credentials(&server.mcp(), &settings, Some(&valid)).await.is_ok());
    let expired = Secret::new("expired-assertion");
    let error = obtain_credentials(&server.mcp(), &settings, Some(&expired)).await.expect_err("refused");
    assert!(error.is_invalid_grant() && !error.to_string().contains("expired-"), "{error}");
    assert_eq!(server.token_requests("jwt-bearer").len(), 2, "not repeated");
    let result = obtain_credentials(&server.mcp(), &settings, None).await;
    assert!(matches!(result, Err(OAuthError::Settings { .. })), "{result:?}");
}

#[tokio::test]
async fn an_identity_provider_grants_access() {
    let (server, provider) = (AuthorizationServer::start().await, AuthorizationServer::start().await);
    server.add_client("machine", Some("s3cret"), "client_secret_basic");
    let id_token = Secret::new("id-t0ken-of-a-person");
    for idp in [
        IdentityProvider::new(&provider.url, TokenSource::Value("unused".into())),
        IdentityProvider::with_endpoint(format!("{}/token", provider.url), TokenSource::Value("unused".into())),
    ] {
        let grant = OAuthGrant::EnterpriseManaged(idp.with_client_id("idp-client"));
        let settings = client_credentials().with_client_secret("s3cret").with_grant(grant);
        assert!(obtain_credentials(&server.mcp(), &settings, Some(&id_token)).await.is_ok());
        let wrong = Secret::new("stolen-t0ken");
        let error = obtain_credentials(&server.mcp(), &settings, Some(&wrong)).await.expect_err("refused");
        assert!(error.to_string().contains("identity provider"), "{error}");
    }
    let exchange = &provider.token_requests("token-exchange")[0];
    assert_eq!((&exchange["audience"], &exchange["resource"]), (&server.url, &server.mcp()));
    assert_eq!(exchange["client_id"], "idp-client");
    assert_eq!(server.token_requests("jwt-bearer").len(), 2);
}

#[tokio::test]
async fn a_grant_that_is_not_an_id_jag_is_refused() {
    let (server, provider) = (AuthorizationServer::start().await, AuthorizationServer::start().await);
    provider.answer("/token", Answer::json(200, &json!({"access_token": "a", "token_type": "Bearer"})));
    let idp = IdentityProvider::new(&provider.url, TokenSource::Value("unused".into()));
    let settings = client_credentials().with_grant(OAuthGrant::EnterpriseManaged(idp));
    let result = obtain_credentials(&server.mcp(), &settings, Some(&Secret::new("id"))).await;
    assert!(matches!(result, Err(OAuthError::Mismatch { .. })), "{result:?}");
    assert!(server.requests("/token").is_empty());
}

#[tokio::test]
async fn a_grant_without_a_client_names_the_key_to_set() {
    let server = AuthorizationServer::start().await;
    let settings = OAuthSettings::new().with_grant(OAuthGrant::ClientCredentials);
    let error = obtain_credentials(&server.mcp(), &settings, None).await.expect_err("no client").to_string();
    assert!(error.contains("`client_id`"), "{error}");
    let result = obtain_credentials(&server.mcp(), &OAuthSettings::new(), None).await;
    assert!(matches!(result, Err(OAuthError::SignInRequired { .. })), "{result:?}");
}

#[tokio::test]
async fn tokens_of_machines_are_bound_to_a_key_where_it_is_required() {
    let server = AuthorizationServer::start().await;
    server.add_client("machine", Some("s3cret"), "client_secret_basic");
    server.change(|behaviour| (behaviour.dpop, behaviour.dpop_nonce) = (true, true));
    let settings = client_credentials().with_client_secret("s3cret");
    let credentials = obtain_credentials(&server.mcp(), &settings, None).await.expect("credentials");
    assert!(credentials.tokens.dpop && credentials.dpop_key.is_some());
}
