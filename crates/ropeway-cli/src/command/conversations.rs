//! `ropeway chat --list`: the saved conversations.

use std::path::Path;

use serde::Serialize;

use super::{Setting, print, print_json, say};
use crate::chat::store::{Entry, Store};
use crate::failure::{Exit, Failure};
use crate::help::warning;
use crate::table::{Cell, Overflow, Table};
use crate::text::terminal_width;

/// A conversation for scripts.
#[derive(Serialize)]
#[serde(untagged)]
enum Listed<'a> {
    Whole {
        id: &'a str,
        title: &'a str,
        folder: &'a str,
        created: &'a str,
        updated: &'a str,
        turns: usize,
        model: &'a str,
        provider: &'a str,
        file: &'a Path,
    },
    Broken {
        id: &'a str,
        file: &'a Path,
        error: &'a str,
    },
}

impl<'a> Listed<'a> {
    fn new(entry: &'a Entry) -> Self {
        match &entry.header {
            Ok(header) => Self::Whole {
                id: &header.id,
                title: &header.title,
                folder: &header.folder,
                created: &header.created,
                updated: &header.updated,
                turns: header.turns,
                model: &header.model.model,
                provider: &header.model.place,
                file: &entry.path,
            },
            Err(error) => Self::Broken { id: &entry.id, file: &entry.path, error },
        }
    }
}

/// Prints the conversations, the latest first. A file that cannot be used is a warning.
pub(super) fn list(setting: &Setting) -> Result<Exit, Failure> {
    let entries = Store::required()?.list()?;
    if setting.json {
        print_json(&entries.iter().map(Listed::new).collect::<Vec<_>>())?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&["ID", "LAST TURN", "TURNS", "FOLDER", "TITLE"], Overflow::Cut);
    let mut count = 0;
    for header in entries.iter().filter_map(|entry| entry.header.as_ref().ok()) {
        count += 1;
        let turns = header.turns.to_string();
        let cells = [&header.id, &local_time(&header.updated), &turns, &below_home(&header.folder), &header.title];
        table.row(cells.map(|text| Cell::new(text)));
    }
    if count == 0 {
        say("No conversations are saved.\n");
    } else {
        print(&table.render(terminal_width(&std::io::stdout()), 0))?;
    }
    for entry in &entries {
        if let Err(problem) = &entry.header {
            say(&warning(&format!("could not read `{}`: {problem}", entry.path.display())));
        }
    }
    Ok(Exit::Done)
}

/// A time in the time zone of the user.
fn local_time(time: &str) -> String {
    let local = time.parse::<jiff::Timestamp>().map(|time| time.to_zoned(jiff::tz::TimeZone::system()));
    local.map_or_else(|_| time.to_owned(), |time| time.strftime("%Y-%m-%d %H:%M").to_string())
}

/// A folder as people write it: `~` is the home.
fn below_home(folder: &str) -> String {
    let home = std::env::var("HOME").ok().and_then(|home| std::fs::canonicalize(home).ok());
    match home.and_then(|home| Path::new(folder).strip_prefix(home).ok().map(Path::to_owned)) {
        Some(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
        Some(rest) => format!("~/{}", rest.display()),
        None => folder.to_owned(),
    }
}
