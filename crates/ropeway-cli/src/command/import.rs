//! `ropeway import`: imports servers from other MCP clients.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead as _;
use std::path::{Path, PathBuf};

use clap::ValueEnum as _;
use ropeway_config::raw::RawServer;
use ropeway_config::{Config, ConfigReview, Secrets, ServerSettings, edit, review};
use ropeway_core::suggest;

use super::import_report::{ImportReport, secrets_in_words, short};
use crate::clients::{self, Client, ClientFile, ClientPaths, ImportTarget, KnownSecrets, Merged};
use crate::config::config_target::ConfigTarget;
use crate::connect::command_context::CommandContext;
use crate::failure::{Exit, Failure};
use crate::files::file;
use crate::output::print::{print, print_json, print_unredacted, say};
use crate::secrets::dotenv;
use crate::secrets::gitignore;
use crate::secrets::literal::{ExtractedSecret, SecretNames};
use crate::terminal::text::{clean_line, terminal_width, wrap};
use crate::trust;
use crate::trust::{TrustMode, TrustReview, trust_command};

/// Appended to `--help`.
pub(super) const EXAMPLES: &str = "\
Examples:
  ropeway import --dry-run
  ropeway import --from cursor --only github linear
  ropeway import ~/backup/claude_desktop_config.json --to ropeway.yaml
  ropeway import --global --secrets
  ropeway import --from cursor --workspace ~/code/shop";

/// Maximum prompts for a directory.
const MOST_QUESTIONS: usize = 3;

/// Import servers from other MCP clients
///
/// Finds the configuration files of Claude Desktop, Claude Code, Cursor, VS Code, Windsurf, Codex, Gemini CLI, Goose and Zed and adds
/// their servers to ropeway.yaml. Literal secrets are replaced by references and never printed. Files of the project in the current
/// directory need approval, unless they are named.
#[derive(Debug, clap::Args)]
pub(super) struct Import {
    /// Files to import, instead of searching for them
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Only import from this client (repeatable)
    #[arg(long, value_name = "CLIENT")]
    from: Vec<Client>,
    /// Only import these servers
    #[arg(long, value_name = "NAME", num_args = 1..)]
    only: Vec<String>,
    /// File to write
    #[arg(
        long,
        visible_alias = "config",
        visible_short_alias = 'c',
        value_name = "FILE",
        conflicts_with = "global",
        help_heading = "File"
    )]
    to: Option<PathBuf>,
    /// Write to the user configuration file
    #[arg(long, help_heading = "File")]
    global: bool,
    /// Value of `${workspaceFolder}` in files outside of a project; without it, servers that use it are skipped
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Write secrets to the .env next to the file, including those of servers already in the file
    #[arg(long, help_heading = "File")]
    secrets: bool,
    /// Print the result without writing it
    #[arg(long, help_heading = "File")]
    dry_run: bool,
}

