//! What must not be seen of a server's settings, and settings shown without it.

use std::fmt;

use serde_json::{Map, Value};

use super::{HttpServer, ServerConfig, StdioServer, ToolOverride, Transport};
use crate::secret::{self, Redactor};

impl ServerConfig {
    /// Hides all that must not be seen of this server: what its settings name, and what looks like a secret in them.
    pub fn secrets(&self) -> Redactor {
        let found = match &self.transport {
            Transport::Http(server) | Transport::Sse(server) => server.secrets(),
            Transport::Stdio(server) => server.secrets(),
            Transport::InProcess(_) => Redactor::default(),
        };
        self.mask.with(&found)
    }
}

impl HttpServer {
    fn secrets(&self) -> Redactor {
        let mut secrets = secret::in_url(&self.url);
        secrets.extend(self.headers.iter().flat_map(|(name, value)| secret::in_header(name, value.expose())));
        secrets.extend(self.bearer.clone());
        Redactor::new(&secrets)
    }
}

impl StdioServer {
    fn secrets(&self) -> Redactor {
        let mut secrets = secret::in_arguments(&self.args);
        secrets.extend(self.env.iter().flat_map(|(name, value)| secret::in_named(name, value.expose())));
        Redactor::new(&secrets)
    }
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mask = self.secrets();
        let transport = if f.alternate() { format!("{:#?}", self.transport) } else { format!("{:?}", self.transport) };
        f.debug_struct("ServerConfig")
            .field("alias", &self.alias)
            .field("transport", &format_args!("{}", mask.hide(&transport)))
            .field("era", &self.era)
            .field("timeouts", &self.timeouts)
            .field("limits", &self.limits)
            .field("reconnect", &self.reconnect)
            .field("mask", &self.mask)
            .finish()
    }
}

impl fmt::Debug for HttpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpServer")
            .field("url", &self.secrets().hide(&self.url))
            .field("headers", &self.headers)
            .field("bearer", &self.bearer)
            .field("sse_fallback", &self.sse_fallback)
            .finish()
    }
}

impl fmt::Debug for StdioServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mask = self.secrets();
        let args: Vec<_> = self.args.iter().map(|argument| mask.hide(argument)).collect();
        f.debug_struct("StdioServer")
            .field("command", &mask.hide(&self.command))
            .field("args", &args)
            .field("env", &self.env)
            .field("cwd", &self.cwd)
            .field("inherit_env", &self.inherit_env)
            .finish()
    }
}

impl fmt::Debug for ToolOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolOverride")
            .field("name", &self.name)
            .field("description", &self.description)
            .field("description_prefix", &self.description_prefix)
            .field("hide", &self.hide)
            .field("preset", &Preset(&self.preset))
            .field("provider_options", &self.provider_options)
            .finish()
    }
}

/// The names of preset arguments: their values may be secrets.
pub(super) struct Preset<'a>(pub(super) &'a Map<String, Value>);

impl fmt::Debug for Preset<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.keys().map(|name| (name, format_args!("***")))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    #[test]
    fn settings_are_shown_without_their_secrets() {
        let http = HttpServer::new("http://ada:pass-w0rd@h/?token=t0ken-t0ken&x=y")
            .with_header("X-Api-Key", "h3ader")
            .with_bearer("b3arer");
        let shown = r#"HttpServer { url: "http://ada:***@h/?token=***&x=y", headers: [("X-Api-Key", ***)], bearer: Some(***), sse_fallback: true }"#;
        assert_eq!(format!("{http:?}"), shown);
        let stdio = StdioServer::new("run", ["--token", "t0ken", "s3cret", "plain"]).with_env("A_KEY", "k3y-k3y");
        let shown = r#"StdioServer { command: "run", args: ["--token", "***", "s3cret", "plain"], env: [("A_KEY", ***)], cwd: None, inherit_env: false }"#;
        assert_eq!(format!("{stdio:?}"), shown);
        let mut config = ServerConfig::new("s", stdio);
        config.mask = Redactor::new(&[Secret::new("s3cret")]);
        for shown in [format!("{config:?}"), format!("{config:#?}")] {
            assert!(shown.contains("plain") && !shown.contains("s3cret") && !shown.contains("t0ken"), "{shown}");
        }
    }

    #[test]
    fn of_presets_only_the_names_are_shown() {
        let mut change = ToolOverride { hide: vec!["page".into()], ..ToolOverride::default() };
        change.preset.insert("api_key".into(), serde_json::json!({"nested": "s3cret"}));
        let shown = r#"ToolOverride { name: None, description: None, description_prefix: None, hide: ["page"], preset: {"api_key": ***}, provider_options: {} }"#;
        assert_eq!(format!("{change:?}"), shown);
        let mut entry = crate::config::ServerEntry::new(ServerConfig::new("s", StdioServer::new("run", [""; 0])));
        entry.tools.overrides.push(("*".into(), change));
        for shown in [format!("{entry:?}"), format!("{entry:#?}")] {
            assert!(shown.contains("api_key") && !shown.contains("s3cret"), "{shown}");
        }
    }

    #[test]
    fn what_is_hidden_is_what_the_settings_name_and_what_looks_secret_in_them() {
        let stdio = StdioServer::new("run", ["--mode", "fast"]).with_env("DB_URL", "pg://u:pass-w0rd@h/d");
        let mut config = ServerConfig::new("s", stdio.with_env("TOKEN", "t0ken").with_env("LEVEL", "level"));
        config.mask = Redactor::new(&[Secret::new("s3cret")]);
        let shown = config.secrets().hide("fast level t0ken s3cret pass-w0rd u").into_owned();
        assert_eq!(shown, "fast level *** *** *** u");
    }
}
