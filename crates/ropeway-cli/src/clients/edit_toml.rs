//! Entries in a client's TOML file.

use serde_json::Value;
use toml::Table;

use super::edit::{Edit, EntryEditor, FileProblem};

/// A client's file whose entries are sub-tables of one table.
pub(crate) struct TomlEntries {
    /// The table with the entries: `mcp_servers`.
    pub(crate) key: &'static str,
}

impl EntryEditor for TomlEntries {
    fn entry(&self, text: &str, name: &str) -> Result<Option<Value>, FileProblem> {
        let table = parse(text)?;
        let entry = table.get(self.key).and_then(|entries| entries.get(name));
        entry.map(|entry| serde_json::to_value(entry).map_err(|error| FileProblem(error.to_string()))).transpose()
    }

    fn add(&self, text: &str, name: &str, entry: &Value) -> Result<Vec<Edit>, FileProblem> {
        let before = parse(text)?;
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let mut added = String::new();
        if !text.is_empty() {
            added.push_str(if text.ends_with('\n') { "\n" } else { "\n\n" });
        }
        added.push_str(&format!("[{}.{}]\n", self.key, key(name)));
        for (member, value) in entry.as_object().into_iter().flatten() {
            added.push_str(&format!("{} = {}\n", key(member), value_text(value)));
        }
        let edits = vec![Edit::insert(text.len(), added.replace('\n', newline))];
        self.check(&before, &edits, text, name, true)?;
        Ok(edits)
    }

    fn remove(&self, text: &str, name: &str) -> Result<Vec<Edit>, FileProblem> {
        let before = parse(text)?;
        let edits = self.lines_of(text, name).into_iter().map(Edit::remove).collect::<Vec<_>>();
        self.check(&before, &edits, text, name, false)?;
        Ok(edits)
    }
}

impl TomlEntries {
    /// Returns an error unless the edits add or remove the entry and change nothing else.
    fn check(&self, before: &Table, edits: &[Edit], text: &str, name: &str, is_added: bool) -> Result<(), FileProblem> {
        let unusual = || FileProblem(format!("`{}.{name}` is written in a form that must be edited by hand", self.key));
        let mut after = parse(&Edit::apply(edits, text).ok_or_else(unusual)?)?;
        let has_entry = after.get(self.key).is_some_and(|entries| entries.get(name).is_some());
        let mut before = before.clone();
        for table in [&mut before, &mut after] {
            if let Some(entries) = table.get_mut(self.key).and_then(toml::Value::as_table_mut) {
                entries.remove(name);
                if entries.is_empty() {
                    table.remove(self.key);
                }
            }
        }
        if before == after && has_entry == is_added { Ok(()) } else { Err(unusual()) }
    }

    /// Returns the lines that an entry's table and sub-tables take, with the blank line before each.
    fn lines_of(&self, text: &str, name: &str) -> Vec<std::ops::Range<usize>> {
        let mut found = Vec::new();
        let (mut at, mut start) = (0, None);
        let mut blank = None;
        for line in text.split_inclusive('\n') {
            if let Some(header) = header(line) {
                let is_own = header.len() >= 2 && header[0] == self.key && header[1] == name;
                match (is_own, start) {
                    (true, None) => start = Some(blank.unwrap_or(at)),
                    (false, Some(from)) => {
                        found.push(from..blank.unwrap_or(at));
                        start = None;
                    }
                    _ => {}
                }
            }
            // Comments and blank lines before the next table belong to that table.
            let is_between = line.trim().is_empty() || (line.trim_start().starts_with('#') && blank.is_some());
            blank = if is_between { blank.or(Some(at)) } else { None };
            at += line.len();
        }
        if let Some(from) = start {
            found.push(from..blank.unwrap_or(at));
        }
        found
    }
}

fn parse(text: &str) -> Result<Table, FileProblem> {
    text.parse().map_err(|error: toml::de::Error| FileProblem(format!("invalid TOML: {}", error.message())))
}

