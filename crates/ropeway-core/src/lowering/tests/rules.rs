//! The rules of the providers, from their documentation and error messages, independent of the code under test.

use serde_json::{Map, Value};

use crate::message::Dialect;

/// The set of rules that applies to a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rulebook {
    Anthropic,
    AnthropicStrict,
    OpenAi,
    OpenAiStrict,
    Gemini,
}

/// Returns the rules that the declaration of a tool violates.
pub fn broken(dialect: Dialect, tool: &Value) -> Vec<String> {
    let mut broken = Vec::new();
    let (function, key) = match dialect {
        Dialect::Anthropic => (tool, "input_schema"),
        Dialect::Gemini => (tool, "parametersJsonSchema"),
        Dialect::Responses => (tool, "parameters"),
        Dialect::Chat => (&tool["function"], "parameters"),
    };
    if matches!(dialect, Dialect::Responses | Dialect::Chat) && tool["type"] != "function" {
        broken.push("a tool is of type function".to_owned());
    }
    if dialect == Dialect::Responses && !tool["strict"].is_boolean() {
        broken.push("strict is true unless it is said".to_owned());
    }
    let strict = function["strict"] == true;
    let book = match (dialect, strict) {
        (Dialect::Anthropic, false) => Rulebook::Anthropic,
        (Dialect::Anthropic, true) => Rulebook::AnthropicStrict,
        (Dialect::Responses | Dialect::Chat, false) => Rulebook::OpenAi,
        (Dialect::Responses | Dialect::Chat, true) => Rulebook::OpenAiStrict,
        (Dialect::Gemini, _) => Rulebook::Gemini,
    };
    let name = function["name"].as_str().unwrap_or_default();
    if !is_tool_name(dialect, name) {
        broken.push(format!("`{name}` is not a name"));
    }
    if function.get("description").is_some_and(|description| !description.is_string()) {
        broken.push("the description is not text".to_owned());
    }
    let schema = &function[key];
    if !jsonschema::draft202012::meta::is_valid(schema) {
        broken.push("it is not JSON Schema 2020-12".to_owned());
    }
    if schema["type"] != "object" || !schema["properties"].is_object() {
        broken.push("the root is not an object with properties".to_owned());
    }
    for keyword in ["anyOf", "oneOf", "allOf", "not", "enum", "const", "if", "then", "else"] {
        if schema.get(keyword).is_some() {
            broken.push(format!("{keyword} at the root"));
        }
    }
    let mut checker = RuleChecker { book, broken, properties: 0, enum_values: 0 };
    checker.schema(schema, "", 0);
    if book == Rulebook::OpenAiStrict && (checker.properties > 5_000 || checker.enum_values > 1_000) {
        checker.broken.push("too much for strict".to_owned());
    }
    checker.broken
}

fn is_tool_name(dialect: Dialect, name: &str) -> bool {
    let most = if matches!(dialect, Dialect::Responses | Dialect::Chat) { 64 } else { 128 };
    let first = name.chars().next().unwrap_or(' ');
    (1..=most).contains(&name.len())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-".contains(c) || (dialect == Dialect::Gemini && ".:".contains(c)))
        && (dialect != Dialect::Gemini || first.is_ascii_alphabetic() || first == '_')
}

struct RuleChecker {
    book: Rulebook,
    broken: Vec<String>,
    properties: usize,
    enum_values: usize,
}

/// From Google's documentation.
const GEMINI: [&str; 16] = [
    "type",
    "format",
    "description",
    "enum",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "anyOf",
    "properties",
    "additionalProperties",
    "required",
    "title",
    "propertyOrdering",
];

/// From OpenAI's documentation.
const OPENAI_STRICT: [&str; 19] = [
    "type",
    "format",
    "description",
    "enum",
    "const",
    "items",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "pattern",
    "minLength",
    "maxLength",
    "anyOf",
    "properties",
    "additionalProperties",
];

/// From Anthropic's documentation.
const ANTHROPIC_STRICT: [&str; 11] = [
    "type",
    "format",
    "description",
    "enum",
    "const",
    "items",
    "minItems",
    "anyOf",
    "allOf",
    "properties",
    "additionalProperties",
];

impl RuleChecker {
    fn is(&self, books: &[Rulebook]) -> bool {
        books.contains(&self.book)
    }

    fn breaks(&mut self, at: &str, rule: &str) {
        self.broken.push(format!("{at}: {rule}"));
    }

