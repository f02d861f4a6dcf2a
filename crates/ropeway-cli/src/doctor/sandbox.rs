//! Checks a server's sandbox: what the system supports, and the paths.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ropeway_config::{SandboxMode, SandboxSummary, StdioServer};

use super::finding::Finding;
use super::program;
use crate::failure::Exit;
use crate::sandbox::{Support, certificates, covers, describe, missing, path_warnings};

const CHECK: &str = "sandbox";

/// Describes the sandbox, and reports restrictions and paths that do not work. `config` is the configuration file.
pub(super) fn check(server: &StdioServer, config: Option<&Path>) -> Vec<Finding> {
    let Some(sandbox) = &server.sandbox else { return Vec::new() };
    let support = Support::detect();
    let gaps = missing(sandbox.processes.is_some(), &support).join("; ");
    let summary = describe(&SandboxSummary::from(sandbox), &server.command);
    let mut findings = vec![match sandbox.mode {
        _ if gaps.is_empty() => Finding::good(CHECK, format!("{summary} ({support})")),
        SandboxMode::Required => Finding::problem(CHECK, Exit::Unreachable, gaps)
            .fix("set `mode: best-effort` in its `sandbox` to start it with fewer restrictions"),
        SandboxMode::BestEffort => Finding::note(CHECK, format!("{summary} ({support}); incomplete: {gaps}")),
    }];
    let mut named: BTreeMap<PathBuf, Vec<&str>> = BTreeMap::new();
    for (name, path) in certificates() {
        named.entry(path).or_default().push(name);
    }
    if !named.is_empty() {
        let shown: Vec<String> =
            named.iter().map(|(path, names)| format!("`{}` ({})", path.display(), names.join(", "))).collect();
        findings
            .push(Finding::good(CHECK, format!("reads the certificates of your environment: {}", shown.join(", "))));
    }
    findings.extend(path_warnings(server, config).into_iter().map(|warning| Finding::note(CHECK, warning)));
    let hidden = program::script(server).filter(|script| script.exists() && !covers(server, script));
    findings.extend(hidden.map(|script| {
        let folder = script.parent().unwrap_or(&script).display().to_string();
        Finding::note(CHECK, format!("script `{}` is outside of the sandbox", script.display()))
            .fix(format!("add `{folder}` to `sandbox.read`"))
    }));
    findings
}
