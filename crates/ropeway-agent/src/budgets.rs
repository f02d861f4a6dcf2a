//! An agent's output budgets: per tool, and for all results in one step together.

use super::budget::OutputBudget;
use super::remainder::{FOOTER_BYTES, READ_MORE};
use super::truncate::usage;
use ropeway_config::Glob;
use ropeway_core::content::ContentPart;

/// Minimum page size of a stored output in bytes, regardless of the budget: an empty page would make no progress.
const MIN_PAGE: usize = 1000;

/// An agent's output budgets: one per tool, and one for all results in a step together.
#[derive(Clone, Debug)]
pub(super) struct OutputBudgets {
    pub(super) default: OutputBudget,
    by_tool: Vec<(Glob, OutputBudget)>,
    pub(super) round: OutputBudget,
    /// Invalid patterns, each with the reason.
    pub(super) invalid: Vec<(String, String)>,
}

impl Default for OutputBudgets {
    /// The default [`OutputBudget`] for every tool; 200,000 text bytes and 20 MiB of base64 for all results in a step.
    fn default() -> Self {
        let round = OutputBudget { text_bytes: 200_000, blob_bytes: 20 << 20 };
        Self { default: OutputBudget::default(), by_tool: Vec::new(), round, invalid: Vec::new() }
    }
}

impl OutputBudgets {
    /// Sets the budget for every tool that no pattern matches.
    #[must_use]
    pub(super) fn with_default(self, budget: OutputBudget) -> Self {
        Self { default: budget, ..self }
    }

    /// Sets the budget for all results in one step together, which keeps many concurrent calls from filling the context window.
    #[must_use]
    pub(super) fn with_round(self, budget: OutputBudget) -> Self {
        Self { round: budget, ..self }
    }

    /// Sets the budget for tools whose names match the glob. The first match applies.
    #[must_use]
    pub(super) fn with_tool(mut self, pattern: &str, budget: OutputBudget) -> Self {
        match Glob::new(pattern) {
            Ok(glob) => self.by_tool.push((glob, budget)),
            Err(error) => self.invalid.push((pattern.to_owned(), error.to_string())),
        }
        self
    }

    /// Returns a tool's budget. The budget for `read_more` always has room for one page.
    pub(super) fn of(&self, tool: &str) -> OutputBudget {
        if tool == READ_MORE {
            return self.default.with_text_bytes(self.page() + FOOTER_BYTES);
        }
        let own = self.by_tool.iter().find(|(glob, _)| glob.matches(tool));
        own.map_or(self.default, |(_, budget)| *budget)
    }

    /// Returns the page size for stored outputs, in bytes.
    pub(super) fn page(&self) -> usize {
        self.default.text_bytes.saturating_sub(FOOTER_BYTES).max(MIN_PAGE)
    }

    /// Returns the reduced budget for each output in one step, given with its own budget; `None` for an output that stays as it
    /// is.
    ///
    /// If all text together exceeds the budget, small outputs stay whole and the large ones share the rest evenly. Binary data is
    /// admitted in output order.
    pub(super) fn of_round(&self, outputs: &[(&[ContentPart], OutputBudget)]) -> Vec<Option<OutputBudget>> {
        let wanted: Vec<OutputBudget> = outputs.iter().map(|(content, own)| usage(content, *own)).collect();
        let texts = wanted.iter().map(|wanted| wanted.text_bytes).collect();
        let share = fair_share(texts, self.round.text_bytes).unwrap_or(usize::MAX);
        let mut blob_bytes = self.round.blob_bytes;
        let reduced = |((content, own), wanted): (&(&[ContentPart], OutputBudget), &OutputBudget)| {
            let mut budget = own.with_blob_bytes(own.blob_bytes.min(blob_bytes));
            if wanted.text_bytes > share {
                budget.text_bytes = share;
            }
            blob_bytes -= usage(content, budget).blob_bytes;
            (wanted.text_bytes > budget.text_bytes || wanted.blob_bytes > budget.blob_bytes).then_some(budget)
        };
        outputs.iter().zip(&wanted).map(reduced).collect()
    }
}

/// Returns the maximum per output with which all outputs fit into the total; `None` if they fit as they are.
fn fair_share(mut wanted: Vec<usize>, mut total: usize) -> Option<usize> {
    wanted.sort_unstable();
    for (sharers, wanted) in (1..=wanted.len()).rev().zip(&wanted) {
        let share = total / sharers;
        if *wanted > share {
            return Some(share);
        }
        total -= wanted;
    }
    None
}
