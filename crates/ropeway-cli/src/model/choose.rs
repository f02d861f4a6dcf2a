//! The choice of a model: what is said goes before what is found, and keys go only where they belong.

use ropeway::config::{ChatSettings, ProviderName};
use ropeway::message::Dialect;
use ropeway::provider::{Provider, Settings};
use ropeway::secret::Secret;

use super::local::{self, Found};
use super::vendor::{Vendor, vendor, with_keys};
use super::{Around, ModelArgs, ModelChoice, trouble};
use crate::failure::Failure;

/// Words in the names of models that nobody can talk to.
const MUTE: [&str; 3] = ["embed", "rerank", "whisper"];

/// The model that is meant: the line goes before the file, the file before keys, and keys before servers on this machine.
pub(super) async fn choose(
    args: &ModelArgs,
    chat: Option<&ChatSettings>,
    around: &Around<'_>,
) -> Result<ModelChoice, Failure> {
    let said = Said::of(args, chat, around)?;
    let place = match said.place(around)? {
        Some(place) => Some(place),
        None => by_key(&said, around)?,
    };
    match place {
        Some(place) => place.choice(said.model).await,
        None => on_this_machine(said.model, around).await,
    }
}

/// What is said of a model, on the line and in the file.
struct Said {
    provider: Option<ProviderName>,
    base_url: Option<String>,
    key: Option<Secret>,
    key_env: Option<String>,
    model: Option<String>,
    why: String,
}

impl Said {
    fn of(args: &ModelArgs, chat: Option<&ChatSettings>, around: &Around<'_>) -> Result<Self, Failure> {
        let no_chat = ChatSettings::default();
        let chat = chat.unwrap_or(&no_chat);
        let in_file = provider_of(chat.provider, chat.base_url.as_deref());
        let on_line = provider_of(args.provider, args.base_url.as_deref());
        let is_lost = !chat.missing.base_url.is_empty();
        if is_lost && on_line.is_none() {
            return Err(trouble::lost(&chat.missing.base_url, around.file));
        }
        // What the file says of one place says nothing of another: above all, its key does not go there.
        let is_elsewhere = is_lost
            || args.base_url.is_some() && args.base_url != chat.base_url
            || args.provider.is_some() && args.provider != in_file;
        // Nobody's key stands in for the one that is meant.
        if !is_elsewhere && !chat.missing.key.is_empty() && args.key_env.is_none() {
            return Err(trouble::key_not_set(&chat.missing.key, around.file));
        }
        let names_a_place = in_file.is_some() || is_lost;
        let keeps_place = names_a_place && !is_elsewhere;
        let keeps_model = keeps_place || !names_a_place;
        let why = match (args.provider, &args.base_url) {
            (Some(provider), _) => format!("`--provider {provider}` was given"),
            (None, Some(_)) => "`--base-url` was given".to_owned(),
            (None, None) => "the configuration says so".to_owned(),
        };
        Ok(Self {
            provider: args.provider.or(in_file.filter(|_| keeps_place)).or(on_line),
            base_url: args.base_url.clone().or(chat.base_url.clone().filter(|_| keeps_place)),
            key: chat.key.clone().filter(|_| keeps_place),
            key_env: args.key_env.clone(),
            model: args.model.clone().or(chat.model.clone().filter(|_| keeps_model)),
            why,
        })
    }

    /// The place that is named, if one is.
    fn place(&self, around: &Around<'_>) -> Result<Option<Place>, Failure> {
        let Some(provider) = self.provider else { return Ok(None) };
        let vendor = vendor(provider);
        let mut settings = usual(vendor, around);
        let own_url = own_url(vendor, &settings);
        if let Some(url) = &self.base_url {
            settings.base_url.clone_from(url);
            // Nobody has said whose server it is, so nobody's key is for it.
            if provider == ProviderName::Chat {
                settings.key = None;
            }
        }
        if let Some(key) = &self.key {
            settings = with_key(settings, key.clone());
        }
        if let Some(name) = &self.key_env {
            let key = around.get(name).ok_or_else(|| trouble::variable_not_set(name))?;
            settings = with_key(settings, Secret::new(key));
        }
        let is_own = same_url(&settings.base_url, &own_url);
        if is_own && !vendor.keys.is_empty() && settings.key.is_none() {
            return Err(trouble::no_key(vendor));
        }
        Ok(Some(Place { vendor, settings, is_own, why: self.why.clone() }))
    }
}

/// The provider that is named, or who speaks at a URL of which nothing else is said.
fn provider_of(provider: Option<ProviderName>, base_url: Option<&str>) -> Option<ProviderName> {
    provider.or(base_url.map(|_| ProviderName::Chat))
}

/// How a provider is usually talked to, with what the environment says of it.
fn usual(vendor: &Vendor, around: &Around<'_>) -> Settings {
    if let Some(local) = around.locals.iter().find(|local| local.name == vendor.name) {
        return local.settings();
    }
    let dialect = vendor.name.dialect();
    match vendor.url {
        None => Settings::from_variables(dialect, around.variable),
        Some(url) => {
            let mut settings = Settings::new(dialect).with_base_url(url);
            settings.key = vendor.keys.iter().find_map(|name| around.get(name)).map(Secret::new);
            settings
        }
    }
}

