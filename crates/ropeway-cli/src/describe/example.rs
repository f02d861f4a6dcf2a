//! Example calls: arguments that match a schema, as a command line to paste into a shell.

use ropeway_core::invisible::hides_text;
use serde_json::{Map, Value, json};

use crate::describe::schema::{Members, Resolved, SchemaRoot, alternatives, json_types, keyword, members, property};
use crate::terminal::text::{clean_json, columns};

/// Maximum values in an example.
const MOST_VALUES: usize = 60;
/// Maximum value nesting.
const DEEPEST: usize = 6;
/// Maximum example size in bytes; longer ones are omitted.
const LONGEST: usize = 4000;

/// Returns values for a schema's required arguments, where possible.
pub(crate) fn arguments(schema: &Value) -> Map<String, Value> {
    let maker = ExampleBuilder { root: SchemaRoot::new(schema), left: std::cell::Cell::new(MOST_VALUES) };
    maker.root.following(schema, |resolved| match resolved {
        Resolved::Schema(top) => maker.object(top, DEEPEST, false),
        Resolved::Name(_) => Map::new(),
    })
}

struct ExampleBuilder<'a> {
    root: SchemaRoot<'a>,
    left: std::cell::Cell<usize>,
}

impl<'a> ExampleBuilder<'a> {
    /// Returns an object's required fields; with `fills`, one optional field if none is required.
    fn object(&self, schema: &'a Value, depth: usize, fills: bool) -> Map<String, Value> {
        let mut parts = vec![schema];
        let mark = self.root.depth();
        let first = alternatives(schema).and_then(|all| all.first());
        if let Some(Resolved::Schema(first)) = first.map(|first| self.root.follow(first)) {
            parts.push(first);
        }
        let parts: Vec<Members<'a>> = parts.into_iter().map(|part| members(part, &self.root)).collect();
        let named = |name: &str| parts.iter().flat_map(|part| &part.properties).find(|(known, _)| *known == name);
        let required = |name: &str| parts.iter().any(|part| part.required.contains(name));
        let all = parts.iter().flat_map(|part| part.properties.iter().map(|(name, _)| *name));
        let mut chosen: Vec<&str> = Vec::new();
        for name in all.filter(|name| required(name)) {
            if chosen.len() < MOST_VALUES && !chosen.contains(&name) {
                chosen.push(name);
            }
        }
        // A required field without a schema accepts any value.
        let mut undescribed: Vec<&str> = parts.iter().flat_map(|part| part.required.iter().copied()).collect();
        undescribed.retain(|name| named(name).is_none());
        undescribed.sort_unstable();
        undescribed.dedup();
        chosen.extend(undescribed.into_iter().take(MOST_VALUES));
        if chosen.is_empty() && fills {
            chosen.extend(parts.iter().flat_map(|part| &part.properties).map(|(name, _)| *name).next());
        }
        let mut made = Map::new();
        for name in chosen {
            let value = named(name).map_or_else(|| json!("text"), |(_, field)| self.value(field, depth - 1));
            made.insert(name.to_owned(), value);
        }
        self.root.unwind(mark);
        made
    }

