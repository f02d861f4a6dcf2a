//! A memory of tools: what a server offered the last time, so that it need not be started to know.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::eras::Eras;
use super::private;
use crate::config::{EraChoice, ServerConfig, Transport, read_regular};
use crate::hash::Fnv;
use crate::json;
use crate::mcp::{Era, Prompt};
use crate::protocol::{tool_definition, wire_definition};
use crate::tool::{Alias, ToolDefinition};

/// No memory is larger than this; what is, is not ours.
const LARGEST: usize = 32 << 20;

/// Changes when what is written does.
const VERSION: u64 = 3;

/// What is remembered of a server.
#[derive(Debug, PartialEq)]
pub(super) struct Remembered {
    /// Its tools.
    pub(super) tools: Vec<ToolDefinition>,
    /// It has resources.
    pub(super) has_resources: bool,
    /// Its prompts, if anybody wanted to know.
    pub(super) prompts: Vec<Prompt>,
}

/// What is in a file.
#[derive(Deserialize)]
struct Written {
    version: u64,
    has_resources: bool,
    prompts: Vec<Value>,
    tools: Vec<Box<RawValue>>,
}

impl Remembered {
    /// Reads the text of a file; `None` if it is of another version, or not ours.
    pub(super) fn read(server: &Alias, text: &[u8]) -> Option<Self> {
        let Written { version, has_resources, prompts, tools } = json::from_slice(text).ok()?;
        if version != VERSION {
            return None;
        }
        let tools = tools.iter().filter_map(|tool| tool_definition(server, tool).ok()).collect();
        let prompts = prompts.into_iter().filter_map(|prompt| Prompt::remembered(prompt).ok()).collect();
        Some(Self { tools, has_resources, prompts })
    }

    /// The text of a file.
    pub(super) fn to_text(&self, server: &Alias) -> String {
        let Self { tools, has_resources, prompts } = self;
        let tools: Vec<Value> = tools.iter().map(wire_definition).collect();
        json!({"version": VERSION, "server": server, "has_resources": has_resources, "prompts": prompts, "tools": tools})
            .to_string()
    }
}

/// Returns the folder in which bridges remember servers unless they are told another: `$ROPEWAY_CACHE_DIR`, or `ropeway/tools` in
/// `$XDG_CACHE_HOME` or `~/.cache`. Returns `None` if `ROPEWAY_CACHE_DIR` is empty or no folder is known.
pub fn default_memory() -> Option<PathBuf> {
    default_in(|name| std::env::var_os(name).map(PathBuf::from))
}

fn default_in(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |name: &str| variable(name).filter(|path| path.is_absolute());
    match variable("ROPEWAY_CACHE_DIR") {
        Some(folder) => Some(folder).filter(|folder| !folder.as_os_str().is_empty()),
        None => {
            let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
            cache.map(|cache| cache.join("ropeway/tools"))
        }
    }
}

/// A folder with a file for each server, and one for the eras of all.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    folder: PathBuf,
    eras: Arc<Eras>,
}

impl Memory {
    pub(super) fn new(folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        let eras = Arc::new(Eras::new(folder.join("eras.json")));
        Self { folder, eras }
    }

    /// Returns the era that a server spoke lately, if that is known and the configuration leaves it open.
    pub(super) fn recall_era(&self, config: &ServerConfig) -> Option<Era> {
        is_probed(config).then(|| self.eras.recall(key(config))).flatten()
    }

    /// Forgets the era of a server: the next start probes it.
    pub(super) fn forget_era(&self, config: &ServerConfig) -> io::Result<()> {
        if is_probed(config) { self.eras.forget(key(config)) } else { Ok(()) }
    }

    /// Keeps the era that a server speaks.
    pub(super) fn keep_era(&self, config: &ServerConfig, era: Era) -> io::Result<()> {
        if is_probed(config) { self.eras.keep(key(config), era) } else { Ok(()) }
    }

    /// What a server had the last time, if that is remembered.
    pub(super) fn recall(&self, config: &ServerConfig) -> Option<Remembered> {
        let text = read_regular(&self.path(config), LARGEST).ok()?;
        Remembered::read(&config.alias, text.as_bytes())
    }

    /// Keeps what a server has.
    pub(super) fn keep(&self, config: &ServerConfig, remembered: &Remembered) -> io::Result<()> {
        let text = remembered.to_text(&config.alias);
        if text.len() > LARGEST {
            // It would not be read. What was kept before is not what the server has now.
            return fs::remove_file(self.path(config)).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            });
        }
        // Only for its owner: a description may tell what a person works on.
        private::write(&self.path(config), text.as_bytes())
    }

    /// One file for each way to reach a server. Secrets take no part in it.
    fn path(&self, config: &ServerConfig) -> PathBuf {
        let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let alias: String = config.alias.as_str().chars().map(safe).take(64).collect();
        self.folder.join(format!("{alias}-{:016x}.json", key(config)))
    }
}

