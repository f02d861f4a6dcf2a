//! The examples of the library: each runs to its end against a scripted model and leaves no process behind.

mod gateway;
mod real;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ropeway_core::content::Blob;
use ropeway_core::message::Dialect;
use ropeway_testing::{ModelServer, ScriptedReply};
use serde_json::{Value, json};

use crate::process_marker::{command_line, signal};
use crate::{Ropeway, Run, Running};

/// Maximum duration of an example on a busy machine.
const LONGEST: Duration = Duration::from_secs(60);

/// An example, ready to run.
struct Example {
    ropeway: Ropeway,
    /// The folders of its PATH.
    path: Vec<PathBuf>,
}

/// The output of an example, and the requests to its model.
struct Told {
    stdout: String,
    asked: Vec<Value>,
}

impl Example {
    /// Creates an example that runs at the root of the repository, with `ropeway` on the PATH.
    fn new(name: &str, arguments: &[&str]) -> Self {
        let ours = Path::new(env!("CARGO_BIN_EXE_ropeway"));
        let program = ours.with_file_name("examples").join(name);
        assert!(program.exists(), "run `cargo build -p ropeway --examples` first");
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let ropeway = Ropeway::of(&program, arguments).with(|command| {
            command.current_dir(root);
        });
        Self { ropeway, path: vec![ours.with_file_name("")] }
    }

    /// Adds a folder to the PATH.
    fn finding(mut self, folder: PathBuf) -> Self {
        self.path.push(folder);
        self
    }

    /// Sets the standard input.
    fn reading(mut self, lines: &str) -> Self {
        let input = self.ropeway.temp_home.as_ref().expect("a place").write("input", lines);
        self.ropeway = self.ropeway.with(|command| {
            command.stdin(File::open(input).expect("a file"));
        });
        self
    }

    /// Starts the example.
    fn start(self) -> Running {
        let path = std::env::join_paths(&self.path).expect("a PATH");
        let command = self.ropeway.with(|command| {
            command.env("PATH", path);
        });
        command.start()
    }

    /// Runs to the end against a model with these replies.
    async fn run(mut self, sayings: &[ScriptedReply]) -> Told {
        let answers = sayings.iter().map(|saying| saying.answer(Dialect::Chat));
        let model = ModelServer::start(answers).await.expect("a model");
        self.ropeway = self.ropeway.with(|command| {
            command.env("OPENAI_BASE_URL", model.url()).env("OPENAI_API_KEY", "a-key-for-tests");
        });
        let stdout = ended(self.start()).await;
        let asked = model.bodies();
        assert_eq!(asked.len(), sayings.len(), "{stdout}");
        Told { stdout, asked }
    }
}

/// Waits until an example succeeds without an error message, and returns its output.
async fn ended(running: Running) -> String {
    let process = running.child.id();
    let end = tokio::task::spawn_blocking(move || running.end());
    let Ok(run) = tokio::time::timeout(LONGEST, end).await else {
        let name = command_line(process);
        signal("KILL", process);
        panic!("`{name}` is not done after {LONGEST:?}");
    };
    let Run { stdout, stderr, .. } = run.expect("an end").expect(0);
    assert_eq!(stderr, "");
    stdout
}

impl Told {
    /// Returns the output. Lines with one of these prefixes are cut after the prefix, because the rest differs between runs.
    fn but(&self, beginnings: &[&str]) -> String {
        let steady = |line: &str| match beginnings.iter().find(|beginning| line.starts_with(**beginning)) {
            Some(beginning) => format!("{beginning}…\n"),
            None => format!("{line}\n"),
        };
        self.stdout.lines().map(steady).collect()
    }

    /// Returns the names of the tools in a model request.
    fn tools(&self, question: usize) -> Vec<&str> {
        let tools = self.asked[question]["tools"].as_array().into_iter().flatten();
        tools.filter_map(|tool| tool["function"]["name"].as_str()).collect()
    }
}

/// The tools of the demo server.
const DEMO: [&str; 6] = [
    "mcp_demo_calculate",
    "mcp_demo_chart",
    "mcp_demo_countdown",
    "mcp_demo_fail",
    "mcp_demo_statistics",
    "mcp_demo_time",
];

/// The tool that every agent has in addition to the configured ones.
const OURS: &[&str] = &["read_more"];

/// Returns a reply that calls `calculate`.
fn calculating(id: &str, expression: &str) -> ScriptedReply {
    ScriptedReply::call(id, "mcp_demo_calculate", json!({"expression": expression}))
}

