//! Sign-ins at oidc-provider, with the gateway as the protected server.

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use ropeway::config::{Config, GatewaySettings, HttpServer, JwtSettings, OAuthGrant, OAuthSettings, PrivateKey};
use ropeway::gateway::Gateway;
use ropeway::mcp::{Handlers, Mcp};
use ropeway::oauth::{OAuthError, SignIn, SignInOptions, TokenStore};
use ropeway::testing::{Script, ScriptedServer};
use ropeway_config::AuthSettings;
use ropeway_mcp::oauth::store::KeyringMode;
use ropeway_mcp::oauth::{refresh_credentials, revoke};
use serde_json::json;

use super::browser::Browser;
use super::protected::{Authority, REDIRECT, Visitor, connection, sign_in, sign_in_with};
use super::text;
use crate::gateway::kit::{GatewayKit, entry};
use crate::scene::{Scene, scene};

/// A gateway that accepts the tokens of an authorization server.
struct ProtectedGateway {
    kit: GatewayKit,
    /// The URL of its endpoint, which is the audience of its tokens.
    url: String,
}

impl ProtectedGateway {
    async fn start(authority: &Authority) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
        let mut jwt = JwtSettings::new(authority.issuer(), &url).with_scopes(vec!["mcp".to_owned()]);
        jwt.clock_skew = Duration::ZERO;
        let settings = GatewaySettings::default().with_auth(AuthSettings::default().with_jwt(Some(jwt)));
        let scripted = ScriptedServer::new(Script::default());
        let config = Config::default().with_server(entry("scripted", &scripted));
        let kit = GatewayKit::serve_on(listener, scripted, Gateway::builder(config).settings(settings));
        kit.gateway.start().await.expect("a start");
        Self { kit, url }
    }

    fn options(&self) -> SignInOptions {
        SignInOptions::new(&self.url)
    }
}

async fn start(scene: &Scene) -> (Authority, ProtectedGateway) {
    let authority = Authority::start(scene).await;
    let gateway = ProtectedGateway::start(&authority).await;
    (authority, gateway)
}

/// A handle of a token store. Two of them share nothing but the files, like two processes.
fn store(folder: &Path) -> TokenStore {
    TokenStore::open(folder.join("tokens")).with_keyring(KeyringMode::Off)
}

async fn echo(server: &Mcp) -> String {
    text(server, "echo", json!({"message": "hello"})).await
}

#[test]
fn a_client_finds_the_authorization_server_registers_and_signs_in() {
    scene(|scene| async move {
        let (authority, gateway) = start(&scene).await;
        let (visitor, store) = (Visitor::default(), store(scene.directory()));
        let mcp = connection(HttpServer::new(&gateway.url), visitor.host().with_token_store(store.clone()));
        mcp.connect().await.expect("connected");
        assert_eq!(echo(&mcp).await, "hello");
        assert_eq!(visitor.pages(), ["Sign-in", "Authorize"]);
        let counts = [("registration", 1), ("authorization_code", 1), ("refresh_token", 0)];
        authority.assert_counts(&counts).await;
        let stored = store.load(&gateway.url, None).await.expect("a store").expect("tokens");
        assert_eq!((stored.issuer.as_str(), &stored.resource), (authority.issuer(), &gateway.url));
        assert!(stored.tokens.refresh_token.is_some(), "offline access was granted");
        mcp.close().await;
        // Another process uses the stored tokens.
        let mcp = connection(HttpServer::new(&gateway.url), Handlers::new().with_token_store(store));
        mcp.connect().await.expect("connected");
        assert_eq!(echo(&mcp).await, "hello");
        authority.assert_counts(&counts).await;
        mcp.close().await;
        gateway.kit.stop().await;
    });
}

