//! JSON as a tree, with the comments and trailing commas that people put into settings.

use jsonc_parser::ast::{ObjectPropName, Value};
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use super::node::{DEPTH, Entry, Kind, Lines, Node, too_deep};
use super::problem::ConfigProblem;
use super::yaml::{check_keys, empty};
use crate::json;

/// The tree of the text.
pub(super) fn parse(text: &str) -> Result<Node, ConfigProblem> {
    let lines = Lines::new(text);
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    // A place in the repaired text is the same place in the file.
    let text = &*json::without_lone_surrogates(text);
    let parsed = parse_to_ast(text, &CollectOptions::default(), &options).map_err(|error| {
        let what = error.kind().to_string().to_lowercase();
        ConfigProblem::at(lines.place(error.range().start), "", format!("text that is not JSON: {what}"), "")
    })?;
    tree(parsed.value.ok_or_else(empty)?, &lines, 0)
}

fn tree(value: Value<'_>, lines: &Lines<'_>, depth: usize) -> Result<Node, ConfigProblem> {
    let place = lines.place(value.start());
    if depth > DEPTH {
        return Err(too_deep(place));
    }
    let plain = |text: &str| Kind::Scalar { text: text.to_owned(), plain: true };
    let kind = match value {
        Value::StringLit(text) => Kind::Scalar { text: text.value.into_owned(), plain: false },
        Value::NumberLit(number) => plain(number.value),
        Value::BooleanLit(truth) => plain(if truth.value { "true" } else { "false" }),
        Value::NullKeyword(_) => plain("null"),
        Value::Array(array) => {
            let items = array.elements.into_iter().map(|item| tree(item, lines, depth + 1));
            Kind::List(items.collect::<Result<_, _>>()?)
        }
        Value::Object(object) => {
            let entries = object.properties.into_iter().map(|property| {
                let place = lines.place(property.name.start());
                let key = match property.name {
                    ObjectPropName::String(text) => text.value.into_owned(),
                    ObjectPropName::Word(word) => word.value.to_owned(),
                };
                Ok(Entry { key, place, value: tree(property.value, lines, depth + 1)? })
            });
            let entries: Vec<Entry> = entries.collect::<Result<_, _>>()?;
            check_keys(&entries)?;
            Kind::Map(entries)
        }
    };
    Ok(Node { place, kind })
}
