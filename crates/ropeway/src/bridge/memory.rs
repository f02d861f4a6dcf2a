//! A memory of tools: what a server offered the last time, so that it need not be started to know.

use std::borrow::Cow;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::eras::Eras;
use super::private;
use crate::config::{EraChoice, ServerConfig, ServerEntry, ServerSettings, Transport, read_regular};
use crate::hash::Fnv;
use crate::json;
use crate::mcp::{Era, Prompt, redact_entry};
use crate::protocol::{tool_definition, wire_definition};
use crate::registry::ToolShape;
use crate::secret::Redactor;
use crate::tool::{Alias, ToolDefinition};

/// No memory is larger than this; what is, is not ours.
const LARGEST: usize = 32 << 20;

/// The most servers that are remembered; those that were not used for the longest time are forgotten.
const MOST_SERVERS: usize = 500;

/// How old a file may get before its time is set anew: it says when the server was last used.
const STALE: Duration = Duration::from_secs(24 * 60 * 60);

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

    /// The text of a file, without secrets. What holds one and cannot be redacted is left out.
    pub(super) fn to_text(&self, server: &Alias, mask: &Redactor) -> String {
        let Self { tools, has_resources, prompts } = self;
        let redacted = |value: Value| {
            let raw = serde_json::value::to_raw_value(&value).ok()?;
            match redact_entry(mask, &raw)? {
                Cow::Borrowed(_) => Some(value),
                Cow::Owned(entry) => serde_json::to_value(entry).ok(),
            }
        };
        let tools: Vec<Value> = tools.iter().map(wire_definition).filter_map(redacted).collect();
        let prompts: Vec<Value> = prompts.iter().map(|prompt| json!(prompt)).filter_map(redacted).collect();
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

    /// Keeps what a server has, without these secrets.
    pub(super) fn keep(&self, config: &ServerConfig, remembered: &Remembered, mask: &Redactor) -> io::Result<()> {
        let text = remembered.to_text(&config.alias, mask);
        if text.len() > LARGEST {
            // It would not be read. What was kept before is not what the server has now.
            return fs::remove_file(self.path(config)).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            });
        }
        let path = self.path(config);
        let is_new = match read_regular(&path, LARGEST) {
            Ok(before) if before == text && is_private(&path) => return touch(&path),
            before => before.is_err(),
        };
        // Only for its owner: a description may tell what a person works on.
        private::write(&path, text.as_bytes())?;
        if is_new { self.prune(MOST_SERVERS) } else { Ok(()) }
    }

    /// Forgets the servers that were not used for the longest time, if more than so many are remembered.
    fn prune(&self, most: usize) -> io::Result<()> {
        let mut files: Vec<(SystemTime, PathBuf)> = fs::read_dir(&self.folder)?
            .flatten()
            .filter(|file| is_memory(&file.file_name().to_string_lossy()))
            .filter_map(|file| Some((file.metadata().ok()?.modified().ok()?, file.path())))
            .collect();
        files.sort();
        let surplus = files.len().saturating_sub(most);
        for (_, path) in files.into_iter().take(surplus) {
            // Another process may have been faster.
            let _ = fs::remove_file(path);
        }
        Ok(())
    }

    /// One file for each way to reach a server. Secrets take no part in it.
    fn path(&self, config: &ServerConfig) -> PathBuf {
        let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let alias: String = config.alias.as_str().chars().map(safe).take(64).collect();
        self.folder.join(format!("{alias}-{:016x}.json", key(config)))
    }
}

