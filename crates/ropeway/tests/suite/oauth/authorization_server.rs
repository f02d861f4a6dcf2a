//! A scripted authorization server, and the MCP server that it protects, at one origin.
//!
//! It does everything right until a test changes its metadata, its behaviour or the answer of a path.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::endpoints;
use super::wire::{Answer, Request};

/// What the server does. Tests change it at any time with [`AuthorizationServer::change`].
#[derive(Clone, Debug)]
pub(crate) struct Behaviour {
    /// `scope` of the challenge.
    pub(crate) challenge_scope: Option<String>,
    /// Whether the challenge names the metadata.
    pub(crate) names_metadata: bool,
    /// The names of the tools.
    pub(crate) tools: Vec<&'static str>,
    /// The scope that requests need. Others are answered with 403.
    pub(crate) required_scope: Option<String>,
    /// Lifetime of access tokens, in seconds. `None` leaves it out.
    pub(crate) expires_in: Option<u64>,
    pub(crate) issues_refresh_tokens: bool,
    /// Whether a refresh token can be used once.
    pub(crate) rotates_refresh_tokens: bool,
    /// Whether access tokens can be revoked.
    pub(crate) revokes_access_tokens: bool,
    /// The method that dynamic registrations get.
    pub(crate) registered_method: &'static str,
    /// `iss` of callbacks. `None` leaves it out; `Some(None)` sends the issuer.
    pub(crate) iss: Option<Option<String>>,
    /// Replaces `state` of callbacks.
    pub(crate) state: Option<String>,
    /// Refuses sign-ins.
    pub(crate) denies: bool,
    /// Requires proofs.
    pub(crate) dpop: bool,
    /// Requires a nonce in proofs, at the token endpoint and at the MCP server.
    pub(crate) dpop_nonce: bool,
    /// Answers of the device flow before the tokens: error codes.
    pub(crate) device_errors: Vec<&'static str>,
    /// The public key of clients that authenticate with a key: an uncompressed P-256 point.
    pub(crate) client_key: Option<Vec<u8>>,
    /// The accepted assertion of the jwt-bearer grant.
    pub(crate) assertion: String,
    /// The accepted ID token of the token exchange.
    pub(crate) id_token: String,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            challenge_scope: None,
            names_metadata: true,
            tools: vec!["scopes"],
            required_scope: None,
            expires_in: Some(3600),
            issues_refresh_tokens: true,
            rotates_refresh_tokens: true,
            revokes_access_tokens: true,
            registered_method: "none",
            iss: Some(None),
            state: None,
            denies: false,
            dpop: false,
            dpop_nonce: false,
            device_errors: Vec::new(),
            client_key: None,
            assertion: "w0rkload-assertion".to_owned(),
            id_token: "id-t0ken-of-a-person".to_owned(),
        }
    }
}

/// A client at the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Client {
    pub(crate) secret: Option<String>,
    pub(crate) method: String,
    pub(crate) redirect_uris: Vec<String>,
}

/// A grant: what a code, a refresh token or an access token stands for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grant {
    pub(crate) client: String,
    pub(crate) scope: String,
    pub(crate) challenge: String,
    pub(crate) redirect_uri: String,
    pub(crate) jkt: Option<String>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) url: String,
    pub(crate) behaviour: Behaviour,
    /// The metadata of the authorization server.
    pub(crate) metadata: Value,
    /// The metadata of the MCP server.
    pub(crate) resource: Value,
    /// Answers that replace those of a path, each for a number of requests.
    pub(crate) answers: HashMap<String, (usize, Answer)>,
    pub(crate) requests: Vec<Request>,
    pub(crate) clients: HashMap<String, Client>,
    pub(crate) codes: HashMap<String, Grant>,
    pub(crate) refresh_tokens: HashMap<String, Grant>,
    pub(crate) access_tokens: HashMap<String, Grant>,
    pub(crate) serial: usize,
}

/// The server. It ends when it is dropped.
pub(crate) struct AuthorizationServer {
    /// The issuer, which is also the origin of the MCP server.
    pub(crate) url: String,
    state: Arc<Mutex<State>>,
    serving: JoinHandle<()>,
}

