//! A schema as it is written down: what stays as it was is borrowed from where it was.

use std::borrow::Cow;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

/// JSON in the making.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Written<'d> {
    Value(Cow<'d, Value>),
    Object(Object<'d>),
    List(Vec<Written<'d>>),
}

/// An object in the making, its entries in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Object<'d>(Vec<(Cow<'d, str>, Written<'d>)>);

impl<'d> Written<'d> {
    /// The value, unless it is in the making.
    pub(super) fn value(&self) -> Option<&Value> {
        match self {
            Self::Value(value) => Some(value),
            _ => None,
        }
    }

    /// The object, if it is one in the making.
    pub(super) fn object(&self) -> Option<&Object<'d>> {
        match self {
            Self::Object(object) => Some(object),
            _ => None,
        }
    }
}

impl From<Value> for Written<'_> {
    fn from(value: Value) -> Self {
        Self::Value(Cow::Owned(value))
    }
}

impl<'d> From<Object<'d>> for Written<'d> {
    fn from(object: Object<'d>) -> Self {
        Self::Object(object)
    }
}

impl<'d> Object<'d> {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    pub(super) fn get(&self, key: &str) -> Option<&Written<'d>> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut Written<'d>> {
        self.0.iter_mut().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    /// A value that is not in the making.
    pub(super) fn value(&self, key: &str) -> Option<&Value> {
        self.get(key).and_then(Written::value)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Sets an entry, in its place if it has one.
    pub(super) fn set(&mut self, key: impl Into<Cow<'d, str>>, value: impl Into<Written<'d>>) {
        let (key, value) = (key.into(), value.into());
        match self.get_mut(&key) {
            Some(known) => *known = value,
            None => self.0.push((key, value)),
        }
    }

    /// Adds an entry that is not there yet.
    pub(super) fn push(&mut self, key: impl Into<Cow<'d, str>>, value: impl Into<Written<'d>>) {
        self.0.push((key.into(), value.into()));
    }

    pub(super) fn remove(&mut self, key: &str) -> Option<Written<'d>> {
        let at = self.0.iter().position(|(known, _)| known == key)?;
        Some(self.0.remove(at).1)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Written<'d>)> {
        self.0.iter().map(|(key, value)| (&**key, value))
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|(key, _)| key)
    }

    /// Sets all entries of another one.
    pub(super) fn extend(&mut self, other: Self) {
        for (key, value) in other.0 {
            self.set(key, value);
        }
    }

    /// Those entries that are wanted, and the others.
    pub(super) fn partition(self, wanted: impl Fn(&str) -> bool) -> (Self, Self) {
        let (wanted, others) = self.0.into_iter().partition(|(key, _)| wanted(key));
        (Self(wanted), Self(others))
    }
}

impl Serialize for Written<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Value(value) => value.serialize(serializer),
            Self::Object(object) => object.serialize(serializer),
            Self::List(list) => list.serialize(serializer),
        }
    }
}

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}
