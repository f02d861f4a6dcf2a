//! An agent: a model that uses tools.
//!
//! It takes the tools of the host and those of servers alike, makes the calls of one answer side by side, tells what it does
//! while it does it, and can be stopped at any time. What a tool does never ends a turn: the model is told. The history is a
//! plain value, complete at every moment.

mod approvals;
mod budget;
mod builder;
mod context;
mod crew;
mod generate;
mod history;
mod input;
mod limits;
mod offer;
mod pattern;
mod policy;
mod read_more;
mod round;
mod sampling;
mod server;
mod sources;
mod spill;
mod step;
mod steps;
mod trace;
mod turn;
mod wish;
mod written;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

pub use self::approvals::{ApprovalStatus, Approvals};
pub use self::budget::{OutputBudget, OutputBudgets};
use self::builder::first_output;
pub use self::builder::{AgentBuildError, AgentBuilder};
pub use self::context::AgentContext;
pub use self::crew::ModelOptions;
use self::crew::{Crew, Scene};
pub use self::generate::{
    GenerateError, GenerateOutcome, GenerateRequest, Generation, ToolCallRequest, generate, stream,
};
use self::history::History;
pub use self::input::TurnInput;
pub use self::limits::{TurnLimit, TurnLimits};
pub use self::pattern::{PatternError, ToolPattern};
pub use self::policy::{Approval, ApprovalRequest, Permission, Policy};
pub use self::read_more::ReadMore;
pub use self::sampling::SamplingHandler;
pub use self::server::{AgentServer, ServerSource};
use self::sources::{Missing, Sources};
pub use self::spill::OutputStore;
pub use self::step::Step;
pub use self::turn::{AgentError, Turn, TurnControl, TurnEnd, TurnOutcome};
use self::turn::{Sink, Task, Tracer};
use crate::duration::format_duration;
use crate::event::{EventStream, Events};
use crate::mcp::Handlers;
use crate::message::Conversation;
use crate::provider::Usage;
use crate::registry::{ContextSource, Registry, ServerState, ServerStatus, ToolSource};
use crate::sync::lock;
use crate::tool::{Tool, TraceParent};

/// How long a turn waits for servers that an earlier turn has waited for in vain.
const SHORT_WAIT: Duration = Duration::from_millis(300);

/// How long the context is waited for at least, also when the servers took all the time that there was.
const A_MOMENT: Duration = Duration::from_secs(1);

/// A model that uses tools. Cheap to clone; clones share one history.
#[derive(Clone)]
pub struct Agent {
    inner: Arc<Inner>,
}

struct Inner {
    crew: Arc<Crew>,
    history: History,
    /// What the model is told to be, whatever a history says.
    system: Option<String>,
    sources: Sources,
    /// What servers that are added later are given.
    handlers: Handlers,
    events: Events,
    tracer: Option<Tracer>,
    traceparent: Option<TraceParent>,
    queue: Mutex<Queue>,
}

/// The turns that are not over yet.
#[derive(Default)]
struct Queue {
    /// Ends when the last turn that was begun is over.
    last: Option<oneshot::Receiver<()>>,
    controls: Vec<TurnControl>,
}

impl Agent {
    /// An agent in the making.
    pub fn builder() -> AgentBuilder {
        AgentBuilder::default()
    }

    /// Says something to the model. The turn begins at once, in a task of its own, or when those before it are over. To say
    /// nothing at all is to [`resume`](Agent::resume).
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn send(&self, input: impl Into<TurnInput>) -> Turn {
        self.begin(Some(input.into()))
    }

