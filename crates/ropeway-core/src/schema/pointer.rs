//! JSON Pointers (<https://www.rfc-editor.org/rfc/rfc6901>) and references inside a document.

use percent_encoding::percent_decode_str;
use serde_json::Value;

/// Appends a step to a JSON Pointer.
pub(crate) fn push(path: &mut String, step: &str) {
    path.push('/');
    for c in step.chars() {
        match c {
            '~' => path.push_str("~0"),
            '/' => path.push_str("~1"),
            c => path.push(c),
        }
    }
}

/// Resolves a `$ref`, if it points into the document.
pub fn resolve<'a>(document: &'a Value, reference: &str) -> Option<&'a Value> {
    let fragment = percent_decode_str(reference.strip_prefix('#')?).decode_utf8().ok()?;
    match &*fragment {
        "" => Some(document),
        pointer if pointer.starts_with('/') => document.pointer(pointer),
        anchor => anchored(document, anchor),
    }
}

/// Finds the subschema with this `$anchor`.
fn anchored<'a>(schema: &'a Value, anchor: &str) -> Option<&'a Value> {
    match schema {
        Value::Object(map) => {
            let named = |keyword| map.get(keyword).and_then(Value::as_str) == Some(anchor);
            if named("$anchor") || named("$dynamicAnchor") {
                Some(schema)
            } else {
                map.values().find_map(|value| anchored(value, anchor))
            }
        }
        Value::Array(items) => items.iter().find_map(|value| anchored(value, anchor)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_references_into_the_document_are_resolved() {
        let document = json!({"$defs": {"a b": {"x/y": 1}, "c": {"$anchor": "here", "type": "null"}}});
        assert_eq!(resolve(&document, "#"), Some(&document));
        assert_eq!(resolve(&document, "#/$defs/a%20b/x~1y"), Some(&json!(1)));
        assert_eq!(resolve(&document, "#here"), Some(&document["$defs"]["c"]));
        assert_eq!(resolve(&document, "#/$defs/none"), None);
        assert_eq!(resolve(&document, "#/%zz%"), None);
        assert_eq!(resolve(&document, "https://example.com/schema.json"), None);
        assert_eq!(resolve(&document, "other.json#/$defs/c"), None);
    }

    #[test]
    fn a_step_is_escaped() {
        let mut path = String::from("/a");
        push(&mut path, "b/c~d");
        assert_eq!(path, "/a/b~1c~0d");
    }
}
