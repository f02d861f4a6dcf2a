//! A contestant: ropeway's agent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use ropeway::agent::{Agent, TurnEnd};
use ropeway::message::{Conversation, Dialect};
use ropeway::provider::{Provider, ProviderSettings, StopReason};
use ropeway::tool::{Arguments, LocalTool, Schema, Tool, ToolDefinition};
use ropeway_peers::agent_case::{AgentCase, ListedTool, PROMPT, Report, SYSTEM, TurnMeter, TurnResult};
use serde_json::Value;

/// Number of built-in agent tools: `read_more`.
const OWN_TOOLS: usize = 1;

/// Runs the case.
pub(super) async fn run(case: &AgentCase) -> Result<Report> {
    let listed = case.listed()?;
    let settings = settings(Dialect::Chat, listed.len()).with_base_url(&case.url);
    let contestant = Ours::new(listed, Provider::new(settings)?, &case.model)?;
    let expected = case.expected(OWN_TOOLS)?;
    for _ in 0..case.warm_up {
        contestant.turn().await?.check(&expected)?;
        contestant.forget().await;
    }
    let mut laps = TurnMeter::start(case.turns);
    for _ in 0..case.turns {
        let began = laps.begin();
        let turn = contestant.turn().await?;
        laps.end(began);
        turn.check(&expected)?;
        contestant.forget().await;
    }
    Ok(laps.finish())
}

/// Returns settings for a provider that accepts all tools.
pub(super) fn settings(dialect: Dialect, tools: usize) -> ProviderSettings {
    let mut settings = ProviderSettings::new(dialect).with_key("none");
    settings.quirks.max_tools = Some(tools + OWN_TOOLS);
    settings
}

/// An agent that counts its calls.
pub(super) struct Ours {
    pub(super) agent: Agent,
    calls: Arc<AtomicUsize>,
}

impl Ours {
    /// Creates an agent that sends all these tools.
    pub(super) fn new(listed: Vec<ListedTool>, provider: Provider, model: &str) -> Result<Self> {
        let calls = Arc::new(AtomicUsize::new(0));
        let count = listed.len();
        let tools = listed.into_iter().map(|listed| Arc::new(tool(listed, &calls)) as Arc<dyn Tool>);
        let builder = Agent::builder().provider(provider).model(model).system(SYSTEM).tools(tools);
        Ok(Self { agent: builder.search_over(count).build()?, calls })
    }

    /// Runs one turn.
    pub(super) async fn turn(&self) -> Result<TurnResult> {
        self.calls.store(0, Ordering::Relaxed);
        let outcome = self.agent.send(PROMPT).finish().await?;
        if outcome.end != TurnEnd::Done(StopReason::EndTurn) {
            bail!("the turn ended with {:?}", outcome.end);
        }
        Ok(TurnResult { text: outcome.text, calls: self.calls.load(Ordering::Relaxed) })
    }

    /// Starts a new conversation, as all contestants do.
    pub(super) async fn forget(&self) {
        self.agent.replace_history(Conversation::new().with_system(SYSTEM)).await;
    }
}

/// Returns a local tool.
fn tool(ListedTool { name, description, parameters }: ListedTool, calls: &Arc<AtomicUsize>) -> LocalTool {
    let (calls, own) = (calls.clone(), name.clone());
    let mut definition = ToolDefinition::new(name).with_description(description);
    definition.input_schema = Schema::from_text(parameters);
    LocalTool::new(definition, move |mut arguments: Arguments, _| {
        calls.fetch_add(1, Ordering::Relaxed);
        let (waits, echoes) = (own == "wait", own == "echo");
        async move {
            if waits {
                let milliseconds = arguments.get("milliseconds").and_then(Value::as_u64).unwrap_or_default();
                tokio::time::sleep(Duration::from_millis(milliseconds)).await;
                return Ok("waited".to_owned());
            }
            match arguments.get_mut("message").map(Value::take) {
                Some(Value::String(message)) if echoes => Ok(message),
                _ => Ok("nothing found".to_owned()),
            }
        }
    })
}
