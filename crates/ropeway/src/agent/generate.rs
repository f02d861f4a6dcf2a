//! Generating: the loop of an agent for a host that keeps its tools and its history itself.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;

use super::crew::{Crew, ModelOptions, Scene};
use super::history::History;
use super::offer::Offer;
use super::policy::Desk;
use super::turn::Task;
use super::{AgentError, OutputBudgets, Step, Turn, TurnControl, TurnLimits, TurnOutcome};
use crate::checked::CheckedTool;
use crate::config::CollisionPolicy;
use crate::message::Conversation;
use crate::provider::Provider;
use crate::registry::Registry;
use crate::tool::{
    Arguments, BoxFuture, CallContext, CallError, CallId, Tool, ToolCallError, ToolDefinition, ToolOutput, TraceParent,
};

/// What a model is asked by a host that keeps its own loop.
///
/// Tools are lowered once for a `GenerateRequest` and its clones.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GenerateRequest {
    /// The model.
    pub model: String,
    /// Everything that was said so far.
    pub conversation: Conversation,
    /// How the model is asked.
    pub options: ModelOptions,
    /// How far it may go.
    pub limits: TurnLimits,
    /// How much of a tool's output reaches the model; the rest is dropped, and the model is told so.
    pub budgets: OutputBudgets,
    /// Whose trace it belongs to.
    pub traceparent: Option<TraceParent>,
    tools: Registry,
}

impl GenerateRequest {
    /// A question without tools.
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

    /// Offers tools. Of two with one name the later one is taken.
    #[must_use]
    pub fn with_tools(mut self, definitions: impl IntoIterator<Item = ToolDefinition>) -> Self {
        let named = definitions.into_iter().map(|definition| vec![CheckedTool::new(Arc::new(Named(definition)))]);
        // Each in a group of its own: of two with one name the later one is taken.
        self.tools = Registry::assemble(named, CollisionPolicy::LastWins).0;
        self
    }

    /// How the model is asked.
    #[must_use]
    pub fn with_options(mut self, options: ModelOptions) -> Self {
        self.options = options;
        self
    }

    /// How far it may go.
    #[must_use]
    pub fn with_limits(mut self, limits: TurnLimits) -> Self {
        self.limits = limits;
        self
    }

    /// How much of a tool's output reaches the model.
    #[must_use]
    pub fn with_budgets(mut self, budgets: OutputBudgets) -> Self {
        self.budgets = budgets;
        self
    }

    /// The same tools and settings with another conversation.
    #[must_use]
    pub fn with_conversation(mut self, conversation: Conversation) -> Self {
        self.conversation = conversation;
        self
    }
}

/// What generating came to.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct GenerateOutcome {
    /// Everything that was said, also before.
    pub conversation: Conversation,
    /// What it came to.
    #[serde(flatten)]
    pub outcome: TurnOutcome,
}

/// Why generating came to nothing, and what was said by then.
#[derive(Debug)]
#[non_exhaustive]
pub struct GenerateError {
    /// Everything that was said, also before; the calls that were made are in it, with their results.
    pub conversation: Box<Conversation>,
    /// Why.
    pub error: AgentError,
}

impl fmt::Display for GenerateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for GenerateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The message is the error's own, so that it is not said twice.
        self.error.source()
    }
}

/// Generating as it goes on. Dropping it ends it.
#[must_use = "dropping it ends it"]
#[derive(Debug)]
pub struct Generation {
    turn: Turn,
    history: Arc<History>,
}

/// A call that a model wants made, for the host's `on_tool_call`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ToolCallRequest {
    /// The id of the call, as the model gave it.
    pub id: CallId,
    /// The name of the tool, one of those that were offered.
    pub name: String,
    /// The arguments. They fit the tool's input schema.
    pub arguments: Arguments,
    /// The deadline, the cancel switch and the progress listener of the call, to pass on to
    /// [`Tool::call`](crate::tool::Tool::call).
    pub context: CallContext,
}

impl ToolCallRequest {
    /// Deserializes the arguments. An error is reported to the model, which may correct them.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ToolCallError> {
        serde_json::from_value(Value::Object(self.arguments.clone())).map_err(|error| {
            let message = format!("the arguments do not fit: {error}");
            ToolCallError::new(message).with_kind("invalid_arguments").into_retryable().with_source(error)
        })
    }
}

type CallAnswer = Result<Option<ToolOutput>, ToolCallError>;

