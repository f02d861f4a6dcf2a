//! Sends the same request to all servers concurrently.

use std::cell::RefCell;
use std::pin::Pin;
use std::task::Poll;

use ropeway_bridge::registry::{ServerState, ServerStatus};
use ropeway_core::duration::format_duration;
use ropeway_core::tool::{Alias, CallError};
use ropeway_mcp::Mcp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::connect::advice::{self, ServerAdvice};
use crate::connect::deadline::Deadline;
use crate::connect::session::Session;
use crate::failure::{Exit, Failure};
use crate::terminal::status_icon::StatusIcon;
use crate::terminal::text::{clean_line, width, wrap};

/// One server's reply.
pub(crate) enum Reply<T> {
    /// The server answered.
    Answered(T),
    /// The request failed.
    Failed(CallError),
    /// The server is unavailable; its status has the cause.
    Unavailable,
    /// The deadline passed first.
    TimedOut,
}

/// Replies from all servers.
pub(crate) struct Replies<T> {
    answers: Vec<(ServerStatus, Reply<T>)>,
    advice: ServerAdvice,
    late: String,
}

/// Sends a request to every server once it is connected. If only one server is configured, its error is a failure.
pub(crate) async fn fan_out<T>(
    session: &Session,
    what: &str,
    question: impl AsyncFn(Mcp) -> Result<T, CallError>,
) -> Result<Replies<T>, Failure> {
    let mut answers = query_servers(session, what, session.deadline.as_ref().map(Deadline::at), question).await;
    if session.single().is_some()
        && let Some((_, answer)) = answers.pop_if(|(_, answer)| matches!(answer, Reply::Failed(_) | Reply::TimedOut))
    {
        // A single server is reported with the full cause.
        return Err(match answer {
            Reply::Failed(error) => error.into(),
            _ => session.timeout_failure(what),
        });
    }
    let after = session
        .deadline
        .as_ref()
        .map_or_else(String::new, |deadline| format!(" within {}", format_duration(deadline.after())));
    Ok(Replies { answers, advice: session.advice.clone(), late: format!("no response{after}") })
}

/// Sends a request to every server once it is connected, until the deadline.
pub(crate) async fn query_servers<T>(
    session: &Session,
    what: &str,
    until: Option<Instant>,
    question: impl AsyncFn(Mcp) -> Result<T, CallError>,
) -> Vec<(ServerStatus, Reply<T>)> {
    let statuses = session.bridge.statuses();
    let servers: Vec<Alias> = statuses.iter().map(|status| status.server.clone()).collect();
    let (sender, receiver) = watch::channel(statuses);
    let follow = session.bridge.until_statuses(|statuses| {
        sender.send_replace(statuses.to_vec());
        false
    });
    let one = async |at: usize| {
        let server = &servers[at];
        let is_settled =
            |statuses: &Vec<ServerStatus>| statuses.get(at).is_some_and(|status| !advice::is_pending(&status.state));
        // The sender lives as long as this future.
        let is_idle = receiver.clone().wait_for(is_settled).await.is_ok_and(|statuses| is_cached(&statuses[at]));
        if is_idle && session.eager {
            // A server that fails to start reports it in its status.
            let _ = session.bridge.wake(server).await;
        }
        match session.server(server).filter(Mcp::is_connected) {
            Some(server) => question(server).await.map_or_else(Reply::Failed, Reply::Answered),
            None => Reply::Unavailable,
        }
    };
    let mut asked: Vec<PendingReply<'_, T>> =
        (0..servers.len()).map(|at| PendingReply::Waiting(Box::pin(one(at)))).collect();
    {
        let late = RefCell::new(servers.clone());
        let all = std::future::poll_fn(|cx| {
            let waiting =
                |(at, asked): (usize, &mut PendingReply<'_, T>)| asked.is_waiting(cx).then(|| servers[at].clone());
            let waiting: Vec<Alias> = asked.iter_mut().enumerate().filter_map(waiting).collect();
            let over = waiting.is_empty();
            session.waiting.set(waiting.clone());
            late.replace(waiting);
            if over { Poll::Ready(()) } else { Poll::Pending }
        });
        let label = || format!("{what} {}", join_names(&late.borrow()));
        let over = async {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = session.status.during_labelled(label, all) => {}
            _ = follow => {}
            () = over => {}
        }
    }
    let answers = asked.into_iter().map(|asked| match asked {
        PendingReply::Done(answer) => answer,
        PendingReply::Waiting(_) => Reply::TimedOut,
    });
    session.bridge.statuses().into_iter().zip(answers).collect()
}

/// A request to one server.
enum PendingReply<'a, T> {
    Waiting(Pin<Box<dyn Future<Output = Reply<T>> + 'a>>),
    Done(Reply<T>),
}

impl<T> PendingReply<'_, T> {
    /// Polls the request and returns `true` while it is pending.
    fn is_waiting(&mut self, cx: &mut std::task::Context<'_>) -> bool {
        if let Self::Waiting(future) = self
            && let Poll::Ready(answer) = future.as_mut().poll(cx)
        {
            *self = Self::Done(answer);
        }
        matches!(self, Self::Waiting(_))
    }
}

