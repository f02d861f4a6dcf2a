//! Checks with the model vendors' SDKs: they accept the encoded requests, and decode streams to the same replies.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ropeway::message::{CallArguments, Dialect, ToolCall};
use ropeway::provider::{ProviderError, ProviderErrorKind, Reply, StopReason};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::process::Command;

use crate::provider::golden;
use crate::provider::streams::{Decoded, Stream, streams};
use crate::scene::{Scene, scene};

/// The report of an SDK.
#[derive(Deserialize)]
struct Verdict {
    /// The problems of each request.
    requests: BTreeMap<String, Vec<String>>,
    /// The reply decoded from each stream.
    streams: BTreeMap<String, View>,
}

/// A reply as decoded by an SDK.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum View {
    Answer(Answer),
    Failure {
        error: Failure,
    },
    Crash {
        #[expect(dead_code, reason = "it is shown")]
        crash: String,
    },
}

#[derive(Debug, Deserialize)]
struct Answer {
    text: String,
    reasoning: String,
    calls: Vec<Call>,
    stop: Option<String>,
    usage: Value,
}

#[derive(Debug, Deserialize)]
struct Call {
    id: Option<String>,
    name: String,
    /// Arguments as an object, if the SDK parses them.
    arguments: Option<Map<String, Value>>,
    /// Arguments as text otherwise.
    arguments_text: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Failure {
    status: Option<u16>,
    code: Option<String>,
}

/// The vendors whose SDKs are used.
#[derive(Clone, Copy, PartialEq)]
enum Judge {
    Python,
    Node,
}

const BOTH: &[Judge] = &[Judge::Python, Judge::Node];

/// Streams that servers send in practice, but that SDKs cannot decode, or decode differently.
const TOO_ODD: [(&str, &[Judge], &str); 6] = [
    ("chat/odd_no_index", BOTH, "they know calls by their index only"),
    ("chat/odd_same_index", BOTH, "they join calls that have one index"),
    ("chat/odd_object_arguments", &[Judge::Node], "it does not read arguments that are no text"),
    ("chat/odd_no_finish", BOTH, "one fails, the other does not say why the answer ended"),
    ("chat/odd_empty_ids", &[Judge::Node], "it makes ids up, as we do, but by chance"),
    ("chat/odd_no_role", &[Judge::Node], "it wants to be told who speaks"),
];

/// The name of a request that every SDK must reject.
const WRONG: &str = "wrong";

fn installed(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("servers").join(path);
    assert!(path.exists(), "the SDKs are not installed: run cargo xtask servers");
    path
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/sdks").join(name)
}

/// Runs an SDK on all requests and streams. One request of each dialect is invalid.
async fn verdict(scene: &Scene, program: PathBuf, arguments: &[PathBuf]) -> Verdict {
    let requests = scene.directory().join("requests");
    for file in golden::files(&golden::folder("golden"), "json") {
        let to = requests.join(&file);
        fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
        fs::copy(golden::folder("golden").join(&file), to).expect("a copy");
    }
    for dialect in Dialect::ALL {
        let text = fs::read_to_string(requests.join(format!("{dialect}/plain.json"))).expect("a request");
        let mut wrong: Value = serde_json::from_str(&text).expect("JSON");
        let part = match dialect {
            Dialect::Anthropic => "/body/messages/0/content/0",
            Dialect::Responses => "/body/input/0/content/0",
            Dialect::Gemini => "/body/contents/0/parts/0",
            _ => "/body/messages/0",
        };
        wrong.pointer_mut(part).expect("a part")["invented"] = json!(1);
        fs::write(requests.join(format!("{dialect}/{WRONG}.json")), wrong.to_string()).expect("a request");
    }
    let mut command = Command::new(program);
    command.args(arguments).args([requests, golden::folder("streams")]).envs(scene.mark());
    let output = command.kill_on_drop(true).output().await.expect("a judge");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the judge failed: {said}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("no verdict: {error}\n{said}"))
}

#[test]
fn the_python_sdks_accept_all_requests_and_agree_on_all_streams() {
    scene(|scene| async move {
        let arguments = [script("judge.py")];
        check(Judge::Python, verdict(&scene, installed("sdks-python/bin/python"), &arguments).await);
    });
}

