//! Checks that a project file is trusted, and asks the user otherwise.

use std::io::{BufRead as _, IsTerminal as _};
use std::path::{Path, PathBuf};

use anstyle::{AnsiColor, Style};
use ropeway_config::content_digest;
use ropeway_core::tool::BoxError;
use rustix::termios::{QueueSelector, tcflush};

use super::error::TrustStoreError;
use super::review::TrustReview;
use super::store::{TrustStatus, TrustStore};
use super::summary::TrustSummary;
use crate::failure::Failure;
use crate::output::print::say;
use crate::terminal::text::{clean_line, escape_invisible, fold, terminal_width, wrap};

const HEADING: Style = Style::new().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();

/// The variable that trusts project files for one run.
pub(crate) const VARIABLE: &str = "ROPEWAY_TRUST";

/// Maximum changes in an error.
const MAX_CHANGES: usize = 12;

/// Whether project files are trusted for one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrustMode {
    /// Checks the trust store and asks the user about other files.
    Ask,
    /// Trusts every project file for this run, without storing that.
    TrustAll,
}

impl TrustMode {
    /// Returns the mode that `--trust` and [`VARIABLE`]'s value select.
    pub(crate) fn new(option: bool, variable: Option<std::ffi::OsString>) -> Result<Self, Failure> {
        let variable = variable.unwrap_or_default();
        match variable.to_str() {
            Some("1") => Ok(Self::TrustAll),
            Some("" | "0") if option => Ok(Self::TrustAll),
            Some("" | "0") => Ok(Self::Ask),
            _ => {
                let value = variable.to_string_lossy();
                Err(Failure::usage(format!("invalid value `{}` for `{VARIABLE}`", clean_line(&value)))
                    .hint("set it to 1 to trust project files for one run, or to 0"))
            }
        }
    }
}

/// Returns an error unless this text was accepted at this path, or the user accepts it now.
///
/// The caller must use this text and not read the file again: it may have changed since the review.
pub(crate) fn admit(path: &Path, text: &str, mode: TrustMode) -> Result<(), Failure> {
    admit_as(path, text, mode, || TrustReview::new(path, text, Vec::new()))
}

/// Like [`admit`], with a custom review.
pub(crate) fn admit_as(
    path: &Path,
    text: &str,
    mode: TrustMode,
    review: impl FnOnce() -> Result<TrustReview, Failure>,
) -> Result<(), Failure> {
    if mode == TrustMode::TrustAll {
        return Ok(());
    }
    let store = TrustStore::open();
    if store.as_ref().is_ok_and(|store| store.is_trusted(path, text)) {
        return Ok(());
    }
    let review = review()?;
    let before = previous_summary(&store, path, text);
    if !can_ask() {
        return Err(not_trusted(&review, before.as_ref(), store.as_ref().err()));
    }
    if let Err(error) = &store {
        warn(error, "ropeway may ask again");
    }
    say(&render_review(&review, before.as_ref()));
    if !ask(1) {
        return Err(Failure::usage(format!("`{}` is not trusted; nothing was started", review.file())));
    }
    if let Err(error) = record_trust(path, text, review.summary) {
        warn(&error, "the answer applies to this run only");
    }
    Ok(())
}

/// Returns the summary for the content accepted at the path before, if it differs.
pub(crate) fn previous_summary(
    store: &Result<TrustStore, TrustStoreError>,
    path: &Path,
    text: &str,
) -> Option<TrustSummary> {
    match store.as_ref().ok()?.status(path, text) {
        TrustStatus::Changed(record) => Some(record.summary.clone()),
        TrustStatus::Trusted | TrustStatus::Declined | TrustStatus::Unknown => None,
    }
}

/// Stores that the user accepted a text. A broken store is renamed with a warning.
pub(crate) fn record_trust(path: &Path, text: &str, summary: TrustSummary) -> Result<(), TrustStoreError> {
    open_or_replace()?.record(path, text, summary)
}

fn open_or_replace() -> Result<TrustStore, TrustStoreError> {
    match TrustStore::open() {
        Err(TrustStoreError::Broken { .. }) => {
            let (store, aside) = TrustStore::replace_broken()?;
            print_warning(&format!(
                "the trust store was damaged: moved it to `{}` and created a new one",
                aside.display()
            ));
            Ok(store)
        }
        store => store,
    }
}

/// One of several files that the user accepts or declines together.
#[derive(Debug)]
pub(crate) struct TrustSubject<'a> {
    pub(crate) path: &'a Path,
    /// The content that the answer covers.
    pub(crate) content: &'a str,
    pub(crate) review: TrustReview,
}