#[test]
fn tokens_are_refreshed_and_rotated_before_they_expire() {
    scene(|scene| async move {
        let (authority, gateway) = start(&scene).await;
        let store = store(scene.directory());
        authority.set_lifetime(10).await;
        let mut credentials = sign_in(&gateway.url).await.expect("a sign-in");
        for refreshes in 1..=3 {
            store.save(&credentials).await.expect("stored");
            if refreshes == 3 {
                authority.set_lifetime(600).await;
            }
            let mcp = connection(HttpServer::new(&gateway.url), Handlers::new().with_token_store(store.clone()));
            mcp.connect().await.expect("connected");
            assert_eq!(echo(&mcp).await, "hello");
            mcp.close().await;
            let next = store.load(&gateway.url, None).await.expect("a store").expect("tokens");
            assert_ne!(next.tokens.refresh_token, credentials.tokens.refresh_token, "rotated");
            credentials = next;
        }
        let counts = authority.counts().await;
        assert!(counts["refresh_token"].as_u64() >= Some(3), "{counts}");
        // The last token is valid for a long time.
        let mcp = connection(HttpServer::new(&gateway.url), Handlers::new().with_token_store(store));
        mcp.connect().await.expect("connected");
        assert_eq!(echo(&mcp).await, "hello");
        assert_eq!(authority.counts().await, counts);
        mcp.close().await;
        gateway.kit.stop().await;
    });
}

#[test]
fn a_token_that_the_gateway_rejects_is_refreshed_once() {
    scene(|scene| async move {
        let (authority, gateway) = start(&scene).await;
        let store = TokenStore::in_memory();
        authority.set_lifetime(1).await;
        let mut credentials = sign_in(&gateway.url).await.expect("a sign-in");
        // The client does not know when the token expires.
        credentials.tokens.expires_at = None;
        store.save(&credentials).await.expect("stored");
        authority.set_lifetime(600).await;
        tokio::time::sleep(Duration::from_millis(2100)).await;
        let mcp = connection(HttpServer::new(&gateway.url), Handlers::new().with_token_store(store));
        mcp.connect().await.expect("connected");
        assert_eq!(echo(&mcp).await, "hello");
        assert_eq!(echo(&mcp).await, "hello");
        authority.assert_counts(&[("authorization_code", 1), ("refresh_token", 1)]).await;
        mcp.close().await;
        gateway.kit.stop().await;
    });
}

#[test]
fn clients_with_one_token_store_refresh_once() {
    scene(|scene| async move {
        let (authority, gateway) = start(&scene).await;
        authority.set_lifetime(10).await;
        let credentials = sign_in(&gateway.url).await.expect("a sign-in");
        store(scene.directory()).save(&credentials).await.expect("stored");
        authority.set_lifetime(600).await;
        let client = || {
            let handlers = Handlers::new().with_token_store(store(scene.directory()));
            connection(HttpServer::new(&gateway.url), handlers)
        };
        let clients = [client(), client(), client(), client()];
        let [a, b, c, d] = &clients;
        let connected = tokio::try_join!(a.connect(), b.connect(), c.connect(), d.connect());
        connected.expect("connected");
        for client in &clients {
            assert_eq!(echo(client).await, "hello");
        }
        // A refresh token that is used twice would end all tokens of the sign-in.
        authority.assert_counts(&[("refresh_token", 1), ("refresh_token refused", 0)]).await;
        for client in clients {
            client.close().await;
        }
        gateway.kit.stop().await;
    });
}

#[test]
fn a_person_signs_in_on_another_device() {
    scene(|scene| async move {
        let (authority, gateway) = start(&scene).await;
        let mut sign_in = SignIn::start(gateway.options()).await.expect("a sign-in");
        assert!(sign_in.has_device_flow());
        let device = sign_in.device().await.expect("a device code");
        let url = device.verification_uri_complete.clone().expect("a complete URL");
        assert!(url.contains(&device.user_code), "{url}");
        let approve = async {
            let mut browser = Browser::default();
            // The first poll comes too early.
            tokio::time::sleep(Duration::from_secs(6)).await;
            let last = browser.open(&url).await;
            assert!(last.contains("Sign-in Success"), "{last}");
            browser.pages
        };
        let (credentials, pages) = tokio::join!(sign_in.wait_for_device(&device), approve);
        assert!(pages.iter().any(|page| page == "Authorize"), "{pages:?}");
        let store = TokenStore::in_memory();
        store.save(&credentials.expect("credentials")).await.expect("stored");
        let mcp = connection(HttpServer::new(&gateway.url), Handlers::new().with_token_store(store));
        mcp.connect().await.expect("connected");
        assert_eq!(echo(&mcp).await, "hello");
        let grant = "urn:ietf:params:oauth:grant-type:device_code";
        let counts = authority.counts().await;
        assert_eq!(counts[grant], 1, "{counts}");
        assert!(counts[format!("{grant} refused")].as_u64() >= Some(1), "authorization_pending: {counts}");
        mcp.close().await;
        gateway.kit.stop().await;
    });
}

