//! Resolving references inside a document.

use std::collections::HashMap;

use serde_json::Value;

use crate::schema::pointer;

/// A document in which references are resolved. Nothing is fetched.
pub(super) struct Document<'d> {
    root: &'d Value,
    /// Collected for the first reference by name.
    names: Option<NamedSchemas<'d>>,
    /// References that were resolved before.
    known: HashMap<String, Option<&'d Value>>,
}

/// A document's schemas that have an anchor or an id.
#[derive(Default)]
struct NamedSchemas<'d> {
    anchors: HashMap<&'d str, &'d Value>,
    addresses: Vec<(&'d str, &'d Value)>,
}

impl<'d> Document<'d> {
    pub(super) fn new(root: &'d Value) -> Self {
        Self { root, names: None, known: HashMap::new() }
    }

    /// Resolves a reference, if it points into this document.
    pub(super) fn resolve(&mut self, reference: &str) -> Option<&'d Value> {
        if let Some(known) = self.known.get(reference) {
            return *known;
        }
        let target = self.look_up(reference);
        self.known.insert(reference.to_owned(), target);
        target
    }

    fn look_up(&mut self, reference: &str) -> Option<&'d Value> {
        let (address, fragment) = reference.split_at(reference.find('#').unwrap_or(reference.len()));
        let is_pointer = matches!(fragment, "" | "#") || fragment.starts_with("#/");
        if is_pointer && address.is_empty() {
            return if fragment.is_empty() { None } else { pointer::resolve(self.root, fragment) };
        }
        let root = self.root;
        let names = self.names.get_or_insert_with(|| NamedSchemas::of(root));
        let base = if address.is_empty() { root } else { names.identified(address)? };
        if is_pointer {
            pointer::resolve(base, if fragment.is_empty() { "#" } else { fragment })
        } else {
            names.anchors.get(fragment.strip_prefix('#')?).copied()
        }
    }
}

impl<'d> NamedSchemas<'d> {
    fn of(root: &'d Value) -> Self {
        let mut names = Self::default();
        names.collect(root);
        names
    }

    fn collect(&mut self, value: &'d Value) {
        match value {
            Value::Object(map) => {
                for keyword in ["$anchor", "$dynamicAnchor"] {
                    if let Some(Value::String(anchor)) = map.get(keyword) {
                        self.anchors.entry(anchor).or_insert(value);
                    }
                }
                for keyword in ["$id", "id"] {
                    if let Some(Value::String(address)) = map.get(keyword) {
                        self.addresses.push((address.trim_end_matches('#'), value));
                    }
                }
                map.values().for_each(|value| self.collect(value));
            }
            Value::Array(items) => items.iter().for_each(|item| self.collect(item)),
            _ => {}
        }
    }

    /// Returns the schema whose `$id` is this address, or ends with it.
    fn identified(&self, address: &str) -> Option<&'d Value> {
        let is_it =
            |known: &str| known == address || known.strip_suffix(address).is_some_and(|front| front.ends_with('/'));
        self.addresses.iter().find(|(known, _)| is_it(known)).map(|(_, schema)| *schema)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reference_is_resolved_by_pointer_anchor_and_id() {
        let root = json!({
            "$id": "https://example.invalid/root.json",
            "$defs": {"a": {"$anchor": "here"}, "b": {"$id": "b.json", "$defs": {"c": {"type": "null"}}}},
        });
        let mut document = Document::new(&root);
        let a = &root["$defs"]["a"];
        let c = &root["$defs"]["b"]["$defs"]["c"];
        assert_eq!(document.resolve("#"), Some(&root));
        assert_eq!(document.resolve("#/$defs/a"), Some(a));
        assert_eq!(document.resolve("#here"), Some(a));
        assert_eq!(document.resolve("root.json#/$defs/a"), Some(a));
        assert_eq!(document.resolve("https://example.invalid/root.json#here"), Some(a));
        assert_eq!(document.resolve("b.json#/$defs/c"), Some(c));
        assert_eq!(document.resolve("b.json"), Some(&root["$defs"]["b"]));
        for nowhere in ["", "#there", "#/$defs/x", "oot.json", "https://example.invalid/other.json"] {
            assert_eq!(document.resolve(nowhere), None, "{nowhere}");
        }
    }
}