    /// Asks the model once more without saying anything: after a provider that failed, a limit that was reached, or a
    /// history that ends in the midst of a turn.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn resume(&self) -> Turn {
        self.begin(None)
    }

    fn begin(&self, input: Option<TurnInput>) -> Turn {
        let (turn, task) = Turn::new(self.inner.tracer.clone());
        let (done, over) = oneshot::channel();
        let before = {
            let mut queue = lock(&self.inner.queue);
            // Those that are over hear nothing any more.
            queue.controls.retain(TurnControl::is_live);
            queue.controls.push(turn.control());
            queue.last.replace(over)
        };
        tokio::spawn(self.inner.clone().run(task, before, done, input));
        turn
    }

    /// Ends all turns at once, also those that have not begun.
    pub fn cancel(&self) {
        lock(&self.inner.queue).controls.iter().for_each(TurnControl::cancel);
    }

    /// Ends the turn that is going on after its step, and those that have not begun at once.
    pub fn stop(&self) {
        lock(&self.inner.queue).controls.iter().for_each(TurnControl::stop);
    }

    /// Everything that was said, as of now: to be saved, and to be continued by any agent. Each call has a result; of one that is
    /// still being made it says so.
    pub fn history(&self) -> Conversation {
        self.inner.history.snapshot()
    }

    /// Puts another history in the place of this one, once the turns that were begun are over. What the builder said that the
    /// model is wins over what the history says.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn replace_history(&self, mut conversation: Conversation) {
        let (done, over) = oneshot::channel::<()>();
        let before = lock(&self.inner.queue).last.replace(over);
        let inner = self.inner.clone();
        conversation.system = inner.system.clone().or(conversation.system);
        // In a task of its own: whoever gives up waiting must not let the next turn overtake those before it.
        let replaced = tokio::spawn(async move {
            wait_for(before).await;
            if let Some(spill) = &inner.crew.spill {
                spill.skip_to(first_output(&conversation));
            }
            inner.history.replace(conversation);
            drop(done);
        });
        let _ = replaced.await;
    }

    /// Adds a tool of the host, from the next turn on.
    pub fn add_tool(&self, tool: impl Tool) {
        self.add_tools([tool]);
    }

    /// Adds tools of the host, from the next turn on.
    pub fn add_tools(&self, tools: impl IntoIterator<Item = impl Tool>) {
        self.inner.sources.add_tools(tools.into_iter().map(|tool| Arc::new(tool) as Arc<dyn Tool>));
    }

    /// Removes the host's tools with this name, from the next turn on. Returns false if there is none.
    ///
    /// Tools of servers and tools that come with the agent are not affected.
    pub fn remove_tool(&self, name: &str) -> bool {
        self.inner.sources.remove_tool(name)
    }

    /// Adds a server, from the next turn on.
    pub fn add_mcp(&self, server: impl Into<AgentServer>) {
        let Inner { handlers, events, sources, .. } = &*self.inner;
        sources.add_server(Arc::new(server.into().into_source(handlers.clone(), events.clone())));
    }

    /// Adds servers, from the next turn on.
    pub fn add_mcps(&self, servers: impl IntoIterator<Item = impl Into<AgentServer>>) {
        servers.into_iter().for_each(|server| self.add_mcp(server));
    }

    /// Removes the servers that were added with this alias, from the next turn on. Returns false if there is none.
    ///
    /// A turn under way is not disturbed: it keeps the tools that it was offered, and calls end as they would have. After it, a
    /// connection that the agent made is closed; an [`Mcp`](crate::mcp::Mcp) of the host stays as it is. Servers of a bridge are
    /// the bridge's.
    pub fn remove_mcp(&self, alias: &str) -> bool {
        self.inner.sources.remove_server(alias)
    }

    /// Adds a source of tools and of context, such as a bridge, from the next turn on.
    pub fn add_bridge(&self, bridge: impl ToolSource + ContextSource + 'static) {
        self.inner.sources.add_bridge(Arc::new(bridge));
    }

    /// Adds a source of tools, from the next turn on.
    pub fn add_source(&self, source: impl ToolSource + 'static) {
        self.inner.sources.add_source(Arc::new(source));
    }

    /// Connects the servers now instead of at the first turn, and says how each stands.
    pub async fn connect(&self) -> Vec<ServerStatus> {
        self.inner.sources.ready(None).await;
        self.inner.sources.statuses()
    }

    /// What happens from now on to the servers that are the agent's own.
    pub fn events(&self) -> EventStream {
        self.inner.events.listen()
    }

    /// How each server stands.
    pub fn statuses(&self) -> Vec<ServerStatus> {
        self.inner.sources.statuses()
    }

    /// Returns the tools that the next turn sends to the model, as of now.
    ///
    /// These are the tools of the host and of the servers, and those that come with the agent:
    /// - `read_more`, with which the model reads on in an output that was too long. It is sent with every request that has tools,
    ///   unless a tool of the host or of a server has that name.
    /// - `find_tools` and `call_tool`, instead of the tools themselves, with more tools than
    ///   [`search_over`](AgentBuilder::search_over); [`all_tools`](Self::all_tools) has those, too.
    ///
    /// Tools of a server are known once it is connected: after the first turn or [`connect`](Self::connect).
    pub fn tools(&self) -> Registry {
        self.inner.sources.offer().shown.clone()
    }

    /// Returns every tool of the host and of the servers that the next turn can call, also those that the model only finds through
    /// `find_tools`.
    pub fn all_tools(&self) -> Registry {
        self.inner.sources.offer().all.clone()
    }

    /// Where outputs are kept that were too large for the model, when there are some that have names: see [`OutputStore::below`].
    pub fn spill_folder(&self) -> Option<PathBuf> {
        self.inner.crew.spill.as_ref().and_then(OutputStore::folder)
    }

    /// The model that is asked.
    pub fn model(&self) -> &str {
        &self.inner.crew.model
    }
}

