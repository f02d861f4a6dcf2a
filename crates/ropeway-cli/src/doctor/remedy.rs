//! What helps when a server could not be connected, told from the error alone.

use std::io::ErrorKind;

use ropeway::config::{ServerConfig, StdioServer, Transport};
use ropeway::mcp::{ConnectErrorKind, TlsError};
use url::Url;

use super::{Given, address, package, words};
use crate::arguments::suggest;

/// Commands that servers are usually started with.
const USUAL_COMMANDS: [&str; 12] =
    ["npx", "node", "npm", "pnpm", "bunx", "deno", "uvx", "uv", "python3", "pipx", "docker", "podman"];

/// Returns what helps against an error; `said` is what the server wrote to its standard error.
pub(crate) fn remedy(cause: &ConnectErrorKind, config: &ServerConfig, said: &[String], given: Given) -> Option<String> {
    match &config.transport {
        Transport::Stdio(server) => of_process(cause, server, said, given),
        Transport::Http(server) | Transport::Sse(server) => of_address(cause, &Url::parse(&server.url).ok()?),
        _ => None,
    }
}

fn of_process(cause: &ConnectErrorKind, server: &StdioServer, said: &[String], given: Given) -> Option<String> {
    let command = server.command.as_str();
    match cause {
        ConnectErrorKind::Spawn { source, .. } => match source.kind() {
            ErrorKind::NotFound if server.cwd.as_ref().is_some_and(|folder| !folder.is_dir()) => {
                server.cwd.as_ref().map(|folder| format!("the working directory `{}` does not exist", folder.display()))
            }
            ErrorKind::NotFound if command.contains('/') => Some("correct the path of the command".to_owned()),
            ErrorKind::NotFound => {
                let advice = package::advice(command).or_else(|| suggest::did_you_mean(command, USUAL_COMMANDS));
                Some(advice.unwrap_or_else(|| format!("install `{command}`, or give an absolute path as the command")))
            }
            ErrorKind::PermissionDenied => Some(format!("make it executable: `chmod +x {command}`")),
            _ => None,
        },
        ConnectErrorKind::Timeout { .. } if server.is_package_runner() => {
            let longer = given.words("`--timeout 5m`", "`--timeout 5m`, or `timeouts: {connect: 5m}` in its entry");
            Some(format!(
                "`{command}` may still have been downloading: run the server once in a terminal, or wait longer with {longer}"
            ))
        }
        ConnectErrorKind::Timeout { .. } => {
            Some("run its command in a terminal: it may not be an MCP server, or may wait for input".to_owned())
        }
        ConnectErrorKind::Exited { .. } | ConnectErrorKind::Hangup { .. } => words::advice(said, given),
        ConnectErrorKind::Version { .. } => Some("update the server, or ropeway".to_owned()),
        _ => None,
    }
}

