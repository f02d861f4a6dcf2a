//! A request's identity, to recognize its retry.

use bytes::Bytes;

/// The parts of a request that its retry must repeat.
#[derive(Clone, Debug)]
pub(crate) struct RequestIdentity {
    pub(crate) method: &'static str,
    /// The name or URI that the client has used.
    pub(crate) target: Box<str>,
    /// The arguments as JSON text; empty if there are none.
    pub(crate) arguments: Bytes,
}

impl RequestIdentity {
    /// Returns `true` if another request has the same method, target and arguments.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.method == other.method && self.target == other.target && self.has_same_arguments(other)
    }

    /// Arguments that cannot be parsed, such as those with lone surrogates, must have the same text.
    fn has_same_arguments(&self, other: &Self) -> bool {
        let parse = |text: &[u8]| serde_json::from_slice::<serde_json::Value>(text).ok();
        self.arguments == other.arguments
            || parse(&self.arguments).is_some_and(|own| parse(&other.arguments).as_ref() == Some(&own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_same(first: &str, second: &str) -> bool {
        let [first, second] = [first, second].map(|arguments| RequestIdentity {
            method: "tools/call",
            target: "run".into(),
            arguments: Bytes::copy_from_slice(arguments.as_bytes()),
        });
        first.is_same(&second)
    }

    #[test]
    fn a_retry_may_write_the_same_arguments_in_another_way() {
        assert!(is_same(r#"{"a":1,"b":"\u0041"}"#, r#"{ "b": "A", "a": 1 }"#));
        assert!(is_same("", ""));
        assert!(!is_same(r#"{"a":1}"#, r#"{"a":2}"#));
        assert!(!is_same("", "{}"));
    }

    #[test]
    fn arguments_that_cannot_be_parsed_must_have_the_same_text() {
        let deep = |inner: &str| format!("{{\"x\":{}{inner}{}}}", "[".repeat(200), "]".repeat(200));
        for (first, second) in [
            (r#"{"a":"\ud800","b":1}"#.to_owned(), r#"{"a":"\ud800","b":2}"#.to_owned()),
            (r#"{"a":"\ud800"}"#.to_owned(), r#"{"a":"\ud801"}"#.to_owned()),
            (r#"{"a":"\ud800"}"#.to_owned(), "null".to_owned()),
            (deep("1"), deep("2")),
        ] {
            assert!(is_same(&first, &first) && is_same(&second, &second), "{first} {second}");
            assert!(!is_same(&first, &second) && !is_same(&second, &first), "{first} {second}");
        }
    }
}
