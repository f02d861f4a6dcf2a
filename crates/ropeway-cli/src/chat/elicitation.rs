//! Elicitation: a server requests input, and the user answers field by field.
//!
//! See <https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation>.

use std::collections::HashSet;

use anstyle::Style;
use ropeway_mcp::{Elicitation, ElicitationAnswer, ElicitationMode};
use serde_json::{Map, Value};
use tokio::sync::oneshot;
use url::Url;

use super::line_editor::{LineEditor, LineInput};
use super::terminal::print_to_user;
use crate::terminal::style::faint;
use crate::terminal::text::{clean, clean_line, columns, cut, escape_invisible, width, wrap};

const NAME: Style = Style::new().bold();

/// Maximum bytes of a server's text that are shown.
const MAX_TEXT: usize = 8 << 10;

/// Maximum width of a description within the prompt, in columns.
const SHORT_DESCRIPTION: usize = 60;

/// Maximum width of a field's prompt, in columns.
const MAX_PROMPT: usize = 500;

/// Maximum fields per form; longer forms are declined.
const MAX_FIELDS: usize = 50;

/// Maximum requests per server during a turn or call; further ones are cancelled.
pub(crate) const MAX_QUESTIONS: usize = 30;

/// The answer to the server if a form is not submitted; `None` for Ctrl-C.
type NoSubmission = Option<ElicitationAnswer>;

/// Asks the user for the input that a server requests, and sends the answer. Returns `false` for Ctrl-C.
///
/// If the server withdraws its request, the prompt is closed with a message.
pub(crate) async fn answer(
    elicitation: &Elicitation,
    editor: &LineEditor,
    mut answer: oneshot::Sender<ElicitationAnswer>,
) -> bool {
    let given = tokio::select! {
        given = ask(elicitation, editor) => given,
        () = answer.closed() => {
            editor.close_prompt().await;
            let server = clean_line(elicitation.server.as_str());
            print_to_user(&faint(&format!("  {server} withdrew the question\n")));
            return true;
        }
    };
    let is_given = given.is_some();
    // The server may be gone.
    let _ = answer.send(given.unwrap_or(ElicitationAnswer::Decline));
    is_given
}

/// Asks the user for the requested input. Returns `None` for Ctrl-C.
async fn ask(elicitation: &Elicitation, editor: &LineEditor) -> Option<ElicitationAnswer> {
    let server = clean_line(elicitation.server.as_str());
    print_to_user(&format!(
        "{NAME}{server}{NAME:#} asks:\n{}",
        wrap(&clean(shortened(&elicitation.message)), width(), 2)
    ));
    match &elicitation.mode {
        ElicitationMode::Url { url } => {
            let host = match web_host(url) {
                Ok(host) => host,
                Err(reason) => {
                    print_to_user(&faint(&format!("  declined: {reason}\n")));
                    return Some(ElicitationAnswer::Decline);
                }
            };
            print_to_user(&format!(
                "\n  {NAME}URL:{NAME:#}  {}\n  {NAME}Host:{NAME:#} {host}\n",
                escape_invisible(url)
            ));
            confirm(editor, "Open the URL in a browser, then continue? [y]es / [n]o: ")
                .await
                .map_or_else(|no_submission| no_submission, |()| Some(ElicitationAnswer::Accept(Map::new())))
        }
        ElicitationMode::Form { schema } => {
            print_to_user(&faint("  press Ctrl-C to decline\n"));
            form(schema, editor)
                .await
                .map_or_else(|no_submission| no_submission, |values| Some(ElicitationAnswer::Accept(values)))
        }
    }
}

