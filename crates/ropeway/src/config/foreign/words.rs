//! One server in the words of another client, and the same in ours.

use crate::config::decode::decode;
use crate::config::glob::escape;
use crate::config::node::{Entry, Kind, Node, Place, Refusal};
use crate::config::problem::{ConfigProblem, in_backticks};
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

/// Lists of allowed tools.
const ALLOW_LISTS: [&str; 3] = ["enabled_tools", "enabledTools", "includeTools"];

/// How a client writes its servers down.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// As most do.
    Usual,
    /// A dollar is a dollar.
    Literal,
    /// As Zed does: a dollar is a dollar, and some servers belong to extensions.
    Zed,
    /// One key of a manifest. Lists of tools are globs, as in the native lists beside which they stand.
    Manifest,
}

/// One server on its way from their words to ours.
pub(super) struct Words<'a> {
    name: &'a str,
    pub(super) entries: Vec<Entry>,
    pub(super) warnings: Vec<String>,
    /// The first key that restricts or authenticates and cannot be honoured.
    pub(super) refusal: Option<Refusal>,
    /// The first value that is not valid; its path is relative to the key.
    problem: Option<ConfigProblem>,
    /// The key that lists the allowed tools.
    allow_key: Option<String>,
    style: Style,
}

/// Parts of the names of keys that restrict or authenticate, in lower case and without separators.
const RESTRICTING: [&str; 46] = [
    "accesskey",
    "allow",
    "apikey",
    "approv",
    "auth",
    "bearer",
    "blacklist",
    "block",
    "cert",
    "confirm",
    "cookie",
    "credential",
    "denied",
    "deny",
    "disable",
    "enable",
    "exclude",
    "exclusion",
    "filter",
    "forbid",
    "headershelper",
    "hidden",
    "include",
    "inclusion",
    "isolat",
    "jwt",
    "network",
    "omitted",
    "passphrase",
    "passwd",
    "password",
    "permission",
    "permit",
    "policy",
    "privatekey",
    "prohibit",
    "readonly",
    "restrict",
    "sandbox",
    "scope",
    "secret",
    "tls",
    "token",
    "toolname",
    "username",
    "whitelist",
];

/// Whole words in the names of keys that restrict or authenticate. As parts of other words they mean nothing: `keywords`.
const RESTRICTING_WORDS: [&str; 18] = [
    "access", "ban", "banned", "except", "hide", "key", "keys", "login", "omit", "only", "pass", "reject", "skip",
    "skipped", "tool", "tools", "toolset", "toolsets",
];

/// Keys that look as if they authenticate, and do not.
const HARMLESS: [&str; 3] = ["author", "authors", "keywords"];

/// Returns true for an unknown key that restricts what a server may do, or authenticates, by its name.
fn restricts(key: &str) -> bool {
    let plain: String = key.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    if HARMLESS.contains(&plain.as_str()) || plain.contains("timeout") {
        return false;
    }
    // `supports_parallel_tool_calls` speaks of a tool and filters none.
    let words = words(key);
    let is_word = |word: &String| RESTRICTING_WORDS.contains(&word.as_str()) && (word != "tool" || words.len() == 1);
    RESTRICTING.iter().any(|part| plain.contains(part)) || words.iter().any(is_word)
}

