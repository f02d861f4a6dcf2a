//! `ropeway auth export` and `ropeway auth import`: sign-ins in an encrypted file.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use ropeway_config::read_regular;
use ropeway_core::secret::{Redactor, Secret};
use ropeway_mcp::oauth::TokenStore;
use serde_json::json;

use crate::connect::command_context::CommandContext;
use crate::failure::{Exit, Failure};
use crate::files::file;
use crate::output::print::{print_json, print_unredacted, say};
use crate::secrets::redaction;
use crate::sign_in::failure::store_failure;
use crate::terminal::hidden_input;

/// The variable with the passphrase.
const VARIABLE: &str = "ROPEWAY_PASSPHRASE";

/// Maximum export file size in bytes.
const MAX_TEXT: usize = 64 << 20;

/// Maximum passphrase file size in bytes.
const MAX_PASSPHRASE: usize = 64 << 10;

#[derive(Debug, clap::Args)]
pub(super) struct Transfer {
    /// File, or - for standard input or output
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// File whose first line is the passphrase
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

impl Transfer {
    pub(super) async fn export(self, store: &TokenStore, context: &CommandContext) -> Result<Exit, Failure> {
        let is_stream = self.is_stream();
        if is_stream && context.json {
            return Err(Failure::usage("`-` and --json both need standard output").hint("name a file instead of `-`"));
        }
        let count = store.list().await.map_err(|error| store_failure(&error))?.entries.len();
        if count == 0 {
            return Err(Failure::usage("no sign-ins to export").hint("sign in with `ropeway login SERVER`"));
        }
        let passphrase = self.passphrase(Confirm::Twice)?;
        let text = store.export(&passphrase).await.map_err(|error| store_failure(&error))?;
        let text = format!("{}\n", text.expose().trim_end());
        if is_stream {
            print_unredacted(&text)?;
        } else {
            file::put(&self.file, &text, file::PRIVATE)?;
        }
        let to = if is_stream { "standard output".to_owned() } else { self.file.display().to_string() };
        if context.json {
            print_json(&json!({"exported": count, "file": self.file}))?;
        } else {
            say(&format!("exported {} to {to}, encrypted with the passphrase\n", sign_ins(count)));
        }
        Ok(Exit::Done)
    }

    pub(super) async fn import(self, store: &TokenStore, context: &CommandContext) -> Result<Exit, Failure> {
        let text = if self.is_stream() { read_input()? } else { read_file(&self.file, MAX_TEXT)? };
        let passphrase = self.passphrase(Confirm::Once)?;
        let report = store.import(text.trim(), &passphrase).await.map_err(|error| store_failure(&error))?;
        if context.json {
            print_json(&json!({"imported": report.imported, "kept": report.kept}))?;
            return Ok(Exit::Done);
        }
        let kept = match report.kept {
            0 => String::new(),
            kept => format!("; kept {} of this machine, newer than in the file", sign_ins(kept)),
        };
        say(&format!("imported {}{kept}\n", sign_ins(report.imported)));
        Ok(Exit::Done)
    }

    fn is_stream(&self) -> bool {
        self.file.as_os_str() == "-"
    }

    /// Returns the passphrase from the file, the variable or the terminal.
    fn passphrase(&self, confirm: Confirm) -> Result<Secret, Failure> {
        let typed = match (&self.passphrase_file, std::env::var(VARIABLE)) {
            (Some(path), _) => {
                let text = read_file(path, MAX_PASSPHRASE)?;
                text.lines().next().unwrap_or_default().to_owned()
            }
            (None, Ok(value)) => value,
            (None, Err(_)) => ask(confirm)?,
        };
        let passphrase = Secret::new(typed);
        redaction::add_secrets(&Redactor::new([&passphrase]));
        Ok(passphrase)
    }
}

/// How often a passphrase is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Confirm {
    Once,
    /// A mistake would make the file useless.
    Twice,
}

fn ask(confirm: Confirm) -> Result<String, Failure> {
    if !hidden_input::is_available() {
        return Err(Failure::usage("no passphrase given, and no terminal to ask for one")
            .hint(format!("use `--passphrase-file FILE` or the variable {VARIABLE}")));
    }
    let read = |prompt: &str| {
        let line = hidden_input::read_line(prompt)
            .map_err(|error| Failure::usage("could not read the terminal").caused_by(&error))?;
        line.ok_or_else(|| Failure::usage("no passphrase entered"))
    };
    let passphrase = read("Passphrase: ")?;
    if confirm == Confirm::Twice && read("Repeat the passphrase: ")? != passphrase {
        return Err(Failure::usage("the passphrases differ").hint("nothing was written; try again"));
    }
    Ok(passphrase)
}

fn read_file(path: &Path, limit: usize) -> Result<String, Failure> {
    read_regular(path, limit)
        .map_err(|error| Failure::usage(format!("could not read `{}`", path.display())).caused_by(&error))
}

fn read_input() -> Result<String, Failure> {
    let mut text = String::new();
    let read = std::io::stdin().lock().take(MAX_TEXT as u64 + 1).read_to_string(&mut text);
    read.map_err(|error| Failure::usage("could not read standard input").caused_by(&error))?;
    if text.len() > MAX_TEXT {
        return Err(Failure::usage(format!("standard input is larger than {} MiB", MAX_TEXT >> 20)));
    }
    Ok(text)
}

fn sign_ins(count: usize) -> String {
    if count == 1 { "1 sign-in".to_owned() } else { format!("{count} sign-ins") }
}
