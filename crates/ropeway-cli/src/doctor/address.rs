//! Checks a server's URL: its syntax, name resolution and port.

use std::io::ErrorKind;
use std::time::Duration;

use ropeway_config::HttpServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Url;

use super::environment::Environment;
use super::finding::Finding;
use super::proxy;
use crate::failure::Exit;

/// Time limit for name resolution and for connecting.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Parses the URL. Also returns a note about a token over plain HTTP.
pub(super) fn check_url(server: &HttpServer) -> Result<(Url, Option<Finding>), Finding> {
    let problem = |found: String| Finding::problem("address", Exit::Usage, found);
    let parsed = Url::parse(&server.url);
    let url = match parsed {
        Ok(url) if matches!(url.scheme(), "http" | "https") => url,
        Ok(url) => {
            let found = format!("unsupported URL scheme `{}`: use http or https", url.scheme());
            let fix = match url.scheme() {
                "ws" | "wss" => "WebSocket is not supported; use the server's http:// or https:// URL",
                _ => "set the URL to https://HOST/PATH",
            };
            return Err(problem(found).fix(fix));
        }
        Err(error) => {
            return Err(problem(format!("invalid URL: {error}")).fix("set it to https://HOST/PATH"));
        }
    };
    let has_secret =
        server.bearer.is_some() || server.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
    let open = (url.scheme() == "http" && has_secret && !proxy::is_loopback(&url))
        .then(|| Finding::note("address", "the token is sent unencrypted").fix("use https://"));
    Ok((url, open))
}

/// Returns the URL without credentials, query and fragment.
pub(super) fn public_url(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // Fails only for a URL without a host, which has no credentials.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.to_string()
}

/// Checks that the server's port, or its proxy's, accepts connections.
pub(super) async fn check_port(url: &Url, environment: &Environment) -> Finding {
    let by_proxy = proxy::for_url(url, environment);
    let (host, port) = match &by_proxy {
        Some(proxy) => (proxy.host.as_str(), proxy.port),
        None => (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or(80)),
    };
    let whose = if by_proxy.is_some() { "the proxy " } else { "" };
    let problem = |exit: Exit, found: String| Finding::problem("port", exit, found);
    // The brackets around an IPv6 address are URL syntax.
    let name = host.trim_matches(['[', ']']);
    let addresses: Vec<_> = match timeout(TIMEOUT, tokio::net::lookup_host((name, port))).await {
        Ok(Ok(addresses)) => addresses.collect(),
        Ok(Err(error)) => return unresolved(host, &error.to_string()),
        Err(_) => return unresolved(host, "DNS lookup timed out"),
    };
    let mut last = None;
    for address in &addresses {
        match timeout(TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(_)) => return Finding::good("port", format!("{whose}`{host}:{port}` accepts connections")),
            Ok(Err(error)) => last = Some(error),
            Err(_) => last = Some(ErrorKind::TimedOut.into()),
        }
    }
    match last {
        None => unresolved(host, "no address found"),
        Some(error) if error.kind() == ErrorKind::ConnectionRefused => {
            let fix = match (&by_proxy, proxy::is_loopback(url)) {
                (Some(proxy), _) => format!("start the proxy, or unset `{}`", proxy.variable),
                (None, true) => "start the server, or correct the port".to_owned(),
                (None, false) => {
                    "correct the port, or check that the server runs and listens on a public interface".to_owned()
                }
            };
            problem(Exit::Unreachable, format!("connection refused by {whose}`{host}:{port}`")).fix(fix)
        }
        Some(error) if error.kind() == ErrorKind::TimedOut => {
            problem(Exit::Timeout, format!("connecting to {whose}`{host}:{port}` timed out after {TIMEOUT:?}"))
                .fix("check firewalls; a VPN or a proxy (`HTTPS_PROXY`) may be needed")
        }
        Some(error) => problem(Exit::Unreachable, format!("could not connect to {whose}`{host}:{port}`: {error}"))
            .fix("check the network connection"),
    }
}

fn unresolved(host: &str, why: &str) -> Finding {
    Finding::problem("port", Exit::Unreachable, format!("could not resolve host `{host}`: {why}"))
        .fix("correct the host name, or connect to the network or VPN that resolves it")
}

/// A port's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Http,
    Tls,
    Unknown,
}

/// Detects a port's protocol: a plain HTTP request gets an HTTP response or a TLS alert.
pub(super) async fn detect_scheme(url: &Url) -> Scheme {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let ask = async {
        let mut stream = TcpStream::connect((host, url.port_or_known_default()?)).await.ok()?;
        stream
            .write_all(format!("HEAD / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes())
            .await
            .ok()?;
        let mut answer = [0; 1024];
        let count = stream.read(&mut answer).await.ok()?;
        Some(answer[..count].to_vec())
    };
    let answer = timeout(TIMEOUT, ask).await.ok().flatten().unwrap_or_default();
    // A TLS record starts with its type, 21 for an alert, and the major version 3 (RFC 8446, section 5.1).
    if answer.starts_with(&[21, 3]) || String::from_utf8_lossy(&answer).to_lowercase().contains("https port") {
        Scheme::Tls
    } else if answer.starts_with(b"HTTP/") {
        Scheme::Http
    } else {
        Scheme::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_url_is_a_usage_problem() {
        for (url, found) in [
            ("", "invalid URL: relative URL without a base"),
            ("example.com/mcp", "invalid URL: relative URL without a base"),
            ("ws://example.com", "unsupported URL scheme `ws`: use http or https"),
            ("http://a:99999", "invalid URL: invalid port number"),
        ] {
            let finding = check_url(&HttpServer::new(url)).expect_err("a problem");
            assert_eq!(
                (finding.message.as_str(), finding.level),
                (found, super::super::finding::Level::Problem(Exit::Usage))
            );
        }
    }

    #[test]
    fn a_token_over_plain_http_is_noted_except_for_localhost() {
        let note = |server: HttpServer| check_url(&server).expect("a URL").1.map(|finding| finding.check);
        assert_eq!(note(HttpServer::new("http://example.com").with_bearer("x")), Some("address"));
        assert_eq!(note(HttpServer::new("http://example.com").with_header("authorization", "x")), Some("address"));
        assert_eq!(note(HttpServer::new("http://example.com")), None);
        assert_eq!(note(HttpServer::new("http://localhost:1").with_bearer("x")), None);
        assert_eq!(note(HttpServer::new("https://example.com").with_bearer("x")), None);
    }

    #[test]
    fn a_url_is_shown_without_credentials() {
        let url = Url::parse("https://user:pass@example.com/mcp?key=secret#x").expect("a URL");
        assert_eq!(public_url(&url), "https://example.com/mcp");
    }

    #[test]
    fn an_unresolved_host_is_reported() {
        let finding = unresolved("exmaple.com", "Name or service not known");
        assert_eq!(finding.message, "could not resolve host `exmaple.com`: Name or service not known");
    }
}
