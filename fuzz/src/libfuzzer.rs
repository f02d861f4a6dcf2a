//! Runs the target in `FUZZ_TARGET` under libFuzzer. One program for all targets needs only one link.

#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use ropeway_testing::fuzz::{Mutator, Target};

fn target() -> &'static Target {
    static TARGET: OnceLock<&'static Target> = OnceLock::new();
    TARGET.get_or_init(|| {
        let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
        Target::named(&name).unwrap_or_else(|| {
            eprintln!("unknown target `{name}` in FUZZ_TARGET");
            std::process::exit(2);
        })
    })
}

fuzz_target!(|data: &[u8]| (target().run)(data));

// Every other mutation uses the mutator of ropeway, which knows JSON and the tokens of the format.
fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    if seed % 2 == 0 {
        return fuzzer_mutate(data, size, max_size);
    }
    let mutated = Mutator::new(target().tokens, vec![data[..size].to_vec()], u64::from(seed)).next_input();
    let size = mutated.len().min(max_size);
    data[..size].copy_from_slice(&mutated[..size]);
    size
});
