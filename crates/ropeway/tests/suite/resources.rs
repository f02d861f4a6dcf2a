//! Resources, prompts, completion and ping.

use ropeway::config::EraChoice;
use ropeway::content::{EmbeddedResource, ResourceContents};
use ropeway::mcp::{Completion, Mcp};
use ropeway::testing::{Fault, FaultTrigger, Script, ScriptedServer};
use ropeway::tool::{Arguments, CallContext, CallError};
use ropeway_testing::{PagingStyle, UnknownMethods};
use serde_json::{Map, Value, json};

use crate::fast_config::{arguments, chain, connect, fast_config, in_era, in_process, still_works, warnings};
use crate::scene::scene;

const BOTH: [EraChoice; 2] = [EraChoice::Legacy, EraChoice::Modern];

async fn in_both_eras(script: Script, test: impl AsyncFn(&ScriptedServer, &Mcp)) {
    for era in BOTH {
        let scripted = ScriptedServer::new(script.clone());
        let server = connect(in_era(era, scripted.in_process())).await;
        test(&scripted, &server).await;
        server.close().await;
    }
}

fn cx() -> CallContext {
    CallContext::default()
}

fn resource(uri: &str, mime_type: &str, contents: ResourceContents) -> EmbeddedResource {
    let (resource_extra, extra) = (Map::new(), Map::new());
    EmbeddedResource { uri: uri.into(), mime_type: Some(mime_type.into()), contents, resource_extra, extra }
}

fn error(code: i64, message: &str) -> Fault {
    Fault::Error(json!({"code": code, "message": message}))
}

async fn uris(server: &Mcp) -> Vec<String> {
    let resources = server.list_resources().await.unwrap_or_else(|error| panic!("{}", chain(&error)));
    resources.into_iter().map(|resource| resource.uri).collect()
}

#[test]
fn resources_are_listed_and_read() {
    scene(|_| async {
        in_both_eras(Script::default(), async |_, server| {
            let listed = json!(server.list_resources().await.expect("resources"));
            let expected = json!([
                {"uri": "test://hello", "name": "hello", "title": "A greeting", "mimeType": "text/plain", "size": 5},
                {"uri": "test://picture", "name": "picture", "mimeType": "image/png"},
                {"uri": "test://counter", "name": "counter", "mimeType": "application/json"},
            ]);
            assert_eq!(listed, expected);
            let templates = json!(server.list_resource_templates().await.expect("templates"));
            let expected = json!([{"uriTemplate": "test://items/{id}", "name": "item", "mimeType": "text/plain"}]);
            assert_eq!(templates, expected);
            let read = async |uri| server.read_resource_with(uri, &cx()).await.expect("a resource");
            let hello = resource("test://hello", "text/plain", ResourceContents::Text("hello".into()));
            assert_eq!(read("test://hello").await, [hello]);
            let picture = resource("test://picture", "image/png", ResourceContents::Blob("iVBORw0KGgo=".into()));
            assert_eq!(read("test://picture").await, [picture]);
            let missing = server.read_resource_with("test://nothing", &cx()).await.expect_err("a refusal");
            assert!(matches!(missing, CallError::Refused { .. }), "{missing:?}");
        })
        .await;
    });
}

#[test]
fn prompts_are_listed_and_fetched() {
    scene(|_| async {
        in_both_eras(Script::default(), async |scripted, server| {
            let listed = json!(server.list_prompts().await.expect("prompts"));
            let expected = json!([
                {"name": "greet", "description": "Greets a person",
                    "arguments": [{"name": "name", "description": "Who", "required": true}]},
                {"name": "plain"},
            ]);
            assert_eq!(listed, expected);
            let greet = server.get_prompt_with("greet", arguments(json!({"name": 7, "mood": null})), &cx()).await;
            let expected = json!({"description": "greet", "messages": [
                {"role": "user", "content": {"type": "text", "text": "Please greet 7."}}]});
            let mut got = json!(greet.expect("a prompt"));
            // The modern era adds the server info to every result.
            got.as_object_mut().expect("an object").remove("_meta");
            assert_eq!(got, expected);
            assert_eq!(scripted.received_of("prompts/get")[0]["params"]["arguments"], json!({"name": "7"}));
            server.get_prompt_with("plain", Arguments::new(), &cx()).await.expect("a prompt");
            assert_eq!(scripted.received_of("prompts/get")[1]["params"].get("arguments"), None);
            let missing = server.get_prompt_with("greet", Arguments::new(), &cx()).await.expect_err("a refusal");
            assert!(chain(&missing).ends_with("an argument is missing"), "{}", chain(&missing));
        })
        .await;
    });
}

