//! `ropeway trust`: reviews, accepts, lists and revokes project files.

use std::path::{Path, PathBuf};

use anstyle::Style;
use serde_json::{Value, json};

use crate::config::config_file::ConfigFile;
use crate::config::config_paths::{self, Origin};
use crate::connect::client_servers::{ClientServers, ServerFile};
use crate::connect::command_context::CommandContext;
use crate::failure::{Exit, Failure};
use crate::files::file;
use crate::output::print::{print, print_json, say};
use crate::terminal::status_icon::StatusIcon;
use crate::terminal::table::{Cell, Overflow, Table};
use crate::terminal::text::{escape_invisible, terminal_width};
use crate::trust::{self, TrustMode, TrustReview, TrustStatus, TrustStore, TrustStoreError, TrustSubject};

/// Appended to `--help`.
pub(super) const EXAMPLES: &str = "\
Examples:
  ropeway trust
  ropeway trust ../other/ropeway.yaml
  ropeway trust --list
  ropeway trust --revoke

A project file is a ropeway.yaml in the current directory or above. Until it is
trusted, no command runs its servers, reads its secrets or expands its
variables. A changed file must be trusted again. Files named by --config or
ROPEWAY_CONFIG and the user configuration file need no trust.

Without a configuration file, commands use the servers of other MCP clients once
their files are trusted. Trust in such a file of yours covers its servers.

Trust covers the text of the file, not the programs it names or the values in
.env.";

/// The exit codes, for `--help`.
pub(super) const EXIT_CODES: &str = "\
Exit codes:
  0  success
  2  invalid usage or configuration, or not trusted";

const FAINT: Style = Style::new().dimmed();

/// Review and trust the configuration file of a project
///
/// Shows what the file runs, reads and connects to, then stores its path and a digest of its content. On a terminal, asks first.
#[derive(Debug, clap::Args)]
pub(super) struct Trust {
    /// File to review [default: the project file of the current directory, or else all files of other clients]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// List trusted files
    #[arg(long, conflicts_with_all = ["file", "revoke"])]
    list: bool,
    /// Stop trusting the file
    #[arg(long)]
    revoke: bool,
    /// Accept without asking on a terminal; without one, `trust` never asks
    #[arg(short, long, conflicts_with_all = ["list", "revoke"])]
    yes: bool,
}

impl Trust {
    pub(super) fn run(self, context: &CommandContext) -> Result<Exit, Failure> {
        match (self.list, self.revoke) {
            (true, _) => list(context),
            (false, true) => revoke(self.file, context),
            (false, false) => accept(self.file, self.yes, context),
        }
    }
}

/// Shows and accepts files. With `is_agreed`, the user is not asked.
fn accept(named: Option<PathBuf>, is_agreed: bool, context: &CommandContext) -> Result<Exit, Failure> {
    if let Some(found) = ClientServers::find() {
        let files = selected_clients(&found, named.as_deref());
        if !files.is_empty() {
            return accept_clients(&files, is_agreed, context);
        }
    }
    let file = match named {
        Some(path) => ConfigFile::read(&path, Origin::Project)?,
        None => {
            let (path, origin) = config_paths::find_with_origin().ok_or_else(|| {
                Failure::usage("no project file in the current directory or above")
                    .hint("try `ropeway config path` to list the searched paths")
            })?;
            ConfigFile::read(&path, origin)?
        }
    };
    let shown = escape_invisible(&file.path.display().to_string());
    if file.origin != Origin::Project {
        let reason =
            if file.origin == Origin::Own { "it is the user configuration file" } else { "ROPEWAY_CONFIG names it" };
        let record = json!({"file": file.path, "trusted": true, "needed": false});
        context.print(&record, || format!("{shown} needs no trust: {reason}\n"))?;
        return Ok(Exit::Done);
    }
    let review = TrustReview::new(&file.path, &file.text, Vec::new())?;
    let store = TrustStore::open();
    let is_known = store.as_ref().is_ok_and(|store| store.is_trusted(&file.path, &file.text));
    let before = trust::previous_summary(&store, &file.path, &file.text);
    if !context.json || trust::can_ask() {
        say(&if is_known {
            review.render(terminal_width(&std::io::stderr()))
        } else {
            trust::render_review(&review, before.as_ref())
        });
    }
    let summary = review.summary.clone();
    if !is_known {
        check_mode(context)?;
        // Without a terminal, running the command is the consent.
        if !is_agreed && trust::can_ask() && !trust::ask(1) {
            return Err(Failure::usage(format!("`{shown}` is not trusted")));
        }
        trust::record_trust(&file.path, &file.text, review.summary).map_err(|error| not_stored(&error))?;
    }
    match context.json {
        true => print_json(&json!({
            "file": file.path, "trusted": true, "needed": true, "sha256": trust::sha256(&file.text),
            "review": sections(&summary), "warnings": review.warnings,
        }))?,
        false if is_known => print(&format!("{shown} is already trusted\n"))?,
        false => print(&format!("{shown} is now trusted\n"))?,
    }
    Ok(Exit::Done)
}

/// Returns the other clients' files to review: the named user file, or all files, also the project's, if there is no
/// configuration file.
fn selected_clients<'a>(found: &'a ClientServers, named: Option<&Path>) -> Vec<&'a ServerFile> {
    let is_alone = named.is_some() || config_paths::find_path().is_none();
    let files = found.select(named).into_iter();
    // Another client's project file is reviewed like any other file if it is named.
    files.filter(|file| is_alone && (named.is_none() || !file.is_project())).collect()
}

