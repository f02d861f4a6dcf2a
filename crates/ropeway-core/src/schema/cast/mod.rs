//! Converting a value to its schema, with a record of all changes.

mod change;
mod fill;
mod keywords;
mod matching;
mod pass;
#[cfg(test)]
mod tests;
mod value;

use std::borrow::Cow;

use serde_json::Value;

pub use self::change::ValueChange;
pub(crate) use self::fill::fill_required;
use self::pass::CastPass;
use super::bounds;
use super::reason;
use crate::tool::ArgumentProblem;

/// Maximum combined depth of schema and value.
const MAX_DESCENT: usize = 256;

/// Maximum number of passes until nothing changes.
const MAX_PASSES: usize = 4;

/// What [`cast`] returns: a value converted to its schema as far as possible.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Cast<'v> {
    /// The converted value; borrowed if nothing was changed.
    pub value: Cow<'v, Value>,
    /// The changes, in order.
    pub changes: Vec<ValueChange>,
    /// The parts that do not match the schema and could not be converted. They are unchanged in `value`.
    pub warnings: Vec<ArgumentProblem>,
}

/// Converts a value to a schema.
///
/// Fills in defaults, converts a scalar with the wrong type if the conversion is unambiguous (`"3"` to `3`), and
/// removes properties that the schema forbids. Everything else stays unchanged. Casting the result again changes
/// nothing.
pub fn cast<'v>(schema: &Value, value: &'v Value) -> Cast<'v> {
    let untouched =
        |why: &str| Cast { value: Cow::Borrowed(value), changes: Vec::new(), warnings: vec![reason::problem("", why)] };
    if let Err(bound) = bounds::schema_size(schema) {
        return untouched(&format!("not cast: the schema is too large ({bound})"));
    }
    if let Err(bound) = bounds::size(value) {
        return untouched(&format!("not cast: {bound}"));
    }
    let mut current = Cow::Borrowed(value);
    let mut changes = Vec::new();
    for _ in 0..MAX_PASSES {
        let mut pass = CastPass::over(schema);
        let next = pass.cast(schema, &current, MAX_DESCENT);
        if pass.steps == 0 {
            return untouched("not cast: too much work");
        }
        match next {
            Some(next) if next != *current => {
                changes.append(&mut pass.changes);
                current = Cow::Owned(next);
            }
            _ => return Cast { value: current, changes, warnings: pass.warnings },
        }
    }
    untouched("not cast: the schema contradicts itself")
}
