//! Secrets are redacted everywhere except in the result of a tool.

use std::error::Error;

use ropeway::config::{HttpServer, Secret, ServerConfig};
use ropeway::event::{EventStream, Events};
use ropeway::mcp::{Handlers, Mcp};
use ropeway::secret::Redactor;
use ropeway::testing::{Fault, FaultTrigger, Script, ScriptedServer};
use ropeway::tool::{CallContext, CallError, Progress};
use ropeway_testing::{HttpFault, StdoutNoise};
use serde_json::{Value, json};

use crate::fast_config::{arguments, at, call, chain, child, fast_config, listening, state};
use crate::log::{Log, logged};
use crate::scene::scene;

/// A word in all secrets, so that one search finds every one of them in any encoding.
const MARK: &str = "S3CRET";

const URL: &str = "u/S3CRET é";
const URL_ENCODED: &str = "u%2FS3CRET%20%C3%A9";
const HEADER: &str = "S3CRET \"header\\";
const BEARER: &str = "S3CRET-bearer";
const ENV: &str = "S3CRET-env\n\"S3CRET\\ é";
const ARGUMENT: &str = "S3CRET 'argument' \u{1F511}";
const PASSWORD: &str = "S3CRET%pass";

fn all() -> Vec<&'static str> {
    vec![URL, URL_ENCODED, HEADER, BEARER, ENV, ARGUMENT, PASSWORD]
}

/// Returns the secrets in a text.
fn words() -> String {
    all().join(" and ")
}

/// Returns the secrets in a JSON value: in strings, in nested JSON text and in keys.
fn tree() -> Value {
    let keys: Value = all().into_iter().map(|secret| (secret.to_owned(), json!([secret]))).collect();
    json!({"text": words(), "json": keys.to_string(), "debug": format!("{:?}", all()), "keys": keys})
}

fn error() -> Fault {
    Fault::Error(json!({"code": -32000, "message": words(), "data": tree()}))
}

