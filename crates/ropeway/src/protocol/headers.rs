//! Header parameters: arguments that the modern era mirrors in HTTP headers (`x-mcp-header`, 2026-07-28).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// Maximum depth at which a schema is searched.
const MAX_DEPTH: usize = 64;

/// The largest integer that all JSON parsers represent exactly
/// ([RFC 8259, section 6](https://www.rfc-editor.org/rfc/rfc8259#section-6)).
const MAX_SAFE_INTEGER: i64 = (1 << 53) - 1;

/// The header parameters of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderParams(Vec<HeaderParam>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct HeaderParam {
    header: String,
    path: Vec<String>,
}

/// An invalid header parameter in a schema. The tool cannot be used over HTTP.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the header parameter at `{at}` {reason}")]
pub struct HeaderError {
    /// The path of the property.
    pub at: String,
    /// The reason.
    pub reason: &'static str,
}

impl HeaderParams {
    /// Reads the header parameters of an input schema.
    pub fn read(schema: &Value) -> Result<Self, HeaderError> {
        let mut found = Self::default();
        found.walk(schema, &mut Vec::new(), true, 0)?;
        Ok(found)
    }

    /// Returns the headers of a call with these arguments.
    pub fn headers(&self, arguments: &Map<String, Value>) -> Vec<(String, String)> {
        let value = |param: &HeaderParam| {
            let (first, rest) = param.path.split_first()?;
            let value = rest.iter().try_fold(arguments.get(first)?, |value, key| value.get(key))?;
            let text = match value {
                Value::String(text) => header_value(text),
                Value::Bool(flag) => flag.to_string(),
                Value::Number(number) => number
                    .as_i64()
                    .filter(|number| (-MAX_SAFE_INTEGER..=MAX_SAFE_INTEGER).contains(number))?
                    .to_string(),
                _ => return None,
            };
            Some((format!("Mcp-Param-{}", param.header), text))
        };
        self.0.iter().filter_map(value).collect()
    }

    fn walk(
        &mut self,
        schema: &Value,
        path: &mut Vec<String>,
        reachable: bool,
        depth: usize,
    ) -> Result<(), HeaderError> {
        let Value::Object(schema) = schema else { return Ok(()) };
        if depth > MAX_DEPTH {
            return Ok(());
        }
        if let Some(mark) = schema.get("x-mcp-header") {
            self.take(mark, schema.get("type"), path, reachable)?;
        }
        for (keyword, value) in schema {
            match (keyword.as_str(), value) {
                ("properties", Value::Object(properties)) => {
                    for (name, property) in properties {
                        path.push(name.clone());
                        self.walk(property, path, reachable, depth + 1)?;
                        path.pop();
                    }
                }
                ("patternProperties" | "$defs" | "definitions" | "dependentSchemas", Value::Object(schemas)) => {
                    for schema in schemas.values() {
                        self.walk(schema, path, false, depth + 1)?;
                    }
                }
                ("allOf" | "anyOf" | "oneOf" | "prefixItems" | "items", Value::Array(schemas)) => {
                    for schema in schemas {
                        self.walk(schema, path, false, depth + 1)?;
                    }
                }
                (
                    "items"
                    | "not"
                    | "if"
                    | "then"
                    | "else"
                    | "additionalProperties"
                    | "contains"
                    | "propertyNames"
                    | "unevaluatedItems"
                    | "unevaluatedProperties"
                    | "contentSchema",
                    schema,
                ) => self.walk(schema, path, false, depth + 1)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn take(
        &mut self,
        mark: &Value,
        kind: Option<&Value>,
        path: &[String],
        reachable: bool,
    ) -> Result<(), HeaderError> {
        let invalid = |reason| Err(HeaderError { at: format!("/{}", path.join("/")), reason });
        let Value::String(name) = mark else { return invalid("has a name that is not a string") };
        if name.is_empty() || !name.bytes().all(is_token) {
            return invalid("has an invalid header name");
        }
        if !reachable || path.is_empty() {
            return invalid("is not a plain property");
        }
        if !matches!(kind.and_then(Value::as_str), Some("string" | "integer" | "boolean")) {
            return invalid("is not a string, integer or boolean");
        }
        if self.0.iter().any(|other| other.header.eq_ignore_ascii_case(name)) {
            return invalid("has a duplicate name");
        }
        self.0.push(HeaderParam { header: name.clone(), path: path.to_vec() });
        Ok(())
    }
}

/// Returns `true` for characters of a header name ([RFC 9110, section 5.6.2](https://www.rfc-editor.org/rfc/rfc9110#section-5.6.2)).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Encodes a text as a header value: unchanged if possible, otherwise as `=?base64?…?=`.
pub fn header_value(text: &str) -> String {
    let plain = text.bytes().all(|byte| (0x20..=0x7e).contains(&byte))
        && text.trim_matches(' ').len() == text.len()
        && !(text.starts_with("=?base64?") && text.ends_with("?="));
    if plain { text.to_owned() } else { format!("=?base64?{}?=", STANDARD.encode(text)) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_that_is_not_a_valid_header_value_becomes_base64() {
        for (text, value) in [
            ("us-west 1", "us-west 1"),
            ("", ""),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
            ("a\nb", "=?base64?YQpi?="),
        ] {
            assert_eq!(header_value(text), value);
        }
    }

    #[test]
    fn marked_arguments_become_headers_unless_absent_or_null() {
        let schema = json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "deep": {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}},
            "on": {"type": "boolean", "x-mcp-header": "On"},
            "x-mcp-header": {"type": "string"}}});
        let params = HeaderParams::read(&schema).expect("valid marks");
        let arguments = json!({"region": "eu", "deep": {"n": -7}, "on": null, "x-mcp-header": "y"});
        let headers = params.headers(arguments.as_object().expect("an object"));
        assert_eq!(headers, [("Mcp-Param-Region".into(), "eu".into()), ("Mcp-Param-N".into(), "-7".into())]);
    }

    #[test]
    fn invalid_header_parameters_are_rejected() {
        let property = |property: Value| json!({"properties": {"a": property}});
        for schema in [
            property(json!({"type": "string", "x-mcp-header": ""})),
            property(json!({"type": "string", "x-mcp-header": "a b"})),
            property(json!({"type": "string", "x-mcp-header": 3})),
            property(json!({"type": "number", "x-mcp-header": "A"})),
            property(json!({"x-mcp-header": "A"})),
            property(json!({"type": "array", "items": {"type": "string", "x-mcp-header": "A"}})),
            json!({"anyOf": [{"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}]}),
            json!({"properties": {"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}}}),
            json!({"type": "string", "x-mcp-header": "A"}),
        ] {
            assert!(HeaderParams::read(&schema).is_err(), "{schema}");
        }
    }
}
