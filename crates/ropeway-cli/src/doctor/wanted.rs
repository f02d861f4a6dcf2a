//! What a file wants of a server's tools, and what of it comes to nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use ropeway::config::{ServerEntry, ToolSettings};
use ropeway::registry::{ToolShape, ToolShapeError};
use ropeway::tool::Tool;

use super::finding::Finding;
use super::offer::enumerate;
use crate::arguments::names::expand_prefix;
use crate::failure::Exit;

const CHECK: &str = "filter";

/// Looks at what the settings leave of the tools.
pub(super) fn check(entry: &ServerEntry, tools: &[Arc<dyn Tool>]) -> Vec<Finding> {
    if tools.is_empty() {
        return Vec::new();
    }
    look(entry, tools).unwrap_or_else(|error| vec![Finding::problem(CHECK, Exit::Usage, error.to_string())])
}

fn look(entry: &ServerEntry, tools: &[Arc<dyn Tool>]) -> Result<Vec<Finding>, ToolShapeError> {
    let left = ToolShape::new(entry)?.apply_all(tools.iter().cloned());
    let mut findings = Vec::new();
    if left.is_empty() {
        findings.push(
            Finding::note(CHECK, "none of the tools is wanted")
                .fix("change its `tools` or `tool_allowlist`, which choose them"),
        );
    }
    let ToolSettings { allow, allowlists, deny, overrides, .. } = &entry.tools;
    let overrides: Vec<String> = overrides.iter().map(|(pattern, _)| pattern.clone()).collect();
    let allowlist = allowlists.concat();
    let lists = [("tools.allow", allow), ("tool_allowlist", &allowlist), ("tools.deny", deny), ("tools", &overrides)];
    for (key, patterns) in lists {
        let mut idle = Vec::new();
        for pattern in patterns {
            // `rename` and `describe` may have it both.
            if !idle.contains(&pattern.as_str()) && !matches_any(pattern, entry, tools)? {
                idle.push(pattern.as_str());
            }
        }
        if !idle.is_empty() {
            findings.push(Finding::note(CHECK, format!("in `{key}`, no tool is meant by {}", enumerate(&idle))));
        }
    }
    let mut known = BTreeSet::new();
    let prefix = expand_prefix(&entry.prefix, &entry.alias);
    let twice: BTreeSet<&str> =
        left.iter().map(|tool| tool.definition().name.as_str()).filter(|name| !known.insert(*name)).collect();
    if !twice.is_empty() {
        let twice: Vec<&str> = twice.into_iter().map(|name| name.strip_prefix(&prefix).unwrap_or(name)).collect();
        findings.push(
            Finding::note(CHECK, format!("more than one of its tools is called {}", enumerate(&twice)))
                .fix("give one of them another name under `tools.rename`"),
        );
    }
    Ok(findings)
}

/// Does the pattern match the name of any tool?
fn matches_any(pattern: &str, entry: &ServerEntry, tools: &[Arc<dyn Tool>]) -> Result<bool, ToolShapeError> {
    let mut only = entry.clone();
    only.tools = ToolSettings::default();
    only.tools.allow = vec![pattern.to_owned()];
    let shape = ToolShape::new(&only)?;
    Ok(tools.iter().any(|tool| shape.apply(tool.clone()).is_some()))
}
