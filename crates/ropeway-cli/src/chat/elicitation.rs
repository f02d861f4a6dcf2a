//! An elicitation: what a server wants to know, asked field by field.

use std::collections::HashSet;

use anstyle::Style;
use ropeway::mcp::{Elicitation, ElicitationAnswer, ElicitationMode};
use serde_json::{Map, Value};
use url::Url;

use super::line::{Editor, Typed};
use super::tell;
use crate::terminal::style::faint;
use crate::terminal::text::{clean, clean_line, cut, escape_invisible, width, wrap};

const NAME: Style = Style::new().bold();

/// How much of a server's text is shown, in bytes; who writes more wants it not to be read.
const LONGEST_TEXT: usize = 8 << 10;

/// How many columns the question for one value takes at most.
const LONGEST_PROMPT: usize = 500;

/// Maximum fields of a form; one that has more is declined.
const MOST_FIELDS: usize = 50;

/// Questions of one server that a person is asked in one turn or call; further ones are answered with `cancel`.
pub(crate) const MAX_QUESTIONS: usize = 30;

/// Why a form is not sent: the answer to the server, or Ctrl-C.
type Unsent = Option<ElicitationAnswer>;

/// Asks a person for what a server wants to know; `None` for Ctrl-C.
pub(crate) async fn ask(elicitation: &Elicitation, editor: &Editor) -> Option<ElicitationAnswer> {
    let server = clean_line(elicitation.server.as_str());
    tell(&format!("{NAME}{server}{NAME:#} asks:\n{}", wrap(&clean(start(&elicitation.message)), width(), 2)));
    match &elicitation.mode {
        ElicitationMode::Url { url } => {
            let host = match web_host(url) {
                Ok(host) => host,
                Err(reason) => {
                    tell(&faint(&format!("  declined: {reason}\n")));
                    return Some(ElicitationAnswer::Decline);
                }
            };
            tell(&format!("\n  {NAME}URL:{NAME:#}  {}\n  {NAME}Host:{NAME:#} {host}\n", escape_invisible(url)));
            agreed(editor, "Open the URL in a browser. Continue? [y]es / [n]o: ")
                .await
                .map_or_else(|unsent| unsent, |()| Some(ElicitationAnswer::Accept(Map::new())))
        }
        ElicitationMode::Form { schema } => {
            tell(&faint("  Ctrl-C declines\n"));
            form(schema, editor).await.map_or_else(|unsent| unsent, |values| Some(ElicitationAnswer::Accept(values)))
        }
    }
}

/// Returns the host of a URL that may be opened in a browser, as a person should read it.
fn web_host(url: &str) -> Result<String, String> {
    if url.len() > LONGEST_TEXT {
        return Err(format!("the URL has {} bytes, more than {LONGEST_TEXT}", url.len()));
    }
    let parsed = Url::parse(url).map_err(|error| format!("the URL is not valid: {error}"))?;
    match (parsed.scheme(), parsed.host_str()) {
        ("http" | "https", Some(host)) if parsed.username().is_empty() && parsed.password().is_none() => {
            Ok(escape_invisible(host))
        }
        ("http" | "https", Some(_)) => Err("the URL has a user name, which can hide its host".to_owned()),
        (scheme, _) => Err(format!("`{}` URLs are not opened, only http and https", clean_line(scheme))),
    }
}

/// The beginning of a text, as much as a person may want to read.
fn start(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST_TEXT)]
}

/// Returns why a form is declined unseen: it has more fields than a person would fill in.
fn too_long(schema: &Value) -> Option<String> {
    let count = schema["properties"].as_object().map_or(0, Map::len);
    (count > MOST_FIELDS).then(|| format!("the form has {count} fields, more than {MOST_FIELDS}"))
}

async fn form(schema: &Value, editor: &Editor) -> Result<Map<String, Value>, Unsent> {
    if let Some(reason) = too_long(schema) {
        tell(&faint(&format!("  declined: {reason}\n")));
        return Err(Some(ElicitationAnswer::Decline));
    }
    let mut values = Map::new();
    for field in fields(schema) {
        if let Some(description) = &field.description {
            tell(&faint(&wrap(&clean(start(description)), width(), 2)));
        }
        let mut typed = editor.question(&field.prompt()).await;
        loop {
            let line = match typed {
                Typed::Line(line) => line,
                Typed::Interrupted { .. } => return Err(None),
                Typed::End => return Err(Some(ElicitationAnswer::Cancel)),
            };
            match field.read(&line) {
                Ok(value) => {
                    values.extend(value.map(|value| (field.name.clone(), value)));
                    break;
                }
                Err(problem) => tell(&faint(&format!("  {problem}\n"))),
            }
            typed = editor.again(&field.prompt()).await;
        }
    }
    agreed(editor, "Send this? [y]es / [n]o: ").await.map(|()| values)
}

