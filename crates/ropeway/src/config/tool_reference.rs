//! The tools and arguments that a configuration file names, each with its place.

use std::collections::HashMap;
use std::path::Path;

use super::node::{Node, Place, Step, path_text};
use super::problem::ConfigError;
use super::read::Document;
use crate::tool::Alias;

/// A name of a tool, an argument or a resource in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolReference {
    /// The line, from one.
    pub line: usize,
    /// The column, from one.
    pub column: usize,
    /// The way to the name: `servers[2].tools.deny[0]`.
    pub path: String,
    /// The key that the name stands under: `allow`, `deny`, `rename`, `describe`, `hide`, `preset`, `provider_options`,
    /// `tool_allowlist`, `context`, or `allow`, `ask` and `deny` of `chat.tools`.
    pub key: &'static str,
    /// The name as it is written.
    pub name: String,
    /// What is named.
    pub kind: ToolReferenceKind,
    /// The servers that the name is about, in the order of the file. Empty for `chat`, whose patterns name their servers.
    pub servers: Vec<Alias>,
}

/// What a name of a configuration file stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolReferenceKind {
    /// Tools: a glob over the server's own names.
    Tool,
    /// An argument.
    #[non_exhaustive]
    Argument {
        /// The tools that have it: a glob over the server's own names.
        tool: String,
    },
    /// Resources: a URI, or a glob over URIs.
    Resource,
    /// Tools of any server: a pattern of `chat.tools`.
    Pattern,
}

/// Lists the names of tools, arguments and resources in the text of the file `origin`, in the order of the file.
///
/// Whether a server has them is known only once it is connected.
///
/// # Examples
///
/// ```
/// use ropeway::config::tool_references;
///
/// let text = "servers: [{alias: web, command: npx, tools: {hide: {search: [limit]}}}]";
/// let names = tool_references(text, "ropeway.yaml".as_ref())?;
/// assert_eq!(names.iter().map(|named| named.name.as_str()).collect::<Vec<_>>(), ["search", "limit"]);
/// # Ok::<(), ropeway::config::ConfigError>(())
/// ```
pub fn tool_references(text: &str, origin: &Path) -> Result<Vec<ToolReference>, ConfigError> {
    let document = Document::parse(text, origin)?;
    let mut references = References::default();
    if let Some(defaults) = &document.defaults {
        references.server(defaults, &format!("{}defaults", document.base), None, false);
    }
    for written in &document.servers {
        let node = document.with_defaults(&written.node);
        let Some(alias) = node.get("alias").and_then(Node::as_text) else { continue };
        references.server(&node, &written.path, Some(alias), document.is_foreign);
    }
    if let Some((_, list)) = &document.tool_allowlist {
        let path = format!("{}tool_allowlist", document.base);
        let aliases =
            || document.servers.iter().filter_map(|written| written.node.get("alias").and_then(Node::as_text));
        for alias in aliases().filter(|_| list.entries().is_empty()) {
            references.list(list, &path, &[], "tool_allowlist", ToolReferenceKind::Tool, Some(alias));
        }
        for entry in list.entries() {
            let path = path_text(&path, &[Step::Key(entry.key.clone())]);
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
    // A default that every server replaces is about none.
    found.retain(|reference| reference.kind == ToolReferenceKind::Pattern || !reference.servers.is_empty());
    found.sort_by_key(|reference| (reference.line, reference.column));
    Ok(found)
}

/// The names so far. A name that stands in the defaults of the file is one, about several servers.
#[derive(Default)]
struct References {
    found: Vec<ToolReference>,
    known: HashMap<(Place, &'static str), usize>,
}

impl References {
    fn server(&mut self, node: &Node, path: &str, alias: Option<&str>, is_foreign: bool) {
        // In the files of other clients the keys have other names.
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
                let steps = ["tools", key, entry.key.as_str()].map(|step| Step::Key(step.to_owned()));
                let tool = path_text(path, &steps);
                self.add(entry.place, tool.clone(), key, &entry.key, ToolReferenceKind::Tool, alias);
                let kind = ToolReferenceKind::Argument { tool: entry.key.clone() };
                match key {
                    "hide" => self.list(&entry.value, &tool, &[], key, kind, alias),
                    "preset" => {
                        for argument in entry.value.entries() {
                            let path = path_text(&tool, &[Step::Key(argument.key.clone())]);
                            self.add(argument.place, path, key, &argument.key, kind.clone(), alias);
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

    /// Adds every item of a list.
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
            let Some(name) = item.as_text() else { continue };
            let steps = steps.iter().map(|step| Step::Key((*step).to_owned())).chain([Step::Index(at)]);
            self.add(item.place, path_text(path, &steps.collect::<Vec<_>>()), key, name, kind.clone(), server);
        }
    }

    fn add(
        &mut self,
        place: Place,
        path: String,
        key: &'static str,
        name: &str,
        kind: ToolReferenceKind,
        server: Option<&str>,
    ) {
        let at = *self.known.entry((place, key)).or_insert_with(|| {
            let Place { line, column } = place;
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
