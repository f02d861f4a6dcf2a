//! The handle to one server's connection.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinHandle;

use super::call;
use super::connection::Connection;
use super::error::ConnectErrorKind;
use super::handlers::Handlers;
use super::host::Host;
use super::mcp_tool::{McpTool, with_prefix};
use super::prompts::{self, Prompt, PromptResult};
use super::resources::{self, Resource, ResourceTemplate};
use super::server_info::ServerInfo;
use super::state::ConnectionState;
use super::supervisor::{self, SupervisorCommand};
use super::tool_list::ToolList;
use super::tools;
use ropeway_config::{HttpServer, ServerConfig, StdioServer};
use ropeway_core::content::EmbeddedResource;
use ropeway_core::envelope::Envelope;
use ropeway_core::event::{Event, EventStream, Events};
use ropeway_core::tool::{
    Alias, Arguments, BoxFuture, CallContext, CallError, IntoArguments, Origin, Tool, ToolDefinition, ToolOutput,
};

/// The error that [`Mcp::connect`] returns.
#[derive(Clone, Debug, thiserror::Error)]
#[error("could not connect to server `{server}`")]
pub struct ConnectError {
    /// The server's alias.
    pub server: Alias,
    /// The reason.
    #[source]
    pub cause: Arc<ConnectErrorKind>,
}

/// A connection to one MCP server.
///
/// [`connect`](Self::connect) starts a background task that establishes the connection and reconnects when it is lost. Calls
/// wait for a short time while the server is down, and fail after that.
///
/// Cloning is cheap. Dropping the last clone closes the connection and terminates the server's process.
///
/// Methods that send a request return a [`CallError`] if the server cannot be reached in time, rejects the request or violates
/// the protocol. [`call`](Self::call) reports these errors in its [`Envelope`].
///
/// # Examples
///
/// ```no_run
/// use ropeway::{Mcp, ServerConfig, StdioServer};
/// use serde_json::json;
///
/// # async fn run() -> Result<(), ropeway::Error> {
/// let command = StdioServer::command("npx").with_args(["-y", "@modelcontextprotocol/server-everything"]);
/// let server = Mcp::new(ServerConfig::new("everything", command));
/// server.connect().await?;
/// for tool in server.list_tools().await? {
///     println!("{}", tool.definition().name);
/// }
/// println!("{}", server.call("get-sum", json!({"a": 6, "b": 7})).await);
/// server.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[doc(alias = "MCPClient")]
pub struct Mcp {
    pub(super) inner: Arc<McpInner>,
}

pub(super) struct McpInner {
    pub(super) connection: Arc<Connection>,
    /// Locked while a supervisor ends, so that the next one starts after it.
    supervisor: Mutex<Option<SupervisorHandle>>,
    /// Whether [`Mcp::connect`] was ever called.
    pub(super) was_opened: AtomicBool,
}

/// The running supervisor. It ends when the command sender is dropped.
struct SupervisorHandle {
    /// `None` once the supervisor is ending.
    commands: Option<mpsc::UnboundedSender<SupervisorCommand>>,
    task: JoinHandle<()>,
}

impl fmt::Debug for Mcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Connection { host, state, .. } = &*self.inner.connection;
        let state = host.redact(&format!("{:?}", *state.borrow()));
        f.debug_struct("Mcp").field("server", self.alias()).field("state", &format_args!("{state}")).finish()
    }
}

impl Mcp {
    /// Creates a connection without connecting.
    pub fn new(config: impl Into<ServerConfig>) -> Self {
        Self::with_host(config.into(), Handlers::new(), Events::default())
    }

    /// Creates a connection to a server that is started as a child process, without starting it.
    ///
    /// The alias is derived from the command: `filesystem` for `npx -y @modelcontextprotocol/server-filesystem`.
    /// [`with_alias`](Self::with_alias) sets another.
    ///
    /// ```
    /// # use ropeway::Mcp;
    /// let files = Mcp::stdio("npx", ["-y", "@modelcontextprotocol/server-filesystem", "."]);
    /// assert_eq!(files.alias().as_str(), "filesystem");
    /// ```
    pub fn stdio<A: Into<String>>(command: impl Into<String>, args: impl IntoIterator<Item = A>) -> Self {
        Self::new(StdioServer::new(command, args))
    }

    /// Creates a connection to a server at a URL, or to an [`HttpServer`] with headers or a token, without connecting.
    ///
    /// The alias is derived from the host: `figma` for `https://mcp.figma.com/mcp`. [`with_alias`](Self::with_alias) sets
    /// another.
    ///
    /// ```
    /// # use ropeway::{HttpServer, Mcp};
    /// let design = Mcp::http("https://mcp.figma.com/mcp").with_alias("design");
    /// let docs = Mcp::http(HttpServer::new("https://docs.example.com/mcp").with_bearer("token"));
    /// assert_eq!((design.alias().as_str(), docs.alias().as_str()), ("design", "docs"));
    /// ```
    pub fn http(server: impl Into<HttpServer>) -> Self {
        Self::new(server.into())
    }

