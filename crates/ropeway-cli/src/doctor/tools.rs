//! Checks a server's tools for problems with models.

use std::sync::Arc;
use std::time::Duration;

use ropeway_config::lock::{DifferenceKind, Lock};
use ropeway_config::{LockPolicy, ServerEntry};
use ropeway_core::checked::CheckedTool;
use ropeway_core::tool::{Alias, Tool, ToolDefinition};
use ropeway_mcp::Mcp;

use super::finding::{Finding, MAX_NAMES, enumerate};
use super::tool_filter;
use crate::failure::{Exit, Failure};
use crate::terminal::text::clean_line;

const CHECK: &str = "tools";

/// The longest tool name that every model provider accepts.
const MAX_NAME: usize = 64;

/// Lists and checks the tools.
pub(super) async fn check(
    server: &Mcp,
    entry: Option<&ServerEntry>,
    lock: Option<(&Lock, LockPolicy)>,
    limit: Duration,
) -> Vec<Finding> {
    let tools = match tokio::time::timeout(limit, server.list_tools()).await {
        Err(_) => {
            let found = format!("listing tools timed out after {limit:.1?}");
            return vec![Finding::problem(CHECK, Exit::Timeout, found)];
        }
        Ok(Err(error)) => {
            let exit = Failure::listing(&error).exit();
            return vec![Finding::problem(CHECK, exit, format!("could not list tools: {error}"))];
        }
        Ok(Ok(tools)) => tools,
    };
    let mut wanted = entry.map(|entry| tool_filter::check(entry, &tools)).unwrap_or_default();
    if let Some((lock, policy)) = lock {
        let kept = entry.map_or_else(|| tools.clone(), |entry| tool_filter::kept(entry, &tools));
        wanted.extend(locked(server.alias(), lock, policy, &kept));
    }
    let tools: Vec<CheckedTool> = tools.into_iter().map(CheckedTool::new).collect();
    let definitions: Vec<&ToolDefinition> = tools.iter().map(CheckedTool::definition).collect();
    let warnings = tools.iter().filter_map(|tool| Some((tool.definition().name.as_str(), tool.warning()?)));
    let mut findings = vec![count(definitions.len())];
    findings.extend(names(&definitions));
    findings.extend(schemas(warnings.collect()));
    findings.extend(wanted);
    findings
}

fn count(tools: usize) -> Finding {
    match tools {
        0 => Finding::note(CHECK, "the server has no tools")
            .fix("it may need an argument, a token or an environment variable"),
        1 => Finding::good(CHECK, "1 tool"),
        tools => Finding::good(CHECK, format!("{tools} tools")),
    }
}

/// Compares the tools that the filters keep with the lock.
fn locked(server: &Alias, lock: &Lock, policy: LockPolicy, tools: &[Arc<dyn Tool>]) -> Option<Finding> {
    let differences = lock.compare(server, tools.iter().map(|tool| tool.definition()));
    let is_reported = |kind: &DifferenceKind| match kind {
        DifferenceKind::New => policy == LockPolicy::Strict,
        DifferenceKind::Changed(_) => policy != LockPolicy::Off,
        DifferenceKind::Gone => false,
    };
    let names = differences.iter().filter(|it| is_reported(&it.kind)).map(|it| it.tool.as_str());
    let names: Vec<&str> = names.collect();
    if names.is_empty() {
        return None;
    }
    let names = enumerate(&names);
    let found = match policy {
        LockPolicy::Strict => format!("ropeway.lock hides tools that are new or changed: {names}"),
        _ => format!("tools changed since they were locked: {names}"),
    };
    Some(Finding::note("lock", found).fix("review and accept them with `ropeway lock`"))
}

/// Checks names and descriptions.
fn names(tools: &[&ToolDefinition]) -> Vec<Finding> {
    let names_where = |odd: &dyn Fn(&ToolDefinition) -> bool| {
        let names: Vec<&str> = tools.iter().filter(|tool| odd(tool)).map(|tool| tool.name.as_str()).collect();
        (!names.is_empty()).then(|| enumerate(&names))
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let mut findings = Vec::new();
    if let Some(names) = names_where(&|tool| tool.name.chars().count() > MAX_NAME) {
        let found = format!("names longer than {MAX_NAME} characters, which some providers reject: {names}");
        findings.push(Finding::note("names", found).fix("ropeway shortens them where needed"));
    }
    if let Some(names) = names_where(&|tool| tool.name.is_empty() || !tool.name.chars().all(plain)) {
        findings.push(Finding::note("names", format!("names with characters that some providers reject: {names}")));
    }
    if let Some(names) = names_where(&|tool| tool.description.as_deref().unwrap_or_default().trim().is_empty()) {
        findings.push(Finding::note("names", format!("tools without a description: {names}")));
    }
    findings
}

fn schemas(warnings: Vec<(&str, String)>) -> Vec<Finding> {
    let rest = warnings.len().saturating_sub(MAX_NAMES);
    let mut findings: Vec<Finding> = warnings
        .into_iter()
        .take(MAX_NAMES)
        .map(|(name, warning)| Finding::note("schemas", format!("`{}`: {}", clean_line(name), clean_line(&warning))))
        .collect();
    if rest > 0 {
        findings.push(Finding::note("schemas", format!("{rest} more tools have schema warnings")));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problematic_names_and_missing_descriptions_are_noted() {
        let described = |name: &str| ToolDefinition::new(name).with_description("Does it.");
        let long = "x".repeat(65);
        let tools = [described("fine.one-2"), described(&long), described("no good"), ToolDefinition::new("mute")];
        let found: Vec<String> =
            names(&tools.iter().collect::<Vec<_>>()).into_iter().map(|finding| finding.message).collect();
        assert_eq!(
            found,
            [
                format!("names longer than 64 characters, which some providers reject: `{long}`"),
                "names with characters that some providers reject: `no good`".to_owned(),
                "tools without a description: `mute`".to_owned(),
            ]
        );
    }
}
