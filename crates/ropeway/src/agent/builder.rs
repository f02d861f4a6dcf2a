//! A builder: an agent in the making.

use std::sync::Arc;

use super::crew::{Crew, RequestOptions};
use super::history::History;
use super::policy::{Approval, ApprovalRequest, Desk, Policy};
use super::sources::Sources;
use super::turn::Tracer;
use super::{Agent, Inner, Limits, Step};
use crate::message::Conversation;
use crate::provider::Provider;
use crate::registry::{ContextSource, ToolSource};
use crate::tool::{Tool, TraceParent};

/// With more tools than this they are searched instead of listed: some dialects take no more than 128.
const SEARCH_OVER: usize = 100;

/// An agent in the making.
#[must_use]
pub struct AgentBuilder {
    provider: Option<Provider>,
    model: Option<String>,
    system: Option<String>,
    history: Option<Conversation>,
    options: RequestOptions,
    limits: Limits,
    desk: Desk,
    tools: Vec<Arc<dyn Tool>>,
    sources: Vec<Arc<dyn ToolSource>>,
    contexts: Vec<Arc<dyn ContextSource>>,
    search_over: usize,
    tracer: Option<Tracer>,
    traceparent: Option<TraceParent>,
}

/// Why an agent cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
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
            options: RequestOptions::default(),
            limits: Limits::default(),
            desk: Desk::default(),
            tools: Vec::new(),
            sources: Vec::new(),
            contexts: Vec::new(),
            search_over: SEARCH_OVER,
            tracer: None,
            traceparent: None,
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

    /// What the model is told to be and to do; it wins over what a history says.
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
    pub fn options(mut self, options: RequestOptions) -> Self {
        self.options = options;
        self
    }

    /// How far a turn may go.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Which calls are made, which are asked about, and which are not made.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.desk.policy = policy;
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
        self.tools([Arc::new(tool) as Arc<dyn Tool>])
    }

    /// Adds tools of the host.
    pub fn tools(mut self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        self.tools.extend(tools);
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

    /// Makes the calls a part of a trace.
    pub fn traceparent(mut self, parent: TraceParent) -> Self {
        self.traceparent = Some(parent);
        self
    }

    /// Checks the settings. Nothing is started.
    pub fn build(self) -> Result<Agent, BuildError> {
        let provider = self.provider.ok_or(BuildError::NoProvider)?;
        let model = self.model.ok_or(BuildError::NoModel)?;
        if let Some((pattern, problem)) = self.desk.policy.broken.first().cloned() {
            return Err(BuildError::Glob { pattern, problem });
        }
        let mut conversation = self.history.unwrap_or_default();
        conversation.system = self.system.or(conversation.system);
        let sources = Sources::new(Vec::new(), self.search_over);
        sources.add_tools(self.tools);
        self.sources.into_iter().for_each(|source| sources.add_source(source));
        self.contexts.into_iter().for_each(|source| sources.add_context(source));
        let crew = Crew {
            provider,
            model,
            options: self.options,
            limits: self.limits,
            desk: self.desk,
            traceparent: self.traceparent,
        };
        let inner = Inner {
            crew: Arc::new(crew),
            history: History::new(conversation),
            sources,
            tracer: self.tracer,
            queue: Default::default(),
        };
        Ok(Agent { inner: Arc::new(inner) })
    }
}
