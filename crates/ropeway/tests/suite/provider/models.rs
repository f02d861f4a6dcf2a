//! Listing models over a socket.

use std::time::Duration;

use ropeway::message::Dialect;
use ropeway::provider::{Provider, ProviderError, ProviderErrorKind, ProviderSettings, ProviderTimeouts, Recorder};
use ropeway::testing::{ModelAnswer, ModelServer};
use serde_json::json;

use super::{KEY, settings, shown, soon};

fn list() -> ModelAnswer {
    ModelAnswer::json(200, &json!({"object": "list", "data": [{"id": "first"}, {"id": "second"}]}))
}

async fn models(settings: ProviderSettings) -> Result<Vec<String>, ProviderError> {
    soon(Provider::new(settings).expect("a provider").models()).await
}

#[tokio::test]
async fn models_are_requested_with_the_key() {
    let gemini = ModelAnswer::json(200, &json!({"models": [{"name": "models/first"}]}));
    let server = ModelServer::start([list(), list(), list(), gemini]).await.expect("a server");
    let base = server.url();
    let of = |dialect, path: &str| ProviderSettings::new(dialect).with_base_url(format!("{base}{path}")).with_key(KEY);
    let two = ["first", "second"];
    assert_eq!(models(of(Dialect::Chat, "/v1")).await.expect("models"), two);
    assert_eq!(models(of(Dialect::Responses, "/v1")).await.expect("models"), two);
    assert_eq!(models(of(Dialect::Anthropic, "")).await.expect("models"), two);
    assert_eq!(models(of(Dialect::Gemini, "")).await.expect("models"), ["first"]);
    let bearer = format!("Bearer {KEY}");
    let asked = server.requests();
    let asked = asked.iter().map(|asked| {
        let headers = ["authorization", "x-api-key", "x-goog-api-key", "accept", "content-type"];
        (asked.method.as_str(), asked.path.as_str(), headers.map(|name| asked.header(name)), asked.body.len())
    });
    let json = Some("application/json");
    let expected = [
        ("GET", "/v1/models", [Some(bearer.as_str()), None, None, json, None], 0),
        ("GET", "/v1/models", [Some(bearer.as_str()), None, None, json, None], 0),
        ("GET", "/v1/models?limit=1000", [None, Some(KEY), None, json, None], 0),
        ("GET", "/v1beta/models?pageSize=1000", [None, None, Some(KEY), json, None], 0),
    ];
    assert_eq!(asked.collect::<Vec<_>>(), expected);
    assert!(server.requests()[2].header("anthropic-version").is_some());
}

#[tokio::test]
async fn the_list_of_models_is_retried() {
    let busy = ModelAnswer::json(503, &json!({"error": "busy"}));
    let server = ModelServer::start([busy, list()]).await.expect("a server");
    assert_eq!(models(settings(&server)).await.expect("models"), ["first", "second"]);
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn an_invalid_list_of_models_is_reported_without_the_key() {
    let page = ModelAnswer::new(200, "text/html", format!("<html><title>Hello {KEY}</title></html>"));
    let refused = ModelAnswer::json(401, &json!({"error": {"message": format!("{KEY} is no key")}}));
    let server = ModelServer::start([page, refused, list().cut_off()]).await.expect("a server");
    let mut once = settings(&server);
    once.retries.max_retries = 0;
    let error = models(once.clone()).await.expect_err("no models");
    assert_eq!(
        (error.kind, error.to_string()),
        (ProviderErrorKind::Unreadable, "not a list of models: `Hello ***`".into())
    );
    let error = models(once.clone()).await.expect_err("no models");
    assert_eq!(
        (error.kind, error.to_string()),
        (ProviderErrorKind::Auth, "the provider returned HTTP 401: *** is no key".into())
    );
    assert!(!shown(&error).contains(KEY));
    let error = models(once).await.expect_err("no models");
    assert_eq!(error.kind, ProviderErrorKind::Connection);
}

#[tokio::test]
async fn the_list_of_models_times_out() {
    let server = ModelServer::start([ModelAnswer::silence()]).await.expect("a server");
    let mut settings = settings(&server);
    settings.retries.max_retries = 0;
    let mut timeouts = ProviderTimeouts::default();
    timeouts.first_byte = Duration::from_millis(20);
    let error = models(settings.with_timeouts(timeouts)).await.expect_err("no models");
    assert_eq!(
        (error.kind, error.to_string()),
        (ProviderErrorKind::Timeout, "no response from the provider within 20 ms".into())
    );
}

#[tokio::test]
async fn a_list_of_models_is_recorded_and_replayed() {
    let server = ModelServer::start([list()]).await.expect("a server");
    let recorder = Recorder::in_memory();
    let provider = Provider::new(settings(&server)).expect("a provider").with_recorder(recorder.clone());
    let live = soon(provider.models()).await.expect("models");
    let replayed = Provider::replaying(settings(&server), recorder.recording()).models().await.expect("models");
    assert_eq!(live, replayed);
    assert_eq!(server.requests().len(), 1);
}
