//! Resolves transports.

use std::collections::HashSet;

use super::resolver::{Resolver, key};
use crate::file::node::{PathStep, redact_key};
use crate::file::problem::in_backticks;
use crate::file::raw::{RawServer, RawTransport};
use crate::file::reference::{Part, parts};
use crate::file::variables::{is_public_variable, read_variables};
use crate::settings::{HttpServer, StdioServer, Transport};
use ropeway_core::secret::Secret;

impl Resolver<'_> {
    pub(super) fn transport(&mut self, raw: &RawServer) -> Option<Transport> {
        match (&raw.command, &raw.url, raw.transport) {
            (Some(_), Some(_), _) => {
                self.problem(&[key("url")], "`url` conflicts with `command`; keep one of them");
                None
            }
            (
                Some(_),
                None,
                Some(transport @ (RawTransport::Sse | RawTransport::StreamableHttp | RawTransport::Websocket)),
            ) => {
                let found = format!("`{}` with a `command`", name_of(transport));
                self.mismatch(&[key("transport")], found, "`stdio`, or a `url`", Some("stdio"));
                None
            }
            (None, Some(_), Some(RawTransport::Stdio)) => {
                let found = "`stdio` with a `url`";
                self.mismatch(&[key("transport")], found, "`streamable-http`, or a `command`", Some("streamable-http"));
                None
            }
            (None, None, Some(RawTransport::Stdio)) => {
                self.problem(&[], "missing key `command`, required by transport `stdio`");
                None
            }
            (None, None, Some(transport)) => {
                self.problem(&[], format!("missing key `url`, required by transport `{}`", name_of(transport)));
                None
            }
            (None, None, None) => {
                self.problem(&[], "missing key `command` or `url`");
                None
            }
            (Some(command), None, _) => Some(Transport::Stdio(self.stdio(raw, command))),
            (None, Some(url), transport) => {
                let server = self.http(raw, &url.0);
                let is_sse = transport == Some(RawTransport::Sse);
                Some(if is_sse { Transport::Sse(server) } else { Transport::Http(server) })
            }
        }
    }

    fn stdio(&mut self, raw: &RawServer, command: &str) -> StdioServer {
        let command = self.command(command);
        let args: Vec<String> = (0..)
            .zip(&raw.args)
            .map(|(index, arg)| self.text(&[key("args"), PathStep::Index(index)], &arg.0))
            .collect();
        let mut server = StdioServer::new(command, args);
        if let Some(path) = &raw.env_file {
            self.env_file(path, &mut server);
        }
        // `env` takes precedence over `env_file`.
        let own: HashSet<&str> = raw.env.0.iter().map(|(name, _)| name.as_str()).collect();
        server.env.retain(|(name, _)| !own.contains(name.as_str()));
        for (name, value) in &raw.env.0 {
            let at = [key("env"), key(name)];
            let value = self.text(&at, &value.0);
            if name.is_empty() || name.contains(['=', '\0']) {
                self.problem(&at, format!("invalid variable name {}", in_backticks(&redact_key(name))));
            }
            if value.contains('\0') {
                self.problem(&at, "value contains a NUL character");
            }
            server.env.push((name.clone(), Secret::new(value)));
        }
        server.inherit_env = raw.inherit_env.unwrap_or(false);
        server.cwd = raw.cwd.as_ref().map(|cwd| {
            let cwd = self.text(&[key("cwd")], cwd);
            self.path(&cwd)
        });
        server.base_dir.clone_from(&self.context.base_dir);
        server.sandbox = self.sandbox(raw);
        server
    }

    /// Returns the command. It cannot contain references to variables or files, which would let them choose the program.
    fn command(&mut self, command: &str) -> String {
        let at = [key("command")];
        if command.trim().is_empty() {
            self.problem(&at, "command is empty");
            return String::new();
        }
        if !command.contains("${") {
            return command.to_owned();
        }
        // Other clients use references to directories, which do not depend on the environment.
        let fixed = |part: &Part<'_>| !matches!(part, Part::Name { .. } | Part::File(_));
        if self.context.is_foreign && parts(command).is_ok_and(|parts| parts.iter().all(fixed)) {
            return self.text(&at, command);
        }
        self.mismatch(&at, in_backticks(command), "a program without `${…}` references", None::<String>);
        String::new()
    }

    fn env_file(&mut self, path: &str, server: &mut StdioServer) {
        let at = [key("env_file")];
        let text = self.text(&at, path);
        let file = self.path(&text);
        self.files.push(file.clone());
        if self.context.sources.unread {
            return;
        }
        match read_variables(&file) {
            Ok(variables) => {
                for (name, value) in variables {
                    if !is_public_variable(&name) {
                        self.secrets.add(&value);
                    }
                    server.env.push((name, Secret::new(value)));
                }
            }
            Err(error) if self.context.is_foreign => {
                self.warnings.push(format!("ignored `env_file` {}: {}", in_backticks(path), error.describe()));
            }
            Err(error) => {
                self.problem(&at, format!("could not read {}: {}", in_backticks(path), error.describe()));
            }
        }
    }

    fn http(&mut self, raw: &RawServer, written: &str) -> HttpServer {
        let at = [key("url")];
        let known = self.missing.names.len();
        let url = self.text(&at, written);
        // An incomplete URL cannot be validated.
        if self.missing.names.len() == known && self.problems.is_empty() {
            self.check_url(&at, written, &url);
        }
        let mut server = HttpServer::new(url);
        for (name, value) in &raw.headers.0 {
            let at = [key("headers"), key(name)];
            let value = self.text(&at, &value.0);
            if !is_header_name(name) {
                self.problem(&at, format!("invalid header name {}", in_backticks(&redact_key(name))));
            }
            if value.contains(['\r', '\n', '\0']) {
                self.problem(&at, "header value contains a line break");
            }
            server.headers.push((name.clone(), Secret::new(value)));
        }
        if let Some(auth) = &raw.auth {
            self.server_auth(auth, &mut server);
        }
        let has_authorization = raw.headers.0.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        if raw.auth.is_some() && has_authorization {
            self.problem(&[key("auth")], "`auth` conflicts with the header `Authorization`; keep one of them");
        }
        server
    }

    pub(super) fn check_url(&mut self, at: &[PathStep], written: &str, url: &str) {
        let suggestion = match url.split_once("://") {
            Some(("ws", rest)) => Some(format!("http://{rest}")),
            Some(("wss", rest)) => Some(format!("https://{rest}")),
            None if url.starts_with("localhost") || url.starts_with("127.") => Some(format!("http://{url}")),
            None if !url.contains(':') => Some(format!("https://{url}")),
            _ => None,
        };
        // The URL parser accepts missing slashes as browsers do, but password redaction in URLs does not.
        let has_scheme = url.trim_start().split_once("://").is_some_and(|(scheme, rest)| {
            ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) && !rest.starts_with(['/', '\\'])
        });
        let is_url =
            has_scheme && url::Url::parse(url).is_ok_and(|url| url.host_str().is_some_and(|host| !host.is_empty()));
        if !is_url {
            let suggestion = suggestion.filter(|_| written == url && !written.is_empty());
            let suggestion = suggestion.map(|suggestion| redact_invalid_url(&suggestion));
            self.mismatch(
                at,
                in_backticks(&redact_invalid_url(written)),
                "a URL that starts with `http://` or `https://`",
                suggestion,
            );
        }
    }
}

fn name_of(transport: RawTransport) -> &'static str {
    match transport {
        RawTransport::Stdio => "stdio",
        RawTransport::Sse => "sse",
        RawTransport::StreamableHttp => "streamable-http",
        RawTransport::Websocket => "websocket",
    }
}

/// Formats an invalid URL without its credentials and query.
fn redact_invalid_url(url: &str) -> String {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), url),
    };
    // In an invalid URL, the password may contain any character.
    let (credentials, rest) = rest.rsplit_once('@').map_or(("", rest), |(_, rest)| ("***@", rest));
    let (rest, query) = match rest.find(['?', '#']) {
        Some(at) => (&rest[..=at], "***"),
        None => (rest, ""),
    };
    format!("{scheme}{credentials}{rest}{query}")
}

fn is_header_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}
