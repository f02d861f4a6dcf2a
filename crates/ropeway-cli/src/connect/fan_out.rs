//! The same question to each server at once, and what became of it.

use std::cell::RefCell;
use std::pin::Pin;
use std::task::Poll;

use ropeway::duration::format_duration;
use ropeway::mcp::Mcp;
use ropeway::registry::{ServerState, ServerStatus};
use ropeway::tool::{Alias, CallError};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::connect::advice::{self, Help};
use crate::connect::deadline::Deadline;
use crate::connect::session::Session;
use crate::failure::{Exit, Failure};
use crate::terminal::status_icon::Mark;
use crate::terminal::text::{clean_line, width, wrap};

/// What became of a question to one server.
pub(crate) enum Answer<T> {
    /// It has answered.
    There(T),
    /// It could not answer.
    Failed(CallError),
    /// It is not there; its verdict says why.
    Absent,
    /// The time was over before it answered.
    Late,
}

/// The answers of all servers, and why some have none.
pub(crate) struct Each<T> {
    answers: Vec<(ServerStatus, Answer<T>)>,
    help: Help,
    late: String,
}

/// Asks every server as soon as it is there. Where there is just one, that it does not answer is a failure.
pub(crate) async fn each<T>(
    session: &Session,
    what: &str,
    question: impl AsyncFn(Mcp) -> Result<T, CallError>,
) -> Result<Each<T>, Failure> {
    let mut answers = ask(session, what, session.deadline.as_ref().map(Deadline::at), question).await;
    if session.single().is_some()
        && let Some((_, answer)) = answers.pop_if(|(_, answer)| matches!(answer, Answer::Failed(_) | Answer::Late))
    {
        // Whoever asks one server wants to know all about why it does not answer.
        return Err(match answer {
            Answer::Failed(error) => error.into(),
            _ => session.late(what),
        });
    }
    let after = session
        .deadline
        .as_ref()
        .map_or_else(String::new, |deadline| format!(" within {}", format_duration(deadline.after())));
    Ok(Each { answers, help: session.help.clone(), late: format!("no answer{after}") })
}

/// Asks every server as soon as it is there, until so long.
pub(crate) async fn ask<T>(
    session: &Session,
    what: &str,
    until: Option<Instant>,
    question: impl AsyncFn(Mcp) -> Result<T, CallError>,
) -> Vec<(ServerStatus, Answer<T>)> {
    let verdicts = session.bridge.verdicts();
    let servers: Vec<Alias> = verdicts.iter().map(|verdict| verdict.server.clone()).collect();
    let (tell, told) = watch::channel(verdicts);
    let follow = session.bridge.until_verdicts(|verdicts| {
        tell.send_replace(verdicts.to_vec());
        false
    });
    let one = async |at: usize| {
        let server = &servers[at];
        let is_settled = |verdicts: &Vec<ServerStatus>| {
            verdicts.get(at).is_some_and(|verdict| !advice::is_on_its_way(&verdict.outcome))
        };
        // The other end lives as long as we do.
        let asleep = told.clone().wait_for(is_settled).await.is_ok_and(|verdicts| is_asleep(&verdicts[at]));
        if asleep && session.awake {
            // That it cannot be woken is its verdict.
            let _ = session.bridge.wake(server).await;
        }
        match session.server(server).filter(Mcp::is_connected) {
            Some(server) => question(server).await.map_or_else(Answer::Failed, Answer::There),
            None => Answer::Absent,
        }
    };
    let mut asked: Vec<Asked<'_, T>> = (0..servers.len()).map(|at| Asked::Waiting(Box::pin(one(at)))).collect();
    {
        let late = RefCell::new(servers.clone());
        let all = std::future::poll_fn(|cx| {
            let waiting = |(at, asked): (usize, &mut Asked<'_, T>)| asked.is_waiting(cx).then(|| servers[at].clone());
            let waiting: Vec<Alias> = asked.iter_mut().enumerate().filter_map(waiting).collect();
            let over = waiting.is_empty();
            session.waiting.set(waiting.clone());
            late.replace(waiting);
            if over { Poll::Ready(()) } else { Poll::Pending }
        });
        let label = || format!("{what} {}", crowd(&late.borrow()));
        let over = async {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = session.status.following(label, all) => {}
            _ = follow => {}
            () = over => {}
        }
    }
    let answers = asked.into_iter().map(|asked| match asked {
        Asked::Done(answer) => answer,
        Asked::Waiting(_) => Answer::Late,
    });
    session.bridge.verdicts().into_iter().zip(answers).collect()
}

/// A question on its way to one server.
enum Asked<'a, T> {
    Waiting(Pin<Box<dyn Future<Output = Answer<T>> + 'a>>),
    Done(Answer<T>),
}

impl<T> Asked<'_, T> {
    /// Is there no answer yet?
    fn is_waiting(&mut self, cx: &mut std::task::Context<'_>) -> bool {
        if let Self::Waiting(future) = self
            && let Poll::Ready(answer) = future.as_mut().poll(cx)
        {
            *self = Self::Done(answer);
        }
        matches!(self, Self::Waiting(_))
    }
}

