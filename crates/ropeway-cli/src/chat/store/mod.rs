//! The conversation store: one file per conversation of this user.
//!
//! A file has two JSON lines: the [`ConversationHeader`], which is all that a list reads, and the conversation in the
//! `--save` format.

mod directory;
mod header;
mod saver;
#[cfg(test)]
mod tests;

pub(crate) use self::directory::{ConversationEntry, ConversationStore, StoredConversation, is_enabled};
pub(crate) use self::header::ConversationHeader;
pub(crate) use self::saver::{ConversationSaver, SaveOutcome, not_saved_message, working_folder};
