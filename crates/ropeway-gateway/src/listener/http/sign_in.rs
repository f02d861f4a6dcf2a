//! Sign-ins to servers over HTTP: the web page starts and ends them, and the browser returns through a callback.

use std::net::IpAddr;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, COOKIE, HOST, HeaderValue, ORIGIN, SET_COOKIE};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Response};
use serde_json::json;

use super::body::Body;
use super::page_request::named_server;
use super::{head, page, response};
use crate::client::principal::Principal;
use crate::observe::{SignInAction, SignInOutcome, SignInRecord};
use crate::request::errors::ErrorReply;
use crate::request::principal_tools::list_with;
use crate::shared::GatewayShared;
use crate::upstream::sign_in::{AccountKey, BrowserCookie, FinishedSignIn, LIFETIME, SignInError, StartedSignIn};
use crate::upstream::sign_in_rights::{SignInDenied, login_command, sign_in_account};
use ropeway_core::error_chain::chain;
use ropeway_core::tool::Alias;

pub(super) const CALLBACK_PATH: &str = "/oauth/callback";

/// Maximum number of cookies that a callback is searched for.
const MAX_COOKIES: usize = 200;

/// The pages after a callback load the web page's style sheet and icon only, and are not shown inside other pages.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// Maximum characters shown of a failed sign-in's reason.
const MAX_REASON: usize = 500;

/// The response to a principal that may not change the shared account.
const SHARED_ACCOUNT: &str = "Forbidden: all clients share this account, and only operators may change it; see \
                              `ropeway key new NAME --operator`";

