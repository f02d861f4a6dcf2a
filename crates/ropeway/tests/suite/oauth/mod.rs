//! OAuth against a scripted authorization server, which can misbehave.

pub(crate) mod authorization_server;
mod connection;
mod device;
mod discovery;
mod endpoints;
mod hostile;
mod machines;
mod proofs;
mod refresh;
mod sign_in;
mod token_endpoint;
mod transports;
pub(crate) mod wire;

use ropeway::config::OAuthSettings;
use ropeway::oauth::{Credentials, OAuthError, SignIn, SignInOptions};

use self::authorization_server::AuthorizationServer;

/// A redirect URI on which nothing listens: tests pass the callback on themselves.
const REDIRECT: &str = "http://127.0.0.1:7/callback";

async fn start(server: &AuthorizationServer) -> Result<SignIn, OAuthError> {
    SignIn::start(SignInOptions::new(server.mcp())).await
}

/// Signs in as a person with a browser does.
async fn sign_in(server: &AuthorizationServer) -> Result<Credentials, OAuthError> {
    sign_in_with(SignInOptions::new(server.mcp())).await
}

async fn sign_in_with(options: SignInOptions) -> Result<Credentials, OAuthError> {
    let mut sign_in = SignIn::start(options).await?;
    let url = sign_in.prepare(REDIRECT).await?;
    let callback = wire::browse(&url).await;
    sign_in.finish(&callback).await
}

fn options(server: &AuthorizationServer, settings: OAuthSettings) -> SignInOptions {
    SignInOptions::new(server.mcp()).with_settings(settings)
}
