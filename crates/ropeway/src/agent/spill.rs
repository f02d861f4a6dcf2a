//! Spilled outputs: what was too large for the model, kept in files that it can page through and that end with the process.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::budget::{OutputBudget, Rest, data_left_out, fit, fits};
use super::written::{Data, Written, written_len};
use crate::content::{ContentPart, SharedText, decode_base64};
use crate::sync::lock;

/// What is kept in all unless the host says otherwise.
const LIMIT: u64 = 1 << 30;

/// Text goes to the disk in pieces of about this size, so that a large output is not copied as a whole.
const CHUNK: usize = 256 << 10;

/// Of one output, at most this many parts become files of their own.
const MOST_FILES: usize = 100;

/// Without a folder of its own, a spill holds a file descriptor for each output, and at most so many.
const MOST_OPEN: usize = 64;

/// Outputs that were too large for the model, kept until the last clone is dropped.
///
/// Cheap to clone. By default the text of an output goes to a file in the system's folder for temporary files that has no name:
/// only [`ReadMore`](super::ReadMore) reaches it, and the system deletes it when the process ends, however it ends. The 64
/// newest outputs are kept, each with an open file descriptor, and data such as images is not.
///
/// [`OutputStore::below`] keeps files with names, data included, in a folder that only its owner can look into. It is deleted with
/// the last clone; a process that is killed leaves it behind.
#[derive(Clone, Debug)]
pub struct OutputStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: Settings,
    shelf: Mutex<Shelf>,
}

#[derive(Clone, Debug)]
struct Settings {
    /// Where a folder for files with names is made.
    below: Option<PathBuf>,
    limit: u64,
}

#[derive(Debug, Default)]
struct Shelf {
    folder: Option<Folder>,
    /// The number of the last output.
    count: u64,
    /// The oldest first.
    outputs: VecDeque<Output>,
    /// What all outputs take, those that are being written too.
    bytes: u64,
}

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    owner: u32,
}

#[derive(Debug)]
struct Output {
    name: String,
    /// How long its text is.
    length: u64,
    /// What it takes in all.
    bytes: u64,
    text: StoredText,
    /// Those that have names.
    files: Vec<PathBuf>,
}

/// Where the text of an output is.
#[derive(Clone, Debug)]
pub(super) enum StoredText {
    /// In a file with a name.
    Named(PathBuf),
    /// In a file without one.
    Unnamed(Arc<File>),
}

impl StoredText {
    pub(super) fn open(&self) -> io::Result<TextReader> {
        let file = match self {
            Self::Named(path) => Arc::new(File::open(path)?),
            Self::Unnamed(file) => file.clone(),
        };
        Ok(TextReader { file, position: 0 })
    }
}

/// Reads a stored text. Several may read one file at once: the position is the reader's own.
pub(super) struct TextReader {
    file: Arc<File>,
    position: u64,
}

impl TextReader {
    pub(super) fn seek(&mut self, position: u64) {
        self.position = position;
    }
}

impl io::Read for TextReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.position)?;
        self.position += count as u64;
        Ok(count)
    }
}

/// An output that is kept: what a model asks for it by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    name: String,
    /// The files of its data; none where data is not kept.
    files: Option<Vec<(usize, String)>>,
}

impl Kept {
    /// An output that somebody keeps under this name.
    pub(super) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), files: Some(Vec::new()) }
    }

    /// Its name, such as `o3`.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Is data kept, besides text?
    pub(super) fn keeps_data(&self) -> bool {
        self.files.is_some()
    }

    /// The file, in the folder of the spill, that holds the data of a part; parts are counted from 1.
    pub(super) fn file(&self, part: usize) -> Option<&str> {
        self.files.iter().flatten().find(|(number, _)| *number == part).map(|(_, file)| file.as_str())
    }
}

impl Default for OutputStore {
    fn default() -> Self {
        Self::of(Settings { below: None, limit: LIMIT })
    }
}

impl OutputStore {
    /// A spill of at most 1 GiB, in files without names in the system's folder for temporary files.
    pub fn new() -> Self {
        Self::default()
    }