/// Returns a URL's host if the URL is safe to open in a browser, or why it is not.
fn web_host(url: &str) -> Result<String, String> {
    if url.len() > MAX_TEXT {
        return Err(format!("the URL has {} bytes (maximum {MAX_TEXT})", url.len()));
    }
    let parsed = Url::parse(url).map_err(|error| format!("invalid URL: {error}"))?;
    match (parsed.scheme(), parsed.host_str()) {
        ("http" | "https", Some(host)) if parsed.username().is_empty() && parsed.password().is_none() => {
            Ok(escape_invisible(host))
        }
        ("http" | "https", Some(_)) => Err("the URL contains a user name, which can disguise its host".to_owned()),
        (scheme, _) => Err(format!("unsupported URL scheme `{}`: only http and https are opened", clean_line(scheme))),
    }
}

/// Returns at most the first [`MAX_TEXT`] bytes.
fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT)]
}

/// Returns why a form is declined without being shown.
fn too_many_fields(schema: &Value) -> Option<String> {
    let count = schema["properties"].as_object().map_or(0, Map::len);
    (count > MAX_FIELDS).then(|| format!("the form has {count} fields (maximum {MAX_FIELDS})"))
}

async fn form(schema: &Value, editor: &LineEditor) -> Result<Map<String, Value>, NoSubmission> {
    if let Some(reason) = too_many_fields(schema) {
        print_to_user(&faint(&format!("  declined: {reason}\n")));
        return Err(Some(ElicitationAnswer::Decline));
    }
    let mut values = Map::new();
    for field in fields(schema) {
        if let Some(description) = field.long_description() {
            let title = cut(&clean_line(&field.title), MAX_PROMPT);
            print_to_user(&format!("{NAME}{title}{NAME:#}\n"));
            print_to_user(&faint(&wrap(&clean(shortened(description)), width(), 2)));
        }
        let mut typed = editor.question(&field.prompt()).await;
        loop {
            let line = match typed {
                LineInput::Line(line) => line,
                LineInput::Interrupted { .. } => return Err(None),
                LineInput::End => return Err(Some(ElicitationAnswer::Cancel)),
            };
            match field.read(&line) {
                Ok(value) => {
                    values.extend(value.map(|value| (field.name.clone(), value)));
                    break;
                }
                Err(problem) => print_to_user(&faint(&format!("  {problem}\n"))),
            }
            typed = editor.again(&field.prompt()).await;
        }
    }
    confirm(editor, "Submit? [y]es / [n]o: ").await.map(|()| values)
}

async fn confirm(editor: &LineEditor, prompt: &str) -> Result<(), NoSubmission> {
    let mut typed = editor.question(prompt).await;
    loop {
        match typed {
            LineInput::Line(line) => match line.trim().to_lowercase().as_str() {
                "y" | "yes" => return Ok(()),
                "n" | "no" => return Err(Some(ElicitationAnswer::Decline)),
                _ => {}
            },
            LineInput::Interrupted { .. } => return Err(None),
            LineInput::End => return Err(Some(ElicitationAnswer::Cancel)),
        }
        typed = editor.again(prompt).await;
    }
}

/// A form field.
#[derive(Clone, Debug, PartialEq)]
struct Field {
    name: String,
    title: String,
    description: Option<String>,
    kind: String,
    choices: Vec<Value>,
    default: Option<Value>,
    required: bool,
    bounds: Bounds,
}

/// The bounds and the format that a schema sets for a value.
#[derive(Clone, Debug, Default, PartialEq)]
struct Bounds {
    minimum: Option<f64>,
    maximum: Option<f64>,
    min_length: Option<u64>,
    max_length: Option<u64>,
    format: Option<String>,
}

impl Bounds {
    fn of(schema: &Value) -> Self {
        // A list is bounded by its length.
        let either = |text: &str, list: &str| schema[text].as_u64().or(schema[list].as_u64());
        Self {
            minimum: schema["minimum"].as_f64(),
            maximum: schema["maximum"].as_f64(),
            min_length: either("minLength", "minItems"),
            max_length: either("maxLength", "maxItems"),
            format: schema["format"].as_str().map(str::to_owned),
        }
    }

