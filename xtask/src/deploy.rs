//! `cargo xtask deploy`: two gateways behind HAProxy with the project's configuration, and metrics checked by Prometheus.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, anyhow, bail};

use crate::needs::{HAPROXY, Missing, Need, PROMTOOL, PYTHON};
use crate::paths;
use crate::process;

/// A check that may write to a folder.
type Check = fn(&Path) -> Result<()>;

/// Builds the gateway and runs all checks.
pub fn run() -> Result<()> {
    process::build(&["ropeway"])?;
    test().map(|_| ())
}

/// Runs all checks with a gateway that is built. Returns their number.
pub fn test() -> Result<u32> {
    let missing: Vec<Need> = [PYTHON, HAPROXY, PROMTOOL].into_iter().filter(|need| !need.ensure()).collect();
    if !missing.is_empty() {
        return Err(anyhow!(Missing(missing)));
    }
    let folder = paths::target().join("deploy");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("could not remove `{}`", folder.display()))?;
    }
    fs::create_dir_all(&folder)?;
    let checks: [(&str, Check); 3] = [
        ("HAProxy accepts its configuration", check_haproxy),
        ("Prometheus accepts the metrics", check_metrics),
        ("a rolling restart loses no call and no session", roll),
    ];
    let mut passed = 0;
    for (name, check) in checks {
        match check(&folder) {
            Ok(()) => {
                println!("ok      {name}");
                passed += 1;
            }
            // Other checks run nevertheless.
            Err(error) => println!("FAILED  {name}\n{error:#}"),
        }
    }
    let failed = checks.len() - passed as usize;
    if failed > 0 {
        bail!("{failed} checks failed; logs are in `{}`", folder.display());
    }
    Ok(passed)
}

/// Checks the configuration as it is. The gateways' names need not be known here.
fn check_haproxy(_: &Path) -> Result<()> {
    process::run_quietly(Command::new("haproxy").args(["-c", "-f"]).arg(haproxy_config()))
}

/// Checks a gateway's metrics page after calls. `promtool` reports format errors and unusual names.
fn check_metrics(folder: &Path) -> Result<()> {
    let made = process::output(script("metrics.py").arg(folder))?;
    if !made.status.success() {
        bail!("the calls failed with {}\n{}", made.status, String::from_utf8_lossy(&made.stderr));
    }
    let page = folder.join("metrics.txt");
    fs::write(&page, &made.stdout)?;
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::from(fs::File::open(&page)?));
    let checked = promtool.output().context("could not start `promtool`")?;
    let report = process::output_text(&checked);
    if !checked.status.success() || !report.is_empty() {
        bail!("`promtool check metrics` ended with {}\n{report}", checked.status);
    }
    let samples = String::from_utf8_lossy(&made.stdout).lines().filter(|line| !line.starts_with('#')).count();
    println!("        {samples} samples");
    Ok(())
}

/// Restarts two gateways behind HAProxy under load.
fn roll(folder: &Path) -> Result<()> {
    process::run(script("rolling_restart.py").arg(haproxy_config()).arg(folder))
}

/// Returns a fixture script with the gateway as its first argument.
fn script(name: &str) -> Command {
    let mut command = Command::new("python3");
    // Without bytecode next to the scripts.
    command.arg("-B").arg(paths::root().join("fixtures/deploy").join(name)).arg(paths::program("ropeway"));
    command
}

fn haproxy_config() -> PathBuf {
    paths::root().join("deploy").join("haproxy.cfg")
}
