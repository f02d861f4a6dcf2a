//! The resolver: replaces references in strings, and collects problems and missing secrets.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::file::alias::{MAX_ALIAS, sanitize_alias};
use crate::file::glob::GlobChecker;
use crate::file::node::{Node, PathStep, format_path};
use crate::file::problem::{ConfigProblem, MAX_PROBLEMS, in_backticks};
use crate::file::reference::{Part, ReferenceError, parts};
use crate::file::regular_file;
use crate::file::secret_values::SecretValues;
use crate::file::secrets::SecretSources;
use crate::file::variables::{is_not_found, is_public_variable};

/// The environment that references and relative paths are resolved in.
pub(crate) struct ResolveContext<'a> {
    pub(crate) sources: &'a SecretSources,
    /// Base directory for relative paths.
    pub(crate) folder: &'a Path,
    /// The working directory for commands, absolute. `None` if the file is only a text.
    pub(crate) base_dir: Option<PathBuf>,
    /// Replaces `${workspaceFolder}`.
    pub(crate) workspace: &'a Path,
    pub(crate) home: Option<PathBuf>,
    /// The file belongs to another client.
    pub(crate) is_foreign: bool,
    pub(crate) globs: GlobChecker,
}

/// Missing secret names without duplicates, in file order.
#[derive(Default)]
pub(super) struct MissingSecrets {
    pub(super) names: Vec<String>,
    known: HashSet<String>,
}

pub(super) struct Resolver<'a> {
    pub(super) context: &'a ResolveContext<'a>,
    pub(super) node: &'a Node,
    base: &'a str,
    pub(super) problems: Vec<ConfigProblem>,
    pub(super) warnings: Vec<String>,
    pub(super) missing: MissingSecrets,
    pub(super) secrets: SecretValues,
    /// The files that were read.
    pub(super) files: Vec<PathBuf>,
}

impl<'a> Resolver<'a> {
    pub(super) fn new(context: &'a ResolveContext<'a>, node: &'a Node, base: &'a str) -> Self {
        Self {
            context,
            node,
            base,
            problems: Vec::new(),
            warnings: Vec::new(),
            missing: MissingSecrets::default(),
            secrets: SecretValues::default(),
            files: Vec::new(),
        }
    }

    /// Reports a problem.
    pub(super) fn problem(&mut self, steps: &[PathStep], message: impl Into<String>) {
        self.problem_with(steps, message, None::<String>);
    }

    /// Reports a problem, and the valid value most similar to the invalid one.
    pub(super) fn problem_with(
        &mut self,
        steps: &[PathStep],
        message: impl Into<String>,
        suggestion: Option<impl Into<String>>,
    ) {
        let problem = ConfigProblem::new(self.node.position_of(steps), format_path(self.base, steps), message);
        self.report(problem, suggestion);
    }

    /// Reports a value other than the expected one.
    pub(super) fn mismatch(
        &mut self,
        steps: &[PathStep],
        found: impl Into<String>,
        expected: impl Into<String>,
        suggestion: Option<impl Into<String>>,
    ) {
        let (position, path) = (self.node.position_of(steps), format_path(self.base, steps));
        self.report(ConfigProblem::mismatch(position, path, found, expected), suggestion);
    }

    fn report(&mut self, problem: ConfigProblem, suggestion: Option<impl Into<String>>) {
        if !self.is_full() {
            self.problems.push(problem.suggest(suggestion));
        }
    }

    /// Returns `true` if there are more problems than are reported.
    pub(super) fn is_full(&self) -> bool {
        self.problems.len() > MAX_PROBLEMS
    }

    pub(super) fn check_alias(&mut self, alias: &str) {
        let at = [key("alias")];
        let legal = sanitize_alias(alias);
        if alias.is_empty() {
            self.problem(&at, "alias is empty");
        } else if legal != alias {
            let expected = format!("up to {MAX_ALIAS} letters, digits, `_`, `.` and `-`");
            self.mismatch(&at, in_backticks(alias), expected, Some(legal));
        }
    }