#[test]
fn a_declined_sign_in_ends_with_a_message() {
    scene(|scene| async move {
        let (authority, gateway) = start(&scene).await;
        let mut sign_in = SignIn::start(gateway.options()).await.expect("a sign-in");
        let url = sign_in.prepare(REDIRECT).await.expect("a URL");
        let callback = Browser::declining().open(&url).await;
        let error = sign_in.finish(&callback).await.expect_err("declined");
        assert!(matches!(error, OAuthError::Denied { .. }), "{error:?}");
        authority.assert_counts(&[("authorization_code", 0)]).await;
        gateway.kit.stop().await;
    });
}

#[test]
fn machines_get_tokens_with_a_secret_and_with_a_key() {
    scene(|scene| async move {
        let (authority, gateway) = start(&scene).await;
        let settings = || OAuthSettings::new().with_grant(OAuthGrant::ClientCredentials);
        let key = PrivateKey::new(include_str!("../../../../ropeway-mcp/src/oauth/test_keys/p256_pkcs8.pem"));
        let clients = [
            settings().with_client_id("agent").with_client_secret("agent-secret"),
            settings().with_client_id("robot").with_private_key(key),
        ];
        for (auth, count) in clients.into_iter().zip(1..) {
            let mcp = connection(HttpServer::new(&gateway.url).with_auth(auth), Handlers::new());
            mcp.connect().await.expect("connected");
            assert_eq!(echo(&mcp).await, "hello");
            assert_eq!(echo(&mcp).await, "hello");
            authority.assert_counts(&[("client_credentials", count), ("registration", 0)]).await;
            mcp.close().await;
        }
        gateway.kit.stop().await;
    });
}

#[test]
fn tokens_that_are_bound_to_a_key_are_refreshed_with_it() {
    scene(|scene| async move {
        let (authority, gateway) = start(&scene).await;
        let settings = OAuthSettings::new().with_dpop(true);
        let options = || gateway.options().with_settings(settings.clone());
        let credentials = sign_in_with(options()).await.expect("a sign-in");
        assert!(credentials.tokens.dpop && credentials.dpop_key.is_some(), "{credentials:?}");
        // The first proof has no nonce.
        authority.assert_counts(&[("authorization_code", 1), ("authorization_code refused", 1)]).await;
        let refreshed = refresh_credentials(&credentials, &settings).await.expect("a refresh");
        assert!(refreshed.tokens.dpop);
        assert_eq!(refreshed.dpop_key, credentials.dpop_key);
        // A stolen refresh token is useless without the key.
        let mut stolen = refreshed.clone();
        stolen.dpop_key = sign_in_with(options()).await.expect("a sign-in").dpop_key;
        let error = refresh_credentials(&stolen, &settings).await.expect_err("another key");
        assert!(error.is_invalid_grant(), "{error:?}");
        gateway.kit.stop().await;
    });
}

#[test]
fn revoked_tokens_cannot_be_refreshed() {
    scene(|scene| async move {
        let (authority, gateway) = start(&scene).await;
        let settings = OAuthSettings::new();
        let credentials = sign_in(&gateway.url).await.expect("a sign-in");
        let revocation = revoke(&credentials, &settings).await.expect("an answer");
        assert!(revocation.is_supported && revocation.problem.is_none(), "{revocation:?}");
        assert_eq!(revocation.refresh_token, Some(true), "{revocation:?}");
        let error = refresh_credentials(&credentials, &settings).await.expect_err("revoked");
        assert!(error.is_invalid_grant(), "{error:?}");
        let counts = authority.counts().await;
        assert!(counts["revocation"].as_u64() >= Some(1), "{counts}");
        // A connection with revoked tokens signs in again.
        let (visitor, store) = (Visitor::default(), TokenStore::in_memory());
        let mut expired = credentials.clone();
        expired.tokens.expires_at = Some(std::time::SystemTime::now());
        store.save(&expired).await.expect("stored");
        let mcp = connection(HttpServer::new(&gateway.url), visitor.host().with_token_store(store));
        mcp.connect().await.expect("connected");
        assert_eq!(echo(&mcp).await, "hello");
        authority.assert_counts(&[("registration", 1), ("authorization_code", 2)]).await;
        mcp.close().await;
        gateway.kit.stop().await;
    });
}
