//! The status line: a spinner and the progress of a slow step, on a terminal's standard error only.

use std::io::{IsTerminal as _, Write as _};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ropeway::tool::Progress;
use tokio::time::{Instant, MissedTickBehavior};

use crate::terminal::text::{clean_line, cut, screen_columns, terminal_width};

/// What takes less is not worth a word.
const PATIENCE: Duration = Duration::from_millis(300);
const FRAME: Duration = Duration::from_millis(80);
const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
const BAR: usize = 20;

/// How much of a message is kept, in bytes: no line has room for more.
const LONGEST_MESSAGE: usize = 4 << 10;

/// Shows what is being waited for.
#[derive(Clone)]
pub(crate) struct Status {
    shown: bool,
    began: Instant,
    progress: Arc<Mutex<Option<Progress>>>,
    paused: Arc<AtomicBool>,
}

/// While this lives, the status line is not drawn.
pub(crate) struct PauseGuard(Arc<AtomicBool>);

impl Drop for PauseGuard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Status {
    /// A status line that is shown when somebody can see it and nothing else is written there.
    pub(crate) fn new(verbose: bool) -> Self {
        Self {
            shown: !verbose && is_visible(),
            began: Instant::now(),
            progress: Arc::default(),
            paused: Arc::default(),
        }
    }

    /// Hears how far the step has come.
    pub(crate) fn progress(&self, mut progress: Progress) {
        if let Some(message) = progress.message.as_mut().filter(|message| message.len() > LONGEST_MESSAGE) {
            message.truncate(message.floor_char_boundary(LONGEST_MESSAGE));
            message.shrink_to_fit();
        }
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
    }

    /// Wipes the line, and draws none until the guard is dropped: something else is written on the terminal.
    pub(crate) fn pause(&self) -> PauseGuard {
        self.paused.store(true, Ordering::Relaxed);
        if self.shown {
            clear_line();
        }
        PauseGuard(self.paused.clone())
    }

    /// Another step begins, of which nothing is known.
    pub(crate) fn forget(&self) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Waits for a step, and shows it once the command has taken a moment.
    pub(crate) async fn during<T>(&self, label: &str, step: impl Future<Output = T>) -> T {
        self.during_labelled(|| label.to_owned(), step).await
    }

    /// The same for a step whose name changes on the way.
    pub(crate) async fn during_labelled<T>(&self, label: impl Fn() -> String, step: impl Future<Output = T>) -> T {
        if !self.shown {
            return step.await;
        }
        let mut step = pin!(step);
        tokio::select! {
            biased;
            done = &mut step => return done,
            () = tokio::time::sleep_until(self.began + PATIENCE) => {}
        }
        let _line = ShownLine::new();
        let mut frames = tokio::time::interval(FRAME);
        frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut spinner = SPINNER.iter().cycle();
        loop {
            tokio::select! {
                biased;
                done = &mut step => return done,
                _ = frames.tick() => {
                    if self.paused.load(Ordering::Relaxed) {
                        continue;
                    }
                    let progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    let stderr = std::io::stderr();
                    let width = terminal_width(&stderr).unwrap_or(80).min(screen_columns(&stderr));
                    let line = line(&label(), progress.as_ref(), width);
                    let frame = spinner.next().unwrap_or(&"");
                    if IS_OVER.load(Ordering::Acquire) {
                        continue;
                    }
                    // A terminal that is gone is no reason to fail.
                    let _ = write!(std::io::stderr(), "\r\x1b[2K{frame} {line}");
                }
            }
        }
    }
}

/// Can somebody see a line that is written over and over?
fn is_visible() -> bool {
    let dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
    !dumb && std::io::stderr().is_terminal()
}

/// Whether a status line stands on the terminal now.
static IS_SHOWN: AtomicBool = AtomicBool::new(false);

