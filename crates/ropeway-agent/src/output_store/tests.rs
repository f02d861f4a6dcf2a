//! Tests of the output store.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use super::pieces::CHUNK;
use super::storage::MAX_OPEN;
use super::*;
use ropeway_core::content::Blob;

const LITTLE: OutputBudget = OutputBudget { text_bytes: 10, blob_bytes: 10 };

fn named_store() -> (tempfile::TempDir, OutputStore) {
    let parent = tempfile::tempdir().expect("a folder");
    let store = OutputStore::new().with_parent_folder(parent.path());
    (parent, store)
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

fn folder(store: &OutputStore) -> PathBuf {
    store.folder().expect("an output is stored")
}

#[tokio::test]
async fn an_output_that_fits_is_not_copied_or_stored() {
    let (parent, store) = named_store();
    let content = text(10);
    assert!(matches!(store.fit(&content, LITTLE).await, Cow::Borrowed(_)));
    assert_eq!((store.folder(), names(parent.path())), (None, vec![]));
}

#[tokio::test]
async fn by_default_text_is_stored_in_unnamed_files() {
    let store = OutputStore::new();
    let content = [ContentPart::text("first and long"), ContentPart::Image(Blob::new("image/png", &[7; 1000]))];
    let fitted = store.fit(&content, LITTLE).await.into_owned();
    let expected = [
        "first and \n[31 of 41 bytes omitted; call `read_more` with output \"o1\" and from 10 to continue]",
        "[image, image/png, 1.0 kB: too large to show]",
    ];
    assert_eq!(fitted, expected.map(ContentPart::text));
    assert_eq!(store.folder(), None);
    let (text, length) = store.find("o1").expect("it is stored");
    let mut read = String::new();
    io::Read::read_to_string(&mut text.open().expect("it can be read"), &mut read).expect("a text");
    assert_eq!((read.as_str(), length), ("first and long\n[image, image/png, 1.0 kB]", 41));
    let StoredText::Unnamed(file) = text else { panic!("it has a name") };
    let metadata = file.metadata().expect("a file");
    assert_eq!((metadata.nlink(), metadata.mode() & 0o777), (0, 0o600));
}

#[tokio::test]
async fn few_file_descriptors_are_held_open() {
    let store = OutputStore::new();
    for _ in 0..MAX_OPEN + 5 {
        store.store(&text(20), LITTLE).await.expect("it is stored");
    }
    assert_eq!(store.0.index().outputs.len(), MAX_OPEN);
    assert_eq!(store.0.index().bytes, 20 * MAX_OPEN as u64);
    assert!(store.find("o5").is_err() && store.find("o6").is_ok());
}

#[tokio::test]
async fn all_parts_are_one_text_and_omitted_data_is_a_file() {
    let (_parent, store) = named_store();
    let picture = vec![7; 1000];
    let content = [
        ContentPart::text("first and long"),
        ContentPart::Image(Blob::new("image/png", &picture)),
        ContentPart::Audio(Blob { base64: "no base64!".into(), ..Blob::new("audio/wav", b"") }),
        ContentPart::text("last"),
    ];
    let fitted = store.fit(&content, LITTLE).await.into_owned();
    let expected = [
        "first and \n[64 of 74 bytes omitted; call `read_more` with output \"o1\" and from 10 to continue]",
        "[image, image/png, 1.0 kB: too large to show, stored as `o1-2.png`]",
        "[audio, audio/wav, 7 bytes: too large to show and could not be stored]",
    ];
    assert_eq!(fitted, expected.map(ContentPart::text));
    let folder = folder(&store);
    assert_eq!(names(&folder), ["o1-2.png", "o1.txt"]);
    let written = fs::read_to_string(folder.join("o1.txt")).expect("a text");
    assert_eq!(written, "first and long\n[image, image/png, 1.0 kB]\n[audio, audio/wav, 7 bytes]\nlast");
    assert_eq!(fs::read(folder.join("o1-2.png")).expect("a picture"), picture);
}

#[tokio::test]
async fn only_the_owner_can_access_the_folder_and_its_files() {
    let (_parent, store) = named_store();
    let content = [ContentPart::text("x"), ContentPart::Image(Blob::new("image/png", &[7; 100]))];
    store.store(&content, LITTLE).await.expect("it is stored");
    let folder = folder(&store);
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(names(&folder).iter().map(|name| mode(&folder.join(name))).collect::<Vec<_>>(), [0o600, 0o600]);
}

#[tokio::test]
async fn the_folder_is_deleted_with_the_last_clone() {
    let (parent, store) = named_store();
    let clone = store.clone();
    store.store(&text(100), LITTLE).await.expect("it is stored");
    drop(store);
    assert_eq!(names(&folder(&clone)), ["o1.txt"]);
    drop(clone);
    assert_eq!(names(parent.path()), [""; 0]);
}

#[test]
fn a_dropped_store_operation_leaves_nothing_behind() {
    let (parent, store) = named_store();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    // More than one poll sends, however fast the writer is.
    let content = text(140 * CHUNK);
    runtime.block_on(async {
        let mut keep = std::pin::pin!(store.store(&content, LITTLE));
        // Polled once: the writer has started and receives nothing more.
        std::future::poll_fn(|cx| std::task::Poll::Ready(keep.as_mut().poll(cx).is_pending())).await;
    });
    // Waits for the writer.
    drop(runtime);
    assert_eq!(store.folder().map(|folder| names(&folder)), Some(vec![]));
    assert_eq!(store.0.index().bytes, 0);
    drop(store);
    assert_eq!(names(parent.path()), [""; 0]);
}

#[tokio::test]
async fn an_output_that_cannot_be_written_is_truncated_and_cleaned_up() {
    let (_parent, store) = named_store();
    store.store(&text(100), LITTLE).await.expect("it is stored");
    let folder = folder(&store);
    fs::write(folder.join("o2-2.png"), "in the way").expect("a file");
    let content = [ContentPart::text("x".repeat(20)), ContentPart::Image(Blob::new("image/png", &[7; 100]))];
    let expected = [
        "xxxxxxxxxx\n[40 of 50 bytes omitted and could not be stored]",
        "[image, image/png, 100 bytes: too large to show and could not be stored]",
    ];
    assert_eq!(store.fit(&content, LITTLE).await.into_owned(), expected.map(ContentPart::text));
    assert_eq!(names(&folder), ["o1.txt", "o2-2.png"]);
    assert_eq!(store.0.index().bytes, 100);
    assert_eq!(store.store(&text(100), LITTLE).await.expect("it is stored").name, "o3");
}

#[tokio::test]
async fn without_a_temporary_folder_an_output_is_truncated() {
    let (parent, store) = named_store();
    drop(parent);
    let expected = "xxxxxxxxxx\n[90 of 100 bytes omitted and could not be stored]";
    assert_eq!(store.fit(&text(100), LITTLE).await.into_owned(), [ContentPart::text(expected)]);
    assert_eq!(store.folder(), None);
}

#[tokio::test]
async fn a_deleted_folder_is_created_again() {
    let (parent, store) = named_store();
    store.store(&text(100), LITTLE).await.expect("it is stored");
    fs::remove_dir_all(folder(&store)).expect("it is removed");
    assert_eq!(store.store(&text(50), LITTLE).await.expect("it is stored").name, "o2");
    assert_eq!(names(&folder(&store)), ["o2.txt"]);
    assert_eq!(store.find("o1").expect_err("it is gone"), ["o2"]);
    assert_eq!(store.0.index().bytes, 50);
    drop(store);
    assert_eq!(names(parent.path()), [""; 0]);
}

#[tokio::test]
async fn the_oldest_outputs_are_deleted_for_new_ones() {
    let (_parent, store) = named_store();
    let store = store.with_limit(250);
    for _ in 0..4 {
        store.store(&text(100), LITTLE).await.expect("it is stored");
    }
    assert_eq!(names(&folder(&store)), ["o3.txt", "o4.txt"]);
    let error = store.store(&text(251), LITTLE).await.expect_err("it has no room");
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(names(&folder(&store)), ["o3.txt", "o4.txt"], "nothing is deleted for it");
    store.store(&text(250), LITTLE).await.expect("it is stored");
    assert_eq!(names(&folder(&store)), ["o5.txt"]);
}

#[tokio::test]
async fn nothing_is_deleted_for_an_output_that_cannot_fit() {
    let (_parent, store) = named_store();
    let store = store.with_limit(250);
    store.store(&text(100), LITTLE).await.expect("it is stored");
    let draft = store.0.begin(100, 100).expect("it has room");
    let error = store.store(&text(200), LITTLE).await.expect_err("it has no room");
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(names(&folder(&store)), ["o1.txt"]);
    drop(draft);
    assert_eq!(store.store(&text(200), LITTLE).await.expect("it is stored").name, "o3");
    assert_eq!(names(&folder(&store)), ["o3.txt"]);
}

#[tokio::test]
async fn names_in_a_conversation_are_not_used_again() {
    let (_parent, store) = named_store();
    store.0.skip_to(7);
    store.0.skip_to(3);
    let stored = store.store(&text(100), LITTLE).await.expect("it is stored");
    assert_eq!(stored, StoredOutput::new("o7"));
}

#[tokio::test]
async fn outputs_stored_concurrently_have_different_names() {
    let (_parent, store) = named_store();
    let contents: Vec<_> = (0..20).map(|number| vec![ContentPart::text(format!("output {number}"))]).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for content in contents {
        let store = store.clone();
        tasks.spawn(async move { (store.store(&content, LITTLE).await.expect("it is stored"), content) });
    }
    for (stored, content) in tasks.join_all().await {
        let written = fs::read_to_string(folder(&store).join(format!("{}.txt", stored.name))).expect("a text");
        assert_eq!([ContentPart::text(written)], content[..]);
    }
    assert_eq!(names(&folder(&store)).len(), 20);
}

#[tokio::test]
async fn a_smaller_budget_stores_again_only_for_newly_omitted_data() {
    let (_parent, store) = named_store();
    let picture = ContentPart::Image(Blob::new("image/png", &[7; 30]));
    let content = [ContentPart::text("first and long"), picture];
    let before = OutputBudget { text_bytes: 10, blob_bytes: 100 };
    let (_, remainder) = store.fit_and_store(&content, before).await;
    let notice = |text: &str, rest: usize, name: &str| {
        let from = text.len();
        format!(
            "{text}\n[{rest} of 43 bytes omitted; call `read_more` with output \"{name}\" and from {from} to continue]"
        )
    };
    let less = store.fit_again(&content, (before, before.with_text_bytes(5)), remainder.as_ref()).await;
    assert_eq!(less[..], [ContentPart::text(notice("first", 38, "o1")), content[1].clone()]);
    assert_eq!(names(&folder(&store)), ["o1.txt"]);
    let least = store.fit_again(&content, (before, LITTLE), remainder.as_ref()).await;
    let line = "[image, image/png, 30 bytes: too large to show, stored as `o2-2.png`]";
    assert_eq!(least[..], [notice("first and ", 33, "o2"), line.to_owned()].map(ContentPart::text));
    assert_eq!(names(&folder(&store)), ["o2-2.png", "o2.txt"]);
}

#[tokio::test]
async fn only_a_limited_number_of_parts_become_files() {
    let (_parent, store) = named_store();
    let content = vec![ContentPart::Image(Blob::new("image/png", &[7; 100])); 5000];
    store.store(&content, LITTLE).await.expect("it is stored");
    assert_eq!(names(&folder(&store)).len(), 1 + MAX_FILES);
}

#[tokio::test]
async fn fifty_megabytes_are_stored_whole() {
    let (_parent, store) = named_store();
    let content = [ContentPart::text("0123456789abcde\n".repeat(50_000_000 / 16))];
    let fitted = store.fit(&content, OutputBudget::default()).await;
    let shown = fitted[0].as_text().expect("a text");
    assert!(shown.ends_with(
        "\n[49,950,000 of 50,000,000 bytes omitted; call `read_more` with output \"o1\" and from 50000 to continue]"
    ));
    let written = fs::read(folder(&store).join("o1.txt")).expect("a text");
    assert!(content[0].as_text().is_some_and(|text| text.as_bytes() == written));
}