    fn of(settings: Settings) -> Self {
        Self(Arc::new(Inner { settings, shelf: Mutex::default() }))
    }

    /// An empty spill that keeps at most this much: the oldest outputs are deleted for new ones.
    #[must_use]
    pub fn with_limit(self, bytes: u64) -> Self {
        Self::of(Settings { limit: bytes, ..self.0.settings.clone() })
    }

    /// An empty spill with files that have names, in a folder that it makes below another one.
    #[must_use]
    pub fn below(self, folder: impl Into<PathBuf>) -> Self {
        Self::of(Settings { below: Some(folder.into()), ..self.0.settings.clone() })
    }

    /// Where the outputs are, when there are some that have names.
    pub fn folder(&self) -> Option<PathBuf> {
        self.0.shelf().folder.as_ref().map(|folder| folder.path.clone())
    }

    /// As much of an output as the budget has room for; the rest is kept, and lines tell of it. Nothing is copied if all
    /// of it fits. What cannot be kept is left out all the same.
    pub async fn fit<'a>(&self, content: &'a [ContentPart], budget: OutputBudget) -> Cow<'a, [ContentPart]> {
        self.fit_and_keep(content, budget).await.0
    }

    /// The same, and what has become of the rest where there is one.
    pub(super) async fn fit_and_keep<'a>(
        &self,
        content: &'a [ContentPart],
        budget: OutputBudget,
    ) -> (Cow<'a, [ContentPart]>, Option<Rest>) {
        if fits(content, budget) {
            return (Cow::Borrowed(content), None);
        }
        let rest = self.keep(content, budget).await.map_or_else(
            |error| {
                tracing::warn!(%error, "an output that is too large for the model could not be kept");
                Rest::Lost
            },
            Rest::Kept,
        );
        (fit(content, budget, &rest), Some(rest))
    }

    /// The same for an output that was fitted to another budget before: what is kept of it stays where it is, unless data is
    /// left out now that was not.
    pub(super) async fn fit_again<'a>(
        &self,
        content: &'a [ContentPart],
        (before, now): (OutputBudget, OutputBudget),
        rest: Option<&Rest>,
    ) -> Cow<'a, [ContentPart]> {
        let most_files = self.most_files();
        let data = |budget| data_left_out(content, budget).take(most_files).count();
        match rest {
            Some(rest) if data(now) <= data(before) => fit(content, now, rest),
            rest => {
                if let Some(Rest::Kept(kept)) = rest {
                    self.forget(kept);
                }
                self.fit(content, now).await
            }
        }
    }

    /// How many parts of an output become files. Nobody could open one without a name.
    fn most_files(&self) -> usize {
        if self.0.settings.below.is_some() { MOST_FILES } else { 0 }
    }

    /// Deletes an output that the model was not told of.
    fn forget(&self, kept: &Kept) {
        let mut shelf = self.0.shelf();
        let place = shelf.outputs.iter().position(|output| output.name == kept.name);
        let Some(output) = place.and_then(|place| shelf.outputs.remove(place)) else { return };
        shelf.bytes -= output.bytes;
        drop(shelf);
        remove(&output.files);
    }

    /// Keeps an output: all parts as one text, a line break between two of them, and the data that the budget has no
    /// room for as files.
    pub(super) async fn keep(&self, content: &[ContentPart], budget: OutputBudget) -> io::Result<Kept> {
        let length = written_len(content) as u64;
        let data: Vec<(usize, Data<'_>)> = data_left_out(content, budget).take(self.most_files()).collect();
        let bytes = length + data.iter().map(|(_, data)| data.size() as u64).sum::<u64>();
        let (pieces, received) = mpsc::channel(4);
        // The writer has a clone of its own: the folder stays until it is done with it, also when nobody waits any more.
        let inner = self.0.clone();
        let writer = spawn_blocking(move || inner.write(length, bytes, received));
        // A writer that does not listen any more has failed, and says why.
        let _ = send(content, &data, pieces).await;
        writer.await.unwrap_or_else(|panic| Err(io::Error::other(panic)))
    }

    /// The next output has at least this number: for a conversation that was begun with another spill, so that what it says
    /// of an output is not taken for a new one.
    pub(super) fn skip_to(&self, first: u64) {
        let mut shelf = self.0.shelf();
        shelf.count = shelf.count.max(first.saturating_sub(1));
    }

    /// The text of an output and its length, or the names of those that are there, the newest first.
    pub(super) fn find(&self, name: &str) -> Result<(StoredText, u64), Vec<String>> {
        let shelf = self.0.shelf();
        let found = shelf.outputs.iter().find(|output| output.name == name);
        let place = found.map(|output| (output.text.clone(), output.length));
        place.ok_or_else(|| shelf.outputs.iter().rev().map(|output| output.name.clone()).collect())
    }
}

