//! A client's requests to its authorization server: client authentication and proofs ([RFC 6749, section 2.3](https://www.rfc-editor.org/rfc/rfc6749#section-2.3)).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use super::assertion::{JWT_BEARER, client_assertion};
use super::client::RegisteredClient;
use super::dpop::DpopKey;
use super::error::OAuthError;
use super::http::{JsonResponse, OAuthHttp, encode_form};
use super::keys::SigningKey;
use super::refusal::refusal;
use ropeway_config::{ClientAuthMethod, OAuthSettings};
use ropeway_core::secret::{Redactor, Secret};

/// The header with a proof.
pub(crate) const DPOP: HeaderName = HeaderName::from_static("dpop");

/// A client that can authenticate.
pub(super) struct OAuthClient<'a> {
    pub(super) http: &'a OAuthHttp,
    pub(super) registered: &'a RegisteredClient,
    /// The authorization server, which is the assertions' audience.
    pub(super) issuer: &'a str,
    pub(super) key: Option<SigningKey>,
    pub(super) dpop: Option<&'a DpopKey>,
}

/// A form field.
pub(super) struct Field<'a> {
    pub(super) name: &'a str,
    pub(super) value: &'a str,
    pub(super) is_secret: bool,
}

/// Creates a field that may be shown in errors.
pub(super) fn field<'a>(name: &'a str, value: &'a str) -> Field<'a> {
    Field { name, value, is_secret: false }
}

/// Creates a field that is redacted in errors.
pub(super) fn secret_field<'a>(name: &'a str, value: &'a Secret) -> Field<'a> {
    Field { name, value: value.expose(), is_secret: true }
}

impl<'a> OAuthClient<'a> {
    /// Creates a client. The key is read from the settings if the client authenticates with it.
    pub(super) fn new(
        http: &'a OAuthHttp,
        registered: &'a RegisteredClient,
        issuer: &'a str,
        settings: &OAuthSettings,
    ) -> Result<Self, OAuthError> {
        let key = match (&settings.private_key, registered.auth_method) {
            (Some(key), ClientAuthMethod::PrivateKeyJwt) => Some(SigningKey::from_settings(key)?),
            _ => None,
        };
        Ok(Self { http, registered, issuer, key, dpop: None })
    }

    /// Adds a key's proofs to the requests.
    pub(super) fn with_dpop(self, dpop: Option<&'a DpopKey>) -> Self {
        Self { dpop, ..self }
    }

    /// Sends a form with client authentication. Retries once if the server requires a nonce, or if a signature was refused and
    /// the server's clock differs.
    pub(super) async fn post(&self, url: &Url, fields: &[Field<'_>]) -> Result<JsonResponse, OAuthError> {
        let knew_clock = self.http.knows_clock_of(url);
        let first = self.post_once(url, fields).await?;
        let refused = refusal(first.status, first.body.as_ref().ok(), self.http.redactor());
        let Some(OAuthError::Refused { error, .. }) = refused else { return Ok(first) };
        let is_signed = self.key.is_some() || self.dpop.is_some();
        let clock_changed = !knew_clock && self.http.knows_clock_of(url);
        let repeat = match error.as_str() {
            "use_dpop_nonce" => self.dpop.is_some() && self.http.nonces().get(url).is_some(),
            "invalid_client" | "invalid_dpop_proof" => is_signed && clock_changed,
            _ => false,
        };
        if repeat { self.post_once(url, fields).await } else { Ok(first) }
    }

    async fn post_once(&self, url: &Url, fields: &[Field<'_>]) -> Result<JsonResponse, OAuthError> {
        let mut headers = HeaderMap::new();
        let mut form: Vec<(&str, &str)> = fields.iter().map(|field| (field.name, field.value)).collect();
        let assertion;
        let id = self.registered.client_id.as_str();
        let secret = self.registered.client_secret.as_ref();
        match (self.registered.auth_method, secret) {
            (ClientAuthMethod::ClientSecretBasic, Some(secret)) => {
                headers.insert(AUTHORIZATION, basic_authorization(id, secret)?);
            }
            (ClientAuthMethod::ClientSecretPost, Some(secret)) => {
                form.extend([("client_id", id), ("client_secret", secret.expose())]);
            }
            (ClientAuthMethod::PrivateKeyJwt, _) => {
                let key = self.key.as_ref().ok_or_else(|| OAuthError::Settings {
                    reason: "the client authenticates with a key: set `private_key` in the OAuth settings".to_owned(),
                })?;
                assertion = client_assertion(key, id, self.issuer, self.http.time_at(url))?;
                form.extend([("client_id", id), ("client_assertion_type", JWT_BEARER)]);
                form.push(("client_assertion", &assertion));
            }
            // A workload that is identified by its assertion alone has no id.
            _ if id.is_empty() => {}
            _ => form.push(("client_id", id)),
        }
        if let Some(dpop) = self.dpop {
            let nonce = self.http.nonces().get(url);
            let proof = dpop.proof("POST", url, None, nonce.as_deref(), self.http.time_at(url))?;
            headers.insert(DPOP, sensitive(&proof)?);
        }
        self.http.post_form(url, &form, headers, &self.redactor(fields)).await
    }

    /// Returns a redactor that also covers a request's secrets.
    pub(super) fn redactor(&self, fields: &[Field<'_>]) -> Redactor {
        let sent = fields.iter().filter(|field| field.is_secret).map(|field| Secret::new(field.value));
        let secrets: Vec<Secret> = sent.chain(self.registered.client_secret.clone()).collect();
        Redactor::new(&secrets).with(self.http.redactor())
    }
}

/// Returns a client's `Authorization` header. Both parts are form-encoded first.
fn basic_authorization(id: &str, secret: &Secret) -> Result<HeaderValue, OAuthError> {
    let encoded = |text: &str| {
        let form = encode_form(&[("", text)]);
        // A plus sign is valid, but several servers decode it as such.
        form.strip_prefix('=').unwrap_or(&form).replace('+', "%20")
    };
    sensitive(&format!("Basic {}", STANDARD.encode(format!("{}:{}", encoded(id), encoded(secret.expose())))))
}

fn sensitive(text: &str) -> Result<HeaderValue, OAuthError> {
    let mut value = HeaderValue::try_from(text)
        .map_err(|_| OAuthError::Settings { reason: "a header of the token request is not valid".to_owned() })?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_basic_authorization_are_encoded() {
        let header = basic_authorization("my id", &Secret::new("a:b/ü")).expect("a header");
        assert!(header.is_sensitive());
        let encoded = header.to_str().expect("text").strip_prefix("Basic ").expect("the scheme").to_owned();
        let decoded = STANDARD.decode(encoded).expect("base64");
        assert_eq!(String::from_utf8(decoded).expect("text"), "my%20id:a%3Ab%2F%C3%BC");
    }

    #[test]
    fn secrets_of_a_request_are_redacted() {
        let url = Url::parse("https://a.example/").expect("a URL");
        let http = OAuthHttp::new(&url, &[], Redactor::default());
        let registered = RegisteredClient::confidential("me", "client-s3cret", ClientAuthMethod::ClientSecretBasic);
        let client =
            OAuthClient::new(&http, &registered, "https://a.example", &OAuthSettings::new()).expect("a client");
        let token = Secret::new("r3fresh-token");
        let redactor = client.redactor(&[field("grant_type", "refresh_token"), secret_field("refresh_token", &token)]);
        assert_eq!(redactor.redact("r3fresh-token client-s3cret refresh_token"), "*** *** refresh_token");
    }
}
