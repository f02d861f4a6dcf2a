//! Finds a protected server's authorization server.

use std::time::Duration;

use reqwest::Url;

use super::challenge::{Challenge, ChallengeScheme};
use super::error::OAuthError;
use super::guard::blocked;
use super::http::{JsonResponse, OAuthHttp, invalid};
use super::metadata::{AuthorizationServer, ResourceMetadata, at_path, canonical};
use super::text::{shown, shown_url};

/// Maximum discovery time, over all locations.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of authorization servers to try for one resource.
const MAX_SERVERS: usize = 4;

/// The authorization server, the resource and the scopes for token requests.
#[derive(Clone, Debug)]
pub(crate) struct Discovery {
    /// The `resource` value ([RFC 8707](https://www.rfc-editor.org/rfc/rfc8707)).
    pub(crate) resource: String,
    /// The scopes that the resource supports.
    pub(crate) scopes_supported: Vec<String>,
    /// Whether the resource accepts only tokens that are bound to a key.
    pub(crate) dpop_required: bool,
    pub(crate) server: AuthorizationServer,
}

/// Finds the authorization server for `server`. `issuer` is the only accepted one, if it is set.
pub(crate) async fn discover(
    http: &OAuthHttp,
    server: &Url,
    challenge: Option<&Challenge>,
    issuer: Option<&str>,
) -> Result<Discovery, OAuthError> {
    let found = tokio::time::timeout(TIMEOUT, discover_all(http, server, challenge, issuer)).await;
    found.map_err(|_| OAuthError::Timeout { url: shown_url(server) })?
}

async fn discover_all(
    http: &OAuthHttp,
    server: &Url,
    challenge: Option<&Challenge>,
    issuer: Option<&str>,
) -> Result<Discovery, OAuthError> {
    let wants_dpop = challenge.is_some_and(|challenge| challenge.scheme == ChallengeScheme::Dpop);
    let (metadata, failure) = match resource_metadata(http, server, challenge).await? {
        Lookup::Found(metadata) => (metadata, None),
        // Servers that implement 2025-03-26 have no resource metadata.
        Lookup::Missing(failure) => (ResourceMetadata::unknown(server), failure),
    };
    metadata.check_resource(server)?;
    let found = authorization_server(http, server, &metadata.authorization_servers, issuer, failure).await?;
    Ok(Discovery {
        resource: metadata.resource,
        scopes_supported: metadata.scopes_supported,
        dpop_required: metadata.dpop_required || wants_dpop,
        server: found,
    })
}

/// A lookup's result, over several locations.
enum Lookup<T> {
    Found(T),
    /// No location has the document. Contains the first failure other than "not found", if any.
    Missing(Option<OAuthError>),
}

/// Fetches the document at one location. Returns `None` if it does not exist, or if the request failed; the first failure is kept
/// in `failure`.
async fn fetch_if_present(
    http: &OAuthHttp,
    url: &Url,
    failure: &mut Option<OAuthError>,
) -> Result<Option<JsonResponse>, OAuthError> {
    match http.get(url).await {
        Ok(response) => Ok(Some(response).filter(|response| !response.is_missing())),
        Err(error @ OAuthError::Blocked { .. }) => Err(error),
        Err(error) => {
            failure.get_or_insert(error);
            Ok(None)
        }
    }
}

