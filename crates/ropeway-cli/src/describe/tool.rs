//! A tool's full description: arguments, result, hints and an example.

use anstyle::{AnsiColor, Style};
use ropeway_core::tool::ToolDefinition;
use serde_json::Value;

use crate::describe::example;
use crate::describe::outline::{Outline, OutlineRow};
use crate::terminal::style::faint;
use crate::terminal::text::{clean, clean_line, columns, cut, wrap};

const NAME: Style = Style::new().bold();
const HEADING: Style = Style::new().bold().underline();
const TYPE: Style = AnsiColor::Cyan.on_default();
const FAINT: Style = Style::new().dimmed();
const PLAIN: Style = Style::new();

/// Maximum width for a tool's name and title, in columns.
const LONGEST_NAME: usize = 300;

/// Maximum tool description length in characters.
const LONGEST_DESCRIPTION: usize = 100_000;

/// Narrower terminals get less indentation.
const NARROW: usize = 60;

/// Describes a tool in full. `name` is the displayed name, and `options` are needed to call it.
pub(crate) fn describe(name: &str, tool: &ToolDefinition, options: &[String], width: usize) -> String {
    let step = if width < NARROW { 2 } else { 4 };
    let shown_name = cut(&clean_line(name), LONGEST_NAME);
    let mut text = format!("{NAME}{shown_name}{NAME:#}\n");
    let title = title(tool).map(|title| cut(&clean_line(title), LONGEST_NAME));
    if let Some(title) = title.filter(|title| !title.is_empty() && *title != shown_name) {
        text.push_str(&wrap(&title, width, step));
    }
    if let Some(description) = tool.description.as_deref().filter(|text| !text.trim().is_empty()) {
        let whole: String = description.chars().take(LONGEST_DESCRIPTION).collect();
        text.push_str(&format!("\n{}", wrap(&clean(&whole), width, step)));
    }
    let arguments = Outline::new(&tool.input_schema);
    text.push_str(&heading("Arguments", "", width));
    match arguments.rows.is_empty() {
        true if arguments.notes.is_empty() => text.push_str(&wrap("none", width, step)),
        _ => text.push_str(&outline(&arguments, width, step)),
    }
    if let Some(schema) = tool.output_schema.as_deref() {
        text.push_str(&heading("Result", "", width));
        text.push_str(&result(schema, width, step));
    }
    let hints = hints(tool);
    if !hints.is_empty() {
        let whose =
            if tool.provenance.trust_hints { "from the server, trusted" } else { "from the server, not verified" };
        text.push_str(&heading("Hints", whose, width));
        hints.iter().for_each(|hint| text.push_str(&wrap(hint, width, step)));
    }
    if let Some(words) = example::command(name, &tool.input_schema, options) {
        text.push_str(&heading("Example", "", width));
        text.push_str(&example::lines(&words, width, step));
    }
    text
}

/// Formats a heading with a remark.
fn heading(words: &str, remark: &str, width: usize) -> String {
    match remark {
        "" => format!("\n{HEADING}{words}{HEADING:#}\n"),
        remark => {
            let mut line = format!("\n{HEADING}{words}{HEADING:#}");
            let remark = [(FAINT, format!("({remark})"))];
            line.push_str(&styled(&remark, width, columns(words), 2));
            line
        }
    }
}

/// Returns a tool's title. Older servers set it in the annotations.
fn title(tool: &ToolDefinition) -> Option<&str> {
    tool.title.as_deref().or_else(|| tool.annotations.0.get("title").and_then(Value::as_str))
}

