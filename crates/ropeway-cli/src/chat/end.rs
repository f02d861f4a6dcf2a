//! The end of a turn that is not as it should be, as a failure.

use ropeway::agent::{AgentError, TurnEnd, TurnLimit};
use ropeway::provider::{ProviderErrorKind, StopReason};

use crate::failure::{Exit, Failure};

/// Why there is no outcome.
pub(super) fn unanswered(error: &AgentError) -> Failure {
    match error {
        AgentError::Provider { source, .. } => {
            let failure = Failure::provider(error.to_string(), source);
            match source.kind {
                _ if source.is_auth() => failure.hint(
                    "the key is missing, wrong, or not allowed to do this: `--key-env VARIABLE` takes another one",
                ),
                ProviderErrorKind::NotFound => failure
                    .hint("the model may be called otherwise: `--models` lists those that there are, and `--model NAME` takes one"),
                _ => failure,
            }
        }
        AgentError::RequiredServer { source, .. } => {
            Failure::new(Exit::Unreachable, error.to_string()).caused_by(source.as_ref())
        }
        AgentError::ToolCall { source, .. } => Failure::new(Exit::ToolError, error.to_string()).caused_by(source),
        other => Failure::new(Exit::ToolError, other.to_string()),
    }
}

/// What is wrong with the way in which a turn ended, if anything is.
pub(super) fn unfinished(end: &TurnEnd) -> Option<Failure> {
    let because = |words: &str| Some(Failure::new(Exit::ToolError, words));
    match end {
        TurnEnd::Limit(limit) => {
            let failure = Failure::new(Exit::ToolError, format!("the turn has ended: {limit}"));
            Some(match limit {
                TurnLimit::Steps(_) => failure.hint("`--max-steps` allows more"),
                _ => failure,
            })
        }
        TurnEnd::Done(StopReason::MaxTokens) => because("the answer has become as long as it may, and is cut"),
        TurnEnd::Done(StopReason::ContextWindow) => {
            because("the conversation fills the model's window, and the answer is cut")
        }
        TurnEnd::Done(StopReason::Refusal) => because("the model does not want to answer"),
        TurnEnd::Done(StopReason::ContentFilter) => because("the provider does not let the model answer"),
        TurnEnd::Done(StopReason::MalformedToolCall) => because("the model tried to call a tool, and failed"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_required_server_is_named_with_the_cause() {
        let error = AgentError::RequiredServer { server: "files".into(), source: "connection refused".into() };
        let failure = unanswered(&error);
        assert_eq!(failure.exit(), Exit::Unreachable);
        assert_eq!(failure.line(), "required server `files` is unavailable: connection refused");
    }

    #[test]
    fn only_an_answer_that_is_whole_is_no_failure() {
        let told = |end: TurnEnd| unfinished(&end).map(|failure| (failure.exit(), failure.message().to_owned()));
        assert_eq!(told(TurnEnd::Done(StopReason::EndTurn)), None);
        assert_eq!(told(TurnEnd::Done(StopReason::StopSequence)), None);
        assert_eq!(told(TurnEnd::Cancelled), None);
        let limit = "the turn has ended: reached the limit of 3 steps".to_owned();
        assert_eq!(told(TurnEnd::Limit(TurnLimit::Steps(3))), Some((Exit::ToolError, limit)));
        let cut = "the answer has become as long as it may, and is cut".to_owned();
        assert_eq!(told(TurnEnd::Done(StopReason::MaxTokens)), Some((Exit::ToolError, cut)));
    }
}