fn notification(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

/// A server that repeats its secrets in every message.
fn talkative() -> Script {
    let text = json!({"type": "text", "text": words()});
    let told = json!({"content": [text], "structuredContent": tree(), "isError": true});
    let odd = json!([words(), "x".repeat(60) + &words(), {"name": "odd", "inputSchema": {}, "x": words()}]);
    Script::default()
        .tool(json!({"name": "tell"}), told)
        .fault(FaultTrigger::tool("refuse"), error())
        .fault(FaultTrigger::tool("echo"), Fault::Result(json!(words())))
        .fault(FaultTrigger::tool("roots"), Fault::Result(json!({"resultType": words(), "content": []})))
        .fault(FaultTrigger::tool("fail"), Fault::idless_error(-32000, words()))
        .fault(FaultTrigger::method("tools/list"), Fault::set("/result/tools", odd))
        .fault(FaultTrigger::method("prompts/list"), Fault::Result(json!({"prompts": [words(), {"name": words()}]})))
        .fault(FaultTrigger::method("resources/read"), Fault::Result(json!({"contents": [{"uri": words()}, words()]})))
        .fault(
            FaultTrigger::tool("log"),
            Fault::Before(vec![
                notification("notifications/message", json!({"level": words(), "logger": words(), "data": tree()})),
                notification("notifications/resources/updated", json!({"uri": words()})),
                notification(&words(), tree()),
                json!({"jsonrpc": "2.0", "id": "r", "method": words(), "params": tree()}),
            ]),
        )
}

/// All output that is checked for secrets.
#[derive(Default)]
struct Light {
    seen: Vec<String>,
}

impl Light {
    fn error(&mut self, error: &(dyn Error + 'static)) {
        self.seen.push(format!("{error} / {error:?} / {error:#?} / {}", chain(error)));
    }

    fn refused(&mut self, outcome: Result<ropeway::tool::ToolOutput, CallError>) {
        self.error(&outcome.expect_err("no answer"));
    }

    fn events(&mut self, events: &mut EventStream) {
        while let Some(event) = events.try_next() {
            self.seen.push(format!("{} {event:?}", serde_json::to_string(&event).expect("JSON")));
        }
    }

    fn server(&mut self, server: &Mcp) {
        self.seen.push(format!("{server:?} {server:#?} {:?}", server.stderr_tail()));
        self.seen.push(format!("{:?}", *server.state().borrow()));
    }

    fn log(&mut self, log: &Log) {
        self.seen.push(log.text());
    }

    /// Asserts that the output contains no secret, and at least one redaction.
    fn assert_clean(&self) {
        for seen in &self.seen {
            if let Some(at) = seen.find(MARK) {
                let start = seen.floor_char_boundary(at.saturating_sub(300));
                let end = seen.ceil_char_boundary(at + 100);
                panic!("a secret came to light: {}", &seen[start..end]);
            }
        }
        assert!(self.seen.iter().any(|seen| seen.contains("***")));
    }
}

fn mask(secrets: &[&str]) -> Redactor {
    let secrets: Vec<Secret> = secrets.iter().map(|secret| Secret::new(*secret)).collect();
    Redactor::new(&secrets)
}

/// Triggers every message that all transports share.
async fn converse(server: &Mcp, light: &mut Light) {
    let told = call(server, "tell", json!({})).await.expect("the tool's own result");
    assert_eq!((told.plain_text(), told.structured, told.is_error), (Some(words()), Some(tree()), true));
    for tool in ["refuse", "echo", "fail"] {
        light.refused(call(server, tool, json!({})).await);
    }
    // Only in the modern era.
    if let Err(error) = call(server, "roots", json!({})).await {
        light.error(&error);
    }
    let refused = server.request("no/such", arguments(json!({"a": words()})), &CallContext::default()).await;
    light.error(&refused.expect_err("a refusal"));
    call(server, "log", json!({})).await.expect("an answer");
    assert_eq!(server.list_tool_definitions().await.expect("tools").len(), 1);
    assert_eq!(server.list_prompts().await.expect("prompts").len(), 1);
    let read = server.read_resource_with("test://hello", &CallContext::default()).await;
    assert_eq!(read.expect("contents"), []);
    light.server(server);
}

fn connection(config: &ServerConfig, light: &mut Light) -> (Mcp, EventStream) {
    light.seen.push(format!("{config:?} {config:#?}"));
    let events = Events::default();
    let server = Mcp::with_host(config.clone(), Handlers::new(), events.clone());
    (server, events.subscribe())
}

#[test]
fn output_of_a_child_process_is_redacted() {
    scene(|scene| async move {
        let script = talkative()
            .fault(FaultTrigger::connect(), Fault::StderrLine(words()))
            .fault(FaultTrigger::tool("tell"), Fault::StderrLine("x".repeat(4090) + BEARER + " and more"))
            .fault(FaultTrigger::tool("tell"), StdoutNoise::Text(words()))
            .fault(FaultTrigger::tool("tell"), StdoutNoise::Text(format!("{{\"id\":1,{}", words())))
            .fault(FaultTrigger::tool("crash"), Fault::StderrLine(format!("the end: {}", words())));
        let mut transport = child(&scene, &script).with_env("API_TOKEN", ENV);
        transport.args.extend(["--api-key".to_owned(), ARGUMENT.to_owned()]);
        let mut config = fast_config(transport);
        config.redactor = mask(&[URL, HEADER, BEARER, PASSWORD]);
        config.reconnect.enabled = false;
        let mut light = Light::default();
        let told = logged(move |_| async move {
            let (server, mut events) = connection(&config, &mut light);
            server.connect().await.expect("a connection");
            converse(&server, &mut light).await;
            assert!(server.stderr_tail().iter().any(|line| line.contains("***")));
            light.refused(call(&server, "crash", json!({})).await);
            state(&server, |state| matches!(state, ropeway::mcp::ConnectionState::Down { .. })).await;
            light.refused(call(&server, "tell", json!({})).await);
            light.server(&server);
            server.close().await;
            light.events(&mut events);

            let missing = ropeway::config::StdioServer::new(format!("/nowhere/{BEARER}"), [ARGUMENT]);
            let mut config = fast_config(missing);
            config.redactor = mask(&[BEARER, ARGUMENT]);
            let (server, mut events) = connection(&config, &mut light);
            light.error(&server.connect().await.expect_err("no program"));
            server.close().await;
            light.events(&mut events);
            light.assert_clean();
        })
        .await;
        let mut light = Light::default();
        light.log(&told);
        light.assert_clean();
    });
}

fn status(status: u16, headers: &[(&str, &str)], body: &str) -> Fault {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    HttpFault::Status { status, headers, body: body.to_owned() }.into()
}

/// Returns settings for this address with a secret in every possible place.
fn told_all(url: &str) -> HttpServer {
    let url = format!("{url}?x=1&api_key={URL_ENCODED}").replace("//", "//ada:S3CRET%25pass@");
    at(url).with_header("X-Secret-Header", HEADER).with_bearer(BEARER)
}

#[test]
fn output_of_an_http_server_is_redacted() {
    scene(|_| async {
        let challenge = format!("Bearer realm=\"{BEARER}\", scope={URL_ENCODED}");
        let page = format!("<html><title>{}</title>{}</html>", HEADER.replace('"', "&quot;"), words());
        let script = talkative()
            .fault(FaultTrigger::tool("crash"), status(500, &[("Content-Type", "text/html")], &page))
            .fault(
                FaultTrigger::tool("sleep"),
                status(
                    400,
                    &[],
                    &json!({"jsonrpc": "2.0", "error": {"code": 1, "message": words(), "data": tree()}}).to_string(),
                ),
            )
            .fault(FaultTrigger::tool("add"), status(302, &[("Location", &format!("/x?a={URL_ENCODED}"))], ""))
            .fault(
                FaultTrigger::tool("touch"),
                status(200, &[("Content-Type", "text/plain")], &format!("{}{}", " ".repeat(180), words())),
            )
            .fault(FaultTrigger::tool("pid"), status(401, &[("WWW-Authenticate", &challenge)], &words()));
        let scripted = listening(script).await;
        let mut config = fast_config(told_all(&scripted.url()));
        config.redactor = mask(&[ENV, ARGUMENT]);
        let sse = at(scripted.sse_url() + "?token=" + URL_ENCODED);
        let told = logged(move |_| async move {
            let mut light = Light::default();
            let (server, mut events) = connection(&config, &mut light);
            server.connect().await.expect("a connection");
            converse(&server, &mut light).await;
            for tool in ["crash", "sleep", "add", "touch", "pid"] {
                light.refused(call(&server, tool, json!({})).await);
            }
            light.server(&server);
            server.close().await;
            light.events(&mut events);

            let mut config = fast_config(ropeway::config::Transport::Sse(sse));
            config.redactor = mask(&all());
            let (server, mut events) = connection(&config, &mut light);
            server.connect().await.expect("a connection");
            converse(&server, &mut light).await;
            server.close().await;
            light.events(&mut events);
            light.assert_clean();
        })
        .await;
        let mut light = Light::default();
        light.log(&told);
        light.assert_clean();
        // The server received the secrets.
        let request = scripted.requests().into_iter().next().expect("a request");
        assert!(format!("{request:?}").contains(BEARER), "{request:?}");
    });
}

#[test]
fn errors_of_a_failed_connection_are_redacted() {
    scene(|_| async {
        let refusals = [
            status(401, &[("WWW-Authenticate", &format!("Bearer realm=\"{BEARER}\""))], ""),
            status(403, &[("WWW-Authenticate", &format!("Bearer realm=\"{BEARER}\""))], ""),
            status(500, &[], &words()),
            status(404, &[], &words()),
            error(),
            Fault::Result(json!(words())),
        ];
        let mut servers = Vec::new();
        for refusal in refusals {
            servers.push(listening(Script::default().fault(FaultTrigger::any(), refusal)).await);
        }
        for (script, place, versions) in [
            (Script::legacy(), "/result/protocolVersion", json!(words())),
            (Script::modern(), "/result/supportedVersions", json!([words()])),
        ] {
            servers.push(listening(script.fault(FaultTrigger::any(), Fault::set(place, versions))).await);
        }
        let mut addresses: Vec<HttpServer> = servers.iter().map(|server| told_all(&server.url())).collect();
        addresses.push(told_all("ftp://127.0.0.1/"));
        addresses.push(told_all("http://127.0.0.1:1/mcp"));
        addresses.push(told_all("http://[::1"));
        addresses.push(at("http://127.0.0.1:1/".to_owned()).with_header("X-Token", "S3CRET\nline"));
        addresses
            .push(at("http://127.0.0.1:1/".to_owned()).with_header(format!("X {BEARER}"), "x").with_bearer(BEARER));
        let told = logged(move |_| async move {
            let mut light = Light::default();
            for address in addresses {
                let mut config = fast_config(address);
                config.redactor = mask(&[ENV, ARGUMENT]);
                config.reconnect.enabled = false;
                let (server, mut events) = connection(&config, &mut light);
                light.error(&server.connect().await.expect_err("no connection"));
                light.refused(call(&server, "echo", json!({})).await);
                light.server(&server);
                server.close().await;
                light.events(&mut events);
            }
            light.assert_clean();
        })
        .await;
        let mut light = Light::default();
        light.log(&told);
        assert!(!light.seen[0].contains(MARK));
    });
}

#[test]
fn progress_messages_are_redacted() {
    scene(|_| async {
        let told = logged(|_| async {
            let mut light = Light::default();
            let scripted = ScriptedServer::new(Script::legacy());
            let mut config = fast_config(scripted.in_process());
            config.redactor = mask(&all());
            let (server, mut events) = connection(&config, &mut light);
            server.connect().await.expect("a connection");
            let (sink, mut heard) = tokio::sync::mpsc::unbounded_channel::<Progress>();
            let cx = CallContext::default().with_progress(move |progress| drop(sink.send(progress)));
            let sleeping = server.call_tool_with("sleep", arguments(json!({"ms": 10_000})), &cx);
            let pushing = async {
                let asked = scripted.wait_for("tools/call", 1).await;
                let token = &asked["params"]["_meta"]["progressToken"];
                let params = json!({"progressToken": token, "progress": 0.5, "message": words()});
                scripted.push(notification("notifications/progress", params));
                heard.recv().await.expect("progress")
            };
            let progress = tokio::select! {
                _ = sleeping => panic!("it was to be given up"),
                progress = pushing => progress,
            };
            let hidden = vec!["***"; all().len()].join(" and ");
            assert_eq!(progress.message, Some(hidden));
            server.close().await;
            light.events(&mut events);
            light.assert_clean();
        })
        .await;
        assert!(!told.text().contains(MARK));
    });
}

/// Returns the CPU time of this thread in hundredths of a second.
fn worked() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

#[test]
fn a_flood_of_escapes_in_log_messages_delays_nothing() {
    // A single thread, to measure its CPU time.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        // The beginning of an entity, an escape or a secret was searched to the end of the text.
        let token = "a-token-that-the-server-knows-of-course".to_owned();
        for (part, size) in
            [("&", 400_000), ("\\u{", 400_000), (&token[..38], 400_000), ("&", 4_000_000), ("\\u{", 4_000_000)]
        {
            let flood = part.repeat(size / part.len());
            let short = &flood[..flood.len().min(300_000)];
            let messages = [
                json!({"level": "info", "logger": short, "data": flood}),
                json!({"level": "info", "data": {"text": short, "list": [short]}}),
            ];
            let floods = messages.map(|params| notification("notifications/message", params)).to_vec();
            let bad = ScriptedServer::new(Script::default().fault(FaultTrigger::tool("echo"), Fault::Before(floods)));
            let mut config = fast_config(bad.in_process());
            config.redactor = mask(&[&token]);
            let (bad, mut events) = connection(&config, &mut Light::default());
            let good =
                crate::fast_config::connect(fast_config(ScriptedServer::new(Script::default()).in_process())).await;
            bad.connect().await.expect("a connection");
            let began = worked();
            let flooding = call(&bad, "echo", json!({"message": "x"}));
            let working = async {
                for _ in 0..20 {
                    call(&good, "echo", json!({"message": "hello"})).await.expect("an answer");
                }
            };
            let (flooded, ()) = tokio::join!(flooding, working);
            flooded.expect("an answer");
            // This took minutes, and calls to the good server timed out.
            let ticks = worked() - began;
            assert!(ticks < 2000, "{size} of {part}: {ticks} hundredths of a second");
            let mut logged = 0;
            while let Some(event) = events.try_next() {
                let event = serde_json::to_string(&event).expect("JSON");
                assert!(event.len() < 200_000, "an event of {} bytes", event.len());
                logged += usize::from(event.contains(" more bytes)"));
            }
            assert_eq!(logged, 2);
            bad.close().await;
            good.close().await;
        }
    });
}

