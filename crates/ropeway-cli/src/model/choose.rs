//! Chooses a model. Options win over the configuration, and API keys are sent only to their own provider.

use ropeway_config::{ChatSettings, ProviderName};
use ropeway_core::message::Dialect;
use ropeway_core::secret::Secret;
use ropeway_providers::{Provider, ProviderSettings};

use super::args::{ModelArgs, ModelChoice};
use super::environment::{Environment, is_loopback};
use super::failures;
use super::local::{self, LocalServer};
use super::vendor::{Vendor, vendor, with_keys};
use crate::config::config_file::ConfigFile;
use crate::failure::Failure;
use crate::secrets::redaction;
use crate::trust::print_warning;

/// Name fragments that mark a model as unsuitable for chat.
const NON_CHAT_MODELS: [&str; 3] = ["embed", "rerank", "whisper"];

impl ModelArgs {
    /// Chooses the model; `file` holds the chat settings. From here on, the API key is redacted from all output.
    pub(crate) async fn choose(
        &self,
        chat: Option<&ChatSettings>,
        file: Option<&ConfigFile>,
    ) -> Result<ModelChoice, Failure> {
        self.hide_secrets();
        let choice = choose(self, chat, &Environment::of_process(file)).await?;
        redaction::add_secrets(&choice.provider.secrets());
        if choice.provider.key.is_some() && is_unencrypted(&choice.provider.base_url) {
            print_warning(&format!("sending the API key to {} unencrypted; use https://", choice.place));
        }
        Ok(choice)
    }

    /// Lists models from the provider that [`choose`](Self::choose) would use.
    pub(crate) async fn list(
        &self,
        chat: Option<&ChatSettings>,
        file: Option<&ConfigFile>,
    ) -> Result<Vec<String>, Failure> {
        self.hide_secrets();
        list(self, chat, &Environment::of_process(file)).await
    }
}

/// Returns `true` if requests to this URL cross the network without TLS.
fn is_unencrypted(base_url: &str) -> bool {
    url::Url::parse(base_url).is_ok_and(|url| url.scheme() == "http" && !is_loopback(&url))
}

/// Chooses a model from the options, then the file, then API keys, then local servers. Local servers come before API keys if
/// no provider with a key is known to have the requested model.
pub(super) async fn choose(
    args: &ModelArgs,
    chat: Option<&ChatSettings>,
    environment: &Environment<'_>,
) -> Result<ModelChoice, Failure> {
    let request = ModelRequest::of(args, chat, environment)?;
    if let Some(endpoint) = request.endpoint(environment)? {
        return endpoint.choice(request.model).await;
    }
    let keyed = endpoint_by_key(request.model.as_deref(), environment)?;
    if let Some((endpoint, true)) = keyed {
        return endpoint.choice(request.model).await;
    }
    // No provider with a key is known to have the model: it may be local.
    let found = local::find(environment.local_ports).await;
    match (local_choice(request.model.as_deref(), &found), keyed) {
        (Some(choice), _) => Ok(choice),
        (None, Some((endpoint, _))) => endpoint.choice(request.model).await,
        (None, None) => Err(failures::no_model_found(request.model.as_deref(), &found, environment.local_ports)),
    }
}

/// Lists models from the provider that would be chosen.
pub(super) async fn list(
    args: &ModelArgs,
    chat: Option<&ChatSettings>,
    environment: &Environment<'_>,
) -> Result<Vec<String>, Failure> {
    let request = ModelRequest::of(args, chat, environment)?;
    let endpoint = match request.endpoint(environment)? {
        Some(endpoint) => Some(endpoint),
        None => endpoint_by_key(request.model.as_deref(), environment)?.map(|(endpoint, _)| endpoint),
    };
    if let Some(endpoint) = endpoint {
        return endpoint.models().await;
    }
    let found = local::find(environment.local_ports).await;
    let models: Vec<String> = found.iter().flat_map(|found| found.models.clone()).collect();
    if models.is_empty() { Err(failures::no_model_found(None, &found, environment.local_ports)) } else { Ok(models) }
}

/// The request for a model, merged from options and configuration.
struct ModelRequest {
    provider: Option<ProviderName>,
    base_url: Option<String>,
    key: Option<Secret>,
    key_env: Option<String>,
    model: Option<String>,
    why: String,
    /// The base URL is from a file that is not the user's own: environment keys must not be sent to it.
    is_untrusted_url: bool,
}

