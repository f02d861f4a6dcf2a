//! The client at an authorization server: the configured one, a metadata document, or a dynamic registration
//! ([Client Registration](https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization#client-registration-approaches)).

use std::time::SystemTime;

use reqwest::{StatusCode, Url};
use serde_json::{Map, Value, json};

use super::client::RegisteredClient;
use super::error::OAuthError;
use super::http::{JsonResponse, OAuthHttp, invalid};
use super::metadata::AuthorizationServer;
use super::refusal::refusal;
use super::serialized::from_unix;
use super::text::shown;
use ropeway_config::{ClientAuthMethod, OAuthSettings};
use ropeway_core::secret::Secret;

/// Maximum client id or secret length, in bytes. A longer one is an error.
const MAX_TEXT: usize = 8 << 10;

/// Returns the client that the settings name, if they name one for this authorization server.
pub(super) fn configured_client(
    server: &AuthorizationServer,
    settings: &OAuthSettings,
) -> Result<Option<RegisteredClient>, OAuthError> {
    let method = settings.token_endpoint_auth;
    if let Some(id) = &settings.client_id {
        let method = method.unwrap_or_else(|| method_for(server, settings));
        check_method(method, settings)?;
        return Ok(Some(RegisteredClient {
            client_secret: settings.client_secret.clone(),
            auth_method: method,
            ..RegisteredClient::public(id)
        }));
    }
    let Some(url) = settings.client_metadata_url.as_ref().filter(|_| server.accepts_client_metadata_url) else {
        return Ok(None);
    };
    check_client_metadata_url(url)?;
    let default = if settings.private_key.is_some() { ClientAuthMethod::PrivateKeyJwt } else { ClientAuthMethod::None };
    Ok(Some(RegisteredClient { auth_method: method.unwrap_or(default), ..RegisteredClient::public(url) }))
}

/// Selects how a configured client authenticates.
fn method_for(server: &AuthorizationServer, settings: &OAuthSettings) -> ClientAuthMethod {
    let supports = |method: ClientAuthMethod| server.auth_methods.iter().any(|name| name == method.name());
    if settings.private_key.is_some() {
        ClientAuthMethod::PrivateKeyJwt
    } else if settings.client_secret.is_none() {
        ClientAuthMethod::None
    } else if supports(ClientAuthMethod::ClientSecretPost) && !supports(ClientAuthMethod::ClientSecretBasic) {
        ClientAuthMethod::ClientSecretPost
    } else {
        // The default: https://www.rfc-editor.org/rfc/rfc8414#section-2.
        ClientAuthMethod::ClientSecretBasic
    }
}

fn check_method(method: ClientAuthMethod, settings: &OAuthSettings) -> Result<(), OAuthError> {
    let missing = match method {
        ClientAuthMethod::PrivateKeyJwt if settings.private_key.is_none() => "private_key",
        ClientAuthMethod::ClientSecretBasic | ClientAuthMethod::ClientSecretPost
            if settings.client_secret.is_none() =>
        {
            "client_secret"
        }
        _ => return Ok(()),
    };
    let reason = format!("`token_endpoint_auth: {}` needs `{missing}` in the OAuth settings", method.name());
    Err(OAuthError::Settings { reason })
}

/// Checks a client metadata document's URL
/// ([draft](https://datatracker.ietf.org/doc/html/draft-ietf-oauth-client-id-metadata-document-00#section-3)).
fn check_client_metadata_url(text: &str) -> Result<(), OAuthError> {
    let is_fine = |url: &Url| {
        url.scheme() == "https"
            && url.path() != "/"
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none()
    };
    if Url::parse(text).is_ok_and(|url| is_fine(&url)) {
        return Ok(());
    }
    Err(OAuthError::Settings { reason: "`client_metadata_url` must be an `https` URL with a path".to_owned() })
}