type OnToolCall = Arc<dyn Fn(ToolCallRequest) -> BoxFuture<'static, CallAnswer> + Send + Sync>;

/// Asks a model, and goes on until it has no more calls to make: the stream, finished.
///
/// Each call goes to `on_tool_call`, those of one answer concurrently. The callback returns
/// - `Ok(Some(output))`, the result for the model;
/// - `Ok(None)` for a tool that it does not know; the model is told so;
/// - `Err(error)`: the error is reported to the model. A [fatal](ToolCallError::fatal) error ends the turn with
///   [`AgentError::ToolCall`] instead.
///
/// The callback is not called for arguments that are no JSON object or do not fit the tool's input schema: the model is told what is
/// wrong with them. A callback that panics or takes longer than [`TurnLimits::call_time`] is reported to the model, too.
///
/// # Examples
///
/// ```no_run
/// use ropeway::agent::{Generate, generate};
/// # use ropeway::{mcp::Mcp, message::Conversation, provider::Provider};
///
/// # async fn run(server: Mcp, provider: Provider, conversation: Conversation) -> Result<(), Box<dyn std::error::Error>> {
/// let tools = server.list_tools(None).await?;
/// let request = Generate::new("gpt-5", conversation).with_tools(server.list_tool_definitions(None).await?);
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

/// The same step by step.
///
/// # Panics
/// Outside of a tokio runtime.
pub fn stream<F, R>(provider: &Provider, request: GenerateRequest, on_tool_call: F) -> Generation
where
    F: Fn(ToolCallRequest) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Option<ToolOutput>, ToolCallError>> + Send + 'static,
{
    let GenerateRequest { model, conversation, options, limits, budgets, traceparent, tools } = request;
    let on_tool_call: OnToolCall = Arc::new(move |call| Box::pin(on_tool_call(call)));
    let answered = tools.tools().map(|named| {
        let tool = HostTool { named: named.tool(), on_tool_call: on_tool_call.clone() };
        // What was found out about its schema holds for every question.
        named.with_tool(Arc::new(tool))
    });
    let (answered, _) = Registry::assemble([answered.collect()], CollisionPolicy::LastWins);
    let offer = Offer::listed(answered, tools);
    let provider = provider.clone();
    let desk = Desk::default();
    let crew = Arc::new(Crew { provider, model, options, limits, desk, budgets, spill: None });
    let history = Arc::new(History::new(conversation));
    let (turn, task) = Turn::new(None);
    tokio::spawn(run(crew, history.clone(), offer, task, traceparent));
    Generation { turn, history }
}

async fn run(crew: Arc<Crew>, history: Arc<History>, offer: Offer, task: Task, traceparent: Option<TraceParent>) {
    let Task { sink, control, outcome } = task;
    let deadline = crew.limits.time.and_then(|time| Instant::now().checked_add(time));
    let scene = Scene {
        history: &history,
        offer: &offer,
        sources: None,
        sink: &sink,
        control: &control,
        deadline,
        traceparent,
    };
    let came_to = match crew.budgets.broken.first().cloned() {
        Some((pattern, problem)) => Err(AgentError::Glob { pattern, problem }),
        None => crew.play(&scene).await,
    };
    drop(sink);
    let _ = outcome.send(came_to);
}

impl Generation {
    /// The next step; `None` after the last one.
    pub async fn next(&mut self) -> Option<Step> {
        self.turn.next().await
    }

    /// Waits for the end; steps that were not read are passed over.
    pub async fn finish(self) -> Result<GenerateOutcome, GenerateError> {
        let came_to = self.turn.finish().await;
        let conversation = self.history.snapshot();
        match came_to {
            Ok(outcome) => Ok(GenerateOutcome { conversation, outcome }),
            Err(error) => Err(GenerateError { conversation: Box::new(conversation), error }),
        }
    }

    /// A handle that can only end it, to be kept elsewhere.
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

/// A tool of which only the definition is known.
struct Named(ToolDefinition);

impl Tool for Named {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn call<'a>(&'a self, _: Arguments, _: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
        let error = CallError::UnknownTool { tool: self.0.name.clone(), nearest: Vec::new() };
        Box::pin(std::future::ready(Err(error)))
    }
}

/// A tool of which the host knows how to call it.
struct HostTool {
    named: Arc<dyn Tool>,
    on_tool_call: OnToolCall,
}

impl Tool for HostTool {
    fn definition(&self) -> &ToolDefinition {
        self.named.definition()
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
