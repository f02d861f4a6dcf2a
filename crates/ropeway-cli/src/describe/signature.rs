//! Signatures: tools as code, for people.

use anstyle::{AnsiColor, Style};
use ropeway_core::tool::ToolDefinition;

use crate::describe::types::{Field, fields, type_within};
use crate::terminal::text::{clean, clean_line, columns, wrap};

const NAME: Style = Style::new().bold();
const TYPE: Style = AnsiColor::Cyan.on_default();
const REQUIRED: Style = Style::new();
const FAINT: Style = Style::new().dimmed();

/// Maximum result type width in columns.
const LONGEST_RESULT: usize = 200;

/// Columns for a type in a narrow line.
const SHORT_TYPE: usize = 16;

/// Maximum arguments in a signature.
const MOST_ARGUMENTS: usize = 100;

/// Returns a tool's signature, on one line if it fits into `width`, otherwise with one argument per line.
pub(crate) fn signature(tool: &ToolDefinition, width: usize) -> String {
    signature_as(&tool.name, tool, width)
}

/// Returns the signature on one line after the server's name. To fit, it omits optional arguments' types and
/// defaults first, then nested types, then all types, then optional arguments, and finally all arguments.
pub(crate) fn brief(server: &str, name: &str, tool: &ToolDefinition, width: usize) -> String {
    let (server, name) = (clean_line(server), clean_line(name));
    let all = fields(&tool.input_schema);
    let (required, optional): (Vec<&Field>, Vec<&Field>) = all.iter().partition(|field| field.required);
    let counted =
        |fields: &[&Field], word: &str| (!fields.is_empty()).then(|| Piece::faint(&format!("{} {word}", fields.len())));
    let within = |most: usize| all.iter().map(move |field| argument(field, most)).collect::<Vec<_>>();
    let less = |field: &Field, most: usize| if field.required { argument(field, most) } else { Piece::name(field) };
    let room = width.saturating_sub(columns(&server) + columns(&name) + 3);
    let fits = |way: &Vec<Piece>| way.iter().map(|piece| piece.width + 2).sum::<usize>() <= room + 2;
    let ways: [&dyn Fn() -> Vec<Piece>; 7] = [
        &|| within(usize::MAX),
        &|| all.iter().map(|field| less(field, usize::MAX)).collect(),
        &|| within(SHORT_TYPE),
        &|| all.iter().map(|field| less(field, SHORT_TYPE)).collect(),
        &|| all.iter().map(Piece::name).collect(),
        &|| required.iter().map(|field| Piece::name(field)).chain(counted(&optional, "optional")).collect(),
        &|| counted(&required, "required").into_iter().chain(counted(&optional, "optional")).collect(),
    ];
    // With more arguments than columns, their names cannot fit.
    let skipped = if all.len() > width { ways.len() - 1 } else { 0 };
    let way = ways[skipped..].iter().map(|way| way()).find(fits).unwrap_or_else(ways[ways.len() - 1]);
    let pieces: Vec<&str> = way.iter().map(|piece| piece.styled.as_str()).collect();
    format!("{FAINT}{server}.{FAINT:#}{NAME}{name}{NAME:#}({})", pieces.join(", "))
}

