//! The `auth/` scenarios: OAuth settings from a scenario's context, and a person who signs in at once.

use std::env;

use anyhow::{Context, Result, bail};
use ropeway::config::{IdentityProvider, OAuthGrant, OAuthSettings, PrivateKey, TokenSource};
use ropeway::mcp::Handlers;
use ropeway::oauth::SignInAnswer;
use ropeway_config::{ClientAuthMethod, JwtAlgorithm};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The redirect URI. Nothing listens there: the suite's authorization endpoint redirects at once.
const REDIRECT: &str = "http://localhost:3000/callback";

/// The client's metadata document, which the suite does not fetch.
const CLIENT_METADATA: &str = "https://conformance-test.local/client-metadata.json";

/// Returns a scenario's OAuth settings.
pub(crate) fn settings(scenario: &str) -> Result<OAuthSettings> {
    let context = match env::var("MCP_CONFORMANCE_CONTEXT") {
        Ok(text) => serde_json::from_str(&text).context("`MCP_CONFORMANCE_CONTEXT` is not JSON")?,
        Err(_) => Value::Null,
    };
    let text = |name: &str| -> Result<String> {
        let value = context[name].as_str().with_context(|| format!("the context has no `{name}`"))?;
        Ok(value.to_owned())
    };
    let settings = OAuthSettings::new();
    Ok(match scenario {
        "auth/basic-cimd" => settings.with_client_metadata_url(CLIENT_METADATA),
        "auth/pre-registration" => {
            settings.with_client_id(text("client_id")?).with_client_secret(text("client_secret")?)
        }
        "auth/client-credentials-basic" => settings
            .with_grant(OAuthGrant::ClientCredentials)
            .with_client_id(text("client_id")?)
            .with_client_secret(text("client_secret")?)
            .with_token_endpoint_auth(ClientAuthMethod::ClientSecretBasic),
        "auth/client-credentials-jwt" => {
            let algorithm = JwtAlgorithm::parse(&text("signing_algorithm")?).context("an unknown algorithm")?;
            settings
                .with_grant(OAuthGrant::ClientCredentials)
                .with_client_id(text("client_id")?)
                .with_private_key(PrivateKey::new(text("private_key_pem")?).with_algorithm(algorithm))
        }
        "auth/enterprise-managed-authorization" => {
            let id_token = TokenSource::Value(text("idp_id_token")?.into());
            let idp = IdentityProvider::with_endpoint(text("idp_token_endpoint")?, id_token);
            settings
                .with_grant(OAuthGrant::EnterpriseManaged(idp.with_client_id(text("idp_client_id")?)))
                .with_client_id(text("client_id")?)
                .with_client_secret(text("client_secret")?)
        }
        "auth/wif-jwt-bearer" => {
            let assertion = TokenSource::Value(text("valid_jwt")?.into());
            settings.with_grant(OAuthGrant::WorkloadIdentity { assertion }).with_client_id(text("client_id")?)
        }
        "auth/dpop" | "auth/dpop-nonce" => settings.with_dpop(true),
        _ => settings,
    })
}

/// Adds a person who signs in at once.
pub(crate) fn with_person(handlers: Handlers) -> Handlers {
    handlers.on_sign_in(|request| async move {
        let mut sign_in = request.start().await?;
        let url = sign_in.prepare(REDIRECT).await?;
        let callback = redirect_of(&url).await?;
        Ok(SignInAnswer::from(sign_in.finish(&callback).await?))
    })
}

/// Fetches a URL in the suite and returns where it redirects to.
async fn redirect_of(url: &str) -> Result<String> {
    let rest = url.strip_prefix("http://").context("the suite uses plain HTTP")?;
    let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /{path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    let location = response.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("location").then(|| value.trim().to_owned())
    });
    let Some(location) = location else { bail!("no redirect: {}", response.lines().next().unwrap_or_default()) };
    Ok(location)
}
