//! Metadata: protected resources ([RFC 9728](https://www.rfc-editor.org/rfc/rfc9728)) and authorization servers ([RFC 8414](https://www.rfc-editor.org/rfc/rfc8414)).

use reqwest::Url;
use serde_json::{Map, Value};

use super::error::OAuthError;
use super::guard::OutboundGuard;
use super::http::invalid;
use super::text::is_hidden;

/// Maximum number of list entries to read. Further ones are ignored.
const MAX_ENTRIES: usize = 200;

/// Maximum text length, in bytes. Longer texts count as missing.
const MAX_TEXT: usize = 2048;

/// A protected resource's metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ResourceMetadata {
    pub(super) resource: String,
    pub(super) authorization_servers: Vec<String>,
    pub(super) scopes_supported: Vec<String>,
    /// Whether the resource accepts only tokens that are bound to a key.
    pub(super) dpop_required: bool,
}

/// An authorization server. All URLs are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AuthorizationServer {
    /// The identifier, exactly as the metadata writes it.
    pub(crate) issuer: String,
    pub(crate) authorization_endpoint: Option<Url>,
    pub(crate) token_endpoint: Url,
    pub(crate) registration_endpoint: Option<Url>,
    pub(crate) device_authorization_endpoint: Option<Url>,
    pub(crate) revocation_endpoint: Option<Url>,
    pub(crate) scopes_supported: Vec<String>,
    /// The client authentication methods. Empty if the metadata does not list them.
    pub(crate) auth_methods: Vec<String>,
    /// Whether PKCE with S256 is supported.
    pub(crate) supports_s256: bool,
    /// Whether a URL can be a client's id.
    pub(crate) accepts_client_metadata_url: bool,
    /// Whether every callback has the parameter `iss` ([RFC 9207](https://www.rfc-editor.org/rfc/rfc9207)).
    pub(crate) sends_issuer: bool,
    /// Whether the server has no metadata, so that its endpoints are only assumed.
    pub(crate) is_assumed: bool,
}

impl ResourceMetadata {
    pub(super) fn read(url: &Url, document: &Map<String, Value>) -> Result<Self, OAuthError> {
        let Some(resource) = text(document, "resource") else { return Err(invalid(url, "it has no `resource`")) };
        Ok(Self {
            resource,
            authorization_servers: texts(document, "authorization_servers"),
            scopes_supported: texts(document, "scopes_supported"),
            dpop_required: flag(document, "dpop_bound_access_tokens_required"),
        })
    }

    /// Returns the assumed metadata for a server without any.
    pub(super) fn unknown(server: &Url) -> Self {
        Self {
            resource: canonical(server),
            authorization_servers: Vec::new(),
            scopes_supported: Vec::new(),
            dpop_required: false,
        }
    }

    /// Checks that the metadata is about this server: the resource is its URL, or a prefix of it.
    pub(super) fn check_resource(&self, server: &Url) -> Result<(), OAuthError> {
        let is_prefix = |resource: Url| {
            let path = resource.path().trim_end_matches('/');
            let behind = server.path().strip_prefix(path);
            resource.origin() == server.origin()
                && resource.fragment().is_none()
                && resource.query().is_none_or(|query| server.query() == Some(query))
                && behind.is_some_and(|behind| behind.is_empty() || behind.starts_with('/'))
        };
        if Url::parse(&self.resource).is_ok_and(is_prefix) {
            Ok(())
        } else {
            Err(OAuthError::mismatch("resource of the server's metadata", &canonical(server), &self.resource))
        }
    }
}

impl AuthorizationServer {
    /// Reads metadata that was found at `url`.
    pub(super) fn read(url: &Url, document: &Map<String, Value>, guard: &OutboundGuard) -> Result<Self, OAuthError> {
        let endpoint = |name: &str| match text(document, name) {
            None => Ok(None),
            Some(text) => {
                let parsed = Url::parse(&text).map_err(|_| invalid(url, format!("`{name}` is not a URL")))?;
                Ok(Some(parsed))
            }
        };
        let checked = |name: &str| {
            let endpoint = endpoint(name)?;
            endpoint.map(|endpoint| guard.check(&endpoint).map(|()| endpoint)).transpose()
        };
        let authorization_endpoint = endpoint("authorization_endpoint")?;
        if let Some(endpoint) = &authorization_endpoint {
            guard.check_for_browser(endpoint)?;
        }
        Ok(Self {
            issuer: text(document, "issuer").ok_or_else(|| invalid(url, "it has no `issuer`"))?,
            authorization_endpoint,
            token_endpoint: checked("token_endpoint")?.ok_or_else(|| invalid(url, "it has no `token_endpoint`"))?,
            registration_endpoint: checked("registration_endpoint")?,
            device_authorization_endpoint: checked("device_authorization_endpoint")?,
            revocation_endpoint: checked("revocation_endpoint")?,
            scopes_supported: texts(document, "scopes_supported"),
            auth_methods: texts(document, "token_endpoint_auth_methods_supported"),
            supports_s256: texts(document, "code_challenge_methods_supported").iter().any(|method| method == "S256"),
            accepts_client_metadata_url: flag(document, "client_id_metadata_document_supported"),
            sends_issuer: flag(document, "authorization_response_iss_parameter_supported"),
            is_assumed: false,
        })
    }

