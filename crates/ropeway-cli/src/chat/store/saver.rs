//! Saves conversations after each turn.

use ring::rand::{SecureRandom as _, SystemRandom};
use ropeway_core::message::{Conversation, Message};

use super::directory::{ConversationStore, ID_LENGTH};
use super::header::{ConversationHeader, MAX_BYTES, VERSION, read_header};
use crate::chat::save_file;
use crate::failure::Failure;
use crate::files::file;
use crate::model::SavedModel;
use crate::secrets::redaction;
use crate::terminal::text::{clean_line, cut_words};

/// Maximum title width in columns.
pub(super) const MAX_TITLE: usize = 80;

/// Saves a conversation after each turn.
#[derive(Debug)]
pub(crate) struct ConversationSaver {
    pub(super) store: ConversationStore,
    pub(super) folder: String,
    pub(super) saved: Option<ConversationHeader>,
    /// The servers that the user chose; empty for all.
    pub(super) servers: Vec<String>,
}

/// What a save did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SaveOutcome {
    /// The conversation has no messages.
    Empty,
    /// The conversation was written.
    Saved,
    /// Another process continued the same conversation, so this one was saved under a new id.
    Forked { from: String, id: String },
}

impl ConversationSaver {
    /// Creates a saver for a new conversation, or for a resumed one.
    pub(crate) fn new(store: ConversationStore, resumed: Option<ConversationHeader>) -> Self {
        Self { store, folder: working_folder(), saved: resumed, servers: Vec::new() }
    }

    /// Stores the servers that the user chose, for chats that continue the conversation.
    pub(crate) fn with_servers(self, servers: Vec<String>) -> Self {
        Self { servers, ..self }
    }

    /// Returns the conversation's id once it was saved.
    pub(crate) fn id(&self) -> Option<&str> {
        self.saved.as_ref().map(|header| header.id.as_str())
    }

    /// Gives the next save a new id.
    pub(crate) fn start_new_conversation(&mut self) {
        self.saved = None;
    }

    /// Removes the stored conversation, unless another process has continued it. The next save gets a new id.
    pub(crate) fn remove(&mut self) -> Result<SaveOutcome, Failure> {
        if let Some(header) = self.saved.take() {
            let _lock = self.store.lock()?;
            if self.is_ours(&header) {
                // The file may not exist anymore.
                let _ = std::fs::remove_file(self.store.path(&header.id));
            }
        }
        Ok(SaveOutcome::Empty)
    }

    /// Returns `false` if another process has continued the conversation.
    fn is_ours(&self, header: &ConversationHeader) -> bool {
        match read_header(&self.store.path(&header.id), &header.id) {
            Ok((found, _)) => found.revision == header.revision,
            Err(_) => !self.store.path(&header.id).exists(),
        }
    }

    /// Writes the conversation atomically.
    pub(crate) fn save(&mut self, conversation: &Conversation, model: &SavedModel) -> Result<SaveOutcome, Failure> {
        if conversation.messages.is_empty() {
            return Ok(SaveOutcome::Empty);
        }
        let mut body = save_file::to_line(conversation)?;
        body.push('\n');
        if body.len() > MAX_BYTES {
            return Err(Failure::usage(format!("the conversation is larger than {} MiB", MAX_BYTES >> 20)));
        }
        let _lock = self.store.lock()?;
        let known = self.saved.as_ref();
        let forked = known.filter(|header| !self.is_ours(header)).map(|header| header.id.clone());
        let id = match (known, &forked) {
            (Some(header), None) => header.id.clone(),
            _ => self.free_id()?,
        };
        let updated = now();
        let header = ConversationHeader {
            ropeway_conversation: VERSION,
            id,
            title: title(conversation),
            folder: self.folder.clone(),
            model: model.redacted(),
            servers: self.servers.clone(),
            created: known.map_or_else(|| updated.clone(), |header| header.created.clone()),
            updated,
            turns: turns(conversation),
            bytes: body.len() as u64,
            revision: random_hex(16)?,
        };
        let line = serde_json::to_string(&header);
        let line =
            line.map_err(|error| Failure::usage("could not write the conversation as JSON").caused_by(&error))?;
        file::put(&self.store.path(&header.id), &format!("{line}\n{body}"), file::PRIVATE)?;
        let id = header.id.clone();
        self.saved = Some(header);
        self.store.prune(&id);
        Ok(match forked {
            Some(from) => SaveOutcome::Forked { from, id },
            None => SaveOutcome::Saved,
        })
    }

    fn free_id(&self) -> Result<String, Failure> {
        for _ in 0..100 {
            let id = random_hex(ID_LENGTH)?;
            if std::fs::symlink_metadata(self.store.path(&id)).is_err() {
                return Ok(id);
            }
        }
        Err(Failure::usage(format!("could not find an unused id in `{}`", self.store.folder.display())))
    }
}

/// Returns the number of prompts.
fn turns(conversation: &Conversation) -> usize {
    conversation.messages.iter().filter(|message| matches!(message, Message::User { .. })).count()
}

/// Returns the start of the first prompt, which follows its attached files.
pub(super) fn title(conversation: &Conversation) -> String {
    let first = conversation.messages.iter().find_map(|message| match message {
        Message::User { content } => content.iter().rev().find_map(|part| part.as_text()),
        _ => None,
    });
    let text = first.unwrap_or_default();
    // Bounds the work for a long prompt.
    let start = &text[..text.floor_char_boundary(MAX_TITLE * 16)];
    let line = clean_line(&redaction::redact(start)).split_whitespace().collect::<Vec<_>>().join(" ");
    cut_words(&line, MAX_TITLE)
}

/// Returns the warning for a failed save.
pub(crate) fn not_saved_message(failure: &Failure) -> String {
    format!("could not save the conversation: {}", failure.line())
}

fn random_hex(digits: usize) -> Result<String, Failure> {
    let mut bytes = vec![0; digits.div_ceil(2)];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Failure::usage("the system's random number generator failed"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Returns the redacted working directory.
pub(crate) fn working_folder() -> String {
    let folder = std::env::current_dir().and_then(std::fs::canonicalize).unwrap_or_default();
    redaction::redact(&folder.to_string_lossy()).into_owned()
}
