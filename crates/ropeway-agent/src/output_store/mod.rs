//! Output store: tool outputs that are too large for the model, in spill files.

mod files;
mod pieces;
mod storage;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

pub(super) use self::files::{StoredText, TextReader};
use self::pieces::send_pieces;
use self::storage::{Settings, Storage};
use super::budget::OutputBudget;
use super::remainder::{Remainder, StoredOutput};
use super::rendered::{BinaryData, rendered_len};
use super::truncate::{fits, omitted_data, truncate};
use ropeway_core::content::ContentPart;
use ropeway_core::message::{Conversation, Message};

/// Default limit for all outputs together, in bytes.
const DEFAULT_LIMIT: u64 = 1 << 30;

/// Maximum number of parts in one output that become separate files.
const MAX_FILES: usize = 100;

/// Stores outputs that are too large for the model, until the last clone is dropped.
///
/// Cheap to clone. By default an output's text goes to an unnamed file in the system's temporary directory: only the tool
/// `read_more` reaches it, and the system deletes it when the process ends, even if it is killed. The store keeps the 64 newest
/// outputs, each with an open file descriptor, and no binary data.
///
/// [`OutputStore::with_parent_folder`] stores named files instead, including binary data, in a directory that only its owner can
/// access. The directory is deleted with the last clone; a process that is killed leaves it behind.
///
/// Clones share one `Storage`, whose std mutex guards the index. A blocking task writes each output: it locks the index to
/// reserve room and a name, writes the files without the lock, and locks again to publish the finished output. Old files are
/// deleted after the lock is released; only the directory is checked and created under it. The mutex is the only lock and is
/// never held across `.await`. An output is being written, stored or deleted. One that is being written counts against the
/// limit but cannot be found or displaced; if its call is dropped, the task deletes its files and returns the room. The task
/// holds a clone of the storage, which keeps the directory until it ends. Readers that have opened a text keep reading it
/// after its deletion.
#[derive(Clone, Debug)]
pub struct OutputStore(Arc<Storage>);

impl Default for OutputStore {
    fn default() -> Self {
        Self::with_settings(Settings { parent: None, limit: DEFAULT_LIMIT })
    }
}

impl OutputStore {
    /// Creates a store for at most 1 GiB, in unnamed files in the system's temporary directory.
    pub fn new() -> Self {
        Self::default()
    }

    fn with_settings(settings: Settings) -> Self {
        Self(Arc::new(Storage::new(settings)))
    }

    /// Returns an empty store with this maximum size. The oldest outputs are deleted for new ones.
    #[must_use]
    pub fn with_limit(self, bytes: u64) -> Self {
        Self::with_settings(Settings { limit: bytes, ..self.0.settings.clone() })
    }

    /// Returns an empty store with named files, in a new directory below this one.
    #[must_use]
    pub fn with_parent_folder(self, folder: impl Into<PathBuf>) -> Self {
        Self::with_settings(Settings { parent: Some(folder.into()), ..self.0.settings.clone() })
    }

    /// Returns the directory for named files, once one is stored.
    pub fn folder(&self) -> Option<PathBuf> {
        self.0.folder()
    }

    /// Returns as much of an output as the budget allows, with notices about the rest. Stores the whole output if it exceeds the
    /// budget, and copies nothing if it fits. An output that cannot be stored is truncated as well.
    pub(super) async fn fit<'a>(&self, content: &'a [ContentPart], budget: OutputBudget) -> Cow<'a, [ContentPart]> {
        self.fit_and_store(content, budget).await.0
    }

    /// [`fit`](Self::fit) that also returns a truncated output's remainder.
    pub(super) async fn fit_and_store<'a>(
        &self,
        content: &'a [ContentPart],
        budget: OutputBudget,
    ) -> (Cow<'a, [ContentPart]>, Option<Remainder>) {
        if fits(content, budget) {
            return (Cow::Borrowed(content), None);
        }
        let remainder = self.store(content, budget).await.map_or_else(
            |error| {
                tracing::warn!(%error, "could not store a tool output");
                Remainder::Lost
            },
            Remainder::Stored,
        );
        (truncate(content, budget, &remainder), Some(remainder))
    }

    /// [`fit`](Self::fit) for an output that was fitted to another budget before. Stores it again only if the new budget omits
    /// more binary data.
    pub(super) async fn fit_again<'a>(
        &self,
        content: &'a [ContentPart],
        (before, now): (OutputBudget, OutputBudget),
        remainder: Option<&Remainder>,
    ) -> Cow<'a, [ContentPart]> {
        let max_files = self.max_files();
        let files = |budget| omitted_data(content, budget).take(max_files).count();
        match remainder {
            Some(remainder) if files(now) <= files(before) => truncate(content, now, remainder),
            remainder => {
                if let Some(Remainder::Stored(output)) = remainder {
                    // The model has not seen its name.
                    self.0.remove(&output.name);
                }
                self.fit(content, now).await
            }
        }
    }

    /// Returns the maximum number of output parts that become files: zero for unnamed files, which could not be opened.
    fn max_files(&self) -> usize {
        if self.0.settings.parent.is_some() { MAX_FILES } else { 0 }
    }

    /// Stores an output: all parts as one text, separated by line breaks, and the binary data that the budget omits as files.
    pub(super) async fn store(&self, content: &[ContentPart], budget: OutputBudget) -> io::Result<StoredOutput> {
        let length = rendered_len(content) as u64;
        let data: Vec<(usize, BinaryData<'_>)> = omitted_data(content, budget).take(self.max_files()).collect();
        let bytes = length + data.iter().map(|(_, data)| data.decoded_len() as u64).sum::<u64>();
        let (pieces, received) = mpsc::channel(4);
        // The clone keeps the directory until the writer ends, even if this future is dropped.
        let storage = self.0.clone();
        let writer = spawn_blocking(move || storage.write(length, bytes, received));
        // Sending fails if the writer failed. The writer returns the reason.
        let _ = send_pieces(content, &data, pieces).await;
        writer.await.unwrap_or_else(|panic| Err(io::Error::other(panic)))
    }

    /// Skips all names that the conversation may contain: an earlier store's name must not refer to a new output. Each result
    /// was stored at most twice.
    pub(super) fn skip_outputs_of(&self, conversation: &Conversation) {
        let results = conversation.messages.iter().map(|message| match message {
            Message::Tool { results } => results.len() as u64,
            _ => 0,
        });
        self.0.skip_to(1 + 2 * results.sum::<u64>());
    }

    /// Returns an output's text and its length, or the names of all stored outputs, newest first.
    pub(super) fn find(&self, name: &str) -> Result<(StoredText, u64), Vec<String>> {
        self.0.find(name)
    }
}