    /// Returns why a value is invalid.
    fn problem(&self, value: &Value) -> Option<String> {
        let number = value.as_f64();
        if let (Some(number), Some(minimum)) = (number, self.minimum)
            && number < minimum
        {
            return Some(format!("must be at least {minimum}"));
        }
        if let (Some(number), Some(maximum)) = (number, self.maximum)
            && number > maximum
        {
            return Some(format!("must be at most {maximum}"));
        }
        let (size, unit) = match value {
            Value::String(text) => (text.chars().count() as u64, "character"),
            Value::Array(items) => (items.len() as u64, "value"),
            _ => return None,
        };
        let many = |count: u64| if count == 1 { format!("1 {unit}") } else { format!("{count} {unit}s") };
        if let Some(min_length) = self.min_length.filter(|min_length| size < *min_length) {
            return Some(format!("must have at least {}", many(min_length)));
        }
        if let Some(max_length) = self.max_length.filter(|max_length| size > *max_length) {
            return Some(format!("must have at most {}", many(max_length)));
        }
        let text = value.as_str()?;
        let (is_right, wanted) = match self.format.as_deref()? {
            "email" => (is_email(text), "an email address such as `ada@example.com`"),
            "uri" => (url::Url::parse(text).is_ok(), "a URL such as `https://example.com`"),
            "date" => (text.parse::<jiff::civil::Date>().is_ok() && text.len() == 10, "a date such as `2026-01-31`"),
            "date-time" => (text.parse::<jiff::Timestamp>().is_ok(), "a date and time such as `2026-01-31T12:00:00Z`"),
            _ => return None,
        };
        (!is_right).then(|| format!("must be {wanted}"))
    }
}

/// Returns `true` if the text looks like an email address.
fn is_email(text: &str) -> bool {
    let parts = text.rsplit_once('@');
    !text.contains(char::is_whitespace) && parts.is_some_and(|(user, host)| !user.is_empty() && !host.is_empty())
}

fn fields(schema: &Value) -> Vec<Field> {
    let required: HashSet<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let field = |(name, schema): (&String, &Value)| {
        let text = |key: &str| schema[key].as_str().map(str::to_owned);
        let named = |choice: &Value| choice.get("const").cloned();
        let titled = |schema: &Value| {
            let all = schema["oneOf"].as_array().or(schema["anyOf"].as_array())?;
            Some(all.iter().filter_map(named).collect::<Vec<Value>>())
        };
        // A list declares its choices on its items.
        let choices = |schema: &Value| schema["enum"].as_array().cloned().or_else(|| titled(schema));
        Field {
            name: name.clone(),
            title: text("title").unwrap_or_else(|| name.clone()),
            description: text("description"),
            kind: text("type").unwrap_or_else(|| "string".to_owned()),
            choices: choices(schema).or_else(|| choices(schema.get("items")?)).unwrap_or_default(),
            default: schema.get("default").cloned(),
            required: required.contains(name.as_str()),
            bounds: Bounds::of(schema),
        }
    };
    schema["properties"].as_object().into_iter().flatten().map(field).collect()
}

impl Field {
    /// Returns a description that does not fit into the prompt.
    fn long_description(&self) -> Option<&str> {
        let is_long =
            |text: &&str| text.trim().contains('\n') || columns(&clean_line(shortened(text))) > SHORT_DESCRIPTION;
        self.description.as_deref().filter(is_long)
    }

    fn prompt(&self) -> String {
        let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let kind = match (&self.choices[..], self.kind.as_str()) {
            ([], "boolean") => "yes or no".to_owned(),
            ([], "string") => String::new(),
            ([], kind) => kind.to_owned(),
            (choices, _) => choices.iter().map(plain).collect::<Vec<_>>().join(", "),
        };
        let empty = match (&self.default, self.required) {
            (Some(default), _) => format!("default: {}", plain(default)),
            (None, false) => "optional".to_owned(),
            (None, true) => String::new(),
        };
        let short = self.description.clone().filter(|_| self.long_description().is_none());
        // A description that only repeats the title says nothing.
        let short = short.map(|text| text.trim().to_owned()).filter(|text| *text != self.title).unwrap_or_default();
        let about = [short, kind, empty].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
        let about = if about.is_empty() { about } else { format!(" ({about})") };
        format!("{}: ", cut(&clean_line(&format!("{}{about}", self.title)), MAX_PROMPT))
    }

