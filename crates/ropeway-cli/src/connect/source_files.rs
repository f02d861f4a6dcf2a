//! Servers' source files, to notice when they change.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirEntry, Metadata};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use ropeway_config::{Config, ServerEntry, StdioServer, Transport};
use ropeway_core::tool::Alias;

use crate::output::print::say;
use crate::terminal::style::warning;

/// Maximum files that are watched for one server.
pub(crate) const MAX_FILES: usize = 5_000;
/// Maximum folder nesting that is watched.
const MAX_DEPTH: usize = 16;
/// Maximum folder entries that one scan uses.
const MAX_ENTRIES: usize = 50_000;

/// Servers with too many entries that the user was warned about, each with the first folder that is not watched completely.
///
/// It is global, so that the warning appears once per process, not once per scan. The lock is held only to insert an entry.
static WARNED: Mutex<BTreeSet<(Alias, PathBuf)>> = Mutex::new(BTreeSet::new());

/// Code file extensions. Other files next to a script may be data, which a server writes itself.
const CODE: [&str; 29] = [
    "c", "cjs", "clj", "cpp", "cs", "cts", "dart", "ex", "exs", "go", "h", "java", "js", "jsx", "kt", "lua", "mjs",
    "mts", "php", "pl", "py", "rb", "rs", "scala", "sh", "swift", "ts", "tsx", "zig",
];

/// Dependency and build folders, in addition to hidden ones.
const IGNORED: [&str; 7] =
    ["node_modules", "target", "__pycache__", "venv", "site-packages", "vendor", "bower_components"];

/// Each file's modification time and size.
pub(crate) type FileStamps = BTreeMap<PathBuf, (SystemTime, u64)>;

/// One server's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceFiles {
    pub(crate) alias: Alias,
    roots: Vec<Root>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Root {
    /// One file.
    File(PathBuf),
    /// The code in a folder.
    Code(PathBuf),
    /// All files in a folder.
    All(PathBuf),
}

impl SourceFiles {
    /// Returns each stdio server's files: the given ones, or those that its command names. Servers with equal commands share a
    /// process, so only the first such server is returned.
    pub(crate) fn of(config: &Config, given: &[PathBuf]) -> Vec<Self> {
        let mut seen: Vec<&StdioServer> = Vec::new();
        let mut files = Vec::new();
        for entry in config.servers.iter().filter(|entry| entry.enabled) {
            let Some(Transport::Stdio(server)) = ServerEntry::config(entry).map(|config| &config.transport) else {
                continue;
            };
            if seen.contains(&server) {
                continue;
            }
            seen.push(server);
            let roots = if given.is_empty() {
                command_roots(server)
            } else {
                given.iter().map(|path| given_root(path)).collect()
            };
            files.push(Self { alias: entry.alias.clone(), roots });
        }
        files
    }

    /// Returns `true` if no file is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    /// Reads the stamps for all files, up to [`MAX_FILES`]. Warns once if the folders have too many entries.
    pub(crate) fn stamps(&self) -> FileStamps {
        let scan = self.scan(MAX_ENTRIES);
        if let Some(folder) = scan.cut_folder {
            let words = format!(
                "server `{}`: `{}` is not watched completely: more than {MAX_ENTRIES} entries; try `--watch PATH`",
                self.alias,
                folder.display()
            );
            if WARNED.lock().unwrap_or_else(PoisonError::into_inner).insert((self.alias.clone(), folder)) {
                say(&warning(&words));
            }
        }
        scan.stamps
    }

    fn scan(&self, max_entries: usize) -> Scan {
        let mut scan = Scan { stamps: FileStamps::new(), entries_left: max_entries, cut_folder: None };
        for root in &self.roots {
            match root {
                Root::File(path) => scan.file(path),
                Root::Code(path) => scan.folder(path, true, MAX_DEPTH),
                Root::All(path) => scan.folder(path, false, MAX_DEPTH),
            }
        }
        scan
    }
}

fn given_root(path: &Path) -> Root {
    if path.is_dir() { Root::All(path.to_owned()) } else { Root::File(path.to_owned()) }
}