/// Starts a sign-in, or signs out.
pub(super) async fn change(
    shared: &Arc<GatewayShared>,
    scheme: Option<&'static str>,
    principal: &Principal,
    (head, body): (&Parts, Incoming),
) -> Response<Body> {
    let server = match named_server(shared, principal, head, body).await {
        Ok(server) => server,
        Err(refused) => return refused,
    };
    let action = if head.method == Method::DELETE { SignInAction::SignOut } else { SignInAction::SignIn };
    let key = match sign_in_account(shared, principal, &Alias::from(&*server)) {
        Ok(key) => key,
        Err(denied) => {
            let outcome = SignInOutcome::Denied(denied.rule());
            shared.observer.add_sign_in(SignInRecord::new(principal, action, &server, outcome));
            return refuse(denied);
        }
    };
    let mut response = if action == SignInAction::SignOut {
        sign_out(shared, principal, key).await
    } else {
        start(shared, scheme, principal, head, &key).await
    };
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn refuse(denied: SignInDenied) -> Response<Body> {
    match denied {
        SignInDenied::Unknown => response::refuse(404, SignInError::NotSupported.to_string()),
        SignInDenied::NotOperator => response::error(&ErrorReply::refused(403, SHARED_ACCOUNT)),
    }
}

async fn start(
    shared: &Arc<GatewayShared>,
    scheme: Option<&'static str>,
    principal: &Principal,
    head: &Parts,
    key: &AccountKey,
) -> Response<Body> {
    let Some(origin) = browser_origin(head, scheme) else {
        let command = login_command(shared, &key.0, key.1.as_deref());
        let help = format!("use HTTPS, or run `{command}` on the machine of the gateway");
        return response::refuse(
            400,
            format!("the browser cannot be redirected to this address of the gateway: {help}"),
        );
    };
    let redirect_uri = format!("{origin}{CALLBACK_PATH}");
    let started = shared.sign_ins.start(key, principal, &redirect_uri).await;
    let outcome = if started.is_ok() { SignInOutcome::Started } else { SignInOutcome::Error };
    record(shared, principal, SignInAction::SignIn, key, outcome);
    match started {
        Ok(StartedSignIn { url, browser }) => {
            let document = json!({"url": url, "expires_in": LIFETIME.as_secs()});
            let mut response = response::document(200, document.to_string());
            if let Ok(cookie) = HeaderValue::from_str(&set_cookie(&browser)) {
                response.headers_mut().insert(SET_COOKIE, cookie);
            }
            response
        }
        Err(error) => failed(&error),
    }
}

/// Returns the `Set-Cookie` value. `SameSite=Lax` lets the browser send the cookie when the authorization server, which is
/// another site, returns to the callback. A secure cookie's prefix needs the path `/`.
fn set_cookie(BrowserCookie { name, value, is_secure }: &BrowserCookie) -> String {
    let scope = if *is_secure { "Path=/; Secure".to_owned() } else { format!("Path={CALLBACK_PATH}") };
    format!("{name}={value}; {scope}; Max-Age={}; HttpOnly; SameSite=Lax", LIFETIME.as_secs())
}

/// Adds a sign-in or sign-out to the audit log.
fn record(
    shared: &GatewayShared,
    principal: &Principal,
    action: SignInAction,
    key: &AccountKey,
    outcome: SignInOutcome,
) {
    let record = SignInRecord::new(principal, action, key.0.as_str(), outcome);
    shared.observer.add_sign_in(record.with_shared(key.1.is_none()));
}

async fn sign_out(shared: &Arc<GatewayShared>, principal: &Principal, key: AccountKey) -> Response<Body> {
    let signed_out = shared.sign_ins.sign_out(&key).await;
    let outcome = match &signed_out {
        Ok(true) => SignInOutcome::Ok,
        Ok(false) => SignInOutcome::NotSignedIn,
        Err(_) => SignInOutcome::Error,
    };
    record(shared, principal, SignInAction::SignOut, &key, outcome);
    match signed_out {
        Ok(is_signed_out) => {
            // Before the tokens are applied: calls that start to wait later belong to the next sign-in.
            shared.sign_ins.waiting.end(&key, false);
            apply_tokens(shared, key, false);
            response::document(200, json!({"signed_out": is_signed_out}).to_string())
        }
        Err(error) => failed(&error),
    }
}

/// Responds with a sign-in error.
fn failed(error: &SignInError) -> Response<Body> {
    let status = match error {
        SignInError::NotSupported => 404,
        SignInError::Starting => 409,
        SignInError::TooMany => 429,
        SignInError::UnknownState | SignInError::OtherBrowser => 400,
        SignInError::OAuth(_) => 502,
        SignInError::Store(_) => 500,
    };
    // The sign-in itself is in the audit log.
    response::error(&ErrorReply::refused(status, chain(error)))
}

/// Connects with changed tokens in the background, and lets the waiting calls continue after a sign-in.
fn apply_tokens(shared: &Arc<GatewayShared>, key: AccountKey, is_signed_in: bool) {
    let shared = shared.clone();
    tokio::spawn(async move {
        let apply = async {
            shared.upstreams.apply_tokens(&key).await;
            list_with(&shared, &key).await;
        };
        tokio::select! {
            () = apply => {}
            () = shared.draining.cancelled() => {}
        }
        if is_signed_in {
            shared.sign_ins.waiting.end(&key, true);
        }
    });
}

/// Handles a browser's callback. It needs no authentication: the sign-in's state and cookie prove that it belongs to one.
pub(super) async fn callback(shared: &Arc<GatewayShared>, head: &Parts) -> Response<Body> {
    let query = head.uri.query().unwrap_or_default().to_owned();
    let cookies = cookies(&head.headers);
    let shared = shared.clone();
    // The code can be used once: a browser that disconnects must not lose the tokens.
    let finishing = tokio::spawn(async move {
        let cookie = |name: &str| cookies.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str());
        let FinishedSignIn { key, principal, stored } = shared.sign_ins.finish(&query, cookie).await?;
        let outcome = if stored.is_ok() { SignInOutcome::Ok } else { SignInOutcome::Error };
        record(&shared, &principal, SignInAction::SignIn, &key, outcome);
        stored?;
        apply_tokens(&shared, key, true);
        Ok(())
    });
    let mut is_refused = false;
    let (status, text) = match finishing.await {
        Ok(Ok(())) => (200, include_str!("../../page/assets/signed_in.html").to_owned()),
        Ok(Err(SignInError::UnknownState | SignInError::OtherBrowser)) => {
            is_refused = true;
            (400, include_str!("../../page/assets/sign_in_unknown.html").to_owned())
        }
        Ok(Err(error)) => (502, failed_page(&chain(&error))),
        Err(_) => (502, failed_page("the gateway is stopping")),
    };
    let mut response = response::text(status, text);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("content-security-policy", HeaderValue::from_static(POLICY));
    headers.insert("x-frame-options", HeaderValue::from_static("DENY"));
    page::secure(headers);
    if is_refused { response::refused_by("sign_in_callback", response) } else { response }
}

