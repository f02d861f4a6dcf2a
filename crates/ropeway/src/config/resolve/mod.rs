//! From what is written about a server to what it means.

mod chat;
mod measure;
mod tools;
mod transport;

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

pub(super) use self::chat::resolve_chat;
use self::measure::{limits, reconnect, timeouts};
pub(super) use self::tools::Globs;
use super::credential::Hidden;
use super::node::{Node, Place, Step, path_text};
use super::problem::{ConfigProblem, MAX_PROBLEMS, in_backticks, nearest};
use super::raw::{RawEra, RawPrompts, RawServer, RawStart, Short};
use super::reference::{Broken, Part, parts};
use super::secrets::{Sources, is_absent, is_ordinary};
use super::{EraChoice, PromptSettings, ServerConfig, ServerEntry, ServerSettings, StartMode, file};

/// How long an alias may be.
pub(super) const ALIAS: usize = 64;

/// What the meaning of a server depends on, besides what is written.
pub(super) struct Surroundings<'a> {
    pub(super) sources: &'a Sources,
    /// The folder that relative paths start from.
    pub(super) folder: &'a Path,
    /// The folder that `${workspaceFolder}` stands for.
    pub(super) workspace: &'a Path,
    pub(super) home: Option<PathBuf>,
    /// The file belongs to another client, and follows its rules.
    pub(super) is_foreign: bool,
    pub(super) globs: Globs,
}

/// A server, and what is odd about it.
pub(super) struct Resolved {
    pub(super) entry: ServerEntry,
    pub(super) warnings: Vec<String>,
    pub(super) files: Vec<PathBuf>,
}

/// The meaning of one server. `base` is its path in the file, and `node` what is written there.
pub(super) fn resolve(
    raw: &RawServer,
    node: &Node,
    base: &str,
    around: &Surroundings<'_>,
) -> Result<Resolved, Vec<ConfigProblem>> {
    let mut resolver = Resolver::new(around, node, base);
    resolver.check_alias(&raw.alias);
    let transport = resolver.transport(raw);
    let tools = resolver.tools(raw);
    let resources = resolver.resources(raw);
    let (Some(transport), true) = (transport, resolver.problems.is_empty()) else { return Err(resolver.problems) };

    let enabled = raw.enabled.unwrap_or(true);
    let mut warnings = resolver.warnings;
    let settings = if resolver.missing.names.is_empty() {
        let mut config = ServerConfig::new(raw.alias.as_str(), transport);
        config.era = match raw.era {
            None | Some(RawEra::Auto) => EraChoice::Auto,
            Some(RawEra::Legacy) => EraChoice::Legacy,
            Some(RawEra::Modern) => EraChoice::Modern,
        };
        config.timeouts = timeouts(&raw.timeouts.unwrap_or_default());
        config.limits = limits(&raw.limits.unwrap_or_default());
        config.reconnect = reconnect(raw.reconnect.as_ref());
        config.mask = resolver.hidden.into_mask();
        ServerSettings::Known(Box::new(config))
    } else {
        ServerSettings::Missing { secrets: resolver.missing.names }
    };
    let mut entry = ServerEntry::with_settings(raw.alias.as_str(), settings);
    entry.enabled = enabled;
    if !around.sources.unread {
        warnings.extend(entry.warning());
    }
    entry.required = raw.required.unwrap_or(false);
    entry.start = match raw.start {
        None | Some(RawStart::Eager) => StartMode::Eager,
        Some(RawStart::Lazy) => StartMode::Lazy,
    };
    if let Some(prefix) = &raw.prefix {
        entry.prefix.clone_from(prefix);
    }
    entry.description_prefix.clone_from(&raw.description_prefix);
    entry.tools = tools;
    entry.resources = resources;
    entry.prompts = PromptSettings {
        tools: match raw.prompts {
            None => false,
            Some(Short::Short(tools)) => tools,
            Some(Short::Full(RawPrompts { tools })) => tools.unwrap_or(false),
        },
    };
    entry.instructions = raw.instructions.unwrap_or(false);
    entry.trust_hints = raw.trust_hints.unwrap_or(false);
    Ok(Resolved { entry, warnings, files: resolver.files })
}

/// The names of secrets that no source has, each once, in the order of the file.
#[derive(Default)]
struct Missing {
    names: Vec<String>,
    known: HashSet<String>,
}

struct Resolver<'a> {
    around: &'a Surroundings<'a>,
    node: &'a Node,
    base: &'a str,
    problems: Vec<ConfigProblem>,
    warnings: Vec<String>,
    missing: Missing,
    hidden: Hidden,
    /// The files that were looked into.
    files: Vec<PathBuf>,
}

impl<'a> Resolver<'a> {
    fn new(around: &'a Surroundings<'a>, node: &'a Node, base: &'a str) -> Self {
        Self {
            around,
            node,
            base,
            problems: Vec::new(),
            warnings: Vec::new(),
            missing: Missing::default(),
            hidden: Hidden::default(),
            files: Vec::new(),
        }
    }

    fn problem(&mut self, steps: &[Step], found: impl Into<String>, expected: impl Into<String>) {
        self.report(steps, found, expected, None::<String>);
    }

    fn report(
        &mut self,
        steps: &[Step],
        found: impl Into<String>,
        expected: impl Into<String>,
        suggestion: Option<impl Into<String>>,
    ) {
        if self.is_full() {
            return;
        }
        let place = self.node.place_of(steps);
        let problem = ConfigProblem::at(place, path_text(self.base, steps), found, expected);
        self.problems.push(problem.suggest(suggestion));
    }

    /// Returns true once there are more problems than are shown.
    fn is_full(&self) -> bool {
        self.problems.len() > MAX_PROBLEMS
    }

