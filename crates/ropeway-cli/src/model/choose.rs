//! The choice of a model: what is said goes before what is found, and keys go only where they belong.

use ropeway::config::{ChatSettings, ProviderName};
use ropeway::message::Dialect;
use ropeway::provider::{KeyHeader, Provider, ProviderSettings};
use ropeway::secret::Secret;

use super::local::{self, Found};
use super::vendor::{Vendor, vendor, with_keys};
use super::{Around, ModelArgs, ModelChoice, is_loopback, trouble};
use crate::failure::Failure;

/// Words in the names of models that nobody can talk to.
const MUTE: [&str; 3] = ["embed", "rerank", "whisper"];

/// The model that is meant: the line goes before the file, the file before keys, and keys before servers on
/// this machine, unless a model is wanted that nobody with a key is known to have.
pub(super) async fn choose(
    args: &ModelArgs,
    chat: Option<&ChatSettings>,
    around: &Around<'_>,
) -> Result<ModelChoice, Failure> {
    let said = Said::of(args, chat, around)?;
    if let Some(place) = said.place(around)? {
        return place.choice(said.model).await;
    }
    let by_key = by_key(said.model.as_deref(), around)?;
    if let Some((place, true)) = by_key {
        return place.choice(said.model).await;
    }
    // Nobody with a key is known to have such a model: it may well be one of this machine.
    let found = local::find(around.locals).await;
    match (on_this_machine(said.model.as_deref(), &found), by_key) {
        (Some(choice), _) => Ok(choice),
        (None, Some((place, _))) => place.choice(said.model).await,
        (None, None) => Err(trouble::nothing(said.model.as_deref(), &found, around.locals)),
    }
}

/// The models that there are where one would be talked to.
pub(super) async fn list(
    args: &ModelArgs,
    chat: Option<&ChatSettings>,
    around: &Around<'_>,
) -> Result<Vec<String>, Failure> {
    let said = Said::of(args, chat, around)?;
    let place = match said.place(around)? {
        Some(place) => Some(place),
        None => by_key(said.model.as_deref(), around)?.map(|(place, _)| place),
    };
    if let Some(place) = place {
        return place.models().await;
    }
    let found = local::find(around.locals).await;
    let models: Vec<String> = found.iter().flat_map(|found| found.models.clone()).collect();
    if models.is_empty() { Err(trouble::nothing(None, &found, around.locals)) } else { Ok(models) }
}

