//! Access tokens of an authorization server.

use std::time::{Duration, Instant};

use ropeway::config::{GatewaySettings, JwtSettings};
use ropeway::testing::Script;
use serde_json::{Value, json};

use super::auth::{header, with};
use super::issuer::{Issuer, JwksMode, SigningKey, encode, unix_now};
use super::kit::{GatewayKit, HttpReply, bare, modern, request};
use crate::scene::scene;

fn settings(issuer: &Issuer, change: impl FnOnce(JwtSettings) -> JwtSettings) -> GatewaySettings {
    let jwt = change(JwtSettings::new(&*issuer.url, "https://gateway.example/mcp"));
    GatewaySettings::default().with_jwt(jwt)
}

async fn start(issuer: &Issuer) -> GatewayKit {
    GatewayKit::start_with(Script::default(), settings(issuer, |jwt| jwt)).await
}

async fn list(kit: &GatewayKit, token: &str) -> HttpReply {
    kit.send(&with(&modern("tools/list", json!({})), &header(token), "/mcp")).await
}

fn changed(mut claims: Value, name: &str, value: Value) -> Value {
    claims[name] = value;
    claims
}

#[test]
fn a_token_of_the_issuer_is_accepted_and_others_are_refused() {
    scene(|_| async move {
        let (key, other) = (SigningKey::new("a"), SigningKey::new("a"));
        let issuer = Issuer::start(&[&key]).await;
        let kit = start(&issuer).await;
        let claims = issuer.claims();
        let valid = key.sign(&claims);
        assert_eq!(list(&kit, &valid).await.status, 200);
        assert_eq!(list(&kit, &valid).await.status, 200);
        let unsigned = |alg: &str| {
            let header = json!({"alg": alg, "typ": "JWT"}).to_string();
            format!("{}.{}.", encode(header.as_bytes()), encode(claims.to_string().as_bytes()))
        };
        // An attacker who knows the public key uses it as the secret of HMAC.
        let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, key.public().to_string().as_bytes());
        let confused = unsigned("HS256").trim_end_matches('.').to_owned();
        let confused = format!("{confused}.{}", encode(ring::hmac::sign(&secret, confused.as_bytes()).as_ref()));
        let (head, rest) = valid.split_once('.').expect("a token");
        let (_, signature) = rest.split_once('.').expect("a signature");
        let forged = changed(claims.clone(), "sub", json!("root")).to_string();
        for (name, token) in [
            ("no signature", unsigned("none")),
            ("no signature, in other letters", unsigned("nOnE")),
            ("an empty signature", unsigned("ES256")),
            ("a public key as a secret", confused),
            ("another key with the same id", other.sign(&claims)),
            ("changed claims", format!("{head}.{}.{signature}", encode(forged.as_bytes()))),
            ("another issuer", key.sign(&changed(claims.clone(), "iss", json!("https://evil.example")))),
            ("another audience", key.sign(&changed(claims.clone(), "aud", json!("https://other.example/mcp")))),
            ("no audience", key.sign(&changed(claims.clone(), "aud", json!(null)))),
            ("an expired token", key.sign(&changed(claims.clone(), "exp", json!(unix_now() - 61)))),
            ("a token of tomorrow", key.sign(&changed(claims.clone(), "nbf", json!(unix_now() + 3600)))),
            ("a principal with a line break", key.sign(&changed(claims.clone(), "sub", json!("a\nb")))),
            ("no principal", key.sign(&changed(claims.clone(), "sub", json!("")))),
            ("a key in the header", key.sign_with(&json!({"alg": "ES256", "kid": "b", "jwk": key.public()}), &claims)),
            ("an id that is a path", key.sign_with(&json!({"alg": "ES256", "kid": "../../etc/passwd"}), &claims)),
            ("half a token", valid[..valid.len() / 2].to_owned()),
            ("a token that is too long", format!("{valid}{}", "A".repeat(20_000))),
            ("a key of a file that is not configured", "rw_00000000_AAAA".to_owned()),
        ] {
            let reply = list(&kit, &token).await;
            assert_eq!(reply.status, 401, "{name}: {reply:?}");
            assert!(reply.headers["www-authenticate"].contains("error=\"invalid_token\""), "{name}: {reply:?}");
        }
        assert_eq!(list(&kit, &valid).await.status, 200);
        kit.stop().await;
    });
}

