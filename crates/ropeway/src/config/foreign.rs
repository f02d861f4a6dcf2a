//! The files of other clients, in our own words.

use std::path::{Path, PathBuf};

use super::decode;
use super::node::{Entry, Kind, Node, Place, Step, path_text};
use super::problem::{ConfigError, ConfigProblem, in_backticks};
use super::raw::{RawServer, Text};
use super::read::{Written, parse_tree};
use super::reference::{literal, rewrite, workspace};
use super::resolve::legal_alias;

/// Keys that only that client understands, and without which a server is the same.
const THEIR_OWN: [&str; 14] = [
    "alwaysAllow",
    "autoApprove",
    "description",
    "gallery",
    "icon",
    "id",
    "metadata",
    "name",
    "note",
    "source",
    "title",
    "version",
    "_comment",
    "$schema",
];

/// The servers in a file of another client.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Foreign {
    /// The servers, in the order of the file.
    pub servers: Vec<ForeignServer>,
    /// What could not be taken over.
    pub warnings: Vec<String>,
}

/// A server in a file of another client.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ForeignServer {
    /// The server as we would write it; secrets stay references.
    pub server: RawServer,
    /// What a person should know about it, one line each.
    pub notes: Vec<String>,
}

/// Reads the servers of another client, so that they can be written down as ours. Paths become absolute.
pub fn read_foreign(text: &str, origin: &Path) -> Result<Foreign, ConfigError> {
    let tree = parse_tree(text, origin)?;
    let Some(translation) = translate(&tree) else {
        let problem = ConfigProblem::at(tree.place, "", "no servers of another client", "`mcpServers` or the like");
        return Err(ConfigError::new(origin, vec![problem]));
    };
    let mut foreign = Foreign { warnings: translation.warnings, ..Foreign::default() };
    let mut problems = Vec::new();
    for written in translation.servers {
        match decode::decode::<RawServer>(&written.node, &written.path) {
            Ok(server) => foreign.servers.push(portable(server, origin, &translation.inputs)),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() { Ok(foreign) } else { Err(ConfigError::new(origin, problems)) }
}

/// A server that means the same in any file.
fn portable(mut server: RawServer, origin: &Path, inputs: &[(String, String)]) -> ForeignServer {
    let folder = absolute(origin.parent().unwrap_or(Path::new("")));
    let workspace = absolute(workspace(origin));
    let mut notes = Vec::new();
    let mut move_text = |text: &mut String| {
        *text = rewrite(text, &workspace, |input| {
            let name = input.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
            let what = inputs.iter().find(|(id, _)| id == input).map_or("", |(_, what)| what.as_str());
            let note = if what.is_empty() { format!("${{{name}}}") } else { format!("${{{name}}}: {what}") };
            if !notes.contains(&note) {
                notes.push(note);
            }
            name
        });
    };
    server.command.iter_mut().for_each(&mut move_text);
    let values = server.env.0.iter_mut().chain(&mut server.headers.0).map(|(_, value)| value);
    for Text(text) in server.args.iter_mut().chain(&mut server.url).chain(values) {
        move_text(text);
    }
    if let Some(super::raw::RawAuth::Bearer(Text(token))) = &mut server.auth {
        move_text(token);
    }
    for path in server.cwd.iter_mut().chain(&mut server.env_file) {
        move_text(path);
        if !path.starts_with('~') && !path.starts_with("${") {
            *path = folder.join(&path).to_string_lossy().into_owned();
        }
    }
    ForeignServer { server, notes }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(if path.as_os_str().is_empty() { Path::new(".") } else { path })
        .unwrap_or_else(|_| path.to_owned())
}

/// The servers of a file that is not ours.
#[derive(Default)]
pub(super) struct Translation {
    pub(super) servers: Vec<Written>,
    pub(super) warnings: Vec<String>,
    /// What VS Code asks for: names and what they are.
    inputs: Vec<(String, String)>,
    /// The aliases so far, each with what it stands for, places aside.
    taken: Vec<(String, Option<RawServer>)>,
}

/// The servers of the file, if it is one of another client.
pub(super) fn translate(tree: &Node) -> Option<Translation> {
    let mut translation = Translation::default();
    let mut found = false;
    let mut take = |path: &[&str], style: Style| {
        let servers = path.iter().try_fold(tree, |node, key| node.get(key));
        if let Some(servers) = servers.filter(|servers| is_collection(servers, path)) {
            found = true;
            let steps: Vec<Step> = path.iter().map(|key| Step::Key((*key).to_owned())).collect();
            translation.take(servers, &steps, style, None);
        }
    };
    take(&["mcpServers"], Style::Usual);
    take(&["mcp_servers"], Style::Literal);
    take(&["context_servers"], Style::Zed);
    take(&["mcp", "servers"], Style::Usual);
    take(&["config", "servers"], Style::Usual);
    take(&["services", "mcp"], Style::Usual);
    // A list of servers is ours.
    let is_ours =
        ["defaults", "enabled_servers", "collisions", "secrets_file"].iter().any(|key| tree.get(key).is_some());
    if tree.get("servers").is_some_and(Node::is_map) && !is_ours {
        take(&["servers"], Style::Usual);
    }
    // Claude Code keeps the servers of each project beside everybody's.
    for project in tree.get("projects").map(Node::entries).unwrap_or_default() {
        if let Some(servers) = project.value.get("mcpServers").filter(|servers| servers.is_map()) {
            found = true;
            let steps = ["projects", &project.key, "mcpServers"].map(|key| Step::Key(key.to_owned()));
            translation.take(servers, &steps, Style::Usual, Some(&project.key));
        }
    }
    let inputs = tree.get("inputs").or_else(|| tree.get("mcp")?.get("inputs"));
    for input in inputs.map(Node::items).unwrap_or_default() {
        let text = |key: &str| input.get(key).and_then(Node::as_text).unwrap_or_default().to_owned();
        translation.inputs.push((text("id"), text("description")));
    }
    found.then_some(translation)
}

/// A map of servers; where lists are usual, also a list.
fn is_collection(node: &Node, path: &[&str]) -> bool {
    node.is_map() || (matches!(path, ["config", "servers"] | ["services", "mcp"]) && matches!(node.kind, Kind::List(_)))
}

/// How a client writes its servers down.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    /// As most do.
    Usual,
    /// A dollar is a dollar.
    Literal,
    /// As Zed does: a dollar is a dollar, and some servers belong to extensions.
    Zed,
}

impl Translation {
    fn take(&mut self, servers: &Node, steps: &[Step], style: Style, project: Option<&str>) {
        match &servers.kind {
            Kind::Map(entries) => {
                for entry in entries {
                    let path = path_text(&path_text("", steps), &[Step::Key(entry.key.clone())]);
                    self.take_one(&entry.key, entry.place, &entry.value, path, style, project);
                }
            }
            Kind::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    let path = path_text(&path_text("", steps), &[Step::Index(index)]);
                    let name = ["alias", "name", "id"].iter().find_map(|key| item.get(key));
                    match name.and_then(Node::as_text) {
                        Some(text) => {
                            let place = name.map_or(item.place, |name| name.place);
                            self.take_one(text, place, item, path, style, project);
                        }
                        // What lacks a name is told so by our own reading.
                        None => self.servers.push(Written { path, node: Node::map(item.place, Vec::new()) }),
                    }
                }
            }
            Kind::Scalar { .. } => {}
        }
    }

    fn take_one(&mut self, name: &str, at: Place, server: &Node, path: String, style: Style, project: Option<&str>) {
        if !server.is_map() {
            self.servers.push(Written { path, node: server.clone() });
            return;
        }
        let mut words = Words { name, entries: Vec::new(), warnings: Vec::new(), style };
        words.translate(server);
        if style == Style::Zed && !words.has("command") && !words.has("url") {
            self.warnings.push(format!("server {} is left out: it belongs to an extension", in_backticks(name)));
            return;
        }
        if let Some(project) = project.filter(|_| words.has("command") && !words.has("cwd")) {
            words.put("cwd", at, Node::text(at, project));
        }
        let Words { mut entries, warnings, .. } = words;
        let meaning: Option<RawServer> = {
            let mut named = entries.clone();
            named.push(Entry { key: "alias".into(), place: at, value: Node::text(at, "") });
            decode::decode(&Node::map(server.place, named), &path).ok()
        };
        let Some(alias) = self.alias(name, meaning, project) else { return };
        self.warnings.extend(warnings);
        entries.insert(0, Entry { key: "alias".into(), place: at, value: Node::text(at, alias) });
        self.servers.push(Written { path, node: Node::map(server.place, entries) });
    }

    /// An alias that is legal and not taken yet; none when the very same server is there already.
    fn alias(&mut self, name: &str, meaning: Option<RawServer>, project: Option<&str>) -> Option<String> {
        let known = |alias: &str| self.taken.iter().find(|(taken, _)| taken == alias);
        let legal = match legal_alias(name.trim()) {
            legal if legal.is_empty() => "server".to_owned(),
            legal => legal,
        };
        let mut alias = legal.clone();
        if let Some((_, other)) = known(&alias) {
            if *other == meaning && meaning.is_some() {
                return None;
            }
            if let Some(folder) = project.and_then(|project| Path::new(project).file_name()) {
                alias = legal_alias(&format!("{legal}-{}", folder.to_string_lossy()));
            }
        }
        let mut number = 2;
        while known(&alias).is_some() {
            alias = format!("{}-{number}", legal.chars().take(50).collect::<String>());
            number += 1;
        }
        if alias != name {
            self.warnings.push(format!("server {} is called `{alias}` here", in_backticks(name)));
        }
        self.taken.push((alias.clone(), meaning));
        Some(alias)
    }
}

