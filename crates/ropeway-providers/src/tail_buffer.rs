//! A response's last bytes, which may hold an error outside the events.

use serde_json::Value;

use ropeway_core::json;

/// Minimum number of bytes to keep.
const SIZE: usize = 16 << 10;

/// A response's last bytes.
#[derive(Debug, Default)]
pub(super) struct TailBuffer(Vec<u8>);

impl TailBuffer {
    /// Appends a chunk and drops bytes that are too far from the end.
    pub(super) fn push(&mut self, chunk: &[u8]) {
        if chunk.len() >= SIZE {
            self.0.clear();
        }
        self.0.extend_from_slice(&chunk[chunk.len().saturating_sub(SIZE)..]);
        // Drained in batches instead of for every chunk.
        if self.0.len() > 2 * SIZE {
            self.0.drain(..self.0.len() - SIZE);
        }
    }

    /// Parses the JSON document at the end, if it starts a line.
    pub(super) fn json(&self) -> Option<Value> {
        let text = String::from_utf8_lossy(&self.0);
        let starts = text.match_indices(['{', '[']).map(|(at, _)| at);
        let mut at_lines = starts.filter(|at| *at == 0 || matches!(text.as_bytes()[at - 1], b'\n' | b'\r'));
        at_lines.find_map(|at| json::from_str(&text[at..]).ok())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_after_the_events_is_found() {
        let found = |text: &str| TailBuffer(text.as_bytes().to_vec()).json();
        assert_eq!(
            found("data: {\"a\":1}\n\n{\n  \"error\": {\"code\": 500}\n}\n"),
            Some(json!({"error": {"code": 500}}))
        );
        assert_eq!(found("[{\n\"error\": 1}\n]"), Some(json!([{"error": 1}])));
        assert_eq!(found("data: {\"a\":1}\n\n"), None);
        assert_eq!(found("{\"error\": "), None);
    }

    #[test]
    fn only_the_end_of_a_long_response_is_kept() {
        let mut tail = TailBuffer::default();
        for byte in 0..100u8 {
            tail.push(&vec![byte; 1000]);
        }
        assert!(tail.0.len() <= 2 * SIZE && tail.0.ends_with(&[99; 1000]) && tail.0.len() >= SIZE);
        tail.push(&vec![7; 3 * SIZE]);
        assert_eq!(tail.0, vec![7; SIZE]);
    }
}
