//! The `ropeway config check` report.

use std::path::Path;

use anstyle::{AnsiColor, Style};
use ropeway_bridge::registry::{Collision, ServerStatus};
use ropeway_config::{CollisionPolicy, Config, ConfigError, ConfigProblem};
use ropeway_core::tool::Alias;
use serde_json::{Value, json};

use super::unmatched::Unmatched;
use crate::arguments::names::expand_prefix;
use crate::connect::advice::ServerAdvice;
use crate::output::excerpt::excerpt;
use crate::terminal::status_icon::StatusIcon;
use crate::terminal::text::{clean_line, clean_names, counted, terminal_width, wrap};

const PLACE: Style = Style::new().bold();
const BAD: Style = AnsiColor::Red.on_default().bold();
const FAINT: Style = Style::new().dimmed();

/// What checking names found with the servers connected.
pub(super) struct NameReport {
    pub(super) tools: usize,
    pub(super) collisions: Vec<Collision>,
    /// Servers whose tools could not be listed.
    pub(super) unknown: Vec<ServerStatus>,
    pub(super) advice: ServerAdvice,
    /// Renamed tools: server, original name and new name.
    pub(super) changed: Vec<[String; 3]>,
    /// Schema warnings: server, tool and warning.
    pub(super) schema_warnings: Vec<[String; 3]>,
    /// Names in the file without a match.
    pub(super) unmatched: Vec<Unmatched>,
    /// Servers that are not connected, whose names were not checked.
    pub(super) unchecked: Vec<Alias>,
}

impl NameReport {
    /// Returns the collisions that the policy forbids.
    pub(super) fn problems(&self, policy: CollisionPolicy) -> &[Collision] {
        if policy == CollisionPolicy::Error { &self.collisions } else { &[] }
    }

    /// Returns `true` if no problems were found.
    pub(super) fn is_fine(&self, policy: CollisionPolicy) -> bool {
        self.problems(policy).is_empty() && !self.unmatched.iter().any(|unmatched| unmatched.is_problem)
    }
}

/// Formats names without a match, each with its line.
pub(super) fn unmatched_text(file: &Path, written: &str, names: &NameReport) -> String {
    let width = terminal_width(&std::io::stdout()).unwrap_or(usize::MAX);
    let file = clean_line(&file.display().to_string());
    let one = |unmatched: &Unmatched| {
        let place = format!("{file}:{}:{}:", unmatched.line, unmatched.column);
        let warning = if unmatched.is_problem { "" } else { "warning: " };
        let words = clean_names(&format!("{place} {warning}{}", unmatched.sentence()));
        let lines = wrap(&words, width, 0).replacen(&place, &format!("{PLACE}{place}{PLACE:#}"), 1);
        let beneath = excerpt(written, unmatched.line, unmatched.column, width);
        format!("{lines}{beneath}\n")
    };
    names.unmatched.iter().map(one).collect()
}

/// Formats all problems in a file, each with its line.
pub(in crate::command) fn problems_text(error: &ConfigError) -> String {
    let width = terminal_width(&std::io::stdout());
    let file = clean_line(&error.file.display().to_string());
    // Without the file, problems are shown without excerpts.
    let written = std::fs::read_to_string(&error.file).unwrap_or_default();
    let mut text = String::new();
    for problem in &error.problems {
        let place = match problem.line {
            0 => format!("{file}:"),
            line => format!("{file}:{line}:{}:", problem.column),
        };
        let words = clean_names(&problem.to_string());
        let lines = wrap(&format!("{place} {words}"), width.unwrap_or(usize::MAX), 0);
        text.push_str(&lines.replacen(&place, &format!("{PLACE}{place}{PLACE:#}"), 1));
        let beneath = excerpt(&written, problem.line, problem.column, width.unwrap_or(usize::MAX));
        text.push_str(&format!("{beneath}\n"));
    }
    let count = match error.problems.len() {
        count if count > 1 && error.truncated => format!("more than {count} problems"),
        count => counted(count, "problem"),
    };
    let sign = StatusIcon::Bad.symbol();
    text + &format!("{BAD}{sign}{BAD:#} {file} has {count}\n")
}

pub(super) fn problems_json(error: &ConfigError) -> Vec<Value> {
    let problem = |problem: &ConfigProblem| {
        let ConfigProblem { line, column, path, found, expected, suggestion, .. } = problem;
        json!({"line": line, "column": column, "path": path, "message": problem.to_string(), "found": found, "expected": expected, "suggestion": suggestion})
    };
    error.problems.iter().map(problem).collect()
}

