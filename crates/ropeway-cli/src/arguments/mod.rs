//! Command-line arguments: tool names, argument syntax and spelling suggestions.

pub(crate) mod argument;
pub(crate) mod call_syntax;
pub(crate) mod command_rewrite;
pub(crate) mod command_words;
mod file_value;
pub(crate) mod names;
mod nested;