/// Returns whether the era of a server is found out by asking it.
fn is_probed(config: &ServerConfig) -> bool {
    config.era == EraChoice::Auto && matches!(config.transport, Transport::Stdio(_) | Transport::Http(_))
}

/// Returns a number for the way to reach a server: its command or URL. Secrets take no part in it.
fn key(config: &ServerConfig) -> u64 {
    let mut hash = Fnv::default();
    // Two words are not the one that they make together.
    let mut take = |word: &str| hash.take(word.bytes().chain([0xff]));
    match &config.transport {
        Transport::Stdio(server) => {
            take("stdio");
            take(&server.command);
            server.args.iter().for_each(|word| take(&config.mask.hide(word)));
            server.env.iter().for_each(|(name, _)| take(name));
            take(&server.cwd.as_deref().unwrap_or(Path::new("")).to_string_lossy());
        }
        Transport::Http(server) | Transport::Sse(server) => {
            take("http");
            take(&config.mask.hide(&server.url));
            server.headers.iter().for_each(|(name, _)| take(name));
        }
        _ => take("here"),
    }
    hash.value()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::StdioServer;

    fn config(argument: &str) -> ServerConfig {
        ServerConfig::new("files", StdioServer::new("files-server", [argument]))
    }

    fn remembered() -> Remembered {
        let wire = json!({"name": "read", "title": "Read", "description": "Reads.", "inputSchema": {"z": 1, "a": 2},
            "outputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}, "_meta": {"k": 1}, "icons": []});
        let wire = serde_json::value::to_raw_value(&wire).expect("JSON");
        let prompt = json!({"name": "greet", "arguments": [{"name": "who", "required": true}]});
        Remembered {
            tools: vec![tool_definition(&"files".into(), &wire).expect("a definition")],
            has_resources: true,
            prompts: vec![Prompt::remembered(prompt).expect("a prompt")],
        }
    }

    #[test]
    fn servers_are_remembered_in_the_cache_folder_by_default() {
        let folder = |variables: &[(&str, &str)]| {
            let found = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
            default_in(found).map(|path| path.display().to_string())
        };
        assert_eq!(folder(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/c")]).as_deref(), Some("/c/ropeway/tools"));
        assert_eq!(folder(&[("HOME", "/h"), ("XDG_CACHE_HOME", "c")]).as_deref(), Some("/h/.cache/ropeway/tools"));
        assert_eq!(folder(&[("HOME", "/h"), ("ROPEWAY_CACHE_DIR", "/r")]).as_deref(), Some("/r"));
        assert_eq!(folder(&[("HOME", "/h"), ("ROPEWAY_CACHE_DIR", "")]), None);
        assert_eq!(folder(&[]), None);
    }

    #[test]
    fn what_was_kept_is_recalled_whole_for_the_same_server_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let memory = Memory::new(folder.path().join("new"));
        assert_eq!(memory.recall(&config("a")), None);
        memory.keep(&config("a"), &remembered()).expect("kept");
        assert_eq!(memory.recall(&config("a")), Some(remembered()));
        assert_eq!(memory.recall(&config("b")), None);
    }

    #[test]
    fn what_is_kept_is_for_its_owner_only_whatever_was_there_before() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let memory = Memory::new(folder.path().join("new"));
        let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        for _ in 0..2 {
            memory.keep(&config("a"), &remembered()).expect("kept");
            let path = memory.path(&config("a"));
            assert_eq!((mode(&memory.folder), mode(&path)), (0o700, 0o600));
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("permissions");
        }
        assert_eq!(fs::read_dir(&memory.folder).expect("a folder").count(), 1);
    }

    #[test]
    fn a_file_that_is_no_memory_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let memory = Memory::new(folder.path());
        for text in [
            "",
            "{",
            "[]",
            r#"{"version": 99, "has_resources": true, "prompts": [], "tools": []}"#,
            r#"{"version": 3, "tools": 7}"#,
        ] {
            fs::write(memory.path(&config("a")), text).expect("a file");
            assert_eq!(memory.recall(&config("a")), None, "{text}");
        }
    }

    #[test]
    fn what_is_too_large_to_be_read_again_is_not_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let memory = Memory::new(folder.path());
        memory.keep(&config("a"), &remembered()).expect("kept");
        let mut large = remembered();
        large.tools[0].description = Some("d".repeat(LARGEST));
        memory.keep(&config("a"), &large).expect("nothing to keep");
        assert_eq!(memory.recall(&config("a")), None);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }
}
