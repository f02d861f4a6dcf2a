//! Provider failures: a turn ends with an error and can be resumed.

use ropeway::agent::{Agent, AgentError, Step, TurnEnd};
use ropeway::message::Dialect;
use ropeway::provider::{ProviderErrorKind, ProviderSettings, StopReason};
use ropeway::testing::ScriptedReply;
use ropeway_providers::Exchange;
use ropeway_testing::replaying;

use super::kit::{done, echo, echoing, lines, ok, results, sendable};

fn agent(dialect: Dialect, exchanges: impl IntoIterator<Item = Exchange>) -> Agent {
    let provider = replaying(dialect, exchanges);
    Agent::builder().provider(provider).model("m").tool(echo()).build().expect("an agent")
}

fn kind(error: AgentError) -> ProviderErrorKind {
    match error {
        AgentError::Provider { model, source, .. } => {
            assert_eq!(model, "m");
            source.kind
        }
        other => panic!("{other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_failure_after_tool_calls_keeps_their_results() {
    for dialect in Dialect::ALL {
        let tries = 1 + ProviderSettings::new(dialect).retries.max_retries as usize;
        let dead = Exchange::failed(ProviderErrorKind::Connection, "unreachable");
        let exchanges = [echoing("a", "x").exchange(dialect)]
            .into_iter()
            .chain(std::iter::repeat_n(dead, tries))
            .chain([ScriptedReply::text("fine").exchange(dialect)]);
        let agent = agent(dialect, exchanges);
        let error = agent.send("go").finish().await.expect_err("no answer");
        assert_eq!(kind(error), ProviderErrorKind::Connection, "{dialect}");
        sendable(&agent.history());
        assert_eq!(lines(&agent.history()), ["user: go", "model:  <a>", "tools: <a>"], "{dialect}");
        assert_eq!(results(&agent.history()), [ok("a", "x")], "{dialect}");
        let outcome = done(agent.resume()).await;
        assert_eq!((outcome.text.as_str(), outcome.end), ("fine", TurnEnd::Done(StopReason::EndTurn)), "{dialect}");
        sendable(&agent.history());
        assert_eq!(lines(&agent.history()), ["user: go", "model:  <a>", "tools: <a>", "model: fine"], "{dialect}");
    }
}

#[tokio::test]
async fn a_provider_failure_in_the_middle_of_text_can_be_resumed() {
    for dialect in Dialect::ALL {
        let exchanges = [
            ScriptedReply::text("I was about to").broken_exchange(dialect),
            ScriptedReply::text("fine").exchange(dialect),
        ];
        let agent = agent(dialect, exchanges);
        let mut turn = agent.send("go");
        let mut text = String::new();
        while let Some(step) = turn.next().await {
            if let Step::Text { text: piece, .. } = step {
                text += &piece;
            }
        }
        assert_eq!(text, "I was about to", "{dialect}");
        assert_eq!(kind(turn.finish().await.expect_err("no answer")), ProviderErrorKind::Truncated, "{dialect}");
        sendable(&agent.history());
        let outcome = done(agent.resume()).await;
        assert_eq!(outcome.text, "fine", "{dialect}");
        sendable(&agent.history());
        assert_eq!(lines(&agent.history()), ["user: go", "model: fine"], "{dialect}");
    }
}

#[tokio::test]
async fn a_provider_failure_in_the_middle_of_a_call_makes_no_call() {
    for dialect in Dialect::ALL {
        let half = ScriptedReply::text("I call.").and_written_call("a", "echo", "{\"text\": \"x\"}");
        let exchanges = [half.broken_exchange(dialect), ScriptedReply::text("fine").exchange(dialect)];
        let agent = agent(dialect, exchanges);
        assert_eq!(
            kind(agent.send("go").finish().await.expect_err("no answer")),
            ProviderErrorKind::Truncated,
            "{dialect}"
        );
        sendable(&agent.history());
        assert_eq!(results(&agent.history()), [], "{dialect}");
        assert_eq!(done(agent.send("again")).await.text, "fine", "{dialect}");
        sendable(&agent.history());
    }
}

#[tokio::test]
async fn a_rejected_api_key_is_an_error_and_keeps_the_message() {
    for dialect in Dialect::ALL {
        let refused = Exchange::new(401, "{\"error\": {\"message\": \"no such key\"}}");
        let agent = agent(dialect, [refused, ScriptedReply::text("fine").exchange(dialect)]);
        let error = agent.send("go").finish().await.expect_err("no answer");
        assert_eq!(error.to_string(), "request to model `m` failed", "{dialect}");
        assert_eq!(kind(error), ProviderErrorKind::Auth, "{dialect}");
        sendable(&agent.history());
        assert_eq!(lines(&agent.history()), ["user: go"], "{dialect}");
        assert_eq!(done(agent.resume()).await.text, "fine", "{dialect}");
        sendable(&agent.history());
    }
}

#[tokio::test]
async fn resume_fails_after_a_complete_reply() {
    for dialect in Dialect::ALL {
        let agent = agent(dialect, [ScriptedReply::text("fine").exchange(dialect)]);
        let nothing = |error: AgentError| matches!(error, AgentError::NothingToAnswer);
        assert!(nothing(agent.resume().finish().await.expect_err("nothing said")), "{dialect}");
        done(agent.send("go")).await;
        assert!(nothing(agent.resume().finish().await.expect_err("all said")), "{dialect}");
        sendable(&agent.history());
        assert_eq!(lines(&agent.history()), ["user: go", "model: fine"], "{dialect}");
    }
}
