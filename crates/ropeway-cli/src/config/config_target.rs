//! The `ropeway.yaml` that a command changes.

use std::path::{Path, PathBuf};

use ropeway::config::edit::EditError;
use ropeway::config::{Config, Secrets, is_manifest, read_foreign, review};

use crate::config::config_paths;
use crate::config::config_paths::Origin;
use crate::failure::Failure;
use crate::files::file;
use crate::files::user_folders::user_folder;
use crate::trust::{self, Store, TrustReview};

/// The file that is about to be changed, and what it says so far.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) path: PathBuf,
    before: Option<String>,
    origin: Origin,
}

impl Target {
    /// The file that is named, the user's own, the one that is used, or a new one in this folder.
    pub(crate) fn find(named: Option<PathBuf>, global: bool) -> Result<Self, Failure> {
        let (path, origin) = match (named, global) {
            (Some(path), _) => (path, Origin::Named),
            (None, true) => {
                let folder =
                    user_folder().ok_or_else(|| Failure::usage("there is no home folder: `HOME` is not set"))?;
                (config_paths::file_in(&folder), Origin::Own)
            }
            (None, false) => {
                config_paths::found().unwrap_or_else(|| (config_paths::file_in(Path::new("")), Origin::Project))
            }
        };
        let is_foreign = path.extension().is_some_and(|end| matches!(end.to_str(), Some("json" | "jsonc" | "toml")));
        if is_foreign {
            let shown = path.display();
            return Err(Failure::usage(format!("`{shown}` belongs to another client, and is not changed"))
                .hint(format!("`ropeway import {shown} --to ropeway.yaml` takes its servers over")));
        }
        let before = file::read(&path)?;
        if before.as_deref().is_some_and(|before| is_manifest(before, &path)) {
            let shown = path.display();
            return Err(Failure::usage(format!("`{shown}` is a manifest, and is not changed: edit it by hand"))
                .hint(format!("`ropeway import {shown} --to FILE.yaml` makes a ropeway.yaml from it")));
        }
        if before.as_deref().is_some_and(|before| read_foreign(before, &path).is_ok()) {
            let shown = path.display();
            return Err(Failure::usage(format!("`{shown}` is written as another client's, and is not changed"))
                .hint(format!("`ropeway import {shown} --to FILE.yaml` makes a file of ours from it")));
        }
        Ok(Self { before, path, origin })
    }

    /// Lets the file be read and changed: to add to a project file is not to trust the rest of it.
    pub(crate) fn admitted(self, mode: trust::Mode) -> Result<Self, Failure> {
        if let (Some(before), Origin::Project) = (&self.before, self.origin) {
            trust::admit(&self.path, before, mode)?;
        }
        Ok(self)
    }

    /// Refuses a file that is broken already: that is told before what would be.
    pub(crate) fn sound(self) -> Result<Self, Failure> {
        let before = self.before.as_deref().filter(|before| !is_empty(before));
        match before.map(|before| self.meaning(before)) {
            Some(Err(failure)) => {
                Err(failure
                    .hint(format!("nothing was changed: `ropeway config check {}` shows more", self.path.display())))
            }
            Some(Ok(_)) | None => Ok(self),
        }
    }

    /// What the file says so far.
    pub(crate) fn text(&self) -> &str {
        self.before.as_deref().unwrap_or_default()
    }

    /// Is there no such file yet?
    pub(crate) fn is_new(&self) -> bool {
        self.before.is_none()
    }

    /// What a text would mean in the place of the file.
    pub(crate) fn meaning(&self, text: &str) -> Result<Config, Failure> {
        Config::parse(text, &self.path, &Secrets::from_env()).map_err(|error| Failure::config(&error))
    }

    /// The same as far as it is known without reading other files or variables.
    pub(crate) fn meaning_unread(&self, text: &str) -> Result<Config, Failure> {
        Config::parse(text, &self.path, &Secrets::unread()).map_err(|error| Failure::config(&error))
    }