#[tokio::test]
async fn first_call_lists_the_tools_and_calls_one() {
    let told = Example::new("first_call", &[]).run(&[]).await;
    assert_eq!(told.stdout, "calculate\nchart\ncountdown\nfail\nstatistics\ntime\n6 * 7 = 42\n");
}

#[tokio::test]
async fn discover_registers_the_tools_of_the_servers_that_run() {
    let told = Example::new("discover", &[]).run(&[]).await;
    let status = "server `demo` is ready with 6 tools\nserver `absent` is down: could not start `no-such-program`";
    assert!(told.stdout.starts_with(status) && told.stdout.contains("\"data\": \"42\""), "{}", told.stdout);
}

#[tokio::test]
async fn many_servers_prints_each_status_and_an_envelope() {
    let told = Example::new("many_servers", &[]).run(&[]).await;
    let expected = r#"server `demo` is ready with 6 tools
server `absent` is down: could not start `no-such-program`: `no-such-program` is not on the PATH
{
  "id": …
  "tool": "mcp_demo_calculate",
  "origin": {
    "server": "demo",
    "tool": "calculate"
  },
  "took_ms": …
  "data": "42",
  "meta": {
    "is_error": false,
    "content": [
      {
        "type": "text",
        "text": "42"
      }
    ],
    "_meta": {
      "io.modelcontextprotocol/serverInfo": {
        "name": "demo",
        "title": "Ropeway demo",
        "version": …
      }
    }
  }
}
"#;
    assert_eq!(told.but(&["  \"id\": ", "  \"took_ms\": ", "        \"version\": "]), expected);
}

#[tokio::test]
async fn ask_a_model_continues_until_no_calls_are_left() {
    let told = Example::new("ask_a_model", &["local"])
        .run(&[calculating("a", "6 * 7").and_text("I calculate."), ScriptedReply::text("It is 42.")])
        .await;
    assert_eq!(told.stdout, "I calculate.\nIt is 42.\n");
    assert_eq!((told.tools(0), told.tools(1)), (DEMO.to_vec(), DEMO.to_vec()));
    assert_eq!(told.asked[1]["messages"][2], json!({"role": "tool", "tool_call_id": "a", "content": "42"}));
}

#[tokio::test]
async fn agent_continues_without_a_missing_server() {
    let told = Example::new("agent", &["local"])
        .run(&[ScriptedReply::call("a", "stock", json!({"item": "eggs"})), ScriptedReply::text("There are 144.")])
        .await;
    let expected = r#"server `demo` is ready with 6 tools
server `time` is down: could not start `mcp-server-time`: `mcp-server-time` is not on the PATH

-> stock {"item":"eggs"}
<- stock 144
There are 144.
(2 answers, 30 tokens)
"#;
    assert_eq!(told.stdout, expected);
    assert_eq!(told.tools(0), [&DEMO[..], &["stock"], OURS].concat());
    assert_eq!(
        told.asked[0]["tools"][6]["function"]["parameters"]["properties"],
        json!({"item": {"description": "Name of the item, such as `eggs`.", "type": "string"}})
    );
}

#[tokio::test]
async fn envelopes_prints_the_converted_result() {
    let told = Example::new("envelopes", &[]).run(&[]).await;
    let expected = r#"it said {"celsius":"21.5","sunny":"now and then","debug":7}
we have {"celsius":21.5,"sunny":"now and then","station":"north"}
changed {"edit":"coerced","path":"/celsius","from":"21.5"}
changed {"edit":"dropped","path":"/debug"}
changed {"edit":"filled","path":"/station"}
warning at `/sunny`: must be a boolean, not a string
3 values, 2.67 on average
"#;
    assert_eq!(told.stdout, expected);
}

#[tokio::test]
async fn shaping_exposes_only_the_tools_left_by_configuration_and_code() {
    let draw = ScriptedReply::call("a", "chart", json!({"values": [3, 1, 4], "title": null}));
    let told = Example::new("shaping", &["local"]).run(&[draw, ScriptedReply::text("Here it is.")]).await;
    let expected = "work_out: Evaluates an arithmetic expression
chart: Draws numbers as a chart and returns a PNG image of 640 by 360 pixels.
countdown: Counts down slowly and reports progress
Here it is.
";
    assert_eq!(told.stdout, expected);
    assert_eq!(told.tools(0), [&["work_out", "chart", "countdown"], OURS].concat());
    let strict: Vec<&Value> = (0..3).map(|tool| &told.asked[0]["tools"][tool]["function"]["strict"]).collect();
    assert_eq!(strict, [true, true, true]);
    let chart = json!({
        "name": "chart",
        "description": "Draws numbers as a chart and returns a PNG image of 640 by 360 pixels.",
        "parameters": {
            "type": "object",
            "properties": {
                "values": {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 500, "description": "The values, from left to right."},
                "title": {"type": ["string", "null"], "maxLength": 200, "description": "Title above the chart."},
            },
            "required": ["values", "title"],
            "additionalProperties": false,
        },
        "strict": true,
    });
    assert_eq!(told.asked[0]["tools"][1]["function"], chart);
    // The server received a value that the model neither saw nor sent.
    let drawn = told.asked[1]["messages"][2]["content"].as_str().unwrap_or_default();
    assert!(drawn.contains("A line chart of 3 values from 1 to 4"), "{drawn}");
}

