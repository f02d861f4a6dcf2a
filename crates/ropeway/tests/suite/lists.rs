//! Tool lists: pagination, caching, refreshing and invalid entries.

use ropeway::config::EraChoice;
use ropeway::event::Event;
use ropeway::testing::{Fault, FaultTrigger, Script, ScriptedServer};
use ropeway::tool::CallContext;
use ropeway_testing::{ExtraTool, PagingStyle, unusual};
use serde_json::json;

use crate::fast_config::{
    arguments, call, chain, connect, event, fast_config, in_era, in_process, ms, names, still_works, text, until,
    warnings,
};
use crate::scene::scene;

const BOTH: [EraChoice; 2] = [EraChoice::Legacy, EraChoice::Modern];

fn lists(scripted: &ScriptedServer) -> usize {
    scripted.received_of("tools/list").len()
}

#[test]
fn all_pages_are_fetched() {
    scene(|_| async {
        let (_scripted, whole) = in_process(Script::default()).await;
        let all = names(&whole).await;
        whole.close().await;
        let (scripted, server) = in_process(Script { page_size: Some(3), ..Script::default() }).await;
        assert_eq!(names(&server).await, all);
        assert_eq!(lists(&scripted), 6);
        server.close().await;
    });
}

#[test]
fn a_numeric_cursor_is_sent_back_as_a_string() {
    scene(|_| async {
        let next = Fault::set("/result/nextCursor", 7);
        let (scripted, server) =
            in_process(Script::default().fault(FaultTrigger::method("tools/list").nth(1), next)).await;
        // The scripted server rejects the cursor, so only the second page is missing.
        assert_eq!(names(&server).await.len(), 16);
        assert_eq!(scripted.received_of("tools/list")[1]["params"]["cursor"], "7");
        server.close().await;
    });
}

#[test]
fn an_endless_list_is_truncated_with_a_warning() {
    scene(|_| async {
        let scripted =
            ScriptedServer::new(Script { page_size: Some(2), paging: PagingStyle::Endless, ..Script::default() });
        let mut config = fast_config(scripted.in_process());
        config.limits.pages = 20;
        let server = connect(config).await;
        let mut events = server.events();
        assert_eq!(names(&server).await, ["echo", "add"]);
        assert_eq!(lists(&scripted), 20);
        let warnings = warnings(&mut events);
        assert!(warnings.iter().any(|it| it.contains("more than 20 pages")), "{warnings:?}");
        server.close().await;
    });
}

#[test]
fn a_repeated_cursor_ends_the_list_with_a_warning() {
    scene(|_| async {
        let script = Script { page_size: Some(2), paging: PagingStyle::Repeated, ..Script::default() };
        let (scripted, server) = in_process(script).await;
        let mut events = server.events();
        assert_eq!(names(&server).await, ["echo", "add"]);
        assert_eq!(lists(&scripted), 2);
        let warnings = warnings(&mut events);
        assert!(warnings.iter().any(|it| it.contains("repeats the cursor `page-1`")), "{warnings:?}");
        server.close().await;
    });
}

#[test]
fn a_failed_page_does_not_affect_the_previous_ones() {
    scene(|_| async {
        let failing = Fault::Error(json!({"code": -32000, "message": "lost my place"}));
        let script = Script { page_size: Some(4), ..Script::default() };
        let (_scripted, server) = in_process(script.fault(FaultTrigger::method("tools/list").nth(3), failing)).await;
        let mut events = server.events();
        assert_eq!(names(&server).await.len(), 8);
        let warnings = warnings(&mut events);
        assert!(warnings.iter().any(|it| it.contains("page 3") && it.contains("lost my place")), "{warnings:?}");
        server.close().await;
    });
}

#[test]
fn a_failed_first_page_is_an_error() {
    scene(|_| async {
        let failing = Fault::Error(json!({"code": -32000, "message": "no tools today"}));
        let (_scripted, server) =
            in_process(Script::default().fault(FaultTrigger::method("tools/list").nth(1), failing)).await;
        let error = server.list_tool_definitions().await.expect_err("no list");
        assert_eq!(chain(&error), "server `peer` returned error -32000: no tools today");
        assert_eq!(names(&server).await.len(), 16);
        server.close().await;
    });
}

