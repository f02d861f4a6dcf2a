//! Output storage: the index of stored outputs, their limits, and writing new ones.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use super::files::{Folder, StoredText, create_private, create_unnamed, remove_files};
use super::pieces::Piece;
use crate::remainder::StoredOutput;
use ropeway_core::content::decode_base64;
use ropeway_core::sync::lock;

/// Maximum number of outputs in unnamed files, each of which holds a file descriptor.
pub(super) const MAX_OPEN: usize = 64;

#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// Where the directory for named files is created; `None` for unnamed files.
    pub(super) parent: Option<PathBuf>,
    pub(super) limit: u64,
}

/// The outputs that a store and its clones share.
#[derive(Debug)]
pub(super) struct Storage {
    pub(super) settings: Settings,
    index: Mutex<OutputIndex>,
}

#[derive(Debug, Default)]
pub(super) struct OutputIndex {
    folder: Option<Folder>,
    /// The last output's number.
    last: u64,
    /// Oldest first.
    pub(super) outputs: VecDeque<IndexEntry>,
    /// Total size of all outputs, including those that are being written.
    pub(super) bytes: u64,
}

#[derive(Debug)]
pub(super) struct IndexEntry {
    name: String,
    text: StoredText,
    /// Text length.
    length: u64,
    /// Text and data size.
    bytes: u64,
    /// Named files.
    files: Vec<PathBuf>,
}

impl Storage {
    pub(super) fn new(settings: Settings) -> Self {
        Self { settings, index: Mutex::default() }
    }

    pub(super) fn index(&self) -> MutexGuard<'_, OutputIndex> {
        lock(&self.index)
    }

    pub(super) fn folder(&self) -> Option<PathBuf> {
        self.index().folder.as_ref().map(|folder| folder.path.clone())
    }

    /// Makes the next output have at least this number.
    pub(super) fn skip_to(&self, number: u64) {
        let mut index = self.index();
        index.last = index.last.max(number.saturating_sub(1));
    }

    pub(super) fn find(&self, name: &str) -> Result<(StoredText, u64), Vec<String>> {
        let index = self.index();
        let found = index.outputs.iter().find(|output| output.name == name);
        let text = found.map(|output| (output.text.clone(), output.length));
        text.ok_or_else(|| index.outputs.iter().rev().map(|output| output.name.clone()).collect())
    }

    pub(super) fn remove(&self, name: &str) {
        let mut index = self.index();
        let position = index.outputs.iter().position(|output| output.name == name);
        let Some(output) = position.and_then(|position| index.outputs.remove(position)) else { return };
        index.bytes -= output.bytes;
        drop(index);
        remove_files(&output.files);
    }

    /// Writes an output as its pieces arrive.
    pub(super) fn write(
        &self,
        length: u64,
        bytes: u64,
        mut received: mpsc::Receiver<Piece>,
    ) -> io::Result<StoredOutput> {
        let mut draft = self.begin(length, bytes)?;
        let text = draft.create_text()?;
        while let Some(piece) = received.blocking_recv() {
            match piece {
                Piece::Text(chunk) => (&*text).write_all(&chunk)?,
                Piece::Data { part, extension, base64 } => {
                    // Invalid base64 has no bytes to store; the text mentions the part.
                    let Ok(bytes) = decode_base64(&base64) else { continue };
                    let suffix = format!("-{part}.{extension}");
                    draft.create(&suffix)?.write_all(&bytes)?;
                    let name = format!("{}{suffix}", draft.output.name);
                    draft.output.files.get_or_insert_default().push((part, name));
                }
                Piece::End => return Ok(draft.finish(text)),
            }
        }
        Err(io::Error::other("the call was dropped"))
    }

    /// Reserves room for an output, deletes the oldest ones for it, and creates the directory if needed.
    pub(super) fn begin(&self, length: u64, bytes: u64) -> io::Result<Draft<'_>> {
        let mut index = self.index();
        // Outputs that are being written cannot be deleted. If the rest is not enough, delete nothing.
        let deletable: u64 = index.outputs.iter().map(|output| output.bytes).sum();
        if (index.bytes - deletable).saturating_add(bytes) > self.settings.limit {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let folder = match (&self.settings.parent, &index.folder) {
            (None, _) => None,
            (Some(_), Some(folder)) if folder.exists() => Some(folder.path.clone()),
            (Some(parent), _) => {
                // The directory was deleted from outside, and its outputs with it.
                let lost: u64 = index.outputs.drain(..).map(|output| output.bytes).sum();
                index.bytes -= lost;
                let folder = Folder::create(parent)?;
                Some(index.folder.insert(folder).path.clone())
            }
        };
        let mut oldest = Vec::new();
        while (index.bytes + bytes > self.settings.limit || folder.is_none() && index.outputs.len() >= MAX_OPEN)
            && let Some(output) = index.outputs.pop_front()
        {
            index.bytes -= output.bytes;
            oldest.extend(output.files);
        }
        index.bytes += bytes;
        index.last = index.last.saturating_add(1);
        let name = format!("o{}", index.last);
        drop(index);
        remove_files(&oldest);
        let output = StoredOutput { name, files: folder.is_some().then(Vec::new) };
        Ok(Draft { storage: self, folder, length, bytes, files: Vec::new(), output, is_complete: false })
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        let index = self.index.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(folder) = index.folder.take().filter(Folder::exists) {
            let _ = fs::remove_dir_all(folder.path);
        }
    }
}

/// An output that is being written. Dropped before it is complete, it deletes its files.
pub(super) struct Draft<'a> {
    storage: &'a Storage,
    /// The directory for named files.
    folder: Option<PathBuf>,
    length: u64,
    bytes: u64,
    files: Vec<PathBuf>,
    output: StoredOutput,
    is_complete: bool,
}

impl Draft<'_> {
    fn create(&mut self, suffix: &str) -> io::Result<File> {
        let folder = self.folder.as_deref().ok_or(io::ErrorKind::NotFound)?;
        let path = folder.join(format!("{}{suffix}", self.output.name));
        let file = create_private(&path)?;
        self.files.push(path);
        Ok(file)
    }

    fn create_text(&mut self) -> io::Result<Arc<File>> {
        let file = if self.folder.is_some() { self.create(".txt") } else { create_unnamed() };
        file.map(Arc::new)
    }

    fn finish(mut self, text: Arc<File>) -> StoredOutput {
        self.is_complete = true;
        let output = std::mem::replace(&mut self.output, StoredOutput::new(""));
        let files = std::mem::take(&mut self.files);
        // A named file need not stay open.
        let text = files.first().map_or(StoredText::Unnamed(text), |path| StoredText::Named(path.clone()));
        let entry = IndexEntry { name: output.name.clone(), text, length: self.length, bytes: self.bytes, files };
        self.storage.index().outputs.push_back(entry);
        output
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if !self.is_complete {
            remove_files(&self.files);
            self.storage.index().bytes -= self.bytes;
        }
    }
}
