//! The handle of an agent: turns, history, tools and servers.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::input::TurnInput;
use super::output_store::OutputStore;
use super::server::AgentServer;
use super::shared::{AgentShared, wait_for};
use super::turn::{Turn, TurnControl};
use ropeway_bridge::registry::{ContextSource, Registry, ServerStatus, ToolSource};
use ropeway_core::event::EventStream;
use ropeway_core::message::Conversation;
use ropeway_core::sync::lock;
use ropeway_core::tool::IntoTool;

/// A model that uses tools.
///
/// Cheap to clone; clones share one history. Turns run one after the other, in the order in which they were sent.
///
/// # Examples
///
/// ```no_run
/// use ropeway::prelude::*;
///
/// # async fn run() -> Result<(), ropeway::Error> {
/// let hello = LocalTool::new(ToolDefinition::new("hello"), |_, _| async { Ok("Hello!") });
/// let agent = Agent::builder()
///     .provider(Provider::from_env(Dialect::Anthropic)?)
///     .model("claude-sonnet-4-5")
///     .tool(hello)
///     .mcp(ServerConfig::new("docs", HttpServer::new("https://example.com/mcp")))
///     .build()?;
/// println!("{}", agent.send("Say hello.").await?.text);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Agent {
    pub(super) shared: Arc<AgentShared>,
}

impl Agent {
    /// Sends a message to the model. The turn runs in a separate task, after all turns before it. An empty input
    /// [resumes](Agent::resume).
    ///
    /// # Panics
    /// Panics outside of a tokio runtime.
    pub fn send(&self, input: impl Into<TurnInput>) -> Turn {
        self.begin(Some(input.into()))
    }

    /// Continues without a new message: after a provider error, after a limit, or with a history that ends in the middle of a
    /// turn.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime.
    pub fn resume(&self) -> Turn {
        self.begin(None)
    }

    fn begin(&self, input: Option<TurnInput>) -> Turn {
        let (turn, task) = Turn::new(self.shared.tracer.clone());
        let (done, ended) = oneshot::channel();
        let previous = {
            let mut queue = lock(&self.shared.queue);
            queue.controls.retain(TurnControl::is_live);
            queue.controls.push(turn.control());
            queue.last.replace(ended)
        };
        tokio::spawn(self.shared.clone().run(task, previous, done, input));
        turn
    }

    /// Cancels all turns, including those that have not begun.
    pub fn cancel(&self) {
        lock(&self.shared.queue).controls.iter().for_each(TurnControl::cancel);
    }

    /// Ends the running turn after its current step. Turns that have not begun end immediately.
    pub fn stop(&self) {
        lock(&self.shared.queue).controls.iter().for_each(TurnControl::stop);
    }

    /// Returns the conversation so far, to save it or to continue it with any agent. Every call has a result; the result of a
    /// running call says that it has not finished.
    pub fn history(&self) -> Conversation {
        self.shared.history.snapshot()
    }

    /// Replaces the history, once all turns that were sent before have ended. The system prompt of the builder overrides that of
    /// the conversation.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime.
    pub async fn replace_history(&self, mut conversation: Conversation) {
        let (done, ended) = oneshot::channel::<()>();
        let previous = lock(&self.shared.queue).last.replace(ended);
        let shared = self.shared.clone();
        conversation.system = shared.system.clone().or(conversation.system);
        // Runs in a separate task: if this future is dropped, the next turn still waits for the turns before it.
        let replaced = tokio::spawn(async move {
            wait_for(previous).await;
            if let Some(store) = &shared.agent_loop.store {
                store.skip_outputs_of(&conversation);
            }
            shared.history.replace(conversation);
            drop(done);
        });
        let _ = replaced.await;
    }

    /// Adds a tool of the host, from the next turn on.
    pub fn add_tool(&self, tool: impl IntoTool) {
        self.add_tools([tool]);
    }

    /// Adds tools of the host, from the next turn on.
    pub fn add_tools(&self, tools: impl IntoIterator<Item = impl IntoTool>) {
        self.shared.sources.add_tools(tools.into_iter().map(IntoTool::into_tool));
    }

    /// Removes the host's tools with this name, from the next turn on. Returns `false` if none has it.
    ///
    /// Tools of servers and built-in tools are not affected.
    pub fn remove_tool(&self, name: &str) -> bool {
        self.shared.sources.remove_tool(name)
    }

    /// Adds a server, from the next turn on.
    pub fn add_mcp(&self, server: impl Into<AgentServer>) {
        let AgentShared { handlers, events, sources, .. } = &*self.shared;
        sources.add_server(Arc::new(server.into().into_source(handlers.clone(), events.clone())));
    }

    /// Adds servers, from the next turn on.
    pub fn add_mcps(&self, servers: impl IntoIterator<Item = impl Into<AgentServer>>) {
        servers.into_iter().for_each(|server| self.add_mcp(server));
    }

    /// Removes the servers that were added with this alias, from the next turn on. Returns `false` if none has it.
    ///
    /// A running turn keeps its tools, and its calls complete. Afterwards, connections that the agent made are closed; an
    /// [`Mcp`](ropeway_mcp::Mcp) of the host stays open. Servers of a bridge are not affected.
    pub fn remove_mcp(&self, alias: &str) -> bool {
        self.shared.sources.remove_server(alias)
    }

    /// Adds a source of tools and of context, such as a bridge, from the next turn on.
    pub fn add_bridge(&self, bridge: impl ToolSource + ContextSource + 'static) {
        self.shared.sources.add_bridge(Arc::new(bridge));
    }

    /// Adds a source of tools, from the next turn on.
    pub fn add_source(&self, source: impl ToolSource + 'static) {
        self.shared.sources.add_source(Arc::new(source));
    }

    /// Connects to the servers now instead of at the first turn, and returns the status of each.
    pub async fn connect(&self) -> Vec<ServerStatus> {
        self.shared.sources.ready(None).await;
        self.shared.sources.statuses()
    }

    /// Returns a stream of the events of the agent's own servers, from now on.
    pub fn events(&self) -> EventStream {
        self.shared.events.subscribe()
    }

    /// Returns the status of each server.
    pub fn statuses(&self) -> Vec<ServerStatus> {
        self.shared.sources.statuses()
    }

    /// Returns the tools that the next turn sends to the model, as of now.
    ///
    /// These are the tools of the host and of the servers, and the built-in tools:
    /// - `read_more` reads further in an output that was truncated. It is sent with every request that has tools, unless a tool of
    ///   the host or of a server has that name.
    /// - `find_tools` and `call_tool` replace the tools of servers if there are more tools than
    ///   [`search_over`](super::AgentBuilder::search_over); [`all_tools`](Self::all_tools) includes those.
    ///
    /// Tools of a server are known once it is connected: after the first turn or [`connect`](Self::connect).
    pub fn tools(&self) -> Registry {
        self.shared.sources.exposed_tools().listed.clone()
    }

    /// Returns every tool of the host and of the servers that the next turn can call, including those that the model only finds
    /// through `find_tools`.
    pub fn all_tools(&self) -> Registry {
        self.shared.sources.exposed_tools().all.clone()
    }

    /// Returns the directory of the spill files, if outputs are stored in named files; see
    /// [`AgentBuilder::spill_folder`](super::AgentBuilder::spill_folder).
    pub fn spill_folder(&self) -> Option<PathBuf> {
        self.shared.agent_loop.store.as_ref().and_then(OutputStore::folder)
    }

    /// Returns the name of the model.
    pub fn model(&self) -> &str {
        &self.shared.agent_loop.model
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").field("model", &self.model()).finish_non_exhaustive()
    }
}
