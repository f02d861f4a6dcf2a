//! The API at the root of the crate: calls by name, arguments, settings and errors.

use std::time::Duration;

use ropeway::config::{ReconnectPolicy, ServerEntry, ServerTimeouts, StartMode, Transport};
use ropeway::prelude::*;
use ropeway::testing::{Script, ScriptedServer};
use ropeway::tool::{BoxError, CallError, Origin};
use serde_json::json;

use crate::fast_config::fast_config;
use crate::scene::scene;

#[derive(serde::Serialize)]
struct Echo<'a> {
    message: &'a str,
}

fn server(alias: &str) -> ServerConfig {
    let mut config = fast_config(ScriptedServer::new(Script::default()).in_process());
    config.alias = alias.into();
    config
}

#[test]
fn a_bridge_calls_tools_by_exposed_and_by_qualified_name() {
    scene(|_| async {
        let bridge = Bridge::new(Config::new([server("a"), server("b")])).expect("a bridge");
        bridge.start().await.expect("a start");
        for name in ["mcp_b_echo", "b.echo"] {
            let envelope = bridge.call(name, json!({"message": "hi"})).await;
            assert_eq!(envelope.to_string(), "hi", "{name}");
            assert!(matches!(&envelope.origin, Origin::Server { server, .. } if server.as_str() == "b"), "{name}");
        }
        for unknown in ["echo", "c.echo", "b.", ".echo", "b.echo.more"] {
            let error = bridge.call(unknown, ()).await.error.expect("an error");
            assert!(matches!(&*error, CallError::UnknownTool { .. }), "{unknown}: {error}");
        }
        assert!(bridge.server("a").is_some() && bridge.server("c").is_none());
        // A model calls by exposed names only.
        for (name, is_error) in [("mcp_b_echo", false), ("b.echo", true)] {
            let arguments = ropeway::tool::Arguments::from_iter([("message".to_owned(), json!("hi"))]);
            let call = ropeway::message::ToolCall::new("1", name, arguments);
            assert_eq!(bridge.registry().answer(&call, &CallContext::default()).await.is_error, is_error, "{name}");
        }
        bridge.stop().await;
    });
}

#[test]
fn a_name_that_means_tools_of_two_servers_is_called_at_neither() {
    scene(|_| async {
        let with_tool = |alias: &str, tool: &str| {
            let result = json!({"content": [{"type": "text", "text": alias}]});
            let script = Script { builtin_tools: false, ..Script::default() };
            let script = script.tool(json!({"name": tool, "inputSchema": {"type": "object"}}), result);
            let mut config = fast_config(ScriptedServer::new(script).in_process());
            config.alias = alias.into();
            ServerEntry::new(config).with_prefix(format!("{tool}_"))
        };
        let config = Config::default().with_server(with_tool("a", "b.c")).with_server(with_tool("a.b", "c"));
        let bridge = Bridge::new(config).expect("a bridge");
        bridge.start().await.expect("a start");
        assert_eq!(bridge.registry().len(), 2);
        let error = bridge.call("a.b.c", ()).await.error.expect("an error");
        assert!(matches!(&*error, CallError::UnknownTool { .. }), "{error}");
        bridge.stop().await;
    });
}

#[test]
fn arguments_are_any_value_that_serializes_to_an_object() {
    scene(|_| async {
        let server = Mcp::new(server("a"));
        server.connect().await.expect("a connection");
        let map = ropeway::tool::Arguments::from_iter([("message".to_owned(), json!("hi"))]);
        assert_eq!(server.call("echo", map).await.to_string(), "hi");
        assert_eq!(server.call("echo", &Echo { message: "hi" }).await.to_string(), "hi");
        let error = server.call_tool("echo", json!(["hi"])).await.expect_err("a list");
        let words = "invalid arguments for tool `echo`: expected a JSON object, found an array";
        assert_eq!(error.to_string(), words);
        assert_eq!(server.call("echo", json!("hi")).await.error.expect("an error").kind(), "invalid_arguments");
        server.close().await;
    });
}

