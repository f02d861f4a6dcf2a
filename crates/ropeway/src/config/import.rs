//! The servers of another client's file, or of a manifest, to be written down as ours.

use std::path::{Path, PathBuf};

use super::foreign::translate;
use super::node::Node;
use super::problem::{ConfigError, ConfigProblem, in_backticks};
use super::raw::{RawAuth, RawServer, Text};
use super::read::{Document, parse_tree};
use super::reference::{has_workspace, rewrite, workspace};
use super::{Config, Secrets, decode, manifest};

/// The servers in a file of another client.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ForeignConfig {
    /// The servers, in the order of the file.
    pub servers: Vec<ForeignServer>,
    /// What could not be taken over.
    pub warnings: Vec<String>,
    /// The servers that are left out because they refer to `${workspaceFolder}` and no folder was given.
    pub without_workspace: Vec<String>,
}

/// A server in a file of another client.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ForeignServer {
    /// The server as we would write it; secrets stay references.
    pub server: RawServer,
    /// What a person should know about it, one line each.
    pub notes: Vec<String>,
}

/// Reads the servers of another client, so that they can be written down as ours. Paths become absolute, and what is
/// broken is left out with a warning.
///
/// Of a manifest, the settings of the file as a whole become settings of its servers, and a file with a problem is an error.
///
/// `${workspaceFolder}` stands for the folder of the file, or for the project of a file such as `.vscode/mcp.json`.
/// [`read_foreign_in`] takes the folder from the caller.
pub fn read_foreign(text: &str, origin: &Path) -> Result<ForeignConfig, ConfigError> {
    read_foreign_in(text, origin, Some(workspace(origin)))
}

/// The same with this folder for `${workspaceFolder}`. Without one, servers that refer to it are left out with a warning and listed in
/// [`ForeignConfig::without_workspace`]: the user-level file of a client belongs to no project.
pub fn read_foreign_in(text: &str, origin: &Path, folder: Option<&Path>) -> Result<ForeignConfig, ConfigError> {
    let tree = parse_tree(text, origin)?;
    if !manifest::collections(&tree).is_empty() {
        Config::parse(text, origin, &Secrets::unread())?;
        return Ok(read_manifest(Document::parse(text, origin)?, origin, folder));
    }
    let Some(translation) = translate(&tree) else {
        let problem = ConfigProblem::at(tree.place, "", "no servers of another client", "`mcpServers` or the like");
        return Err(ConfigError::new(origin, vec![problem]));
    };
    if !translation.problems.is_empty() {
        return Err(ConfigError::new(origin, translation.problems));
    }
    let mut foreign = ForeignConfig { warnings: translation.warnings, ..ForeignConfig::default() };
    for written in translation.servers {
        if let Some(refusal) = &written.refusal {
            let alias = written.node.get("alias").and_then(Node::as_text).unwrap_or_default();
            foreign.warnings.push(format!("server {} is left out: {refusal}", in_backticks(alias)));
            continue;
        }
        match decode::decode::<RawServer>(&written.node, &written.path) {
            Ok(server) => foreign.push(portable(server, origin, folder, &translation.inputs)),
            Err(problem) => {
                let (line, column) = (problem.line, problem.column);
                foreign.warnings.push(format!("a server is left out: {line}:{column}: {problem}"));
            }
        }
    }
    Ok(foreign)
}

/// Returns true for a manifest: a file with its servers under `config.servers` or `services.mcp`.
pub fn is_manifest(text: &str, origin: &Path) -> bool {
    parse_tree(text, origin).is_ok_and(|tree| !manifest::collections(&tree).is_empty())
}

/// The servers of a manifest without problems, each with what the file says of all.
fn read_manifest(document: Document, origin: &Path, folder: Option<&Path>) -> ForeignConfig {
    let mut foreign = ForeignConfig { warnings: document.warnings.clone(), ..ForeignConfig::default() };
    for written in &document.servers {
        let Some(mut server) = document.decode(written).0 else { continue };
        if !document.enables(&server.alias) {
            server.enabled = Some(false);
        }
        match (document.allowlist(&server.alias), &server.tool_allowlist) {
            (Some(list), None) => server.tool_allowlist = Some(list.to_vec()),
            (Some(list), Some(own)) if own != list => {
                let alias = in_backticks(&server.alias);
                foreign.warnings.push(format!(
                    "server {alias} is left out: it has a `tool_allowlist` of its own and one in `config`, which one entry cannot say"
                ));
                continue;
            }
            _ => {}
        }
        foreign.push(portable(server, origin, folder, &[]));
    }
    let others = [
        ("collisions", document.collisions.is_some()),
        ("lock", document.lock.is_some()),
        ("secrets_file", document.secrets_file.is_some()),
        ("chat", document.chat.is_some()),
    ];
    for (key, _) in others.into_iter().filter(|(_, is_set)| *is_set) {
        foreign.warnings.push(format!("`config.{key}` is left out: write it into the new file by hand"));
    }
    foreign
}

impl ForeignConfig {
    /// Adds a server, or why it is left out.
    fn push(&mut self, portable: Portable) {
        match portable {
            Portable::Server(server) => self.servers.push(*server),
            Portable::NeedsWorkspace(alias) => {
                self.warnings.push(format!(
                    "server {} is left out: it refers to `${{workspaceFolder}}`, and the file belongs to no project",
                    in_backticks(&alias)
                ));
                self.without_workspace.push(alias);
            }
        }
    }
}

/// A server on its way into another file.
enum Portable {
    Server(Box<ForeignServer>),
    /// The server of this name refers to a folder that is not known.
    NeedsWorkspace(String),
}

/// A server that means the same in any file.
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
            let note = if what.is_empty() { format!("${{{name}}}") } else { format!("${{{name}}}: {what}") };
            if !notes.contains(&note) {
                notes.push(note);
            }
            name
        });
    };
    server.command.iter_mut().for_each(&mut move_text);
    let values = server.env.0.iter_mut().chain(&mut server.headers.0).map(|(_, value)| value);
    for Text(text) in server.args.iter_mut().chain(&mut server.url).chain(values) {
        move_text(text);
    }
    match &mut server.auth {
        Some(RawAuth::Bearer(Text(token))) => move_text(token),
        Some(RawAuth::Basic(basic)) => {
            [&mut basic.user, &mut basic.password].into_iter().for_each(|text| move_text(&mut text.0))
        }
        None => {}
    }
    for path in server.cwd.iter_mut().chain(&mut server.env_file) {
        move_text(path);
        if !path.starts_with('~') && !path.starts_with("${") {
            *path = folder.join(&path).to_string_lossy().into_owned();
        }
    }
    if needs_workspace {
        return Portable::NeedsWorkspace(server.alias);
    }
    Portable::Server(Box::new(ForeignServer { server, notes }))
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(if path.as_os_str().is_empty() { Path::new(".") } else { path })
        .unwrap_or_else(|_| path.to_owned())
}
