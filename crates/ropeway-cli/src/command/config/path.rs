//! `ropeway config path`: where the configuration file is looked for, and which one is used.

use anstyle::Style;
use serde_json::{Value, json};

use crate::command::Setting;
use crate::config::config_paths::{self, Origin, Place, Reason};
use crate::failure::{Exit, Failure};
use crate::output::print::{print, print_json};
use crate::terminal::status_icon::Mark;
use crate::terminal::table::{Cell, Overflow, Table};
use crate::terminal::text::{terminal_width, wrap};
use crate::trust::{Status, Store};

const FAINT: Style = Style::new().dimmed();

/// Show where the configuration file is looked for, and which one is used
#[derive(Debug, clap::Args)]
pub(super) struct Path;

impl Path {
    pub(super) fn run(&self, setting: &Setting) -> Result<Exit, Failure> {
        let places = config_paths::all();
        let used = config_paths::used(&places);
        match setting.json {
            true => {
                let places: Vec<Value> = places.iter().map(record).collect();
                print_json(&json!({"used": used.map(|place| &place.path), "places": places}))?;
            }
            false => print(&show(&places, used))?,
        }
        Ok(Exit::Done)
    }
}

/// A place for scripts. Whether a file is trusted is said of those that need it.
fn record(place: &Place) -> Value {
    let mut record = json!(place);
    if let Some(trust) = trust_of(place) {
        record["trust"] = json!(trust);
    }
    record
}

/// Whether a project file is trusted.
fn trust_of(place: &Place) -> Option<&'static str> {
    if !place.exists || place.origin() != Origin::Project {
        return None;
    }
    let text = ropeway::config::read_text(&place.path).ok()?;
    Some(match Store::open().as_ref().map(|store| store.status(&place.path, &text)) {
        Ok(Status::Trusted) => "trusted",
        Ok(Status::Changed(_)) => "changed",
        Ok(Status::Unknown) | Err(_) => "untrusted",
    })
}

fn show(places: &[Place], used: Option<&Place>) -> String {
    let width = terminal_width(&std::io::stdout());
    let mut table = Table::new(&["", "WHY", "FILE"], Overflow::Wrap);
    if !places.iter().any(|place| place.reason == Reason::Variable) {
        let variable = format!("{}, which is not set", config_paths::VARIABLE);
        table.row([Mark::Off.cell("absent"), Cell::new("variable"), Cell::new(&variable).styled(FAINT)]);
    }
    for place in places {
        let is_used = used == Some(place);
        let (mark, word) = match (is_used, place.exists) {
            _ if place.is_strange => (Mark::Bad, "not yours"),
            (true, true) => (Mark::Good, "used"),
            (true, false) => (Mark::Bad, "missing"),
            (false, true) => (Mark::Half, "not used"),
            (false, false) => (Mark::Off, "absent"),
        };
        let reason = match place.reason {
            Reason::Variable => "variable",
            Reason::Folder => "folder",
            Reason::User => "user",
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
    if places.iter().any(|place| place.is_strange) {
        let words =
            "A file above this folder that belongs neither to you nor to root is left alone. `--config FILE` uses it.";
        text.push_str(&format!("\n{}", wrap(words, width.unwrap_or(usize::MAX), 0)));
    }
    if used.is_none() {
        let words = "There is none, so the demo server is used. `ropeway add` makes one here, `ropeway add --global` the \
                     user's own, and `ropeway import` takes over the servers of other clients.";
        text.push_str(&format!("\n{}", wrap(words, width.unwrap_or(usize::MAX), 0)));
    }
    text
}
