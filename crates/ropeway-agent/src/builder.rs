//! Agent builder.

use std::path::PathBuf;
use std::sync::Arc;

use super::agent_loop::AgentLoop;
use super::approvals::Approvals;
use super::budget::OutputBudget;
use super::budgets::OutputBudgets;
use super::handle::Agent;
use super::history::History;
use super::limits::TurnLimits;
use super::model_options::ModelOptions;
use super::output_store::OutputStore;
use super::policy::{Approval, ApprovalRequest, Approver, Policy};
use super::read_more::ReadMore;
use super::sampling::SamplingHandler;
use super::server::AgentServer;
use super::shared::AgentShared;
use super::sources::Sources;
use super::step::Step;
use super::turn::{AgentError, Tracer};
use ropeway_bridge::registry::{ContextSource, ToolSource};
use ropeway_core::checked::CheckedTool;
use ropeway_core::event::Events;
use ropeway_core::message::Conversation;
use ropeway_core::secret::Redactor;
use ropeway_core::setters::setters;
use ropeway_core::tool::{BoxError, IntoTool, Tool, TraceParent};
use ropeway_mcp::{Elicitation, ElicitationAnswer, Handlers};
use ropeway_providers::Provider;

/// With more tools than this, the model searches them. Some providers accept at most 128 tools.
const SEARCH_OVER: usize = 100;

/// Builds an [`Agent`].
///
/// A provider and a model are required; everything else has a default.
#[derive(Default)]
#[must_use]
pub struct AgentBuilder {
    provider: Option<Provider>,
    model: Option<String>,
    system: Option<String>,
    history: Option<Conversation>,
    options: ModelOptions,
    limits: TurnLimits,
    approver: Approver,
    budgets: OutputBudgets,
    store: OutputStore,
    tools: Vec<Arc<dyn Tool>>,
    servers: Vec<AgentServer>,
    sampling: Option<SamplingModel>,
    handlers: Handlers,
    events: Events,
    sources: Vec<Arc<dyn ToolSource>>,
    contexts: Vec<Arc<dyn ContextSource>>,
    search_over: Option<usize>,
    without_read_more: bool,
    tracer: Option<Tracer>,
    traceparent: Option<TraceParent>,
    secrets: Redactor,
}

/// The model that answers sampling requests from servers.
enum SamplingModel {
    /// The agent's own model.
    Own,
    Other(SamplingHandler),
}

impl Agent {
    /// Returns a builder without provider and model.
    pub fn builder() -> AgentBuilder {
        AgentBuilder::default()
    }
}

