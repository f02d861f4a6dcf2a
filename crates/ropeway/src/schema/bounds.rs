//! Bounds: how large a schema or a value may be before we decline to work on it.

use serde_json::Value;

/// How deep the JSON of a schema, or of a value that is checked against one, may nest.
///
/// The deepest of thousands of real schemas nests about forty levels; serde_json itself reads 128.
pub const MAX_DEPTH: usize = 128;

/// How many JSON values a schema may consist of. Real ones have up to a few thousand.
pub const MAX_NODES: usize = 50_000;

/// How many bytes the keys and strings of a schema may have. Real ones have up to 50 kB.
pub const MAX_BYTES: usize = 2 * 1024 * 1024;

/// Which bound a schema or a value passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OutOfBounds {
    /// It nests too deep.
    #[error("it nests deeper than {MAX_DEPTH} levels")]
    Depth,
    /// It has too many parts.
    #[error("it has more than {MAX_NODES} values")]
    Nodes,
    /// It has too much text.
    #[error("it has more than {MAX_BYTES} bytes of text")]
    Bytes,
}

/// How much there is of a JSON value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    /// How many values it consists of, itself included.
    pub(crate) nodes: usize,
    /// How many bytes its keys and strings have.
    pub(crate) bytes: usize,
}

impl Size {
    fn add(&mut self, value: &Value, depth: usize) -> Result<(), OutOfBounds> {
        let depth = depth.checked_sub(1).ok_or(OutOfBounds::Depth)?;
        self.nodes += 1;
        match value {
            Value::String(text) => self.bytes += text.len(),
            Value::Array(items) => items.iter().try_for_each(|item| self.add(item, depth))?,
            Value::Object(map) => map.iter().try_for_each(|(key, value)| {
                self.bytes += key.len();
                self.add(value, depth)
            })?,
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
        Ok(())
    }
}

/// The size of a value that is flat enough to be walked.
pub(super) fn size(value: &Value) -> Result<Size, OutOfBounds> {
    let mut size = Size::default();
    size.add(value, MAX_DEPTH)?;
    Ok(size)
}

/// The size of a schema that is small enough to work on.
pub(crate) fn schema_size(schema: &Value) -> Result<Size, OutOfBounds> {
    match size(schema)? {
        Size { nodes, .. } if nodes > MAX_NODES => Err(OutOfBounds::Nodes),
        Size { bytes, .. } if bytes > MAX_BYTES => Err(OutOfBounds::Bytes),
        size => Ok(size),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::mem::ManuallyDrop;

    use serde_json::json;

    use super::*;

    /// A deep value. It is leaked, because dropping it would overflow the stack.
    pub(in crate::schema) fn nested(levels: usize, wrap: impl Fn(Value) -> Value) -> ManuallyDrop<Value> {
        ManuallyDrop::new((0..levels).fold(Value::from(1), |inner, _| wrap(inner)))
    }

    /// An object with one property.
    pub(in crate::schema) fn object(key: &str, value: Value) -> Value {
        [(key, value)].into_iter().collect()
    }

    #[test]
    fn each_bound_is_named_when_it_is_passed() {
        let deep = nested(10_000, |inner| Value::Array(vec![inner]));
        assert_eq!(schema_size(&deep), Err(OutOfBounds::Depth));
        assert_eq!(size(&deep), Err(OutOfBounds::Depth));
        assert_eq!(schema_size(&json!({"enum": vec![0; MAX_NODES]})), Err(OutOfBounds::Nodes));
        assert_eq!(schema_size(&json!({"title": "x".repeat(MAX_BYTES + 1)})), Err(OutOfBounds::Bytes));
        assert_eq!(schema_size(&json!({"a": ["bc", 1]})), Ok(Size { nodes: 4, bytes: 3 }));
    }
}
