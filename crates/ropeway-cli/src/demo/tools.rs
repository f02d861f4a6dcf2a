//! The demo server's tools.

use ropeway_core::suggest;
use serde_json::{Map, Value, json};

use super::countdown::{self, Countdown};
use super::message::text_result;
use super::{calculate, chart, clock, statistics};

/// A tool's reply.
pub(super) enum ToolReply {
    Now(Value),
    /// A result that is sent later.
    Slow(Countdown),
}

/// A reply, or an error message for the model.
type ToolResult = Result<ToolReply, String>;

/// Returns the tool definitions, sorted by name.
pub(super) fn definitions() -> Value {
    let read_only = json!({"readOnlyHint": true, "openWorldHint": false});
    let numbers = |most: usize, description: &str| json!({"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": most, "description": description});
    json!([
        {
            "name": "calculate",
            "title": "Calculator",
            "description": "Evaluates an arithmetic expression. Supports + - * / % ^, parentheses, the constants pi, tau and e, and functions such as sqrt, abs, round, sin, ln, log, min and max.",
            "inputSchema": {
                "type": "object",
                "properties": {"expression": {"type": "string", "minLength": 1, "maxLength": calculate::MAX_EXPRESSION, "description": "The expression, such as `2 * (3 + 4)^2` or `sqrt(2)`."}},
                "required": ["expression"],
                "additionalProperties": false
            },
            "annotations": read_only
        },
        {
            "name": "chart",
            "title": "Chart",
            "description": "Draws numbers as a chart and returns a PNG image of 640 by 360 pixels.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "values": numbers(chart::MAX_VALUES, "The values, from left to right."),
                    "title": {"type": "string", "maxLength": 200, "description": "Title above the chart."},
                    "kind": {"type": "string", "enum": ["bar", "line"], "default": "bar", "description": "Chart type."}
                },
                "required": ["values"],
                "additionalProperties": false
            },
            "annotations": read_only
        },
        {
            "name": "countdown",
            "title": "Countdown",
            "description": "Counts down slowly and reports progress. Useful for trying out progress, timeouts and cancellation.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "seconds": {"type": "number", "minimum": 0, "maximum": countdown::MAX_SECONDS, "default": 3, "description": "Total duration."},
                    "steps": {"type": "integer", "minimum": 1, "maximum": countdown::MAX_STEPS, "default": 3, "description": "Number of steps."}
                },
                "additionalProperties": false
            },
            "annotations": read_only
        },
        {
            "name": "fail",
            "title": "Failure",
            "description": "Always fails with the given message. Useful for trying out how failures are shown.",
            "inputSchema": {
                "type": "object",
                "properties": {"message": {"type": "string", "default": "this tool always fails", "description": "Error message."}},
                "additionalProperties": false
            },
            "annotations": read_only
        },
        {
            "name": "statistics",
            "title": "Statistics",
            "description": "Describes a list of numbers: count, mean, median, minimum, maximum and standard deviation.",
            "inputSchema": {
                "type": "object",
                "properties": {"values": numbers(statistics::MAX_VALUES, "The numbers.")},
                "required": ["values"],
                "additionalProperties": false
            },
            "outputSchema": {
                "type": "object",
                "properties": {
                    "count": {"type": "integer", "description": "Number of values."},
                    "mean": {"type": "number"},
                    "median": {"type": "number", "description": "The middle value, or the mean of the two middle values."},
                    "min": {"type": "number"},
                    "max": {"type": "number"},
                    "stddev": {"type": "number", "description": "Population standard deviation."}
                },
                "required": ["count", "mean", "median", "min", "max", "stddev"],
                "additionalProperties": false
            },
            "annotations": read_only
        },
        {
            "name": "time",
            "title": "Clock",
            "description": "Returns the current date and time in a time zone.",
            "inputSchema": {
                "type": "object",
                "properties": {"zone": {"type": "string", "default": "UTC", "description": "IANA time zone name, such as `Europe/Lisbon`."}},
                "additionalProperties": false
            },
            "annotations": read_only
        }
    ])
}

/// Calls a tool. Returns `None` for an unknown tool.
pub(super) fn call(name: &str, arguments: &Map<String, Value>) -> Option<ToolResult> {
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

fn calculate(arguments: &Arguments<'_>) -> ToolResult {
    let expression = arguments.text("expression")?.unwrap_or_default();
    let value = calculate::evaluate(expression).map_err(|error_here| error_here.explain(expression))?;
    Ok(ToolReply::Now(text_result(&calculate::format(value))))
}

fn chart(arguments: &Arguments<'_>) -> ToolResult {
    let values = arguments.numbers("values", chart::MAX_VALUES)?;
    let kind = match arguments.text("kind")? {
        None | Some("bar") => chart::Kind::Bar,
        Some("line") => chart::Kind::Line,
        Some(other) => return Err(format!("`kind` must be \"bar\" or \"line\", not \"{other}\"")),
    };
    let chart = chart::Chart { values, title: arguments.text("title")?.unwrap_or_default().to_owned(), kind };
    let picture =
        ropeway_core::content::ContentPart::Image(ropeway_core::content::Blob::new("image/png", &chart.png()?));
    Ok(ToolReply::Now(json!({"content": [{"type": "text", "text": chart.describe()}, picture]})))
}

fn countdown(arguments: &Arguments<'_>) -> ToolResult {
    let seconds = arguments.number("seconds")?.unwrap_or(3.0);
    let steps = arguments.number("steps")?.unwrap_or(3.0);
    Countdown::new(seconds, steps).map(ToolReply::Slow)
}

fn fail(arguments: &Arguments<'_>) -> ToolResult {
    Err(arguments.text("message")?.unwrap_or("this tool always fails").to_owned())
}

fn statistics(arguments: &Arguments<'_>) -> ToolResult {
    let summary = statistics::summary(&arguments.numbers("values", statistics::MAX_VALUES)?)?;
    // Clients without structured output read the text.
    let mut result = text_result(&summary.to_string());
    result["structuredContent"] = summary;
    Ok(ToolReply::Now(result))
}

fn time(arguments: &Arguments<'_>) -> ToolResult {
    let now = clock::now(arguments.text("zone")?.unwrap_or("UTC"))?;
    Ok(ToolReply::Now(text_result(&now)))
}

/// Arguments whose names match the schema.
struct Arguments<'a>(&'a Map<String, Value>);

impl<'a> Arguments<'a> {
    /// Checks for unknown and missing arguments.
    fn check(arguments: &'a Map<String, Value>, schema: &Value) -> Result<Self, String> {
        let known: Vec<&str> =
            schema["properties"].as_object().into_iter().flat_map(Map::keys).map(String::as_str).collect();
        for name in arguments.keys() {
            if !known.contains(&name.as_str()) {
                let question = suggest::did_you_mean(name, known.iter().copied());
                let question = question.unwrap_or_else(|| format!("expected `{}`", known.join("`, `")));
                return Err(format!("unknown argument `{name}`: {question}"));
            }
        }
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !arguments.contains_key(name) {
                return Err(format!("missing argument `{name}`"));
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
            return Err(format!("argument `{name}` must contain at least one number"));
        }
        if values.len() > most {
            return Err(format!("argument `{name}` contains {} numbers (maximum {most})", values.len()));
        }
        let number = |(at, value): (usize, &Value)| {
            value.as_f64().ok_or_else(|| {
                format!("argument `{name}` contains a value that is not a number at position {}", at + 1)
            })
        };
        values.iter().enumerate().map(number).collect()
    }
}
