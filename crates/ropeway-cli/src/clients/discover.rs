//! Other MCP clients' configuration files.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use ropeway_config::{ConfigError, ForeignConfig, is_manifest, read_foreign_in, read_regular, read_text};

use crate::failure;

/// The clients' project files, relative to the project directory.
const PROJECT_FILES: [&str; 6] = [
    ".mcp.json",
    ".cursor/mcp.json",
    ".vscode/mcp.json",
    ".codex/config.toml",
    ".gemini/settings.json",
    ".zed/settings.json",
];

/// Maximum client file size in bytes. Some clients store much else in the same file.
const MAX_BYTES: usize = 64 << 20;

/// A supported client.
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
    /// Gemini CLI
    #[value(alias = "gemini-cli")]
    Gemini,
    /// Goose
    Goose,
    /// Zed
    Zed,
}

impl Client {
    /// Returns the display name.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::ClaudeDesktop => "Claude Desktop",
            Self::ClaudeCode => "Claude Code",
            Self::Cursor => "Cursor",
            Self::Vscode => "VS Code",
            Self::Windsurf => "Windsurf",
            Self::Codex => "Codex",
            Self::Gemini => "Gemini CLI",
            Self::Goose => "Goose",
            Self::Zed => "Zed",
        }
    }

    /// Returns the name as an identifier.
    pub(crate) fn word(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Returns strings that a file with servers must contain, to skip other files quickly.
    fn keys(self, path: &Path) -> &'static [&'static str] {
        match self {
            Self::ClaudeDesktop | Self::ClaudeCode | Self::Cursor | Self::Windsurf | Self::Gemini => &["mcpServers"],
            Self::Vscode if path.ends_with("settings.json") => &["\"mcp\"", "servers"],
            Self::Vscode => &["servers"],
            Self::Codex => &["mcp_servers"],
            Self::Goose => &["extensions"],
            Self::Zed => &["context_servers"],
        }
    }

    /// Returns its files' possible paths, user files first.
    pub(super) fn candidates(self, paths: &ClientPaths) -> Vec<PathBuf> {
        let config = |rest: &str| paths.configs.iter().map(|folder| folder.join(rest)).collect::<Vec<_>>();
        let home = |rest: &str| paths.home.iter().map(|home| home.join(rest)).collect::<Vec<_>>();
        let here = |rest: &str| vec![paths.here.join(rest)];
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
                let own = paths.codex.iter().map(|folder| folder.join("config.toml")).collect();
                [own, here(".codex/config.toml")].concat()
            }
            Self::Gemini => [home(".gemini/settings.json"), here(".gemini/settings.json")].concat(),
            // It uses this folder on macOS, too.
            Self::Goose => paths.configs.first().map(|folder| folder.join("goose/config.yaml")).into_iter().collect(),
            Self::Zed => {
                [config("zed/settings.json"), config("Zed/settings.json"), here(".zed/settings.json")].concat()
            }
        }
    }
}

/// The directories in which clients store their files. A parameter, so that tests can set their own.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientPaths {
    home: Option<PathBuf>,
    /// Each platform's configuration directories.
    configs: Vec<PathBuf>,
    codex: Option<PathBuf>,
    here: PathBuf,
}

impl ClientPaths {
    /// Returns the directories for this process.
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

impl ClientPaths {
    /// Returns a project file's project directory.
    fn project_of(&self, file: &Path) -> Option<PathBuf> {
        let file = std::path::absolute(file).ok()?;
        let project = PROJECT_FILES.iter().find_map(|below| {
            let depth = Path::new(below).components().count();
            file.ends_with(below).then(|| file.ancestors().nth(depth)).flatten()
        })?;
        let is_home = |home: &PathBuf| std::fs::canonicalize(home).ok() == std::fs::canonicalize(project).ok();
        // In the home directory, these are user files.
        (!self.home.as_ref().is_some_and(is_home)).then(|| project.to_owned())
    }

