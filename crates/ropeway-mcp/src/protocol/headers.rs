//! Header parameters: arguments that the modern era mirrors in HTTP headers (`x-mcp-header`, 2026-07-28).

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// Maximum depth at which a schema is searched.
const MAX_DEPTH: usize = 64;

/// The largest integer that all JSON parsers represent exactly
/// ([RFC 8259, section 6](https://www.rfc-editor.org/rfc/rfc8259#section-6)).
const MAX_SAFE_INTEGER: i64 = (1 << 53) - 1;

/// A tool's header parameters.
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
    /// The property's path.
    pub at: String,
    /// The reason.
    pub reason: &'static str,
}

/// A header that contradicts its request's body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderMismatch {
    /// The body has a value, and the header is missing.
    #[error("header `{header}` is missing")]
    Missing {
        /// The header's name.
        header: String,
    },
    /// The body has no value for the header.
    #[error("header `{header}` has no counterpart in the body")]
    Unexpected {
        /// The header's name.
        header: String,
    },
    /// The header is not valid base64-encoded UTF-8.
    #[error("header `{header}` is not valid base64 of UTF-8")]
    Undecodable {
        /// The header's name.
        header: String,
    },
    /// The header and the body have different values.
    #[error("header `{header}` is `{}`, but the body has `{}`", shorten(.sent), shorten(.body))]
    Different {
        /// The header's name.
        header: String,
        /// The header's decoded value.
        sent: String,
        /// The value in the body.
        body: String,
    },
}

/// Formats a value for an error message: escaped, and at most 100 characters long.
fn shorten(value: &str) -> String {
    value.chars().take(100).flat_map(char::escape_debug).collect()
}

impl HeaderParam {
    /// Returns the header's name.
    fn name(&self) -> String {
        format!("Mcp-Param-{}", self.header)
    }

    /// Returns the argument that the header mirrors.
    fn argument<'a>(&self, arguments: &'a Map<String, Value>) -> Option<&'a Value> {
        let (first, rest) = self.path.split_first()?;
        rest.iter().try_fold(arguments.get(first)?, |value, key| value.get(key))
    }
}

/// Returns a mirrored argument as text: a string, a boolean or an integer that all JSON parsers represent exactly.
fn mirrored(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Bool(flag) => Some(Cow::Owned(flag.to_string())),
        Value::Number(number) => {
            let number = number.as_i64().filter(|number| (-MAX_SAFE_INTEGER..=MAX_SAFE_INTEGER).contains(number))?;
            Some(Cow::Owned(number.to_string()))
        }
        _ => None,
    }
}

impl HeaderParams {
    /// Reads an input schema's header parameters.
    pub fn read(schema: &Value) -> Result<Self, HeaderError> {
        let mut found = Self::default();
        found.walk(schema, &mut Vec::new(), true, 0)?;
        Ok(found)
    }

    /// Returns the headers for a call with these arguments.
    pub fn headers(&self, arguments: &Map<String, Value>) -> Vec<(String, String)> {
        let header = |param: &HeaderParam| {
            let text = mirrored(param.argument(arguments)?)?;
            Some((param.name(), header_value(&text)))
        };
        self.0.iter().filter_map(header).collect()
    }

