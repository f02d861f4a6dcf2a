//! An authorization server for tests: its metadata, its keys, and tokens that it signs.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What the server answers to requests for its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JwksMode {
    Normal,
    /// The response never comes.
    Silent,
    /// The response never ends.
    Huge,
    /// The response is an error.
    Failing,
    /// The response is not JSON.
    Html,
}

/// A key that signs tokens.
pub(super) struct SigningKey {
    kid: String,
    pair: EcdsaKeyPair,
}

impl SigningKey {
    pub(super) fn new(kid: &str) -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).expect("a key");
        Self { kid: kid.to_owned(), pair }
    }

    pub(super) fn public(&self) -> Value {
        let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
        json!({"kty": "EC", "crv": "P-256", "kid": self.kid, "use": "sig", "x": encode(x), "y": encode(y)})
    }

    /// Signs a token.
    pub(super) fn sign(&self, claims: &Value) -> String {
        self.sign_with(&json!({"alg": "ES256", "typ": "at+jwt", "kid": self.kid}), claims)
    }

    pub(super) fn sign_with(&self, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", encode(header.to_string().as_bytes()), encode(claims.to_string().as_bytes()));
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).expect("a signature");
        format!("{signed}.{}", encode(signature.as_ref()))
    }
}

pub(super) fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub(super) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs()
}

struct IssuerState {
    keys: Vec<Value>,
    mode: JwksMode,
    requests: Vec<String>,
}

/// The server. It ends when it is dropped.
pub(super) struct Issuer {
    pub(super) url: String,
    state: Arc<Mutex<IssuerState>>,
    serving: JoinHandle<()>,
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Issuer {
    pub(super) async fn start(keys: &[&SigningKey]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let keys = keys.iter().map(|key| key.public()).collect();
        let state = Arc::new(Mutex::new(IssuerState { keys, mode: JwksMode::Normal, requests: Vec::new() }));
        let serving = tokio::spawn(serve(listener, url.clone(), state.clone()));
        Self { url, state, serving }
    }

    pub(super) fn set_keys(&self, keys: &[&SigningKey]) {
        self.state.lock().expect("a lock").keys = keys.iter().map(|key| key.public()).collect();
    }

    pub(super) fn set_mode(&self, mode: JwksMode) {
        self.state.lock().expect("a lock").mode = mode;
    }

    /// Returns how often the keys were requested.
    pub(super) fn fetches(&self) -> usize {
        self.state.lock().expect("a lock").requests.iter().filter(|path| *path == "/jwks").count()
    }

    /// Returns the claims of a valid token.
    pub(super) fn claims(&self) -> Value {
        json!({"iss": self.url, "aud": "https://gateway.example/mcp", "sub": "alice", "exp": unix_now() + 600})
    }
}

async fn serve(listener: TcpListener, url: String, state: Arc<Mutex<IssuerState>>) {
    loop {
        let Ok((mut stream, _)) = listener.accept().await else { return };
        let mut head = vec![0; 8192];
        let mut length = 0;
        while !head[..length].windows(4).any(|end| end == b"\r\n\r\n") {
            match stream.read(&mut head[length..]).await {
                Ok(0) | Err(_) => break,
                Ok(read) => length += read,
            }
        }
        let path = String::from_utf8_lossy(&head[..length]).split(' ').nth(1).unwrap_or_default().to_owned();
        let (mode, keys) = {
            let mut state = state.lock().expect("a lock");
            state.requests.push(path.clone());
            (state.mode, state.keys.clone())
        };
        let body = match path.as_str() {
            "/.well-known/openid-configuration" => {
                json!({"issuer": url, "jwks_uri": format!("{url}/jwks")}).to_string()
            }
            "/jwks" if mode == JwksMode::Html => "<html>".to_owned(),
            "/jwks" if mode == JwksMode::Huge => " ".repeat(2 << 20),
            "/jwks" => json!({"keys": keys}).to_string(),
            _ => String::new(),
        };
        let is_failing = path == "/jwks" && mode == JwksMode::Failing;
        let is_found = !body.is_empty() && !is_failing;
        let status = if is_found { "200 OK" } else { "404 Not Found" };
        let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
        if path == "/jwks" && mode == JwksMode::Silent {
            // The next connection is served meanwhile.
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(4)).await;
                drop(stream);
            });
            continue;
        }
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.write_all(body.as_bytes()).await;
        let _ = stream.shutdown().await;
    }
}