/// Registers a client ([RFC 7591](https://www.rfc-editor.org/rfc/rfc7591)).
pub(super) async fn register(
    http: &OAuthHttp,
    server: &AuthorizationServer,
    redirect_uri: Option<&str>,
    scopes: &[String],
) -> Result<RegisteredClient, OAuthError> {
    let Some(endpoint) = &server.registration_endpoint else {
        let what = format!(
            "the authorization server `{}` does not register clients: register one there, and set `auth.oauth.client_id`",
            shown(&server.issuer, http.redactor())
        );
        return Err(OAuthError::unsupported(what));
    };
    let mut response = http.post_json(endpoint, &registration_request(server, redirect_uri, scopes)).await?;
    let refused = |response: &JsonResponse| refusal(response.status, response.body.as_ref().ok(), http.redactor());
    let mut error = refused(&response);
    let mut scopes = scopes;
    if error.as_ref().is_some_and(is_about_scopes) && !scopes.is_empty() {
        // A resource's scopes need not be client scopes.
        scopes = &[];
        response = http.post_json(endpoint, &registration_request(server, redirect_uri, scopes)).await?;
        error = refused(&response);
    }
    if let Some(error) = error {
        return Err(error);
    }
    if matches!(response.status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::FORBIDDEN) {
        let issuer = shown(&server.issuer, http.redactor());
        let what = if server.is_assumed {
            format!("`{issuer}` has no OAuth metadata, so its server may need another kind of token: set `auth.bearer`")
        } else {
            format!("the authorization server `{issuer}` does not register clients: set `auth.oauth.client_id`")
        };
        return Err(OAuthError::unsupported(what));
    }
    let mut client = read_registration(endpoint, &response.into_object()?, server)?;
    client.redirect_uris = redirect_uri.map(str::to_owned).into_iter().collect();
    // A server that registered fewer scopes would do so again.
    if !client.scopes.is_empty() {
        let is_new = |scope: &&String| !client.scopes.contains(scope);
        let requested: Vec<String> = scopes.iter().filter(is_new).cloned().collect();
        client.scopes.extend(requested);
    }
    Ok(client)
}

/// Returns `true` if a registration may work without scopes.
fn is_about_scopes(error: &OAuthError) -> bool {
    matches!(error, OAuthError::Refused { error, .. } if error == "invalid_client_metadata" || error == "invalid_scope")
}

/// Without a redirect URI, the client is for sign-ins on other devices only.
fn registration_request(server: &AuthorizationServer, redirect_uri: Option<&str>, scopes: &[String]) -> Value {
    let mut grants = vec!["refresh_token"];
    grants.extend(redirect_uri.map(|_| "authorization_code"));
    if server.device_authorization_endpoint.is_some() {
        grants.push("urn:ietf:params:oauth:grant-type:device_code");
    }
    let responses: Vec<&str> = redirect_uri.map(|_| "code").into_iter().collect();
    let redirect_uris: Vec<&str> = redirect_uri.into_iter().collect();
    let mut request = json!({
        "client_name": "Ropeway",
        "application_type": "native",
        "grant_types": grants,
        "response_types": responses,
        "redirect_uris": redirect_uris,
        "token_endpoint_auth_method": registered_method(&server.auth_methods).name(),
    });
    if !scopes.is_empty() {
        request["scope"] = scopes.join(" ").into();
    }
    request
}

/// Selects how a new client authenticates. A program on the user's machine cannot keep a secret, so it is a public client if
/// possible ([RFC 8252, section 8.4](https://www.rfc-editor.org/rfc/rfc8252#section-8.4)).
fn registered_method(supported: &[String]) -> ClientAuthMethod {
    let methods = [ClientAuthMethod::None, ClientAuthMethod::ClientSecretBasic, ClientAuthMethod::ClientSecretPost];
    let is_supported = |method: &ClientAuthMethod| supported.iter().any(|name| name == method.name());
    methods.into_iter().find(is_supported).unwrap_or(ClientAuthMethod::None)
}