    /// Returns `true` if the tool has no header parameters.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks that a call's headers match its arguments. `header` looks up a header's value by name.
    ///
    /// # Errors
    ///
    /// Returns the first header that is missing, has no argument, or has another value.
    pub fn check(
        &self,
        arguments: &Map<String, Value>,
        header: impl Fn(&str) -> Option<String>,
    ) -> Result<(), HeaderMismatch> {
        for param in &self.0 {
            let name = param.name();
            let sent = header(&name);
            let argument = param.argument(arguments);
            // Other clients write a number differently, or mirror numbers that are not exact.
            let number = argument.filter(|value| value.is_number()).and_then(Value::as_f64);
            if number.is_some() && sent.as_deref().and_then(|sent| sent.trim().parse().ok()) == number {
                continue;
            }
            check_header(&name, sent.as_deref(), argument.and_then(mirrored).as_deref())?;
        }
        Ok(())
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

/// Returns `true` for characters that a header name may contain ([RFC 9110, section
/// 5.6.2](https://www.rfc-editor.org/rfc/rfc9110#section-5.6.2)).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Checks that a header, once decoded, equals the body's value.
///
/// # Errors
///
/// Fails if only one is present, if they differ, or if the header cannot be decoded.
pub fn check_header(header: &str, sent: Option<&str>, body: Option<&str>) -> Result<(), HeaderMismatch> {
    let header = header.to_owned();
    let (sent, body) = match (sent, body) {
        (None, None) => return Ok(()),
        (None, Some(_)) => return Err(HeaderMismatch::Missing { header }),
        (Some(_), None) => return Err(HeaderMismatch::Unexpected { header }),
        (Some(sent), Some(body)) => (sent, body),
    };
    match decode_header_value(sent) {
        None => Err(HeaderMismatch::Undecodable { header }),
        Some(sent) if sent == body => Ok(()),
        Some(sent) => Err(HeaderMismatch::Different { header, sent: sent.into_owned(), body: body.to_owned() }),
    }
}

/// Decodes a header value: `=?base64?…?=`, or the text itself without whitespace around it. Returns `None` for invalid base64.
pub fn decode_header_value(value: &str) -> Option<Cow<'_, str>> {
    let value = value.trim_matches([' ', '\t']);
    let Some(encoded) = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) else {
        return Some(Cow::Borrowed(value));
    };
    String::from_utf8(STANDARD.decode(encoded).ok()?).ok().map(Cow::Owned)
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
            assert_eq!(decode_header_value(value).as_deref(), Some(text));
        }
    }

    #[test]
    fn a_header_value_is_decoded_or_refused() {
        for (value, text) in [
            (" us \t", Some("us")),
            ("=?base64?SGVsbG8=?=", Some("Hello")),
            ("=?base64?SGVsbG8=", Some("=?base64?SGVsbG8=")),
            ("SGVsbG8=?=", Some("SGVsbG8=?=")),
            ("=?base64?SGVsbG8?=", None),
            ("=?base64?SGVs!!!bG8=?=", None),
            ("=?base64?/w==?=", None),
        ] {
            assert_eq!(decode_header_value(value).as_deref(), text, "{value}");
        }
    }

    #[test]
    fn headers_that_contradict_the_arguments_are_found() {
        let schema = json!({"properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "deep": {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}}}});
        let params = HeaderParams::read(&schema).expect("valid marks");
        assert!(!params.is_empty() && HeaderParams::default().is_empty());
        let check = |arguments: Value, headers: &[(&str, &str)]| {
            let find = |name: &str| headers.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned());
            params.check(arguments.as_object().expect("an object"), find).map_err(|error| error.to_string())
        };
        let (region, n) = ("Mcp-Param-Region", "Mcp-Param-N");
        assert_eq!(check(json!({}), &[]), Ok(()));
        assert_eq!(check(json!({"region": "Hello", "deep": null}), &[(region, "=?base64?SGVsbG8=?=")]), Ok(()));
        assert_eq!(check(json!({"deep": {"n": 42}}), &[(n, "42.0")]), Ok(()));
        assert_eq!(check(json!({"deep": {"n": 1.5}}), &[]), Ok(()));
        assert_eq!(check(json!({"deep": {"n": 1.5}}), &[(n, "1.5")]), Ok(()));
        for (arguments, headers, problem) in [
            (json!({"region": "eu"}), vec![], "header `Mcp-Param-Region` is missing"),
            (json!({"region": null}), vec![(region, "eu")], "header `Mcp-Param-Region` has no counterpart in the body"),
            (json!({"region": "eu"}), vec![(region, "us")], "header `Mcp-Param-Region` is `us`, but the body has `eu`"),
            (
                json!({"region": "Hello"}),
                vec![(region, "=?base64?SGVsbG8?=")],
                "header `Mcp-Param-Region` is not valid base64 of UTF-8",
            ),
            (json!({"deep": {"n": 42}}), vec![(n, "43")], "header `Mcp-Param-N` is `43`, but the body has `42`"),
        ] {
            assert_eq!(check(arguments, &headers), Err(problem.to_owned()));
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