impl Inner {
    /// One turn from its place in the queue to its end.
    async fn run(
        self: Arc<Self>,
        task: Task,
        before: Option<oneshot::Receiver<()>>,
        done: oneshot::Sender<()>,
        input: Option<TurnInput>,
    ) {
        let Task { sink, control, outcome } = task;
        let over = Over(control.clone());
        let mut turn_comes = std::pin::pin!(wait_for(before));
        let ended = tokio::select! {
            biased;
            () = control.cancel.cancelled() => Some(TurnEnd::Cancelled),
            () = control.stop.cancelled() => Some(TurnEnd::Stopped),
            () = &mut turn_comes => None,
        };
        if let Some(end) = ended {
            drop(sink);
            drop(over);
            let _ = outcome.send(Ok(nothing_done(end)));
            // The next one must not overtake those before us.
            turn_comes.await;
            return;
        }
        let came_to = self.turn(input, &sink, &control).await;
        drop(sink);
        drop(over);
        drop(done);
        let _ = outcome.send(came_to);
    }

    async fn turn(
        &self,
        input: Option<TurnInput>,
        sink: &Sink,
        control: &TurnControl,
    ) -> Result<TurnOutcome, AgentError> {
        let deadline = self.crew.limits.time.and_then(|time| Instant::now().checked_add(time));
        // A turn whose task was lost may have left calls open.
        self.history.close();
        let traceparent = input.as_ref().and_then(|input| input.traceparent).or(self.traceparent);
        match input {
            Some(input) if !input.messages.is_empty() => self.history.extend(input.messages),
            _ if self.history.has_question() => {}
            _ => return Err(AgentError::NothingToAnswer),
        }
        let nothing = Default::default();
        let sources = Some(&self.sources);
        let scene = Scene { history: &self.history, offer: &nothing, sources, sink, control, deadline, traceparent };
        let cut = tokio::select! {
            biased;
            cut = scene.cut() => Some(cut),
            () = self.prepare(sink) => None,
        };
        if let Some(cut) = cut {
            return Ok(nothing_done(self.crew.end_of(cut)));
        }
        let missing: Vec<ServerStatus> = self.sources.statuses().into_iter().filter(ServerStatus::is_missing).collect();
        if let Some(required) = missing.iter().find(|verdict| verdict.required) {
            return Err(self.unavailable(required));
        }
        let offer = self.sources.offer();
        self.sources.untold().iter().for_each(|collision| sink.warn(collision.to_string()));
        let outcome = self.crew.play(&Scene { offer: &offer, ..scene }).await?;
        Ok(TurnOutcome { missing, ..outcome })
    }