/// Returns true for the name of a file that [`Memory::path`] makes.
fn is_memory(name: &str) -> bool {
    let key = name.strip_suffix(".json").and_then(|name| name.rsplit_once('-')).map(|(_, key)| key);
    key.is_some_and(|key| key.len() == 16 && key.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Returns true if only its owner may read a file.
fn is_private(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 == 0)
}

/// Notes that a file was used, at most once a day.
fn touch(path: &Path) -> io::Result<()> {
    let is_stale = fs::metadata(path)?.modified()?.elapsed().is_ok_and(|age| age > STALE);
    if is_stale { fs::OpenOptions::new().append(true).open(path)?.set_modified(SystemTime::now()) } else { Ok(()) }
}

/// Returns the tools of a server as a bridge handed them out the last time, under the names and filters of its entry now. Nothing is
/// started. Returns `None` if the server was never listed, is disabled, or its entry has another command or URL since.
///
/// `folder` is that of [`BridgeBuilder::remember_in`](super::BridgeBuilder::remember_in) or [`default_memory`].
pub fn remembered_tools(folder: &Path, entry: &ServerEntry) -> Option<Vec<ToolDefinition>> {
    let ServerSettings::Known(config) = &entry.settings else { return None };
    let shape = ToolShape::new(entry).ok().filter(|_| entry.enabled)?;
    let remembered = Memory::new(folder).recall(config)?;
    Some(remembered.tools.iter().filter_map(|tool| shape.definition(tool)).collect())
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
        memory.keep(&config("a"), &remembered(), &Redactor::default()).expect("kept");
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
            memory.keep(&config("a"), &remembered(), &Redactor::default()).expect("kept");
            let path = memory.path(&config("a"));
            assert_eq!((mode(&memory.folder), mode(&path)), (0o700, 0o600));
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("permissions");
        }
        assert_eq!(fs::read_dir(&memory.folder).expect("a folder").count(), 1);
    }

    #[test]
    fn no_secret_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let memory = Memory::new(folder.path());
        let mut told = remembered();
        told.tools[0].description = Some("it is t0ken-t0ken".to_owned());
        memory.keep(&config("a"), &told, &Redactor::new([&"t0ken-t0ken".into()])).expect("kept");
        let kept = memory.recall(&config("a")).expect("it is remembered");
        assert_eq!(kept.tools[0].description.as_deref(), Some("it is ***"));
        assert_eq!(kept.prompts, remembered().prompts);
    }

    #[test]
    fn what_has_not_changed_is_not_written_again() {
        use std::os::unix::fs::MetadataExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let memory = Memory::new(folder.path());
        memory.keep(&config("a"), &remembered(), &Redactor::default()).expect("kept");
        let path = memory.path(&config("a"));
        let file = || fs::metadata(&path).map(|file| file.ino()).expect("a file");
        let before = file();
        let yesterday = SystemTime::now() - 2 * STALE;
        fs::File::open(&path).and_then(|file| file.set_modified(yesterday)).expect("a time");
        memory.keep(&config("a"), &remembered(), &Redactor::default()).expect("kept");
        assert_eq!(file(), before);
        assert!(fs::metadata(&path).and_then(|file| file.modified()).expect("a time") > yesterday);
    }

    #[test]
    fn only_so_many_servers_are_remembered_and_the_latest_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let memory = Memory::new(folder.path());
        fs::write(folder.path().join("eras.json"), "{}").expect("a file");
        for number in 0..5u64 {
            let config = config(&number.to_string());
            memory.keep(&config, &remembered(), &Redactor::default()).expect("kept");
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1000 * number);
            fs::File::open(memory.path(&config)).and_then(|file| file.set_modified(time)).expect("a time");
        }
        memory.prune(2).expect("pruned");
        let kept: Vec<bool> = (0..5).map(|number| memory.recall(&config(&number.to_string())).is_some()).collect();
        assert_eq!(kept, [false, false, false, true, true]);
        assert!(folder.path().join("eras.json").exists());
    }

    #[test]
    fn remembered_tools_have_the_names_and_filters_of_the_entry() {
        let folder = tempfile::tempdir().expect("a folder");
        Memory::new(folder.path()).keep(&config("a"), &remembered(), &Redactor::default()).expect("kept");
        let mut entry = ServerEntry::new(config("a"));
        let names = |entry: &ServerEntry| -> Option<Vec<String>> {
            Some(remembered_tools(folder.path(), entry)?.into_iter().map(|tool| tool.name).collect())
        };
        assert_eq!(names(&entry), Some(vec!["mcp_files_read".to_owned()]));
        assert_eq!(names(&ServerEntry::new(config("b"))), None);
        entry.tools.deny = vec!["read".to_owned()];
        assert_eq!(names(&entry), Some(Vec::new()));
        entry.enabled = false;
        assert_eq!(names(&entry), None);
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
        memory.keep(&config("a"), &remembered(), &Redactor::default()).expect("kept");
        let mut large = remembered();
        large.tools[0].description = Some("d".repeat(LARGEST));
        memory.keep(&config("a"), &large, &Redactor::default()).expect("nothing to keep");
        assert_eq!(memory.recall(&config("a")), None);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }
}
