//! The authorization request that a browser opens, and the callback that ends it.

use std::time::Duration;

use reqwest::Url;
use tokio::time::Instant;

use super::client::RegisteredClient;
use super::discovery::Discovery;
use super::error::OAuthError;
use super::http::invalid;
use super::random::{random_text, sha256_base64url};
use super::refusal::refused;
use super::scopes::OFFLINE_ACCESS;
use super::text::shown;
use ropeway_core::secret::{Redactor, Secret};

/// Maximum time between the request and its callback.
const MAX_AGE: Duration = Duration::from_secs(30 * 60);

/// Maximum callback length, in bytes. A longer callback is an error.
const MAX_CALLBACK: usize = 64 << 10;

/// Maximum code length, in bytes. A longer code counts as missing.
const MAX_CODE: usize = 16 << 10;

/// Parameters that only the client sets. An endpoint that already has one could replace its value
/// ([RFC 6749, section 3.1](https://www.rfc-editor.org/rfc/rfc6749#section-3.1)).
const RESERVED: [&str; 9] = [
    "response_type",
    "client_id",
    "redirect_uri",
    "state",
    "scope",
    "code_challenge",
    "code_challenge_method",
    "request",
    "request_uri",
];

/// An authorization request with PKCE ([RFC 7636](https://www.rfc-editor.org/rfc/rfc7636)).
pub(super) struct AuthorizationRequest {
    pub(super) url: Url,
    redirect_uri: Url,
    state: Secret,
    verifier: Secret,
    issuer: String,
    sends_issuer: bool,
    created: Instant,
}

/// A code, with everything that is sent to the token endpoint together with it.
#[derive(Debug)]
pub(super) struct AuthorizationCode {
    pub(super) code: Secret,
    pub(super) verifier: Secret,
    pub(super) redirect_uri: String,
}

/// A callback's parameters. Each may occur once.
#[derive(Default)]
struct Callback {
    code: Option<String>,
    state: Option<String>,
    iss: Option<String>,
    error: Option<String>,
    error_description: Option<String>,
}

impl AuthorizationRequest {
    /// Creates a request. `dpop_thumbprint` binds the code to a key
    /// ([RFC 9449, section 10](https://www.rfc-editor.org/rfc/rfc9449#section-10)).
    pub(super) fn new(
        discovery: &Discovery,
        client: &RegisteredClient,
        redirect_uri: &str,
        scopes: &[String],
        dpop_thumbprint: Option<&str>,
    ) -> Result<Self, OAuthError> {
        let server = &discovery.server;
        let Some(endpoint) = &server.authorization_endpoint else {
            return Err(OAuthError::unsupported("the authorization server has no `authorization_endpoint`"));
        };
        if !server.supports_s256 {
            let what = "the authorization server does not support PKCE with S256, which a secure sign-in needs";
            return Err(OAuthError::unsupported(what));
        }
        if let Some((name, _)) = endpoint.query_pairs().find(|(name, _)| RESERVED.contains(&&**name)) {
            let reason = format!("an `authorization_endpoint` must not have the parameter `{name}`");
            return Err(invalid(endpoint, reason));
        }
        let (state, verifier) = (random_text()?, random_text()?);
        let mut url = endpoint.clone();
        {
            let mut query = url.query_pairs_mut();
            query.append_pair("response_type", "code");
            query.append_pair("client_id", &client.client_id);
            query.append_pair("redirect_uri", redirect_uri);
            query.append_pair("state", &state);
            query.append_pair("code_challenge", &sha256_base64url(&verifier));
            query.append_pair("code_challenge_method", "S256");
            query.append_pair("resource", &discovery.resource);
            if !scopes.is_empty() {
                query.append_pair("scope", &scopes.join(" "));
            }
            if scopes.iter().any(|scope| scope == OFFLINE_ACCESS) {
                // https://openid.net/specs/openid-connect-core-1_0.html#OfflineAccess
                query.append_pair("prompt", "consent");
            }
            if let Some(thumbprint) = dpop_thumbprint {
                query.append_pair("dpop_jkt", thumbprint);
            }
        }
        Ok(Self {
            url,
            redirect_uri: parse_redirect_uri(redirect_uri)?,
            state: Secret::new(state),
            verifier: Secret::new(verifier),
            issuer: server.issuer.clone(),
            sends_issuer: server.sends_issuer,
            created: Instant::now(),
        })
    }

