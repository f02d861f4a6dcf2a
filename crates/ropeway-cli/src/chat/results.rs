//! The results of a chat's calls, kept so that a person can read them whole.

use std::collections::VecDeque;

use ropeway::duration::format_duration;
use ropeway::envelope::Envelope;

use crate::failure::{self, Failure};
use crate::output::render_result::render;
use crate::terminal::style::faint;
use crate::terminal::text::{clean, size};

/// How many results are kept.
const MOST: usize = 50;

/// How much of all results is kept, and of one, in bytes.
const LARGEST: usize = 16 << 20;
const LARGEST_RESULT: usize = 1 << 20;

/// The latest results, the last one first.
#[derive(Debug, Default)]
pub(super) struct Results {
    kept: VecDeque<ToolResult>,
    /// The bytes of all that are kept.
    size: usize,
}

/// The result of one call, made harmless for a terminal.
#[derive(Debug)]
struct ToolResult {
    title: String,
    text: String,
    /// The bytes that were left out at its end.
    left_out: usize,
}

impl Results {
    /// Keeps the result of a call of the tool with this name.
    pub(super) fn add(&mut self, name: &str, envelope: &Envelope) {
        let mut text = match (&envelope.error, render(envelope, None)) {
            (Some(error), _) => clean(&failure::chain_text(error.as_ref())),
            (None, Ok(shown)) => shown.text,
            (None, Err(failure)) => clean(&failure.line()),
        };
        let end = text.floor_char_boundary(LARGEST_RESULT);
        let left_out = text.len() - end;
        text.truncate(end);
        text.shrink_to_fit();
        let title = format!("{name} · {}", format_duration(envelope.took));
        self.size += text.len();
        self.kept.push_front(ToolResult { title, text, left_out });
        while self.kept.len() > MOST || self.size > LARGEST {
            self.size -= self.kept.pop_back().map_or(self.size, |result| result.text.len());
        }
    }

    /// Returns the whole result of a call: 1 is the last one, 2 the one before.
    pub(super) fn expand(&self, number: usize) -> Result<String, Failure> {
        let Some(result) = number.checked_sub(1).and_then(|at| self.kept.get(at)) else {
            return Err(match self.kept.len() {
                0 => Failure::usage("no tool was called yet"),
                1 => Failure::usage(format!("no result {number}: only one result is kept")),
                count => Failure::usage(format!("no result {number}: the last {count} results are kept")),
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

    use ropeway::tool::{CallError, CallId, Origin};
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
    fn results_are_shown_whole_and_counted_from_the_last() {
        let mut results = Results::default();
        assert_eq!(plain(&results, 1), "no tool was called yet");
        results.add("s.a", &result("one\ntwo\u{1b}[2J\n\n"));
        assert_eq!(plain(&results, 2), "no result 2: only one result is kept");
        results.add("s.b", &result(""));
        let error = CallError::Denied { tool: "t".into(), reason: "no".into() };
        results.add("s.c", &Envelope::from_error(CallId("1".into()), "t", Origin::Local, Duration::ZERO, error));
        assert_eq!(plain(&results, 3), "s.a · 7 ms\none\ntwo\n");
        assert_eq!(plain(&results, 2), "s.b · 7 ms\n(empty)\n");
        assert!(plain(&results, 1).contains("was not called: no"), "{}", plain(&results, 1));
        assert_eq!(plain(&results, 0), "no result 0: the last 3 results are kept");
        assert_eq!(plain(&results, 4), "no result 4: the last 3 results are kept");
    }

    #[test]
    fn what_is_kept_of_results_is_bounded() {
        let mut results = Results::default();
        for _ in 0..60 {
            results.add("t", &result(&"日".repeat(400_000)));
        }
        assert!(results.size <= LARGEST && results.kept.len() <= MOST, "{} bytes", results.size);
        assert!(plain(&results, 1).ends_with("日\n… 151 KB more\n"));
    }
}
