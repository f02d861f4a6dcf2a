//! Reviews configuration files, for a user to decide whether to trust them.

mod gateway;
mod redact;
mod references;
mod server_auth;
#[cfg(test)]
mod tests;
mod token;
mod types;
mod url;

use std::path::Path;

use serde_json::{Map, Value};

use self::gateway::review_gateway;
use self::redact::{redact_argument, redact_header, redact_json, redact_value};
use self::references::{collect_references, dedup, has_reference, loads_code};
use self::server_auth::review_tokens;
use self::token::redact_token;
pub use self::types::{ChatReview, ConfigReview, ServerReview, TokenCommandReview, TransportReview, ValueReference};
use self::url::{host_warning, redact_url, url_host};
use super::document::Document;
use super::problem::ConfigError;
use super::raw::{RawApproval, RawAuth, RawChat, RawSandbox, RawServer, RawText, RawTransport};
use super::secrets::Secrets;
use crate::settings::{Config, LockPolicy};

/// The server keys that have a field in [`ServerReview`].
const SERVER_KEYS: [&str; 13] = [
    "alias",
    "transport",
    "command",
    "args",
    "env",
    "env_file",
    "inherit_env",
    "cwd",
    "sandbox",
    "url",
    "headers",
    "auth",
    "enabled",
];

/// The chat keys that have a field in [`ChatReview`].
const CHAT_KEYS: [&str; 4] = ["provider", "base_url", "key", "tools"];

/// Reviews text from the file `origin`: a `ropeway.yaml`, or another client's file.
///
/// # Errors
///
/// Fails if the file is invalid.
///
/// # Examples
///
/// ```
/// use ropeway_config::review;
///
/// let text = "servers: [{alias: web, url: 'https://example.com/mcp', auth: {bearer: '${TOKEN}'}}]";
/// let review = review(text, "ropeway.yaml".as_ref())?;
/// assert_eq!(review.variables, ["TOKEN"]);
/// assert_eq!(review.servers[0].receives[0].to_string(), "$TOKEN");
/// # Ok::<(), ropeway_config::ConfigError>(())
/// ```
pub fn review(text: &str, origin: &Path) -> Result<ConfigReview, ConfigError> {
    Config::parse(text, origin, &Secrets::unread())?;
    let document = Document::parse(text, origin)?;
    let mut review = ConfigReview::default();
    let mut references = Vec::new();
    for server in &document.servers {
        // `Config::parse` has validated every server.
        let (Some(raw), _) = document.decode(server) else { continue };
        if let Some(key) = &server.unsupported {
            review.settings.push((format!("server `{}`", raw.alias), format!("is not started: {key}")));
            continue;
        }
        review.servers.push(review_server(&raw, document.enables(&raw.alias), &mut references));
        if let Some(file) = &raw.env_file {
            references.push(ValueReference::File(file.clone()));
        }
    }
    if let Some((raw, _)) = &document.chat {
        review.chat = Some(review_chat(raw, &mut references));
    }
    if let Some((raw, _)) = &document.gateway {
        review.settings.extend(review_gateway(raw, &mut references));
    }
    if let Some((file, _)) = &document.secrets_file {
        references.push(ValueReference::File(file.clone()));
    }
    if let Some((lists, _)) = &document.tool_allowlist {
        let text = serde_json::to_string(lists).unwrap_or_default();
        review.settings.push(("tool_allowlist".to_owned(), text));
    }
    if let Some(collisions) = document.collisions {
        review.settings.push(("collisions".to_owned(), format!("{collisions:?}")));
    }
    match document.lock {
        None => {}
        Some(LockPolicy::Off) => {
            let text = "off (warning: tools that differ from ropeway.lock are used without asking)";
            review.settings.push(("lock".to_owned(), text.to_owned()));
        }
        Some(lock) => review.settings.push(("lock".to_owned(), lock.to_string())),
    }
    references.sort();
    references.dedup();
    for reference in references {
        match reference {
            ValueReference::Variable(name) => review.variables.push(name),
            ValueReference::File(path) => review.files.push(path),
        }
    }
    if !review.variables.is_empty() {
        review.files.insert(0, ".env".to_owned());
    }
    Ok(review)
}

