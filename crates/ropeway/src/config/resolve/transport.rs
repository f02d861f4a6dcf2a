//! What is written about the way to a server, and what it means.

use std::collections::HashSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{Resolver, key};
use crate::config::node::{Step, name_only};
use crate::config::problem::in_backticks;
use crate::config::raw::{RawAuth, RawServer, RawTransport};
use crate::config::reference::{Part, parts};
use crate::config::secrets::{is_ordinary, read_variables};
use crate::config::{HttpServer, StdioServer, Transport};
use crate::secret::Secret;

impl Resolver<'_> {
    pub(super) fn transport(&mut self, raw: &RawServer) -> Option<Transport> {
        match (&raw.command, &raw.url, raw.transport) {
            (Some(_), Some(_), _) => {
                self.problem(&[key("url")], "both `command` and `url`", "one of them");
                None
            }
            (Some(_), None, Some(transport @ (RawTransport::Sse | RawTransport::StreamableHttp))) => {
                let found = format!("transport `{}` with a `command`", name_of(transport));
                self.report(&[key("transport")], found, "`stdio`, or a `url`", Some("stdio"));
                None
            }
            (None, Some(_), Some(RawTransport::Stdio)) => {
                let found = "transport `stdio` with a `url`";
                self.report(&[key("transport")], found, "`streamable-http`, or a `command`", Some("streamable-http"));
                None
            }
            (None, None, Some(RawTransport::Stdio)) => {
                self.problem(&[], "no `command`", "the program that speaks `stdio`");
                None
            }
            (None, None, Some(transport)) => {
                self.problem(&[], "no `url`", format!("where the server listens, for `{}`", name_of(transport)));
                None
            }
            (None, None, None) => {
                self.problem(&[], "neither `command` nor `url`", "one of them");
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
        let args: Vec<String> =
            (0..).zip(&raw.args).map(|(index, arg)| self.text(&[key("args"), Step::Index(index)], &arg.0)).collect();
        let mut server = StdioServer::new(command, args);
        if let Some(path) = &raw.env_file {
            self.env_file(path, &mut server);
        }
        // The entry's own variables win over those of the file.
        let own: HashSet<&str> = raw.env.0.iter().map(|(name, _)| name.as_str()).collect();
        server.env.retain(|(name, _)| !own.contains(name.as_str()));
        for (name, value) in &raw.env.0 {
            let at = [key("env"), key(name)];
            let value = self.text(&at, &value.0);
            if name.is_empty() || name.contains(['=', '\0']) {
                self.problem(&at, in_backticks(&name_only(name)), "the name of a variable");
            }
            if value.contains('\0') {
                self.problem(&at, "a text with a NUL in it", "one without");
            }
            server.env.push((name.clone(), Secret::new(value)));
        }
        server.inherit_env = raw.inherit_env.unwrap_or(false);
        server.cwd = raw.cwd.as_ref().map(|cwd| {
            let cwd = self.text(&[key("cwd")], cwd);
            self.path(&cwd)
        });
        server
    }

    /// The command as it is: nothing from outside may choose what is run.
    fn command(&mut self, command: &str) -> String {
        let at = [key("command")];
        if command.trim().is_empty() {
            self.problem(&at, "an empty command", "a program");
            return String::new();
        }
        if !command.contains("${") {
            return command.to_owned();
        }
        // Other clients name their folders so, and a folder is no choice from outside.
        let fixed = |part: &Part<'_>| !matches!(part, Part::Name { .. } | Part::File(_));
        if self.around.is_foreign && parts(command).is_ok_and(|parts| parts.iter().all(fixed)) {
            return self.text(&at, command);
        }
        self.problem(&at, in_backticks(command), "a program without `${…}`: a command is run exactly as it is written");
        String::new()
    }

    fn env_file(&mut self, path: &str, server: &mut StdioServer) {
        let at = [key("env_file")];
        let text = self.text(&at, path);
        let file = self.path(&text);
        self.files.push(file.clone());
        if self.around.sources.unread {
            return;
        }
        match read_variables(&file) {
            Ok(variables) => {
                for (name, value) in variables {
                    if !is_ordinary(&name) {
                        self.hidden.add(&value);
                    }
                    server.env.push((name, Secret::new(value)));
                }
            }
            Err(error) if self.around.is_foreign => {
                self.warnings.push(format!(
                    "the variables in {} are left out: {}",
                    in_backticks(path),
                    error.describe()
                ));
            }
            Err(error) => {
                let found = format!("{}, which could not be read: {}", in_backticks(path), error.describe());
                self.problem(&at, found, "a file with lines of `NAME=value`");
            }
        }
    }

    fn http(&mut self, raw: &RawServer, written: &str) -> HttpServer {
        let at = [key("url")];
        let known = self.missing.names.len();
        let url = self.text(&at, written);
        // A URL that lacks a part is not judged, and one with a secret in it not shown.
        if self.missing.names.len() == known && self.problems.is_empty() {
            self.check_url(&at, written, &url);
        }
        let mut server = HttpServer::new(url);
        for (name, value) in &raw.headers.0 {
            let at = [key("headers"), key(name)];
            let value = self.text(&at, &value.0);
            if !is_header_name(name) {
                self.problem(&at, in_backticks(&name_only(name)), "the name of a header");
            }
            if value.contains(['\r', '\n', '\0']) {
                self.problem(&at, "a text of several lines", "a header on one line");
            }
            server.headers.push((name.clone(), Secret::new(value)));
        }
        match &raw.auth {
            None => {}
            Some(RawAuth::Bearer(token)) => {
                let token = self.text(&[key("auth"), key("bearer")], &token.0);
                self.hidden.add_credential(&token);
                server.bearer = Some(Secret::new(token));
            }
            Some(RawAuth::Basic(basic)) => {
                let user = self.text(&[key("auth"), key("basic"), key("user")], &basic.user.0);
                let password = self.text(&[key("auth"), key("basic"), key("password")], &basic.password.0);
                let both = format!("{user}:{password}");
                self.hidden.add_credential(&password);
                self.hidden.add_credential(&both);
                server.headers.push(("Authorization".into(), Secret::new(format!("Basic {}", STANDARD.encode(both)))));
            }
        }
        let has_authorization = raw.headers.0.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        if raw.auth.is_some() && has_authorization {
            self.problem(&[key("auth")], "both `auth` and a header `Authorization`", "one of them");
        }
        server
    }

    pub(super) fn check_url(&mut self, at: &[Step], written: &str, url: &str) {
        let suggestion = match url.split_once("://") {
            Some(("ws", rest)) => Some(format!("http://{rest}")),
            Some(("wss", rest)) => Some(format!("https://{rest}")),
            None if url.starts_with("localhost") || url.starts_with("127.") => Some(format!("http://{url}")),
            None if !url.contains(':') => Some(format!("https://{url}")),
            _ => None,
        };
        // Browsers, and therefore the library, forgive a missing slash; whoever looks for a password in it does not.
        let has_scheme = url.trim_start().split_once("://").is_some_and(|(scheme, rest)| {
            ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) && !rest.starts_with(['/', '\\'])
        });
        let is_url =
            has_scheme && reqwest::Url::parse(url).is_ok_and(|url| url.host_str().is_some_and(|host| !host.is_empty()));
        if !is_url {
            let suggestion = suggestion.filter(|_| written == url && !written.is_empty());
            let suggestion = suggestion.map(|suggestion| shown_url(&suggestion));
            self.report(
                at,
                in_backticks(&shown_url(written)),
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
    }
}

/// A URL that is none, as it is shown: without its name and password, and without what it asks for.
fn shown_url(url: &str) -> String {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), url),
    };
    // Where nothing is in its place, a password may hold any character.
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