setters!(AgentBuilder {
    /// Sets the provider of the model. Required.
    provider(provider: Provider) => provider = Some(provider);
    /// Sets the name of the model. Required.
    model(model: impl Into<String>) => model = Some(model.into());
    /// Sets the system prompt. It overrides that of every history, including one that is set later.
    system(system: impl Into<String>) => system = Some(system.into());
    /// Continues a conversation.
    history(conversation: Conversation) => history = Some(conversation);
    /// Sets the parameters of model requests.
    options(options: ModelOptions) => options = options;
    /// Sets the limits of a turn.
    limits(limits: TurnLimits) => limits = limits;
    /// Shares stored outputs with other agents.
    spill(store: OutputStore) => store = store;
    /// Sets which calls are allowed, denied, or need approval. By default all are allowed.
    policy(policy: Policy) => approver.policy = policy;
    /// Shares permanent approvals with other agents.
    approvals(approvals: Approvals) => approver.approvals = approvals;
    /// Answers sampling requests with this handler, for servers that the agent connects to.
    sampling(sampling: SamplingHandler) => sampling = Some(SamplingModel::Other(sampling));
    /// Sets the channel for events of servers that the agent connects to, in place of the agent's own channel.
    events(events: Events) => events = events;
    /// Sets the number of tools above which the model searches tools instead of receiving all of them; 100 by default.
    search_over(tools: usize) => search_over = Some(tools);
    /// Calls a function for every step of every turn. It must not block.
    tracer(tracer: impl Fn(&Step) + Send + Sync + 'static) => tracer = Some(Arc::new(tracer));
    /// Makes all turns part of a trace. [`TurnInput::with_traceparent`](super::TurnInput::with_traceparent) does so for one turn.
    traceparent(parent: TraceParent) => traceparent = Some(parent);
});

impl AgentBuilder {
    /// Stores tool outputs that are too large for the model in a new directory below this one, as named files.
    ///
    /// Only the owner can access the directory. It is deleted with the agent; a process that is killed leaves it behind. By default,
    /// text is stored in unnamed temporary files, which the system deletes when the process ends, and binary data is not stored.
    pub fn spill_folder(mut self, parent: impl Into<PathBuf>) -> Self {
        self.store = self.store.with_parent_folder(parent);
        self
    }

    /// Sets the maximum bytes of stored tool outputs; 1 GiB by default. The oldest outputs are deleted for new ones.
    pub fn spill_limit(mut self, bytes: u64) -> Self {
        self.store = self.store.with_limit(bytes);
        self
    }

    /// Leaves out the tool `read_more`, which reads outputs that exceed their budget. The model then gets only their truncated text.
    pub fn without_read_more(mut self) -> Self {
        self.without_read_more = true;
        self
    }

    /// Sets how much of each tool's output is sent to the model.
    pub fn budget(mut self, budget: OutputBudget) -> Self {
        self.budgets = self.budgets.with_default(budget);
        self
    }

    /// Sets the budget for tools whose names match the glob. The first match applies.
    pub fn budget_for(mut self, pattern: &str, budget: OutputBudget) -> Self {
        self.budgets = self.budgets.with_tool(pattern, budget);
        self
    }

    /// Sets the budget for all results in one step together.
    pub fn round_budget(mut self, budget: OutputBudget) -> Self {
        self.budgets = self.budgets.with_round(budget);
        self
    }

    /// Sets the approval request handler. It receives one request at a time. Without a handler, calls that need approval are
    /// denied.
    pub fn on_approval<F, R>(mut self, handler: F) -> Self
    where
        F: Fn(ApprovalRequest) -> R + Send + Sync + 'static,
        R: Future<Output = Approval> + Send + 'static,
    {
        self.approver.handler = Some(Arc::new(move |request| Box::pin(handler(request))));
        self
    }

    /// Adds a host tool.
    pub fn tool(self, tool: impl IntoTool) -> Self {
        self.tools([tool])
    }

    /// Adds host tools: `[echo, add]`, or what [`Mcp::list_tools`](ropeway_mcp::Mcp::list_tools) returns.
    pub fn tools(mut self, tools: impl IntoIterator<Item = impl IntoTool>) -> Self {
        self.tools.extend(tools.into_iter().map(IntoTool::into_tool));
        self
    }

    /// Adds a server: a connection that the host owns, or settings for a connection that the agent opens at the first turn and
    /// closes when dropped. Its tools are named `mcp_<alias>_<tool>`.
    ///
    /// If two servers have a tool with the same name, the server added last wins; a host tool takes precedence over both. The
    /// turn reports it as a [warning](Step::Warning).
    pub fn mcp(mut self, server: impl Into<AgentServer>) -> Self {
        self.servers.push(server.into());
        self
    }

    /// Adds servers: connections, settings, or [`AgentServer`]s.
    pub fn mcps(mut self, servers: impl IntoIterator<Item = impl Into<AgentServer>>) -> Self {
        self.servers.extend(servers.into_iter().map(Into::into));
        self
    }

    /// Adds a server whose tools are named `<prefix>_<tool>`.
    pub fn mcp_with_prefix(self, server: impl Into<AgentServer>, prefix: &str) -> Self {
        self.mcp(server.into().with_prefix(prefix))
    }

    /// Answers sampling requests with the agent's own model, for servers that the agent connects to. Such requests do not include
    /// the history.
    pub fn allow_sampling(mut self) -> Self {
        self.sampling = Some(SamplingModel::Own);
        self
    }

    /// Answers elicitation requests from servers that the agent connects to.
    pub fn on_elicitation<F, R>(mut self, handler: F) -> Self
    where
        F: Fn(Elicitation) -> R + Send + Sync + 'static,
        R: Future<Output = Result<ElicitationAnswer, BoxError>> + Send + 'static,
    {
        self.handlers = self.handlers.on_elicitation(handler);
        self
    }

    /// Adds a bridge, or another tool and context source.
    pub fn bridge(mut self, bridge: impl ToolSource + ContextSource + 'static) -> Self {
        let bridge = Arc::new(bridge);
        self.sources.push(bridge.clone());
        self.contexts.push(bridge);
        self
    }

    /// Adds a tool source.
    pub fn source(mut self, source: impl ToolSource + 'static) -> Self {
        self.sources.push(Arc::new(source));
        self
    }

    /// Adds a context source. Its content precedes the conversation.
    pub fn context(mut self, source: impl ContextSource + 'static) -> Self {
        self.contexts.push(Arc::new(source));
        self
    }

    /// Redacts these secrets in call [summaries](Tool::summarize). Server secrets are always redacted.
    pub fn secrets(mut self, secrets: Redactor) -> Self {
        self.secrets = self.secrets.with(&secrets);
        self
    }

    /// Builds the agent. Servers are connected at the first turn.
    ///
    /// # Errors
    /// Fails without a provider or a model, and if a policy or budget pattern is invalid.
    #[allow(clippy::result_large_err, reason = "an agent is built once")]
    pub fn build(self) -> Result<Agent, AgentError> {
        let provider = self.provider.ok_or(AgentError::NoProvider)?;
        let model = self.model.ok_or(AgentError::NoModel)?;
        if let Some((pattern, problem)) =
            self.approver.policy.invalid.iter().chain(&self.budgets.invalid).next().cloned()
        {
            return Err(AgentError::Glob { pattern, problem });
        }
        let mut conversation = self.history.unwrap_or_default();
        conversation.system = self.system.clone().or(conversation.system);
        self.store.skip_outputs_of(&conversation);
        let read_more = ReadMore::new(self.store.clone()).with_page(self.budgets.page());
        let builtin = if self.without_read_more { Vec::new() } else { vec![CheckedTool::new(Arc::new(read_more))] };
        let sources = Sources::new(builtin, self.search_over.unwrap_or(SEARCH_OVER));
        sources.add_tools(self.tools);
        sources.add_secrets(&self.secrets);
        let handlers = match self.sampling {
            None => self.handlers,
            Some(SamplingModel::Own) => {
                self.handlers.on_sampling(SamplingHandler::new(provider.clone(), model.clone()).handler())
            }
            Some(SamplingModel::Other(sampling)) => self.handlers.on_sampling(sampling.handler()),
        };
        for server in self.servers {
            sources.add_server(Arc::new(server.into_source(handlers.clone(), self.events.clone())));
        }
        self.sources.into_iter().for_each(|source| sources.add_source(source));
        self.contexts.into_iter().for_each(|source| sources.add_context(source));
        let agent_loop = AgentLoop {
            provider,
            model,
            options: self.options,
            limits: self.limits,
            approver: self.approver,
            budgets: self.budgets,
            store: Some(self.store),
        };
        let shared = AgentShared {
            agent_loop: Arc::new(agent_loop),
            history: History::new(conversation),
            system: self.system,
            sources,
            handlers,
            events: self.events,
            tracer: self.tracer,
            traceparent: self.traceparent,
            queue: Default::default(),
        };
        Ok(Agent { shared: Arc::new(shared) })
    }
}
