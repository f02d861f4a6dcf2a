//! The local file content that a call replaces.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ropeway_config::{Config, StdioServer, read_regular};
use ropeway_core::tool::{Alias, Arguments};
use serde_json::Value;

use super::argument_display::ReplacedContent;

/// Maximum file size in bytes.
const MAX_BYTES: usize = 512 << 10;

/// Time limit for reading, since a network file system may hang.
const READ_TIMEOUT: Duration = Duration::from_millis(500);

/// Argument names that hold a file path.
const PATHS: [&str; 7] = ["path", "file_path", "filePath", "filepath", "file", "filename", "file_name"];

/// Argument names that hold a file's new content.
const CONTENTS: [&str; 6] = ["content", "contents", "file_text", "fileText", "new_content", "text"];

/// Words in the names of tools that replace a file.
const VERBS: [&str; 6] = ["write", "create", "save", "update", "replace", "overwrite"];

/// The local directories that stdio servers work in. Remote servers have none: what they write is not a local file.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocalFolders(Vec<(Alias, Vec<PathBuf>)>);

impl LocalFolders {
    /// Returns each stdio server's working directory, and the directories that its arguments name. `folder` is the
    /// default working directory.
    pub(crate) fn of(config: &Config, folder: &Path) -> Self {
        let folders = |server: &StdioServer| {
            let work = folder.join(server.working_dir().unwrap_or(Path::new("")));
            let named = server.args.iter().map(|argument| work.join(argument)).filter(|path| path.is_dir());
            let named: Vec<PathBuf> = named.collect();
            [vec![work], named].concat()
        };
        let servers = config.servers.iter().filter_map(|entry| Some((entry.alias.clone(), folders(entry.stdio()?))));
        Self(servers.collect())
    }

    /// Returns the content that a call replaces, if it is a text file in a directory of the tool's server.
    pub(super) async fn replaced(&self, server: &Alias, tool: &str, arguments: &Arguments) -> Option<ReplacedContent> {
        let tool = tool.to_lowercase();
        if !VERBS.iter().any(|verb| tool.contains(verb)) || tool.contains("append") || tool.contains("insert") {
            return None;
        }
        let text = |names: &[&str]| {
            names.iter().find_map(|name| Some(((*name).to_owned(), arguments.get(*name).and_then(Value::as_str)?)))
        };
        let ((_, path), (argument, _)) = (text(&PATHS)?, text(&CONTENTS)?);
        let (_, folders) = self.0.iter().find(|(alias, _)| alias == server)?;
        // A server with its own directories may resolve a relative path in any of them.
        if folders.len() > 1 && Path::new(path).is_relative() {
            return None;
        }
        let (path, folders) = (folders.first()?.join(path), folders.clone());
        let read = tokio::task::spawn_blocking(move || read_within(&path, &folders));
        let before = tokio::time::timeout(READ_TIMEOUT, read).await.ok()?.ok()??;
        Some(ReplacedContent { argument, before })
    }
}

/// Reads a text file, if one of the directories contains it after links are resolved.
fn read_within(path: &Path, folders: &[PathBuf]) -> Option<String> {
    let path = std::fs::canonicalize(path).ok()?;
    let is_inside = |folder: &PathBuf| std::fs::canonicalize(folder).is_ok_and(|folder| path.starts_with(folder));
    if !folders.iter().any(is_inside) {
        return None;
    }
    read_regular(&path, MAX_BYTES).ok().filter(|text| !text.contains('\0'))
}

#[cfg(test)]
mod tests {
    use ropeway_config::{HttpServer, ServerConfig, ServerEntry};
    use serde_json::json;

    use super::*;

    async fn replaced(folder: &Path, server: &str, tool: &str, path: &str) -> Option<String> {
        let mut config = Config::default();
        let local = ServerEntry::new(ServerConfig::new("files", StdioServer::new("x", ["-y"])));
        let below = ServerEntry::new(ServerConfig::new("below", StdioServer::new("x", ["-y", "data"])));
        let remote = ServerEntry::new(ServerConfig::new("web", HttpServer::new("https://example.com/mcp")));
        config.servers = vec![local, below, remote];
        let arguments = json!({"path": path, "content": "new"}).as_object().cloned().expect("an object");
        let found = LocalFolders::of(&config, folder).replaced(&server.into(), tool, &arguments).await?;
        assert_eq!(found.argument, "content");
        Some(found.before)
    }

    #[tokio::test]
    async fn only_text_files_in_the_directories_of_a_local_server_are_read() {
        let (place, elsewhere) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let folder = place.path();
        std::fs::create_dir(folder.join("data")).expect("a folder");
        std::fs::write(folder.join("data/a.txt"), "old").expect("a file");
        std::fs::write(folder.join("binary"), b"a\0b").expect("a file");
        std::fs::write(folder.join("huge"), "x".repeat(MAX_BYTES + 1)).expect("a file");
        std::fs::write(elsewhere.path().join("secret"), "secret").expect("a file");
        std::os::unix::fs::symlink(elsewhere.path().join("secret"), folder.join("link")).expect("a link");
        let made = std::process::Command::new("mkfifo").arg(folder.join("pipe")).status().expect("mkfifo");
        assert!(made.success());
        assert_eq!(replaced(folder, "files", "write_file", "data/a.txt").await.as_deref(), Some("old"));
        assert_eq!(replaced(folder, "below", "write_file", "data/a.txt").await, None, "or `data/data/a.txt`");
        let absolute = folder.join("data/a.txt").to_string_lossy().into_owned();
        assert_eq!(replaced(folder, "below", "write_file", &absolute).await.as_deref(), Some("old"));
        assert_eq!(replaced(folder, "files", "Write", &absolute).await.as_deref(), Some("old"));
        for path in ["missing", "binary", "huge", "link", "pipe", "data", "/dev/zero", "", "a\0b"] {
            assert_eq!(replaced(folder, "files", "write_file", path).await, None, "{path}");
        }
        let secret = elsewhere.path().join("secret").to_string_lossy().into_owned();
        assert_eq!(replaced(folder, "files", "write_file", &secret).await, None);
        assert_eq!(replaced(folder, "web", "write_file", "data/a.txt").await, None);
        assert_eq!(replaced(folder, "files", "append_to_file", "data/a.txt").await, None);
        assert_eq!(replaced(folder, "files", "read_file", "data/a.txt").await, None);
    }
}
