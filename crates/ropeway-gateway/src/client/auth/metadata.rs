//! The gateway's protected-resource metadata, and challenges for clients without a valid token.
//!
//! See [RFC 9728](https://www.rfc-editor.org/rfc/rfc9728) and
//! [Authorization](https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization).

use serde_json::{Value, json};

use ropeway_config::JwtSettings;

/// The metadata path. The resource's path follows.
pub(crate) const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";

/// The gateway's path, if its URL is not configured.
const DEFAULT_PATH: &str = "/mcp";

/// The error for a request without a valid token, as in [RFC 6750](https://www.rfc-editor.org/rfc/rfc6750#section-3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// The request has no token.
    Missing,
    /// The token is not valid.
    InvalidToken(&'static str),
    /// The token is valid, but does not have the required scopes.
    InsufficientScope,
}

/// Returns the gateway's public URL. `host` is a request's `Host`.
fn resource(settings: &JwtSettings, host: Option<&str>) -> Option<String> {
    let is_url = |text: &&String| text.starts_with("https://") || text.starts_with("http://");
    let configured = settings.resource.as_ref().or_else(|| settings.audience.iter().find(is_url));
    configured.cloned().or_else(|| Some(format!("http://{}{DEFAULT_PATH}", host?)))
}

/// Returns a resource's metadata URL.
fn metadata_url(resource: &str) -> String {
    let start = resource.find("://").map_or(0, |at| at + 3);
    let end = resource[start..].find(['/', '?', '#']).map_or(resource.len(), |at| start + at);
    let path = resource[end..].split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
    format!("{}{METADATA_PATH}{path}", &resource[..end])
}

/// Returns the gateway's metadata.
pub(crate) fn resource_metadata(settings: &JwtSettings, name: &str, host: Option<&str>) -> Option<Value> {
    let mut metadata = json!({
        "resource": resource(settings, host)?,
        "authorization_servers": [settings.issuer],
        "bearer_methods_supported": ["header"],
        "resource_name": name,
    });
    if !settings.scopes.is_empty() {
        metadata["scopes_supported"] = json!(settings.scopes);
    }
    Some(metadata)
}

/// Returns the `WWW-Authenticate` value. Without `settings`, clients need a key.
pub(crate) fn challenge(settings: Option<&JwtSettings>, host: Option<&str>, challenge: Challenge) -> String {
    let mut parts = Vec::new();
    match challenge {
        Challenge::Missing => {}
        Challenge::InvalidToken(reason) => {
            parts.push("error=\"invalid_token\"".to_owned());
            // Quotes would end the value.
            parts.push(format!("error_description=\"{}\"", reason.replace(['"', '\\', '`'], "'")));
        }
        Challenge::InsufficientScope => parts.push("error=\"insufficient_scope\"".to_owned()),
    }
    if let Some(settings) = settings {
        if !settings.scopes.is_empty() {
            parts.push(format!("scope=\"{}\"", settings.scopes.join(" ")));
        }
        let url = resource(settings, host).map(|resource| metadata_url(&resource));
        parts.extend(url.map(|url| format!("resource_metadata=\"{url}\"")));
    }
    if parts.is_empty() { "Bearer".to_owned() } else { format!("Bearer {}", parts.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> JwtSettings {
        JwtSettings::new("https://auth.example", "https://gateway.example/mcp")
    }

    #[test]
    fn metadata_names_the_authorization_server() {
        let metadata = resource_metadata(&settings().with_scopes(vec!["mcp".to_owned()]), "team", None);
        assert_eq!(
            metadata,
            Some(json!({
                "resource": "https://gateway.example/mcp", "authorization_servers": ["https://auth.example"],
                "bearer_methods_supported": ["header"], "resource_name": "team", "scopes_supported": ["mcp"],
            }))
        );
    }

    #[test]
    fn the_url_of_the_metadata_contains_the_path_of_the_resource() {
        for (resource, expected) in [
            ("https://a.example/mcp", "https://a.example/.well-known/oauth-protected-resource/mcp"),
            ("https://a.example:8443/x/mcp/", "https://a.example:8443/.well-known/oauth-protected-resource/x/mcp"),
            ("https://a.example", "https://a.example/.well-known/oauth-protected-resource"),
            ("https://a.example/?x=/y", "https://a.example/.well-known/oauth-protected-resource"),
        ] {
            assert_eq!(metadata_url(resource), expected);
        }
    }

    #[test]
    fn a_challenge_names_what_is_missing() {
        assert_eq!(challenge(None, Some("h"), Challenge::Missing), "Bearer");
        assert_eq!(
            challenge(None, None, Challenge::InvalidToken("the token has no `exp`")),
            "Bearer error=\"invalid_token\", error_description=\"the token has no 'exp'\""
        );
        let settings = settings().with_scopes(vec!["mcp".to_owned(), "read".to_owned()]);
        assert_eq!(
            challenge(Some(&settings), None, Challenge::InsufficientScope),
            "Bearer error=\"insufficient_scope\", scope=\"mcp read\", \
             resource_metadata=\"https://gateway.example/.well-known/oauth-protected-resource/mcp\""
        );
        let named = JwtSettings::new("https://auth.example", "api");
        assert_eq!(
            challenge(Some(&named), Some("localhost:1"), Challenge::Missing),
            "Bearer resource_metadata=\"http://localhost:1/.well-known/oauth-protected-resource/mcp\""
        );
        assert_eq!(challenge(Some(&named), None, Challenge::Missing), "Bearer");
    }
}
