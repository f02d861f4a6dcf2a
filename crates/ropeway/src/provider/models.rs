//! The models that a provider offers.

use serde_json::Value;

use super::encoded::headers_with;
use super::{HttpRequest, Provider, ProviderError, ProviderErrorKind, ProviderSettings, anthropic, gemini};
use crate::json;
use crate::message::Dialect;
use crate::web::brief;

/// How large a list of models may be: those who pass on the models of others tell of hundreds, at length.
const LARGEST: usize = 16 << 20;

impl Provider {
    /// The names of the models that it offers, in its own order. Not all of them need be models to talk to.
    pub async fn models(&self) -> Result<Vec<String>, ProviderError> {
        let request = request(&self.settings);
        let mut retried = 0;
        loop {
            let error = match self.list(&request).await {
                Ok(models) => return Ok(models),
                Err(error) => error,
            };
            match self.settings.retries.pause(&error, retried, fastrand::f64()) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(error.hidden(&self.mask)),
            }
            retried += 1;
        }
    }

    async fn list(&self, request: &HttpRequest) -> Result<Vec<String>, ProviderError> {
        let unreadable = |message: String| ProviderError::new(ProviderErrorKind::Unreadable, self.dialect(), message);
        let mut exchange = self.send(request).await?;
        if !exchange.is_accepted() {
            return Err(exchange.refusal().await);
        }
        let mut body = Vec::new();
        while let Some(chunk) = exchange.chunk().await? {
            exchange.has_begun(self.settings.timeouts.idle);
            body.extend_from_slice(&chunk);
            if body.len() > LARGEST {
                return Err(unreadable(format!("the list of models is larger than {} MiB", LARGEST >> 20)));
            }
        }
        let models = json::from_slice(&body).ok().and_then(|list| names(self.dialect(), &list));
        models.ok_or_else(|| unreadable(format!("the answer is no list of models: `{}`", brief(&body, &self.mask))))
    }
}

/// Asks for as many as a page can hold, which is more than anybody offers.
fn request(settings: &ProviderSettings) -> HttpRequest {
    let (url, version) = match settings.dialect {
        Dialect::Anthropic => (anthropic::url(settings, "/models?limit=1000"), Some(anthropic::version(settings))),
        Dialect::Gemini => (gemini::url(settings, "/models?pageSize=1000"), None),
        Dialect::Responses | Dialect::Chat => (settings.url("/models"), None),
    };
    let mut own = vec![("accept", "application/json")];
    own.extend(version.map(|version| ("anthropic-version", version)));
    HttpRequest { method: "GET", url, headers: headers_with(settings, &own), body: Vec::new().into() }
}

/// The names in a list of models; none when it is no such list.
fn names(dialect: Dialect, list: &Value) -> Option<Vec<String>> {
    let text = |model: &Value, name: &str| model.get(name).and_then(Value::as_str).map(str::to_owned);
    if dialect == Dialect::Gemini {
        let name = |model: &Value| Some(text(model, "name")?.trim_start_matches("models/").to_owned());
        return list.get("models")?.as_array()?.iter().filter(|model| answers(model)).map(name).collect();
    }
    match (list, list.get("data")) {
        // Some who speak a dialect send the list alone.
        (Value::Array(models), _) | (_, Some(Value::Array(models))) => {
            models.iter().map(|model| text(model, "id")).collect()
        }
        // Ollama without a model has no list either.
        (_, Some(Value::Null)) if list["object"] == "list" => Some(Vec::new()),
        _ => None,
    }
}

/// Is it one of Gemini's models that answer? Others only embed, or draw.
fn answers(model: &Value) -> bool {
    let methods = model.get("supportedGenerationMethods").and_then(Value::as_array);
    methods.is_none_or(|methods| methods.iter().any(|method| method == "generateContent"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_dialect_asks_at_its_own_address() {
        let url = |dialect, base: &str| request(&ProviderSettings::new(dialect).with_base_url(base)).url;
        let asked = [
            url(Dialect::Anthropic, "https://a"),
            url(Dialect::Anthropic, "https://a/v1/"),
            url(Dialect::Gemini, "https://a"),
            url(Dialect::Gemini, "https://a/v1?x=y"),
            url(Dialect::Responses, "https://a/v1"),
            url(Dialect::Chat, "https://a/v1/?x=y"),
        ];
        let expected = [
            "https://a/v1/models?limit=1000",
            "https://a/v1/models?limit=1000",
            "https://a/v1beta/models?pageSize=1000",
            "https://a/v1/models?pageSize=1000&x=y",
            "https://a/v1/models",
            "https://a/v1/models?x=y",
        ];
        assert_eq!(asked, expected);
    }

    #[test]
    fn lists_of_models_are_read_in_every_form() {
        let two = Some(vec!["a".to_owned(), "b/c".to_owned()]);
        let data = json!([{"id": "a", "object": "model", "owned_by": "x"}, {"id": "b/c"}]);
        assert_eq!(names(Dialect::Chat, &json!({"object": "list", "data": data})), two);
        assert_eq!(names(Dialect::Anthropic, &json!({"data": data, "has_more": false})), two);
        assert_eq!(names(Dialect::Chat, &data), two);
        assert_eq!(names(Dialect::Responses, &json!({"object": "list", "data": null})), Some(Vec::new()));
        let gemini = json!({"models": [
            {"name": "models/a", "supportedGenerationMethods": ["generateContent", "countTokens"]},
            {"name": "models/embedding-1", "supportedGenerationMethods": ["embedContent"]},
            {"name": "b/c"},
        ]});
        assert_eq!(names(Dialect::Gemini, &gemini), two);
    }

    #[test]
    fn what_is_no_list_of_models_is_not_taken_for_one() {
        for list in
            [json!({}), json!(3), json!({"data": {}}), json!({"data": null}), json!([{"name": "a"}]), json!(["a"])]
        {
            assert_eq!(names(Dialect::Chat, &list), None, "{list}");
        }
        assert_eq!(names(Dialect::Gemini, &json!({"data": []})), None);
    }
}