    /// Parses a typed line. Returns `None` for an optional field that is left empty.
    fn read(&self, line: &str) -> Result<Option<Value>, String> {
        let line = line.trim();
        if line.is_empty() {
            return match (&self.default, self.required) {
                (Some(default), _) => Ok(Some(default.clone())),
                (None, false) => Ok(None),
                (None, true) => Err("a value is required".to_owned()),
            };
        }
        let read = match self.kind.as_str() {
            "boolean" => match line.to_lowercase().as_str() {
                "y" | "yes" | "true" => Ok(Value::Bool(true)),
                "n" | "no" | "false" => Ok(Value::Bool(false)),
                _ => Err("must be yes or no".to_owned()),
            },
            "integer" => number(line)
                .filter(|_| !line.contains(['.', 'e', 'E']))
                .ok_or_else(|| "must be a whole number".to_owned()),
            "number" => number(line).ok_or_else(|| "must be a number".to_owned()),
            "array" => Ok(line.split(',').map(|item| Value::from(item.trim())).collect()),
            _ => Ok(Value::from(line)),
        }?;
        let is_choice = |value: &Value| self.choices.is_empty() || self.choices.contains(value);
        let fits = match &read {
            Value::Array(items) => items.iter().all(is_choice),
            value => is_choice(value),
        };
        match (fits, self.bounds.problem(&read)) {
            (false, _) => Err("must be one of the listed values".to_owned()),
            (true, Some(problem)) => Err(problem),
            (true, None) => Ok(Some(read)),
        }
    }
}