    /// Returns a value that matches a schema.
    fn value(&self, schema: &'a Value, depth: usize) -> Value {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        if depth == 0 || left == 0 {
            return Value::Null;
        }
        self.root.following(schema, |resolved| match resolved {
            Resolved::Schema(target) => self.fitting(schema, target, depth),
            Resolved::Name(_) => Value::Null,
        })
    }

    fn fitting(&self, schema: &'a Value, target: &'a Value, depth: usize) -> Value {
        let given = |word: &str| keyword(schema, target, word);
        let first = |word: &str| given(word).and_then(Value::as_array).and_then(|all| all.first());
        let known = given("const").or(first("enum")).or(first("examples"));
        let default = given("default").filter(|default| !default.is_null() && self.root.has_valid_default(schema));
        if let Some(value) = known.or(default) {
            return value.clone();
        }
        let alternatives = first("anyOf").or(first("oneOf")).or(first("allOf"));
        let kind = match target.get("type") {
            Some(Value::String(kind)) => kind.as_str(),
            Some(Value::Array(kinds)) => {
                kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null").unwrap_or("null")
            }
            _ if target.get("properties").is_some() => "object",
            _ if target.get("items").is_some() || target.get("prefixItems").is_some() => "array",
            _ => match alternatives {
                Some(part) => return self.value(part, depth),
                None => "string",
            },
        };
        match kind {
            "object" => Value::Object(self.object(target, depth, true)),
            "array" => self.array(target, depth),
            "integer" => json!(whole(target)),
            "number" => number(target),
            "boolean" => json!(true),
            "null" => Value::Null,
            _ => json!(text(target)),
        }
    }

    fn array(&self, schema: &'a Value, depth: usize) -> Value {
        if let Some(items) = schema.get("prefixItems").or(schema.get("items")).and_then(Value::as_array) {
            return items.iter().take(MOST_VALUES).map(|item| self.value(item, depth - 1)).collect();
        }
        let least = schema.get("minItems").and_then(Value::as_u64).unwrap_or(1).clamp(1, 5);
        let most = schema.get("maxItems").and_then(Value::as_u64).unwrap_or(u64::MAX);
        let item = |_| schema.get("items").map_or_else(|| json!("text"), |items| self.value(items, depth - 1));
        (0..least.min(most)).map(item).collect()
    }
}

fn limit(schema: &Value, word: &str) -> Option<f64> {
    schema.get(word).and_then(Value::as_f64).filter(|limit| limit.is_finite())
}

/// Returns the smallest matching integer from 1 on, or the largest below.
fn whole(schema: &Value) -> i64 {
    let least =
        limit(schema, "minimum").map(f64::ceil).or(limit(schema, "exclusiveMinimum").map(|least| least.floor() + 1.0));
    let most =
        limit(schema, "maximum").map(f64::floor).or(limit(schema, "exclusiveMaximum").map(|most| most.ceil() - 1.0));
    let step = limit(schema, "multipleOf").filter(|step| *step >= 1.0);
    let number = least.unwrap_or(1.0).min(most.unwrap_or(f64::MAX));
    step.map_or(number, |step| (number / step).ceil() * step) as i64
}

fn number(schema: &Value) -> Value {
    let is_whole = |number: f64| number.fract() == 0.0;
    match (
        limit(schema, "minimum"),
        limit(schema, "maximum"),
        limit(schema, "exclusiveMinimum"),
        limit(schema, "exclusiveMaximum"),
    ) {
        (Some(least), ..) if !is_whole(least) => json!(least),
        (_, Some(most), ..) if !is_whole(most) => json!(most),
        (_, _, Some(above), Some(below)) if below - above <= 1.0 => json!((above + below) / 2.0),
        (None, None, None, Some(below)) if below <= 1.0 => json!(below - 0.5),
        _ => json!(whole(schema)),
    }
}

fn text(schema: &Value) -> String {
    let text = match schema.get("format").and_then(Value::as_str) {
        Some("date") => "2026-01-31",
        Some("time") => "12:00:00Z",
        Some("date-time") => "2026-01-31T12:00:00Z",
        Some("duration") => "PT1H",
        Some("email" | "idn-email") => "ada@example.com",
        Some("uri" | "url" | "iri" | "uri-reference") => "https://example.com",
        Some("hostname") => "example.com",
        Some("ipv4") => "192.0.2.1",
        Some("ipv6") => "2001:db8::1",
        Some("uuid") => "123e4567-e89b-12d3-a456-426614174000",
        _ => "text",
    };
    let least = schema.get("minLength").and_then(Value::as_u64).unwrap_or(0).min(200) as usize;
    let most = schema.get("maxLength").and_then(Value::as_u64).map_or(usize::MAX, |most| most.min(10_000) as usize);
    let length = text.chars().count().max(least).min(most.max(least));
    text.chars().cycle().take(length).collect()
}

