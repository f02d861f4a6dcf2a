//! Suggests a fix for a connection error.

use std::io::ErrorKind;

use ropeway_config::{ServerConfig, StdioServer, Transport};
use ropeway_core::suggest;
use ropeway_mcp::protocol::code;
use ropeway_mcp::{ConnectErrorKind, TlsError};
use url::Url;

use super::source::ConfigSource;
use super::{address, package, sdk_advice, stderr_advice};
use crate::sandbox::lacks_network;

/// Commands that usually start servers.
const USUAL_COMMANDS: [&str; 12] =
    ["npx", "node", "npm", "pnpm", "bunx", "deno", "uvx", "uv", "python3", "pipx", "docker", "podman"];

/// Returns the fix for an error; `said` is the server's standard error.
pub(crate) fn remedy(
    cause: &ConnectErrorKind,
    config: &ServerConfig,
    said: &[String],
    source: ConfigSource,
) -> Option<String> {
    match &config.transport {
        Transport::Stdio(server) => of_process(cause, server, said, source),
        Transport::Http(server) | Transport::Sse(server) => of_address(cause, &Url::parse(&server.url).ok()?),
        _ => None,
    }
}

fn of_process(cause: &ConnectErrorKind, server: &StdioServer, said: &[String], source: ConfigSource) -> Option<String> {
    let command = server.command.as_str();
    match cause {
        ConnectErrorKind::Spawn { source, .. } => match source.kind() {
            _ if server.working_dir().is_some_and(|folder| folder.exists() && !folder.is_dir()) => {
                Some("`cwd` is a file; set it to a directory".to_owned())
            }
            _ if server.working_dir().is_some_and(|folder| !folder.is_dir()) => {
                Some("create the directory, or correct `cwd`".to_owned())
            }
            ErrorKind::NotFound if command.contains('/') => Some("correct the path of the command".to_owned()),
            ErrorKind::NotFound => {
                let advice = package::advice(command).or_else(|| suggest::did_you_mean(command, USUAL_COMMANDS));
                Some(advice.unwrap_or_else(|| format!("install `{command}`, or set the command to an absolute path")))
            }
            ErrorKind::PermissionDenied if server.sandbox.is_some() => {
                Some(format!("run `chmod +x {command}`, or add its directory to `sandbox.read`"))
            }
            ErrorKind::PermissionDenied => Some(format!("run `chmod +x {command}`")),
            _ => None,
        },
        ConnectErrorKind::Timeout { .. } if lacks_network(server) => {
            Some(format!("`{command}` cannot download the server; set `network: true` in its `sandbox`"))
        }
        ConnectErrorKind::Timeout { .. } if server.is_package_runner() => {
            let longer = source.pick("`--timeout 5m`", "`--timeout 5m`, or `timeouts: {connect: 5m}` in its entry");
            Some(format!(
                "`{command}` may still be downloading; run the server once in a terminal, or raise the limit with {longer}"
            ))
        }
        ConnectErrorKind::Timeout { .. } => {
            Some("run its command in a terminal; it may not be an MCP server, or may wait for input".to_owned())
        }
        // The reason names the fix.
        ConnectErrorKind::Sandbox { reason } if reason.contains("`sandbox") => None,
        ConnectErrorKind::Sandbox { .. } => {
            Some("set `mode: best-effort` in its `sandbox` to start it with fewer restrictions".to_owned())
        }
        ConnectErrorKind::Exited { .. } | ConnectErrorKind::Hangup { .. }
            if server.sandbox.is_some() && is_denied(said) =>
        {
            Some("its sandbox may deny this; add the path to `sandbox.read` or `sandbox.write`".to_owned())
        }
        ConnectErrorKind::Exited { .. } if said.is_empty() && server.sandbox.is_some() => Some(
            "run its command in a terminal to see why it exits; its sandbox may deny something it needs".to_owned(),
        ),
        ConnectErrorKind::Exited { .. } if said.is_empty() => {
            Some("run its command in a terminal to see why it exits".to_owned())
        }
        ConnectErrorKind::Hangup { .. } if said.is_empty() => {
            Some("run its command in a terminal; it may not be an MCP server".to_owned())
        }
        ConnectErrorKind::Exited { .. } | ConnectErrorKind::Hangup { .. } => {
            sdk_advice::advice(server, said).or_else(|| stderr_advice::advice(said, source))
        }
        ConnectErrorKind::Version { .. } => Some("update the server, or ropeway".to_owned()),
        _ => None,
    }
}