    /// Returns `true` if a callback belongs to this request. Other pages can call the port, too.
    pub(super) fn check_state(&self, callback: &str) -> Result<(), OAuthError> {
        let callback = self.parse(callback)?;
        match &callback.state {
            Some(state) if is_equal(state, self.state.expose()) => Ok(()),
            state => {
                let got = if state.is_some() { "another value" } else { "none" };
                Err(OAuthError::mismatch("state of the callback", "the value of this sign-in", got))
            }
        }
    }

    /// Returns the code in a callback whose state was checked.
    pub(super) fn finish(self, callback: &str, redactor: &Redactor) -> Result<AuthorizationCode, OAuthError> {
        self.check_state(callback)?;
        let callback = self.parse(callback)?;
        // Comparison is exact: https://www.rfc-editor.org/rfc/rfc9207#section-2.4
        match &callback.iss {
            Some(iss) if *iss != self.issuer => {
                return Err(OAuthError::mismatch("`iss` parameter of the callback", &self.issuer, iss));
            }
            None if self.sends_issuer => {
                return Err(OAuthError::mismatch("`iss` parameter of the callback", &self.issuer, "none"));
            }
            _ => {}
        }
        if self.created.elapsed() > MAX_AGE {
            return Err(OAuthError::Expired);
        }
        if let Some(error) = &callback.error {
            let description = callback.error_description.as_deref();
            return Err(match error.as_str() {
                "access_denied" => OAuthError::Denied { description: description.map(|text| shown(text, redactor)) },
                code => refused(code, description, redactor),
            });
        }
        let code = callback.code.filter(|code| !code.is_empty() && code.len() <= MAX_CODE);
        let code = code.ok_or_else(|| self.invalid("it has no `code`"))?;
        let redirect_uri = self.redirect_uri.to_string();
        Ok(AuthorizationCode { code: Secret::new(code), verifier: self.verifier, redirect_uri })
    }

    /// Parses a callback: its URL, or the query alone.
    fn parse(&self, callback: &str) -> Result<Callback, OAuthError> {
        let callback = callback.trim();
        if callback.len() > MAX_CALLBACK {
            return Err(self.invalid("it is too long"));
        }
        let url = match Url::parse(callback) {
            Ok(url) => url,
            Err(_) => {
                let mut url = self.redirect_uri.clone();
                let query = callback.rsplit_once('?').map_or(callback, |(_, query)| query);
                url.set_query(Some(query));
                url
            }
        };
        let place = |url: &Url| (url.origin(), url.path().to_owned());
        if place(&url) != place(&self.redirect_uri) {
            let expected = self.redirect_uri.as_str();
            return Err(OAuthError::mismatch(
                "address of the callback",
                expected,
                url.as_str().split('?').next().unwrap_or(""),
            ));
        }
        let mut found = Callback::default();
        for (name, value) in url.query_pairs() {
            let field = match &*name {
                "code" => &mut found.code,
                "state" => &mut found.state,
                "iss" => &mut found.iss,
                "error" => &mut found.error,
                "error_description" => &mut found.error_description,
                _ => continue,
            };
            if field.replace(value.into_owned()).is_some() {
                return Err(self.invalid(&format!("it has `{name}` twice")));
            }
        }
        Ok(found)
    }

    fn invalid(&self, reason: &str) -> OAuthError {
        OAuthError::Invalid { url: self.redirect_uri.to_string(), reason: format!("the callback is invalid: {reason}") }
    }
}

