//! Tests of the conversation store.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use ropeway_core::message::Conversation;

use super::saver::{MAX_TITLE, title};
use super::*;
use crate::model::SavedModel;

struct Bench {
    _folder: tempfile::TempDir,
    store: ConversationStore,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = ConversationStore { folder: folder.path().join("state/conversations") };
        Self { _folder: folder, store }
    }

    fn saver(&self, folder: &str) -> ConversationSaver {
        ConversationSaver { store: self.store.clone(), folder: folder.to_owned(), saved: None, servers: Vec::new() }
    }

    fn saved(&self, folder: &str, prompt: &str) -> String {
        let mut saver = self.saver(folder);
        saver.save(&Conversation::new().with(prompt), &SavedModel::default()).expect("saved");
        saver.id().expect("an id").to_owned()
    }

    fn mode(&self, path: &Path) -> u32 {
        std::fs::metadata(path).expect("a file").permissions().mode() & 0o777
    }
}

#[test]
fn a_conversation_is_read_back_as_it_was_saved() {
    let bench = Bench::new();
    let mut saver = bench.saver("/work").with_servers(vec!["files".to_owned()]);
    let mut model = SavedModel::default();
    model.model = "parrot".into();
    assert_eq!(saver.save(&Conversation::new(), &model).expect("nothing"), SaveOutcome::Empty);
    assert!(!bench.store.folder.exists());
    let conversation = Conversation::new().with("hello\nthere").with("again");
    assert_eq!(saver.save(&conversation, &model).expect("saved"), SaveOutcome::Saved);
    let id = saver.id().expect("an id").to_owned();
    let stored = bench.store.load(&id).expect("a conversation");
    assert_eq!(stored.conversation, conversation);
    let ConversationHeader { title, folder, turns, model: saved, servers, .. } = stored.header;
    assert_eq!(servers, ["files"]);
    assert_eq!((title.as_str(), folder.as_str(), turns, saved), ("hello there", "/work", 2, model));
    assert_eq!(bench.mode(&bench.store.folder), 0o700);
    assert_eq!(bench.mode(&bench.store.path(&id)), 0o600);
}

#[test]
fn a_prefix_finds_one_conversation_or_names_the_candidates() {
    let bench = Bench::new();
    let failure = bench.store.find("a").expect_err("nothing there");
    assert_eq!(failure.message(), "unknown conversation `a`");
    let first = bench.saved("/a", "the first");
    assert_eq!(bench.store.find(&first[..3]).expect("an id"), first);
    let mut other = bench.saved("/a", "the second");
    while other.starts_with(&first[..1]) {
        other = bench.saved("/a", "the second");
    }
    let failure = bench.store.find("").expect_err("ambiguous");
    assert!(failure.message().starts_with("`` matches "), "{}", failure.message());
    assert!(failure.render().contains("the first") && failure.render().contains("the second"));
    let failure = bench.store.find("nothing").expect_err("unknown");
    assert!(failure.render().contains("the first"), "{}", failure.render());
}

#[test]
fn the_latest_conversation_of_a_folder_is_continued() {
    let bench = Bench::new();
    let failure = bench.store.latest("/a").expect_err("nothing there");
    assert!(failure.render().contains("start one with `ropeway chat`"), "{}", failure.render());
    let here = bench.saved("/a", "one");
    bench.saved("/b", "two");
    assert_eq!(bench.store.latest("/a").expect("an id"), here);
    let failure = bench.store.latest("/c").expect_err("nothing there");
    assert!(failure.render().contains("chat --list"), "{}", failure.render());
}

#[test]
fn a_conversation_that_another_process_continues_is_forked() {
    let bench = Bench::new();
    let id = bench.saved("/a", "one");
    let resume = || ConversationSaver::new(bench.store.clone(), Some(bench.store.load(&id).expect("stored").header));
    let (mut one, mut other) = (resume(), resume());
    let said = |words: &str| Conversation::new().with("one").with(words);
    assert_eq!(one.save(&said("here"), &SavedModel::default()).expect("saved"), SaveOutcome::Saved);
    let SaveOutcome::Forked { from, id: new } = other.save(&said("there"), &SavedModel::default()).expect("saved")
    else {
        panic!("no fork")
    };
    assert_eq!(from, id);
    assert_eq!(other.save(&said("there"), &SavedModel::default()).expect("saved"), SaveOutcome::Saved);
    assert_eq!(bench.store.load(&id).expect("stored").conversation, said("here"));
    assert_eq!(bench.store.load(&new).expect("stored").conversation, said("there"));
    // A conversation that was removed in the meantime is written again.
    std::fs::remove_file(bench.store.path(&id)).expect("a file");
    assert_eq!(one.save(&said("here"), &SavedModel::default()).expect("saved"), SaveOutcome::Saved);
    assert_eq!(one.id(), Some(id.as_str()));
}