/// Returns what to watch for a command: a program in a folder, the code next to its script, or else the code in its working directory.
fn command_roots(server: &StdioServer) -> Vec<Root> {
    let directory = server.working_dir();
    let in_directory = |word: &str| directory.map_or_else(|| PathBuf::from(word), |it| it.join(word));
    let mut roots = Vec::new();
    // A name without a slash names an installed program.
    if server.command.contains('/') {
        roots.push(Root::File(in_directory(&server.command)));
    }
    for word in &server.args {
        let path = in_directory(word);
        if !fs::metadata(&path).is_ok_and(|file| file.is_file() && is_script(&path, &file)) {
            continue;
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        roots.extend([Root::Code(folder.to_owned()), Root::File(path.clone())]);
    }
    match directory {
        // A package runner's server has its code outside its directory.
        Some(directory) if roots.is_empty() && (server.cwd.is_some() || !server.is_package_runner()) => {
            vec![Root::Code(directory.to_owned())]
        }
        _ => roots,
    }
}

fn is_script(path: &Path, file: &Metadata) -> bool {
    is_code(path) || file.permissions().mode() & 0o111 != 0
}

fn is_code(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| CODE.contains(&extension))
}

/// The server files found so far.
struct Scan {
    stamps: FileStamps,
    entries_left: usize,
    /// The first folder with more entries than were left.
    cut_folder: Option<PathBuf>,
}

impl Scan {
    fn file(&mut self, path: &Path) {
        let Ok(metadata) = fs::metadata(path) else { return };
        let Ok(modified) = metadata.modified() else { return };
        if metadata.is_file() && self.stamps.len() < MAX_FILES {
            // A script is found by its name, and in its folder.
            let path = path.strip_prefix(".").unwrap_or(path);
            self.stamps.insert(path.to_owned(), (modified, metadata.len()));
        }
    }

    /// Adds the files in a folder, without links to folders, which may form circles.
    fn folder(&mut self, path: &Path, code_only: bool, depth: usize) {
        let Some(depth) = depth.checked_sub(1) else { return };
        let Ok(entries) = fs::read_dir(path) else { return };
        let mut entries: Vec<DirEntry> = entries.flatten().collect();
        // The same files are found in each scan, even if there are too many.
        entries.sort_by_cached_key(DirEntry::file_name);
        if entries.len() > self.entries_left {
            entries.truncate(self.entries_left);
            self.cut_folder.get_or_insert_with(|| path.to_owned());
        }
        self.entries_left -= entries.len();
        let mut paths: Vec<(PathBuf, bool)> = Vec::new();
        for entry in entries {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let Ok(kind) = entry.file_type() else { continue };
            let is_ignored = name.starts_with('.') || kind.is_dir() && IGNORED.contains(&&*name);
            if !is_ignored {
                paths.push((entry.path(), kind.is_dir()));
            }
        }
        for (path, is_folder) in paths {
            if is_folder {
                self.folder(&path, code_only, depth);
            } else if !code_only || is_code(&path) {
                self.file(&path);
            }
        }
    }
}