/// Returns a call's shell words: the tool, its arguments, and options with their values. `None` if no command line
/// that is safe to show can call the tool.
pub(crate) fn command(tool: &str, schema: &Value, more: &[String]) -> Option<Vec<String>> {
    // A name that starts with `-` would be parsed as an option.
    if tool.starts_with('-') {
        return None;
    }
    let mut words = vec!["ropeway".to_owned(), "call".to_owned(), quoted(tool)?];
    let arguments = arguments(schema);
    let pairs: Option<Vec<String>> = arguments.iter().map(|(name, value)| pair(schema, name, value)).collect();
    match pairs {
        Some(pairs) => words.extend(pairs),
        None => words.push(quoted(&clean_json(&escaped(&Value::Object(arguments))))?),
    }
    // An option and its value stay together.
    for option in more.chunks(2) {
        words.push(option.iter().map(|word| quoted(word)).collect::<Option<Vec<_>>>()?.join(" "));
    }
    (words.iter().map(String::len).sum::<usize>() <= LONGEST).then_some(words)
}

/// Formats an argument as `key=value`, if possible.
fn pair(schema: &Value, name: &str, value: &Value) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let is_word = name.chars().all(is_plain) && name.chars().next().is_some_and(|first| first != '-');
    if !is_word {
        return None;
    }
    let kinds = property(schema, name).map(|property| json_types(property, schema)).unwrap_or_default();
    let is_text = kinds.is_empty() || kinds.iter().any(|kind| kind == "string");
    match value {
        Value::String(text) if is_text => Some(format!("{name}={}", quoted(text)?)),
        value if is_text => Some(format!("{name}:={}", quoted(&clean_json(&escaped(value)))?)),
        value => Some(format!("{name}={}", quoted(&clean_json(&escaped(value)))?)),
    }
}

/// Formats JSON with invisible characters escaped.
fn escaped(value: &Value) -> String {
    let json = value.to_string();
    json.chars().fold(String::with_capacity(json.len()), |mut seen, c| {
        if hides_text(c) && u32::from(c) <= 0xffff {
            seen.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            seen.push(c);
        }
        seen
    })
}

/// Quotes a word for a shell. Returns `None` if it contains invisible characters.
fn quoted(word: &str) -> Option<String> {
    if word.chars().any(hides_text) {
        return None;
    }
    let is_safe =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':' | '=' | '+' | ',' | '@' | '%');
    // Every shell takes single-quoted text literally.
    let is_plain = !word.is_empty() && word.chars().all(is_safe);
    Some(if is_plain { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) })
}

