//! Connects to a server and explains failures.

use std::error::Error as _;
use std::path::Path;
use std::time::{Duration, Instant};

use ropeway_config::{HttpServer, ServerAuth, ServerConfig, ServerEntry, StdioServer, Transport};
use ropeway_core::duration::format_duration;
use ropeway_core::event::Events;
use ropeway_core::secret::Redactor;
use ropeway_mcp::{ConnectErrorKind, Mcp, TlsError};
use url::Url;

use super::address::{self, Scheme};
use super::finding::Finding;
use super::remedy::{of_tls, remedy, with_scheme};
use super::source::ConfigSource;
use super::{ExamineSettings, sdk_advice, stderr_advice, tools};
use crate::failure::{Exit, exit_of_connect};
use crate::sandbox;
use crate::terminal::text::clean_line;

const CHECK: &str = "handshake";

/// Maximum lines shown from the server's standard error.
const SERVER_LINES: usize = 12;

/// Time limit for trying another path of the same host.
const OTHER_PATH_TIMEOUT: Duration = Duration::from_secs(5);

/// Time that a server has to exit by itself.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Connects within the time limit and checks the server's tools.
pub(super) async fn check(
    config: &ServerConfig,
    entry: Option<&ServerEntry>,
    source: ConfigSource,
    with: &ExamineSettings<'_>,
) -> Vec<Finding> {
    let redactor = redactor(config);
    let (config, limit) = match with.limit {
        Some(limit) => (&prepare(config.clone(), limit), limit),
        None => {
            // The same time limits as in other commands.
            let own = &config.timeouts;
            let mut config = config.clone();
            config.reconnect.enabled = false;
            config.timeouts.close = CLOSE_TIMEOUT;
            (&config.clone(), own.connect.max(own.download) + CLOSE_TIMEOUT)
        }
    };
    let config = &config.clone().with_sandbox_launcher(sandbox::launcher());
    let server = Mcp::with_host(config.clone(), with.handlers.clone(), Events::default());
    let started = Instant::now();
    let connected = tokio::time::timeout(limit, server.connect()).await;
    let failure =
        connected.as_ref().ok().and_then(|connected| connected.as_ref().err()).map(|failed| failed.cause.clone());
    let mut findings = match connected {
        Ok(Ok(())) => {
            let mut findings = vec![handshake_finding(&server, started.elapsed())];
            findings.extend(check_output(&server));
            let limit = config.timeouts.idle.min(limit.saturating_sub(started.elapsed()));
            findings.extend(tools::check(&server, entry, with.lock, limit).await);
            findings
        }
        Ok(Err(failed)) => connect_finding(config, source, with.named_config.as_deref(), &failed.cause).await,
        Err(_) => vec![timeout_finding(config, source, limit)],
    };
    let said = server.stderr_tail();
    if let Some(worst) = findings.iter_mut().find(|finding| finding.is_problem()) {
        let advice = || match failure.as_deref() {
            Some(cause @ (ConnectErrorKind::Exited { .. } | ConnectErrorKind::Hangup { .. })) => {
                remedy(cause, config, &said, source)
            }
            _ => stderr_advice::advice(&said, source),
        };
        worst.fix = worst.fix.take().or_else(advice);
        let lines: Vec<String> = said.into_iter().filter(|line| !sdk_advice::is_marker(line)).collect();
        let skipped = lines.len().saturating_sub(SERVER_LINES);
        worst.stderr = lines.into_iter().skip(skipped).collect();
    }
    // A server that is still running is killed when the command exits.
    let _ = tokio::time::timeout(CLOSE_TIMEOUT + CLOSE_TIMEOUT, server.close()).await;
    findings.into_iter().map(|finding| redacted(finding, &redactor)).collect()
}

fn prepare(mut config: ServerConfig, limit: Duration) -> ServerConfig {
    config.reconnect.enabled = false;
    config.timeouts.connect = limit;
    config.timeouts.download = limit;
    config.timeouts.idle = limit;
    config.timeouts.close = CLOSE_TIMEOUT;
    config
}

/// Redacts the settings' secrets, which a server may print.
fn redactor(config: &ServerConfig) -> Redactor {
    match &config.transport {
        Transport::Stdio(server) => Redactor::new(server.env.iter().map(|(_, value)| value)),
        Transport::Http(server) | Transport::Sse(server) => {
            Redactor::new(server.headers.iter().map(|(_, value)| value).chain(&server.bearer))
        }
        _ => Redactor::default(),
    }
}

fn redacted(mut finding: Finding, redactor: &Redactor) -> Finding {
    finding.message = redactor.redact(&finding.message).into_owned();
    finding.stderr = finding.stderr.iter().map(|line| redactor.redact(line).into_owned()).collect();
    finding
}

