//! Which scopes are requested
//! ([Scope Selection Strategy](https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization#scope-selection-strategy)).

use super::challenge::Challenge;
use super::discovery::Discovery;

/// Maximum number of scopes in a request. Further ones are left out.
const MAX_SCOPES: usize = 200;

/// The scope for a refresh token ([OpenID Connect](https://openid.net/specs/openid-connect-core-1_0.html#OfflineAccess)).
pub(super) const OFFLINE_ACCESS: &str = "offline_access";

/// Returns the scopes to request: those in the challenge, else those that are configured, else all that the server supports.
/// Scopes that are configured or were granted before are added. If they were not enough and the challenge names none, all are
/// requested.
pub(super) fn requested_scopes(
    discovery: &Discovery,
    challenge: Option<&Challenge>,
    configured: &[String],
    granted: &[String],
) -> Vec<String> {
    let mut scopes = Scopes::default();
    let challenged = challenge.map(Challenge::scopes).unwrap_or_default();
    if !challenged.is_empty() {
        scopes.add(&challenged);
    } else if configured.is_empty() || challenge.is_some_and(Challenge::is_insufficient_scope) {
        scopes.add(&discovery.scopes_supported);
    }
    scopes.add(configured);
    scopes.add(granted);
    scopes.0
}

/// Adds `offline_access` if the authorization server supports it, so that it issues a refresh token.
pub(super) fn with_offline_access(scopes: Vec<String>, discovery: &Discovery) -> Vec<String> {
    let mut scopes = Scopes(scopes);
    if discovery.server.scopes_supported.iter().any(|scope| scope == OFFLINE_ACCESS) {
        scopes.add(&[OFFLINE_ACCESS.to_owned()]);
    }
    scopes.0
}

/// Returns the scopes for a step-up: those that were granted, and those that the challenge names ([Step-Up
/// Authorization](https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization#step-up-authorization-flow)).
pub(crate) fn step_up_scopes(granted: &[String], challenge: &Challenge) -> Vec<String> {
    let mut scopes = Scopes::default();
    scopes.add(granted);
    scopes.add(&challenge.scopes());
    scopes.0
}

/// Scopes without duplicates.
#[derive(Default)]
struct Scopes(Vec<String>);

impl Scopes {
    fn add(&mut self, scopes: &[String]) {
        for scope in scopes {
            let is_new = !self.0.contains(scope) && is_valid(scope);
            if is_new && self.0.len() < MAX_SCOPES {
                self.0.push(scope.clone());
            }
        }
    }
}

/// Returns `true` for a valid scope ([RFC 6749, section 3.3](https://www.rfc-editor.org/rfc/rfc6749#section-3.3)).
pub(super) fn is_valid(scope: &str) -> bool {
    !scope.is_empty() && scope.bytes().all(|byte| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e))
}

#[cfg(test)]
mod tests {
    use reqwest::Url;

    use super::*;
    use crate::oauth::guard::OutboundGuard;
    use crate::oauth::metadata::AuthorizationServer;

    fn texts(scopes: &[&str]) -> Vec<String> {
        scopes.iter().map(|scope| (*scope).to_owned()).collect()
    }

    fn discovery(supported: &[&str], by_issuer: &[&str]) -> Discovery {
        let url = Url::parse("https://a.example/").expect("a URL");
        let guard = OutboundGuard::new(&url, &[]);
        let server = AuthorizationServer::without_metadata(&url, &guard).expect("a server");
        Discovery {
            resource: url.to_string(),
            scopes_supported: texts(supported),
            dpop_required: false,
            server: AuthorizationServer { scopes_supported: texts(by_issuer), ..server },
        }
    }

    fn challenge(scope: &str) -> Challenge {
        Challenge { scope: Some(scope.to_owned()), ..Challenge::default() }
    }

    #[test]
    fn the_challenge_comes_before_the_metadata() {
        let discovery = discovery(&["a", "b"], &["x"]);
        let challenge = challenge("b c");
        assert_eq!(requested_scopes(&discovery, Some(&challenge), &[], &[]), ["b", "c"]);
        assert_eq!(requested_scopes(&discovery, None, &[], &[]), ["a", "b"]);
        assert_eq!(requested_scopes(&discovery, None, &texts(&["d"]), &[]), ["d"]);
        assert_eq!(requested_scopes(&discovery, Some(&challenge), &texts(&["d"]), &[]), ["b", "c", "d"]);
    }

    #[test]
    fn a_challenge_for_scopes_that_it_does_not_name_asks_for_all() {
        let challenge = Challenge { error: Some("insufficient_scope".to_owned()), ..Challenge::default() };
        let scopes = requested_scopes(&discovery(&["a", "b"], &[]), Some(&challenge), &texts(&["a"]), &texts(&["a"]));
        assert_eq!(scopes, ["a", "b"]);
    }

    #[test]
    fn without_scopes_anywhere_none_are_requested() {
        assert_eq!(requested_scopes(&discovery(&[], &["x"]), None, &[], &[]), [""; 0]);
    }

    #[test]
    fn offline_access_is_added_only_if_the_authorization_server_supports_it() {
        assert_eq!(with_offline_access(texts(&["a"]), &discovery(&[], &["offline_access"])), ["a", "offline_access"]);
        assert_eq!(with_offline_access(texts(&["a"]), &discovery(&["offline_access"], &[])), ["a"]);
    }

    #[test]
    fn a_step_up_keeps_the_scopes_that_were_granted() {
        assert_eq!(step_up_scopes(&texts(&["a", "b"]), &challenge("b c")), ["a", "b", "c"]);
        let scopes = requested_scopes(&discovery(&[], &[]), Some(&challenge("c")), &[], &texts(&["a"]));
        assert_eq!(scopes, ["c", "a"]);
    }

    #[test]
    fn invalid_and_too_many_scopes_are_left_out() {
        let many: Vec<String> = (0..500).map(|number| format!("s{number}")).collect();
        assert_eq!(step_up_scopes(&many, &Challenge::default()).len(), MAX_SCOPES);
        assert_eq!(step_up_scopes(&texts(&["a b", "", "ä", "\"", "ok"]), &Challenge::default()), ["ok"]);
    }
}
