//! Names in a configuration file that match no tool, argument or resource.

use std::collections::HashSet;

use ropeway_agent::ToolPattern;
use ropeway_bridge::registry::ToolFilter;
use ropeway_config::{ToolReference, ToolReferenceKind};
use ropeway_core::suggest;
use ropeway_core::tool::{Alias, ToolDefinition};
use serde_json::{Value, json};

use crate::describe::schema::{SchemaRoot, is_open, members, resolve};

/// Maximum reported names.
const MOST: usize = 100;

/// Maximum names considered for a suggestion.
const MOST_CANDIDATES: usize = 2000;

/// A connected server.
pub(super) struct KnownServer {
    pub(super) alias: Alias,
    /// Its tools, including those for resources and prompts.
    pub(super) tools: Vec<ToolDefinition>,
    /// Its resource URIs, if requested.
    pub(super) resources: Option<Vec<String>>,
}

/// The tools that `chat.tools` patterns apply to.
pub(super) struct ChatTools<'a> {
    pub(super) tools: Vec<&'a ToolDefinition>,
    /// Servers that are not connected, each with its prefix.
    pub(super) unseen: Vec<(&'a str, String)>,
}

/// A name without a match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unmatched {
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) path: String,
    pub(super) name: String,
    /// Describes the problem.
    pub(super) words: String,
    pub(super) suggestion: Option<String>,
    /// `false` for wildcards in `deny` and `ask`, which are precautions.
    pub(super) is_problem: bool,
}

impl Unmatched {
    /// Returns the description with a suggestion.
    pub(super) fn sentence(&self) -> String {
        match &self.suggestion {
            Some(suggestion) => format!("{}: {} (did you mean `{suggestion}`?)", self.path, self.words),
            None => format!("{}: {}", self.path, self.words),
        }
    }

    pub(super) fn json(&self) -> Value {
        let Self { line, column, path, name, words, suggestion, is_problem } = self;
        json!({
            "line": line, "column": column, "path": path, "name": name, "message": words, "suggestion": suggestion,
            "problem": is_problem,
        })
    }

    /// Returns the name in the same form as other configuration problems.
    pub(super) fn problem_json(&self) -> Value {
        let Self { line, column, path, name, words, suggestion, .. } = self;
        json!({
            "line": line, "column": column, "path": path, "message": format!("{path}: `{name}`: {words}"),
            "found": format!("`{name}`: {words}"), "expected": "",
            "suggestion": suggestion,
        })
    }
}

/// Finds names without a match. Names from servers that are not connected are skipped.
pub(super) fn unmatched(references: &[ToolReference], known: &[KnownServer], chat: &ChatTools<'_>) -> Vec<Unmatched> {
    references.iter().filter_map(|reference| judge(reference, known, chat)).take(MOST).collect()
}

fn judge(reference: &ToolReference, known: &[KnownServer], chat: &ChatTools<'_>) -> Option<Unmatched> {
    let ToolReference { line, column, path, key, name, kind, servers, .. } = reference;
    let servers: Vec<&KnownServer> = match kind {
        ToolReferenceKind::Pattern => Vec::new(),
        _ => {
            let server = |alias: &Alias| known.iter().find(|known| known.alias == *alias);
            servers.iter().map(server).collect::<Option<_>>()?
        }
    };
    let (words, suggestion) = match kind {
        ToolReferenceKind::Tool => tool(name, &servers)?,
        ToolReferenceKind::Argument { tool, .. } => argument(name, tool, &servers)?,
        ToolReferenceKind::Resource => resource(name, &servers)?,
        ToolReferenceKind::Pattern => pattern(name, key, chat)?,
        _ => return None,
    };
    let forbids = matches!(*key, "deny" | "ask");
    let is_problem = match kind {
        ToolReferenceKind::Resource => is_glob(name),
        _ => !(forbids && is_glob(name)),
    };
    let (line, column, path, name) = (*line, *column, path.clone(), name.clone());
    Some(Unmatched { line, column, path, name, words, suggestion, is_problem })
}

/// Returns `true` for a pattern with wildcards.
fn is_glob(pattern: &str) -> bool {
    pattern.contains(['*', '?', '[', '{'])
}

