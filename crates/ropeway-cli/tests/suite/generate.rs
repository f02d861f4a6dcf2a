//! `ropeway generate`: code that compiles, runs and never contains a server's text as code.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use ropeway_bridge::Bridge;
use ropeway_config::{Config, ServerConfig, StdioServer};
use ropeway_testing::{HttpScriptedServer, Script};
use serde_json::{Value, json};

use crate::fault_run::binary;
use crate::real;
use crate::temp_home::{TempHome, entry};
use crate::{Ropeway, Run};

/// The client that the unit tests of the generator compare with their output. Compiling it is a test.
#[rustfmt::skip]
#[path = "../generated/odd.rs"]
mod odd;

const PYTHON: &str = "/usr/bin/python3";

fn generated(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/generated").join(name)
}

/// Returns a definition of `tools.json`.
fn definition(name: &str) -> Value {
    let text = std::fs::read_to_string(generated("tools.json")).expect("a file");
    let tools: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    tools.into_iter().find(|tool| tool["name"] == name).expect("a tool")
}

#[tokio::test]
async fn a_rust_client_calls_tools_with_typed_arguments_and_results() {
    let day = json!({"high": 21.5, "low": 9, "sky": "clear"});
    let weather = json!({"content": [], "structuredContent": {"days": [day], "place": null}});
    let wrong = json!({"content": [], "structuredContent": {"next": 1}});
    let script = Script::default().tool(definition("get_weather"), weather).tool(definition("tree"), wrong);
    let script = serde_json::to_string(&script).expect("JSON");
    let server = ServerConfig::new("odd", StdioServer::new(binary().to_string_lossy(), [script]));
    let bridge = Bridge::new(Config::new([server])).expect("a bridge");
    bridge.start().await.expect("a server");
    let client = odd::OddClient::new(bridge.clone());
    let arguments = odd::GetWeatherArguments { city: "Oslo".into(), days: Some(2), units: None, alerts: None };
    let result = client.get_weather(&arguments).await.expect("a result");
    let day = odd::GetWeatherResultDay { high: 21.5, low: 9.0, sky: Some(odd::GetWeatherResultDaySky::Clear) };
    assert_eq!(result, odd::GetWeatherResult { days: vec![day], place: None });

    let root = odd::TreeNode { value: "x".into(), left: None, children: None };
    let arguments = odd::TreeArguments {
        root: Box::new(root),
        any: None,
        me: None,
        list: None,
        maybe: None,
        pair: None,
        map: None,
    };
    let failure = client.tree(&arguments).await.expect_err("a mismatch");
    assert!(matches!(failure, odd::CallFailure::Mismatch(..)), "{failure}");
    bridge.stop().await;
    let failure = client.tree(&arguments).await.expect_err("a failure");
    assert!(matches!(failure, odd::CallFailure::Failed(_)), "{failure}");
}

#[test]
fn odd_names_and_values_keep_their_spelling_in_rust() {
    let arguments = odd::DeleteArguments {
        type_: "a".into(),
        self_: Some("b".into()),
        self_2: None,
        fn_: None,
        crate_: None,
        class: Some("c".into()),
        field: None,
        field2: Some("d".into()),
    };
    let sent = serde_json::to_value(&arguments).expect("JSON");
    assert_eq!(sent, json!({"type": "a", "self": "b", "class": "c", "": "d"}));
    let shape: odd::ShapesArgumentsCircle =
        serde_json::from_value(json!({"kind": "square", "side": 2})).expect("a shape");
    assert_eq!(serde_json::to_value(&shape).expect("JSON"), json!({"kind": "square", "side": 2.0}));
}