    /// Returns a connection with the same settings, handlers and events under another alias. It is not connected.
    #[must_use]
    pub fn with_alias(self, alias: impl Into<Alias>) -> Self {
        let Connection { config, host, .. } = &*self.inner.connection;
        Self::with_host(config.clone().with_alias(alias), host.handlers.clone(), host.events().clone())
    }

    /// Creates a connection with handlers for the server's requests, and with an event channel that several connections can
    /// share.
    pub fn with_host(config: ServerConfig, handlers: Handlers, events: Events) -> Self {
        let host = Host::new(config.alias.clone(), handlers, events, config.secrets());
        let host = host.with_authorizer(&config.transport).with_elicitation_limit(config.limits.questions);
        let host = Arc::new(host);
        let connection = Arc::new(Connection::new(config, host));
        Self {
            inner: Arc::new(McpInner { connection, supervisor: Mutex::default(), was_opened: AtomicBool::default() }),
        }
    }

    /// Returns the server's alias.
    pub fn alias(&self) -> &Alias {
        self.inner.connection.alias()
    }

    /// Connects to the server.
    ///
    /// Returns at once if the connection is already established. After a failure, the configured reconnect policy continues
    /// in the background until [`Mcp::close`]. Calling this method again then retries without a delay.
    ///
    /// # Errors
    ///
    /// Fails if the first attempt fails, or if the connection is closed during the attempt.
    pub async fn connect(&self) -> Result<(), ConnectError> {
        let connection = &self.inner.connection;
        connection.allow_sign_in();
        let mut state = connection.state.subscribe();
        let retrying = {
            let mut running = self.inner.supervisor.lock().await;
            if matches!(*state.borrow(), ConnectionState::Closed)
                || running.as_ref().is_some_and(|now| now.commands.is_none())
            {
                // The previous supervisor has ended or is ending.
                end(&mut running).await;
            }
            let under_way = matches!(
                *state.borrow_and_update(),
                ConnectionState::Ready { .. } | ConnectionState::Connecting { .. }
            );
            match running.as_ref().and_then(|current| current.commands.as_ref()) {
                Some(commands) => !under_way && commands.send(SupervisorCommand::Retry).is_ok(),
                None => {
                    connection.state.send_replace(ConnectionState::Connecting { failures: 0 });
                    self.inner.was_opened.store(true, Ordering::Relaxed);
                    let (commands, receiver) = mpsc::unbounded_channel();
                    let task = supervisor::spawn(connection.clone(), receiver);
                    *running = Some(SupervisorHandle { commands: Some(commands), task });
                    false
                }
            }
        };
        if retrying {
            // Skips the previous attempt's result.
            let _ = state.changed().await;
        }
        let failed = |cause| Err(ConnectError { server: self.alias().clone(), cause });
        match connection.settled(&mut state).await {
            ConnectionState::Ready { .. } => Ok(()),
            ConnectionState::Down { cause, .. } => failed(cause),
            ConnectionState::NeedsAuth { challenge } => failed(Arc::new(ConnectErrorKind::NeedsAuth { challenge })),
            ConnectionState::Closed | ConnectionState::Connecting { .. } => failed(Arc::new(ConnectErrorKind::Closed)),
        }
    }

    /// Ends the server's process or session, and connects again in the background. Returns `false` if the connection is closed.
    ///
    /// Calls in flight to a stdio server fail with an error that is
    /// [transient](ropeway_core::tool::CallError::is_transient). Calls that start meanwhile wait for the new connection, up
    /// to the grace period. [`Event::Restarting`](ropeway_core::event::Event::Restarting) contains the `reason`.
    pub async fn restart(&self, reason: impl Into<String>) -> bool {
        let running = self.inner.supervisor.lock().await;
        let Some(commands) = running.as_ref().and_then(|current| current.commands.as_ref()) else { return false };
        let (server, host) = (self.alias().clone(), &self.inner.connection.host);
        host.events().emit(Event::Restarting { server, reason: host.redact(&reason.into()) });
        commands.send(SupervisorCommand::Restart).is_ok()
    }

    /// Closes the connection and waits until the server's process has exited.
    pub async fn close(&self) {
        end(&mut *self.inner.supervisor.lock().await).await;
    }

    /// Returns `true` if the connection is established.
    pub fn is_connected(&self) -> bool {
        matches!(*self.inner.connection.state.borrow(), ConnectionState::Ready { .. })
    }

    /// Returns a receiver for the connection state.
    pub fn state(&self) -> watch::Receiver<ConnectionState> {
        self.inner.connection.state.subscribe()
    }

