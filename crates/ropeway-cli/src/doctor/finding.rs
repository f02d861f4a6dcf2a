//! The doctor's findings and reports.

use anstyle::Style;
use ropeway_core::tool::Alias;
use serde_json::{Value, json};

use crate::failure::{Exit, worst_exit};
use crate::terminal::status_icon::StatusIcon;
use crate::terminal::table::{Cell, Overflow, Table};
use crate::terminal::text::{clean_line, counted};

const NAME: Style = Style::new().bold();
const FAINT: Style = Style::new().dimmed();

/// Maximum names in a finding.
pub(super) const MAX_NAMES: usize = 3;

/// A finding's severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// The check passed.
    Good,
    /// Worth knowing.
    Note,
    /// The server cannot be used; the command exits with this code.
    Problem(Exit),
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Note => "note",
            Self::Problem(_) => "problem",
        }
    }

    fn mark(self) -> StatusIcon {
        match self {
            Self::Good => StatusIcon::Good,
            Self::Note => StatusIcon::Half,
            Self::Problem(_) => StatusIcon::Bad,
        }
    }
}

/// One check's result.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finding {
    /// The check's name.
    pub(crate) check: &'static str,
    pub(crate) level: Level,
    /// Describes the finding.
    pub(crate) message: String,
    /// The suggested fix.
    pub(crate) fix: Option<String>,
    /// The server's last lines on standard error.
    pub(crate) stderr: Vec<String>,
}

impl Finding {
    fn new(check: &'static str, level: Level, message: impl Into<String>) -> Self {
        Self { check, level, message: message.into(), fix: None, stderr: Vec::new() }
    }

    /// Creates a finding for a check that passed.
    pub(crate) fn good(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, Level::Good, message)
    }

    /// Creates a note.
    pub(crate) fn note(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, Level::Note, message)
    }

    /// Creates a problem.
    pub(crate) fn problem(check: &'static str, exit: Exit, message: impl Into<String>) -> Self {
        Self::new(check, Level::Problem(exit), message)
    }

    /// Adds the suggested fix.
    pub(crate) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// Returns the finding as JSON. `found` and `said` are the former names for `message` and
    /// `stderr`.
    fn json(&self) -> Value {
        let Self { check, level, message, fix, stderr } = self;
        let mut json = json!({"check": check, "level": level.word(), "message": message, "found": message});
        if let Some(fix) = fix {
            json["fix"] = json!(fix);
        }
        if !stderr.is_empty() {
            json["stderr"] = json!(stderr);
            json["said"] = json!(stderr);
        }
        json
    }

    pub(crate) fn is_problem(&self) -> bool {
        matches!(self.level, Level::Problem(_))
    }
}

/// Lists at most [`MAX_NAMES`] names, and counts the others.
pub(super) fn enumerate(names: &[&str]) -> String {
    let shown: Vec<String> = names.iter().take(MAX_NAMES).map(|name| format!("`{}`", clean_line(name))).collect();
    match names.len().saturating_sub(MAX_NAMES) {
        0 => shown.join(", "),
        rest => format!("{} and {rest} more", shown.join(", ")),
    }
}

/// The findings about one server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Report {
    pub(crate) server: Alias,
    /// In check order.
    pub(crate) findings: Vec<Finding>,
}

impl Report {
    /// Returns the report as JSON.
    pub(crate) fn json(&self) -> Value {
        let findings: Vec<Value> = self.findings.iter().map(Finding::json).collect();
        json!({"server": self.server.as_str(), "healthy": self.exit() == Exit::Done, "findings": findings})
    }

    /// Returns the worst finding's exit code.
    pub(crate) fn exit(&self) -> Exit {
        let exits = self.findings.iter().filter_map(|finding| match finding.level {
            Level::Problem(exit) => Some(exit),
            Level::Good | Level::Note => None,
        });
        worst_exit(exits)
    }

