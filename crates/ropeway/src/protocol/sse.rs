//! Server-sent events, out of chunks of bytes.

use std::time::Duration;

use bytes::Bytes;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The kind; `None` is `message`.
    pub event: Option<String>,
    /// The data, its lines joined by newlines.
    pub data: Bytes,
    /// The id, to go on from after a break.
    pub id: Option<String>,
    /// How long to wait before going on.
    pub retry: Option<Duration>,
}

/// An event is larger than the limit allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than {limit} bytes")]
pub struct SseTooLarge {
    /// The limit.
    pub limit: usize,
}

/// Takes chunks of bytes and gives events.
#[derive(Debug)]
pub struct SseParser {
    limit: usize,
    line: Vec<u8>,
    data: Option<Data>,
    event: SseEvent,
    /// The last line ended in a carriage return, so a newline that follows belongs to it.
    after_return: bool,
    at_start: bool,
}

/// Data of one line is taken as it is; more lines are joined.
#[derive(Debug)]
enum Data {
    One(Bytes),
    Many(Vec<u8>),
}

impl SseParser {
    /// A parser that takes events of up to `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, line: Vec::new(), data: None, event: SseEvent::default(), after_return: false, at_start: true }
    }

    /// Takes a chunk and hands every event that it completes to `found`.
    pub fn push(&mut self, mut chunk: &[u8], mut found: impl FnMut(SseEvent)) -> Result<(), SseTooLarge> {
        while !chunk.is_empty() {
            if std::mem::take(&mut self.after_return) && chunk[0] == b'\n' {
                chunk = &chunk[1..];
                continue;
            }
            let end = memchr::memchr2(b'\n', b'\r', chunk);
            let part = &chunk[..end.unwrap_or(chunk.len())];
            if self.line.len() + part.len() + self.data_len() > self.limit {
                return Err(SseTooLarge { limit: self.limit });
            }
            self.line.extend_from_slice(part);
            let Some(end) = end else { break };
            self.after_return = chunk[end] == b'\r';
            chunk = &chunk[end + 1..];
            let line = std::mem::take(&mut self.line);
            if let Some(event) = self.line(line) {
                found(event);
            }
        }
        Ok(())
    }

    fn data_len(&self) -> usize {
        match &self.data {
            None => 0,
            Some(Data::One(data)) => data.len(),
            Some(Data::Many(data)) => data.len(),
        }
    }

    /// Takes a whole line; an empty one ends the event.
    fn line(&mut self, mut line: Vec<u8>) -> Option<SseEvent> {
        if std::mem::take(&mut self.at_start) && line.starts_with(b"\xEF\xBB\xBF") {
            line.drain(..3);
        }
        if line.is_empty() {
            let mut event = std::mem::take(&mut self.event);
            match self.data.take() {
                Some(Data::One(data)) => event.data = data,
                Some(Data::Many(data)) => event.data = data.into(),
                // An id or a retry without data is no event for others, but the reader wants to know it.
                None if event == SseEvent::default() => return None,
                None => {}
            }
            return Some(event);
        }
        let colon = memchr::memchr(b':', &line).unwrap_or(line.len());
        let value = match line.get(colon + 1) {
            Some(b' ') => colon + 2,
            Some(_) => colon + 1,
            None => line.len(),
        };
        match &line[..colon] {
            b"data" => self.data(Bytes::from(line).slice(value..)),
            b"event" => self.event.event = Some(text(&line[value..])).filter(|kind| !kind.is_empty()),
            b"id" if !line[value..].contains(&0) => self.event.id = Some(text(&line[value..])),
            b"retry" => self.event.retry = text(&line[value..]).parse().ok().map(Duration::from_millis),
            _ => {}
        }
        None
    }

    fn data(&mut self, line: Bytes) {
        self.data = Some(match self.data.take() {
            None => Data::One(line),
            Some(Data::One(first)) => Data::Many([&first[..], b"\n", &line[..]].concat()),
            Some(Data::Many(mut data)) => {
                data.push(b'\n');
                data.extend_from_slice(&line);
                Data::Many(data)
            }
        });
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events(chunks: &[&[u8]]) -> Vec<SseEvent> {
        let mut parser = SseParser::new(1 << 20);
        let mut events = Vec::new();
        for chunk in chunks {
            parser.push(chunk, |event| events.push(event)).expect("small events");
        }
        events
    }

    fn data(data: &'static str) -> SseEvent {
        SseEvent { data: data.into(), ..SseEvent::default() }
    }

    #[test]
    fn events_are_read_with_any_line_ending_and_comments_are_passed_over() {
        for text in [
            "\u{feff}: hi\ndata: a\n\ndata:b\ndata: c\n\n",
            "data: a\r\rdata:b\rdata: c\r\r",
            ": x\r\ndata: a\r\n\r\ndata:b\r\ndata: c\r\n\r\n",
        ] {
            assert_eq!(events(&[text.as_bytes()]), [data("a"), data("b\nc")]);
        }
    }

    #[test]
    fn a_priming_event_tells_id_and_retry_without_data() {
        let event = SseEvent { id: Some("7".into()), retry: Some(Duration::from_millis(500)), ..SseEvent::default() };
        assert_eq!(events(&[b"id: 7\nretry: 500\n\n", b"\n\n"]), [event]);
        let event = SseEvent { event: Some("endpoint".into()), ..data("/m") };
        assert_eq!(events(&[b"event: endpoint\ndata: /m\n\nevent: lost at the end\ndata: x"]), [event]);
    }

    #[test]
    fn an_event_past_the_limit_is_an_error() {
        let mut parser = SseParser::new(10);
        assert_eq!(parser.push(b"data: 0123456789", |_| {}), Err(SseTooLarge { limit: 10 }));
        let mut parser = SseParser::new(16);
        assert_eq!(parser.push(b"data: 01234567\ndata: 0123456789\n", |_| {}), Err(SseTooLarge { limit: 16 }));
    }

    proptest! {
        #[test]
        fn where_the_chunks_are_cut_makes_no_difference(text in "(data: ?[a-c]{0,3}|id: 1|event: x|: c|retry: 5|\r\n|\n|\r){0,30}", cuts in prop::collection::vec(0usize..80, 0..5)) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(events(&chunks), events(&[bytes]));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut parser = SseParser::new(64);
            let _ = parser.push(&bytes, |_| {});
        }
    }
}
