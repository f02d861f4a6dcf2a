//! Arguments: how those that a model writes differ from those that the tool wants, there and back.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// What is different about a value. Where nothing is, there is no shape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shape {
    /// By the dialect's names.
    properties: HashMap<String, Argument>,
    /// What is different about values that have no name in the schema.
    others: Option<Box<Shape>>,
    /// What is different about the items of an array.
    items: Option<Box<Shape>>,
}

/// What is different about one argument.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Argument {
    /// The tool's own name for it.
    name: String,
    null: Null,
    shape: Option<Shape>,
}

/// What it means when a model writes `null`. Of what several alternatives say of a name, the last of these counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Null {
    /// Nothing that anybody asked for.
    Unknown,
    /// It had to, for what it wanted to leave out.
    Absent,
    /// The tool itself takes it.
    Meant,
}

impl Shape {
    /// It, if there is anything different.
    pub(super) fn some(self) -> Option<Self> {
        let is_empty = self.properties.is_empty() && self.others.is_none() && self.items.is_none();
        (!is_empty).then_some(self)
    }

    /// Tells of an argument.
    pub(super) fn property(&mut self, wire: &str, name: &str, null: Null, shape: Option<Self>) {
        if wire != name || null != Null::Unknown || shape.is_some() {
            self.join_property(wire.to_owned(), Argument { name: name.to_owned(), null, shape });
        }
    }

    /// Tells of the items of an array.
    pub(super) fn items(&mut self, shape: Option<Self>) {
        join(&mut self.items, shape.map(Box::new));
    }

    /// Tells of values that have no name in the schema.
    pub(super) fn others(&mut self, shape: Option<Self>) {
        join(&mut self.others, shape.map(Box::new));
    }

    /// Tells what may be different as well: a value may be of one or the other shape.
    pub(super) fn join(&mut self, other: Option<Self>) {
        let Some(other) = other else { return };
        for (wire, argument) in other.properties {
            self.join_property(wire, argument);
        }
        join(&mut self.others, other.others);
        join(&mut self.items, other.items);
    }

    fn join_property(&mut self, wire: String, argument: Argument) {
        let Some(known) = self.properties.get_mut(&wire) else {
            self.properties.insert(wire, argument);
            return;
        };
        known.null = known.null.max(argument.null);
        match &mut known.shape {
            Some(shape) => shape.join(argument.shape),
            none => *none = argument.shape,
        }
    }

    /// A value as the dialect knows it.
    pub(super) fn to_wire(&self, value: &Value) -> Value {
        match value {
            Value::Object(map) => Value::Object(self.object_to_wire(map)),
            Value::Array(items) => match &self.items {
                Some(shape) => items.iter().map(|item| shape.to_wire(item)).collect(),
                None => value.clone(),
            },
            _ => value.clone(),
        }
    }

    pub(super) fn object_to_wire(&self, map: &Map<String, Value>) -> Map<String, Value> {
        let entries = map.iter().map(|(name, value)| {
            let found = self.properties.iter().find(|(_, argument)| argument.name == *name);
            let (wire, shape) = match found {
                Some((wire, argument)) => (wire, argument.shape.as_ref()),
                None => (name, self.others.as_deref()),
            };
            (wire.clone(), shape.map_or_else(|| value.clone(), |shape| shape.to_wire(value)))
        });
        entries.collect()
    }

    /// A value as the tool wants it.
    pub(super) fn back(&self, value: Value) -> Value {
        match value {
            Value::Object(map) => Value::Object(self.object_back(map)),
            Value::Array(items) => match &self.items {
                Some(shape) => items.into_iter().map(|item| shape.back(item)).collect(),
                None => Value::Array(items),
            },
            value => value,
        }
    }

    pub(super) fn object_back(&self, map: Map<String, Value>) -> Map<String, Value> {
        let entries = map.into_iter().filter_map(|(wire, value)| {
            let Some(argument) = self.properties.get(&wire) else {
                let value = match &self.others {
                    Some(shape) => shape.back(value),
                    None => value,
                };
                return Some((wire, value));
            };
            if argument.null == Null::Absent && value.is_null() {
                return None;
            }
            let value = match &argument.shape {
                Some(shape) => shape.back(value),
                None => value,
            };
            Some((argument.name.clone(), value))
        });
        entries.collect()
    }
}

fn join(shape: &mut Option<Box<Shape>>, other: Option<Box<Shape>>) {
    match shape {
        Some(shape) => shape.join(other.map(|other| *other)),
        None => *shape = other,
    }
}