    fn check_alias(&mut self, alias: &str) {
        let at = [key("alias")];
        let legal = legal_alias(alias);
        if alias.is_empty() {
            self.problem(&at, "an empty alias", "a name for the server");
        } else if legal != alias {
            let expected = format!("letters, digits, `_`, `.` and `-`, at most {ALIAS} of them");
            self.report(&at, in_backticks(alias), expected, Some(legal));
        }
    }

    /// A text with its references followed.
    fn text(&mut self, at: &[Step], text: &str) -> String {
        let parts = match parts(text) {
            Ok(parts) => parts,
            Err(Broken::Unclosed) => {
                self.problem(at, "`${` without a `}`", "`${NAME}`, or `$$` for a dollar");
                return String::new();
            }
            // Other clients know more kinds of references than we do.
            Err(Broken::Name(name)) if self.around.is_foreign => {
                self.miss(&cut(&name, &["=", ":-"]));
                return String::new();
            }
            Err(Broken::Name(name)) => {
                let found = in_backticks(&format!("${{{}}}", cut(&name, &[":", "=", "-"])));
                let expected = "`${NAME}` or `${NAME:-default}`, or `$$` for a dollar";
                self.report(at, found, expected, suggest_name(&name));
                return String::new();
            }
        };
        let mut value = String::new();
        for part in parts {
            match part {
                Part::Literal(literal) => value.push_str(literal),
                Part::Name { name, default, .. } => self.name(at, name, default, &mut value),
                Part::Workspace => value.push_str(&self.around.workspace.to_string_lossy()),
                Part::WorkspaceName => {
                    value.push_str(&self.around.workspace.file_name().unwrap_or_default().to_string_lossy());
                }
                Part::Home => match &self.around.home {
                    Some(home) => value.push_str(&home.to_string_lossy()),
                    None => self.miss("HOME"),
                },
                Part::Separator => value.push(std::path::MAIN_SEPARATOR),
                Part::File(path) => self.file(at, path, &mut value),
            }
        }
        value
    }

    fn name(&mut self, at: &[Step], name: &str, default: Option<&str>, value: &mut String) {
        let known = match self.around.sources.get(name) {
            Ok(known) => known.filter(|known| default.is_none() || !known.expose().is_empty()),
            Err(error) => {
                let found = format!("{}: {error}", in_backticks(&format!("${{{name}}}")));
                return self.problem(at, found, "a value or `None`");
            }
        };
        match (known, default) {
            (Some(known), _) => {
                if !is_ordinary(name) {
                    self.hidden.add(known.expose());
                }
                value.push_str(known.expose());
            }
            (None, Some(default)) => value.push_str(default),
            (None, None) => self.miss(name),
        }
    }

    fn file(&mut self, at: &[Step], path: &str, value: &mut String) {
        let found = in_backticks(&format!("${{file:{path}}}"));
        let file = self.path(path);
        self.files.push(file.clone());
        if self.around.sources.unread {
            self.miss(&format!("file:{path}"));
            return;
        }
        match file::read(&file) {
            Ok(text) => {
                self.hidden.add(text.trim_end());
                value.push_str(text.trim_end());
            }
            // A secret that is not there yet, or not for everybody.
            Err(error) if is_absent(&error) || error.kind() == ErrorKind::PermissionDenied => {
                self.miss(&format!("file:{path}"));
            }
            Err(error) if self.around.is_foreign => {
                self.warnings.push(format!("{found} could not be read: {error}"));
                self.miss(&format!("file:{path}"));
            }
            Err(error) => {
                let found = format!("{found}, which could not be read: {error}");
                self.problem(at, found, "a file with a secret in it");
            }
        }
    }

    fn miss(&mut self, name: &str) {
        if self.missing.known.insert(name.to_owned()) {
            self.missing.names.push(name.to_owned());
        }
    }

    fn path(&self, written: &str) -> PathBuf {
        path(written, self.around.folder, self.around.home.as_deref())
    }
}

/// A path as it is written in a file: relative to that file, with `~` for the home folder.
pub(super) fn path(written: &str, folder: &Path, home: Option<&Path>) -> PathBuf {
    match (written.strip_prefix('~'), home) {
        (Some(""), Some(home)) => home.to_owned(),
        (Some(rest), Some(home)) if rest.starts_with(['/', '\\']) => home.join(&rest[1..]),
        _ => folder.join(written),
    }
}

/// The alias with only the characters that it may have.
pub(super) fn legal_alias(alias: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') { c } else { '-' };
    alias.chars().take(ALIAS).map(legal).collect()
}

fn key(name: &str) -> Step {
    Step::Key(name.to_owned())
}

/// The reference that was probably meant.
fn suggest_name(written: &str) -> Option<String> {
    let (name, default) = written.split_once([':', '=', '-']).unwrap_or((written, ""));
    let name: String = name.trim().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    is_name.then(|| if default.is_empty() { format!("${{{name}}}") } else { format!("${{{name}:-…}}") })
}

/// A reference as it is shown, up to where its default begins: what stands in for a missing secret may be one.
fn cut(written: &str, defaults: &[&str]) -> String {
    match defaults.iter().filter_map(|default| written.find(default)).min() {
        Some(end) => format!("{}…", &written[..end]),
        None => written.to_owned(),
    }
}

/// The problem of a list that names a server that is not there.
pub(super) fn unknown_server(place: Place, path: String, name: &str, candidates: &[&str]) -> ConfigProblem {
    ConfigProblem::at(place, path, in_backticks(name), "the alias of a server in this file")
        .suggest(nearest(name, candidates.iter().copied()))
}
