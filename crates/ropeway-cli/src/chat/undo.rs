//! Messages that are taken back: those that failed, and those that the user removes.

use ropeway_agent::{AgentError, Turn};
use ropeway_core::message::{Conversation, Message};

use super::state::Chat;
use super::turn_failure::agent_failure;
use crate::failure::Failure;
use crate::terminal::style::faint;
use crate::terminal::text::{clean_line, cut, width};

/// How far the model has answered a conversation.
#[derive(Clone, Debug, Default)]
pub(super) struct AnswerState {
    /// Number of messages up to the last reply.
    pub(super) answered: usize,
    /// Messages after it, which no reply has followed.
    unanswered: usize,
    /// Rejected messages that were removed from the conversation. `/retry` sends them again.
    removed: Vec<Message>,
}

impl AnswerState {
    /// Returns the state for a loaded conversation.
    pub(super) fn of(conversation: &Conversation) -> Self {
        let messages = &conversation.messages;
        let unanswered = messages.iter().rev().take_while(|message| matches!(message, Message::User { .. })).count();
        Self { answered: messages.len() - unanswered, unanswered, removed: Vec::new() }
    }

    pub(super) fn has_unanswered(&self) -> bool {
        self.unanswered > 0
    }

    /// Counts a conversation's messages after a turn.
    pub(super) fn update(&mut self, conversation: &Conversation) {
        let count = conversation.messages.len();
        if count != self.answered + self.unanswered {
            (self.answered, self.unanswered) = (count, 0);
        }
    }
}

impl Chat<'_> {
    /// Starts a turn with new messages.
    pub(super) fn begin_turn(&mut self, messages: Vec<Message>) -> Turn {
        self.answers.removed.clear();
        self.answers.unanswered += messages.len();
        self.agent.send(messages)
    }

    /// Sends the last request again.
    pub(super) fn retry(&mut self) -> Turn {
        match std::mem::take(&mut self.answers.removed) {
            messages if messages.is_empty() => self.agent.resume(),
            messages => self.begin_turn(messages),
        }
    }

    /// Continues with another conversation.
    pub(super) async fn replace_history(&mut self, conversation: Conversation) {
        self.answers = AnswerState::of(&conversation);
        self.agent.replace_history(conversation).await;
    }

    /// Removes the last message and everything that followed it.
    pub(super) async fn undo(&mut self) -> Result<(), Failure> {
        if !std::mem::take(&mut self.answers.removed).is_empty() {
            self.note(&faint("the rejected message was already removed\n"));
            return Ok(());
        }
        let mut conversation = self.agent.history();
        let last = conversation.messages.iter().rposition(|message| matches!(message, Message::User { .. }));
        let Some(last) = last else { return Err(Failure::usage("no message to undo")) };
        let text = format!("removed: {}", first_line(&conversation.messages[last]));
        conversation.messages.truncate(last);
        self.replace_history(conversation).await;
        self.save_conversation()?;
        self.note(&faint(&format!("{}\n", cut(&text, width()))));
        Ok(())
    }

    /// Returns the failure for a turn, with the ways to go on. A message that the provider rejects would make all later
    /// requests fail, so it is removed.
    pub(super) async fn turn_failed(&mut self, error: &AgentError) -> Failure {
        let failure = agent_failure(error);
        if !self.is_interactive() || matches!(error, AgentError::NothingToAnswer) {
            return failure;
        }
        let is_rejected = matches!(error, AgentError::Provider { source, .. } if !source.is_retryable());
        match (self.answers.has_unanswered(), is_rejected) {
            (true, true) => {
                let mut conversation = self.agent.history();
                let removed = conversation.messages.split_off(self.answers.answered.min(conversation.messages.len()));
                self.replace_history(conversation).await;
                self.answers.removed = removed;
                failure.hint("the message was removed from the conversation; `/retry` sends it again")
            }
            (true, false) => failure.hint("`/retry` sends the message again; `/undo` removes it"),
            (false, _) => {
                failure.hint("`/retry` continues the turn; `/undo` removes its message and all that followed")
            }
        }
    }
}

/// Returns a message's first line, without its attachments.
pub(super) fn first_line(message: &Message) -> String {
    let text = match message {
        Message::User { content } => content.iter().rev().find_map(|part| part.as_text()).unwrap_or_default(),
        _ => "",
    };
    clean_line(text.trim_start().lines().next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use ropeway_core::message::AssistantMessage;

    use super::*;

    #[test]
    fn messages_at_the_end_are_unanswered_until_a_reply_follows() {
        let mut conversation =
            Conversation::new().with("one").with(AssistantMessage::text("1")).with("two").with("three");
        let mut answers = AnswerState::of(&conversation);
        assert_eq!((answers.answered, answers.unanswered), (2, 2));
        answers.update(&conversation);
        assert!(answers.has_unanswered());
        conversation.push(AssistantMessage::text("2"));
        answers.update(&conversation);
        assert_eq!((answers.answered, answers.unanswered), (5, 0));
    }
}
