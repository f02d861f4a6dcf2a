//! The `ropeway.yaml` that a command changes.

use std::path::{Path, PathBuf};

use ropeway::config::edit::EditError;
use ropeway::config::{Config, Secrets, read_foreign};

use crate::failure::Failure;
use crate::servers::{self, user_folder};
use crate::{file, places};

/// The file that is about to be changed, and what it says so far.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) path: PathBuf,
    before: Option<String>,
}

impl Target {
    /// The file that is named, the user's own, the one that is used, or a new one in this folder.
    pub(crate) fn find(named: Option<PathBuf>, global: bool) -> Result<Self, Failure> {
        let path = match (named, global) {
            (Some(path), _) => path,
            (None, true) => {
                let folder =
                    user_folder().ok_or_else(|| Failure::usage("there is no home folder: `HOME` is not set"))?;
                places::file_in(&folder)
            }
            (None, false) => servers::find().unwrap_or_else(|| places::file_in(Path::new(""))),
        };
        let is_foreign = path.extension().is_some_and(|end| matches!(end.to_str(), Some("json" | "jsonc" | "toml")));
        if is_foreign {
            let shown = path.display();
            return Err(Failure::usage(format!("`{shown}` belongs to another client, and is not changed"))
                .hint(format!("`ropeway import {shown} --to ropeway.yaml` takes its servers over")));
        }
        let before = file::read(&path)?;
        if before.as_deref().is_some_and(|before| read_foreign(before, &path).is_ok()) {
            let shown = path.display();
            return Err(Failure::usage(format!("`{shown}` is written as another client's, and is not changed"))
                .hint(format!("`ropeway import {shown} --to FILE.yaml` makes a file of ours from it")));
        }
        Ok(Self { before, path })
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

    /// Writes a text in the place of what was there.
    pub(crate) fn write(&self, text: &str) -> Result<(), Failure> {
        file::replace(&self.path, self.before.as_deref(), text, file::SHARED)
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
    fn the_lines_that_were_added_are_found_wherever_they_are() {
        assert_eq!(difference("", "a\nb\n"), ["a", "b"]);
        assert_eq!(difference("a\nc\n", "a\nb\nc\n"), ["b"]);
        assert_eq!(difference("a\na\n", "a\na\na\n"), ["a"]);
        assert_eq!(difference("a\n", "a\n"), [""; 0]);
        assert_eq!(difference("servers: []\n", "servers:\n- a\n"), ["servers:", "- a"]);
    }
}
