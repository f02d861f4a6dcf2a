//! Tool calls as text lines.

use anstyle::{AnsiColor, Style};
use ropeway_core::content::ContentPart;
use ropeway_core::duration::format_duration;
use ropeway_core::envelope::{Envelope, EnvelopeData};
use ropeway_core::invisible::hides_text;
use ropeway_core::message::CallArguments;
use ropeway_core::tool::{Arguments, Origin};
use serde_json::Value;

use crate::failure;
use crate::terminal::text::{clean, clean_line, columns, cut};

const NAME: Style = Style::new().bold();
const FAINT: Style = Style::new().dimmed();
const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();

/// Maximum tool name length in characters.
const MAX_NAME: usize = 200;

/// The prefix that tool names have for models.
const MODEL_PREFIX: &str = "mcp_";

/// Returns a tool's name for people: `SERVER.TOOL`. Names that are not plain words are quoted.
pub(crate) fn tool_name(tool: &str, origin: &Origin) -> String {
    let name = match origin {
        Origin::Server { server, tool } => format!("{}.{}", quote_name(server.as_str()), quote_name(tool)),
        // The model may have invented a name with the prefix.
        Origin::Local => quote_name(tool.strip_prefix(MODEL_PREFIX).unwrap_or(tool)),
    };
    cut(&name, MAX_NAME)
}

/// Returns the arguments as code. Values are escaped, so that no argument can hide or forge another one.
pub(crate) fn format_arguments(arguments: &CallArguments) -> String {
    match arguments {
        CallArguments::Object(fields) => {
            let field =
                |(name, value): (&String, &Value)| format!("{}: {}", quote_name(name), escaped(&value.to_string()));
            fields.iter().map(field).collect::<Vec<_>>().join(", ")
        }
        CallArguments::Broken { text, .. } => escaped(text),
    }
}

/// Quotes a name unless it is a plain word.
pub(super) fn quote_name(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    if !name.is_empty() && name.chars().all(is_plain) {
        name.to_owned()
    } else {
        escaped(&Value::from(name).to_string())
    }
}

/// Replaces control and invisible characters with JSON escapes.
pub(crate) fn escaped(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut seen, c| {
        if hides_text(c) {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| seen.push_str(&format!("\\u{unit:04x}")));
        } else {
            seen.push(c);
        }
        seen
    })
}

/// Returns `true` if a call's line shows all arguments.
pub(super) fn is_complete(name: &str, arguments: &Arguments, summary: Option<&str>, width: usize) -> bool {
    let call = format!("{name}({})", format_arguments(&CallArguments::Object(arguments.clone())));
    summary.is_none() && columns(&call) <= width.saturating_sub(2)
}

/// Returns the line for a call that starts, with the tool's summary or else its arguments.
pub(crate) fn started_line(name: &str, called_with: &CallArguments, summary: Option<&str>, width: usize) -> String {
    let call = match summary {
        Some(summary) => format!("{name}: {}", clean_line(summary)),
        None => format!("{name}({})", format_arguments(called_with)),
    };
    let line = cut(&call, width.saturating_sub(2));
    let styled = match line.strip_prefix(name) {
        Some(rest) => format!("{NAME}{name}{NAME:#}{rest}"),
        None => line,
    };
    format!("{GOOD}●{GOOD:#} {styled}\n")
}

/// Returns the line for a finished call: its duration and the first line of its result. `name` is given if another line
/// was printed since the call started.
pub(crate) fn finished_line(envelope: &Envelope, name: Option<&str>, files: &[String], width: usize) -> String {
    let failed = envelope.meta.is_error || envelope.error.is_some();
    let (style, sign) = if failed { (BAD, '✗') } else { (GOOD, '✓') };
    let mut line = format!("  {style}{sign}{style:#}");
    let mut used = 3;
    let mut add = |text: &str, style: Style| {
        let text = cut(text, width.saturating_sub(used + 1));
        used += 1 + columns(&text);
        line.push_str(&format!(" {style}{text}{style:#}"));
    };
    if let Some(name) = name {
        add(name, NAME);
    }
    if !envelope.took.is_zero() {
        add(&format_duration(envelope.took), FAINT);
    }
    let summary = summary(envelope);
    let mut files = files.iter();
    match (summary.is_empty(), files.as_slice().first()) {
        // Two spaces separate the result from the call.
        (false, _) if name.is_some() || !envelope.took.is_zero() => add(&format!(" {summary}"), Style::new()),
        (false, _) => add(&summary, Style::new()),
        (true, Some(_)) => {
            // Paths are never truncated.
            line.push_str(&files.next().map(|file| format!("  {file}")).unwrap_or_default());
        }
        (true, None) => {}
    }
    line.push('\n');
    files.for_each(|file| line.push_str(&format!("    {file}\n")));
    line
}