#[tokio::test]
async fn own_loop_keeps_the_conversation_from_line_to_line() {
    let sayings = [
        ScriptedReply::text("I turn it.").and_call("a", "reverse", json!({"text": "rope"})),
        ScriptedReply::text("It is epor."),
        ScriptedReply::text("You are welcome."),
    ];
    let told = Example::new("own_loop", &["local"]).reading("Turn rope.\nThank you.\n").run(&sayings).await;
    let expected = r#"I turn it.
-> reverse {"text":"rope"}
It is epor.
(4 messages)
You are welcome.
(6 messages)
"#;
    assert_eq!(told.stdout, expected);
    assert_eq!(
        told.asked[2]["messages"],
        json!([
            {"role": "user", "content": "Turn rope."},
            {"role": "assistant", "content": "I turn it.", "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "reverse", "arguments": "{\"text\":\"rope\"}"}},
            ]},
            {"role": "tool", "tool_call_id": "a", "content": "epor"},
            {"role": "assistant", "content": "It is epor."},
            {"role": "user", "content": "Thank you."},
        ])
    );
}

#[tokio::test]
async fn host_extension_gives_all_tools_to_one_agent_and_one_to_the_other() {
    let sayings = [
        calculating("a", "6 * 7"),
        ScriptedReply::text("It is 42."),
        ScriptedReply::call("b", "mcp_demo_fail", json!({})),
        ScriptedReply::text("I cannot do that."),
    ];
    let told = Example::new("host_extension", &["local"]).run(&sayings).await;
    let all = DEMO.map(|name| format!("\"{name}\"")).join(", ");
    let expected = format!(
        "healthy: true
analyst has [{all}]
analyst: It is 42.
clerk has [\"mcp_demo_calculate\"]
clerk: I cannot do that.
mcp: \"server.connecting\" \"demo\"
mcp: \"server.ready\" \"demo\"
mcp: \"mcp.tool_called\" \"demo\"
mcp: \"server.closed\" \"demo\"
"
    );
    assert_eq!(told.stdout, expected);
    assert_eq!(told.tools(0), [&DEMO[..], OURS].concat());
    assert_eq!(told.tools(2), [&["mcp_demo_calculate"], OURS].concat());
    let refused = told.asked[3]["messages"][2]["content"].as_str().unwrap_or_default();
    assert!(refused.contains("unknown tool `mcp_demo_fail`"), "{refused}");
}

#[tokio::test]
async fn image_tool_sends_the_picture_to_the_model() {
    let temp_home = crate::temp_home::TempHome::new();
    temp_home.run("call chart values=[3,1,4] --save .").expect(0);
    let picture = temp_home.path().join("chart-1.png");
    let told = Example::new("image_tool", &["local", &picture.to_string_lossy()])
        .run(&[ScriptedReply::call("a", "camera", json!({})), ScriptedReply::text("It is a chart.")])
        .await;
    assert_eq!(told.stdout, "It is a chart.\n");
    let picture = Blob::new("image/png", &std::fs::read(picture).expect("a picture"));
    let url = format!("data:image/png;base64,{}", picture.base64());
    let seen = json!({"role": "user", "content": [
        {"type": "text", "text": "[image 1 of `camera`, call `a`]"},
        {"type": "image_url", "image_url": {"url": url, "detail": "auto"}},
    ]});
    assert_eq!(told.asked[1]["messages"][3], seen);
}

#[tokio::test]
async fn image_tool_reports_a_missing_picture_to_the_model() {
    let told = Example::new("image_tool", &["local", "no-such.png"])
        .run(&[ScriptedReply::call("a", "camera", json!({})), ScriptedReply::text("I see nothing.")])
        .await;
    assert_eq!(told.stdout, "I see nothing.\n");
    let said = told.asked[1]["messages"][2]["content"].as_str().unwrap_or_default();
    assert!(said.contains("tool `camera` failed: No such file or directory"), "{said}");
}