/// What the writer is told.
enum Piece {
    Text(Vec<u8>),
    Data {
        part: usize,
        extension: &'static str,
        base64: SharedText,
    },
    /// That was all. Without it, whoever wanted the output kept has gone.
    End,
}

async fn send(
    content: &[ContentPart],
    data: &[(usize, Data<'_>)],
    pieces: mpsc::Sender<Piece>,
) -> Result<(), mpsc::error::SendError<Piece>> {
    let mut chunk = Vec::with_capacity(CHUNK);
    for (number, part) in content.iter().enumerate() {
        let written = Written::of(part);
        let line_break = if number == 0 { "" } else { "\n" };
        let line;
        let texts = match &written {
            Written::Text { head, body } => [line_break, head, body],
            Written::Data(data) => {
                line = data.line("");
                [line_break, &line, ""]
            }
        };
        for mut rest in texts.map(str::as_bytes) {
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(CHUNK - chunk.len()));
                chunk.extend_from_slice(now);
                rest = later;
                if chunk.len() == CHUNK {
                    pieces.send(Piece::Text(std::mem::replace(&mut chunk, Vec::with_capacity(CHUNK)))).await?;
                }
            }
        }
    }
    pieces.send(Piece::Text(chunk)).await?;
    for (part, data) in data {
        pieces.send(Piece::Data { part: *part, extension: data.extension(), base64: data.share() }).await?;
    }
    pieces.send(Piece::End).await
}

impl Inner {
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        lock(&self.shelf)
    }

    fn write(&self, length: u64, bytes: u64, mut received: mpsc::Receiver<Piece>) -> io::Result<Kept> {
        let mut draft = self.begin(length, bytes)?;
        let text = draft.create_text()?;
        while let Some(piece) = received.blocking_recv() {
            match piece {
                Piece::Text(chunk) => (&*text).write_all(&chunk)?,
                Piece::Data { part, extension, base64 } => {
                    // What is no base64 cannot be kept as what it is; the text tells of it.
                    let Ok(bytes) = decode_base64(&base64) else { continue };
                    let file = format!("-{part}.{extension}");
                    draft.create(file.clone())?.write_all(&bytes)?;
                    let name = format!("{}{file}", draft.kept.name);
                    draft.kept.files.get_or_insert_default().push((part, name));
                }
                Piece::End => return Ok(draft.finish(text)),
            }
        }
        Err(io::Error::other("nobody waits for it"))
    }

    /// Makes room for an output, and a folder if there is none.
    fn begin(&self, length: u64, bytes: u64) -> io::Result<Draft<'_>> {
        let mut shelf = self.shelf();
        // Those that are being written cannot be deleted, and nothing is deleted for what has no room anyway.
        let kept: u64 = shelf.outputs.iter().map(|output| output.bytes).sum();
        if (shelf.bytes - kept).saturating_add(bytes) > self.settings.limit {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let folder = match (&self.settings.below, &shelf.folder) {
            (None, _) => None,
            (Some(_), Some(folder)) if folder.is_there() => Some(folder.path.clone()),
            (Some(below), _) => {
                // Somebody has tidied up: what was in it is gone.
                let lost: u64 = shelf.outputs.drain(..).map(|output| output.bytes).sum();
                shelf.bytes -= lost;
                let folder = Folder::make(below)?;
                Some(shelf.folder.insert(folder).path.clone())
            }
        };
        let mut oldest = Vec::new();
        while (shelf.bytes + bytes > self.settings.limit || folder.is_none() && shelf.outputs.len() >= MOST_OPEN)
            && let Some(output) = shelf.outputs.pop_front()
        {
            shelf.bytes -= output.bytes;
            oldest.extend(output.files);
        }
        shelf.bytes += bytes;
        shelf.count = shelf.count.saturating_add(1);
        let name = format!("o{}", shelf.count);
        drop(shelf);
        remove(&oldest);
        let files = folder.is_some().then(Vec::new);
        Ok(Draft { inner: self, folder, length, bytes, files: Vec::new(), kept: Kept { name, files }, is_whole: false })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut shelf = lock(&self.shelf);
        if let Some(folder) = shelf.folder.take().filter(Folder::is_there) {
            let _ = fs::remove_dir_all(folder.path);
        }
    }
}