/// Returns a text about changed files, or `None` if nothing has changed.
pub(crate) fn difference(before: &FileStamps, after: &FileStamps) -> Option<String> {
    let is_changed = |path: &&PathBuf| before.get(*path) != after.get(*path);
    let added = after.keys().filter(|path| !before.contains_key(*path));
    let mut changed: Vec<&PathBuf> = before.keys().chain(added).filter(is_changed).collect();
    changed.sort();
    let first = changed.first()?;
    let here = std::env::current_dir().ok().and_then(|here| first.strip_prefix(here).ok().map(Path::to_owned));
    let shown = here.unwrap_or_else(|| first.to_path_buf());
    Some(match changed.len() {
        1 => format!("`{}` changed", shown.display()),
        2 => format!("`{}` and 1 more file changed", shown.display()),
        many => format!("`{}` and {} more files changed", shown.display(), many - 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    use ropeway_config::ServerConfig;

    /// Creates a folder with these files.
    fn folder(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::write(path, "1").expect("a file");
        }
        folder
    }

    fn watched(folder: &Path, server: StdioServer, given: &[&str]) -> Vec<String> {
        let mut server = server;
        server.cwd = Some(folder.to_owned());
        let config = Config::new([ServerConfig::new("a", server)]);
        let given: Vec<PathBuf> = given.iter().map(|path| folder.join(path)).collect();
        let stamps = SourceFiles::of(&config, &given)[0].stamps();
        let relative = |path: &PathBuf| path.strip_prefix(folder).expect("a file of the folder").display().to_string();
        stamps.keys().map(relative).collect()
    }

    const FILES: [&str; 7] = [
        "server.py",
        "lib/tools.py",
        "data.db",
        "node_modules/x/index.js",
        ".git/hook.py",
        "notes.md",
        "lib/data.json",
    ];

    #[test]
    fn the_code_next_to_a_script_is_watched_but_not_its_data() {
        let folder = folder(&FILES);
        let server = StdioServer::new("python3", ["server.py", "data.db", "--flag"]);
        assert_eq!(watched(folder.path(), server, &[]), ["lib/tools.py", "server.py"]);
    }

    #[test]
    fn without_a_script_the_code_of_the_working_directory_is_watched() {
        let folder = folder(&FILES);
        assert_eq!(watched(folder.path(), StdioServer::new("npm", ["start"]), &[]), ["lib/tools.py", "server.py"]);
    }

    #[test]
    fn the_script_of_a_server_is_found_in_the_directory_of_its_file() {
        let folder = folder(&FILES);
        let server = StdioServer::new("python3", ["server.py"]).with_base_dir(Some(folder.path().to_owned()));
        let config = Config::new([ServerConfig::new("a", server)]);
        let stamps = SourceFiles::of(&config, &[])[0].stamps();
        assert!(stamps.contains_key(&folder.path().join("server.py")), "{stamps:?}");
    }

    #[test]
    fn a_program_with_a_path_is_watched_alone() {
        let folder = folder(&["target/debug/server", "src/main.rs"]);
        let server = StdioServer::new("target/debug/server", [""; 0]);
        assert_eq!(watched(folder.path(), server, &[]), ["target/debug/server"]);
    }

    #[test]
    fn a_given_folder_is_watched_with_all_of_its_files() {
        let folder = folder(&FILES);
        let server = StdioServer::new("python3", ["server.py"]);
        assert_eq!(watched(folder.path(), server, &["lib", "data.db"]), ["data.db", "lib/data.json", "lib/tools.py"]);
    }

    #[test]
    fn the_number_of_files_is_bounded() {
        let folder = folder(&["server.py"]);
        for at in 0..MAX_FILES + 50 {
            fs::write(folder.path().join(format!("m{at:05}.py")), "").expect("a file");
        }
        assert_eq!(watched(folder.path(), StdioServer::new("python3", ["server.py"]), &[]).len(), MAX_FILES);
    }

    #[test]
    fn of_too_many_entries_the_first_by_name_are_watched() {
        let folder = folder(&["server.py", "a/1.py", "a/2.py", "b/1.py", "b/2.py", "b/3.py", "b/4.py", "c/1.py"]);
        let server = StdioServer::new("python3", [folder.path().join("server.py").to_string_lossy()]);
        let files = SourceFiles::of(&Config::new([ServerConfig::new("a", server)]), &[]);
        // The folder has four entries, and `a` two.
        let scan = files[0].scan(4 + 2 + 3);
        let found: Vec<_> = scan.stamps.keys().filter_map(|path| path.strip_prefix(folder.path()).ok()).collect();
        assert_eq!(found, ["a/1.py", "a/2.py", "b/1.py", "b/2.py", "b/3.py", "server.py"].map(Path::new));
        assert_eq!(scan.cut_folder, Some(folder.path().join("b")));
        assert_eq!(files[0].scan(MAX_ENTRIES).cut_folder, None);
    }

    #[test]
    fn entries_with_equal_commands_are_watched_once() {
        let server = |alias: &str, command: &str| ServerConfig::new(alias, StdioServer::new(command, [""; 0]));
        let config = Config::new([server("a", "./x"), server("b", "./x"), server("c", "./y")]);
        let watched = SourceFiles::of(&config, &[]);
        assert_eq!(watched.iter().map(|files| files.alias.as_str()).collect::<Vec<_>>(), ["a", "c"]);
    }

    #[test]
    fn a_difference_names_the_first_file() {
        let stamp = |seconds: u64| (SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds), 1);
        let stamps = |files: &[(&str, u64)]| -> FileStamps {
            files.iter().map(|(path, seconds)| (PathBuf::from(path), stamp(*seconds))).collect()
        };
        let before = stamps(&[("/a.py", 1), ("/b.py", 1)]);
        assert_eq!(difference(&before, &before), None);
        assert_eq!(difference(&before, &stamps(&[("/a.py", 2), ("/b.py", 1)])).as_deref(), Some("`/a.py` changed"));
        assert_eq!(
            difference(&before, &stamps(&[("/b.py", 3), ("/c.py", 1)])).as_deref(),
            Some("`/a.py` and 2 more files changed")
        );
    }
}