impl Drop for AuthorizationServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl AuthorizationServer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let metadata = json!({
            "issuer": url,
            "authorization_endpoint": format!("{url}/authorize"),
            "token_endpoint": format!("{url}/token"),
            "registration_endpoint": format!("{url}/register"),
            "device_authorization_endpoint": format!("{url}/device"),
            "revocation_endpoint": format!("{url}/revoke"),
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post", "private_key_jwt"],
            "authorization_response_iss_parameter_supported": true,
        });
        let state = State {
            url: url.clone(),
            behaviour: Behaviour::default(),
            metadata,
            resource: json!({"resource": format!("{url}/mcp"), "authorization_servers": [url]}),
            answers: HashMap::new(),
            requests: Vec::new(),
            clients: HashMap::new(),
            codes: HashMap::new(),
            refresh_tokens: HashMap::new(),
            access_tokens: HashMap::new(),
            serial: 0,
        };
        let state = Arc::new(Mutex::new(state));
        let serving = tokio::spawn(serve(listener, state.clone()));
        Self { url, state, serving }
    }

    /// Returns the URL of the MCP server.
    pub(crate) fn mcp(&self) -> String {
        format!("{}/mcp", self.url)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a lock")
    }

    /// Changes what the server does.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.state().behaviour);
    }

    /// Sets a member of the authorization server's metadata; `null` removes it.
    pub(crate) fn set_metadata(&self, name: &str, value: impl Into<Value>) {
        set(&mut self.state().metadata, name, value.into());
    }

    /// Sets a member of the MCP server's metadata; `null` removes it.
    pub(crate) fn set_resource(&self, name: &str, value: impl Into<Value>) {
        set(&mut self.state().resource, name, value.into());
    }

    /// Answers every request to a path in this way.
    pub(crate) fn answer(&self, path: &str, answer: Answer) {
        self.answer_times(usize::MAX, path, answer);
    }

    /// Answers the next requests to a path in this way.
    pub(crate) fn answer_times(&self, times: usize, path: &str, answer: Answer) {
        self.state().answers.insert(path.to_owned(), (times, answer));
    }

    /// Removes the metadata of the MCP server, as before 2025-06-18.
    pub(crate) fn remove_resource_metadata(&self) {
        self.change(|behaviour| behaviour.names_metadata = false);
        for path in ["/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"] {
            self.answer(path, Answer::text(404, "text/plain", "not found"));
        }
    }

    /// Adds a registered client.
    pub(crate) fn add_client(&self, id: &str, secret: Option<&str>, method: &str) {
        let client = Client { secret: secret.map(str::to_owned), method: method.to_owned(), redirect_uris: Vec::new() };
        self.state().clients.insert(id.to_owned(), client);
    }

    /// Ends all access tokens, as if they had expired.
    pub(crate) fn expire_access_tokens(&self) {
        self.state().access_tokens.clear();
    }

    /// Ends all refresh tokens.
    pub(crate) fn revoke_refresh_tokens(&self) {
        self.state().refresh_tokens.clear();
    }

    /// Returns all requests to a path.
    pub(crate) fn requests(&self, path: &str) -> Vec<Request> {
        self.state().requests.iter().filter(|request| request.path == path).cloned().collect()
    }

    /// Returns the requests to the token endpoint with a grant type.
    pub(crate) fn token_requests(&self, grant: &str) -> Vec<HashMap<String, String>> {
        let forms = self.requests("/token").into_iter().map(|request| request.form());
        forms.filter(|form| form.get("grant_type").is_some_and(|own| own.ends_with(grant))).collect()
    }
}

fn set(document: &mut Value, name: &str, value: Value) {
    let document = document.as_object_mut().expect("an object");
    if value.is_null() {
        document.remove(name);
    } else {
        document.insert(name.to_owned(), value);
    }
}

async fn serve(listener: TcpListener, state: Arc<Mutex<State>>) {
    loop {
        let Ok((mut stream, _)) = listener.accept().await else { return };
        let state = state.clone();
        tokio::spawn(async move {
            let Some(request) = Request::read(&mut stream).await else { return };
            let answer = respond(&mut state.lock().expect("a lock"), request);
            answer.write(stream).await;
        });
    }
}

fn respond(state: &mut State, request: Request) -> Answer {
    state.requests.push(request.clone());
    if let Some((times, answer)) = state.answers.get_mut(&request.path)
        && *times > 0
    {
        *times -= 1;
        return answer.clone();
    }
    endpoints::respond(state, &request)
}
