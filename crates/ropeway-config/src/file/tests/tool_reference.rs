use std::path::Path;

use crate::{ToolReference, ToolReferenceKind, tool_references};

fn names(text: &str, file: &str) -> Vec<String> {
    let line = |named: &ToolReference| {
        let servers: Vec<&str> = named.servers.iter().map(|server| server.as_str()).collect();
        let what = match &named.kind {
            ToolReferenceKind::Tool => "tool".to_owned(),
            ToolReferenceKind::Argument { tool } => format!("argument of {tool}"),
            ToolReferenceKind::Resource => "resource".to_owned(),
            ToolReferenceKind::Pattern => "pattern".to_owned(),
        };
        format!("{}:{} {} {} ({what}; {})", named.line, named.column, named.path, named.name, servers.join(" "))
    };
    tool_references(text, Path::new(file)).expect("a file").iter().map(line).collect()
}

#[test]
fn names_of_tools_and_arguments_have_positions() {
    let text = "\
servers:
  - alias: a
    command: x
    tool_allowlist: [read_*]
    tools:
      allow: [one, 'two*']
      deny:
        - three
      rename: {four: vier}
      hide: {five: [secret]}
      preset:
        six: {limit: 3}
      describe: {seven: text}
      provider_options: {eight: {openai: {}}}
    resources: {context: ['file:///a*']}
tool_allowlist: {a: [nine]}
chat: {tools: {allow: [a.one], deny: ['*.rm']}}
";
    assert_eq!(
        names(text, "ropeway.yaml"),
        [
            "4:22 servers[0].tool_allowlist[0] read_* (tool; a)",
            "6:15 servers[0].tools.allow[0] one (tool; a)",
            "6:20 servers[0].tools.allow[1] two* (tool; a)",
            "8:11 servers[0].tools.deny[0] three (tool; a)",
            "9:16 servers[0].tools.rename.four four (tool; a)",
            "10:14 servers[0].tools.hide.five five (tool; a)",
            "10:21 servers[0].tools.hide.five[0] secret (argument of five; a)",
            "12:9 servers[0].tools.preset.six six (tool; a)",
            "12:15 servers[0].tools.preset.six.limit limit (argument of six; a)",
            "13:18 servers[0].tools.describe.seven seven (tool; a)",
            "14:26 servers[0].tools.provider_options.eight eight (tool; a)",
            "15:27 servers[0].resources.context[0] file:///a* (resource; a)",
            "16:22 tool_allowlist.a[0] nine (tool; a)",
            "17:24 chat.tools.allow[0] a.one (pattern; )",
            "17:39 chat.tools.deny[0] *.rm (pattern; )",
        ]
    );
}

#[test]
fn a_name_for_several_servers_is_listed_once() {
    let text = "\
defaults: {tools: {deny: [rm]}}
tool_allowlist: ['read*']
servers: [{alias: a, command: x}, {alias: b, command: y}, {alias: c, command: z, tools: [get]}]
";
    assert_eq!(
        names(text, "ropeway.yaml"),
        [
            "1:27 defaults.tools.deny[0] rm (tool; a b)",
            "2:18 tool_allowlist[0] read* (tool; a b c)",
            "3:90 servers[2].tools[0] get (tool; c)",
        ]
    );
}

#[test]
fn names_in_files_of_other_clients_have_positions() {
    let text = r#"{"mcpServers": {"a": {"command": "x", "disabledTools": ["rm"]}}}"#;
    assert_eq!(names(text, "mcp.json").iter().map(|name| &name[..4]).collect::<Vec<_>>(), ["1:57"]);
    assert!(tool_references("servers: [", Path::new("ropeway.yaml")).is_err());
}
