//! Other clients: where they keep the servers that they know.

mod known;
mod merge;

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use ropeway::config::{ConfigError, ForeignConfig, is_manifest, read_foreign_in, read_regular, read_text};

use crate::failure;

pub(crate) use self::known::KnownSecrets;
pub(crate) use self::merge::{Merged, MergedServer, Ours, merge};

/// Where the clients keep the servers of a project, from its folder.
const PROJECT_FILES: [&str; 5] =
    [".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json", ".codex/config.toml", ".zed/settings.json"];

/// The largest file that is looked through, in bytes. Some clients keep much else in the same file.
const LARGEST: usize = 64 << 20;

/// A client whose files are understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Client {
    /// Claude Desktop
    ClaudeDesktop,
    /// Claude Code
    ClaudeCode,
    /// Cursor
    Cursor,
    /// Visual Studio Code, also Insiders
    #[value(alias = "code")]
    Vscode,
    /// Windsurf
    Windsurf,
    /// Codex
    Codex,
    /// Zed
    Zed,
}

impl Client {
    /// What people call it.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::ClaudeDesktop => "Claude Desktop",
            Self::ClaudeCode => "Claude Code",
            Self::Cursor => "Cursor",
            Self::Vscode => "VS Code",
            Self::Windsurf => "Windsurf",
            Self::Codex => "Codex",
            Self::Zed => "Zed",
        }
    }

    /// A word for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::ClaudeDesktop => "claude-desktop",
            Self::ClaudeCode => "claude-code",
            Self::Cursor => "cursor",
            Self::Vscode => "vscode",
            Self::Windsurf => "windsurf",
            Self::Codex => "codex",
            Self::Zed => "zed",
        }
    }

    /// The keys without which a file of this client has no servers. Some keep much else in the same file.
    fn keys(self, path: &Path) -> &'static [&'static str] {
        match self {
            Self::ClaudeDesktop | Self::ClaudeCode | Self::Cursor | Self::Windsurf => &["mcpServers"],
            Self::Vscode if path.ends_with("settings.json") => &["\"mcp\"", "servers"],
            Self::Vscode => &["servers"],
            Self::Codex => &["mcp_servers"],
            Self::Zed => &["context_servers"],
        }
    }

    /// Where its files may be, the most personal first.
    fn places(self, around: &Around) -> Vec<PathBuf> {
        let config = |rest: &str| around.configs.iter().map(|folder| folder.join(rest)).collect::<Vec<_>>();
        let home = |rest: &str| around.home.iter().map(|home| home.join(rest)).collect::<Vec<_>>();
        let here = |rest: &str| vec![around.here.join(rest)];
        match self {
            Self::ClaudeDesktop => config("Claude/claude_desktop_config.json"),
            Self::ClaudeCode => [home(".claude.json"), here(".mcp.json")].concat(),
            Self::Cursor => [home(".cursor/mcp.json"), here(".cursor/mcp.json")].concat(),
            Self::Vscode => [
                config("Code/User/mcp.json"),
                config("Code/User/settings.json"),
                config("Code - Insiders/User/mcp.json"),
                config("Code - Insiders/User/settings.json"),
                here(".vscode/mcp.json"),
            ]
            .concat(),
            Self::Windsurf => home(".codeium/windsurf/mcp_config.json"),
            Self::Codex => {
                let own = around.codex.iter().map(|folder| folder.join("config.toml")).collect();
                [own, here(".codex/config.toml")].concat()
            }
            Self::Zed => {
                [config("zed/settings.json"), config("Zed/settings.json"), here(".zed/settings.json")].concat()
            }
        }
    }
}

/// The folders in which clients keep their files; a parameter, so that a test can have its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Around {
    home: Option<PathBuf>,
    /// Where programs of this user keep their settings, on each kind of machine.
    configs: Vec<PathBuf>,
    codex: Option<PathBuf>,
    here: PathBuf,
}

impl Around {
    /// Those of this process.
    pub(crate) fn of_process() -> Self {
        let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = variable("HOME").or_else(|| variable("USERPROFILE"));
        let below = |rest: &str| home.as_ref().map(|home| home.join(rest));
        let configs = [
            variable("XDG_CONFIG_HOME").or_else(|| below(".config")),
            below("Library/Application Support"),
            variable("APPDATA").or_else(|| below("AppData/Roaming")),
        ];
        let codex = variable("CODEX_HOME").or_else(|| below(".codex"));
        let here = std::env::current_dir().unwrap_or_default();
        Self { configs: configs.into_iter().flatten().collect(), home, codex, here }
    }
}

