//! Cases about conversations.

use ropeway::content::ContentPart;
use ropeway::message::{
    AssistantMessage, AssistantPart, AssistantText, CallArguments, Conversation, ToolCall, ToolResult,
};
use serde_json::{Map, json};

use super::case::{Case, call, tools};
use super::parts::{part, samples};
use super::request_settings;

/// Returns all cases.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = user_messages();
    cases.extend(answered());
    cases.extend(irregular());
    cases.extend(request_settings::cases());
    cases
}

pub(super) fn wind(id: &str) -> ToolCall {
    call(id, "wind", json!({"station": "summit"}))
}

/// Creates a reply of calls only.
fn calls(calls: &[&ToolCall]) -> AssistantMessage {
    AssistantMessage::new(calls.iter().map(|call| AssistantPart::ToolCall((*call).clone())).collect())
}

/// Creates a conversation with calls and their results.
pub(super) fn after(made: &[&ToolCall], results: Vec<ToolResult>) -> Conversation {
    Conversation::new().with("How is the wind?").with(calls(made)).with(results)
}

/// Creates a conversation with one call and its result.
fn after_one(content: Vec<ContentPart>) -> Conversation {
    let call = wind("call_1");
    after(&[&call], vec![ToolResult::new(&call, content)])
}

/// User messages.
fn user_messages() -> Vec<Case> {
    let hi = || Conversation::new().with("hi");
    let mut cases = vec![
        Case::new("plain", hi()),
        Case::new("system", hi().with_system("You are the voice of a ropeway.")),
        Case::new("dialogue", hi().with(AssistantMessage::text("Hello, where to?")).with("To the summit, „bitte“. 🚡")),
        Case::new("said_twice", Conversation::new().with("hi").with("are you there?")),
        Case::new(
            "said_everything",
            Conversation::new().with(
                std::iter::once(ContentPart::text("Look at all of this:"))
                    .chain(samples().into_iter().map(|sample| sample.part))
                    .collect::<Vec<_>>(),
            ),
        ),
    ];
    for sample in samples() {
        let content = vec![ContentPart::text("What is this?"), sample.part];
        cases.push(Case::new(format!("said_{}", sample.name), Conversation::new().with(content)));
    }
    cases
}

/// Tool results.
fn answered() -> Vec<Case> {
    let text = |text: &str| vec![ContentPart::text(text)];
    let (one, two, three) = (wind("call_1"), call("call_2", "cabins", json!({})), wind("call_3"));
    let mut failed = ToolResult::new(&one, vec![ContentPart::text("the mast is frozen"), part("png")]);
    failed.is_error = true;
    let mut failed_silently = ToolResult::new(&one, vec![]);
    failed_silently.is_error = true;
    let mut cases = vec![
        Case::new("result_error", after(&[&one], vec![ToolResult::error(&one, "the mast is frozen")])),
        Case::new("result_error_with_picture", after(&[&one], vec![failed])),
        Case::new("result_error_without_words", after(&[&one], vec![failed_silently])),
        Case::new("result_empty", after_one(vec![])),
        Case::new("result_empty_text", after_one(text(""))),
        Case::new(
            "result_mixed",
            after_one(vec![part("text"), part("png"), part("pdf"), part("text_resource"), part("wav"), part("link")]),
        ),
        Case::new(
            "result_and_words",
            after(&[&one], vec![ToolResult::new(&one, text("41 km/h"))]).with("And in knots?"),
        ),
        Case::new(
            "parallel",
            after(
                &[&one, &two, &three],
                vec![
                    ToolResult::new(&one, vec![ContentPart::text("a chart"), part("png")]),
                    ToolResult::error(&two, "nobody counts at night"),
                    ToolResult::new(&three, vec![part("jpeg"), part("gif")]),
                ],
            ),
        ),
        Case::new(
            "parallel_out_of_order",
            after(&[&one, &two], vec![ToolResult::new(&two, text("12")), ToolResult::new(&one, text("41"))]),
        ),
        Case::new(
            "rounds",
            after(&[&one], vec![ToolResult::new(&one, text("41"))])
                .with(calls(&[&two]))
                .with(vec![ToolResult::new(&two, text("12"))])
                .with(AssistantMessage::text("41 km/h, twelve cabins."))
                .with("Thanks"),
        ),
    ];
    for sample in samples() {
        cases.push(Case::new(format!("result_{}", sample.name), after_one(vec![sample.part])));
    }
    cases.into_iter().map(|case| case.with_tools(tools())).collect()
}

