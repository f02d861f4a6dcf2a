//! One MCP server: connecting, staying connected, calling.

mod answer;
#[cfg(feature = "bridge")]
mod bridged;
mod call;
mod completion;
mod fault;
#[cfg(feature = "testing")]
pub(crate) mod fuzz;
mod handshake;
mod host;
mod inbox;
mod message_log;
mod pace;
mod pages;
mod prompts;
mod questions;
mod redaction;
mod resources;
mod session;
mod shared;
mod signals;
mod supervisor;
mod task;
mod tools;
mod trace;
mod transport;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinHandle;

pub use self::completion::{Completion, CompletionReference};
pub use self::fault::ConnectErrorKind;
#[cfg(feature = "agent")]
pub(crate) use self::host::Refusal;
pub use self::host::{ClientRoot, Elicitation, ElicitationAnswer, ElicitationMode, Handlers, SamplingRequest};
#[cfg(feature = "bridge")]
pub(crate) use self::pace::Backoff;
pub use self::prompts::{Prompt, PromptArgument, PromptMessage, PromptResult, PromptRole};
#[cfg(feature = "bridge")]
pub(crate) use self::redaction::entry as redacted_entry;
pub use self::resources::{Resource, ResourceTemplate};
pub use self::session::ServerInfo;
pub use self::shared::ConnectionState;
pub use self::signals::{
    end_children_on_signals, end_children_on_signals_with, end_children_on_termination, ignore_interrupts,
};
#[cfg(feature = "agent")]
pub(crate) use self::trace::is_seen;
pub use self::transport::orphans::{become_subreaper, end_descendants};
pub use self::transport::stdio::end_children;
pub use crate::protocol::Era;
pub use crate::web::TlsError;

use self::host::Host;
use self::shared::Shared;
use self::supervisor::Order;
use self::tools::{McpTool, ToolList};
use crate::config::ServerConfig;
use crate::content::EmbeddedResource;
use crate::envelope::Envelope;
use crate::event::{EventStream, Events};
use crate::sync::lock;
use crate::tool::{Alias, Arguments, CallContext, CallError, Origin, Tool, ToolDefinition, ToolOutput};

/// A connection to a server could not be made.
#[derive(Clone, Debug, thiserror::Error)]
#[error("could not connect to server `{server}`")]
pub struct ConnectError {
    /// The server.
    pub server: Alias,
    /// Why.
    #[source]
    pub cause: Arc<ConnectErrorKind>,
}

/// One server's connection: a handle, with a task behind it.
///
/// Cheap to clone. Dropping the last clone closes the connection and ends its process.
#[derive(Clone)]
pub struct Mcp {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
    /// Held while a task ends, so that the next one begins after it.
    running: Mutex<Option<Running>>,
}

/// The task, while there is one. It ends when the sender of its orders goes.
struct Running {
    /// `None` once the task was told to end.
    orders: Option<mpsc::UnboundedSender<Order>>,
    task: JoinHandle<()>,
}

impl fmt::Debug for Mcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { host, state, .. } = &*self.handle.shared;
        let state = host.hide(&format!("{:?}", *state.borrow()));
        f.debug_struct("Mcp").field("server", self.alias()).field("state", &format_args!("{state}")).finish()
    }
}

impl Mcp {
    /// A connection that is not made yet.
    pub fn new(config: ServerConfig) -> Self {
        Self::with_host(config, Handlers::new(), Events::default())
    }

    /// The same for a host that answers servers' requests and gathers the events of several connections.
    pub fn with_host(config: ServerConfig, handlers: Handlers, events: Events) -> Self {
        let host = Host::new(config.alias.clone(), handlers, events, config.secrets());
        let host = Arc::new(host.with_questions(config.limits.questions));
        let shared = Arc::new(Shared::new(config, host));
        Self { handle: Arc::new(Handle { shared, running: Mutex::default() }) }
    }

    /// Our name for the server.
    pub fn alias(&self) -> &Alias {
        self.handle.shared.alias()
    }