/// Returns the tools that match a glob, or `None` for an invalid glob, which is a configuration problem.
fn matching<'a>(glob: &str, servers: &[&'a KnownServer]) -> Option<Vec<&'a ToolDefinition>> {
    let filter = ToolFilter::new(&[glob.to_owned()], &[]).ok()?;
    Some(servers.iter().flat_map(|server| &server.tools).filter(|tool| filter.allows(tool)).collect())
}

/// Lists servers by name.
fn named(servers: &[&KnownServer]) -> String {
    let names: Vec<String> = servers.iter().map(|server| format!("`{}`", server.alias)).collect();
    match &names[..] {
        [name] => format!("server {name}"),
        names => format!("servers {}", names.join(", ")),
    }
}

fn tool(name: &str, servers: &[&KnownServer]) -> Option<(String, Option<String>)> {
    if !matching(name, servers)?.is_empty() {
        return None;
    }
    let own: Vec<&str> = servers.iter().flat_map(|server| &server.tools).map(ToolDefinition::own_name).collect();
    let whose = named(servers);
    let words = match (is_glob(name), servers) {
        (true, _) => format!("no tool of {whose} matches `{name}`"),
        (false, [_]) => format!("{whose} has no tool `{name}`"),
        (false, _) => format!("no tool of {whose} is named `{name}`"),
    };
    let fits = |glob: &str| matching(glob, servers).is_some_and(|tools| !tools.is_empty());
    Some((words, suggestion_for(name, &own, fits)))
}

fn argument(name: &str, tool: &str, servers: &[&KnownServer]) -> Option<(String, Option<String>)> {
    let tools = matching(tool, servers)?;
    let has = |tool: &&ToolDefinition| takes_any(tool) || arguments(tool).contains(name);
    // An unknown tool is reported separately.
    if tools.is_empty() || tools.iter().any(has) {
        return None;
    }
    let whose = named(servers);
    let words = match &tools[..] {
        [tool] => format!("tool `{}` of {whose} has no argument `{name}`", tool.own_name()),
        _ => format!("no tool of {whose} that matches `{tool}` has an argument `{name}`"),
    };
    let all: HashSet<&str> = tools.iter().flat_map(|tool| arguments(tool)).collect();
    let mut all: Vec<&str> = all.into_iter().collect();
    all.sort_unstable();
    Some((words, suggestion_for(name, &all, |_| false)))
}

/// Returns the arguments in a tool's schema.
fn arguments(tool: &ToolDefinition) -> HashSet<&str> {
    let schema: &Value = &tool.input_schema;
    let top = resolve(schema, schema);
    let root = SchemaRoot::new(schema);
    let alternatives = ["anyOf", "oneOf"].into_iter().filter_map(|word| top.get(word)?.as_array()).flatten();
    let parts = std::iter::once(top).chain(alternatives.take(50).map(|part| resolve(part, schema)));
    parts.flat_map(|part| members(part, &root).properties).map(|(name, _)| name).collect()
}

/// Returns `true` if a tool explicitly accepts other arguments than its schema names.
fn takes_any(tool: &ToolDefinition) -> bool {
    let schema: &Value = &tool.input_schema;
    let top = resolve(schema, schema);
    let says = top.get("additionalProperties").is_some_and(|more| *more != Value::Bool(false));
    is_open(schema) && (says || top.get("patternProperties").is_some() || arguments(tool).is_empty())
}

fn resource(uri: &str, servers: &[&KnownServer]) -> Option<(String, Option<String>)> {
    let listed: Vec<&str> = servers
        .iter()
        .map(|server| server.resources.as_deref())
        .collect::<Option<Vec<_>>>()?
        .into_iter()
        .flatten()
        .map(String::as_str)
        .collect();
    let filter = ToolFilter::new(&[uri.to_owned()], &[]).ok()?;
    if listed.iter().any(|listed| *listed == uri || filter.allows(&ToolDefinition::new(*listed))) {
        return None;
    }
    let whose = named(servers);
    let suggestion = suggestion_for(uri, &listed, |_| false);
    match (is_glob(uri), &suggestion) {
        (true, _) => Some((format!("no resource of {whose} matches `{uri}`"), suggestion)),
        // Servers may have unlisted resources.
        (false, Some(_)) => Some((format!("{whose} does not list the resource `{uri}`"), suggestion)),
        (false, None) => None,
    }
}

