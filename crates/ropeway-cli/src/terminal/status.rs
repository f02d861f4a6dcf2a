//! The status line: a spinner and progress on standard error, if it is a terminal.

use std::io::{IsTerminal as _, Write as _};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ropeway_core::tool::Progress;
use tokio::time::{Instant, MissedTickBehavior};

use crate::terminal::charset::{for_locale, is_plain};
use crate::terminal::text::{clean_line, cut, screen_columns, terminal_width};

/// Delay before the status line appears.
const PATIENCE: Duration = Duration::from_millis(300);
const FRAME: Duration = Duration::from_millis(80);
const PLAIN_SPINNER: [&str; 4] = ["|", "/", "-", "\\"];
const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
const BAR: usize = 20;

/// Maximum bytes kept from a progress message.
const LONGEST_MESSAGE: usize = 4 << 10;

/// A command's status line.
///
/// Clones share the progress and the pause flag, so a progress handler can update the line that another clone draws. Only
/// [`during`](Self::during) and [`during_labelled`](Self::during_labelled) draw, from the task that awaits them: no
/// separate task draws, and dropping the future clears the line. The std mutex guards one small value, which is cloned
/// before drawing, so it is never held across `.await`.
///
/// Three flags are process-wide, because a signal or watchdog thread cleans up without a `Status`: `IS_SHOWN` while a line
/// is on the screen, `IS_OVER` once Ctrl-C has ended the process (no frame is drawn after it), and `IS_KEPT` while the
/// current line is output to keep.
#[derive(Clone)]
pub(crate) struct Status {
    shown: bool,
    began: Instant,
    progress: Arc<Mutex<Option<Progress>>>,
    paused: Arc<AtomicBool>,
}

/// Suspends the status line while it lives.
pub(crate) struct PauseGuard(Arc<AtomicBool>);

impl Drop for PauseGuard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Status {
    /// Creates a status line, hidden with `verbose` or without a terminal.
    pub(crate) fn new(verbose: bool) -> Self {
        Self {
            shown: !verbose && is_visible(),
            began: Instant::now(),
            progress: Arc::default(),
            paused: Arc::default(),
        }
    }

    /// Sets the current step's progress.
    pub(crate) fn progress(&self, mut progress: Progress) {
        if let Some(message) = progress.message.as_mut().filter(|message| message.len() > LONGEST_MESSAGE) {
            message.truncate(message.floor_char_boundary(LONGEST_MESSAGE));
            message.shrink_to_fit();
        }
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
    }

    /// Clears the line and suspends it until the guard is dropped.
    pub(crate) fn pause(&self) -> PauseGuard {
        self.paused.store(true, Ordering::Relaxed);
        if self.shown {
            clear_line();
        }
        PauseGuard(self.paused.clone())
    }

    /// Clears the progress for the next step.
    pub(crate) fn forget(&self) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Shows a label while waiting for a step.
    pub(crate) async fn during<T>(&self, label: &str, step: impl Future<Output = T>) -> T {
        self.during_labelled(|| label.to_owned(), step).await
    }

    /// Like [`during`](Self::during), with a label that changes.
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
        let mut spinner = if is_plain() { PLAIN_SPINNER.iter() } else { SPINNER.iter() }.cycle();
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
                    let line = for_locale(&line);
                    if IS_OVER.load(Ordering::Acquire) {
                        continue;
                    }
                    // The terminal may be closed.
                    let _ = write!(std::io::stderr(), "\r\x1b[2K{frame} {line}");
                }
            }
        }
    }
}

/// Returns `true` if standard error is a terminal that can redraw lines.
fn is_visible() -> bool {
    let dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
    !dumb && std::io::stderr().is_terminal()
}

/// Set while a status line is shown.
static IS_SHOWN: AtomicBool = AtomicBool::new(false);

/// Set when the process ends: no more frames are drawn.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Moves the cursor to the start of a line when Ctrl-C ends the process. Clears a status line together with the terminal's
/// `^C`, and ends any other line, which may contain output.
pub(crate) fn end_interrupted_line() {
    IS_OVER.store(true, Ordering::Release);
    keep_line(false);
    if IS_SHOWN.load(Ordering::Acquire) {
        clear_line();
    } else if std::io::stderr().is_terminal() {
        // The terminal may be closed.
        let _ = std::io::stderr().write_all(b"\n");
    } else if std::io::stdout().is_terminal() {
        let _ = std::io::stdout().write_all(b"\n");
    }
}

/// Clears the status line, if shown.
pub(crate) fn clear_if_shown() {
    if IS_SHOWN.load(Ordering::Acquire) {
        clear_line();
    }
}

/// Clears the current line.
pub(crate) fn clear_line() {
    if is_visible() {
        // The terminal may be closed.
        let _ = write!(std::io::stderr(), "\r\x1b[2K");
    }
}

/// Set while the current line contains output to keep.
static IS_KEPT: AtomicBool = AtomicBool::new(false);

/// Sets whether the current line contains output, which [`leave`] keeps.
pub(crate) fn keep_line(is_kept: bool) {
    IS_KEPT.store(is_kept, Ordering::Relaxed);
}

/// Moves the cursor to the start of an empty line when the process ends early.
pub(crate) fn leave() {
    if IS_KEPT.swap(false, Ordering::Relaxed) {
        // The terminal may be closed.
        let _ = writeln!(std::io::stderr());
    } else {
        clear_if_shown();
    }
}

/// A shown status line, cleared on drop.
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
    // A wrapped line cannot be cleared; the spinner takes two columns.
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
    fn unusual_progress_from_a_server_stays_on_one_line() {
        let odd = [(f64::NAN, Some(1.0)), (5.0, Some(0.0)), (9.0, Some(1.0)), (-1.0, Some(f64::INFINITY))];
        for (done, total) in odd {
            let line = line("a", Some(&progress(done, total, Some("\u{1b}[2J\n\nx"))), 30);
            assert!(!line.contains('\n') && !line.contains('\u{1b}') && line.chars().count() <= 27, "{line}");
        }
    }
}
