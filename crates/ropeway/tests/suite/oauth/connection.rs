//! Connections to a protected server: sign-in, refresh, step-up, and everything that can go wrong with them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ropeway::config::{HttpServer, OAuthGrant, OAuthSettings, Secret, ServerConfig, TokenCommand, TokenSource};
use ropeway::event::{Event, Events};
use ropeway::mcp::{ConnectErrorKind, ConnectionState, Handlers, Mcp};
use ropeway::oauth::{Credentials, OAuthError, SignInAnswer, SignInReason, SignInRequest, TokenStore};
use ropeway::tool::{CallContext, CallError};
use serde_json::json;

use super::authorization_server::AuthorizationServer;
use super::wire::{Answer, browse};
use super::{REDIRECT, sign_in};

/// Counts the sign-ins that a host was asked for.
#[derive(Clone, Default)]
pub(super) struct Asked(Arc<AtomicUsize>);

impl Asked {
    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// A host whose user signs in at once.
    pub(super) fn host(&self) -> Handlers {
        let asked = self.clone();
        Handlers::new().on_sign_in(move |request| {
            asked.add();
            async move { Ok(SignInAnswer::from(finish(&request).await?)) }
        })
    }

    /// A host whose user declines.
    fn declining(&self) -> Handlers {
        let asked = self.clone();
        Handlers::new().on_sign_in(move |_| {
            asked.add();
            async { Ok(SignInAnswer::Declined) }
        })
    }
}

async fn finish(request: &SignInRequest) -> Result<Credentials, OAuthError> {
    let mut sign_in = request.start().await?;
    let url = sign_in.prepare(REDIRECT).await?;
    sign_in.finish(&browse(&url).await).await
}

pub(super) fn connection(server: HttpServer, handlers: Handlers) -> Mcp {
    connection_with(server, handlers, Events::default())
}

fn connection_with(server: HttpServer, handlers: Handlers, events: Events) -> Mcp {
    let mut config = ServerConfig::new("web", server);
    config.timeouts.connect = Duration::from_secs(20);
    Mcp::with_host(config, handlers, events)
}

pub(super) fn http(server: &AuthorizationServer) -> HttpServer {
    HttpServer::new(server.mcp())
}

/// Calls the tool and returns its text.
pub(super) async fn call(mcp: &Mcp) -> Result<String, CallError> {
    let output = mcp.call_tool("scopes", json!({})).await?;
    Ok(output.content.iter().filter_map(|block| block.as_text()).collect())
}

/// A store with the tokens of one sign-in.
pub(super) async fn signed_in(server: &AuthorizationServer) -> TokenStore {
    let store = TokenStore::in_memory();
    store.save(&sign_in(server).await.expect("a sign-in")).await.expect("stored");
    store
}

/// Returns `true` if every message to the server had a token.
fn all_have_tokens(server: &AuthorizationServer) -> bool {
    let requests = server.requests("/mcp");
    requests
        .iter()
        .filter(|request| request.method == "POST")
        .all(|request| !request.header("authorization").is_empty())
}

/// Formats an error with its causes.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(&format!(": {error}"));
        source = error.source();
    }
    text
}

#[tokio::test]
async fn the_first_connection_asks_for_a_sign_in_and_goes_on() {
    let server = AuthorizationServer::start().await;
    let (asked, store, events) = (Asked::default(), TokenStore::in_memory(), Events::default());
    let mut seen = events.subscribe();
    let mcp = connection_with(http(&server), asked.host().with_token_store(store.clone()), events);
    mcp.connect().await.expect("connected");
    call(&mcp).await.expect("a result");
    assert_eq!(asked.count(), 1);
    assert!(store.load(&server.mcp(), None).await.expect("a store").is_some());
    let mut names = Vec::new();
    while names.len() < 4 {
        let event = seen.next().await.expect("an event");
        names.push(serde_json::to_value(&event).expect("JSON")["event"].as_str().unwrap_or_default().to_owned());
    }
    assert_eq!(names, ["server.connecting", "server.sign_in_started", "server.signed_in", "server.ready"]);
    // Another connection uses the stored tokens.
    let other = connection(http(&server), asked.host().with_token_store(store));
    other.connect().await.expect("connected");
    call(&other).await.expect("a result");
    assert_eq!((asked.count(), server.token_requests("authorization_code").len()), (1, 1));
    // All requests have the token, also those of the session.
    let with_token =
        server.requests("/mcp").iter().filter(|request| !request.header("authorization").is_empty()).count();
    assert!(with_token >= 6, "{with_token}");
}

