//! The JSON parser, which accepts comments and trailing commas.

use jsonc_parser::ast::{ObjectPropName, Value};
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use super::node::{Entry, Node, NodeKind};
use super::position::LineIndex;
use super::problem::ConfigProblem;
use super::tree_checks::{MAX_DEPTH, check_duplicate_keys, empty_file, too_deep};
use ropeway_core::json;

pub(super) fn parse(text: &str) -> Result<Node, ConfigProblem> {
    let lines = LineIndex::new(text);
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
    // The repaired text has the same positions as the file.
    let text = &*json::without_lone_surrogates(text);
    let parsed = parse_to_ast(text, &CollectOptions::default(), &options).map_err(|error| {
        let reason = error.kind().to_string().to_lowercase();
        // The range for an object that does not end starts at its beginning, far from the mistake.
        let is_open = reason == "unterminated object" || reason == "unterminated array";
        let at = if is_open { text.trim_end().len() } else { error.range().start };
        ConfigProblem::new(lines.position(at), "", format!("invalid JSON: {reason}"))
    })?;
    tree(parsed.value.ok_or_else(empty_file)?, &lines, 0)
}

fn tree(value: Value<'_>, lines: &LineIndex<'_>, depth: usize) -> Result<Node, ConfigProblem> {
    let position = lines.position(value.start());
    if depth > MAX_DEPTH {
        return Err(too_deep(position));
    }
    let plain = |text: &str| NodeKind::Scalar { text: text.to_owned(), plain: true };
    let kind = match value {
        Value::StringLit(text) => NodeKind::Scalar { text: text.value.into_owned(), plain: false },
        Value::NumberLit(number) => plain(number.value),
        Value::BooleanLit(truth) => plain(if truth.value { "true" } else { "false" }),
        Value::NullKeyword(_) => plain("null"),
        Value::Array(array) => {
            let items = array.elements.into_iter().map(|item| tree(item, lines, depth + 1));
            NodeKind::List(items.collect::<Result<_, _>>()?)
        }
        Value::Object(object) => {
            let entries = object.properties.into_iter().map(|property| {
                let position = lines.position(property.name.start());
                let key = match property.name {
                    ObjectPropName::String(text) => text.value.into_owned(),
                    ObjectPropName::Word(word) => word.value.to_owned(),
                };
                Ok(Entry { key, position, value: tree(property.value, lines, depth + 1)? })
            });
            let entries: Vec<Entry> = entries.collect::<Result<_, _>>()?;
            check_duplicate_keys(&entries)?;
            NodeKind::Map(entries)
        }
    };
    Ok(Node { position, kind })
}
