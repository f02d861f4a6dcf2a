//! A trace parent: whose trace a call belongs to (W3C Trace Context).

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;

/// Whose trace a call belongs to: the trace, and the span in it that the call is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceParent {
    trace: u128,
    span: u64,
    flags: u8,
}

/// The text is no `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a W3C `traceparent`")]
pub struct TraceParentError;

impl TraceParent {
    /// The beginning of a trace of its own, which is recorded.
    pub fn random() -> Self {
        let trace = u128::from(random()) << 64 | u128::from(random());
        Self { trace, span: random(), flags: 1 }
    }

    /// Another span of the same trace.
    #[must_use]
    pub fn child(self) -> Self {
        Self { span: random(), ..self }
    }

    /// The trace, as 32 hexadecimal digits.
    pub fn trace_id(&self) -> String {
        format!("{:032x}", self.trace)
    }

    /// The span, as 16 hexadecimal digits.
    pub fn span_id(&self) -> String {
        format!("{:016x}", self.span)
    }

    /// Is the trace recorded?
    pub fn is_sampled(&self) -> bool {
        self.flags & 1 == 1
    }
}

/// A number that nobody else has; zero would mean that there is none.
fn random() -> u64 {
    // The keys of each state are new, and random to begin with.
    RandomState::new().hash_one(()).max(1)
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, self.flags)
    }
}

impl FromStr for TraceParent {
    type Err = TraceParentError;

    fn from_str(text: &str) -> Result<Self, TraceParentError> {
        let mut parts = text.trim().split('-');
        let mut part = |digits: usize| {
            let part = parts.next().filter(|part| part.len() == digits)?;
            let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            part.bytes().all(is_hex).then(|| u128::from_str_radix(part, 16).ok())?
        };
        let all = (part(2), part(32), part(16), part(2));
        let (Some(version), Some(trace @ 1..), Some(span @ 1..), Some(flags)) = all else {
            return Err(TraceParentError);
        };
        // A later version may say more at its end; ours may not.
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return Err(TraceParentError);
        }
        // They have as many digits as these types.
        Ok(Self { trace, span: span as u64, flags: flags as u8 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_goes_from_text_to_text() {
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let parent: TraceParent = text.parse().expect("a traceparent");
        assert_eq!(parent.to_string(), text);
        assert_eq!((parent.trace_id().as_str(), parent.span_id().as_str()), (&text[3..35], &text[36..52]));
        assert!(parent.is_sampled());
        let later: TraceParent = format!("cc-{}-more", &text[3..]).parse().expect("a later version");
        assert_eq!(later, parent);
    }

    #[test]
    fn what_is_no_traceparent_is_refused() {
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
            assert_eq!(text.parse::<TraceParent>(), Err(TraceParentError), "{text}");
        }
    }

    #[test]
    fn a_child_is_another_span_of_the_same_trace() {
        let parent = TraceParent::random();
        let child = parent.child();
        assert_eq!(child.trace_id(), parent.trace_id());
        assert_ne!(child.span_id(), parent.span_id());
        assert_ne!(TraceParent::random().trace_id(), parent.trace_id());
        assert_eq!(parent.to_string().parse(), Ok(parent));
    }
}
