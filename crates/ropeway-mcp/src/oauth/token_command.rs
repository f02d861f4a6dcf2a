//! Tokens from a command: runs it and parses its output.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

use super::error::OAuthError;
use super::serialized::from_unix;
use super::token_set::TokenSet;
use ropeway_config::{TokenCommand, TokenSource};
use ropeway_core::duration::format_duration;
use ropeway_core::rfc3339;
use ropeway_core::secret::{Redactor, Secret};

/// Maximum size for a command's output and for a token file.
const MAX_OUTPUT: usize = 256 << 10;

/// Maximum token size, in bytes. A longer token is an error.
const MAX_TOKEN: usize = 64 << 10;

/// Number of stderr bytes that an error shows.
const MAX_STDERR: usize = 400;

/// Maximum token lifetime. Later times are most likely mistakes.
const MAX_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Reads a token from its source.
pub(super) async fn read_token(source: &TokenSource, redactor: &Redactor) -> Result<Secret, OAuthError> {
    match source {
        TokenSource::Value(value) => Ok(value.clone()),
        TokenSource::Command(command) => Ok(run(command, redactor).await?.access_token),
        TokenSource::File(path) => {
            let invalid = |reason: String| OAuthError::Settings {
                reason: format!("could not read the token file `{}`: {reason}", path.display()),
            };
            let text = read_file(path).await.map_err(|error| invalid(error.to_string()))?;
            token(&text).map_err(invalid)
        }
        #[allow(unreachable_patterns, reason = "the type is `non_exhaustive` for other crates")]
        _ => Err(OAuthError::Settings { reason: "unsupported token source".to_owned() }),
    }
}

/// Reads the beginning of a regular file. Opening does not block on a pipe without a writer.
async fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut options = tokio::fs::OpenOptions::new();
    let file = options.read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path).await?;
    if !file.metadata().await?.is_file() {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut text = Vec::new();
    // Trailing white space is ignored, so more than a token is read.
    file.take(MAX_OUTPUT as u64).read_to_end(&mut text).await?;
    Ok(text)
}

/// Runs a command and returns the token that it prints.
pub(super) async fn run(command: &TokenCommand, redactor: &Redactor) -> Result<TokenSet, OAuthError> {
    let failed = |reason: String| OAuthError::Command { command: command.command.clone(), reason };
    let started = SystemTime::now();
    let mut group = ProcessGroup::spawn(command).map_err(|error| failed(error.to_string()))?;
    let (stdout, stderr) = (group.child.stdout.take(), group.child.stderr.take());
    let running = async {
        let (stdout, stderr) = tokio::join!(read_bounded(stdout, MAX_OUTPUT), read_bounded(stderr, MAX_OUTPUT));
        (stdout, stderr, group.child.wait().await)
    };
    let Ok((stdout, stderr, status)) = tokio::time::timeout(command.timeout, running).await else {
        return Err(failed(format!("no output within {}", format_duration(command.timeout))));
    };
    let status = status.map_err(|error| failed(error.to_string()))?;
    // Checked first, because the command may fail when nothing reads the rest.
    if stdout.len() > MAX_OUTPUT {
        return Err(failed(format!("its output is larger than {} KiB", MAX_OUTPUT >> 10)));
    }
    if !status.success() {
        let said = String::from_utf8_lossy(&stderr);
        let line = said.lines().rev().map(str::trim).find(|line| !line.is_empty());
        let detail = line.map(|line| format!(": {}", redactor.redact_beginning(line, MAX_STDERR))).unwrap_or_default();
        return Err(failed(format!("{status}{detail}")));
    }
    parse(&stdout, started).map_err(failed)
}

/// Reads at most one byte more than `most`, and discards the rest so that the writer does not block.
async fn read_bounded(stream: Option<impl AsyncRead + Unpin>, most: usize) -> Vec<u8> {
    let mut kept = Vec::new();
    if let Some(mut stream) = stream {
        let _ = (&mut stream).take(most as u64 + 1).read_to_end(&mut kept).await;
        if kept.len() <= most {
            return kept;
        }
        // A command that writes without end is not waited for.
        let mut rest = [0; 8 << 10];
        let mut left = most.saturating_mul(16);
        while left > 0
            && let Ok(count @ 1..) = stream.read(&mut rest).await
        {
            left = left.saturating_sub(count);
        }
    }
    kept
}

