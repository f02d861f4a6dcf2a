//! The name of a provider: whose models they are, or what serves them on this machine.

use std::fmt;

use crate::message::Dialect;

/// The name of a provider, as people say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProviderName {
    /// Anthropic, in its own dialect.
    Anthropic,
    /// OpenAI, in the Responses dialect.
    OpenAi,
    /// Google's Gemini, in its own dialect.
    Gemini,
    /// Anybody who speaks Chat Completions.
    Chat,
    /// OpenRouter.
    OpenRouter,
    /// Mistral.
    Mistral,
    /// Groq.
    Groq,
    /// DeepSeek.
    DeepSeek,
    /// xAI.
    Xai,
    /// Ollama on this machine.
    Ollama,
    /// LM Studio on this machine.
    LmStudio,
    /// The server of llama.cpp on this machine.
    LlamaCpp,
    /// vLLM on this machine.
    Vllm,
}

/// Every word for a provider; the first word of each is its name.
const WORDS: [(&str, ProviderName); 16] = [
    ("anthropic", ProviderName::Anthropic),
    ("claude", ProviderName::Anthropic),
    ("openai", ProviderName::OpenAi),
    ("responses", ProviderName::OpenAi),
    ("gemini", ProviderName::Gemini),
    ("google", ProviderName::Gemini),
    ("chat", ProviderName::Chat),
    ("openrouter", ProviderName::OpenRouter),
    ("mistral", ProviderName::Mistral),
    ("groq", ProviderName::Groq),
    ("deepseek", ProviderName::DeepSeek),
    ("xai", ProviderName::Xai),
    ("ollama", ProviderName::Ollama),
    ("lmstudio", ProviderName::LmStudio),
    ("llamacpp", ProviderName::LlamaCpp),
    ("vllm", ProviderName::Vllm),
];

impl ProviderName {
    /// Every word that means a provider.
    pub const WORDS: [&'static str; 16] = {
        let mut words = [""; 16];
        let mut at = 0;
        while at < words.len() {
            words[at] = WORDS[at].0;
            at += 1;
        }
        words
    };

    /// Its name in settings and files.
    pub fn as_str(self) -> &'static str {
        WORDS.iter().find(|(_, name)| *name == self).map_or("", |(word, _)| word)
    }

    /// Does it serve models on this machine?
    pub fn is_on_this_machine(self) -> bool {
        matches!(self, Self::Ollama | Self::LmStudio | Self::LlamaCpp | Self::Vllm)
    }

    /// The dialect that it speaks.
    pub fn dialect(self) -> Dialect {
        match self {
            Self::Anthropic => Dialect::Anthropic,
            Self::OpenAi => Dialect::Responses,
            Self::Gemini => Dialect::Gemini,
            _ => Dialect::Chat,
        }
    }
}

impl fmt::Display for ProviderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that means no provider.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a provider: it is one of {words}", words = ProviderName::WORDS.join(", "))]
pub struct UnknownProviderError(String);

impl std::str::FromStr for ProviderName {
    type Err = UnknownProviderError;

    fn from_str(word: &str) -> Result<Self, UnknownProviderError> {
        let found = WORDS.iter().find(|(known, _)| *known == word);
        found.map(|(_, name)| *name).ok_or_else(|| UnknownProviderError(word.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_all_dialects_are_names_of_providers_that_speak_them() {
        for dialect in Dialect::ALL {
            assert_eq!(dialect.as_str().parse::<ProviderName>().expect("a provider").dialect(), dialect);
        }
    }

    #[test]
    fn a_provider_is_called_by_the_first_of_its_words() {
        let name =
            |word: &str| word.parse::<ProviderName>().map(ProviderName::as_str).map_err(|error| error.to_string());
        assert_eq!(
            ["claude", "responses", "google", "vllm"].map(|word| name(word).expect("a name")),
            ["anthropic", "openai", "gemini", "vllm"]
        );
        let message = "`Claude` is not a provider: it is one of anthropic, claude, openai, responses, gemini, google, chat, openrouter, mistral, groq, deepseek, xai, ollama, lmstudio, llamacpp, vllm";
        assert_eq!(name("Claude"), Err(message.to_owned()));
    }
}