/// Parses a redirect URI: `https`, or `http` on this machine
/// ([RFC 8252, section 7.3](https://www.rfc-editor.org/rfc/rfc8252#section-7.3)).
fn parse_redirect_uri(text: &str) -> Result<Url, OAuthError> {
    let is_local = |url: &Url| matches!(url.host_str(), Some("127.0.0.1" | "[::1]" | "localhost"));
    let is_fine =
        |url: &Url| (url.scheme() == "https" || (url.scheme() == "http" && is_local(url))) && url.fragment().is_none();
    Url::parse(text).ok().filter(is_fine).ok_or_else(|| OAuthError::Settings {
        reason: "the redirect URI must be an `https` URL, or an `http` URL of this machine".to_owned(),
    })
}

/// Compares texts in a time that does not depend on where they differ.
fn is_equal(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().zip(other.bytes()).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::oauth::guard::OutboundGuard;
    use crate::oauth::metadata::AuthorizationServer;

    const REDIRECT: &str = "http://127.0.0.1:4444/callback";

    fn discovery() -> Discovery {
        let url = Url::parse("https://a.example/").expect("a URL");
        let server = AuthorizationServer::without_metadata(&url, &OutboundGuard::new(&url, &[])).expect("a server");
        Discovery {
            resource: "https://a.example/mcp".to_owned(),
            scopes_supported: Vec::new(),
            dpop_required: false,
            server: AuthorizationServer { sends_issuer: true, ..server },
        }
    }

    fn request(discovery: &Discovery) -> AuthorizationRequest {
        let client = RegisteredClient::public("me");
        AuthorizationRequest::new(discovery, &client, REDIRECT, &["a".to_owned()], None).expect("a request")
    }

    #[test]
    fn an_endpoint_that_sets_parameters_of_the_client_is_refused() {
        for name in RESERVED {
            let mut discovery = discovery();
            let endpoint = format!("https://a.example/auth?tenant=7&{name}=x");
            discovery.server.authorization_endpoint = Some(Url::parse(&endpoint).expect("a URL"));
            let client = RegisteredClient::public("me");
            let refused = AuthorizationRequest::new(&discovery, &client, REDIRECT, &[], None).err();
            assert!(matches!(refused, Some(OAuthError::Invalid { .. })), "{name}");
        }
    }

    fn state(request: &AuthorizationRequest) -> String {
        request.state.expose().to_owned()
    }

    #[test]
    fn the_url_has_pkce_state_and_resource() {
        let mut discovery = discovery();
        discovery.server.authorization_endpoint = Some(Url::parse("https://a.example/auth?tenant=7").expect("a URL"));
        let client = RegisteredClient::public("me");
        let scopes = ["a".to_owned(), OFFLINE_ACCESS.to_owned()];
        let request =
            AuthorizationRequest::new(&discovery, &client, REDIRECT, &scopes, Some("key")).expect("a request");
        let query: HashMap<String, String> = request.url.query_pairs().into_owned().collect();
        for (name, value) in [
            ("tenant", "7"),
            ("response_type", "code"),
            ("client_id", "me"),
            ("redirect_uri", REDIRECT),
            ("code_challenge_method", "S256"),
            ("resource", "https://a.example/mcp"),
            ("scope", "a offline_access"),
            ("prompt", "consent"),
            ("dpop_jkt", "key"),
            ("state", request.state.expose()),
            ("code_challenge", &sha256_base64url(request.verifier.expose())),
        ] {
            assert_eq!(query.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert_eq!(query.len(), 11);
    }

    #[test]
    fn a_server_without_pkce_is_refused() {
        let mut discovery = discovery();
        discovery.server.supports_s256 = false;
        let result = AuthorizationRequest::new(&discovery, &RegisteredClient::public("me"), REDIRECT, &[], None);
        assert!(matches!(result, Err(OAuthError::Unsupported { .. })));
    }

    #[test]
    fn a_callback_gives_its_code_as_a_url_or_as_a_query() {
        for prefix in ["http://127.0.0.1:4444/callback?", "/callback?", "?", ""] {
            let request = request(&discovery());
            let callback = format!("{prefix}code=c0de&state={}&iss=https%3A%2F%2Fa.example", state(&request));
            let code = request.finish(&callback, &Redactor::default()).expect("a code");
            assert_eq!((code.code.expose(), code.redirect_uri.as_str()), ("c0de", REDIRECT));
        }
    }

    #[test]
    fn a_callback_with_another_state_is_refused() {
        let request = request(&discovery());
        for query in ["code=c&state=other&iss=https://a.example", "code=c&iss=https://a.example", "error=access_denied"]
        {
            assert!(matches!(request.check_state(&format!("{REDIRECT}?{query}")), Err(OAuthError::Mismatch { .. })));
        }
    }

    #[test]
    fn iss_is_compared_exactly() {
        let finish = |sends: bool, iss: &str| {
            let mut discovery = discovery();
            discovery.server.sends_issuer = sends;
            let request = request(&discovery);
            let callback = format!("{REDIRECT}?code=c&state={}{iss}", state(&request));
            request.finish(&callback, &Redactor::default())
        };
        assert!(finish(true, "&iss=https://a.example").is_ok());
        assert!(finish(false, "").is_ok());
        for (sends, iss) in [
            (true, ""),
            (true, "&iss="),
            (true, "&iss=https://evil.example"),
            (false, "&iss=https://evil.example"),
            (true, "&iss=https://a.example/"),
            (true, "&iss=HTTPS://A.example"),
            (true, "&iss=https://a.example:443"),
        ] {
            assert!(matches!(finish(sends, iss), Err(OAuthError::Mismatch { .. })), "{iss}");
        }
        assert!(finish(true, "&iss=https://a.example&iss=https://a.example").is_err());
    }

    #[test]
    fn errors_of_the_callback_are_reported_after_its_checks() {
        let finish = |query: &str| {
            let request = request(&discovery());
            let callback = format!("{REDIRECT}?{query}&state={}", state(&request));
            request.finish(&callback, &Redactor::default())
        };
        let iss = "iss=https://a.example";
        let denied = finish(&format!("error=access_denied&error_description=No%1B&{iss}")).expect_err("denied");
        assert_eq!(denied.to_string(), "the sign-in was declined: No");
        let refused = finish(&format!("error=invalid_scope&{iss}")).expect_err("refused");
        assert!(matches!(refused, OAuthError::Refused { error, .. } if error == "invalid_scope"));
        assert!(matches!(finish("error=access_denied"), Err(OAuthError::Mismatch { .. })));
        assert!(matches!(finish(iss), Err(OAuthError::Invalid { .. })));
    }

    #[test]
    fn a_callback_at_another_address_is_refused() {
        for address in ["http://127.0.0.1:5555/callback", "https://127.0.0.1:4444/callback", "http://127.0.0.1:4444/x"]
        {
            let request = request(&discovery());
            let callback = format!("{address}?code=c&state={}&iss=https://a.example", state(&request));
            assert!(matches!(request.finish(&callback, &Redactor::default()), Err(OAuthError::Mismatch { .. })));
        }
    }

    #[test]
    fn a_redirect_to_http_on_another_machine_is_refused() {
        for bad in ["http://a.example/callback", "ftp://127.0.0.1/", "callback", "http://127.0.0.1/#x"] {
            assert!(parse_redirect_uri(bad).is_err(), "{bad}");
        }
        for fine in ["https://a.example/callback", "http://[::1]:1/", "http://localhost:1/c"] {
            assert!(parse_redirect_uri(fine).is_ok(), "{fine}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_callback_that_comes_too_late_is_refused() {
        let request = request(&discovery());
        tokio::time::advance(MAX_AGE + Duration::from_secs(1)).await;
        let callback = format!("{REDIRECT}?code=c&state={}&iss=https://a.example", state(&request));
        assert!(matches!(request.finish(&callback, &Redactor::default()), Err(OAuthError::Expired)));
    }
}
