//! The gate: a project file passes when the person has accepted it, or accepts it now.

use std::io::{BufRead as _, IsTerminal as _};
use std::path::{Path, PathBuf};

use anstyle::{AnsiColor, Style};
use ropeway::tool::BoxError;
use rustix::termios::{QueueSelector, tcflush};

use super::review::TrustReview;
use super::store::{Status, Store, StoreError, sha256};
use super::summary::Summary;
use crate::failure::Failure;
use crate::output::print::say;
use crate::terminal::text::{clean_line, escape_invisible, fold, terminal_width, wrap};

const HEADING: Style = Style::new().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();

/// The variable that trusts project files in scripts.
pub(crate) const VARIABLE: &str = "ROPEWAY_TRUST";

/// How many changes a failure names.
const MOST_CHANGES: usize = 12;

/// Whether project files are trusted for one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// As the store says, and else the person is asked.
    Ask,
    /// Every project file is trusted, without a question and without a record.
    Given,
}

impl Mode {
    /// The mode that the command line and the environment ask for.
    pub(crate) fn new(option: bool, variable: Option<std::ffi::OsString>) -> Result<Self, Failure> {
        let variable = variable.unwrap_or_default();
        match variable.to_str() {
            Some("1") => Ok(Self::Given),
            Some("" | "0") if option => Ok(Self::Given),
            Some("" | "0") => Ok(Self::Ask),
            _ => {
                let value = variable.to_string_lossy();
                Err(Failure::usage(format!("invalid value `{}` for `{VARIABLE}`", clean_line(&value)))
                    .hint("set it to 1 to trust project files for one run, or to 0"))
            }
        }
    }
}

/// Lets a project file pass if this text was accepted at this path, or is accepted now.
///
/// The caller uses the text that it passes here, never what is in the file by then: what was shown is what runs.
pub(crate) fn admit(path: &Path, text: &str, mode: Mode) -> Result<(), Failure> {
    admit_as(path, text, mode, || TrustReview::new(path, text, Vec::new()))
}

/// The same, where the caller says how the file is shown.
pub(crate) fn admit_as(
    path: &Path,
    text: &str,
    mode: Mode,
    review: impl FnOnce() -> Result<TrustReview, Failure>,
) -> Result<(), Failure> {
    if mode == Mode::Given {
        return Ok(());
    }
    let store = Store::open();
    if store.as_ref().is_ok_and(|store| store.is_trusted(path, text)) {
        return Ok(());
    }
    let review = review()?;
    let before = before(&store, path, text);
    if !can_ask() {
        return Err(refusal(&review, before.as_ref(), store.as_ref().err()));
    }
    if let Err(error) = &store {
        warn(error, "ropeway may ask again");
    }
    say(&shown(&review, before.as_ref()));
    if !ask() {
        return Err(Failure::usage(format!("`{}` is not trusted: nothing was started", review.file())));
    }
    if let Err(error) = remember(path, text, review.summary) {
        warn(&error, "the answer holds for this run only");
    }
    Ok(())
}

/// What was accepted at the path before, if another content was.
pub(crate) fn before(store: &Result<Store, StoreError>, path: &Path, text: &str) -> Option<Summary> {
    match store.as_ref().ok()?.status(path, text) {
        Status::Changed(record) => Some(record.summary.clone()),
        Status::Trusted | Status::Unknown => None,
    }
}

/// Stores that the person has accepted a text. A broken store is kept aside, with a warning.
pub(crate) fn remember(path: &Path, text: &str, summary: Summary) -> Result<(), StoreError> {
    let mut store = match Store::open() {
        Err(StoreError::Broken { .. }) => {
            let (store, aside) = Store::replace_broken()?;
            warning(&format!("the trust store was broken and is now `{}`; a new one was made", aside.display()));
            store
        }
        store => store?,
    };
    store.record(path, text, summary)
}

/// The review and what has changed, as the person sees them.
pub(crate) fn shown(review: &TrustReview, before: Option<&Summary>) -> String {
    let width = terminal_width(&std::io::stderr());
    let wide = width.unwrap_or(usize::MAX);
    let heading = match before {
        Some(_) => format!("{} has changed since it was trusted. Now it says:", review.file()),
        None => format!("{} is not trusted yet. It says:", review.file()),
    };
    let heading = fold(&heading, wide, 2);
    let mut text = format!("{HEADING}{}{HEADING:#}\n\n{}", heading.trim(), review.render(width));
    if let Some(before) = before {
        text.push_str(&format!("\n{HEADING}What changed{HEADING:#}\n"));
        for change in changes(before, &review.summary) {
            text.push_str(&fold(&escape_invisible(&change), wide, 4)[2..]);
        }
    }
    text + &format!("\n{}", wrap(&review.count(), wide, 0))
}

