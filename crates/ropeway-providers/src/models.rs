//! Lists a provider's models.

use serde_json::Value;

use super::client::Provider;
use super::error::{ProviderError, ProviderErrorKind};
use super::http_message::{HttpRequest, headers};
use super::settings::ProviderSettings;
use super::transport::Transport;
use super::{anthropic, gemini};
use ropeway_core::json;
use ropeway_core::message::Dialect;
use ropeway_web::brief;

/// Maximum model list size. Gateways describe hundreds of models.
const MAX_LIST: usize = 16 << 20;

impl Provider {
    /// Returns the names of the provider's models, in its own order. Some may not be chat models.
    ///
    /// # Errors
    ///
    /// Fails if the provider cannot be reached, rejects the request, or does not return a model list.
    pub async fn models(&self) -> Result<Vec<String>, ProviderError> {
        let request = request(self.settings());
        let mut retries = 0;
        loop {
            let error = match list_models(&self.transport, &request).await {
                Ok(models) => return Ok(models),
                Err(error) => error,
            };
            match self.settings().retries.backoff(&error, retries, fastrand::f64()) {
                Some(backoff) => tokio::time::sleep(backoff).await,
                None => return Err(error.redacted(&self.transport.redactor)),
            }
            retries += 1;
        }
    }
}

async fn list_models(transport: &Transport, request: &HttpRequest) -> Result<Vec<String>, ProviderError> {
    let unreadable = |message: String| transport.error(ProviderErrorKind::Unreadable, message);
    let mut exchange = transport.send(request).await?;
    if !exchange.is_success() {
        return Err(exchange.into_error().await);
    }
    let mut body = Vec::new();
    while let Some(chunk) = exchange.chunk().await? {
        exchange.set_idle_timeout(transport.settings.timeouts.idle);
        body.extend_from_slice(&chunk);
        if body.len() > MAX_LIST {
            return Err(unreadable(format!("the list of models exceeds {} MiB", MAX_LIST >> 20)));
        }
    }
    let models = json::from_slice(&body).ok().and_then(|list| model_names(transport.dialect(), &list));
    models.ok_or_else(|| unreadable(format!("not a list of models: `{}`", brief(&body, &transport.redactor))))
}

/// Requests the largest page, which holds all models that current providers have.
fn request(settings: &ProviderSettings) -> HttpRequest {
    let (url, version) = match settings.dialect {
        Dialect::Anthropic => (anthropic::url(settings, "/models?limit=1000"), Some(anthropic::version(settings))),
        Dialect::Gemini => (gemini::url(settings, "/models?pageSize=1000"), None),
        Dialect::Responses | Dialect::Chat => (settings.url("/models"), None),
    };
    let mut own = vec![("accept", "application/json")];
    own.extend(version.map(|version| ("anthropic-version", version)));
    HttpRequest { method: "GET", url, headers: headers(settings, &own), body: Vec::new().into() }
}

/// Returns the names in a model list, or `None` if it is not a model list.
fn model_names(dialect: Dialect, list: &Value) -> Option<Vec<String>> {
    let text = |model: &Value, name: &str| model.get(name).and_then(Value::as_str).map(str::to_owned);
    if dialect == Dialect::Gemini {
        let name = |model: &Value| Some(text(model, "name")?.trim_start_matches("models/").to_owned());
        return list.get("models")?.as_array()?.iter().filter(|model| generates_content(model)).map(name).collect();
    }
    match (list, list.get("data")) {
        // Some servers send a bare array.
        (Value::Array(models), _) | (_, Some(Value::Array(models))) => {
            models.iter().map(|model| text(model, "id")).collect()
        }
        // Ollama sends null if it has no model.
        (_, Some(Value::Null)) if list["object"] == "list" => Some(Vec::new()),
        _ => None,
    }
}

/// Returns `true` for Gemini models that generate content; others only embed or draw.
///
/// See <https://ai.google.dev/api/models#Model>.
fn generates_content(model: &Value) -> bool {
    let methods = model.get("supportedGenerationMethods").and_then(Value::as_array);
    methods.is_none_or(|methods| methods.iter().any(|method| method == "generateContent"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_dialect_has_its_own_models_url() {
        let url = |dialect, base: &str| request(&ProviderSettings::new(dialect).with_base_url(base)).url;
        let urls = [
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
        assert_eq!(urls, expected);
    }

    #[test]
    fn lists_of_models_are_read_in_every_form() {
        let two = Some(vec!["a".to_owned(), "b/c".to_owned()]);
        let data = json!([{"id": "a", "object": "model", "owned_by": "x"}, {"id": "b/c"}]);
        assert_eq!(model_names(Dialect::Chat, &json!({"object": "list", "data": data})), two);
        assert_eq!(model_names(Dialect::Anthropic, &json!({"data": data, "has_more": false})), two);
        assert_eq!(model_names(Dialect::Chat, &data), two);
        assert_eq!(model_names(Dialect::Responses, &json!({"object": "list", "data": null})), Some(Vec::new()));
        let gemini = json!({"models": [
            {"name": "models/a", "supportedGenerationMethods": ["generateContent", "countTokens"]},
            {"name": "models/embedding-1", "supportedGenerationMethods": ["embedContent"]},
            {"name": "b/c"},
        ]});
        assert_eq!(model_names(Dialect::Gemini, &gemini), two);
    }

    #[test]
    fn other_json_is_not_a_list_of_models() {
        for list in
            [json!({}), json!(3), json!({"data": {}}), json!({"data": null}), json!([{"name": "a"}]), json!(["a"])]
        {
            assert_eq!(model_names(Dialect::Chat, &list), None, "{list}");
        }
        assert_eq!(model_names(Dialect::Gemini, &json!({"data": []})), None);
    }
}
