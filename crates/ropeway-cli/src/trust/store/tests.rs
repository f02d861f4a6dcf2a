//! Tests of the trust store.

use super::*;
use crate::trust::summary::Section;

struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state/ropeway")
    }

    fn store(&self) -> TrustStore {
        TrustStore::open_in(self.state()).expect("a store")
    }

    fn file(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(&path, "content").expect("a file");
        path
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("a file").permissions().mode() & 0o777
}

#[test]
fn only_the_accepted_content_at_the_accepted_path_is_trusted() {
    let bench = Bench::new();
    let (path, other) = (bench.file("a/ropeway.yaml"), bench.file("b/ropeway.yaml"));
    let mut store = bench.store();
    assert_eq!(store.status(&path, "one"), TrustStatus::Unknown);
    let summary = TrustSummary(vec![Section::new("server `a`")]);
    store.record(&path, "one", summary.clone()).expect("recorded");
    for store in [&store, &bench.store()] {
        assert!(store.is_trusted(&path, "one") && !store.is_trusted(&other, "one"));
        let TrustStatus::Changed(record) = store.status(&path, "two") else { panic!("it has changed") };
        assert_eq!(record.summary, summary);
    }
    store.record(&path, "two", TrustSummary::default()).expect("recorded");
    assert!(store.is_trusted(&path, "two") && !store.is_trusted(&path, "one"));
    assert_eq!(store.records().len(), 1);
    std::fs::remove_file(&path).expect("removed");
    assert!(store.revoke(&path).expect("revoked") && !store.revoke(&path).expect("revoked"));
    assert_eq!(bench.store().records(), []);
}

#[test]
fn the_store_becomes_private_to_its_owner() {
    let bench = Bench::new();
    let path = bench.file("ropeway.yaml");
    std::fs::create_dir_all(bench.state()).expect("a folder");
    std::fs::set_permissions(bench.state(), Permissions::from_mode(0o755)).expect("permissions");
    bench.store().record(&path, "one", TrustSummary::default()).expect("recorded");
    let file = bench.state().join(FILE);
    std::fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("permissions");
    bench.store().record(&path, "two", TrustSummary::default()).expect("recorded");
    assert_eq!([mode(&bench.state()), mode(&file), mode(&bench.state().join(LOCK))], [0o700, 0o600, 0o600]);
    let mut names: Vec<_> = std::fs::read_dir(bench.state()).expect("a folder").flatten().collect();
    names.sort_by_key(|entry| entry.file_name());
    assert_eq!(names.iter().map(|entry| entry.file_name()).collect::<Vec<_>>(), [FILE, LOCK]);
}

#[test]
fn a_link_from_another_folder_is_not_the_accepted_file() {
    let bench = Bench::new();
    let (path, link) = (bench.file("mine/ropeway.yaml"), bench.folder.path().join("theirs/ropeway.yaml"));
    std::fs::create_dir(link.parent().expect("a folder")).expect("a folder");
    std::os::unix::fs::symlink(&path, &link).expect("a link");
    let mut store = bench.store();
    store.record(&path, "one", TrustSummary::default()).expect("recorded");
    assert_eq!(store.status(&link, "one"), TrustStatus::Unknown);
    store.record(&link, "one", TrustSummary::default()).expect("recorded");
    assert!(store.is_trusted(&link, "one"));
    // The same name and content with another target.
    let other = bench.file("other/ropeway.yaml");
    std::fs::remove_file(&link).expect("removed");
    std::os::unix::fs::symlink(&other, &link).expect("a link");
    assert!(!store.is_trusted(&link, "one"));
    // A directory that is a symbolic link makes no difference.
    std::os::unix::fs::symlink(path.parent().expect("a folder"), bench.folder.path().join("short")).expect("a link");
    assert!(store.is_trusted(&bench.folder.path().join("short/ropeway.yaml"), "one"));
}