fn changes(before: &Summary, now: &Summary) -> Vec<String> {
    let changes = before.changes(now);
    if changes.is_empty() {
        return vec!["only comments, layout, the owner or a redacted value".to_owned()];
    }
    changes
}

fn refusal(review: &TrustReview, before: Option<&Summary>, trouble: Option<&StoreError>) -> Failure {
    let file = review.file();
    let mut failure = match before {
        None => Failure::usage(format!("`{file}` is not trusted: nothing in it was run or read")),
        Some(_) => Failure::usage(format!("`{file}` has changed since it was trusted: nothing in it was run or read")),
    };
    if let Some(before) = before {
        let changes = changes(before, &review.summary);
        let more = changes.len().saturating_sub(MOST_CHANGES);
        failure = changes.iter().take(MOST_CHANGES).map(|change| escape_invisible(change)).fold(failure, Failure::hint);
        if more > 0 {
            failure = failure.hint(format!("and {more} more changes"));
        }
    }
    failure = review.notes.iter().map(|note| escape_invisible(note)).fold(failure, Failure::hint);
    if let Some(error) = trouble {
        failure = failure.hint(error.to_string());
        failure = error.fix().into_iter().fold(failure, Failure::hint);
    }
    failure
        .hint(review.count())
        .hint(format!("run `{}` to review and accept it", review.command()))
        .hint(format!("in a script, `--trust` or {VARIABLE}=1 trusts it for one run"))
}

/// Returns true if standard input and standard error are terminals.
pub(crate) fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks the person, and waits for a line. Everything but a yes is a no.
pub(crate) fn ask() -> bool {
    // What was typed before the review was seen is no answer to it.
    let _ = tcflush(std::io::stdin(), QueueSelector::IFlush);
    say(&format!("{HEADING}Trust this file?{HEADING:#} [y/N] "));
    let mut answer = String::new();
    // A terminal gives at most one line at once; the end of input is a no.
    let read = std::io::stdin().lock().read_line(&mut answer);
    if read.is_ok_and(|length| length == 0) {
        say("\n");
    }
    matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}

fn warn(error: &StoreError, consequence: &str) {
    let source = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    let fix = error.fix().map(|fix| format!(" ({fix})")).unwrap_or_default();
    warning(&format!("{error}{source}: {consequence}{fix}"));
}

/// Prints a warning to standard error.
pub(crate) fn warning(words: &str) {
    let width = terminal_width(&std::io::stderr()).unwrap_or(usize::MAX);
    let text = wrap(&format!("warning: {}", clean_line(words)), width, 0);
    say(&text.replacen("warning:", &format!("{WARNING}warning:{WARNING:#}"), 1));
}

/// Which later versions of a project file a running command may take over.
#[derive(Clone, Debug)]
pub(crate) struct Follower {
    path: PathBuf,
    /// The digest of the content that this run was started with.
    accepted: String,
    mode: Mode,
}

impl Follower {
    pub(crate) fn new(path: &Path, text: &str, mode: Mode) -> Self {
        Self { path: path.to_owned(), accepted: sha256(text), mode }
    }

    /// Returns an error for a text that the person has not accepted.
    pub(crate) fn accepts(&self, text: &str) -> Result<(), BoxError> {
        let is_trusted = || Store::open().is_ok_and(|store| store.is_trusted(&self.path, text));
        if self.mode == Mode::Given || sha256(text) == self.accepted || is_trusted() {
            return Ok(());
        }
        Err(format!("`{}` is not trusted; run `ropeway trust` to review and accept it", self.path.display()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_1_or_0_or_a_usage_error() {
        let mode = |option, variable: Option<&str>| Mode::new(option, variable.map(Into::into)).ok();
        assert_eq!([None, Some(""), Some("0")].map(|variable| mode(false, variable)), [Some(Mode::Ask); 3]);
        assert_eq!([None, Some(""), Some("0")].map(|variable| mode(true, variable)), [Some(Mode::Given); 3]);
        assert_eq!(mode(false, Some("1")), Some(Mode::Given));
        assert_eq!(["yes", "true", " 1", "2"].map(|variable| mode(true, Some(variable))), [None; 4]);
    }
}
