//! Lowering the schema for structured output.

use serde_json::Value;

use super::argument_mapping::ArgumentMapping;
use super::change::SchemaChange;
use super::root::{self, LoweredRoot};
use super::target::SchemaTarget;
use super::tool::reason_of;
use super::walker::SchemaError;
use crate::message::Dialect;

/// A schema for structured output, lowered for one dialect.
#[derive(Debug)]
#[non_exhaustive]
pub struct LoweredOutput {
    /// The lowered schema.
    pub schema: Value,
    /// Whether the provider can enforce the schema.
    pub strict: bool,
    /// The changes to the schema.
    pub changes: Vec<SchemaChange>,
    /// How the output differs from the schema, if it does.
    mapping: Option<ArgumentMapping>,
}

/// A schema that cannot be lowered for structured output.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unsupported output schema: {0}")]
pub struct LowerError(String);

impl LoweredOutput {
    /// Translates the model's output into the original schema's form.
    pub fn from_wire(&self, answer: Value) -> Value {
        match &self.mapping {
            Some(mapping) => mapping.to_tool(answer),
            None => answer,
        }
    }
}

/// Lowers a schema for structured output, in strict mode if possible.
///
/// # Errors
///
/// Returns an error if the schema does not describe an object, allows no value or is too large.
pub fn lower_output(schema: &Value, dialect: Dialect) -> Result<LoweredOutput, LowerError> {
    let strict = SchemaTarget::of(dialect, true);
    let (root, is_strict) = match root::lower(schema, strict) {
        Ok(root) => (root, strict.is_strict()),
        Err(SchemaError::NotStrict(_)) => {
            (root::lower(schema, SchemaTarget::of(dialect, false)).map_err(cannot)?, false)
        }
        Err(error) => return Err(cannot(error)),
    };
    let LoweredRoot { mut schema, notes, mapping, changes, .. } = root;
    notes.append_to(&mut schema);
    let schema = serde_json::to_value(&schema).map_err(|error| LowerError(error.to_string()))?;
    Ok(LoweredOutput { schema, strict: is_strict, changes, mapping })
}

fn cannot(error: SchemaError) -> LowerError {
    LowerError(reason_of(error))
}