    fn schema(&mut self, schema: &Value, at: &str, depth: usize) {
        let Value::Object(map) = schema else { return self.breaks(at, "a schema that is no object") };
        let most = if self.book == Rulebook::OpenAiStrict { 10 } else { 60 };
        if depth > most {
            return self.breaks(at, "too deep");
        }
        for keyword in map.keys() {
            let known: &[&str] = match self.book {
                Rulebook::Gemini => &GEMINI,
                Rulebook::OpenAiStrict => &OPENAI_STRICT,
                Rulebook::AnthropicStrict => &ANTHROPIC_STRICT,
                _ => continue,
            };
            if !known.contains(&keyword.as_str()) && keyword != "required" {
                self.breaks(at, &format!("{keyword} is not taken"));
            }
        }
        for keyword in [
            "$ref",
            "$dynamicRef",
            "$defs",
            "definitions",
            "$schema",
            "$id",
            "id",
            "$anchor",
            "nullable",
            "dependencies",
            "additionalItems",
        ] {
            if map.contains_key(keyword) {
                self.breaks(at, &format!("{keyword} is there"));
            }
        }
        self.types(map, at);
        self.values(map, at);
        self.strings(map, at);
        self.objects(map, at, depth);
        self.arrays(map, at, depth);
        for keyword in ["anyOf", "oneOf", "allOf"] {
            let Some(list) = map.get(keyword) else { continue };
            if self.book != Rulebook::Anthropic && keyword == "allOf" {
                self.breaks(at, "allOf is not taken");
            }
            let is_alone = map.keys().all(|other| other == keyword || other == "description");
            if self.is(&[Rulebook::Gemini, Rulebook::OpenAiStrict, Rulebook::AnthropicStrict]) && !is_alone {
                self.breaks(at, "something stands beside alternatives");
            }
            for (number, branch) in list.as_array().into_iter().flatten().enumerate() {
                self.schema(branch, &format!("{at}/{keyword}/{number}"), depth + 1);
            }
        }
        for keyword in ["not", "if", "then", "else", "contains", "propertyNames", "contentSchema"] {
            if let Some(inner) = map.get(keyword) {
                self.schema(inner, &format!("{at}/{keyword}"), depth + 1);
            }
        }
        for keyword in ["dependentSchemas", "patternProperties"] {
            for (name, inner) in map.get(keyword).and_then(Value::as_object).into_iter().flatten() {
                self.schema(inner, &format!("{at}/{keyword}/{name}"), depth + 1);
            }
        }
    }

    fn types(&mut self, map: &Map<String, Value>, at: &str) {
        let is_typed = ["type", "anyOf", "const", "enum"].into_iter().any(|keyword| map.contains_key(keyword));
        if self.is(&[Rulebook::OpenAiStrict, Rulebook::AnthropicStrict]) && !is_typed {
            self.breaks(at, "it has no type");
        }
        let is_list = map.get("type").is_some_and(Value::is_array);
        if self.book == Rulebook::AnthropicStrict && is_list {
            self.breaks(at, "a list of types");
        }
        if self.book == Rulebook::AnthropicStrict && map.contains_key("const") && map.contains_key("type") {
            self.breaks(at, "a type beside a constant");
        }
    }

