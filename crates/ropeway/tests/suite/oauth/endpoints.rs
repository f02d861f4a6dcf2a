//! The endpoints of the scripted authorization server, and of the MCP server that it protects.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;
use serde_json::{Value, json};

use super::authorization_server::{Client, Grant, State};
use super::proofs::{sha256, verify_es256, verify_proof};
use super::wire::{Answer, Request};

/// The nonce that proofs need.
const NONCE: &str = "n0nce-of-the-server";

type Form = HashMap<String, String>;

pub(super) fn respond(state: &mut State, request: &Request) -> Answer {
    match request.path.as_str() {
        "/.well-known/oauth-protected-resource" | "/.well-known/oauth-protected-resource/mcp" => {
            Answer::json(200, &state.resource)
        }
        "/.well-known/oauth-authorization-server" => Answer::json(200, &state.metadata),
        "/authorize" => authorize(state, request),
        "/register" => register(state, request),
        "/token" => token(state, request).unwrap_or_else(|answer| answer),
        "/device" => device(state, request).unwrap_or_else(|answer| answer),
        "/revoke" => revoke(state, request).unwrap_or_else(|answer| answer),
        "/mcp" => mcp(state, request),
        _ => Answer::text(404, "text/plain", "not found"),
    }
}

fn refused(status: u16, code: &str) -> Answer {
    Answer::json(status, &json!({"error": code, "error_description": format!("scripted {code}")}))
}

fn next(state: &mut State, kind: &str) -> String {
    state.serial += 1;
    let port = state.url.rsplit(':').next().unwrap_or_default();
    format!("{kind}-{port}-{:04}-{}", state.serial, "x".repeat(16))
}

fn authorize(state: &mut State, request: &Request) -> Answer {
    let query = |name: &str| request.query.get(name).cloned().unwrap_or_default();
    let redirect_uri = query("redirect_uri");
    let known = state.clients.get(&query("client_id"));
    let is_allowed = |client: &Client| client.redirect_uris.is_empty() || client.redirect_uris.contains(&redirect_uri);
    let is_document = query("client_id").starts_with("https://");
    if !known.map_or(is_document, is_allowed) || query("code_challenge_method") != "S256" {
        return refused(400, "invalid_request");
    }
    if query("resource") != state.resource["resource"].as_str().unwrap_or_default() {
        return refused(400, "invalid_target");
    }
    let mut callback = Url::parse(&redirect_uri).expect("a redirect URI");
    let code = next(state, "code");
    {
        let mut answer = callback.query_pairs_mut();
        answer.append_pair("state", state.behaviour.state.as_deref().unwrap_or(&query("state")));
        match &state.behaviour.iss {
            Some(None) => drop(answer.append_pair("iss", &state.url)),
            Some(Some(iss)) => drop(answer.append_pair("iss", iss)),
            None => {}
        }
        if state.behaviour.denies {
            answer.append_pair("error", "access_denied");
        } else {
            answer.append_pair("code", &code);
        }
    }
    let grant = Grant {
        client: query("client_id"),
        scope: query("scope"),
        challenge: query("code_challenge"),
        redirect_uri,
        jkt: request.query.get("dpop_jkt").cloned(),
    };
    state.codes.insert(code, grant);
    Answer::redirect(callback.as_str())
}

fn register(state: &mut State, request: &Request) -> Answer {
    let body = request.json();
    let id = next(state, "client");
    let method = state.behaviour.registered_method;
    let secret = (method != "none").then(|| next(state, "secret"));
    let uris = body["redirect_uris"].as_array().cloned().unwrap_or_default();
    let redirect_uris = uris.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let client = Client { secret: secret.clone(), method: method.to_owned(), redirect_uris };
    state.clients.insert(id.clone(), client);
    let mut answer = json!({"client_id": id, "token_endpoint_auth_method": method, "redirect_uris": uris});
    if let Some(secret) = secret {
        answer["client_secret"] = secret.into();
        answer["client_secret_expires_at"] = 0.into();
    }
    Answer::json(201, &answer)
}

/// Returns the client that a request authenticates.
fn authenticate(state: &State, request: &Request, form: &Form) -> Result<String, Answer> {
    let invalid = || refused(401, "invalid_client");
    let basic = request.header("authorization").strip_prefix("Basic ").and_then(|text| STANDARD.decode(text).ok());
    let (id, secret, method) = match basic {
        Some(basic) => {
            let basic = String::from_utf8(basic).map_err(|_| invalid())?;
            let (id, secret) = basic.split_once(':').ok_or_else(invalid)?;
            (id.to_owned(), Some(secret.to_owned()), "client_secret_basic")
        }
        None => {
            let id = form.get("client_id").cloned().unwrap_or_default();
            match (form.get("client_secret"), form.get("client_assertion")) {
                (Some(secret), _) => (id, Some(secret.clone()), "client_secret_post"),
                (None, Some(assertion)) => {
                    let key = state.behaviour.client_key.as_deref().ok_or_else(invalid)?;
                    let (_, claims) = verify_es256(assertion, key).ok_or_else(invalid)?;
                    let is_right = claims["iss"] == id && claims["sub"] == id && claims["aud"] == state.url;
                    return if is_right { Ok(id) } else { Err(invalid()) };
                }
                (None, None) => (id, None, "none"),
            }
        }
    };
    let is_document = id.starts_with("https://") && method == "none";
    let is_right = |client: &Client| client.method == method && client.secret == secret;
    if state.clients.get(&id).map_or(is_document, is_right) { Ok(id) } else { Err(invalid()) }
}

