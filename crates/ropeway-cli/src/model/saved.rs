//! A saved conversation's model.

use ropeway_config::ChatSettings;
use serde::{Deserialize, Serialize};

use super::args::{ModelArgs, ModelChoice};
use crate::config::config_file::ConfigFile;
use crate::failure::Failure;
use crate::secrets::redaction;
use crate::terminal::text::clean_line;

/// A conversation's model and the options that chose it, without secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SavedModel {
    /// The last turn's model.
    pub(crate) model: String,
    /// The provider and its host, for people.
    pub(crate) place: String,
    /// The provider's scheme, host and port.
    pub(crate) endpoint: String,
    /// The `--provider` value.
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<String>,
    /// The `--base-url` value, unless it holds credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    base_url: Option<String>,
    /// The `--key-env` value.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_env: Option<String>,
}

/// The choice for a resumed conversation.
#[derive(Debug)]
pub(crate) struct ResumedChoice {
    pub(crate) choice: ModelChoice,
    /// The model to save from now on.
    pub(crate) saved: SavedModel,
    /// A note for the user.
    pub(crate) note: Option<String>,
}

impl SavedModel {
    /// Returns a choice and its options in the form to save.
    pub(crate) fn new(args: &ModelArgs, choice: &ModelChoice) -> Self {
        Self {
            model: choice.model.clone(),
            place: choice.place.clone(),
            endpoint: endpoint(&choice.provider.base_url),
            provider: args.provider.map(|provider| provider.to_string()),
            base_url: args.base_url.clone().filter(|url| is_public(url)),
            key_env: args.key_env.clone(),
        }
    }

    /// Redacts known secrets. A URL with a secret in its path is dropped.
    pub(crate) fn redacted(&self) -> Self {
        let hide = |text: &str| redaction::redact(text).into_owned();
        let is_plain = |text: &String| redaction::redact(text) == *text;
        Self {
            model: hide(&self.model),
            place: hide(&self.place),
            endpoint: hide(&self.endpoint),
            provider: self.provider.clone(),
            base_url: self.base_url.clone().filter(is_plain),
            key_env: self.key_env.clone().filter(is_plain),
        }
    }

    /// Returns the options that choose this model again.
    fn args(&self) -> ModelArgs {
        ModelArgs {
            provider: self.provider.as_deref().and_then(|provider| provider.parse().ok()),
            base_url: self.base_url.clone(),
            model: Some(self.model.clone()).filter(|model| !model.is_empty()),
            key_env: self.key_env.clone(),
            models: false,
        }
    }

    fn shown(&self) -> String {
        format!("`{}` at {}", clean_line(&self.model), clean_line(&self.place))
    }
}

/// Returns a URL's scheme, host and port.
fn endpoint(url: &str) -> String {
    url::Url::parse(url).map(|url| url.origin().ascii_serialization()).unwrap_or_default()
}

/// Returns `true` for a URL without credentials.
fn is_public(url: &str) -> bool {
    url::Url::parse(url).is_ok_and(|url| {
        url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none()
    })
}

impl ModelArgs {
    /// Chooses a resumed conversation's model: from the current options, then from the saved ones.
    ///
    /// A conversation never moves to another provider by itself, since that one would receive all its messages. The user
    /// must name it in an option or in the configuration.
    pub(crate) async fn choose_resumed(
        &self,
        saved: &SavedModel,
        chat: &ChatSettings,
        file: Option<&ConfigFile>,
    ) -> Result<ResumedChoice, Failure> {
        let resumed = |args: &Self, choice: ModelChoice| {
            let now = SavedModel::new(args, &choice);
            let moved = now.model != saved.model || now.endpoint != saved.endpoint;
            let note =
                moved.then(|| format!("continuing with {}; the last answer was from {}", now.shown(), saved.shown()));
            ResumedChoice { choice, saved: now, note }
        };
        if self.names_endpoint() {
            return self.choose(Some(chat), file).await.map(|choice| resumed(self, choice));
        }
        let mut wanted = saved.args();
        wanted.model = self.model.clone().or(wanted.model);
        let unavailable = |failure: Failure| {
            let failure = failure.hint(format!("the model of the conversation is not available: {}", saved.shown()));
            failure.hint("choose another model with `--model`, `--provider` or `--base-url`")
        };
        let choice = wanted.choose(Some(chat), file).await.map_err(unavailable)?;
        if wanted.names_endpoint() || saved.endpoint.is_empty() || endpoint(&choice.provider.base_url) == saved.endpoint
        {
            let why = if self.model.is_some() { choice.why } else { "from the saved conversation".to_owned() };
            return Ok(resumed(&wanted, ModelChoice { why, ..choice }));
        }
        let configured = chat.provider.is_some() || chat.base_url.is_some();
        if configured {
            return self.choose(Some(chat), file).await.map(|choice| resumed(self, choice));
        }
        let failure = Failure::usage(format!("the model of the conversation is not available: {}", saved.shown()));
        Err(failure.hint(format!(
            "to continue with {}, add `--model {}` and `--provider` or `--base-url`",
            clean_line(&choice.place),
            clean_line(&choice.model)
        )))
    }
}

