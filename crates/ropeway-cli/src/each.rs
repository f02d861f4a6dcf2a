//! The same question to each server at once, and what became of it.

use anstyle::Style;
use ropeway::mcp::Mcp;
use ropeway::registry::{Outcome, Verdict};
use ropeway::tool::{Alias, CallError};
use serde_json::{Value, json};

use crate::failure::{Exit, Failure};
use crate::mark::Mark;
use crate::session::Session;
use crate::text::clean_line;

const NAME: Style = Style::new().bold();
const FAINT: Style = Style::new().dimmed();

/// The answers of all servers, and why some have none.
pub(crate) struct Each<T> {
    answers: Vec<(Verdict, Option<Result<T, String>>)>,
}

/// Asks every server that is there.
pub(crate) async fn each<T>(
    session: &Session,
    what: &str,
    question: impl AsyncFn(Mcp) -> Result<T, CallError>,
) -> Result<Each<T>, Failure> {
    let verdicts = session.listing().verdicts;
    let single = verdicts.len() == 1;
    let ask = async |verdict: &Verdict| match session.server(&verdict.server).filter(Mcp::is_connected) {
        Some(server) => Some(question(server).await),
        None => None,
    };
    let asked = session.step(what, at_once(verdicts.iter().map(ask).collect())).await?;
    let mut answers = Vec::new();
    for (verdict, answer) in verdicts.into_iter().zip(asked) {
        let answer = match answer {
            // Whoever asks one server wants to know all about why it does not answer.
            Some(Err(error)) if single => return Err(error.into()),
            Some(Err(error)) => Some(Err(crate::failure::line(&error))),
            Some(Ok(answer)) => Some(Ok(answer)),
            None => None,
        };
        answers.push((verdict, answer));
    }
    Ok(Each { answers })
}

/// Waits for all, each going on while the others wait.
pub(crate) async fn at_once<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|cx| {
        let mut pending = false;
        for (future, done) in &mut futures {
            if done.is_none() {
                match future.as_mut().poll(cx) {
                    std::task::Poll::Ready(output) => *done = Some(output),
                    std::task::Poll::Pending => pending = true,
                }
            }
        }
        if pending { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    futures.into_iter().filter_map(|(_, done)| done).collect()
}

impl<T> Each<T> {
    /// The answers, each with its server.
    pub(crate) fn there(&self) -> impl Iterator<Item = (&Alias, &T)> {
        self.answers.iter().filter_map(|(verdict, answer)| match answer {
            Some(Ok(answer)) => Some((&verdict.server, answer)),
            _ => None,
        })
    }

    /// The servers that gave no answer, a line for each.
    pub(crate) fn absent(&self) -> String {
        let mut text = String::new();
        for (verdict, answer) in &self.answers {
            let (mark, words) = match answer {
                Some(Ok(_)) => continue,
                Some(Err(error)) => (Mark::Bad, error.clone()),
                None if verdict.outcome == Outcome::Disabled => continue,
                None => (Mark::of(&verdict.outcome), Mark::words(&verdict.outcome)),
            };
            let (style, sign, alias) = (mark.style(), mark.sign(), clean_line(verdict.server.as_str()));
            text.push_str(&format!(
                "{style}{sign}{style:#} {NAME}{alias}{NAME:#} {FAINT}· {}{FAINT:#}\n",
                clean_line(&words)
            ));
        }
        if text.is_empty() { text } else { format!("\n{text}") }
    }

    /// All answers by server, for scripts.
    pub(crate) fn json(&self, fields: impl Fn(&T) -> Value) -> Value {
        let server = |(verdict, answer): &(Verdict, Option<Result<T, String>>)| {
            let mut record = json!({"server": verdict.server, "verdict": verdict.outcome});
            match answer {
                Some(Ok(answer)) => {
                    if let (Some(record), Value::Object(fields)) = (record.as_object_mut(), fields(answer)) {
                        record.extend(fields);
                    }
                }
                Some(Err(error)) => record["error"] = json!(error),
                None => {}
            }
            record
        };
        json!({"servers": self.answers.iter().map(server).collect::<Vec<_>>()})
    }

    /// Done, unless nobody has answered and somebody should have.
    pub(crate) fn exit(&self) -> Exit {
        let late = |(verdict, _): &(Verdict, _)| verdict.outcome == Outcome::Connecting;
        match () {
            () if self.answers.iter().any(late) => Exit::Timeout,
            () if self.there().next().is_some() || self.answers.is_empty() => Exit::Done,
            () if self.answers.iter().all(|(verdict, _)| verdict.outcome == Outcome::Disabled) => Exit::Done,
            () if self.answers.iter().any(|(verdict, _)| verdict.outcome == Outcome::NeedsAuth) => Exit::NeedsAuth,
            () => Exit::Unreachable,
        }
    }
}
