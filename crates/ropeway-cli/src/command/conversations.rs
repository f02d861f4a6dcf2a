//! `ropeway chat --list`: lists saved conversations.

use std::path::Path;

use serde::Serialize;

use crate::chat::store::{ConversationEntry, ConversationHeader, ConversationStore};
use crate::connect::command_context::CommandContext;
use crate::failure::{Exit, Failure};
use crate::output::print::{print, print_json, say};
use crate::terminal::style::warning;
use crate::terminal::table::{Cell, Overflow, Table};
use crate::terminal::text::{clean_line, cut, terminal_width};

/// Narrower terminals have no room for a table.
const NARROWEST_TABLE: usize = 72;

/// Returns the ids and titles of all conversations, newest first, for completion.
pub(super) fn titles() -> Vec<(String, String)> {
    let store = ConversationStore::open().ok().flatten();
    let entries = store.and_then(|store| store.list().ok()).unwrap_or_default();
    entries.into_iter().filter_map(|entry| Some((entry.id, entry.header.ok()?.title))).collect()
}

/// A conversation as JSON.
#[derive(Serialize)]
#[serde(untagged)]
enum ConversationRecord<'a> {
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

impl<'a> ConversationRecord<'a> {
    fn new(entry: &'a ConversationEntry) -> Self {
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

/// Prints the conversations, latest first. Unreadable files are warnings.
pub(super) fn list(context: &CommandContext) -> Result<Exit, Failure> {
    let entries = ConversationStore::required()?.list()?;
    if context.json {
        print_json(&entries.iter().map(ConversationRecord::new).collect::<Vec<_>>())?;
        return Ok(Exit::Done);
    }
    let headers: Vec<&ConversationHeader> = entries.iter().filter_map(|entry| entry.header.as_ref().ok()).collect();
    match terminal_width(&std::io::stdout()) {
        _ if headers.is_empty() => say("No saved conversations.\n"),
        Some(width) if width < NARROWEST_TABLE => print(&stacked(&headers, width))?,
        width => print(&table(&headers).render(width, 0))?,
    }
    for entry in &entries {
        if let Err(problem) = &entry.header {
            say(&warning(&format!("could not read `{}`: {problem}", entry.path.display())));
        }
    }
    Ok(Exit::Done)
}

/// One row per conversation.
fn table(headers: &[&ConversationHeader]) -> Table {
    let mut table = Table::new(&["ID", "LAST TURN", "TURNS", "FOLDER", "TITLE"], Overflow::Cut);
    for header in headers {
        let turns = header.turns.to_string();
        let cells = [&header.id, &local_time(&header.updated), &turns, &below_home(&header.folder), &header.title];
        table.row(cells.map(|text| Cell::new(text)));
    }
    table
}

/// Two lines per conversation, for narrow terminals.
fn stacked(headers: &[&ConversationHeader], width: usize) -> String {
    let lines = headers.iter().map(|header| {
        let turns = if header.turns == 1 { "1 turn".to_owned() } else { format!("{} turns", header.turns) };
        let time = local_time(&header.updated);
        let about = format!("{}  {time} · {turns} · {}", header.id, below_home(&header.folder));
        let title = format!("    {}", clean_line(&header.title));
        format!("{}\n{}\n", cut(&clean_line(&about), width), cut(&title, width))
    });
    lines.collect()
}

/// Formats a time in the local time zone.
fn local_time(time: &str) -> String {
    let local = time.parse::<jiff::Timestamp>().map(|time| time.to_zoned(jiff::tz::TimeZone::system()));
    local.map_or_else(|_| time.to_owned(), |time| time.strftime("%Y-%m-%d %H:%M").to_string())
}

/// Formats a directory with `~` for the home directory.
fn below_home(folder: &str) -> String {
    let home = std::env::var("HOME").ok().and_then(|home| std::fs::canonicalize(home).ok());
    match home.and_then(|home| Path::new(folder).strip_prefix(home).ok().map(Path::to_owned)) {
        Some(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
        Some(rest) => format!("~/{}", rest.display()),
        None => folder.to_owned(),
    }
}
