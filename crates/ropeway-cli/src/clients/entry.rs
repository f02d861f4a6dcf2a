//! Ropeway's entry in other clients' files.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::discover::{Client, ClientPaths};
use super::edit::EntryEditor;
use super::edit_json::JsonEntries;
use super::edit_toml::TomlEntries;
use super::edit_yaml::YamlEntries;

/// The member with the entries in the format that most clients share.
pub(crate) const COMMON_KEY: &str = "mcpServers";

/// Keys that hold a URL in clients' entries.
pub(crate) const URL_KEYS: [&str; 4] = ["url", "serverUrl", "httpUrl", "uri"];

/// Keys that hold a command in clients' entries.
pub(crate) const COMMAND_KEYS: [&str; 2] = ["command", "cmd"];

/// Seconds that Goose waits for a response.
const GOOSE_TIMEOUT: u64 = 300;

/// How a client reaches the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EntryForm {
    /// The client starts it.
    Stdio { command: String, args: Vec<String> },
    /// The client connects to a running one.
    Http { url: String },
}

/// The client file that gets the entry.
pub(crate) struct InstallTarget {
    pub(crate) path: PathBuf,
    pub(crate) editor: Box<dyn EntryEditor>,
}

impl InstallTarget {
    /// Returns a client's file: its own, or the project file in the current folder, if the client has such files.
    pub(crate) fn of(client: Client, paths: &ClientPaths, is_project: bool) -> Option<Self> {
        // Visual Studio Code moved servers from settings.json to mcp.json.
        let is_wanted = |path: &PathBuf| client != Client::Vscode || path.ends_with("mcp.json");
        let candidates = client.candidates(paths).into_iter();
        let candidates: Vec<PathBuf> =
            candidates.filter(|path| is_wanted(path) && paths.is_project(path) == is_project).collect();
        let is_there = |path: &&PathBuf| path.is_file();
        let is_prepared = |path: &&PathBuf| path.parent().is_some_and(Path::is_dir);
        let is_native = |path: &&PathBuf| !cfg!(target_os = "macos") || path.iter().any(|part| part == "Library");
        let existing = candidates.iter().find(is_there).or_else(|| candidates.iter().find(is_prepared));
        let path = existing.or_else(|| candidates.iter().find(is_native)).or(candidates.first())?.clone();
        let editor: Box<dyn EntryEditor> = match client {
            Client::Codex => Box::new(TomlEntries { key: "mcp_servers" }),
            Client::Vscode => Box::new(JsonEntries { key: "servers" }),
            Client::Goose => Box::new(YamlEntries { key: "extensions" }),
            Client::Zed => Box::new(JsonEntries { key: "context_servers" }),
            Client::ClaudeDesktop | Client::ClaudeCode | Client::Cursor | Client::Windsurf | Client::Gemini => {
                Box::new(JsonEntries { key: COMMON_KEY })
            }
        };
        Some(Self { path, editor })
    }
}

impl Client {
    /// Returns the entry with this name for a client, or `None` if the client does not support the form.
    pub(crate) fn entry(self, name: &str, form: &EntryForm) -> Option<Value> {
        if self == Self::Goose {
            return Some(goose_entry(name, form));
        }
        let mut entry = Map::new();
        let kind = match form {
            EntryForm::Stdio { .. } => "stdio",
            EntryForm::Http { .. } => "http",
        };
        match self {
            Self::ClaudeCode | Self::Vscode => drop(entry.insert("type".to_owned(), json!(kind))),
            Self::Zed if kind == "stdio" => drop(entry.insert("source".to_owned(), json!("custom"))),
            _ => {}
        }
        match form {
            EntryForm::Stdio { command, args } => {
                entry.insert("command".to_owned(), json!(command));
                entry.insert("args".to_owned(), json!(args));
            }
            EntryForm::Http { .. } if self == Self::ClaudeDesktop => return None,
            EntryForm::Http { url } => {
                let key = match self {
                    Self::Windsurf => "serverUrl",
                    // Its `url` is for HTTP+SSE (https://geminicli.com/docs/tools/mcp-server/).
                    Self::Gemini => "httpUrl",
                    _ => "url",
                };
                entry.insert(key.to_owned(), json!(url));
            }
        }
        Some(Value::Object(entry))
    }
}

/// Returns a Goose extension (<https://github.com/block/goose/blob/main/crates/goose/src/agents/extension.rs>).
fn goose_entry(name: &str, form: &EntryForm) -> Value {
    let mut entry = match form {
        EntryForm::Stdio { command, args } => json!({"type": "stdio", "cmd": command, "args": args}),
        EntryForm::Http { url } => json!({"type": "streamable_http", "uri": url}),
    };
    entry["name"] = json!(name);
    entry["enabled"] = json!(true);
    entry["timeout"] = json!(GOOSE_TIMEOUT);
    entry
}