#[test]
fn an_sse_server_keeps_its_headers_and_token() {
    let server = HttpServer::sse("http://127.0.0.1/sse").with_bearer("token").with_header("X-Team", "blue");
    let Transport::Sse(server) = Transport::from(server) else { panic!("another transport") };
    assert_eq!((server.headers.len(), server.bearer.is_some()), (1, true));
    assert_eq!(server, HttpServer::new("http://127.0.0.1/sse").with_bearer("token").with_header("X-Team", "blue"));
    assert!(matches!(Transport::from(HttpServer::new("http://127.0.0.1/")), Transport::Http(_)));
}

#[test]
fn settings_are_built_without_naming_every_field() {
    let second = Duration::from_secs(1);
    let command = StdioServer::command("server").with_args(["--fast"]).with_args(["x"]).with_cwd(Some("/srv".into()));
    assert_eq!((&command.args[..], command.cwd.is_some()), (&["--fast".to_owned(), "x".to_owned()][..], true));
    let config = ServerConfig::new("a", command)
        .with_timeouts(ServerTimeouts::default().with_connect(second).with_idle(second))
        .with_reconnect(ReconnectPolicy::default().with_enabled(false));
    assert_eq!((config.timeouts.connect, config.timeouts.idle), (second, second));
    let entry = ServerEntry::new(config).with_start(StartMode::Lazy).with_required(true).with_prefix("fs_");
    assert!(entry.required && entry.start == StartMode::Lazy && entry.prefix == "fs_");
}

#[test]
fn a_connection_needs_only_a_command_or_a_url() {
    let files = Mcp::stdio("npx", ["-y", "@modelcontextprotocol/server-filesystem"]);
    let design = Mcp::http(HttpServer::new("https://mcp.figma.com/mcp").with_header("X-Team", "blue"));
    assert_eq!((files.alias().as_str(), design.alias().as_str()), ("filesystem", "figma"));
    let servers = [AgentServer::from(StdioServer::new("uvx", ["mcp-server-time"])), AgentServer::from(files)];
    assert_eq!(servers.map(|server| server.alias().to_string()), ["time", "filesystem"]);
}

#[test]
fn a_connection_under_another_alias_keeps_its_settings_and_events() {
    scene(|_| async {
        let server = Mcp::new(server("a"));
        let mut events = server.events();
        let server = server.with_alias("b");
        server.connect().await.expect("a connection");
        assert_eq!(server.call("echo", json!({"message": "hi"})).await.to_string(), "hi");
        let ready = crate::fast_config::event(&mut events, |event| match event {
            ropeway::Event::Ready { server, .. } => Some(server.to_string()),
            _ => None,
        });
        assert_eq!(ready.await, "b");
        server.close().await;
    });
}

#[tokio::test]
async fn an_envelope_prints_its_data() {
    let mut tools = Registry::default();
    let tool = |name: &str, output: fn() -> ToolOutput| {
        LocalTool::new(ToolDefinition::new(name), move |_, _| async move { Ok::<_, BoxError>(output()) })
    };
    tools.register(tool("text", || "two\nlines".into()));
    tools.register(tool("json", || ToolOutput::structured(json!({"sum": 3}))));
    tools.register(tool("parts", || {
        vec![ContentPart::text("see:"), ContentPart::Image(Blob::new("image/png", b"123"))].into()
    }));
    assert_eq!(tools.call("text", ()).await.to_string(), "two\nlines");
    assert_eq!(tools.call("json", ()).await.to_string(), r#"{"sum":3}"#);
    assert_eq!(tools.call("parts", ()).await.to_string(), "see:\n[image/png, 4 bytes of base64]");
    assert_eq!(tools.call("none", ()).await.error.expect("an error").to_string(), "unknown tool `none`");
}

#[test]
fn a_missing_or_invalid_file_is_an_error_of_the_crate() {
    let missing = |path: &str| -> Result<Bridge, ropeway::Error> { Ok(Bridge::from_file(path)?) };
    let error = missing("/no/such/ropeway.yaml").expect_err("no file");
    assert!(
        matches!(error, ropeway::Error::Bridge(_)) && error.to_string().contains("/no/such/ropeway.yaml"),
        "{error}"
    );
}