fn join_names(missing: &[Alias]) -> String {
    missing.iter().map(Alias::as_str).collect::<Vec<_>>().join(", ")
}

fn is_cached(status: &ServerStatus) -> bool {
    matches!(status.state, ServerState::Cached { .. })
}

impl<T> Replies<T> {
    /// Returns the answers, each with its server.
    pub(crate) fn answered(&self) -> impl Iterator<Item = (&Alias, &T)> {
        self.answers.iter().filter_map(|(status, answer)| match answer {
            Reply::Answered(answer) => Some((&status.server, answer)),
            _ => None,
        })
    }

    /// Returns the text for a list without entries.
    pub(crate) fn none_text(&self, what: &str) -> String {
        match (&self.answers[..], self.answered().count()) {
            ([(status, Reply::Answered(_))], _) => format!("Server `{}` has no {what}.\n", status.server),
            ([], _) => self.advice.no_servers(),
            (_, 0) => "No server is available.\n".to_owned(),
            (_, 1) => format!("The available server has no {what}.\n"),
            (_, count) => format!("None of the {count} available servers has {what}.\n"),
        }
    }

    /// Describes the servers without an answer, with advice.
    pub(crate) fn problems_text(&self) -> String {
        let trouble = |(status, answer): &(ServerStatus, Reply<T>)| match answer {
            Reply::Answered(_) => match &status.note {
                Some(note) => advice::status_line(StatusIcon::Half, &status.server, &clean_line(note), ""),
                None => String::new(),
            },
            Reply::Failed(error) => {
                let reason = wrap(&clean_line(&reason(error)), width(), 4);
                advice::status_line(StatusIcon::Bad, &status.server, "request failed", "") + &reason
            }
            // The server is connected but did not answer.
            Reply::TimedOut if !advice::is_pending(&status.state) => {
                advice::status_line(StatusIcon::Half, &status.server, &self.late, "")
            }
            Reply::Unavailable if status.state == ServerState::Disabled => String::new(),
            Reply::Unavailable | Reply::TimedOut => self.advice.problem_text(status, width()),
        };
        let text: String = self.answers.iter().map(trouble).collect();
        if text.is_empty() { text } else { format!("\n{text}") }
    }

    /// Returns the replies by server as JSON.
    pub(crate) fn json(&self, fields: impl Fn(&T) -> Value) -> Value {
        let server = |(status, answer): &(ServerStatus, Reply<T>)| {
            let mut record = json!({"server": status.server, "status": status.state, "verdict": status.state});
            if let Some(note) = &status.note {
                record["note"] = json!(note);
            }
            match answer {
                Reply::Answered(answer) => {
                    if let (Some(record), Value::Object(fields)) = (record.as_object_mut(), fields(answer)) {
                        record.extend(fields);
                    }
                }
                Reply::Failed(error) => record["error"] = json!(reason(error)),
                Reply::TimedOut => record["error"] = json!(self.late),
                Reply::Unavailable => {}
            }
            record
        };
        json!({"servers": self.answers.iter().map(server).collect::<Vec<_>>()})
    }

    /// Returns the exit code: success if a server answered and none timed out.
    pub(crate) fn exit(&self) -> Exit {
        if let [(_, Reply::Failed(error))] = &self.answers[..] {
            return Failure::from(error).exit();
        }
        let any = |is: fn(&Reply<T>) -> bool| self.answers.iter().any(|(_, answer)| is(answer));
        match () {
            () if any(|answer| matches!(answer, Reply::TimedOut)) => Exit::Timeout,
            () if any(|answer| matches!(answer, Reply::Answered(_))) => Exit::Done,
            () if any(|answer| matches!(answer, Reply::Failed(_))) => Exit::Unreachable,
            () => advice::exit_code(&self.answers.iter().map(|(status, _)| status.clone()).collect::<Vec<_>>()),
        }
    }
}

/// Formats an error in one line.
fn reason(error: &CallError) -> String {
    crate::failure::chain_text(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_servers_are_listed_by_name() {
        assert_eq!(join_names(&["time".into(), "fs".into()]), "time, fs");
        assert_eq!(join_names(&["fs".into()]), "fs");
    }
}