#[test]
fn a_client_finds_the_authorization_server() {
    scene(|_| async move {
        let issuer = Issuer::start(&[&SigningKey::new("a")]).await;
        let settings = settings(&issuer, |jwt| jwt.with_scopes(vec!["mcp".to_owned()]));
        let kit = GatewayKit::start_with(Script::default(), settings).await;
        let reply = kit.modern("tools/list", json!({})).await;
        let url = "https://gateway.example/.well-known/oauth-protected-resource/mcp";
        let challenge = format!("Bearer scope=\"mcp\", resource_metadata=\"{url}\"");
        assert_eq!((reply.status, &reply.headers["www-authenticate"]), (401, &challenge));
        for path in ["", "/mcp", "/mcp/scripted"] {
            let path = format!("/.well-known/oauth-protected-resource{path}");
            let metadata = kit.send(&bare("GET", &path, "Host: localhost\r\n")).await;
            assert_eq!(metadata.headers["content-type"], "application/json");
            assert_eq!(
                metadata.json(),
                json!({
                    "resource": "https://gateway.example/mcp", "authorization_servers": [issuer.url],
                    "bearer_methods_supported": ["header"], "resource_name": "ropeway", "scopes_supported": ["mcp"],
                })
            );
        }
        kit.stop().await;
        let kit = GatewayKit::start(Script::default()).await;
        let none = bare("GET", "/.well-known/oauth-protected-resource", "Host: localhost\r\n");
        assert_eq!(kit.send(&none).await.status, 404);
        kit.stop().await;
    });
}

#[test]
fn a_token_needs_the_scopes_and_gets_the_rights_of_the_settings() {
    scene(|_| async move {
        let key = SigningKey::new("a");
        let issuer = Issuer::start(&[&key]).await;
        let settings = settings(&issuer, |jwt| {
            jwt.with_scopes(vec!["mcp".to_owned()])
                .with_tools(Some(vec!["echo".to_owned()]))
                .with_principal_claim("email")
        });
        let kit = GatewayKit::start_with(Script::default(), settings).await;
        let claims = changed(issuer.claims(), "email", json!("alice@example.com"));
        let refused = list(&kit, &key.sign(&changed(claims.clone(), "scope", json!("mcp2 read")))).await;
        assert_eq!(refused.status, 403, "{refused:?}");
        let challenge = &refused.headers["www-authenticate"];
        assert!(challenge.starts_with("Bearer error=\"insufficient_scope\", scope=\"mcp\""), "{challenge}");
        let listed = list(&kit, &key.sign(&changed(claims, "scope", json!("read mcp")))).await.json();
        let tools = listed["result"]["tools"].as_array().expect("tools");
        assert_eq!(tools.iter().map(|tool| &tool["name"]).collect::<Vec<_>>(), ["echo"]);
        kit.stop().await;
    });
}

#[test]
fn a_session_belongs_to_the_subject_of_its_token() {
    scene(|_| async move {
        let key = SigningKey::new("a");
        let issuer = Issuer::start(&[&key]).await;
        let kit = start(&issuer).await;
        let alice = header(&key.sign(&issuer.claims()));
        let info = json!({"name": "kit", "version": "0"});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
        let reply = kit.post(&alice, &request(0, "initialize", params)).await;
        let session = format!("Mcp-Session-Id: {}\r\n", reply.headers["mcp-session-id"]);
        let ping = request(1, "ping", json!({}));
        // Another token of the same subject continues the session.
        let renewed = header(&key.sign(&changed(issuer.claims(), "jti", json!("2"))));
        let bob = header(&key.sign(&changed(issuer.claims(), "sub", json!("bob"))));
        for (token, status) in [(&alice, 200), (&renewed, 200), (&bob, 404)] {
            assert_eq!(kit.post(&format!("{token}{session}"), &ping).await.status, status);
        }
        kit.stop().await;
    });
}