/// Returns a tool's signature under another name.
pub(crate) fn signature_as(name: &str, tool: &ToolDefinition, width: usize) -> String {
    let name = clean_line(name);
    let fields = fields(&tool.input_schema);
    let shown = &fields[..fields.len().min(MOST_ARGUMENTS)];
    let arguments: Vec<Piece> = shown.iter().map(|field| argument(field, usize::MAX)).collect();
    let result = tool.output_schema.as_deref().map(|schema| {
        let full = clean_line(&type_within(schema, LONGEST_RESULT));
        if columns(&full) <= 2 * width { full } else { clean_line(&type_within(schema, 2 * width)) }
    });
    let result_width = result.as_ref().map_or(0, |result| 4 + columns(result));
    let arguments_width: usize = arguments.iter().map(|argument| argument.width + 2).sum();
    let fits = |result_width| columns(&name) + arguments_width + result_width <= width && shown.len() == fields.len();

    let mut code = format!("{NAME}{name}{NAME:#}(");
    if fits(0) || arguments.is_empty() {
        let styled: Vec<&str> = arguments.iter().map(|argument| argument.styled.as_str()).collect();
        code.push_str(&styled.join(", "));
    } else {
        for field in shown {
            code.push_str(&format!("\n{}", argument_line(field, width)));
        }
        if fields.len() > shown.len() {
            code.push_str(&format!("\n    {FAINT}… {} more{FAINT:#}", fields.len() - shown.len()));
        }
        code.push('\n');
    }
    code.push(')');
    if let Some(result) = result {
        let beside = fits(result_width) || (!fits(0) && result_width < width);
        let separator = if beside { " " } else { "\n    " };
        let result = if beside { result } else { wrap(&result, width, 7).trim().to_owned() };
        code.push_str(&format!("{separator}{FAINT}->{FAINT:#} {TYPE}{result}{TYPE:#}"));
    }
    code
}

/// Returns the arguments' descriptions, indented.
pub(crate) fn arguments(tool: &ToolDefinition, width: usize, indent: usize) -> String {
    let described = |field: Field| {
        let (name, description) = (clean_line(&field.name), clean(&field.description?));
        Some(format!("{:indent$}{NAME}{name}{NAME:#}\n{}", "", wrap(&description, width, indent + 4)))
    };
    fields(&tool.input_schema).into_iter().take(MOST_ARGUMENTS).filter_map(described).collect()
}

/// Returns the behaviour hints that the server sets.
pub(crate) fn hints(tool: &ToolDefinition) -> Vec<&'static str> {
    let annotations = &tool.annotations;
    let said = |name| annotations.0.contains_key(name);
    let mut hints = Vec::new();
    if annotations.read_only() {
        hints.push("read-only");
    } else if said("destructiveHint") && annotations.destructive() {
        hints.push("destructive");
    }
    if said("openWorldHint") && annotations.open_world() {
        hints.push("reaches out");
    }
    hints
}

/// A styled argument and its width in columns.
struct Piece {
    styled: String,
    width: usize,
}

impl Piece {
    fn faint(text: &str) -> Self {
        Self { styled: format!("{FAINT}{text}{FAINT:#}"), width: columns(text) }
    }

    /// Formats only an argument's name.
    fn name(field: &Field) -> Self {
        let name = clean_line(&field.name);
        if field.required { Self { width: columns(&name), styled: name } } else { Self::faint(&format!("{name}?")) }
    }
}

/// Formats an argument with the most detailed type that fits.
fn argument(field: &Field, most: usize) -> Piece {
    let name = clean_line(&field.name);
    let kind = clean_line(field.kind_within(most));
    let default = field.default.as_deref().map(clean_line);
    let (style, mark) = if field.required { (REQUIRED, "") } else { (FAINT, "?") };
    let mut styled = format!("{style}{name}{mark}:{style:#} {TYPE}{kind}{TYPE:#}");
    let mut width = columns(&name) + mark.len() + 2 + columns(&kind);
    if let Some(default) = default {
        styled.push_str(&format!(" {FAINT}= {default}{FAINT:#}"));
        width += 3 + columns(&default);
    }
    Piece { styled, width }
}