    /// Returns the endpoints for a server without metadata
    /// ([2025-03-26](https://modelcontextprotocol.io/specification/2025-03-26/basic/authorization#fallbacks-for-servers-without-metadata-discovery)).
    pub(super) fn without_metadata(origin: &Url, guard: &OutboundGuard) -> Result<Self, OAuthError> {
        let at = |path: &str| at_path(origin, path);
        let token_endpoint = at("/token");
        guard.check(&token_endpoint)?;
        Ok(Self {
            issuer: canonical(&at("/")),
            authorization_endpoint: Some(at("/authorize")),
            token_endpoint,
            registration_endpoint: Some(at("/register")),
            device_authorization_endpoint: None,
            revocation_endpoint: None,
            scopes_supported: Vec::new(),
            auth_methods: Vec::new(),
            supports_s256: true,
            accepts_client_metadata_url: false,
            sends_issuer: false,
            is_assumed: true,
        })
    }
}

/// Returns a URL with another path, and without query and fragment.
pub(super) fn at_path(url: &Url, path: &str) -> Url {
    let mut url = url.clone();
    url.set_path(path);
    url.set_query(None);
    url.set_fragment(None);
    url
}

/// Returns a server's canonical URI ([Canonical Server
/// URI](https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization#canonical-server-uri)).
pub(super) fn canonical(url: &Url) -> String {
    let mut url = url.clone();
    url.set_fragment(None);
    // These fail for URLs without a host, which have no user either.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    let is_root = url.path() == "/" && url.query().is_none();
    let text = url.as_str();
    if is_root { text.trim_end_matches('/').to_owned() } else { text.to_owned() }
}

fn text(document: &Map<String, Value>, name: &str) -> Option<String> {
    document.get(name)?.as_str().filter(|text| is_acceptable(text)).map(str::to_owned)
}

fn texts(document: &Map<String, Value>, name: &str) -> Vec<String> {
    let entries = document.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let texts = entries.iter().filter_map(Value::as_str).filter(|text| is_acceptable(text));
    texts.take(MAX_ENTRIES).map(str::to_owned).collect()
}

/// Returns `true` for a metadata text that can be used. Programs show issuers and scopes, so characters that control a terminal
/// are not accepted.
fn is_acceptable(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_TEXT && !text.chars().any(is_hidden)
}

fn flag(document: &Map<String, Value>, name: &str) -> bool {
    document.get(name).and_then(Value::as_bool).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).expect("a URL")
    }

    fn object(value: &Value) -> Map<String, Value> {
        value.as_object().expect("an object").clone()
    }

    #[test]
    fn the_resource_is_the_server_or_a_prefix_on_its_origin() {
        let check = |resource: &str, server: &str| {
            let document = object(&json!({"resource": resource}));
            let metadata = ResourceMetadata::read(&url("https://a.example/"), &document).expect("metadata");
            metadata.check_resource(&url(server)).is_ok()
        };
        let server = "https://mcp.example/team/mcp";
        for fine in ["https://mcp.example/team/mcp", "https://MCP.example:443/team/", "https://mcp.example"] {
            assert!(check(fine, server), "{fine}");
        }
        for bad in [
            "https://mcp.example/team/mcp/v1",
            "https://mcp.example/te",
            "https://evil.example/team/mcp",
            "http://mcp.example/team/mcp",
            "https://mcp.example:8443/team/mcp",
            "https://mcp.example/team/mcp#x",
            "mcp",
        ] {
            assert!(!check(bad, server), "{bad}");
        }
    }

    #[test]
    fn endpoints_on_private_addresses_are_refused() {
        let guard = OutboundGuard::new(&url("https://mcp.example/"), &[]);
        let source = url("https://auth.example/.well-known/oauth-authorization-server");
        let read = |name: &str, value: &str| {
            let mut document =
                json!({"issuer": "https://auth.example", "token_endpoint": "https://auth.example/token"});
            document[name] = value.into();
            AuthorizationServer::read(&source, &object(&document), &guard)
        };
        for name in ["token_endpoint", "registration_endpoint", "device_authorization_endpoint", "revocation_endpoint"]
        {
            assert!(matches!(read(name, "https://10.0.0.1/x"), Err(OAuthError::Blocked { .. })), "{name}");
            assert!(matches!(read(name, "http://auth.example/x"), Err(OAuthError::Blocked { .. })), "{name}");
            assert!(matches!(read(name, "/token"), Err(OAuthError::Invalid { .. })), "{name}");
            assert!(read(name, "https://other.example/x").is_ok(), "{name}");
        }
        assert!(read("authorization_endpoint", "javascript:alert(1)").is_err());
        assert!(!read("authorization_endpoint", "https://auth.example/a").expect("a server").supports_s256);
    }

    #[test]
    fn texts_that_control_a_terminal_are_not_read() {
        let document = object(&json!({
            "resource": "https://a.example", "authorization_servers": ["https://\u{1b}[2J.example", "https://b.example/\u{202e}", "https://c.example"],
            "scopes_supported": ["a\u{7}", "b"],
        }));
        let metadata = ResourceMetadata::read(&url("https://a.example/"), &document).expect("metadata");
        assert_eq!(metadata.authorization_servers, ["https://c.example"]);
        assert_eq!(metadata.scopes_supported, ["b"]);
        let document =
            object(&json!({"issuer": "https://a.example/\u{1b}[2J", "token_endpoint": "https://a.example/t"}));
        let guard = OutboundGuard::new(&url("https://a.example/"), &[]);
        assert!(AuthorizationServer::read(&url("https://a.example/"), &document, &guard).is_err());
    }

    #[test]
    fn the_canonical_uri_of_a_server_has_no_fragment_and_no_bare_slash() {
        assert_eq!(canonical(&url("HTTPS://MCP.Example:443/#x")), "https://mcp.example");
        assert_eq!(canonical(&url("https://u:p@mcp.example/mcp/?a=1")), "https://mcp.example/mcp/?a=1");
    }
}