fn read_registration(
    url: &Url,
    response: &Map<String, Value>,
    server: &AuthorizationServer,
) -> Result<RegisteredClient, OAuthError> {
    let text = |name: &str| match response.get(name).and_then(Value::as_str) {
        Some(text) if text.len() > MAX_TEXT => Err(invalid(url, format!("`{name}` is too long"))),
        text => Ok(text.filter(|text| !text.is_empty())),
    };
    let Some(client_id) = text("client_id")? else { return Err(invalid(url, "it has no `client_id`")) };
    let client_secret = text("client_secret")?.map(Secret::new);
    let auth_method = match text("token_endpoint_auth_method")? {
        Some(name) => ClientAuthMethod::parse(name)
            .filter(|method| *method != ClientAuthMethod::PrivateKeyJwt)
            .ok_or_else(|| invalid(url, "it registered a client authentication method that was not requested"))?,
        None if client_secret.is_none() => ClientAuthMethod::None,
        None => match registered_method(&server.auth_methods) {
            ClientAuthMethod::ClientSecretPost => ClientAuthMethod::ClientSecretPost,
            _ => ClientAuthMethod::ClientSecretBasic,
        },
    };
    if client_secret.is_none() && auth_method != ClientAuthMethod::None {
        return Err(invalid(url, format!("it registered `{}` without a `client_secret`", auth_method.name())));
    }
    let scopes = text("scope")?.map(|scope| scope.split_ascii_whitespace().map(str::to_owned).collect());
    let expires = response.get("client_secret_expires_at").and_then(Value::as_u64).filter(|seconds| *seconds != 0);
    Ok(RegisteredClient {
        client_secret,
        auth_method,
        registered: true,
        expires_at: expires.map(from_unix),
        scopes: scopes.unwrap_or_default(),
        ..RegisteredClient::public(client_id)
    })
}

