//! Approvals: calls that are allowed, denied, or need approval, and how denials are reported.

use std::sync::{Arc, Mutex};

use ropeway::agent::{Agent, AgentBuilder, Approval, ApprovalRequest, Permission, Policy, TurnEnd, TurnLimits};
use ropeway::message::Dialect;
use ropeway::provider::StopReason;
use ropeway::testing::ScriptedReply;
use ropeway::tool::{Annotations, LocalTool, ToolDefinition};
use ropeway_agent::Approvals;
use serde_json::{Value, json};

use super::kit::{agent, done, failed, ok, results, sendable};

/// Returns a tool with these annotations that answers its own name.
fn tool(name: &str, hints: Value) -> LocalTool {
    let mut definition = ToolDefinition::new(name);
    definition.annotations = Annotations(hints.as_object().cloned().unwrap_or_default());
    let name = name.to_owned();
    LocalTool::new(definition, move |_, _| std::future::ready(Ok(name.clone())))
}

/// Returns an agent whose model calls these tools in one reply, and then says `fine`.
fn calling(dialect: Dialect, tools: &[&str]) -> AgentBuilder {
    let calls =
        tools.iter().fold(ScriptedReply::nothing(), |reply, tool| reply.and_call(*tool, *tool, json!({"n": 1})));
    agent(dialect, [calls, ScriptedReply::text("fine")])
}

async fn fine(agent: &Agent, dialect: Dialect) {
    let outcome = done(agent.send("go")).await;
    assert_eq!((outcome.text.as_str(), outcome.end), ("fine", TurnEnd::Done(StopReason::EndTurn)), "{dialect}");
    sendable(&agent.history());
}

const DENIED: &str = "Do not try it again; continue without it, or tell the user.";

fn denied(tool: &str, why: &str) -> (String, String, bool) {
    failed(tool, &format!("Error: tool `{tool}` was not called: {why}. {DENIED}"))
}

#[tokio::test]
async fn the_first_rule_that_matches_applies_and_denials_are_reported() {
    for dialect in Dialect::ALL {
        let policy = Policy::new().deny("*_delete").allow("fs_*").ask("*");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        let agent = calling(dialect, &["fs_delete", "fs_read", "web_get"])
            .tool(tool("fs_delete", json!({})))
            .tool(tool("fs_read", json!({})))
            .tool(tool("web_get", json!({})))
            .policy(policy)
            .on_approval(move |request: ApprovalRequest| {
                log.lock().expect("no poison").push((request.call.0, request.tool, json!(request.arguments)));
                async { Approval::Deny { reason: Some("not today".to_owned()) } }
            })
            .build()
            .expect("an agent");
        fine(&agent, dialect).await;
        let asked = asked.lock().expect("no poison").clone();
        assert_eq!(asked, [("web_get".to_owned(), "web_get".to_owned(), json!({"n": 1}))], "{dialect}");
        let told = [
            denied("fs_delete", "not allowed by the host's policy"),
            ok("fs_read", "fs_read"),
            denied("web_get", "rejected by the user: not today"),
        ];
        assert_eq!(results(&agent.history()), told, "{dialect}");
    }
}

#[tokio::test]
async fn invalid_calls_are_refused_before_anybody_is_asked() {
    for dialect in Dialect::ALL {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        let definition = ToolDefinition::new("sum").with_input_schema(json!({
            "type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"],
        }));
        let calls = ScriptedReply::call("bad", "sum", json!({"a": "one"})).and_call("good", "sum", json!({"a": 1}));
        let agent = agent(dialect, [calls, ScriptedReply::text("fine")])
            .tool(LocalTool::new(definition, |_, _| std::future::ready(Ok("1"))))
            .policy(Policy::new().ask("*"))
            .on_approval(move |request: ApprovalRequest| {
                log.lock().expect("no poison").push(json!(request.arguments));
                async { Approval::Allow }
            })
            .build()
            .expect("an agent");
        fine(&agent, dialect).await;
        assert_eq!(*asked.lock().expect("no poison"), [json!({"a": 1})], "{dialect}");
        let told = results(&agent.history());
        assert!(told[0].1.contains("invalid arguments for tool `sum`, which was not called"), "{told:?}");
        assert_eq!((told[1].1.as_str(), told[1].2), ("1", false), "{dialect}");
    }
}