impl Import {
    pub(super) fn run(self, context: &CommandContext) -> Result<Exit, Failure> {
        if let Some(folder) = self.workspace.as_ref().filter(|folder| !folder.is_dir()) {
            return Err(Failure::usage(format!("`{}` is not a directory", folder.display())));
        }
        let mut found = self.find(context)?;
        self.check_names(&found)?;
        let target = ConfigTarget::find(self.to.clone(), self.global)?.trusted(context.trust)?.validated()?;
        let secrets_file = dotenv::beside(&target.path);
        let secrets_before = file::read(&secrets_file)?;
        let kept = secrets_before.as_deref().map(dotenv::names).unwrap_or_default();
        let mut names = SecretNames::in_use(kept.clone());
        self.admit(&mut found, &target.path, &names, context.trust)?;
        let is_project = |found: &ClientFile| found.project.is_some() && self.selected(found).next().is_some();
        let is_unread = self.dry_run && found.iter().any(is_project);
        let secrets = if is_unread { Secrets::unread() } else { Secrets::from_env() };
        let known = if target.is_new() { Config::default() } else { target.parse(target.text()).unwrap_or_default() };
        let known: Vec<String> = known.servers.iter().map(|entry| entry.alias.to_string()).collect();
        let ours = ImportTarget { path: &target.path, known: &known, secrets: &secrets };
        let mut merged = clients::merge(&found, ours, &self.only, Some(&mut names));
        let KnownSecrets { text: base, taken: of_known, notes } =
            KnownSecrets::find(target.text(), &merged.known, &kept, &mut names)
                .map_err(|error| target.edit_failure(error))?;
        let base = if self.secrets { base } else { target.text().to_owned() };
        match self.secrets {
            true => merged.notes.extend(notes),
            false if of_known.is_empty() => {}
            false => merged.notes.push(format!(
                "{} of servers already in the file can be moved to .env with --secrets",
                secrets_in_words(&of_known)
            )),
        }
        if found.iter().any(|found| self.left_out(found).next().is_some()) {
            merged.notes.push("set `${workspaceFolder}` with --workspace DIR".to_owned());
        }
        let text = written(&target, &base, &merged)?;
        let is_changed = !merged.servers.is_empty() || base != target.text();
        let meaning = |text: &str| if is_unread { target.parse_unread(text) } else { target.parse(text) };
        if is_changed {
            meaning(&text)?;
            target.check_review(&text)?;
        }
        let of_known = if self.secrets { of_known } else { Vec::new() };
        let taken = merged.servers.iter().flat_map(|server| server.taken.clone()).chain(of_known.clone());
        let taken: Vec<ExtractedSecret> = taken.collect();
        let writes_secrets = self.secrets && !taken.is_empty();
        if !self.dry_run {
            if writes_secrets {
                let secrets = dotenv::with(secrets_before.as_deref(), &taken);
                file::replace(&secrets_file, secrets_before.as_deref(), &secrets, file::PRIVATE)?;
            }
            if is_changed {
                target.write(&text)?;
            }
        }
        let outcome = ImportReport {
            missing: if is_changed || writes_secrets {
                missing(&meaning(&text)?, &merged, self.secrets)
            } else {
                BTreeMap::new()
            },
            other: other_values(&taken),
            warning: writes_secrets.then(|| gitignore::warning(&secrets_file)).flatten(),
            secrets_file: writes_secrets.then_some(secrets_file),
            of_known,
            is_changed,
            dry_run: self.dry_run,
            target: &target,
            found: &found,
            merged: &merged,
        };
        match (context.json, self.dry_run) {
            (true, _) => print_json(&outcome.json(&text))?,
            // The new file is the result; everything else goes to standard error.
            (false, true) => {
                say(&outcome.show(terminal_width(&std::io::stderr())));
                if is_changed {
                    print_unredacted(&text)?;
                }
            }
            (false, false) => print(&outcome.show(terminal_width(&std::io::stdout())))?,
        }
        // A named file must be readable.
        let is_broken = found.iter().any(|found| found.servers.is_err()) && !self.files.is_empty();
        Ok(if is_broken { Exit::Usage } else { Exit::Done })
    }

    /// Removes project files that are not trusted. On a terminal, asks the user, except in a dry run, which shows them; without
    /// one, fails only if no other file is left.
    fn admit(
        &self,
        found: &mut Vec<ClientFile>,
        target: &Path,
        names: &SecretNames,
        mode: TrustMode,
    ) -> Result<(), Failure> {
        let mut refused = Vec::new();
        for file in found.iter().filter(|file| self.selected(file).next().is_some()) {
            let Some(text) = &file.project else { continue };
            if self.dry_run && trust::can_ask() {
                continue;
            }
            let review = || {
                let review = review_all(file, target, names.clone());
                review.map(|review| TrustReview::of(&file.path, &review, Vec::new()))
            };
            match trust::admit_as(&file.path, text, mode, review) {
                Err(failure) if trust::can_ask() => return Err(failure),
                Err(failure) => refused.push((file.path.clone(), failure)),
                Ok(()) => {}
            }
        }
        let is_refused = |file: &ClientFile| refused.iter().any(|(path, _)| *path == file.path);
        let is_left = found.iter().any(|file| !is_refused(file) && self.selected(file).next().is_some());
        if !is_left && !refused.is_empty() {
            return Err(refused.remove(0).1);
        }
        found.retain(|file| !is_refused(file));
        let outcome = if self.dry_run { "would be skipped" } else { "was skipped" };
        refused.iter().for_each(|(path, _)| trust::print_warning(&not_imported(path, outcome)));
        Ok(())
    }

