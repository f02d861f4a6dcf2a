//! The known providers: their URLs, API key variables and default models.

use ropeway_config::ProviderName;

/// A known provider.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Vendor {
    pub(super) name: ProviderName,
    /// The display name.
    pub(super) title: &'static str,
    /// The base URL, unless it is the dialect's default.
    pub(super) url: Option<&'static str>,
    /// The API key variables, ordered as in the provider's own SDKs. Empty if no key is needed.
    pub(super) keys: &'static [Key],
    /// The default model: can use tools, and is not the most expensive. `None` if the user must name a model.
    pub(super) model: Option<&'static str>,
    /// Its model name prefixes.
    pub(super) models: &'static [&'static str],
}

/// A variable that holds an API key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) variable: &'static str,
    /// The key is sent as `Authorization: Bearer` in any dialect.
    pub(super) is_token: bool,
}

impl Vendor {
    /// Returns the API key variables.
    pub(super) fn variables(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.keys.iter().map(|key| key.variable)
    }

    /// Returns the variable that messages suggest: the one with the provider's name.
    pub(super) fn main_variable(&self) -> &'static str {
        let name = self.title.to_uppercase();
        let named = self.variables().find(|variable| variable.starts_with(&name));
        named.or_else(|| self.variables().next()).unwrap_or_default()
    }
}

const fn key(variable: &'static str) -> Key {
    Key { variable, is_token: false }
}

const fn token(variable: &'static str) -> Key {
    Key { variable, is_token: true }
}

/// The providers, in the order in which their keys are tried.
pub(super) static VENDORS: [Vendor; 13] = [
    Vendor {
        name: ProviderName::Anthropic,
        title: "Anthropic",
        url: None,
        keys: &[key("ANTHROPIC_API_KEY"), token("ANTHROPIC_AUTH_TOKEN")],
        model: Some("claude-sonnet-5-5"),
        models: &["claude"],
    },
    Vendor {
        name: ProviderName::OpenAi,
        title: "OpenAI",
        url: None,
        keys: &[key("OPENAI_API_KEY")],
        model: Some("gpt-6-sol"),
        models: &["gpt-", "o1", "o3", "o4"],
    },
    Vendor {
        name: ProviderName::Gemini,
        title: "Gemini",
        url: None,
        keys: &[key("GOOGLE_API_KEY"), key("GEMINI_API_KEY")],
        model: Some("gemini-3.8-flash"),
        models: &["gemini"],
    },
    Vendor {
        name: ProviderName::OpenRouter,
        title: "OpenRouter",
        url: Some("https://openrouter.ai/api/v1"),
        keys: &[key("OPENROUTER_API_KEY")],
        model: Some("openrouter/auto"),
        models: &["openrouter/", "anthropic/", "openai/", "google/"],
    },
    Vendor {
        name: ProviderName::Mistral,
        title: "Mistral",
        url: Some("https://api.mistral.ai/v1"),
        keys: &[key("MISTRAL_API_KEY")],
        model: Some("mistral-medium-latest"),
        models: &["mistral", "ministral", "magistral", "codestral", "devstral"],
    },
    Vendor {
        name: ProviderName::Groq,
        title: "Groq",
        url: Some("https://api.groq.com/openai/v1"),
        keys: &[key("GROQ_API_KEY")],
        model: None,
        models: &["llama-", "meta-llama/"],
    },
    Vendor {
        name: ProviderName::DeepSeek,
        title: "DeepSeek",
        url: Some("https://api.deepseek.com/v1"),
        keys: &[key("DEEPSEEK_API_KEY")],
        model: Some("deepseek-chat"),
        models: &["deepseek"],
    },
    Vendor {
        name: ProviderName::Xai,
        title: "xAI",
        url: Some("https://api.x.ai/v1"),
        keys: &[key("XAI_API_KEY")],
        model: None,
        models: &["grok"],
    },
    CHAT,
    local(ProviderName::Ollama, "Ollama"),
    local(ProviderName::LmStudio, "LM Studio"),
    local(ProviderName::LlamaCpp, "llama.cpp"),
    local(ProviderName::Vllm, "vLLM"),
];

/// Any Chat Completions endpoint, with OpenAI as the default.
const CHAT: Vendor = Vendor {
    name: ProviderName::Chat,
    title: "OpenAI",
    url: None,
    keys: &[key("OPENAI_API_KEY")],
    model: Some("gpt-6-sol"),
    models: &[],
};

/// Returns a local server, which needs no key and has no default model.
const fn local(name: ProviderName, title: &'static str) -> Vendor {
    Vendor { name, title, url: None, keys: &[], model: None, models: &[] }
}

/// A known provider.
pub(super) fn vendor(name: ProviderName) -> &'static Vendor {
    // A test checks that the table has every name.
    VENDORS.iter().find(|vendor| vendor.name == name).unwrap_or(&CHAT)
}

/// Returns the providers that an API key selects.
pub(super) fn with_keys() -> impl Iterator<Item = &'static Vendor> {
    VENDORS.iter().filter(|vendor| !vendor.keys.is_empty() && vendor.name != ProviderName::Chat)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_provider_is_in_the_table() {
        for word in ProviderName::WORDS {
            let name: ProviderName = word.parse().expect("a name");
            assert_eq!(vendor(name).name, name);
        }
    }
}