#[tokio::test]
async fn without_a_handler_the_connection_needs_authentication() {
    let server = AuthorizationServer::start().await;
    for handlers in [Handlers::new(), Handlers::new().with_token_store(TokenStore::in_memory())] {
        let mcp = connection(http(&server), handlers);
        let error = mcp.connect().await.expect_err("no token");
        let ConnectErrorKind::NeedsAuth { challenge: Some(challenge) } = &*error.cause else { panic!("{error:?}") };
        assert!(challenge.contains("resource_metadata"), "{challenge}");
        assert!(matches!(call(&mcp).await, Err(CallError::NeedsAuth { challenge: Some(_), .. })));
    }
    assert!(server.requests("/token").is_empty());
}

#[tokio::test]
async fn a_token_is_refreshed_before_it_expires() {
    let server = AuthorizationServer::start().await;
    server.change(|behaviour| behaviour.expires_in = Some(20));
    let store = signed_in(&server).await;
    server.change(|behaviour| behaviour.expires_in = Some(3600));
    let mcp = connection(http(&server), Handlers::new().with_token_store(store));
    mcp.connect().await.expect("connected");
    call(&mcp).await.expect("a result");
    assert_eq!(server.token_requests("refresh_token").len(), 1);
    assert!(all_have_tokens(&server), "the first request has the new token");
}

#[tokio::test]
async fn a_rejected_token_is_refreshed_and_the_call_repeated() {
    let server = AuthorizationServer::start().await;
    let mcp = connection(http(&server), Handlers::new().with_token_store(signed_in(&server).await));
    mcp.connect().await.expect("connected");
    for refreshes in 1..4 {
        server.expire_access_tokens();
        call(&mcp).await.expect("a result");
        assert_eq!(server.token_requests("refresh_token").len(), refreshes);
    }
}

#[tokio::test]
async fn concurrent_calls_share_one_refresh() {
    let server = AuthorizationServer::start().await;
    let mcp = connection(http(&server), Handlers::new().with_token_store(signed_in(&server).await));
    mcp.connect().await.expect("connected");
    server.expire_access_tokens();
    let calls: Vec<_> = (0..20)
        .map(|_| {
            tokio::spawn({
                let mcp = mcp.clone();
                async move { call(&mcp).await }
            })
        })
        .collect();
    for call in calls {
        call.await.expect("a task").expect("a result");
    }
    assert_eq!(server.token_requests("refresh_token").len(), 1);
}

#[tokio::test]
async fn concurrent_calls_share_one_sign_in() {
    let server = AuthorizationServer::start().await;
    let asked = Asked::default();
    let mcp = connection(http(&server), asked.host().with_token_store(signed_in(&server).await));
    mcp.connect().await.expect("connected");
    server.expire_access_tokens();
    server.revoke_refresh_tokens();
    let calls: Vec<_> = (0..20)
        .map(|_| {
            tokio::spawn({
                let mcp = mcp.clone();
                async move { call(&mcp).await }
            })
        })
        .collect();
    for call in calls {
        call.await.expect("a task").expect("a result");
    }
    assert_eq!((asked.count(), server.token_requests("refresh_token").len()), (1, 1));
}

#[tokio::test]
async fn connections_with_one_store_refresh_once() {
    let server = AuthorizationServer::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    // Two handles of one folder are like two processes: they share nothing but the files.
    let store = || file_store(&folder.path().join("tokens"));
    store().save(&sign_in(&server).await.expect("a sign-in")).await.expect("stored");
    let all: Vec<Mcp> = (0..4).map(|_| connection(http(&server), Handlers::new().with_token_store(store()))).collect();
    for mcp in &all {
        mcp.connect().await.expect("connected");
    }
    server.expire_access_tokens();
    let calls: Vec<_> = all
        .iter()
        .map(|mcp| {
            tokio::spawn({
                let mcp = mcp.clone();
                async move { call(&mcp).await }
            })
        })
        .collect();
    for call in calls {
        call.await.expect("a task").expect("a result");
    }
    assert_eq!(server.token_requests("refresh_token").len(), 1);
}