fn handshake_finding(server: &Mcp, took: Duration) -> Finding {
    let Some(info) = server.server_info() else {
        return Finding::problem(CHECK, Exit::Unreachable, "server disconnected right after the handshake");
    };
    let era = info.era.as_str();
    let name = clean_line(&format!("{} {}", info.name, info.version));
    let version = clean_line(&info.protocol_version);
    Finding::good(CHECK, format!("{name}, MCP {version} ({era}), ready after {}", format_duration(took)))
}

fn check_output(server: &Mcp) -> Option<Finding> {
    let lines = match server.invalid_lines() {
        0 => return None,
        1 => "1 line".to_owned(),
        lines => format!("{lines} lines"),
    };
    let found = format!("non-protocol output on standard output: {lines}");
    Some(Finding::note("output", found).fix("log to standard error instead; other clients may fail"))
}

fn timeout_finding(config: &ServerConfig, source: ConfigSource, after: Duration) -> Finding {
    let found = format!("server was not ready within {}", format_duration(after));
    let finding = Finding::problem(CHECK, Exit::Timeout, found);
    let fix = remedy(&ConnectErrorKind::Timeout { after, said: None }, config, &[], source);
    fix.into_iter().fold(finding, Finding::fix)
}

/// Explains a failed connection.
async fn connect_finding(
    config: &ServerConfig,
    source: ConfigSource,
    file: Option<&Path>,
    cause: &ConnectErrorKind,
) -> Vec<Finding> {
    let problem = |exit: Exit, found: String| Finding::problem(CHECK, exit, found);
    let unreachable = |found: String| problem(Exit::Unreachable, found);
    let finding = match (cause, &config.transport) {
        (ConnectErrorKind::Timeout { after, .. }, _) => timeout_finding(config, source, *after),
        (_, Transport::Http(server) | Transport::Sse(server)) => {
            let Ok(url) = Url::parse(&server.url) else { return vec![unreachable(chain(cause))] };
            return http_finding(config, server, source, &url, file, cause).await;
        }
        (ConnectErrorKind::Spawn { source, .. }, Transport::Stdio(server)) => spawn_finding(server, source),
        (ConnectErrorKind::Exited { status, .. }, _) => {
            // Its standard error is shown below.
            unreachable(format!("server exited ({status})"))
        }
        (ConnectErrorKind::Hangup { .. }, _) => unreachable("server closed its standard output".to_owned()),
        (ConnectErrorKind::Protocol(_), _) => {
            unreachable(chain(cause)).fix("check that the command starts an MCP server; it may need an argument")
        }
        _ => problem(exit_of_connect(cause), chain(cause)),
    };
    vec![finding]
}

fn spawn_finding(server: &StdioServer, error: &std::io::Error) -> Finding {
    /// `ENOEXEC`: neither an executable for this platform nor a script with a `#!` line.
    const ENOEXEC: i32 = 8;
    let found = format!("could not start `{}`: {error}", server.command);
    let finding = Finding::problem(CHECK, Exit::Unreachable, found);
    match error.raw_os_error() {
        Some(ENOEXEC) => finding.fix(
            "start a script with a line such as `#!/usr/bin/env node`; an executable must be built for this platform",
        ),
        _ => finding,
    }
}

async fn http_finding(
    config: &ServerConfig,
    server: &HttpServer,
    source: ConfigSource,
    url: &Url,
    file: Option<&Path>,
    cause: &ConnectErrorKind,
) -> Vec<Finding> {
    let problem = |exit: Exit, found: String| Finding::problem(CHECK, exit, found);
    let finding = match cause {
        ConnectErrorKind::Tls { trouble, .. } => return vec![tls_finding(url, *trouble, cause).await],
        ConnectErrorKind::NeedsAuth { challenge } => {
            auth_finding(server, source, &login_command(config, source, url, file), challenge.as_deref())
        }
        ConnectErrorKind::Status { status: 403, .. } => {
            problem(exit_of_connect(cause), "server answered HTTP 403 (forbidden)".to_owned())
                .fix("the token may lack a permission, or the server rejects this address or `Origin`")
        }
        ConnectErrorKind::Status { status: status @ (404 | 405), .. } => {
            let path = url.path();
            let finding =
                problem(Exit::Unreachable, format!("server answered HTTP {status}: `{path}` is not an MCP endpoint"));
            match other_path(config, server, url).await {
                Some(there) => finding.fix(format!("use `{there}`, which answers")),
                None => finding.fix("correct the path of the URL; /mcp and /sse do not answer either"),
            }
        }
        // A server may close the connection when it receives an invalid request.
        ConnectErrorKind::Broken(_) if url.scheme() == "https" && address::detect_scheme(url).await == Scheme::Http => {
            plain_http_finding(url)
        }
        ConnectErrorKind::Broken(_) if url.scheme() == "http" && address::detect_scheme(url).await == Scheme::Tls => {
            problem(exit_of_connect(cause), "the server expects TLS, but the URL starts with http://".to_owned())
                .fix(format!("use `{}`", with_scheme(url, "https")))
        }
        _ => {
            let finding = problem(exit_of_connect(cause), chain(cause));
            remedy(cause, config, &[], source).into_iter().fold(finding, Finding::fix)
        }
    };
    vec![finding]
}