    /// Returns `true` for a project file in the current directory. In the home directory, these are user files.
    pub(super) fn is_project(&self, path: &Path) -> bool {
        let files = PROJECT_FILES.iter().any(|file| self.here.join(file) == path);
        files && self.home.as_deref() != Some(&self.here)
    }
}

/// A client's file that contains servers.
#[derive(Debug)]
pub(crate) struct ClientFile {
    /// The client, if known.
    pub(crate) client: Option<Client>,
    pub(crate) path: PathBuf,
    /// The servers, or why the file could not be read.
    pub(crate) servers: Result<ForeignConfig, String>,
    /// A discovered project file's text, which is untrusted.
    pub(crate) project: Option<String>,
    /// The directory that its servers run in, if the file belongs to one.
    pub(super) directory: Option<PathBuf>,
}

impl ClientFile {
    /// Returns the client's display name.
    pub(crate) fn title(&self) -> &'static str {
        self.client.map_or("file", Client::title)
    }
}

/// Resolves `${workspaceFolder}` for named servers in a file that belongs to no project.
pub(crate) type Workspace<'a> = dyn FnMut(&Path, &[String]) -> Option<PathBuf> + 'a;

/// Finds these clients' files that contain servers.
pub(crate) fn find(clients: &[Client], paths: &ClientPaths, workspace: &mut Workspace<'_>) -> Vec<ClientFile> {
    let mut found: Vec<ClientFile> = Vec::new();
    for client in clients {
        for path in client.candidates(paths) {
            // On a case-insensitive file system, `zed` and `Zed` are the same file.
            let known =
                |other: &ClientFile| std::fs::canonicalize(&other.path).ok() == std::fs::canonicalize(&path).ok();
            if !path.is_file() || found.iter().any(known) {
                continue;
            }
            let text = read_regular(&path, MAX_BYTES);
            if text.as_ref().is_ok_and(|text| !client.keys(&path).iter().all(|key| text.contains(key))) {
                continue;
            }
            let directory = text.as_ref().ok().and_then(|text| directory(text, &path, paths));
            let servers = text.as_ref().map_err(ToString::to_string);
            let servers = servers.and_then(|text| servers_in(directory.as_deref(), text, &path, workspace));
            let project = text.ok().filter(|_| paths.is_project(&path));
            found.push(ClientFile { client: Some(*client), servers, path, project, directory });
        }
    }
    found
}

/// Reads a named file, which may be a pipe.
pub(crate) fn open(
    path: &Path,
    client: Option<Client>,
    paths: &ClientPaths,
    workspace: &mut Workspace<'_>,
) -> ClientFile {
    let text = read_text(path).map_err(|error| first_problem(&error));
    let directory = text.as_ref().ok().and_then(|text| directory(text, path, paths));
    let servers = text.and_then(|text| servers_in(directory.as_deref(), &text, path, workspace));
    ClientFile { client, path: path.to_owned(), servers, project: None, directory }
}

/// Returns the absolute directory for a file's servers: its project, or a manifest's directory.
fn directory(text: &str, path: &Path, paths: &ClientPaths) -> Option<PathBuf> {
    if !is_manifest(text, path) {
        return paths.project_of(path);
    }
    std::path::absolute(path).ok()?.parent().map(Path::to_owned)
}

fn servers_in(
    directory: Option<&Path>,
    text: &str,
    path: &Path,
    workspace: &mut Workspace<'_>,
) -> Result<ForeignConfig, String> {
    let read = |folder: Option<&Path>| read_foreign_in(text, path, folder).map_err(|error| first_problem(&error));
    let foreign = read(directory)?;
    if foreign.without_workspace.is_empty() {
        return Ok(foreign);
    }
    match workspace(path, &foreign.without_workspace) {
        Some(folder) => read(Some(&folder)),
        None => Ok(foreign),
    }
}

/// Returns a file's first problem and the number of others.
fn first_problem(error: &ConfigError) -> String {
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
