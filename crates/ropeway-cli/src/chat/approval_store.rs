//! Approvals that a user keeps for later chats: one file per configuration file, in the user's state directory.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ropeway_agent::Approvals;
use ropeway_config::lock::Lock;
use ropeway_config::{open_regular, read_regular};
use ropeway_core::tool::ToolDefinition;

use crate::connect::lockfile::lock_failure;
use crate::failure::Failure;
use crate::files::file;
use crate::files::folder_lock::lock_folder;
use crate::files::user_folders::state_folder;
use crate::trust::ownership_problem;
use crate::trust::store::location;

/// The directory below the state directory.
const FOLDER: &str = "approvals";

/// Maximum file size in bytes.
const MAX_BYTES: usize = 32 << 20;

/// Maximum length of the project's name in a file name, in characters.
const MAX_NAME: usize = 40;

/// Bytes of a path's digest in a file name.
const DIGEST_BYTES: usize = 8;

/// A configuration file's kept approvals, in the `ropeway.lock` format.
///
/// The project's own `ropeway.lock` is shared with others, who cannot use these approvals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApprovalStore {
    path: PathBuf,
}

impl ApprovalStore {
    /// Returns the approvals for a configuration file, or `None` if the user has no state directory.
    pub(crate) fn of(config: &Path) -> Option<Self> {
        Some(Self::in_folder(&state_folder()?.join(FOLDER), &location(config).ok()?))
    }

    fn in_folder(folder: &Path, config: &Path) -> Self {
        let project = config.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let project: String = project.chars().filter(is_plain).take(MAX_NAME).collect();
        // The path's bytes, not its text: paths that are not UTF-8 may look alike.
        let digest = ring::digest::digest(&ring::digest::SHA256, config.as_os_str().as_bytes());
        let digest: String = digest.as_ref().iter().take(DIGEST_BYTES).map(|byte| format!("{byte:02x}")).collect();
        Self { path: folder.join(format!("{project}-{digest}.json")) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds the kept approvals to the chat's approvals.
    pub(crate) fn restore(&self, approvals: &Approvals) -> Result<(), Failure> {
        let lock = self.read()?;
        for server in lock.servers() {
            for (tool, kept) in lock.tools(server) {
                if let Some(digest) = kept.always {
                    approvals.allow_digest(server, tool, digest, kept.definition.clone());
                }
            }
        }
        Ok(())
    }

    /// Keeps a tool's approval, which ends when its definition or its server changes.
    pub(crate) fn keep(&self, definition: &ToolDefinition) -> Result<(), Failure> {
        let _held = lock_folder(self.path.parent().unwrap_or(Path::new("/")))?;
        let mut lock = self.read()?;
        lock.allow(definition);
        let text = lock.to_text();
        if text.len() > MAX_BYTES {
            return Err(self.failure(&format!("larger than {} MiB", MAX_BYTES >> 20)));
        }
        file::put(&self.path, &text, file::PRIVATE)
    }

    /// Reads the file. A missing file has no approvals; one that another user can change is an error.
    fn read(&self) -> Result<Lock, Failure> {
        let Ok(metadata) = std::fs::symlink_metadata(&self.path) else { return Ok(Lock::new()) };
        if metadata.is_symlink() {
            return Err(self.failure("is a symbolic link"));
        }
        let opened = open_regular(&self.path).and_then(|file| file.metadata());
        let metadata = opened.map_err(|error| self.failure(&error.to_string()))?;
        let user = rustix::process::geteuid().as_raw();
        if let Some(problem) = ownership_problem(metadata.uid(), metadata.mode(), user) {
            return Err(self.failure(&format!("is {problem}")));
        }
        let text = read_regular(&self.path, MAX_BYTES).map_err(|error| self.failure(&error.to_string()))?;
        Lock::parse(&text, &self.path).map_err(|error| lock_failure(&error))
    }

    fn failure(&self, problem: &str) -> Failure {
        Failure::usage(format!("could not use `{}`: {problem}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::fs::PermissionsExt as _;

    use ropeway_core::tool::{Origin, ToolDefinition};

    use super::*;
    use crate::trust::sha256;

    fn tool(name: &str) -> ToolDefinition {
        let mut definition = ToolDefinition::new(format!("mcp_s_{name}"));
        definition.origin = Origin::Server { server: "s".into(), tool: name.into() };
        definition
    }

    fn store() -> (tempfile::TempDir, ApprovalStore) {
        let folder = tempfile::tempdir().expect("a folder");
        let store =
            ApprovalStore::in_folder(&folder.path().join("state/approvals"), Path::new("/home/a/my proj/r.yaml"));
        (folder, store)
    }

    #[test]
    fn approvals_are_kept_in_a_private_file_per_configuration() {
        let (folder, store) = store();
        store.restore(&Approvals::new()).expect("nothing kept");
        store.keep(&tool("a")).expect("kept");
        store.keep(&tool("b")).expect("kept");
        let name = store.path().file_name().expect("a name").to_string_lossy().into_owned();
        assert!(name.starts_with("myproj-") && name.ends_with(".json"), "{name}");
        let mode = |path: &Path| std::fs::metadata(path).expect("a file").permissions().mode() & 0o777;
        assert_eq!((mode(store.path()), mode(store.path().parent().expect("a folder"))), (0o600, 0o700));
        let approvals = Approvals::new();
        store.restore(&approvals).expect("readable");
        assert!(format!("{approvals:?}").contains("tools: 2"), "{approvals:?}");
        let other =
            ApprovalStore::in_folder(&folder.path().join("state/approvals"), Path::new("/home/b/my proj/r.yaml"));
        assert_ne!(other, store);
    }

    #[test]
    fn paths_that_are_not_utf8_have_files_of_their_own() {
        let file = |config: &[u8]| ApprovalStore::in_folder(Path::new("/s"), Path::new(OsStr::from_bytes(config)));
        assert_ne!(file(b"/home/a/\xff/r.yaml"), file(b"/home/a/\xfe/r.yaml"));
        let known = format!("a-{}.json", &sha256("/home/a/r.yaml")[..16]);
        assert_eq!(file(b"/home/a/r.yaml").path(), Path::new("/s").join(known), "existing files stay valid");
    }

    #[test]
    fn a_file_that_others_can_change_approves_nothing() {
        let (_folder, store) = store();
        store.keep(&tool("a")).expect("kept");
        let refused = |words: &str| {
            let approvals = Approvals::new();
            let failure = store.restore(&approvals).expect_err("refused");
            assert!(failure.message().contains(words), "{}", failure.message());
            assert!(store.keep(&tool("b")).is_err());
            assert!(format!("{approvals:?}").contains("tools: 0"), "{approvals:?}");
        };
        std::fs::set_permissions(store.path(), std::fs::Permissions::from_mode(0o622)).expect("permissions");
        refused("is writable by all users");
        std::fs::rename(store.path(), store.path().with_extension("moved")).expect("renamed");
        std::os::unix::fs::symlink(store.path().with_extension("moved"), store.path()).expect("a link");
        refused("is a symbolic link");
        std::fs::remove_file(store.path()).expect("removed");
        let made = std::process::Command::new("mkfifo").arg(store.path()).status().expect("mkfifo");
        assert!(made.success());
        refused("not a regular file");
        std::fs::remove_file(store.path()).expect("removed");
        std::fs::write(store.path(), "precious").expect("a file");
        std::fs::set_permissions(store.path(), std::fs::Permissions::from_mode(0o600)).expect("permissions");
        refused("not valid JSON");
        assert_eq!(std::fs::read_to_string(store.path()).expect("a file"), "precious");
    }
}