#[test]
fn the_node_sdks_accept_all_requests_and_agree_on_all_streams() {
    scene(|scene| async move {
        let arguments = [script("judge.mjs"), installed("sdks-node")];
        // The pinned Node.js, which also runs this server.
        let node = scene.server("everything").command.into();
        check(Judge::Node, verdict(&scene, node, &arguments).await);
    });
}

fn check(judge: Judge, mut verdict: Verdict) {
    for dialect in Dialect::ALL {
        let problems = verdict.requests.remove(&format!("{dialect}/{WRONG}")).expect("a verdict");
        let is_told = problems.iter().any(|problem| problem.contains("invented"));
        assert!(is_told, "a field that was invented is taken for {dialect}: {problems:?}");
    }
    let golden = golden::files(&golden::folder("golden"), "json");
    assert!(golden.len() > 100, "{golden:?} are few");
    let judged: Vec<String> = verdict.requests.keys().map(|name| format!("{name}.json")).collect();
    assert_eq!(judged, Vec::from_iter(golden), "not every request was judged");
    let mut objections = Vec::new();
    for (name, problems) in &verdict.requests {
        objections.extend(problems.iter().map(|problem| format!("{name}: {problem}")));
    }
    let streams = streams();
    assert_eq!(verdict.streams.len(), streams.len(), "not every stream was judged");
    for stream in streams {
        let found = objection(&stream, &verdict.streams[&stream.name]);
        let exception = TOO_ODD.iter().find(|(name, judges, _)| *name == stream.name && judges.contains(&judge));
        match (found, exception) {
            (Some(found), None) => objections.push(format!("{}: {found}", stream.name)),
            (None, Some((name, _, why))) => objections.push(format!("{name} is no exception any more: {why}")),
            _ => {}
        }
    }
    assert!(objections.is_empty(), "{} objections\n{}", objections.len(), objections.join("\n"));
}

fn objection(stream: &Stream, view: &View) -> Option<String> {
    let Decoded { end, .. } = stream.decode();
    match (view, end) {
        (View::Answer(answer), Ok(reply)) => {
            let (theirs, ours) = (theirs(stream.dialect, answer, &reply), ours(&reply));
            (theirs != ours).then(|| format!("they read\n  {theirs}\nand we\n  {ours}"))
        }
        (View::Failure { error }, Err(ours)) => (family(error) != Some(ours.kind))
            .then(|| format!("they fail with {error:?} and we with {:?}: {ours}", ours.kind)),
        (view, end) => {
            Some(format!("they read {view:?} and we {:?}", end.map_err(|error: ProviderError| error.to_string())))
        }
    }
}

/// Returns the reply decoded by Ropeway, without the parts that SDKs do not expose.
fn ours(reply: &Reply) -> Value {
    let calls: Vec<Value> = reply.message.calls().map(|call| json!([call.id, call.name, arguments(call)])).collect();
    let thoughts = reply.message.parts.iter().filter_map(|part| match part {
        ropeway::message::AssistantPart::Reasoning(reasoning) => Some(reasoning.text.as_str()),
        _ => None,
    });
    let mut usage = json!(reply.usage);
    if let Some(usage) = usage.as_object_mut() {
        // The SDKs drop fields that their types do not have.
        usage.remove("cost");
    }
    json!({
        "text": reply.message.to_text(),
        "reasoning": thoughts.collect::<String>(),
        "calls": calls,
        "stop": reply.stop,
        "usage": usage,
    })
}

fn arguments(call: &ToolCall) -> Value {
    match &call.arguments {
        CallArguments::Object(arguments) => json!(arguments),
        CallArguments::Broken { text, .. } => json!(text),
    }
}