impl ModelRequest {
    fn of(args: &ModelArgs, chat: Option<&ChatSettings>, environment: &Environment<'_>) -> Result<Self, Failure> {
        let no_chat = ChatSettings::default();
        let chat = chat.unwrap_or(&no_chat);
        let in_file = provider_of(chat.provider, chat.base_url.as_deref());
        let on_line = provider_of(args.provider, args.base_url.as_deref());
        let lacks_base_url = !chat.missing.base_url.is_empty();
        if lacks_base_url && on_line.is_none() {
            return Err(failures::base_url_not_set(&chat.missing.base_url, environment.file));
        }
        // The file's settings apply to its own endpoint only; its key must not be sent elsewhere.
        let is_elsewhere = lacks_base_url
            || args.base_url.as_ref().is_some_and(|url| !chat.base_url.as_ref().is_some_and(|own| same_url(url, own)))
            || args.provider.is_some() && args.provider != in_file;
        // A missing key is never replaced by another one.
        if !is_elsewhere && !chat.missing.key.is_empty() && args.key_env.is_none() {
            return Err(failures::key_not_set(&chat.missing.key, environment.file));
        }
        let names_a_place = in_file.is_some() || lacks_base_url;
        let keeps_place = names_a_place && !is_elsewhere;
        let keeps_model = keeps_place || !names_a_place;
        let why = match (args.provider, &args.base_url) {
            (Some(provider), _) => format!("from `--provider {provider}`"),
            (None, Some(_)) => "from `--base-url`".to_owned(),
            (None, None) => "from the configuration".to_owned(),
        };
        let is_of_file = args.base_url.is_none() && keeps_place && chat.base_url.is_some();
        Ok(Self {
            is_untrusted_url: is_of_file && !environment.is_own,
            provider: args.provider.or(in_file.filter(|_| keeps_place)).or(on_line),
            base_url: args.base_url.clone().or(chat.base_url.clone().filter(|_| keeps_place)),
            key: chat.key.clone().filter(|_| keeps_place),
            key_env: args.key_env.clone(),
            model: args.model.clone().or(chat.model.clone().filter(|_| keeps_model)),
            why,
        })
    }

    /// Returns the endpoint that is named directly or by its key variable, if any.
    fn endpoint(&self, environment: &Environment<'_>) -> Result<Option<Endpoint>, Failure> {
        let Some(provider) = self.provider else { return endpoint_by_key_variable(self, environment) };
        let vendor = vendor(provider);
        let mut settings = default_settings(vendor, environment);
        let vendor_url = vendor_url(vendor, &settings);
        let default_url = settings.base_url.clone();
        if let Some(url) = &self.base_url {
            settings.base_url.clone_from(url);
            settings.dialect = provider.dialect();
        }
        let settings = match (&self.key_env, &self.key) {
            (Some(name), _) => with_key_of(settings, vendor, name, environment)?,
            (None, Some(key)) => with_key(settings, key.clone()),
            // The server's owner is unknown, so no key is sent.
            (None, None) if provider == ProviderName::Chat && self.base_url.is_some() => settings,
            (None, None) if self.is_untrusted_url && !is_at(&settings.base_url, &vendor_url, &default_url) => {
                let is_local = url::Url::parse(&settings.base_url).is_ok_and(|url| is_loopback(&url));
                match vendor.variables().find(|name| environment.get(name).is_some()) {
                    Some(name) if !is_local => return Err(failures::key_withheld(name, &settings, environment.file)),
                    _ => settings,
                }
            }
            (None, None) => with_default_key(settings, vendor, environment)?,
        };
        let is_own = same_url(&settings.base_url, &vendor_url);
        if is_own && !vendor.keys.is_empty() && settings.key.is_none() {
            return Err(failures::no_key(vendor));
        }
        Ok(Some(Endpoint { vendor, settings, is_own, why: self.why.clone() }))
    }
}

/// Returns the named provider; a URL alone means a Chat Completions endpoint.
fn provider_of(provider: Option<ProviderName>, base_url: Option<&str>) -> Option<ProviderName> {
    provider.or(base_url.map(|_| ProviderName::Chat))
}

