//! The tools of the demo server: what they are, and how a call reaches them.

use serde_json::{Map, Value, json};

use super::countdown::{self, Countdown};
use super::{calculate, chart, clock, statistics};
use crate::arguments::suggest;

/// What a tool answers with.
pub(super) enum Answer {
    /// The result.
    Now(Value),
    /// A result that takes its time.
    Slow(Countdown),
}

/// A tool's answer, or the words in which it says what is wrong.
type Outcome = Result<Answer, String>;

/// The definitions, in the order of their names.
pub(super) fn definitions() -> Value {
    let read_only = json!({"readOnlyHint": true, "openWorldHint": false});
    let numbers = |most: usize, description: &str| json!({"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": most, "description": description});
    json!([
        {
            "name": "calculate",
            "title": "Calculator",
            "description": "Works out an arithmetic expression. Knows + - * / % ^, parentheses, the constants pi, tau and e, and functions such as sqrt, abs, round, sin, ln, log, min and max.",
            "inputSchema": {
                "type": "object",
                "properties": {"expression": {"type": "string", "minLength": 1, "maxLength": calculate::LONGEST, "description": "What to work out, such as `2 * (3 + 4)^2` or `sqrt(2)`."}},
                "required": ["expression"],
                "additionalProperties": false
            },
            "annotations": read_only
        },
        {
            "name": "chart",
            "title": "Chart",
            "description": "Draws numbers as a chart and returns it as a PNG picture of 640 by 360 pixels.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "values": numbers(chart::MOST_VALUES, "What to draw, from left to right."),
                    "title": {"type": "string", "maxLength": 200, "description": "What to write above the chart."},
                    "kind": {"type": "string", "enum": ["bar", "line"], "default": "bar", "description": "How to draw it."}
                },
                "required": ["values"],
                "additionalProperties": false
            },
            "annotations": read_only
        },
        {
            "name": "countdown",
            "title": "Countdown",
            "description": "Counts down slowly and reports its progress step by step. Good for trying out progress, timeouts and cancellation.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "seconds": {"type": "number", "minimum": 0, "maximum": countdown::LONGEST_SECONDS, "default": 3, "description": "How long it takes in all."},
                    "steps": {"type": "integer", "minimum": 1, "maximum": countdown::MOST_STEPS, "default": 3, "description": "In how many steps."}
                },
                "additionalProperties": false
            },
            "annotations": read_only
        },
        {
            "name": "fail",
            "title": "Failure",
            "description": "Always fails, with the message that it is given. Good for trying out how failures are shown.",
            "inputSchema": {
                "type": "object",
                "properties": {"message": {"type": "string", "default": "this tool always fails", "description": "What to say."}},
                "additionalProperties": false
            },
            "annotations": read_only
        },
        {
            "name": "statistics",
            "title": "Statistics",
            "description": "Describes a list of numbers: how many there are, their mean, median, smallest, largest and standard deviation.",
            "inputSchema": {
                "type": "object",
                "properties": {"values": numbers(statistics::MOST_VALUES, "The numbers to describe.")},
                "required": ["values"],
                "additionalProperties": false
            },
            "outputSchema": {
                "type": "object",
                "properties": {
                    "count": {"type": "integer", "description": "How many numbers there are."},
                    "mean": {"type": "number"},
                    "median": {"type": "number", "description": "The middle one; between two middle ones, their mean."},
                    "min": {"type": "number"},
                    "max": {"type": "number"},
                    "stddev": {"type": "number", "description": "The standard deviation of the whole population."}
                },
                "required": ["count", "mean", "median", "min", "max", "stddev"],
                "additionalProperties": false
            },
            "annotations": read_only
        },
        {
            "name": "time",
            "title": "Clock",
            "description": "Tells the date and the time, now, in a time zone.",
            "inputSchema": {
                "type": "object",
                "properties": {"zone": {"type": "string", "default": "UTC", "description": "The IANA name of the time zone, such as `Europe/Lisbon`."}},
                "additionalProperties": false
            },
            "annotations": read_only
        }
    ])
}

/// Calls a tool; none when there is no such tool.
pub(super) fn call(name: &str, arguments: &Map<String, Value>) -> Option<Outcome> {
    let definitions = definitions();
    let definition = definitions.as_array()?.iter().find(|definition| definition["name"] == name)?;
    let arguments = match Arguments::check(arguments, &definition["inputSchema"]) {
        Ok(arguments) => arguments,
        Err(reason) => return Some(Err(reason)),
    };
    Some(match name {
        "calculate" => calculate(&arguments),
        "chart" => chart(&arguments),
        "countdown" => countdown(&arguments),
        "fail" => fail(&arguments),
        "statistics" => statistics(&arguments),
        _ => time(&arguments),
    })
}

