//! A builder: an agent in the making.

use std::sync::Arc;

use super::approvals::Approvals;
use super::crew::{Crew, ModelOptions};
use super::history::History;
use super::policy::{Approval, ApprovalRequest, Desk, Policy};
use super::sources::Sources;
use super::turn::Tracer;
use super::{
    Agent, AgentServer, Inner, OutputBudget, OutputBudgets, OutputStore, ReadMore, SamplingHandler, Step, TurnLimits,
};
use crate::checked::CheckedTool;
use crate::event::Events;
use crate::mcp::{Elicitation, ElicitationAnswer, Handlers};
use crate::message::{Conversation, Message};
use crate::provider::Provider;
use crate::registry::{ContextSource, ToolSource};
use crate::secret::Redactor;
use crate::tool::{BoxError, Tool, TraceParent};

/// With more tools than this they are searched instead of listed: some dialects take no more than 128.
const SEARCH_OVER: usize = 100;

/// An agent in the making.
#[must_use]
pub struct AgentBuilder {
    provider: Option<Provider>,
    model: Option<String>,
    system: Option<String>,
    history: Option<Conversation>,
    options: ModelOptions,
    limits: TurnLimits,
    desk: Desk,
    budgets: OutputBudgets,
    spill: OutputStore,
    tools: Vec<Arc<dyn Tool>>,
    servers: Vec<AgentServer>,
    sampling: Option<Asked>,
    handlers: Handlers,
    events: Events,
    sources: Vec<Arc<dyn ToolSource>>,
    contexts: Vec<Arc<dyn ContextSource>>,
    search_over: usize,
    tracer: Option<Tracer>,
    traceparent: Option<TraceParent>,
    secrets: Redactor,
}

/// Which model servers may ask.
enum Asked {
    /// The agent's own.
    Own,
    /// This one.
    Other(SamplingHandler),
}