    /// Connects. When the first try fails that is an error, and further ones are made in the background as the
    /// settings say, until [`Mcp::close`].
    pub async fn connect(&self) -> Result<(), ConnectError> {
        let shared = &self.handle.shared;
        let mut state = shared.state.subscribe();
        let retrying = {
            let mut running = self.handle.running.lock().await;
            if matches!(*state.borrow(), ConnectionState::Closed)
                || running.as_ref().is_some_and(|now| now.orders.is_none())
            {
                // There is no task, or one that is ending.
                end(&mut running).await;
            }
            let under_way = matches!(
                *state.borrow_and_update(),
                ConnectionState::Ready { .. } | ConnectionState::Connecting { .. }
            );
            match running.as_ref().and_then(|current| current.orders.as_ref()) {
                Some(orders) => !under_way && orders.send(Order::Retry).is_ok(),
                None => {
                    shared.state.send_replace(ConnectionState::Connecting { failures: 0 });
                    let (orders, receiver) = mpsc::unbounded_channel();
                    let task = tokio::spawn(supervisor::run(shared.clone(), receiver));
                    *running = Some(Running { orders: Some(orders), task });
                    false
                }
            }
        };
        if retrying {
            // What the last try came to is not what this one comes to.
            let _ = state.changed().await;
        }
        let failed = |cause| Err(ConnectError { server: self.alias().clone(), cause });
        match shared.settled(&mut state).await {
            ConnectionState::Ready { .. } => Ok(()),
            ConnectionState::Down { cause, .. } => failed(cause),
            ConnectionState::NeedsAuth { challenge } => failed(Arc::new(ConnectErrorKind::NeedsAuth { challenge })),
            ConnectionState::Closed | ConnectionState::Connecting { .. } => failed(Arc::new(ConnectErrorKind::Closed)),
        }
    }

    /// Closes the connection and waits until its process is gone.
    pub async fn close(&self) {
        end(&mut *self.handle.running.lock().await).await;
    }

    /// Can calls be made right now?
    pub fn is_connected(&self) -> bool {
        matches!(*self.handle.shared.state.borrow(), ConnectionState::Ready { .. })
    }

    /// The state, to look at or to wait on.
    pub fn state(&self) -> watch::Receiver<ConnectionState> {
        self.handle.shared.state.subscribe()
    }

    /// What happens from now on.
    pub fn events(&self) -> EventStream {
        self.handle.shared.host.events().listen()
    }

    /// What the server says about itself, while it is connected.
    pub fn server_info(&self) -> Option<Arc<ServerInfo>> {
        match &*self.handle.shared.state.borrow() {
            ConnectionState::Ready { server } => Some(server.clone()),
            _ => None,
        }
    }

    /// The last lines that the server's process wrote to stderr, oldest first.
    pub fn stderr_tail(&self) -> Vec<String> {
        self.handle.shared.host.stderr_tail()
    }

    /// How many lines on the server's standard output were no messages, since the beginning.
    pub fn noise(&self) -> u64 {
        self.handle.shared.host.noise()
    }

    /// Returns the server's tools, ready to be called. With a prefix, `prefix_` goes before each name.
    ///
    /// The list is fetched once and kept until the server reports a change (`notifications/tools/list_changed`), the connection
    /// is made again, or the time passes that the server gave it with `ttlMs`. `ttlMs: 0` means that the list is not kept at all:
    /// each call of this method fetches it. [`refresh_tools`](Self::refresh_tools) always fetches it.
    pub async fn list_tools(&self, prefix: Option<&str>) -> Result<Vec<Arc<dyn Tool>>, CallError> {
        let list = tools::list(&self.handle.shared, &CallContext::default()).await?;
        Ok(self.tools(&list, prefix, &self.handle))
    }