fn pattern(text: &str, key: &str, chat: &ChatTools<'_>) -> Option<(String, Option<String>)> {
    let pattern = ToolPattern::new(text).ok()?;
    let fits = |pattern: &ToolPattern, tool: &ToolDefinition| match key {
        "allow" => pattern.matches(tool),
        _ => pattern.matches_loosely(tool),
    };
    let is_unsure = chat.unseen.iter().any(|(alias, prefix)| pattern.may_match_server(alias, prefix));
    if is_unsure || chat.tools.iter().any(|tool| fits(&pattern, tool)) {
        return None;
    }
    let dotted = |tool: &&ToolDefinition| match &tool.origin {
        ropeway_core::tool::Origin::Server { server, tool } => format!("{server}.{tool}"),
        _ => tool.name.clone(),
    };
    let dotted: Vec<String> = chat.tools.iter().map(dotted).collect();
    // A plain name matches no tool if the server has a prefix.
    let alone = dotted.iter().find(|dotted| dotted.split_once('.').is_some_and(|(_, tool)| tool == text));
    let suggestion = alone.cloned().or_else(|| {
        let names: Vec<&str> =
            dotted.iter().map(String::as_str).chain(chat.tools.iter().map(|tool| tool.name.as_str())).collect();
        let means =
            |text: &str| ToolPattern::new(text).is_ok_and(|pattern| chat.tools.iter().any(|tool| fits(&pattern, tool)));
        suggestion_for(text, &names, means)
    });
    Some((format!("no tool matches `{text}`"), suggestion))
}

/// Suggests a name or glob.
fn suggestion_for(text: &str, names: &[&str], fits: impl Fn(&str) -> bool) -> Option<String> {
    let names = &names[..names.len().min(MOST_CANDIDATES)];
    let Some(wildcard) = text.find(['*', '?', '[', '{']).filter(|at| *at > 0) else {
        return suggest::closest(text, names.iter().copied()).first().map(ToString::to_string);
    };
    // Compares the part before the wildcard with how the names start.
    let (head, tail) = text.split_at(wildcard);
    let length = head.chars().count();
    let starts: Vec<String> = names.iter().map(|name| name.chars().take(length).collect()).collect();
    let near = suggest::closest(head, starts.iter().map(String::as_str));
    let mut globs = near.into_iter().map(|start| format!("{start}{tail}"));
    globs.find(|glob| glob != text && fits(glob)).or_else(|| {
        suggest::closest(head.trim_end_matches(['_', '-', '.']), names.iter().copied()).first().map(ToString::to_string)
    })
}

#[cfg(test)]
mod tests {
    use ropeway_config::tool_references;
    use ropeway_core::tool::Origin;

    use super::*;

    fn tool_of(server: &str, name: &str, schema: Value) -> ToolDefinition {
        let mut tool = ToolDefinition::new(format!("mcp_{server}_{name}")).with_input_schema(schema);
        tool.origin = Origin::Server { server: server.into(), tool: name.into() };
        tool.provenance.prefix = format!("mcp_{server}_").into();
        tool
    }

    fn files() -> KnownServer {
        let closed = json!({"properties": {"path": {}, "limit": {}}, "additionalProperties": false});
        let tools = vec![
            tool_of("files", "read_file", json!({"properties": {"path": {}, "limit": {}}})),
            tool_of("files", "write_file", closed),
            tool_of("files", "any", json!({"type": "object"})),
        ];
        let resources = Some(vec!["file:///notes.md".to_owned()]);
        KnownServer { alias: "files".into(), tools, resources }
    }

    /// Returns the findings for a file whose only connected server is `files`.
    fn found(text: &str) -> Vec<String> {
        let known = [files()];
        let references = tool_references(text, "ropeway.yaml".as_ref()).expect("a file");
        let chat = ChatTools { tools: known[0].tools.iter().collect(), unseen: vec![("gone", "mcp_gone_".to_owned())] };
        let line = |unmatched: &Unmatched| {
            let mark = if unmatched.is_problem { "" } else { "warning: " };
            format!("{mark}{}:{} {}", unmatched.line, unmatched.column, unmatched.sentence())
        };
        unmatched(&references, &known, &chat).iter().map(line).collect()
    }