fn of_address(cause: &ConnectErrorKind, url: &Url) -> Option<String> {
    let is_refused = |source: &(dyn std::error::Error + 'static)| match source
        .downcast_ref::<std::io::Error>()
        .map(std::io::Error::kind)
    {
        Some(kind) => kind == ErrorKind::ConnectionRefused,
        None => false,
    };
    let host = url.host_str().unwrap_or_default();
    let words = match cause {
        ConnectErrorKind::Broken(source) if is_refused(source.as_ref()) => {
            let port = url.port_or_known_default().map(|port| format!(":{port}")).unwrap_or_default();
            format!("nothing listens on {host}{port}: start the server, or correct the URL")
        }
        ConnectErrorKind::Broken(source) if source.to_string().contains("failed to lookup address") => {
            format!("correct the host name `{host}`, or check the network connection")
        }
        ConnectErrorKind::Broken(_) if url.scheme() == "http" => {
            format!("the server may expect TLS on this port: try `{}`", with_scheme(url, "https"))
        }
        ConnectErrorKind::Tls { trouble, .. } => return of_tls(*trouble, url),
        ConnectErrorKind::Status { status: 300..400, .. } => {
            "use the URL that it redirects to, if you trust it; a token is not sent to another host".to_owned()
        }
        ConnectErrorKind::Status { status: 403, .. } => {
            "the token may lack a permission, or the server refuses this address or `Origin`".to_owned()
        }
        ConnectErrorKind::Status { status: 407, .. } => {
            "the proxy needs credentials: `HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT`".to_owned()
        }
        ConnectErrorKind::Status { status: 404 | 405, .. } | ConnectErrorKind::Protocol(_) | ConnectErrorKind::Refused(_) => {
            "correct the path of the URL; MCP endpoints often end in `/mcp` or `/sse`".to_owned()
        }
        ConnectErrorKind::WebPage { .. } => {
            "correct the path of the URL: MCP endpoints often end in `/mcp` or `/sse`; if this is a login page, a proxy needs you to sign in"
                .to_owned()
        }
        ConnectErrorKind::Status { status: 500.., .. } => {
            "the failure is on the server's side: try again later, or read its log".to_owned()
        }
        ConnectErrorKind::Timeout { .. } => "it may not be an MCP server, or a proxy holds its answers back".to_owned(),
        ConnectErrorKind::Version { .. } => "update the server, or ropeway".to_owned(),
        _ => return None,
    };
    Some(words)
}

/// Returns what helps against a failed TLS handshake.
pub(super) fn of_tls(trouble: TlsError, url: &Url) -> Option<String> {
    Some(match trouble {
        TlsError::Expired => "renew it on the server; if the date of this machine is wrong, correct that".to_owned(),
        TlsError::NotYetValid => "correct the date of this machine".to_owned(),
        TlsError::WrongName => "use the host name that the certificate is for".to_owned(),
        TlsError::Untrusted => {
            "if it is your own CA: `SSL_CERT_FILE=ca.pem ropeway …`, or add it to the certificates of this machine"
                .to_owned()
        }
        TlsError::NotTls => format!("use `{}` if the server speaks plain HTTP", with_scheme(url, "http")),
        _ => return None,
    })
}

/// Returns the URL with another scheme, without credentials.
pub(super) fn with_scheme(url: &Url, scheme: &str) -> String {
    let mut url = url.clone();
    // Between http and https this never fails.
    let _ = url.set_scheme(scheme);
    address::shown(&url)
}

#[cfg(test)]
mod tests {
    use ropeway::config::HttpServer;

    use super::*;

    #[test]
    fn every_usual_error_has_a_fix_of_its_own() {
        let process = |command: &str| ServerConfig::new("s", StdioServer::new(command, ["-y", "x"]));
        let missing = || ConnectErrorKind::Spawn { program: String::new(), source: ErrorKind::NotFound.into() };
        let timeout = || ConnectErrorKind::Timeout { after: std::time::Duration::from_secs(1), said: None };
        let exited = || ConnectErrorKind::Exited { status: String::new(), said: None };
        let said = ["Error: Cannot find module 'x'".to_owned()];
        for (cause, command, expected) in [
            (missing(), "npxx", "did you mean `npx`?"),
            (missing(), "npx", "comes with Node.js"),
            (missing(), "own-server", "install `own-server`"),
            (missing(), "/no/such", "correct the path"),
            (timeout(), "npx", "may still have been downloading"),
            (timeout(), "sleep", "run its command in a terminal"),
            (exited(), "node", "npm install"),
        ] {
            let fix = remedy(&cause, &process(command), &said, Given::Line).unwrap_or_default();
            assert!(fix.contains(expected), "{command}: {fix}");
        }
        let address = |url: &str| ServerConfig::new("s", HttpServer::new(url));
        let broken = |kind: ErrorKind| ConnectErrorKind::Broken(Box::new(std::io::Error::from(kind)));
        let status = |status: u16| ConnectErrorKind::Status { status, said: None };
        let tls = |trouble| ConnectErrorKind::Tls { trouble, source: "".into() };
        for (cause, url, expected) in [
            (broken(ErrorKind::ConnectionRefused), "http://u:p@h:9/mcp", "nothing listens on h:9"),
            (broken(ErrorKind::UnexpectedEof), "http://u:p@h:9/mcp?k=v", "try `https://h:9/mcp`"),
            (ConnectErrorKind::Broken("failed to lookup address".into()), "http://h/mcp", "correct the host name `h`"),
            (tls(TlsError::NotTls), "https://u:p@h:9/mcp", "use `http://h:9/mcp`"),
            (tls(TlsError::Untrusted), "https://h/mcp", "SSL_CERT_FILE"),
            (status(302), "http://h/mcp", "redirects to"),
            (status(403), "http://h/mcp", "lack a permission"),
            (status(404), "http://h/mcp", "correct the path"),
            (status(502), "http://h/mcp", "server's side"),
            (ConnectErrorKind::WebPage { said: None }, "http://h/mcp", "login page"),
        ] {
            let fix = remedy(&cause, &address(url), &[], Given::Line).unwrap_or_default();
            assert!(fix.contains(expected), "{cause}: {fix}");
        }
    }
}