    /// The error of a turn that cannot run without a server.
    fn unavailable(&self, verdict: &ServerStatus) -> AgentError {
        let cause = match &verdict.outcome {
            ServerState::Down { cause } => cause.clone(),
            ServerState::Connecting => {
                format!("it was not connected within {}", format_duration(self.crew.limits.connect_time))
            }
            outcome => format!("it {outcome}"),
        };
        AgentError::RequiredServer { server: verdict.server.clone(), source: cause.into() }
    }

    /// Makes the servers ready, and puts what they have to say before the conversation.
    async fn prepare(&self, sink: &Sink) {
        let connect_time = self.crew.limits.connect_time;
        // A server that was waited for in vain does not delay the next turn as well.
        let waiting = self.sources.waiting();
        let patience = if self.sources.gave_up_on(&waiting) { SHORT_WAIT.min(connect_time) } else { connect_time };
        let until = Instant::now().checked_add(patience);
        let Missing { late, fallen } = self.sources.ready(until).await;
        self.sources.required(Instant::now().checked_add(connect_time).max(until)).await;
        if late > 0 {
            let waiting = self.sources.waiting();
            let is_known = self.sources.gave_up_on(&waiting) && !waiting.is_empty();
            let which = match &waiting[..] {
                [] => format!("{late} of the sources of tools are not ready"),
                [server] => format!("server {server} is not ready"),
                servers => format!("servers {} are not ready", servers.join(", ")),
            };
            if !is_known {
                sink.warn(format!("{which} after {}; the turn goes on without", format_duration(patience)));
            }
            self.sources.give_up_on(waiting);
        }
        if fallen > 0 {
            sink.warn(format!("{fallen} of the sources of tools panicked when they should have become ready"));
        }
        if let Some(statuses) = self.sources.news() {
            sink.tell(Step::Servers { statuses });
        }
        // However long the servers took, what is at hand is heard.
        let until = until.map(|until| until.max(Instant::now() + A_MOMENT));
        let (items, Missing { late, fallen }) = self.sources.context(until).await;
        if late > 0 {
            sink.warn(format!("{late} of the sources of context are late, and what they said last is taken"));
        }
        if fallen > 0 {
            sink.warn(format!("{fallen} of the sources of context panicked, and what they said last is taken"));
        }
        self.history.set_context(AgentContext::of(items));
    }
}

/// Ends the control of a turn with it, however it ends.
struct Over(TurnControl);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.end();
    }
}

fn nothing_done(end: TurnEnd) -> TurnOutcome {
    TurnOutcome { text: String::new(), end, usage: Usage::default(), steps: 0, missing: Vec::new() }
}

async fn wait_for(before: Option<oneshot::Receiver<()>>) {
    if let Some(before) = before {
        // Nothing is ever sent: that the other end is gone is the message.
        let _ = before.await;
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").field("model", &self.inner.crew.model).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Dialect;
    use crate::testing::{ScriptedReply, model};

    #[tokio::test]
    async fn turns_in_which_code_of_the_host_panicked_leave_nothing_behind() {
        let agent = Agent::builder()
            .provider(model(Dialect::Chat, [ScriptedReply::text("a"), ScriptedReply::text("b")]))
            .model("m");
        let agent = agent.tracer(|_| panic!("on purpose")).build().expect("an agent");
        for _ in 0..2 {
            let lost = agent.send("q").finish().await;
            assert!(matches!(lost, Err(AgentError::Lost)), "{lost:?}");
            assert!(!lock(&agent.inner.queue).controls.iter().any(TurnControl::is_live));
        }
        assert_eq!(lock(&agent.inner.queue).controls.len(), 1, "the next turn forgets it");
    }
}
