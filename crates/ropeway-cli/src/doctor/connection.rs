//! The connection itself: made once for real, and what it came to.

use std::error::Error as _;
use std::time::{Duration, Instant};

use ropeway::config::{HttpServer, ServerConfig, ServerEntry, StdioServer, Transport};
use ropeway::duration::format_duration;
use ropeway::mcp::{ConnectErrorKind, Mcp, TlsError};
use ropeway::secret::Redactor;
use url::Url;

use super::address::{self, Tongue};
use super::finding::Finding;
use super::remedy::{remedy, with_scheme};
use super::{Given, offer, words};
use crate::failure::{Exit, exit_of_connect};
use crate::terminal::text::clean_line;

const CHECK: &str = "handshake";

/// How many of the server's last lines are shown.
const SERVER_LINES: usize = 12;

/// How long another path of the same host may take to answer.
const OTHER_PATH: Duration = Duration::from_secs(5);

/// How long a server has to end by itself.
const CLOSE: Duration = Duration::from_secs(1);

/// Connects within a time, and looks at what the server offers.
pub(super) async fn check(
    config: &ServerConfig,
    entry: Option<&ServerEntry>,
    given: Given,
    limit: Option<Duration>,
) -> Vec<Finding> {
    let mask = mask(config);
    let (config, limit) = match limit {
        Some(limit) => (&prepare(config.clone(), limit), limit),
        None => {
            // As long as any other command waits.
            let own = &config.timeouts;
            let mut config = config.clone();
            config.reconnect.enabled = false;
            config.timeouts.close = CLOSE;
            (&config.clone(), own.connect.max(own.download) + CLOSE)
        }
    };
    let server = Mcp::new(config.clone());
    let started = Instant::now();
    let connected = tokio::time::timeout(limit, server.connect()).await;
    let mut findings = match connected {
        Ok(Ok(())) => {
            let mut findings = vec![greeting(&server, started.elapsed())];
            findings.extend(noise(&server));
            findings.extend(
                offer::check(&server, entry, config.timeouts.idle.min(limit.saturating_sub(started.elapsed()))).await,
            );
            findings
        }
        Ok(Err(failed)) => trouble(config, given, &failed.cause).await,
        Err(_) => vec![silence(config, given, limit)],
    };
    let said = server.stderr_tail();
    if let Some(worst) = findings.iter_mut().find(|finding| finding.is_problem()) {
        let skipped = said.len().saturating_sub(SERVER_LINES);
        worst.fix = worst.fix.take().or_else(|| words::advice(&said, given));
        worst.said = said.into_iter().skip(skipped).collect();
    }
    // Whoever is still there after this is killed with the command.
    let _ = tokio::time::timeout(CLOSE + CLOSE, server.close()).await;
    findings.into_iter().map(|finding| masked(finding, &mask)).collect()
}

fn prepare(mut config: ServerConfig, limit: Duration) -> ServerConfig {
    config.reconnect.enabled = false;
    config.timeouts.connect = limit;
    config.timeouts.download = limit;
    config.timeouts.idle = limit;
    config.timeouts.close = CLOSE;
    config
}

/// All that must not be seen of the settings: a server may say it again.
fn mask(config: &ServerConfig) -> Redactor {
    match &config.transport {
        Transport::Stdio(server) => Redactor::new(server.env.iter().map(|(_, value)| value)),
        Transport::Http(server) | Transport::Sse(server) => {
            Redactor::new(server.headers.iter().map(|(_, value)| value).chain(&server.bearer))
        }
        _ => Redactor::default(),
    }
}

fn masked(mut finding: Finding, mask: &Redactor) -> Finding {
    finding.found = mask.hide(&finding.found).into_owned();
    finding.said = finding.said.iter().map(|line| mask.hide(line).into_owned()).collect();
    finding
}

fn greeting(server: &Mcp, took: Duration) -> Finding {
    let Some(info) = server.server_info() else {
        return Finding::problem(CHECK, Exit::Unreachable, "the server went away right after the handshake");
    };
    let era = info.era.as_str();
    let name = clean_line(&format!("{} {}", info.name, info.version));
    let version = clean_line(&info.protocol_version);
    Finding::good(CHECK, format!("{name}, MCP {version} ({era}), ready after {}", format_duration(took)))
}

fn noise(server: &Mcp) -> Option<Finding> {
    let lines = match server.noise() {
        0 => return None,
        1 => "a line that is no message".to_owned(),
        lines => format!("{lines} lines that are no messages"),
    };
    let found = format!("the server wrote {lines} to its standard output");
    Some(Finding::note("output", found).fix("it should log to standard error; other clients may stumble"))
}