fn calculate(arguments: &Arguments<'_>) -> Outcome {
    let expression = arguments.text("expression")?.unwrap_or_default();
    let value = calculate::evaluate(expression).map_err(|mistake| mistake.explain(expression))?;
    Ok(Answer::Now(text(&calculate::format(value))))
}

fn chart(arguments: &Arguments<'_>) -> Outcome {
    let values = arguments.numbers("values", chart::MOST_VALUES)?;
    let kind = match arguments.text("kind")? {
        None | Some("bar") => chart::Kind::Bar,
        Some("line") => chart::Kind::Line,
        Some(other) => return Err(format!("`kind` is \"bar\" or \"line\", not \"{other}\"")),
    };
    let chart = chart::Chart { values, title: arguments.text("title")?.unwrap_or_default().to_owned(), kind };
    let picture = ropeway::content::ContentPart::Image(ropeway::content::Blob::new("image/png", &chart.png()?));
    Ok(Answer::Now(json!({"content": [{"type": "text", "text": chart.describe()}, picture]})))
}

fn countdown(arguments: &Arguments<'_>) -> Outcome {
    let seconds = arguments.number("seconds")?.unwrap_or(3.0);
    let steps = arguments.number("steps")?.unwrap_or(3.0);
    Countdown::new(seconds, steps).map(Answer::Slow)
}

fn fail(arguments: &Arguments<'_>) -> Outcome {
    Err(arguments.text("message")?.unwrap_or("this tool always fails").to_owned())
}

fn statistics(arguments: &Arguments<'_>) -> Outcome {
    let summary = statistics::summary(&arguments.numbers("values", statistics::MOST_VALUES)?)?;
    // The same as text, for clients that read only that.
    let mut result = text(&summary.to_string());
    result["structuredContent"] = summary;
    Ok(Answer::Now(result))
}

fn time(arguments: &Arguments<'_>) -> Outcome {
    let now = clock::now(arguments.text("zone")?.unwrap_or("UTC"))?;
    Ok(Answer::Now(text(&now)))
}

/// A result of one text.
pub(super) fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

/// A result that says what went wrong.
pub(super) fn failed(reason: &str) -> Value {
    let mut result = text(reason);
    result["isError"] = json!(true);
    result
}

/// Arguments whose names fit the schema.
struct Arguments<'a>(&'a Map<String, Value>);

impl<'a> Arguments<'a> {
    /// Every name is known, and none that must be there is missing.
    fn check(arguments: &'a Map<String, Value>, schema: &Value) -> Result<Self, String> {
        let known: Vec<&str> =
            schema["properties"].as_object().into_iter().flat_map(Map::keys).map(String::as_str).collect();
        for name in arguments.keys() {
            if !known.contains(&name.as_str()) {
                let question = suggest::did_you_mean(name, known.iter().copied());
                let question = question.unwrap_or_else(|| format!("it takes `{}`", known.join("`, `")));
                return Err(format!("there is no argument `{name}`: {question}"));
            }
        }
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !arguments.contains_key(name) {
                return Err(format!("argument `{name}` is missing"));
            }
        }
        Ok(Self(arguments))
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    fn text(&self, name: &str) -> Result<Option<&'a str>, String> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| format!("argument `{name}` must be a string"))
    }

    fn number(&self, name: &str) -> Result<Option<f64>, String> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.as_f64().map(Some).ok_or_else(|| format!("argument `{name}` must be a number"))
    }

    fn numbers(&self, name: &str, most: usize) -> Result<Vec<f64>, String> {
        let values = self.get(name).and_then(Value::as_array);
        let values = values.ok_or_else(|| format!("argument `{name}` must be a list of numbers"))?;
        if values.is_empty() {
            return Err(format!("argument `{name}` must hold at least one number"));
        }
        if values.len() > most {
            return Err(format!("argument `{name}` holds {} numbers; {most} are the most", values.len()));
        }
        let number = |(at, value): (usize, &Value)| {
            value
                .as_f64()
                .ok_or_else(|| format!("argument `{name}` holds something that is no number, at position {}", at + 1))
        };
        values.iter().enumerate().map(number).collect()
    }
}