/// Returns `true` if the server reports that an access was denied.
fn is_denied(said: &[String]) -> bool {
    let words = ["EACCES", "EPERM", "Permission denied", "permission denied", "not permitted"];
    said.iter().any(|line| words.iter().any(|word| line.contains(word)))
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
            format!("start the server on {host}{port}, or correct the URL")
        }
        ConnectErrorKind::Broken(source) if source.to_string().contains("failed to lookup address") => {
            format!("correct the host name `{host}`, or check the network connection")
        }
        ConnectErrorKind::Broken(_) if url.scheme() == "http" => {
            format!("try `{}`; the server may expect TLS on this port", with_scheme(url, "https"))
        }
        ConnectErrorKind::Tls { trouble, .. } => return of_tls(*trouble, url),
        ConnectErrorKind::Status { status: 300..400, .. } => {
            "use the URL that it redirects to, if you trust it; tokens are not sent to another host".to_owned()
        }
        ConnectErrorKind::Status { status: 403, .. } => {
            "the token may lack a permission, or the server rejects this address or `Origin`".to_owned()
        }
        ConnectErrorKind::Status { status: 407, .. } => proxy_login(url),
        ConnectErrorKind::Refused { .. } if url.path() == "/" => {
            format!("correct the path of the URL; MCP endpoints often end in `/mcp`: try `{}mcp`", address::public_url(url))
        }
        // Any JSON-RPC server knows only its own methods; other codes come from an MCP server.
        ConnectErrorKind::Refused { code, .. } if *code != code::METHOD_NOT_FOUND => {
            "the message above is the server's own; check the token and the URL".to_owned()
        }
        ConnectErrorKind::Status { status: 404 | 405, .. } | ConnectErrorKind::Protocol(_) | ConnectErrorKind::Refused { .. } => {
            "correct the path of the URL; MCP endpoints often end in `/mcp` or `/sse`".to_owned()
        }
        ConnectErrorKind::WebPage { .. } => {
            "correct the path of the URL; MCP endpoints often end in `/mcp` or `/sse`. If this is a login page, sign in to the proxy"
                .to_owned()
        }
        ConnectErrorKind::Status { status: 500.., .. } => {
            "try again later, or check the server's log".to_owned()
        }
        ConnectErrorKind::Timeout { .. } => "it may not be an MCP server, or a proxy may buffer its responses".to_owned(),
        ConnectErrorKind::Version { .. } => "update the server, or ropeway".to_owned(),
        _ => return None,
    };
    Some(words)
}

/// Returns the fix for a proxy that requires authentication.
pub(super) fn proxy_login(url: &Url) -> String {
    let variable = if url.scheme() == "http" { "HTTP_PROXY" } else { "HTTPS_PROXY" };
    format!("add the user and password of the proxy: `{variable}=http://USER:PASSWORD@HOST:PORT`")
}

/// Returns the fix for a failed TLS handshake.
pub(super) fn of_tls(trouble: TlsError, url: &Url) -> Option<String> {
    Some(match trouble {
        TlsError::Expired => "renew it on the server, or correct the clock of this machine".to_owned(),
        TlsError::NotYetValid => "correct the clock of this machine".to_owned(),
        TlsError::WrongName => "use the host name of the certificate".to_owned(),
        TlsError::Untrusted => {
            "for your own CA, set `SSL_CERT_FILE=ca.pem`, or add it to the system's certificates".to_owned()
        }
        TlsError::NotTls => format!("use `{}` if the server uses plain HTTP", with_scheme(url, "http")),
        _ => return None,
    })
}

/// Returns the URL with another scheme, without credentials.
pub(super) fn with_scheme(url: &Url, scheme: &str) -> String {
    let mut url = url.clone();
    // Infallible between http and https.
    let _ = url.set_scheme(scheme);
    address::public_url(&url)
}

#[cfg(test)]
mod tests {
    use ropeway_config::HttpServer;

    use super::*;

