//! Runs the fuzz targets on their corpus and on a limited number of mutations.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ropeway_testing::fuzz::{Mutator, TARGETS, Target};

/// Number of mutations per target.
const MUTATIONS: usize = 400;

/// Stack size of the thread that runs a target: half of a tokio thread's.
const STACK: usize = 1 << 20;

/// Maximum size of an input in the repository.
const LARGEST: u64 = 16 << 10;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

/// Runs inputs in a thread with a small stack. Returns the input that failed, and its file.
fn run(target: &'static Target, inputs: impl Iterator<Item = (String, Vec<u8>)> + Send + 'static) -> Option<String> {
    let current = Arc::new(Mutex::new((String::new(), Vec::new())));
    let seen = current.clone();
    // The name appears in the message of a stack overflow, which cannot be caught.
    let thread = std::thread::Builder::new().name(format!("fuzz target {}", target.name)).stack_size(STACK);
    let running = thread.spawn(move || {
        for (name, input) in inputs {
            *seen.lock().unwrap_or_else(PoisonError::into_inner) = (name, input.clone());
            (target.run)(&input);
        }
    });
    running.expect("a thread").join().err()?;
    let (name, input) = &*current.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{}", target.name));
    fs::write(&kept, input).expect("the input is written");
    let (target, kept) = (target.name, kept.display());
    Some(format!("{name} breaks a promise of `{target}`; keep it with `cargo xtask fuzz {target} --keep {kept}`"))
}

#[test]
fn every_target_has_a_corpus_and_every_corpus_a_target() {
    let name = |path: PathBuf| path.file_name().expect("a name").to_string_lossy().into_owned();
    let folders: BTreeSet<String> = files(&corpus()).into_iter().map(name).collect();
    let targets: BTreeSet<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    assert_eq!(folders, targets);
    assert_eq!(targets.len(), TARGETS.len(), "two targets of one name");
    for target in TARGETS {
        let files = files(&corpus().join(target.name));
        assert!(files.len() >= 2, "`{}` has {} inputs", target.name, files.len());
        for file in files {
            let size = fs::metadata(&file).expect("a file").len();
            assert!(size <= LARGEST, "{} has {size} bytes", file.display());
        }
    }
}

#[test]
fn every_input_of_the_corpus_passes_its_target() {
    let failures = TARGETS.iter().filter_map(|target| {
        let inputs = files(&corpus().join(target.name)).into_iter();
        run(target, inputs.map(|file| (file.display().to_string(), fs::read(&file).expect("an input"))))
    });
    assert_eq!(failures.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn mutations_of_the_corpus_pass_their_target() {
    let seed = std::env::var("ROPEWAY_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let failures = TARGETS.iter().filter_map(|target| {
        let corpus = files(&corpus().join(target.name)).iter().map(|file| fs::read(file).expect("an input")).collect();
        let mut mutator = Mutator::new(target.tokens, corpus, seed);
        let named = move |number| (format!("mutation {number} of seed {seed}"), mutator.next_input());
        run(target, (1..=MUTATIONS).map(named))
    });
    assert_eq!(failures.collect::<Vec<_>>(), [""; 0]);
}