/// Malformed conversations.
fn irregular() -> Vec<Case> {
    let text = |text: &str| vec![ContentPart::text(text)];
    let (one, two) = (wind("call_1"), call("call_2", "cabins", json!({})));
    let mut broken = wind("call_1");
    broken.arguments = CallArguments::read("{\"station\": ");
    let vanished = call("call_1", "files.read/all at once", json!({"path": "a"}));
    let long = wind(&format!("call.{}", "x".repeat(100)));
    let thought = AssistantMessage::new(vec![
        AssistantPart::Reasoning(AssistantText { text: "hm".to_owned(), extra: Map::new() }),
        AssistantPart::Text(AssistantText { text: "Hello.".to_owned(), extra: Map::new() }),
    ]);
    let cases = vec![
        Case::new("nothing_said", Conversation::new()),
        Case::new("nothing_but_system", Conversation::new().with_system("Begin.")),
        Case::new("empty_messages", Conversation::new().with("").with(AssistantMessage::new(vec![])).with("hi")),
        Case::new("assistant_first", Conversation::new().with(AssistantMessage::text("Welcome.")).with("hi")),
        Case::new("assistant_last", Conversation::new().with("hi").with(AssistantMessage::text("Hello, the"))),
        Case::new(
            "assistant_twice",
            Conversation::new()
                .with("hi")
                .with(AssistantMessage::text("Hello."))
                .with(AssistantMessage::text("Where to?"))
                .with("Up"),
        ),
        Case::new("thoughts_of_nobody", Conversation::new().with("hi").with(thought).with("Up")),
        Case::new(
            "calls_first",
            Conversation::new().with(calls(&[&one])).with(vec![ToolResult::new(&one, text("41"))]),
        ),
        Case::new("missing_result", after(&[&one, &two], vec![ToolResult::new(&two, text("12"))])),
        Case::new("missing_results", Conversation::new().with("hi").with(calls(&[&one, &two])).with("Never mind")),
        Case::new("missing_results_at_the_end", Conversation::new().with("hi").with(calls(&[&one]))),
        Case::new("orphan_result", Conversation::new().with("hi").with(vec![ToolResult::new(&one, text("41"))])),
        Case::new(
            "late_result",
            Conversation::new()
                .with("hi")
                .with(calls(&[&one]))
                .with("Hurry")
                .with(vec![ToolResult::new(&one, text("41"))]),
        ),
        Case::new(
            "same_ids",
            after(&[&one, &one], vec![ToolResult::new(&one, text("41")), ToolResult::new(&one, text("42"))])
                .with(calls(&[&one]))
                .with(vec![ToolResult::new(&one, text("43"))]),
        ),
        Case::new(
            "two_results",
            after(&[&one], vec![ToolResult::new(&one, text("41")), ToolResult::new(&one, text("42"))]),
        ),
        Case::new(
            "odd_ids",
            after(
                &[&long, &wind("")],
                vec![ToolResult::new(&long, text("41")), ToolResult::new(&wind(""), text("42"))],
            ),
        ),
        Case::new(
            "broken_arguments",
            after(&[&broken], vec![ToolResult::error(&broken, "the arguments are not valid JSON")]),
        ),
        Case::new("vanished_tool", after(&[&vanished], vec![ToolResult::new(&vanished, text("a"))])),
    ];
    cases.into_iter().map(|case| case.with_tools(tools())).collect()
}