#[test]
fn a_removed_conversation_gets_a_new_id_unless_it_was_continued_elsewhere() {
    let bench = Bench::new();
    let id = bench.saved("/a", "one");
    let resume = || ConversationSaver::new(bench.store.clone(), Some(bench.store.load(&id).expect("stored").header));
    let (mut one, mut other) = (resume(), resume());
    other.save(&Conversation::new().with("one").with("more"), &SavedModel::default()).expect("saved");
    one.remove().expect("nothing to remove");
    assert!(bench.store.path(&id).exists() && one.id().is_none());
    other.remove().expect("removed");
    assert!(!bench.store.path(&id).exists() && other.id().is_none());
}

#[test]
fn unusable_files_are_listed_with_a_reason_and_do_not_block() {
    let bench = Bench::new();
    let good = bench.saved("/a", "good");
    let text = std::fs::read_to_string(bench.store.path(&good)).expect("a file");
    let line = text.lines().next().expect("a header");
    let huge = "x".repeat(200 << 10);
    let cases: [(&str, &str, &str); 6] = [
        ("00000001", "", "file is truncated"),
        ("00000002", "words\n", "not a ropeway conversation file"),
        ("00000003", "{\"ropeway_conversation\": 9}\n", "unsupported format version 9 (expected 1); update ropeway"),
        ("00000004", &huge, "not a ropeway conversation file"),
        ("00000005", &text, &format!("contains conversation `{good}`")),
        ("00000006", &format!("{}\n", line.replace(&good, "00000006")), "file is truncated"),
    ];
    for (id, text, _) in &cases {
        std::fs::write(bench.store.path(id), text).expect("a file");
        std::fs::set_permissions(bench.store.path(id), Permissions::from_mode(0o600)).expect("permissions");
    }
    let made = std::process::Command::new("mkfifo").arg(bench.store.path("00000007")).status().expect("mkfifo");
    assert!(made.success());
    std::os::unix::fs::symlink("/dev/zero", bench.store.path("00000008")).expect("a link");
    std::fs::write(bench.store.path("00000009"), &text).expect("a file");
    std::fs::set_permissions(bench.store.path("00000009"), Permissions::from_mode(0o622)).expect("permissions");
    std::fs::write(bench.store.folder.join("notes.txt"), "mine").expect("a file");
    let entries = bench.store.list().expect("a list");
    let problem = |id: &str| {
        let entry = entries.iter().find(|entry| entry.id == id).expect("an entry");
        entry.header.as_ref().expect_err("a problem").clone()
    };
    for (id, _, words) in &cases {
        assert_eq!(problem(id), *words, "{id}");
        let failure = bench.store.load(id).expect_err("no conversation");
        let shown = bench.store.path(id).display().to_string();
        assert!(failure.message().contains(&shown) && failure.message().contains(words), "{}", failure.message());
    }
    assert_eq!(problem("00000007"), "not a regular file");
    assert_eq!(problem("00000008"), "is a symbolic link");
    assert_eq!(problem("00000009"), "is writable by all users");
    assert_eq!(entries.len(), 10);
}

#[test]
fn a_broken_second_line_is_reported_with_its_position() {
    let bench = Bench::new();
    let id = bench.saved("/a", "one");
    let path = bench.store.path(&id);
    let text = std::fs::read_to_string(&path).expect("a file").replace("\"role\"", "\"roll\"");
    std::fs::write(&path, text).expect("a file");
    let failure = bench.store.load(&id).expect_err("no conversation");
    assert!(failure.message().starts_with(&format!("{}:2:", path.display())), "{}", failure.message());
}

#[test]
fn the_oldest_conversations_are_removed_and_nothing_else() {
    let bench = Bench::new();
    let ids: Vec<String> = (0..5).map(|number| bench.saved("/a", &format!("number {number}"))).collect();
    for (age, id) in ids.iter().rev().enumerate() {
        let file = File::options().write(true).open(bench.store.path(id)).expect("a file");
        let then = SystemTime::now() - Duration::from_secs(60 * (age as u64 + 1));
        file.set_modified(then).expect("a time");
    }
    std::fs::write(bench.store.folder.join("notes.txt"), "mine").expect("a file");
    let left = || -> Vec<String> {
        let mut left: Vec<String> = bench.store.list().expect("a list").into_iter().map(|entry| entry.id).collect();
        left.reverse();
        left
    };
    // The kept one is the oldest.
    bench.store.prune_to(&ids[0], 3, u64::MAX);
    assert_eq!(left(), [&ids[0], &ids[3], &ids[4]].map(String::clone));
    bench.store.prune_to(&ids[4], 3, 1);
    assert_eq!(left(), [ids[4].clone()]);
    assert!(bench.store.folder.join("notes.txt").exists());
}

#[test]
fn a_title_is_the_beginning_of_the_first_prompt() {
    let conversation = |text: &str| Conversation::new().with(text);
    assert_eq!(title(&conversation("  what\n\tis \u{1b}[31mthis?")), "what is this?");
    let long = title(&conversation(&"word ".repeat(10_000)));
    assert!(long.ends_with('…') && long.chars().count() <= MAX_TITLE + 1, "{long}");
    assert_eq!(title(&Conversation::new()), "");
}
