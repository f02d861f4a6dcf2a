//! What is known of each provider: where it is, which variables hold its key, and which model is taken when nobody names one.

use ropeway::config::ProviderName;

/// What is known of a provider.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Vendor {
    pub(super) name: ProviderName,
    /// What people call it.
    pub(super) title: &'static str,
    /// Where it is, unless its dialect says so already.
    pub(super) url: Option<&'static str>,
    /// The variables that hold its key, in the order in which they are looked for: that of the provider's own libraries. None
    /// are needed where there are none.
    pub(super) keys: &'static [Key],
    /// The model that is taken when nobody names one: good enough for tools, and not the dearest. Where no name is known that
    /// lasts, somebody has to name one.
    pub(super) model: Option<&'static str>,
    /// What the names of its models begin with.
    pub(super) models: &'static [&'static str],
}

/// A variable that holds a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) variable: &'static str,
    /// It is sent as `Authorization: Bearer`, whatever the dialect does with keys.
    pub(super) is_token: bool,
}

impl Vendor {
    /// The variables that hold its key, in their order.
    pub(super) fn variables(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.keys.iter().map(|key| key.variable)
    }

    /// The variable that people are told to set: the one with the provider's name, which README names too.
    pub(super) fn usual_variable(&self) -> &'static str {
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

/// The providers, in the order in which their keys are looked for.
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

/// Anybody who speaks Chat Completions; OpenAI itself does, too.
const CHAT: Vendor = Vendor {
    name: ProviderName::Chat,
    title: "OpenAI",
    url: None,
    keys: &[key("OPENAI_API_KEY")],
    model: Some("gpt-6-sol"),
    models: &[],
};

/// A server on this machine: it needs no key, and has the models that somebody gave it.
const fn local(name: ProviderName, title: &'static str) -> Vendor {
    Vendor { name, title, url: None, keys: &[], model: None, models: &[] }
}

/// What is known of a provider.
pub(super) fn vendor(name: ProviderName) -> &'static Vendor {
    // Every name stands in the table: a test sees to it.
    VENDORS.iter().find(|vendor| vendor.name == name).unwrap_or(&CHAT)
}

/// The providers that a key decides for, in their order.
pub(super) fn with_keys() -> impl Iterator<Item = &'static Vendor> {
    VENDORS.iter().filter(|vendor| !vendor.keys.is_empty() && vendor.name != ProviderName::Chat)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn something_is_known_of_every_provider() {
        for word in ProviderName::WORDS {
            let name: ProviderName = word.parse().expect("a name");
            assert_eq!(vendor(name).name, name);
        }
    }
}
