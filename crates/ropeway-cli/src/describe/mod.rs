//! Tools for people: schemas, signatures, examples and full descriptions.

pub(crate) mod example;
pub(crate) mod outline;
pub(crate) mod schema;
pub(crate) mod signature;
pub(crate) mod tool;
pub(crate) mod types;

pub(crate) use self::tool::describe;
