//! Detects files with secrets that git does not ignore.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::terminal::text::clean_line;

/// Time limit for git.
const PATIENCE: Duration = Duration::from_secs(2);

/// Interval for polling git.
const POLL: Duration = Duration::from_millis(5);

/// Maximum `.gitignore` size in bytes.
const LARGEST: usize = 1 << 20;

/// Returns a warning if a file with secrets is in a git work tree and not ignored.
pub(crate) fn warning(file: &Path) -> Option<String> {
    let file = std::path::absolute(file).ok()?;
    let folder = file.parent()?;
    let root = folder.ancestors().find(|folder| folder.join(".git").exists())?;
    let is_ignored = ask_git(Path::new("git"), folder, &file).unwrap_or_else(|| is_listed(root, &file));
    (!is_ignored).then(|| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let shown = clean_line(&file.display().to_string());
        format!("git does not ignore `{shown}`: add a line `{name}` to .gitignore, or the secrets may be committed")
    })
}

/// Asks git whether it ignores a file. Returns `None` if git is missing, fails or times out.
fn ask_git(program: &Path, folder: &Path, file: &Path) -> Option<bool> {
    // The repository's configuration must not run programs.
    let mut git = Command::new(program);
    git.args(["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "check-ignore", "--quiet", "--"])
        .arg(file);
    git.current_dir(folder).env_remove("GIT_DIR").env_remove("GIT_WORK_TREE").env("GIT_OPTIONAL_LOCKS", "0");
    let mut git = git.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
    let began = Instant::now();
    loop {
        match git.try_wait() {
            // https://git-scm.com/docs/git-check-ignore#_exit_status
            Ok(Some(status)) => {
                return match status.code() {
                    Some(0) => Some(true),
                    Some(1) => Some(false),
                    _ => None,
                };
            }
            Ok(None) if began.elapsed() < PATIENCE => std::thread::sleep(POLL),
            Ok(None) | Err(_) => {
                let _ = git.kill();
                let _ = git.wait();
                return None;
            }
        }
    }
}

/// Returns `true` if a common pattern in the work tree's `.gitignore` files matches the file.
fn is_listed(root: &Path, file: &Path) -> bool {
    let Some(name) = file.file_name().and_then(OsStr::to_str) else { return false };
    let folders = file.ancestors().skip(1).take_while(|folder| folder.starts_with(root)).map(PathBuf::from);
    folders.into_iter().any(|folder| {
        let text = ropeway_config::read_regular(&folder.join(".gitignore"), LARGEST).unwrap_or_default();
        let is_it = |line: &str| {
            let pattern = line.trim().trim_start_matches('/').trim_start_matches("**/");
            pattern == name || pattern == "*" || pattern == format!("*{name}") || pattern == format!("{name}*")
        };
        text.lines().any(is_it)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_git_the_usual_lines_of_gitignore_are_known() {
        let folder = tempfile::tempdir().expect("a folder");
        let below = folder.path().join("below");
        std::fs::create_dir(&below).expect("a folder");
        let file = below.join(".env");
        for (line, expected) in [(".env", true), ("/.env", true), ("*.env", true), (".env*", true), (".envrc", false)] {
            std::fs::write(folder.path().join(".gitignore"), format!("target\n{line}\n")).expect("a file");
            assert_eq!(is_listed(folder.path(), &file), expected, "{line}");
        }
        assert_eq!(ask_git(Path::new("/no/such/git"), &below, &file), None);
    }

    #[test]
    fn no_warning_outside_of_a_work_tree() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(warning(&folder.path().join(".env")), None);
    }
}