/// One server on its way from their words to ours.
struct Words<'a> {
    name: &'a str,
    entries: Vec<Entry>,
    warnings: Vec<String>,
    style: Style,
}

impl Words<'_> {
    fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == key)
    }

    fn put(&mut self, key: &str, place: Place, value: Node) {
        match self.entries.iter_mut().find(|entry| entry.key == key) {
            Some(known) => {
                let below = std::mem::replace(&mut known.value, Node::text(place, ""));
                known.value = value.over(&below);
            }
            None => self.entries.push(Entry { key: key.to_owned(), place, value }),
        }
    }

    /// Puts a value under a key within a map.
    fn put_within(&mut self, key: &str, inner: &str, place: Place, value: Node) {
        self.put(key, place, Node::map(place, vec![Entry { key: inner.to_owned(), place, value }]));
    }

    fn translate(&mut self, server: &Node) {
        let has_url = ["url", "serverUrl", "httpUrl", "uri"].iter().any(|key| server.get(key).is_some());
        for Entry { key, place, value } in server.entries() {
            let place = *place;
            match key.as_str() {
                _ if value.is_nothing() => {}
                "command" | "cmd" if has_url && value.as_text() == Some("") => {}
                "command" | "cmd" => self.command(place, value),
                "args" => self.put("args", place, self.texts(value)),
                "env" | "environment" | "envs" => self.put("env", place, self.texts(value)),
                "envFile" | "env_file" => self.put("env_file", place, value.clone()),
                "cwd" | "workingDirectory" => self.put("cwd", place, value.clone()),
                "url" | "serverUrl" | "uri" => self.put("url", place, self.texts(value)),
                "httpUrl" => {
                    self.put("url", place, self.texts(value));
                    self.put("transport", place, Node::text(place, "streamable-http"));
                }
                "headers" | "http_headers" => self.put("headers", place, self.texts(value)),
                "type" | "transport" | "transportType" => self.transport(place, value),
                "enabled" | "required" => self.put(key, place, value.clone()),
                "disabled" => self.disabled(place, value),
                "tools" if matches!(value.kind, Kind::List(_)) => self.tools("allow", place, value),
                "enabled_tools" | "enabledTools" | "includeTools" => self.tools("allow", place, value),
                "disabled_tools" | "disabledTools" | "excludeTools" => self.tools("deny", place, value),
                "startup_timeout_sec" => self.put_within("timeouts", "connect", place, value.clone()),
                "startup_timeout_ms" => self.milliseconds("connect", place, value),
                "tool_timeout_sec" => self.put_within("timeouts", "total", place, value.clone()),
                "bearer_token" => self.put_within("auth", "bearer", place, self.texts(value)),
                "bearer_token_env_var" => self.put_within("auth", "bearer", place, reference(value)),
                "env_http_headers" => self.put("headers", place, each(value, reference)),
                "env_vars" => self.forwarded(place, value),
                key if THEIR_OWN.contains(&key) => {}
                // Some list formats are nearly ours.
                "alias" => {}
                "settings" if self.style == Style::Zed => {}
                _ => self.warnings.push(format!("`{key}` of server {} is left out", in_backticks(self.name))),
            }
        }
    }

    /// The value with its texts as they are meant: where a dollar is a dollar, it stays one.
    fn texts(&self, value: &Node) -> Node {
        match (&value.kind, self.style) {
            (_, Style::Usual) => value.clone(),
            (Kind::Scalar { text, plain }, _) => {
                Node { place: value.place, kind: Kind::Scalar { text: literal(text), plain: *plain } }
            }
            (Kind::List(items), _) => {
                let items = items.iter().map(|item| self.texts(item)).collect();
                Node { place: value.place, kind: Kind::List(items) }
            }
            (Kind::Map(_), _) => each(value, |value| self.texts(value)),
        }
    }

    fn command(&mut self, place: Place, value: &Node) {
        match &value.kind {
            Kind::Scalar { .. } => self.put("command", place, value.clone()),
            // The program and its arguments in one list.
            Kind::List(items) => {
                if let Some((program, args)) = items.split_first() {
                    self.put("command", place, program.clone());
                    let args = Node { place, kind: Kind::List(args.to_vec()) };
                    self.put("args", place, self.texts(&args));
                }
            }
            // Zed, as it used to be.
            Kind::Map(entries) => {
                for Entry { key, place, value } in entries.iter().filter(|entry| !entry.value.is_nothing()) {
                    match key.as_str() {
                        "path" | "command" => self.put("command", *place, value.clone()),
                        "args" | "env" => self.put(key, *place, self.texts(value)),
                        _ => self.warnings.push(format!("`{key}` of server {} is left out", in_backticks(self.name))),
                    }
                }
            }
        }
    }

    fn transport(&mut self, place: Place, value: &Node) {
        let name = match value.as_text() {
            Some("streamableHttp" | "streamable_http" | "streamable" | "http-stream" | "http" | "ws" | "websocket") => {
                "streamable-http"
            }
            Some("local") => "stdio",
            // The URL alone tells what it is.
            Some("remote") => return,
            _ => return self.put("transport", place, value.clone()),
        };
        self.put("transport", place, Node::text(value.place, name));
    }

    fn disabled(&mut self, place: Place, value: &Node) {
        let text = match value.as_text() {
            Some("true") => "false",
            Some("false") => "true",
            _ => return self.put("enabled", place, value.clone()),
        };
        let kind = Kind::Scalar { text: text.to_owned(), plain: true };
        self.put("enabled", place, Node { place: value.place, kind });
    }

    /// Names of tools; `*` alone means all.
    fn tools(&mut self, key: &str, place: Place, value: &Node) {
        let name = |item: &Node| match item.as_text() {
            Some("*") | None => item.clone(),
            Some(text) => Node::text(item.place, globset::escape(text)),
        };
        let list = Node { place: value.place, kind: Kind::List(value.items().iter().map(name).collect()) };
        self.put_within("tools", key, place, list);
    }

    fn milliseconds(&mut self, key: &str, place: Place, value: &Node) {
        let wait = Node::text(value.place, format!("{}ms", value.as_text().unwrap_or_default()));
        self.put_within("timeouts", key, place, wait);
    }

    /// Variables that are handed on when they are set.
    fn forwarded(&mut self, place: Place, value: &Node) {
        let names = value.items().iter().filter_map(|item| item.as_text().or_else(|| item.get("name")?.as_text()));
        let forward = |name: &str| {
            let value = Node::text(place, format!("${{{name}:-}}"));
            Entry { key: name.to_owned(), place, value }
        };
        let entries = names.map(forward).collect();
        self.put("env", place, Node::map(place, entries));
    }
}

/// The value of the variable that is named.
fn reference(name: &Node) -> Node {
    Node::text(name.place, format!("${{{}}}", name.as_text().unwrap_or_default()))
}

/// The map with each value changed.
fn each(map: &Node, change: impl Fn(&Node) -> Node) -> Node {
    let entries = map.entries().iter();
    let entries =
        entries.map(|Entry { key, place, value }| Entry { key: key.clone(), place: *place, value: change(value) });
    Node::map(map.place, entries.collect())
}