    /// Replaces the references in a string.
    pub(super) fn text(&mut self, at: &[PathStep], text: &str) -> String {
        let parts = match parts(text) {
            Ok(parts) => parts,
            Err(ReferenceError::Unclosed) => {
                self.problem(at, "missing `}` after `${` (write `$$` for a dollar sign)");
                return String::new();
            }
            // Other clients support further reference kinds.
            Err(ReferenceError::InvalidName(name)) if self.context.is_foreign => {
                self.add_missing(&without_default(&name, &["=", ":-"]));
                return String::new();
            }
            Err(ReferenceError::InvalidName(name)) => {
                let found = in_backticks(&format!("${{{}}}", without_default(&name, &[":", "=", "-"])));
                let expected = "`${NAME}`, `${NAME:-default}`, or `$$` for a dollar sign";
                self.mismatch(at, found, expected, suggest_name(&name));
                return String::new();
            }
        };
        let mut value = String::new();
        for part in parts {
            match part {
                Part::Literal(literal) => value.push_str(literal),
                Part::Name { name, default, .. } => self.name(at, name, default, &mut value),
                Part::Workspace => value.push_str(&self.context.workspace.to_string_lossy()),
                Part::WorkspaceName => {
                    value.push_str(&self.context.workspace.file_name().unwrap_or_default().to_string_lossy());
                }
                Part::Home => match &self.context.home {
                    Some(home) => value.push_str(&home.to_string_lossy()),
                    None => self.add_missing("HOME"),
                },
                Part::Separator => value.push(std::path::MAIN_SEPARATOR),
                Part::File(path) => self.file(at, path, &mut value),
            }
        }
        value
    }

    fn name(&mut self, at: &[PathStep], name: &str, default: Option<&str>, value: &mut String) {
        let known = match self.context.sources.get(name) {
            Ok(known) => known.filter(|known| default.is_none() || !known.expose().is_empty()),
            Err(error) => {
                let name = in_backticks(&format!("${{{name}}}"));
                return self.problem(at, format!("could not resolve {name}: {error}"));
            }
        };
        match (known, default) {
            (Some(known), _) => {
                if !is_public_variable(name) {
                    self.secrets.add(known.expose());
                }
                value.push_str(known.expose());
            }
            (None, Some(default)) => value.push_str(default),
            (None, None) => self.add_missing(name),
        }
    }

    fn file(&mut self, at: &[PathStep], path: &str, value: &mut String) {
        let reference = in_backticks(&format!("${{file:{path}}}"));
        let file = self.path(path);
        self.files.push(file.clone());
        if self.context.sources.unread {
            self.add_missing(&format!("file:{path}"));
            return;
        }
        match regular_file::read(&file) {
            Ok(text) => {
                self.secrets.add(text.trim_end());
                value.push_str(text.trim_end());
            }
            // The secret may not exist yet, or not for this user.
            Err(error) if is_not_found(&error) || error.kind() == ErrorKind::PermissionDenied => {
                self.add_missing(&format!("file:{path}"));
            }
            Err(error) if self.context.is_foreign => {
                self.warnings.push(format!("could not read {reference}: {error}"));
                self.add_missing(&format!("file:{path}"));
            }
            Err(error) => self.problem(at, format!("could not read {reference}: {error}")),
        }
    }

    fn add_missing(&mut self, name: &str) {
        if self.missing.known.insert(name.to_owned()) {
            self.missing.names.push(name.to_owned());
        }
    }

    pub(super) fn path(&self, written: &str) -> PathBuf {
        expand_path(written, self.context.folder, self.context.home.as_deref())
    }
}

/// Expands a path in a file: relative to the file's directory, with `~` for the home directory.
pub(crate) fn expand_path(written: &str, folder: &Path, home: Option<&Path>) -> PathBuf {
    match (written.strip_prefix('~'), home) {
        (Some(""), Some(home)) => home.to_owned(),
        (Some(rest), Some(home)) if rest.starts_with(['/', '\\']) => home.join(&rest[1..]),
        _ => folder.join(written),
    }
}

pub(super) fn key(name: &str) -> PathStep {
    PathStep::Key(name.to_owned())
}

/// Returns a valid reference similar to an invalid one.
fn suggest_name(written: &str) -> Option<String> {
    let (name, default) = written.split_once([':', '=', '-']).unwrap_or((written, ""));
    let name: String = name.trim().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    is_name.then(|| if default.is_empty() { format!("${{{name}}}") } else { format!("${{{name}:-…}}") })
}

/// Cuts a reference where its default begins, which may be a secret.
fn without_default(written: &str, defaults: &[&str]) -> String {
    match defaults.iter().filter_map(|default| written.find(default)).min() {
        Some(end) => format!("{}…", &written[..end]),
        None => written.to_owned(),
    }
}