#[test]
fn a_server_without_the_method_has_no_tools() {
    scene(|_| async {
        let unknown = Fault::Error(json!({"code": -32601, "message": "what?"}));
        let (_scripted, server) =
            in_process(Script::default().fault(FaultTrigger::method("tools/list"), unknown)).await;
        assert_eq!(names(&server).await, Vec::<String>::new());
        server.close().await;
    });
}

#[test]
fn a_tool_with_invalid_fields_can_be_called() {
    scene(|_| async {
        for era in BOTH {
            let scripted = ScriptedServer::new(Script { extra_tools: unusual::tools(), ..Script::default() });
            let server = connect(in_era(era, scripted.in_process())).await;
            let tools = server.list_tool_definitions().await.expect("tools");
            assert_eq!(tools.len(), 16 + unusual::tools().len());
            for ExtraTool { definition, .. } in unusual::tools() {
                let name = definition["name"].as_str().expect("a name");
                let tool = tools.iter().find(|tool| tool.name == name).unwrap_or_else(|| panic!("no `{name}`"));
                assert!(tool.input_schema.is_object(), "{name}");
                assert_eq!(text(&server, name, json!({})).await, "fine", "{name}");
            }
            let vendor = tools.iter().find(|tool| tool.name == "unknown_fields").expect("a tool");
            assert_eq!(vendor.extra["x-vendor"], json!({"kept": true}));
            server.close().await;
        }
    });
}

#[test]
fn an_invalid_tool_is_skipped_with_a_warning() {
    scene(|_| async {
        let (_scripted, server) = in_process(Script { extra_tools: unusual::not_tools(), ..Script::default() }).await;
        let mut events = server.events();
        assert_eq!(names(&server).await.len(), 16);
        let warnings = warnings(&mut events);
        assert_eq!(warnings.len(), unusual::not_tools().len(), "{warnings:?}");
        server.close().await;
    });
}

#[test]
fn a_duplicate_name_is_one_tool_with_a_warning() {
    scene(|_| async {
        let later = json!({"name": "echo", "description": "another", "inputSchema": {"type": "object"}});
        let (_scripted, server) = in_process(Script::default().tool(later, json!({"content": []}))).await;
        let mut events = server.events();
        let tools = server.list_tool_definitions().await.expect("tools");
        assert_eq!((tools.len(), tools[0].description.as_deref()), (16, Some("another")));
        let warnings = warnings(&mut events);
        assert!(warnings.iter().any(|it| it.contains("`echo` twice")), "{warnings:?}");
        server.close().await;
    });
}

#[test]
fn invalid_fields_of_a_list_are_ignored() {
    scene(|_| async {
        for rule in unusual::lists() {
            for era in BOTH {
                let scripted = ScriptedServer::new(Script { faults: vec![rule.clone()], ..Script::default() });
                let server = connect(in_era(era, scripted.in_process())).await;
                assert_eq!(names(&server).await.len(), 16, "{rule:?}");
                server.close().await;
            }
        }
        for result in [json!({}), json!({"tools": null}), json!({"tools": {"a": 1}}), json!({"tools": []})] {
            let fault = Fault::Result(result.clone());
            let (_scripted, server) =
                in_process(Script::default().fault(FaultTrigger::method("tools/list"), fault)).await;
            assert_eq!(names(&server).await, Vec::<String>::new(), "{result}");
            still_works(&server).await;
            server.close().await;
        }
    });
}