fn silence(config: &ServerConfig, given: Given, after: Duration) -> Finding {
    let found = format!("the server was not ready within {}", format_duration(after));
    let finding = Finding::problem(CHECK, Exit::Timeout, found);
    let fix = remedy(&ConnectErrorKind::Timeout { after, said: None }, config, &[], given);
    fix.into_iter().fold(finding, Finding::fix)
}

/// Why there is no connection, and what to do about it.
async fn trouble(config: &ServerConfig, given: Given, cause: &ConnectErrorKind) -> Vec<Finding> {
    let problem = |exit: Exit, found: String| Finding::problem(CHECK, exit, found);
    let unreachable = |found: String| problem(Exit::Unreachable, found);
    let finding = match (cause, &config.transport) {
        (ConnectErrorKind::Timeout { after, .. }, _) => silence(config, given, *after),
        (_, Transport::Http(server) | Transport::Sse(server)) => {
            let Ok(url) = Url::parse(&server.url) else { return vec![unreachable(chain(cause))] };
            return web_trouble(config, server, given, &url, cause).await;
        }
        (ConnectErrorKind::Spawn { source, .. }, Transport::Stdio(server)) => spawn_trouble(server, source),
        (ConnectErrorKind::Exited { status, .. }, _) => {
            // Its words, if there are any, are shown beneath.
            unreachable(format!("the server ended by itself, with {status}"))
        }
        (ConnectErrorKind::Hangup { .. }, _) => unreachable("the server closed its standard output".to_owned()),
        (ConnectErrorKind::Protocol(_), _) => {
            unreachable(chain(cause)).fix("it may be no MCP server, or need an argument")
        }
        _ => problem(exit_of_connect(cause), chain(cause)),
    };
    vec![finding]
}

fn spawn_trouble(server: &StdioServer, error: &std::io::Error) -> Finding {
    /// What the system says of a file that is neither a program for this machine nor a script with a first line.
    const NOT_A_PROGRAM: i32 = 8;
    let found = format!("`{}` could not be started: {error}", server.command);
    let finding = Finding::problem(CHECK, Exit::Unreachable, found);
    match error.raw_os_error() {
        Some(NOT_A_PROGRAM) => finding.fix(
            "a script begins with a line such as `#!/usr/bin/env node`, and a program has to be made for this machine",
        ),
        _ => finding,
    }
}

async fn web_trouble(
    config: &ServerConfig,
    server: &HttpServer,
    given: Given,
    url: &Url,
    cause: &ConnectErrorKind,
) -> Vec<Finding> {
    let problem = |exit: Exit, found: String| Finding::problem(CHECK, exit, found);
    let finding = match cause {
        ConnectErrorKind::Tls { trouble, .. } => return vec![tls_trouble(url, *trouble, cause).await],
        ConnectErrorKind::NeedsAuth { challenge } => needs_auth(server, given, challenge.as_deref()),
        ConnectErrorKind::Status { status: 403, .. } => {
            problem(exit_of_connect(cause), "the server answers HTTP 403: it knows who asks, and refuses".to_owned())
                .fix("the token may lack a permission, or the server refuses this address or `Origin`")
        }
        ConnectErrorKind::Status { status: 407, .. } => {
            problem(exit_of_connect(cause), "the proxy wants to know who is asking".to_owned())
                .fix("put it into the variable: `HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT`")
        }
        ConnectErrorKind::Status { status: status @ (404 | 405), .. } => {
            let path = url.path();
            let finding =
                problem(Exit::Unreachable, format!("the server answers HTTP {status}: `{path}` is not where MCP is"));
            match other_path(config, server, url).await {
                Some(there) => finding.fix(format!("`{there}` answers: use this URL")),
                None => finding.fix("correct the path of the URL; neither /mcp nor /sse answers there"),
            }
        }
        // A server that finds nonsense where it expects a request may just hang up.
        ConnectErrorKind::Broken(_) if url.scheme() == "https" && address::tongue(url).await == Tongue::Http => {
            speaks_plain(url)
        }
        ConnectErrorKind::Broken(_) if url.scheme() == "http" && address::tongue(url).await == Tongue::Tls => {
            problem(exit_of_connect(cause), "the server speaks TLS there, and the URL says plain HTTP".to_owned())
                .fix(format!("use `{}`", with_scheme(url, "https")))
        }
        _ => {
            let finding = problem(exit_of_connect(cause), chain(cause));
            remedy(cause, config, &[], given).into_iter().fold(finding, Finding::fix)
        }
    };
    vec![finding]
}