    fn tools(settings: &str) -> Vec<String> {
        found(&format!("servers: [{{alias: files, command: x, tools: {settings}}}]"))
    }

    #[test]
    fn names_that_no_tool_has_are_found_with_the_nearest_right_word() {
        for (settings, expected) in [
            (
                "[raed_file]",
                "1:46 servers[0].tools[0]: server `files` has no tool `raed_file` (did you mean `read_file`?)",
            ),
            (
                "{allow: ['raed_*']}",
                "1:54 servers[0].tools.allow[0]: no tool of server `files` matches `raed_*` (did you mean `read_*`?)",
            ),
            ("{deny: [delete]}", "1:53 servers[0].tools.deny[0]: server `files` has no tool `delete`"),
            (
                "{deny: ['delete_*']}",
                "warning: 1:53 servers[0].tools.deny[0]: no tool of server `files` matches `delete_*`",
            ),
            (
                "{rename: {files.any: x}}",
                "1:55 servers[0].tools.rename[\"files.any\"]: server `files` has no tool `files.any` (did you mean `any`?)",
            ),
            (
                "{describe: {write: x}}",
                "1:57 servers[0].tools.describe.write: server `files` has no tool `write` (did you mean `write_file`?)",
            ),
            (
                "{hide: {read_file: [limt]}}",
                "1:65 servers[0].tools.hide.read_file[0]: tool `read_file` of server `files` has no argument `limt` (did you mean `limit`?)",
            ),
            (
                "{preset: {'*_file': {depth: 1}}}",
                "1:66 servers[0].tools.preset.*_file.depth: no tool of server `files` that matches `*_file` has an argument `depth`",
            ),
            (
                "{preset: {raed_file: {depth: 1}}}",
                "1:55 servers[0].tools.preset.raed_file: server `files` has no tool `raed_file` (did you mean `read_file`?)",
            ),
        ] {
            assert_eq!(tools(settings), [expected], "{settings}");
        }
    }

    #[test]
    fn names_that_match_something_are_fine() {
        for settings in [
            "[read_file, '*']",
            "{allow: ['{read,write}_file'], deny: ['w*'], rename: {any: x}, hide: {'*': [limit]}}",
            "{preset: {any: {whatever: 1}, read_file: {path: x}}}",
        ] {
            assert_eq!(tools(settings), [""; 0], "{settings}");
        }
    }

    #[test]
    fn a_server_that_is_not_connected_is_not_checked() {
        let text =
            "servers: [{alias: files, command: x}, {alias: gone, command: y, tools: [x]}]\ntool_allowlist: [nothing]\n";
        assert_eq!(found(text), [""; 0]);
        let text = "servers: [{alias: files, command: x}]\ntool_allowlist: [nothing]\n";
        assert_eq!(found(text), ["2:18 tool_allowlist[0]: server `files` has no tool `nothing`"]);
    }

    #[test]
    fn patterns_of_a_chat_and_resources_are_checked_too() {
        let chat =
            "chat: {tools: {allow: [files.raed_file, read_file, 'files.*', 'gone.x'], deny: ['*.rm*']}}\nservers: []\n";
        assert_eq!(
            found(chat),
            [
                "1:24 chat.tools.allow[0]: no tool matches `files.raed_file` (did you mean `files.read_file`?)",
                "1:41 chat.tools.allow[1]: no tool matches `read_file` (did you mean `files.read_file`?)",
            ]
        );
        let context = "servers: [{alias: files, command: x, resources: {context: ['file:///note.md', 'test://*', 'file:///*', 'other://x']}}]\n";
        assert_eq!(
            found(context),
            [
                "warning: 1:60 servers[0].resources.context[0]: server `files` does not list the resource `file:///note.md` (did you mean `file:///notes.md`?)",
                "1:79 servers[0].resources.context[1]: no resource of server `files` matches `test://*`",
            ]
        );
    }
}