/// Shows several files' reviews, with their totals last.
pub(crate) fn show_reviews(subjects: &[TrustSubject<'_>]) {
    let store = TrustStore::open();
    if let Err(error) = &store {
        warn(error, "ropeway may ask again");
    }
    for TrustSubject { path, content, review } in subjects {
        let before = previous_summary(&store, path, content);
        say(&format!("{}\n", render_review(review, before.as_ref())));
    }
    if subjects.len() > 1 {
        let reviews = subjects.iter().map(|subject| &subject.review);
        say(&wrap(&TrustReview::total_line(reviews), terminal_width(&std::io::stderr()).unwrap_or(usize::MAX), 0));
    }
}

/// Asks whether to trust the files and stores the answer, also if it is no.
pub(crate) fn ask_together(subjects: Vec<TrustSubject<'_>>) -> bool {
    show_reviews(&subjects);
    let is_accepted = ask(subjects.len());
    for TrustSubject { path, content, review } in subjects {
        let stored = open_or_replace().and_then(|mut store| match is_accepted {
            true => store.record(path, content, review.summary),
            false => store.decline(path, content),
        });
        if let Err(error) = stored {
            warn(&error, "the answer applies to this run only");
        }
    }
    is_accepted
}

/// Renders a review and the changes since the last one.
pub(crate) fn render_review(review: &TrustReview, before: Option<&TrustSummary>) -> String {
    let width = terminal_width(&std::io::stderr());
    let wide = width.unwrap_or(usize::MAX);
    let heading = match before {
        Some(_) => format!("{} changed since it was trusted. New content:", review.file()),
        None => format!("{} is not trusted yet. Content:", review.file()),
    };
    let heading = fold(&heading, wide, 2);
    let mut text = format!("{HEADING}{}{HEADING:#}\n\n{}", heading.trim(), review.render(width));
    if let Some(before) = before {
        text.push_str(&format!("\n{HEADING}Changes{HEADING:#}\n"));
        for change in changes(before, &review.summary) {
            text.push_str(&fold(&escape_invisible(&change), wide, 4)[2..]);
        }
    }
    text + &format!("\n{}", wrap(&review.summary_line(), wide, 0))
}

fn changes(before: &TrustSummary, now: &TrustSummary) -> Vec<String> {
    let changes = before.changes(now);
    if changes.is_empty() {
        return vec!["only the order of keys, quotes, the owner or a redacted value changed".to_owned()];
    }
    changes
}

fn not_trusted(review: &TrustReview, before: Option<&TrustSummary>, trouble: Option<&TrustStoreError>) -> Failure {
    let file = review.file();
    let mut failure = match before {
        None => Failure::usage(format!("`{file}` is not trusted; it was not used")),
        Some(_) => Failure::usage(format!("`{file}` changed since it was trusted; it was not used")),
    };
    if let Some(before) = before {
        let changes = changes(before, &review.summary);
        let more = changes.len().saturating_sub(MAX_CHANGES);
        failure = changes.iter().take(MAX_CHANGES).map(|change| escape_invisible(change)).fold(failure, Failure::hint);
        if more > 0 {
            failure = failure.hint(format!("and {more} more changes"));
        }
    }
    failure = review.warnings.iter().map(|note| escape_invisible(note)).fold(failure, Failure::hint);
    if let Some(error) = trouble {
        failure = failure.hint(error.to_string());
        failure = error.fix().into_iter().fold(failure, Failure::hint);
    }
    failure
        .hint(review.summary_line())
        .hint(format!("run `{}` to review and accept it", review.command()))
        .hint(format!("in scripts, use `--trust` or {VARIABLE}=1 to trust it for one run"))
}

/// Returns `true` if standard input and standard error are terminals.
pub(crate) fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks the user whether to trust this many files. Anything but yes means no.
pub(crate) fn ask(count: usize) -> bool {
    // Input typed before the review was shown is not an answer.
    let _ = tcflush(std::io::stdin(), QueueSelector::IFlush);
    let files = if count == 1 { "this file" } else { "these files" };
    say(&format!("{HEADING}Trust {files}?{HEADING:#} [y/N] "));
    let mut answer = String::new();
    // End of input means no.
    let read = std::io::stdin().lock().read_line(&mut answer);
    if read.is_ok_and(|length| length == 0) {
        say("\n");
    }
    matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}

fn warn(error: &TrustStoreError, consequence: &str) {
    let source = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    let fix = error.fix().map(|fix| format!(" ({fix})")).unwrap_or_default();
    print_warning(&format!("{error}{source}: {consequence}{fix}"));
}

/// Prints a warning to standard error.
pub(crate) fn print_warning(words: &str) {
    let width = terminal_width(&std::io::stderr()).unwrap_or(usize::MAX);
    let text = wrap(&format!("warning: {}", clean_line(words)), width, 0);
    say(&text.replacen("warning:", &format!("{WARNING}warning:{WARNING:#}"), 1));
}

/// Decides which later project file versions a running command may load.
#[derive(Clone, Debug)]
pub(crate) struct ReloadGuard {
    path: PathBuf,
    /// The content that this run started with.
    accepted: String,
    mode: TrustMode,
}

impl ReloadGuard {
    pub(crate) fn new(path: &Path, text: &str, mode: TrustMode) -> Self {
        Self { path: path.to_owned(), accepted: text.to_owned(), mode }
    }

    /// Returns `true` for text that differs from the first one at most in comments and layout.
    fn is_accepted(&self, text: &str) -> bool {
        let content = |text: &str| content_digest(text, &self.path).ok();
        text == self.accepted || content(text).is_some_and(|now| Some(now) == content(&self.accepted))
    }

    /// Returns an error for text that the user has not accepted.
    pub(crate) fn accepts(&self, text: &str) -> Result<(), BoxError> {
        let is_trusted = || TrustStore::open().is_ok_and(|store| store.is_trusted(&self.path, text));
        if self.mode == TrustMode::TrustAll || self.is_accepted(text) || is_trusted() {
            return Ok(());
        }
        Err(format!("`{}` is not trusted; run `ropeway trust` to review and accept it", self.path.display()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_must_be_1_or_0() {
        let mode = |option, variable: Option<&str>| TrustMode::new(option, variable.map(Into::into)).ok();
        assert_eq!([None, Some(""), Some("0")].map(|variable| mode(false, variable)), [Some(TrustMode::Ask); 3]);
        assert_eq!([None, Some(""), Some("0")].map(|variable| mode(true, variable)), [Some(TrustMode::TrustAll); 3]);
        assert_eq!(mode(false, Some("1")), Some(TrustMode::TrustAll));
        assert_eq!(["yes", "true", " 1", "2"].map(|variable| mode(true, Some(variable))), [None; 4]);
    }
}
