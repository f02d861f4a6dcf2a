//! The `-v` and `-vv` log: one line per event on standard error.

use std::fmt::{self, Write as _};
use std::time::SystemTime;

use anstyle::{AnsiColor, Style};
use ropeway_core::event::timestamp;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::output::print::start_line;
use crate::secrets::redaction::{self, RedactingWriter};
use crate::terminal::text::{clean_line, columns, cut, terminal_width};

const NAME: Style = Style::new().bold();
const FAINT: Style = Style::new().dimmed();

/// Shown for events that are not about a server.
const OURSELVES: &str = "ropeway";

/// Longer server names are cut.
const WIDEST_SERVER: usize = 20;

/// Narrower terminals omit milliseconds and the level.
const NARROW: usize = 60;

/// Minimum message width in columns.
const NARROWEST: usize = 10;

/// Maximum line width in a file or pipe, in columns.
const LONGEST: usize = 4_000;

/// Starts the log: 1 shows server events, 2 or more also every message.
pub(crate) fn start(verbose: u8) {
    let level = if verbose > 1 { "trace" } else { "debug" };
    let filter = EnvFilter::new(format!("warn,ropeway={level}"));
    // `NO_COLOR` and a pipe turn colours off.
    let colours = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || {
            start_line();
            RedactingWriter { to: std::io::stderr(), colours }
        })
        .event_format(LineFormat { colours, width: || terminal_width(&std::io::stderr()) })
        .finish();
    // No other subscriber is ever set.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// Formats an event as time, level, server and message, without spans.
struct LineFormat {
    colours: bool,
    width: fn() -> Option<usize>,
}

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let line = line(SystemTime::now(), *event.metadata().level(), &fields, (self.width)());
        if self.colours { writer.write_str(&line) } else { write!(writer, "{}", anstream::adapter::strip_str(&line)) }
    }
}

/// An event's fields.
#[derive(Default)]
struct Fields {
    server: Option<String>,
    message: String,
    others: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "server" => self.server = Some(format!("{value:?}")),
            // Writing to a string cannot fail.
            name => drop(write!(self.others, ", {name}: {value:?}")),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

/// Formats an event in one line. Warnings and messages are not cut on a terminal.
fn line(at: SystemTime, level: Level, fields: &Fields, width: Option<usize>) -> String {
    let is_narrow = width.is_some_and(|width| width < NARROW);
    let time = timestamp(at);
    let time = if is_narrow { time.get(11..19) } else { time.get(11..) }.unwrap_or(&time);
    let (word, style) = match level {
        Level::ERROR => ("error ", AnsiColor::Red.on_default()),
        Level::WARN => ("warn  ", AnsiColor::Yellow.on_default()),
        Level::INFO => ("info  ", AnsiColor::Green.on_default()),
        Level::DEBUG if is_narrow => ("", Style::new()),
        Level::DEBUG => ("debug ", AnsiColor::Blue.on_default()),
        Level::TRACE => ("trace ", FAINT),
    };
    let server = cut(&clean_line(fields.server.as_deref().unwrap_or(OURSELVES)), WIDEST_SERVER);
    let words = format!("{}{}", fields.message, fields.others);
    // Whitespace in a message is kept; the writer escapes control characters.
    let words = if level == Level::TRACE { words.replace(['\n', '\r'], " ") } else { clean_line(&words) };
    let room = match width {
        Some(width) if level == Level::DEBUG => {
            width.saturating_sub(time.len() + word.len() + columns(&server) + 2).max(NARROWEST)
        }
        _ => LONGEST,
    };
    // Redact first: a truncated secret would not be found.
    let words = cut(&redaction::redact(&words), room);
    format!("{FAINT}{time}{FAINT:#} {style}{word}{style:#}{NAME}{server}{NAME:#} {words}\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn shown(level: Level, server: Option<&str>, message: &str, width: Option<usize>) -> String {
        let fields = Fields { server: server.map(str::to_owned), message: message.to_owned(), others: String::new() };
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(86_400_000 + 3_723_004);
        anstream::adapter::strip_str(&line(at, level, &fields, width)).to_string()
    }

    #[test]
    fn a_log_line_has_time_level_server_and_words() {
        assert_eq!(shown(Level::DEBUG, Some("web"), "connecting", None), "01:02:03.004Z debug web connecting\n");
        assert_eq!(shown(Level::WARN, None, "odd", None), "01:02:03.004Z warn  ropeway odd\n");
    }

    #[test]
    fn a_log_line_fits_the_terminal_and_stays_one_line() {
        let long = "word \u{1b}[2J\n".repeat(100);
        for width in [20, 40, 80, 200] {
            let line = shown(Level::DEBUG, Some("web"), &long, Some(width));
            assert!(columns(line.trim_end()) <= width.max(24), "{width}: {line}");
            assert_eq!(line.lines().count(), 1);
            assert!(line.ends_with("…\n") && !line.contains('\u{1b}'), "{line}");
        }
    }

    #[test]
    fn a_warning_is_not_cut_to_the_terminal() {
        let line = shown(Level::WARN, Some("web"), &"word ".repeat(100), Some(40));
        assert!(line.ends_with("word word\n"), "{line}");
    }
}
