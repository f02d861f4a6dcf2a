//! A memory of tools: what a server offered the last time, so that it need not be started to know.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::config::{ServerConfig, Transport};
use crate::protocol::{tool_definition, wire_definition};
use crate::tool::ToolDefinition;

/// No memory is larger than this; what is, is not ours.
const LARGEST: u64 = 32 << 20;

/// Changes when what is written does.
const VERSION: u64 = 1;

/// What is in a file.
#[derive(Deserialize)]
struct Remembered {
    version: u64,
    tools: Vec<Box<RawValue>>,
}

/// A folder with a file for each server.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    folder: PathBuf,
}

impl Memory {
    pub(super) fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The definitions of a server's tools, as far as they are remembered.
    pub(super) fn recall(&self, config: &ServerConfig) -> Option<Vec<ToolDefinition>> {
        let path = self.path(config);
        if fs::metadata(&path).ok()?.len() > LARGEST {
            return None;
        }
        let memory: Remembered = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
        if memory.version != VERSION {
            return None;
        }
        let tools = memory.tools.iter().filter_map(|tool| tool_definition(&config.alias, tool).ok());
        let tools: Vec<ToolDefinition> = tools.collect();
        (!tools.is_empty()).then_some(tools)
    }

    /// Keeps the definitions of a server's tools.
    pub(super) fn keep<'a>(
        &self,
        config: &ServerConfig,
        tools: impl Iterator<Item = &'a ToolDefinition>,
    ) -> io::Result<()> {
        let tools: Vec<Value> = tools.map(wire_definition).collect();
        let text = json!({"version": VERSION, "server": config.alias, "tools": tools}).to_string();
        fs::create_dir_all(&self.folder)?;
        // Whoever reads meanwhile sees the old file or the new one, never half of one.
        let path = self.path(config);
        let new = path.with_extension(format!("{}.new", std::process::id()));
        let written = private_file(&new).and_then(|mut file| file.write_all(text.as_bytes()));
        written.and_then(|()| fs::rename(&new, &path)).inspect_err(|_| drop(fs::remove_file(&new)))
    }

    /// One file for each way to reach a server. Secrets take no part in it.
    fn path(&self, config: &ServerConfig) -> PathBuf {
        let mut hash = Fnv::default();
        match &config.transport {
            Transport::Stdio(server) => {
                hash.take("stdio");
                hash.take(&server.command);
                server.args.iter().for_each(|word| hash.take(&config.mask.hide(word)));
                server.env.iter().for_each(|(name, _)| hash.take(name));
                hash.take(&server.cwd.as_deref().unwrap_or(Path::new("")).to_string_lossy());
            }
            Transport::Http(server) | Transport::Sse(server) => {
                hash.take("http");
                hash.take(&config.mask.hide(&server.url));
                server.headers.iter().for_each(|(name, _)| hash.take(name));
            }
            _ => hash.take("here"),
        }
        let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let alias: String = config.alias.as_str().chars().map(safe).take(64).collect();
        self.folder.join(format!("{alias}-{:016x}.json", hash.0))
    }
}

/// Definitions are nobody else's business: a description may tell what a person works on.
fn private_file(path: &Path) -> io::Result<fs::File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// FNV-1a: the same on every machine and in every version, which the standard hasher does not promise.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn take(&mut self, text: &str) {
        for byte in text.bytes().chain([0xff]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::StdioServer;

    fn config(argument: &str) -> ServerConfig {
        ServerConfig::new("files", StdioServer::new("files-server", [argument]))
    }

    fn definitions() -> Vec<ToolDefinition> {
        let wire = json!({"name": "read", "title": "Read", "description": "Reads.", "inputSchema": {"z": 1, "a": 2},
            "outputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}, "_meta": {"k": 1}, "icons": []});
        let wire = serde_json::value::to_raw_value(&wire).expect("JSON");
        vec![tool_definition(&"files".into(), &wire).expect("a definition")]
    }

    #[test]
    fn what_was_kept_is_recalled_whole_for_the_same_server_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let memory = Memory::new(folder.path().join("new"));
        assert_eq!(memory.recall(&config("a")), None);
        memory.keep(&config("a"), definitions().iter()).expect("kept");
        assert_eq!(memory.recall(&config("a")), Some(definitions()));
        assert_eq!(memory.recall(&config("b")), None);
    }

    #[test]
    fn a_file_that_is_no_memory_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let memory = Memory::new(folder.path());
        for text in ["", "{", "[]", r#"{"version": 99, "tools": []}"#, r#"{"version": 1, "tools": [7, {}]}"#] {
            fs::write(memory.path(&config("a")), text).expect("a file");
            assert_eq!(memory.recall(&config("a")), None, "{text}");
        }
    }
}
