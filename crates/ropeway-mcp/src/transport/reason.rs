//! Finds the stderr line that explains a failure.

/// Phrases that name a cause.
const CAUSES: [&str; 24] = [
    "cannot find",
    "can't find",
    "could not find",
    "couldn't find",
    "not found",
    "no module named",
    "no such file",
    "no solution found",
    "is not in this registry",
    "permission denied",
    "access denied",
    "not permitted",
    "refused",
    "is required",
    "must be set",
    "not set",
    "missing",
    "invalid",
    "unknown option",
    "unrecognized",
    "unexpected",
    "unable to",
    "already in use",
    "out of memory",
];

/// Words that indicate a failure.
const FAILURES: [&str; 6] = ["error", "exception", "fatal", "failed", "panicked", "abort"];

/// Returns the line that explains a failure: the last one with the highest score, or the last line.
pub(super) fn reason(lines: &[String]) -> Option<&str> {
    let non_empty = || lines.iter().map(|line| line.trim()).filter(|line| !line.is_empty());
    let best = non_empty().map(|line| (score(line), line)).filter(|(score, _)| *score > 0);
    best.max_by_key(|(score, _)| *score).map(|(_, line)| line).or_else(|| non_empty().next_back())
}

/// Scores how well a line explains a failure.
fn score(line: &str) -> usize {
    let lower = line.to_lowercase();
    if is_decoration(&lower) {
        return 0;
    }
    let names_a_cause = CAUSES.iter().any(|words| lower.contains(words));
    let failure = FAILURES.iter().any(|word| lower.contains(word));
    // `Error: …` and `ModuleNotFoundError: …` start the relevant message.
    let begins = lower.split_once(':').is_some_and(|(kind, _)| {
        !kind.contains(' ') && ["error", "exception", "panic"].iter().any(|word| kind.ends_with(word))
    });
    3 * usize::from(names_a_cause) + 2 * usize::from(begins) + usize::from(failure)
}

/// Returns `true` for stack trace lines and for references to log files.
fn is_decoration(lower: &str) -> bool {
    let begins = ["at ", "file \"", "node:", "code: ", "npm notice", "note: ", "traceback", "caused by:"];
    begins.iter().any(|start| lower.starts_with(start))
        || lower.contains("a complete log of this run")
        || !lower.contains(' ') && !lower.contains(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_names_the_cause_is_found() {
        let node = "node:internal/modules/cjs/loader:1210\n  throw err;\n  ^\n\nError: Cannot find module '/srv/x.js'\n    at Module._load (node:internal/loader:1)\n  code: 'MODULE_NOT_FOUND',\n  requireStack: []\n}\n\nNode.js v20.20.2";
        let npm = "npm error code E404\nnpm error 404 Not Found - GET https://registry/x - Not found\nnpm error 404\nnpm error A complete log of this run can be found in: x.log";
        let python = "Traceback (most recent call last):\n  File \"/a.py\", line 1, in <module>\n    import nothing\nModuleNotFoundError: No module named 'nothing'";
        let rust = "starting\nthread 'main' panicked at src/main.rs:1:2:\nDATABASE_URL must be set\nnote: run with `RUST_BACKTRACE=1`";
        let plain = "listening\n\nbye";
        for (said, expected) in [
            (node, "Error: Cannot find module '/srv/x.js'"),
            (npm, "npm error 404 Not Found - GET https://registry/x - Not found"),
            (python, "ModuleNotFoundError: No module named 'nothing'"),
            (rust, "DATABASE_URL must be set"),
            (plain, "bye"),
        ] {
            let lines: Vec<String> = said.lines().map(str::to_owned).collect();
            assert_eq!(reason(&lines), Some(expected));
        }
        assert_eq!(reason(&[String::new()]), None);
    }
}