/// A running command with its children. Dropping it ends them all.
struct ProcessGroup {
    child: Child,
    id: Option<Pid>,
}

impl ProcessGroup {
    fn spawn(command: &TokenCommand) -> std::io::Result<Self> {
        let mut process = Command::new(&command.command);
        process.args(&command.args).envs(command.env.iter().map(|(name, value)| (name, value.expose())));
        if let Some(cwd) = &command.cwd {
            process.current_dir(cwd);
        }
        process.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = process.process_group(0).kill_on_drop(true).spawn()?;
        let id = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        Ok(Self { child, id })
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // While the child is not reaped, its id cannot belong to another group.
        if let Some(id) = self.id.filter(|_| self.child.id().is_some()) {
            let _ = kill_process_group(id, Signal::KILL);
        }
    }
}

/// A command's JSON output, with OAuth's names.
#[derive(Deserialize)]
struct Output {
    access_token: Option<String>,
    token_type: Option<String>,
    expires_in: Option<serde_json::Value>,
    expires_at: Option<serde_json::Value>,
}

/// Parses a token, or a JSON object with one. Errors never quote the output.
fn parse(output: &[u8], started: SystemTime) -> Result<TokenSet, String> {
    let text = output.trim_ascii();
    if text.is_empty() {
        return Err("it printed nothing".to_owned());
    }
    if !text.starts_with(b"{") {
        return token(text).map(TokenSet::bearer);
    }
    let output: Output = serde_json::from_slice(text).map_err(|_| "it printed invalid JSON".to_owned())?;
    let access_token = output.access_token.ok_or("its JSON has no `access_token`")?;
    if output.token_type.as_ref().is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
        return Err("its `token_type` is not `Bearer`".to_owned());
    }
    let mut tokens = TokenSet::bearer(token(access_token.as_bytes())?);
    tokens.expires_at = match (&output.expires_in, &output.expires_at) {
        (Some(value), _) if !value.is_null() => Some(started + seconds(value).ok_or("its `expires_in` is not valid")?),
        (_, Some(value)) if !value.is_null() => Some(time(value).ok_or("its `expires_at` is not valid")?),
        _ => None,
    };
    Ok(tokens)
}

/// Checks that a text is one token, which is valid in a header.
fn token(text: &[u8]) -> Result<Secret, String> {
    let text = text.trim_ascii();
    if text.is_empty() {
        return Err("the token is empty".to_owned());
    }
    if text.len() > MAX_TOKEN {
        return Err(format!("the token is larger than {} KiB", MAX_TOKEN >> 10));
    }
    match std::str::from_utf8(text) {
        Ok(text) if text.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Secret::new(text)),
        _ => Err("expected a token without spaces and line breaks, or JSON with `access_token`".to_owned()),
    }
}

fn number(value: &serde_json::Value) -> Option<f64> {
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
    (number.is_finite() && number >= 0.0).then_some(number)
}

fn seconds(value: &serde_json::Value) -> Option<Duration> {
    Some(Duration::try_from_secs_f64(number(value)?).ok()?.min(MAX_LIFETIME))
}