async fn agreed(editor: &Editor, prompt: &str) -> Result<(), Unsent> {
    let mut typed = editor.question(prompt).await;
    loop {
        match typed {
            Typed::Line(line) => match line.trim().to_lowercase().as_str() {
                "y" | "yes" => return Ok(()),
                "n" | "no" => return Err(Some(ElicitationAnswer::Decline)),
                _ => {}
            },
            Typed::Interrupted { .. } => return Err(None),
            Typed::End => return Err(Some(ElicitationAnswer::Cancel)),
        }
        typed = editor.again(prompt).await;
    }
}

/// A value that a server wants to have.
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

/// What a schema says of the size and the form of a value.
#[derive(Clone, Debug, Default, PartialEq)]
struct Bounds {
    minimum: Option<f64>,
    maximum: Option<f64>,
    shortest: Option<u64>,
    longest: Option<u64>,
    format: Option<String>,
}

impl Bounds {
    fn of(schema: &Value) -> Self {
        // Of a list, its length is what is bounded.
        let either = |text: &str, list: &str| schema[text].as_u64().or(schema[list].as_u64());
        Self {
            minimum: schema["minimum"].as_f64(),
            maximum: schema["maximum"].as_f64(),
            shortest: either("minLength", "minItems"),
            longest: either("maxLength", "maxItems"),
            format: schema["format"].as_str().map(str::to_owned),
        }
    }

    /// What is wrong with a value, in a sentence.
    fn problem(&self, value: &Value) -> Option<String> {
        let number = value.as_f64();
        if let (Some(number), Some(minimum)) = (number, self.minimum)
            && number < minimum
        {
            return Some(format!("this is at least {minimum}"));
        }
        if let (Some(number), Some(maximum)) = (number, self.maximum)
            && number > maximum
        {
            return Some(format!("this is at most {maximum}"));
        }
        let (size, unit) = match value {
            Value::String(text) => (text.chars().count() as u64, "character"),
            Value::Array(items) => (items.len() as u64, "value"),
            _ => return None,
        };
        let many = |count: u64| if count == 1 { format!("1 {unit}") } else { format!("{count} {unit}s") };
        if let Some(shortest) = self.shortest.filter(|shortest| size < *shortest) {
            return Some(format!("this has at least {}", many(shortest)));
        }
        if let Some(longest) = self.longest.filter(|longest| size > *longest) {
            return Some(format!("this has at most {}", many(longest)));
        }
        let text = value.as_str()?;
        let (is_right, wanted) = match self.format.as_deref()? {
            "email" => (is_email(text), "an address such as `ada@example.com`"),
            "uri" => (url::Url::parse(text).is_ok(), "a URL such as `https://example.com`"),
            "date" => (text.parse::<jiff::civil::Date>().is_ok() && text.len() == 10, "a date such as `2026-01-31`"),
            "date-time" => (text.parse::<jiff::Timestamp>().is_ok(), "a time such as `2026-01-31T12:00:00Z`"),
            _ => return None,
        };
        (!is_right).then(|| format!("this is {wanted}"))
    }
}

/// Is it written as an address of mail is? Whether somebody reads it, nobody knows.
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
        // The choices of a list are those of its items.
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
    fn prompt(&self) -> String {
        let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let kind = match (&self.choices[..], self.kind.as_str()) {
            ([], "boolean") => "yes or no".to_owned(),
            ([], "string") => String::new(),
            ([], kind) => kind.to_owned(),
            (choices, _) => choices.iter().map(plain).collect::<Vec<_>>().join(", "),
        };
        let empty = match (&self.default, self.required) {
            (Some(default), _) => format!("empty: {}", plain(default)),
            (None, false) => "may be empty".to_owned(),
            (None, true) => String::new(),
        };
        let about = [kind, empty].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
        let about = if about.is_empty() { about } else { format!(" ({about})") };
        format!("{}: ", cut(&clean_line(&format!("{}{about}", self.title)), LONGEST_PROMPT))
    }

    /// What is typed, as the server wants to have it; nothing where nothing need be said.
    fn read(&self, line: &str) -> Result<Option<Value>, String> {
        let line = line.trim();
        if line.is_empty() {
            return match (&self.default, self.required) {
                (Some(default), _) => Ok(Some(default.clone())),
                (None, false) => Ok(None),
                (None, true) => Err("this must not be empty".to_owned()),
            };
        }
        let read = match self.kind.as_str() {
            "boolean" => match line.to_lowercase().as_str() {
                "y" | "yes" | "true" => Ok(Value::Bool(true)),
                "n" | "no" | "false" => Ok(Value::Bool(false)),
                _ => Err("this is yes or no".to_owned()),
            },
            "integer" => number(line)
                .filter(|_| !line.contains(['.', 'e', 'E']))
                .ok_or_else(|| "this is a whole number".to_owned()),
            "number" => number(line).ok_or_else(|| "this is a number".to_owned()),
            "array" => Ok(line.split(',').map(|item| Value::from(item.trim())).collect()),
            _ => Ok(Value::from(line)),
        }?;
        let is_choice = |value: &Value| self.choices.is_empty() || self.choices.contains(value);
        let fits = match &read {
            Value::Array(items) => items.iter().all(is_choice),
            value => is_choice(value),
        };
        match (fits, self.bounds.problem(&read)) {
            (false, _) => Err("this is not one of them".to_owned()),
            (true, Some(problem)) => Err(problem),
            (true, None) => Ok(Some(read)),
        }
    }
}

