//! What our loop costs by itself: turns over answers that are there already, without a network, in every dialect.

use anyhow::{Result, bail};
use ropeway::message::Dialect;
use ropeway::provider::{Provider, Recording};
use ropeway::testing::ScriptedReply;
use ropeway_peers::script::{Call, last_words};
use ropeway_peers::turns::{Course, Laps, Turn};
use serde_json::{Map, Value};

use super::ropeway::{Ours, settings};

/// How many turns of one step come after the first of all.
const NEXT: usize = 21;

/// What a step of a long turn takes, what the first turn of all takes, and what one like it takes when nothing has changed.
pub(super) async fn run(course: &Course) -> Result<Value> {
    let mut report = Map::new();
    for dialect in Dialect::ALL {
        let steps = course.script()?.calls();
        let contestant = contestant(course, dialect, steps, course.warm_up + course.turns)?;
        turns(&contestant, steps, course.warm_up).await?;
        let tools = contestant.agent.tools();
        let laps = turns(&contestant, steps, course.turns).await?;
        if !contestant.agent.tools().ptr_eq(&tools) {
            bail!("the tools were put together anew, though nothing had changed");
        }
        let report = &mut report;
        let mut add = |what: &str, micros: f64| report.insert(format!("{what}_{dialect}_us"), micros.into());
        add("step", laps.finish().turn_us / steps as f64);

        let contestant = self::contestant(course, dialect, 1, NEXT + 1)?;
        add("first", turns(&contestant, 1, 1).await?.finish().turn_us);
        add("next", turns(&contestant, 1, NEXT).await?.finish().turn_us);
    }
    Ok(Value::Object(report))
}

/// Our agent, with as many answers as all its turns need.
fn contestant(course: &Course, dialect: Dialect, steps: usize, turns: usize) -> Result<Ours> {
    let listed = course.listed()?;
    let settings = settings(dialect, listed.len());
    let answers = (0..turns).flat_map(|_| {
        let calls = (0..steps).map(|number| {
            let Call { id, tool, arguments } = Call::echo(number);
            ScriptedReply::written_call(id, tool, arguments)
        });
        calls.chain([ScriptedReply::text(words(steps))])
    });
    let answers = answers.enumerate().map(|(number, saying)| saying.named(number.to_string()).exchange(dialect));
    let provider = Provider::replaying(settings, Recording::new(answers));
    Ours::new(listed, provider, &course.model)
}

fn words(steps: usize) -> String {
    last_words(steps, 0)
}

async fn turns(contestant: &Ours, steps: usize, turns: usize) -> Result<Laps> {
    let expected = Turn { words: words(steps), calls: steps };
    let mut laps = Laps::start(turns);
    for _ in 0..turns {
        let began = laps.begin();
        let turn = contestant.turn().await?;
        laps.end(began);
        turn.check(&expected)?;
        contestant.forget().await;
    }
    Ok(laps)
}
