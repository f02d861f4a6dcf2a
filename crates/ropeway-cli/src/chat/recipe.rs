//! A recipe: what an agent of a chat is made of, so that another one can be made in its place.

use std::path::PathBuf;

use ropeway::agent::{Agent, Approval, Approvals, ModelOptions, TurnLimits};
use ropeway::bridge::Bridge;
use ropeway::message::Conversation;
use ropeway::provider::Provider;
use tokio::sync::{mpsc, oneshot};

use super::Question;
use super::approval::Rules;
use crate::connect::servers::ServerSource;
use crate::failure::Failure;

/// What an agent is made of.
pub(crate) struct Recipe {
    pub(crate) provider: Provider,
    pub(crate) model: String,
    pub(crate) system: Option<String>,
    pub(crate) limits: TurnLimits,
    pub(crate) options: ModelOptions,
    pub(crate) rules: Rules,
    /// What was allowed for good; every agent of the chat goes by it.
    pub(crate) approvals: Approvals,
    pub(crate) bridge: Option<Bridge>,
    /// Where questions about calls go, when there is somebody to be asked.
    pub(crate) desk: Option<mpsc::Sender<Question>>,
    /// The configuration file beside which approvals are kept, when there is one.
    pub(crate) lock: Option<PathBuf>,
    /// Where the servers come from.
    pub(crate) source: ServerSource,
}

impl Recipe {
    /// An agent that goes on with a history.
    pub(super) fn agent(&self, history: Conversation) -> Result<Agent, Failure> {
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
        if let Some(bridge) = &self.bridge {
            builder = builder.bridge(bridge.clone());
        }
        if let Some(desk) = self.desk.clone() {
            builder = builder.on_approval(move |request| {
                let desk = desk.clone();
                async move {
                    let (reply, replied) = oneshot::channel();
                    // A closed channel counts as a denial.
                    let _ = desk.send(Question::Call(Box::new(request), reply)).await;
                    replied.await.unwrap_or_else(|_| Approval::deny())
                }
            });
        }
        builder.build().map_err(|error| Failure::usage(error.to_string()))
    }
}
