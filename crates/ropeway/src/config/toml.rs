//! TOML as a tree.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::node::{DEPTH, Entry, Kind, Lines, Node, too_deep};
use super::problem::ConfigProblem;

/// The tree of the text.
pub(super) fn parse(text: &str) -> Result<Node, ConfigProblem> {
    let lines = Lines::new(text);
    let table = DeTable::parse(text).map_err(|error| {
        let place = lines.place(error.span().map_or(0, |span| span.start));
        ConfigProblem::at(place, "", format!("text that is not TOML: {}", error.message().replace('\n', " ")), "")
    })?;
    let place = lines.place(table.span().start);
    Ok(Node::map(place, entries(table.into_inner(), &lines, 0)?))
}

fn entries(table: DeTable<'_>, lines: &Lines<'_>, depth: usize) -> Result<Vec<Entry>, ConfigProblem> {
    let entry = |(key, value): (Spanned<std::borrow::Cow<'_, str>>, _)| {
        let place = lines.place(key.span().start);
        Ok(Entry { key: key.into_inner().into_owned(), place, value: tree(value, lines, depth + 1)? })
    };
    let mut entries: Vec<Entry> = table.into_iter().map(entry).collect::<Result<_, ConfigProblem>>()?;
    // The parser sorts by name; the file has an order.
    entries.sort_by_key(|entry| entry.place);
    Ok(entries)
}

fn tree(value: Spanned<DeValue<'_>>, lines: &Lines<'_>, depth: usize) -> Result<Node, ConfigProblem> {
    let place = lines.place(value.span().start);
    if depth > DEPTH {
        return Err(too_deep(place));
    }
    let plain = |text: String| Kind::Scalar { text, plain: true };
    let kind = match value.into_inner() {
        DeValue::String(text) => Kind::Scalar { text: text.into_owned(), plain: false },
        DeValue::Integer(number) => {
            let decimal = i64::from_str_radix(number.as_str(), number.radix()).map(|number| number.to_string());
            plain(decimal.unwrap_or_else(|_| number.as_str().to_owned()))
        }
        DeValue::Float(number) => plain(number.as_str().to_owned()),
        DeValue::Boolean(truth) => plain(truth.to_string()),
        DeValue::Datetime(time) => Kind::Scalar { text: time.to_string(), plain: false },
        DeValue::Array(items) => {
            let items = items.into_iter().map(|item| tree(item, lines, depth + 1));
            Kind::List(items.collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => Kind::Map(entries(table, lines, depth)?),
    };
    Ok(Node { place, kind })
}