/// Returns a table header's parts.
fn header(line: &str) -> Option<Vec<String>> {
    let line = line.trim();
    line.strip_prefix('[').filter(|rest| !rest.starts_with('['))?;
    // The parser knows quotes, spaces and comments.
    let mut table: Table = line.parse().ok()?;
    let mut parts = Vec::new();
    while let Some((key, toml::Value::Table(inner))) = table.into_iter().next() {
        parts.push(key);
        table = inner;
    }
    Some(parts)
}

fn key(name: &str) -> String {
    let is_bare = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if is_bare { name.to_owned() } else { quoted(name) }
}

/// Formats strings and string lists.
fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(items) => format!("[{}]", items.iter().map(value_text).collect::<Vec<_>>().join(", ")),
        value => value.to_string(),
    }
}

/// Formats a basic string. JSON's escapes are a subset of TOML's, but JSON does not escape the delete
/// character.
fn quoted(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007F")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TOML: TomlEntries = TomlEntries { key: "mcp_servers" };

    const FILES: &[&str] = &[
        "",
        "model = \"x\"",
        "model = \"x\" # mine\n\n[mcp_servers.a]\ncommand = \"a\"\n\n[mcp_servers.a.env]\nK = \"v\"\n",
        "[mcp_servers.a]\ncommand = \"a\"\n\n# about b\n[b]\nc = [\n  1,\n]\n",
        "[[many]]\na = 1\n[[many]]\na = 2\n",
        "mcp_servers.a = {command = \"a\"}\n",
        "model = \"x\"\r\n\r\n[mcp_servers.a]\r\ncommand = \"a\"\r\n",
        "model = \"x\"\r\n[mcp_servers.a]\r\ncommand = \"a\"",
    ];

    #[test]
    fn an_added_table_is_found_and_undone() {
        let entry = json!({"command": "/bin/rope\"way", "args": ["serve", "--stdio"]});
        for text in FILES {
            let Ok(edits) = TOML.add(text, "ropeway", &entry) else {
                assert!(text.starts_with("mcp_servers.a"), "{text}");
                continue;
            };
            let edited = Edit::apply(&edits, text).expect("a text");
            assert_eq!(TOML.entry(&edited, "ropeway"), Ok(Some(entry.clone())), "{edited}");
            assert_eq!(Edit::apply(&Edit::undo(&edits), &edited).as_deref(), Some(*text));
            let removed = Edit::apply(&TOML.remove(&edited, "ropeway").expect("edits"), &edited).expect("a text");
            assert_eq!(TOML.entry(&removed, "ropeway"), Ok(None), "{removed}");
        }
    }

    #[test]
    fn a_table_between_others_is_removed_with_its_sub_tables() {
        let text = "[a]\nx = 1\n\n[mcp_servers.ropeway]\ncommand = \"r\"\n\n[mcp_servers.ropeway.env]\nA = \"b\"\n\n# about b\n[b]\n";
        let removed = Edit::apply(&TOML.remove(text, "ropeway").expect("edits"), text);
        assert_eq!(removed.as_deref(), Some("[a]\nx = 1\n\n# about b\n[b]\n"));
    }

    #[test]
    fn the_line_ends_of_the_file_are_kept() {
        let entry = json!({"command": "r", "args": ["serve", "--stdio"]});
        for text in FILES.iter().filter(|text| text.contains("\r\n")) {
            let added = Edit::apply(&TOML.add(text, "ropeway", &entry).expect("edits"), text).expect("a text");
            let (all, crlf) = (added.matches('\n').count(), added.matches("\r\n").count());
            assert_eq!(all, crlf, "{added:?}");
            let removed = Edit::apply(&TOML.remove(&added, "ropeway").expect("edits"), &added);
            assert_eq!(removed.as_deref().map(str::trim_end), Some(text.trim_end()));
        }
    }

    #[test]
    fn an_inline_entry_is_not_removed() {
        assert!(TOML.remove("mcp_servers.ropeway = {command = \"r\"}\n", "ropeway").is_err());
        assert!(TOML.add("not toml", "ropeway", &json!({})).is_err());
    }
}
