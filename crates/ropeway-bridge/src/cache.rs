//! An on-disk tool definition cache, so that a lazy server is not started only to list its tools.

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

use super::era_cache::EraCache;
use crate::registry::ToolShape;
use ropeway_config::{EraChoice, ServerConfig, ServerEntry, ServerSettings, Transport, read_regular};
use ropeway_core::hash::Fnv;
use ropeway_core::json;
use ropeway_core::private_file::create_folder;
use ropeway_core::replace_file::{ReplaceOptions, replace_file};
use ropeway_core::secret::Redactor;
use ropeway_core::tool::{Alias, ToolDefinition};
use ropeway_mcp::protocol::{tool_definition, wire_definition};
use ropeway_mcp::{Era, Prompt, redact_entry};

/// Maximum file size in bytes.
const MAX_BYTES: usize = 32 << 20;

/// Maximum number of servers; the least recently used ones are removed.
const MAX_SERVERS: usize = 500;

/// Age after which a file's modification time, which marks its last use, is updated.
const TOUCH_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// File format version.
const VERSION: u64 = 3;

/// One server's cached definitions.
#[derive(Debug, PartialEq)]
pub(super) struct CachedDefinitions {
    pub(super) tools: Vec<ToolDefinition>,
    pub(super) has_resources: bool,
    /// Empty if the entry does not expose prompts.
    pub(super) prompts: Vec<Prompt>,
}

#[derive(Deserialize)]
struct CacheFile {
    version: u64,
    has_resources: bool,
    prompts: Vec<Value>,
    tools: Vec<Box<RawValue>>,
}

impl CachedDefinitions {
    /// Parses file text. Returns `None` if it is invalid or has another version.
    pub(super) fn parse(server: &Alias, text: &[u8]) -> Option<Self> {
        let CacheFile { version, has_resources, prompts, tools } = json::from_slice(text).ok()?;
        if version != VERSION {
            return None;
        }
        let tools = tools.iter().filter_map(|tool| tool_definition(server, tool).ok()).collect();
        let prompts = prompts.into_iter().filter_map(|prompt| Prompt::remembered(prompt).ok()).collect();
        Some(Self { tools, has_resources, prompts })
    }

