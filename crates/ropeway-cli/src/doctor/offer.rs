//! What a server offers: its tools, and what models may stumble over in them.

use std::time::Duration;

use ropeway::checked::CheckedTool;
use ropeway::config::ServerEntry;
use ropeway::mcp::Mcp;
use ropeway::tool::ToolDefinition;

use super::finding::Finding;
use super::wanted;
use crate::failure::{Exit, Failure};
use crate::terminal::text::clean_line;

const CHECK: &str = "tools";

/// The longest name of a tool that every provider of models takes.
const LONGEST_NAME: usize = 64;

/// How many names are told before it is enough.
const MOST_NAMES: usize = 3;

/// Lists the tools, and looks at each.
pub(super) async fn check(server: &Mcp, entry: Option<&ServerEntry>, limit: Duration) -> Vec<Finding> {
    let tools = match tokio::time::timeout(limit, server.list_tools(None)).await {
        Err(_) => {
            let found = format!("the server did not list its tools within {limit:.1?}");
            return vec![Finding::problem(CHECK, Exit::Timeout, found)];
        }
        Ok(Err(error)) => {
            let exit = Failure::listing(&error).exit();
            return vec![Finding::problem(CHECK, exit, format!("the tools cannot be listed: {error}"))];
        }
        Ok(Ok(tools)) => tools,
    };
    let wanted = entry.map(|entry| wanted::check(entry, &tools)).unwrap_or_default();
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
            .fix("it may need an argument, a token or a variable to have any"),
        1 => Finding::good(CHECK, "1 tool"),
        tools => Finding::good(CHECK, format!("{tools} tools")),
    }
}

/// What is odd about the names and descriptions.
fn names(tools: &[&ToolDefinition]) -> Vec<Finding> {
    let those = |odd: &dyn Fn(&ToolDefinition) -> bool| {
        let names: Vec<&str> = tools.iter().filter(|tool| odd(tool)).map(|tool| tool.name.as_str()).collect();
        (!names.is_empty()).then(|| enumerate(&names))
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let mut findings = Vec::new();
    if let Some(names) = those(&|tool| tool.name.chars().count() > LONGEST_NAME) {
        let found = format!("names of more than {LONGEST_NAME} characters, which not every model takes: {names}");
        findings.push(Finding::note("names", found).fix("they are shortened where a model has to take them"));
    }
    if let Some(names) = those(&|tool| tool.name.is_empty() || !tool.name.chars().all(plain)) {
        findings.push(Finding::note("names", format!("names with characters that not every model takes: {names}")));
    }
    if let Some(names) = those(&|tool| tool.description.as_deref().unwrap_or_default().trim().is_empty()) {
        findings.push(Finding::note(
            "names",
            format!("a model has to guess what these are for, since nothing describes them: {names}"),
        ));
    }
    findings
}

fn schemas(warnings: Vec<(&str, String)>) -> Vec<Finding> {
    let rest = warnings.len().saturating_sub(MOST_NAMES);
    let mut findings: Vec<Finding> = warnings
        .into_iter()
        .take(MOST_NAMES)
        .map(|(name, warning)| Finding::note("schemas", format!("`{}`: {}", clean_line(name), clean_line(&warning))))
        .collect();
    if rest > 0 {
        findings.push(Finding::note("schemas", format!("{rest} more tools have an odd schema")));
    }
    findings
}

pub(super) fn enumerate(names: &[&str]) -> String {
    let shown: Vec<String> = names.iter().take(MOST_NAMES).map(|name| format!("`{}`", clean_line(name))).collect();
    match names.len().saturating_sub(MOST_NAMES) {
        0 => shown.join(", "),
        rest => format!("{} and {rest} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_and_missing_descriptions_are_told() {
        let described = |name: &str| ToolDefinition::new(name).with_description("Does it.");
        let long = "x".repeat(65);
        let tools = [described("fine.one-2"), described(&long), described("no good"), ToolDefinition::new("mute")];
        let found: Vec<String> =
            names(&tools.iter().collect::<Vec<_>>()).into_iter().map(|finding| finding.found).collect();
        assert_eq!(
            found,
            [
                format!("names of more than 64 characters, which not every model takes: `{long}`"),
                "names with characters that not every model takes: `no good`".to_owned(),
                "a model has to guess what these are for, since nothing describes them: `mute`".to_owned(),
            ]
        );
    }

    #[test]
    fn a_long_list_of_names_is_cut() {
        assert_eq!(enumerate(&["a", "b", "c", "d", "e"]), "`a`, `b`, `c` and 2 more");
        assert_eq!(enumerate(&["a\u{1b}[2J"]), "`a`");
    }
}