#[test]
fn new_keys_are_fetched_and_old_ones_end() {
    scene(|_| async move {
        let (old, new) = (SigningKey::new("old"), SigningKey::new("new"));
        let issuer = Issuer::start(&[&old]).await;
        let kit = start(&issuer).await;
        let (first, second) = (old.sign(&issuer.claims()), new.sign(&issuer.claims()));
        for _ in 0..3 {
            assert_eq!(list(&kit, &first).await.status, 200);
        }
        assert_eq!(issuer.fetches(), 1, "the keys are cached");
        issuer.set_keys(&[&new]);
        assert_eq!(list(&kit, &second).await.status, 200);
        assert_eq!(issuer.fetches(), 2);
        // A token that was verified with a key that is gone is not valid any more.
        assert_eq!(list(&kit, &first).await.status, 401);
        // Unknown keys cause a bounded number of requests.
        for number in 0..20 {
            let token = SigningKey::new(&format!("k{number}")).sign(&issuer.claims());
            assert_eq!(list(&kit, &token).await.status, 401);
        }
        assert!(issuer.fetches() <= 7, "{}", issuer.fetches());
        assert_eq!(list(&kit, &second).await.status, 200);
        kit.stop().await;
    });
}

#[test]
fn keys_that_cannot_be_fetched_answer_503() {
    scene(|_| async move {
        let key = SigningKey::new("a");
        for mode in [JwksMode::Failing, JwksMode::Html, JwksMode::Huge, JwksMode::Silent] {
            let issuer = Issuer::start(&[&key]).await;
            issuer.set_mode(mode);
            let kit = start(&issuer).await;
            let token = key.sign(&issuer.claims());
            let began = Instant::now();
            let reply = list(&kit, &token).await;
            assert_eq!(reply.status, 503, "{mode:?}: {reply:?}");
            assert!(reply.headers.contains_key("retry-after"), "{mode:?}: {reply:?}");
            assert!(began.elapsed() < Duration::from_secs(20), "{mode:?}");
            issuer.set_mode(JwksMode::Normal);
            assert_eq!(list(&kit, &token).await.status, 200, "{mode:?}");
            // A server that goes away later is not noticed.
            issuer.set_mode(mode);
            assert_eq!(list(&kit, &key.sign(&issuer.claims())).await.status, 200, "{mode:?}");
            drop(issuer);
            assert_eq!(list(&kit, &token).await.status, 200, "{mode:?}");
            kit.stop().await;
        }
    });
}

#[test]
fn keys_and_tokens_work_side_by_side() {
    scene(|_| async move {
        let key = SigningKey::new("a");
        let issuer = Issuer::start(&[&key]).await;
        let folder = tempfile::tempdir().expect("a folder");
        let file = ropeway_gateway::KeyFile::new(folder.path().join("keys.json"));
        let (own, _) = file.add(ropeway_gateway::NewKey::new("ci")).expect("a key");
        let mut settings = settings(&issuer, |jwt| jwt);
        settings.auth.keys_file = Some(file.path().to_owned());
        let kit = GatewayKit::start_with(Script::default(), settings).await;
        assert_eq!(list(&kit, own.expose()).await.status, 200);
        assert_eq!(list(&kit, &key.sign(&issuer.claims())).await.status, 200);
        assert_eq!(list(&kit, "rw_00000000_AAAA").await.status, 401);
        kit.stop().await;
    });
}
