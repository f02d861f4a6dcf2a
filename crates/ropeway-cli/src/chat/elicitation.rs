//! An elicitation: what a server wants to know, asked field by field.

use anstyle::Style;
use ropeway::mcp::{Elicitation, ElicitationAnswer, ElicitationMode};
use serde_json::{Map, Value};

use super::line::{Editor, Typed};
use super::tell;
use crate::help::faint;
use crate::text::{clean, clean_line, width, wrap};

const NAME: Style = Style::new().bold();

/// Asks a person for what a server wants to know.
pub(crate) async fn ask(elicitation: &Elicitation, editor: &Editor) -> ElicitationAnswer {
    let server = clean_line(elicitation.server.as_str());
    tell(&format!("{NAME}{server}{NAME:#} asks:\n{}", wrap(&clean(&elicitation.message), width(), 2)));
    match &elicitation.mode {
        ElicitationMode::Url { url } => {
            tell(&format!("  {}\n{}", clean_line(url), faint("  it is not opened for you\n")));
            agreed(editor, "Have you done so? [y]es / [n]o: ")
                .await
                .map_or_else(|answer| answer, |()| ElicitationAnswer::Accept(Map::new()))
        }
        ElicitationMode::Form { schema } => {
            tell(&faint("  Ctrl-C declines\n"));
            match form(schema, editor).await {
                Ok(values) => ElicitationAnswer::Accept(values),
                Err(answer) => answer,
            }
        }
    }
}

async fn form(schema: &Value, editor: &Editor) -> Result<Map<String, Value>, ElicitationAnswer> {
    let mut values = Map::new();
    for field in fields(schema) {
        if let Some(description) = &field.description {
            tell(&faint(&wrap(&clean(description), width(), 2)));
        }
        let mut typed = editor.question(&field.prompt()).await;
        loop {
            let line = match typed {
                Typed::Line(line) => line,
                Typed::Interrupted { .. } => return Err(ElicitationAnswer::Decline),
                Typed::End => return Err(ElicitationAnswer::Cancel),
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

async fn agreed(editor: &Editor, prompt: &str) -> Result<(), ElicitationAnswer> {
    let mut typed = editor.question(prompt).await;
    loop {
        match typed {
            Typed::Line(line) => match line.trim().to_lowercase().as_str() {
                "y" | "yes" => return Ok(()),
                "n" | "no" => return Err(ElicitationAnswer::Decline),
                _ => {}
            },
            Typed::Interrupted { .. } => return Err(ElicitationAnswer::Decline),
            Typed::End => return Err(ElicitationAnswer::Cancel),
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
}

fn fields(schema: &Value) -> Vec<Field> {
    let required = |name: &str| {
        schema["required"].as_array().is_some_and(|names| names.iter().any(|known| known.as_str() == Some(name)))
    };
    let field = |(name, schema): (&String, &Value)| {
        let text = |key: &str| schema[key].as_str().map(str::to_owned);
        let named = |choice: &Value| choice.get("const").cloned();
        let titled = schema["oneOf"].as_array().map(|all| all.iter().filter_map(named).collect());
        Field {
            name: name.clone(),
            title: text("title").unwrap_or_else(|| name.clone()),
            description: text("description"),
            kind: text("type").unwrap_or_else(|| "string".to_owned()),
            choices: schema["enum"].as_array().cloned().or(titled).unwrap_or_default(),
            default: schema.get("default").cloned(),
            required: required(name),
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
        format!("{}: ", clean_line(&format!("{}{about}", self.title)))
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
            "integer" => line.parse::<i64>().map(Value::from).map_err(|_| "this is a whole number".to_owned()),
            "number" => {
                let number = line.parse::<f64>().ok().and_then(serde_json::Number::from_f64);
                number.map(Value::Number).ok_or_else(|| "this is a number".to_owned())
            }
            "array" => Ok(line.split(',').map(|item| Value::from(item.trim())).collect()),
            _ => Ok(Value::from(line)),
        }?;
        match self.choices.is_empty() || self.choices.contains(&read) {
            true => Ok(Some(read)),
            false => Err("this is not one of them".to_owned()),
        }
    }
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
}
