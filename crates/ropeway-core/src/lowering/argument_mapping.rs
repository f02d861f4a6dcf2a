//! Maps arguments between a dialect's form and the form that a tool expects.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// The differences between a value in the dialect and in the tool. `None` stands for no difference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ArgumentMapping {
    /// Keyed by the name in the dialect.
    properties: HashMap<String, PropertyMapping>,
    /// Mapping for properties that the schema does not name.
    others: Option<Box<ArgumentMapping>>,
    /// Mapping for an array's items.
    items: Option<Box<ArgumentMapping>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PropertyMapping {
    /// The name that the tool expects.
    name: String,
    null: NullMeaning,
    mapping: Option<ArgumentMapping>,
}

/// What a `null` from the model means. If alternatives differ, the greatest value wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NullMeaning {
    /// Unspecified; the value is passed on.
    Unknown,
    /// The schema requires every property, and `null` stands for a property that is left out.
    Absent,
    /// The tool itself accepts `null`.
    Accepted,
}

impl ArgumentMapping {
    /// Returns the mapping, unless it is empty.
    pub(super) fn into_option(self) -> Option<Self> {
        let is_empty = self.properties.is_empty() && self.others.is_none() && self.items.is_none();
        (!is_empty).then_some(self)
    }

    /// Adds a property.
    pub(super) fn property(&mut self, wire: &str, name: &str, null: NullMeaning, mapping: Option<Self>) {
        if wire != name || null != NullMeaning::Unknown || mapping.is_some() {
            self.merge_property(wire.to_owned(), PropertyMapping { name: name.to_owned(), null, mapping });
        }
    }

    /// Adds the mapping for array items.
    pub(super) fn items(&mut self, mapping: Option<Self>) {
        merge(&mut self.items, mapping.map(Box::new));
    }

    /// Adds the mapping for properties that the schema does not name.
    pub(super) fn others(&mut self, mapping: Option<Self>) {
        merge(&mut self.others, mapping.map(Box::new));
    }

    /// Merges an alternative's mapping: a value may have either form.
    pub(super) fn merge(&mut self, other: Option<Self>) {
        let Some(other) = other else { return };
        for (wire, argument) in other.properties {
            self.merge_property(wire, argument);
        }
        merge(&mut self.others, other.others);
        merge(&mut self.items, other.items);
    }

    fn merge_property(&mut self, wire: String, argument: PropertyMapping) {
        let Some(known) = self.properties.get_mut(&wire) else {
            self.properties.insert(wire, argument);
            return;
        };
        known.null = known.null.max(argument.null);
        match &mut known.mapping {
            Some(mapping) => mapping.merge(argument.mapping),
            none => *none = argument.mapping,
        }
    }

    /// Translates a value into the dialect's form.
    pub(super) fn to_wire(&self, value: &Value) -> Value {
        match value {
            Value::Object(map) => Value::Object(self.object_to_wire(map)),
            Value::Array(items) => match &self.items {
                Some(mapping) => items.iter().map(|item| mapping.to_wire(item)).collect(),
                None => value.clone(),
            },
            _ => value.clone(),
        }
    }

    pub(super) fn object_to_wire(&self, map: &Map<String, Value>) -> Map<String, Value> {
        let entries = map.iter().map(|(name, value)| {
            let found = self.properties.iter().find(|(_, argument)| argument.name == *name);
            let (wire, mapping) = match found {
                Some((wire, argument)) => (wire, argument.mapping.as_ref()),
                None => (name, self.others.as_deref()),
            };
            (wire.clone(), mapping.map_or_else(|| value.clone(), |mapping| mapping.to_wire(value)))
        });
        entries.collect()
    }

    /// Translates a value into the form that the tool expects.
    pub(super) fn to_tool(&self, value: Value) -> Value {
        match value {
            Value::Object(map) => Value::Object(self.object_to_tool(map)),
            Value::Array(items) => match &self.items {
                Some(mapping) => items.into_iter().map(|item| mapping.to_tool(item)).collect(),
                None => Value::Array(items),
            },
            value => value,
        }
    }

    pub(super) fn object_to_tool(&self, map: Map<String, Value>) -> Map<String, Value> {
        let entries = map.into_iter().filter_map(|(wire, value)| {
            let Some(argument) = self.properties.get(&wire) else {
                let value = match &self.others {
                    Some(mapping) => mapping.to_tool(value),
                    None => value,
                };
                return Some((wire, value));
            };
            if argument.null == NullMeaning::Absent && value.is_null() {
                return None;
            }
            let value = match &argument.mapping {
                Some(mapping) => mapping.to_tool(value),
                None => value,
            };
            Some((argument.name.clone(), value))
        });
        entries.collect()
    }
}

fn merge(mapping: &mut Option<Box<ArgumentMapping>>, other: Option<Box<ArgumentMapping>>) {
    match mapping {
        Some(mapping) => mapping.merge(other.map(|other| *other)),
        None => *mapping = other,
    }
}
