//! Runs a target without libFuzzer, on mutations of the corpus, without coverage feedback.
//!
//! `mutate TARGET SECONDS SEED CORPUS ARTIFACTS`: exits with 77, like libFuzzer, if an input breaks a property or
//! exceeds the time limit, and saves the input to the folder ARTIFACTS.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ropeway_testing::fuzz::{Mutator, Target};

/// Time limit per input.
const LIMIT: Duration = Duration::from_secs(5);

/// The exit code of libFuzzer for a finding.
const FOUND: i32 = 77;

/// Stack size of the targets: a quarter of the default of a thread.
const STACK: usize = 512 << 10;

/// The current input and its start time.
type Current = Arc<Mutex<(Vec<u8>, Instant)>>;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [name, seconds, seed, corpus, artifacts] = args.as_slice() else {
        eprintln!("usage: mutate TARGET SECONDS SEED CORPUS ARTIFACTS");
        std::process::exit(2);
    };
    let (Some(target), Ok(seconds), Ok(seed)) = (Target::named(name), seconds.parse(), seed.parse()) else {
        eprintln!("`{name}` is not a target, or `{seconds}` or `{seed}` is not a number");
        std::process::exit(2);
    };
    let corpus: Vec<Vec<u8>> = files(Path::new(corpus)).iter().filter_map(|path| std::fs::read(path).ok()).collect();
    let artifacts = PathBuf::from(artifacts);
    let current: Current = Arc::new(Mutex::new((Vec::new(), Instant::now())));
    let watched = current.clone();
    let runner =
        std::thread::Builder::new().stack_size(STACK).spawn(move || run(target, corpus, seed, seconds, &watched));
    let runner = runner.unwrap_or_else(|error| panic!("could not start a thread: {error}"));
    while !runner.is_finished() {
        std::thread::sleep(Duration::from_millis(50));
        let (input, since) = &*current.lock().unwrap_or_else(PoisonError::into_inner);
        if since.elapsed() > LIMIT {
            found(&artifacts, "slow", input);
        }
    }
    match runner.join() {
        Ok(count) => println!("{count} inputs, nothing found"),
        Err(_) => found(&artifacts, "crash", &current.lock().unwrap_or_else(PoisonError::into_inner).0),
    }
}

fn run(target: &Target, corpus: Vec<Vec<u8>>, seed: u64, seconds: u64, current: &Current) -> u64 {
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut seeds = corpus.clone().into_iter();
    let mut mutator = Mutator::new(target.tokens, corpus, seed);
    let mut count = 0;
    while Instant::now() < end {
        let input = seeds.next().unwrap_or_else(|| mutator.next_input());
        *current.lock().unwrap_or_else(PoisonError::into_inner) = (input.clone(), Instant::now());
        (target.run)(&input);
        count += 1;
    }
    count
}

fn found(artifacts: &Path, what: &str, input: &[u8]) -> ! {
    let hash = input
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    let path = artifacts.join(format!("{what}-{hash:016x}"));
    let written = std::fs::create_dir_all(artifacts).and_then(|()| std::fs::write(&path, input));
    match written {
        Ok(()) => eprintln!("Test unit written to {}", path.display()),
        Err(error) => eprintln!("could not write {}: {error}", path.display()),
    }
    std::process::exit(FOUND);
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    files.sort();
    files
}
