//! One server in the words of another client, and the same in ours.

use crate::config::decode::decode;
use crate::config::glob::escape;
use crate::config::node::{Entry, Kind, Node, Place, Refusal};
use crate::config::problem::in_backticks;
use crate::config::raw::{RawAuth, RawTools};
use crate::config::reference::literal;

/// Keys that only that client understands, and without which a server is the same.
pub(in crate::config) const THEIR_OWN: [&str; 14] = [
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

/// How a client writes its servers down.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// As most do.
    Usual,
    /// A dollar is a dollar.
    Literal,
    /// As Zed does: a dollar is a dollar, and some servers belong to extensions.
    Zed,
}

/// One server on its way from their words to ours.
pub(super) struct Words<'a> {
    name: &'a str,
    pub(super) entries: Vec<Entry>,
    pub(super) warnings: Vec<String>,
    /// The first key that restricts or authenticates and is not supported.
    pub(super) refusal: Option<Refusal>,
    style: Style,
}

/// Parts of the names of keys that restrict what a server may do, or say who we are, in lower case and without `_` and `-`.
const RESTRICTING: [&str; 29] = [
    "allow",
    "apikey",
    "approv",
    "auth",
    "blacklist",
    "block",
    "cert",
    "credential",
    "deny",
    "denied",
    "disable",
    "exclude",
    "filter",
    "forbid",
    "headershelper",
    "include",
    "passphrase",
    "password",
    "permission",
    "policy",
    "privatekey",
    "readonly",
    "restrict",
    "sandbox",
    "scope",
    "secret",
    "tls",
    "token",
    "whitelist",
];

/// Does a key that is not known restrict what a server may do, or authenticate, by its name?
fn restricts(key: &str) -> bool {
    let plain = key.to_lowercase().replace(['_', '-'], "");
    let is_tools = matches!(plain.as_str(), "tool" | "tools" | "toolset" | "toolsets");
    is_tools || (!plain.contains("timeout") && RESTRICTING.iter().any(|part| plain.contains(part)))
}

/// The native settings that one key of another client stands for.
pub(in crate::config) fn translated(key: &str, place: Place, value: &Node) -> Vec<Entry> {
    let entry = Entry { key: key.to_owned(), place, value: value.clone() };
    Words::of("", &Node::map(place, vec![entry]), Style::Usual).entries
}

impl<'a> Words<'a> {
    pub(super) fn of(name: &'a str, server: &Node, style: Style) -> Self {
        let mut words = Self { name, entries: Vec::new(), warnings: Vec::new(), refusal: None, style };
        words.translate(server);
        words
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == key)
    }

    pub(super) fn put(&mut self, key: &str, place: Place, value: Node) {
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
                "tools" if decode::<RawTools>(value, "").is_ok() => self.put("tools", place, value.clone()),
                // Codex: whether a person is asked before a call, which is for us to decide.
                "tools" if is_approval(value) => self.leave_out(key),
                "tool_allowlist" if matches!(value.kind, Kind::List(_)) => self.put(key, place, value.clone()),
                "auth" if decode::<RawAuth>(value, "").is_ok() => self.put("auth", place, self.texts(value)),
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
                _ => self.unknown(key, place),
            }
        }
    }

    /// A key that is not known: one that restricts or authenticates is never ignored.
    fn unknown(&mut self, key: &str, place: Place) {
        if restricts(key) {
            self.refusal.get_or_insert_with(|| Refusal { key: key.to_owned(), place });
        } else {
            self.leave_out(key);
        }
    }

    fn leave_out(&mut self, key: &str) {
        self.warnings.push(format!("{} of server {} is left out", in_backticks(key), in_backticks(self.name)));
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
                        _ => self.unknown(key, *place),
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
            Some(text) => Node::text(item.place, escape(text)),
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

/// Does a map say of tools only whether a person is asked about their calls?
fn is_approval(tools: &Node) -> bool {
    let is_mode =
        |tool: &Entry| tool.value.is_map() && tool.value.entries().iter().all(|setting| setting.key == "approval_mode");
    tools.is_map() && tools.entries().iter().all(is_mode)
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
