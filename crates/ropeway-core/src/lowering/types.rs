//! JSON type sets.

use serde_json::Value;

const NAMES: [&str; 7] = ["string", "number", "integer", "boolean", "object", "array", "null"];

/// A type set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Types(u8);

impl Types {
    pub(super) const STRING: Self = Self(1);
    pub(super) const NUMBER: Self = Self(1 << 1);
    pub(super) const INTEGER: Self = Self(1 << 2);
    pub(super) const BOOLEAN: Self = Self(1 << 3);
    pub(super) const OBJECT: Self = Self(1 << 4);
    pub(super) const ARRAY: Self = Self(1 << 5);
    pub(super) const NULL: Self = Self(1 << 6);
    /// All types; `number` includes `integer`.
    pub(super) const ALL: Self = Self(0b111_1011);

    /// Reads a `type` keyword and ignores unknown types.
    pub(super) fn read(value: &Value) -> Self {
        let words: &[Value] = match value {
            Value::Array(words) => words,
            word => std::slice::from_ref(word),
        };
        words.iter().filter_map(Value::as_str).fold(Self::default(), |types, word| types.and(Self::named(word)))
    }

    /// Returns `true` if a `type` keyword is valid JSON Schema.
    pub(super) fn is_proper(value: &Value) -> bool {
        let is_name = |value: &Value| value.as_str().is_some_and(|word| NAMES.contains(&word));
        match value {
            Value::Array(words) => {
                let differ = |(at, word): (usize, &Value)| !words[..at].contains(word);
                words.len() > 1
                    && words.len() <= NAMES.len()
                    && words.iter().all(is_name)
                    && words.iter().enumerate().all(differ)
            }
            word => is_name(word),
        }
    }

    /// Returns the type for a name or for one of its common synonyms.
    fn named(word: &str) -> Self {
        if let Some(at) = NAMES.iter().position(|name| *name == word) {
            return Self(1 << at);
        }
        let name = match word.to_ascii_lowercase().as_str() {
            "any" => return Self::ALL,
            "str" | "string" | "text" => "string",
            "number" | "float" | "double" | "decimal" => "number",
            "int" | "integer" | "int32" | "int64" | "long" => "integer",
            "bool" | "boolean" => "boolean",
            "dict" | "map" | "object" => "object",
            "list" | "array" => "array",
            "none" | "null" => "null",
            _ => return Self::default(),
        };
        Self::named(name)
    }

    /// Returns a value's type.
    pub(super) fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::NULL,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Number(number) if number.is_f64() && number.as_f64().is_some_and(|number| number.fract() != 0.0) => {
                Self::NUMBER
            }
            Value::Number(_) => Self::INTEGER,
            Value::String(_) => Self::STRING,
            Value::Array(_) => Self::ARRAY,
            Value::Object(_) => Self::OBJECT,
        }
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn is_one(self) -> bool {
        self.0.count_ones() == 1
    }

    /// Returns `true` if the set includes all of `other`. `number` includes `integer`.
    pub(super) fn has(self, other: Self) -> bool {
        other.0 & !self.widened().0 == 0
    }

    /// Returns the union.
    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0).narrowed()
    }

    /// Returns the difference.
    pub(super) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the intersection.
    pub(super) fn common(self, other: Self) -> Self {
        Self(self.widened().0 & other.widened().0).narrowed()
    }

    fn widened(self) -> Self {
        if self.0 & Self::NUMBER.0 != 0 { Self(self.0 | Self::INTEGER.0) } else { self }
    }

    fn narrowed(self) -> Self {
        if self.0 & Self::NUMBER.0 != 0 { Self(self.0 & !Self::INTEGER.0) } else { self }
    }

    /// Returns each type as a separate set.
    pub(super) fn each(self) -> impl Iterator<Item = Self> {
        (0..NAMES.len()).map(|at| Self(1 << at)).filter(move |one| self.0 & one.0 != 0)
    }

    /// Returns the first type's name.
    pub(super) fn name(self) -> &'static str {
        NAMES.get(self.0.trailing_zeros() as usize).unwrap_or(&"null")
    }

    /// Returns the `type` keyword's value.
    pub(super) fn to_value(self) -> Value {
        if self.is_one() { Value::from(self.name()) } else { self.each().map(|one| Value::from(one.name())).collect() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn synonyms_of_types_are_read() {
        let read = |value: Value| Types::read(&value).to_value();
        assert_eq!(read(json!("object")), json!("object"));
        assert_eq!(read(json!(["null", "STRING"])), json!(["string", "null"]));
        assert_eq!(read(json!("any")), json!(["string", "number", "boolean", "object", "array", "null"]));
        assert_eq!(read(json!(["integer", "number", "thing", 4])), json!("number"));
        assert!(Types::read(&json!({"type": "string"})).is_empty());
        assert!(Types::is_proper(&json!(["null", "string"])) && !Types::is_proper(&json!(["null", "null"])));
        assert!(
            !Types::is_proper(&json!([])) && !Types::is_proper(&json!(["string"])) && !Types::is_proper(&json!("str"))
        );
    }

    #[test]
    fn an_integer_is_a_number() {
        assert_eq!(Types::NUMBER.common(Types::INTEGER), Types::INTEGER);
        assert!(Types::NUMBER.has(Types::of(&json!(3))) && !Types::INTEGER.has(Types::of(&json!(3.5))));
        assert!(Types::INTEGER.has(Types::of(&json!(3.0))));
        assert!(Types::OBJECT.common(Types::ARRAY).is_empty());
    }
}