/// Breaks the words into lines that fit a width, joined by backslashes.
pub(crate) fn lines(words: &[String], width: usize, indent: usize) -> String {
    let start = " ".repeat(indent);
    let mut text = start.clone();
    let mut used = indent;
    let mut is_first = true;
    for (at, word) in words.iter().enumerate() {
        // Room for ` \`, unless this is the last word.
        let end = if at + 1 == words.len() { 0 } else { 2 };
        if !is_first && used + 1 + columns(word) + end > width {
            text.push_str(&format!(" \\\n{start}  {word}"));
            used = indent + 2 + columns(word);
        } else {
            let space = if is_first { "" } else { " " };
            text.push_str(&format!("{space}{word}"));
            used += space.len() + columns(word);
        }
        is_first = false;
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_example_has_a_name_that_is_an_option() {
        let url = ["--url".to_owned(), "http://127.0.0.1:1/mcp".to_owned()];
        assert_eq!(command("--bearer=@/etc/hostname", &json!({"type": "object"}), &url), None);
    }

    #[test]
    fn an_example_has_the_required_arguments_and_matches_the_schema() {
        let schema = json!({"type": "object", "required": ["path", "edits", "n", "mode"], "properties": {
            "path": {"type": "string"}, "n": {"type": "integer", "minimum": 5}, "mode": {"enum": ["r", "w"]},
            "edits": {"type": "array", "items": {"$ref": "#/$defs/Edit"}}, "dry": {"type": "boolean"},
        }, "$defs": {"Edit": {"type": "object", "required": ["old", "new"], "properties": {
            "old": {"type": "string", "examples": ["it's"]}, "new": {"type": "string", "format": "date"}}}}});
        let expected = json!({"path": "text", "n": 5, "mode": "r", "edits": [{"old": "it's", "new": "2026-01-31"}]});
        assert_eq!(Value::Object(arguments(&schema)), expected);
        let words = command("files.edit", &schema, &[]).expect("a line");
        let line = words.join(" ");
        let split = shlex::split(&line).expect("words of a shell");
        assert_eq!(split[..5], ["ropeway", "call", "files.edit", "path=text", "n=5"].map(str::to_owned)[..]);
        assert!(split.contains(&r#"edits=[{"old":"it's","new":"2026-01-31"}]"#.to_owned()), "{line}");
    }

    #[test]
    fn values_are_within_their_limits() {
        for (schema, expected) in [
            (json!({"type": "integer", "exclusiveMinimum": 3, "multipleOf": 5}), json!(5)),
            (json!({"type": "integer", "maximum": 0}), json!(0)),
            (json!({"type": "number", "minimum": 0, "maximum": 0.5}), json!(0.5)),
            (json!({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}), json!(0.5)),
            (json!({"type": "string", "minLength": 6}), json!("textte")),
            (json!({"type": "string", "maxLength": 2}), json!("te")),
            (json!({"type": ["null", "boolean"]}), json!(true)),
            (json!({"anyOf": [{"type": "array", "minItems": 2, "items": {"type": "null"}}]}), json!([null, null])),
            (json!({"type": "string", "examples": ["Lisbon"]}), json!("Lisbon")),
        ] {
            let whole = json!({"properties": {"x": schema}, "required": ["x"]});
            assert_eq!(arguments(&whole)["x"], expected, "{schema}");
        }
    }

    #[test]
    fn examples_quote_unusual_names_and_values() {
        let odd =
            json!({"required": ["a=b", "c"], "properties": {"a=b": {"const": "x\u{1b}[2J"}, "c": {"const": "$(rm)"}}});
        let words = command("s.t", &odd, &["--config".into(), "a b.yaml".into()]).expect("a line");
        assert_eq!(
            shlex::split(&words.join(" ")).expect("words"),
            ["ropeway", "call", "s.t", "{\"a=b\":\"x\\u001b[2J\",\"c\":\"$(rm)\"}", "--config", "a b.yaml",]
        );
        assert!(!words.join(" ").contains('\u{1b}'));
        assert_eq!(command("a\u{1b}b", &odd, &[]), None);
        let unseen = json!({"required": ["c"], "properties": {"c": {"const": "\u{202e}x"}}});
        assert_eq!(
            command("t", &unseen, &[]).map(|words| words.join(" ")).as_deref(),
            Some(r#"ropeway call t '{"c":"\u202ex"}'"#)
        );
        let any = json!({"required": ["v"], "properties": {"v": {"type": ["string", "number"], "examples": [3]}}});
        assert_eq!(command("t", &any, &[]).expect("a line")[3], "v:=3");
    }

    #[test]
    fn an_example_of_a_hostile_schema_is_small() {
        let many: Map<String, Value> = (0..10_000).map(|at| (format!("p{at}"), json!({"$ref": "#"}))).collect();
        let names: Vec<String> = many.keys().cloned().collect();
        let schema = json!({"properties": many, "required": names});
        assert!(arguments(&schema).len() <= 2 * MOST_VALUES);
        command("t", &schema, &[]);
        let tree = json!({"required": ["x"], "properties": {"x": {"$ref": "#/$defs/T"}},
            "$defs": {"T": {"type": "object", "required": ["t"], "properties": {"t": {"$ref": "#/$defs/T"}}}}});
        assert_eq!(Value::Object(arguments(&tree)), json!({"x": {"t": null}}));
    }

    #[test]
    fn a_line_that_goes_on_ends_with_a_backslash() {
        let words: Vec<String> = ["ropeway", "call", "a.b", "one=1", "two=2"].map(str::to_owned).into();
        assert_eq!(lines(&words, 80, 2), "  ropeway call a.b one=1 two=2\n");
        assert_eq!(lines(&words, 22, 2), "  ropeway call a.b \\\n    one=1 two=2\n");
        assert_eq!(lines(&words, 10, 2), "  ropeway \\\n    call \\\n    a.b \\\n    one=1 \\\n    two=2\n");
    }
}
