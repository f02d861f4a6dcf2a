//! `ropeway config path`: lists the searched paths.

use anstyle::Style;
use serde_json::{Value, json};

use crate::config::config_paths::{self, ConfigPath, Origin, PathReason};
use crate::connect::command_context::CommandContext;
use crate::failure::{Exit, Failure};
use crate::terminal::status_icon::StatusIcon;
use crate::terminal::table::{Cell, Overflow, Table};
use crate::terminal::text::{terminal_width, wrap};
use crate::trust::{TrustStatus, TrustStore};

const FAINT: Style = Style::new().dimmed();

/// List the searched paths and the configuration file in use
#[derive(Debug, clap::Args)]
pub(super) struct Path;

impl Path {
    pub(super) fn run(&self, context: &CommandContext) -> Result<Exit, Failure> {
        let places = config_paths::candidates();
        let used = config_paths::select(&places);
        let records: Vec<Value> = places.iter().map(record).collect();
        let record = json!({"used": used.map(|place| &place.path), "locations": records, "places": records});
        context.print(&record, || show(&places, used))?;
        Ok(Exit::Done)
    }
}

/// Returns a candidate as JSON, with `trust` for project files.
fn record(place: &ConfigPath) -> Value {
    let mut record = json!(place);
    if let Some(trust) = trust_of(place) {
        record["trust"] = json!(trust);
    }
    record
}

/// Returns a project file's trust state.
fn trust_of(place: &ConfigPath) -> Option<&'static str> {
    if !place.exists || place.origin() != Origin::Project {
        return None;
    }
    let text = ropeway_config::read_text(&place.path).ok()?;
    Some(match TrustStore::open().as_ref().map(|store| store.status(&place.path, &text)) {
        Ok(TrustStatus::Trusted) => "trusted",
        Ok(TrustStatus::Changed(_)) => "changed",
        Ok(TrustStatus::Declined | TrustStatus::Unknown) | Err(_) => "untrusted",
    })
}

fn show(places: &[ConfigPath], used: Option<&ConfigPath>) -> String {
    let width = terminal_width(&std::io::stdout());
    let mut table = Table::new(&["", "SOURCE", "FILE"], Overflow::Wrap);
    if !places.iter().any(|place| place.reason == PathReason::Variable) {
        let variable = format!("{} (not set)", config_paths::VARIABLE);
        table.row([StatusIcon::Off.cell("absent"), Cell::new("variable"), Cell::new(&variable).styled(FAINT)]);
    }
    for place in places {
        let is_used = used == Some(place);
        let (mark, word) = match (is_used, place.exists) {
            _ if place.is_foreign => (StatusIcon::Bad, "ignored"),
            (true, true) => (StatusIcon::Good, "used"),
            (true, false) => (StatusIcon::Bad, "missing"),
            (false, true) => (StatusIcon::Half, "not used"),
            (false, false) => (StatusIcon::Off, "absent"),
        };
        let reason = match place.reason {
            PathReason::Variable => "variable",
            PathReason::Folder => "directory",
            PathReason::User => "user",
        };
        let style = if place.exists || is_used { Style::new() } else { FAINT };
        let trust = match trust_of(place) {
            Some("trusted") => ", trusted",
            Some("changed") => ", changed since it was trusted",
            Some(_) => ", not trusted",
            None => "",
        };
        let path = Cell::new(&format!("{}{trust}", place.path.display())).styled(style);
        table.row([mark.cell(word), Cell::new(reason), path]);
    }
    let mut text = table.render(width, 0);
    if places.iter().any(|place| place.is_foreign) {
        let words = "Ignored files are owned by another user. Use them with `--config FILE`.";
        text.push_str(&format!("\n{}", wrap(words, width.unwrap_or(usize::MAX), 0)));
    }
    if used.is_none() {
        let words = "No configuration file found; using the demo server. Create one with `ropeway add`, `ropeway add \
                     --global` or `ropeway import`.";
        text.push_str(&format!("\n{}", wrap(words, width.unwrap_or(usize::MAX), 0)));
    }
    text
}
