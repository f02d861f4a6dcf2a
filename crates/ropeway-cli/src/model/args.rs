//! The options that choose a model, and the choice.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use ropeway_config::ProviderName;
use ropeway_core::message::Dialect;
use ropeway_providers::ProviderSettings;

use crate::secrets::redaction;

/// Model to use: from the configuration, a provider whose API key is set, or a local server
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// Model provider
    #[arg(long, value_name = "NAME", value_parser = provider_parser())]
    pub(crate) provider: Option<ProviderName>,
    /// Base URL of the provider; without --provider, a Chat Completions endpoint
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// Model name
    #[arg(long, short, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Environment variable that holds the API key
    #[arg(long, value_name = "VARIABLE")]
    pub(crate) key_env: Option<String>,
    /// List the available models and exit
    #[arg(long)]
    pub(crate) models: bool,
}

fn provider_parser() -> impl clap::builder::TypedValueParser<Value = ProviderName> {
    PossibleValuesParser::new(ProviderName::WORDS).try_map(|word| word.parse::<ProviderName>())
}

/// The chosen model.
#[derive(Clone, Debug)]
pub(crate) struct ModelChoice {
    /// The provider, with its key.
    pub(crate) provider: ProviderSettings,
    pub(crate) model: String,
    /// The provider and its host, for people.
    pub(crate) place: String,
    /// Why this model was chosen, for people.
    pub(crate) why: String,
}

impl ModelArgs {
    /// Returns `true` if an option names the provider.
    pub(super) fn names_endpoint(&self) -> bool {
        self.provider.is_some() || self.base_url.is_some() || self.key_env.is_some()
    }

    /// Redacts the `--base-url` credentials from all output, including errors.
    pub(super) fn hide_secrets(&self) {
        if let Some(url) = &self.base_url {
            redaction::add_secrets(&ProviderSettings::new(Dialect::Chat).with_base_url(url).secrets());
        }
    }
}
