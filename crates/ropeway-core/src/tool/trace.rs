//! W3C Trace Context (<https://www.w3.org/TR/trace-context/#traceparent-header>).

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;

use crate::parse_error::ParseError;

/// A `traceparent`: a trace, and the span that a call is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceParent {
    trace: u128,
    span: u64,
    flags: u8,
}

impl TraceParent {
    /// Starts a new sampled trace.
    pub fn random() -> Self {
        let trace = u128::from(random()) << 64 | u128::from(random());
        Self { trace, span: random(), flags: 1 }
    }

    /// Returns another span in the same trace.
    #[must_use]
    pub fn child(self) -> Self {
        Self { span: random(), ..self }
    }

    /// Returns the trace id as 32 hexadecimal digits.
    pub fn trace_id(&self) -> String {
        format!("{:032x}", self.trace)
    }

    /// Returns the span id as 16 hexadecimal digits.
    pub fn span_id(&self) -> String {
        format!("{:016x}", self.span)
    }

    /// Returns `true` if the trace is sampled.
    pub fn is_sampled(&self) -> bool {
        self.flags & 1 == 1
    }
}

impl TraceParent {
    /// Returns the same span, sampled or not.
    #[must_use]
    pub fn with_sampled(self, is_sampled: bool) -> Self {
        Self { flags: self.flags & !1 | u8::from(is_sampled), ..self }
    }

    /// Returns the trace id's bytes.
    pub fn trace_bytes(&self) -> [u8; 16] {
        self.trace.to_be_bytes()
    }

    /// Returns the span id's bytes.
    pub fn span_bytes(&self) -> [u8; 8] {
        self.span.to_be_bytes()
    }
}

/// Returns a random number other than zero, which is invalid as an id.
fn random() -> u64 {
    // Each `RandomState` has new random keys.
    RandomState::new().hash_one(()).max(1)
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, self.flags)
    }
}

impl FromStr for TraceParent {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut parts = text.trim().split('-');
        let mut part = |digits: usize| {
            let part = parts.next().filter(|part| part.len() == digits)?;
            let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            part.bytes().all(is_hex).then(|| u128::from_str_radix(part, 16).ok())?
        };
        let all = (part(2), part(32), part(16), part(2));
        let invalid = || ParseError::new("not a W3C `traceparent`");
        let (Some(version), Some(trace @ 1..), Some(span @ 1..), Some(flags)) = all else { return Err(invalid()) };
        // Only later versions may have further fields.
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return Err(invalid());
        }
        // The digit count was checked above.
        Ok(Self { trace, span: span as u64, flags: flags as u8 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_round_trips_through_text() {
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let parent: TraceParent = text.parse().expect("a traceparent");
        assert_eq!(parent.to_string(), text);
        assert_eq!((parent.trace_id().as_str(), parent.span_id().as_str()), (&text[3..35], &text[36..52]));
        assert!(parent.is_sampled());
        let later: TraceParent = format!("cc-{}-more", &text[3..]).parse().expect("a later version");
        assert_eq!(later, parent);
    }

    #[test]
    fn invalid_text_is_rejected() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        for text in [
            String::new(),
            format!("ff-{trace}-b7ad6b7169203331-01"),
            format!("00-{trace}-b7ad6b7169203331-01-more"),
            format!("00-{trace}-0000000000000000-01"),
            format!("00-{:032}-b7ad6b7169203331-01", 0),
            format!("00-{}-b7ad6b7169203331-01", trace.to_uppercase()),
            format!("00-{trace}-b7ad6b716920333-01"),
            format!("00-{trace}-b7ad6b7169203331"),
            format!("00-{trace}-+7ad6b7169203331-01"),
        ] {
            assert_eq!(text.parse::<TraceParent>().ok(), None, "{text}");
        }
    }

    #[test]
    fn a_child_is_another_span_of_the_same_trace() {
        let parent = TraceParent::random();
        let child = parent.child();
        assert_eq!(child.trace_id(), parent.trace_id());
        assert_ne!(child.span_id(), parent.span_id());
        assert_ne!(TraceParent::random().trace_id(), parent.trace_id());
        assert_eq!(parent.to_string().parse().ok(), Some(parent));
    }
}