#[test]
fn a_list_is_cached_until_it_changes_or_is_refreshed() {
    scene(|_| async {
        let (scripted, server) = in_process(Script::legacy()).await;
        for _ in 0..3 {
            names(&server).await;
            server.list_tools().await.expect("tools");
        }
        assert_eq!(lists(&scripted), 1);
        let tools = server.refresh_tools().await.expect("a list");
        assert!(tools.iter().any(|tool| tool.definition().name == "echo"));
        assert_eq!(lists(&scripted), 2);
        let mut events = server.events();
        assert_eq!(text(&server, "grow", json!({"name": "grown"})).await, "grown");
        event(&mut events, |event| matches!(event, Event::ToolsChanged { .. }).then_some(())).await;
        assert!(names(&server).await.contains(&"grown".to_owned()));
        assert_eq!(text(&server, "grown", json!({})).await, "grown");
        // An unchanged list causes no event.
        scripted.changed("tools");
        until("the list", || lists(&scripted) >= 4).await;
        tokio::time::sleep(ms(100)).await;
        while let Some(event) = events.try_next() {
            assert!(!matches!(event, Event::ToolsChanged { .. }), "{event:?}");
        }
        server.close().await;
    });
}

#[test]
fn changes_are_reported_in_the_modern_era() {
    scene(|_| async {
        let (scripted, server) = in_process(Script::modern()).await;
        names(&server).await;
        scripted.wait_for("subscriptions/listen", 1).await;
        let mut events = server.events();
        assert_eq!(text(&server, "grow", json!({"name": "grown"})).await, "grown");
        event(&mut events, |event| matches!(event, Event::ToolsChanged { .. }).then_some(())).await;
        assert!(names(&server).await.contains(&"grown".to_owned()));
        server.close().await;
    });
}

#[test]
fn a_list_is_cached_for_its_ttl() {
    scene(|_| async {
        let (scripted, server) = in_process(Script { ttl_ms: 1000, ..Script::modern() }).await;
        names(&server).await;
        names(&server).await;
        assert_eq!(lists(&scripted), 1);
        tokio::time::sleep(ms(1100)).await;
        scripted.set(|script| {
            script.extra_tools.push(ExtraTool::new(json!({"name": "new"}), json!({"content": []})));
        });
        assert!(names(&server).await.contains(&"new".to_owned()));
        assert_eq!(lists(&scripted), 2);
        server.close().await;
    });
}

#[test]
fn a_prefix_is_added_to_names_but_not_sent() {
    scene(|_| async {
        let (scripted, server) = in_process(Script::default()).await;
        let tools = server.list_tools_with_prefix("peer").await.expect("tools");
        assert!(tools.iter().all(|tool| tool.definition().name.starts_with("peer_")));
        let output = tools[0].call(arguments(json!({"message": "hi"})), &CallContext::default()).await;
        assert_eq!(output.expect("an answer").plain_text().as_deref(), Some("hi"));
        assert_eq!(scripted.received_of("tools/call")[0]["params"]["name"], "echo");
        assert_eq!(server.list_tools_with_prefix("").await.expect("tools")[0].definition().name, "echo");
        let definitions = server.list_tool_definitions_with_prefix("peer").await.expect("tools");
        assert_eq!((definitions[0].name.as_str(), definitions[0].own_name()), ("peer_echo", "echo"));
        assert_eq!(definitions.len(), tools.len());
        server.close().await;
    });
}

#[test]
fn other_requests_take_and_return_plain_json() {
    scene(|_| async {
        for era in BOTH {
            let scripted = ScriptedServer::new(Script::default());
            let server = connect(in_era(era, scripted.in_process())).await;
            let cx = CallContext::default();
            let ask = async |method: &str, params| server.request(method, arguments(params), &cx).await;
            let read = ask("resources/read", json!({"uri": "test://hello"})).await.expect("a resource");
            assert_eq!(read["contents"][0]["text"], "hello");
            let prompt = ask("prompts/get", json!({"name": "greet", "arguments": {"name": "Ada"}})).await;
            assert_eq!(prompt.expect("a prompt")["messages"][0]["content"]["text"], "Please greet Ada.");
            let missing = ask("resources/read", json!({"uri": "test://nothing"})).await.expect_err("a refusal");
            assert!(chain(&missing).ends_with("resource not found"), "{}", chain(&missing));
            let unknown = ask("no/such", json!({})).await.expect_err("a refusal");
            assert_eq!(chain(&unknown), "server `peer` returned error -32601: unknown method `no/such`");
            assert!(call(&server, "echo", json!({"message": "hi"})).await.is_ok());
            server.close().await;
        }
    });
}