#[test]
fn a_broken_store_trusts_nothing_and_is_renamed() {
    let bench = Bench::new();
    let path = bench.file("ropeway.yaml");
    let mut open = bench.store();
    open.record(&path, "one", TrustSummary::default()).expect("recorded");
    let file = bench.state().join(FILE);
    for broken in ["{", "[]", "\u{0}", "{\"version\": 1}", "{\"version\": 1, \"files\": [{}]}", "{\"version\": -1}"] {
        std::fs::write(&file, broken).expect("written");
        assert!(matches!(TrustStore::open_in(bench.state()), Err(TrustStoreError::Broken { .. })), "{broken}");
        assert!(matches!(open.record(&path, "one", TrustSummary::default()), Err(TrustStoreError::Broken { .. })));
        assert_eq!(std::fs::read_to_string(&file).expect("a file"), broken);
    }
    let (mut store, backup) = TrustStore::replace_broken_in(bench.state()).expect("replaced");
    assert_eq!(std::fs::read_to_string(&backup).expect("a file"), "{\"version\": -1}");
    store.record(&path, "one", TrustSummary::default()).expect("recorded");
    assert!(bench.store().is_trusted(&path, "one"));
    // A valid store is not renamed.
    let (store, _) = TrustStore::replace_broken_in(bench.state()).expect("left alone");
    assert!(store.is_trusted(&path, "one") && file.exists());
}

#[test]
fn a_newer_or_insecure_store_is_not_changed() {
    let bench = Bench::new();
    std::fs::create_dir_all(bench.state()).expect("a folder");
    let file = bench.state().join(FILE);
    std::fs::write(&file, "{\"version\": 2, \"entries\": {}}").expect("written");
    assert!(matches!(TrustStore::open_in(bench.state()), Err(TrustStoreError::Newer { version: 2, .. })));
    assert!(matches!(TrustStore::replace_broken_in(bench.state()), Err(TrustStoreError::Newer { .. })));
    std::fs::write(&file, "{\"version\": 1, \"files\": []}").expect("written");
    for mode in [0o620, 0o602, 0o666] {
        std::fs::set_permissions(&file, Permissions::from_mode(mode)).expect("permissions");
        assert!(matches!(TrustStore::open_in(bench.state()), Err(TrustStoreError::Insecure { .. })), "{mode:o}");
    }
    let cases = [
        (1000, 0o600, None),
        (0, 0o644, None),
        (1001, 0o600, Some("owned by another user (uid 1001)")),
        (1000, 0o660, Some("writable by its group")),
        (1000, 0o666, Some("writable by all users")),
    ];
    for (owner, mode, expected) in cases {
        assert_eq!(ownership_problem(owner, mode, 1000).as_deref(), expected);
    }
}

#[test]
fn a_store_that_is_too_large_loses_summaries_but_no_record() {
    let mut section = Section::new("server `a`");
    section.add("runs", "x".repeat(1000));
    let record = |number: usize| TrustRecord {
        path: format!("/{number}/ropeway.yaml").into(),
        target: None,
        owner: 0,
        sha256: sha256("content"),
        content: None,
        accepted: String::new(),
        declined: None,
        summary: TrustSummary(vec![section.clone()]),
    };
    let mut records: Vec<TrustRecord> = (0..10).map(record).collect();
    let text = serialize(&mut records, 8000).expect("a text");
    assert!(text.len() <= 8000 && serde_json::from_str::<StoreDocument>(&text).expect("a store").files == records);
    let has_summary: Vec<bool> = records.iter().map(|record| !record.summary.0.is_empty()).collect();
    assert!(records.len() == 10 && !has_summary[0] && has_summary[9] && has_summary.is_sorted(), "{has_summary:?}");
    assert!(serialize(&mut records, 100).is_err(), "it could not be read again");
}

#[test]
fn a_large_accepted_file_keeps_the_store_readable() {
    let bench = Bench::new();
    let path = bench.file("ropeway.yaml");
    let mut section = Section::new("server `a`");
    (0..500).for_each(|number| section.add("sets", format!("{number}={}", "\u{1}".repeat(1990))));
    bench.store().record(&path, "one", TrustSummary(vec![section])).expect("recorded");
    assert!(bench.store().is_trusted(&path, "one"));
    assert!(std::fs::metadata(bench.state().join(FILE)).expect("a file").len() < 300 << 10);
}

#[test]
fn concurrent_changes_lose_nothing() {
    let bench = Bench::new();
    let paths: Vec<PathBuf> = (0..16).map(|number| bench.file(&format!("{number}/ropeway.yaml"))).collect();
    std::thread::scope(|scope| {
        for path in &paths {
            let state = bench.state();
            scope.spawn(move || {
                let mut store = TrustStore::open_in(state).expect("a store");
                store.record(path, "one", TrustSummary::default()).expect("recorded");
            });
        }
    });
    let store = bench.store();
    assert!(paths.iter().all(|path| store.is_trusted(path, "one")));
}
