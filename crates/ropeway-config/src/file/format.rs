//! File formats: detection, size limits and parsing into a tree.

use std::path::Path;

use super::node::Node;
use super::problem::{ConfigError, ConfigProblem};
use super::tree_checks::empty_file;
use super::{json, toml, yaml};

/// Maximum YAML or TOML file size in bytes.
const MAX_BYTES: usize = 4 << 20;

/// Maximum JSON file size in bytes. Other clients store other data in such files. JSON has no aliases that expand.
const MAX_JSON_BYTES: usize = 64 << 20;

/// Maximum servers per file.
pub(super) const MAX_SERVERS: usize = 10_000;

/// Returns the maximum file size in bytes, by extension.
pub(super) fn max_bytes(path: &Path) -> usize {
    if Format::of(path, "") == Format::Json { MAX_JSON_BYTES } else { MAX_BYTES }
}

pub(super) fn too_large(size: u64, max_bytes: usize) -> ConfigProblem {
    let size = size as f64 / f64::from(1 << 20);
    ConfigProblem::of_file(format!("file is too large: {size:.1} MiB (maximum: {} MiB)", max_bytes >> 20))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Yaml,
    Json,
    Toml,
}

impl Format {
    fn of(path: &Path, text: &str) -> Self {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("json" | "jsonc" | "json5") => Self::Json,
            Some("toml") => Self::Toml,
            Some("yaml" | "yml") => Self::Yaml,
            _ if text.trim_start().starts_with(['{', '/']) => Self::Json,
            _ => Self::Yaml,
        }
    }
}

/// Parses text from the file `origin`.
pub(super) fn parse_tree(text: &str, origin: &Path) -> Result<Node, ConfigError> {
    let fail = |problem| ConfigError::new(origin, vec![problem]);
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let max_bytes = max_bytes(origin);
    if text.len() > max_bytes {
        return Err(fail(too_large(text.len() as u64, max_bytes)));
    }
    if text.trim().is_empty() {
        return Err(fail(empty_file()));
    }
    let tree = match Format::of(origin, text) {
        Format::Yaml => yaml::parse(text),
        Format::Json => json::parse(text),
        Format::Toml => toml::parse(text),
    };
    let tree = tree.map_err(fail)?;
    check_server_count(&tree).map_err(fail)?;
    Ok(tree)
}

/// Rejects a file with too many servers, before any server is processed.
fn check_server_count(tree: &Node) -> Result<(), ConfigProblem> {
    const PATHS: [&[&str]; 8] = [
        &["servers"],
        &["extensions"],
        &["config", "servers"],
        &["services", "mcp"],
        &["mcpServers"],
        &["mcp_servers"],
        &["context_servers"],
        &["mcp", "servers"],
    ];
    let top_level = PATHS.iter().filter_map(|path| path.iter().try_fold(tree, |node, key| node.get(key)));
    let projects = tree.get("projects").map(Node::entries).unwrap_or_default();
    let of_projects = projects.iter().filter_map(|project| project.value.get("mcpServers"));
    let mut count = 0;
    for servers in top_level.chain(of_projects) {
        count += servers.items().len() + servers.entries().len();
        if count > MAX_SERVERS {
            let message = format!("too many servers: {count} (maximum: {MAX_SERVERS})");
            return Err(ConfigProblem::new(servers.position, "", message));
        }
    }
    Ok(())
}