/// Formats an argument on a separate line. A type that does not fit is shortened, then wrapped.
fn argument_line(field: &Field, width: usize) -> String {
    let around = columns(&clean_line(&field.name)) + 4 + usize::from(!field.required) + 3;
    let default = field.default.as_deref().map_or(0, |default| 3 + columns(&clean_line(default)));
    let piece = argument(field, width.saturating_sub(around + default));
    if piece.width + 5 <= width {
        return format!("    {},", piece.styled);
    }
    let name = clean_line(&field.name);
    let (style, mark) = if field.required { (REQUIRED, "") } else { (FAINT, "?") };
    let default = field.default.as_deref().map(|default| format!(" = {}", clean_line(default))).unwrap_or_default();
    let kind = clean_line(field.kind_within(width.saturating_sub(9)));
    let lines = wrap(&format!("{kind}{default},"), width, 8);
    let lines: Vec<String> = lines.lines().map(|line| format!("        {TYPE}{}{TYPE:#}", line.trim())).collect();
    format!("    {style}{name}{mark}:{style:#}\n{}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plain(tool: &ToolDefinition, width: usize) -> String {
        anstream::adapter::strip_str(&signature(tool, width)).to_string()
    }

    fn chart() -> ToolDefinition {
        ToolDefinition::new("chart").with_input_schema(json!({"type": "object", "required": ["values"], "properties": {
            "values": {"type": "array", "items": {"type": "number"}},
            "title": {"type": "string"},
            "kind": {"enum": ["bar", "line"]},
        }}))
    }

    #[test]
    fn a_tool_reads_like_code() {
        assert_eq!(plain(&chart(), 80), r#"chart(values: number[], title?: string, kind?: "bar" | "line")"#);
        assert_eq!(plain(&ToolDefinition::new("ping"), 80), "ping()");
    }

    #[test]
    fn a_long_signature_takes_a_line_per_argument() {
        assert_eq!(
            plain(&chart(), 40),
            "chart(\n    values: number[],\n    title?: string,\n    kind?: \"bar\" | \"line\",\n)"
        );
    }

    #[test]
    fn a_brief_signature_is_shortened_to_one_line() {
        let plain = |width| anstream::adapter::strip_str(&brief("web", "chart", &chart(), width)).to_string();
        assert_eq!(plain(80), r#"web.chart(values: number[], title?: string, kind?: "bar" | "line")"#);
        assert_eq!(plain(50), "web.chart(values: number[], title?, kind?)");
        assert_eq!(plain(33), "web.chart(values, title?, kind?)");
        assert_eq!(plain(30), "web.chart(values, 2 optional)");
    }

    #[test]
    fn wide_characters_count_as_two_columns() {
        let tool = ToolDefinition::new("日本語").with_input_schema(json!({"properties": {"日本": {"type": "string"}}}));
        assert_eq!(plain(&tool, 24), "日本語(日本?: string)");
        assert_eq!(plain(&tool, 20), "日本語(\n    日本?: string,\n)");
    }

    #[test]
    fn a_result_schema_is_the_result_type() {
        let tool = ToolDefinition::new("count")
            .with_output_schema(json!({"properties": {"count": {"type": "integer"}}, "required": ["count"]}));
        assert_eq!(plain(&tool, 80), "count() -> {count: integer}");
    }

    #[test]
    fn names_from_outside_cannot_move_the_cursor() {
        let tool = ToolDefinition::new("a\u{1b}[2Jb\nc")
            .with_input_schema(json!({"properties": {"x\u{9b}y\n": {"enum": ["\u{9b}31m"]}}}));
        assert_eq!(plain(&tool, 80), r#"ab c(x?: "")"#);
    }

    #[test]
    fn arguments_are_listed_with_their_descriptions() {
        let tool = ToolDefinition::new("read").with_input_schema(json!({"required": ["path"], "properties": {
            "head": {"type": "integer", "description": "How many\u{1b}[2J lines of it are wanted"},
            "odd": {}, "path": {"description": "Where it is"},
        }}));
        let text = anstream::adapter::strip_str(&arguments(&tool, 24, 2)).to_string();
        assert_eq!(text, "  path\n      Where it is\n  head\n      How many lines of\n      it are wanted\n");
    }

    #[test]
    fn only_hints_that_were_given_are_shown() {
        let mut tool = ToolDefinition::new("a");
        assert!(hints(&tool).is_empty());
        tool.annotations.0 = json!({"destructiveHint": true, "openWorldHint": true}).as_object().expect("map").clone();
        assert_eq!(hints(&tool), ["destructive", "reaches out"]);
        tool.annotations.0 = json!({"readOnlyHint": true, "openWorldHint": false}).as_object().expect("map").clone();
        assert_eq!(hints(&tool), ["read-only"]);
    }
}