/// A number as it was typed, digit for digit; what only Rust calls a number (`+1`, `.5`) is the nearest that JSON has.
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
    fn only_web_addresses_are_opened_and_their_host_is_shown() {
        assert_eq!(web_host("https://example.com/a?b").as_deref(), Ok("example.com"));
        for (url, reason) in [
            ("javascript:alert(1)", "`javascript` URLs are not opened, only http and https"),
            ("file:///etc/passwd", "`file` URLs are not opened, only http and https"),
            ("https://bank.example@evil.example/", "the URL has a user name, which can hide its host"),
            ("https://", "the URL is not valid: empty host"),
        ] {
            assert_eq!(web_host(url), Err(reason.to_owned()), "{url}");
        }
        assert!(web_host(&format!("https://example.com/{}", "a".repeat(LONGEST_TEXT))).is_err());
    }

    #[test]
    fn a_field_says_what_it_takes() {
        for (schema, required, prompt) in [
            (json!({"type": "string", "title": "Your\u{1b}[2J name"}), true, "Your name: "),
            (json!({"type": "integer", "default": 3}), false, "f (integer; empty: 3): "),
            (json!({"type": "boolean"}), false, "f (yes or no; may be empty): "),
            (json!({"enum": ["a", "b"], "default": "a"}), true, "f (a, b; empty: a): "),
            (json!({"oneOf": [{"const": "x", "title": "X"}]}), true, "f (x): "),
        ] {
            assert_eq!(field(schema, required).prompt(), prompt);
        }
    }

    #[test]
    fn a_form_of_more_than_fifty_fields_is_declined_unseen() {
        let form = |count: usize| -> Value {
            let properties: Map<String, Value> = (0..count).map(|nth| (format!("f{nth}"), json!({}))).collect();
            json!({"type": "object", "properties": properties})
        };
        assert_eq!(too_long(&form(50)), None);
        assert_eq!(too_long(&form(51)).as_deref(), Some("the form has 51 fields, more than 50"));
        assert_eq!(too_long(&json!({"properties": 3})), None);
    }

    #[test]
    fn what_is_typed_becomes_what_the_server_wants() {
        let read = |schema: Value, line: &str| field(schema, true).read(line);
        assert_eq!(read(json!({"type": "integer"}), " 7 "), Ok(Some(json!(7))));
        assert_eq!(read(json!({"type": "number"}), "7.5"), Ok(Some(json!(7.5))));
        assert_eq!(read(json!({"type": "boolean"}), "Yes"), Ok(Some(json!(true))));
        assert_eq!(read(json!({"type": "string"}), "7"), Ok(Some(json!("7"))));
        assert_eq!(read(json!({"type": "string", "default": "d"}), ""), Ok(Some(json!("d"))));
        assert_eq!(read(json!({"enum": ["a"]}), "b"), Err("this is not one of them".to_owned()));
        assert_eq!(read(json!({"type": "integer"}), "x"), Err("this is a whole number".to_owned()));
        assert_eq!(read(json!({"type": "number"}), "nan"), Err("this is a number".to_owned()));
        assert_eq!(read(json!({}), ""), Err("this must not be empty".to_owned()));
        assert_eq!(field(json!({}), false).read(""), Ok(None));
    }

    #[test]
    fn what_does_not_keep_to_the_schema_is_asked_again() {
        let number = json!({"type": "integer", "minimum": 18, "maximum": 99});
        let ratio = json!({"type": "number", "minimum": 0.5});
        let text = json!({"type": "string", "minLength": 2, "maxLength": 3});
        let list = json!({"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1, "maxItems": 1});
        let format = |format: &str| json!({"type": "string", "format": format});
        let cases = [
            (number.clone(), "18", None),
            (number.clone(), "5", Some("this is at least 18")),
            (number, "100", Some("this is at most 99")),
            (ratio, "0.25", Some("this is at least 0.5")),
            (text.clone(), "äöü", None),
            (text.clone(), "a", Some("this has at least 2 characters")),
            (text, "abcd", Some("this has at most 3 characters")),
            (list.clone(), "a", None),
            (list.clone(), "a, c", Some("this is not one of them")),
            (list, "a, b", Some("this has at most 1 value")),
            (format("email"), "ada@example.com", None),
            (format("email"), "ada", Some("this is an address such as `ada@example.com`")),
            (format("uri"), "https://example.com", None),
            (format("uri"), "example", Some("this is a URL such as `https://example.com`")),
            (format("date"), "2026-02-28", None),
            (format("date"), "2026-02-30", Some("this is a date such as `2026-01-31`")),
            (format("date-time"), "2026-02-28T10:00:00+01:00", None),
            (format("date-time"), "tomorrow", Some("this is a time such as `2026-01-31T12:00:00Z`")),
            (format("no-such-format"), "anything", None),
        ];
        for (schema, line, problem) in cases {
            assert_eq!(field(schema.clone(), true).read(line).err().as_deref(), problem, "{schema} {line}");
        }
    }
}
