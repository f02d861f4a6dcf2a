//! Why there is no model to talk to, and what helps.

use std::path::Path;

use ropeway::message::Dialect;
use ropeway::provider::{ProviderError, ProviderSettings};

use super::local::{Found, Local};
use super::vendor::{Vendor, with_keys};
use crate::failure::{Exit, Failure};

/// How many models are named.
const MOST: usize = 12;

/// A variable that should hold the key and holds nothing.
pub(super) fn variable_not_set(name: &str) -> Failure {
    Failure::new(Exit::NeedsAuth, format!("the variable `{name}` is not set")).hint(format!("set it: export {name}=…"))
}

/// A key that no header can hold.
pub(super) fn several_lines(name: &str) -> Failure {
    Failure::usage(format!("the key in `{name}` has several lines"))
}

/// A base URL of the file whose secrets are not set: it is not guessed where the talk was meant to go.
pub(super) fn lost(secrets: &[String], file: Option<&Path>) -> Failure {
    let failure = Failure::usage(format!("it is not known where the model is: {}", not_set(secrets)));
    not_set_in(failure, "base_url", secrets, file)
        .hint("or say where it is with `--base-url`, or whose with `--provider`")
}

/// A key of the file that is not set: no other one is sent in its place.
pub(super) fn key_not_set(secrets: &[String], file: Option<&Path>) -> Failure {
    let failure = Failure::new(Exit::NeedsAuth, format!("the key of the model is not known: {}", not_set(secrets)));
    not_set_in(failure, "key", secrets, file).hint("or name another variable with `--key-env`")
}

fn not_set_in(failure: Failure, key: &str, secrets: &[String], file: Option<&Path>) -> Failure {
    let file = file.map(|file| format!(" of `{}`", file.display())).unwrap_or_default();
    let failure = failure.hint(format!("`chat.{key}`{file} wants it"));
    let variables = secrets.iter().filter(|name| !name.starts_with("file:"));
    variables.fold(failure, |failure, name| failure.hint(format!("set it: export {name}=…")))
}

/// Which secrets are not set, in words.
fn not_set(secrets: &[String]) -> String {
    let names: Vec<String> = secrets.iter().map(|name| format!("`{name}`")).collect();
    format!("{} {} not set", names.join(" and "), if names.len() == 1 { "is" } else { "are" })
}

/// A key of the environment that does not go where a file says: the file has to name it.
pub(super) fn key_withheld(name: &str, settings: &ProviderSettings, file: Option<&Path>) -> Failure {
    let url = shown(settings);
    let file = file.map_or_else(|| "the configuration".to_owned(), |file| format!("`{}`", file.display()));
    Failure::new(Exit::NeedsAuth, format!("the key in `{name}` is not sent to `{url}`, which {file} names"))
        .hint(format!("to send it there, write `key: ${{{name}}}` under `chat` in {file}"))
        .hint(format!("or name the address on the command line: `--base-url {url}`"))
}

/// A provider that does not answer without a key.
pub(super) fn no_key(vendor: &Vendor) -> Failure {
    let names: Vec<String> = vendor.variables().map(|name| format!("`{name}`")).collect();
    let verb = if names.len() == 1 { "is not" } else { "are not" };
    let first = vendor.usual_variable();
    Failure::new(Exit::NeedsAuth, format!("{} needs a key, and {} {verb} set", vendor.title, names.join(" and ")))
        .hint(format!("set it: export {first}=…"))
        .hint("or name another variable with `--key-env`, or write `key: ${NAME}` under `chat` in the configuration")
}

/// A key of which nobody knows whose it is.
pub(super) fn key_for_nobody(name: &str) -> Failure {
    Failure::usage(format!("it is not known whose key `{name}` holds"))
        .hint("say it with `--provider` or `--base-url`: a key goes only where it belongs")
}

/// Settings that no request can be made with.
pub(super) fn unusable(error: &ProviderError) -> Failure {
    Failure::provider(error.to_string(), error)
}

/// A provider that does not tell its models.
pub(super) fn not_listed(settings: &ProviderSettings, error: &ProviderError) -> Failure {
    let url = shown(settings);
    let failure = Failure::provider(format!("the models at `{url}` could not be listed"), error);
    let has_path = url.trim_end_matches('/').split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
    // The other dialects put it there themselves.
    let wants_version = matches!(settings.dialect, Dialect::Chat | Dialect::Responses) && !has_path;
    let failure = match wants_version {
        true => failure.hint("most servers want `/v1` at the end of the URL"),
        false => failure,
    };
    failure.hint("a model that is named with `--model` need not be listed")
}

/// A server without a model to talk to.
pub(super) fn no_model(settings: &ProviderSettings) -> Failure {
    Failure::usage(format!("there is no model at `{}`", shown(settings)))
        .hint("name one with `--model`, if it is not listed")
}

/// A provider with many models, of which somebody has to name one.
pub(super) fn which(vendor: &Vendor, models: &[String]) -> Failure {
    let failure = Failure::usage(format!("a model of {} has to be named with `--model`", vendor.title));
    if models.is_empty() { failure } else { failure.hint(format!("there are: {}", named(models))) }
}

/// Nothing is said, no key is set, and nobody answers.
pub(super) fn nothing(wanted: Option<&str>, found: &[Found], locals: &[Local]) -> Failure {
    let asked: Vec<String> = locals.iter().map(|local| format!("{} on port {}", local.title(), local.port)).collect();
    let failure = match wanted {
        Some(model) if !found.is_empty() => {
            Failure::usage(format!("no key is set, and no server on this machine has the model `{model}`"))
        }
        _ => Failure::usage("there is no model to talk to: no key is set, and no server on this machine has one"),
    };
    let failure = found.iter().fold(failure, |failure, Found { local, models }| {
        let (title, port) = (local.title(), local.port);
        failure.hint(match models.is_empty() {
            true => format!("{title} answers on port {port}, but has no model: give it one first"),
            false => format!("{title} on port {port} has: {}", named(models)),
        })
    });
    let failure = with_keys().fold(failure, |failure, vendor| {
        failure.hint(format!("for {}: export {}=…", vendor.title, vendor.usual_variable()))
    });
    failure
        .hint(format!("for a model on this machine: start its server ({})", asked.join(", ")))
        .hint(
            "for any other: --base-url http://127.0.0.1:8080/v1 --model NAME, and --key-env VARIABLE if it wants a key",
        )
        .hint("to write it down: `chat: {provider: anthropic, model: NAME, key: \"${MY_KEY}\"}` in ropeway.yaml")
}

fn named(models: &[String]) -> String {
    let more = if models.len() > MOST { format!(" and {} more", models.len() - MOST) } else { String::new() };
    let first: Vec<&str> = models.iter().take(MOST).map(String::as_str).collect();
    format!("{}{more}", first.join(", "))
}

/// The address of a provider, without what must not be seen of it.
fn shown(settings: &ProviderSettings) -> String {
    let mask = settings.secrets();
    let Ok(mut url) = url::Url::parse(&settings.base_url) else { return mask.hide(&settings.base_url).into_owned() };
    // What cannot have credentials has none to be shown.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    mask.hide(url.as_str()).into_owned()
}
