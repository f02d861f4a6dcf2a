//! Typed clients and scripts, generated from a server's tool schemas.
//!
//! Names, descriptions, keys and values come from servers. They reach the output only as identifiers (`identifiers`), string literals
//! and comments (`text`), never as code.

mod identifiers;
mod interface;
mod model;
mod reader;
mod rust;
mod rust_layout;
mod rust_types;
mod script;
#[cfg(test)]
mod tests;
mod text;
mod typescript;

pub(crate) use self::interface::{ServerInterface, ToolInterface};
pub(crate) use self::text::MARK;

/// The language of generated code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Language {
    /// TypeScript module
    Ts,
    /// Rust module for the `ropeway` library
    Rust,
    /// Python script with one command per tool
    Cli,
}

impl Language {
    /// Returns the code for a server. Equal servers have equal code.
    pub(crate) fn generate(self, server: &ServerInterface) -> String {
        match self {
            Self::Ts => typescript::generate(server),
            Self::Rust => rust::generate(server),
            Self::Cli => script::generate(server),
        }
    }
}
