//! Agent handle: turns, history, tools and servers.

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
/// Handles and turn tasks share the state through an `Arc`. [`send`](Self::send) spawns a task per turn and links it to the
/// one before it, under the queue's mutex; each task waits until the previous one drops its end of a channel, so the order
/// holds even if a turn panics. The turn queue, the history, the sources, the approvals and the output store each have their
/// own std mutex. None is held while another is taken, or across `.await`. Dropping the last handle cancels no turn;
/// dropping a [`Turn`] does. The state, and with it the agent's hold on the connections that it opened, is dropped after the
/// last handle and the last turn's task.
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
    /// Panics outside a tokio runtime.
    pub fn send(&self, input: impl Into<TurnInput>) -> Turn {
        self.begin(Some(input.into()))
    }

    /// Continues without a new message: after a provider error, after a limit, or with a history that ends within a turn.
    ///
    /// # Panics
    /// Panics outside a tokio runtime.
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

    /// Returns the conversation so far, to save it or to continue it with any agent. Every call has a result; a running call's
    /// result says that it has not finished.
    pub fn history(&self) -> Conversation {
        self.shared.history.snapshot()
    }

    /// Replaces the history, once all turns that were sent before have ended. The builder's system prompt overrides the
    /// conversation's.
    ///
    /// # Panics
    /// Panics outside a tokio runtime.
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

    /// Adds a host tool, from the next turn on.
    pub fn add_tool(&self, tool: impl IntoTool) {
        self.add_tools([tool]);
    }

    /// Adds host tools, from the next turn on.
    pub fn add_tools(&self, tools: impl IntoIterator<Item = impl IntoTool>) {
        self.shared.sources.add_tools(tools.into_iter().map(IntoTool::into_tool));
    }

    /// Removes the host's tools with this name, from the next turn on. Returns `false` if none has it.
    ///
    /// Server tools and built-in tools are not affected.
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
    /// A running turn keeps its tools, and its calls complete. Afterwards, connections that the agent made are closed; the host's
    /// own [`Mcp`](ropeway_mcp::Mcp) stays open. A bridge's servers are not affected.
    pub fn remove_mcp(&self, alias: &str) -> bool {
        self.shared.sources.remove_server(alias)
    }

    /// Adds a tool and context source, such as a bridge, from the next turn on.
    pub fn add_bridge(&self, bridge: impl ToolSource + ContextSource + 'static) {
        self.shared.sources.add_bridge(Arc::new(bridge));
    }

    /// Adds a tool source, from the next turn on.
    pub fn add_source(&self, source: impl ToolSource + 'static) {
        self.shared.sources.add_source(Arc::new(source));
    }

    /// Connects to the servers now instead of at the first turn, and returns each server's status.
    pub async fn connect(&self) -> Vec<ServerStatus> {
        self.shared.sources.ready(None).await;
        self.shared.sources.statuses()
    }

    /// Returns an event stream for the agent's own servers, from now on.
    pub fn events(&self) -> EventStream {
        self.shared.events.subscribe()
    }

    /// Returns each server's status.
    pub fn statuses(&self) -> Vec<ServerStatus> {
        self.shared.sources.statuses()
    }

    /// Returns the tools that the next turn sends to the model, as of now.
    ///
    /// These are the host, server and built-in tools:
    /// - `read_more` reads further in an output that was truncated. It is sent with every request that has tools, unless a host
    ///   or server tool has that name.
    /// - `find_tools` and `call_tool` replace the server tools if there are more tools than
    ///   [`search_over`](super::AgentBuilder::search_over); [`all_tools`](Self::all_tools) includes those.
    ///
    /// A server's tools are known once it is connected: after the first turn or [`connect`](Self::connect).
    pub fn tools(&self) -> Registry {
        self.shared.sources.exposed_tools().listed.clone()
    }

    /// Returns every host and server tool that the next turn can call, including those that the model only finds through
    /// `find_tools`.
    pub fn all_tools(&self) -> Registry {
        self.shared.sources.exposed_tools().all.clone()
    }

    /// Returns the spill directory, if outputs are stored in named files; see
    /// [`AgentBuilder::spill_folder`](super::AgentBuilder::spill_folder).
    pub fn spill_folder(&self) -> Option<PathBuf> {
        self.shared.agent_loop.store.as_ref().and_then(OutputStore::folder)
    }

    /// Returns the model name.
    pub fn model(&self) -> &str {
        &self.shared.agent_loop.model
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").field("model", &self.model()).finish_non_exhaustive()
    }
}
