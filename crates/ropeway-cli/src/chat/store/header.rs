//! A stored conversation's header, and the checks on its file.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use ropeway_config::open_regular;
use serde::{Deserialize, Serialize};

use crate::model::SavedModel;
use crate::terminal::text::clean_line;
use crate::trust::ownership_problem;

/// File format version.
pub(super) const VERSION: u64 = 1;

/// Maximum conversation size in bytes.
pub(super) const MAX_BYTES: usize = 128 << 20;

/// Maximum header size in bytes.
pub(super) const MAX_HEADER: u64 = 64 << 10;

/// A conversation file's first line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ConversationHeader {
    /// The file format version; the key's name identifies the file.
    pub(super) ropeway_conversation: u64,
    pub(crate) id: String,
    /// The start of the first prompt.
    pub(crate) title: String,
    /// The chat's working directory.
    pub(crate) folder: String,
    pub(crate) model: SavedModel,
    /// The servers that the user chose; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) servers: Vec<String>,
    /// When the conversation started, in RFC 3339.
    pub(crate) created: String,
    /// When the last turn ended, in RFC 3339.
    pub(crate) updated: String,
    /// Number of prompts.
    pub(crate) turns: usize,
    /// The second line's length, which detects a truncated file.
    pub(super) bytes: u64,
    /// A random number, new at each save, which detects another writer.
    pub(super) revision: String,
}

/// Reads only the version, which newer formats keep.
#[derive(Deserialize)]
struct FormatVersion {
    ropeway_conversation: u64,
}

/// Reads a file's header. Also returns a reader for the rest.
pub(super) fn read_header(path: &Path, id: &str) -> Result<(ConversationHeader, BufReader<File>), String> {
    let metadata = std::fs::symlink_metadata(path).map_err(|error| error.to_string())?;
    if metadata.is_symlink() {
        return Err("is a symbolic link".to_owned());
    }
    let file = open_regular(path).map_err(|error| error.to_string())?;
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    let user = rustix::process::geteuid().as_raw();
    if let Some(problem) = ownership_problem(metadata.uid(), metadata.mode(), user) {
        return Err(format!("is {problem}"));
    }
    if metadata.len() > MAX_BYTES as u64 + MAX_HEADER {
        return Err(too_large());
    }
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    let length = reader.by_ref().take(MAX_HEADER).read_until(b'\n', &mut line).map_err(|error| error.to_string())?;
    if line.last() != Some(&b'\n') {
        let is_long = length as u64 == MAX_HEADER;
        return Err(if is_long { "not a ropeway conversation file" } else { "file is truncated" }.to_owned());
    }
    let FormatVersion { ropeway_conversation: version } =
        serde_json::from_slice(&line).map_err(|_| "not a ropeway conversation file".to_owned())?;
    if version != VERSION {
        let newer = if version > VERSION { "; update ropeway" } else { "" };
        return Err(format!("unsupported format version {version} (expected {VERSION}){newer}"));
    }
    let header: ConversationHeader =
        serde_json::from_slice(&line).map_err(|error| format!("invalid header: {error}"))?;
    if header.id != id {
        return Err(format!("contains conversation `{}`", clean_line(&header.id)));
    }
    if length as u64 + header.bytes != metadata.len() {
        return Err("file is truncated".to_owned());
    }
    Ok((header, reader))
}

pub(super) fn too_large() -> String {
    format!("larger than {} MiB", MAX_BYTES >> 20)
}
