//! Integrates a bridge into a host as an extension: configured by a manifest, with events on the host's bus and different tools for
//! different agents.
//!
//! From the root of the repository, with `ropeway` on the PATH (`cargo install --path crates/ropeway-cli`):
//! `OPENAI_API_KEY=… cargo run --package ropeway --example host_extension -- MODEL`. Set `OPENAI_BASE_URL` to use another server that
//! speaks Chat Completions, such as a local model.

use std::path::Path;
use std::sync::Arc;

use ropeway::prelude::*;
use ropeway::registry::{SelectedTools, ToolSource};
use ropeway::tool::{BoxError, BoxFuture};
use serde_json::Value;
use tokio::sync::mpsc;

/// The event bus of the host: the name of the sender and the event.
type Bus = mpsc::UnboundedSender<(&'static str, Value)>;

/// The interface of the host for extensions.
trait Extension: Send + Sync {
    fn initialize(manifest: &Path, bus: Bus) -> Result<Self, BoxError>
    where
        Self: Sized;
    fn start(&self) -> BoxFuture<'_, Result<(), BoxError>>;
    fn get_tools(&self) -> Arc<dyn ToolSource>;
    fn health_check(&self) -> BoxFuture<'_, bool>;
    fn stop(&self) -> BoxFuture<'_, ()>;
}

/// An extension with the servers of a manifest.
struct McpExtension(Bridge);

impl Extension for McpExtension {
    fn initialize(manifest: &Path, bus: Bus) -> Result<Self, BoxError> {
        let bridge = Bridge::from_file(manifest)?;
        let mut events = bridge.events();
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                let _ = bus.send(("mcp", serde_json::to_value(event).unwrap_or_default()));
            }
        });
        Ok(Self(bridge))
    }

    fn start(&self) -> BoxFuture<'_, Result<(), BoxError>> {
        Box::pin(async { Ok(self.0.start().await.map(|_| ())?) })
    }

    fn get_tools(&self) -> Arc<dyn ToolSource> {
        Arc::new(self.0.clone())
    }

    fn health_check(&self) -> BoxFuture<'_, bool> {
        Box::pin(async { self.0.health_check().await.is_healthy() })
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.stop())
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let model = std::env::args().nth(1).ok_or("usage: host_extension MODEL")?;
    let provider = Provider::from_env(Dialect::Chat)?;
    let (bus, mut messages) = mpsc::unbounded_channel();
    let extension: Box<dyn Extension> =
        Box::new(McpExtension::initialize(Path::new("crates/ropeway/examples/manifest.json"), bus)?);
    extension.start().await?;
    println!("healthy: {}", extension.health_check().await);

    let agent = || Agent::builder().provider(provider.clone()).model(&model);
    let analyst = agent().source(extension.get_tools()).build()?;
    let numbers = SelectedTools::new(extension.get_tools(), |tool| tool.name.ends_with("calculate"));
    let clerk = agent().source(numbers).build()?;
    for (name, agent) in [("analyst", analyst), ("clerk", clerk)] {
        println!("{name} has {:?}", agent.all_tools());
        println!("{name}: {}", agent.send("What is 6 * 7?").await?.text);
    }

    extension.stop().await;
    drop(extension);
    while let Some((who, event)) = messages.recv().await {
        println!("{who}: {} {}", event["event"], event["server"]);
    }
    Ok(())
}
