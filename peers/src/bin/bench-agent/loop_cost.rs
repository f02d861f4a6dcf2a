//! What the agent loop itself costs: turns over recorded replies, without a network, in every dialect.

use anyhow::{Result, bail};
use ropeway::message::Dialect;
use ropeway::provider::{Provider, Recording};
use ropeway::testing::ScriptedReply;
use ropeway_peers::agent_case::{AgentCase, TurnMeter, TurnResult};
use ropeway_peers::script::{Call, final_text};
use serde_json::{Map, Value};

use super::ropeway::{Ours, settings};

/// Number of one-step turns after the first turn.
const NEXT: usize = 21;

/// Measures a step in a long turn, the first turn, and a later turn with unchanged tools.
pub(super) async fn run(case: &AgentCase) -> Result<Value> {
    let mut report = Map::new();
    for dialect in Dialect::ALL {
        let steps = case.script()?.calls();
        let contestant = contestant(case, dialect, steps, case.warm_up + case.turns)?;
        turns(&contestant, steps, case.warm_up).await?;
        let tools = contestant.agent.tools();
        let laps = turns(&contestant, steps, case.turns).await?;
        if !contestant.agent.tools().ptr_eq(&tools) {
            bail!("the tools were assembled again, though nothing changed");
        }
        let report = &mut report;
        let mut add = |what: &str, micros: f64| report.insert(format!("{what}_{dialect}_us"), micros.into());
        add("step", laps.finish().turn_us / steps as f64);

        let contestant = self::contestant(case, dialect, 1, NEXT + 1)?;
        add("first", turns(&contestant, 1, 1).await?.finish().turn_us);
        add("next", turns(&contestant, 1, NEXT).await?.finish().turn_us);
    }
    Ok(Value::Object(report))
}

/// Returns an agent with recorded replies for all its turns.
fn contestant(case: &AgentCase, dialect: Dialect, steps: usize, turns: usize) -> Result<Ours> {
    let listed = case.listed()?;
    let settings = settings(dialect, listed.len());
    let answers = (0..turns).flat_map(|_| {
        let calls = (0..steps).map(|number| {
            let Call { id, tool, arguments } = Call::echo(number);
            ScriptedReply::written_call(id, tool, arguments)
        });
        calls.chain([ScriptedReply::text(text(steps))])
    });
    let answers = answers.enumerate().map(|(number, reply)| reply.named(number.to_string()).exchange(dialect));
    let provider = Provider::replaying(settings, Recording::new(answers));
    Ours::new(listed, provider, &case.model)
}

fn text(steps: usize) -> String {
    final_text(steps, 0)
}

async fn turns(contestant: &Ours, steps: usize, turns: usize) -> Result<TurnMeter> {
    let expected = TurnResult { text: text(steps), calls: steps };
    let mut laps = TurnMeter::start(turns);
    for _ in 0..turns {
        let began = laps.begin();
        let turn = contestant.turn().await?;
        laps.end(began);
        turn.check(&expected)?;
        contestant.forget().await;
    }
    Ok(laps)
}