/// Whether the process is about to end: no more frames are drawn.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Leaves the cursor at the beginning of a line when Ctrl-C ends the process: a status line is wiped together with the `^C` that the
/// terminal shows, and any other line, which may hold a part of the result, is ended.
pub(crate) fn end_interrupted_line() {
    IS_OVER.store(true, Ordering::Release);
    keep_line(false);
    if IS_SHOWN.load(Ordering::Acquire) {
        clear_line();
    } else if std::io::stderr().is_terminal() {
        // A terminal that is gone is no reason to fail.
        let _ = std::io::stderr().write_all(b"\n");
    } else if std::io::stdout().is_terminal() {
        let _ = std::io::stdout().write_all(b"\n");
    }
}

/// Wipes the status line, if one is shown.
pub(crate) fn clear_if_shown() {
    if IS_SHOWN.load(Ordering::Acquire) {
        clear_line();
    }
}

/// Wipes the line, should there be one.
pub(crate) fn clear_line() {
    if is_visible() {
        // A terminal that is gone needs no wiping.
        let _ = write!(std::io::stderr(), "\r\x1b[2K");
    }
}

/// The cursor stands behind text that is to stay.
static IS_KEPT: AtomicBool = AtomicBool::new(false);

/// Says whether the cursor stands behind text on the terminal, which [`leave`] then keeps.
pub(crate) fn keep_line(is_kept: bool) {
    IS_KEPT.store(is_kept, Ordering::Relaxed);
}

/// Leaves the cursor at the start of an empty line, when the process ends in the midst of something.
pub(crate) fn leave() {
    if IS_KEPT.swap(false, Ordering::Relaxed) {
        // A terminal that is gone needs no line.
        let _ = writeln!(std::io::stderr());
    } else {
        clear_if_shown();
    }
}

/// The line while it stands on the terminal; wiped when the wait ends, in whatever way.
struct ShownLine;

impl ShownLine {
    fn new() -> Self {
        IS_SHOWN.store(true, Ordering::Release);
        Self
    }
}

impl Drop for ShownLine {
    fn drop(&mut self) {
        clear_line();
        IS_SHOWN.store(false, Ordering::Release);
    }
}

fn line(label: &str, progress: Option<&Progress>, width: usize) -> String {
    let mut line = clean_line(label);
    if let Some(Progress { progress, total, message }) = progress {
        match total {
            Some(total) if *total > 0.0 => {
                let part = (progress / total).clamp(0.0, 1.0);
                let filled = (part * BAR as f64).round() as usize;
                line.push_str(&format!(" {}{} {:.0}%", "━".repeat(filled), "╌".repeat(BAR - filled), part * 100.0));
            }
            _ => line.push_str(&format!(" {progress}")),
        }
        if let Some(message) = message {
            line.push_str(&format!(" {}", clean_line(message)));
        }
    }
    // A line that wraps cannot be wiped; two columns belong to the spinner.
    cut(&line, width.saturating_sub(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(progress: f64, total: Option<f64>, message: Option<&str>) -> Progress {
        Progress { progress, total, message: message.map(str::to_owned) }
    }

    #[test]
    fn progress_is_a_bar_when_the_whole_is_known() {
        let half = progress(2.0, Some(4.0), Some("halfway"));
        assert_eq!(line("count", Some(&half), 80), "count ━━━━━━━━━━╌╌╌╌╌╌╌╌╌╌ 50% halfway");
        assert_eq!(line("count", Some(&progress(7.0, None, None)), 80), "count 7");
        assert_eq!(line("count", None, 80), "count");
    }

    #[test]
    fn odd_progress_from_a_server_does_no_harm() {
        let odd = [(f64::NAN, Some(1.0)), (5.0, Some(0.0)), (9.0, Some(1.0)), (-1.0, Some(f64::INFINITY))];
        for (done, total) in odd {
            let line = line("a", Some(&progress(done, total, Some("\u{1b}[2J\n\nx"))), 30);
            assert!(!line.contains('\n') && !line.contains('\u{1b}') && line.chars().count() <= 27, "{line}");
        }
    }
}