/// Returns the command that signs in to a server.
fn login_command(config: &ServerConfig, source: ConfigSource, url: &Url, file: Option<&Path>) -> String {
    let file = file.map(|file| format!(" --config {}", file.display())).unwrap_or_default();
    match source {
        ConfigSource::CommandLine => format!("`ropeway login {}`", address::public_url(url)),
        ConfigSource::File => format!("`ropeway login {}{file}`", config.alias),
    }
}

fn auth_finding(server: &HttpServer, source: ConfigSource, login: &str, challenge: Option<&str>) -> Finding {
    let has_token =
        server.bearer.is_some() || server.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
    let (found, fix) = match &server.auth {
        _ if has_token => {
            let fix = source.pick(
                "pass a new token with --bearer TOKEN; this one may have expired",
                "set a new token in `auth.bearer` or `headers`; this one may have expired",
            );
            ("server rejected the token", fix.to_owned())
        }
        Some(ServerAuth::OAuth(settings)) if settings.grant.is_interactive() => {
            ("server requires a sign-in", format!("run {login}"))
        }
        Some(_) => ("server rejected the token", format!("check the settings in `auth` with {login}")),
        None => {
            let other = source.pick(
                "pass a token with --bearer TOKEN, or a header with --header \"NAME: VALUE\"",
                "set a token in `auth.bearer`, such as `bearer: ${TOKEN}`, or a header in `headers`",
            );
            ("server requires authentication", format!("run {login} if it uses OAuth; otherwise {other}"))
        }
    };
    let found = match challenge {
        Some(challenge) => format!("{found}; challenge: {}", clean_line(challenge)),
        None => found.to_owned(),
    };
    Finding::problem(CHECK, Exit::NeedsAuth, found).fix(fix)
}

async fn tls_finding(url: &Url, trouble: TlsError, cause: &ConnectErrorKind) -> Finding {
    let host = url.host_str().unwrap_or_default();
    let problem = |found: String| Finding::problem(CHECK, Exit::Unreachable, found);
    let found = match trouble {
        TlsError::Expired => format!("certificate of `{host}` has expired"),
        TlsError::NotYetValid => format!("certificate of `{host}` is not valid yet"),
        TlsError::WrongName => format!("certificate is not valid for `{host}`"),
        TlsError::Untrusted => format!("certificate of `{host}` is not signed by a trusted CA"),
        _ if address::detect_scheme(url).await == Scheme::Http => return plain_http_finding(url),
        _ => return problem(chain(cause)).fix("correct the port; this one may not use TLS"),
    };
    of_tls(trouble, url).into_iter().fold(problem(found), Finding::fix)
}

fn plain_http_finding(url: &Url) -> Finding {
    Finding::problem(CHECK, Exit::Unreachable, "the server uses plain HTTP, but the URL starts with https://")
        .fix(format!("use `{}`", with_scheme(url, "http")))
}

/// Returns another URL on the same host that answers.
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
        let there = Mcp::new(prepare(config, OTHER_PATH_TIMEOUT));
        let connected = tokio::time::timeout(OTHER_PATH_TIMEOUT, there.connect()).await;
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, there.close()).await;
        let answers = match connected {
            Ok(Ok(())) => true,
            // A server that requires authentication exists.
            Ok(Err(failed)) => matches!(*failed.cause, ConnectErrorKind::NeedsAuth { .. }),
            Err(_) => false,
        };
        if answers {
            return Some(address::public_url(&other));
        }
    }
    None
}

/// Formats an error and its causes in one line.
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
    async fn every_tls_error_has_its_own_message_and_fix() {
        let url = Url::parse("https://127.0.0.1:1/mcp").expect("a URL");
        for (trouble, words) in [
            (TlsError::Expired, "has expired"),
            (TlsError::NotYetValid, "is not valid yet"),
            (TlsError::WrongName, "is not valid for `127.0.0.1`"),
            (TlsError::Untrusted, "is not signed by a trusted CA"),
            (TlsError::Other, "the TLS handshake failed: odd"),
        ] {
            let cause = ConnectErrorKind::Tls { trouble, source: "odd".into() };
            let finding = tls_finding(&url, trouble, &cause).await;
            assert!(finding.message.contains(words) && finding.fix.is_some(), "{finding:?}");
        }
    }

    #[test]
    fn secrets_that_a_server_prints_are_redacted() {
        let server = StdioServer::new("a", [""; 0]).with_env("TOKEN", "sesame");
        let redactor = redactor(&ServerConfig::new("a", server));
        let finding = |found: &str, said: &str| Finding { stderr: vec![said.to_owned()], ..Finding::note("a", found) };
        let (finding, expected) =
            (finding("it said sesame", "sesame is wrong"), finding("it said ***", "*** is wrong"));
        assert_eq!(redacted(finding, &redactor), expected);
    }
}
