//! Output budget: how much of one tool result is sent to the model.

use ropeway_core::setters::setters;

/// How much of a tool result is sent to the model. Notices about omitted content are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputBudget {
    /// Maximum text bytes in all parts together, including resource URIs.
    pub text_bytes: usize,
    /// Maximum base64 bytes in all images, audio and other binary data together, including MIME types and URIs.
    pub blob_bytes: usize,
}

impl Default for OutputBudget {
    /// 50,000 text bytes, 5 MiB of base64.
    fn default() -> Self {
        Self { text_bytes: 50_000, blob_bytes: 5 << 20 }
    }
}

setters!(OutputBudget {
    /// Sets the maximum bytes of text.
    with_text_bytes(text_bytes: usize) => text_bytes = text_bytes;
    /// Sets the maximum bytes of base64.
    with_blob_bytes(blob_bytes: usize) => blob_bytes = blob_bytes;
});