/// Where a provider is when nobody says otherwise.
fn own_url(vendor: &Vendor, usual: &Settings) -> String {
    match vendor.url {
        Some(url) => url.to_owned(),
        None if vendor.keys.is_empty() => usual.base_url.clone(),
        None => Settings::new(vendor.name.dialect()).base_url,
    }
}

fn same_url(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

/// The settings with this key, sent as the dialect sends keys.
fn with_key(mut settings: Settings, key: Secret) -> Settings {
    settings.key_header = Settings::new(settings.dialect).key_header;
    settings.with_key(key)
}

/// The provider whose key is set; of several the one whose models are called like the one that is wanted, or else the first.
fn by_key(said: &Said, around: &Around<'_>) -> Result<Option<Place>, Failure> {
    if let Some(name) = &said.key_env {
        let Some(vendor) = with_keys().find(|vendor| vendor.keys.contains(&name.as_str())) else {
            return Err(trouble::key_for_nobody(name));
        };
        let key = around.get(name).ok_or_else(|| trouble::variable_not_set(name))?;
        let settings = with_key(usual(vendor, around), Secret::new(key));
        return Ok(Some(Place::found(vendor, settings, "`--key-env` was given".to_owned())));
    }
    let set: Vec<(&Vendor, &str)> = with_keys().filter_map(|vendor| Some((vendor, reason(vendor, around)?))).collect();
    let is_called = |vendor: &Vendor, model: &str| vendor.models.iter().any(|start| model.starts_with(start));
    let wanted = said.model.as_ref().and_then(|model| set.iter().find(|(vendor, _)| is_called(vendor, model)));
    Ok(wanted
        .or(set.first())
        .map(|(vendor, variable)| Place::found(vendor, usual(vendor, around), format!("{variable} is set"))))
}

/// The variable that speaks for a provider, if one is set. An address alone does, too: servers of one's own need no key.
fn reason(vendor: &Vendor, around: &Around<'_>) -> Option<&'static str> {
    let address = (vendor.name == ProviderName::OpenAi).then_some("OPENAI_BASE_URL");
    vendor.keys.iter().copied().chain(address).find(|name| around.get(name).is_some())
}

/// Where a model is, before it is known which.
struct Place {
    vendor: &'static Vendor,
    settings: Settings,
    /// Is it where this provider is when nobody says otherwise?
    is_own: bool,
    why: String,
}

impl Place {
    fn found(vendor: &'static Vendor, mut settings: Settings, why: String) -> Self {
        let is_own = same_url(&settings.base_url, &own_url(vendor, &settings));
        // Who stands in for OpenAI speaks Chat Completions; few speak Responses.
        if !is_own && settings.dialect == Dialect::Responses {
            settings.dialect = Dialect::Chat;
        }
        Self { vendor, settings, is_own, why }
    }

    async fn choice(self, model: Option<String>) -> Result<ModelChoice, Failure> {
        let usual = self.vendor.model.filter(|_| self.is_own).map(str::to_owned);
        let model = match model.or(usual) {
            Some(model) => {
                // Said now rather than at the first question.
                Provider::new(self.settings.clone()).map_err(|error| trouble::unusable(&error))?;
                model
            }
            None => self.ask().await?,
        };
        Ok(ModelChoice { provider: self.settings, model, why: self.why })
    }

    /// The first of its models, where it serves what somebody gave it; of a shop's many models somebody has to name one.
    async fn ask(&self) -> Result<String, Failure> {
        let provider = Provider::new(self.settings.clone()).map_err(|error| trouble::unusable(&error))?;
        let is_shop = self.is_own && !self.vendor.keys.is_empty();
        match provider.models().await {
            Ok(models) if is_shop => Err(trouble::which(self.vendor, &models)),
            Ok(models) => first(&models).ok_or_else(|| trouble::no_model(&self.settings)),
            Err(error) => Err(trouble::not_listed(&self.settings, &error)),
        }
    }
}

/// The first model that one can talk to.
fn first(models: &[String]) -> Option<String> {
    let is_mute = |model: &str| MUTE.iter().any(|word| model.to_lowercase().contains(word));
    models.iter().find(|model| !is_mute(model)).cloned()
}

/// The model of a server on this machine: the one that is wanted, or else the first.
async fn on_this_machine(wanted: Option<String>, around: &Around<'_>) -> Result<ModelChoice, Failure> {
    let found = local::find(around.locals).await;
    let of = |Found { models, .. }: &Found| match &wanted {
        Some(wanted) => models.iter().find(|model| is_meant(model, wanted)).cloned(),
        None => first(models),
    };
    let chosen = found.iter().find_map(|found| Some((found.local, of(found)?)));
    let Some((local, model)) = chosen else { return Err(trouble::nothing(wanted.as_deref(), &found, around.locals)) };
    let why = format!("{} answers on port {}", local.title(), local.port);
    Ok(ModelChoice { provider: local.settings(), model, why })
}

/// Ollama's models have a tag, and nobody says that of the latest.
fn is_meant(model: &str, wanted: &str) -> bool {
    model == wanted || model.strip_suffix(":latest") == Some(wanted)
}