/// Describes a tool's annotations.
/// <https://modelcontextprotocol.io/specification/2025-11-25/schema#toolannotations>
fn hints(tool: &ToolDefinition) -> Vec<&'static str> {
    let said = |name: &str| tool.annotations.0.get(name).and_then(Value::as_bool);
    let words = |name: &str, yes: &'static str, no: &'static str| said(name).map(|is| if is { yes } else { no });
    // These two apply only to tools that are not read-only.
    let changes = said("readOnlyHint") != Some(true);
    let destructive =
        words("destructiveHint", "destructive: may delete or overwrite", "not destructive: only adds data")
            .filter(|_| changes);
    let idempotent = words(
        "idempotentHint",
        "idempotent: repeating a call has no further effect",
        "not idempotent: repeating a call may have a further effect",
    );
    [
        words("readOnlyHint", "read-only: changes nothing", "not read-only: may change data"),
        destructive,
        idempotent.filter(|_| changes),
        words("openWorldHint", "open world: reaches external systems", "closed world: reaches no external systems"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn result(schema: &Value, width: usize, step: usize) -> String {
    let result = Outline::of_result(schema);
    if result.rows.is_empty() {
        wrap(&clean_line(&crate::describe::types::type_within(schema, 2 * width)), width, step)
    } else {
        outline(&Outline { notes: Vec::new(), ..result }, width, step)
    }
}

fn outline(outline: &Outline, width: usize, step: usize) -> String {
    let mut text: String = outline.rows.iter().map(|row| field(row, width, step)).collect();
    if outline.hidden > 0 {
        let words = format!("… {} more; --json prints the whole schema", outline.hidden);
        text.push_str(&faint(&wrap(&words, width, step)));
    }
    for note in &outline.notes {
        text.push_str(&faint(&wrap(&clean_line(note), width, step)));
    }
    text
}

/// Formats a field: name, type and default, followed by its description.
fn field(row: &OutlineRow, width: usize, step: usize) -> String {
    // Leaves room for text at any depth.
    let indent = (step + row.level * step).min(width / 2);
    let name = clean_line(&row.field.name);
    let name = if name.is_empty() { "\"\"" } else { &name };
    let mut pieces = vec![(NAME, format!("{name}:")), (TYPE, clean_line(&row.field.kind))];
    if row.field.required {
        pieces.push((PLAIN, "(required)".to_owned()));
    }
    if let Some(default) = &row.field.default {
        pieces.push((FAINT, format!("(default {})", clean_line(default))));
    }
    let mut text = " ".repeat(indent);
    text.push_str(&styled(&pieces, width, indent, indent + step));
    if let Some(description) = &row.field.description {
        text.push_str(&wrap(&clean(description), width, indent + step));
    }
    if !row.notes.is_empty() {
        let notes: Vec<String> = row.notes.iter().map(|note| clean_line(note)).collect();
        text.push_str(&faint(&wrap(&notes.join("; "), width, indent + step)));
    }
    text
}

/// Wraps styled text. The first line starts after `used` columns, the others after `hang` spaces.
fn styled(pieces: &[(Style, String)], width: usize, used: usize, hang: usize) -> String {
    let mut text = String::new();
    let (mut used, mut is_first) = (used, used <= hang && pieces.len() > 1);
    for (style, piece) in pieces {
        // This piece's words on the current line, styled together.
        let mut run = String::new();
        for word in piece.split(' ').filter(|word| !word.is_empty()) {
            let (length, space) = (columns(word), usize::from(!is_first));
            let is_begun = !run.is_empty();
            if !is_first && used + space + length > width {
                if is_begun {
                    text.push_str(&format!("{style}{run}{style:#}"));
                }
                text.push_str(&format!("\n{}", " ".repeat(hang)));
                run.clear();
                used = hang;
            } else {
                let target = if is_begun { &mut run } else { &mut text };
                target.push_str(&" ".repeat(space));
                used += space;
            }
            run.push_str(word);
            used += length;
            is_first = false;
        }
        if !run.is_empty() {
            text.push_str(&format!("{style}{run}{style:#}"));
        }
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plain(tool: &ToolDefinition, width: usize) -> String {
        anstream::adapter::strip_str(&describe("s.tool", tool, &[], width)).to_string()
    }

    #[test]
    fn hints_are_shown_as_claims_of_the_server() {
        let mut tool = ToolDefinition::new("tool");
        assert_eq!(plain(&tool, 80), "s.tool\n\nArguments\n    none\n\nExample\n    ropeway call s.tool\n");
        tool.annotations.0 =
            json!({"title": "T", "readOnlyHint": true, "destructiveHint": true, "openWorldHint": "yes"})
                .as_object()
                .expect("a map")
                .clone();
        let text = plain(&tool, 80);
        assert!(text.starts_with("s.tool\n    T\n"), "{text}");
        assert!(text.contains("\nHints (from the server, not verified)\n    read-only: changes nothing\n\n"), "{text}");
    }

    #[test]
    fn pieces_are_wrapped_and_keep_their_styles() {
        let pieces = [(NAME, "one:".to_owned()), (TYPE, "two | three".to_owned()), (PLAIN, "(four)".to_owned())];
        let lines = |width| anstream::adapter::strip_str(&styled(&pieces, width, 2, 4)).to_string();
        assert_eq!(lines(80), "one: two | three (four)\n");
        assert_eq!(lines(12), "one: two |\n    three\n    (four)\n");
    }

    #[test]
    fn a_result_other_than_an_object_is_shown_as_a_type() {
        let tool =
            ToolDefinition::new("tool").with_output_schema(json!({"type": "array", "items": {"type": "string"}}));
        assert!(plain(&tool, 80).contains("\nResult\n    string[]\n"));
    }
}
