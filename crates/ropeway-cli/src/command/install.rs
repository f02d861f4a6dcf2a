//! `ropeway install`: adds the gateway to other MCP clients.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use ropeway_config::{Config, ListenAddress, read_foreign};
use serde_json::{Value, json};

use super::install_record::InstallRecord;
use super::serve::known_profile;
use crate::clients::{
    COMMAND_KEYS, COMMON_KEY, Client, ClientPaths, Edit, EntryForm, FileProblem, InstallTarget, URL_KEYS, is_own_entry,
};
use crate::config::config_file::ConfigFile;
use crate::config::config_paths::Origin;
use crate::connect::command_context::CommandContext;
use crate::connect::server_options::ServerOptions;
use crate::connect::servers::{ServerSource, Servers};
use crate::failure::{Exit, Failure};
use crate::files::file;
use crate::output::print::{print, print_json, print_unredacted, say};
use crate::secrets::literal;
use crate::terminal::text::{clean, escape_invisible};
use crate::trust::TrustMode;

/// Appended to `--help`.
pub(super) const EXAMPLES: &str = "\
Examples:
  ropeway install claude-desktop
  ropeway install cursor --profile coding
  ropeway install vscode --project --http
  ropeway install codex --dry-run
  ropeway install goose
  ropeway install zed --remove
  ropeway install mcp-json --config team.yaml

The client starts `ropeway serve --stdio` with the configuration file in use. With --http, it connects to a running \
`ropeway serve`; Claude Desktop does not support that in its file.";

/// The entry's default name.
const NAME: &str = "ropeway";

/// Time to wait for a gateway that may be running.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(300);

/// The byte order mark, which some editors write at the beginning of a file.
const BOM: char = '\u{feff}';

/// Add the gateway to another MCP client
///
/// The client then uses all configured servers through one entry. Comments and the order of its file are kept; --remove restores
/// the file. An entry of the same name that is not ropeway's is not replaced.
#[derive(Debug, clap::Args)]
pub(super) struct Install {
    /// Client to change; `mcp-json` prints an entry for any other client
    #[arg(value_name = "CLIENT")]
    client: InstallClient,
    /// Connect over HTTP instead of starting the gateway
    #[arg(long)]
    http: bool,
    /// Profile or server to use, instead of all servers
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Name of the entry
    #[arg(long, value_name = "NAME", default_value = NAME, value_parser = entry_name)]
    name: String,
    /// Change the client's file of the project in the current folder
    #[arg(long, help_heading = "File")]
    project: bool,
    /// Remove the entry
    #[arg(long, conflicts_with_all = ["http", "profile", "config"])]
    remove: bool,
    /// Show the change without writing it
    #[arg(long, help_heading = "File")]
    dry_run: bool,
    /// Replace an entry that is not ropeway's, and install the demo server if nothing is configured
    #[arg(long, help_heading = "File")]
    force: bool,
    /// Configuration file for the gateway, if not the one in use
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// The client that gets the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InstallClient {
    Known(Client),
    /// A client whose file is not known.
    McpJson,
}

impl ValueEnum for InstallClient {
    fn value_variants<'a>() -> &'a [Self] {
        static VARIANTS: LazyLock<Vec<InstallClient>> = LazyLock::new(|| {
            let known = Client::value_variants().iter().copied().map(InstallClient::Known);
            known.chain([InstallClient::McpJson]).collect()
        });
        &VARIANTS
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Known(client) => client.to_possible_value(),
            Self::McpJson => Some(PossibleValue::new("mcp-json").help("Print an entry for any other client")),
        }
    }
}

/// A change to the client's file.
struct Change {
    after: String,
    /// The entry that is added or removed.
    entry: Value,
    /// What was inserted, unless an entry was removed.
    record: Option<InstallRecord>,
    /// The file did not exist before the installation that is removed.
    deletes_file: bool,
}

impl Install {
    pub(super) fn run(self, context: &CommandContext) -> Result<Exit, Failure> {
        match self.client {
            InstallClient::Known(client) => self.install(client, context),
            InstallClient::McpJson => self.print_entry(context),
        }
    }