/// Parses a Unix time or an RFC 3339 date.
fn time(value: &serde_json::Value) -> Option<SystemTime> {
    if let Some(number) = number(value) {
        return Some(from_unix((number as u64).min(1 << 40)));
    }
    rfc3339::parse(value.as_str()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn parsed(output: &str) -> Result<(String, Option<SystemTime>), String> {
        parse(output.as_bytes(), from_unix(NOW))
            .map(|tokens| (tokens.access_token.expose().to_owned(), tokens.expires_at))
    }

    fn shell(script: &str) -> TokenCommand {
        TokenCommand::new("sh", ["-c", script])
    }

    #[test]
    fn a_command_prints_a_token_or_json() {
        let at = |seconds| Some(from_unix(seconds));
        for (output, expires_at) in [
            ("t0ken\n", None),
            (r#"{"access_token":"t0ken"}"#, None),
            (r#"{"access_token":"t0ken","token_type":"bearer","expires_in":60}"#, at(NOW + 60)),
            (r#"{"access_token":"t0ken","expires_in":"60"}"#, at(NOW + 60)),
            (r#"{"access_token":"t0ken","expires_at":1800000100}"#, at(NOW + 100)),
            (r#"{"access_token":"t0ken","expires_in":null,"expires_at":"2027-01-15T08:01:40Z"}"#, at(NOW + 100)),
            (r#"{"access_token":"t0ken","expires_at":"2027-01-15T10:01:40.5+02:00"}"#, at(NOW + 100)),
        ] {
            assert_eq!(parsed(output), Ok(("t0ken".to_owned(), expires_at)), "{output}");
        }
    }

    #[test]
    fn invalid_output_is_not_quoted() {
        for output in [
            "",
            " \n",
            "two s3cret words",
            "s3cret\nlines",
            r#"{"token":"s3cret"}"#,
            r#"{"access_token":"s3cret""#,
            r#"{"access_token":""}"#,
            r#"{"access_token":"s3cret","token_type":"mac"}"#,
            r#"{"access_token":"s3cret","expires_in":-1}"#,
            r#"{"access_token":"s3cret","expires_at":"s3cret"}"#,
            "s3cret\u{e9}",
        ] {
            let error = parsed(output).expect_err(output);
            assert!(!error.contains("s3cret"), "{error}");
        }
        assert!(parsed(&"a".repeat(MAX_TOKEN + 1)).is_err());
    }

    #[tokio::test]
    async fn a_command_runs_with_its_variables() {
        let command = shell(r#"printf '{"access_token":"%s","expires_in":60}' "$NAME""#).with_env("NAME", "t0ken");
        let tokens = run(&command, &Redactor::default()).await.expect("a token");
        assert_eq!(tokens.access_token.expose(), "t0ken");
        assert!(tokens.expires_at.is_some());
    }

    #[tokio::test]
    async fn a_command_that_fails_is_reported_with_its_last_line() {
        let redactor = Redactor::new(&[Secret::new("s3cret")]);
        let error = run(&shell("echo no s3cret >&2; exit 3"), &redactor).await.expect_err("a failure");
        assert_eq!(error.to_string(), "the token command `sh` failed: exit status: 3: no ***");
        let error = run(&TokenCommand::new("/no/such/program", [""; 0]), &redactor).await.expect_err("a failure");
        assert!(error.to_string().starts_with("the token command `/no/such/program` failed: "), "{error}");
    }

    #[tokio::test]
    async fn a_command_that_hangs_ends_with_its_children() {
        let folder = tempfile::tempdir().expect("a folder");
        let mark = folder.path().join("mark");
        let script = format!("(sleep 2; touch '{}') & sleep 60", mark.display());
        let command = shell(&script).with_timeout(Duration::from_millis(200));
        let error = run(&command, &Redactor::default()).await.expect_err("a timeout");
        assert_eq!(error.to_string(), "the token command `sh` failed: no output within 200 ms");
        tokio::time::sleep(Duration::from_millis(2500)).await;
        assert!(!mark.exists());
    }

    #[tokio::test]
    async fn a_token_file_that_is_a_pipe_or_a_folder_is_refused_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let (pipe, file) = (folder.path().join("pipe"), folder.path().join("token"));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
        for path in [pipe, folder.path().to_owned(), "/dev/zero".into()] {
            let source = TokenSource::File(path);
            let redactor = Redactor::default();
            let reading = read_token(&source, &redactor);
            let read = tokio::time::timeout(Duration::from_secs(5), reading).await.expect("in time");
            let error = read.expect_err("no file").to_string();
            assert!(error.contains("not a regular file"), "{error}");
        }
        std::fs::write(&file, "t0ken\n").expect("a file");
        let token = read_token(&TokenSource::File(file), &Redactor::default()).await.expect("a token");
        assert_eq!(token.expose(), "t0ken");
    }

    #[tokio::test]
    async fn huge_output_is_refused() {
        let error = run(&shell("head -c 1000000 /dev/zero | tr '\\0' a"), &Redactor::default()).await;
        let error = error.expect_err("too much").to_string();
        assert_eq!(error, "the token command `sh` failed: its output is larger than 256 KiB");
        let endless = shell("yes").with_timeout(Duration::from_secs(5));
        assert!(run(&endless, &Redactor::default()).await.is_err());
    }
}
