//! Servers from other MCP clients, for commands without a configuration file.

use std::path::{Path, PathBuf};

use clap::ValueEnum as _;
use ropeway_config::{Config, ConfigReview, ForeignServer, Secrets, review};

use crate::clients::{self, Client, ClientFile, ClientPaths, ImportTarget, Merged};
use crate::connect::command_context::CommandContext;
use crate::connect::servers::{ServerSource, Servers};
use crate::failure::Failure;
use crate::output::print::say;
use crate::terminal::style::faint;
use crate::terminal::text::{clean_line, counted, terminal_width, wrap};
use crate::trust::{self, TrustMode, TrustReview, TrustStatus, TrustStore, TrustSubject, print_warning};

/// Other clients' files that have servers for the current directory.
///
/// Their servers are resolved as if `ropeway import` had written them to a file in the home directory. User-file servers run
/// there and read the `.env` there, so that a directory which the user happens to be in can replace neither their programs nor
/// their variables. Project-file servers run in their project.
#[derive(Debug)]
pub(crate) struct ClientServers {
    files: Vec<ServerFile>,
    /// Why other files cannot be used.
    problems: Vec<String>,
    /// The file in the home directory, which need not exist.
    path: PathBuf,
}

/// A file and what trust in it covers.
#[derive(Debug)]
pub(crate) struct ServerFile {
    file: ClientFile,
    /// The servers in this file alone, as a configuration file.
    text: String,
    /// The review for this text.
    review: ConfigReview,
}

/// What the user said about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Consent {
    Given,
    Declined,
    Unknown,
}

/// Returns the other clients' servers that the user accepts. Asks about new ones on a terminal, and names them otherwise.
pub(crate) fn admit(context: &CommandContext) -> Option<Servers> {
    let found = ClientServers::find()?;
    found.problems.iter().for_each(|problem| print_warning(problem));
    let mut consents = found.consents(context.trust);
    let new = || found.files.iter().zip(&consents).filter(|(_, consent)| **consent == Consent::Unknown);
    let is_asked = trust::can_ask() && new().next().is_some();
    if is_asked {
        let subjects = new().map(|(file, _)| file.subject()).collect();
        let width = terminal_width(&std::io::stderr()).unwrap_or(usize::MAX);
        say(&format!("{}\n", wrap("No configuration file found. Other clients have servers:", width, 0)));
        let answer = if trust::ask_together(subjects) { Consent::Given } else { Consent::Declined };
        consents.iter_mut().filter(|consent| **consent == Consent::Unknown).for_each(|consent| *consent = answer);
    }
    let with = |wanted: Consent| {
        let files = found.files.iter().zip(&consents).filter(move |(_, consent)| **consent == wanted);
        files.map(|(file, _)| file).collect::<Vec<_>>()
    };
    let (accepted, declined, unknown) = (with(Consent::Given), with(Consent::Declined), with(Consent::Unknown));
    if !unknown.is_empty() {
        let way = "use `--trust` for one run, `ropeway trust` or `ropeway import`";
        say(&faint(&format!("{}: {way}", not_used(&unknown, "not trusted"))));
    } else if accepted.is_empty() && !declined.is_empty() {
        let way = "change that with `ropeway trust` or `ropeway import`";
        say(&faint(&format!("{}: {way}", not_used(&declined, "declined"))));
    }
    if accepted.is_empty() {
        return None;
    }
    let secrets = Secrets::from_env();
    let merged = found.merge(accepted.into_iter().map(|file| &file.file), &secrets);
    if is_asked || context.verbose {
        merged.notes.iter().for_each(|note| say(&faint(&clean_line(note))));
    }
    match Config::parse(&merged.text(), &found.path, &secrets) {
        Ok(config) => Some(Servers::new(config, ServerSource::Clients)),
        Err(error) => {
            print_warning(&format!("the servers of other clients cannot be used: {}", Failure::config(&error).line()));
            None
        }
    }
}

/// Returns the accepted servers from other clients, without asking.
pub(crate) fn accepted_config(mode: TrustMode) -> Option<Config> {
    let found = ClientServers::find()?;
    let consents = found.consents(mode);
    let accepted = found.files.iter().zip(&consents).filter(|(_, consent)| **consent == Consent::Given);
    let secrets = Secrets::from_env();
    let merged = found.merge(accepted.map(|(file, _)| &file.file), &secrets);
    Config::parse(&merged.text(), &found.path, &secrets).ok().filter(|config| !config.servers.is_empty())
}

