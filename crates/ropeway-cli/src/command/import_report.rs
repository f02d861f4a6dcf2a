//! The `ropeway import` report.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anstyle::{AnsiColor, Style};
use clap::ValueEnum as _;
use serde_json::{Value, json};

use crate::clients::{Client, ClientFile, Merged};
use crate::config::config_target::ConfigTarget;
use crate::secrets::literal::ExtractedSecret;
use crate::terminal::status_icon::StatusIcon;
use crate::terminal::table::{Cell, Overflow, Table};
use crate::terminal::text::{clean_line, counted, wrap};

const FAINT: Style = Style::new().dimmed();
const HEADING: Style = Style::new().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();

/// What an import did.
pub(super) struct ImportReport<'a> {
    pub(super) target: &'a ConfigTarget,
    pub(super) found: &'a [ClientFile],
    pub(super) merged: &'a Merged,
    pub(super) missing: BTreeMap<String, Vec<String>>,
    pub(super) other: Vec<String>,
    /// The file with the secrets.
    pub(super) secrets_file: Option<PathBuf>,
    /// Secrets that belong to servers already in the file.
    pub(super) of_known: Vec<ExtractedSecret>,
    /// The warning about `secrets_file`.
    pub(super) warning: Option<String>,
    pub(super) is_changed: bool,
    pub(super) dry_run: bool,
}

impl ImportReport<'_> {
    pub(super) fn show(&self, width: Option<usize>) -> String {
        let wide = width.unwrap_or(usize::MAX);
        let mut text = self.table(width);
        let note = |words: &str| {
            let wrapped = wrap(&clean_line(words), wide, 2);
            format!("{FAINT}·{FAINT:#} {}", wrapped.strip_prefix("  ").unwrap_or(&wrapped))
        };
        if !self.merged.notes.is_empty() {
            text.push('\n');
            self.merged.notes.iter().for_each(|words| text.push_str(&note(words)));
        }
        let file = clean_line(&self.target.shown());
        let count = match self.merged.servers.len() {
            0 => "no new servers".to_owned(),
            count => counted(count, "server"),
        };
        let words = match (self.merged.servers.is_empty(), self.dry_run) {
            (true, true) if self.is_changed => format!("Would replace secrets in {file} by references:"),
            (true, false) if self.is_changed => format!("Replaced secrets in {file} by references"),
            (true, _) => format!("{file} is unchanged: {count}"),
            (false, true) => format!("Would add {count} to {file}:"),
            (false, false) => format!("Added {count} to {file}"),
        };
        let mut end = String::new();
        if let Some(file) = &self.secrets_file {
            let verb = if self.dry_run { "would be" } else { "are" };
            let file = clean_line(&file.display().to_string());
            end.push_str(&wrap(&format!("Secrets {verb} stored in {file}, readable by you only."), wide, 0));
            if !self.of_known.is_empty() {
                let words = format!("Including servers already in the file: {}", secrets_in_words(&self.of_known));
                end.push_str(&wrap(&words, wide, 0));
            }
        }
        if let Some(warning) = &self.warning {
            let text = wrap(&format!("warning: {warning}"), wide, 0);
            end.push_str(&text.replacen("warning:", &format!("{WARNING}warning:{WARNING:#}"), 1));
        }
        // A dry run does not store them.
        let missing: Vec<_> = self.missing.iter().filter(|(name, _)| !(self.dry_run && self.is_kept(name))).collect();
        if !missing.is_empty() {
            let advice = match self.merged.servers.iter().any(|server| !server.taken.is_empty()) {
                true if self.secrets_file.is_none() => {
                    "Set these variables, or use --secrets to write the values found to a .env next to the file:"
                }
                _ => "Set these variables:",
            };
            end.push_str(&wrap(advice, wide, 0));
            let mut table = Table::new(&[], Overflow::Wrap);
            for (name, servers) in missing {
                table.row([Cell::new(name), Cell::new(&format!("for {}", servers.join(", "))).styled(FAINT)]);
            }
            end.push_str(&table.render(width, 2));
        }
        for name in &self.other {
            end.push_str(&note(&format!(
                "`{name}` is set to a different value in the environment than in the other client"
            )));
        }
        if !end.is_empty() {
            text.push_str(&format!("\n{end}"));
        }
        text.push_str(&format!("\n{HEADING}{}{HEADING:#}\n", wrap(&words, wide, 0).trim_end()));
        if !self.dry_run && !self.merged.servers.is_empty() {
            text.push_str(&format!("{FAINT}Next:{FAINT:#} ropeway health\n"));
        }
        text
    }

    fn is_kept(&self, name: &str) -> bool {
        let mut taken = self.merged.servers.iter().flat_map(|server| &server.taken).chain(&self.of_known);
        self.secrets_file.is_some() && taken.any(|taken| taken.name == *name)
    }

    fn table(&self, width: Option<usize>) -> String {
        if self.found.is_empty() {
            let titles: Vec<&str> = Client::value_variants().iter().map(|client| client.title()).collect();
            let words = format!("No configuration files of other clients found ({}).", titles.join(", "));
            return wrap(&words, width.unwrap_or(usize::MAX), 0);
        }
        let mut table = Table::new(&["CLIENT", "FILE", "SERVERS"], Overflow::Wrap);
        for found in self.found {
            let servers = match &found.servers {
                Ok(foreign) if foreign.servers.is_empty() => Cell::new("none").styled(FAINT),
                Ok(foreign) => {
                    let names: Vec<&str> = foreign.servers.iter().map(|server| server.server.alias.as_str()).collect();
                    Cell::new(&names.join(", "))
                }
                Err(error) => {
                    let bad = StatusIcon::Bad;
                    Cell::new(&format!("{} {error}", bad.symbol())).styled(bad.style()).hanging(2)
                }
            };
            table.row([Cell::new(found.title()), Cell::new(&short(&found.path)).styled(FAINT), servers]);
        }
        table.render(width, 0)
    }

    pub(super) fn json(&self, text: &str) -> Value {
        let found = |found: &ClientFile| {
            let mut record = json!({"client": found.client.map(Client::word), "file": found.path});
            match &found.servers {
                Ok(foreign) => {
                    let names: Vec<&str> = foreign.servers.iter().map(|server| server.server.alias.as_str()).collect();
                    record["servers"] = json!(names);
                }
                Err(error) => record["error"] = json!(error),
            }
            record
        };
        let servers: Vec<&str> = self.merged.servers.iter().map(|one| one.server.alias.as_str()).collect();
        let is_written = !self.dry_run && self.is_changed;
        let moved: BTreeSet<&str> = self.of_known.iter().map(|taken| taken.name.as_str()).collect();
        let found: Vec<Value> = self.found.iter().map(found).collect();
        // `found` was the earlier name for `sources`.
        json!({
            "file": self.target.path, "written": is_written, "sources": found, "found": found,
            "servers": servers, "notes": self.merged.notes, "missing": self.missing, "secrets_file": self.secrets_file,
            "moved": moved, "warning": self.warning, "text": self.dry_run.then_some(text),
        })
    }
}

/// Formats a path with `~` for the home directory.
pub(super) fn short(path: &Path) -> String {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    match home.as_ref().and_then(|home| path.strip_prefix(home).ok()) {
        Some(below) => format!("~/{}", below.display()),
        None => path.display().to_string(),
    }
}

/// Lists the variables that hold secrets.
pub(super) fn secrets_in_words(taken: &[ExtractedSecret]) -> String {
    let names: BTreeSet<String> = taken.iter().map(|taken| format!("`{}`", taken.name)).collect();
    Vec::from_iter(names).join(", ")
}
