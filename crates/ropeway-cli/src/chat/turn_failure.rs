//! Turn failures, for the user.

use ropeway_agent::{AgentError, TurnEnd, TurnLimit};
use ropeway_providers::{ProviderErrorKind, StopReason};

use crate::failure::{Exit, Failure};

/// Returns the failure for a turn without an outcome.
pub(super) fn agent_failure(error: &AgentError) -> Failure {
    match error {
        AgentError::Provider { source, .. } => {
            let failure = Failure::provider(error.to_string(), source);
            match source.kind {
                _ if source.is_auth() => failure.hint(
                    "the API key is missing, invalid or lacks a permission; choose another one with `--key-env VARIABLE`",
                ),
                ProviderErrorKind::NotFound => failure
                    .hint("run `ropeway chat --models` to list the available models, and choose one with `--model NAME`"),
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

/// Returns the failure for a turn that ended before the answer was complete.
pub(super) fn end_failure(end: &TurnEnd) -> Option<Failure> {
    let failure = |words: &str| Some(Failure::new(Exit::ToolError, words));
    match end {
        TurnEnd::Limit(limit) => {
            let failure = Failure::new(Exit::ToolError, format!("turn stopped: {limit}"));
            Some(match limit {
                TurnLimit::Steps(_) => failure.hint("raise the limit with `--max-steps`"),
                _ => failure,
            })
        }
        TurnEnd::Done(StopReason::MaxTokens) => failure("answer truncated: maximum output tokens reached"),
        TurnEnd::Done(StopReason::ContextWindow) => failure("answer truncated: the model's context window is full"),
        TurnEnd::Done(StopReason::Refusal) => failure("the model refused to answer"),
        TurnEnd::Done(StopReason::ContentFilter) => failure("the provider's content filter blocked the answer"),
        TurnEnd::Done(StopReason::MalformedToolCall) => failure("the model sent a malformed tool call"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_required_server_is_named_with_the_cause() {
        let error = AgentError::RequiredServer { server: "files".into(), source: "connection refused".into() };
        let failure = agent_failure(&error);
        assert_eq!(failure.exit(), Exit::Unreachable);
        assert_eq!(failure.line(), "required server `files` is unavailable: connection refused");
    }

    #[test]
    fn only_a_complete_answer_is_not_a_failure() {
        let reported = |end: TurnEnd| end_failure(&end).map(|failure| (failure.exit(), failure.message().to_owned()));
        assert_eq!(reported(TurnEnd::Done(StopReason::EndTurn)), None);
        assert_eq!(reported(TurnEnd::Done(StopReason::StopSequence)), None);
        assert_eq!(reported(TurnEnd::Cancelled), None);
        let limit = "turn stopped: reached the limit of 3 steps".to_owned();
        assert_eq!(reported(TurnEnd::Limit(TurnLimit::Steps(3))), Some((Exit::ToolError, limit)));
        let truncated = "answer truncated: maximum output tokens reached".to_owned();
        assert_eq!(reported(TurnEnd::Done(StopReason::MaxTokens)), Some((Exit::ToolError, truncated)));
    }
}
