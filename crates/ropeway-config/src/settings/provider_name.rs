//! Model providers by name.

use std::fmt;

use ropeway_core::message::Dialect;
use ropeway_core::parse_error::ParseError;

/// A model provider's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProviderName {
    /// Anthropic (Messages API).
    Anthropic,
    /// OpenAI (Responses API).
    OpenAi,
    /// Google Gemini (`generateContent` API).
    Gemini,
    /// Any endpoint that implements the Chat Completions API.
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
    /// A local Ollama server.
    Ollama,
    /// A local LM Studio server.
    LmStudio,
    /// A local llama.cpp server.
    LlamaCpp,
    /// A local vLLM server.
    Vllm,
}

/// Every accepted name. Each provider's first name is the canonical one.
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
    /// Every accepted name, aliases such as `claude` included.
    pub const WORDS: [&'static str; 16] = {
        let mut words = [""; 16];
        let mut at = 0;
        while at < words.len() {
            words[at] = WORDS[at].0;
            at += 1;
        }
        words
    };

    /// Returns the canonical name, as written in configuration files.
    pub fn as_str(self) -> &'static str {
        WORDS.iter().find(|(_, name)| *name == self).map_or("", |(word, _)| word)
    }

    /// Returns `true` if the provider runs on the local machine by default.
    pub fn is_on_this_machine(self) -> bool {
        matches!(self, Self::Ollama | Self::LmStudio | Self::LlamaCpp | Self::Vllm)
    }

    /// Returns the provider's API dialect.
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

impl std::str::FromStr for ProviderName {
    type Err = ParseError;

    fn from_str(word: &str) -> Result<Self, ParseError> {
        let found = WORDS.iter().find(|(known, _)| *known == word).map(|(_, name)| *name);
        let unknown = || format!("unknown provider `{word}`, expected one of {}", Self::WORDS.join(", "));
        found.ok_or_else(|| ParseError::new(unknown()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dialect_name_is_a_provider_of_that_dialect() {
        for dialect in Dialect::ALL {
            assert_eq!(dialect.as_str().parse::<ProviderName>().expect("a provider").dialect(), dialect);
        }
    }

    #[test]
    fn aliases_parse_to_the_canonical_name() {
        let name =
            |word: &str| word.parse::<ProviderName>().map(ProviderName::as_str).map_err(|error| error.to_string());
        assert_eq!(
            ["claude", "responses", "google", "vllm"].map(|word| name(word).expect("a name")),
            ["anthropic", "openai", "gemini", "vllm"]
        );
        let message = "unknown provider `Claude`, expected one of anthropic, claude, openai, responses, gemini, google, chat, openrouter, mistral, groq, deepseek, xai, ollama, lmstudio, llamacpp, vllm";
        assert_eq!(name("Claude"), Err(message.to_owned()));
    }
}
