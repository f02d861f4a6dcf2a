//! Checks of what this module reads, for any input. The fuzz targets run them.

use super::memory::Remembered;
use crate::secret::Redactor;
use crate::tool::Alias;

/// What is remembered of a server is the same after it was written and read.
pub(crate) fn memory(data: &[u8]) {
    let server = Alias::new("server");
    let Some(remembered) = Remembered::read(&server, data) else { return };
    // A schema that is too deep to be read is not written either.
    let is_deep = |tool: &crate::tool::ToolDefinition| {
        let output = tool.output_schema.as_ref();
        tool.input_schema.trouble().is_some() || output.is_some_and(|schema| schema.trouble().is_some())
    };
    if remembered.tools.iter().any(is_deep) {
        return;
    }
    let again = Remembered::read(&server, remembered.to_text(&server, &Redactor::default()).as_bytes());
    assert_eq!(again, Some(remembered));
}
