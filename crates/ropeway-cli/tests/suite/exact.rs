//! Numbers and text pass through the binary unchanged.

use ropeway_testing::{Fault, FaultTrigger, Script};
use serde_json::json;

use crate::temp_home::{TempHome, entry, having};

/// Numbers that an `f64` cannot represent exactly.
const NUMBERS: &str = r#"{"u65":18446744073709551616,"long":123456789012345678901234567890,"zero":-0,"price":1.10,"one":1.0,"huge":1e+400,"tiny":-1.5e-400}"#;

fn answering(result: &str) -> Script {
    Script::default().fault(FaultTrigger::tool("echo"), Fault::Body(format!(r#""result":{result}"#)))
}

/// Removes whitespace between tokens. The strings of these tests contain none.
fn compact(text: &str) -> String {
    text.split_whitespace().collect()
}

#[test]
fn a_result_is_printed_with_the_numbers_of_the_server() {
    let result =
        format!(r#"{{"content":[{{"type":"odd","n":{NUMBERS}}}],"structuredContent":{NUMBERS},"_meta":{NUMBERS}}}"#);
    let temp_home = TempHome::with(&[entry("a", &answering(&result))]);
    let run = temp_home.run("call a.echo message=hi --json").expect(0);
    let printed = compact(&run.stdout);
    assert!(printed.contains(&format!(r#""_meta":{NUMBERS}"#)), "{printed}");
    assert!(printed.contains(&format!(r#""data":{NUMBERS}"#)), "{printed}");
    let run = temp_home.run("call a.echo message=hi").expect(0);
    assert!(compact(&run.stdout).contains(NUMBERS), "{}", run.stdout);
}

#[test]
fn a_lone_surrogate_costs_one_character_of_a_result() {
    let result = r#"{"content":[{"type":"text","text":"cut \ud83d"}]}"#;
    let temp_home = TempHome::with(&[entry("a", &answering(result))]);
    assert_eq!(temp_home.run("call a.echo message=hi").expect(0).stdout, "cut \u{fffd}\n");
}

#[test]
fn arguments_reach_the_server_digit_for_digit() {
    let temp_home = TempHome::new();
    let record = temp_home.path().join("record");
    let script = Script { record_file: Some(record.clone()), ..Script::default() };
    let shape = json!({"tools": {"preset": {"echo": {"preset": "PRESET"}}}});
    temp_home.configure(&[having(entry("a", &script), shape)]);
    let path = temp_home.path().join("ropeway.yaml");
    let file = std::fs::read_to_string(&path).expect("a file").replace("\"PRESET\"", NUMBERS);
    std::fs::write(&path, file).expect("a file");
    let object = format!(r#"{{"message":"cut \ud83d","object":{NUMBERS}}}"#);
    let pair = format!("pair:={NUMBERS}");
    temp_home.ropeway(&["call", "a.echo", &object, &pair]).run();
    let heard = std::fs::read_to_string(record).expect("a record");
    for name in ["object", "pair", "preset"] {
        assert!(compact(&heard).contains(&format!(r#""{name}":{NUMBERS}"#)), "{name}: {heard}");
    }
    assert!(heard.contains("cut \u{fffd}"), "{heard}");
}

#[test]
fn a_schema_judges_numbers_by_their_digits() {
    let temp_home = TempHome::new();
    let tools = r#"{"tools":[{"name":"echo","inputSchema":{"type":"object","properties":{
        "n":{"type":"integer","maximum":123456789012345678901234567890},"m":{"type":"number","multipleOf":0.01}}}}]}"#;
    let tools = compact(tools);
    let script =
        Script::default().fault(FaultTrigger::method("tools/list"), Fault::Body(format!(r#""result":{tools}"#)));
    temp_home.configure(&[entry("a", &script)]);
    let call = |argument: &str| temp_home.ropeway(&["call", "a.echo", argument, "message:=\"hi\""]).run();
    for fits in ["n=123456789012345678901234567890", "n=1e2", "n:=-0", "m=1.10", "n:=1e-0", "m:=1e400", "m:=1E+2"] {
        call(fits).expect(0);
    }
    let digits = format!("n:={}", "9".repeat(10_000));
    for odd in ["n=123456789012345678901234567891", "n:=1e400", "n:=1.5", "m:=1.101", "n:=1e-400", &digits] {
        assert_ne!(call(odd).code, Some(0), "{odd}");
    }
    let shown = compact(&temp_home.run("tools a --json").expect(0).stdout);
    assert!(shown.contains(r#""maximum":123456789012345678901234567890"#), "{shown}");
}