/// Converts the reply of the SDK.
fn theirs(dialect: Dialect, answer: &Answer, reply: &Reply) -> Value {
    let ours: Vec<&ToolCall> = reply.message.calls().collect();
    let calls = answer.calls.iter().enumerate().map(|(at, call)| {
        let broken = ours.get(at).is_some_and(|call| matches!(call.arguments, CallArguments::Broken { .. }));
        let arguments = match (&call.arguments, call.arguments_text.as_ref().and_then(Value::as_str)) {
            // The SDK does not expose parts that it cannot decode.
            (Some(_), None) if broken => ours.get(at).map(|call| arguments(call)).unwrap_or_default(),
            (Some(arguments), _) => json!(arguments),
            (None, Some("")) => json!({}),
            (None, Some(text)) => match serde_json::from_str(text) {
                Ok(Value::Object(arguments)) if !broken => Value::Object(arguments),
                _ => json!(text),
            },
            (None, None) => json!(call.arguments_text),
        };
        // Ropeway assigns an id to a call without one.
        let id = call.id.clone().filter(|id| !id.is_empty()).or_else(|| ours.get(at).map(|call| call.id.clone()));
        json!([id, call.name, arguments])
    });
    let calls: Vec<Value> = calls.collect();
    let stop = stop(dialect, answer.stop.as_deref(), !calls.is_empty());
    json!({"text": answer.text, "reasoning": answer.reasoning, "calls": calls, "stop": stop, "usage": answer.usage})
}

/// Maps a provider's stop reason, following the reference of its API.
fn stop(dialect: Dialect, word: Option<&str>, has_calls: bool) -> StopReason {
    match (dialect, word.unwrap_or_default()) {
        (_, "end_turn" | "completed" | "STOP" | "stop") if has_calls => StopReason::ToolUse,
        (_, "end_turn" | "completed" | "STOP" | "stop") => StopReason::EndTurn,
        (_, "tool_use" | "tool_calls") => StopReason::ToolUse,
        (_, "stop_sequence") => StopReason::StopSequence,
        (_, "max_tokens" | "max_output_tokens" | "MAX_TOKENS" | "length") => StopReason::MaxTokens,
        (_, "refusal") => StopReason::Refusal,
        (_, "content_filter" | "SAFETY" | "PROHIBITED_CONTENT") => StopReason::ContentFilter,
        (Dialect::Anthropic, "model_context_window_exceeded") => StopReason::ContextWindow,
        (Dialect::Anthropic, "pause_turn") => StopReason::Pause,
        (Dialect::Gemini, "MALFORMED_FUNCTION_CALL") => StopReason::MalformedToolCall,
        (_, word) => StopReason::Other(word.to_owned()),
    }
}

/// Returns the error kind of an SDK's error.
fn family(error: &Failure) -> Option<ProviderErrorKind> {
    match (error.code.as_deref(), error.status) {
        (Some("overloaded_error" | "UNAVAILABLE"), _) | (None, Some(503)) => Some(ProviderErrorKind::Overloaded),
        (Some("rate_limit_exceeded" | "429"), _) => Some(ProviderErrorKind::RateLimited),
        (Some("server_error" | "502"), _) => Some(ProviderErrorKind::Server),
        _ => None,
    }
}

#[test]
fn a_stream_that_is_decoded_differently_is_reported() {
    let streams = streams();
    let stream = streams.iter().find(|stream| stream.name == "chat/cut").expect("a stream");
    let usage = json!({"input": 77, "output": 16, "cache_read": 0, "cache_write": 0, "reasoning": 0});
    let answer = json!({"text": "Reading the wind.", "reasoning": "", "stop": "length", "usage": usage, "calls": [
        {"id": "call_Cut", "name": "wind", "arguments_text": "{\"station\": \"su"}
    ]});
    let judged = |pointer: &str, value: Value| {
        let mut answer = answer.clone();
        *answer.pointer_mut(pointer).expect("a field") = value;
        objection(stream, &serde_json::from_value(answer).expect("a view")).is_some()
    };
    assert!(!judged("/text", json!("Reading the wind.")));
    let others = [
        ("/text", json!("")),
        ("/reasoning", json!("hm")),
        ("/stop", json!("stop")),
        ("/usage/output", json!(17)),
        ("/calls", json!([])),
        ("/calls/0/id", json!("call_Other")),
        ("/calls/0/name", json!("cabins")),
        ("/calls/0/arguments_text", json!("{}")),
    ];
    for (pointer, value) in others {
        assert!(judged(pointer, value), "{pointer} is not compared");
    }
    let failure = json!({"error": {"status": 500, "code": "server_error"}});
    assert!(objection(stream, &serde_json::from_value(failure).expect("a view")).is_some());
}