    /// Returns the servers that were skipped because they need a workspace directory.
    fn left_out<'a>(&self, found: &'a ClientFile) -> impl Iterator<Item = &'a String> {
        let names = found.servers.iter().flat_map(|foreign| &foreign.without_workspace);
        names.filter(|name| self.only.is_empty() || self.only.contains(name))
    }

    /// Returns `${workspaceFolder}` for a file outside a project: from the option, or from the user.
    fn workspace_of(&self, context: &CommandContext, file: &Path, servers: &[String]) -> Option<PathBuf> {
        let wanted = |name: &&String| self.only.is_empty() || self.only.contains(name);
        let servers: Vec<String> =
            servers.iter().filter(wanted).map(|name| format!("`{}`", clean_line(name))).collect();
        if servers.is_empty() || self.workspace.is_some() || context.json || !trust::can_ask() {
            return self.workspace.clone();
        }
        let width = terminal_width(&std::io::stderr()).unwrap_or(usize::MAX);
        let words = format!(
            "{} uses ${{workspaceFolder}} for {}, which is unknown outside of a project.",
            clean_line(&short(file)),
            servers.join(", ")
        );
        say(&wrap(&words, width, 0));
        ask_folder()
    }

    fn find(&self, context: &CommandContext) -> Result<Vec<ClientFile>, Failure> {
        let environment = ClientPaths::of_process();
        let mut workspace = |file: &Path, servers: &[String]| self.workspace_of(context, file, servers);
        if !self.files.is_empty() {
            if let Some(missing) = self.files.iter().find(|path| !path.exists()) {
                return Err(Failure::usage(format!("`{}` does not exist", missing.display())));
            }
            let client = self.from.first().copied();
            let open = |path: &PathBuf| clients::open(path, client, &environment, &mut workspace);
            return Ok(self.files.iter().map(open).collect());
        }
        let clients = if self.from.is_empty() { Client::value_variants() } else { &self.from };
        Ok(clients::find(clients, &environment, &mut workspace))
    }

    /// Returns the servers to import from a file.
    fn selected<'a>(&self, found: &'a ClientFile) -> impl Iterator<Item = &'a RawServer> {
        let is_wanted = |name: &String| self.only.is_empty() || self.only.contains(name);
        let servers = found.servers.iter().flat_map(|foreign| &foreign.servers).map(|one| &one.server);
        servers.filter(move |server| is_wanted(&server.alias))
    }

    /// Checks that every `--only` name exists.
    fn check_names(&self, found: &[ClientFile]) -> Result<(), Failure> {
        let servers = found.iter().filter_map(|found| found.servers.as_ref().ok()).flat_map(|foreign| &foreign.servers);
        let left_out = found.iter().flat_map(|found| self.left_out(found)).map(String::as_str);
        let all: BTreeSet<&str> = servers.map(|server| server.server.alias.as_str()).chain(left_out).collect();
        let all = Vec::from_iter(all);
        match self.only.iter().find(|name| !all.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => {
                let failure = Failure::usage(format!("unknown server `{name}`"));
                Err(match suggest::did_you_mean(name, all.iter().copied()) {
                    Some(question) => failure.hint(question),
                    None if all.is_empty() => failure.hint("no servers found"),
                    None => failure.hint(format!("available servers: {}", all.join(", "))),
                })
            }
        }
    }
}

/// Reviews all servers in a file as they would be written to `path`, including those that `--only` excludes: trust covers the
/// whole file. Reads no other files.
fn review_all(found: &ClientFile, path: &Path, mut names: SecretNames) -> Result<ConfigReview, Failure> {
    let secrets = Secrets::unread();
    let ours = ImportTarget { path, known: &[], secrets: &secrets };
    let merged = clients::merge([found], ours, &[], Some(&mut names));
    review(&merged.text(), path).map_err(|error| Failure::config(&error))
}

/// Returns the warning about a project file that is not trusted.
fn not_imported(path: &Path, outcome: &str) -> String {
    format!("{} is not trusted and {outcome}; run `{}` to import it", short(path), trust_command(path))
}

/// Prompts for an existing directory. An empty answer skips the servers.
fn ask_folder() -> Option<PathBuf> {
    for _ in 0..MOST_QUESTIONS {
        say("Directory [skip these servers]: ");
        let mut answer = String::new();
        let read = std::io::stdin().lock().read_line(&mut answer);
        let answer = answer.trim();
        if !read.is_ok_and(|length| length > 0) || answer.is_empty() {
            return None;
        }
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let folder = match (answer.strip_prefix("~/"), home) {
            (Some(below), Some(home)) => home.join(below),
            _ => PathBuf::from(answer),
        };
        if folder.is_dir() {
            return Some(folder);
        }
        say(&format!("`{}` is not a directory\n", clean_line(answer)));
    }
    None
}

/// Returns the file with the imported servers.
fn written(target: &ConfigTarget, base: &str, merged: &Merged) -> Result<String, Failure> {
    if target.is_new() {
        return Ok(merged.text());
    }
    let add = |text: String, one: &clients::MergedServer| edit::add_with(&text, &one.server, &one.comments);
    merged.servers.iter().try_fold(base.to_owned(), add).map_err(|error| target.edit_failure(error))
}

/// Returns the variables to set, each with the servers that need it.
fn missing(config: &Config, merged: &Merged, with_known: bool) -> BTreeMap<String, Vec<String>> {
    let mut missing: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let is_named = |alias: &str| {
        let known = merged.known.iter().filter(|_| with_known);
        merged.servers.iter().chain(known).any(|one| one.server.alias == alias)
    };
    for entry in config.servers.iter().filter(|entry| is_named(entry.alias.as_str())) {
        if let ServerSettings::Missing { secrets } = &entry.settings {
            secrets.iter().for_each(|name| missing.entry(name.clone()).or_default().push(entry.alias.to_string()));
        }
    }
    missing
}

/// Returns the variables that are set to another value than in the other client.
fn other_values(taken: &[ExtractedSecret]) -> Vec<String> {
    let differs = |taken: &&ExtractedSecret| {
        std::env::var_os(&taken.name).is_some_and(|value| value.to_str() != Some(taken.value.expose()))
    };
    taken.iter().filter(differs).map(|taken| taken.name.clone()).collect()
}
