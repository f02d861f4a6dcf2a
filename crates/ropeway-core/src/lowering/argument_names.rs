//! Replacements for argument names that a dialect does not accept.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::name::{self, NameRules};

/// Argument name replacements. A name is replaced in the same way throughout a tool.
pub(super) struct ArgumentNames<'d> {
    document: &'d Value,
    /// The dialect's rules, if it has any.
    name_rules: Option<&'static NameRules>,
    given: HashMap<String, String>,
    /// All keys in the document, and all replacements. Collected for the first replacement.
    taken: HashSet<String>,
    /// Whether any name has to be replaced; computed once.
    needs_renaming: Option<bool>,
}

impl<'d> ArgumentNames<'d> {
    pub(super) fn new(document: &'d Value, name_rules: Option<&'static NameRules>) -> Self {
        Self { document, name_rules, given: HashMap::new(), taken: HashSet::new(), needs_renaming: None }
    }

    /// Returns `true` if the dialect accepts the name.
    pub(super) fn accepts(&self, name: &str) -> bool {
        self.name_rules.is_none_or(|name_rules| name_rules.accepts(name))
    }

    /// Returns `true` if any argument has to be renamed.
    pub(super) fn needs_renaming(&mut self) -> bool {
        let (document, name_rules) = (self.document, self.name_rules);
        let look = || name_rules.is_some_and(|name_rules| has_invalid_names(document, name_rules));
        *self.needs_renaming.get_or_insert_with(look)
    }

    /// Returns the dialect's name for an argument.
    pub(super) fn wire_name<'n>(&mut self, name: &'n str) -> Cow<'n, str> {
        let Some(name_rules) = self.name_rules.filter(|name_rules| !name_rules.accepts(name)) else {
            return Cow::Borrowed(name);
        };
        if let Some(given) = self.given.get(name) {
            return Cow::Owned(given.clone());
        }
        if self.taken.is_empty() {
            collect_keys(self.document, &mut self.taken);
        }
        let mut wire = name_rules.legal(name);
        if !self.taken.insert(wire.clone()) {
            wire = name::hashed(&wire, name, name_rules.most);
            let mut numbers = 2_u32..;
            while !self.taken.insert(wire.clone()) {
                let number = numbers.next().unwrap_or_default();
                wire = name::ending(&wire, &format!("_{number}"), name_rules.most);
            }
        }
        self.given.insert(name.to_owned(), wire.clone());
        Cow::Owned(wire)
    }
}

/// Collects all keys in a document, which replacements must not use.
fn collect_keys(value: &Value, keys: &mut HashSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                keys.insert(key.clone());
                collect_keys(value, keys);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_keys(item, keys)),
        _ => {}
    }
}

/// Returns `true` if a document contains argument names that violate the rules.
fn has_invalid_names(value: &Value, name_rules: &NameRules) -> bool {
    let is_other = |name: &str| !name_rules.accepts(name);
    match value {
        Value::Object(map) => map.iter().any(|(keyword, value)| {
            let is_here = match (keyword.as_str(), value) {
                ("properties" | "dependentSchemas" | "dependentRequired" | "dependencies", Value::Object(map)) => {
                    map.keys().any(|name| is_other(name)) || map.values().flat_map(strings).any(is_other)
                }
                ("required", value) => strings(value).any(is_other),
                _ => false,
            };
            is_here || has_invalid_names(value, name_rules)
        }),
        Value::Array(items) => items.iter().any(|item| has_invalid_names(item, name_rules)),
        _ => false,
    }
}

fn strings(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}
