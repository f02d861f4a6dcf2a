//! Rules for approving tool calls.

use std::collections::BTreeSet;

use clap::Args;
use ropeway_agent::{Permission, Policy, ToolPattern};
use ropeway_config::ToolApproval;
use ropeway_core::suggest;
use ropeway_core::tool::{Origin, ToolDefinition};

use crate::terminal::text::clean_line;

/// Tools that the model may call; other calls need approval
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Approval")]
pub(crate) struct ApprovalArgs {
    /// Call matching tools, such as `files.read_*`, without asking (repeatable)
    #[arg(long, value_name = "GLOB")]
    allow: Vec<String>,
    /// Ask before calling matching tools; wins over --allow (repeatable)
    #[arg(long, value_name = "GLOB")]
    ask: Vec<String>,
    /// Never call matching tools; wins over all others (repeatable)
    #[arg(long, value_name = "GLOB")]
    deny: Vec<String>,
    /// Trust the tool annotations of the --stdio or --url server, such as readOnlyHint
    #[arg(long, conflicts_with = "config")]
    pub(crate) trust_hints: bool,
    /// Call all tools without asking, except denied ones
    #[arg(long, short, conflicts_with = "ask")]
    yes: bool,
    /// The rules of the configuration file.
    #[arg(skip)]
    configured: ToolApproval,
}

impl ApprovalArgs {
    /// Adds the configuration file's rules.
    pub(crate) fn with_configured(mut self, configured: &ToolApproval) -> Self {
        self.configured = configured.clone();
        self
    }

    /// Returns the policy for calls. Deny rules from any source win, then the command line over the configuration file, and
    /// within each source "ask" over "allow".
    pub(crate) fn policy(&self) -> Policy {
        let Self { allow, ask, deny, yes, configured, trust_hints: _ } = self;
        let denied = deny.iter().chain(&configured.deny);
        let policy = denied.fold(Policy::new(), |policy, glob| policy.deny(glob));
        if *yes {
            return policy;
        }
        let both = [(ask, allow), (&configured.ask, &configured.allow)];
        let policy = both.into_iter().fold(policy, |policy, (ask, allow)| {
            let policy = ask.iter().fold(policy, |policy, glob| policy.ask(glob));
            allow.iter().fold(policy, |policy, glob| policy.allow(glob))
        });
        policy.changing(Permission::Ask)
    }
}

/// Returns a warning for each pattern that matches no tool, with suggestions.
///
/// `unseen` are the servers whose tools are unknown, each with its tool name prefix. Patterns that may match one of their tools
/// cause no warning.
pub(crate) fn unmatched_warnings(policy: &Policy, tools: &[&ToolDefinition], unseen: &[(&str, String)]) -> Vec<String> {
    let is_unsure =
        |pattern: &ToolPattern| unseen.iter().any(|(alias, prefix)| pattern.may_match_server(alias, prefix));
    let unmatched_warnings = policy.unmatched(tools).into_iter().filter(|pattern| !is_unsure(pattern));
    let mut warnings: Vec<String> = unmatched_warnings
        .map(|pattern| {
            let text = clean_line(pattern.as_str());
            match suggestion(pattern, tools) {
                Some(question) => format!("no tool matches `{text}`; {}", clean_line(&question)),
                None => format!("no tool matches `{text}`"),
            }
        })
        .collect();
    warnings.dedup();
    warnings
}

/// Suggests a correction for a pattern that matches no tool.
fn suggestion(pattern: &ToolPattern, tools: &[&ToolDefinition]) -> Option<String> {
    let text = pattern.as_str();
    // A wildcard that spans the server and the tool has an equivalent `SERVER.TOOL` pattern.
    for tool in tools.iter().filter(|tool| pattern.matches_loosely(tool)) {
        let Origin::Server { server, .. } = &tool.origin else { continue };
        if let Some(rest) = text.strip_prefix(&*tool.provenance.prefix).filter(|rest| !rest.is_empty()) {
            return Some(format!("did you mean `{server}.{rest}`?"));
        }
    }
    let dotted: Vec<String> = tools
        .iter()
        .map(|tool| match &tool.origin {
            Origin::Server { server, tool } => format!("{server}.{tool}"),
            Origin::Local => tool.name.clone(),
        })
        .collect();
    let servers: BTreeSet<String> = tools
        .iter()
        .filter_map(|tool| match &tool.origin {
            Origin::Server { server, .. } => Some(format!("{server}.*")),
            Origin::Local => None,
        })
        .collect();
    // Model names are compared, too, and suggested in the form `SERVER.TOOL`.
    let as_typed = |name: &str| {
        let at = tools.iter().position(|tool| tool.name == name);
        at.map_or_else(|| name.to_owned(), |at| dotted[at].clone())
    };
    let names = tools.iter().map(|tool| tool.name.as_str());
    let own = tools.iter().zip(&dotted).find(|(tool, _)| tool.own_name() == text).map(|(_, dotted)| dotted.as_str());
    match own {
        Some(own) => suggest::did_you_mean_one_of(&[own]),
        None => {
            let all = servers.iter().map(String::as_str).chain(dotted.iter().map(String::as_str)).chain(names);
            let mut near: Vec<String> = suggest::closest(text, all).into_iter().map(as_typed).collect();
            near.dedup();
            suggest::did_you_mean_one_of(&near)
        }
    }
}

/// Returns the pattern that matches exactly this tool: `SERVER.TOOL` if the names are plain words, otherwise the escaped
/// model name. A server may name a tool `*`.
pub(crate) fn exact_pattern(tool: &ToolDefinition) -> String {
    let is_plain =
        |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    match &tool.origin {
        Origin::Server { server, tool: own } if is_plain(server.as_str()) && is_plain(own) && **own != *tool.name => {
            format!("{server}.{own}")
        }
        _ => escape_glob(&tool.name),
    }
}

/// Escapes a glob's special characters.
pub(crate) fn escape_glob(name: &str) -> String {
    name.chars().fold(String::with_capacity(name.len()), |mut glob, c| {
        if matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | ',' | '!' | '\\') {
            glob.push('\\');
        }
        glob.push(c);
        glob
    })
}

#[cfg(test)]
mod tests;
