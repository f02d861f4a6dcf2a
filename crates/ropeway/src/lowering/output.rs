//! The schema of an answer, as a dialect takes it.

use serde_json::Value;

use super::SchemaChange;
use super::arguments::Shape;
use super::form::Form;
use super::root::{self, Root};
use super::tool::words;
use super::walker::Failure;
use crate::message::Dialect;

/// The schema of an answer, as a dialect takes it.
#[derive(Debug)]
#[non_exhaustive]
pub struct LoweredOutput {
    /// The schema.
    pub schema: Value,
    /// Can the model be held to it?
    pub strict: bool,
    /// What was altered on the way.
    pub alterations: Vec<SchemaChange>,
    /// How the answer differs, if it does.
    shape: Option<Shape>,
}

/// Why a schema cannot be lowered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer cannot be asked for: {0}")]
pub struct LowerError(String);

impl LoweredOutput {
    /// The answer as the schema wanted it, of the one that the model wrote.
    pub fn from_wire(&self, answer: Value) -> Value {
        match &self.shape {
            Some(shape) => shape.back(answer),
            None => answer,
        }
    }
}

/// Lowers the schema of an answer for a dialect: strictly where that is possible.
pub fn lower_output(schema: &Value, dialect: Dialect) -> Result<LoweredOutput, LowerError> {
    let strict = Form::of(dialect, true);
    let (root, is_strict) = match root::lower(schema, strict) {
        Ok(root) => (root, strict.is_strict()),
        Err(Failure::NotStrict(_)) => (root::lower(schema, Form::of(dialect, false)).map_err(cannot)?, false),
        Err(failure) => return Err(cannot(failure)),
    };
    let Root { mut schema, notes, shape, alterations, .. } = root;
    notes.append_to(&mut schema);
    let schema = serde_json::to_value(&schema).map_err(|error| LowerError(error.to_string()))?;
    Ok(LoweredOutput { schema, strict: is_strict, alterations, shape })
}

fn cannot(failure: Failure) -> LowerError {
    LowerError(words(failure))
}