/// Runs the TypeScript compiler, which `cargo xtask servers` installs.
fn tsc(folder: &Path, arguments: &[&str]) {
    let modules = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("servers/sdks-node/node_modules");
    let compiler = modules.join("typescript/bin/tsc");
    assert!(compiler.exists(), "TypeScript is not installed: run cargo xtask servers");
    let mut command = Command::new(real::folder("everything").join("node"));
    let output = command.arg(compiler).args(arguments).current_dir(folder).output().expect("Node");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

const STRICT: [&str; 7] = [
    "--strict",
    "--target",
    "es2022",
    "--module",
    "nodenext",
    "--noUncheckedIndexedAccess",
    "--exactOptionalPropertyTypes",
];

#[test]
fn a_typescript_client_passes_strict_checks_and_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::copy(generated("odd.ts"), folder.path().join("odd.ts")).expect("a file");
    let usage = r#"
        import { OddClient, ToolError, type GetWeatherResult, type ShapesArguments } from "./odd.js";
        declare const console: { log(text: string): void };
        const calls: unknown[] = [];
        const client = new OddClient({
          async callTool(params) {
            calls.push(params);
            if (params.name === "then") {
              return { content: [{ type: "text", text: "no" }], isError: true };
            }
            return { content: [{ type: "text", text: "a" }, { type: "text", text: "b" }], structuredContent: { days: [], place: null } };
          },
        });
        const weather = await client.getWeather({ city: "Oslo", units: "metric" });
        const result: GetWeatherResult = weather.data;
        const shapes: ShapesArguments = { circle: { kind: "circle", r: 1 }, scalars: 0 };
        // @ts-expect-error `city` is required.
        const missing = () => client.getWeather({});
        // @ts-expect-error `units` is one of two strings.
        const wrong = () => client.getWeather({ city: "Oslo", units: "kelvin" });
        await client.noArguments();
        const failure = await client.then2().catch((error: unknown) => error);
        console.log(JSON.stringify([calls, result, weather.text, shapes, failure instanceof ToolError && failure.message]));
        void missing; void wrong;
    "#;
    std::fs::write(folder.path().join("usage.ts"), usage).expect("a file");
    std::fs::write(folder.path().join("package.json"), r#"{"type": "module"}"#).expect("a file");
    tsc(folder.path(), &[&STRICT[..], &["usage.ts", "odd.ts"]].concat());
    let mut node = Command::new(real::folder("everything").join("node"));
    let output = node.arg("usage.js").current_dir(folder.path()).output().expect("Node");
    let printed: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let calls = json!([{"name": "get_weather", "arguments": {"city": "Oslo", "units": "metric"}},
        {"name": "no_arguments", "arguments": {}}, {"name": "then", "arguments": {}}]);
    let shapes = json!({"circle": {"kind": "circle", "r": 1}, "scalars": 0});
    assert_eq!(printed, json!([calls, {"days": [], "place": null}, "a\nb", shapes, "no"]));
}

/// Runs a generated script.
fn run_script(temp_home: &TempHome, arguments: &[&str]) -> Run {
    script_command(temp_home, arguments).run()
}

fn script_command(temp_home: &TempHome, arguments: &[&str]) -> Ropeway {
    let script = temp_home.path().join("tool-cli");
    let words: Vec<&str> = [&[script.to_str().expect("UTF-8")], arguments].concat();
    temp_home.of(Path::new(PYTHON), &words).with(|command| {
        command.env("ROPEWAY", env!("CARGO_BIN_EXE_ropeway"));
    })
}

#[test]
fn a_script_calls_tools_with_options_from_their_schemas() {
    let temp_home = TempHome::new();
    let run = temp_home.run("generate cli --output tool-cli").expect(0);
    assert!(run.stdout.starts_with("wrote tool-cli ("), "{}", run.stdout);
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(temp_home.path().join("tool-cli")).expect("a file").permissions(),
    );
    assert_eq!(mode & 0o100, 0o100);
    let help = run_script(&temp_home, &["--help"]).expect(0).stdout;
    assert!(help.contains("calculate"), "{help}");
    let help = run_script(&temp_home, &["chart", "--help"]).expect(0).stdout;
    assert!(help.contains("--values NUMBER") && help.contains("--args JSON"), "{help}");
    let run = run_script(&temp_home, &["calculate", "--expression", "6 * 7"]).expect(0);
    assert_eq!(run.stdout.trim_end(), "42");
    let run =
        run_script(&temp_home, &["--json", "chart", "--values", "3", "--values", "1.5", "--kind", "line"]).expect(0);
    assert_eq!(run.json()["error"], Value::Null, "{}", run.stdout);
    let run = run_script(&temp_home, &["calculate"]).expect(2);
    assert!(run.stderr.contains("the following arguments are required: --expression"), "{}", run.stderr);
    let run = run_script(&temp_home, &["chart", "--values", "x"]).expect(2);
    assert!(run.stderr.contains("argument --values: expected a number"), "{}", run.stderr);
    let run = run_script(&temp_home, &["chart", "--values", "1", "--kind", "pie"]).expect(2);
    assert!(run.stderr.contains("expected one of: "), "{}", run.stderr);
}

