//! The configuration file that a command edits.

use std::path::{Path, PathBuf};

use ropeway_config::edit::EditError;
use ropeway_config::{Config, Secrets, is_manifest, read_foreign, review};

use crate::config::config_paths;
use crate::config::config_paths::Origin;
use crate::failure::Failure;
use crate::files::file;
use crate::files::user_folders::user_folder;
use crate::trust::{self, TrustReview, TrustStore};

/// The file to edit and its current text.
#[derive(Debug)]
pub(crate) struct ConfigTarget {
    pub(crate) path: PathBuf,
    before: Option<String>,
    origin: Origin,
}

impl ConfigTarget {
    /// Selects the named file, the user configuration file, the file in use, or a new file in the current directory.
    pub(crate) fn find(named: Option<PathBuf>, global: bool) -> Result<Self, Failure> {
        let (path, origin) = match (named, global) {
            (Some(path), _) => (path, Origin::Named),
            (None, true) => {
                let folder = user_folder().ok_or_else(|| Failure::usage("no home directory: `HOME` is not set"))?;
                (config_paths::path_in(&folder), Origin::Own)
            }
            (None, false) => config_paths::find_with_origin()
                .unwrap_or_else(|| (config_paths::path_in(Path::new("")), Origin::Project)),
        };
        let is_foreign = path.extension().is_some_and(|end| matches!(end.to_str(), Some("json" | "jsonc" | "toml")));
        if is_foreign {
            let shown = path.display();
            return Err(Failure::usage(format!("cannot edit `{shown}`: it is the file of another client"))
                .hint(format!("try `ropeway import {shown} --to ropeway.yaml`")));
        }
        let before = file::read(&path)?;
        if before.as_deref().is_some_and(|before| is_manifest(before, &path)) {
            let shown = path.display();
            return Err(Failure::usage(format!("cannot edit `{shown}`: it is a manifest"))
                .hint(format!("edit it by hand, or convert it with `ropeway import {shown} --to FILE.yaml`")));
        }
        if before.as_deref().is_some_and(|before| read_foreign(before, &path).is_ok()) {
            let shown = path.display();
            return Err(Failure::usage(format!("cannot edit `{shown}`: it has the format of another client"))
                .hint(format!("convert it with `ropeway import {shown} --to FILE.yaml`")));
        }
        Ok(Self { before, path, origin })
    }

    /// Checks that the file is trusted. Editing a project file does not imply trust in its other entries.
    pub(crate) fn trusted(self, mode: trust::TrustMode) -> Result<Self, Failure> {
        if let (Some(before), Origin::Project) = (&self.before, self.origin) {
            trust::admit(&self.path, before, mode)?;
        }
        Ok(self)
    }

    /// Refuses a file that is already invalid.
    pub(crate) fn validated(self) -> Result<Self, Failure> {
        let before = self.before.as_deref().filter(|before| !is_empty(before));
        match before.map(|before| self.parse(before)) {
            Some(Err(failure)) => {
                Err(failure.hint(format!("nothing was changed; see `ropeway config check {}`", self.path.display())))
            }
            Some(Ok(_)) | None => Ok(self),
        }
    }

    /// Returns the current text.
    pub(crate) fn text(&self) -> &str {
        self.before.as_deref().unwrap_or_default()
    }

    /// Returns the path for messages, relative to the current directory if the file is below it.
    pub(crate) fn shown(&self) -> String {
        let below = std::env::current_dir().ok().and_then(|here| self.path.strip_prefix(here).ok());
        below.unwrap_or(&self.path).display().to_string()
    }

    /// Returns `true` if the file does not exist yet.
    pub(crate) fn is_new(&self) -> bool {
        self.before.is_none()
    }

    /// Parses the file's new text.
    pub(crate) fn parse(&self, text: &str) -> Result<Config, Failure> {
        Config::parse(text, &self.path, &Secrets::from_env()).map_err(|error| Failure::config(&error))
    }

