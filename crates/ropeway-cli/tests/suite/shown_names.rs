//! Displayed tool names have no prefix, which only models need.

use ropeway_testing::{Script, ScriptedReply};
use serde_json::json;

use crate::chat::Model;
use crate::temp_home::{TempHome, entry};

fn script() -> Script {
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
    let odd = json!({"type": "object", "properties": {"x": {"type": "string", "pattern": "(?<"}}});
    Script::default()
        .tool(json!({"name": "note", "inputSchema": schema}), json!({"content": []}))
        .tool(json!({"name": "with blank", "inputSchema": odd}), json!({"content": []}))
}

#[test]
fn a_chat_names_tools_without_the_prefix_whatever_goes_wrong() {
    let calls =
        [("mcp_files_note", json!({"text": "x"})), ("mcp_files_note", json!({})), ("mcp_files_ntoe", json!({}))];
    for (options, refused) in [(&["--yes"][..], false), (&[], true), (&["--deny", "mcp_files_not"], true)] {
        let sayings = calls.iter().map(|(name, arguments)| ScriptedReply::call("a", *name, arguments.clone()));
        let model = Model::saying(sayings.chain([ScriptedReply::text("Done.")]));
        model.temp_home.configure(&[entry("files", &script())]);
        let run = model.chat(&[&["-p", "go"], options].concat()).run().expect(0);
        let shown = run.stderr.replace("no tool matches `mcp_files_not`", "");
        assert!(!shown.contains("mcp_") && shown.contains("files.note"), "{options:?}: {}", run.stderr);
        if refused {
            assert!(shown.contains("tool `files.note` was not called"), "{shown}");
        }
        if options.is_empty() {
            assert!(shown.contains("use `--allow files.note` to allow it"), "{shown}");
        }
        // The names for models are unchanged.
        assert!(model.server.bodies()[1].to_string().contains("mcp_files_note"));
    }
}

#[test]
fn commands_name_tools_without_the_prefix() {
    let temp_home = TempHome::with(&[entry("files", &script()), entry("files_with", &script())]);
    let mut text = String::new();
    for typed in [
        "tools",
        "tools files",
        "tools --find note",
        "call files.note",
        "call files.note text:=1",
        "call files.ntoe",
        "call note text=x",
        "doctor",
        "config check --connect",
        "lock --check",
        "lock --yes",
        "health",
        "tools -v",
    ] {
        let run = temp_home.run(typed);
        assert!(!run.stdout.contains("mcp_") && !run.stderr.contains("mcp_"), "{typed}:\n{}{}", run.stdout, run.stderr);
        text.push_str(&(run.stdout + &run.stderr));
    }
    assert!(text.contains("files.note") && text.contains("with_blank"), "{text}");
    // JSON contains the name for models.
    assert!(temp_home.run("tools --json").stdout.contains("\"mcp_files_note\""));
}
