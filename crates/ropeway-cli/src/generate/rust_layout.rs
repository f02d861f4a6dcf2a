//! Line breaks in Rust code, as `rustfmt` sets them by default.
//!
//! Covers only the usual cases: other rules apply to very long names, and projects have their own rules. Modules are therefore
//! excluded from formatting, by an attribute in `rust_client.template`.

/// Maximum line width in columns. All code is ASCII.
const MAX_WIDTH: usize = 100;
/// Maximum width in columns for a call chain, and for call arguments, in one line (`chain_width`, `fn_call_width`).
const MAX_CALL: usize = 60;
/// Maximum width in columns for several attribute arguments in one line (`attr_fn_like_width`).
const MAX_ATTRIBUTE: usize = 70;
/// Columns per level.
const TAB: usize = 4;

/// Returns an attribute for `serde`.
pub(super) fn serde_attribute(arguments: &[String], indent: usize) -> String {
    let line = arguments.join(", ");
    let is_narrow = indent + "#[serde()]".len() + line.len() < MAX_WIDTH;
    if is_narrow && (arguments.len() == 1 || line.len() <= MAX_ATTRIBUTE) {
        return format!("{:indent$}#[serde({line})]\n", "");
    }
    let inner = indent + TAB;
    let lines: Vec<String> = arguments.iter().map(|argument| format!("{:inner$}{argument}", "")).collect();
    format!("{0:indent$}#[serde(\n{1}\n{0:indent$})]\n", "", lines.join(",\n"))
}

/// Returns the beginning for a struct with fields or an enum with variants.
pub(super) fn block_start(head: &str) -> String {
    let brace = if head.len() + " {".len() <= MAX_WIDTH { " {" } else { "\n{" };
    format!("{head}{brace}\n")
}

/// Returns a field or an alias: `head` ends before the type, as in `pub name:`, and `end` is one character.
pub(super) fn typed(head: &str, kind: &str, end: &str, indent: usize) -> String {
    let column = indent + head.len() + " ".len();
    let inner = indent + TAB;
    if column + kind.len() < MAX_WIDTH {
        format!("{:indent$}{head} {kind}{end}\n", "")
    } else if inner + kind.len() < MAX_WIDTH || parts(kind).is_none() {
        format!("{0:indent$}{head}\n{0:inner$}{kind}{end}\n", "")
    } else {
        format!("{:indent$}{head} {}{end}\n", "", wrapped(kind, indent, column))
    }
}

/// Returns a type that begins in a column, and that a comma or semicolon follows.
fn wrapped(kind: &str, indent: usize, column: usize) -> String {
    if column + kind.len() < MAX_WIDTH {
        return kind.to_owned();
    }
    let Some(TypeParts { open, parts, close }) = parts(kind) else { return kind.to_owned() };
    let inner = indent + TAB;
    let lines: String = parts.iter().map(|part| format!("{:inner$}{},\n", "", wrapped(part, inner, inner))).collect();
    format!("{open}\n{lines}{:indent$}{close}", "")
}

/// A generic type or tuple.
struct TypeParts<'a> {
    /// The text before the parts, such as `Vec<`.
    open: &'a str,
    parts: Vec<&'a str>,
    close: &'a str,
}

/// Returns a type's parts, or `None` if it has none.
fn parts(kind: &str) -> Option<TypeParts<'_>> {
    let start = kind.find(['<', '('])? + 1;
    let (inner, close) = kind[start..].split_at_checked(kind.len().checked_sub(start + 1)?)?;
    let mut parts = Vec::new();
    let mut depth = 0_usize;
    let mut from = 0;
    for (at, c) in inner.char_indices() {
        match c {
            '<' | '(' => depth += 1,
            '>' | ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(inner[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(inner[from..].trim());
    parts.retain(|part| !part.is_empty());
    (!parts.is_empty()).then(|| TypeParts { open: &kind[..start], parts, close })
}

/// Returns a client method's first lines.
pub(super) fn method_start(name: &str, parameters: &[String], result: &str) -> String {
    let line = format!("    pub async fn {name}({}) -> {result} {{", parameters.join(", "));
    if line.len() <= MAX_WIDTH {
        return line + "\n";
    }
    let lines: String = parameters.iter().map(|parameter| format!("        {parameter},\n")).collect();
    format!("    pub async fn {name}(\n{lines}    ) -> {result} {{\n")
}

/// Returns the expression that calls a tool, whose name is a literal. It has several lines if it is long.
pub(super) fn tool_call(name: &str, arguments: &str, indent: usize) -> String {
    let line = format!("self.bridge.call({name}, {arguments}).await");
    if line.len() <= MAX_CALL {
        return line;
    }
    let inner = indent + TAB;
    let deeper = inner + TAB;
    let mut words = format!("{name}, {arguments}");
    if words.len() > MAX_CALL {
        words = format!("\n{0:deeper$}{name},\n{0:deeper$}{arguments},\n{0:inner$}", "");
    }
    format!("self.bridge\n{0:inner$}.call({words})\n{0:inner$}.await", "")
}