/// Returns the page for a failed sign-in. The reason may contain texts from the authorization server.
fn failed_page(reason: &str) -> String {
    let mut escaped = String::new();
    for c in reason.chars().take(MAX_REASON).filter(|c| !c.is_control()) {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            c => escaped.push(c),
        }
    }
    include_str!("../../page/assets/sign_in_failed.html").replacen("{reason}", &escaped, 1)
}

fn cookies(headers: &HeaderMap) -> Vec<(String, String)> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).take(MAX_COOKIES).collect()
}

/// Returns the gateway's origin in the browser, if a callback can arrive there safely: with HTTPS, or on this machine.
///
/// Both headers were validated before. `Origin` has the scheme that the browser used, which a proxy may change.
fn browser_origin(head: &Parts, scheme: Option<&'static str>) -> Option<String> {
    let (scheme, host) = (scheme?, head::text(&head.headers, &HOST)?);
    let scheme = match head::text(&head.headers, &ORIGIN).and_then(|origin| origin.split_once("://")) {
        Some(("https", _)) => "https",
        Some(("http", _)) => "http",
        _ => scheme,
    };
    (scheme == "https" || is_loopback(host)).then(|| format!("{scheme}://{}", host.to_ascii_lowercase()))
}

fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_local = |ip: IpAddr| ip.to_canonical().is_loopback();
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(is_local)
}

#[cfg(test)]
mod tests {
    use hyper::Request;
    use hyper::header::HeaderName;

    use super::*;

    fn parts(headers: &[(HeaderName, &'static str)]) -> Parts {
        let mut parts = Request::new(()).into_parts().0;
        headers.iter().for_each(|(name, value)| drop(parts.headers.insert(name, HeaderValue::from_static(value))));
        parts
    }

    #[test]
    fn a_browser_returns_to_the_origin_that_it_knows() {
        let origin = |headers: &[(HeaderName, &'static str)], scheme| browser_origin(&parts(headers), scheme);
        assert_eq!(origin(&[(HOST, "127.0.0.1:1")], Some("http")).as_deref(), Some("http://127.0.0.1:1"));
        assert_eq!(origin(&[(HOST, "[::1]:1")], Some("http")).as_deref(), Some("http://[::1]:1"));
        assert_eq!(origin(&[(HOST, "a.example")], Some("https")).as_deref(), Some("https://a.example"));
        let proxied = [(HOST, "a.example"), (ORIGIN, "https://a.example")];
        assert_eq!(origin(&proxied, Some("http")).as_deref(), Some("https://a.example"));
        assert_eq!(origin(&[(HOST, "a.example")], Some("http")), None, "the code would be readable on the way");
        assert_eq!(origin(&[(HOST, "localhost")], None), None, "a Unix socket");
        assert_eq!(origin(&[], Some("http")), None);
    }

    #[test]
    fn the_reason_of_a_failure_is_text() {
        let page = failed_page("declined: <img src=x>&amp; {reason}\u{1b}");
        assert!(page.contains("declined: &lt;img src=x&gt;&amp;amp; {reason}<"), "{page}");
        assert!(failed_page(&"x".repeat(9 * MAX_REASON)).len() < 3 * MAX_REASON);
    }

    #[test]
    fn cookies_are_found_in_all_lines() {
        let mut headers = parts(&[(COOKIE, "a=1; b=2=3")]).headers;
        headers.append(COOKIE, HeaderValue::from_static("c=4;d"));
        let pairs = [("a", "1"), ("b", "2=3"), ("c", "4")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(cookies(&headers), pairs);
    }
}