/// Summarizes a call result in one line.
fn summary(envelope: &Envelope) -> String {
    if let Some(error) = &envelope.error {
        let own = match &envelope.origin {
            Origin::Server { tool, .. } => tool,
            Origin::Local => "",
        };
        let words = failure::chain_text(error.as_ref());
        // Errors name the tool as the model does.
        return clean_line(&match envelope.tool == own {
            true => words,
            false => words.replace(
                &format!("`{}`", envelope.tool),
                &format!("`{}`", tool_name(&envelope.tool, &envelope.origin)),
            ),
        });
    }
    match envelope.data() {
        EnvelopeData::Json(value) => clean_line(&value.to_string()),
        EnvelopeData::Text(text) => first_line(&text),
        EnvelopeData::Parts(parts) => {
            let texts: Vec<&str> = parts.iter().filter_map(ContentPart::as_text).collect();
            first_line(&texts.join("\n"))
        }
    }
}

/// Returns the first line that is not blank, and how many lines follow.
fn first_line(text: &str) -> String {
    let text = clean(text);
    let mut lines = text.lines().map(clean_line).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    match lines.count() {
        0 => first,
        1 => format!("{first} (+1 line)"),
        more => format!("{first} (+{more} lines)"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ropeway_core::tool::{CallError, CallId};
    use serde_json::json;

    use super::*;

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    fn object(value: Value) -> CallArguments {
        CallArguments::Object(value.as_object().cloned().expect("an object"))
    }

    fn envelope(result: Value) -> Envelope {
        let output = serde_json::from_value(result).expect("an object always reads");
        Envelope::from_output(CallId("1".to_owned()), "t", Origin::Local, Duration::from_millis(24), output)
    }

    #[test]
    fn a_call_is_shown_as_one_line_of_code() {
        let origin = Origin::Server { server: "demo".into(), tool: "time".into() };
        assert_eq!(tool_name("mcp_demo_time", &origin), "demo.time");
        let arguments = object(json!({"zone": "Asia/Tokyo", "n": [1, 2]}));
        assert_eq!(
            plain(&started_line("demo.time", &arguments, None, 80)),
            "● demo.time(zone: \"Asia/Tokyo\", n: [1,2])\n"
        );
        assert_eq!(plain(&started_line("demo.time", &arguments, None, 20)), "● demo.time(zone: \"…\n");
        assert_eq!(plain(&started_line("demo.time", &arguments, None, 8)), "● demo.…\n");
        let broken = CallArguments::broken("{\u{1b}[2J\n oops", "no JSON");
        assert_eq!(plain(&started_line("t", &broken, None, 80)), "● t({\\u001b[2J\\u000a oops)\n");
    }

    #[test]
    fn a_summary_replaces_the_arguments_in_the_line_of_a_call() {
        let arguments = object(json!({"output": "o1", "from": 4000}));
        let line = |width| {
            plain(&started_line("read_more", &arguments, Some("Read output \"o1\"\u{1b}[2J from byte 4,000"), width))
        };
        assert_eq!(line(80), "● read_more: Read output \"o1\" from byte 4,000\n");
        assert_eq!(line(20), "● read_more: Read o…\n");
    }

    #[test]
    fn no_argument_can_hide_or_forge_another_one() {
        let shown = |value: Value| format_arguments(&object(value));
        assert_eq!(shown(json!({"a": "hello\u{9d}", "cmd": "rm -rf /"})), r#"a: "hello\u009d", cmd: "rm -rf /""#);
        assert_eq!(shown(json!({"path: \"/tmp/safe\", mode": "x"})), r#""path: \"/tmp/safe\", mode": "x""#);
        assert_eq!(
            shown(json!({"a\u{9b}2J": "\u{1b}]0;\u{202e}\u{2028}\u{e0041}\n"})),
            r#""a\u009b2J": "\u001b]0;\u202e\u2028\udb40\udc41\n""#
        );
    }

    #[test]
    fn a_name_that_looks_like_a_call_is_quoted() {
        let named = |tool: &str| tool_name("t", &Origin::Server { server: "s".into(), tool: tool.into() });
        assert_eq!(named("read(path: \"/tmp\")? \u{9d}"), r#"s."read(path: \"/tmp\")? \u009d""#);
        assert_eq!(named("files/read-all.v2"), "s.files/read-all.v2");
    }

    #[test]
    fn a_result_is_summarized_by_its_first_line() {
        let call_display = |result: Value, name: Option<&str>| plain(&finished_line(&envelope(result), name, &[], 40));
        let text = |text: &str| json!({"content": [{"type": "text", "text": text}]});
        assert_eq!(call_display(text("\n one \u{1b}[31m\ntwo\n\nthree"), None), "  ✓ 24 ms  one (+2 lines)\n");
        assert_eq!(call_display(text("one"), Some("demo.time")), "  ✓ demo.time 24 ms  one\n");
        assert_eq!(call_display(text(&"x".repeat(99)), None), format!("  ✓ 24 ms  {}…\n", "x".repeat(28)));
        assert_eq!(call_display(json!({"content": [], "structuredContent": {"a": 1}}), None), "  ✓ 24 ms  {\"a\":1}\n");
        let failed = json!({"isError": true, "content": [{"type": "text", "text": "no"}]});
        assert_eq!(call_display(failed, None), "  ✗ 24 ms  no\n");
        assert_eq!(call_display(json!({"content": []}), None), "  ✓ 24 ms\n");
    }

    #[test]
    fn files_are_listed_with_their_full_paths() {
        let files = ["image/png, 14 KB → a/long/path/chart-1.png".to_owned(), "audio/wav, 1 B".to_owned()];
        let nothing = envelope(json!({"content": []}));
        assert_eq!(
            plain(&finished_line(&nothing, None, &files, 30)),
            "  ✓ 24 ms  image/png, 14 KB → a/long/path/chart-1.png\n    audio/wav, 1 B\n"
        );
        let text = envelope(json!({"content": [{"type": "text", "text": "drawn"}]}));
        assert_eq!(plain(&finished_line(&text, None, &files[1..], 30)), "  ✓ 24 ms  drawn\n    audio/wav, 1 B\n");
    }

    #[test]
    fn a_refused_call_shows_the_reason_and_no_duration() {
        let error = CallError::Denied { tool: "t".into(), reason: "rejected by the user".into() };
        let envelope = Envelope::from_error(CallId("1".into()), "t", Origin::Local, Duration::ZERO, error);
        let line = plain(&finished_line(&envelope, None, &[], 80));
        assert_eq!(line, "  ✗ tool `t` was not called: rejected by the user\n");
    }

    #[test]
    fn a_refused_call_uses_the_name_for_people() {
        let line = |tool: &str, origin: Origin| {
            let error = CallError::Denied { tool: tool.into(), reason: "no".into() };
            plain(&finished_line(
                &Envelope::from_error(CallId("1".into()), tool, origin, Duration::ZERO, error),
                None,
                &[],
                80,
            ))
        };
        let files = Origin::Server { server: "files".into(), tool: "note".into() };
        assert_eq!(line("mcp_files_note", files), "  ✗ tool `files.note` was not called: no\n");
        // The model made it up.
        assert_eq!(line("mcp_files_raed", Origin::Local), "  ✗ tool `files_raed` was not called: no\n");
        assert_eq!(tool_name("mcp_files_raed", &Origin::Local), "files_raed");
    }
}
