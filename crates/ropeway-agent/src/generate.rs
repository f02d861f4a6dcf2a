//! Generation: the agent loop for a host that keeps tools and history itself.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;

use super::agent_loop::AgentLoop;
use super::budget::OutputBudget;
use super::budgets::OutputBudgets;
use super::exposed_tools::ExposedTools;
use super::history::History;
use super::limits::TurnLimits;
use super::model_options::ModelOptions;
use super::policy::Approver;
use super::step::Step;
use super::turn::{AgentError, Turn, TurnControl, TurnOutcome, TurnTask};
use super::turn_context::TurnContext;
use ropeway_bridge::registry::Registry;
use ropeway_config::CollisionPolicy;
use ropeway_core::checked::CheckedTool;
use ropeway_core::message::Conversation;
use ropeway_core::setters::setters;
use ropeway_core::tool::{
    Arguments, BoxFuture, CallContext, CallError, CallId, Tool, ToolCallError, ToolDefinition, ToolOutput, TraceParent,
};
use ropeway_providers::Provider;

/// A request for [`generate`] and [`stream`].
///
/// Tools are lowered once for a `GenerateRequest` and its clones.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GenerateRequest {
    /// The model name.
    pub model: String,
    /// The conversation so far.
    pub conversation: Conversation,
    /// Model request parameters.
    pub options: ModelOptions,
    /// Turn limits.
    pub limits: TurnLimits,
    budgets: OutputBudgets,
    /// The trace that the turn belongs to.
    pub traceparent: Option<TraceParent>,
    tools: Registry,
}

impl GenerateRequest {
    /// Creates a request without tools.
    pub fn new(model: impl Into<String>, conversation: Conversation) -> Self {
        Self {
            model: model.into(),
            conversation,
            options: ModelOptions::default(),
            limits: TurnLimits::default(),
            budgets: OutputBudgets::default(),
            traceparent: None,
            tools: Registry::default(),
        }
    }

    /// Sets the tools. If two have the same name, the later one wins.
    #[must_use]
    pub fn with_tools(mut self, definitions: impl IntoIterator<Item = ToolDefinition>) -> Self {
        let groups =
            definitions.into_iter().map(|definition| vec![CheckedTool::new(Arc::new(DefinitionOnly(definition)))]);
        // One group per tool: the collision policy applies between groups.
        self.tools = Registry::assemble(groups, CollisionPolicy::LastWins).0;
        self
    }

    /// Sets the budget for tools whose names match the glob. The first match applies.
    #[must_use]
    pub fn with_budget_for(mut self, pattern: &str, budget: OutputBudget) -> Self {
        self.budgets = self.budgets.with_tool(pattern, budget);
        self
    }
}

setters!(GenerateRequest {
    /// Sets the parameters of model requests.
    with_options(options: ModelOptions) => options = options;
    /// Sets the limits of the turn.
    with_limits(limits: TurnLimits) => limits = limits;
    /// Sets how much of a tool's output is sent to the model. The rest is dropped, and a notice replaces it.
    with_budget(budget: OutputBudget) => budgets.default = budget;
    /// Sets the budget of all results of one step together.
    with_round_budget(budget: OutputBudget) => budgets.round = budget;
    /// Replaces the conversation and keeps tools and settings.
    with_conversation(conversation: Conversation) => conversation = conversation;
});

/// What [`generate`] returns.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct GenerateOutcome {
    /// The whole conversation, including the request's.
    pub conversation: Conversation,
    /// The turn's outcome.
    #[serde(flatten)]
    pub outcome: TurnOutcome,
}

/// Why [`generate`] failed, with the conversation up to then.
#[derive(Debug)]
#[non_exhaustive]
pub struct GenerateError {
    /// The conversation up to the failure, including the results for all calls that were made.
    pub conversation: Box<Conversation>,
    /// The reason.
    pub error: AgentError,
}

impl fmt::Display for GenerateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for GenerateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // `Display` shows the inner error already.
        self.error.source()
    }
}

/// A running generation. Dropping it cancels it.
#[must_use = "dropping a generation cancels it"]
#[derive(Debug)]
pub struct Generation {
    turn: Turn,
    history: Arc<History>,
}

/// A tool call from the model, for the host's `on_tool_call`.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[doc(alias = "onToolCall")]
pub struct ToolCallRequest {
    /// The call's id, as sent by the model.
    pub id: CallId,
    /// The tool's name; the request contains a tool with this name.
    pub name: String,
    /// The arguments. They match the tool's input schema.
    pub arguments: Arguments,
    /// The call's deadline, cancel token and progress listener, to pass on to [`Tool::call`](ropeway_core::tool::Tool::call).
    pub context: CallContext,
}

impl ToolCallRequest {
    /// Deserializes the arguments.
    ///
    /// # Errors
    /// Fails if the arguments do not match `T`. Returned from the callback, the error is reported to the model.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ToolCallError> {
        serde_json::from_value(Value::Object(self.arguments.clone())).map_err(|error| {
            let message = format!("invalid arguments: {error}");
            ToolCallError::new(message).with_kind("invalid_arguments").into_retryable().with_source(error)
        })
    }
}

type CallAnswer = Result<Option<ToolOutput>, ToolCallError>;

type OnToolCall = Arc<dyn Fn(ToolCallRequest) -> BoxFuture<'static, CallAnswer> + Send + Sync>;