#[tokio::test]
async fn destructive_tools_are_recognized_by_their_annotations() {
    for dialect in Dialect::ALL {
        let agent = calling(dialect, &["read", "wipe"])
            .tool(tool("read", json!({"readOnlyHint": true})))
            .tool(tool("wipe", json!({"destructiveHint": true})))
            .policy(Policy::new().destructive(Permission::Deny))
            .build()
            .expect("an agent");
        fine(&agent, dialect).await;
        let told = [ok("read", "read"), denied("wipe", "not allowed by the host's policy")];
        assert_eq!(results(&agent.history()), told, "{dialect}");
    }
}

#[tokio::test]
async fn approval_is_requested_one_call_at_a_time_in_order() {
    for dialect in Dialect::ALL {
        for limits in [TurnLimits::default(), TurnLimits::default().sequential()] {
            let log: Arc<Mutex<Vec<String>>> = Arc::default();
            let written = log.clone();
            let agent = calling(dialect, &["c", "a", "b"])
                .tool(tool("a", json!({})))
                .tool(tool("b", json!({})))
                .tool(tool("c", json!({})))
                .policy(Policy::new().ask("*"))
                .limits(limits)
                .on_approval(move |request: ApprovalRequest| {
                    let log = written.clone();
                    async move {
                        log.lock().expect("no poison").push(format!("{} is asked", request.tool));
                        tokio::task::yield_now().await;
                        log.lock().expect("no poison").push(format!("{} is answered", request.tool));
                        Approval::Allow
                    }
                })
                .build()
                .expect("an agent");
            fine(&agent, dialect).await;
            let log = log.lock().expect("no poison").clone();
            let expected =
                ["c is asked", "c is answered", "a is asked", "a is answered", "b is asked", "b is answered"];
            assert_eq!(log, expected, "{dialect}");
            assert_eq!(results(&agent.history()), ["c", "a", "b"].map(|name| ok(name, name)), "{dialect}");
        }
    }
}

#[tokio::test]
async fn a_call_that_needs_approval_is_denied_without_a_handler() {
    for dialect in Dialect::ALL {
        let agent = calling(dialect, &["a"]).tool(tool("a", json!({}))).policy(Policy::new().ask("a"));
        let agent = agent.build().expect("an agent");
        fine(&agent, dialect).await;
        let why = "it requires approval, and no one is available to approve it";
        assert_eq!(results(&agent.history()), [denied("a", why)], "{dialect}");
    }
}

#[tokio::test]
async fn a_denial_without_a_reason_is_reported() {
    for dialect in Dialect::ALL {
        let agent = calling(dialect, &["a"]).tool(tool("a", json!({}))).policy(Policy::new().ask("a"));
        let agent = agent.on_approval(|_| async { Approval::deny() }).build().expect("an agent");
        fine(&agent, dialect).await;
        assert_eq!(results(&agent.history()), [denied("a", "rejected by the user")], "{dialect}");
    }
}

#[tokio::test]
async fn an_approval_handler_that_panics_denies_the_call() {
    for dialect in Dialect::ALL {
        let agent = calling(dialect, &["a"]).tool(tool("a", json!({}))).policy(Policy::new().ask("a"));
        let agent = agent.on_approval(|_| async { panic!("oh no") }).build().expect("an agent");
        fine(&agent, dialect).await;
        assert_eq!(results(&agent.history()), [denied("a", "rejected by the user")], "{dialect}");
    }
}

#[tokio::test]
async fn a_permanent_approval_is_not_requested_again() {
    for dialect in Dialect::ALL {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = asked.clone();
        let call = |id: &str, tool: &str| ScriptedReply::call(id, tool, json!({}));
        let replies = [
            call("1", "a").and_call("2", "a", json!({})).and_call("3", "b", json!({})),
            ScriptedReply::text("fine"),
            call("4", "a").and_call("5", "b", json!({})),
            ScriptedReply::text("fine"),
        ];
        let agent = agent(dialect, replies)
            .tool(tool("a", json!({})))
            .tool(tool("b", json!({})))
            .policy(Policy::new().ask("*"))
            .on_approval(move |request: ApprovalRequest| {
                log.lock().expect("no poison").push(request.call.0);
                let approval = if request.tool == "a" { Approval::Always } else { Approval::Allow };
                async move { approval }
            })
            .build()
            .expect("an agent");
        fine(&agent, dialect).await;
        fine(&agent, dialect).await;
        assert_eq!(*asked.lock().expect("no poison"), ["1", "3", "5"], "{dialect}");
        let told = [ok("1", "a"), ok("2", "a"), ok("3", "b"), ok("4", "a"), ok("5", "b")];
        assert_eq!(results(&agent.history()), told, "{dialect}");
    }
}

