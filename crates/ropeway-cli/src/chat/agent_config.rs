//! A chat's agent configuration; the agent is rebuilt when the model changes.

use ropeway_agent::{Agent, Approval, Approvals, ModelOptions, TurnLimits};
use ropeway_bridge::Bridge;
use ropeway_core::message::Conversation;
use ropeway_providers::Provider;
use tokio::sync::{mpsc, oneshot};

use super::approval::ApprovalArgs;
use super::approval_store::ApprovalStore;
use super::question::Question;
use super::replaced_file::LocalFolders;
use crate::connect::servers::ServerSource;
use crate::connect::trace_variable::trace_parent;
use crate::failure::Failure;

/// Everything needed to build a chat's agent.
pub(crate) struct AgentConfig {
    pub(crate) provider: Provider,
    pub(crate) model: String,
    pub(crate) system: Option<String>,
    pub(crate) limits: TurnLimits,
    pub(crate) options: ModelOptions,
    pub(crate) rules: ApprovalArgs,
    /// The chat's approvals, shared by all of its agents.
    pub(crate) approvals: Approvals,
    pub(crate) bridge: Option<Bridge>,
    /// Sends questions to the user; `None` without a terminal.
    pub(crate) question_sender: Option<mpsc::Sender<Question>>,
    /// Keeps approvals for later chats; `None` without a configuration file.
    pub(crate) approval_store: Option<ApprovalStore>,
    /// Where stdio servers work, to show what a call replaces.
    pub(crate) local_folders: LocalFolders,
    /// Where the server configuration comes from.
    pub(crate) source: ServerSource,
}

impl AgentConfig {
    /// Builds an agent that continues a conversation.
    pub(super) fn build_agent(&self, history: Conversation) -> Result<Agent, Failure> {
        let mut builder = Agent::builder()
            .provider(self.provider.clone())
            .model(&self.model)
            .limits(self.limits.clone())
            .options(self.options.clone())
            .policy(self.rules.policy())
            .approvals(self.approvals.clone())
            .history(history);
        if let Some(system) = &self.system {
            builder = builder.system(system);
        }
        if let Some(parent) = trace_parent() {
            builder = builder.traceparent(parent);
        }
        if let Some(bridge) = &self.bridge {
            builder = builder.bridge(bridge.clone());
        }
        if let Some(question_sender) = self.question_sender.clone() {
            builder = builder.on_approval(move |request| {
                let question_sender = question_sender.clone();
                async move {
                    let (reply, replied) = oneshot::channel();
                    // A closed channel counts as a denial.
                    let _ = question_sender.send(Question::Call(Box::new(request), reply)).await;
                    replied.await.unwrap_or_else(|_| Approval::deny())
                }
            });
        }
        builder.build().map_err(|error| Failure::usage(error.to_string()))
    }
}