pub(super) fn report_text(file: &Path, config: &Config, names: Option<&NameReport>, is_fine: bool) -> String {
    let width = terminal_width(&std::io::stdout()).unwrap_or(usize::MAX);
    let line = |mark: StatusIcon, words: &str| {
        let style = mark.style();
        let wrapped = wrap(&clean_names(words), width, 2);
        format!("{style}{}{style:#} {}", mark.symbol(), wrapped.strip_prefix("  ").unwrap_or(&wrapped))
    };
    let mut text = String::new();
    if let Some(names) = names {
        for collision in &names.collisions {
            let mark = if names.problems(config.collisions).is_empty() { StatusIcon::Half } else { StatusIcon::Bad };
            text.push_str(&line(mark, &collision.to_string()));
        }
        if !names.problems(config.collisions).is_empty() {
            let fix =
                "change the `prefix` of one of the servers, or set `collisions: suffix` or `collisions: last-wins`";
            text.push_str(&wrap(&format!("→ {fix}"), width, 2));
        }
        for status in &names.unknown {
            text.push_str(&names.advice.problem_text(status, width));
        }
        if !names.unchecked.is_empty() {
            let servers: Vec<String> = names.unchecked.iter().map(|server| format!("`{server}`")).collect();
            let words = "not connected; tool and argument names were not checked";
            text.push_str(&line(StatusIcon::Half, &format!("{}: {words}", servers.join(", "))));
        }
        for [server, own, name] in &names.changed {
            let entry = config.servers.iter().find(|entry| entry.alias.as_str() == server);
            let prefix = entry.map(|entry| expand_prefix(&entry.prefix, &entry.alias)).unwrap_or_default();
            let name = name.strip_prefix(&prefix).unwrap_or(name);
            text.push_str(&line(
                StatusIcon::Half,
                &format!("tool `{own}` of server `{server}` is renamed to `{name}`: some models reject its own name"),
            ));
        }
        for [server, tool, warning] in &names.schema_warnings {
            text.push_str(&line(StatusIcon::Half, &format!("tool `{tool}` of server `{server}`: {warning}")));
        }
    }
    config.warnings.iter().for_each(|warning| text.push_str(&line(StatusIcon::Half, warning)));
    let file = file.display();
    let servers = counted(config.servers.len(), "server");
    let off = match config.servers.iter().filter(|entry| !entry.enabled).count() {
        0 => String::new(),
        off => format!(", {off} disabled"),
    };
    let tools = match names {
        None => String::new(),
        Some(NameReport { tools, unknown, .. }) if unknown.is_empty() => format!(", {}", counted(*tools, "tool")),
        Some(NameReport { tools, unknown, .. }) => {
            let (tools, unknown) = (counted(*tools, "tool"), counted(unknown.len(), "server"));
            format!(", {tools}; tools of {unknown} unknown")
        }
    };
    text.push_str(&if is_fine {
        line(StatusIcon::Good, &format!("{file} is valid: {servers}{off}{tools}"))
    } else {
        let collides = names.is_some_and(|names| !names.problems(config.collisions).is_empty());
        let unmatched = names.map_or(0, |names| names.unmatched.iter().filter(|it| it.is_problem).count());
        let collides = collides.then(|| "tool name collisions".to_owned());
        let unmatched = match unmatched {
            0 => None,
            1 => Some("1 name without a match".to_owned()),
            many => Some(format!("{many} names without a match")),
        };
        let what: Vec<String> = collides.into_iter().chain(unmatched).collect();
        line(StatusIcon::Bad, &format!("{file} has {}: {servers}{off}{tools}", what.join(" and ")))
    });
    if names.is_none() && config.servers.iter().filter(|entry| entry.enabled).count() > 0 {
        let words = "tool names were not checked; `ropeway config check --connect` checks them";
        text.push_str(&format!("{FAINT}{}{FAINT:#}\n", wrap(words, width, 2).trim_end()));
    }
    text
}

pub(super) fn report_json(file: &Path, config: &Config, names: Option<&NameReport>, is_fine: bool) -> Value {
    let servers: Vec<&str> = config.servers.iter().map(|entry| entry.alias.as_str()).collect();
    let mut report = json!({
        "file": file, "ok": is_fine, "problems": [], "warnings": config.warnings, "servers": servers,
    });
    if let Some(NameReport { tools, collisions, unknown, changed, schema_warnings, unmatched, unchecked, .. }) = names {
        let unknown: Vec<Value> = unknown
            .iter()
            .map(|ServerStatus { server, state, .. }| json!({"server": server, "status": state, "verdict": state}))
            .collect();
        let changed: Vec<Value> =
            changed.iter().map(|[server, tool, name]| json!({"server": server, "tool": tool, "name": name})).collect();
        let schema_warnings: Vec<Value> = schema_warnings
            .iter()
            .map(|[server, tool, why]| json!({"server": server, "tool": tool, "warning": why}))
            .collect();
        let problems = unmatched.iter().filter(|unmatched| unmatched.is_problem);
        report["problems"] = problems.map(Unmatched::problem_json).collect();
        let unmatched: Vec<Value> = unmatched.iter().map(Unmatched::json).collect();
        report["names"] = json!({
            "tools": tools, "collisions": collisions, "unknown": unknown, "changed": changed,
            "schema_warnings": schema_warnings, "odd": schema_warnings,
            "unmatched": unmatched, "unchecked": unchecked,
        });
    }
    report
}