fn needs_auth(server: &HttpServer, given: Given, challenge: Option<&str>) -> Finding {
    let has_token =
        server.bearer.is_some() || server.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
    let (found, fix) = match has_token {
        true => (
            "the server refused the token",
            given.words(
                "give another token with --bearer TOKEN: this one may have expired",
                "give another token in its `auth.bearer` or `headers`: this one may have expired",
            ),
        ),
        false => (
            "the server wants to know who is asking",
            given.words(
                "give a token with --bearer TOKEN, which is the header `Authorization: Bearer TOKEN`, or --header \"NAME: VALUE\"",
                "give a token in its `auth.bearer`, such as `bearer: ${TOKEN}`, or a header in its `headers`",
            ),
        ),
    };
    let found = match challenge {
        Some(challenge) => format!("{found}; challenge: {}", clean_line(challenge)),
        None => found.to_owned(),
    };
    Finding::problem(CHECK, Exit::NeedsAuth, found).fix(fix)
}

async fn tls_trouble(url: &Url, trouble: TlsError, cause: &ConnectErrorKind) -> Finding {
    let host = url.host_str().unwrap_or_default();
    let problem = |found: String| Finding::problem(CHECK, Exit::Unreachable, found);
    match trouble {
        TlsError::Expired => problem(format!("the certificate of `{host}` has expired"))
            .fix("renew it on the server; if the date of this machine is wrong, correct that"),
        TlsError::NotYetValid => {
            problem(format!("the certificate of `{host}` is not valid yet")).fix("correct the date of this machine")
        }
        TlsError::WrongName => problem(format!("the certificate there is not for `{host}`"))
            .fix("use the name that the certificate is for"),
        TlsError::Untrusted => problem(format!("the certificate of `{host}` is not signed by a trusted CA"))
            .fix("if it is your own: `SSL_CERT_FILE=ca.pem ropeway …`, or add it to the certificates of this machine"),
        _ if address::tongue(url).await == Tongue::Http => speaks_plain(url),
        _ => problem(chain(cause)).fix("the port may belong to something that speaks no TLS: correct it"),
    }
}

fn speaks_plain(url: &Url) -> Finding {
    Finding::problem(CHECK, Exit::Unreachable, "the server speaks plain HTTP there, and the URL says https")
        .fix(format!("use `{}`", with_scheme(url, "http")))
}

/// Another path of the same host behind which a server answers.
async fn other_path(config: &ServerConfig, server: &HttpServer, url: &Url) -> Option<String> {
    let base = url.path().trim_end_matches('/');
    for path in ["/mcp".to_owned(), "/sse".to_owned(), format!("{base}/mcp"), format!("{base}/sse")] {
        let mut other = url.clone();
        other.set_path(&path);
        if other.path() == url.path() {
            continue;
        }
        let mut server = server.clone();
        server.url = other.to_string();
        server.sse_fallback = false;
        let transport = if path.ends_with("/sse") { Transport::Sse(server) } else { Transport::Http(server) };
        let mut config = config.clone();
        config.transport = transport;
        let there = Mcp::new(prepare(config, OTHER_PATH));
        let connected = tokio::time::timeout(OTHER_PATH, there.connect()).await;
        let _ = tokio::time::timeout(CLOSE, there.close()).await;
        let answers = match connected {
            Ok(Ok(())) => true,
            // Whoever asks who we are is somebody.
            Ok(Err(failed)) => matches!(*failed.cause, ConnectErrorKind::NeedsAuth { .. }),
            Err(_) => false,
        };
        if answers {
            return Some(address::shown(&other));
        }
    }
    None
}

/// An error and its causes in one line.
fn chain(error: &ConnectErrorKind) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line.push_str(&format!(": {error}"));
        cause = error.source();
    }
    clean_line(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_trouble_with_a_certificate_has_its_own_words() {
        let url = Url::parse("https://127.0.0.1:1/mcp").expect("a URL");
        for (trouble, words) in [
            (TlsError::Expired, "has expired"),
            (TlsError::NotYetValid, "is not valid yet"),
            (TlsError::WrongName, "is not for `127.0.0.1`"),
            (TlsError::Untrusted, "is not signed by a trusted CA"),
            (TlsError::Other, "the TLS handshake failed: odd"),
        ] {
            let cause = ConnectErrorKind::Tls { trouble, source: "odd".into() };
            let finding = tls_trouble(&url, trouble, &cause).await;
            assert!(finding.found.contains(words) && finding.fix.is_some(), "{finding:?}");
        }
    }

    #[test]
    fn secrets_that_a_server_says_again_are_hidden() {
        let server = StdioServer::new("a", [""; 0]).with_env("TOKEN", "sesame");
        let mask = mask(&ServerConfig::new("a", server));
        let finding = |found: &str, said: &str| Finding { said: vec![said.to_owned()], ..Finding::note("a", found) };
        let (finding, expected) =
            (finding("it said sesame", "sesame is wrong"), finding("it said ***", "*** is wrong"));
        assert_eq!(masked(finding, &mask), expected);
    }
}
