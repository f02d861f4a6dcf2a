//! Protected servers on the official SDKs, and the person that signs in to them at oidc-provider.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ropeway::config::{HttpServer, OAuthSettings, ServerConfig};
use ropeway::event::Events;
use ropeway::mcp::{Handlers, Mcp};
use ropeway::oauth::{Credentials, OAuthError, SignIn, SignInAnswer, SignInOptions, SignInReason, SignInRequest};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::browser::Browser;
use super::text;
use crate::scene::{Listening, Scene, scene};

/// A redirect URI on which nothing listens: tests pass the callback on themselves.
pub(crate) const REDIRECT: &str = "http://127.0.0.1:7/callback";

/// oidc-provider.
pub(crate) struct Authority(Listening);

impl Authority {
    pub(crate) async fn start(scene: &Scene) -> Self {
        Self(scene.http_server("oidc").await)
    }

    pub(crate) fn issuer(&self) -> &str {
        self.0.url()
    }

    /// Sets the lifetime of the next access tokens, in seconds.
    pub(crate) async fn set_lifetime(&self, seconds: u32) {
        self.ask("POST", &format!("/_lifetime?seconds={seconds}")).await;
    }

    /// Returns how often each endpoint and each grant was used.
    pub(crate) async fn counts(&self) -> Value {
        serde_json::from_str(&self.ask("GET", "/_counts").await).expect("JSON")
    }

    pub(crate) async fn assert_counts(&self, expected: &[(&str, u64)]) {
        let counts = self.counts().await;
        for (name, count) in expected {
            assert_eq!(counts[*name].as_u64().unwrap_or(0), *count, "`{name}`: {counts}");
        }
    }

    async fn ask(&self, method: &str, path: &str) -> String {
        let address = self.issuer().strip_prefix("http://").expect("a URL");
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        let request = format!("{method} {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("a request");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("a response");
        text.split_once("\r\n\r\n").expect("a body").1.to_owned()
    }
}

/// A person that signs in when a connection asks for it.
#[derive(Clone, Default)]
pub(crate) struct Visitor {
    browser: Arc<tokio::sync::Mutex<Browser>>,
    asked: Arc<Mutex<Vec<SignInReason>>>,
}

impl Visitor {
    pub(crate) fn host(&self) -> Handlers {
        let visitor = self.clone();
        Handlers::new().on_sign_in(move |request| {
            let visitor = visitor.clone();
            async move { Ok(SignInAnswer::from(visitor.sign_in(&request).await?)) }
        })
    }

    async fn sign_in(&self, request: &SignInRequest) -> Result<Credentials, OAuthError> {
        self.asked.lock().expect("no panic").push(request.reason);
        let mut sign_in = request.start().await?;
        let url = sign_in.prepare(REDIRECT).await?;
        let callback = self.browser.lock().await.open(&url).await;
        sign_in.finish(&callback).await
    }

    /// Returns the headings of the pages that the person saw.
    pub(crate) fn pages(&self) -> Vec<String> {
        self.browser.try_lock().expect("no sign-in").pages.clone()
    }

    pub(crate) fn reasons(&self) -> Vec<SignInReason> {
        self.asked.lock().expect("no panic").clone()
    }
}

/// Signs in as a person with a new browser.
pub(crate) async fn sign_in(server: &str) -> Result<Credentials, OAuthError> {
    sign_in_with(SignInOptions::new(server)).await
}

pub(crate) async fn sign_in_with(options: SignInOptions) -> Result<Credentials, OAuthError> {
    let mut sign_in = SignIn::start(options).await?;
    let url = sign_in.prepare(REDIRECT).await?;
    sign_in.finish(&Browser::default().open(&url).await).await
}

pub(crate) fn connection(server: HttpServer, handlers: Handlers) -> Mcp {
    let mut config = ServerConfig::new("web", server);
    config.timeouts.connect = Duration::from_secs(60);
    Mcp::with_host(config, handlers, Events::default())
}

/// Signs in to a server that is started by name, and returns the person and the connection.
async fn visit(server: &Listening, settings: OAuthSettings) -> (Visitor, Mcp) {
    let visitor = Visitor::default();
    let mcp = connection(HttpServer::new(server.url()).with_auth(settings), visitor.host());
    mcp.connect().await.unwrap_or_else(|error| panic!("{error:?}"));
    (visitor, mcp)
}

#[test]
fn a_server_on_the_python_sdk_1_is_signed_in_to() {
    scene(|scene| async move {
        let authority = Authority::start(&scene).await;
        let server = scene.http_server_of("protected-mcp1", authority.issuer()).await;
        let (visitor, mcp) = visit(&server, OAuthSettings::new()).await;
        assert_eq!(text(&mcp, "scopes", json!({})).await, "mcp");
        assert_eq!(visitor.reasons(), [SignInReason::First]);
        authority.assert_counts(&[("registration", 1), ("authorization_code", 1)]).await;
        mcp.close().await;
    });
}

#[test]
fn a_server_on_the_python_sdk_2_names_its_scopes_in_metadata_only() {
    scene(|scene| async move {
        let authority = Authority::start(&scene).await;
        let server = scene.http_server_of("protected-mcp2", authority.issuer()).await;
        let (visitor, mcp) = visit(&server, OAuthSettings::new()).await;
        assert_eq!(text(&mcp, "scopes", json!({})).await, "mcp write");
        assert_eq!(visitor.reasons(), [SignInReason::First]);
        mcp.close().await;
        // Its challenge for a token without `write` has no `scope`.
        let (visitor, mcp) = visit(&server, OAuthSettings::new().with_scopes(["mcp"])).await;
        assert_eq!(text(&mcp, "scopes", json!({})).await, "mcp write");
        assert_eq!(visitor.reasons(), [SignInReason::First, SignInReason::Scope]);
        mcp.close().await;
    });
}

#[test]
fn a_tool_on_the_typescript_sdk_asks_for_another_scope() {
    scene(|scene| async move {
        let authority = Authority::start(&scene).await;
        let server = scene.http_server_of("protected-typescript", authority.issuer()).await;
        let (visitor, mcp) = visit(&server, OAuthSettings::new()).await;
        assert_eq!(text(&mcp, "scopes", json!({})).await, "mcp");
        // The call waits for the second sign-in and goes on.
        assert_eq!(text(&mcp, "write", json!({})).await, "mcp write");
        assert_eq!(visitor.reasons(), [SignInReason::First, SignInReason::Scope]);
        assert_eq!(visitor.pages(), ["Sign-in", "Authorize", "Authorize"]);
        assert_eq!(text(&mcp, "write", json!({})).await, "mcp write");
        // oidc-provider limits a client to the scopes of its registration.
        authority.assert_counts(&[("authorization_code", 2), ("registration", 2)]).await;
        // It does not register clients with scopes of a resource, unless they are its own as well.
        assert_eq!(text(&mcp, "administer", json!({})).await, "admin mcp write");
        let counts = [("authorization_code", 3), ("registration", 3), ("registration refused", 1)];
        authority.assert_counts(&counts).await;
        mcp.close().await;
    });
}