/// Why an agent cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentBuildError {
    /// Nobody said which provider to ask.
    #[error("an agent needs a provider")]
    NoProvider,
    /// Nobody said which model to ask.
    #[error("an agent needs a model")]
    NoModel,
    /// A pattern of the policy or of a budget is not one.
    #[error("`{pattern}` is not a glob: {problem}")]
    Glob {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl Default for AgentBuilder {
    fn default() -> Self {
        Self {
            provider: None,
            model: None,
            system: None,
            history: None,
            options: ModelOptions::default(),
            limits: TurnLimits::default(),
            desk: Desk::default(),
            budgets: OutputBudgets::default(),
            spill: OutputStore::default(),
            tools: Vec::new(),
            servers: Vec::new(),
            sampling: None,
            handlers: Handlers::new(),
            events: Events::default(),
            sources: Vec::new(),
            contexts: Vec::new(),
            search_over: SEARCH_OVER,
            tracer: None,
            traceparent: None,
            secrets: Redactor::default(),
        }
    }
}

impl AgentBuilder {
    /// Who is asked.
    pub fn provider(mut self, provider: Provider) -> Self {
        self.provider = Some(provider);
        self
    }

    /// Which model is asked.
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// What the model is told to be and to do; it wins over what a history says, also over one that comes later.
    pub fn system(mut self, system: impl Into<String>) -> Self {
        self.system = Some(system.into());
        self
    }

    /// Goes on with what was said before.
    pub fn history(mut self, conversation: Conversation) -> Self {
        self.history = Some(conversation);
        self
    }

    /// How the model is asked.
    pub fn options(mut self, options: ModelOptions) -> Self {
        self.options = options;
        self
    }

    /// How far a turn may go.
    pub fn limits(mut self, limits: TurnLimits) -> Self {
        self.limits = limits;
        self
    }

    /// How much of each tool's output reaches the model.
    pub fn budget(mut self, budget: OutputBudget) -> Self {
        self.budgets = self.budgets.with_default(budget);
        self
    }

    /// The same for tools whose names match the glob. The first glob that matches decides.
    pub fn budget_for(mut self, pattern: &str, budget: OutputBudget) -> Self {
        self.budgets = self.budgets.with_tool(pattern, budget);
        self
    }

    /// How much the results of one step bring together.
    pub fn round_budget(mut self, budget: OutputBudget) -> Self {
        self.budgets = self.budgets.with_round(budget);
        self
    }

    /// Where outputs are kept that are too large for the model.
    pub fn spill(mut self, spill: OutputStore) -> Self {
        self.spill = spill;
        self
    }

    /// Which calls are made, which are asked about, and which are not made.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.desk.policy = policy;
        self
    }

    /// Shares tools that were allowed for good with other agents, and with agents to come.
    pub fn approvals(mut self, approvals: Approvals) -> Self {
        self.desk.approvals = approvals;
        self
    }

    /// Who is asked about calls, one after the other.
    pub fn on_approval<F, R>(mut self, asker: F) -> Self
    where
        F: Fn(ApprovalRequest) -> R + Send + Sync + 'static,
        R: Future<Output = Approval> + Send + 'static,
    {
        self.desk.asker = Some(Arc::new(move |request| Box::pin(asker(request))));
        self
    }

    /// Adds a tool of the host.
    pub fn tool(self, tool: impl Tool) -> Self {
        self.tools([tool])
    }

    /// Adds tools of the host: `[echo, add]`, or what [`Mcp::list_tools`](crate::mcp::Mcp::list_tools) returns.
    pub fn tools(mut self, tools: impl IntoIterator<Item = impl Tool>) -> Self {
        self.tools.extend(tools.into_iter().map(|tool| Arc::new(tool) as Arc<dyn Tool>));
        self
    }

    /// Adds a server: a connection of the host, or the settings of one that is made at the first turn and ends with the agent. Its
    /// tools are called `mcp_<alias>_<tool>`.
    pub fn mcp(mut self, server: impl Into<AgentServer>) -> Self {
        self.servers.push(server.into());
        self
    }

    /// Adds servers: connections, settings, or [`AgentServer`]s.
    pub fn mcps(mut self, servers: impl IntoIterator<Item = impl Into<AgentServer>>) -> Self {
        self.servers.extend(servers.into_iter().map(Into::into));
        self
    }

    /// The same, with tools that are called `<prefix>_<tool>`.
    pub fn mcp_with_prefix(self, server: impl Into<AgentServer>, prefix: &str) -> Self {
        self.mcp(server.into().with_prefix(prefix))
    }

    /// Lets servers whose settings were given to [`AgentBuilder::mcp`] ask the agent's own model, outside of its history.
    pub fn allow_sampling(mut self) -> Self {
        self.sampling = Some(Asked::Own);
        self
    }

    /// Lets these servers ask a model as it is said there.
    pub fn sampling(mut self, sampling: SamplingHandler) -> Self {
        self.sampling = Some(Asked::Other(sampling));
        self
    }

    /// Answers what these servers ask the user.
    pub fn on_elicitation<F, R>(mut self, handler: F) -> Self
    where
        F: Fn(Elicitation) -> R + Send + Sync + 'static,
        R: Future<Output = Result<ElicitationAnswer, BoxError>> + Send + 'static,
    {
        self.handlers = self.handlers.on_elicitation(handler);
        self
    }

    /// Where events of these servers are told, for a host that gathers them.
    pub fn events(mut self, events: Events) -> Self {
        self.events = events;
        self
    }

    /// Adds a bridge, or whatever else has both tools and context to give.
    pub fn bridge(mut self, bridge: impl ToolSource + ContextSource + 'static) -> Self {
        let bridge = Arc::new(bridge);
        self.sources.push(bridge.clone());
        self.contexts.push(bridge);
        self
    }

    /// Adds a source of tools.
    pub fn source(mut self, source: impl ToolSource + 'static) -> Self {
        self.sources.push(Arc::new(source));
        self
    }

    /// Adds a source of what the model is told before a conversation.
    pub fn context(mut self, source: impl ContextSource + 'static) -> Self {
        self.contexts.push(Arc::new(source));
        self
    }

    /// With more tools than this the model is not told of all of them, but how to find them.
    pub fn search_over(mut self, tools: usize) -> Self {
        self.search_over = tools;
        self
    }

    /// Hears every step of every turn. It must not block.
    pub fn tracer(mut self, tracer: impl Fn(&Step) + Send + Sync + 'static) -> Self {
        self.tracer = Some(Arc::new(tracer));
        self
    }

    /// Makes all turns a part of a trace; see [`Input::with_traceparent`](super::Input::with_traceparent) for one of them.
    pub fn traceparent(mut self, parent: TraceParent) -> Self {
        self.traceparent = Some(parent);
        self
    }

    /// Redacts these secrets, besides those of the servers, in the [summaries](Tool::summarize) of calls.
    pub fn secrets(mut self, secrets: Redactor) -> Self {
        self.secrets = self.secrets.with(&secrets);
        self
    }

    /// Checks the settings. Nothing is started.
    pub fn build(self) -> Result<Agent, AgentBuildError> {
        let provider = self.provider.ok_or(AgentBuildError::NoProvider)?;
        let model = self.model.ok_or(AgentBuildError::NoModel)?;
        if let Some((pattern, problem)) = self.desk.policy.broken.iter().chain(&self.budgets.broken).next().cloned() {
            return Err(AgentBuildError::Glob { pattern, problem });
        }
        let mut conversation = self.history.unwrap_or_default();
        conversation.system = self.system.clone().or(conversation.system);
        self.spill.skip_to(first_output(&conversation));
        let read_more = ReadMore::new(self.spill.clone()).with_page(self.budgets.page());
        let sources = Sources::new(vec![CheckedTool::new(Arc::new(read_more))], self.search_over);
        sources.add_tools(self.tools);
        sources.add_secrets(&self.secrets);
        let handlers = match self.sampling {
            None => self.handlers,
            Some(Asked::Own) => {
                self.handlers.on_sampling(SamplingHandler::new(provider.clone(), model.clone()).handler())
            }
            Some(Asked::Other(sampling)) => self.handlers.on_sampling(sampling.handler()),
        };
        for server in self.servers {
            sources.add_server(Arc::new(server.into_source(handlers.clone(), self.events.clone())));
        }
        self.sources.into_iter().for_each(|source| sources.add_source(source));
        self.contexts.into_iter().for_each(|source| sources.add_context(source));
        let crew = Crew {
            provider,
            model,
            options: self.options,
            limits: self.limits,
            desk: self.desk,
            budgets: self.budgets,
            spill: Some(self.spill),
        };
        let inner = Inner {
            crew: Arc::new(crew),
            history: History::new(conversation),
            system: self.system,
            sources,
            handlers,
            events: self.events,
            tracer: self.tracer,
            traceparent: self.traceparent,
            queue: Default::default(),
        };
        Ok(Agent { inner: Arc::new(inner) })
    }
}

/// A number that no kept output of this conversation has: each result has at most two.
pub(super) fn first_output(conversation: &Conversation) -> u64 {
    let results = conversation.messages.iter().map(|message| match message {
        Message::Tool(message) => message.results.len() as u64,
        _ => 0,
    });
    1 + 2 * results.sum::<u64>()
}
