//! Checks for this crate's parsers, for the fuzz targets.

use super::cache::CachedDefinitions;
use ropeway_core::secret::Redactor;
use ropeway_core::tool::{Alias, ToolDefinition};

/// Cached definitions stay the same when they are written and read again.
pub fn cache(data: &[u8]) {
    let server = Alias::new("server");
    let Some(cached) = CachedDefinitions::parse(&server, data) else { return };
    // A schema that is nested too deeply is not written.
    let is_deep = |tool: &ToolDefinition| {
        let output = tool.output_schema.as_ref();
        tool.input_schema.parse_error().is_some() || output.is_some_and(|schema| schema.parse_error().is_some())
    };
    if cached.tools.iter().any(is_deep) {
        return;
    }
    let again = CachedDefinitions::parse(&server, cached.to_text(&server, &Redactor::default()).as_bytes());
    assert_eq!(again, Some(cached));
}
