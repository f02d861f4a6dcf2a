//! JSON Lines for `ropeway chat --json`.

use ropeway_agent::TurnOutcome;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::print::write;
use crate::secrets::redaction;

/// The last line after a turn.
#[derive(Serialize)]
pub(super) struct FinalLine<'a> {
    step: &'static str,
    #[serde(flatten)]
    outcome: &'a TurnOutcome,
}

/// The last line after a failed chat.
#[derive(Serialize)]
struct FailedLine {
    step: &'static str,
    error: String,
    exit: u8,
}

impl<'a> FinalLine<'a> {
    pub(super) fn new(outcome: &'a TurnOutcome) -> Self {
        Self { step: "final", outcome }
    }
}

/// Prints a chat's failure as its last line.
pub(crate) fn print_failed(failure: &Failure) -> Result<(), Failure> {
    let line = json_line(&FailedLine { step: "failed", error: failure.line(), exit: failure.exit() as u8 })?;
    write(&line).map(drop)
}

/// Returns a value as a redacted JSON line.
pub(super) fn json_line(value: &impl Serialize) -> Result<String, Failure> {
    let json = redaction::to_json(value, false)
        .map_err(|error| Failure::usage("could not write the result as JSON").caused_by(&error))?;
    Ok(json + "\n")
}