#[test]
fn a_script_passes_any_text_unchanged() {
    let schema = json!({"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]});
    let temp_home = TempHome::with(&[entry(
        "it",
        &Script::default().tool(json!({"name": "odd; $(x)", "inputSchema": schema}), json!({"content": []})),
    )]);
    temp_home.run("generate cli it --output tool-cli").expect(0);
    // Its JSON does not fit into a word of a command line.
    let long = "漢".repeat(30_000);
    for text in [
        "$(touch evil) `touch evil` '; touch evil; \" \\",
        "--json",
        "@/etc/passwd",
        "",
        "a\nb",
        "日本 🚀",
        long.as_str(),
    ] {
        let run = run_script(&temp_home, &["--raw", "echo", &format!("--message={text}")]).expect(0);
        assert_eq!(run.stdout.trim_end_matches('\n'), text.trim_end_matches('\n'));
    }
    run_script(&temp_home, &["odd-x", "--message", "$(touch evil)"]).expect(0);
    assert!(!temp_home.path().join("evil").exists());
    let missing = script_command(&temp_home, &["echo", "--message", "x"]).with(|command| {
        command.env("ROPEWAY", "/no/such/program");
    });
    let run = missing.run().expect(127);
    assert!(run.stderr.contains("could not start `/no/such/program`"), "{}", run.stderr);
}

#[test]
fn a_script_of_odd_tools_prints_its_help() {
    let script = generated("odd.py");
    let run = |arguments: &[&str]| {
        let output = Command::new(PYTHON).arg(&script).args(arguments).output().expect("Python");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let help = run(&["--help"]);
    assert!(help.contains("get_weather") && !help.contains('\u{1b}'), "{help}");
    let help = run(&["evil", "--help"]);
    assert!(help.contains("100% %(evil)s %n") && help.contains("% (prog)s"), "{help}");
    assert!(run(&["rf", "--help"]).contains("--help-2"));
}

#[test]
fn a_file_of_somebody_else_is_not_replaced() {
    let temp_home = TempHome::new();
    temp_home.write("mine.ts", "export const mine = 1;\n");
    let run = temp_home.run("generate ts --output mine.ts").expect(2);
    assert!(run.stderr.contains("has not written it"), "{}", run.stderr);
    temp_home.run("generate ts --output mine.ts --force").expect(0);
    let first = std::fs::read_to_string(temp_home.path().join("mine.ts")).expect("a file");
    temp_home.run("generate ts --output mine.ts").expect(0);
    assert_eq!(std::fs::read_to_string(temp_home.path().join("mine.ts")).expect("a file"), first);
    assert_eq!(temp_home.run("generate ts").expect(0).stdout, first);
}

#[test]
fn the_path_of_a_program_is_a_server() {
    let temp_home = TempHome::new();
    let program =
        temp_home.write("server", &format!("#!/bin/sh\nexec {} demo-server\n", env!("CARGO_BIN_EXE_ropeway")));
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("a program");
    let absolute = program.display().to_string();
    for path in [absolute.as_str(), "./server"] {
        let run = temp_home.ropeway(&["generate", "ts", path]).run().expect(0);
        assert!(run.stdout.contains("calculate"), "{}", run.stdout);
    }
    let run = temp_home.run("generate ts ./nothing").expect(2);
    assert!(run.stderr.starts_with("error: `./nothing` does not exist\n"), "{}", run.stderr);
}

#[test]
fn only_the_selected_tools_are_generated() {
    let temp_home = TempHome::new();
    let code = temp_home.run("generate rust --only calculate").expect(0).stdout;
    assert!(code.contains("pub async fn calculate(") && !code.contains("pub async fn chart("), "{code}");
    let run = temp_home.run("generate rust --only calculat").expect(2);
    assert!(run.stderr.contains("did you mean"), "{}", run.stderr);
    let json = temp_home.run("generate ts --only calculate --json").expect(0).json();
    assert_eq!((&json["server"], &json["tools"]), (&json!("demo"), &json!(1)));
    let temp_home = TempHome::with(&[entry("a", &Script::default()), entry("b", &Script::default())]);
    let run = temp_home.run("generate ts").expect(2);
    assert!(run.stderr.contains("configured servers: a, b"), "{}", run.stderr);
}

#[test]
fn a_secret_in_a_url_is_left_out_of_a_script_with_a_warning() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let server = HttpScriptedServer::start(Script::default()).await.expect("a free port");
        for (language, is_warned) in [("cli", true), ("ts", false)] {
            let url = format!("{}?api_key=abcdefgh12345", server.url());
            let run = tokio::task::spawn_blocking(move || Run::of(&["generate", language, "--url", &url]));
            let run = run.await.expect("a run").expect(0);
            assert!(!run.stdout.contains("abcdefgh12345"), "{}", run.stdout);
            let words = ["the secret in --url is not written to the script", "${API_KEY}"];
            assert_eq!(words.map(|words| run.stderr.contains(words)), [is_warned; 2], "{}", run.stderr);
        }
    });
}
