//! Error messages with their sources.

use std::error::Error;

/// Returns the messages of an error and its sources, joined by `: `. A message that is already part of the text is left out,
/// because many libraries repeat the source in their own message.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let message = cause.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Layer(&'static str, #[source] Option<Box<Layer>>);

    #[test]
    fn a_source_that_is_repeated_in_the_message_is_written_once() {
        let error = Layer(
            "request failed: timed out",
            Some(Layer("timed out", Some(Layer("os error 110", None).into())).into()),
        );
        assert_eq!(chain(&error), "request failed: timed out: os error 110");
    }
}
