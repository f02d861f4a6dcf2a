//! Path resolution, with the symbolic links that paths lead through.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Maximum number of links, as in the kernel.
const MAX_LINKS: usize = 40;

/// A path without links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ResolvedPath {
    pub(super) target: PathBuf,
    /// Where each link is, in resolution order. Their own directories contain no links.
    pub(super) links: Vec<PathBuf>,
}

impl ResolvedPath {
    /// Returns a link within a directory if it leads outside.
    pub(super) fn link_out_of(&self, folder: &Path) -> Option<&Path> {
        let leads_out = !self.target.starts_with(folder);
        self.links.iter().find(|link| leads_out && link.starts_with(folder)).map(PathBuf::as_path)
    }
}

/// Resolves all links in a path, which must exist.
pub(super) fn resolve(path: &Path) -> io::Result<ResolvedPath> {
    let mut target = PathBuf::from("/");
    let mut links = Vec::new();
    let mut pending = VecDeque::new();
    prepend(&mut pending, &std::path::absolute(path)?);
    while let Some(name) = pending.pop_front() {
        if name == "/" {
            target = PathBuf::from("/");
        } else if name == ".." {
            target.pop();
        } else {
            target.push(name);
            if std::fs::symlink_metadata(&target)?.is_symlink() {
                if links.len() == MAX_LINKS {
                    return Err(io::Error::other("too many links"));
                }
                prepend(&mut pending, &std::fs::read_link(&target)?);
                links.push(target.clone());
                target.pop();
            }
        }
    }
    Ok(ResolvedPath { target, links })
}

/// Adds a path's components before those that are left.
fn prepend(pending: &mut VecDeque<OsString>, path: &Path) {
    for component in path.components().rev() {
        match component {
            Component::CurDir => {}
            component => pending.push_front(component.as_os_str().to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn every_link_of_a_path_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("a folder");
        std::fs::create_dir_all(root.join("work/in")).expect("a folder");
        std::fs::create_dir_all(root.join("other")).expect("a folder");
        symlink("../other", root.join("work/link")).expect("a link");
        symlink("link/../work/in", root.join("work/twice")).expect("a link");
        symlink("loop", root.join("loop")).expect("a link");
        let found = resolve(&root.join("work/./link")).expect("a path");
        assert_eq!(found, ResolvedPath { target: root.join("other"), links: vec![root.join("work/link")] });
        assert_eq!(found.link_out_of(&root.join("work")), Some(root.join("work/link").as_path()));
        assert_eq!(found.link_out_of(&root), None);
        let found = resolve(&root.join("work/twice")).expect("a path");
        assert_eq!(found.target, root.join("work/in"));
        assert_eq!(found.links, [root.join("work/twice"), root.join("work/link")]);
        assert_eq!(found.link_out_of(&root.join("work")), None);
        for missing in ["loop", "none", "work/in/none/.."] {
            assert!(resolve(&root.join(missing)).is_err(), "{missing}");
        }
        for path in ["/usr/bin/env", "/bin/sh", "/"] {
            assert_eq!(resolve(Path::new(path)).ok().map(|it| it.target), Path::new(path).canonicalize().ok());
        }
    }
}
