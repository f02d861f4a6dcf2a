//! Imports servers from other clients' files and from manifests.

use std::path::{Path, PathBuf};

use super::document::Document;
use super::foreign::translate;
use super::format::parse_tree;
use super::node::Node;
use super::problem::{ConfigError, ConfigProblem, in_backticks};
use super::raw::{RawAuth, RawServer, RawText};
use super::reference::{has_workspace, rewrite, workspace};
use super::secrets::Secrets;
use super::{decode, manifest};
use crate::settings::Config;

/// The servers in another client's file.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ForeignConfig {
    /// The servers, in file order.
    pub servers: Vec<ForeignServer>,
    /// Warnings about servers and settings that cannot be imported.
    pub warnings: Vec<String>,
    /// The servers that are skipped because they refer to `${workspaceFolder}` and no directory was given.
    pub without_workspace: Vec<String>,
}

/// A server in another client's file.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ForeignServer {
    /// The server with native keys. References to secrets are kept.
    pub server: RawServer,
    /// Comments for the user, such as descriptions for required variables.
    pub notes: Vec<String>,
    /// The project directory that the server belongs to, in a file with servers for several projects, such as Claude Code's.
    pub project: Option<PathBuf>,
}

/// Reads the servers from another client's file, for writing them to a native file.
///
/// Paths become absolute. Invalid servers are skipped with a warning. A manifest's settings are copied to each server.
///
/// `${workspaceFolder}` is replaced by the file's directory, or by the project directory for a file such as `.vscode/mcp.json`.
/// [`read_foreign_in`] takes the directory as an argument.
///
/// # Errors
///
/// Fails if the text cannot be parsed or contains no servers, and for a manifest with any problem.
pub fn read_foreign(text: &str, origin: &Path) -> Result<ForeignConfig, ConfigError> {
    read_foreign_in(text, origin, Some(workspace(origin)))
}

/// Reads the servers from another client's file, with this directory for `${workspaceFolder}`.
///
/// Without a directory, as for a client's user-level file, servers that refer to it are skipped with a warning and listed in
/// [`ForeignConfig::without_workspace`].
///
/// # Errors
///
/// Fails like [`read_foreign`].
pub fn read_foreign_in(text: &str, origin: &Path, folder: Option<&Path>) -> Result<ForeignConfig, ConfigError> {
    let tree = parse_tree(text, origin)?;
    if !manifest::collections(&tree).is_empty() {
        Config::parse(text, origin, &Secrets::unread())?;
        return Ok(read_manifest(Document::parse(text, origin)?, origin, folder));
    }
    let Some(translation) = translate(&tree) else {
        let problem = ConfigProblem::new(tree.position, "", "no servers of another client found, such as `mcpServers`");
        return Err(ConfigError::new(origin, vec![problem]));
    };
    if !translation.problems.is_empty() {
        return Err(ConfigError::new(origin, translation.problems));
    }
    let mut foreign = ForeignConfig { warnings: translation.warnings, ..ForeignConfig::default() };
    for server in translation.servers {
        if let Some(key) = &server.unsupported {
            let alias = server.node.get("alias").and_then(Node::as_str).unwrap_or_default();
            foreign.warnings.push(format!("server {} is skipped: {key}", in_backticks(alias)));
            continue;
        }
        match decode::decode::<RawServer>(&server.node, &server.path) {
            Ok(raw) => {
                let project = server.project.map(PathBuf::from);
                foreign.push(portable(raw, origin, folder, &translation.inputs), project);
            }
            Err(problem) => {
                let (line, column) = (problem.line, problem.column);
                foreign.warnings.push(format!("a server is skipped: {line}:{column}: {problem}"));
            }
        }
    }
    Ok(foreign)
}

/// Returns `true` if the text is a manifest: a file with servers under `config.servers` or `services.mcp`.
pub fn is_manifest(text: &str, origin: &Path) -> bool {
    parse_tree(text, origin).is_ok_and(|tree| !manifest::collections(&tree).is_empty())
}

