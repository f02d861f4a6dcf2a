//! Failures when choosing a model, with hints.

use std::path::Path;

use ropeway_core::message::Dialect;
use ropeway_providers::{ProviderError, ProviderSettings};

use super::local::{LocalPort, LocalServer};
use super::vendor::{Vendor, with_keys};
use crate::failure::{Exit, Failure};

/// Maximum models in a message.
const MAX_MODELS: usize = 12;

/// The key variable is not set.
pub(super) fn variable_not_set(name: &str) -> Failure {
    Failure::new(Exit::NeedsAuth, format!("environment variable `{name}` is not set"))
        .hint(format!("set it: export {name}=…"))
}

/// The key contains line breaks, which a header cannot contain.
pub(super) fn several_lines(name: &str) -> Failure {
    Failure::usage(format!("API key in `{name}` has several lines"))
}

/// The file's base URL contains variables that are not set. No other URL is guessed.
pub(super) fn base_url_not_set(secrets: &[String], file: Option<&Path>) -> Failure {
    let failure = Failure::usage(format!("base URL of the model is not set: {}", not_set(secrets)));
    not_set_in(failure, "base_url", secrets, file).hint("or use `--base-url` or `--provider`")
}

/// The file's key is not set. No other key is used instead.
pub(super) fn key_not_set(secrets: &[String], file: Option<&Path>) -> Failure {
    let failure = Failure::new(Exit::NeedsAuth, format!("API key of the model is not set: {}", not_set(secrets)));
    not_set_in(failure, "key", secrets, file).hint("or name another variable with `--key-env`")
}

fn not_set_in(failure: Failure, key: &str, secrets: &[String], file: Option<&Path>) -> Failure {
    let file = file.map(|file| format!(" in `{}`", file.display())).unwrap_or_default();
    let failure = failure.hint(format!("required by `chat.{key}`{file}"));
    let variables = secrets.iter().filter(|name| !name.starts_with("file:"));
    variables.fold(failure, |failure, name| failure.hint(format!("set it: export {name}=…")))
}

/// Lists the secrets that are not set.
fn not_set(secrets: &[String]) -> String {
    let names: Vec<String> = secrets.iter().map(|name| format!("`{name}`")).collect();
    format!("{} {} not set", names.join(" and "), if names.len() == 1 { "is" } else { "are" })
}

/// A key from the environment is not sent to a URL in a file that does not name the key.
pub(super) fn key_withheld(name: &str, settings: &ProviderSettings, file: Option<&Path>) -> Failure {
    let url = shown(settings);
    let file = file.map_or_else(|| "the configuration".to_owned(), |file| format!("`{}`", file.display()));
    Failure::new(Exit::NeedsAuth, format!("refusing to send the API key in `{name}` to `{url}`, which {file} sets"))
        .hint(format!("to allow it, add `key: ${{{name}}}` under `chat` in {file}"))
        .hint(format!("or pass the URL on the command line: `--base-url {url}`"))
}

/// The provider requires an API key.
pub(super) fn no_key(vendor: &Vendor) -> Failure {
    let names: Vec<String> = vendor.variables().map(|name| format!("`{name}`")).collect();
    let verb = if names.len() == 1 { "is not" } else { "are not" };
    let first = vendor.main_variable();
    Failure::new(
        Exit::NeedsAuth,
        format!("{} requires an API key, but {} {verb} set", vendor.title, names.join(" and ")),
    )
    .hint(format!("set it: export {first}=…"))
    .hint("or name another variable with `--key-env`, or with `key: ${NAME}` under `chat` in the configuration")
}

/// The key variable belongs to no known provider.
pub(super) fn unknown_key_variable(name: &str) -> Failure {
    Failure::usage(format!("unknown provider for the API key in `{name}`"))
        .hint("name the provider with `--provider` or `--base-url`")
}

/// The provider settings are invalid.
pub(super) fn unusable(error: &ProviderError) -> Failure {
    Failure::provider(error.to_string(), error)
}

/// The provider did not list its models.
pub(super) fn not_listed(settings: &ProviderSettings, error: &ProviderError) -> Failure {
    let url = shown(settings);
    let failure = Failure::provider(format!("could not list the models of `{url}`"), error);
    let has_path = url.trim_end_matches('/').split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
    // Other dialects add the version to the path.
    let wants_version = matches!(settings.dialect, Dialect::Chat | Dialect::Responses) && !has_path;
    let failure = if wants_version { failure.hint("most servers expect `/v1` at the end of the URL") } else { failure };
    failure.hint("or name a model with `--model`")
}

/// The server has no chat model.
pub(super) fn no_model(settings: &ProviderSettings) -> Failure {
    Failure::usage(format!("no models at `{}`", shown(settings))).hint("name an unlisted model with `--model`")
}

/// The provider has no default model.
pub(super) fn model_required(vendor: &Vendor, models: &[String]) -> Failure {
    let failure = Failure::usage(format!("no default model for {}; name one with `--model`", vendor.title));
    if models.is_empty() { failure } else { failure.hint(format!("available models: {}", named(models))) }
}

/// No option, configuration, key or local server provides a model.
pub(super) fn no_model_found(wanted: Option<&str>, found: &[LocalServer], locals: &[LocalPort]) -> Failure {
    let asked: Vec<String> = locals.iter().map(|local| format!("{} on port {}", local.title(), local.port)).collect();
    let failure = match wanted {
        Some(model) if !found.is_empty() => {
            Failure::usage(format!("model `{model}` not found: no API key is set, and no local server has it"))
        }
        _ => Failure::usage("no model found: no API key is set, and no local server was found"),
    };
    let failure = found.iter().fold(failure, |failure, LocalServer { local, models }| {
        let (title, port) = (local.title(), local.port);
        failure.hint(if models.is_empty() {
            format!("{title} on port {port} has no models; load one first")
        } else {
            format!("{title} on port {port} has: {}", named(models))
        })
    });
    let failure = with_keys().fold(failure, |failure, vendor| {
        failure.hint(format!("for {}: export {}=…", vendor.title, vendor.main_variable()))
    });
    failure
        .hint(format!("for a local model: start its server ({})", asked.join(", ")))
        .hint(
            "for any other: --base-url http://127.0.0.1:8080/v1 --model NAME, and --key-env VARIABLE if it needs a key",
        )
        .hint("to save the choice: `chat: {provider: anthropic, model: NAME, key: \"${MY_KEY}\"}` in ropeway.yaml")
}

fn named(models: &[String]) -> String {
    let more =
        if models.len() > MAX_MODELS { format!(" and {} more", models.len() - MAX_MODELS) } else { String::new() };
    let first: Vec<&str> = models.iter().take(MAX_MODELS).map(String::as_str).collect();
    format!("{}{more}", first.join(", "))
}

/// Returns a provider's URL without credentials.
fn shown(settings: &ProviderSettings) -> String {
    let redactor = settings.secrets();
    let Ok(mut url) = url::Url::parse(&settings.base_url) else {
        return redactor.redact(&settings.base_url).into_owned();
    };
    // A URL that cannot have credentials has none.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    redactor.redact(url.as_str()).into_owned()
}
