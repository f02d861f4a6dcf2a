//! A chat: which model is talked to, how, and which tools it may call.

mod name;
#[cfg(feature = "bridge")]
pub(super) mod raw;

use std::fmt;

pub use self::name::{ProviderName, UnknownProviderError};
use crate::message::ReasoningEffort;
use crate::secret::{self, Redactor, Secret};

/// Which model is talked to, how, and which tools it may call. What is not said is found elsewhere.
#[derive(Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct ChatSettings {
    /// Whose model it is.
    pub provider: Option<ProviderName>,
    /// The model.
    pub model: Option<String>,
    /// The URL that the paths of the provider's dialect are put behind.
    pub base_url: Option<String>,
    /// The key; absent, too, when the secret that it stands for is not set, or where it should go is not known.
    pub key: Option<Secret>,
    /// What is written and not known, since its secrets are not set: what stands in for it goes elsewhere, or is another's.
    pub missing: MissingSecretsError,
    /// What the model is told to be and to do.
    pub system: Option<String>,
    /// How long an answer may get.
    pub max_tokens: Option<u32>,
    /// How much is left to chance.
    pub temperature: Option<f64>,
    /// How hard the model thinks before it answers.
    pub effort: Option<ReasoningEffort>,
    /// How often the model is asked in one turn.
    pub max_steps: Option<u32>,
    /// Which tools the model may call.
    pub tools: ToolApproval,
    /// What is odd about it, a sentence each. The file's warnings hold it, too.
    pub warnings: Vec<String>,
}

/// The names of the secrets that a chat needs and that are not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingSecretsError {
    /// Those of the base URL.
    pub base_url: Vec<String>,
    /// Those of the key.
    pub key: Vec<String>,
}

/// Which tools a model may call, by patterns such as `files.read_*`: SERVER.TOOL, or the name that the model uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolApproval {
    /// Those that it may call.
    pub allow: Vec<String>,
    /// Those that a person is asked about.
    pub ask: Vec<String>,
    /// Those that it may not call.
    pub deny: Vec<String>,
}

impl ChatSettings {
    /// Hides all that must not be seen of these settings.
    pub fn secrets(&self) -> Redactor {
        let place = match (&self.base_url, self.provider) {
            (Some(url), _) => url.as_str(),
            (None, Some(provider)) if provider.is_on_this_machine() => "http://localhost",
            _ => "",
        };
        let key = self.key.iter().filter(|key| !secret::is_placeholder(key, place)).cloned();
        let url = self.base_url.iter().flat_map(|url| secret::in_url(url));
        Redactor::new(&key.chain(url).collect::<Vec<_>>())
    }
}

impl fmt::Debug for ChatSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mask = self.secrets();
        f.debug_struct("ChatSettings")
            .field("provider", &self.provider)
            .field("model", &self.model)
            .field("base_url", &self.base_url.as_deref().map(|url| mask.hide(url)))
            .field("key", &self.key)
            .field("missing", &self.missing)
            .field("system", &self.system)
            .field("max_tokens", &self.max_tokens)
            .field("temperature", &self.temperature)
            .field("effort", &self.effort)
            .field("max_steps", &self.max_steps)
            .field("tools", &self.tools)
            .field("warnings", &self.warnings)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chat_is_shown_without_its_secrets() {
        let chat = ChatSettings {
            base_url: Some("https://ada:pass-w0rd@h/v1?token=t0ken-t0ken".into()),
            key: Some(Secret::new("sk-12345678")),
            ..ChatSettings::default()
        };
        let shown = r#"ChatSettings { provider: None, model: None, base_url: Some("https://ada:***@h/v1?token=***"), key: Some(***), missing: MissingSecrets { base_url: [], key: [] }, system: None, max_tokens: None, temperature: None, effort: None, max_steps: None, tools: ToolApproval { allow: [], ask: [], deny: [] }, warnings: [] }"#;
        assert_eq!(format!("{chat:?}"), shown);
        assert_eq!(chat.secrets().hide("sk-12345678 pass-w0rd t0ken-t0ken h"), "*** *** *** h");
    }

    #[test]
    fn a_word_that_stands_in_for_a_key_on_this_machine_is_not_hidden() {
        let key = Some(Secret::new("ollama"));
        for (chat, shown) in [
            (ChatSettings { provider: Some(ProviderName::Ollama), ..ChatSettings::default() }, "ollama run"),
            (ChatSettings { base_url: Some("http://localhost:1234".into()), ..ChatSettings::default() }, "ollama run"),
            (ChatSettings { provider: Some(ProviderName::Groq), ..ChatSettings::default() }, "*** run"),
        ] {
            assert_eq!(ChatSettings { key: key.clone(), ..chat }.secrets().hide("ollama run"), shown);
        }
    }
}
