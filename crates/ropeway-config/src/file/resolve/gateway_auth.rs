//! Resolves how the gateway's clients are authenticated.

use std::time::Duration;

use super::resolver::{Resolver, key};
use crate::file::node::PathStep;
use crate::file::problem::{in_backticks, nearest};
use crate::file::raw::{RawGatewayAuth, RawGatewayLimits, RawJwt, RawOperators, RawRate};
use crate::settings::{AuthSettings, JwtAlgorithm, JwtSettings, OperatorTokens, PrincipalLimits};

const MAX_SKEW: Duration = Duration::from_secs(600);

impl Resolver<'_> {
    /// Resolves client authentication.
    pub(super) fn gateway_auth(&mut self, raw: Option<&RawGatewayAuth>) -> AuthSettings {
        let Some(raw) = raw else { return AuthSettings::default() };
        if raw.keys_file.is_none() && raw.jwt.is_none() {
            self.mismatch(&[key("auth")], "neither", "`keys_file`, `jwt` or both", None::<String>);
        }
        if raw.keys_file.as_ref().is_some_and(String::is_empty) {
            self.problem(&[key("auth"), key("keys_file")], "path is empty");
        }
        AuthSettings {
            keys_file: raw.keys_file.as_deref().map(|path| self.path(path)),
            jwt: raw.jwt.as_ref().map(|jwt| self.jwt(jwt)),
        }
    }

    fn jwt(&mut self, raw: &RawJwt) -> JwtSettings {
        let at = |name: &str| [key("auth"), key("jwt"), key(name)];
        for (name, is_missing) in [("issuer", raw.issuer.is_none()), ("audience", raw.audience.is_none())] {
            if is_missing {
                self.problem(&at("")[..2], format!("missing key `{name}`"));
            }
        }
        for (name, url) in [("issuer", &raw.issuer), ("resource", &raw.resource), ("jwks_url", &raw.jwks_url)] {
            if let Some(url) = url.as_deref().filter(|url| !is_safe_url(url)) {
                let expected = "a URL that starts with `https://`, or with `http://` on this machine";
                self.mismatch(&at(name), in_backticks(url), expected, None::<String>);
            }
        }
        let audience = raw.audience.as_ref().map(|audience| audience.0.clone()).unwrap_or_default();
        if raw.audience.is_some() && (audience.is_empty() || audience.iter().any(String::is_empty)) {
            self.problem(&at("audience"), "audience is empty");
        }
        if raw.principal_claim.as_ref().is_some_and(String::is_empty) {
            self.problem(&at("principal_claim"), "claim is empty");
        }
        for (at_index, scope) in raw.scopes.iter().enumerate() {
            if !is_scope(scope) {
                let steps = [key("auth"), key("jwt"), key("scopes"), PathStep::Index(at_index)];
                self.mismatch(&steps, in_backticks(scope), "a scope without spaces and quotes", None::<String>);
            }
        }
        for (name, list) in [("profiles", &raw.profiles), ("tools", &raw.tools)] {
            if list.as_ref().is_some_and(Vec::is_empty) {
                self.mismatch(&at(name), "an empty list", "a list with at least one entry", None::<String>);
            }
        }
        self.check_globs(&at("tools"), raw.tools.as_deref().unwrap_or_default());
        let mut settings = JwtSettings::new(raw.issuer.clone().unwrap_or_default(), "");
        settings.audience = audience;
        settings.resource.clone_from(&raw.resource);
        settings.jwks_url.clone_from(&raw.jwks_url);
        if let Some(names) = &raw.algorithms {
            settings.algorithms = self.algorithms(names);
        }
        let skew = ["auth", "jwt", "clock_skew"];
        settings.clock_skew = self.time(&skew, raw.clock_skew, settings.clock_skew, Duration::ZERO..=MAX_SKEW);
        if let Some(claim) = &raw.principal_claim {
            settings.principal_claim.clone_from(claim);
        }
        settings.scopes.clone_from(&raw.scopes);
        settings.profiles.clone_from(&raw.profiles);
        settings.tools.clone_from(&raw.tools);
        settings.operators = raw.operators.as_ref().and_then(|operators| self.operators(operators));
        settings
    }

    fn operators(&mut self, raw: &RawOperators) -> Option<OperatorTokens> {
        let at = |name: &str| [key("auth"), key("jwt"), key("operators"), key(name)];
        if let Some(scope) = raw.scope.as_deref().filter(|scope| !is_scope(scope)) {
            self.mismatch(&at("scope"), in_backticks(scope), "a scope without spaces and quotes", None::<String>);
        }
        if raw.claim.as_ref().is_some_and(String::is_empty) {
            self.problem(&at("claim"), "claim is empty");
        }
        if raw.values.as_ref().is_some_and(|values| values.is_empty() || values.iter().any(String::is_empty)) {
            self.mismatch(&at("values"), "an empty list or value", "a list of values", None::<String>);
        }
        match (raw.scope.clone(), raw.claim.clone(), raw.values.clone()) {
            (Some(scope), None, None) => Some(OperatorTokens::Scope(scope)),
            (None, Some(name), Some(values)) => Some(OperatorTokens::Claim { name, values }),
            _ => {
                let expected = "either `scope`, or `claim` and `values`";
                self.mismatch(&at("")[..3], "another combination of keys", expected, None::<String>);
                None
            }
        }
    }

    fn algorithms(&mut self, names: &[String]) -> Vec<JwtAlgorithm> {
        let steps = [key("auth"), key("jwt"), key("algorithms")];
        if names.is_empty() {
            self.mismatch(&steps, "an empty list", "a list of algorithms", None::<String>);
        }
        let mut algorithms = Vec::new();
        for (index, name) in names.iter().enumerate() {
            match JwtAlgorithm::parse(name) {
                Some(algorithm) => algorithms.push(algorithm),
                None => {
                    let steps = [key("auth"), key("jwt"), key("algorithms"), PathStep::Index(index)];
                    let known = JwtAlgorithm::ALL.map(JwtAlgorithm::name);
                    let expected = "a signature algorithm with public keys such as `RS256`";
                    self.mismatch(&steps, in_backticks(name), expected, nearest(name, known));
                }
            }
        }
        algorithms
    }

    /// Resolves the limits on each principal.
    pub(super) fn principal_limits(&mut self, raw: &RawGatewayLimits) -> PrincipalLimits {
        let mut count = |name: &str, written: Option<u32>| written.map(|_| self.count(name, written, 0));
        let (calls, sessions) = (
            count("calls_per_principal", raw.calls_per_principal),
            count("sessions_per_principal", raw.sessions_per_principal),
        );
        PrincipalLimits {
            rate: raw.rate.map(|RawRate(rate)| rate),
            calls,
            sessions,
            body: None,
            result: raw.result.map(|_| self.size("result", raw.result, 0)),
        }
    }
}

/// Returns `true` for a [scope](https://www.rfc-editor.org/rfc/rfc6749#section-3.3).
pub(super) fn is_scope(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(&byte))
}

/// Returns `true` for a URL whose responses cannot be changed on the way.
pub(super) fn is_safe_url(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, _)) => host,
        None => authority.split(':').next().unwrap_or_default(),
    };
    let is_clean = !text.contains(|c: char| c.is_whitespace() || c.is_control() || "\"<>\\".contains(c));
    let is_local = host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
    is_clean && !host.is_empty() && !authority.contains('@') && (scheme == "https" || (scheme == "http" && is_local))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_urls_that_cannot_be_changed_on_the_way_are_safe() {
        for url in [
            "https://auth.example",
            "https://a:8443/realm",
            "http://localhost:1",
            "http://127.0.0.1:9/x",
            "http://[::1]:2",
        ] {
            assert!(is_safe_url(url), "{url}");
        }
        for url in [
            "",
            "auth.example",
            "http://auth.example",
            "ftp://localhost",
            "https://",
            "https://u@h",
            "https://a\" b",
            "http://localhost.evil.example",
        ] {
            assert!(!is_safe_url(url), "{url}");
        }
    }
}