/// The words of a key in `camelCase`, `snake_case` or `kebab-case`, in lower case.
fn words(key: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in key.chars() {
        if !c.is_alphanumeric() || (was_lower && c.is_uppercase()) {
            words.push(String::new());
        }
        was_lower = !c.is_uppercase();
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The native settings that one key of a manifest stands for. The path of a problem is relative to the key.
pub(in crate::config) fn translated(key: &str, place: Place, value: &Node) -> Result<Vec<Entry>, ConfigProblem> {
    let entry = Entry { key: key.to_owned(), place, value: value.clone() };
    let Words { entries, problem, .. } = Words::of("", &Node::map(place, vec![entry]), Style::Manifest);
    problem.map_or(Ok(entries), Err)
}

impl<'a> Words<'a> {
    pub(super) fn of(name: &'a str, server: &Node, style: Style) -> Self {
        let (entries, warnings) = (Vec::new(), Vec::new());
        let mut words = Self { name, entries, warnings, refusal: None, problem: None, allow_key: None, style };
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
                _ if value.is_nothing() => self.nothing(key, place, value),
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
                "required" => self.put(key, place, value.clone()),
                // Anything else than a truth is told by the native decoder.
                "enabled" if truth(value).is_err() => self.put(key, place, value.clone()),
                "enabled" => self.switch(key, place, value, true),
                "disabled" => self.switch(key, place, value, false),
                "tools" if matches!(value.kind, Kind::List(_)) => self.allow(key, place, value),
                "tools" if decode::<RawTools>(value, "").is_ok() => self.native_tools(value),
                // Codex: whether a person is asked before a call, which is for us to decide.
                "tools" if is_approval(value) => self.leave_out(key),
                "tool_allowlist" if matches!(value.kind, Kind::List(_)) => self.put_allowlist(place, value.clone()),
                "tool_configuration" => self.tool_configuration(place, value),
                "auth" if decode::<RawAuth>(value, "").is_ok() => self.put("auth", place, self.texts(value)),
                key if ALLOW_LISTS.contains(&key) => self.allow(key, place, value),
                "disabled_tools" | "disabledTools" | "excludeTools" => self.deny(key, place, value),
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
            let reason = "is not supported; a key that restricts or authenticates is never ignored";
            self.refuse(key, place, reason.to_owned());
        } else {
            self.leave_out(key);
        }
    }

    fn refuse(&mut self, key: &str, place: Place, reason: String) {
        self.refusal.get_or_insert_with(|| Refusal { key: key.to_owned(), place, reason });
    }

    /// A value that is not valid for a key that restricts.
    fn invalid(&mut self, key: &str, place: Place, problem: ConfigProblem) {
        self.refuse(key, place, format!("is not valid: found {}, expected {}", problem.found, problem.expected));
        self.problem.get_or_insert(problem);
    }

    /// A key without a value. Only a list of allowed tools means something else than the same key left out.
    fn nothing(&mut self, key: &str, place: Place, value: &Node) {
        if !ALLOW_LISTS.contains(&key) {
            return;
        }
        // The JSON of other clients has `null` for settings that are not set.
        if self.style == Style::Manifest {
            self.invalid(key, place, ConfigProblem::at(value.place, "", "nothing", "a list"));
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
            (_, Style::Usual | Style::Manifest) => value.clone(),
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

    /// Switches the server on or off; of several switches, one that is off wins.
    fn switch(&mut self, key: &str, place: Place, value: &Node, on: bool) {
        match truth(value) {
            Ok(truth) if truth == on && self.has("enabled") => {}
            Ok(truth) => self.put_enabled(place, value.place, truth == on),
            Err(problem) => self.invalid(key, place, problem),
        }
    }

    pub(super) fn put_enabled(&mut self, place: Place, at: Place, enabled: bool) {
        let kind = Kind::Scalar { text: enabled.to_string(), plain: true };
        self.put("enabled", place, Node { place: at, kind });
    }

    /// The allowed tools. Two keys cannot both list them: which of them was meant is not known.
    fn allow(&mut self, key: &str, place: Place, value: &Node) {
        let Some(list) = self.names(key, place, value) else { return };
        self.put_allow(key, place, list);
    }

    fn put_allow(&mut self, key: &str, place: Place, list: Node) {
        if let Some(first) = &self.allow_key {
            let reason = format!("and {} both list the allowed tools; keep one of them", in_backticks(first));
            return self.refuse(key, place, reason);
        }
        self.allow_key = Some(key.to_owned());
        // An empty `tools.allow` allows all tools, an empty `tool_allowlist` none.
        if list.items().is_empty() {
            self.put_allowlist(place, list);
        } else {
            self.put_within("tools", "allow", place, list);
        }
    }

    /// An empty list hides all tools, and stays.
    fn put_allowlist(&mut self, place: Place, list: Node) {
        let known = self.entries.iter().find(|entry| entry.key == "tool_allowlist");
        if !known.is_some_and(|known| known.value.items().is_empty()) {
            self.put("tool_allowlist", place, list);
        }
    }

    /// Tools that are not allowed, besides those of other keys.
    fn deny(&mut self, key: &str, place: Place, value: &Node) {
        let Some(list) = self.names(key, place, value) else { return };
        self.put_deny(place, &list);
    }

    fn put_deny(&mut self, place: Place, list: &Node) {
        let known = self.within("tools", "deny").map(Node::items).unwrap_or_default();
        let items = known.iter().chain(list.items()).cloned().collect();
        self.put_within("tools", "deny", place, Node { place: list.place, kind: Kind::List(items) });
    }

    fn within(&self, key: &str, inner: &str) -> Option<&Node> {
        self.entries.iter().find(|entry| entry.key == key)?.value.get(inner)
    }

    /// The native map `tools`, whose lists are globs.
    fn native_tools(&mut self, tools: &Node) {
        for Entry { key, place, value } in tools.entries() {
            match key.as_str() {
                "allow" if !value.items().is_empty() => self.put_allow("tools.allow", *place, value.clone()),
                // Allows all tools, unless another key lists them.
                "allow" if self.within("tools", "allow").is_some() => {}
                "deny" => self.put_deny(*place, value),
                key => self.put_within("tools", key, *place, value.clone()),
            }
        }
    }

    /// The tools of a server in Anthropic's Messages API
    /// (<https://docs.anthropic.com/en/docs/agents-and-tools/mcp-connector>).
    fn tool_configuration(&mut self, place: Place, value: &Node) {
        if !value.is_map() {
            let problem = ConfigProblem::at(value.place, "", value.describe_kind(), "a map");
            return self.invalid("tool_configuration", place, problem);
        }
        for Entry { key, place, value } in value.entries().iter().filter(|entry| !entry.value.is_nothing()) {
            let path = format!("tool_configuration.{key}");
            match key.as_str() {
                "enabled" => self.switch(&path, *place, value, true),
                "allowed_tools" => self.allow(&path, *place, value),
                _ => self.unknown(&path, *place),
            }
        }
    }

    /// The list of tools under a key, as globs.
    ///
    /// In a manifest they are globs already. Other clients compare names, except that `*` alone means all.
    fn names(&mut self, key: &str, place: Place, value: &Node) -> Option<Node> {
        let names = match decode::<Vec<String>>(value, "") {
            Ok(names) => names,
            Err(problem) => {
                self.invalid(key, place, problem);
                return None;
            }
        };
        if self.style == Style::Manifest {
            return Some(value.clone());
        }
        let mut items = Vec::new();
        for (name, item) in names.iter().zip(value.items()) {
            let is_all = name == "*";
            if !is_all && name.contains(['*', '?', '[', ']', '{', '}']) {
                let (key, server, name) = (in_backticks(key), in_backticks(self.name), in_backticks(name));
                self.warnings.push(format!("{key} of server {server}: {name} is the name of a tool here, not a glob"));
            }
            items.push(if is_all { item.clone() } else { Node::text(item.place, escape(name)) });
        }
        Some(Node { place: value.place, kind: Kind::List(items) })
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

/// The truth that a value stands for, in each spelling of the native decoder, with or without quotes.
fn truth(value: &Node) -> Result<bool, ConfigProblem> {
    let unquoted = match &value.kind {
        Kind::Scalar { text, .. } => {
            Node { place: value.place, kind: Kind::Scalar { text: text.clone(), plain: true } }
        }
        _ => value.clone(),
    };
    decode(&unquoted, "")
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
