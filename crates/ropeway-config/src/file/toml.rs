//! The TOML parser.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::node::{Entry, Node, NodeKind};
use super::position::LineIndex;
use super::problem::ConfigProblem;
use super::tree_checks::{MAX_DEPTH, too_deep};

pub(super) fn parse(text: &str) -> Result<Node, ConfigProblem> {
    let lines = LineIndex::new(text);
    let table = DeTable::parse(text).map_err(|error| {
        let position = lines.position(error.span().map_or(0, |span| span.start));
        ConfigProblem::new(position, "", format!("invalid TOML: {}", error.message().replace('\n', " ")))
    })?;
    let position = lines.position(table.span().start);
    Ok(Node::map(position, entries(table.into_inner(), &lines, 0)?))
}

fn entries(table: DeTable<'_>, lines: &LineIndex<'_>, depth: usize) -> Result<Vec<Entry>, ConfigProblem> {
    let entry = |(key, value): (Spanned<std::borrow::Cow<'_, str>>, _)| {
        let position = lines.position(key.span().start);
        Ok(Entry { key: key.into_inner().into_owned(), position, value: tree(value, lines, depth + 1)? })
    };
    let mut entries: Vec<Entry> = table.into_iter().map(entry).collect::<Result<_, ConfigProblem>>()?;
    // The parser sorts keys by name.
    entries.sort_by_key(|entry| entry.position);
    Ok(entries)
}

fn tree(value: Spanned<DeValue<'_>>, lines: &LineIndex<'_>, depth: usize) -> Result<Node, ConfigProblem> {
    let position = lines.position(value.span().start);
    if depth > MAX_DEPTH {
        return Err(too_deep(position));
    }
    let plain = |text: String| NodeKind::Scalar { text, plain: true };
    let kind = match value.into_inner() {
        DeValue::String(text) => NodeKind::Scalar { text: text.into_owned(), plain: false },
        DeValue::Integer(number) => {
            let decimal = i64::from_str_radix(number.as_str(), number.radix()).map(|number| number.to_string());
            plain(decimal.unwrap_or_else(|_| number.as_str().to_owned()))
        }
        DeValue::Float(number) => plain(number.as_str().to_owned()),
        DeValue::Boolean(truth) => plain(truth.to_string()),
        DeValue::Datetime(time) => NodeKind::Scalar { text: time.to_string(), plain: false },
        DeValue::Array(items) => {
            let items = items.into_iter().map(|item| tree(item, lines, depth + 1));
            NodeKind::List(items.collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => NodeKind::Map(entries(table, lines, depth)?),
    };
    Ok(Node { position, kind })
}
