//! Which model a chat talks to: as it is said on the command line or in the configuration, or found by a key or on this machine.

mod choose;
mod local;
mod saved;
#[cfg(test)]
mod tests;
mod trouble;
mod vendor;

use std::path::Path;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use ropeway::config::{ChatSettings, ProviderName};
use ropeway::message::Dialect;
use ropeway::provider::ProviderSettings;
use ropeway::secret::Secret;

use self::choose::{choose, list};
use self::local::{LOCALS, Local};
pub(crate) use self::saved::{ResumedChoice, SavedModel};
use crate::config::config_file::ConfigFile;
use crate::config::config_paths::Origin;
use crate::failure::Failure;
use crate::secrets::redaction;
use crate::trust::warning;

/// Which model to talk to: that of the configuration, or else one whose key is set, or else one on this machine
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// Whose model to talk to
    #[arg(long, value_name = "NAME", value_parser = provider_parser())]
    pub(crate) provider: Option<ProviderName>,
    /// Where the provider is; alone, it speaks Chat Completions there, as at OPENAI_BASE_URL
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// Which model to talk to
    #[arg(long, short, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Take the key from this variable
    #[arg(long, value_name = "VARIABLE")]
    pub(crate) key_env: Option<String>,
    /// List the models that there are, and end
    #[arg(long)]
    pub(crate) models: bool,
}

fn provider_parser() -> impl clap::builder::TypedValueParser<Value = ProviderName> {
    PossibleValuesParser::new(ProviderName::WORDS).try_map(|word| word.parse::<ProviderName>())
}

/// The model that is talked to.
#[derive(Clone, Debug)]
pub(crate) struct ModelChoice {
    /// The provider, with its key.
    pub(crate) provider: ProviderSettings,
    /// The model.
    pub(crate) model: String,
    /// Who hears what is said: the provider, and its host.
    pub(crate) place: String,
    /// Why it is this one, in a sentence.
    pub(crate) why: String,
}

impl ModelArgs {
    /// The model that is meant; `file` is where the chat is written. From here on nothing that is printed shows its key.
    pub(crate) async fn choose(
        &self,
        chat: Option<&ChatSettings>,
        file: Option<&ConfigFile>,
    ) -> Result<ModelChoice, Failure> {
        self.hide_secrets();
        let choice = choose(self, chat, &around(file)).await?;
        redaction::add_secrets(&choice.provider.secrets());
        if choice.provider.key.is_some() && is_open(&choice.provider.base_url) {
            warning(&format!("sending the key to {} unencrypted; use https://", choice.place));
        }
        Ok(choice)
    }

    /// The models that there are where one would be talked to.
    pub(crate) async fn list(
        &self,
        chat: Option<&ChatSettings>,
        file: Option<&ConfigFile>,
    ) -> Result<Vec<String>, Failure> {
        self.hide_secrets();
        list(self, chat, &around(file)).await
    }

    /// A choice that fails is told, too, and its address with it.
    fn hide_secrets(&self) {
        if let Some(url) = &self.base_url {
            redaction::add_secrets(&ProviderSettings::new(Dialect::Chat).with_base_url(url).secrets());
        }
    }
}

/// The environment of this process, and the file that the chat is written in.
fn around(file: Option<&ConfigFile>) -> Around<'_> {
    let is_own = file.is_some_and(|file| file.origin == Origin::Own);
    Around { variable: &variable, locals: &LOCALS, file: file.map(|file| file.path.as_path()), is_own }
}

/// Can everybody on the way read what goes there?
fn is_open(base_url: &str) -> bool {
    url::Url::parse(base_url).is_ok_and(|url| url.scheme() == "http" && !is_loopback(&url))
}

/// Is this machine meant?
fn is_loopback(url: &url::Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// What a choice depends on, besides what is said.
struct Around<'a> {
    /// The environment.
    variable: &'a (dyn Fn(&str) -> Option<String> + Sync),
    /// Where model servers listen on this machine.
    locals: &'a [Local],
    /// Where the chat is written.
    file: Option<&'a Path>,
    /// The file is the user's own: keys of the environment go where it says.
    is_own: bool,
}

impl Around<'_> {
    /// The value of a variable that is set to something.
    fn get(&self, name: &str) -> Option<String> {
        (self.variable)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// The key that a variable holds.
    fn key(&self, name: &str) -> Result<Secret, Failure> {
        let key = self.get(name).ok_or_else(|| trouble::variable_not_set(name))?;
        match key.contains(['\n', '\r']) {
            true => Err(trouble::several_lines(name)),
            false => Ok(Secret::new(key)),
        }
    }
}
