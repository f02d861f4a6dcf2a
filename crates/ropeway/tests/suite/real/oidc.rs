//! Access tokens of a real authorization server: oidc-provider.

use ropeway::config::{GatewaySettings, JwtSettings};
use ropeway::testing::Script;
use ropeway_config::AuthSettings;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::gateway::kit::{GatewayKit, bare, modern};
use crate::scene::scene;

/// The resource that the tokens of the authorization server are for.
const RESOURCE: &str = "https://gateway.example/mcp";

/// Sends an HTTP request to a server, and returns the JSON of its response.
async fn ask(url: &str, request: &str) -> Value {
    let address = url.strip_prefix("http://").expect("a URL");
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(request.replace("HOST", address).as_bytes()).await.expect("a request");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("a response");
    let body = text.split_once("\r\n\r\n").expect("a body").1;
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Gets an access token as the client `agent`.
async fn token(issuer: &str, resource: &str) -> String {
    let body = format!(
        "grant_type=client_credentials&scope=mcp&resource={}",
        resource.replace(':', "%3A").replace('/', "%2F")
    );
    let request = format!(
        "POST /token HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\nAuthorization: Basic YWdlbnQ6YWdlbnQtc2VjcmV0\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let reply = ask(issuer, &request).await;
    reply["access_token"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned()
}

#[test]
fn a_client_finds_oidc_provider_and_uses_its_tokens() {
    scene(|scene| async move {
        let issuer = scene.http_server("oidc").await;
        let jwt = JwtSettings::new(issuer.url(), RESOURCE).with_scopes(vec!["mcp".to_owned()]);
        let settings = GatewaySettings::default().with_auth(AuthSettings::default().with_jwt(Some(jwt)));
        let kit = GatewayKit::start_with(Script::default(), settings).await;
        let list = |token: &str| {
            modern("tools/list", json!({})).replacen("\r\n", &format!("\r\nAuthorization: Bearer {token}\r\n"), 1)
        };
        // The challenge leads to the metadata of the resource, and that to the authorization server.
        let refused = kit.modern("tools/list", json!({})).await;
        assert_eq!(refused.status, 401, "{refused:?}");
        let metadata = "/.well-known/oauth-protected-resource/mcp";
        assert!(refused.headers["www-authenticate"].contains(metadata), "{refused:?}");
        let metadata = kit.send(&bare("GET", metadata, "Host: localhost\r\n")).await.json();
        let server = metadata["authorization_servers"][0].as_str().expect("a server").to_owned();
        assert_eq!(server, issuer.url());
        let found = "GET /.well-known/oauth-authorization-server HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n";
        assert_eq!(ask(&server, found).await["token_endpoint"], format!("{server}/token"));
        let accepted = kit.send(&list(&token(&server, RESOURCE).await)).await;
        assert_eq!(accepted.status, 200, "{accepted:?}");
        let foreign = kit.send(&list(&token(&server, "https://other.example/mcp").await)).await;
        assert_eq!(foreign.status, 401, "{foreign:?}");
        assert_eq!(foreign.json()["error"]["message"], "the token has the wrong audience");
        kit.stop().await;
    });
}
