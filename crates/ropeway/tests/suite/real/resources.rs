//! Resources and prompts of real servers.

use ropeway::config::Transport;
use ropeway::content::{ResourceContents, decode_base64};
use ropeway::mcp::Mcp;
use ropeway::tool::{Arguments, CallContext};
use serde_json::json;

use crate::fast_config::{arguments, chain, connect, fast_config, ms};
use crate::scene::scene;

async fn read(server: &Mcp, uri: &str) -> ResourceContents {
    let resources = server.read_resource_with(uri, &CallContext::default()).await;
    let mut resources = resources.unwrap_or_else(|error| panic!("`{uri}`: {}", chain(&error)));
    assert_eq!(resources.iter().map(|resource| resource.uri.as_str()).collect::<Vec<_>>(), [uri]);
    resources.remove(0).contents
}

async fn resources(transport: impl Into<Transport>) {
    let server = connect(fast_config(transport)).await;
    let resources = server.list_resources().await.expect("resources");
    let features = resources.iter().find(|resource| resource.uri.ends_with("/features.md")).expect("a resource");
    assert_eq!((features.name.as_str(), features.mime_type.as_deref()), ("features.md", Some("text/markdown")));
    let ResourceContents::Text(text) = read(&server, &features.uri).await else { panic!("a text") };
    assert!(text.starts_with("# Everything Server"), "{text}");

    let templates = server.list_resource_templates().await.expect("templates");
    let mut templates: Vec<_> = templates.into_iter().map(|template| template.uri_template).collect();
    templates.sort();
    let expected = ["demo://resource/dynamic/blob/{resourceId}", "demo://resource/dynamic/text/{resourceId}"];
    assert_eq!(templates, expected);
    let ResourceContents::Blob(blob) = read(&server, "demo://resource/dynamic/blob/3").await else { panic!("a blob") };
    let bytes = decode_base64(&blob).expect("base64");
    assert!(bytes.starts_with(b"Resource 3: This is a base64 blob"), "{bytes:?}");
    assert!(server.read_resource_with("demo://nothing", &CallContext::default()).await.is_err());
    assert!(server.ping().await.expect("an answer") < ms(5000));
    server.close().await;
}

#[test]
fn resources_of_everything_are_listed_and_read() {
    scene(|scene| async move { resources(scene.server("everything")).await });
}

#[test]
fn resources_of_everything_are_listed_and_read_over_http() {
    scene(|scene| async move { resources(scene.http_server("everything-http").await.http()).await });
}

#[test]
fn prompts_of_everything_are_listed_fetched_and_completed() {
    scene(|scene| async move {
        let server = connect(fast_config(scene.server("everything"))).await;
        let cx = CallContext::default();
        let prompts = server.list_prompts().await.expect("prompts");
        let names: Vec<_> = prompts.iter().map(|prompt| prompt.name.as_str()).collect();
        assert_eq!(names, ["simple-prompt", "args-prompt", "completable-prompt", "resource-prompt"]);
        let required: Vec<_> = prompts[1].arguments.iter().map(|it| (it.name.as_str(), it.required)).collect();
        assert_eq!(required, [("city", true), ("state", false)]);

        let weather = server.get_prompt_with("args-prompt", arguments(json!({"city": "Paris"})), &cx).await;
        let text = json!({"type": "text", "text": "What's weather in Paris?"});
        assert_eq!(json!(weather.expect("a prompt")), json!({"messages": [{"role": "user", "content": text}]}));
        let with = arguments(json!({"resourceType": "Text", "resourceId": 1}));
        let resource = json!(server.get_prompt_with("resource-prompt", with, &cx).await.expect("a prompt"));
        assert_eq!(resource["messages"][1]["content"]["resource"]["uri"], "demo://resource/dynamic/text/1");

        let prompt = "completable-prompt";
        let department = server.complete_prompt(prompt, "department", "E", Arguments::new(), &cx).await;
        assert_eq!(department.expect("a completion").values, ["Engineering"]);
        let context = arguments(json!({"department": "Engineering"}));
        let people = server.complete_prompt(prompt, "name", "", context, &cx).await.expect("a completion");
        assert!(!people.values.is_empty());
        server.close().await;
    });
}

#[test]
fn a_server_that_has_only_tools_has_no_resources_and_no_prompts() {
    scene(|scene| async move {
        let server = connect(fast_config(scene.server("time"))).await;
        assert_eq!(server.list_resources().await.expect("a list"), []);
        assert_eq!(server.list_prompts().await.expect("a list"), []);
        server.ping().await.expect("an answer");
        server.close().await;
    });
}
