//! Translates one server from another client's keys to native keys.

use super::oauth::oauth;
use super::restrictions::restricts;
use super::values::{is_approval, map_values, parse_bool, variable_reference};
use crate::file::decode::decode;
use crate::file::node::{Entry, Node, NodeKind, UnsupportedKey};
use crate::file::position::Position;
use crate::file::problem::{ConfigProblem, in_backticks};
use crate::file::raw::{RawAuth, RawTools};
use crate::file::{glob, reference};

/// Keys that have no effect on a server's connection or tools.
pub(crate) const IGNORED_KEYS: [&str; 14] = [
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

/// Keys that list the allowed tools.
const ALLOW_LISTS: [&str; 3] = ["enabled_tools", "enabledTools", "includeTools"];

/// A client's conventions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientFormat {
    /// The common `mcpServers` format.
    Standard,
    /// Strings contain no references: a dollar sign is literal.
    Literal,
    /// Zed: strings are literal, and some servers are provided by extensions.
    Zed,
    /// One manifest key: tool lists are globs, as in native keys.
    Manifest,
}

/// Collects a server's native keys.
pub(super) struct ServerTranslator<'a> {
    name: &'a str,
    pub(super) entries: Vec<Entry>,
    pub(super) warnings: Vec<String>,
    /// The first unsupported key that restricts or authenticates.
    pub(super) unsupported: Option<UnsupportedKey>,
    /// The first invalid value. Its path is relative to the key.
    problem: Option<ConfigProblem>,
    /// The key that lists the allowed tools.
    allow_key: Option<String>,
    format: ClientFormat,
}

/// Translates one manifest key to native entries. A problem's path is relative to the key.
pub(crate) fn translate_key(key: &str, position: Position, value: &Node) -> Result<Vec<Entry>, ConfigProblem> {
    let entry = Entry { key: key.to_owned(), position, value: value.clone() };
    let ServerTranslator { entries, problem, .. } =
        ServerTranslator::new("", &Node::map(position, vec![entry]), ClientFormat::Manifest);
    problem.map_or(Ok(entries), Err)
}

