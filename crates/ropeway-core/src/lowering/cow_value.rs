//! JSON under construction that borrows its unchanged parts.

use std::borrow::Cow;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum CowValue<'d> {
    Value(Cow<'d, Value>),
    Object(CowObject<'d>),
    List(Vec<CowValue<'d>>),
}

/// An object under construction, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CowObject<'d>(Vec<(Cow<'d, str>, CowValue<'d>)>);

impl<'d> CowValue<'d> {
    /// Returns the value, if it is complete.
    pub(super) fn value(&self) -> Option<&Value> {
        match self {
            Self::Value(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the object, if it is under construction.
    pub(super) fn object(&self) -> Option<&CowObject<'d>> {
        match self {
            Self::Object(object) => Some(object),
            _ => None,
        }
    }
}

impl From<Value> for CowValue<'_> {
    fn from(value: Value) -> Self {
        Self::Value(Cow::Owned(value))
    }
}

impl<'d> From<CowObject<'d>> for CowValue<'d> {
    fn from(object: CowObject<'d>) -> Self {
        Self::Object(object)
    }
}

impl<'d> CowObject<'d> {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    pub(super) fn get(&self, key: &str) -> Option<&CowValue<'d>> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut CowValue<'d>> {
        self.0.iter_mut().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    /// Returns a complete value.
    pub(super) fn value(&self, key: &str) -> Option<&Value> {
        self.get(key).and_then(CowValue::value)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Sets an entry, in place if it exists.
    pub(super) fn set(&mut self, key: impl Into<Cow<'d, str>>, value: impl Into<CowValue<'d>>) {
        let (key, value) = (key.into(), value.into());
        match self.get_mut(&key) {
            Some(known) => *known = value,
            None => self.0.push((key, value)),
        }
    }

    /// Adds an entry that does not exist yet.
    pub(super) fn push(&mut self, key: impl Into<Cow<'d, str>>, value: impl Into<CowValue<'d>>) {
        self.0.push((key.into(), value.into()));
    }

    pub(super) fn remove(&mut self, key: &str) -> Option<CowValue<'d>> {
        let at = self.0.iter().position(|(known, _)| known == key)?;
        Some(self.0.remove(at).1)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &CowValue<'d>)> {
        self.0.iter().map(|(key, value)| (&**key, value))
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|(key, _)| key)
    }

    /// Sets all entries of another object.
    pub(super) fn extend(&mut self, other: Self) {
        for (key, value) in other.0 {
            self.set(key, value);
        }
    }

    /// Splits the entries by a predicate.
    pub(super) fn partition(self, wanted: impl Fn(&str) -> bool) -> (Self, Self) {
        let (wanted, others) = self.0.into_iter().partition(|(key, _)| wanted(key));
        (Self(wanted), Self(others))
    }
}

impl Serialize for CowValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Value(value) => value.serialize(serializer),
            Self::Object(object) => object.serialize(serializer),
            Self::List(list) => list.serialize(serializer),
        }
    }
}

impl Serialize for CowObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}