/// Sends a conversation to a model and makes its tool calls, until it replies without calls. [`stream`] also reports the steps.
///
/// Each call goes to `on_tool_call`, calls in one reply concurrently. The callback returns
/// - `Ok(Some(output))`, the result for the model;
/// - `Ok(None)` for an unknown tool, which is reported to the model;
/// - `Err(error)`: the error is reported to the model. A [fatal](ToolCallError::fatal) error ends the turn with
///   [`AgentError::ToolCall`] instead.
///
/// Arguments that do not match the tool's input schema are reported to the model without calling the callback. A callback that
/// panics or takes longer than [`TurnLimits::call_time`] is also reported to the model.
///
/// # Errors
/// Fails if a model request fails or the callback returns a fatal error. [`GenerateError::conversation`] has everything up to then.
///
/// # Examples
///
/// ```no_run
/// use ropeway::agent::{GenerateRequest, generate};
/// # use ropeway::{mcp::Mcp, message::Conversation, provider::Provider};
///
/// # async fn run(server: Mcp, provider: Provider, conversation: Conversation) -> Result<(), Box<dyn std::error::Error>> {
/// let tools = server.list_tools().await?;
/// let request = GenerateRequest::new("gpt-5", conversation).with_tools(server.list_tool_definitions().await?);
/// let generated = generate(&provider, request, move |call| {
///     let tool = tools.iter().find(|tool| tool.definition().name == call.name).cloned();
///     async move {
///         let Some(tool) = tool else { return Ok(None) };
///         Ok(Some(tool.call(call.arguments, &call.context).await?))
///     }
/// });
/// println!("{}", generated.await?.outcome.text);
/// # Ok(()) }
/// ```
pub async fn generate<F, R>(
    provider: &Provider,
    request: GenerateRequest,
    on_tool_call: F,
) -> Result<GenerateOutcome, GenerateError>
where
    F: Fn(ToolCallRequest) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Option<ToolOutput>, ToolCallError>> + Send + 'static,
{
    stream(provider, request, on_tool_call).finish().await
}

/// Runs [`generate`] in a separate task and reports its steps.
///
/// # Panics
/// Panics outside a tokio runtime.
pub fn stream<F, R>(provider: &Provider, request: GenerateRequest, on_tool_call: F) -> Generation
where
    F: Fn(ToolCallRequest) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Option<ToolOutput>, ToolCallError>> + Send + 'static,
{
    let GenerateRequest { model, conversation, options, limits, budgets, traceparent, tools } = request;
    let on_tool_call: OnToolCall = Arc::new(move |call| Box::pin(on_tool_call(call)));
    let callable = tools.tools().map(|definition| {
        let tool = CallbackTool { definition: definition.tool(), on_tool_call: on_tool_call.clone() };
        // Keeps the compiled schema.
        definition.with_tool(Arc::new(tool))
    });
    let (callable, _) = Registry::assemble([callable.collect()], CollisionPolicy::LastWins);
    let tools = ExposedTools::listed(callable, tools);
    let provider = provider.clone();
    let approver = Approver::default();
    let agent_loop = Arc::new(AgentLoop { provider, model, options, limits, approver, budgets, store: None });
    let history = Arc::new(History::new(conversation));
    let (turn, task) = Turn::new(None);
    tokio::spawn(run(agent_loop, history.clone(), tools, task, traceparent));
    Generation { turn, history }
}

async fn run(
    agent_loop: Arc<AgentLoop>,
    history: Arc<History>,
    tools: ExposedTools,
    task: TurnTask,
    traceparent: Option<TraceParent>,
) {
    let TurnTask { sink, control, outcome } = task;
    let deadline = agent_loop.limits.time.and_then(|time| Instant::now().checked_add(time));
    let turn = TurnContext {
        history: &history,
        tools: &tools,
        sources: None,
        sink: &sink,
        control: &control,
        deadline,
        traceparent,
    };
    let result = match agent_loop.budgets.invalid.first().cloned() {
        Some((pattern, problem)) => Err(AgentError::Glob { pattern, problem }),
        None => agent_loop.run_turn(&turn).await,
    };
    drop(sink);
    let _ = outcome.send(result);
}

impl Generation {
    /// Returns the next step, or `None` after the last one.
    pub async fn next(&mut self) -> Option<Step> {
        self.turn.next().await
    }

    /// Waits for the end and discards unread steps.
    ///
    /// # Errors
    /// See [`generate`].
    pub async fn finish(self) -> Result<GenerateOutcome, GenerateError> {
        let result = self.turn.finish().await;
        let conversation = self.history.snapshot();
        match result {
            Ok(outcome) => Ok(GenerateOutcome { conversation, outcome }),
            Err(error) => Err(GenerateError { conversation: Box::new(conversation), error }),
        }
    }

    /// Returns a handle that cancels or stops the generation.
    pub fn control(&self) -> TurnControl {
        self.turn.control()
    }
}

impl Stream for Generation {
    type Item = Step;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Step>> {
        Pin::new(&mut self.turn).poll_next(cx)
    }
}

/// A tool that cannot be called.
struct DefinitionOnly(ToolDefinition);

impl Tool for DefinitionOnly {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn call<'a>(&'a self, _: Arguments, _: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
        let error = CallError::UnknownTool { tool: self.0.name.clone(), nearest: Vec::new() };
        Box::pin(std::future::ready(Err(error)))
    }
}

/// A tool that is called through the host's callback.
struct CallbackTool {
    definition: Arc<dyn Tool>,
    on_tool_call: OnToolCall,
}

impl Tool for CallbackTool {
    fn definition(&self) -> &ToolDefinition {
        self.definition.definition()
    }

    fn call<'a>(&'a self, arguments: Arguments, cx: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
        Box::pin(async move {
            let name = &self.definition().name;
            let call = ToolCallRequest { id: cx.id().clone(), name: name.clone(), arguments, context: cx.clone() };
            match (self.on_tool_call)(call).await {
                Ok(Some(output)) => Ok(output),
                Ok(None) => Err(CallError::UnknownTool { tool: name.clone(), nearest: Vec::new() }),
                Err(error) => Err(error.into_call_error(name)),
            }
        })
    }
}