#[test]
fn an_argument_is_completed() {
    scene(|_| async {
        in_both_eras(Script::default(), async |scripted, server| {
            let completion = server.complete_prompt("greet", "name", "al", Arguments::new(), &cx()).await;
            assert_eq!(json!(completion.expect("a completion")), json!({"values": ["alice", "albert"], "total": 2, "hasMore": false}));
            let context = arguments(json!({"a": 1}));
            let other = server.complete_resource("test://{a}/{name}", "name", "", context, &cx()).await;
            other.expect("a completion");
            let sent: Vec<Value> = scripted.received_of("completion/complete").into_iter().map(|mut request| {
                let mut params = request["params"].take();
                params.as_object_mut().expect("an object").remove("_meta");
                params
            }).collect();
            let expected = [
                json!({"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "al"}}),
                json!({"ref": {"type": "ref/resource", "uri": "test://{a}/{name}"}, "argument": {"name": "name", "value": ""},
                    "context": {"arguments": {"a": "1"}}}),
            ];
            assert_eq!(sent, expected);
        })
        .await;
        let (_scripted, server) =
            in_process(Script::default().fault(FaultTrigger::method("completion/complete"), error(-32601, "what?")))
                .await;
        let nothing = server.complete_prompt("greet", "name", "a", Arguments::new(), &cx()).await;
        assert_eq!(nothing.expect("no completion"), Completion::default());
        server.close().await;
    });
}

#[test]
fn all_lists_are_fetched_page_by_page() {
    scene(|_| async {
        let (scripted, server) = in_process(Script { page_size: Some(1), ..Script::default() }).await;
        assert_eq!(uris(&server).await, ["test://hello", "test://picture", "test://counter"]);
        assert_eq!(scripted.received_of("resources/list").len(), 3);
        assert_eq!(server.list_prompts().await.expect("prompts").len(), 2);
        assert_eq!(scripted.received_of("prompts/list").len(), 2);
        server.close().await;

        let script = Script { page_size: Some(1), paging: PagingStyle::Repeated, ..Script::default() };
        let (_scripted, server) = in_process(script).await;
        let mut events = server.events();
        assert_eq!(uris(&server).await.len(), 2);
        assert_eq!(warnings(&mut events), ["truncated the resource list: it repeats the cursor `page-1`"]);
        server.close().await;

        let lost = error(-32000, "lost my place");
        let script = Script { page_size: Some(1), ..Script::default() };
        let (_scripted, server) = in_process(script.fault(FaultTrigger::method("resources/list").nth(2), lost)).await;
        let mut events = server.events();
        assert_eq!(uris(&server).await, ["test://hello"]);
        let expected =
            "could not fetch page 2 of the resource list: server `peer` returned error -32000: lost my place";
        assert_eq!(warnings(&mut events), [expected]);
        assert_eq!(uris(&server).await.len(), 3);
        server.close().await;
    });
}

#[test]
fn an_invalid_entry_does_not_affect_the_others() {
    scene(|_| async {
        let resources = json!({"resources": [3, {"name": "nowhere"}, {"uri": "a:b", "size": "much", "x": 1}]});
        let contents = json!({"contents": [{"text": "t"}, {"uri": "a:c"}, 3, {"uri": "a:d", "blob": "AAAA"}]});
        let prompts = json!({"prompts": [null, {"name": "p", "arguments": [{}]}]});
        let script = Script::default()
            .fault(FaultTrigger::method("resources/list"), Fault::Result(resources))
            .fault(FaultTrigger::method("resources/read"), Fault::Result(contents))
            .fault(FaultTrigger::method("prompts/list"), Fault::Result(prompts));
        let (_scripted, server) = in_process(script).await;
        let mut events = server.events();
        let listed = json!(server.list_resources().await.expect("resources"));
        assert_eq!(listed, json!([{"uri": "a:b", "name": "a:b", "size": "much", "x": 1}]));
        let read = server.read_resource_with("a:b", &cx()).await.expect("contents");
        let read: Vec<_> = read.into_iter().map(|resource| (resource.uri, resource.contents)).collect();
        let text = ("a:b".to_owned(), ResourceContents::Text("t".into()));
        assert_eq!(read, [text, ("a:d".to_owned(), ResourceContents::Blob("AAAA".into()))]);
        assert_eq!(json!(server.list_prompts().await.expect("prompts")), json!([{"name": "p"}]));
        let expected = [
            "the resource list contains a resource that is not an object: 3",
            "the resource list contains a resource without a uri: null",
            "skipped content of `a:b` that is neither text nor a blob: {\"uri\":\"a:c\"}",
            "skipped content of `a:b` that is neither text nor a blob: 3",
            "the prompt list contains a prompt that is not an object: null",
            "prompt `p` has a prompt argument without a name: null",
        ];
        assert_eq!(warnings(&mut events), expected);
        server.close().await;
    });
}

#[test]
fn a_server_without_the_methods_has_empty_lists() {
    scene(|_| async {
        let unknown = || error(-32601, "what?");
        let script = Script::default()
            .fault(FaultTrigger::method("resources/list"), unknown())
            .fault(FaultTrigger::method("resources/templates/list"), unknown())
            .fault(FaultTrigger::method("prompts/list"), unknown());
        in_both_eras(script, async |_, server| {
            assert_eq!(server.list_resources().await.expect("a list"), []);
            assert_eq!(server.list_resource_templates().await.expect("a list"), []);
            assert_eq!(server.list_prompts().await.expect("a list"), []);
        })
        .await;
    });
}

#[test]
fn a_server_without_the_capability_is_not_asked() {
    scene(|_| async {
        let none = Fault::set("/result/capabilities", json!({"tools": {}}));
        let silent = Script { unknown_methods: UnknownMethods::Silence, ..Script::legacy() };
        let scripted = ScriptedServer::new(silent.fault(FaultTrigger::method("initialize"), none));
        let server = connect(in_era(EraChoice::Legacy, scripted.in_process())).await;
        assert_eq!(server.list_resources().await.expect("a list"), []);
        assert_eq!(server.list_resource_templates().await.expect("a list"), []);
        assert_eq!(server.list_prompts().await.expect("a list"), []);
        assert_eq!(scripted.received_of("resources/list"), [Value::Null; 0]);
        server.close().await;
        // A server without any capabilities is asked.
        let scripted = ScriptedServer::new(
            Script::legacy().fault(FaultTrigger::method("initialize"), Fault::remove("/result/capabilities")),
        );
        let server = connect(in_era(EraChoice::Legacy, scripted.in_process())).await;
        assert_eq!(uris(&server).await.len(), 3);
        server.close().await;
    });
}

#[test]
fn a_failed_first_page_of_any_list_is_an_error() {
    scene(|_| async {
        let failing = error(-32000, "not today");
        let (_scripted, server) =
            in_process(Script::default().fault(FaultTrigger::method("prompts/list"), failing)).await;
        let error = server.list_prompts().await.expect_err("no list");
        assert_eq!(chain(&error), "server `peer` returned error -32000: not today");
        server.close().await;
    });
}

#[test]
fn a_ping_is_answered_in_both_eras() {
    scene(|_| async {
        in_both_eras(Script::default(), async |scripted, server| {
            server.ping().await.expect("an answer");
            let asked = [scripted.received_of("ping").len(), scripted.received_of("server/discover").len()];
            let modern = server.server_info().is_some_and(|info| info.era == ropeway::mcp::Era::Modern);
            assert_eq!(asked, if modern { [0, 2] } else { [1, 0] });
        })
        .await;
    });
}

#[test]
fn a_rejected_ping_means_alive_and_a_lost_server_does_not() {
    scene(|_| async {
        let script = Script::legacy().fault(FaultTrigger::method("ping"), error(-32601, "what?"));
        let (_scripted, server) = in_process(script).await;
        server.ping().await.expect("it is alive");
        still_works(&server).await;
        server.close().await;
        let refused = server.ping().await.expect_err("nobody is there");
        assert!(matches!(refused, CallError::NotConnected { .. }), "{refused:?}");

        let mut config = fast_config(
            ScriptedServer::new(Script::legacy().fault(FaultTrigger::method("ping"), Fault::Hang)).in_process(),
        );
        config.timeouts.idle = crate::fast_config::ms(50);
        let server = connect(config).await;
        let silent = server.ping().await.expect_err("no answer");
        assert!(matches!(silent, CallError::Timeout { .. }), "{silent:?}");
        server.close().await;
    });
}