    /// Returns the redacted file text. Entries that cannot be redacted are left out.
    pub(super) fn to_text(&self, server: &Alias, redactor: &Redactor) -> String {
        let Self { tools, has_resources, prompts } = self;
        let redacted = |value: Value| {
            let raw = serde_json::value::to_raw_value(&value).ok()?;
            match redact_entry(redactor, &raw)? {
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

/// Returns the default definition cache directory: `$ROPEWAY_CACHE_DIR`, or `ropeway/tools` in `$XDG_CACHE_HOME` or `~/.cache`.
///
/// Returns `None` if `ROPEWAY_CACHE_DIR` is set to an empty string, or if neither `XDG_CACHE_HOME` nor `HOME` is an absolute path.
pub fn default_cache_dir() -> Option<PathBuf> {
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

/// A directory with one file per server, and one file for all server eras.
#[derive(Clone, Debug)]
pub(super) struct DefinitionCache {
    folder: PathBuf,
    eras: Arc<EraCache>,
}

impl DefinitionCache {
    pub(super) fn new(folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        let eras = Arc::new(EraCache::new(folder.join("eras.json")));
        Self { folder, eras }
    }

    /// Returns a server's cached era, unless the configuration sets one.
    pub(super) fn load_era(&self, config: &ServerConfig) -> Option<Era> {
        is_probed(config).then(|| self.eras.load(key(config))).flatten()
    }

    /// Removes a server's era, so that the next start probes it.
    pub(super) fn remove_era(&self, config: &ServerConfig) -> io::Result<()> {
        if is_probed(config) { self.eras.remove(key(config)) } else { Ok(()) }
    }

    pub(super) fn store_era(&self, config: &ServerConfig, era: Era) -> io::Result<()> {
        if is_probed(config) { self.eras.store(key(config), era) } else { Ok(()) }
    }

    pub(super) fn load(&self, config: &ServerConfig) -> Option<CachedDefinitions> {
        let text = read_regular(&self.path(config), MAX_BYTES).ok()?;
        CachedDefinitions::parse(&config.alias, text.as_bytes())
    }

    /// Stores a server's definitions, redacted.
    pub(super) fn store(
        &self,
        config: &ServerConfig,
        definitions: &CachedDefinitions,
        redactor: &Redactor,
    ) -> io::Result<()> {
        let text = definitions.to_text(&config.alias, redactor);
        if text.len() > MAX_BYTES {
            // The file could not be read again, and an older one is outdated.
            return fs::remove_file(self.path(config)).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            });
        }
        let path = self.path(config);
        let is_new = match read_regular(&path, MAX_BYTES) {
            Ok(before) if before == text && is_private(&path) => return touch(&path),
            before => before.is_err(),
        };
        // Descriptions may be confidential.
        create_folder(&self.folder)?;
        replace_file(&path, text.as_bytes(), ReplaceOptions::private().without_sync())?;
        if is_new { self.prune(MAX_SERVERS) } else { Ok(()) }
    }

    /// Removes the least recently used files beyond `max`.
    fn prune(&self, max: usize) -> io::Result<()> {
        let mut files: Vec<(SystemTime, PathBuf)> = fs::read_dir(&self.folder)?
            .flatten()
            .filter(|file| is_cache_file(&file.file_name().to_string_lossy()))
            .filter_map(|file| Some((file.metadata().ok()?.modified().ok()?, file.path())))
            .collect();
        files.sort();
        let surplus = files.len().saturating_sub(max);
        for (_, path) in files.into_iter().take(surplus) {
            // Another process may have removed it.
            let _ = fs::remove_file(path);
        }
        Ok(())
    }

    /// Returns a server's file. Its name depends on the alias and on the command or URL without secrets.
    fn path(&self, config: &ServerConfig) -> PathBuf {
        let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let alias: String = config.alias.as_str().chars().map(safe).take(64).collect();
        self.folder.join(format!("{alias}-{:016x}.json", key(config)))
    }
}

/// Returns `true` for file names that [`DefinitionCache::path`] returns.
fn is_cache_file(name: &str) -> bool {
    let key = name.strip_suffix(".json").and_then(|name| name.rsplit_once('-')).map(|(_, key)| key);
    key.is_some_and(|key| key.len() == 16 && key.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Returns `true` if only its owner may read the file.
fn is_private(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 == 0)
}

/// Updates a file's modification time, at most once a day.
fn touch(path: &Path) -> io::Result<()> {
    let is_stale = fs::metadata(path)?.modified()?.elapsed().is_ok_and(|age| age > TOUCH_AFTER);
    if is_stale { fs::OpenOptions::new().append(true).open(path)?.set_modified(SystemTime::now()) } else { Ok(()) }
}

/// Returns a server's tools as a bridge last listed them, with the names and filters from its current entry. Does not start
/// the server.
///
/// Returns `None` if the server was never listed, is disabled, or its command or URL has changed since. `folder` is the
/// directory passed to [`BridgeBuilder::cache_dir`](super::BridgeBuilder::cache_dir) or [`default_cache_dir`].
pub fn cached_tools(folder: &Path, entry: &ServerEntry) -> Option<Vec<ToolDefinition>> {
    let ServerSettings::Known(config) = &entry.settings else { return None };
    let shape = ToolShape::new(entry).ok().filter(|_| entry.enabled)?;
    let cached = DefinitionCache::new(folder).load(config)?;
    Some(cached.tools.iter().filter_map(|tool| shape.definition(tool)).collect())
}

/// Returns `true` if a probe detects the server's era.
fn is_probed(config: &ServerConfig) -> bool {
    config.era == EraChoice::Auto && matches!(config.transport, Transport::Stdio(_) | Transport::Http(_))
}

/// Returns a hash of a server's command or URL, without secrets.
pub(super) fn key(config: &ServerConfig) -> u64 {
    let mut hash = Fnv::default();
    // The separator keeps `a` `bc` and `ab` `c` apart.
    let mut write = |word: &str| hash.write(word.bytes().chain([0xff]));
    match config.transport.original() {
        Transport::Stdio(server) => {
            write("stdio");
            write(&server.command);
            server.args.iter().for_each(|word| write(&config.redactor.redact(word)));
            server.env.iter().for_each(|(name, _)| write(name));
            write(&server.working_dir().unwrap_or(Path::new("")).to_string_lossy());
        }
        Transport::Http(server) | Transport::Sse(server) => {
            write("http");
            write(&config.redactor.redact(&server.url));
            server.headers.iter().for_each(|(name, _)| write(name));
        }
        _ => write("here"),
    }
    hash.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_config::StdioServer;

    fn config(argument: &str) -> ServerConfig {
        ServerConfig::new("files", StdioServer::new("files-server", [argument]))
    }

    fn definitions() -> CachedDefinitions {
        let wire = json!({"name": "read", "title": "Read", "description": "Reads.", "inputSchema": {"z": 1, "a": 2},
            "outputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}, "_meta": {"k": 1}, "icons": []});
        let wire = serde_json::value::to_raw_value(&wire).expect("JSON");
        let prompt = json!({"name": "greet", "arguments": [{"name": "who", "required": true}]});
        CachedDefinitions {
            tools: vec![tool_definition(&"files".into(), &wire).expect("a definition")],
            has_resources: true,
            prompts: vec![Prompt::remembered(prompt).expect("a prompt")],
        }
    }

    #[test]
    fn the_default_folder_follows_the_xdg_variables() {
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
    fn definitions_are_loaded_for_the_same_server_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = DefinitionCache::new(folder.path().join("new"));
        assert_eq!(cache.load(&config("a")), None);
        cache.store(&config("a"), &definitions(), &Redactor::default()).expect("stored");
        assert_eq!(cache.load(&config("a")), Some(definitions()));
        assert_eq!(cache.load(&config("b")), None);
    }

    #[test]
    fn files_are_readable_by_their_owner_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let cache = DefinitionCache::new(folder.path().join("new"));
        let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        for _ in 0..2 {
            cache.store(&config("a"), &definitions(), &Redactor::default()).expect("stored");
            let path = cache.path(&config("a"));
            assert_eq!((mode(&cache.folder), mode(&path)), (0o700, 0o600));
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("permissions");
        }
        assert_eq!(fs::read_dir(&cache.folder).expect("a folder").count(), 1);
    }

    #[test]
    fn secrets_are_not_stored() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = DefinitionCache::new(folder.path());
        let mut leaky = definitions();
        leaky.tools[0].description = Some("it is t0ken-t0ken".to_owned());
        cache.store(&config("a"), &leaky, &Redactor::new([&"t0ken-t0ken".into()])).expect("stored");
        let stored = cache.load(&config("a")).expect("definitions");
        assert_eq!(stored.tools[0].description.as_deref(), Some("it is ***"));
        assert_eq!(stored.prompts, definitions().prompts);
    }

    #[test]
    fn unchanged_definitions_are_not_written_again() {
        use std::os::unix::fs::MetadataExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let cache = DefinitionCache::new(folder.path());
        cache.store(&config("a"), &definitions(), &Redactor::default()).expect("stored");
        let path = cache.path(&config("a"));
        let file = || fs::metadata(&path).map(|file| file.ino()).expect("a file");
        let before = file();
        let yesterday = SystemTime::now() - 2 * TOUCH_AFTER;
        fs::File::open(&path).and_then(|file| file.set_modified(yesterday)).expect("a time");
        cache.store(&config("a"), &definitions(), &Redactor::default()).expect("stored");
        assert_eq!(file(), before);
        assert!(fs::metadata(&path).and_then(|file| file.modified()).expect("a time") > yesterday);
    }

    #[test]
    fn the_least_recently_used_servers_are_removed_beyond_the_limit() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = DefinitionCache::new(folder.path());
        fs::write(folder.path().join("eras.json"), "{}").expect("a file");
        for number in 0..5u64 {
            let config = config(&number.to_string());
            cache.store(&config, &definitions(), &Redactor::default()).expect("stored");
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1000 * number);
            fs::File::open(cache.path(&config)).and_then(|file| file.set_modified(time)).expect("a time");
        }
        cache.prune(2).expect("pruned");
        let stored: Vec<bool> = (0..5).map(|number| cache.load(&config(&number.to_string())).is_some()).collect();
        assert_eq!(stored, [false, false, false, true, true]);
        assert!(folder.path().join("eras.json").exists());
    }

    #[test]
    fn cached_tools_have_the_names_and_filters_of_the_entry() {
        let folder = tempfile::tempdir().expect("a folder");
        DefinitionCache::new(folder.path()).store(&config("a"), &definitions(), &Redactor::default()).expect("stored");
        let mut entry = ServerEntry::new(config("a"));
        let names = |entry: &ServerEntry| -> Option<Vec<String>> {
            Some(cached_tools(folder.path(), entry)?.into_iter().map(|tool| tool.name).collect())
        };
        assert_eq!(names(&entry), Some(vec!["mcp_files_read".to_owned()]));
        assert_eq!(names(&ServerEntry::new(config("b"))), None);
        entry.tools.deny = vec!["read".to_owned()];
        assert_eq!(names(&entry), Some(Vec::new()));
        entry.enabled = false;
        assert_eq!(names(&entry), None);
    }

    #[test]
    fn an_invalid_file_is_ignored() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = DefinitionCache::new(folder.path());
        for text in [
            "",
            "{",
            "[]",
            r#"{"version": 99, "has_resources": true, "prompts": [], "tools": []}"#,
            r#"{"version": 3, "tools": 7}"#,
        ] {
            fs::write(cache.path(&config("a")), text).expect("a file");
            assert_eq!(cache.load(&config("a")), None, "{text}");
        }
    }

    #[test]
    fn definitions_that_are_too_large_are_not_stored() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = DefinitionCache::new(folder.path());
        cache.store(&config("a"), &definitions(), &Redactor::default()).expect("stored");
        let mut large = definitions();
        large.tools[0].description = Some("d".repeat(MAX_BYTES));
        cache.store(&config("a"), &large, &Redactor::default()).expect("nothing to store");
        assert_eq!(cache.load(&config("a")), None);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }
}
