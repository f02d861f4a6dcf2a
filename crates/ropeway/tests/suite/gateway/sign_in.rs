//! Sign-ins to servers: from the page, for each principal, and in the middle of a call.

use std::sync::Arc;
use std::time::Duration;

use ropeway::config::{AuditSettings, Config, GatewaySettings, HttpServer, OAuthSettings, ServerEntry};
use ropeway::gateway::Gateway;
use ropeway::oauth::{Credentials, SignIn, SignInOptions, TokenStore};
use ropeway::testing::{Script, ScriptedServer};
use ropeway_config::{AuthSettings, ServerAuth};
use ropeway_gateway::{KeyFile, NewKey};
use serde_json::{Value, json};

use super::auth::header;
use super::kit::{
    GatewayKit, HttpReply, all_capabilities, bare, call, call_with, entry, input_required, modern, next_message, post,
    read_rest, read_until,
};
use crate::fast_config::{fast_config, until};
use crate::oauth::authorization_server::AuthorizationServer;
use crate::oauth::wire::{Answer, browse};
use crate::scene::scene;

const HOST: &str = "Host: localhost:8931\r\n";
const JSON: &str = "Content-Type: application/json\r\n";

/// The name of the audit log.
const AUDIT: &str = "audit.jsonl";

/// A gateway in front of a protected server, `web`, and a scripted one.
struct SignInKit {
    kit: GatewayKit,
    server: AuthorizationServer,
    store: TokenStore,
    keys: KeyFile,
    folder: tempfile::TempDir,
}

impl std::ops::Deref for SignInKit {
    type Target = GatewayKit;

    fn deref(&self) -> &GatewayKit {
        &self.kit
    }
}

/// What a test changes.
#[derive(Clone, Copy, Default)]
struct Setup {
    is_signed_in: bool,
    per_principal: bool,
    needs_keys: bool,
    config_file: Option<&'static str>,
}

