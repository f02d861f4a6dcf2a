//! Warnings about connection keys that are valid, but likely mistakes.

use super::node::{Entry, Node, NodeKind};
use super::raw::{RawServer, RawTransport};

/// Keys that only apply to a `url`.
const URL_KEYS: [&str; 2] = ["headers", "auth"];

/// Keys that only apply to a `command`.
const COMMAND_KEYS: [&str; 6] = ["args", "env", "env_file", "inherit_env", "cwd", "sandbox"];

/// Returns the warnings about a server; `node` is its entry.
pub(super) fn connection_warnings(raw: &RawServer, node: &Node) -> Vec<String> {
    let alias = &raw.alias;
    let (ignored, needs): (&[&str], &str) = match (&raw.command, &raw.url) {
        (Some(_), None) => (&URL_KEYS, "`url`"),
        (None, Some(_)) => (&COMMAND_KEYS, "`command`"),
        _ => (&[], ""),
    };
    let mut warnings = Vec::new();
    let is_ignored = |entry: &&Entry| ignored.contains(&entry.key.as_str()) && !is_empty(&entry.value);
    for entry in node.entries().iter().filter(is_ignored) {
        let (key, line, column) = (&entry.key, entry.position.line, entry.position.column);
        let fix = if key == "headers" || key == "auth" { "; pass secrets in `env`" } else { "" };
        warnings.push(format!("ignored `{key}` of server `{alias}` ({line}:{column}): it applies to a {needs}{fix}"));
    }
    if raw.transport == Some(RawTransport::Websocket) && raw.url.is_some() {
        warnings.push(format!(
            "`transport: websocket` of server `{alias}` is treated as `streamable-http`: MCP defines no WebSocket transport"
        ));
    }
    for (former, name) in [("first", "initial_delay"), ("longest", "max_delay")] {
        if let Some(value) = node.get("reconnect").and_then(|reconnect| reconnect.get(former)) {
            let (line, column) = (value.position.line, value.position.column);
            warnings.push(format!(
                "`reconnect.{former}` of server `{alias}` ({line}:{column}) is deprecated; use `reconnect.{name}`"
            ));
        }
    }
    if let Some(program) = raw.command.as_deref().and_then(program_of_line) {
        // The other words may contain secrets.
        warnings.push(format!(
            "`command` of server `{alias}` contains spaces and is started without a shell; \
             set `command: {program}` and move the other words to `args`"
        ));
    }
    warnings
}

/// Returns `true` for an empty list, an empty map and no value.
fn is_empty(value: &Node) -> bool {
    match &value.kind {
        NodeKind::List(items) => items.is_empty(),
        NodeKind::Map(entries) => entries.is_empty(),
        NodeKind::Scalar { .. } => value.is_null(),
    }
}

/// Returns the program if the text is a command line. A program's path may contain spaces.
fn program_of_line(command: &str) -> Option<&str> {
    let mut words = command.split_whitespace();
    let program = words.next()?;
    let is_path = program.contains(['/', '\\']);
    let is_line = words.any(|word| !is_path || word.starts_with('-'));
    is_line.then_some(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_differs_from_a_path_with_spaces() {
        assert_eq!(program_of_line("npx -y foo"), Some("npx"));
        assert_eq!(program_of_line("/bin/sh -c x"), Some("/bin/sh"));
        for command in ["npx", "/opt/My Server/bin/run", "C:\\Program Files\\node.exe"] {
            assert_eq!(program_of_line(command), None, "{command}");
        }
    }
}