impl Folder {
    /// A new folder, for its owner only from the first moment on.
    fn make(below: &Path) -> io::Result<Self> {
        let mut tries = 0;
        loop {
            let path = below.join(format!("ropeway-{:016x}", fastrand::u64(..)));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { owner: fs::symlink_metadata(&path)?.uid(), path }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < 10 => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Is it still there, and still ours? In a folder that all may write to, another's could have taken its place.
    fn is_there(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|found| found.is_dir() && found.uid() == self.owner)
    }
}

/// An output that is being written. Dropped before it is whole, it leaves nothing behind.
struct Draft<'a> {
    inner: &'a Inner,
    /// Where files with names go.
    folder: Option<PathBuf>,
    length: u64,
    bytes: u64,
    files: Vec<PathBuf>,
    kept: Kept,
    is_whole: bool,
}

impl Draft<'_> {
    fn create(&mut self, ending: String) -> io::Result<File> {
        let folder = self.folder.as_deref().ok_or(io::ErrorKind::NotFound)?;
        let path = folder.join(format!("{}{ending}", self.kept.name));
        let file = private_file(&path)?;
        self.files.push(path);
        Ok(file)
    }

    fn create_text(&mut self) -> io::Result<Arc<File>> {
        let file = if self.folder.is_some() { self.create(".txt".to_owned()) } else { unnamed_file() };
        file.map(Arc::new)
    }

    fn finish(mut self, text: Arc<File>) -> Kept {
        self.is_whole = true;
        let kept = std::mem::replace(&mut self.kept, Kept::new(""));
        let files = std::mem::take(&mut self.files);
        // A file with a name need not stay open.
        let text = files.first().map_or(StoredText::Unnamed(text), |path| StoredText::Named(path.clone()));
        let output = Output { name: kept.name.clone(), length: self.length, bytes: self.bytes, text, files };
        self.inner.shelf().outputs.push_back(output);
        kept
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if !self.is_whole {
            remove(&self.files);
            self.inner.shelf().bytes -= self.bytes;
        }
    }
}

/// A new file for its owner only; never one that was there, and never behind a link.
fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// A new file that has lost its name before anything is written to it: the system deletes it when it is closed, also when the
/// process is killed.
fn unnamed_file() -> io::Result<File> {
    let folder = std::env::temp_dir();
    let mut tries = 0;
    loop {
        let path = folder.join(format!("ropeway-{:016x}", fastrand::u64(..)));
        match private_file(&path) {
            Ok(file) => return fs::remove_file(&path).map(|()| file),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < 10 => tries += 1,
            Err(error) => return Err(error),
        }
    }
}