/// Returns the thumbprint of the key that the tokens are bound to.
fn check_proof(state: &State, request: &Request) -> Result<Option<String>, Answer> {
    if !state.behaviour.dpop {
        return Ok(None);
    }
    let url = format!("{}{}", state.url, request.path);
    let proof = verify_proof(request.header("dpop"), &request.method, &url)
        .map_err(|error| Answer::json(400, &json!({"error": "invalid_dpop_proof", "error_description": error})))?;
    if state.behaviour.dpop_nonce && proof.claims["nonce"] != NONCE {
        return Err(refused(400, "use_dpop_nonce").with("dpop-nonce", NONCE));
    }
    Ok(Some(proof.jkt))
}

fn token(state: &mut State, request: &Request) -> Result<Answer, Answer> {
    let form = request.form();
    let field = |name: &str| form.get(name).cloned().unwrap_or_default();
    if field("grant_type").ends_with("token-exchange") {
        return token_exchange(state, &form);
    }
    let client = if field("grant_type").ends_with("jwt-bearer")
        && field("client_id").is_empty()
        && !request.headers.contains_key("authorization")
    {
        String::new()
    } else {
        authenticate(state, request, &form)?
    };
    let jkt = check_proof(state, request)?;
    let resource = state.resource["resource"].as_str().unwrap_or_default();
    if field("resource") != resource {
        return Err(refused(400, "invalid_target"));
    }
    let invalid_grant = || refused(400, "invalid_grant");
    let own = Grant { client: client.clone(), scope: field("scope"), jkt: jkt.clone(), ..Grant::default() };
    let grant = match field("grant_type").rsplit(':').next().unwrap_or_default() {
        "authorization_code" => {
            // A code can be used once.
            let grant = state.codes.remove(&field("code")).ok_or_else(invalid_grant)?;
            let is_right = grant.client == client
                && grant.redirect_uri == field("redirect_uri")
                && grant.challenge == sha256(&field("code_verifier"))
                && (jkt.is_none() || grant.jkt.is_none_or(|bound| Some(bound) == jkt));
            if !is_right {
                return Err(invalid_grant());
            }
            Grant { scope: grant.scope, ..own }
        }
        "refresh_token" => {
            let old = state.refresh_tokens.get(&field("refresh_token")).cloned().ok_or_else(invalid_grant)?;
            if old.client != client || old.jkt != jkt {
                return Err(invalid_grant());
            }
            if state.behaviour.rotates_refresh_tokens {
                state.refresh_tokens.remove(&field("refresh_token"));
            }
            old
        }
        "device_code" if !state.behaviour.device_errors.is_empty() => {
            return Err(refused(400, state.behaviour.device_errors.remove(0)));
        }
        "device_code" => {
            state.codes.remove(&field("device_code")).map(|grant| Grant { jkt, ..grant }).ok_or_else(invalid_grant)?
        }
        "client_credentials" => own,
        "jwt-bearer" if field("assertion") == state.behaviour.assertion => own,
        "jwt-bearer" => return Err(invalid_grant()),
        _ => return Err(refused(400, "unsupported_grant_type")),
    };
    let is_machine =
        matches!(field("grant_type").as_str(), "client_credentials") || field("grant_type").ends_with("jwt-bearer");
    Ok(issue(state, grant, &field("refresh_token"), is_machine))
}

fn issue(state: &mut State, grant: Grant, old: &str, is_machine: bool) -> Answer {
    let access = next(state, "access");
    let kind = if grant.jkt.is_some() { "DPoP" } else { "Bearer" };
    let mut answer = json!({"access_token": access, "token_type": kind});
    if let Some(seconds) = state.behaviour.expires_in {
        answer["expires_in"] = seconds.into();
    }
    if !grant.scope.is_empty() {
        answer["scope"] = grant.scope.clone().into();
    }
    if state.behaviour.issues_refresh_tokens && !is_machine && !state.refresh_tokens.contains_key(old) {
        let refresh = next(state, "refresh");
        answer["refresh_token"] = refresh.clone().into();
        state.refresh_tokens.insert(refresh, grant.clone());
    }
    state.access_tokens.insert(access, grant);
    Answer::json(200, &answer)
}

