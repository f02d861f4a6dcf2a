//! The latest tool call results, for `/expand`.

use std::collections::VecDeque;

use ropeway_core::duration::format_duration;
use ropeway_core::envelope::Envelope;

use crate::failure::{self, Failure};
use crate::output::render_result::render;
use crate::terminal::style::faint;
use crate::terminal::text::{clean, size};

/// Maximum number of results.
const MAX_RESULTS: usize = 50;

/// Maximum total size and maximum result size, in bytes.
const MAX_TOTAL: usize = 16 << 20;
const MAX_RESULT: usize = 1 << 20;

/// The latest results, newest first.
#[derive(Debug, Default)]
pub(super) struct Results {
    kept: VecDeque<ToolResult>,
    /// Total size in bytes.
    size: usize,
}

/// A call result, without control characters.
#[derive(Debug)]
struct ToolResult {
    title: String,
    text: String,
    /// Bytes that were truncated.
    left_out: usize,
}

impl Results {
    /// Adds a call result.
    pub(super) fn add(&mut self, name: &str, envelope: &Envelope) {
        let mut text = match (&envelope.error, render(envelope, None)) {
            (Some(error), _) => clean(&failure::chain_text(error.as_ref())),
            (None, Ok(shown)) => shown.text,
            (None, Err(failure)) => clean(&failure.line()),
        };
        let end = text.floor_char_boundary(MAX_RESULT);
        let left_out = text.len() - end;
        text.truncate(end);
        text.shrink_to_fit();
        let title = format!("{name} · {}", format_duration(envelope.took));
        self.size += text.len();
        self.kept.push_front(ToolResult { title, text, left_out });
        while self.kept.len() > MAX_RESULTS || self.size > MAX_TOTAL {
            self.size -= self.kept.pop_back().map_or(self.size, |result| result.text.len());
        }
    }

    /// Returns a complete result: 1 is the latest one.
    pub(super) fn expand(&self, number: usize) -> Result<String, Failure> {
        let Some(result) = number.checked_sub(1).and_then(|at| self.kept.get(at)) else {
            return Err(match self.kept.len() {
                0 => Failure::usage("no tool calls yet"),
                1 => Failure::usage(format!("no result {number}: only 1 result is stored")),
                count => Failure::usage(format!("no result {number}: only the last {count} results are stored")),
            });
        };
        let ToolResult { title, text, left_out } = result;
        let mut shown = faint(&format!("{title}\n"));
        shown.push_str(if text.trim().is_empty() { "(empty)" } else { text.trim_end_matches('\n') });
        shown.push('\n');
        if *left_out > 0 {
            shown.push_str(&faint(&format!("… {} more\n", size(*left_out))));
        }
        Ok(shown)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ropeway_core::tool::{CallError, CallId, Origin};
    use serde_json::json;

    use super::*;

    fn result(text: &str) -> Envelope {
        let output = serde_json::from_value(json!({"content": [{"type": "text", "text": text}]})).expect("a result");
        Envelope::from_output(CallId("1".into()), "t", Origin::Local, Duration::from_millis(7), output)
    }

    fn plain(results: &Results, number: usize) -> String {
        let shown = results.expand(number).unwrap_or_else(|failure| failure.message().to_owned());
        anstream::adapter::strip_str(&shown).to_string()
    }

    #[test]
    fn results_are_complete_and_numbered_from_the_latest() {
        let mut results = Results::default();
        assert_eq!(plain(&results, 1), "no tool calls yet");
        results.add("s.a", &result("one\ntwo\u{1b}[2J\n\n"));
        assert_eq!(plain(&results, 2), "no result 2: only 1 result is stored");
        results.add("s.b", &result(""));
        let error = CallError::Denied { tool: "t".into(), reason: "no".into() };
        results.add("s.c", &Envelope::from_error(CallId("1".into()), "t", Origin::Local, Duration::ZERO, error));
        assert_eq!(plain(&results, 3), "s.a · 7 ms\none\ntwo\n");
        assert_eq!(plain(&results, 2), "s.b · 7 ms\n(empty)\n");
        assert!(plain(&results, 1).contains("was not called: no"), "{}", plain(&results, 1));
        assert_eq!(plain(&results, 0), "no result 0: only the last 3 results are stored");
        assert_eq!(plain(&results, 4), "no result 4: only the last 3 results are stored");
    }

    #[test]
    fn stored_results_are_bounded() {
        let mut results = Results::default();
        for _ in 0..60 {
            results.add("t", &result(&"日".repeat(400_000)));
        }
        assert!(results.size <= MAX_TOTAL && results.kept.len() <= MAX_RESULTS, "{} bytes", results.size);
        assert!(plain(&results, 1).ends_with("日\n… 151 KB more\n"));
    }
}