    /// Returns the report as text.
    pub(crate) fn render(&self, width: Option<usize>) -> String {
        let mut table = Table::new(&[], Overflow::Wrap);
        for finding in &self.findings {
            let mark = finding.level.mark().cell(finding.level.word());
            table.row([mark, Cell::new(finding.check).styled(FAINT), Cell::new(&finding.message)]);
            let beneath = |text: Cell| [Cell::default(), Cell::default(), text];
            for line in &finding.stderr {
                table.row(beneath(Cell::new(&format!("│ {}", clean_line(line))).styled(FAINT).hanging(2)));
            }
            if let Some(fix) = &finding.fix {
                table.row(beneath(Cell::new(&format!("→ {fix}")).hanging(2)));
            }
        }
        let server = clean_line(self.server.as_str());
        format!("{NAME}{server}{NAME:#} {FAINT}· {}{FAINT:#}\n{}", self.summary(), table.render(width, 2))
    }

    /// Returns `true` if all checks passed.
    pub(crate) fn is_clean(&self) -> bool {
        self.findings.iter().all(|finding| finding.level == Level::Good)
    }

    fn summary(&self) -> String {
        let count = |wanted: fn(&Finding) -> bool| self.findings.iter().filter(|finding| wanted(finding)).count();
        let plural = |count: usize, word: &str| (count > 0).then(|| counted(count, word));
        let problems = plural(count(Finding::is_problem), "problem");
        let notes = plural(count(|finding| finding.level == Level::Note), "note");
        let parts: Vec<String> = problems.into_iter().chain(notes).collect();
        if parts.is_empty() { "no problems".to_owned() } else { parts.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(findings: Vec<Finding>) -> Report {
        Report { server: "files".into(), findings }
    }

    #[test]
    fn a_report_shows_findings_with_their_fixes() {
        let report = report(vec![
            Finding::good("folder", "`/tmp` exists"),
            Finding::problem("program", Exit::Unreachable, "`npx` is not on PATH").fix("install Node.js"),
            Finding { stderr: vec!["a\u{1b}[2Jb".into()], ..Finding::note("tools", "one of 3") },
        ]);
        let expected = "\
files · 1 problem, 1 note
  ● ok       folder   `/tmp` exists
  ✗ problem  program  `npx` is not on PATH
                      → install Node.js
  ◐ note     tools    one of 3
                      │ ab
";
        assert_eq!(anstream::adapter::strip_str(&report.render(Some(80))).to_string(), expected);
        assert_eq!(
            report.json(),
            json!({"server": "files", "healthy": false, "findings": [
                {"check": "folder", "level": "ok", "message": "`/tmp` exists", "found": "`/tmp` exists"},
                {"check": "program", "level": "problem", "message": "`npx` is not on PATH",
                    "found": "`npx` is not on PATH", "fix": "install Node.js"},
                {"check": "tools", "level": "note", "message": "one of 3", "found": "one of 3",
                    "stderr": ["a\u{1b}[2Jb"], "said": ["a\u{1b}[2Jb"]},
            ]})
        );
    }

    #[test]
    fn the_exit_code_is_that_of_the_worst_finding() {
        let problem = |exit| Finding::problem("a", exit, "b");
        let exit = |findings: Vec<Finding>| report(findings).exit();
        assert_eq!(exit(vec![Finding::good("a", "b"), Finding::note("a", "b")]), Exit::Done);
        assert_eq!(exit(vec![problem(Exit::Usage)]), Exit::Usage);
        assert_eq!(exit(vec![problem(Exit::NeedsAuth), problem(Exit::Usage)]), Exit::NeedsAuth);
        assert_eq!(exit(vec![problem(Exit::Unreachable), problem(Exit::NeedsAuth)]), Exit::Unreachable);
    }

    #[test]
    fn a_long_list_of_names_is_shortened() {
        assert_eq!(enumerate(&["a", "b", "c", "d", "e"]), "`a`, `b`, `c` and 2 more");
        assert_eq!(enumerate(&["a\u{1b}[2J"]), "`a`");
    }
}
