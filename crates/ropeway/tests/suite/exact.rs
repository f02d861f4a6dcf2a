//! Exactness: texts and numbers of servers and models arrive unchanged.

use std::time::Duration;

use proptest::prelude::{Just, Strategy, prop, prop_oneof};
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, TestRunner};
use ropeway::agent::Agent;
use ropeway::content::ResourceContents;
use ropeway::envelope::Envelope;
use ropeway::json;
use ropeway::mcp::Mcp;
use ropeway::message::{CallArguments, Conversation, Dialect, ToolCall};
use ropeway::provider::{ChatRequest, ProviderSettings, Reply};
use ropeway::testing::{Fault, FaultTrigger, Script, ScriptedReply};
use ropeway::tool::{CallContext, CallId, LocalTool, Origin, ToolDefinition, ToolOutput};
use ropeway_core::json::KEEPS_DIGITS;
use ropeway_providers::{Exchange, encode};
use ropeway_testing::{FaultRule, StdoutNoise, replaying};
use ropeway_web::{SseEvent, SseParser};
use serde_json::{Value, json};

use crate::fast_config::{
    arguments, at, call, chain, child, connect, echo, fast_config, in_process, listening, still_works, until,
};
use crate::scene::scene;

/// A lone surrogate, as JavaScript writes half of a character.
const CUT: &str = r"cut \ud83d";

/// The replacement for a lone surrogate.
const READ: &str = "cut \u{fffd}";

/// Numbers that an `f64` cannot represent exactly.
const NUMBERS: &str = r#"{"u65":18446744073709551616,"long":123456789012345678901234567890,"zero":-0,"price":1.10,"one":1.0,"huge":1e+400,"tiny":-1.5e-400}"#;