    /// Prints the entry in the format that most clients share.
    fn print_entry(&self, context: &CommandContext) -> Result<Exit, Failure> {
        if self.remove || self.project {
            return Err(Failure::usage("`mcp-json` changes no file").hint("try it without `--remove` and `--project`"));
        }
        let servers = self.servers(context)?;
        // Cursor's entries have no additional keys.
        let entry = self.entry(Client::Cursor, &servers)?;
        print_json(&json!({COMMON_KEY: {self.name.as_str(): entry}}))?;
        Ok(Exit::Done)
    }

    fn install(&self, client: Client, context: &CommandContext) -> Result<Exit, Failure> {
        let target = self.target(client)?;
        let before = file::read(&target.path)?;
        let text = without_bom(before.as_deref().unwrap_or_default());
        let problem = |FileProblem(problem)| {
            Failure::usage(format!("cannot edit `{}`: {problem}", target.path.display())).hint("nothing was changed")
        };
        let existing = target.editor.entry(text, &self.name).map_err(problem)?;
        let is_installed = self.name == NAME || InstallRecord::exists(&target.path, &self.name);
        if let Some(entry) = existing.as_ref().filter(|entry| !self.force && !is_own_entry(entry, is_installed)) {
            return Err(self.foreign(&target, entry));
        }
        if self.remove && existing.is_none() {
            return self.report(client, context, &target, None);
        }
        let (base, deletes_file) = self.without_entry(&target, text, existing.is_some()).map_err(problem)?;
        let (change, notes) = if self.remove {
            let entry = existing.unwrap_or_default();
            (Change { after: base, entry, record: None, deletes_file }, Vec::new())
        } else {
            let servers = self.servers(context)?;
            let entry = self.entry(client, &servers)?;
            let edits = target.editor.add(&base, &self.name, &entry).map_err(problem)?;
            let after = Edit::apply(&edits, &base).unwrap_or_default();
            let record = InstallRecord::new(&after, edits, before.is_none() || deletes_file);
            let mut notes = notes(&target, &base, &servers);
            if self.http {
                notes.extend(auth_note(&servers.config));
                notes.extend(start_note(&servers.config));
            }
            (Change { after, entry, record: Some(record), deletes_file: false }, notes)
        };
        let is_changed = change.after != text;
        if !self.dry_run && is_changed {
            self.write(&target, before.as_deref(), &change)?;
        }
        self.report(client, context, &target, is_changed.then_some(&change.entry))?;
        for note in notes.iter().filter(|_| !context.json).map(|note| format!("{note}\n")) {
            // A dry run outputs the entry.
            if self.dry_run { say(&note) } else { print(&note)? }
        }
        Ok(Exit::Done)
    }

    fn target(&self, client: Client) -> Result<InstallTarget, Failure> {
        let title = client.title();
        let target = InstallTarget::of(client, &ClientPaths::of_process(), self.project).ok_or_else(|| {
            if self.project {
                Failure::usage(format!("{title} has no project files")).hint("try it without `--project`")
            } else {
                Failure::usage(format!("no folder for the file of {title}: `HOME` is not set"))
            }
        })?;
        if self.project
            && let Some(outside) = leads_outside(&target.path)
        {
            let (path, outside) = (target.path.display(), escape_invisible(&outside.display().to_string()));
            return Err(Failure::usage(format!("`{path}` leads out of the project, to `{outside}`"))
                .hint("nothing was changed; remove the symbolic link, or use a file in the project"));
        }
        Ok(target)
    }

    fn foreign(&self, target: &InstallTarget, entry: &Value) -> Failure {
        let what = COMMAND_KEYS.iter().chain(&URL_KEYS).find_map(|key| entry[*key].as_str());
        let what = what.map(|what| format!(" (`{what}`)")).unwrap_or_default();
        let verb = if self.remove { "remove" } else { "replace" };
        Failure::usage(format!("`{}` has an entry `{}` that is not ropeway's{what}", target.path.display(), self.name))
            .hint(format!("nothing was changed; choose another `--name`, or {verb} it with `--force`"))
    }

    /// Returns the text without the entry, and whether only the installation had created the file.
    fn without_entry(&self, target: &InstallTarget, text: &str, is_there: bool) -> Result<(String, bool), FileProblem> {
        if !is_there {
            return Ok((text.to_owned(), false));
        }
        if let Some(record) = InstallRecord::read(&target.path, &self.name, text)
            && let Some(before) = record.undo(text)
        {
            return Ok((before, record.is_created));
        }
        let edits = target.editor.remove(text, &self.name)?;
        let without = Edit::apply(&edits, text).unwrap_or_else(|| text.to_owned());
        Ok((without, false))
    }