/// Whom one waits for, by name.
fn crowd(missing: &[Alias]) -> String {
    missing.iter().map(Alias::as_str).collect::<Vec<_>>().join(", ")
}

fn is_asleep(verdict: &ServerStatus) -> bool {
    matches!(verdict.outcome, ServerState::Cached { .. })
}

impl<T> Each<T> {
    /// The answers, each with its server.
    pub(crate) fn there(&self) -> impl Iterator<Item = (&Alias, &T)> {
        self.answers.iter().filter_map(|(verdict, answer)| match answer {
            Answer::There(answer) => Some((&verdict.server, answer)),
            _ => None,
        })
    }

    /// That nobody has any of these.
    pub(crate) fn nothing(&self, what: &str) -> String {
        match (&self.answers[..], self.there().count()) {
            ([(verdict, Answer::There(_))], _) => format!("Server `{}` has no {what}.\n", verdict.server),
            ([], _) => self.help.nobody(),
            (_, 0) => "No server is there.\n".to_owned(),
            (_, 1) => format!("The server that is there has no {what}.\n"),
            (_, count) => format!("None of the {count} servers that are there has {what}.\n"),
        }
    }

    /// The servers that gave no answer, and what can be done about it.
    pub(crate) fn absent(&self) -> String {
        let trouble = |(verdict, answer): &(ServerStatus, Answer<T>)| match answer {
            Answer::There(_) => match &verdict.note {
                Some(note) => advice::line(Mark::Half, &verdict.server, &clean_line(note), ""),
                None => String::new(),
            },
            Answer::Failed(error) => {
                let reason = wrap(&clean_line(&reason(error)), width(), 4);
                advice::line(Mark::Bad, &verdict.server, "no answer", "") + &reason
            }
            // It has arrived, and still not answered.
            Answer::Late if !advice::is_on_its_way(&verdict.outcome) => {
                advice::line(Mark::Half, &verdict.server, &self.late, "")
            }
            Answer::Absent if verdict.outcome == ServerState::Disabled => String::new(),
            Answer::Absent | Answer::Late => self.help.trouble(verdict, width()),
        };
        let text: String = self.answers.iter().map(trouble).collect();
        if text.is_empty() { text } else { format!("\n{text}") }
    }

    /// All answers by server, for scripts.
    pub(crate) fn json(&self, fields: impl Fn(&T) -> Value) -> Value {
        let server = |(verdict, answer): &(ServerStatus, Answer<T>)| {
            let mut record = json!({"server": verdict.server, "verdict": verdict.outcome});
            if let Some(note) = &verdict.note {
                record["note"] = json!(note);
            }
            match answer {
                Answer::There(answer) => {
                    if let (Some(record), Value::Object(fields)) = (record.as_object_mut(), fields(answer)) {
                        record.extend(fields);
                    }
                }
                Answer::Failed(error) => record["error"] = json!(reason(error)),
                Answer::Late => record["error"] = json!(self.late),
                Answer::Absent => {}
            }
            record
        };
        json!({"servers": self.answers.iter().map(server).collect::<Vec<_>>()})
    }

    /// Done, unless somebody is late, or nobody has answered and somebody should have.
    pub(crate) fn exit(&self) -> Exit {
        if let [(_, Answer::Failed(error))] = &self.answers[..] {
            return Failure::from(error).exit();
        }
        let any = |is: fn(&Answer<T>) -> bool| self.answers.iter().any(|(_, answer)| is(answer));
        match () {
            () if any(|answer| matches!(answer, Answer::Late)) => Exit::Timeout,
            () if any(|answer| matches!(answer, Answer::There(_))) => Exit::Done,
            () if any(|answer| matches!(answer, Answer::Failed(_))) => Exit::Unreachable,
            () => advice::exit(&self.answers.iter().map(|(verdict, _)| verdict.clone()).collect::<Vec<_>>()),
        }
    }
}

/// Why a server could not answer, in one line; whose words they are is said beside it.
fn reason(error: &CallError) -> String {
    crate::failure::line(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_told_whom_one_waits_for_and_of_nobody_else() {
        assert_eq!(crowd(&["time".into(), "fs".into()]), "time, fs");
        assert_eq!(crowd(&["fs".into()]), "fs");
    }
}
