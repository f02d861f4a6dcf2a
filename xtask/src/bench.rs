//! Benchmarks, side by side in one run.

/// Runs the named benchmark.
pub fn run(args: &[String]) -> anyhow::Result<()> {
    anyhow::bail!("there is no benchmark `{}` yet", args.join(" "))
}
