//! A cache for the resources and prompts that servers list, for completion.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ropeway_bridge::default_cache_dir;
use ropeway_config::{ServerConfig, ServerEntry, Transport, read_regular};
use ropeway_core::tool::Alias;
use serde::{Deserialize, Serialize};

use crate::connect::servers::Servers;
use crate::files::file;
use crate::secrets::redaction;
use crate::trust::sha256;

/// The directory beside the cached tools.
const FOLDER: &str = "listings";

/// File format version.
const VERSION: u64 = 1;

/// Maximum entries per listing.
const MAX_ENTRIES: usize = 1_000;

/// Maximum name length in bytes; entries with a longer name are left out.
const MAX_NAME: usize = 500;

/// Maximum description length in characters.
const MAX_DESCRIPTION: usize = 200;

/// Maximum file size in bytes.
const MAX_BYTES: usize = 4 << 20;

/// Maximum number of files; the oldest ones are removed.
const MAX_FILES: usize = 500;

/// Digits of a server's digest in a file name.
const KEY_DIGITS: usize = 16;

/// What a server lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListingKind {
    Prompts,
    Resources,
}

impl ListingKind {
    fn word(self) -> &'static str {
        match self {
            Self::Prompts => "prompts",
            Self::Resources => "resources",
        }
    }
}

/// A prompt, or a resource by its URI.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ListedEntry {
    pub(crate) name: String,
    pub(crate) description: String,
}

impl ListedEntry {
    pub(crate) fn new(name: &str, description: Option<&str>) -> Self {
        Self { name: name.to_owned(), description: description.unwrap_or_default().to_owned() }
    }
}

#[derive(Serialize, Deserialize)]
struct ListingFile {
    version: u64,
    entries: Vec<ListedEntry>,
}

/// Files that store what a command's servers list.
///
/// Commands share the files without a lock. Each file belongs to one server and is replaced as a whole,
/// so the last writer wins and readers never see a partial listing. Failing to write one is not an error.
pub(crate) struct ListingCache(Vec<(Alias, PathBuf)>);

impl ListingCache {
    pub(crate) fn new(kind: ListingKind, servers: &Servers) -> Self {
        let folder = default_cache_dir();
        let file = |entry: &ServerEntry| Some((entry.alias.clone(), path(folder.as_deref()?, kind, entry.config()?)));
        Self(servers.config.servers.iter().filter_map(file).collect())
    }

    /// Stores what a server lists, without secrets.
    pub(crate) fn store(&self, server: &Alias, entries: impl Iterator<Item = ListedEntry>) {
        let Some((_, path)) = self.0.iter().find(|(alias, _)| alias == server) else { return };
        let is_kept =
            |entry: &ListedEntry| entry.name.len() <= MAX_NAME && redaction::redact(&entry.name) == entry.name;
        let entries = entries.filter(is_kept).take(MAX_ENTRIES).map(|ListedEntry { name, description }| {
            let description = redaction::redact(&description).chars().take(MAX_DESCRIPTION).collect();
            ListedEntry { name, description }
        });
        let listing = ListingFile { version: VERSION, entries: entries.collect() };
        let Some(text) = serde_json::to_string(&listing).ok().filter(|text| text.len() <= MAX_BYTES) else { return };
        let before = read_regular(path, MAX_BYTES).ok();
        // Without the file, nothing is completed.
        if before.as_ref() != Some(&text) && file::put(path, &text, file::PRIVATE).is_ok() && before.is_none() {
            prune(path.parent().unwrap_or(path), MAX_FILES);
        }
    }
}

/// Returns what a server listed the last time, or `None` if that is unknown. Starts no server.
pub(crate) fn cached_listing(folder: &Path, kind: ListingKind, entry: &ServerEntry) -> Option<Vec<ListedEntry>> {
    let text = read_regular(&path(folder, kind, entry.config()?), MAX_BYTES).ok()?;
    let listing: ListingFile = serde_json::from_str(&text).ok()?;
    (listing.version == VERSION).then_some(listing.entries)
}

/// Returns a server's file. Its name depends on the alias and on the command or URL without secrets.
fn path(folder: &Path, kind: ListingKind, config: &ServerConfig) -> PathBuf {
    let redacted = |word: &String| config.redactor.redact(word).into_owned();
    let mut words = vec![config.alias.to_string()];
    match &config.transport {
        Transport::Stdio(server) => {
            words.push(server.command.clone());
            words.extend(server.args.iter().map(redacted));
            words.extend(server.env.iter().map(|(name, _)| name.clone()));
            words.extend(server.working_dir().map(|folder| folder.display().to_string()));
        }
        Transport::Http(server) | Transport::Sse(server) => words.push(redacted(&server.url)),
        _ => {}
    }
    let key = &sha256(&words.join("\0"))[..KEY_DIGITS];
    folder.join(FOLDER).join(format!("{}-{key}.json", kind.word()))
}

/// Removes the oldest files beyond `max`.
fn prune(folder: &Path, max: usize) {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<(SystemTime, PathBuf)> =
        files.filter_map(|file| Some((file.metadata().ok()?.modified().ok()?, file.path()))).collect();
    files.sort();
    let surplus = files.len().saturating_sub(max);
    for (_, path) in files.into_iter().take(surplus) {
        // Another process may have removed it.
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use ropeway_config::StdioServer;

    use super::*;

    fn entry(argument: &str) -> ServerEntry {
        ServerEntry::new(ServerConfig::new("files", StdioServer::new("server", [argument])))
    }

    fn cache(folder: &Path, argument: &str) -> ListingCache {
        let entry = entry(argument);
        let config = entry.config().expect("settings");
        ListingCache(vec![(entry.alias.clone(), path(folder, ListingKind::Prompts, config))])
    }

    #[test]
    fn a_listing_is_kept_for_the_same_server_and_kind_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let greet = ListedEntry::new("greet", Some("Greets"));
        cache(folder.path(), "a").store(&"files".into(), [greet.clone()].into_iter());
        cache(folder.path(), "a").store(&"other".into(), std::iter::empty());
        let cached = |kind, argument| cached_listing(folder.path(), kind, &entry(argument));
        assert_eq!(cached(ListingKind::Prompts, "a"), Some(vec![greet]));
        assert_eq!(cached(ListingKind::Resources, "a"), None);
        assert_eq!(cached(ListingKind::Prompts, "b"), None);
    }

    #[test]
    fn long_listings_and_old_files_are_cut() {
        let folder = tempfile::tempdir().expect("a folder");
        let entries = (0..2 * MAX_ENTRIES).map(|at| ListedEntry::new(&format!("p{at}"), Some(&"x".repeat(1_000))));
        let entries = std::iter::once(ListedEntry::new(&"n".repeat(MAX_NAME + 1), None)).chain(entries);
        cache(folder.path(), "a").store(&"files".into(), entries);
        let cached = cached_listing(folder.path(), ListingKind::Prompts, &entry("a")).expect("a listing");
        assert_eq!((cached.len(), cached[0].name.as_str()), (MAX_ENTRIES, "p0"));
        assert_eq!(cached[0].description.len(), MAX_DESCRIPTION);
        cache(folder.path(), "b").store(&"files".into(), std::iter::empty());
        prune(&folder.path().join(FOLDER), 1);
        assert_eq!(fs::read_dir(folder.path().join(FOLDER)).expect("a folder").count(), 1);
    }
}