impl<'a> ServerTranslator<'a> {
    pub(super) fn new(name: &'a str, server: &Node, format: ClientFormat) -> Self {
        let (entries, warnings) = (Vec::new(), Vec::new());
        let mut translator =
            Self { name, entries, warnings, unsupported: None, problem: None, allow_key: None, format };
        translator.translate(server);
        translator
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == key)
    }

    pub(super) fn put(&mut self, key: &str, position: Position, value: Node) {
        match self.entries.iter_mut().find(|entry| entry.key == key) {
            Some(known) => {
                let below = std::mem::replace(&mut known.value, Node::string(position, ""));
                known.value = value.merge_over(&below);
            }
            None => self.entries.push(Entry { key: key.to_owned(), position, value }),
        }
    }

    /// Sets a key in a nested map.
    fn put_nested(&mut self, key: &str, inner: &str, position: Position, value: Node) {
        self.put(key, position, Node::map(position, vec![Entry { key: inner.to_owned(), position, value }]));
    }

    fn translate(&mut self, server: &Node) {
        let has_url = ["url", "serverUrl", "httpUrl", "uri"].iter().any(|key| server.get(key).is_some());
        for Entry { key, position, value } in server.entries() {
            let position = *position;
            match key.as_str() {
                _ if value.is_null() => self.null_value(key, position, value),
                // The manifest form.
                "connection" if value.is_map() => self.translate(value),
                "command" | "cmd" if has_url && value.as_str() == Some("") => {}
                "command" | "cmd" => self.command(position, value),
                "args" => self.put("args", position, self.strings(value)),
                "env" | "environment" | "envs" => self.put("env", position, self.strings(value)),
                "envFile" | "env_file" => self.put("env_file", position, value.clone()),
                "cwd" | "workingDirectory" => self.put("cwd", position, value.clone()),
                "url" | "serverUrl" | "uri" => self.put("url", position, self.strings(value)),
                "httpUrl" => {
                    self.put("url", position, self.strings(value));
                    self.put("transport", position, Node::string(position, "streamable-http"));
                }
                "headers" | "http_headers" => self.put("headers", position, self.strings(value)),
                "type" | "transport" | "transportType" => self.transport(position, value),
                "required" => self.put(key, position, value.clone()),
                // The native decoder reports values other than booleans.
                "enabled" if parse_bool(value).is_err() => self.put(key, position, value.clone()),
                "enabled" => self.switch(key, position, value, true),
                "disabled" => self.switch(key, position, value, false),
                "tools" if matches!(value.kind, NodeKind::List(_)) => self.allow(key, position, value),
                "tools" if decode::<RawTools>(value, "").is_ok() => self.native_tools(value),
                // Codex: whether a call needs approval, which the chat settings decide.
                "tools" if is_approval(value) => self.warn_ignored(key),
                "tool_allowlist" if matches!(value.kind, NodeKind::List(_)) => {
                    self.put_allowlist(position, value.clone())
                }
                "tool_configuration" => self.tool_configuration(position, value),
                "auth" if decode::<RawAuth>(value, "").is_ok() => self.put("auth", position, self.strings(value)),
                "auth" if value.get("CLIENT_ID").is_some() => self.oauth(key, position, value),
                "oauth" => self.oauth(key, position, value),
                key if ALLOW_LISTS.contains(&key) => self.allow(key, position, value),
                "disabled_tools" | "disabledTools" | "excludeTools" => self.deny(key, position, value),
                "startup_timeout_sec" => self.put_nested("timeouts", "connect", position, value.clone()),
                "startup_timeout_ms" => self.milliseconds("connect", position, value),
                "tool_timeout_sec" => self.put_nested("timeouts", "total", position, value.clone()),
                "bearer_token" => self.put_nested("auth", "bearer", position, self.strings(value)),
                "bearer_token_env_var" => self.put_nested("auth", "bearer", position, variable_reference(value)),
                "env_http_headers" => self.put("headers", position, map_values(value, variable_reference)),
                "env_vars" => self.forwarded(position, value),
                key if IGNORED_KEYS.contains(&key) => {}
                "alias" => {}
                "settings" if self.format == ClientFormat::Zed => {}
                _ => self.unknown(key, position),
            }
        }
    }

    /// Handles an unknown key. A key that restricts or authenticates is never ignored.
    fn unknown(&mut self, key: &str, position: Position) {
        if restricts(key) {
            let reason = "is not supported and may restrict access or authenticate";
            self.reject(key, position, reason.to_owned());
        } else {
            self.warn_ignored(key);
        }
    }

    fn reject(&mut self, key: &str, position: Position, reason: String) {
        self.unsupported.get_or_insert_with(|| UnsupportedKey { key: key.to_owned(), position, reason });
    }

    /// Rejects an invalid value for a key that restricts.
    fn invalid(&mut self, key: &str, position: Position, problem: ConfigProblem) {
        self.reject(key, position, format!("is invalid: {}", problem.message()));
        self.problem.get_or_insert(problem);
    }

    /// Handles a key without a value, which has no effect unless it lists the allowed tools.
    fn null_value(&mut self, key: &str, position: Position, value: &Node) {
        if !ALLOW_LISTS.contains(&key) {
            return;
        }
        // Other clients write `null` for settings that are not set.
        if self.format == ClientFormat::Manifest {
            self.invalid(key, position, ConfigProblem::mismatch(value.position, "", "no value", "a list"));
        } else {
            self.warn_ignored(key);
        }
    }

    fn warn_ignored(&mut self, key: &str) {
        self.warnings.push(format!(
            "ignored unsupported key {} of server {}",
            in_backticks(key),
            in_backticks(self.name)
        ));
    }

    /// Escapes dollar signs in a value's strings, if the client does not support references.
    fn strings(&self, value: &Node) -> Node {
        match (&value.kind, self.format) {
            (_, ClientFormat::Standard | ClientFormat::Manifest) => value.clone(),
            (NodeKind::Scalar { text, plain }, _) => Node {
                position: value.position,
                kind: NodeKind::Scalar { text: reference::escape(text), plain: *plain },
            },
            (NodeKind::List(items), _) => {
                let items = items.iter().map(|item| self.strings(item)).collect();
                Node { position: value.position, kind: NodeKind::List(items) }
            }
            (NodeKind::Map(_), _) => map_values(value, |value| self.strings(value)),
        }
    }

    fn command(&mut self, position: Position, value: &Node) {
        match &value.kind {
            NodeKind::Scalar { .. } => self.put("command", position, value.clone()),
            // The program with its arguments.
            NodeKind::List(items) => {
                if let Some((program, args)) = items.split_first() {
                    self.put("command", position, program.clone());
                    let args = Node { position, kind: NodeKind::List(args.to_vec()) };
                    self.put("args", position, self.strings(&args));
                }
            }
            // Zed's former format.
            NodeKind::Map(entries) => {
                for Entry { key, position, value } in entries.iter().filter(|entry| !entry.value.is_null()) {
                    match key.as_str() {
                        "path" | "command" => self.put("command", *position, value.clone()),
                        "args" | "env" => self.put(key, *position, self.strings(value)),
                        _ => self.unknown(key, *position),
                    }
                }
            }
        }
    }

    fn oauth(&mut self, name: &str, position: Position, value: &Node) {
        match oauth(value, |text| self.strings(text)) {
            Ok(auth) => self.put("auth", position, auth),
            Err((key, _)) if key.is_empty() => self.unknown(name, position),
            Err((key, position)) => self.unknown(&format!("{name}{key}"), position),
        }
    }

    fn transport(&mut self, position: Position, value: &Node) {
        let name = match value.as_str() {
            Some("streamableHttp" | "streamable_http" | "streamable" | "http-stream" | "http") => "streamable-http",
            Some("ws") => "websocket",
            Some("local") => "stdio",
            // The transport follows from the URL.
            Some("remote") => return,
            _ => return self.put("transport", position, value.clone()),
        };
        self.put("transport", position, Node::string(value.position, name));
    }

    /// Enables or disables the server. If several keys are set, one that disables it wins.
    fn switch(&mut self, key: &str, position: Position, value: &Node, on: bool) {
        match parse_bool(value) {
            Ok(switch) if switch == on && self.has("enabled") => {}
            Ok(switch) => self.put_enabled(position, value.position, switch == on),
            Err(problem) => self.invalid(key, position, problem),
        }
    }

    pub(super) fn put_enabled(&mut self, position: Position, at: Position, enabled: bool) {
        let kind = NodeKind::Scalar { text: enabled.to_string(), plain: true };
        self.put("enabled", position, Node { position: at, kind });
    }

    /// Sets the allowed tools. Only one key may list them.
    fn allow(&mut self, key: &str, position: Position, value: &Node) {
        let Some(list) = self.names(key, position, value) else { return };
        self.put_allow(key, position, list);
    }

    fn put_allow(&mut self, key: &str, position: Position, list: Node) {
        if let Some(first) = &self.allow_key {
            let reason =
                format!("conflicts with {}: both list the allowed tools; keep one of them", in_backticks(first));
            return self.reject(key, position, reason);
        }
        self.allow_key = Some(key.to_owned());
        // An empty `tools.allow` allows all tools; an empty `tool_allowlist` allows none.
        if list.items().is_empty() {
            self.put_allowlist(position, list);
        } else {
            self.put_nested("tools", "allow", position, list);
        }
    }

    /// Sets `tool_allowlist`, unless it is empty already and so hides all tools.
    fn put_allowlist(&mut self, position: Position, list: Node) {
        let known = self.entries.iter().find(|entry| entry.key == "tool_allowlist");
        if !known.is_some_and(|known| known.value.items().is_empty()) {
            self.put("tool_allowlist", position, list);
        }
    }

    /// Adds denied tools to those from other keys.
    fn deny(&mut self, key: &str, position: Position, value: &Node) {
        let Some(list) = self.names(key, position, value) else { return };
        self.put_deny(position, &list);
    }

    fn put_deny(&mut self, position: Position, list: &Node) {
        let known = self.within("tools", "deny").map(Node::items).unwrap_or_default();
        let items = known.iter().chain(list.items()).cloned().collect();
        self.put_nested("tools", "deny", position, Node { position: list.position, kind: NodeKind::List(items) });
    }

    fn within(&self, key: &str, inner: &str) -> Option<&Node> {
        self.entries.iter().find(|entry| entry.key == key)?.value.get(inner)
    }

    /// Handles the native map `tools`, whose lists are globs.
    fn native_tools(&mut self, tools: &Node) {
        for Entry { key, position, value } in tools.entries() {
            match key.as_str() {
                "allow" if !value.items().is_empty() => self.put_allow("tools.allow", *position, value.clone()),
                // An empty list allows all tools, unless another key lists them.
                "allow" if self.within("tools", "allow").is_some() => {}
                "deny" => self.put_deny(*position, value),
                key => self.put_nested("tools", key, *position, value.clone()),
            }
        }
    }

    /// Handles the MCP connector's key in Anthropic's Messages API
    /// (<https://docs.anthropic.com/en/docs/agents-and-tools/mcp-connector>).
    fn tool_configuration(&mut self, position: Position, value: &Node) {
        if !value.is_map() {
            let problem = ConfigProblem::mismatch(value.position, "", value.describe_kind(), "a map");
            return self.invalid("tool_configuration", position, problem);
        }
        for Entry { key, position, value } in value.entries().iter().filter(|entry| !entry.value.is_null()) {
            let path = format!("tool_configuration.{key}");
            match key.as_str() {
                "enabled" => self.switch(&path, *position, value, true),
                "allowed_tools" => self.allow(&path, *position, value),
                _ => self.unknown(&path, *position),
            }
        }
    }

    /// Returns a tool list as globs.
    ///
    /// Manifests contain globs. Other clients compare names, except that `*` alone matches all tools.
    fn names(&mut self, key: &str, position: Position, value: &Node) -> Option<Node> {
        let names = match decode::<Vec<String>>(value, "") {
            Ok(names) => names,
            Err(problem) => {
                self.invalid(key, position, problem);
                return None;
            }
        };
        if self.format == ClientFormat::Manifest {
            return Some(value.clone());
        }
        let mut items = Vec::new();
        for (name, item) in names.iter().zip(value.items()) {
            let is_all = name == "*";
            if !is_all && name.contains(['*', '?', '[', ']', '{', '}']) {
                let (key, server, name) = (in_backticks(key), in_backticks(self.name), in_backticks(name));
                self.warnings.push(format!("{key} of server {server}: {name} is matched as a name, not as a glob"));
            }
            items.push(if is_all { item.clone() } else { Node::string(item.position, glob::escape(name)) });
        }
        Some(Node { position: value.position, kind: NodeKind::List(items) })
    }

    fn milliseconds(&mut self, key: &str, position: Position, value: &Node) {
        let duration = Node::string(value.position, format!("{}ms", value.as_str().unwrap_or_default()));
        self.put_nested("timeouts", key, position, duration);
    }

    /// Forwards environment variables that are set.
    fn forwarded(&mut self, position: Position, value: &Node) {
        let names = value.items().iter().filter_map(|item| item.as_str().or_else(|| item.get("name")?.as_str()));
        let forward = |name: &str| {
            let value = Node::string(position, format!("${{{name}:-}}"));
            Entry { key: name.to_owned(), position, value }
        };
        let entries = names.map(forward).collect();
        self.put("env", position, Node::map(position, entries));
    }
}
