//! Running other programs.

use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, bail};

/// Builds workspace programs. All members are selected, so that dependencies have the same features for all programs.
pub fn build(programs: &[&str]) -> Result<()> {
    let bins = programs.iter().flat_map(|program| ["--bin", program]);
    run(cargo(&["build", "--workspace"]).args(bins))
}

/// Returns a `cargo` command in the workspace.
pub fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(crate::paths::root());
    // `cargo run` describes this package in the environment. Build scripts that read these variables would run again,
    // and everything above them would be compiled again, at each change between `cargo xtask` and `cargo`.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a command with its output visible.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("could not start {}", name(command)))?;
    if !status.success() {
        bail!("{} failed with {status}", name(command));
    }
    Ok(())
}

/// Runs a command and shows its output only if it fails.
pub fn run_quietly(command: &mut Command) -> Result<()> {
    let output = output(command)?;
    if !output.status.success() {
        bail!("{} failed with {}\n{}", name(command), output.status, output_text(&output));
    }
    Ok(())
}

/// Runs a command and returns its output.
pub fn output(command: &mut Command) -> Result<Output> {
    command.stdin(Stdio::null()).output().with_context(|| format!("could not start {}", name(command)))
}

/// Returns a command's whole output, standard output first.
pub fn output_text(output: &Output) -> String {
    let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).trim().to_owned());
    said.join("\n").trim().to_owned()
}

/// Returns `true` if the command starts and succeeds.
pub fn works(program: &str, args: &[&str]) -> bool {
    output(Command::new(program).args(args)).is_ok_and(|output| output.status.success())
}

fn name(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    format!("`{}`", words.join(" "))
}