    /// Refuses a text that cannot be reviewed, unless the file could not be reviewed before: `ropeway remove` may repair it.
    pub(crate) fn check_review(&self, text: &str) -> Result<(), Failure> {
        let before = self.before.as_deref().filter(|before| !is_empty(before));
        let was_broken = before.is_some_and(|before| review(before, &self.path).is_err());
        match review(text, &self.path) {
            Err(error) if !was_broken => Err(Failure::config(&error).hint("nothing was changed")),
            _ => Ok(()),
        }
    }

    /// Writes a text in the place of what was there. A new file, and one that was trusted before, is trusted afterwards.
    pub(crate) fn write(&self, text: &str) -> Result<(), Failure> {
        self.check_review(text)?;
        let was_trusted = match &self.before {
            None => true,
            Some(before) => Store::open().is_ok_and(|store| store.is_trusted(&self.path, before)),
        };
        file::replace(&self.path, self.before.as_deref(), text, file::SHARED)?;
        if let Some(target) = file::link_target(&self.path) {
            trust::warning(&format!("`{}` is a link: `{}` was changed", self.path.display(), target.display()));
        }
        if was_trusted && self.origin != Origin::Own {
            self.renew_trust(text);
        }
        Ok(())
    }

    fn renew_trust(&self, text: &str) {
        let remembered = TrustReview::new(&self.path, text, Vec::new())
            .map_err(|failure| failure.line())
            .and_then(|review| trust::remember(&self.path, text, review.summary).map_err(|error| error.to_string()));
        if let Err(why) = remembered {
            trust::warning(&format!("{why}; run `ropeway trust {}`", self.path.display()));
        }
    }

    /// Why the file could not be changed.
    pub(crate) fn refused(&self, error: EditError) -> Failure {
        let shown = self.path.display();
        match error {
            EditError::Taken { alias, line } => {
                Failure::usage(format!("{shown}:{line}: there is a server `{alias}` already"))
                    .hint(format!("take another name, or `ropeway remove {alias}` first"))
            }
            EditError::StillNamed { alias, line } => {
                Failure::usage(format!("{shown}:{line}: `enabled_servers` names `{alias}` too"))
                    .hint("take it out there first")
            }
            EditError::ByHand { what, lines } => {
                let failure = Failure::usage(format!("`{shown}` has to be changed by hand: {what}"));
                lines.lines().fold(failure, Failure::hint)
            }
            error => Failure::usage(format!("`{shown}` was not changed: {error}")).caused_by_source(&error),
        }
    }
}

fn is_empty(text: &str) -> bool {
    text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
}

/// The lines of a text that another one, which has lines more, does not have.
pub(crate) fn difference<'a>(less: &str, more: &'a str) -> Vec<&'a str> {
    let less: Vec<&str> = less.lines().collect();
    let more: Vec<&str> = more.lines().collect();
    let start = less.iter().zip(&more).take_while(|(a, b)| a == b).count();
    let end = less[start..].iter().rev().zip(more[start..].iter().rev()).take_while(|(a, b)| a == b).count();
    more[start..more.len() - end].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_cannot_be_reviewed_is_not_written_to_any_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ropeway.yaml");
        let text = "servers: [{alias: a, url: '${HOME:-nourl}'}]\n";
        for origin in [Origin::Own, Origin::Named] {
            let target = Target { path: path.clone(), before: None, origin };
            assert!(target.write(text).is_err());
            assert!(!path.exists());
        }
        let broken = Target { path, before: Some(text.to_owned()), origin: Origin::Own };
        assert!(broken.check_review(text).is_ok(), "it was so before");
    }

    #[test]
    fn the_lines_that_were_added_are_found_wherever_they_are() {
        assert_eq!(difference("", "a\nb\n"), ["a", "b"]);
        assert_eq!(difference("a\nc\n", "a\nb\nc\n"), ["b"]);
        assert_eq!(difference("a\na\n", "a\na\na\n"), ["a"]);
        assert_eq!(difference("a\n", "a\n"), [""; 0]);
        assert_eq!(difference("servers: []\n", "servers:\n- a\n"), ["servers:", "- a"]);
    }
}
