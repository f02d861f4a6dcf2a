//! Schema and value size limits.

use serde_json::Value;

/// Maximum nesting depth for a schema, and for a value that is checked against one.
///
/// The deepest of thousands of real schemas has about forty levels; serde_json itself reads 128.
pub const MAX_DEPTH: usize = 128;

/// Maximum number of JSON values in a schema. Real ones have up to a few thousand.
pub const MAX_NODES: usize = 50_000;

/// Maximum bytes in a schema's keys and strings. Real ones have up to 50 kB.
pub const MAX_BYTES: usize = 2 * 1024 * 1024;

/// The limit that a schema or a value exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BoundsError {
    #[error("more than {MAX_DEPTH} levels deep")]
    Depth,
    #[error("more than {MAX_NODES} values")]
    Nodes,
    #[error("more than {MAX_BYTES} bytes of text")]
    Bytes,
}

/// A JSON value's size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JsonSize {
    /// Value count, including itself.
    pub(crate) nodes: usize,
    /// Total bytes in its keys and strings.
    pub(crate) bytes: usize,
}

impl JsonSize {
    fn add(&mut self, value: &Value, depth: usize) -> Result<(), BoundsError> {
        let depth = depth.checked_sub(1).ok_or(BoundsError::Depth)?;
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

/// Returns a value's size, unless it is nested too deeply.
pub(super) fn size(value: &Value) -> Result<JsonSize, BoundsError> {
    let mut size = JsonSize::default();
    size.add(value, MAX_DEPTH)?;
    Ok(size)
}

/// Returns a schema's size, unless it exceeds a limit.
pub(crate) fn schema_size(schema: &Value) -> Result<JsonSize, BoundsError> {
    match size(schema)? {
        JsonSize { nodes, .. } if nodes > MAX_NODES => Err(BoundsError::Nodes),
        JsonSize { bytes, .. } if bytes > MAX_BYTES => Err(BoundsError::Bytes),
        size => Ok(size),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::mem::ManuallyDrop;

    use serde_json::json;

    use super::*;

    /// Returns a deep value. It is leaked, because dropping it would overflow the stack.
    pub(in crate::schema) fn nested(levels: usize, wrap: impl Fn(Value) -> Value) -> ManuallyDrop<Value> {
        ManuallyDrop::new((0..levels).fold(Value::from(1), |inner, _| wrap(inner)))
    }

    pub(in crate::schema) fn object(key: &str, value: Value) -> Value {
        [(key, value)].into_iter().collect()
    }

    #[test]
    fn the_error_names_the_exceeded_limit() {
        let deep = nested(10_000, |inner| Value::Array(vec![inner]));
        assert_eq!(schema_size(&deep), Err(BoundsError::Depth));
        assert_eq!(size(&deep), Err(BoundsError::Depth));
        assert_eq!(schema_size(&json!({"enum": vec![0; MAX_NODES]})), Err(BoundsError::Nodes));
        assert_eq!(schema_size(&json!({"title": "x".repeat(MAX_BYTES + 1)})), Err(BoundsError::Bytes));
        assert_eq!(schema_size(&json!({"a": ["bc", 1]})), Ok(JsonSize { nodes: 4, bytes: 3 }));
    }
}
