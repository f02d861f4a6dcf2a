//! The names of arguments that a dialect does not take, and the names that stand for them.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::name::{self, Alphabet};

/// The names that stand for others, the same in a whole tool: whoever looks at a name alone knows which one is meant.
pub(super) struct Names<'d> {
    document: &'d Value,
    /// What names are made of, if the dialect cares.
    alphabet: Option<&'static Alphabet>,
    given: HashMap<String, String>,
    /// Every key of the document, and every name that was given. Collected when the first name is given.
    taken: HashSet<String>,
    /// Is there a name that has to be changed? Asked once.
    has_others: Option<bool>,
}

impl<'d> Names<'d> {
    pub(super) fn new(document: &'d Value, alphabet: Option<&'static Alphabet>) -> Self {
        Self { document, alphabet, given: HashMap::new(), taken: HashSet::new(), has_others: None }
    }

    /// Is it a name that the dialect takes?
    pub(super) fn takes(&self, name: &str) -> bool {
        self.alphabet.is_none_or(|alphabet| alphabet.takes(name))
    }

    /// Has any argument a name that has to be changed?
    pub(super) fn has_others(&mut self) -> bool {
        let (document, alphabet) = (self.document, self.alphabet);
        let look = || alphabet.is_some_and(|alphabet| speaks_of_others(document, alphabet));
        *self.has_others.get_or_insert_with(look)
    }

    /// The dialect's name for an argument.
    pub(super) fn wire_name<'n>(&mut self, name: &'n str) -> Cow<'n, str> {
        let Some(alphabet) = self.alphabet.filter(|alphabet| !alphabet.takes(name)) else {
            return Cow::Borrowed(name);
        };
        if let Some(given) = self.given.get(name) {
            return Cow::Owned(given.clone());
        }
        if self.taken.is_empty() {
            collect_keys(self.document, &mut self.taken);
        }
        let mut wire = alphabet.legal(name);
        if !self.taken.insert(wire.clone()) {
            wire = name::hashed(&wire, name, alphabet.most);
            let mut numbers = 2_u32..;
            while !self.taken.insert(wire.clone()) {
                let number = numbers.next().unwrap_or_default();
                wire = name::ending(&wire, &format!("_{number}"), alphabet.most);
            }
        }
        self.given.insert(name.to_owned(), wire.clone());
        Cow::Owned(wire)
    }
}

/// Every key in a document: no new name may be one of them.
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

/// Does a document speak of arguments that have names of another alphabet?
fn speaks_of_others(value: &Value, alphabet: &Alphabet) -> bool {
    let is_other = |name: &str| !alphabet.takes(name);
    match value {
        Value::Object(map) => map.iter().any(|(keyword, value)| {
            let is_here = match (keyword.as_str(), value) {
                ("properties" | "dependentSchemas" | "dependentRequired" | "dependencies", Value::Object(map)) => {
                    map.keys().any(|name| is_other(name)) || map.values().flat_map(strings).any(is_other)
                }
                ("required", value) => strings(value).any(is_other),
                _ => false,
            };
            is_here || speaks_of_others(value, alphabet)
        }),
        Value::Array(items) => items.iter().any(|item| speaks_of_others(item, alphabet)),
        _ => false,
    }
}

fn strings(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}
