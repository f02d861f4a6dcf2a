//! Secrets in server settings, and `Debug` output without them.

use std::fmt;

use serde_json::{Map, Value};

use super::entry::ToolOverride;
use super::server::{HttpServer, ServerConfig, StdioServer, Transport};
use ropeway_core::secret::{self, Redactor};

impl ServerConfig {
    /// Returns a redactor for this server's secrets: those in [`redactor`](Self::redactor), and values in its settings
    /// that look like secrets.
    pub fn secrets(&self) -> Redactor {
        let found = match self.transport.original() {
            Transport::Http(server) | Transport::Sse(server) => server.secrets(),
            Transport::Stdio(server) => server.secrets(),
            Transport::InProcess(_) | Transport::Socket(_) => Redactor::default(),
        };
        self.redactor.with(&found)
    }
}

impl HttpServer {
    fn secrets(&self) -> Redactor {
        let mut secrets = secret::in_url(&self.url);
        secrets.extend(self.headers.iter().flat_map(|(name, value)| secret::in_header(name, value.expose())));
        secrets.extend(self.bearer.clone());
        let found = Redactor::new(&secrets);
        self.auth.as_ref().map_or(found.clone(), |auth| found.with(&auth.secrets()))
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
            .field("transport", &format_args!("{}", mask.redact(&transport)))
            .field("era", &self.era)
            .field("timeouts", &self.timeouts)
            .field("limits", &self.limits)
            .field("reconnect", &self.reconnect)
            .field("redactor", &self.redactor)
            .finish()
    }
}

impl fmt::Debug for HttpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpServer")
            .field("url", &self.secrets().redact(&self.url))
            .field("headers", &self.headers)
            .field("bearer", &self.bearer)
            .field("auth", &self.auth)
            .field("sse_fallback", &self.sse_fallback)
            .finish()
    }
}

impl fmt::Debug for StdioServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mask = self.secrets();
        let args: Vec<_> = self.args.iter().map(|argument| mask.redact(argument)).collect();
        f.debug_struct("StdioServer")
            .field("command", &mask.redact(&self.command))
            .field("args", &args)
            .field("env", &self.env)
            .field("cwd", &self.cwd)
            .field("base_dir", &self.base_dir)
            .field("inherit_env", &self.inherit_env)
            .field("sandbox", &self.sandbox)
            .finish()
    }
}

impl fmt::Debug for ToolOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolOverride")
            .field("name", &self.name)
            .field("name_prefix", &self.name_prefix)
            .field("description", &self.description)
            .field("description_prefix", &self.description_prefix)
            .field("hide", &self.hide)
            .field("preset", &PresetNames(&self.preset))
            .field("provider_options", &self.provider_options)
            .finish()
    }
}

/// Formats preset arguments with their values redacted.
pub(crate) struct PresetNames<'a>(pub(crate) &'a Map<String, Value>);

impl fmt::Debug for PresetNames<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.keys().map(|name| (name, format_args!("***")))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_core::secret::Secret;

    #[test]
    fn debug_output_of_server_settings_redacts_secrets() {
        let http = HttpServer::new("http://ada:pass-w0rd@h/?token=t0ken-t0ken&x=y")
            .with_header("X-Api-Key", "h3ader")
            .with_bearer("b3arer");
        let shown = r#"HttpServer { url: "http://ada:***@h/?token=***&x=y", headers: [("X-Api-Key", ***)], bearer: Some(***), auth: None, sse_fallback: true }"#;
        assert_eq!(format!("{http:?}"), shown);
        let stdio = StdioServer::new("run", ["--token", "t0ken", "s3cret", "plain"]).with_env("A_KEY", "k3y-k3y");
        let shown = r#"StdioServer { command: "run", args: ["--token", "***", "s3cret", "plain"], env: [("A_KEY", ***)], cwd: None, base_dir: None, inherit_env: false, sandbox: None }"#;
        assert_eq!(format!("{stdio:?}"), shown);
        let mut config = ServerConfig::new("s", stdio);
        config.redactor = Redactor::new(&[Secret::new("s3cret")]);
        for shown in [format!("{config:?}"), format!("{config:#?}")] {
            assert!(shown.contains("plain") && !shown.contains("s3cret") && !shown.contains("t0ken"), "{shown}");
        }
    }

    #[test]
    fn debug_output_of_presets_shows_only_names() {
        let mut change = ToolOverride { hide: vec!["page".into()], ..ToolOverride::default() };
        change.preset.insert("api_key".into(), serde_json::json!({"nested": "s3cret"}));
        let shown = r#"ToolOverride { name: None, name_prefix: None, description: None, description_prefix: None, hide: ["page"], preset: {"api_key": ***}, provider_options: {} }"#;
        assert_eq!(format!("{change:?}"), shown);
        let mut entry = crate::ServerEntry::new(ServerConfig::new("s", StdioServer::new("run", [""; 0])));
        entry.tools.overrides.push(("*".into(), change));
        for shown in [format!("{entry:?}"), format!("{entry:#?}")] {
            assert!(shown.contains("api_key") && !shown.contains("s3cret"), "{shown}");
        }
    }

    #[test]
    fn secrets_combine_configured_values_and_likely_secrets() {
        let stdio = StdioServer::new("run", ["--mode", "fast"]).with_env("DB_URL", "pg://u:pass-w0rd@h/d");
        let mut config = ServerConfig::new("s", stdio.with_env("TOKEN", "t0ken").with_env("LEVEL", "level"));
        config.redactor = Redactor::new(&[Secret::new("s3cret")]);
        let shown = config.secrets().redact("fast level t0ken s3cret pass-w0rd u").into_owned();
        assert_eq!(shown, "fast level *** *** *** u");
    }
}