    fn tools<K: Clone + Send + Sync + 'static>(
        &self,
        list: &ToolList,
        prefix: Option<&str>,
        keep: &K,
    ) -> Vec<Arc<dyn Tool>> {
        let tool = |definition| {
            let definition = tools::renamed(definition, prefix);
            Arc::new(McpTool { definition, shared: self.handle.shared.clone(), _keep: keep.clone() }) as Arc<dyn Tool>
        };
        list.definitions().map(tool).collect()
    }

    /// The definitions of the server's tools. With a prefix, `prefix_` goes before each name.
    pub async fn list_tool_definitions(&self, prefix: Option<&str>) -> Result<Vec<ToolDefinition>, CallError> {
        let list = tools::list(&self.handle.shared, &CallContext::default()).await?;
        Ok(list.definitions().map(|definition| Arc::unwrap_or_clone(tools::renamed(definition, prefix))).collect())
    }

    /// Fetches the list of tools from the server, even if the list that is kept is still good, and returns the tools.
    pub async fn refresh_tools(&self) -> Result<Vec<Arc<dyn Tool>>, CallError> {
        let list = tools::fetch(&self.handle.shared, &CallContext::default()).await?;
        Ok(self.tools(&list, None, &self.handle))
    }

    /// Calls a tool by the server's own name for it. Dropping the future cancels the call at the server.
    pub async fn call_tool(&self, tool: &str, arguments: Arguments, cx: &CallContext) -> Result<ToolOutput, CallError> {
        call::call_tool(&self.handle.shared, tool, arguments, cx).await
    }

    /// Calls a tool by the server's own name for it and returns the outcome as an [`Envelope`], whether the call succeeded or not.
    ///
    /// Structured content is cast to the output schema of the tool if the list of tools has been fetched before. The arguments are
    /// sent as they are; [`CheckedTool`](crate::checked::CheckedTool) also checks them.
    pub async fn call(&self, tool: &str, arguments: Arguments, cx: &CallContext) -> Envelope {
        let start = tokio::time::Instant::now();
        let outcome = self.call_tool(tool, arguments, cx).await;
        let origin = Origin::Server { server: self.alias().clone(), tool: tool.into() };
        let (id, took) = (cx.id().clone(), start.elapsed());
        match outcome {
            Ok(output) => {
                let envelope = Envelope::from_output(id, tool, origin, took, output);
                let list = self.handle.shared.tools();
                match list.as_ref().and_then(|list| list.get(tool)?.definition.output_schema.as_ref()) {
                    Some(schema) => envelope.cast_to(schema),
                    None => envelope,
                }
            }
            Err(error) => Envelope::from_error(id, tool, origin, took, error),
        }
    }

    /// Sends any other request of the protocol; parameters and result are plain JSON.
    pub async fn request(
        &self,
        method: &str,
        params: Map<String, Value>,
        cx: &CallContext,
    ) -> Result<Value, CallError> {
        call::request(&self.handle.shared, method, params, cx).await
    }

    /// How long the server takes to answer a question that costs it nothing. One that refuses it is alive as well.
    pub async fn ping(&self) -> Result<Duration, CallError> {
        call::ping(&self.handle.shared).await
    }

    /// The server's resources; none when it knows no such thing.
    pub async fn list_resources(&self) -> Result<Vec<Resource>, CallError> {
        resources::list(&self.handle.shared).await
    }

    /// The server's resource templates; none when it knows no such thing.
    pub async fn list_resource_templates(&self) -> Result<Vec<ResourceTemplate>, CallError> {
        resources::list_templates(&self.handle.shared).await
    }

    /// Reads a resource, which may be made up of several.
    pub async fn read_resource(&self, uri: &str, cx: &CallContext) -> Result<Vec<EmbeddedResource>, CallError> {
        resources::read(&self.handle.shared, uri, cx).await
    }

    /// The server's prompts; none when it knows no such thing.
    pub async fn list_prompts(&self) -> Result<Vec<Prompt>, CallError> {
        prompts::list(&self.handle.shared).await
    }

    /// Gets a prompt with its gaps filled. Arguments are text in the protocol: what is not goes as its JSON.
    pub async fn get_prompt(
        &self,
        name: &str,
        arguments: Arguments,
        cx: &CallContext,
    ) -> Result<PromptResult, CallError> {
        prompts::get(&self.handle.shared, name, arguments, cx).await
    }

    /// What the beginning `value` of an argument could become; `context` holds the arguments that are known already.
    pub async fn complete(
        &self,
        reference: &CompletionReference,
        argument: &str,
        value: &str,
        context: Arguments,
        cx: &CallContext,
    ) -> Result<Completion, CallError> {
        let argument = json!({"name": argument, "value": value});
        completion::complete(&self.handle.shared, reference, argument, context, cx).await
    }

    /// Wants to hear when a resource changes, also after a reconnect.
    pub fn subscribe(&self, uri: impl Into<String>) {
        let shared = &self.handle.shared;
        if lock(&shared.subscriptions).insert(uri.into()) {
            shared.subscriptions_changed.notify_one();
        }
    }

    /// Does not want to hear of a resource any more.
    pub fn unsubscribe(&self, uri: &str) {
        let shared = &self.handle.shared;
        if lock(&shared.subscriptions).remove(uri) {
            shared.subscriptions_changed.notify_one();
        }
    }
}

/// Ends the task and waits for it. When the wait is given up, the task ends all the same.
async fn end(running: &mut Option<Running>) {
    if let Some(current) = running {
        current.orders = None;
        // A task that panicked is gone as well.
        let _ = (&mut current.task).await;
        *running = None;
    }
}