impl ClientServers {
    /// Reads the files. `None` if the user has no home directory.
    pub(crate) fn find() -> Option<Self> {
        let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute() && home.is_dir());
        let path = home?.join("ropeway.yaml");
        let mut found = Self { files: Vec::new(), problems: Vec::new(), path };
        // A workspace would be another one in each directory, and so would be what the user accepts.
        let files = clients::find(Client::value_variants(), &ClientPaths::of_process(), &mut |_, _| None);
        for mut file in files {
            let text = found.merge([&file], &Secrets::unread()).text();
            let reviewed = review(&text, &found.path).map_err(|error| Failure::config(&error).line());
            match (file.servers.clone(), reviewed) {
                (Ok(mut foreign), Ok(review)) => {
                    foreign.servers.retain(is_here);
                    file.servers = Ok(foreign);
                    if !found.merge([&file], &Secrets::unread()).servers.is_empty() {
                        found.files.push(ServerFile { file, text, review });
                    }
                }
                (Err(problem), _) | (_, Err(problem)) => found.problems.push(skipped(&file, &problem)),
            }
        }
        Some(found)
    }

    /// Returns the user's answer about each file. With [`TrustMode::TrustAll`], all are accepted.
    fn consents(&self, mode: TrustMode) -> Vec<Consent> {
        let store = TrustStore::open();
        let consent = |file: &ServerFile| match &store {
            _ if mode == TrustMode::TrustAll => Consent::Given,
            Err(_) => Consent::Unknown,
            Ok(store) => match store.status(file.path(), file.content()) {
                TrustStatus::Trusted => Consent::Given,
                TrustStatus::Declined => Consent::Declined,
                TrustStatus::Changed(_) | TrustStatus::Unknown => Consent::Unknown,
            },
        };
        self.files.iter().map(consent).collect()
    }

    fn merge<'a>(&self, files: impl IntoIterator<Item = &'a ClientFile>, secrets: &Secrets) -> Merged {
        clients::merge(files, ImportTarget { path: &self.path, known: &[], secrets }, &[], None)
    }

    /// Returns the files that `ropeway trust` reviews: this one, or all.
    pub(crate) fn select(&self, path: Option<&Path>) -> Vec<&ServerFile> {
        let is_same = |path: &Path, file: &ServerFile| {
            let identity = trust::store::location(path).ok();
            identity.is_some() && identity == trust::store::location(file.path()).ok()
        };
        self.files.iter().filter(|file| path.is_none_or(|path| is_same(path, file))).collect()
    }
}

impl ServerFile {
    pub(crate) fn path(&self) -> &Path {
        &self.file.path
    }

    /// Returns `true` for a project file in the current directory.
    pub(crate) fn is_project(&self) -> bool {
        self.file.project.is_some()
    }

    /// Returns the content that trust covers: a project file's text, as for `ropeway import`, but only a user file's servers,
    /// since a client may store other data there.
    pub(crate) fn content(&self) -> &str {
        self.file.project.as_deref().unwrap_or(&self.text)
    }

    /// Returns what the user reviews and accepts.
    pub(crate) fn subject(&self) -> TrustSubject<'_> {
        let review = TrustReview::of(self.path(), &self.review, Vec::new());
        TrustSubject { path: self.path(), content: self.content(), review }
    }

    fn server_count(&self) -> usize {
        self.file.servers.as_ref().map_or(0, |foreign| foreign.servers.len())
    }
}

/// Returns `false` for a server that belongs to another project: Claude Code has one file for all projects.
fn is_here(server: &ForeignServer) -> bool {
    let here = std::env::current_dir().unwrap_or_default();
    server.project.as_ref().is_none_or(|project| here.starts_with(project))
}

fn skipped(file: &ClientFile, problem: &str) -> String {
    format!("skipped `{}` of {}: {problem}", file.path.display(), file.title())
}

fn not_used(files: &[&ServerFile], reason: &str) -> String {
    let count = files.iter().map(|file| file.server_count()).sum();
    let mut titles: Vec<&str> = files.iter().map(|file| file.file.title()).collect();
    titles.dedup();
    format!("{} of {} not used ({reason})", counted(count, "server"), titles.join(", "))
}
