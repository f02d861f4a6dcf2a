//! Configuration files: parsing, validation, secret resolution, review, import and editing.
//!
//! Parsers ([`yaml`], [`json`], [`toml`]) produce a [`node::Node`] tree with positions. A [`document::Document`] splits
//! the tree into servers and settings, translating manifests and other clients' files to native keys on the way.
//! [`resolve`] turns the decoded [`raw`] records into settings, with references replaced by their values.

mod alias;
mod callback;
mod connection_warnings;
mod content;
mod decode;
mod decode_error;
mod document;
pub mod edit;
mod foreign;
mod format;
pub mod fuzz;
mod glob;
mod import;
mod json;
mod load;
mod manifest;
mod node;
mod position;
mod problem;
pub mod raw;
mod reference;
mod regular_file;
mod resolve;
mod resolve_document;
mod review;
mod secret_values;
mod secrets;
#[cfg(test)]
mod tests;
mod toml;
mod tool_reference;
mod tree_checks;
mod variables;
mod yaml;
mod yaml_writer;

pub use self::content::content_digest;
pub use self::glob::Glob;
pub use self::import::{ForeignConfig, ForeignServer, is_manifest, read_foreign, read_foreign_in};
pub use self::load::read_text;
pub use self::problem::{ConfigError, ConfigProblem};
pub use self::raw::json_schema;
pub use self::regular_file::{open_regular, read_regular};
pub use self::review::{
    ChatReview, ConfigReview, ServerReview, TokenCommandReview, TransportReview, ValueReference, review,
};
pub use self::secrets::Secrets;
pub use self::tool_reference::{ToolReference, ToolReferenceKind, tool_references};
pub use self::variables::dotenv_variables;