fn accept_clients(files: &[&ServerFile], is_agreed: bool, context: &CommandContext) -> Result<Exit, Failure> {
    let store = TrustStore::open();
    let is_known =
        |file: &&&ServerFile| store.as_ref().is_ok_and(|store| store.is_trusted(file.path(), file.content()));
    let (known, new): (Vec<&ServerFile>, Vec<&ServerFile>) = files.iter().partition(|file| is_known(file));
    let subjects: Vec<TrustSubject<'_>> = new.iter().map(|file| file.subject()).collect();
    if !subjects.is_empty() {
        check_mode(context)?;
        if !context.json || trust::can_ask() {
            trust::show_reviews(&subjects);
        }
        if !is_agreed && trust::can_ask() && !trust::ask(subjects.len()) {
            return Err(Failure::usage("the servers of other clients are not trusted"));
        }
        for TrustSubject { path, content, review } in subjects {
            trust::record_trust(path, content, review.summary).map_err(|error| not_stored(&error))?;
        }
    }
    let paths: Vec<&Path> = files.iter().map(|file| file.path()).collect();
    let line =
        |file: &&ServerFile, words: &str| format!("{} {words}\n", escape_invisible(&file.path().display().to_string()));
    context.print(&json!({"files": paths, "trusted": true, "needed": true}), || {
        let known = known.iter().map(|file| line(file, "is already trusted"));
        known.chain(new.iter().map(|file| line(file, "is now trusted"))).collect()
    })?;
    Ok(Exit::Done)
}

fn check_mode(context: &CommandContext) -> Result<(), Failure> {
    if context.trust == TrustMode::Ask {
        return Ok(());
    }
    let failure = Failure::usage(format!("`--trust` and {}=1 apply to a single run", trust::VARIABLE));
    Err(failure.hint("omit them to accept the file"))
}

fn not_stored(error: &TrustStoreError) -> Failure {
    store_failure(error).hint("use `--trust` to trust the file for one run")
}

fn sections(summary: &trust::summary::TrustSummary) -> Vec<Value> {
    let section = |section: &trust::summary::Section| json!({"title": section.title, "facts": section.facts});
    summary.0.iter().map(section).collect()
}

fn revoke(named: Option<PathBuf>, context: &CommandContext) -> Result<Exit, Failure> {
    let found = ClientServers::find();
    let clients = found.as_ref().map(|found| selected_clients(found, named.as_deref())).unwrap_or_default();
    if named.is_none() && !clients.is_empty() {
        return clients.iter().try_fold(Exit::Done, |_, file| revoke_path(file.path(), context));
    }
    let path = named
        .or_else(|| {
            config_paths::find_with_origin().filter(|(_, origin)| *origin == Origin::Project).map(|(path, _)| path)
        })
        .unwrap_or_else(|| config_paths::path_in(Path::new("")));
    revoke_path(&path, context)
}

fn revoke_path(path: &Path, context: &CommandContext) -> Result<Exit, Failure> {
    let is_revoked = open()?.revoke(path).map_err(|error| store_failure(&error))?;
    let shown = escape_invisible(&path.display().to_string());
    match (context.json, is_revoked) {
        (true, _) => print_json(&json!({"file": path, "revoked": is_revoked}))?,
        (false, true) => print(&format!("{shown} is no longer trusted\n"))?,
        (false, false) => print(&format!("{shown} was not trusted\n"))?,
    }
    Ok(Exit::Done)
}

fn list(context: &CommandContext) -> Result<Exit, Failure> {
    let store = open()?;
    let clients = ClientServers::find();
    let state = |path: &Path| {
        let client = clients.as_ref().and_then(|found| found.select(Some(path)).into_iter().next());
        let content = match client {
            Some(client) => Some(client.content().to_owned()),
            None => file::read(path).ok().flatten(),
        };
        match content.map(|content| store.status(path, &content)) {
            Some(TrustStatus::Trusted) => "trusted",
            Some(TrustStatus::Declined) => "declined",
            Some(TrustStatus::Changed(_) | TrustStatus::Unknown) => "changed",
            None => "missing",
        }
    };
    if context.json {
        let record = |record: &trust::store::TrustRecord| {
            json!({
                "file": record.path, "target": record.target, "state": state(&record.path),
                "sha256": record.sha256, "accepted": record.accepted,
            })
        };
        print_json(&json!({"files": store.records().iter().map(record).collect::<Vec<_>>()}))?;
        return Ok(Exit::Done);
    }
    if store.records().is_empty() {
        print("no trusted files\n")?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&["", "ACCEPTED", "FILE"], Overflow::Wrap);
    for record in store.records() {
        let state = state(&record.path);
        let mark = match state {
            "trusted" => StatusIcon::Good,
            "changed" => StatusIcon::Half,
            _ => StatusIcon::Off,
        };
        let accepted = Cell::new(&record.accepted).styled(FAINT);
        table.row([mark.cell(state), accepted, Cell::new(&record.path.display().to_string())]);
    }
    print(&table.render(terminal_width(&std::io::stdout()), 0))?;
    Ok(Exit::Done)
}

fn open() -> Result<TrustStore, Failure> {
    TrustStore::open().map_err(|error| store_failure(&error))
}

fn store_failure(error: &TrustStoreError) -> Failure {
    let failure = Failure::usage(error.to_string()).caused_by_source(error);
    error.fix().into_iter().fold(failure, Failure::hint)
}
