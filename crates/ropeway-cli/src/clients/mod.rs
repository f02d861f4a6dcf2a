//! Servers from other MCP clients, such as Claude Desktop and Cursor.

mod discover;
mod edit;
mod edit_json;
mod edit_toml;
mod edit_yaml;
mod entry;
mod known_secrets;
mod merge;

pub(crate) use self::discover::{Client, ClientFile, ClientPaths, find, open};
pub(crate) use self::edit::{Edit, FileProblem};
pub(crate) use self::entry::{COMMAND_KEYS, COMMON_KEY, EntryForm, InstallTarget, URL_KEYS, is_own_entry};
pub(crate) use self::known_secrets::KnownSecrets;
pub(crate) use self::merge::{ImportTarget, Merged, MergedServer, merge};