/// Returns `true` if an earlier sign-in's client can be used again.
pub(super) fn can_reuse(
    client: &RegisteredClient,
    redirect_uri: Option<&str>,
    scopes: &[String],
    now: SystemTime,
) -> bool {
    let fits = |uri: &str| client.redirect_uris.iter().any(|known| known == uri);
    let has_scopes = client.scopes.is_empty() || scopes.iter().all(|scope| client.scopes.contains(scope));
    client.registered && !client.is_expired(now) && redirect_uri.is_none_or(fits) && has_scopes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oauth::guard::OutboundGuard;
    use ropeway_config::PrivateKey;

    fn server(methods: &[&str]) -> AuthorizationServer {
        let url = Url::parse("https://a.example/").expect("a URL");
        let server = AuthorizationServer::without_metadata(&url, &OutboundGuard::new(&url, &[])).expect("a server");
        AuthorizationServer { auth_methods: methods.iter().map(|name| (*name).to_owned()).collect(), ..server }
    }

    fn read(response: &Value, methods: &[&str]) -> Result<RegisteredClient, OAuthError> {
        let url = Url::parse("https://a.example/register").expect("a URL");
        read_registration(&url, response.as_object().expect("an object"), &server(methods))
    }

    #[test]
    fn a_configured_client_comes_first() {
        let settings = OAuthSettings::new().with_client_id("me").with_client_metadata_url("https://me.example/client");
        let server = AuthorizationServer { accepts_client_metadata_url: true, ..server(&[]) };
        let client = configured_client(&server, &settings).expect("fine").expect("a client");
        assert_eq!(client, RegisteredClient::public("me"));
        let settings = OAuthSettings { client_id: None, ..settings };
        let client = configured_client(&server, &settings).expect("fine").expect("a client");
        assert_eq!(client, RegisteredClient::public("https://me.example/client"));
        let server = AuthorizationServer { accepts_client_metadata_url: false, ..server };
        assert_eq!(configured_client(&server, &settings).expect("fine"), None);
    }

    #[test]
    fn the_method_of_a_configured_client_fits_its_settings_and_the_server() {
        let secret = OAuthSettings::new().with_client_id("me").with_client_secret("s3cret");
        let method = |settings: &OAuthSettings, methods: &[&str]| {
            configured_client(&server(methods), settings).map(|client| client.expect("a client").auth_method)
        };
        assert_eq!(method(&secret, &[]).ok(), Some(ClientAuthMethod::ClientSecretBasic));
        assert_eq!(method(&secret, &["client_secret_post"]).ok(), Some(ClientAuthMethod::ClientSecretPost));
        let key = OAuthSettings::new().with_client_id("me").with_private_key(PrivateKey::new("pem"));
        assert_eq!(method(&key, &["client_secret_basic"]).ok(), Some(ClientAuthMethod::PrivateKeyJwt));
        let wrong = OAuthSettings::new().with_client_id("me").with_token_endpoint_auth(ClientAuthMethod::PrivateKeyJwt);
        let error = method(&wrong, &[]).expect_err("a key is missing").to_string();
        assert!(error.contains("needs `private_key`"), "{error}");
    }

    #[test]
    fn the_url_of_a_client_metadata_document_is_checked() {
        let server = AuthorizationServer { accepts_client_metadata_url: true, ..server(&[]) };
        for bad in
            ["http://me.example/c", "https://me.example/", "me", "https://me.example/c#x", "https://a@me.example/c"]
        {
            let settings = OAuthSettings::new().with_client_metadata_url(bad);
            assert!(matches!(configured_client(&server, &settings), Err(OAuthError::Settings { .. })), "{bad}");
        }
    }

    #[test]
    fn the_secret_of_a_registration_is_kept() {
        let response = json!({"client_id": "c", "client_secret": "s3cret", "client_secret_expires_at": 1_800_000_000,
            "token_endpoint_auth_method": "client_secret_post"});
        let client = read(&response, &[]).expect("a client");
        assert_eq!(client.client_secret.as_ref().map(Secret::expose), Some("s3cret"));
        assert_eq!(client.auth_method, ClientAuthMethod::ClientSecretPost);
        assert_eq!(client.expires_at, Some(from_unix(1_800_000_000)));
        assert!(client.registered);
    }

    #[test]
    fn a_registration_without_a_method_gets_the_default_of_its_server() {
        let secret = json!({"client_id": "c", "client_secret": "s3cret", "client_secret_expires_at": 0});
        let client = read(&secret, &[]).expect("a client");
        assert_eq!((client.auth_method, client.expires_at), (ClientAuthMethod::ClientSecretBasic, None));
        let client = read(&secret, &["client_secret_post"]).expect("a client");
        assert_eq!(client.auth_method, ClientAuthMethod::ClientSecretPost);
        assert_eq!(read(&json!({"client_id": "c"}), &[]).expect("a client").auth_method, ClientAuthMethod::None);
    }

    #[test]
    fn registrations_that_cannot_work_are_refused() {
        for bad in [
            json!({}),
            json!({"client_id": 7}),
            json!({"client_id": "x".repeat(1 << 20)}),
            json!({"client_id": "c", "token_endpoint_auth_method": "tls_client_auth"}),
            json!({"client_id": "c", "token_endpoint_auth_method": "client_secret_basic"}),
        ] {
            assert!(matches!(read(&bad, &[]), Err(OAuthError::Invalid { .. })));
        }
    }

    #[test]
    fn the_request_asks_for_a_public_native_client_where_possible() {
        let request =
            registration_request(&server(&["client_secret_basic", "none"]), Some("http://127.0.0.1:1/cb"), &[]);
        assert_eq!(request["token_endpoint_auth_method"], "none");
        assert_eq!(request["application_type"], "native");
        assert_eq!(request["redirect_uris"], json!(["http://127.0.0.1:1/cb"]));
        assert_eq!(request.get("scope"), None);
        let request = registration_request(&server(&["client_secret_post"]), None, &["a".to_owned(), "b".to_owned()]);
        assert_eq!(request["token_endpoint_auth_method"], "client_secret_post");
        assert_eq!(request["scope"], "a b");
    }

    #[test]
    fn a_client_is_used_again_only_with_its_redirect_uri_and_before_it_expires() {
        let now = from_unix(1_800_000_000);
        let client = RegisteredClient {
            registered: true,
            expires_at: Some(from_unix(1_800_000_001)),
            redirect_uris: vec!["http://127.0.0.1:1/cb".to_owned()],
            ..RegisteredClient::public("c")
        };
        assert!(can_reuse(&client, Some("http://127.0.0.1:1/cb"), &[], now) && can_reuse(&client, None, &[], now));
        assert!(!can_reuse(&client, Some("http://127.0.0.1:2/cb"), &[], now));
        assert!(!can_reuse(&client, None, &[], from_unix(1_800_000_001)));
        let scopes = ["read".to_owned(), "write".to_owned()];
        let limited = RegisteredClient { scopes: scopes[..1].to_vec(), ..client.clone() };
        assert!(can_reuse(&client, None, &scopes, now) && can_reuse(&limited, None, &scopes[..1], now));
        assert!(!can_reuse(&limited, None, &scopes, now));
    }
}
