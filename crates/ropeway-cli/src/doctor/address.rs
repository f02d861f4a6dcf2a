//! The address of a server: does its name resolve, and does anybody listen there?

use std::io::ErrorKind;
use std::time::Duration;

use ropeway::config::HttpServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Url;

use super::finding::Finding;
use super::proxy;
use super::surroundings::Surroundings;
use crate::failure::Exit;

/// How long a name may take to resolve, and a port to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The URL, when there is one to go on with.
pub(super) fn check_url(server: &HttpServer) -> Result<(Url, Option<Finding>), Finding> {
    let problem = |found: String| Finding::problem("address", Exit::Usage, found);
    let parsed = Url::parse(&server.url);
    let url = match parsed {
        Ok(url) if matches!(url.scheme(), "http" | "https") => url,
        Ok(url) => {
            let found = format!("`{}` is no way to reach a server: only http and https are", url.scheme());
            let fix = match url.scheme() {
                "ws" | "wss" => "servers are not reached by WebSocket: use the http:// or https:// URL that it has",
                _ => "give the URL as https://HOST/PATH",
            };
            return Err(problem(found).fix(fix));
        }
        Err(error) => {
            return Err(problem(format!("the URL cannot be read: {error}")).fix("give it as https://HOST/PATH"));
        }
    };
    let has_secret =
        server.bearer.is_some() || server.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
    let open = (url.scheme() == "http" && has_secret && !proxy::is_loopback(&url)).then(|| {
        Finding::note("address", "the token travels unencrypted, for everybody on the way to read").fix("use https://")
    });
    Ok((url, open))
}

/// What is shown of a URL: nothing that may be a secret.
pub(super) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // A URL without a host has no password either.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.to_string()
}

/// Does anybody listen there?
pub(super) async fn check_port(url: &Url, around: &Surroundings) -> Finding {
    let by_proxy = proxy::for_url(url, around);
    let (host, port) = match &by_proxy {
        Some(proxy) => (proxy.host.as_str(), proxy.port),
        None => (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or(80)),
    };
    let whose = if by_proxy.is_some() { "the proxy " } else { "" };
    let problem = |exit: Exit, found: String| Finding::problem("port", exit, found);
    // The brackets of an IPv6 address belong to the URL.
    let name = host.trim_matches(['[', ']']);
    let addresses: Vec<_> = match timeout(PATIENCE, tokio::net::lookup_host((name, port))).await {
        Ok(Ok(addresses)) => addresses.collect(),
        Ok(Err(error)) => return unresolved(host, &error.to_string()),
        Err(_) => return unresolved(host, "the name server does not answer"),
    };
    let mut last = None;
    for address in &addresses {
        match timeout(PATIENCE, TcpStream::connect(address)).await {
            Ok(Ok(_)) => return Finding::good("port", format!("{whose}`{host}:{port}` takes connections")),
            Ok(Err(error)) => last = Some(error),
            Err(_) => last = Some(ErrorKind::TimedOut.into()),
        }
    }
    match last {
        None => unresolved(host, "it has no address"),
        Some(error) if error.kind() == ErrorKind::ConnectionRefused => {
            let fix = match (&by_proxy, proxy::is_loopback(url)) {
                (Some(proxy), _) => format!("start the proxy, or unset `{}`", proxy.variable),
                (None, true) => "start the server, or correct the port".to_owned(),
                (None, false) => {
                    "correct the port, or look whether the server runs and listens to more than its own machine"
                        .to_owned()
                }
            };
            problem(Exit::Unreachable, format!("nobody listens at {whose}`{host}:{port}`")).fix(fix)
        }
        Some(error) if error.kind() == ErrorKind::TimedOut => {
            problem(Exit::Timeout, format!("{whose}`{host}:{port}` does not answer within {PATIENCE:?}"))
                .fix("a firewall may be in between, or a VPN or a proxy (`HTTPS_PROXY`) is needed")
        }
        Some(error) => problem(Exit::Unreachable, format!("{whose}`{host}:{port}` cannot be reached: {error}"))
            .fix("look at the network of this machine"),
    }
}

fn unresolved(host: &str, why: &str) -> Finding {
    Finding::problem("port", Exit::Unreachable, format!("the name `{host}` leads nowhere: {why}"))
        .fix("correct the name, or connect the network or VPN that knows it")
}

/// What is spoken at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tongue {
    Http,
    Tls,
    Unknown,
}

/// Finds out what is spoken there: a question in plain HTTP gets an answer in kind, or an alert of TLS.
pub(super) async fn tongue(url: &Url) -> Tongue {
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
    let answer = timeout(PATIENCE, ask).await.ok().flatten().unwrap_or_default();
    // A record of TLS begins with its kind, 21 for an alert, and the version 3.
    if answer.starts_with(&[21, 3]) || String::from_utf8_lossy(&answer).to_lowercase().contains("https port") {
        Tongue::Tls
    } else if answer.starts_with(b"HTTP/") {
        Tongue::Http
    } else {
        Tongue::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_one_is_a_problem_of_the_settings() {
        for (url, found) in [
            ("", "the URL cannot be read: relative URL without a base"),
            ("example.com/mcp", "the URL cannot be read: relative URL without a base"),
            ("ws://example.com", "`ws` is no way to reach a server: only http and https are"),
            ("http://a:99999", "the URL cannot be read: invalid port number"),
        ] {
            let finding = check_url(&HttpServer::new(url)).expect_err("a problem");
            assert_eq!(
                (finding.found.as_str(), finding.level),
                (found, super::super::finding::Level::Problem(Exit::Usage))
            );
        }
    }

    #[test]
    fn a_token_over_plain_http_is_told_of_unless_it_stays_here() {
        let note = |server: HttpServer| check_url(&server).expect("a URL").1.map(|finding| finding.check);
        assert_eq!(note(HttpServer::new("http://example.com").with_bearer("x")), Some("address"));
        assert_eq!(note(HttpServer::new("http://example.com").with_header("authorization", "x")), Some("address"));
        assert_eq!(note(HttpServer::new("http://example.com")), None);
        assert_eq!(note(HttpServer::new("http://localhost:1").with_bearer("x")), None);
        assert_eq!(note(HttpServer::new("https://example.com").with_bearer("x")), None);
    }

    #[test]
    fn a_url_is_shown_without_what_may_be_secret() {
        let url = Url::parse("https://user:pass@example.com/mcp?key=secret#x").expect("a URL");
        assert_eq!(shown(&url), "https://example.com/mcp");
    }

    #[test]
    fn a_name_that_leads_nowhere_says_so() {
        let finding = unresolved("exmaple.com", "Name or service not known");
        assert_eq!(finding.found, "the name `exmaple.com` leads nowhere: Name or service not known");
    }
}