    /// Subscribes to the connection's events.
    pub fn events(&self) -> EventStream {
        self.inner.connection.host.events().subscribe()
    }

    /// Returns the server's self-description, or `None` while it is not connected.
    pub fn server_info(&self) -> Option<Arc<ServerInfo>> {
        match &*self.inner.connection.state.borrow() {
            ConnectionState::Ready { server } => Some(server.clone()),
            _ => None,
        }
    }

    /// Returns the last lines of the server's stderr, oldest first.
    pub fn stderr_tail(&self) -> Vec<String> {
        self.inner.connection.host.stderr_tail()
    }

    /// Returns the number of lines on the server's stdout that were not messages, over all connections.
    pub fn invalid_lines(&self) -> u64 {
        self.inner.connection.host.invalid_lines()
    }

    /// Returns the server's tools, under the server's own names.
    ///
    /// The list is cached until the server reports a change (`notifications/tools/list_changed`), the connection is
    /// re-established, or the server's `ttlMs` expires. With `ttlMs: 0`, each call fetches the list.
    /// [`refresh_tools`](Self::refresh_tools) always fetches it.
    pub async fn list_tools(&self) -> Result<Vec<Arc<dyn Tool>>, CallError> {
        let list = tools::list(&self.inner.connection, &CallContext::default()).await?;
        Ok(self.tools(&list, None, &self.inner))
    }

    /// Returns the server's tools like [`list_tools`](Self::list_tools), with `prefix_` before each name.
    pub async fn list_tools_with_prefix(&self, prefix: &str) -> Result<Vec<Arc<dyn Tool>>, CallError> {
        let list = tools::list(&self.inner.connection, &CallContext::default()).await?;
        Ok(self.tools(&list, Some(prefix), &self.inner))
    }