/// The token exchange of an identity provider: an ID token for a grant.
fn token_exchange(state: &State, form: &Form) -> Result<Answer, Answer> {
    let id_jag = "urn:ietf:params:oauth:token-type:id-jag";
    let is_right = form.get("subject_token") == Some(&state.behaviour.id_token)
        && form.get("requested_token_type").map(String::as_str) == Some(id_jag)
        && form.contains_key("audience")
        && form.contains_key("resource");
    if !is_right {
        return Err(refused(400, "invalid_request"));
    }
    let answer = json!({"access_token": state.behaviour.assertion, "issued_token_type": id_jag, "token_type": "N_A"});
    Ok(Answer::json(200, &answer))
}

fn device(state: &mut State, request: &Request) -> Result<Answer, Answer> {
    let form = request.form();
    let client = authenticate(state, request, &form)?;
    let code = next(state, "device");
    let grant = Grant { client, scope: form.get("scope").cloned().unwrap_or_default(), ..Grant::default() };
    state.codes.insert(code.clone(), grant);
    let page = format!("{}/activate", state.url);
    Ok(Answer::json(
        200,
        &json!({"device_code": code, "user_code": "WDJB-MJHT", "verification_uri": page,
            "verification_uri_complete": format!("{page}?user_code=WDJB-MJHT"), "expires_in": 900, "interval": 5}),
    ))
}

fn revoke(state: &mut State, request: &Request) -> Result<Answer, Answer> {
    let form = request.form();
    authenticate(state, request, &form)?;
    let token = form.get("token").cloned().unwrap_or_default();
    if !state.behaviour.revokes_access_tokens && state.access_tokens.contains_key(&token) {
        return Err(refused(400, "unsupported_token_type"));
    }
    state.refresh_tokens.remove(&token);
    state.access_tokens.remove(&token);
    Ok(Answer::text(200, "text/plain", ""))
}

/// The MCP server: one tool that returns the scopes of its caller.
fn mcp(state: &State, request: &Request) -> Answer {
    let (scheme, token) = request.header("authorization").split_once(' ').unwrap_or_default();
    let Some(grant) = state.access_tokens.get(token) else {
        let error = if token.is_empty() { None } else { Some("invalid_token") };
        return challenge(state, 401, error, state.behaviour.challenge_scope.as_deref());
    };
    if let Some(jkt) = &grant.jkt {
        let proof = verify_proof(request.header("dpop"), &request.method, &format!("{}/mcp", state.url));
        let is_right = |claims: &Value, key: &str| key == jkt && claims["ath"] == sha256(token) && scheme == "DPoP";
        match proof {
            Ok(proof) if is_right(&proof.claims, &proof.jkt) => {
                if state.behaviour.dpop_nonce && proof.claims["nonce"] != NONCE {
                    return challenge(state, 401, Some("use_dpop_nonce"), None).with("dpop-nonce", NONCE);
                }
            }
            _ => return challenge(state, 401, Some("invalid_token"), None),
        }
    } else if scheme != "Bearer" {
        return challenge(state, 401, Some("invalid_token"), None);
    }
    if let Some(required) = &state.behaviour.required_scope
        && request.json()["method"] == "tools/call"
        && !grant.scope.split(' ').any(|scope| scope == required)
    {
        return challenge(state, 403, Some("insufficient_scope"), Some(required));
    }
    json_rpc(request, &grant.scope, &state.behaviour.tools)
}

fn challenge(state: &State, status: u16, error: Option<&str>, scope: Option<&str>) -> Answer {
    let mut parameters = Vec::new();
    if state.behaviour.names_metadata {
        parameters.push(format!("resource_metadata=\"{}/.well-known/oauth-protected-resource/mcp\"", state.url));
    }
    parameters.extend(error.map(|error| format!("error=\"{error}\"")));
    parameters.extend(scope.map(|scope| format!("scope=\"{scope}\"")));
    let scheme = if state.behaviour.dpop { "DPoP" } else { "Bearer" };
    let header = format!("{scheme} {}", parameters.join(", "));
    Answer::json(status, &json!({"error": error.unwrap_or("unauthorized")})).with("www-authenticate", &header)
}

fn json_rpc(request: &Request, scope: &str, tools: &[&str]) -> Answer {
    let message = request.json();
    if request.method != "POST" {
        return Answer::text(405, "text/plain", "");
    }
    let Some(id) = message.get("id").cloned() else { return Answer::text(202, "text/plain", "") };
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": "protected", "version": "1"}}),
        "tools/list" => {
            let tool = |name: &&str| json!({"name": name, "description": "Returns the scopes of the caller.", "inputSchema": {"type": "object"}});
            json!({"tools": tools.iter().map(tool).collect::<Vec<_>>()})
        }
        "tools/call" => json!({"content": [{"type": "text", "text": scope}]}),
        "ping" => json!({}),
        _ => {
            let error = json!({"code": -32601, "message": "method not found"});
            return Answer::json(200, &json!({"jsonrpc": "2.0", "id": id, "error": error}));
        }
    };
    Answer::json(200, &json!({"jsonrpc": "2.0", "id": id, "result": result}))
}