    /// Parses a new text without reading other files or variables.
    pub(crate) fn parse_unread(&self, text: &str) -> Result<Config, Failure> {
        Config::parse(text, &self.path, &Secrets::unread()).map_err(|error| Failure::config(&error))
    }

    /// Refuses a text that cannot be reviewed, unless the current text cannot be either: `ropeway remove` may repair it.
    pub(crate) fn check_review(&self, text: &str) -> Result<(), Failure> {
        let before = self.before.as_deref().filter(|before| !is_empty(before));
        let was_broken = before.is_some_and(|before| review(before, &self.path).is_err());
        match review(text, &self.path) {
            Err(error) if !was_broken => Err(Failure::config(&error).hint("nothing was changed")),
            _ => Ok(()),
        }
    }

    /// Replaces the file's text. A new file and a file that was trusted before are trusted afterwards.
    pub(crate) fn write(&self, text: &str) -> Result<(), Failure> {
        self.check_review(text)?;
        let was_trusted = match &self.before {
            None => true,
            Some(before) => TrustStore::open().is_ok_and(|store| store.is_trusted(&self.path, before)),
        };
        file::replace(&self.path, self.before.as_deref(), text, file::SHARED)?;
        if let Some(target) = file::link_target(&self.path) {
            trust::print_warning(&format!(
                "`{}` is a symbolic link; changed `{}`",
                self.path.display(),
                target.display()
            ));
        }
        if was_trusted && self.origin != Origin::Own {
            self.renew_trust(text);
        }
        Ok(())
    }

    fn renew_trust(&self, text: &str) {
        let remembered =
            TrustReview::new(&self.path, text, Vec::new()).map_err(|failure| failure.line()).and_then(|review| {
                trust::record_trust(&self.path, text, review.summary).map_err(|error| error.to_string())
            });
        if let Err(why) = remembered {
            trust::print_warning(&format!("{why}; run `ropeway trust {}`", self.path.display()));
        }
    }

    /// Converts an edit error to a failure.
    pub(crate) fn edit_failure(&self, error: EditError) -> Failure {
        let shown = self.path.display();
        match error {
            EditError::DuplicateAlias { alias, line } => {
                Failure::usage(format!("{shown}:{line}: server `{alias}` already exists"))
                    .hint(format!("choose another name, or try `ropeway remove {alias}` first"))
            }
            EditError::StillReferenced { alias, line } => {
                Failure::usage(format!("{shown}:{line}: `enabled_servers` includes `{alias}`"))
                    .hint("remove it there first")
            }
            EditError::ManualEdit { what, lines } => {
                let failure = Failure::usage(format!("cannot edit `{shown}`: {what}; edit it by hand"));
                lines.lines().fold(failure, Failure::hint)
            }
            error => Failure::usage(format!("`{shown}` was not changed: {error}")).caused_by_source(&error),
        }
    }
}

fn is_empty(text: &str) -> bool {
    text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
}

/// Returns the lines that `more` has in addition to `less`.
pub(crate) fn added_lines<'a>(less: &str, more: &'a str) -> Vec<&'a str> {
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
            let target = ConfigTarget { path: path.clone(), before: None, origin };
            assert!(target.write(text).is_err());
            assert!(!path.exists());
        }
        let broken = ConfigTarget { path, before: Some(text.to_owned()), origin: Origin::Own };
        assert!(broken.check_review(text).is_ok(), "it was so before");
    }

    #[test]
    fn the_lines_that_were_added_are_found_wherever_they_are() {
        assert_eq!(added_lines("", "a\nb\n"), ["a", "b"]);
        assert_eq!(added_lines("a\nc\n", "a\nb\nc\n"), ["b"]);
        assert_eq!(added_lines("a\na\n", "a\na\na\n"), ["a"]);
        assert_eq!(added_lines("a\n", "a\n"), [""; 0]);
        assert_eq!(added_lines("servers: []\n", "servers:\n- a\n"), ["servers:", "- a"]);
    }
}
