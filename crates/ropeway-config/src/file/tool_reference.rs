//! Tool, argument and resource names in a configuration file, with their positions.

use std::collections::HashMap;
use std::path::Path;

use super::document::Document;
use super::node::{Node, PathStep, format_path};
use super::position::Position;
use super::problem::ConfigError;
use ropeway_core::tool::Alias;

/// A tool, argument or resource name in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolReference {
    /// The line, starting at one.
    pub line: usize,
    /// The column, starting at one.
    pub column: usize,
    /// The name's path, such as `servers[2].tools.deny[0]`.
    pub path: String,
    /// The key that contains the name: `allow`, `deny`, `rename`, `describe`, `hide`, `preset`, `provider_options`,
    /// `tool_allowlist`, `context`, or `allow`, `ask` and `deny` in `chat.tools`.
    pub key: &'static str,
    /// The name, which may be a glob.
    pub name: String,
    /// What the name refers to.
    pub kind: ToolReferenceKind,
    /// The servers that the name applies to, in file order. Empty for `chat` patterns, which contain the server.
    pub servers: Vec<Alias>,
}

/// What a [`ToolReference`] refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolReferenceKind {
    /// A glob over the server's own tool names.
    Tool,
    /// A tool's argument.
    #[non_exhaustive]
    Argument {
        /// The glob over the server's own tool names.
        tool: String,
    },
    /// A resource URI, or a glob over URIs.
    Resource,
    /// A pattern in `chat.tools`, for tools from any server.
    Pattern,
}

/// Lists the tool, argument and resource names in text from the file `origin`, in file order.
///
/// A caller can compare them with the connected servers' tools.
///
/// # Examples
///
/// ```
/// use ropeway_config::tool_references;
///
/// let text = "servers: [{alias: web, command: npx, tools: {hide: {search: [limit]}}}]";
/// let names = tool_references(text, "ropeway.yaml".as_ref())?;
/// assert_eq!(names.iter().map(|named| named.name.as_str()).collect::<Vec<_>>(), ["search", "limit"]);
/// # Ok::<(), ropeway_config::ConfigError>(())
/// ```
pub fn tool_references(text: &str, origin: &Path) -> Result<Vec<ToolReference>, ConfigError> {
    let document = Document::parse(text, origin)?;
    let mut references = References::default();
    if let Some(defaults) = &document.defaults {
        references.server(defaults, &format!("{}defaults", document.base), None, false);
    }
    for server in &document.servers {
        let node = document.with_defaults(&server.node);
        let Some(alias) = node.get("alias").and_then(Node::as_str) else { continue };
        references.server(&node, &server.path, Some(alias), document.is_foreign);
    }
    if let Some((_, list)) = &document.tool_allowlist {
        let path = format!("{}tool_allowlist", document.base);
        let aliases = || document.servers.iter().filter_map(|server| server.node.get("alias").and_then(Node::as_str));
        for alias in aliases().filter(|_| list.entries().is_empty()) {
            references.list(list, &path, &[], "tool_allowlist", ToolReferenceKind::Tool, Some(alias));
        }
        for entry in list.entries() {
            let path = format_path(&path, &[PathStep::Key(entry.key.clone())]);
            references.list(&entry.value, &path, &[], "tool_allowlist", ToolReferenceKind::Tool, Some(&entry.key));
        }
    }
    if let Some((_, chat)) = &document.chat {
        let path = format!("{}chat", document.base);
        for key in ["allow", "ask", "deny"] {
            if let Some(list) = chat.get("tools").and_then(|tools| tools.get(key)) {
                references.list(list, &path, &["tools", key], key, ToolReferenceKind::Pattern, None);
            }
        }
    }
    let mut found = references.found;
    // A default that every server overrides applies to none.
    found.retain(|reference| reference.kind == ToolReferenceKind::Pattern || !reference.servers.is_empty());
    found.sort_by_key(|reference| (reference.line, reference.column));
    Ok(found)
}

/// Collects names. A name in `defaults` is one reference that applies to several servers.
#[derive(Default)]
struct References {
    found: Vec<ToolReference>,
    known: HashMap<(Position, &'static str), usize>,
}

impl References {
    fn server(&mut self, node: &Node, path: &str, alias: Option<&str>, is_foreign: bool) {
        // Other clients' files use other keys, so their paths end at the server.
        let list = |key: &'static str, steps: &[&'static str]| {
            let value = steps.iter().try_fold(node, |node, step| node.get(step))?;
            (!value.items().is_empty()).then(|| (value.clone(), key, steps.to_vec()))
        };
        let lists = [
            list("allow", &["tools"]),
            list("allow", &["tools", "allow"]),
            list("deny", &["tools", "deny"]),
            list("tool_allowlist", &["tool_allowlist"]),
        ];
        for (value, key, steps) in lists.into_iter().flatten() {
            let steps: &[&str] = if is_foreign { &[] } else { &steps };
            self.list(&value, path, steps, key, ToolReferenceKind::Tool, alias);
        }
        let tools = node.get("tools");
        for key in ["rename", "describe", "hide", "preset", "provider_options"] {
            for entry in tools.and_then(|tools| tools.get(key)).map(Node::entries).unwrap_or_default() {
                let steps = ["tools", key, entry.key.as_str()].map(|step| PathStep::Key(step.to_owned()));
                let tool = format_path(path, &steps);
                self.add(entry.position, tool.clone(), key, &entry.key, ToolReferenceKind::Tool, alias);
                let kind = ToolReferenceKind::Argument { tool: entry.key.clone() };
                match key {
                    "hide" => self.list(&entry.value, &tool, &[], key, kind, alias),
                    "preset" => {
                        for argument in entry.value.entries() {
                            let path = format_path(&tool, &[PathStep::Key(argument.key.clone())]);
                            self.add(argument.position, path, key, &argument.key, kind.clone(), alias);
                        }
                    }
                    _ => {}
                }
            }
        }
        if let Some(context) = node.get("resources").and_then(|resources| resources.get("context")) {
            self.list(context, path, &["resources", "context"], "context", ToolReferenceKind::Resource, alias);
        }
    }

    /// Adds a list's items.
    fn list(
        &mut self,
        list: &Node,
        path: &str,
        steps: &[&str],
        key: &'static str,
        kind: ToolReferenceKind,
        server: Option<&str>,
    ) {
        for (at, item) in list.items().iter().enumerate() {
            let Some(name) = item.as_str() else { continue };
            let steps = steps.iter().map(|step| PathStep::Key((*step).to_owned())).chain([PathStep::Index(at)]);
            self.add(item.position, format_path(path, &steps.collect::<Vec<_>>()), key, name, kind.clone(), server);
        }
    }

    fn add(
        &mut self,
        position: Position,
        path: String,
        key: &'static str,
        name: &str,
        kind: ToolReferenceKind,
        server: Option<&str>,
    ) {
        let at = *self.known.entry((position, key)).or_insert_with(|| {
            let Position { line, column } = position;
            self.found.push(ToolReference {
                line,
                column,
                path,
                key,
                name: name.to_owned(),
                kind,
                servers: Vec::new(),
            });
            self.found.len() - 1
        });
        self.found[at].servers.extend(server.map(Alias::from));
    }
}