    fn write(&self, target: &InstallTarget, before: Option<&str>, change: &Change) -> Result<(), Failure> {
        if change.deletes_file && change.after.is_empty() {
            std::fs::remove_file(&target.path).map_err(|error| {
                Failure::usage(format!("could not remove `{}`", target.path.display())).caused_by(&error)
            })?;
        } else {
            let mark = before.filter(|before| before.starts_with(BOM)).map(|_| BOM);
            let after: String = mark.into_iter().chain(change.after.chars()).collect();
            file::replace(&target.path, before, &after, file::SHARED)?;
        }
        match &change.record {
            Some(record) => record.write(&target.path, &self.name),
            None => {
                InstallRecord::delete(&target.path, &self.name);
                Ok(())
            }
        }
    }

    /// Returns the gateway's servers. A project file must be trusted, since the client starts its servers.
    fn servers(&self, context: &CommandContext) -> Result<Servers, Failure> {
        let options = ServerOptions { config: self.config.clone(), ..ServerOptions::default() };
        let servers = options.own_servers(context)?;
        if servers.source == ServerSource::Demo && !self.http && !self.force {
            return Err(Failure::usage("no configuration file found; the client would only get the demo server")
                .hint("try `ropeway add` or `ropeway import` first, `--config FILE`, or `--force`"));
        }
        if let Some(profile) = &self.profile {
            known_profile(profile, &servers)?;
        }
        Ok(servers)
    }

    /// Returns the entry for the client.
    fn entry(&self, client: Client, servers: &Servers) -> Result<Value, Failure> {
        let form = if self.http {
            EntryForm::Http { url: url(&servers.config, self.profile.as_deref())? }
        } else {
            self.stdio_form(servers)?
        };
        client.entry(&self.name, &form).ok_or_else(|| {
            Failure::usage(format!("{} does not support `--http` in its file", client.title()))
                .hint("try it without `--http`")
        })
    }

    fn stdio_form(&self, servers: &Servers) -> Result<EntryForm, Failure> {
        let text = |path: PathBuf| {
            path.into_os_string()
                .into_string()
                .map_err(|path| Failure::usage(format!("the path is not UTF-8: `{}`", path.to_string_lossy())))
        };
        let program = std::env::current_exe().map_err(|error| {
            Failure::usage("could not determine the path of the ropeway executable").caused_by(&error)
        })?;
        let mut args = vec!["serve".to_owned(), "--stdio".to_owned()];
        if let (ServerSource::File(path), Some(file)) = (&servers.source, &servers.file) {
            let path = std::path::absolute(path)
                .map_err(|error| Failure::usage(format!("could not find `{}`", path.display())).caused_by(&error))?;
            args.extend(["--config".to_owned(), text(path)?]);
            if matches!(file, ConfigFile { origin: Origin::Project, .. }) {
                args.push("--require-trust".to_owned());
            }
        }
        if let Some(profile) = &self.profile {
            args.extend(["--profile".to_owned(), profile.clone()]);
        }
        Ok(EntryForm::Stdio { command: text(program)?, args })
    }

    /// Reports how an entry changed, if it did. Leaves out the file's other entries: they may contain secrets.
    fn report(
        &self,
        client: Client,
        context: &CommandContext,
        target: &InstallTarget,
        entry: Option<&Value>,
    ) -> Result<Exit, Failure> {
        let (file, name) = (target.path.display(), &self.name);
        let entry = entry.map(|entry| literal::redact_json("", entry));
        if context.json {
            let change = if self.remove { "removed" } else { "added" };
            let changes: Vec<&str> = entry.iter().map(|_| name.as_str()).collect();
            let written = entry.is_some() && !self.dry_run;
            print_json(&json!({
                "client": client.word(), "file": target.path, change: changes, "entry": entry, "written": written,
            }))?;
            return Ok(Exit::Done);
        }
        let words = match (&entry, self.remove) {
            (None, true) => format!("{file} has no entry `{name}`"),
            (None, false) => format!("{file} already has the entry `{name}`"),
            (Some(entry), _) if self.dry_run => {
                let (verb, to) = if self.remove { ("remove", "from") } else { ("add", "to") };
                say(&format!("Would {verb} {to} {file}:\n"));
                // The file that would contain nothing else.
                let shown = target.editor.add("", name, entry).ok().and_then(|edits| Edit::apply(&edits, ""));
                return print_unredacted(&clean(&shown.unwrap_or_default())).map(|()| Exit::Done);
            }
            (Some(_), true) => format!("Removed `{name}` from {file}"),
            (Some(_), false) => format!("Added `{name}` to {file}; restart {} to use it", client.title()),
        };
        print(&(words + "\n"))?;
        Ok(Exit::Done)
    }
}

