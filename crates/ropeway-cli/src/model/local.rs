//! Finds model servers on the local machine by their default ports.

use std::time::Duration;

use ropeway_config::ProviderName;
use ropeway_core::message::Dialect;
use ropeway_providers::{Provider, ProviderSettings, Proxy};
use tokio::task::JoinSet;

use super::vendor::vendor;

/// Connect timeout for a local server.
const CONNECT: Duration = Duration::from_millis(300);

/// Time limit for listing its models.
const ANSWER: Duration = Duration::from_secs(1);

/// Default model server ports, in order of preference.
pub(crate) const LOCAL_PORTS: [LocalPort; 4] = [
    LocalPort { name: ProviderName::Ollama, port: 11434 },
    LocalPort { name: ProviderName::LmStudio, port: 1234 },
    LocalPort { name: ProviderName::LlamaCpp, port: 8080 },
    LocalPort { name: ProviderName::Vllm, port: 8000 },
];

/// A port on which a model server may listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LocalPort {
    pub(crate) name: ProviderName,
    pub(crate) port: u16,
}

impl LocalPort {
    /// Returns the provider settings for this port.
    pub(super) fn settings(self) -> ProviderSettings {
        ProviderSettings::new(Dialect::Chat).with_base_url(format!("http://127.0.0.1:{}/v1", self.port))
    }

    /// Returns the display name.
    pub(super) fn title(self) -> &'static str {
        vendor(self.name).title
    }

    /// Returns a provider with short timeouts.
    fn provider(self) -> Option<Provider> {
        let mut settings = self.settings().with_proxy(Proxy::None);
        settings.timeouts.connect = CONNECT;
        settings.timeouts.first_byte = ANSWER;
        settings.timeouts.idle = ANSWER;
        settings.retries.max_retries = 0;
        Provider::new(settings).ok()
    }
}

/// A running model server and its models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LocalServer {
    pub(super) local: LocalPort,
    pub(super) models: Vec<String>,
}

/// Returns the running model servers, ordered like `locals`. Queries all ports concurrently.
pub(super) async fn find(locals: &[LocalPort]) -> Vec<LocalServer> {
    // Building an HTTP client is slow and must not count toward the timeout.
    let providers: Vec<_> = locals.iter().map(|local| (*local, local.provider())).collect();
    let mut asked = JoinSet::new();
    for (place, (local, provider)) in providers.into_iter().enumerate() {
        asked.spawn(async move {
            // Any error means that the port has no usable model server.
            let models = tokio::time::timeout(ANSWER, provider?.models()).await.ok()?.ok()?;
            Some((place, LocalServer { local, models }))
        });
    }
    let mut found: Vec<(usize, LocalServer)> = asked.join_all().await.into_iter().flatten().collect();
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, found)| found).collect()
}

#[cfg(test)]
mod tests {
    use ropeway_testing::ModelAnswer;
    use serde_json::json;

    use super::super::tests::{free_port, server};
    use super::*;

    #[tokio::test]
    async fn only_a_server_that_lists_models_is_a_model_server() {
        let list = json!({"object": "list", "data": [{"id": "a"}, {"id": "b"}]});
        let (_page, page) = server(ModelAnswer::new(200, "text/html", "<html>Hello</html>")).await;
        let (_other, other) = server(ModelAnswer::json(404, &json!({"error": "no such page"}))).await;
        let (_model, model) = server(ModelAnswer::json(200, &list)).await;
        let (_empty, empty) = server(ModelAnswer::json(200, &json!({"object": "list", "data": null}))).await;
        let (_silent, silent) = server(ModelAnswer::silence()).await;
        let at = |port| LocalPort { name: ProviderName::Ollama, port };
        let found = find(&[page, free_port(), empty, silent, other, model].map(at)).await;
        let expected = [
            LocalServer { local: at(empty), models: Vec::new() },
            LocalServer { local: at(model), models: vec!["a".into(), "b".into()] },
        ];
        assert_eq!(found, expected);
    }
}
