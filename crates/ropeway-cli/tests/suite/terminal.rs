//! A pseudo-terminal: the output of the binary in a window of a given width.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::fd::AsFd as _;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::{Ropeway, Running};

/// Erases the current line. Each update of the status line starts with it.
const WIPE: &str = "\r\u{1b}[2K";

/// A window that is not open yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminal {
    pub(crate) columns: u16,
    pub(crate) coloured: bool,
}

/// The final content of the screen, including colours, and the exit code.
#[derive(Debug, PartialEq)]
pub(crate) struct Screen {
    pub(crate) text: String,
    pub(crate) code: Option<i32>,
}

impl Terminal {
    /// Runs the binary in the window, with standard output and standard error on the same screen.
    pub(crate) fn show(self, ropeway: Ropeway) -> Screen {
        let (mut ours, theirs) = self.open();
        let Ropeway { mut command, process_marker, temp_home } = ropeway;
        command.stdout(theirs.try_clone().expect("a terminal")).stderr(theirs).env("TERM", "xterm-256color");
        match self.coloured {
            true => command.env_remove("NO_COLOR"),
            false => command.env("NO_COLOR", "1"),
        };
        let child = command.spawn().expect("ropeway starts");
        // The command holds the other end of the terminal. Output ends when all copies of that end are closed.
        drop(command);
        let mut bytes = Vec::new();
        // Reading fails once the other end of the terminal is closed.
        let _ = ours.read_to_end(&mut bytes);
        let run = Running { child, process_marker, temp_home }.end();
        let text = String::from_utf8(bytes).expect("ropeway prints UTF-8");
        Screen { text: settle(&text), code: run.code }
    }

    pub(crate) fn open(self) -> (File, File) {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a pseudo-terminal");
        grantpt(&ours).expect("a pseudo-terminal");
        unlockpt(&ours).expect("a pseudo-terminal");
        let name = ptsname(&ours, Vec::new()).expect("its name").into_string().expect("a path of UTF-8");
        let size = Winsize { ws_row: 50, ws_col: self.columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(ours.as_fd(), size).expect("a size");
        let theirs = OpenOptions::new().read(true).write(true).open(name).expect("its other end");
        (File::from(ours), theirs)
    }
}

/// Returns the final screen: overwritten lines are removed.
fn settle(text: &str) -> String {
    let line = |line: &str| line.rsplit(WIPE).next().unwrap_or_default().to_owned();
    text.replace("\r\n", "\n").split('\n').map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_window_has_a_width_and_colours() {
    let show = |columns, coloured| Terminal { columns, coloured }.show(Ropeway::new(&["tools"]));
    let [narrow, wide] = [50, 100].map(|columns| show(columns, false).text);
    let widest = |text: &str| text.lines().map(|line| line.chars().count()).max();
    assert!(widest(&narrow) <= Some(50) && widest(&wide) > Some(80), "{narrow}\n{wide}");
    assert!(!narrow.contains('\u{1b}'), "{narrow}");
    assert!(show(50, true).text.contains('\u{1b}'));
}

#[test]
fn a_status_line_leaves_no_trace() {
    let screen = Terminal { columns: 80, coloured: true }.show(Ropeway::new(&["call", "countdown", "seconds=1"]));
    assert_eq!(screen.code, Some(0));
    assert!(!screen.text.contains("\u{1b}[2K") && !screen.text.contains("waiting"), "{:?}", screen.text);
}
