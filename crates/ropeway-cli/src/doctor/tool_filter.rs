//! Checks a configuration file's tool filters against the server's tools.

use std::collections::BTreeSet;
use std::sync::Arc;

use ropeway_bridge::registry::{ToolShape, ToolShapeError};
use ropeway_config::{ServerEntry, ToolSettings};
use ropeway_core::tool::Tool;

use super::finding::{Finding, enumerate};
use crate::arguments::names::expand_prefix;
use crate::failure::Exit;

const CHECK: &str = "filter";

/// Checks which tools the filters keep.
pub(super) fn check(entry: &ServerEntry, tools: &[Arc<dyn Tool>]) -> Vec<Finding> {
    if tools.is_empty() {
        return Vec::new();
    }
    examine(entry, tools).unwrap_or_else(|error| vec![Finding::problem(CHECK, Exit::Usage, error.to_string())])
}

/// Returns the tools that the filters keep, with the server's own definitions.
pub(super) fn kept(entry: &ServerEntry, tools: &[Arc<dyn Tool>]) -> Vec<Arc<dyn Tool>> {
    match ToolShape::new(entry) {
        Ok(shape) => tools.iter().filter(|tool| shape.apply((*tool).clone()).is_some()).cloned().collect(),
        Err(_) => tools.to_vec(),
    }
}

fn examine(entry: &ServerEntry, tools: &[Arc<dyn Tool>]) -> Result<Vec<Finding>, ToolShapeError> {
    let remaining = ToolShape::new(entry)?.apply_all(tools.iter().cloned());
    let mut findings = Vec::new();
    if remaining.is_empty() {
        findings.push(Finding::note(CHECK, "all tools are filtered out").fix("change its `tools` or `tool_allowlist`"));
    }
    let ToolSettings { allow, allowlists, deny, overrides, .. } = &entry.tools;
    let overrides: Vec<String> = overrides.iter().map(|(pattern, _)| pattern.clone()).collect();
    let allowlist = allowlists.concat();
    let lists = [("tools.allow", allow), ("tool_allowlist", &allowlist), ("tools.deny", deny), ("tools", &overrides)];
    for (key, patterns) in lists {
        let mut unmatched = Vec::new();
        for pattern in patterns {
            // `rename` and `describe` may share a pattern.
            if !unmatched.contains(&pattern.as_str()) && !matches_any(pattern, entry, tools)? {
                unmatched.push(pattern.as_str());
            }
        }
        if !unmatched.is_empty() {
            findings
                .push(Finding::note(CHECK, format!("patterns in `{key}` match no tool: {}", enumerate(&unmatched))));
        }
    }
    let mut known = BTreeSet::new();
    let prefix = expand_prefix(&entry.prefix, &entry.alias);
    let duplicates: BTreeSet<&str> =
        remaining.iter().map(|tool| tool.definition().name.as_str()).filter(|name| !known.insert(*name)).collect();
    if !duplicates.is_empty() {
        let duplicates: Vec<&str> =
            duplicates.into_iter().map(|name| name.strip_prefix(&prefix).unwrap_or(name)).collect();
        findings.push(
            Finding::note(CHECK, format!("several tools have the same name: {}", enumerate(&duplicates)))
                .fix("rename one of them with `tools.rename`"),
        );
    }
    Ok(findings)
}

/// Returns `true` if the pattern matches any tool.
fn matches_any(pattern: &str, entry: &ServerEntry, tools: &[Arc<dyn Tool>]) -> Result<bool, ToolShapeError> {
    let mut only = entry.clone();
    only.tools = ToolSettings::default();
    only.tools.allow = vec![pattern.to_owned()];
    let shape = ToolShape::new(&only)?;
    Ok(tools.iter().any(|tool| shape.apply(tool.clone()).is_some()))
}
