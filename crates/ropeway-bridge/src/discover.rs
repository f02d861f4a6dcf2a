//! Tool discovery for hosts with their own tool registry.

use std::sync::Arc;

use super::error::BridgeError;
use super::handle::Bridge;
use crate::registry::{Collision, Registry, ServerStatus, ToolShape, Transformer, naming};
use ropeway_config::Config;
use ropeway_core::checked::CheckedTool;
use ropeway_core::tool::{
    Alias, ArgumentMapping, Arguments, BoxFuture, CallContext, CallError, Origin, Provenance, Tool, ToolDefinition,
    ToolOutput,
};

/// Connects to all servers and returns their tools under the servers' own names.
///
/// Filters and transformers that run over the result therefore see those names; the configured prefix is added by
/// [`DiscoveredTool::register_exposed`]. Every tool keeps the bridge, and so its connection, alive. [`Bridge::statuses`] reports
/// servers that could not be connected.
///
/// # Errors
///
/// Returns an error if the configuration is invalid or a required server fails.
///
/// # Examples
///
/// ```no_run
/// use ropeway::bridge::connect_and_discover;
/// use ropeway::config::{Config, Secrets};
/// use ropeway::registry::Registry;
/// use ropeway::tool::Tool as _;
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::load("ropeway.yaml".as_ref(), &Secrets::from_env())?;
/// let (_, found) = connect_and_discover(config).await?;
/// let mut tools = Registry::default();
/// for tool in found.into_iter().filter(|tool| tool.definition().name.starts_with("read_")) {
///     tool.register_exposed(&mut tools);
/// }
/// # Ok(()) }
/// ```
pub async fn connect_and_discover(config: Config) -> Result<(Bridge, Vec<DiscoveredTool>), BridgeError> {
    let bridge = Bridge::new(config)?;
    bridge.start().await?;
    let tools = bridge.tools().registry.tools().map(|tool| DiscoveredTool::new(tool, &bridge)).collect();
    Ok((bridge, tools))
}

/// Connects to all servers and adds their tools, with their prefixes, to a registry. They replace tools with the same name.
///
/// Returns each server's status. The tools keep their connections alive: they work until the last registry clone, or the last
/// registry [without the server](Registry::without_server), is dropped. The registry is not updated when a server changes its
/// tools; [`Bridge::tools`] is.
///
/// # Errors
///
/// Returns an error if the configuration is invalid or a required server fails.
///
/// # Examples
///
/// ```no_run
/// use ropeway::bridge::discover_and_register;
/// use ropeway::prelude::*;
/// use serde_json::json;
///
/// # async fn run() -> Result<(), ropeway::Error> {
/// let mut tools = Registry::default();
/// discover_and_register(Config::load("ropeway.yaml".as_ref(), &Secrets::from_env())?, &mut tools).await?;
/// println!("{}", tools.call("demo.calculate", json!({"expression": "6 * 7"})).await);
/// # Ok(()) }
/// ```
pub async fn discover_and_register(config: Config, tools: &mut Registry) -> Result<Vec<ServerStatus>, BridgeError> {
    let (bridge, found) = connect_and_discover(config).await?;
    for tool in found {
        if let Some(collision) = tool.register_exposed(tools) {
            bridge.state.shared.warn(None, collision.to_string());
        }
    }
    Ok(bridge.statuses())
}

/// A tool found by [`connect_and_discover`], under its server's own name, that keeps its connection alive.
#[derive(Clone)]
#[doc(alias = "MCPTool")]
pub struct DiscoveredTool {
    tool: Arc<dyn Tool>,
    definition: ToolDefinition,
    /// The definition that the bridge exposes.
    exposed: ToolDefinition,
    bridge: Bridge,
}

