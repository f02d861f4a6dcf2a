//! Chores.

mod bench;

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.split_first() {
        Some((chore, args)) if chore == "bench" => bench::run(args),
        _ => anyhow::bail!("usage: cargo xtask bench engine [--json] [--quick]"),
    }
}
