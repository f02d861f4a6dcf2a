//! Model servers on this machine: they are found by their usual ports.

use std::time::Duration;

use ropeway::config::ProviderName;
use ropeway::message::Dialect;
use ropeway::provider::{Provider, ProviderSettings, Proxy};
use tokio::task::JoinSet;

use super::vendor::vendor;

/// How long a server on this machine has to take a connection.
const CONNECT: Duration = Duration::from_millis(300);

/// How long it has to tell its models.
const ANSWER: Duration = Duration::from_secs(1);

/// Where model servers usually listen, in the order in which they are taken.
pub(crate) const LOCALS: [Local; 4] = [
    Local { name: ProviderName::Ollama, port: 11434 },
    Local { name: ProviderName::LmStudio, port: 1234 },
    Local { name: ProviderName::LlamaCpp, port: 8080 },
    Local { name: ProviderName::Vllm, port: 8000 },
];

/// Where a model server may listen on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Local {
    pub(crate) name: ProviderName,
    pub(crate) port: u16,
}

impl Local {
    /// How it is talked to.
    pub(super) fn settings(self) -> ProviderSettings {
        ProviderSettings::new(Dialect::Chat).with_base_url(format!("http://127.0.0.1:{}/v1", self.port))
    }

    /// What people call what usually listens there.
    pub(super) fn title(self) -> &'static str {
        vendor(self.name).title
    }

    /// What asks it for its models, and does not wait for long.
    fn provider(self) -> Option<Provider> {
        let mut settings = self.settings().with_proxy(Proxy::None);
        settings.timeouts.connect = CONNECT;
        settings.timeouts.first_byte = ANSWER;
        settings.timeouts.idle = ANSWER;
        settings.retries.max_retries = 0;
        Provider::new(settings).ok()
    }
}

/// A model server on this machine, and its models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) local: Local,
    pub(super) models: Vec<String>,
}

/// The model servers that answer, in the order of their ports in the list. All are asked at once.
pub(super) async fn find(locals: &[Local]) -> Vec<Found> {
    // An HTTP client takes a while to make; no clock runs yet.
    let providers: Vec<_> = locals.iter().map(|local| (*local, local.provider())).collect();
    let mut asked = JoinSet::new();
    for (place, (local, provider)) in providers.into_iter().enumerate() {
        asked.spawn(async move {
            // Whatever goes wrong, it is no model server that one could talk to.
            let models = tokio::time::timeout(ANSWER, provider?.models()).await.ok()?.ok()?;
            Some((place, Found { local, models }))
        });
    }
    let mut found: Vec<(usize, Found)> = asked.join_all().await.into_iter().flatten().collect();
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, found)| found).collect()
}

#[cfg(test)]
mod tests {
    use ropeway::testing::ModelAnswer;
    use serde_json::json;

    use super::super::tests::{free_port, server};
    use super::*;

    #[tokio::test]
    async fn only_what_tells_its_models_is_a_model_server() {
        let list = json!({"object": "list", "data": [{"id": "a"}, {"id": "b"}]});
        let (_page, page) = server(ModelAnswer::new(200, "text/html", "<html>Hello</html>")).await;
        let (_other, other) = server(ModelAnswer::json(404, &json!({"error": "no such page"}))).await;
        let (_model, model) = server(ModelAnswer::json(200, &list)).await;
        let (_empty, empty) = server(ModelAnswer::json(200, &json!({"object": "list", "data": null}))).await;
        let (_silent, silent) = server(ModelAnswer::silence()).await;
        let at = |port| Local { name: ProviderName::Ollama, port };
        let found = find(&[page, free_port(), empty, silent, other, model].map(at)).await;
        let expected = [
            Found { local: at(empty), models: Vec::new() },
            Found { local: at(model), models: vec!["a".into(), "b".into()] },
        ];
        assert_eq!(found, expected);
    }
}