/// Returns `true` if an entry starts ropeway's gateway, or connects to one on this machine.
///
/// The program may have any file name if `is_installed`: if its name or an installation record tells that the entry is
/// ropeway's.
pub(crate) fn is_own_entry(entry: &Value, is_installed: bool) -> bool {
    let command = COMMAND_KEYS.iter().find_map(|key| entry[*key].as_str());
    let serves_client = entry["args"][0] == "serve" && entry["args"][1] == "--stdio";
    let is_gateway_command = command.is_some_and(|command| starts_gateway(command, entry["args"][0].as_str()))
        || (command.is_some() && is_installed && serves_client);
    let url = URL_KEYS.iter().find_map(|key| entry[*key].as_str());
    is_gateway_command || url.and_then(local_gateway_port).is_some()
}

/// Returns a URL's port if it may belong to a gateway on this machine.
pub(super) fn local_gateway_port(url: &str) -> Option<u16> {
    let url = url::Url::parse(url).ok()?;
    let is_local = matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"));
    let is_gateway = is_local && (url.path() == "/mcp" || url.path().starts_with("/mcp/"));
    url.port_or_known_default().filter(|_| is_gateway)
}

/// Returns `true` if a command with this first argument starts a gateway.
pub(super) fn starts_gateway(command: &str, argument: Option<&str>) -> bool {
    Path::new(command).file_stem().is_some_and(|program| program == "ropeway") && argument == Some("serve")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_gets_its_own_form() {
        let stdio = EntryForm::Stdio { command: "/bin/ropeway".to_owned(), args: vec!["serve".to_owned()] };
        let http = EntryForm::Http { url: "http://127.0.0.1:8931/mcp".to_owned() };
        let plain = json!({"command": "/bin/ropeway", "args": ["serve"]});
        let url = json!({"url": "http://127.0.0.1:8931/mcp"});
        let typed = |mut entry: Value, kind: &str| {
            entry["type"] = json!(kind);
            entry
        };
        for (client, expected_stdio, expected_http) in [
            (Client::ClaudeDesktop, plain.clone(), None),
            (Client::ClaudeCode, typed(plain.clone(), "stdio"), Some(typed(url.clone(), "http"))),
            (Client::Cursor, plain.clone(), Some(url.clone())),
            (Client::Vscode, typed(plain.clone(), "stdio"), Some(typed(url.clone(), "http"))),
            (Client::Windsurf, plain.clone(), Some(json!({"serverUrl": "http://127.0.0.1:8931/mcp"}))),
            (Client::Codex, plain.clone(), Some(url.clone())),
            (Client::Gemini, plain.clone(), Some(json!({"httpUrl": "http://127.0.0.1:8931/mcp"}))),
            (
                Client::Goose,
                json!({"type": "stdio", "cmd": "/bin/ropeway", "args": ["serve"], "name": "r", "enabled": true, "timeout": 300}),
                Some(json!({
                    "type": "streamable_http", "uri": "http://127.0.0.1:8931/mcp", "name": "r", "enabled": true, "timeout": 300,
                })),
            ),
            (Client::Zed, json!({"source": "custom", "command": "/bin/ropeway", "args": ["serve"]}), Some(url)),
        ] {
            assert_eq!(client.entry("r", &stdio), Some(expected_stdio), "{client:?}");
            assert_eq!(client.entry("r", &http), expected_http, "{client:?}");
            assert!(client.entry("r", &stdio).is_some_and(|entry| is_own_entry(&entry, false)));
        }
    }

    #[test]
    fn only_entries_that_start_a_gateway_are_recognized() {
        assert!(is_own_entry(&json!({"serverUrl": "http://localhost:1/mcp/coding"}), false));
        let renamed = json!({"command": "/bin/rw-1.2", "args": ["serve", "--stdio", "--profile", "coding"]});
        assert!(is_own_entry(&renamed, true) && !is_own_entry(&renamed, false));
        for foreign in [
            json!({"command": "npx", "args": ["serve"]}),
            json!({"command": "ropeway", "args": ["demo-server"]}),
            json!({"url": "https://example.com/mcp"}),
            json!({"url": "http://127.0.0.1:1/other"}),
            json!({}),
            json!("ropeway"),
        ] {
            assert!(!is_own_entry(&foreign, true), "{foreign}");
        }
    }
}
