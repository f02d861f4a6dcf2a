//! Lenient object deserialization: fields may be missing, null or repeated.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use ropeway_core::loose_json::BorrowedText;

/// An object that is read field by field.
pub(super) trait ObjectFields<'a>: Default {
    /// Reads a field's value from `object`.
    fn read_field<M: MapAccess<'a>>(&mut self, name: Cow<'a, str>, object: &mut M) -> Result<(), M::Error>;
}

/// Deserializes an object field by field. Null is an empty object.
#[derive(Debug)]
pub(super) struct LooseObject<T>(pub(super) T);

impl<'de, T: ObjectFields<'de>> Deserialize<'de> for LooseObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LooseObjectVisitor(PhantomData))
    }
}

struct LooseObjectVisitor<T>(PhantomData<T>);

impl<'de, T: ObjectFields<'de>> Visitor<'de> for LooseObjectVisitor<T> {
    type Value = LooseObject<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E: Error>(self) -> Result<LooseObject<T>, E> {
        Ok(LooseObject(T::default()))
    }

    fn visit_map<M: MapAccess<'de>>(self, mut object: M) -> Result<LooseObject<T>, M::Error> {
        let mut known = T::default();
        while let Some(BorrowedText(name)) = object.next_key()? {
            known.read_field(name, &mut object)?;
        }
        Ok(LooseObject(known))
    }
}