#[cfg(test)]
mod tests {
    use ropeway_core::message::Dialect;
    use ropeway_core::secret::{Redactor, Secret};
    use ropeway_providers::ProviderSettings;

    use super::*;

    fn saved(url: &str, args: &ModelArgs) -> SavedModel {
        let provider = ProviderSettings::new(Dialect::Chat).with_base_url(url);
        let choice = ModelChoice { provider, model: "m".into(), place: "here".into(), why: String::new() };
        SavedModel::new(args, &choice)
    }

    #[test]
    fn options_are_saved_without_credentials() {
        let url = "http://user:secret@127.0.0.1:8080/v1?key=secret";
        let args = ModelArgs { base_url: Some(url.into()), key_env: Some("MY_KEY".into()), ..ModelArgs::default() };
        let model = saved(url, &args);
        assert!(!serde_json::to_string(&model).expect("JSON").contains("secret"));
        assert_eq!((model.endpoint.as_str(), model.key_env.as_deref()), ("http://127.0.0.1:8080", Some("MY_KEY")));
    }

    #[test]
    fn a_secret_in_the_path_of_a_url_is_not_saved() {
        let url = "http://127.0.0.1:8080/a-path-with-the-saved-token/v1";
        let model = saved(url, &ModelArgs { base_url: Some(url.into()), ..ModelArgs::default() });
        redaction::add_secrets(&Redactor::new([&Secret::new("a-path-with-the-saved-token")]));
        let model = model.redacted();
        assert_eq!((model.base_url.as_deref(), model.endpoint.as_str()), (None, "http://127.0.0.1:8080"));
    }

    #[tokio::test]
    async fn a_conversation_keeps_its_model_unless_options_name_another() {
        let url = "http://127.0.0.1:1/v1";
        let model = saved(url, &ModelArgs { base_url: Some(url.into()), ..ModelArgs::default() });
        let chat = ChatSettings::default();
        let again = ModelArgs::default().choose_resumed(&model, &chat, None).await.expect("a choice");
        assert_eq!((again.choice.model.as_str(), again.choice.provider.base_url.as_str()), ("m", url));
        assert_eq!((again.note, again.saved.endpoint), (None, model.endpoint.clone()));
        let other = ModelArgs { model: Some("n".into()), ..ModelArgs::default() };
        let other = other.choose_resumed(&model, &chat, None).await.expect("a choice");
        assert_eq!((other.choice.model.as_str(), other.choice.provider.base_url.as_str()), ("n", url));
        assert!(other.note.is_some_and(|note| note.starts_with("continuing with `n` at 127.0.0.1:1; ")));
        let place = ModelArgs {
            base_url: Some("http://127.0.0.1:2/v1".into()),
            model: Some("o".into()),
            ..ModelArgs::default()
        };
        let place = place.choose_resumed(&model, &chat, None).await.expect("a choice");
        assert_eq!(place.saved.endpoint, "http://127.0.0.1:2");
    }

    #[tokio::test]
    async fn an_unavailable_model_is_reported() {
        let args = ModelArgs { base_url: Some("http://127.0.0.1:1/v1".into()), ..ModelArgs::default() };
        let mut model = saved("http://127.0.0.1:1/v1", &args);
        model.key_env = Some("ROPEWAY_TEST_NO_SUCH_KEY".into());
        let failure =
            ModelArgs::default().choose_resumed(&model, &ChatSettings::default(), None).await.expect_err("no key");
        let text = failure.render();
        assert!(text.contains("ROPEWAY_TEST_NO_SUCH_KEY") && text.contains("`m` at here"), "{text}");
        // The configuration names another provider, which wins.
        let mut chat = ChatSettings::default();
        chat.base_url = Some("http://127.0.0.1:3/v1".into());
        chat.model = Some("configured".into());
        let found = saved("http://127.0.0.1:1/v1", &ModelArgs::default());
        let moved = ModelArgs::default().choose_resumed(&found, &chat, None).await.expect("a choice");
        assert_eq!(moved.choice.model, "configured");
        assert!(moved.note.is_some());
    }
}
