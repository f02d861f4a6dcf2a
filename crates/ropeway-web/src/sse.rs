//! A parser for server-sent events
//! ([event stream](https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation)).

use std::time::Duration;

use bytes::Bytes;

use super::head_tail::HeadTail;

/// A server-sent event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The event type; `None` means `message`.
    pub event: Option<String>,
    /// The data, with its lines joined by newlines.
    pub data: Bytes,
    /// The id, to resume the stream after it.
    pub id: Option<String>,
    /// The delay before the stream is resumed.
    pub retry: Option<Duration>,
    /// The first and last bytes of an event's data, if it exceeds the size limit. `data` is empty then.
    pub truncated: Option<HeadTail>,
}

/// An incremental parser for server-sent events.
#[derive(Debug)]
pub struct SseParser {
    limit: usize,
    line: Vec<u8>,
    data: Option<Data>,
    event: SseEvent,
    /// Whether the last line ended in a carriage return. A following newline belongs to it.
    after_return: bool,
    at_start: bool,
    /// Set while an event over the size limit is skipped.
    skipping: Option<Skipping>,
}

/// An event over the size limit.
#[derive(Debug, Default)]
struct Skipping {
    truncated: HeadTail,
    /// Whether the current line is empty so far, so that its end would end the event.
    line_is_empty: bool,
}

/// An event's data. A single line is not copied.
#[derive(Debug)]
enum Data {
    One(Bytes),
    Many(Vec<u8>),
}

impl Data {
    fn into_bytes(self) -> Bytes {
        match self {
            Self::One(data) => data,
            Self::Many(data) => data.into(),
        }
    }
}

impl SseParser {
    /// Creates a parser for events up to `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            data: None,
            event: SseEvent::default(),
            after_return: false,
            at_start: true,
            skipping: None,
        }
    }

    /// Parses a chunk and passes every completed event to `found`.
    pub fn push(&mut self, mut chunk: &[u8], mut found: impl FnMut(SseEvent)) {
        while !chunk.is_empty() {
            if std::mem::take(&mut self.after_return) && chunk[0] == b'\n' {
                chunk = &chunk[1..];
                continue;
            }
            let end = memchr::memchr2(b'\n', b'\r', chunk);
            self.part(&chunk[..end.unwrap_or(chunk.len())]);
            let Some(end) = end else { break };
            self.after_return = chunk[end] == b'\r';
            chunk = &chunk[end + 1..];
            if let Some(event) = self.end_of_line() {
                found(event);
            }
        }
    }

    /// Adds a part of a line, or skips it.
    fn part(&mut self, part: &[u8]) {
        if self.skipping.is_none() && self.line.len() + part.len() + self.data_len() > self.limit {
            let mut skipping = Skipping::default();
            skipping.truncated.push(&self.data.take().map(Data::into_bytes).unwrap_or_default());
            // The field name is not part of the data.
            let line = std::mem::take(&mut self.line);
            skipping.truncated.push(line.strip_prefix(b"data: ").or(line.strip_prefix(b"data:")).unwrap_or(&line));
            self.skipping = Some(skipping);
        }
        match &mut self.skipping {
            Some(skipping) => {
                skipping.line_is_empty &= part.is_empty();
                skipping.truncated.push(part);
            }
            None => self.line.extend_from_slice(part),
        }
    }

    fn end_of_line(&mut self) -> Option<SseEvent> {
        match self.skipping.take() {
            None => {
                let line = std::mem::take(&mut self.line);
                self.line(line)
            }
            Some(Skipping { line_is_empty: true, truncated }) => {
                Some(SseEvent { truncated: Some(truncated), ..std::mem::take(&mut self.event) })
            }
            Some(skipping) => {
                self.skipping = Some(Skipping { line_is_empty: true, ..skipping });
                None
            }
        }
    }

    fn data_len(&self) -> usize {
        match &self.data {
            None => 0,
            Some(Data::One(data)) => data.len(),
            Some(Data::Many(data)) => data.len(),
        }
    }

    /// Handles a whole line. An empty one ends the event.
    fn line(&mut self, mut line: Vec<u8>) -> Option<SseEvent> {
        if std::mem::take(&mut self.at_start) && line.starts_with(b"\xEF\xBB\xBF") {
            line.drain(..3);
        }
        if line.is_empty() {
            let mut event = std::mem::take(&mut self.event);
            match self.data.take() {
                Some(data) => event.data = data.into_bytes(),
                // An event with only an id or a delay is also returned, because the reader needs them.
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
            parser.push(chunk, |event| events.push(event));
        }
        events
    }

    fn data(data: &'static str) -> SseEvent {
        SseEvent { data: data.into(), ..SseEvent::default() }
    }

    #[test]
    fn any_line_ending_is_accepted_and_comments_are_skipped() {
        for text in [
            "\u{feff}: hi\ndata: a\n\ndata:b\ndata: c\n\n",
            "data: a\r\rdata:b\rdata: c\r\r",
            ": x\r\ndata: a\r\n\r\ndata:b\r\ndata: c\r\n\r\n",
        ] {
            assert_eq!(events(&[text.as_bytes()]), [data("a"), data("b\nc")]);
        }
    }

    #[test]
    fn an_event_may_have_only_an_id_and_a_delay() {
        let event = SseEvent { id: Some("7".into()), retry: Some(Duration::from_millis(500)), ..SseEvent::default() };
        assert_eq!(events(&[b"id: 7\nretry: 500\n\n", b"\n\n"]), [event]);
        let event = SseEvent { event: Some("endpoint".into()), ..data("/m") };
        assert_eq!(events(&[b"event: endpoint\ndata: /m\n\nevent: lost at the end\ndata: x"]), [event]);
    }

    #[test]
    fn an_event_over_the_limit_is_skipped() {
        for text in [
            "id: 3\ndata: {\"id\":17,0123456789012345\n\ndata: b\n\n",
            "id: 3\ndata: {\"id\":17\ndata: ,0123456789012345\n\ndata: b\n\n",
        ] {
            for size in 1..text.len() {
                let mut parser = SseParser::new(24);
                let mut found = Vec::new();
                for chunk in text.as_bytes().chunks(size) {
                    parser.push(chunk, |event| found.push(event));
                }
                let [large, small] = found.as_slice() else { panic!("two events, not {found:?}") };
                assert_eq!(large.id.as_deref(), Some("3"));
                let truncated = large.truncated.as_ref().expect("what is left of it");
                assert!(memchr::memmem::find(truncated.head(), b"{\"id\":17").is_some(), "{truncated:?}");
                assert!(truncated.tail().ends_with(b",0123456789012345"), "{truncated:?}");
                assert_eq!(small, &data("b"));
            }
        }
    }

    proptest! {
        #[test]
        fn chunk_boundaries_make_no_difference(text in "(data: ?[a-c]{0,3}|id: 1|event: x|: c|retry: 5|\r\n|\n|\r){0,30}", cuts in prop::collection::vec(0usize..80, 0..5)) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(events(&chunks), events(&[bytes]));
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut parser = SseParser::new(64);
            parser.push(&bytes, |_| {});
        }
    }
}