/// Parses a number and keeps its digits; `+1` and `.5`, which are not JSON, become the nearest JSON number.
fn number(line: &str) -> Option<Value> {
    let exact = serde_json::from_str(line).ok().map(Value::Number);
    let whole = || line.parse::<i64>().ok().map(Value::from);
    let nearest = || line.parse::<f64>().ok().and_then(serde_json::Number::from_f64).map(Value::Number);
    exact.or_else(whole).or_else(nearest)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn field(schema: Value, required: bool) -> Field {
        let required = if required { json!(["f"]) } else { json!([]) };
        fields(&json!({"properties": {"f": schema}, "required": required})).remove(0)
    }

    #[test]
    fn only_http_urls_are_opened_and_their_host_is_shown() {
        assert_eq!(web_host("https://example.com/a?b").as_deref(), Ok("example.com"));
        for (url, reason) in [
            ("javascript:alert(1)", "unsupported URL scheme `javascript`: only http and https are opened"),
            ("file:///etc/passwd", "unsupported URL scheme `file`: only http and https are opened"),
            ("https://bank.example@evil.example/", "the URL contains a user name, which can disguise its host"),
            ("https://", "invalid URL: empty host"),
        ] {
            assert_eq!(web_host(url), Err(reason.to_owned()), "{url}");
        }
        assert!(web_host(&format!("https://example.com/{}", "a".repeat(MAX_TEXT))).is_err());
    }

    #[test]
    fn the_prompt_of_a_field_describes_its_values() {
        for (schema, required, prompt) in [
            (json!({"type": "string", "title": "Your\u{1b}[2J name"}), true, "Your name: "),
            (json!({"type": "integer", "default": 3}), false, "f (integer; default: 3): "),
            (json!({"type": "boolean"}), false, "f (yes or no; optional): "),
            (json!({"enum": ["a", "b"], "default": "a"}), true, "f (a, b; default: a): "),
            (json!({"oneOf": [{"const": "x", "title": "X"}]}), true, "f (x): "),
            (json!({"title": "Name", "description": "Your full name"}), true, "Name (Your full name): "),
            (json!({"title": "Name", "description": "Name"}), true, "Name: "),
            (json!({"title": "Name", "description": "long ".repeat(20)}), true, "Name: "),
        ] {
            assert_eq!(field(schema, required).prompt(), prompt);
        }
    }

    #[test]
    fn a_form_with_more_than_fifty_fields_is_declined() {
        let form = |count: usize| -> Value {
            let properties: Map<String, Value> = (0..count).map(|nth| (format!("f{nth}"), json!({}))).collect();
            json!({"type": "object", "properties": properties})
        };
        assert_eq!(too_many_fields(&form(50)), None);
        assert_eq!(too_many_fields(&form(51)).as_deref(), Some("the form has 51 fields (maximum 50)"));
        assert_eq!(too_many_fields(&json!({"properties": 3})), None);
    }

    #[test]
    fn typed_text_becomes_a_value_of_the_schema_type() {
        let read = |schema: Value, line: &str| field(schema, true).read(line);
        assert_eq!(read(json!({"type": "integer"}), " 7 "), Ok(Some(json!(7))));
        assert_eq!(read(json!({"type": "number"}), "7.5"), Ok(Some(json!(7.5))));
        assert_eq!(read(json!({"type": "boolean"}), "Yes"), Ok(Some(json!(true))));
        assert_eq!(read(json!({"type": "string"}), "7"), Ok(Some(json!("7"))));
        assert_eq!(read(json!({"type": "string", "default": "d"}), ""), Ok(Some(json!("d"))));
        assert_eq!(read(json!({"enum": ["a"]}), "b"), Err("must be one of the listed values".to_owned()));
        assert_eq!(read(json!({"type": "integer"}), "x"), Err("must be a whole number".to_owned()));
        assert_eq!(read(json!({"type": "number"}), "nan"), Err("must be a number".to_owned()));
        assert_eq!(read(json!({}), ""), Err("a value is required".to_owned()));
        assert_eq!(field(json!({}), false).read(""), Ok(None));
    }

    #[test]
    fn values_that_violate_the_schema_are_rejected() {
        let number = json!({"type": "integer", "minimum": 18, "maximum": 99});
        let ratio = json!({"type": "number", "minimum": 0.5});
        let text = json!({"type": "string", "minLength": 2, "maxLength": 3});
        let list = json!({"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1, "maxItems": 1});
        let format = |format: &str| json!({"type": "string", "format": format});
        let cases = [
            (number.clone(), "18", None),
            (number.clone(), "5", Some("must be at least 18")),
            (number, "100", Some("must be at most 99")),
            (ratio, "0.25", Some("must be at least 0.5")),
            (text.clone(), "äöü", None),
            (text.clone(), "a", Some("must have at least 2 characters")),
            (text, "abcd", Some("must have at most 3 characters")),
            (list.clone(), "a", None),
            (list.clone(), "a, c", Some("must be one of the listed values")),
            (list, "a, b", Some("must have at most 1 value")),
            (format("email"), "ada@example.com", None),
            (format("email"), "ada", Some("must be an email address such as `ada@example.com`")),
            (format("uri"), "https://example.com", None),
            (format("uri"), "example", Some("must be a URL such as `https://example.com`")),
            (format("date"), "2026-02-28", None),
            (format("date"), "2026-02-30", Some("must be a date such as `2026-01-31`")),
            (format("date-time"), "2026-02-28T10:00:00+01:00", None),
            (format("date-time"), "tomorrow", Some("must be a date and time such as `2026-01-31T12:00:00Z`")),
            (format("no-such-format"), "anything", None),
        ];
        for (schema, line, problem) in cases {
            assert_eq!(field(schema.clone(), true).read(line).err().as_deref(), problem, "{schema} {line}");
        }
    }
}