fn remove(files: &[PathBuf]) {
    for file in files {
        let _ = fs::remove_file(file);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::content::Blob;

    const LITTLE: OutputBudget = OutputBudget { text_bytes: 10, blob_bytes: 10 };

    fn spill() -> (tempfile::TempDir, OutputStore) {
        let below = tempfile::tempdir().expect("a folder");
        let spill = OutputStore::new().below(below.path());
        (below, spill)
    }

    fn text(length: usize) -> Vec<ContentPart> {
        vec![ContentPart::text("x".repeat(length))]
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn folder(spill: &OutputStore) -> PathBuf {
        spill.folder().expect("something is kept")
    }

    #[tokio::test]
    async fn an_output_that_fits_is_not_copied_and_makes_no_folder() {
        let (below, spill) = spill();
        let content = text(10);
        assert!(matches!(spill.fit(&content, LITTLE).await, Cow::Borrowed(_)));
        assert_eq!((spill.folder(), names(below.path())), (None, vec![]));
    }

    #[tokio::test]
    async fn by_default_an_output_has_no_name_on_disk_and_only_text_is_kept() {
        let spill = OutputStore::new();
        let content = [ContentPart::text("first and long"), ContentPart::Image(Blob::new("image/png", &[7; 1000]))];
        let fitted = spill.fit(&content, LITTLE).await.into_owned();
        let expected = [
            "first and \n[31 of 41 bytes are left out; call `read_more` with output \"o1\" and from 10 for the rest]",
            "[image, image/png, 1.0 kB: it is too large to be shown]",
        ];
        assert_eq!(fitted, expected.map(ContentPart::text));
        assert_eq!(spill.folder(), None);
        let (text, length) = spill.find("o1").expect("it is kept");
        let mut read = String::new();
        io::Read::read_to_string(&mut text.open().expect("it can be read"), &mut read).expect("a text");
        assert_eq!((read.as_str(), length), ("first and long\n[image, image/png, 1.0 kB]", 41));
        let StoredText::Unnamed(file) = text else { panic!("it has a name") };
        let metadata = file.metadata().expect("a file");
        assert_eq!((metadata.nlink(), metadata.mode() & 0o777), (0, 0o600));
    }

    #[tokio::test]
    async fn few_file_descriptors_are_held_open() {
        let spill = OutputStore::new();
        for _ in 0..MOST_OPEN + 5 {
            spill.keep(&text(20), LITTLE).await.expect("it is kept");
        }
        assert_eq!(spill.0.shelf().outputs.len(), MOST_OPEN);
        assert_eq!(spill.0.shelf().bytes, 20 * MOST_OPEN as u64);
        assert!(spill.find("o5").is_err() && spill.find("o6").is_ok());
    }

    #[tokio::test]
    async fn all_parts_are_one_text_and_data_without_room_is_a_file() {
        let (_below, spill) = spill();
        let picture = vec![7; 1000];
        let content = [
            ContentPart::text("first and long"),
            ContentPart::Image(Blob::new("image/png", &picture)),
            ContentPart::Audio(Blob { base64: "no base64!".into(), ..Blob::new("audio/wav", b"") }),
            ContentPart::text("last"),
        ];
        let fitted = spill.fit(&content, LITTLE).await.into_owned();
        let expected = [
            "first and \n[64 of 74 bytes are left out; call `read_more` with output \"o1\" and from 10 for the rest]",
            "[image, image/png, 1.0 kB: it is too large to be shown, and kept as `o1-2.png`]",
            "[sound, audio/wav, 7 bytes: it is too large to be shown, and could not be kept]",
        ];
        assert_eq!(fitted, expected.map(ContentPart::text));
        let folder = folder(&spill);
        assert_eq!(names(&folder), ["o1-2.png", "o1.txt"]);
        let written = fs::read_to_string(folder.join("o1.txt")).expect("a text");
        assert_eq!(written, "first and long\n[image, image/png, 1.0 kB]\n[sound, audio/wav, 7 bytes]\nlast");
        assert_eq!(fs::read(folder.join("o1-2.png")).expect("a picture"), picture);
    }

    #[tokio::test]
    async fn nobody_else_can_look_into_the_folder_or_a_file() {
        let (_below, spill) = spill();
        let content = [ContentPart::text("x"), ContentPart::Image(Blob::new("image/png", &[7; 100]))];
        spill.keep(&content, LITTLE).await.expect("it is kept");
        let folder = folder(&spill);
        let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700);
        assert_eq!(names(&folder).iter().map(|name| mode(&folder.join(name))).collect::<Vec<_>>(), [0o600, 0o600]);
    }

    #[tokio::test]
    async fn the_folder_goes_with_the_last_clone() {
        let (below, spill) = spill();
        let clone = spill.clone();
        spill.keep(&text(100), LITTLE).await.expect("it is kept");
        drop(spill);
        assert_eq!(names(&folder(&clone)), ["o1.txt"]);
        drop(clone);
        assert_eq!(names(below.path()), [""; 0]);
    }

    #[test]
    fn an_output_that_nobody_waits_for_leaves_nothing_behind() {
        let (below, spill) = spill();
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        // More than a task may do at one go, however fast the writer is.
        let content = text(140 * CHUNK);
        runtime.block_on(async {
            let mut keep = std::pin::pin!(spill.keep(&content, LITTLE));
            // Polled once: the writer has been started, and then nothing more is heard.
            std::future::poll_fn(|cx| std::task::Poll::Ready(keep.as_mut().poll(cx).is_pending())).await;
        });
        // Waits for the writer.
        drop(runtime);
        assert_eq!(spill.folder().map(|folder| names(&folder)), Some(vec![]));
        assert_eq!(spill.0.shelf().bytes, 0);
        drop(spill);
        assert_eq!(names(below.path()), [""; 0]);
    }

    #[tokio::test]
    async fn an_output_that_cannot_be_written_leaves_nothing_behind_and_is_cut_all_the_same() {
        let (_below, spill) = spill();
        spill.keep(&text(100), LITTLE).await.expect("it is kept");
        let folder = folder(&spill);
        fs::write(folder.join("o2-2.png"), "in the way").expect("a file");
        let content = [ContentPart::text("x".repeat(20)), ContentPart::Image(Blob::new("image/png", &[7; 100]))];
        let expected = [
            "xxxxxxxxxx\n[40 of 50 bytes are left out, and could not be kept]",
            "[image, image/png, 100 bytes: it is too large to be shown, and could not be kept]",
        ];
        assert_eq!(spill.fit(&content, LITTLE).await.into_owned(), expected.map(ContentPart::text));
        assert_eq!(names(&folder), ["o1.txt", "o2-2.png"]);
        assert_eq!(spill.0.shelf().bytes, 100);
        assert_eq!(spill.keep(&text(100), LITTLE).await.expect("it is kept").name(), "o3");
    }

    #[tokio::test]
    async fn without_a_folder_for_temporary_files_an_output_is_cut_all_the_same() {
        let (below, spill) = spill();
        drop(below);
        let expected = "xxxxxxxxxx\n[90 of 100 bytes are left out, and could not be kept]";
        assert_eq!(spill.fit(&text(100), LITTLE).await.into_owned(), [ContentPart::text(expected)]);
        assert_eq!(spill.folder(), None);
    }

    #[tokio::test]
    async fn a_folder_that_was_deleted_is_made_anew() {
        let (below, spill) = spill();
        spill.keep(&text(100), LITTLE).await.expect("it is kept");
        fs::remove_dir_all(folder(&spill)).expect("somebody tidies up");
        assert_eq!(spill.keep(&text(50), LITTLE).await.expect("it is kept").name(), "o2");
        assert_eq!(names(&folder(&spill)), ["o2.txt"]);
        assert_eq!(spill.find("o1").expect_err("it is gone"), ["o2"]);
        assert_eq!(spill.0.shelf().bytes, 50);
        drop(spill);
        assert_eq!(names(below.path()), [""; 0]);
    }

    #[tokio::test]
    async fn the_oldest_outputs_are_deleted_for_new_ones() {
        let (_below, spill) = spill();
        let spill = spill.with_limit(250);
        for _ in 0..4 {
            spill.keep(&text(100), LITTLE).await.expect("it is kept");
        }
        assert_eq!(names(&folder(&spill)), ["o3.txt", "o4.txt"]);
        let error = spill.keep(&text(251), LITTLE).await.expect_err("it has no room");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(names(&folder(&spill)), ["o3.txt", "o4.txt"], "nothing is deleted for it");
        spill.keep(&text(250), LITTLE).await.expect("it is kept");
        assert_eq!(names(&folder(&spill)), ["o5.txt"]);
    }

    #[tokio::test]
    async fn nothing_is_deleted_for_an_output_that_has_no_room_beside_those_that_are_being_written() {
        let (_below, spill) = spill();
        let spill = spill.with_limit(250);
        spill.keep(&text(100), LITTLE).await.expect("it is kept");
        let draft = spill.0.begin(100, 100).expect("it has room");
        let error = spill.keep(&text(200), LITTLE).await.expect_err("it has no room");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(names(&folder(&spill)), ["o1.txt"]);
        drop(draft);
        assert_eq!(spill.keep(&text(200), LITTLE).await.expect("it is kept").name(), "o3");
        assert_eq!(names(&folder(&spill)), ["o3.txt"]);
    }

    #[tokio::test]
    async fn names_that_a_conversation_knows_do_not_come_back() {
        let (_below, spill) = spill();
        spill.skip_to(7);
        spill.skip_to(3);
        let kept = spill.keep(&text(100), LITTLE).await.expect("it is kept");
        assert_eq!(kept, Kept::new("o7"));
    }

    #[tokio::test]
    async fn outputs_that_are_kept_at_once_have_different_names() {
        let (_below, spill) = spill();
        let contents: Vec<_> = (0..20).map(|number| vec![ContentPart::text(format!("output {number}"))]).collect();
        let mut tasks = tokio::task::JoinSet::new();
        for content in contents {
            let spill = spill.clone();
            tasks.spawn(async move { (spill.keep(&content, LITTLE).await.expect("it is kept"), content) });
        }
        for (kept, content) in tasks.join_all().await {
            let written = fs::read_to_string(folder(&spill).join(format!("{}.txt", kept.name()))).expect("a text");
            assert_eq!([ContentPart::text(written)], content[..]);
        }
        assert_eq!(names(&folder(&spill)).len(), 20);
    }

    #[tokio::test]
    async fn an_output_in_less_room_is_kept_anew_only_for_data_that_is_left_out_now() {
        let (_below, spill) = spill();
        let picture = ContentPart::Image(Blob::new("image/png", &[7; 30]));
        let content = [ContentPart::text("first and long"), picture];
        let before = OutputBudget { text_bytes: 10, blob_bytes: 100 };
        let (_, rest) = spill.fit_and_keep(&content, before).await;
        let told = |text: &str, rest: usize, name: &str| {
            let from = text.len();
            format!(
                "{text}\n[{rest} of 43 bytes are left out; call `read_more` with output \"{name}\" and from {from} for the rest]"
            )
        };
        let less = spill.fit_again(&content, (before, before.with_text_bytes(5)), rest.as_ref()).await;
        assert_eq!(less[..], [ContentPart::text(told("first", 38, "o1")), content[1].clone()]);
        assert_eq!(names(&folder(&spill)), ["o1.txt"]);
        let least = spill.fit_again(&content, (before, LITTLE), rest.as_ref()).await;
        let line = "[image, image/png, 30 bytes: it is too large to be shown, and kept as `o2-2.png`]";
        assert_eq!(least[..], [told("first and ", 33, "o2"), line.to_owned()].map(ContentPart::text));
        assert_eq!(names(&folder(&spill)), ["o2-2.png", "o2.txt"]);
    }

    #[tokio::test]
    async fn few_of_very_many_parts_become_files() {
        let (_below, spill) = spill();
        let content = vec![ContentPart::Image(Blob::new("image/png", &[7; 100])); 5000];
        spill.keep(&content, LITTLE).await.expect("it is kept");
        assert_eq!(names(&folder(&spill)).len(), 1 + MOST_FILES);
    }

    #[tokio::test]
    async fn fifty_megabytes_are_kept_whole() {
        let (_below, spill) = spill();
        let content = [ContentPart::text("0123456789abcde\n".repeat(50_000_000 / 16))];
        let fitted = spill.fit(&content, OutputBudget::default()).await;
        let shown = fitted[0].as_text().expect("a text");
        assert!(shown.ends_with(
            "\n[49,950,000 of 50,000,000 bytes are left out; call `read_more` with output \"o1\" and from 50000 for the rest]"
        ));
        let written = fs::read(folder(&spill).join("o1.txt")).expect("a text");
        assert!(content[0].as_text().is_some_and(|text| text.as_bytes() == written));
    }
}