fn review_server(raw: &RawServer, is_named: bool, all: &mut Vec<ValueReference>) -> ServerReview {
    let mut receives = Vec::new();
    let mut warnings: Vec<String> = Vec::new();
    let (mut token_commands, mut auth_settings) = (Vec::new(), None);
    let salt = |key: &str| format!("{}\0{key}", raw.alias);
    let transport = match (&raw.command, &raw.url) {
        (_, Some(url)) => {
            collect_references(&url.0, &mut receives);
            let mut headers = Vec::new();
            for (name, value) in &raw.headers.0 {
                collect_references(&value.0, &mut receives);
                headers.push((name.clone(), redact_header(name, &value.0, &salt(name))));
            }
            match &raw.auth {
                None => {}
                Some(RawAuth::Bearer(token)) => {
                    collect_references(&token.0, &mut receives);
                    let token = redact_token(&token.0, &salt("bearer"), |_| true);
                    headers.push(("Authorization".to_owned(), format!("Bearer {token}")));
                }
                Some(RawAuth::Basic(basic)) => {
                    collect_references(&basic.user.0, &mut receives);
                    collect_references(&basic.password.0, &mut receives);
                    let password = redact_token(&basic.password.0, &salt("password"), |_| true);
                    headers.push(("Authorization".to_owned(), format!("Basic {}:{password}", basic.user.0)));
                }
                Some(auth @ (RawAuth::OAuth(_) | RawAuth::Command(_))) => {
                    let review = review_tokens(auth, &salt("auth"), all);
                    receives.extend(review.receives);
                    warnings.extend(review.warnings);
                    token_commands = review.commands;
                    auth_settings = review.settings;
                }
            }
            warnings.extend(host_warning(&url.0));
            TransportReview::Url { url: redact_url(&url.0, &salt("url")), host: url_host(&url.0), headers }
        }
        (command, None) => {
            let mut args = Vec::new();
            let mut before = "";
            for RawText(arg) in &raw.args {
                collect_references(arg, &mut receives);
                args.push(redact_argument(before, arg, &salt("args")));
                before = arg;
            }
            let mut env = Vec::new();
            for (name, RawText(value)) in &raw.env.0 {
                collect_references(value, &mut receives);
                env.push((name.clone(), redact_value(name, value, &salt(name))));
                if loads_code(name) && has_reference(value) {
                    warnings
                        .push(format!("the environment or `.env` sets {name}, which can change the code that runs"));
                }
            }
            if raw.cwd.as_deref().is_some_and(has_reference) {
                warnings.push("the environment or `.env` sets the working directory of the command".to_owned());
            }
            raw.cwd.iter().chain(&raw.env_file).for_each(|text| collect_references(text, all));
            let sandbox = raw.sandbox.as_ref().and_then(RawSandbox::summary);
            let paths = || sandbox.iter().flat_map(|sandbox| sandbox.read.iter().chain(&sandbox.write));
            paths().for_each(|path| collect_references(path, all));
            if paths().any(|path| has_reference(path)) {
                warnings.push("the environment or `.env` sets paths of the sandbox".to_owned());
            }
            TransportReview::Command {
                command: command.clone().unwrap_or_default(),
                args,
                cwd: raw.cwd.clone(),
                env,
                env_file: raw.env_file.clone(),
                inherit_env: raw.inherit_env.unwrap_or(false),
                sandbox,
            }
        }
    };
    let receives = dedup(receives);
    all.extend(receives.iter().cloned());
    let enabled = is_named && raw.enabled.unwrap_or(true);
    let mut shown: Vec<(String, String)> = warnings.into_iter().map(|text| ("warning".to_owned(), text)).collect();
    if raw.transport.is_some_and(|transport| transport == RawTransport::Sse) {
        shown.push(("transport".to_owned(), "sse".to_owned()));
    }
    shown.extend(auth_settings.map(|text| ("auth".to_owned(), text)));
    shown.extend(ignored_keys(raw));
    shown.extend(other_settings(raw, &SERVER_KEYS, &salt("tools")));
    ServerReview { alias: raw.alias.clone(), enabled, transport, token_commands, receives, settings: shown }
}

/// Lists the keys that have no effect with the server's transport.
fn ignored_keys(raw: &RawServer) -> Option<(String, String)> {
    let keys = if raw.url.is_some() {
        vec![
            ("args", !raw.args.is_empty()),
            ("env", !raw.env.is_empty()),
            ("env_file", raw.env_file.is_some()),
            ("inherit_env", raw.inherit_env.is_some()),
            ("cwd", raw.cwd.is_some()),
            ("sandbox", raw.sandbox.is_some()),
        ]
    } else {
        vec![("headers", !raw.headers.is_empty()), ("auth", raw.auth.is_some())]
    };
    let keys: Vec<&str> = keys.into_iter().filter(|(_, is_set)| *is_set).map(|(key, _)| key).collect();
    (!keys.is_empty()).then(|| ("ignores".to_owned(), keys.join(", ")))
}

fn review_chat(raw: &RawChat, all: &mut Vec<ValueReference>) -> ChatReview {
    let mut receives = Vec::new();
    raw.key.iter().chain(&raw.base_url).for_each(|text| collect_references(&text.0, &mut receives));
    let receives = dedup(receives);
    all.extend(receives.iter().cloned());
    let RawApproval { allow, ask, deny } = raw.tools.clone().unwrap_or_default();
    let warning = raw.base_url.as_ref().and_then(|url| host_warning(&url.0));
    let mut shown: Vec<(String, String)> = warning.map(|text| ("warning".to_owned(), text)).into_iter().collect();
    shown.extend(other_settings(raw, &CHAT_KEYS, "chat"));
    ChatReview {
        provider: raw.provider.map(|provider| provider.0.to_string()),
        base_url: raw.base_url.as_ref().map(|url| redact_url(&url.0, "chat\0base_url")),
        host: raw.base_url.as_ref().map(|url| url_host(&url.0)),
        key: raw.key.as_ref().map(|key| redact_token(&key.0, "chat\0key", |_| true)),
        receives,
        allow,
        ask,
        deny,
        settings: shown,
    }
}

/// Returns the settings without a separate field, as compact JSON with preset secrets redacted.
fn other_settings(raw: &impl serde::Serialize, shown: &[&str], salt: &str) -> Vec<(String, String)> {
    let Ok(Value::Object(keys)) = serde_json::to_value(raw) else { return Vec::new() };
    let rest = keys.into_iter().filter(|(key, _)| !shown.contains(&key.as_str()));
    rest.map(|(key, mut value)| {
        for preset in value.get_mut("preset").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
            redact_json("", preset, salt);
        }
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        (key, text)
    })
    .collect()
}