impl SignInKit {
    async fn start(setup: Setup) -> Self {
        let (server, store) = (AuthorizationServer::start().await, TokenStore::in_memory());
        if setup.is_signed_in {
            sign_in(&server, &store).await;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let keys = KeyFile::new(folder.path().join("keys.json"));
        keys.add(NewKey::new("first")).expect("a key");
        let audit = AuditSettings::new(folder.path().join(AUDIT)).with_arguments(true);
        let mut settings = GatewaySettings::default().with_audit(audit);
        if setup.needs_keys {
            settings = settings.with_auth(AuthSettings::default().with_keys_file(Some(keys.path().to_owned())));
        }
        let mut http = HttpServer::new(server.mcp());
        let mut oauth = OAuthSettings::new();
        oauth.per_principal = setup.per_principal;
        http.auth = Some(ServerAuth::OAuth(Box::new(oauth)));
        let mut web = fast_config(http);
        web.alias = "web".into();
        let scripted = ScriptedServer::new(Script::default());
        let config = Config::default().with_server(ServerEntry::new(web)).with_server(entry("other", &scripted));
        let mut builder = Gateway::builder(config).settings(settings).token_store(store.clone());
        if let Some(file) = setup.config_file {
            builder = builder.config_file(file);
        }
        Self { kit: GatewayKit::launch(scripted, builder).await, server, store, keys, folder }
    }

    /// Starts sign-ins until one is refused, and returns how many were not. On a busy machine some are allowed again meanwhile.
    async fn start_until_refused(&self, key: &str) -> usize {
        for started in 0..200 {
            let reply = self.page("POST", &format!("{JSON}{key}"), &json!({"server": "web"})).await;
            match reply.status {
                200 => {}
                429 => return started,
                _ => panic!("{reply:?}"),
            }
        }
        panic!("200 sign-ins could be started")
    }

    fn key(&self, name: &str, change: impl FnOnce(&mut NewKey)) -> String {
        let mut new = NewKey::new(name);
        change(&mut new);
        header(self.keys.add(new).expect("a key").0.expose())
    }

    /// Sends a request of the page.
    async fn page(&self, method: &str, headers: &str, body: &Value) -> HttpReply {
        let body = body.to_string();
        let length = format!("Content-Length: {}\r\n", body.len());
        self.send(&format!("{}{body}", bare(method, "/api/sign-in", &format!("{HOST}{headers}{length}")))).await
    }

    /// Starts a sign-in. Returns the address to open, and the cookie.
    async fn begin(&self, headers: &str) -> (String, String) {
        let reply = self.page("POST", &format!("{JSON}{headers}"), &json!({"server": "web"})).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let cookie = reply.headers["set-cookie"].split(';').next().expect("a cookie").to_owned();
        (reply.json()["url"].as_str().expect("a URL").to_owned(), format!("Cookie: other=1; {cookie}\r\n"))
    }

    async fn callback(&self, url: &str, headers: &str) -> HttpReply {
        let target = url.strip_prefix("http://localhost:8931").expect("the callback of the gateway");
        self.send(&bare("GET", target, &format!("{HOST}{headers}"))).await
    }

    /// Signs in like a person with a browser.
    async fn sign_in(&self, headers: &str) {
        let (url, cookie) = self.begin(headers).await;
        let reply = self.callback(&browse(&url).await, &cookie).await;
        assert_eq!(reply.status, 200, "{reply:?}");
    }

    /// Returns what the page shows about the server.
    async fn status(&self, headers: &str) -> Value {
        let reply = self.send(&bare("GET", "/api/status", &format!("{HOST}{headers}"))).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let servers = reply.json()["servers"].as_array().expect("servers").clone();
        servers.into_iter().find(|server| server["server"] == "web").expect("the server")
    }

    /// Waits until the server is in a state.
    async fn until(&self, headers: &str, state: &str) {
        for _ in 0..600 {
            if self.status(headers).await["state"] == state {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the server is not `{state}`: {}", self.status(headers).await);
    }

    async fn call(&self, headers: &str) -> Value {
        let reply = self.send(&with(&call_with(json!({}), "web_scopes", &json!({}), json!({})), headers)).await;
        reply.json()
    }

    /// Returns the names of the tools that a client sees.
    async fn tool_names(&self, headers: &str) -> Vec<String> {
        let reply = self.send(&with(&modern("tools/list", json!({})), headers)).await.json();
        let tools = reply["result"]["tools"].as_array().unwrap_or_else(|| panic!("no list: {reply}"));
        tools.iter().filter_map(|tool| tool["name"].as_str()).map(str::to_owned).collect()
    }

    /// Makes the tokens of the server invalid.
    fn expire(&self) {
        self.server.expire_access_tokens();
        self.server.revoke_refresh_tokens();
    }

    /// Returns the access token of an account.
    async fn token(&self, account: Option<&str>) -> Option<String> {
        let stored = self.store.load(&self.server.mcp(), account).await.expect("a store");
        stored.map(|stored| stored.tokens.access_token.expose().to_owned())
    }

    /// Waits for lines of the audit log about sign-ins and sign-outs, and returns them.
    async fn sign_in_lines(&self, count: usize) -> Vec<Value> {
        let path = self.folder.path().join(AUDIT);
        let read = || -> Vec<Value> {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            lines.filter(|line| line["action"].is_string()).collect()
        };
        until("the lines", || read().len() >= count).await;
        read()
    }

    async fn stop(self) {
        self.kit.stop().await;
    }
}

/// Adds headers to a request.
fn with(request: &str, headers: &str) -> String {
    request.replacen("\r\n", &format!("\r\n{headers}"), 1)
}

/// Signs in to the shared account, as `ropeway login` does.
async fn sign_in(server: &AuthorizationServer, store: &TokenStore) {
    sign_in_as(server, store, None).await;
}

async fn sign_in_as(server: &AuthorizationServer, store: &TokenStore, account: Option<&str>) {
    store.save(&credentials(server, account).await).await.expect("stored");
}

/// Returns the result of a sign-in.
async fn credentials(server: &AuthorizationServer, account: Option<&str>) -> Credentials {
    let mut sign_in = SignIn::start(SignInOptions::new(server.mcp())).await.expect("a sign-in");
    let url = sign_in.prepare("http://127.0.0.1:7/callback").await.expect("a URL");
    let mut credentials = sign_in.finish(&browse(&url).await).await.expect("tokens");
    credentials.account = account.map(str::to_owned);
    credentials
}

fn is_result(reply: &Value) -> bool {
    reply["result"]["content"][0]["type"] == "text"
}

#[test]
fn an_operator_signs_in_and_out_on_the_page() {
    scene(|_| async move {
        let kit = SignInKit::start(Setup::default()).await;
        let login = kit.status("").await["login"].clone();
        assert_eq!(
            (&login["needed"], &login["allowed"], &login["signed_in"]),
            (&json!(true), &json!(true), &json!(false))
        );
        assert_eq!(login["command"], "ropeway login web");
        let error = kit.call("").await["error"]["message"].as_str().expect("an error").to_owned();
        assert!(error.contains("server `web` needs a sign-in: run `ropeway login web`"), "{error}");
        let (url, cookie) = kit.begin("Origin: http://localhost:8931\r\n").await;
        let callback = browse(&url).await;
        let reply = kit.callback(&callback, &cookie).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        assert!(reply.body.contains("<h1>Signed in</h1>"), "{reply:?}");
        kit.until("", "ready").await;
        let login = kit.status("").await["login"].clone();
        assert_eq!((&login["needed"], &login["signed_in"]), (&json!(false), &json!(true)), "{login}");
        assert_eq!(login["issuer"], kit.server.url);
        assert!(is_result(&kit.call("").await));
        assert_eq!(kit.callback(&callback, &cookie).await.status, 400, "a callback twice");
        assert_eq!(kit.server.token_requests("authorization_code").len(), 1);
        let reply = kit.page("DELETE", JSON, &json!({"server": "web"})).await;
        assert_eq!(reply.json(), json!({"signed_out": true}));
        kit.until("", "needs_auth").await;
        assert_eq!((kit.token(None).await, kit.server.requests("/revoke").is_empty()), (None, false));
        kit.stop().await;
    });
}

#[test]
fn a_callback_needs_its_state_and_its_browser() {
    scene(|_| async move {
        let kit = SignInKit::start(Setup::default()).await;
        let unknown = "http://localhost:8931/oauth/callback?code=%3Cscript%3E&state=%3Cscript%3E";
        let reply = kit.callback(unknown, "").await;
        assert_eq!(reply.status, 400, "{reply:?}");
        assert!(!reply.body.contains("script"), "{reply:?}");
        let policy = &reply.headers["content-security-policy"];
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!((&*reply.headers["cache-control"], &*reply.headers["x-frame-options"]), ("no-store", "DENY"));
        let (url, cookie) = kit.begin("").await;
        let callback = browse(&url).await;
        let forged = format!("{}x\r\n", cookie.trim_end());
        for headers in ["", "Cookie: other=1\r\n", &forged] {
            assert_eq!(kit.callback(&callback, headers).await.status, 400, "{headers}");
        }
        for query in ["", "?", "?state=", "?code=1"] {
            assert_eq!(
                kit.callback(&format!("http://localhost:8931/oauth/callback{query}"), &cookie).await.status,
                400
            );
        }
        assert_eq!(kit.token(None).await, None);
        // None of them has ended the sign-in.
        assert_eq!(kit.callback(&callback, &cookie).await.status, 200);
        assert!(kit.token(None).await.is_some());
        // A sign-in that is started again replaces the one before.
        let (first, first_cookie) = kit.begin("").await;
        let (second, second_cookie) = kit.begin("").await;
        assert_eq!(kit.callback(&browse(&first).await, &first_cookie).await.status, 400);
        assert_eq!(kit.callback(&browse(&second).await, &second_cookie).await.status, 200);
        kit.stop().await;
    });
}

#[test]
fn a_sign_in_that_is_declined_or_fails_ends() {
    scene(|_| async move {
        let kit = SignInKit::start(Setup::default()).await;
        kit.server.change(|behaviour| behaviour.denies = true);
        let (url, cookie) = kit.begin("").await;
        let reply = kit.callback(&browse(&url).await, &cookie).await;
        assert_eq!(reply.status, 502, "{reply:?}");
        assert!(reply.body.contains("<h1>Sign-in failed</h1>"), "{reply:?}");
        assert!(reply.body.contains("tokens: the sign-in was declined"), "{reply:?}");
        let login = kit.status("").await["login"].clone();
        let failure = login["failure"].as_str().expect("a reason");
        assert!(failure.starts_with("the sign-in was declined") && login["in_progress"] == false, "{login}");
        kit.server.change(|behaviour| behaviour.denies = false);
        kit.server.answer_times(1, "/token", Answer::html(500));
        let (url, cookie) = kit.begin("").await;
        let login = kit.status("").await["login"].clone();
        assert_eq!((&login["failure"], &login["in_progress"]), (&Value::Null, &json!(true)));
        assert_eq!(kit.callback(&browse(&url).await, &cookie).await.status, 502);
        assert_eq!(kit.token(None).await, None);
        assert!(kit.status("").await["login"]["failure"].is_string());
        kit.sign_in("").await;
        let login = kit.status("").await["login"].clone();
        assert_eq!((&login["failure"], &login["in_progress"]), (&Value::Null, &json!(false)));
        kit.stop().await;
    });
}

#[test]
fn the_commands_of_a_gateway_name_its_configuration_file() {
    scene(|_| async move {
        let kit = SignInKit::start(Setup { config_file: Some("/etc/ropeway.yaml"), ..Setup::default() }).await;
        let command = "ropeway login web --config /etc/ropeway.yaml";
        assert_eq!(kit.status("").await["login"]["command"], command);
        let error = kit.call("").await["error"]["message"].as_str().expect("an error").to_owned();
        assert!(error.contains(&format!("run `{command}`")), "{error}");
        kit.stop().await;
    });
}

#[test]
fn the_cookie_of_a_sign_in_has_the_host_prefix_over_tls() {
    scene(|_| async move {
        let kit = SignInKit::start(Setup::default()).await;
        for (scheme, name, attributes) in [
            ("https", "__Host-ropeway-sign-in-", "; Path=/; Secure; Max-Age=600; HttpOnly; SameSite=Lax"),
            ("http", "ropeway-sign-in-", "; Path=/oauth/callback; Max-Age=600; HttpOnly; SameSite=Lax"),
        ] {
            let headers = format!("{JSON}Origin: {scheme}://localhost:8931\r\n");
            let reply = kit.page("POST", &headers, &json!({"server": "web"})).await;
            let cookie = &reply.headers["set-cookie"];
            assert!(cookie.starts_with(name) && cookie.ends_with(attributes), "{cookie}");
            let url = browse(reply.json()["url"].as_str().expect("a URL")).await;
            let target = url.strip_prefix(&format!("{scheme}://localhost:8931")).expect("the callback of the gateway");
            let cookie = cookie.split(';').next().expect("a cookie");
            let reply = kit.send(&bare("GET", target, &format!("{HOST}Cookie: {cookie}\r\n"))).await;
            assert_eq!(reply.status, 200, "{reply:?}");
        }
        kit.stop().await;
    });
}

#[test]
fn a_sign_out_fails_the_calls_that_wait_for_a_sign_in() {
    scene(|_| async move {
        let kit = SignInKit::start(Setup { is_signed_in: true, ..Setup::default() }).await;
        let session = kit.session_with(all_capabilities()).await;
        kit.expire();
        let mut stream = kit.open(&post(&session, &call(5, "web_scopes", json!({})))).await;
        let asked = next_message(&mut stream).await;
        let accepted = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept"}});
        assert_eq!(kit.post(&session, &accepted).await.status, 202);
        let asked = kit.server.requests("/mcp").iter().filter(|it| it.json()["method"] == "tools/call").count();
        assert_eq!(kit.page("DELETE", JSON, &json!({"server": "web"})).await.status, 200);
        let rest = read_rest(stream).await;
        assert!(rest.contains("server `web` needs a sign-in; it was declined or failed"), "{rest}");
        assert!(!rest.contains("notifications/elicitation/complete"), "{rest}");
        let calls = kit.server.requests("/mcp").iter().filter(|it| it.json()["method"] == "tools/call").count();
        assert_eq!(calls, asked, "the call is not sent again");
        kit.stop().await;
    });
}

#[test]
fn other_origins_cannot_start_a_sign_in() {
    scene(|_| async move {
        let kit = SignInKit::start(Setup::default()).await;
        let web = json!({"server": "web"});
        for origin in ["http://localhost:6274", "https://evil.example", "null"] {
            let reply = kit.page("POST", &format!("{JSON}Origin: {origin}\r\n"), &web).await;
            assert_eq!(reply.status, 403, "{origin}: {reply:?}");
        }
        assert_eq!(kit.page("POST", &format!("{JSON}Sec-Fetch-Site: cross-site\r\n"), &web).await.status, 403);
        assert_eq!(kit.page("POST", "Content-Type: text/plain\r\n", &web).await.status, 415);
        for (body, status) in [(json!([]), 400), (json!({"server": "other"}), 404), (json!({"server": "none"}), 404)] {
            assert_eq!(kit.page("POST", JSON, &body).await.status, status, "{body}");
            assert_eq!(kit.page("DELETE", JSON, &body).await.status, status, "{body}");
        }
        assert!(kit.server.requests("/register").is_empty());
        kit.stop().await;
    });
}

#[test]
fn sign_ins_cannot_be_started_without_end() {
    scene(|_| async move {
        let kit = SignInKit::start(Setup::default()).await;
        let started = kit.start_until_refused("").await;
        assert!(started >= 30, "{started}");
        assert!(kit.server.requests("/register").len() <= started);
        kit.stop().await;
    });
}

#[test]
fn a_principal_that_starts_sign_ins_without_end_does_not_block_the_others() {
    scene(|_| async move {
        let kit = SignInKit::start(Setup { per_principal: true, needs_keys: true, ..Setup::default() }).await;
        let (ann, bob) = (kit.key("ann", |_| {}), kit.key("bob", |_| {}));
        kit.start_until_refused(&ann).await;
        kit.sign_in(&bob).await;
        kit.stop().await;
    });
}

#[test]
fn only_operators_sign_in_and_out_of_the_shared_account() {
    scene(|_| async move {
        let kit = SignInKit::start(Setup { needs_keys: true, ..Setup::default() }).await;
        let restricted = kit.key("some", |key| key.profiles = vec!["web".to_owned()]);
        let (full, operator) = (kit.key("all", |_| {}), kit.key("ops", |key| key.operator = true));
        let web = json!({"server": "web"});
        assert_eq!(kit.page("POST", JSON, &web).await.status, 401);
        for method in ["POST", "DELETE"] {
            for key in [&restricted, &full] {
                let refused = kit.page(method, &format!("{JSON}{key}"), &web).await;
                assert!(refused.status == 403 && refused.body.contains("--operator"), "{refused:?}");
            }
        }
        for key in [&restricted, &full] {
            let login = kit.status(key).await["login"].clone();
            assert_eq!((&login["needed"], &login["allowed"]), (&json!(true), &json!(false)));
            assert_eq!(login["command"], Value::Null, "the command needs the machine of the gateway");
        }
        let error = kit.call(&full).await["error"]["message"].as_str().expect("an error").to_owned();
        assert!(error.ends_with("needs a sign-in: ask an operator of the gateway to sign in"), "{error}");
        kit.sign_in(&operator).await;
        kit.until(&full, "ready").await;
        assert!(is_result(&kit.call(&full).await));
        let login = kit.status(&full).await["login"].clone();
        assert_eq!(
            (&login["signed_in"], &login["issuer"], &login["expires"]),
            (&json!(true), &Value::Null, &Value::Null)
        );
        assert_eq!(kit.page("DELETE", &format!("{JSON}{full}"), &web).await.status, 403);
        assert!(kit.token(None).await.is_some());
        assert_eq!(kit.page("DELETE", &format!("{JSON}{operator}"), &web).await.status, 200);
        let audited = kit.sign_in_lines(8).await;
        let of = |name: &str| -> Vec<_> {
            let own = audited.iter().filter(|line| line["principal"] == format!("key:{name}"));
            own.map(|line| ["action", "rule", "outcome", "account"].map(|key| line[key].as_str().unwrap_or("")))
                .collect()
        };
        let denied = |action| [action, "operators", "error", ""];
        assert_eq!(of("some"), [denied("sign_in"), denied("sign_out")], "{audited:?}");
        assert_eq!(of("all"), [denied("sign_in"), denied("sign_out"), denied("sign_out")], "{audited:?}");
        let done = |action, outcome| [action, "", outcome, "shared"];
        assert_eq!(of("ops"), [done("sign_in", "started"), done("sign_in", "ok"), done("sign_out", "ok")]);
        assert!(audited.iter().all(|line| line["server"] == "web"), "{audited:?}");
        kit.stop().await;
    });
}

#[test]
fn each_principal_uses_tokens_of_its_own() {
    scene(|_| async move {
        let setup = Setup { is_signed_in: true, per_principal: true, needs_keys: true, ..Setup::default() };
        let kit = SignInKit::start(setup).await;
        let ann = kit.key("ann", |key| key.profiles = vec!["default".to_owned()]);
        let bob = kit.key("bob", |_| {});
        let other = kit.key("other", |key| key.tools = vec!["other.*".to_owned()]);
        kit.until(&bob, "ready").await;
        let error = kit.call(&ann).await["error"].clone();
        let message = error["message"].as_str().expect("an error");
        assert!(
            message.contains("run `ropeway login web --account 'key:ann'`, or open http://127.0.0.1:"),
            "{message}"
        );
        assert_eq!(error["data"], json!({"server": "web", "reason": "needs_auth"}));
        assert_eq!(kit.status(&ann).await["login"]["account"], "key:ann");
        // A key without access to the server cannot sign in to it.
        assert_eq!(kit.page("POST", &format!("{JSON}{other}"), &json!({"server": "web"})).await.status, 404);
        kit.sign_in(&ann).await;
        assert!(is_result(&kit.call(&ann).await));
        assert!(kit.call(&bob).await["error"]["message"].as_str().is_some_and(|text| text.contains("'key:bob'")));
        kit.sign_in(&bob).await;
        assert!(is_result(&kit.call(&bob).await));
        let tokens = [kit.token(None).await, kit.token(Some("key:ann")).await, kit.token(Some("key:bob")).await];
        let tokens = tokens.map(|token| format!("Bearer {}", token.expect("a token")));
        let used: Vec<String> = kit
            .server
            .requests("/mcp")
            .iter()
            .filter(|request| request.json()["method"] == "tools/call")
            .map(|request| request.header("authorization").to_owned())
            .collect();
        assert_eq!(used, tokens[1..], "the token of the shared account calls no tool");
        // Signing out ends the connection of one principal only.
        let reply = kit.page("DELETE", &format!("{JSON}{ann}"), &json!({"server": "web"})).await;
        assert_eq!(reply.json(), json!({"signed_out": true}));
        assert!(!is_result(&kit.call(&ann).await));
        assert!(is_result(&kit.call(&bob).await));
        kit.stop().await;
    });
}

#[test]
fn without_a_shared_sign_in_tools_are_listed_with_the_tokens_of_a_principal() {
    scene(|_| async move {
        let kit = SignInKit::start(Setup { per_principal: true, needs_keys: true, ..Setup::default() }).await;
        let (ann, bob) = (kit.key("ann", |_| {}), kit.key("bob", |_| {}));
        kit.until(&ann, "needs_auth").await;
        // Without any sign-in, the list and the error of a call name the one of the principal.
        let advice = "needs a sign-in: run `ropeway login web --account 'key:ann'`, or open http://127.0.0.1:";
        let listed = kit.send(&with(&modern("tools/list", json!({})), &ann)).await.json()["result"].clone();
        let missing = listed["_meta"]["dev.ropeway/servers"][0].clone();
        assert_eq!((&missing["alias"], &missing["state"]), (&json!("web"), &json!("needs_auth")), "{listed}");
        assert!(missing["reason"].as_str().is_some_and(|reason| reason.starts_with(advice)), "{missing}");
        let error = kit.call(&ann).await["error"]["message"].as_str().expect("an error").to_owned();
        assert!(error.contains(&format!("server `web` {advice}")), "{error}");
        // The sign-in of one principal lists the tools for all.
        kit.sign_in(&ann).await;
        let is_scopes = |name: &String| name == "web_scopes";
        for _ in 0..100 {
            if kit.tool_names(&bob).await.iter().any(is_scopes) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(kit.tool_names(&ann).await.iter().any(is_scopes));
        assert!(is_result(&kit.call(&ann).await));
        let error = kit.call(&bob).await["error"]["message"].as_str().expect("an error").to_owned();
        assert!(error.starts_with("server `web` needs a sign-in: ") && error.contains("'key:bob'"), "{error}");
        assert_eq!(kit.status(&ann).await["state"], "needs_auth", "the shared account has no tokens");
        kit.stop().await;
    });
}

#[test]
fn a_principal_that_signed_in_before_the_start_lists_the_tools() {
    scene(|_| async move {
        let kit = SignInKit::start(Setup { per_principal: true, needs_keys: true, ..Setup::default() }).await;
        let (ann, bob) = (kit.key("ann", |_| {}), kit.key("bob", |_| {}));
        kit.until(&ann, "needs_auth").await;
        // As `ropeway login web --account key:ann` does.
        sign_in_as(&kit.server, &kit.store, Some("key:ann")).await;
        assert!(
            !kit.tool_names(&bob).await.iter().any(|name| name == "web_scopes"),
            "tokens serve their principal only"
        );
        assert!(kit.tool_names(&ann).await.iter().any(|name| name == "web_scopes"));
        assert!(is_result(&kit.call(&ann).await));
        kit.stop().await;
    });
}

/// Opens a stream with notifications about changed tools.
async fn listen(kit: &SignInKit, headers: &str) -> tokio::io::BufReader<tokio::net::TcpStream> {
    let listen = modern("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    let mut stream = kit.open(&with(&listen, headers)).await;
    read_until(&mut stream, "acknowledged").await;
    stream
}

#[test]
fn a_client_is_notified_of_tools_after_its_principal_signs_in_on_a_terminal() {
    scene(|_| async move {
        let kit = SignInKit::start(Setup { per_principal: true, needs_keys: true, ..Setup::default() }).await;
        let (ann, bob) = (kit.key("ann", |_| {}), kit.key("bob", |_| {}));
        kit.until(&ann, "needs_auth").await;
        let mut stream = listen(&kit, &ann).await;
        sign_in_as(&kit.server, &kit.store, Some("key:ann")).await;
        read_until(&mut stream, "notifications/tools/list_changed").await;
        assert!(kit.tool_names(&bob).await.iter().any(|name| name == "web_scopes"));
        drop(stream);
        kit.stop().await;
    });
}

#[test]
fn tools_are_listed_again_after_later_sign_ins_of_principals() {
    scene(|_| async move {
        let kit = SignInKit::start(Setup { per_principal: true, needs_keys: true, ..Setup::default() }).await;
        let (ann, bob) = (kit.key("ann", |_| {}), kit.key("bob", |_| {}));
        kit.until(&ann, "needs_auth").await;
        let mut stream = listen(&kit, &bob).await;
        kit.sign_in(&ann).await;
        read_until(&mut stream, "notifications/tools/list_changed").await;
        // The server was updated.
        kit.server.change(|behaviour| behaviour.tools.push("more"));
        kit.sign_in(&bob).await;
        read_until(&mut stream, "notifications/tools/list_changed").await;
        assert!(kit.tool_names(&ann).await.iter().any(|name| name == "web_more"));
        let listed_with = |token: &str| {
            let requests = kit.server.requests("/mcp");
            let mut lists = requests.iter().filter(|request| request.json()["method"] == "tools/list");
            lists.any(|request| request.header("authorization") == format!("Bearer {token}"))
        };
        let tokens = [kit.token(Some("key:ann")).await, kit.token(Some("key:bob")).await];
        let used = tokens.map(|token| listed_with(&token.expect("a token")));
        assert_eq!(used, [true, false], "the list does not depend on who has signed in last");
        // Once that account has no tokens, another one lists the tools.
        let reply = kit.page("DELETE", &format!("{JSON}{ann}"), &json!({"server": "web"})).await;
        assert_eq!(reply.json(), json!({"signed_out": true}));
        kit.server.change(|behaviour| behaviour.tools.push("most"));
        kit.sign_in(&bob).await;
        read_until(&mut stream, "notifications/tools/list_changed").await;
        assert!(kit.tool_names(&ann).await.iter().any(|name| name == "web_most"));
        drop(stream);
        kit.stop().await;
    });
}

#[test]
fn one_list_serves_all_principals_that_have_signed_in_since_the_last_one() {
    scene(|_| async move {
        let kit = SignInKit::start(Setup { per_principal: true, needs_keys: true, ..Setup::default() }).await;
        let (ann, bob) = (kit.key("ann", |_| {}), kit.key("bob", |_| {}));
        kit.until(&ann, "needs_auth").await;
        let (mut stream, other) = (listen(&kit, &ann).await, listen(&kit, &bob).await);
        let first = credentials(&kit.server, Some("key:ann")).await;
        let second = credentials(&kit.server, Some("key:bob")).await;
        kit.store.save(&first).await.expect("stored");
        kit.store.save(&second).await.expect("stored");
        read_until(&mut stream, "notifications/tools/list_changed").await;
        // The gateway looks for tokens every three seconds.
        tokio::time::sleep(Duration::from_secs(4)).await;
        let requests = kit.server.requests("/mcp");
        let lists = requests.iter().filter(|request| request.json()["method"] == "tools/list").count();
        assert_eq!(lists, 1);
        drop((stream, other));
        kit.stop().await;
    });
}

#[test]
fn the_tools_of_the_shared_account_are_not_replaced_by_those_of_a_principal() {
    scene(|_| async move {
        let setup = Setup { is_signed_in: true, per_principal: true, needs_keys: true, ..Setup::default() };
        let kit = SignInKit::start(setup).await;
        let ann = kit.key("ann", |_| {});
        kit.until(&ann, "ready").await;
        let listed = kit.tool_names(&ann).await;
        assert!(listed.iter().any(|name| name == "web_scopes"), "{listed:?}");
        // The tokens of the shared account end, and a principal may use more tools.
        kit.expire();
        let refused = kit.gateway.bridge().call("web.scopes", json!({})).await;
        assert!(refused.meta.is_error, "{refused:?}");
        kit.until(&ann, "needs_auth").await;
        kit.server.change(|behaviour| behaviour.tools.push("more"));
        kit.sign_in(&ann).await;
        assert!(is_result(&kit.call(&ann).await));
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert_eq!(kit.tool_names(&ann).await, listed);
        // The next sign-in of the shared account lists them.
        let mut stream = listen(&kit, &ann).await;
        sign_in(&kit.server, &kit.store).await;
        read_until(&mut stream, "notifications/tools/list_changed").await;
        assert!(kit.tool_names(&ann).await.iter().any(|name| name == "web_more"));
        drop(stream);
        kit.stop().await;
    });
}

#[test]
fn a_call_of_a_legacy_client_goes_on_after_a_sign_in() {
    scene(|_| async move {
        let kit = SignInKit::start(Setup { is_signed_in: true, ..Setup::default() }).await;
        let session = kit.session_with(all_capabilities()).await;
        kit.expire();
        let mut stream = kit.open(&post(&session, &call(5, "web_scopes", json!({})))).await;
        let asked = next_message(&mut stream).await;
        assert_eq!((&asked["method"], &asked["params"]["mode"]), (&json!("elicitation/create"), &json!("url")));
        let url = asked["params"]["url"].as_str().expect("a URL");
        assert_eq!(url, format!("http://{}/#/servers/web", kit.address));
        let accepted = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept"}});
        assert_eq!(kit.post(&session, &accepted).await.status, 202);
        kit.sign_in("").await;
        let rest = read_rest(stream).await;
        assert!(rest.contains("notifications/elicitation/complete"), "{rest}");
        let messages = rest.lines().filter_map(|line| line.strip_prefix("data: "));
        let mut messages = messages.filter_map(|data| serde_json::from_str::<Value>(data).ok());
        assert!(messages.any(|message| message["id"] == 5 && is_result(&message)), "{rest}");
        // Who signed in, where and for whom is in the audit log.
        let mut lines: Vec<_> = kit.sign_in_lines(3).await;
        lines.sort_by_key(|line| (line["action"].to_string(), line["outcome"].to_string()));
        let shown =
            lines.iter().map(|line| ["action", "account", "outcome"].map(|key| line[key].as_str().unwrap_or("")));
        let expected = [("sign_in", "ok"), ("sign_in", "started"), ("sign_in_offer", "ok")];
        assert_eq!(shown.collect::<Vec<_>>(), expected.map(|(action, outcome)| [action, "shared", outcome]));
        kit.stop().await;
    });
}

#[test]
fn a_call_of_a_modern_client_goes_on_after_a_sign_in() {
    scene(|_| async move {
        let kit = SignInKit::start(Setup { is_signed_in: true, ..Setup::default() }).await;
        kit.expire();
        let ask = async |more: Value| kit.send(&call_with(all_capabilities(), "web_scopes", &json!({}), more)).await;
        let result = input_required(&ask(json!({})).await);
        let params = &result["inputRequests"]["q1"]["params"];
        assert_eq!((&params["mode"], &params["elicitationId"]), (&json!("url"), &Value::Null), "{result}");
        kit.sign_in("").await;
        let answers = json!({"q1": {"action": "accept"}});
        let reply = ask(json!({"requestState": result["requestState"], "inputResponses": answers})).await;
        assert!(is_result(&reply.json()), "{reply:?}");
        kit.stop().await;
    });
}

#[test]
fn later_calls_join_the_sign_in_of_the_shared_account() {
    scene(|_| async move {
        let kit = Arc::new(SignInKit::start(Setup { is_signed_in: true, ..Setup::default() }).await);
        let listed = kit.tool_names("").await;
        assert!(listed.iter().any(|name| name == "web_scopes"), "{listed:?}");
        kit.expire();
        let request = |more: Value| call_with(all_capabilities(), "web_scopes", &json!({}), more);
        let result = input_required(&kit.send(&request(json!({}))).await);
        kit.until("", "needs_auth").await;
        assert_eq!(kit.tool_names("").await, listed, "the tools stay listed");
        // A client that cannot ask a person gets an error with the command and the page.
        let error = kit.call("").await["error"].clone();
        let message = error["message"].as_str().expect("an error");
        let expected = "server `web` needs a sign-in: run `ropeway login web`, or open http://127.0.0.1:";
        assert!(message.starts_with(expected), "{message}");
        assert_eq!(error["data"], json!({"server": "web", "reason": "needs_auth"}));
        let waiting = tokio::spawn({
            let (kit, request) = (kit.clone(), request(json!({})));
            async move { kit.send(&request).await }
        });
        until("both calls", || kit.gateway.status().requests >= 2).await;
        kit.sign_in("").await;
        let answers = json!({"q1": {"action": "accept"}});
        let more = json!({"requestState": result["requestState"], "inputResponses": answers});
        for reply in [kit.send(&request(more)).await, waiting.await.expect("a reply")] {
            assert!(is_result(&reply.json()), "{reply:?}");
        }
        assert_eq!(kit.server.token_requests("authorization_code").len(), 2, "one sign-in for both calls");
        Arc::into_inner(kit).expect("the only kit").stop().await;
    });
}

#[test]
fn a_declined_sign_in_fails_the_waiting_calls_without_another_question() {
    scene(|_| async move {
        // The tools of the shared account stay listed while a principal signs in.
        let setup = Setup { is_signed_in: true, per_principal: true, needs_keys: true, ..Setup::default() };
        let kit = Arc::new(SignInKit::start(setup).await);
        let ann = kit.key("ann", |_| {});
        kit.until(&ann, "ready").await;
        let request = |more: Value| with(&call_with(all_capabilities(), "web_scopes", &json!({}), more), &ann);
        let ask = async |more: Value| kit.send(&request(more)).await;
        let result = input_required(&ask(json!({})).await);
        let asked = kit.server.requests("/mcp").len();
        // Another call waits for the same sign-in.
        let waiting = tokio::spawn({
            let (kit, request) = (kit.clone(), request(json!({})));
            async move { kit.send(&request).await }
        });
        until("both calls", || kit.gateway.status().requests >= 2).await;
        // It waits once the server has refused it, too.
        let mut refused = (asked, asked);
        while refused.1 == asked || refused.0 != refused.1 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            refused = (refused.1, kit.server.requests("/mcp").len());
        }
        let answers = json!({"q1": {"action": "decline"}});
        let declined = ask(json!({"requestState": result["requestState"], "inputResponses": answers})).await;
        let lines = kit.sign_in_lines(1).await;
        let line =
            ["principal", "action", "server", "account", "outcome"].map(|key| lines[0][key].as_str().unwrap_or(""));
        assert_eq!(line, ["key:ann", "sign_in_offer", "web", "own", "declined"], "{lines:?}");
        for reply in [declined, waiting.await.expect("a reply")] {
            let message = reply.json()["error"]["message"].as_str().expect("an error").to_owned();
            assert!(message.contains("needs a sign-in") && message.contains("ropeway login web"), "{message}");
        }
        let kit = Arc::into_inner(kit).expect("the only kit");
        kit.stop().await;
    });
}

#[test]
fn a_call_goes_on_after_a_sign_in_on_a_terminal() {
    scene(|_| async move {
        let kit = SignInKit::start(Setup { is_signed_in: true, ..Setup::default() }).await;
        kit.expire();
        let ask = async |more: Value| kit.send(&call_with(all_capabilities(), "web_scopes", &json!({}), more)).await;
        let result = input_required(&ask(json!({})).await);
        sign_in(&kit.server, &kit.store).await;
        let answers = json!({"q1": {"action": "accept"}});
        let reply = ask(json!({"requestState": result["requestState"], "inputResponses": answers})).await;
        assert!(is_result(&reply.json()), "{reply:?}");
        kit.stop().await;
    });
}

#[test]
fn a_server_connects_after_a_sign_in_on_a_terminal() {
    scene(|_| async move {
        let kit = SignInKit::start(Setup::default()).await;
        kit.until("", "needs_auth").await;
        sign_in(&kit.server, &kit.store).await;
        kit.until("", "ready").await;
        assert!(is_result(&kit.call("").await));
        kit.stop().await;
    });
}

#[test]
fn a_sign_in_for_further_scopes_asks_for_them() {
    scene(|_| async move {
        let kit = SignInKit::start(Setup { is_signed_in: true, ..Setup::default() }).await;
        kit.server.change(|behaviour| behaviour.required_scope = Some("write".to_owned()));
        let ask = async |more: Value| kit.send(&call_with(all_capabilities(), "web_scopes", &json!({}), more)).await;
        let result = input_required(&ask(json!({})).await);
        let (url, cookie) = kit.begin("").await;
        assert!(url.contains("write"), "{url}");
        assert_eq!(kit.callback(&browse(&url).await, &cookie).await.status, 200);
        let answers = json!({"q1": {"action": "accept"}});
        let reply = ask(json!({"requestState": result["requestState"], "inputResponses": answers})).await;
        assert!(reply.json()["result"]["content"][0]["text"].as_str().is_some_and(|text| text.contains("write")));
        kit.stop().await;
    });
}

#[test]
fn tokens_of_sign_ins_and_refreshes_stay_out_of_the_audit_log() {
    scene(|_| async move {
        let kit = SignInKit::start(Setup::default()).await;
        kit.sign_in("").await;
        kit.until("", "ready").await;
        let first = kit.token(None).await.expect("a token");
        kit.server.expire_access_tokens();
        assert!(is_result(&kit.call("").await), "the token is refreshed");
        let second = kit.token(None).await.expect("a token");
        assert_ne!(first, second);
        let arguments = json!({"note": format!("{first} {second} end")});
        kit.send(&call_with(json!({}), "web_scopes", &arguments, json!({}))).await;
        let audited = || std::fs::read_to_string(kit.folder.path().join(AUDIT)).unwrap_or_default();
        until("a line", || audited().contains("note")).await;
        assert!(audited().contains("*** *** end"), "{}", audited());
        assert!(!audited().contains(&first) && !audited().contains(&second), "{}", audited());
        kit.stop().await;
    });
}
