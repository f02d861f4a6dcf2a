//! Trust in project files: what a person has accepted, and what is shown before.

pub(crate) mod store;
pub(crate) mod summary;

pub(crate) use self::store::{Status, Store, StoreError};
pub(crate) use self::summary::{Section, Summary};