/// Returns an agent whose model searches tools, and then calls `b` through `call_tool`.
fn searching(dialect: Dialect) -> AgentBuilder {
    let replies = [
        ScriptedReply::call("1", "find_tools", json!({"query": "nothing at all"})),
        ScriptedReply::call("2", "call_tool", json!({"name": "b", "arguments": {"n": 1}})),
        ScriptedReply::text("fine"),
    ];
    agent(dialect, replies).tool(tool("a", json!({}))).tool(tool("b", json!({}))).search_over(1)
}

#[tokio::test]
async fn built_in_tools_need_no_approval_but_the_tools_they_call_do() {
    for dialect in Dialect::ALL {
        let agent = searching(dialect).policy(Policy::new().allow("a").otherwise(Permission::Deny));
        let agent = agent.build().expect("an agent");
        fine(&agent, dialect).await;
        let denied = format!("Error: tool `b` was not called: not allowed by the host's policy. {DENIED}");
        let told = [ok("1", "No tool matches `nothing at all`. Try other words."), failed("2", &denied)];
        assert_eq!(results(&agent.history()), told, "{dialect}");
    }
}

#[tokio::test]
async fn a_call_through_call_tool_is_approved_as_the_tool_it_names() {
    for dialect in Dialect::ALL {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        let agent = searching(dialect).policy(Policy::new().otherwise(Permission::Ask));
        let agent = agent.on_approval(move |request: ApprovalRequest| {
            log.lock().expect("no poison").push((request.tool, json!(request.arguments)));
            async { Approval::Allow }
        });
        let agent = agent.build().expect("an agent");
        fine(&agent, dialect).await;
        assert_eq!(*asked.lock().expect("no poison"), [("b".to_owned(), json!({"n": 1}))], "{dialect}");
        assert_eq!(results(&agent.history())[1], ok("2", "b"), "{dialect}");
    }
}

#[tokio::test]
async fn allowed_calls_do_not_wait_for_calls_that_need_approval() {
    for dialect in Dialect::ALL {
        let (done_first, made) = tokio::sync::oneshot::channel::<()>();
        let (done_first, made) = (Mutex::new(Some(done_first)), Arc::new(tokio::sync::Mutex::new(made)));
        let free = LocalTool::new(ToolDefinition::new("free"), move |_, _| {
            drop(done_first.lock().expect("no poison").take());
            std::future::ready(Ok("free"))
        });
        let agent = calling(dialect, &["asked", "free"])
            .tool(tool("asked", json!({})))
            .tool(free)
            .policy(Policy::new().ask("asked"))
            .on_approval(move |_| {
                let made = made.clone();
                async move {
                    // Approves only after the other call was made.
                    let _ = (&mut *made.lock().await).await;
                    Approval::Allow
                }
            })
            .build()
            .expect("an agent");
        fine(&agent, dialect).await;
        assert_eq!(results(&agent.history()), [ok("asked", "asked"), ok("free", "free")], "{dialect}");
    }
}

/// Returns a local tool with this description.
fn note(description: &str) -> LocalTool {
    let definition = ToolDefinition::new("note").with_description(description);
    LocalTool::new(definition, |_, _| std::future::ready(Ok("noted")))
}

#[tokio::test]
async fn another_agent_shares_approvals_and_asks_about_changed_tools() {
    let approvals = Approvals::new();
    let asked: Arc<Mutex<Vec<Vec<String>>>> = Arc::default();
    let run = async |description: &str| {
        let log = asked.clone();
        let agent = calling(Dialect::Chat, &["note"])
            .tool(note(description))
            .policy(Policy::new().ask("note"))
            .approvals(approvals.clone())
            .on_approval(move |request: ApprovalRequest| {
                log.lock().expect("no poison").push(request.changes.iter().map(ToString::to_string).collect());
                async { Approval::Always }
            })
            .build()
            .expect("an agent");
        fine(&agent, Dialect::Chat).await;
        assert_eq!(results(&agent.history()), [ok("note", "noted")]);
    };
    run("Writes a note").await;
    run("Writes a note").await;
    run("Runs a shell").await;
    run("Runs a shell").await;
    let asked = asked.lock().expect("no poison").clone();
    assert_eq!(asked, [vec![], vec!["description changed".to_owned()]]);
}