    pub(super) fn tools<K: Clone + Send + Sync + 'static>(
        &self,
        list: &ToolList,
        prefix: Option<&str>,
        keep_alive: &K,
    ) -> Vec<Arc<dyn Tool>> {
        let tool = |definition| {
            let definition = with_prefix(definition, prefix);
            Arc::new(McpTool { definition, connection: self.inner.connection.clone(), _keep_alive: keep_alive.clone() })
                as Arc<dyn Tool>
        };
        list.definitions().map(tool).collect()
    }

    /// Returns the server's tool definitions, cached like [`list_tools`](Self::list_tools).
    pub async fn list_tool_definitions(&self) -> Result<Vec<ToolDefinition>, CallError> {
        let list = tools::list(&self.inner.connection, &CallContext::default()).await?;
        Ok(list.definitions().map(|definition| ToolDefinition::clone(definition)).collect())
    }

    /// Returns the definitions like [`list_tool_definitions`](Self::list_tool_definitions), with `prefix_` before each name.
    ///
    /// A call needs the server's own name, which is [`ToolDefinition::own_name`].
    pub async fn list_tool_definitions_with_prefix(&self, prefix: &str) -> Result<Vec<ToolDefinition>, CallError> {
        let list = tools::list(&self.inner.connection, &CallContext::default()).await?;
        Ok(list.definitions().map(|definition| Arc::unwrap_or_clone(with_prefix(definition, Some(prefix)))).collect())
    }

    /// Fetches the tool list from the server, even if the cached list is fresh.
    pub async fn refresh_tools(&self) -> Result<Vec<Arc<dyn Tool>>, CallError> {
        let list = tools::fetch(&self.inner.connection, &CallContext::default()).await?;
        Ok(self.tools(&list, None, &self.inner))
    }

    /// Calls a tool by its name on the server. Dropping the future cancels the call on the server.
    ///
    /// # Errors
    ///
    /// Fails if the call has no result. A tool that reports an error returns a [`ToolOutput`] with `is_error` set.
    pub async fn call_tool(&self, tool: &str, arguments: impl IntoArguments) -> Result<ToolOutput, CallError> {
        self.call_tool_with(tool, arguments, &CallContext::default()).await
    }

    /// Calls a tool like [`call_tool`](Self::call_tool), with a deadline, cancellation or progress from `cx`.
    pub async fn call_tool_with(
        &self,
        tool: &str,
        arguments: impl IntoArguments,
        cx: &CallContext,
    ) -> Result<ToolOutput, CallError> {
        let arguments = arguments.into_arguments().map_err(|problem| CallError::invalid_arguments(tool, problem))?;
        self.send_call(tool, arguments, cx).await
    }

    /// Calls a tool. Boxed, so that it is compiled here and not again in every crate that awaits it.
    fn send_call<'a>(
        &'a self,
        tool: &'a str,
        arguments: Arguments,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
        Box::pin(call::call_tool(&self.inner.connection, tool, arguments, cx))
    }

    /// Calls a tool by its name on the server and returns the outcome as an [`Envelope`], whether the call succeeded or not.
    ///
    /// Structured content is cast to the tool's output schema. The first result with structured content fetches the tool
    /// list for that if it is not cached; if the server does not list its tools within 5 s, results stay as they are. The
    /// arguments are sent unchecked; [`CheckedTool`](ropeway_core::checked::CheckedTool) validates them.
    pub async fn call(&self, tool: &str, arguments: impl IntoArguments) -> Envelope {
        self.call_with(tool, arguments, &CallContext::default()).await
    }

    /// Calls a tool like [`call`](Self::call), with a deadline, cancellation or progress from `cx`.
    pub async fn call_with(&self, tool: &str, arguments: impl IntoArguments, cx: &CallContext) -> Envelope {
        let start = tokio::time::Instant::now();
        let outcome = match arguments.into_arguments() {
            Ok(arguments) => self.send_call(tool, arguments, cx).await,
            Err(problem) => Err(CallError::invalid_arguments(tool, problem)),
        };
        let origin = Origin::Server { server: self.alias().clone(), tool: tool.into() };
        let (id, took) = (cx.id().clone(), start.elapsed());
        match outcome {
            Ok(output) => {
                let envelope = Envelope::from_output(id, tool, origin, took, output);
                if envelope.meta.is_error || envelope.meta.structured_content.is_none() {
                    return envelope;
                }
                let list = Box::pin(tools::list_for_cast(&self.inner.connection, cx)).await;
                match list.as_ref().and_then(|list| list.get(tool)?.definition.output_schema.as_ref()) {
                    Some(schema) => envelope.cast_to(schema),
                    None => envelope,
                }
            }
            Err(error) => Envelope::from_error(id, tool, origin, took, error),
        }
    }

    /// Sends any MCP request, with plain JSON parameters and result.
    pub async fn request(
        &self,
        method: &str,
        params: Map<String, Value>,
        cx: &CallContext,
    ) -> Result<Value, CallError> {
        call::request(&self.inner.connection, method, params, cx).await
    }

    /// Measures the round-trip time to the server. A server that rejects the request counts as alive.
    pub async fn ping(&self) -> Result<Duration, CallError> {
        call::ping(&self.inner.connection).await
    }

    /// Lists the server's resources. The list is empty if the server does not support them.
    pub async fn list_resources(&self) -> Result<Vec<Resource>, CallError> {
        resources::list(&self.inner.connection).await
    }

    /// Lists the server's resource templates. The list is empty if the server does not support them.
    pub async fn list_resource_templates(&self) -> Result<Vec<ResourceTemplate>, CallError> {
        resources::list_templates(&self.inner.connection).await
    }

    /// Reads a resource, which may have several parts.
    pub async fn read_resource(&self, uri: &str) -> Result<Vec<EmbeddedResource>, CallError> {
        self.read_resource_with(uri, &CallContext::default()).await
    }

    /// Reads a resource like [`read_resource`](Self::read_resource), with a deadline or cancellation from `cx`.
    pub async fn read_resource_with(&self, uri: &str, cx: &CallContext) -> Result<Vec<EmbeddedResource>, CallError> {
        resources::read(&self.inner.connection, uri, cx).await
    }

    /// Lists the server's prompts. The list is empty if the server does not support them.
    pub async fn list_prompts(&self) -> Result<Vec<Prompt>, CallError> {
        prompts::list(&self.inner.connection).await
    }

    /// Gets a prompt with its arguments filled in. Arguments that are not strings are sent as JSON text.
    pub async fn get_prompt(&self, name: &str, arguments: impl IntoArguments) -> Result<PromptResult, CallError> {
        self.get_prompt_with(name, arguments, &CallContext::default()).await
    }

    /// Gets a prompt like [`get_prompt`](Self::get_prompt), with a deadline or cancellation from `cx`.
    pub async fn get_prompt_with(
        &self,
        name: &str,
        arguments: impl IntoArguments,
        cx: &CallContext,
    ) -> Result<PromptResult, CallError> {
        let arguments = arguments.into_arguments().map_err(|problem| CallError::invalid_arguments(name, problem))?;
        prompts::get(&self.inner.connection, name, arguments, cx).await
    }

    /// Subscribes to changes to a resource. The subscription is renewed after a reconnect.
    pub fn subscribe(&self, uri: impl Into<String>) {
        self.inner.connection.host.subscriptions.add(&uri.into());
    }

    /// Ends the subscription to a resource.
    pub fn unsubscribe(&self, uri: &str) {
        self.inner.connection.host.subscriptions.remove(uri);
    }
}

/// Ends the supervisor and waits for it. If the wait is cancelled, the supervisor still ends.
async fn end(running: &mut Option<SupervisorHandle>) {
    if let Some(current) = running {
        current.commands = None;
        // A panic has ended the task as well.
        let _ = (&mut current.task).await;
        *running = None;
    }
}
