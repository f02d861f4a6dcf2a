//! Translates tool definitions into the form that a model dialect accepts, and calls back into the form that tools
//! expect.

#![allow(
    clippy::ptr_arg,
    reason = "values stay borrowed from the definition, so it matters whether a `Cow` is borrowed"
)]

mod argument_mapping;
mod argument_names;
mod array;
mod branch;
mod change;
mod cow_value;
mod declaration;
mod keywords;
mod lowered;
pub mod name;
mod node;
mod note;
mod object;
mod output;
mod pattern;
mod reference;
mod root;
#[cfg(any(test, feature = "testing"))]
#[path = "tests/rules.rs"]
pub mod rules;
mod simple_keywords;
mod target;
#[cfg(test)]
mod tests;
mod tool;
mod toolset;
mod types;
mod unchanged;
mod values;
mod walker;

pub use self::change::{ChangeKind, SchemaChange};
pub use self::lowered::{LoweredTool, LoweredTools, OmittedTool};
pub use self::output::{LowerError, LoweredOutput, lower_output};
pub use self::toolset::Toolset;
pub use self::toolset::lower;
pub use self::toolset::{Cache, Lower};

use crate::message::Dialect;

/// Returns the maximum number of tools in a request, if the dialect has a limit.
pub fn most_tools(dialect: Dialect) -> Option<usize> {
    match dialect {
        Dialect::Anthropic => None,
        Dialect::Responses | Dialect::Chat => Some(128),
        Dialect::Gemini => Some(512),
    }
}

/// Returns a name that every dialect accepts, for a tool that has been removed.
pub fn wire_name(name: &str) -> String {
    name::plain(name)
}
