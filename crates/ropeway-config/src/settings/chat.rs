//! Settings for `ropeway chat`: model, limits and tool approval.

use std::fmt;

use super::provider_name::ProviderName;
use ropeway_core::message::ReasoningEffort;
use ropeway_core::secret::{self, Redactor, Secret};

/// Settings for `ropeway chat`. Settings that are `None` fall back to environment variables and defaults.
#[derive(Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct ChatSettings {
    /// The model provider.
    pub provider: Option<ProviderName>,
    /// The model identifier.
    pub model: Option<String>,
    /// Base URL for the provider's API, to which endpoint paths are appended.
    pub base_url: Option<String>,
    /// The API key. `None` if a secret in `key` or in `base_url` is not set.
    pub key: Option<Secret>,
    /// The secrets that `base_url` and `key` refer to and that are not set. A caller must not fall back to the default URL or
    /// key then: the request would go to another provider, or use another account.
    pub missing: MissingChatSecrets,
    /// The system prompt.
    pub system: Option<String>,
    /// Maximum tokens per reply.
    pub max_tokens: Option<u32>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Reasoning effort.
    pub effort: Option<ReasoningEffort>,
    /// Maximum model requests per turn.
    pub max_steps: Option<u32>,
    /// The tools that the model may call with or without approval.
    pub tools: ToolApproval,
    /// Warnings about these settings. [`Config::warnings`](super::Config::warnings) contains them as well.
    pub warnings: Vec<String>,
}

/// Secrets that the chat settings refer to and that are not set, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingChatSecrets {
    /// Secrets that `base_url` refers to.
    pub base_url: Vec<String>,
    /// Secrets that `key` refers to.
    pub key: Vec<String>,
}

/// The tools that a model may call, by patterns such as `files.read_*`: `SERVER.TOOL`, or the name shown to the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolApproval {
    /// Tools that are called without asking.
    pub allow: Vec<String>,
    /// Tools that require approval.
    pub ask: Vec<String>,
    /// Tools that are never called.
    pub deny: Vec<String>,
}

impl ChatSettings {
    /// Returns a redactor for the key and for credentials in the base URL.
    pub fn secrets(&self) -> Redactor {
        let endpoint = match (&self.base_url, self.provider) {
            (Some(url), _) => url.as_str(),
            (None, Some(provider)) if provider.is_on_this_machine() => "http://localhost",
            _ => "",
        };
        let key = self.key.iter().filter(|key| !secret::is_placeholder(key, endpoint)).cloned();
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
            .field("base_url", &self.base_url.as_deref().map(|url| mask.redact(url)))
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
    fn debug_output_of_chat_settings_redacts_secrets() {
        let chat = ChatSettings {
            base_url: Some("https://ada:pass-w0rd@h/v1?token=t0ken-t0ken".into()),
            key: Some(Secret::new("sk-12345678")),
            ..ChatSettings::default()
        };
        let shown = r#"ChatSettings { provider: None, model: None, base_url: Some("https://ada:***@h/v1?token=***"), key: Some(***), missing: MissingChatSecrets { base_url: [], key: [] }, system: None, max_tokens: None, temperature: None, effort: None, max_steps: None, tools: ToolApproval { allow: [], ask: [], deny: [] }, warnings: [] }"#;
        assert_eq!(format!("{chat:?}"), shown);
        assert_eq!(chat.secrets().redact("sk-12345678 pass-w0rd t0ken-t0ken h"), "*** *** *** h");
    }

    #[test]
    fn a_placeholder_key_of_a_local_provider_is_not_redacted() {
        let key = Some(Secret::new("ollama"));
        for (chat, shown) in [
            (ChatSettings { provider: Some(ProviderName::Ollama), ..ChatSettings::default() }, "ollama run"),
            (ChatSettings { base_url: Some("http://localhost:1234".into()), ..ChatSettings::default() }, "ollama run"),
            (ChatSettings { provider: Some(ProviderName::Groq), ..ChatSettings::default() }, "*** run"),
        ] {
            assert_eq!(ChatSettings { key: key.clone(), ..chat }.secrets().redact("ollama run"), shown);
        }
    }
}