impl Around {
    /// The folder of the project that a file belongs to, if it is one that clients keep in a project.
    fn project_of(&self, file: &Path) -> Option<PathBuf> {
        let file = std::path::absolute(file).ok()?;
        let project = PROJECT_FILES.iter().find_map(|below| {
            let depth = Path::new(below).components().count();
            file.ends_with(below).then(|| file.ancestors().nth(depth)).flatten()
        })?;
        let is_home = |home: &PathBuf| std::fs::canonicalize(home).ok() == std::fs::canonicalize(project).ok();
        // In the home folder these are the user's own.
        (!self.home.as_ref().is_some_and(is_home)).then(|| project.to_owned())
    }

    /// Returns true for a file of the project in the current folder. In the home folder these are the user's own.
    fn is_project(&self, path: &Path) -> bool {
        let files = PROJECT_FILES.iter().any(|file| self.here.join(file) == path);
        files && self.home.as_deref() != Some(&self.here)
    }
}

/// A file with servers that somebody has.
#[derive(Debug)]
pub(crate) struct Found {
    /// Whose it is, if that is known.
    pub(crate) client: Option<Client>,
    pub(crate) path: PathBuf,
    /// What is in it, or why that is not known.
    pub(crate) servers: Result<ForeignConfig, String>,
    /// The text of a file that belongs to the project in the current folder and was not named: a stranger may have written it.
    pub(crate) project: Option<String>,
}

impl Found {
    /// Whose it is, in words.
    pub(crate) fn title(&self) -> &'static str {
        self.client.map_or("file", Client::title)
    }
}

/// Says which folder `${workspaceFolder}` stands for in a file that belongs to no project, for the servers of these names.
pub(crate) type Workspace<'a> = dyn FnMut(&Path, &[String]) -> Option<PathBuf> + 'a;

/// The files of these clients that are there and hold servers.
pub(crate) fn find(clients: &[Client], around: &Around, workspace: &mut Workspace<'_>) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    for client in clients {
        for path in client.places(around) {
            // On a disk that does not tell `zed` from `Zed`, one file has two names.
            let known = |other: &Found| std::fs::canonicalize(&other.path).ok() == std::fs::canonicalize(&path).ok();
            if !path.is_file() || found.iter().any(known) {
                continue;
            }
            let text = read_regular(&path, LARGEST);
            if text.as_ref().is_ok_and(|text| !client.keys(&path).iter().all(|key| text.contains(key))) {
                continue;
            }
            let servers =
                text.as_ref().map_err(ToString::to_string).and_then(|text| servers(text, &path, around, workspace));
            let project = text.ok().filter(|_| around.is_project(&path));
            found.push(Found { client: Some(*client), servers, path, project });
        }
    }
    found
}

/// A file that is named. It may be a pipe: the output of a program is named like this.
pub(crate) fn open(path: &Path, client: Option<Client>, around: &Around, workspace: &mut Workspace<'_>) -> Found {
    let text = read_text(path).map_err(|error| words(&error));
    let servers = text.and_then(|text| servers(&text, path, around, workspace));
    Found { client, path: path.to_owned(), servers, project: None }
}

fn servers(text: &str, path: &Path, around: &Around, workspace: &mut Workspace<'_>) -> Result<ForeignConfig, String> {
    let read = |folder: Option<&Path>| read_foreign_in(text, path, folder).map_err(|error| words(&error));
    // A manifest is a file of ours, and so is its folder.
    let own = if is_manifest(text, path) { path.parent().map(Path::to_owned) } else { around.project_of(path) };
    let foreign = read(own.as_deref())?;
    if foreign.without_workspace.is_empty() {
        return Ok(foreign);
    }
    match workspace(path, &foreign.without_workspace) {
        Some(folder) => read(Some(&folder)),
        None => Ok(foreign),
    }
}

/// The first problem of a file, and how many more there are.
fn words(error: &ConfigError) -> String {
    match &error.problems[..] {
        [] => failure::chain_text(error),
        [problem, more @ ..] => {
            let place = if problem.line > 0 { format!("{}:{}: ", problem.line, problem.column) } else { String::new() };
            let more = match more.len() {
                0 => String::new(),
                count if error.truncated => format!(", and more than {count} more"),
                count => format!(", and {count} more"),
            };
            format!("{place}{problem}{more}")
        }
    }
}