/// Returns a provider's default settings, with the base URL from the environment.
///
/// A server at `OPENAI_BASE_URL` is expected to support Chat Completions, since few support the Responses API. For one that
/// does, use `--provider openai --base-url URL`.
fn default_settings(vendor: &Vendor, environment: &Environment<'_>) -> ProviderSettings {
    if let Some(local) = environment.local_ports.iter().find(|local| local.name == vendor.name) {
        return local.settings();
    }
    let dialect = vendor.name.dialect();
    let mut settings = match vendor.url {
        None => ProviderSettings::from_variables(dialect, environment.variable),
        Some(url) => ProviderSettings::new(dialect).with_base_url(url),
    };
    // The provider table determines the key variable.
    settings.key = None;
    if dialect == Dialect::Responses && !same_url(&settings.base_url, &vendor_url(vendor, &settings)) {
        settings.dialect = Dialect::Chat;
    }
    settings
}

/// Returns the provider's own base URL.
fn vendor_url(vendor: &Vendor, default_settings: &ProviderSettings) -> String {
    match vendor.url {
        Some(url) => url.to_owned(),
        None if vendor.keys.is_empty() => default_settings.base_url.clone(),
        None => ProviderSettings::new(vendor.name.dialect()).base_url,
    }
}

/// Returns `true` if two URLs differ at most in a trailing slash.
fn same_url(one: &str, other: &str) -> bool {
    let plain = |text: &str| match url::Url::parse(text) {
        Ok(mut url) => {
            let path = url.path().trim_end_matches('/').to_owned();
            url.set_path(&path);
            url.to_string()
        }
        Err(_) => text.to_owned(),
    };
    plain(one) == plain(other)
}

/// Returns `true` if the URL is the vendor's own, or the one that the environment sets for the vendor.
fn is_at(url: &str, own: &str, default_settings: &str) -> bool {
    let (Ok(parsed), Ok(own)) = (url::Url::parse(url), url::Url::parse(own)) else { return false };
    let (Some(host), Some(vendor)) = (parsed.host_str(), own.host_str()) else { return false };
    // Regions have separate hosts, such as `eu.api.openai.com`.
    let is_host = host == vendor || host.strip_suffix(vendor).is_some_and(|start| start.ends_with('.'));
    let is_same = parsed.scheme() == own.scheme() && parsed.port_or_known_default() == own.port_or_known_default();
    (is_host && is_same) || same_url(url, default_settings)
}

/// Sets a key, with the dialect's header.
fn with_key(mut settings: ProviderSettings, key: Secret) -> ProviderSettings {
    settings.key_header = ProviderSettings::new(settings.dialect).key_header;
    settings.with_key(key)
}

/// Sets the key from a variable, with the header that the provider expects for it.
fn with_key_of(
    settings: ProviderSettings,
    vendor: &Vendor,
    name: &str,
    environment: &Environment<'_>,
) -> Result<ProviderSettings, Failure> {
    let mut settings = with_key(settings, environment.key(name)?);
    if vendor.keys.iter().any(|key| key.variable == name && key.is_token) {
        settings.key_header = None;
    }
    Ok(settings)
}

/// Sets the provider's first key that is in the environment, if any.
fn with_default_key(
    settings: ProviderSettings,
    vendor: &Vendor,
    environment: &Environment<'_>,
) -> Result<ProviderSettings, Failure> {
    match vendor.variables().find(|name| environment.get(name).is_some()) {
        Some(name) => with_key_of(settings, vendor, name, environment),
        None => Ok(settings),
    }
}

/// Returns the endpoint whose key variable is given.
fn endpoint_by_key_variable(
    request: &ModelRequest,
    environment: &Environment<'_>,
) -> Result<Option<Endpoint>, Failure> {
    let Some(name) = &request.key_env else { return Ok(None) };
    let Some(vendor) = with_keys().find(|vendor| vendor.variables().any(|known| known == name)) else {
        return Err(failures::unknown_key_variable(name));
    };
    let settings = with_key_of(default_settings(vendor, environment), vendor, name, environment)?;
    Ok(Some(Endpoint::found(vendor, settings, "from `--key-env`".to_owned())))
}

/// Returns an endpoint whose key is set, and whether it is likely to have the requested model. Prefers a provider with
/// matching model names, then a custom base URL, then the first one.
fn endpoint_by_key(wanted: Option<&str>, environment: &Environment<'_>) -> Result<Option<(Endpoint, bool)>, Failure> {
    let set: Vec<(&Vendor, &str)> =
        with_keys().filter_map(|vendor| Some((vendor, variable_of(vendor, environment)?))).collect();
    let is_called = |vendor: &Vendor, model: &str| vendor.models.iter().any(|start| model.starts_with(start));
    let stands_in = |vendor: &Vendor| {
        let settings = default_settings(vendor, environment);
        !same_url(&settings.base_url, &vendor_url(vendor, &settings))
    };
    let fitting = match wanted {
        None => set.first(),
        Some(model) => set
            .iter()
            .find(|(vendor, _)| is_called(vendor, model))
            .or_else(|| set.iter().find(|(vendor, _)| stands_in(vendor))),
    };
    let Some((vendor, variable)) = fitting.or(set.first()) else { return Ok(None) };
    let settings = with_default_key(default_settings(vendor, environment), vendor, environment)?;
    Ok(Some((Endpoint::found(vendor, settings, format!("{variable} is set")), fitting.is_some())))
}