impl DiscoveredTool {
    fn new(tool: &CheckedTool, bridge: &Bridge) -> Self {
        let exposed = tool.definition().clone();
        let prefix = &*exposed.provenance.prefix;
        // A shortened or disambiguated name cannot be split into prefix and name: the server's own name is used instead.
        let name = exposed
            .name
            .strip_prefix(prefix)
            .filter(|name| naming::sanitize(&format!("{prefix}{name}")) == exposed.name);
        let name = name.unwrap_or(exposed.own_name()).to_owned();
        let definition = ToolDefinition { name, ..exposed.clone() };
        Self { tool: tool.tool(), definition, exposed, bridge: bridge.clone() }
    }

    /// Returns the server alias.
    pub fn server(&self) -> Option<&Alias> {
        match &self.exposed.origin {
            Origin::Server { server, .. } => Some(server),
            Origin::Local => None,
        }
    }

    /// Returns the name under which [`register_exposed`](Self::register_exposed) adds the tool: with the configured prefix, and
    /// valid for every model.
    pub fn exposed_name(&self) -> &str {
        &self.exposed.name
    }

    /// Applies a transformer, such as a closure or a [`ToolOverride`](ropeway_config::ToolOverride), which sees the server's own
    /// name. Returns `None` if it filters the tool out.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use ropeway::bridge::DiscoveredTool;
    /// use ropeway::prelude::*;
    ///
    /// fn add(tool: DiscoveredTool, tools: &mut Registry) {
    ///     let shouted = tool.transformed(|tool: ToolDefinition| {
    ///         let name = tool.name.to_uppercase();
    ///         Some(tool.with_name(name).with_description("Changed."))
    ///     });
    ///     if let Some(tool) = shouted {
    ///         // As `mcp_<alias>_<NAME>`; `tools.register(tool)` adds it as `<NAME>`.
    ///         tool.register_exposed(tools);
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn transformed(self, transformer: impl Transformer + 'static) -> Option<Self> {
        let Self { exposed, bridge, .. } = self.clone();
        let server = self.server().cloned().unwrap_or_else(|| "local".into());
        let own_name = self.definition.name.clone();
        let shape = ToolShape::plain(server).with_prefix("").with_transformer(Arc::new(transformer));
        let tool = shape.apply(Arc::new(self))?;
        let mut definition = tool.definition().clone();
        // Locks and approvals compare the server's own definition.
        let original = exposed.provenance.original.clone().or(definition.provenance.original.take());
        definition.provenance = Provenance { original, ..exposed.provenance };
        let name = if definition.name == own_name {
            exposed.name
        } else {
            naming::sanitize(&format!("{}{}", definition.provenance.prefix, definition.name))
        };
        let exposed = ToolDefinition { name, ..definition.clone() };
        Some(Self { tool, definition, exposed, bridge })
    }

    /// Adds the tool to a registry under its [exposed name](Self::exposed_name). Returns the collision with a tool
    /// that had the name, if any.
    ///
    /// [`Registry::register`] adds it under its definition's name instead, without the prefix.
    #[doc(alias = "registerMCPTool")]
    pub fn register_exposed(self, tools: &mut Registry) -> Option<Collision> {
        tools.register(Arc::new(Self { definition: self.exposed.clone(), ..self }))
    }

    /// Adds the tool like [`register_exposed`](Self::register_exposed).
    #[deprecated(note = "renamed to `register_exposed`: `Registry::register` adds the tool under another name")]
    pub fn register(self, tools: &mut Registry) -> Option<Collision> {
        self.register_exposed(tools)
    }
}

impl Tool for DiscoveredTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn prepare(&self, arguments: &mut Arguments) {
        self.tool.prepare(arguments);
    }

    fn summarize(&self, arguments: &Arguments) -> Option<String> {
        self.tool.summarize(arguments)
    }

    fn argument_mapping(&self) -> ArgumentMapping {
        self.tool.argument_mapping()
    }

    fn map_arguments(&self, arguments: &mut Arguments) {
        self.tool.map_arguments(arguments);
    }

    fn call<'a>(&'a self, arguments: Arguments, cx: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
        self.tool.call(arguments, cx)
    }
}

impl std::fmt::Debug for DiscoveredTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { definition, exposed, .. } = self;
        f.debug_struct("DiscoveredTool").field("definition", definition).field("exposed", &exposed.name).finish()
    }
}
