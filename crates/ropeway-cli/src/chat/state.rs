//! A chat's state, and saving it.

use std::collections::HashMap;
use std::path::PathBuf;

use ropeway_agent::{Agent, Turn};
use ropeway_core::duration::format_duration;
use ropeway_core::message::{Conversation, Message};
use ropeway_core::tool::Alias;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::agent_config::AgentConfig;
use super::attachment::{Attachment, compose, mentioned};
use super::question::Question;
use super::screen::Screen;
use super::store::{ConversationSaver, SaveOutcome, not_saved_message};
use super::terminal::print_to_user;
use super::undo::AnswerState;
use super::{line_editor, save_file};
use crate::connect::session::Session;
use crate::failure::{Exit, Failure};
use crate::model::SavedModel;
use crate::output::print::say;
use crate::terminal::style::faint;

/// A conversation with a model.
///
/// The `chat` command owns it. It runs one turn at a time on the command's task, so it needs no lock. The approval policy and
/// the server handlers send `questions` through a bounded channel; the turn answers them one after the other, and drops those
/// that are pending when it is cancelled. A turn saves the conversation when it ends, also if it has failed or was cancelled.
/// Dropping the chat saves nothing.
pub(crate) struct Chat<'a> {
    pub(super) session: &'a Session,
    pub(super) agent_config: AgentConfig,
    pub(super) agent: Agent,
    pub(super) screen: Screen,
    pub(super) questions: mpsc::Receiver<Question>,
    pub(super) save_state: SaveState,
    pub(super) answers: AnswerState,
    /// Files to send with the next message.
    attachments: Vec<Attachment>,
    /// Ctrl-C presses since the last line was typed.
    pub(super) interrupt_count: usize,
    /// Questions that each server asked in this turn.
    pub(super) question_counts: HashMap<Alias, usize>,
}

/// Where a conversation is saved.
#[derive(Debug, Default)]
pub(crate) struct SaveState {
    /// The `--save` file.
    pub(crate) file: Option<PathBuf>,
    /// The conversation store, unless it is disabled.
    pub(crate) saver: Option<ConversationSaver>,
    pub(crate) model: SavedModel,
    /// A failed save is reported once.
    pub(crate) warned: bool,
}

/// Whether `@FILE` in a message attaches a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mentions {
    /// The user typed the message.
    Read,
    /// The message came from elsewhere.
    Ignore,
}

impl<'a> Chat<'a> {
    pub(crate) fn new(
        session: &'a Session,
        agent_config: AgentConfig,
        history: Conversation,
        screen: Screen,
        questions: mpsc::Receiver<Question>,
        save_state: SaveState,
    ) -> Result<Self, Failure> {
        let answers = AnswerState::of(&history);
        let agent = agent_config.build_agent(history)?;
        Ok(Self {
            session,
            agent_config,
            agent,
            screen,
            questions,
            save_state,
            answers,
            attachments: Vec::new(),
            interrupt_count: 0,
            question_counts: HashMap::new(),
        })
    }

    /// Attaches files to the next message.
    pub(crate) fn attach(&mut self, attachments: Vec<Attachment>) {
        self.attachments = attachments;
    }

    /// Sends a message with its attached and mentioned files.
    ///
    /// On an error nothing is sent, and the attachments are kept for the next message.
    pub(super) fn send(&mut self, message: &str, mentions: Mentions) -> Result<Turn, Failure> {
        let mentioned = if mentions == Mentions::Read { mentioned(message)? } else { Vec::new() };
        if self.attachments.is_empty() && mentioned.is_empty() {
            return Ok(self.begin_turn(vec![message.into()]));
        }
        let attachments: Vec<Attachment> = self.attachments.iter().chain(&mentioned).cloned().collect();
        let parts = compose(message.to_owned(), &attachments, self.agent_config.provider.dialect())?;
        if self.is_interactive() {
            attachments.iter().for_each(|attachment| print_to_user(&faint(&format!("{}\n", attachment.describe()))));
        }
        self.attachments.clear();
        Ok(self.begin_turn(vec![parts.into()]))
    }

    /// Writes the conversation to the `--save` file and to the store, up to the last reply: a message that failed must not be
    /// sent again with the next one.
    pub(super) fn save_conversation(&mut self) -> Result<(), Failure> {
        let mut conversation = self.agent.history();
        self.answers.update(&conversation);
        conversation.messages.truncate(self.answers.answered);
        if let Some(file) = &self.save_state.file {
            save_file::write(file, &conversation)?;
        }
        let SaveState { saver: Some(saver), model, .. } = &mut self.save_state else { return Ok(()) };
        model.model.clone_from(&self.agent_config.model);
        // The store keeps no conversations without any reply.
        let has_reply = conversation.messages.iter().any(|message| matches!(message, Message::Assistant(_)));
        let saved = if has_reply { saver.save(&conversation, model) } else { saver.remove() };
        match saved {
            Ok(SaveOutcome::Forked { from, id }) => {
                self.screen.warn(&format!("conversation {from} was continued elsewhere; saving this one as {id}"));
            }
            Ok(SaveOutcome::Empty | SaveOutcome::Saved) => {}
            // A failed save does not end the chat.
            Err(failure) if !self.save_state.warned => {
                self.save_state.warned = true;
                self.screen.warn(&not_saved_message(&failure));
            }
            Err(_) => {}
        }
        Ok(())
    }

    /// Saves further turns as a new stored conversation.
    pub(super) fn start_new_conversation(&mut self) {
        if let Some(saver) = &mut self.save_state.saver {
            saver.start_new_conversation();
        }
    }

    /// Returns the name of the tool that the model searches with, if the tools are too many to send.
    pub(super) fn search_tool(&self) -> Option<String> {
        let (all, sent) = (self.agent.all_tools(), self.agent.tools());
        let is_unlisted = all.definitions().any(|definition| sent.get(&definition.name).is_none());
        let mut sent = sent.definitions().map(|definition| &definition.name);
        sent.find(|name| is_unlisted && name.ends_with("find_tools")).cloned()
    }

    /// Returns `true` if a user at a terminal can be asked.
    pub(super) fn is_interactive(&self) -> bool {
        self.agent_config.question_sender.is_some()
    }

    /// Prints text that is not the model's: to standard output for a user, to standard error for a script.
    pub(super) fn note(&self, text: &str) {
        if self.is_interactive() { print_to_user(text) } else { say(text) }
    }

    pub(super) fn is_past_deadline(&self) -> bool {
        self.session.deadline.as_ref().is_some_and(|deadline| deadline.at() <= Instant::now())
    }

    /// Restores the terminal and returns the `--timeout` failure.
    pub(super) fn deadline_failure(&self) -> Failure {
        line_editor::restore();
        let after =
            self.session.deadline.as_ref().map(|deadline| format!(" after {}", format_duration(deadline.after())));
        Failure::new(Exit::Timeout, format!("the chat timed out{}", after.unwrap_or_default()))
    }
}

/// Waits for the command's deadline, forever if it has none.
pub(super) async fn deadline_reached(session: &Session) {
    match &session.deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.at()).await,
        None => std::future::pending().await,
    }
}