    #[test]
    fn every_common_error_has_a_fix() {
        let process = |command: &str| ServerConfig::new("s", StdioServer::new(command, ["-y", "x"]));
        let missing = || ConnectErrorKind::Spawn { program: String::new(), source: ErrorKind::NotFound.into() };
        let timeout = || ConnectErrorKind::Timeout { after: std::time::Duration::from_secs(1), said: None };
        let exited = || ConnectErrorKind::Exited { status: String::new(), said: None };
        let said = ["Error: Cannot find module 'x'".to_owned()];
        for (cause, command, expected) in [
            (missing(), "npxx", "did you mean `npx`?"),
            (missing(), "npx", "install Node.js"),
            (missing(), "own-server", "install `own-server`"),
            (missing(), "/no/such", "correct the path"),
            (timeout(), "npx", "may still be downloading"),
            (timeout(), "sleep", "run its command in a terminal"),
            (exited(), "node", "npm install"),
        ] {
            let fix = remedy(&cause, &process(command), &said, ConfigSource::CommandLine).unwrap_or_default();
            assert!(fix.contains(expected), "{command}: {fix}");
        }
        let fix = remedy(&exited(), &process("true"), &[], ConfigSource::CommandLine).unwrap_or_default();
        assert!(fix.contains("run its command in a terminal"), "{fix}");
        let here =
            |cwd: &str| ServerConfig::new("s", StdioServer::command("x").with_cwd(std::path::PathBuf::from(cwd)));
        for (cwd, expected) in [("/etc/passwd", "`cwd` is a file"), ("/no/such", "create the directory")] {
            let fix = remedy(&missing(), &here(cwd), &[], ConfigSource::CommandLine).unwrap_or_default();
            assert!(fix.contains(expected), "{cwd}: {fix}");
        }
        let closed = StdioServer::new("npx", ["-y", "x"]).with_sandbox(ropeway_config::Sandbox::new());
        let closed = ServerConfig::new("s", closed);
        let fix = remedy(&timeout(), &closed, &said, ConfigSource::CommandLine).unwrap_or_default();
        assert!(fix.contains("set `network: true` in its `sandbox`"), "{fix}");
        let refused = ConnectErrorKind::Sandbox { reason: "add `/x` to `sandbox.read`".to_owned() };
        assert_eq!(remedy(&refused, &closed, &said, ConfigSource::CommandLine), None);
        let address = |url: &str| ServerConfig::new("s", HttpServer::new(url));
        let broken = |kind: ErrorKind| ConnectErrorKind::Broken(Box::new(std::io::Error::from(kind)));
        let status = |status: u16| ConnectErrorKind::Status { status, said: None };
        let refused = |code| ConnectErrorKind::Refused { code, source: "no".into() };
        let tls = |trouble| ConnectErrorKind::Tls { trouble, source: "".into() };
        for (cause, url, expected) in [
            (broken(ErrorKind::ConnectionRefused), "http://u:p@h:9/mcp", "start the server on h:9"),
            (broken(ErrorKind::UnexpectedEof), "http://u:p@h:9/mcp?k=v", "try `https://h:9/mcp`"),
            (ConnectErrorKind::Broken("failed to lookup address".into()), "http://h/mcp", "correct the host name `h`"),
            (tls(TlsError::NotTls), "https://u:p@h:9/mcp", "use `http://h:9/mcp`"),
            (tls(TlsError::Untrusted), "https://h/mcp", "SSL_CERT_FILE"),
            (status(302), "http://h/mcp", "redirects to"),
            (status(403), "http://h/mcp", "lack a permission"),
            (status(407), "http://h/mcp", "`HTTP_PROXY=http://USER:PASSWORD@HOST:PORT`"),
            (status(407), "https://h/mcp", "`HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT`"),
            (status(404), "http://h/mcp", "correct the path"),
            (refused(code::METHOD_NOT_FOUND), "http://h/mcp", "correct the path"),
            (refused(-32000), "http://h/mcp", "check the token and the URL"),
            (refused(-32000), "http://u:p@h:9", "try `http://h:9/mcp`"),
            (status(502), "http://h/mcp", "server's log"),
            (ConnectErrorKind::WebPage { said: None }, "http://h/mcp", "login page"),
        ] {
            let fix = remedy(&cause, &address(url), &[], ConfigSource::CommandLine).unwrap_or_default();
            assert!(fix.contains(expected), "{cause}: {fix}");
        }
    }
}