/// Returns the variable that selects a provider. `OPENAI_BASE_URL` alone suffices, since local servers need no key.
fn variable_of(vendor: &Vendor, environment: &Environment<'_>) -> Option<&'static str> {
    let address = (vendor.name == ProviderName::OpenAi).then_some("OPENAI_BASE_URL");
    vendor.variables().chain(address).find(|name| environment.get(name).is_some())
}

/// A provider, before its model is chosen.
struct Endpoint {
    vendor: &'static Vendor,
    settings: ProviderSettings,
    /// Whether the base URL is the provider's own.
    is_own: bool,
    why: String,
}

impl Endpoint {
    fn found(vendor: &'static Vendor, settings: ProviderSettings, why: String) -> Self {
        let is_own = same_url(&settings.base_url, &vendor_url(vendor, &settings));
        Self { vendor, settings, is_own, why }
    }

    async fn choice(self, model: Option<String>) -> Result<ModelChoice, Failure> {
        let default_settings = self.vendor.model.filter(|_| self.is_own).map(str::to_owned);
        let model = match model.or(default_settings) {
            Some(model) => {
                // Reports invalid settings now instead of at the first request.
                Provider::new(self.settings.clone()).map_err(|error| failures::unusable(&error))?;
                model
            }
            None => self.default_model().await?,
        };
        let place = describe_endpoint(self.vendor, &self.settings, self.is_own);
        Ok(ModelChoice { provider: self.settings, model, place, why: self.why })
    }

    /// Returns a self-hosted server's first model. A hosted provider without a default model is an error.
    async fn default_model(&self) -> Result<String, Failure> {
        let models = self.models().await?;
        if self.is_own && !self.vendor.keys.is_empty() {
            return Err(failures::model_required(self.vendor, &models));
        }
        first_chat_model(&models).ok_or_else(|| failures::no_model(&self.settings))
    }

    async fn models(&self) -> Result<Vec<String>, Failure> {
        let provider = Provider::new(self.settings.clone()).map_err(|error| failures::unusable(&error))?;
        provider.models().await.map_err(|error| failures::not_listed(&self.settings, &error))
    }
}

/// Returns the first chat model.
fn first_chat_model(models: &[String]) -> Option<String> {
    let is_not_chat = |model: &str| NON_CHAT_MODELS.iter().any(|word| model.to_lowercase().contains(word));
    models.iter().find(|model| !is_not_chat(model)).cloned()
}

/// Describes the provider and its host; for a custom base URL, only the host.
fn describe_endpoint(vendor: &Vendor, settings: &ProviderSettings, is_own: bool) -> String {
    let host = url::Url::parse(&settings.base_url).ok().and_then(|url| {
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        Some(format!("{}{port}", url.host_str()?))
    });
    match (host, is_own) {
        (Some(host), true) => format!("{} at {host}", vendor.title),
        (Some(host), false) => host,
        (None, _) => vendor.title.to_owned(),
    }
}

/// Returns the requested model on a local server, or the first one there.
fn local_choice(wanted: Option<&str>, found: &[LocalServer]) -> Option<ModelChoice> {
    let of = |LocalServer { models, .. }: &LocalServer| match wanted {
        Some(wanted) => models.iter().find(|model| matches_model(model, wanted)).cloned(),
        None => first_chat_model(models),
    };
    let (local, model) = found.iter().find_map(|found| Some((found.local, of(found)?)))?;
    let why = format!("{} answers on port {}", local.title(), local.port);
    let provider = local.settings();
    let place = describe_endpoint(vendor(local.name), &provider, true);
    Some(ModelChoice { provider, model, place, why })
}

/// Compares model names; Ollama's tag `:latest` is optional.
fn matches_model(model: &str, wanted: &str) -> bool {
    model == wanted || model.strip_suffix(":latest") == Some(wanted)
}