    fn values(&mut self, map: &Map<String, Value>, at: &str) {
        let Some(values) = map.get("enum") else { return };
        let Some(values) = values.as_array().filter(|values| !values.is_empty()) else {
            return self.breaks(at, "a list of values that is none, or empty");
        };
        self.enum_values += values.len();
        if values.len() > 1_000 {
            self.breaks(at, "too many values");
        }
        for (number, value) in values.iter().enumerate() {
            if values[..number].contains(value) {
                self.breaks(at, "a value twice");
            }
            let is = |word: &str| match word {
                "string" => value.is_string(),
                "number" => value.is_number(),
                "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
                "boolean" => value.is_boolean(),
                "object" => value.is_object(),
                "array" => value.is_array(),
                _ => value.is_null(),
            };
            let fits = match map.get("type") {
                Some(Value::String(word)) => is(word),
                Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).any(is),
                _ => true,
            };
            if !fits {
                self.breaks(at, "a value that is not of the type");
            }
        }
        let all_strings = values.iter().all(Value::is_string);
        let all_numbers = values.iter().all(Value::is_number);
        if self.book == Rulebook::Gemini && !all_strings && !all_numbers {
            self.breaks(at, "values that are neither strings nor numbers");
        }
        if self.book == Rulebook::AnthropicStrict && values.iter().any(|value| value.is_object() || value.is_array()) {
            self.breaks(at, "values that are not primitive");
        }
    }

    fn strings(&mut self, map: &Map<String, Value>, at: &str) {
        if let Some(pattern) = map.get("pattern").and_then(Value::as_str) {
            let is_anchored = pattern.starts_with('^') && pattern.ends_with('$');
            if !is_anchored
                || has_extension(pattern)
                || jsonschema::validator_for(&serde_json::json!({"pattern": pattern})).is_err()
            {
                self.breaks(at, "a pattern that not everybody compiles");
            }
        }
        if let Some(format) = map.get("format").and_then(Value::as_str) {
            let listed = ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];
            let is_taken = match self.book {
                Rulebook::OpenAiStrict => listed.contains(&format),
                Rulebook::AnthropicStrict => listed.contains(&format) || format == "uri",
                _ => true,
            };
            if !is_taken {
                self.breaks(at, "a format that is not taken");
            }
        }
    }

    fn objects(&mut self, map: &Map<String, Value>, at: &str, depth: usize) {
        let is_object = map.get("type").is_some_and(|types| {
            types == "object" || types.as_array().is_some_and(|types| types.contains(&"object".into()))
        });
        let empty = Map::new();
        let properties = map.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        self.properties += properties.len();
        let required: Vec<&str> =
            map.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let is_plain_object = map.get("type").is_some_and(|types| types == "object");
        let wants_properties = self.is(&[Rulebook::OpenAi, Rulebook::OpenAiStrict]);
        if is_plain_object && wants_properties && !map.contains_key("properties") {
            self.breaks(at, "an object without properties");
        }
        if self.is(&[Rulebook::OpenAiStrict, Rulebook::AnthropicStrict])
            && is_object
            && map.get("additionalProperties") != Some(&Value::Bool(false))
        {
            self.breaks(at, "an object that is not closed");
        }
        if self.book == Rulebook::OpenAiStrict
            && is_object
            && !properties.keys().all(|name| required.contains(&name.as_str()))
        {
            self.breaks(at, "an argument that is not required");
        }
        if self.is(&[Rulebook::Gemini, Rulebook::OpenAiStrict, Rulebook::AnthropicStrict]) {
            if required.iter().any(|name| !properties.contains_key(*name)) {
                self.breaks(at, "what is required is not declared");
            }
            if !is_object && (map.contains_key("properties") || map.contains_key("required")) {
                self.breaks(at, "properties of what is no object");
            }
        }
        for (name, schema) in properties {
            let is_taken = match self.book {
                Rulebook::Anthropic | Rulebook::AnthropicStrict => {
                    (1..=64).contains(&name.len())
                        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
                }
                Rulebook::Gemini => {
                    (1..=64).contains(&name.len())
                        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                        && !name.starts_with(|c: char| c.is_ascii_digit())
                }
                Rulebook::OpenAi | Rulebook::OpenAiStrict => true,
            };
            if !is_taken {
                self.breaks(at, &format!("`{name}` is not the name of an argument"));
            }
            self.schema(schema, &format!("{at}/properties/{name}"), depth + 1);
        }
        match map.get("additionalProperties") {
            None | Some(Value::Bool(_)) => {}
            Some(schema) => self.schema(schema, &format!("{at}/additionalProperties"), depth + 1),
        }
    }

    fn arrays(&mut self, map: &Map<String, Value>, at: &str, depth: usize) {
        let is_array = map.get("type").is_some_and(|types| types == "array");
        if is_array && self.book != Rulebook::Anthropic && !map.contains_key("items") {
            self.breaks(at, "an array without items");
        }
        if self.book == Rulebook::AnthropicStrict
            && map.get("minItems").and_then(Value::as_u64).is_some_and(|count| count > 1)
        {
            self.breaks(at, "more than one item wanted");
        }
        if let Some(items) = map.get("items") {
            self.schema(items, &format!("{at}/items"), depth + 1);
        }
        for (number, item) in map.get("prefixItems").and_then(Value::as_array).into_iter().flatten().enumerate() {
            self.schema(item, &format!("{at}/prefixItems/{number}"), depth + 1);
        }
    }
}

/// Returns `true` for a pattern with an escaped letter or digit (`\d`, `\1`) or an extended group (`(?:`, `(?=`).
fn has_extension(pattern: &str) -> bool {
    let mut in_set = false;
    let mut characters = pattern.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            // The next character belongs to the escape: in `\\d` it is a backslash, and `d` is a literal.
            '\\' if characters.next().is_some_and(|next| next.is_ascii_alphanumeric()) => return true,
            '[' => in_set = true,
            ']' => in_set = false,
            '(' if !in_set && characters.peek() == Some(&'?') => return true,
            _ => {}
        }
    }
    false
}