/// Fetches the server's metadata: from the URL in the challenge, and from the well-known locations.
async fn resource_metadata(
    http: &OAuthHttp,
    server: &Url,
    challenge: Option<&Challenge>,
) -> Result<Lookup<ResourceMetadata>, OAuthError> {
    let mut failure = None;
    for (url, is_named) in resource_metadata_urls(server, challenge)? {
        let Some(response) = fetch_if_present(http, &url, &mut failure).await? else { continue };
        match response.into_object().and_then(|document| ResourceMetadata::read(&url, &document)) {
            Ok(metadata) => return Ok(Lookup::Found(metadata)),
            // Other locations may serve a page for every path, but this one was named.
            Err(error) if is_named => return Err(error),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    Ok(Lookup::Missing(failure))
}

/// Returns the metadata locations, and whether the challenge names them.
fn resource_metadata_urls(server: &Url, challenge: Option<&Challenge>) -> Result<Vec<(Url, bool)>, OAuthError> {
    let mut urls = Vec::new();
    if let Some(text) = challenge.and_then(|challenge| challenge.resource_metadata.as_deref()) {
        let named =
            server.join(text).map_err(|_| invalid(server, "`resource_metadata` of its challenge is not a URL"))?;
        if named.origin() != server.origin() {
            return blocked(&named, "the metadata of a server must have the origin of the server");
        }
        urls.push((named, true));
    }
    let path = server.path().trim_end_matches('/');
    let mut add = |path: &str| {
        let url = at_path(server, &format!("/.well-known/oauth-protected-resource{path}"));
        if urls.iter().all(|(known, _)| *known != url) {
            urls.push((url, false));
        }
    };
    add(path);
    add("");
    Ok(urls)
}

/// Returns the pinned authorization server, the first named one that works, or the one at the server's origin.
async fn authorization_server(
    http: &OAuthHttp,
    server: &Url,
    named: &[String],
    pinned: Option<&str>,
    failure: Option<OAuthError>,
) -> Result<AuthorizationServer, OAuthError> {
    if let Some(pinned) = pinned {
        if !named.is_empty() && !named.iter().any(|issuer| is_same_issuer(issuer, pinned)) {
            return Err(OAuthError::mismatch("issuer", pinned, &named.join(" ")));
        }
        return metadata_of(http, pinned).await;
    }
    let mut failure = failure;
    for issuer in named.iter().take(MAX_SERVERS) {
        match metadata_of(http, issuer).await {
            Ok(found) => return Ok(found),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    match failure {
        Some(error) if !named.is_empty() => Err(error),
        failure => server_at_origin(http, server, failure).await,
    }
}

/// Returns the authorization server at the origin of a server without metadata
/// ([2025-03-26](https://modelcontextprotocol.io/specification/2025-03-26/basic/authorization)).
async fn server_at_origin(
    http: &OAuthHttp,
    server: &Url,
    failure: Option<OAuthError>,
) -> Result<AuthorizationServer, OAuthError> {
    match issuer_metadata(http, &canonical(&at_path(server, "/"))).await? {
        // Servers with that version may omit the PKCE methods; they have to support S256.
        Lookup::Found(found) => Ok(AuthorizationServer { supports_s256: true, ..found }),
        Lookup::Missing(other) => match failure.or(other) {
            Some(error) => Err(error),
            None => AuthorizationServer::without_metadata(server, http.guard()),
        },
    }
}

/// Returns an issuer's metadata.
pub(super) async fn metadata_of(http: &OAuthHttp, issuer: &str) -> Result<AuthorizationServer, OAuthError> {
    match issuer_metadata(http, issuer).await? {
        Lookup::Found(found) => Ok(found),
        Lookup::Missing(Some(error)) => Err(error),
        Lookup::Missing(None) => {
            let issuer = shown(issuer.split('?').next().unwrap_or_default(), http.redactor());
            Err(OAuthError::unsupported(format!("the authorization server `{issuer}` has no metadata")))
        }
    }
}

async fn issuer_metadata(http: &OAuthHttp, issuer: &str) -> Result<Lookup<AuthorizationServer>, OAuthError> {
    let Ok(base) = Url::parse(issuer) else {
        let url = shown(issuer.split('?').next().unwrap_or_default(), http.redactor());
        return Err(OAuthError::Invalid { url, reason: "not a URL".to_owned() });
    };
    let mut failure = None;
    for url in issuer_metadata_urls(&base) {
        let Some(response) = fetch_if_present(http, &url, &mut failure).await? else { continue };
        let document = match response.into_object() {
            Ok(document) => document,
            Err(error) => {
                failure = failure.or(Some(error));
                continue;
            }
        };
        let found = AuthorizationServer::read(&url, &document, http.guard())?;
        return if is_same_issuer(&found.issuer, issuer) {
            Ok(Lookup::Found(found))
        } else {
            Err(OAuthError::mismatch("issuer", issuer, &found.issuer))
        };
    }
    Ok(Lookup::Missing(failure))
}

/// Returns `true` for equal issuers ([RFC 8414, section 3.3](https://www.rfc-editor.org/rfc/rfc8414#section-3.3)).
///
/// Equality is exact, except for an empty path's slash: URL libraries add or remove it when a server prints its metadata, and
/// both forms have the same metadata URL.
pub(super) fn is_same_issuer(one: &str, other: &str) -> bool {
    let is_root = |text: &str| Url::parse(text).is_ok_and(|url| url.path() == "/" && url.query().is_none());
    one == other || (one.trim_end_matches('/') == other.trim_end_matches('/') && is_root(one) && is_root(other))
}

/// Returns where an issuer's metadata may be, in the order that the specification lists
/// ([Authorization Server Metadata Discovery](https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization#authorization-server-metadata-discovery)).
fn issuer_metadata_urls(issuer: &Url) -> Vec<Url> {
    let path = issuer.path().trim_end_matches('/');
    let mut paths = vec![
        format!("/.well-known/oauth-authorization-server{path}"),
        format!("/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        paths.push(format!("{path}/.well-known/openid-configuration"));
    }
    paths.iter().map(|path| at_path(issuer, path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).expect("a URL")
    }

    fn challenge(metadata: &str) -> Challenge {
        Challenge { resource_metadata: Some(metadata.to_owned()), ..Challenge::default() }
    }

    #[test]
    fn metadata_of_a_server_is_looked_for_at_the_named_and_the_well_known_places() {
        let urls = |server: &str, challenge: Option<&Challenge>| -> Vec<String> {
            let urls = resource_metadata_urls(&url(server), challenge).expect("URLs");
            urls.into_iter().map(|(url, _)| url.path().to_owned()).collect()
        };
        let (nested, root) = ("/.well-known/oauth-protected-resource/a/mcp", "/.well-known/oauth-protected-resource");
        assert_eq!(urls("https://a.example/a/mcp/?x=1", None), [nested, root]);
        assert_eq!(urls("https://a.example/", None), [root]);
        let named = challenge("https://a.example/custom");
        assert_eq!(urls("https://a.example/a/mcp", Some(&named)), ["/custom", nested, root]);
        let named = challenge("https://a.example/.well-known/oauth-protected-resource");
        assert_eq!(urls("https://a.example/a/mcp", Some(&named)), [root, nested]);
    }

    #[test]
    fn metadata_at_another_origin_is_refused() {
        for named in ["https://evil.example/x", "http://a.example/x", "https://a.example:444/x", "//evil.example/x"] {
            let result = resource_metadata_urls(&url("https://a.example/mcp"), Some(&challenge(named)));
            assert!(matches!(result, Err(OAuthError::Blocked { .. })), "{named}");
        }
    }

    #[test]
    fn metadata_of_an_issuer_has_three_places() {
        let paths = |issuer: &str| -> Vec<String> {
            issuer_metadata_urls(&url(issuer)).iter().map(|url| url.path().to_owned()).collect()
        };
        assert_eq!(
            paths("https://a.example/"),
            ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"]
        );
        assert_eq!(
            paths("https://a.example/t1"),
            [
                "/.well-known/oauth-authorization-server/t1",
                "/.well-known/openid-configuration/t1",
                "/t1/.well-known/openid-configuration"
            ]
        );
    }

    #[test]
    fn issuers_are_compared_exactly_except_for_the_slash_of_an_empty_path() {
        assert!(is_same_issuer("https://a.example", "https://a.example/"));
        assert!(is_same_issuer("https://a.example/t", "https://a.example/t"));
        for (one, other) in [
            ("https://a.example/t", "https://a.example/t/"),
            ("https://a.example", "https://A.example"),
            ("https://a.example", "https://a.example:443"),
            ("https://a.example", "http://a.example"),
        ] {
            assert!(!is_same_issuer(one, other), "{one} {other}");
        }
    }
}