fn result(of: &str) -> Fault {
    Fault::Body(format!(r#""result":{of}"#))
}

/// A server whose responses contain lone surrogates.
fn cut() -> Script {
    let output = format!(r#"{{"content":[{{"type":"text","text":"{CUT}"}}],"structuredContent":{{"{CUT}":"{CUT}"}}}}"#);
    let tools = format!(
        r#"{{"tools":[{{"name":"echo","description":"{CUT}","inputSchema":{{"type":"object","description":"{CUT}"}}}},{{"name":"other"}}]}}"#
    );
    let contents = format!(r#"{{"contents":[{{"uri":"test://hello","text":"{CUT}"}}],"{CUT}":1}}"#);
    Script::default()
        .fault(FaultTrigger::tool("echo").nth(1), result(&output))
        // A response with an unusual layout.
        .fault(FaultTrigger::tool("echo").nth(2), Fault::Body(format!(r#""{CUT}":null,"result":{output}"#)))
        .fault(
            FaultTrigger::tool("echo").nth(3),
            Fault::Body(format!(r#""error":{{"code":-32000,"message":"{CUT}"}}"#)),
        )
        .fault(FaultTrigger::method("tools/list"), result(&tools))
        .fault(FaultTrigger::method("resources/read"), result(&contents))
}

async fn reads_what_was_cut(server: &Mcp) {
    for _ in 0..2 {
        let output =
            call(server, "echo", json!({"message": "hi"})).await.unwrap_or_else(|error| panic!("{}", chain(&error)));
        assert_eq!(output.plain_text().as_deref(), Some(READ));
        assert_eq!(output.structured, Some(json!({READ: READ})));
    }
    let error = call(server, "echo", json!({"message": "hi"})).await.expect_err("an error");
    assert!(chain(&error).contains(READ), "{}", chain(&error));
    let tools = server.list_tool_definitions().await.expect("tools");
    assert_eq!(tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["echo", "other"]);
    assert_eq!(tools[0].description.as_deref(), Some(READ));
    assert_eq!(tools[0].input_schema["description"], READ);
    let resources = server.read_resource_with("test://hello", &CallContext::default()).await.expect("a resource");
    assert_eq!(resources[0].contents, ResourceContents::Text(READ.to_owned()));
    still_works(server).await;
}

#[test]
fn a_lone_surrogate_from_a_server_is_handled() {
    scene(|scene| async move {
        let stdio = connect(fast_config(child(&scene, &cut()))).await;
        reads_what_was_cut(&stdio).await;
        stdio.close().await;
        let scripted = listening(cut()).await;
        let http = connect(fast_config(at(scripted.url()))).await;
        reads_what_was_cut(&http).await;
        http.close().await;
    });
}

#[test]
fn a_request_of_the_server_may_have_any_id() {
    scene(|_| async {
        let (scripted, server) = in_process(Script::default()).await;
        for (nth, id) in ["1e400", r#""\ud83d""#, "123456789012345678901234567890"].into_iter().enumerate() {
            let ping = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}\n");
            scripted.set(|script| {
                script.faults = vec![FaultRule {
                    on: FaultTrigger::tool("echo"),
                    fault: StdoutNoise::Bytes(ping.into_bytes()).into(),
                }];
            });
            // The scripted server may be unable to read the response. It rejects it with `"id": null`, which fails a concurrent call.
            let _ = echo(&server).await;
            let is_answer = |message: &&Value| message.get("result").is_some() || message.is_string();
            until("the ping is answered", || scripted.received().iter().filter(is_answer).count() > nth).await;
        }
        scripted.set(|script| script.faults.clear());
        // Each rejection fails one call at most.
        let mut outcomes = Vec::new();
        while outcomes.len() < 4 && !outcomes.iter().any(Result::is_ok) {
            outcomes.push(echo(&server).await);
        }
        assert!(outcomes.iter().any(Result::is_ok), "{outcomes:?}");
        server.close().await;
    });
}

#[test]
fn any_number_from_a_server_is_handled() {
    scene(|_| async {
        let output = format!(
            r#"{{"content":[{{"type":"text","text":"a","_meta":{NUMBERS}}},{{"type":"odd","n":{NUMBERS}}},1.10,-0],"structuredContent":{NUMBERS},"_meta":{NUMBERS},"isError":1.0,"more":1e+400}}"#
        );
        let (_, server) = in_process(Script::default().fault(FaultTrigger::tool("echo").nth(1), result(&output))).await;
        let output =
            call(&server, "echo", json!({"message": "hi"})).await.unwrap_or_else(|error| panic!("{}", chain(&error)));
        let structured = output.structured.as_ref().expect("structured content");
        assert_eq!(structured["one"].as_f64(), Some(1.0));
        assert!(output.is_error);
        let text = output.plain_text().expect("text only");
        if KEEPS_DIGITS {
            assert_eq!(structured.to_string(), NUMBERS);
            assert_eq!(json!(output.meta).to_string(), NUMBERS);
            assert_eq!(text, format!("a\n{{\"type\":\"odd\",\"n\":{NUMBERS}}}\n1.10\n-0"));
            assert_eq!(output.extra["more"].to_string(), "1e+400");
            // It is written in its normal form, not as received.
            let mut output = output;
            output.extra.shift_remove("isError");
            let again = serde_json::to_string(&output).expect("JSON");
            assert_eq!(json::from_str::<ToolOutput>(&again).expect("an output"), output);
        } else {
            assert_eq!(structured["huge"], "1e+400");
            assert_eq!(structured["long"].as_f64(), Some(123456789012345678901234567890.0));
        }
        still_works(&server).await;
        server.close().await;
    });
}

#[test]
fn numbers_in_a_definition_are_kept_exactly() {
    scene(|_| async {
        let schema = r#"{"type":"object","properties":{"n":{"type":"integer","maximum":123456789012345678901234567890,"default":1e+2,"multipleOf":1.0}}}"#;
        let tools = format!(r#"{{"tools":[{{"name":"echo","inputSchema":{schema},"_meta":{NUMBERS}}}]}}"#);
        let (_, server) = in_process(Script::default().fault(FaultTrigger::method("tools/list"), result(&tools))).await;
        let tools = server.list_tool_definitions().await.expect("tools");
        // The model gets the text, even if a value cannot hold the number.
        assert_eq!(format!("{:?}", tools[0].input_schema), schema);
        if KEEPS_DIGITS {
            assert_eq!(serde_json::to_string(&tools[0].input_schema).expect("JSON"), schema);
            assert_eq!(json!(tools[0].meta).to_string(), NUMBERS);
        }
        server.close().await;
    });
}

#[test]
fn arguments_reach_the_server_unchanged() {
    scene(|_| async {
        let (scripted, server) = in_process(Script::default()).await;
        let given: Value = json::from_str(&format!(r#"{{"message":"hi","n":{NUMBERS}}}"#)).expect("JSON");
        let _ = server.call_tool_with("echo", arguments(given.clone()), &CallContext::default()).await;
        let heard = scripted.wait_for("tools/call", 1).await;
        assert_eq!(heard["params"]["arguments"], given);
        if KEEPS_DIGITS {
            assert_eq!(heard["params"]["arguments"]["n"].to_string(), NUMBERS);
        }
        server.close().await;
    });
}

/// Runs a provider on a stream in which a marker is replaced by other bytes.
async fn reply(dialect: Dialect, saying: &ScriptedReply, change: impl Fn(String) -> String) -> Reply {
    let provider = replaying(dialect, [Exchange::events(change(saying.events(dialect)))]);
    let conversation = Conversation::new().with("hi");
    let reply = provider.stream(&ChatRequest::new("model", &conversation)).finish().await;
    reply.unwrap_or_else(|error| panic!("{dialect}: {}", chain(&error)))
}

#[test]
fn an_emoji_that_is_split_over_two_deltas_does_not_end_a_stream() {
    scene(|_| async {
        for dialect in Dialect::ALL {
            let split = |events: String| events.replace("HIGH", r"\ud83d").replace("LOW", r"\ude00");
            let reply = reply(dialect, &ScriptedReply::text("so HIGH LOW far"), split).await;
            assert_eq!(reply.message.to_text(), "so \u{fffd} \u{fffd} far", "{dialect}");
        }
    });
}

#[test]
fn a_byte_that_is_not_utf8_does_not_end_a_stream() {
    for dialect in Dialect::ALL {
        let conversation = Conversation::new().with("hi");
        let request = ChatRequest::new("model", &conversation);
        let settings = ProviderSettings::new(dialect).with_base_url("http://127.0.0.1:1").with_key("a-key-for-tests");
        let mut decoder = encode(&settings, &request).expect("a request").decoder();
        // A single byte, because `§` is two bytes in UTF-8, of which one is lost.
        let mut bytes = ScriptedReply::text("so § far").events(dialect).into_bytes();
        bytes.retain(|byte| *byte != "§".as_bytes()[0]);
        let mut events = Vec::new();
        let feed = |event: SseEvent| {
            if !event.data.is_empty() && !decoder.is_finished() {
                decoder.frame(&event.data, &mut events).expect("a frame");
            }
        };
        SseParser::new(1 << 20).push(&bytes, feed);
        let reply = decoder.end(&mut events).unwrap_or_else(|error| panic!("{dialect}: {}", chain(&error)));
        assert_eq!(reply.message.to_text(), "so \u{fffd} far", "{dialect}");
    }
}

#[test]
fn arguments_of_a_model_are_kept_exactly() {
    scene(|_| async {
        for dialect in Dialect::ALL {
            // A number that a value cannot hold is reported to the model.
            let numbers = if KEEPS_DIGITS { NUMBERS } else { r#"{"one":1.0}"# };
            let written = format!(r#"{{"n":{numbers},"text":"MARK"}}"#);
            // Gemini writes arguments as JSON, the others as JSON text within JSON.
            let cut = if dialect == Dialect::Gemini { r"\ud83d" } else { r"\\ud83d" };
            let saying = ScriptedReply::written_call(
                "1",
                "echo",
                if dialect == Dialect::Gemini { "{\"ARGUMENTS\":1}".to_owned() } else { written.clone() },
            );
            let change = |events: String| events.replace(r#"{"ARGUMENTS":1}"#, &written).replace("MARK", cut);
            let reply = reply(dialect, &saying, change).await;
            let calls: Vec<&ToolCall> = reply.message.calls().collect();
            let CallArguments::Object(arguments) = &calls[0].arguments else { panic!("{dialect}: {:?}", calls[0]) };
            assert_eq!(arguments["text"], "\u{fffd}", "{dialect}");
            if KEEPS_DIGITS {
                assert_eq!(arguments["n"].to_string(), NUMBERS, "{dialect}");
                let saved = serde_json::to_string(&Conversation::new().with(reply.message.clone())).expect("JSON");
                let read: Conversation = json::from_str(&saved).expect("a conversation");
                assert_eq!(serde_json::to_string(&read).expect("JSON"), saved, "{dialect}");
                assert!(saved.contains(NUMBERS), "{dialect}: {saved}");
            } else {
                assert_eq!(arguments["n"]["one"].as_f64(), Some(1.0), "{dialect}");
            }
        }
    });
}

#[test]
fn numbers_in_a_result_reach_the_model_exactly() {
    scene(|_| async {
        for dialect in Dialect::ALL {
            let sayings =
                [ScriptedReply::call("1", "numbers", json!({})).named("a"), ScriptedReply::text("done").named("b")];
            let provider = replaying(dialect, sayings.iter().map(|saying| saying.exchange(dialect)));
            let tool = LocalTool::new(ToolDefinition::new("numbers"), |_, _| async {
                Ok(ToolOutput::structured(json::from_str(NUMBERS).expect("JSON")))
            });
            let agent = Agent::builder().provider(provider).model("model").tool(tool).build().expect("an agent");
            agent.send("hi").finish().await.unwrap_or_else(|error| panic!("{dialect}: {}", chain(&error)));
            let saved = serde_json::to_string(&agent.history()).expect("JSON");
            let told = Value::from(NUMBERS).to_string();
            assert_eq!(saved.contains(told.trim_matches('"')), KEEPS_DIGITS, "{dialect}: {saved}");
        }
    });
}

/// Generates JSON with numbers of all notations. Exponents have a sign, because they would get one.
fn json_text() -> impl Strategy<Value = String> {
    let number = "-?(0|[1-9][0-9]{0,40})(\\.[0-9]{1,30})?(e[+-][0-9]{1,4})?";
    let scalar = prop_oneof![4 => number, 1 => Just("null".to_owned()), 1 => r#""(a|\\\\|\\n|é){0,4}""#];
    scalar.prop_recursive(4, 24, 4, |inner| {
        let list = prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(",")));
        let map = prop::collection::btree_map("[a-z]{1,4}", inner, 0..4).prop_map(|entries| {
            let entries: Vec<String> = entries.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
            format!("{{{}}}", entries.join(","))
        });
        prop_oneof![list, map]
    })
}

#[test]
fn structured_results_keep_their_tokens() {
    scene(|_| async {
        let (scripted, server) = in_process(Script::default()).await;
        let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
        for _ in 0..64 {
            let text = json_text().new_tree(&mut runner).expect("JSON").current();
            let output = format!(
                r#"{{"content":[{{"type":"odd","n":{text}}}],"structuredContent":{text},"_meta":{{"n":{text}}}}}"#
            );
            scripted.set(|script| *script = Script::default().fault(FaultTrigger::tool("echo"), result(&output)));
            let output = call(&server, "echo", json!({"message": "hi"}))
                .await
                .unwrap_or_else(|error| panic!("{text}: {}", chain(&error)));
            let structured = output.structured.as_ref().expect("structured content").to_string();
            let envelope = Envelope::from_output(CallId("1".to_owned()), "echo", Origin::Local, Duration::ZERO, output);
            let printed = serde_json::to_string(&envelope).expect("JSON");
            if KEEPS_DIGITS {
                assert_eq!(structured, text);
                assert!(printed.contains(&format!(r#""structured_content":{text}"#)), "{text}: {printed}");
                assert!(printed.contains(&format!(r#""_meta":{{"n":{text}}}"#)), "{text}: {printed}");
            } else {
                assert_eq!(
                    structured.matches(['[', '{', ',']).count(),
                    text.matches(['[', '{', ',']).count(),
                    "{text}"
                );
            }
        }
        server.close().await;
    });
}