/// What is said of a model, on the line and in the file.
struct Said {
    provider: Option<ProviderName>,
    base_url: Option<String>,
    key: Option<Secret>,
    key_env: Option<String>,
    model: Option<String>,
    why: String,
    /// The base URL is that of a file which is not the user's own: no key of the environment is meant for it.
    is_strange: bool,
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
            || args.base_url.as_ref().is_some_and(|url| !chat.base_url.as_ref().is_some_and(|own| same_url(url, own)))
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
        let is_of_file = args.base_url.is_none() && keeps_place && chat.base_url.is_some();
        Ok(Self {
            is_strange: is_of_file && !around.is_own,
            provider: args.provider.or(in_file.filter(|_| keeps_place)).or(on_line),
            base_url: args.base_url.clone().or(chat.base_url.clone().filter(|_| keeps_place)),
            key: chat.key.clone().filter(|_| keeps_place),
            key_env: args.key_env.clone(),
            model: args.model.clone().or(chat.model.clone().filter(|_| keeps_model)),
            why,
        })
    }

    /// The place that is named, if one is: itself, or by the variable of its key.
    fn place(&self, around: &Around<'_>) -> Result<Option<Place>, Failure> {
        let Some(provider) = self.provider else { return by_key_env(self, around) };
        let vendor = vendor(provider);
        let mut settings = usual(vendor, around);
        let own_url = own_url(vendor, &settings);
        let usual_url = settings.base_url.clone();
        if let Some(url) = &self.base_url {
            settings.base_url.clone_from(url);
            settings.dialect = provider.dialect();
        }
        let settings = match (&self.key_env, &self.key) {
            (Some(name), _) => with_key_of(settings, vendor, name, around)?,
            (None, Some(key)) => with_key(settings, key.clone()),
            // Nobody has said whose server it is, so nobody's key is for it.
            (None, None) if provider == ProviderName::Chat && self.base_url.is_some() => settings,
            (None, None) if self.is_strange && !is_at(&settings.base_url, &own_url, &usual_url) => {
                let is_local = url::Url::parse(&settings.base_url).is_ok_and(|url| is_loopback(&url));
                match vendor.variables().find(|name| around.get(name).is_some()) {
                    Some(name) if !is_local => return Err(trouble::key_withheld(name, &settings, around.file)),
                    _ => settings,
                }
            }
            (None, None) => with_usual_key(settings, vendor, around)?,
        };
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

/// How a provider is usually talked to, with what the environment says of its place.
///
/// Who stands in for OpenAI at `OPENAI_BASE_URL` is spoken to in Chat Completions, be OpenAI named or found by its key: few
/// others speak Responses. One who does is named together with the place: `--provider openai --base-url URL`.
fn usual(vendor: &Vendor, around: &Around<'_>) -> ProviderSettings {
    if let Some(local) = around.locals.iter().find(|local| local.name == vendor.name) {
        return local.settings();
    }
    let dialect = vendor.name.dialect();
    let mut settings = match vendor.url {
        None => ProviderSettings::from_variables(dialect, around.variable),
        Some(url) => ProviderSettings::new(dialect).with_base_url(url),
    };
    // Which of its variables holds the key, the table of providers says.
    settings.key = None;
    if dialect == Dialect::Responses && !same_url(&settings.base_url, &own_url(vendor, &settings)) {
        settings.dialect = Dialect::Chat;
    }
    settings
}

/// Where a provider is when nobody says otherwise.
fn own_url(vendor: &Vendor, usual: &ProviderSettings) -> String {
    match vendor.url {
        Some(url) => url.to_owned(),
        None if vendor.keys.is_empty() => usual.base_url.clone(),
        None => ProviderSettings::new(vendor.name.dialect()).base_url,
    }
}

/// Do both mean the same place?
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

/// Is the URL one of the vendor's own, or the one that the environment names for the vendor?
fn is_at(url: &str, own: &str, usual: &str) -> bool {
    let (Ok(parsed), Ok(own)) = (url::Url::parse(url), url::Url::parse(own)) else { return false };
    let (Some(host), Some(vendor)) = (parsed.host_str(), own.host_str()) else { return false };
    // Regions have hosts of their own, such as `eu.api.openai.com`.
    let is_host = host == vendor || host.strip_suffix(vendor).is_some_and(|start| start.ends_with('.'));
    let is_same = parsed.scheme() == own.scheme() && parsed.port_or_known_default() == own.port_or_known_default();
    (is_host && is_same) || same_url(url, usual)
}

/// The settings with this key, sent as the dialect sends keys.
fn with_key(mut settings: ProviderSettings, key: Secret) -> ProviderSettings {
    settings.key_header = ProviderSettings::new(settings.dialect).key_header;
    settings.with_key(key)
}

/// The settings with the key of a variable, sent as the provider wants that one to be sent.
fn with_key_of(
    settings: ProviderSettings,
    vendor: &Vendor,
    name: &str,
    around: &Around<'_>,
) -> Result<ProviderSettings, Failure> {
    let mut settings = with_key(settings, around.key(name)?);
    if vendor.keys.iter().any(|key| key.variable == name && key.is_token) {
        settings.key_header = KeyHeader::Bearer;
    }
    Ok(settings)
}

/// The settings with the first of the provider's keys that is set, if one is.
fn with_usual_key(
    settings: ProviderSettings,
    vendor: &Vendor,
    around: &Around<'_>,
) -> Result<ProviderSettings, Failure> {
    match vendor.variables().find(|name| around.get(name).is_some()) {
        Some(name) => with_key_of(settings, vendor, name, around),
        None => Ok(settings),
    }
}

/// The provider whose variable is given.
fn by_key_env(said: &Said, around: &Around<'_>) -> Result<Option<Place>, Failure> {
    let Some(name) = &said.key_env else { return Ok(None) };
    let Some(vendor) = with_keys().find(|vendor| vendor.variables().any(|known| known == name)) else {
        return Err(trouble::key_for_nobody(name));
    };
    let settings = with_key_of(usual(vendor, around), vendor, name, around)?;
    Ok(Some(Place::found(vendor, settings, "`--key-env` was given".to_owned())))
}

/// The provider whose key is set, and whether the model that is wanted may well be there: of several the one whose models are
/// called like that, or else one of the user's own choice, or else the first.
fn by_key(wanted: Option<&str>, around: &Around<'_>) -> Result<Option<(Place, bool)>, Failure> {
    let set: Vec<(&Vendor, &str)> = with_keys().filter_map(|vendor| Some((vendor, reason(vendor, around)?))).collect();
    let is_called = |vendor: &Vendor, model: &str| vendor.models.iter().any(|start| model.starts_with(start));
    let stands_in = |vendor: &Vendor| {
        let settings = usual(vendor, around);
        !same_url(&settings.base_url, &own_url(vendor, &settings))
    };
    let fitting = match wanted {
        None => set.first(),
        Some(model) => set
            .iter()
            .find(|(vendor, _)| is_called(vendor, model))
            .or_else(|| set.iter().find(|(vendor, _)| stands_in(vendor))),
    };
    let Some((vendor, variable)) = fitting.or(set.first()) else { return Ok(None) };
    let settings = with_usual_key(usual(vendor, around), vendor, around)?;
    Ok(Some((Place::found(vendor, settings, format!("{variable} is set")), fitting.is_some())))
}

/// The variable that speaks for a provider, if one is set. An address alone does, too: servers of one's own need no key.
fn reason(vendor: &Vendor, around: &Around<'_>) -> Option<&'static str> {
    let address = (vendor.name == ProviderName::OpenAi).then_some("OPENAI_BASE_URL");
    vendor.variables().chain(address).find(|name| around.get(name).is_some())
}

/// Where a model is, before it is known which.
struct Place {
    vendor: &'static Vendor,
    settings: ProviderSettings,
    /// Is it where this provider is when nobody says otherwise?
    is_own: bool,
    why: String,
}

impl Place {
    fn found(vendor: &'static Vendor, settings: ProviderSettings, why: String) -> Self {
        let is_own = same_url(&settings.base_url, &own_url(vendor, &settings));
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
        let place = heard_by(self.vendor, &self.settings, self.is_own);
        Ok(ModelChoice { provider: self.settings, model, place, why: self.why })
    }

    /// The first of its models, where it serves what somebody gave it; of a shop's many models somebody has to name one.
    async fn ask(&self) -> Result<String, Failure> {
        let models = self.models().await?;
        match self.is_own && !self.vendor.keys.is_empty() {
            true => Err(trouble::which(self.vendor, &models)),
            false => first(&models).ok_or_else(|| trouble::no_model(&self.settings)),
        }
    }

    /// Its models.
    async fn models(&self) -> Result<Vec<String>, Failure> {
        let provider = Provider::new(self.settings.clone()).map_err(|error| trouble::unusable(&error))?;
        provider.models().await.map_err(|error| trouble::not_listed(&self.settings, &error))
    }
}

/// The first model that one can talk to.
fn first(models: &[String]) -> Option<String> {
    let is_mute = |model: &str| MUTE.iter().any(|word| model.to_lowercase().contains(word));
    models.iter().find(|model| !is_mute(model)).cloned()
}

/// Who hears what is said: a provider, and the host; where somebody else stands in for it, only the host is known.
fn heard_by(vendor: &Vendor, settings: &ProviderSettings, is_own: bool) -> String {
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

/// The model of a server on this machine: the one that is wanted, or else the first.
fn on_this_machine(wanted: Option<&str>, found: &[Found]) -> Option<ModelChoice> {
    let of = |Found { models, .. }: &Found| match wanted {
        Some(wanted) => models.iter().find(|model| is_meant(model, wanted)).cloned(),
        None => first(models),
    };
    let (local, model) = found.iter().find_map(|found| Some((found.local, of(found)?)))?;
    let why = format!("{} answers on port {}", local.title(), local.port);
    let provider = local.settings();
    let place = heard_by(vendor(local.name), &provider, true);
    Some(ModelChoice { provider, model, place, why })
}

/// Ollama's models have a tag, and nobody says that of the latest.
fn is_meant(model: &str, wanted: &str) -> bool {
    model == wanted || model.strip_suffix(":latest") == Some(wanted)
}