/// Variables that make a test of this program one of two processes.
const SERVER: &str = "ROPEWAY_TEST_SERVER";
const STORE: &str = "ROPEWAY_TEST_STORE";

fn file_store(folder: &std::path::Path) -> TokenStore {
    TokenStore::open(folder).with_keyring(ropeway_mcp::oauth::store::KeyringMode::Off)
}

#[tokio::test]
async fn one_of_two_processes_calls_the_server() {
    let (Ok(server), Some(folder)) = (std::env::var(SERVER), std::env::var_os(STORE)) else { return };
    let store = file_store(folder.as_ref());
    let mcp = connection(HttpServer::new(server), Handlers::new().with_token_store(store));
    mcp.connect().await.expect("connected");
    call(&mcp).await.expect("a result");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_refresh_once() {
    let server = AuthorizationServer::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = folder.path().join("tokens");
    file_store(&tokens).save(&sign_in(&server).await.expect("a sign-in")).await.expect("stored");
    server.expire_access_tokens();
    let program = std::env::current_exe().expect("this program");
    let start = || {
        let mut child = tokio::process::Command::new(&program);
        child.args(["--exact", "oauth::connection::one_of_two_processes_calls_the_server"]);
        child.env(SERVER, server.mcp()).env(STORE, &tokens).kill_on_drop(true).output()
    };
    let outputs = tokio::join!(start(), start(), start());
    for output in [outputs.0, outputs.1, outputs.2] {
        let output = output.expect("a process");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
    }
    assert_eq!(server.token_requests("refresh_token").len(), 1);
}

/// The reasons and the scopes of sign-ins.
type Requests = Arc<std::sync::Mutex<Vec<(SignInReason, Vec<String>)>>>;

#[tokio::test]
async fn a_missing_scope_is_requested_and_the_call_repeated() {
    let server = AuthorizationServer::start().await;
    let reasons: Requests = Arc::default();
    let seen = reasons.clone();
    server.change(|behaviour| behaviour.challenge_scope = Some("read".into()));
    let handlers = Handlers::new().on_sign_in(move |request: SignInRequest| {
        seen.lock().unwrap().push((request.reason, request.scopes.clone()));
        async move { Ok(SignInAnswer::from(finish(&request).await?)) }
    });
    let mcp = connection(http(&server), handlers);
    mcp.connect().await.expect("connected");
    server.change(|behaviour| behaviour.required_scope = Some("write".into()));
    let scopes = call(&mcp).await.expect("a result");
    assert!(scopes.contains("read") && scopes.contains("write"), "{scopes}");
    let expected =
        [(SignInReason::First, vec!["read".to_owned()]), (SignInReason::Scope, vec!["read".into(), "write".into()])];
    assert_eq!(*reasons.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_missing_scope_fails_one_call_and_not_the_connection() {
    let server = AuthorizationServer::start().await;
    let mcp = connection(http(&server), Handlers::new().with_token_store(signed_in(&server).await));
    mcp.connect().await.expect("connected");
    let handshakes = || {
        let requests = server.requests("/mcp");
        requests.iter().filter(|request| !request.body.contains("tools/call")).count()
    };
    let before = handshakes();
    server.change(|behaviour| behaviour.required_scope = Some("write".into()));
    assert!(matches!(call(&mcp).await, Err(CallError::NeedsAuth { challenge: Some(_), .. })));
    assert!(matches!(*mcp.state().borrow(), ConnectionState::Ready { .. }));
    server.change(|behaviour| behaviour.required_scope = None);
    call(&mcp).await.expect("a result");
    assert_eq!(handshakes(), before, "the session goes on");
}

/// Answers all requests to the MCP server with a refusal.
fn refuse_for_ever(server: &AuthorizationServer, status: u16, challenge: &str) {
    server.answer("/mcp", Answer::json(status, &json!({})).with("www-authenticate", challenge));
}

#[tokio::test]
async fn a_server_that_rejects_every_token_ends_with_an_error() {
    let server = AuthorizationServer::start().await;
    let asked = Asked::default();
    let mcp = connection(http(&server), asked.host());
    mcp.connect().await.expect("connected");
    refuse_for_ever(&server, 401, "Bearer error=\"invalid_token\"");
    let error = call(&mcp).await.expect_err("no token is accepted");
    assert!(chain(&error).contains("the server rejects the new token"), "{}", chain(&error));
    assert!(asked.count() <= 2, "{}", asked.count());
    let before = server.requests("/mcp").len();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(server.requests("/mcp").len(), before, "no attempts in the background");
    // A machine has no person to ask either.
    let server = AuthorizationServer::start().await;
    server.add_client("ci", Some("s3cret"), "client_secret_basic");
    let settings = OAuthSettings::new().with_client_id("ci").with_client_secret("s3cret");
    let mcp = connection(http(&server).with_auth(settings.with_grant(OAuthGrant::ClientCredentials)), Handlers::new());
    refuse_for_ever(
        &server,
        401,
        &format!("Bearer resource_metadata=\"{}/.well-known/oauth-protected-resource/mcp\"", server.url),
    );
    let error = mcp.connect().await.expect_err("no token is accepted");
    assert!(chain(&error).contains("the server rejects the new token"), "{}", chain(&error));
    assert!(server.token_requests("client_credentials").len() <= 2);
}

#[tokio::test]
async fn a_scope_that_is_never_enough_ends_with_an_error() {
    let server = AuthorizationServer::start().await;
    let asked = Asked::default();
    let mcp = connection(http(&server), asked.host());
    mcp.connect().await.expect("connected");
    refuse_for_ever(&server, 403, "Bearer error=\"insufficient_scope\", scope=\"more\"");
    let error = call(&mcp).await.expect_err("no scope is enough");
    assert!(chain(&error).contains("the server rejects the new token: it lacks a scope"), "{}", chain(&error));
    assert!(asked.count() <= 3, "{}", asked.count());
}

#[tokio::test]
async fn a_declined_sign_in_is_offered_again_only_for_a_new_call() {
    let server = AuthorizationServer::start().await;
    let asked = Asked::default();
    let mcp = connection(http(&server), asked.declining());
    let error = mcp.connect().await.expect_err("declined");
    assert!(matches!(*error.cause, ConnectErrorKind::NeedsAuth { .. }), "{error:?}");
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(asked.count(), 1, "no offer in the background");
    assert!(matches!(call(&mcp).await, Err(CallError::NeedsAuth { .. })));
    assert_eq!(asked.count(), 2);
    assert!(matches!(*mcp.state().borrow(), ConnectionState::NeedsAuth { .. }));
}

#[tokio::test]
async fn calls_that_wait_for_a_declined_sign_in_do_not_ask_again() {
    let server = AuthorizationServer::start().await;
    let asked = Asked::default();
    let counted = asked.clone();
    let handlers = Handlers::new().on_sign_in(move |_| {
        counted.add();
        async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            Ok(SignInAnswer::Declined)
        }
    });
    let mcp = connection(http(&server), handlers.with_token_store(signed_in(&server).await));
    mcp.connect().await.expect("connected");
    server.expire_access_tokens();
    server.revoke_refresh_tokens();
    let calls: Vec<_> = (0..5)
        .map(|_| {
            tokio::spawn({
                let mcp = mcp.clone();
                async move { call(&mcp).await }
            })
        })
        .collect();
    for call in calls {
        assert!(matches!(call.await.expect("a task"), Err(CallError::NeedsAuth { .. })));
    }
    assert_eq!(asked.count(), 1);
}

#[tokio::test]
async fn a_refused_refresh_token_is_removed_and_a_sign_in_offered() {
    let server = AuthorizationServer::start().await;
    let (store, asked) = (signed_in(&server).await, Asked::default());
    server.expire_access_tokens();
    server.revoke_refresh_tokens();
    // Without a handler, the useless tokens are removed.
    let mcp = connection(http(&server), Handlers::new().with_token_store(store.clone()));
    let error = mcp.connect().await.expect_err("no token");
    assert!(matches!(*error.cause, ConnectErrorKind::NeedsAuth { .. }), "{error:?}");
    assert!(store.load(&server.mcp(), None).await.expect("a store").is_none());
    let mcp = connection(http(&server), asked.host().with_token_store(store.clone()));
    mcp.connect().await.expect("connected");
    assert_eq!(asked.count(), 1);
    assert!(store.load(&server.mcp(), None).await.expect("a store").is_some());
}

#[tokio::test]
async fn a_token_endpoint_that_fails_keeps_the_tokens() {
    let server = AuthorizationServer::start().await;
    let (store, asked) = (signed_in(&server).await, Asked::default());
    let mcp = connection(http(&server), asked.host().with_token_store(store.clone()));
    mcp.connect().await.expect("connected");
    server.expire_access_tokens();
    for answer in [Answer::html(500), Answer::Close] {
        server.answer("/token", answer);
        let error = call(&mcp).await.expect_err("no token");
        assert!(chain(&error).contains("/token"), "{}", chain(&error));
        assert!(!error.to_string().is_empty());
    }
    assert_eq!(asked.count(), 0, "a person cannot help");
    assert!(store.load(&server.mcp(), None).await.expect("a store").is_some());
    server.state().answers.clear();
    call(&mcp).await.expect("the endpoint works again");
}

#[tokio::test]
async fn a_sign_in_elsewhere_is_noticed_by_the_next_call() {
    let server = AuthorizationServer::start().await;
    let store = TokenStore::in_memory();
    let mcp = connection(http(&server), Handlers::new().with_token_store(store.clone()));
    mcp.connect().await.expect_err("no token");
    assert!(matches!(call(&mcp).await, Err(CallError::NeedsAuth { .. })));
    store.save(&sign_in(&server).await.expect("a sign-in")).await.expect("stored");
    call(&mcp).await.expect("a result");
    // A running connection whose token was revoked takes the new one as well.
    server.expire_access_tokens();
    server.revoke_refresh_tokens();
    store.save(&sign_in(&server).await.expect("a sign-in")).await.expect("stored");
    call(&mcp).await.expect("a result");
    assert!(server.token_requests("refresh_token").is_empty());
}

#[tokio::test]
async fn the_time_of_a_sign_in_does_not_count_but_is_bounded() {
    let server = AuthorizationServer::start().await;
    let slow = |time: u64| {
        Handlers::new().on_sign_in(move |request: SignInRequest| async move {
            tokio::time::sleep(Duration::from_millis(time)).await;
            Ok(SignInAnswer::from(finish(&request).await?))
        })
    };
    let short = |handlers: Handlers| {
        let mut config = ServerConfig::new("web", http(&server));
        // Long enough for a busy machine, and shorter than the sign-ins.
        config.timeouts.connect = Duration::from_secs(5);
        config.timeouts.probe = Duration::from_secs(3);
        config.timeouts.idle = Duration::from_secs(5);
        config.timeouts.grace = Duration::from_secs(3);
        Mcp::with_host(config, handlers, Events::default())
    };
    let mcp = short(slow(7000));
    mcp.connect().await.expect("connected");
    server.expire_access_tokens();
    server.revoke_refresh_tokens();
    call(&mcp).await.expect("a result");
    // A call that finds the server connecting waits for the sign-in as well.
    let mcp = short(slow(6000));
    let connecting = tokio::spawn({
        let mcp = mcp.clone();
        async move { mcp.connect().await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    call(&mcp).await.expect("a result");
    connecting.await.expect("a task").expect("connected");
    let mcp = short(slow(60_000).with_sign_in_timeout(Duration::from_millis(500)));
    let error = mcp.connect().await.expect_err("too slow");
    assert!(chain(&error).contains("the sign-in has expired"), "{}", chain(&error));
}

#[tokio::test]
async fn everything_but_the_sign_in_counts() {
    let server = AuthorizationServer::start().await;
    let mut config = ServerConfig::new("web", http(&server));
    config.timeouts.idle = Duration::from_secs(2);
    let handlers = Asked::default().host().with_token_store(signed_in(&server).await);
    let mcp = Mcp::with_host(config, handlers, Events::default());
    mcp.connect().await.expect("connected");
    server.expire_access_tokens();
    server.answer("/token", Answer::Silent);
    let started = tokio::time::Instant::now();
    let error = call(&mcp).await.expect_err("no token");
    assert!(matches!(error, CallError::Timeout { idle: true, .. }), "{error:?}");
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn accounts_have_tokens_of_their_own() {
    let server = AuthorizationServer::start().await;
    let (asked, store) = (Asked::default(), signed_in(&server).await);
    for (account, expected) in [("ada", 1), ("bob", 2), ("ada", 2)] {
        let mcp = connection(http(&server), asked.host().with_token_store(store.clone()).with_account(account));
        mcp.connect().await.expect("connected");
        assert_eq!(asked.count(), expected);
    }
}

#[tokio::test]
async fn machines_obtain_tokens_and_replace_them() {
    let server = AuthorizationServer::start().await;
    server.add_client("ci", Some("s3cret"), "client_secret_basic");
    server.change(|behaviour| behaviour.expires_in = Some(10));
    let settings = OAuthSettings::new().with_client_id("ci").with_client_secret("s3cret");
    let auth = settings.clone().with_grant(OAuthGrant::ClientCredentials);
    let mcp = connection(http(&server).with_auth(auth), Handlers::new());
    mcp.connect().await.expect("connected");
    server.change(|behaviour| behaviour.expires_in = Some(3600));
    call(&mcp).await.expect("a result");
    let before = server.token_requests("client_credentials").len();
    call(&mcp).await.expect("a result");
    assert_eq!(server.token_requests("client_credentials").len(), before, "the new token is used again");
    server.expire_access_tokens();
    call(&mcp).await.expect("a result");
    server.change(|behaviour| behaviour.required_scope = Some("write".into()));
    assert_eq!(call(&mcp).await.expect("a result"), "write");
    let assertion = TokenSource::Value(Secret::new("w0rkload-assertion"));
    let auth = settings.with_grant(OAuthGrant::WorkloadIdentity { assertion });
    let mcp = connection(http(&server).with_auth(auth), Handlers::new());
    mcp.connect().await.expect("connected");
}

/// Returns a token that the server accepts.
async fn access_token(server: &AuthorizationServer) -> String {
    sign_in(server).await.expect("a sign-in").tokens.access_token.expose().to_owned()
}

fn shell(script: &str) -> TokenCommand {
    TokenCommand::new("sh", ["-c", script])
}

#[tokio::test]
async fn a_command_provides_tokens_until_they_expire() {
    let server = AuthorizationServer::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let (runs, token) = (folder.path().join("runs"), folder.path().join("token"));
    std::fs::write(&token, access_token(&server).await).expect("a file");
    let script = |expires: u64| {
        let (runs, token) = (runs.display(), token.display());
        shell(&format!(
            "echo x >> '{runs}'; printf '{{\"access_token\":\"%s\",\"expires_in\":{expires}}}' \"$(cat '{token}')\""
        ))
    };
    let count = || std::fs::read_to_string(&runs).unwrap_or_default().lines().count();
    let mcp = connection(http(&server).with_auth(script(3600)), Handlers::new());
    mcp.connect().await.expect("connected");
    call(&mcp).await.expect("a result");
    assert_eq!(count(), 1, "the token is used again");
    assert!(all_have_tokens(&server));
    // The server ends the token early.
    server.expire_access_tokens();
    std::fs::write(&token, access_token(&server).await).expect("a file");
    call(&mcp).await.expect("a result");
    assert_eq!(count(), 2);
    // A token that is about to expire is replaced before every request.
    let mcp = connection(http(&server).with_auth(script(10)), Handlers::new());
    mcp.connect().await.expect("connected");
    let before = count();
    call(&mcp).await.expect("a result");
    assert!(count() > before);
}

#[tokio::test]
async fn a_command_that_fails_hangs_or_floods_ends_with_a_message() {
    let server = AuthorizationServer::start().await;
    for (command, expected) in [
        (shell("echo no login >&2; exit 1"), "the token command `sh` failed: exit status: 1: no login"),
        (
            shell("sleep 60").with_timeout(Duration::from_millis(300)),
            "the token command `sh` failed: no output within 300 ms",
        ),
        (shell("head -c 10000000 /dev/zero | tr '\\0' a"), "its output is larger than 256 KiB"),
        (shell("true"), "it printed nothing"),
        (shell("echo wrong-t0ken"), "the server rejects the new token"),
    ] {
        let mcp = connection(http(&server).with_auth(command), Handlers::new());
        let error = mcp.connect().await.expect_err(expected);
        assert!(chain(&error).contains(expected), "{}", chain(&error));
        assert!(!chain(&error).contains("wrong-t0ken"), "{}", chain(&error));
    }
}

#[tokio::test]
async fn tokens_never_appear_in_events_and_errors() {
    let server = AuthorizationServer::start().await;
    let events = Events::default().with_payloads();
    let mut seen = events.subscribe();
    let mcp = connection_with(http(&server), Asked::default().host(), events);
    mcp.connect().await.expect("connected");
    let secrets: Vec<String> = {
        let state = server.state();
        state.access_tokens.keys().chain(state.refresh_tokens.keys()).cloned().collect()
    };
    assert_eq!(secrets.len(), 2);
    // A server that repeats its tokens in results, errors and challenges.
    let said = secrets.join(" ");
    let result = json!({"jsonrpc": "2.0", "id": 0, "result": {"content": [{"type": "text", "text": said}]}});
    for answer in [
        Answer::text(500, "text/plain", &said),
        Answer::json(400, &json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": said}})),
        Answer::json(403, &json!({})).with("www-authenticate", &format!("Bearer realm=\"{said}\"")),
        Answer::json(200, &result),
    ] {
        server.answer("/mcp", answer);
        let error = call(&mcp).await.expect_err("an error");
        let shown = format!("{error:?} {}", chain(&error));
        assert!(secrets.iter().all(|secret| !shown.contains(secret)), "{shown}");
    }
    server.state().answers.clear();
    server.expire_access_tokens();
    server.answer("/token", Answer::json(400, &json!({"error": "invalid_request", "error_description": said})));
    let error = call(&mcp).await.expect_err("an error");
    let shown = format!("{error:?} {}", chain(&error));
    assert!(secrets.iter().all(|secret| !shown.contains(secret)), "{shown}");
    mcp.close().await;
    let shown = format!("{mcp:?}");
    assert!(secrets.iter().all(|secret| !shown.contains(secret)), "{shown}");
    while let Ok(Some(event)) = tokio::time::timeout(Duration::from_millis(200), seen.next()).await {
        let text = format!("{event:?} {event} {}", serde_json::to_string(&event).expect("JSON"));
        assert!(secrets.iter().all(|secret| !text.contains(secret)), "{text}");
        if matches!(event, Event::Closed { .. }) {
            break;
        }
    }
}

#[tokio::test]
async fn a_token_that_is_bound_to_a_key_is_proven_with_every_request() {
    let server = AuthorizationServer::start().await;
    server.change(|behaviour| (behaviour.dpop, behaviour.dpop_nonce) = (true, true));
    let asked = Asked::default();
    let mcp = connection(http(&server), asked.host());
    mcp.connect().await.expect("connected");
    call(&mcp).await.expect("a result");
    call(&mcp).await.expect("a result");
    assert_eq!(asked.count(), 1);
    let proofs = server.requests("/mcp").iter().filter(|request| !request.header("dpop").is_empty()).count();
    assert!(proofs >= 4, "{proofs}");
}

#[tokio::test]
async fn fixed_credentials_and_other_schemes_are_left_alone() {
    let server = AuthorizationServer::start().await;
    let asked = Asked::default();
    let mcp = connection(http(&server).with_bearer("fixed-t0ken"), asked.host());
    let error = mcp.connect().await.expect_err("rejected");
    assert!(matches!(*error.cause, ConnectErrorKind::NeedsAuth { .. }), "{error:?}");
    refuse_for_ever(&server, 401, "Basic realm=\"x\"");
    let mcp = connection(http(&server), asked.host());
    let error = mcp.connect().await.expect_err("rejected");
    assert!(matches!(*error.cause, ConnectErrorKind::NeedsAuth { .. }), "{error:?}");
    assert_eq!(asked.count(), 0);
}

#[tokio::test]
async fn a_cancelled_call_does_not_lose_a_refreshed_token() {
    let server = AuthorizationServer::start().await;
    let store = signed_in(&server).await;
    let mcp = connection(http(&server), Handlers::new().with_token_store(store));
    mcp.connect().await.expect("connected");
    for _ in 0..10 {
        server.expire_access_tokens();
        let cancelled = tokio::time::timeout(Duration::from_millis(fastrand_millis()), call(&mcp)).await;
        drop(cancelled);
        tokio::time::sleep(Duration::from_millis(50)).await;
        call(&mcp).await.expect("the refresh token is not lost");
    }
    let cx = CallContext::default().with_timeout(Duration::from_secs(5));
    mcp.call_tool_with("scopes", json!({}), &cx).await.expect("a result");
}

/// A time within a refresh.
fn fastrand_millis() -> u64 {
    u64::from(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time").subsec_nanos() % 8)
}
