//! Output: results on standard output, messages and logs on standard error.

pub(crate) mod exact_output;
pub(crate) mod excerpt;
pub(crate) mod json_output;
pub(crate) mod print;
pub(crate) mod render_result;
pub(crate) mod verbose_log;
