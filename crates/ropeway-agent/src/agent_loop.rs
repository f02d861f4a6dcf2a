//! Agent loop: a model and its turn settings. `run_turn.rs` runs the turns.

use std::borrow::Cow;

use super::budget::OutputBudget;
use super::budgets::OutputBudgets;
use super::limits::TurnLimits;
use super::model_options::ModelOptions;
use super::output_store::OutputStore;
use super::page::shorten;
use super::policy::Approver;
use super::remainder::{READ_MORE, Remainder};
use super::truncate::truncate;
use ropeway_core::envelope::Envelope;
use ropeway_core::message::{ToolCall, ToolResult};
use ropeway_providers::Provider;

/// A model and its turn settings; shared by all of an agent's turns.
#[derive(Debug)]
pub(super) struct AgentLoop {
    pub(super) provider: Provider,
    pub(super) model: String,
    pub(super) options: ModelOptions,
    pub(super) limits: TurnLimits,
    pub(super) approver: Approver,
    pub(super) budgets: OutputBudgets,
    /// Stores outputs that are too large for the model. `None` drops them.
    pub(super) store: Option<OutputStore>,
}

impl AgentLoop {
    /// Returns a finished call's result for the model, and the remainder if the output was truncated. The whole output is
    /// stored if the model can call `read_more`.
    pub(super) async fn result(
        &self,
        call: &ToolCall,
        envelope: &Envelope,
        can_read_more: bool,
    ) -> (ToolResult, Option<Remainder>) {
        let parts = envelope.parts();
        let budget = self.budgets.of(&envelope.tool);
        let (content, remainder) = match &self.store {
            Some(store) if can_read_more => store.fit_and_store(&parts, budget).await,
            _ => (truncate(&parts, budget, &Remainder::Dropped), None),
        };
        (ToolResult { is_error: envelope.meta.is_error, ..ToolResult::new(call, content.into_owned()) }, remainder)
    }

    /// Returns a finished call's result within a smaller budget than [`result`](Self::result).
    pub(super) async fn shorter_result(
        &self,
        call: &ToolCall,
        envelope: &Envelope,
        budget: OutputBudget,
        remainder: Option<&Remainder>,
        can_read_more: bool,
    ) -> ToolResult {
        let parts = envelope.parts();
        let is_page = can_read_more && envelope.tool == READ_MORE;
        let page = is_page.then(|| shorten(&parts, budget.text_bytes)).flatten();
        let content = match (page, &self.store) {
            (Some(page), _) => Cow::Owned(page),
            (None, Some(store)) if can_read_more => {
                store.fit_again(&parts, (self.budgets.of(&envelope.tool), budget), remainder).await
            }
            (None, _) => truncate(&parts, budget, &Remainder::Dropped),
        };
        ToolResult { is_error: envelope.meta.is_error, ..ToolResult::new(call, content.into_owned()) }
    }
}