/// Returns a valid manifest's servers, each with the file's settings.
fn read_manifest(document: Document, origin: &Path, folder: Option<&Path>) -> ForeignConfig {
    let mut foreign = ForeignConfig { warnings: document.warnings.clone(), ..ForeignConfig::default() };
    for entry in &document.servers {
        let Some(mut server) = document.decode(entry).0 else { continue };
        if !document.enables(&server.alias) {
            server.enabled = Some(false);
        }
        match (document.allowlist(&server.alias), &server.tool_allowlist) {
            (Some(list), None) => server.tool_allowlist = Some(list.to_vec()),
            (Some(list), Some(own)) if own != list => {
                let alias = in_backticks(&server.alias);
                foreign.warnings.push(format!(
                    "server {alias} is skipped: its `tool_allowlist` cannot be combined with the one in `config`"
                ));
                continue;
            }
            _ => {}
        }
        foreign.push(portable(server, origin, folder, &[]), None);
    }
    let others = [
        ("collisions", document.collisions.is_some()),
        ("lock", document.lock.is_some()),
        ("secrets_file", document.secrets_file.is_some()),
        ("chat", document.chat.is_some()),
        ("gateway", document.gateway.is_some()),
    ];
    for (key, _) in others.into_iter().filter(|(_, is_set)| *is_set) {
        foreign.warnings.push(format!("`config.{key}` is not imported; add `{key}` to the new file"));
    }
    foreign
}

impl ForeignConfig {
    /// Adds a server, or a warning that it is skipped.
    fn push(&mut self, portable: Portable, project: Option<PathBuf>) {
        match portable {
            Portable::Server(server) => self.servers.push(ForeignServer { project, ..*server }),
            Portable::NeedsWorkspace(alias) => {
                self.warnings.push(format!(
                    "server {} is skipped: `${{workspaceFolder}}` is unknown outside of a project",
                    in_backticks(&alias)
                ));
                self.without_workspace.push(alias);
            }
        }
    }
}

/// A server that can be written to any file.
enum Portable {
    Server(Box<ForeignServer>),
    /// The server with this alias refers to an unknown workspace directory.
    NeedsWorkspace(String),
}

/// Makes a server independent of its file's location.
fn portable(mut server: RawServer, origin: &Path, workspace: Option<&Path>, inputs: &[(String, String)]) -> Portable {
    let folder = absolute(origin.parent().unwrap_or(Path::new("")));
    let known = workspace.map(absolute);
    let mut needs_workspace = false;
    let mut notes = Vec::new();
    let mut move_text = |text: &mut String| {
        needs_workspace |= known.is_none() && has_workspace(text);
        *text = rewrite(text, known.as_deref().unwrap_or(Path::new("")), |input| {
            let name = input.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
            let what = inputs.iter().find(|(id, _)| id == input).map_or("", |(_, what)| what.as_str());
            let note = if what.is_empty() { format!("needs ${{{name}}}") } else { format!("${{{name}}}: {what}") };
            if !notes.contains(&note) {
                notes.push(note);
            }
            name
        });
    };
    server.command.iter_mut().for_each(&mut move_text);
    let values = server.env.0.iter_mut().chain(&mut server.headers.0).map(|(_, value)| value);
    for RawText(text) in server.args.iter_mut().chain(&mut server.url).chain(values) {
        move_text(text);
    }
    server.auth.iter_mut().flat_map(RawAuth::texts_mut).for_each(&mut move_text);
    let auth_paths = server.auth.iter_mut().flat_map(RawAuth::paths_mut);
    for path in server.cwd.iter_mut().chain(&mut server.env_file).chain(auth_paths) {
        move_text(path);
        if !path.starts_with('~') && !path.starts_with("${") {
            *path = folder.join(&path).to_string_lossy().into_owned();
        }
    }
    if needs_workspace {
        return Portable::NeedsWorkspace(server.alias);
    }
    Portable::Server(Box::new(ForeignServer { server, notes, project: None }))
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(if path.as_os_str().is_empty() { Path::new(".") } else { path })
        .unwrap_or_else(|_| path.to_owned())
}
