//! Resolves a server's credentials, and how they are obtained.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::gateway_auth::{is_safe_url, is_scope};
use super::resolver::{Resolver, key};
use crate::file::node::{PathStep, redact_key};
use crate::file::problem::{in_backticks, nearest};
use crate::file::raw::{
    RawAuth, RawDuration, RawGrant, RawIdentityProvider, RawOAuth, RawPrivateKey, RawText, RawTokenCommand,
    RawTokenSource,
};
use crate::settings::{
    HttpServer, IdentityProvider, JwtAlgorithm, OAuthGrant, OAuthSettings, PrivateKey, ServerAuth, TokenCommand,
    TokenSource,
};
use ropeway_core::secret::Secret;

/// Maximum timeout for a token command.
const MAX_COMMAND_TIMEOUT: Duration = Duration::from_secs(600);

/// Returns the path to a key below `auth`.
fn at(path: &str) -> Vec<PathStep> {
    std::iter::once("auth").chain(path.split('.').filter(|step| !step.is_empty())).map(key).collect()
}

impl Resolver<'_> {
    /// Resolves `auth` into a server's settings.
    pub(super) fn server_auth(&mut self, raw: &RawAuth, server: &mut HttpServer) {
        match raw {
            RawAuth::Bearer(token) => server.bearer = Some(self.credential("bearer", token)),
            RawAuth::Basic(basic) => {
                let user = self.text(&at("basic.user"), &basic.user.0);
                let password = self.text(&at("basic.password"), &basic.password.0);
                let both = format!("{user}:{password}");
                self.secrets.add_credential(&password);
                self.secrets.add_credential(&both);
                server.headers.push(("Authorization".into(), Secret::new(format!("Basic {}", STANDARD.encode(both)))));
            }
            RawAuth::OAuth(oauth) => server.auth = Some(self.oauth(oauth).into()),
            RawAuth::Command(command) => server.auth = Some(ServerAuth::Command(self.token_command("", command))),
        }
    }

    fn credential(&mut self, path: &str, text: &RawText) -> Secret {
        let value = self.text(&at(path), &text.0);
        self.secrets.add_credential(&value);
        Secret::new(value)
    }

    fn oauth(&mut self, raw: &RawOAuth) -> OAuthSettings {
        let mut settings = OAuthSettings::new();
        settings.client_id = raw.client_id.as_ref().map(|id| self.text(&at("oauth.client_id"), &id.0));
        settings.client_secret =
            raw.client_secret.as_ref().map(|secret| self.credential("oauth.client_secret", secret));
        settings.private_key = raw.private_key.as_ref().and_then(|key| self.private_key(key));
        self.safe_url("oauth.issuer", raw.issuer.as_deref());
        self.safe_url("oauth.client_metadata_url", raw.client_metadata_url.as_deref());
        settings.issuer.clone_from(&raw.issuer);
        settings.client_metadata_url.clone_from(&raw.client_metadata_url);
        settings.token_endpoint_auth = raw.token_endpoint_auth;
        for (index, scope) in raw.scopes.iter().enumerate().filter(|(_, scope)| !is_scope(scope)) {
            let steps = [at("oauth.scopes"), vec![PathStep::Index(index)]].concat();
            self.mismatch(&steps, in_backticks(scope), "a scope without spaces and quotes", None::<String>);
        }
        settings.scopes.clone_from(&raw.scopes);
        if raw.redirect_port == Some(0) {
            self.mismatch(&at("oauth.redirect_port"), "`0`", "a port from 1 to 65535", None::<String>);
        }
        settings.redirect_port = raw.redirect_port;
        settings.dpop = raw.dpop.unwrap_or(false);
        settings.allow_private.clone_from(&raw.allow_private);
        settings.account = raw.account.as_ref().map(|account| self.text(&at("oauth.account"), &account.0));
        if settings.account.as_ref().is_some_and(|account| account.trim().is_empty() && self.missing.names.is_empty()) {
            self.problem(&at("oauth.account"), "account is empty");
        }
        settings.per_principal = raw.per_principal.unwrap_or(false);
        settings.grant = self.grant(raw);
        settings
    }

    /// Resolves the grant, and checks that the keys which it needs are set.
    fn grant(&mut self, raw: &RawOAuth) -> OAuthGrant {
        let grant = raw.grant.unwrap_or(RawGrant::AuthorizationCode);
        for (name, is_set, wanted) in [
            ("assertion", raw.assertion.is_some(), RawGrant::WorkloadIdentity),
            ("identity_provider", raw.identity_provider.is_some(), RawGrant::EnterpriseManaged),
        ] {
            let wanted_name = name_of(wanted);
            if is_set && grant != wanted {
                let path = format!("oauth.{name}");
                self.problem(&at(&path), format!("`{name}` has no effect without `grant: {wanted_name}`"));
            } else if !is_set && grant == wanted {
                self.problem(&at("oauth"), format!("missing key `{name}`, required by `grant: {wanted_name}`"));
            }
        }
        if raw.account.is_some() && grant != RawGrant::AuthorizationCode {
            let needed = "`account` has no effect without `grant: authorization_code`";
            self.problem(&at("oauth.account"), needed);
        }
        if grant == RawGrant::ClientCredentials {
            if raw.client_id.is_none() {
                self.problem(&at("oauth"), "missing key `client_id`, required by `grant: client_credentials`");
            }
            if raw.client_secret.is_none() && raw.private_key.is_none() {
                let needed = "missing key `client_secret` or `private_key`, required by `grant: client_credentials`";
                self.problem(&at("oauth"), needed);
            }
        }
        match (grant, &raw.assertion, &raw.identity_provider) {
            (RawGrant::ClientCredentials, ..) => OAuthGrant::ClientCredentials,
            (RawGrant::WorkloadIdentity, Some(source), _) => {
                OAuthGrant::WorkloadIdentity { assertion: self.token_source("oauth.assertion", source) }
            }
            (RawGrant::EnterpriseManaged, _, Some(idp)) => OAuthGrant::EnterpriseManaged(self.identity_provider(idp)),
            _ => OAuthGrant::AuthorizationCode,
        }
    }

    fn identity_provider(&mut self, raw: &RawIdentityProvider) -> IdentityProvider {
        let path = |name: &str| format!("oauth.identity_provider.{name}");
        if raw.issuer.is_some() == raw.token_endpoint.is_some() {
            self.problem(&at("oauth.identity_provider"), "expected either `issuer` or `token_endpoint`");
        }
        self.safe_url(&path("issuer"), raw.issuer.as_deref());
        self.safe_url(&path("token_endpoint"), raw.token_endpoint.as_deref());
        let id_token = match &raw.id_token {
            Some(source) => self.token_source(&path("id_token"), source),
            None => {
                self.problem(&at("oauth.identity_provider"), "missing key `id_token`");
                TokenSource::Value(Secret::new(""))
            }
        };
        let mut idp = IdentityProvider::new("", id_token);
        idp.issuer.clone_from(&raw.issuer);
        idp.token_endpoint.clone_from(&raw.token_endpoint);
        idp.client_id = raw.client_id.as_ref().map(|id| self.text(&at(&path("client_id")), &id.0));
        idp.client_secret = raw.client_secret.as_ref().map(|secret| self.credential(&path("client_secret"), secret));
        idp
    }

    fn private_key(&mut self, raw: &RawPrivateKey) -> Option<PrivateKey> {
        let Some(pem) = &raw.pem else {
            self.problem(&at("oauth.private_key"), "missing key `pem`");
            return None;
        };
        let mut key = PrivateKey::new(self.credential("oauth.private_key.pem", pem));
        if let Some(name) = &raw.algorithm {
            key.algorithm = JwtAlgorithm::parse(name);
            if key.algorithm.is_none() {
                let known = JwtAlgorithm::ALL.map(JwtAlgorithm::name);
                let steps = at("oauth.private_key.algorithm");
                let expected = "a signature algorithm with public keys such as `RS256`";
                self.mismatch(&steps, in_backticks(name), expected, nearest(name, known));
            }
        }
        key.key_id.clone_from(&raw.key_id);
        Some(key)
    }

    fn token_source(&mut self, path: &str, raw: &RawTokenSource) -> TokenSource {
        match raw {
            RawTokenSource::Value(text) => TokenSource::Value(self.credential(path, text)),
            RawTokenSource::File(file) => {
                let steps = [at(path), vec![key("file")]].concat();
                TokenSource::File(self.token_path(&steps, file))
            }
            RawTokenSource::Command(command) => TokenSource::Command(self.token_command(path, command)),
        }
    }

    fn token_path(&mut self, steps: &[PathStep], written: &str) -> PathBuf {
        let text = self.text(steps, written);
        if text.trim().is_empty() && self.missing.names.is_empty() {
            self.problem(steps, "path is empty");
        }
        self.path(&text)
    }

    fn token_command(&mut self, path: &str, raw: &RawTokenCommand) -> TokenCommand {
        let below = |name: &str| [at(path), vec![key(name)]].concat();
        let item = |index| [below("command"), vec![PathStep::Index(index)]].concat();
        let (program, args) = match raw.command.split_first() {
            Some((RawText(program), args)) => (program.as_str(), args),
            None => ("", &[][..]),
        };
        if program.trim().is_empty() {
            self.problem(&below("command"), "command is empty");
        } else if program.contains("${") {
            // A variable or a file must not choose the program.
            self.mismatch(&item(0), in_backticks(program), "a program without `${…}` references", None::<String>);
        }
        let args: Vec<String> = (1..).zip(args).map(|(index, arg)| self.text(&item(index), &arg.0)).collect();
        let mut command = TokenCommand::new(program, args);
        for (name, value) in &raw.env.0 {
            let steps = [below("env"), vec![key(name)]].concat();
            let value = self.text(&steps, &value.0);
            if name.is_empty() || name.contains(['=', '\0']) {
                self.problem(&steps, format!("invalid variable name {}", in_backticks(&redact_key(name))));
            }
            if value.contains('\0') {
                self.problem(&steps, "value contains a NUL character");
            }
            command.env.push((name.clone(), Secret::new(value)));
        }
        let cwd = raw.cwd.as_ref().map(|cwd| self.token_path(&below("cwd"), cwd));
        command.cwd = cwd.or_else(|| self.context.base_dir.clone());
        if let Some(RawDuration(timeout)) = raw.timeout {
            if timeout.is_zero() || timeout > MAX_COMMAND_TIMEOUT {
                self.problem(&below("timeout"), "expected a duration of more than zero and up to `10m`");
            }
            command.timeout = timeout;
        }
        command
    }

    fn safe_url(&mut self, path: &str, url: Option<&str>) {
        if let Some(url) = url.filter(|url| !is_safe_url(url)) {
            let expected = "a URL that starts with `https://`, or with `http://` on this machine";
            self.mismatch(&at(path), in_backticks(url), expected, None::<String>);
        }
    }
}

fn name_of(grant: RawGrant) -> &'static str {
    match grant {
        RawGrant::AuthorizationCode => "authorization_code",
        RawGrant::ClientCredentials => "client_credentials",
        RawGrant::WorkloadIdentity => "workload_identity",
        RawGrant::EnterpriseManaged => "enterprise_managed",
    }
}