/// Returns a project file's target if a symbolic link places it outside the current folder.
fn leads_outside(path: &Path) -> Option<PathBuf> {
    let project = std::env::current_dir().and_then(std::fs::canonicalize).ok()?;
    // The file and its folder may not exist yet.
    let existing = path.ancestors().find(|path| path.symlink_metadata().is_ok())?;
    match std::fs::canonicalize(existing) {
        Ok(target) => (!target.starts_with(&project)).then_some(target),
        // A link to something that does not exist.
        Err(_) => std::fs::read_link(existing).ok(),
    }
}

/// Returns a file's text without its byte order mark.
fn without_bom(text: &str) -> &str {
    text.strip_prefix(BOM).unwrap_or(text)
}

/// Checks an entry's name.
fn entry_name(name: &str) -> Result<String, &'static str> {
    if name.trim().is_empty() {
        Err("the name is empty")
    } else if name.chars().any(char::is_control) {
        Err("the name contains control characters")
    } else {
        Ok(name.to_owned())
    }
}

/// Returns the address at which clients on this machine reach the gateway, if it is fixed.
fn local_address(config: &Config) -> Option<SocketAddr> {
    let ListenAddress::Tcp(mut address) = config.gateway.listen else { return None };
    if address.ip().is_unspecified() {
        let is_v4 = address.is_ipv4();
        address.set_ip(if is_v4 { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    Some(address).filter(|address| address.port() != 0)
}

/// Returns the gateway's URL.
fn url(config: &Config, profile: Option<&str>) -> Result<String, Failure> {
    let address = local_address(config).ok_or_else(|| {
        Failure::usage(format!("`gateway.listen` is `{}`, which has no fixed URL", config.gateway.listen))
            .hint("set it to an address with a port, such as 127.0.0.1:8931")
    })?;
    let scheme = if config.gateway.tls.is_some() { "https" } else { "http" };
    let path = profile.map(|profile| format!("/{profile}")).unwrap_or_default();
    Ok(format!("{scheme}://{address}/mcp{path}"))
}

/// Returns a note if no gateway listens at its address yet.
fn start_note(config: &Config) -> Option<String> {
    let address = local_address(config)?;
    match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
        Ok(_) => None,
        Err(_) => Some(format!("nothing listens on {address}: start `ropeway serve` before the client")),
    }
}

/// Returns a note about the credentials that the gateway asks clients for.
fn auth_note(config: &Config) -> Option<String> {
    let auth = &config.gateway.auth;
    if auth.keys_file.is_some() {
        let text = "the gateway requires a key: create one with `ropeway key new NAME`, and add the header \
                    `Authorization: Bearer KEY` to the entry";
        return Some(text.to_owned());
    }
    auth.jwt.as_ref().map(|jwt| format!("the gateway requires a token of {}; the client signs in there", jwt.issuer))
}

/// Returns notes about a file that is not trusted yet, and about servers that the client would now have twice.
fn notes(target: &InstallTarget, text: &str, servers: &Servers) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(file) = servers.file.as_ref().filter(|file| !file.is_trusted(TrustMode::Ask)) {
        notes.push(format!("run `ropeway trust` in the folder of {} before the client uses it", file.path.display()));
    }
    let Ok(theirs) = read_foreign(text, &target.path) else { return notes };
    let ours = servers.names();
    let both = theirs.servers.iter().map(|server| server.server.alias.as_str());
    let both: Vec<&str> = both.filter(|name| ours.iter().any(|alias| alias.as_str() == *name)).collect();
    if !both.is_empty() {
        notes.push(format!("also configured there: {}", both.join(", ")));
    }
    notes
}