#[test]
fn definitions_and_instructions_are_redacted() {
    scene(|_| async {
        let certain = "S3CRET-that-is-no-ordinary-word";
        let schema = json!({"type": "object", "required": ["word"], "properties": {
            "word": {"type": "string", "description": words(), "default": BEARER, "enum": ["S3CRET"]}}});
        let tool = json!({"name": "tell", "title": words(), "description": words(), "inputSchema": schema,
            "outputSchema": {"description": words()}, "annotations": {"title": words()}, "_meta": {"text": words()}, "x": words()});
        let named = json!({"name": format!("tell_{certain}"), "inputSchema": {"type": "object"}});
        let base64 = "UzNDUkVULWJlYXJlcg==";
        let coded = json!({"name": "coded", "description": base64, "inputSchema": {"type": "object"}});
        let mut script = Script::default().tool(tool, json!({})).tool(named, json!({})).tool(coded, json!({}));
        script.instructions = Some(words());
        script = script
            .fault(FaultTrigger::method("prompts/list"), Fault::Result(json!({"prompts": [{"name": "p", "description": words(), "arguments": [{"name": "a", "description": words()}]}]})))
            .fault(FaultTrigger::method("resources/list"), Fault::Result(json!({"resources": [{"uri": "test://a", "name": "a", "description": words()}]})));
        let mut config = fast_config(ScriptedServer::new(script).in_process());
        config.redactor = mask(&[all(), vec![certain]].concat());
        let (server, _events) = connection(&config, &mut Light::default());
        server.connect().await.expect("a connection");
        let mut light = Light::default();
        let tools = server.list_tool_definitions().await.expect("tools");
        assert!(tools.iter().all(|tool| !tool.name.contains(certain)), "{tools:?}");
        let tool = tools.iter().find(|tool| tool.name == "tell").expect("a tool");
        assert_eq!(tool.input_schema["properties"]["word"]["enum"], json!(["S3CRET"]));
        assert_eq!(tool.input_schema["properties"]["word"]["default"], json!("***"));
        let coded = tools.iter().find(|tool| tool.name == "coded").expect("a tool");
        assert_eq!(coded.description.as_deref(), Some("***"));
        let shown = serde_json::to_string(&tools).expect("JSON").replace("[\"S3CRET\"]", "");
        light.seen.push(shown);
        light.seen.push(serde_json::to_string(&server.list_prompts().await.expect("prompts")).expect("JSON"));
        light.seen.push(serde_json::to_string(&server.list_resources().await.expect("resources")).expect("JSON"));
        light.seen.push(format!("{:?}", server.server_info()));
        light.assert_clean();
        server.close().await;
    });
}
