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
    /// The event was larger than the limit: of its data only the ends are left.
    pub too_large: bool,
}

/// How much of the data of an event that is too large is kept at each end.
const ENDS: usize = 4 << 10;

impl SseEvent {
    /// The beginning and the end of the data, which tell what it is about when the rest is lost.
    pub fn ends(&self) -> (&[u8], &[u8]) {
        (&self.data[..self.data.len().min(ENDS)], &self.data[self.data.len().saturating_sub(ENDS)..])
    }
}

/// Takes chunks of bytes and gives events.
#[derive(Debug)]
pub struct SseParser {
    limit: usize,
    line: Vec<u8>,
    data: Option<Data>,
    event: SseEvent,
    skipped: Option<Skipped>,
    /// The last line ended in a carriage return, so a newline that follows belongs to it.
    after_return: bool,
    at_start: bool,
}

/// What is kept of an event that is too large to be kept.
#[derive(Debug, Default)]
struct Skipped {
    head: Vec<u8>,
    tail: Vec<u8>,
    /// How long the line is that is being read.
    line: usize,
}

impl Skipped {
    fn take(&mut self, part: &[u8]) {
        let room = (ENDS - self.head.len()).min(part.len());
        self.head.extend_from_slice(&part[..room]);
        let rest = &part[room..];
        self.tail.extend_from_slice(&rest[rest.len().saturating_sub(ENDS)..]);
        self.tail.drain(..self.tail.len().saturating_sub(ENDS));
    }
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
        Self {
            limit,
            line: Vec::new(),
            data: None,
            event: SseEvent::default(),
            skipped: None,
            after_return: false,
            at_start: true,
        }
    }

    /// Takes a chunk and hands every event that it completes to `found`.
    pub fn push(&mut self, mut chunk: &[u8], mut found: impl FnMut(SseEvent)) {
        while !chunk.is_empty() {
            if std::mem::take(&mut self.after_return) && chunk[0] == b'\n' {
                chunk = &chunk[1..];
                continue;
            }
            let end = memchr::memchr2(b'\n', b'\r', chunk);
            let part = &chunk[..end.unwrap_or(chunk.len())];
            if self.line.len() + part.len() + self.data_len() > self.limit {
                self.skip();
            }
            match &mut self.skipped {
                Some(skipped) => {
                    skipped.take(part);
                    skipped.line += part.len();
                }
                None => self.line.extend_from_slice(part),
            }
            let Some(end) = end else { break };
            self.after_return = chunk[end] == b'\r';
            chunk = &chunk[end + 1..];
            if let Some(skipped) = &mut self.skipped {
                if std::mem::take(&mut skipped.line) == 0 {
                    found(self.remains());
                }
                continue;
            }
            let line = std::mem::take(&mut self.line);
            if let Some(event) = self.line(line) {
                found(event);
            }
        }
    }

    /// From here to its end the event is only looked at.
    fn skip(&mut self) {
        let skipped = self.skipped.get_or_insert_default();
        match self.data.take() {
            Some(Data::One(data)) => skipped.take(&data),
            Some(Data::Many(data)) => skipped.take(&data),
            None => {}
        }
        let line = std::mem::take(&mut self.line);
        skipped.line += line.len();
        skipped.take(line.strip_prefix(b"data:").unwrap_or(&line));
    }

    /// What is left of an event that was too large.
    fn remains(&mut self) -> SseEvent {
        let Skipped { mut head, tail, .. } = self.skipped.take().unwrap_or_default();
        head.extend_from_slice(&tail);
        SseEvent { data: head.into(), too_large: true, ..std::mem::take(&mut self.event) }
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
            parser.push(chunk, |event| events.push(event));
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
    fn of_an_event_past_the_limit_the_ends_are_left_and_the_next_one_is_whole() {
        let mut parser = SseParser::new(100_000);
        let mut events = Vec::new();
        let long = format!("{{\"id\":1,\"a\":\"{}\",\"b\":2}}", "x".repeat(200_000));
        let text = format!("id: 7\ndata: {long}\n\ndata: a\n\ndata: {long}\ndata: {long}\n\ndata: b\n\n");
        for chunk in text.as_bytes().chunks(1000) {
            parser.push(chunk, |event| events.push(event));
        }
        let (head, tail) = events[0].ends();
        assert!(head.trim_ascii_start().starts_with(b"{\"id\":1,") && tail.ends_with(b",\"b\":2}"));
        assert_eq!((events[0].too_large, events[0].id.as_deref()), (true, Some("7")));
        assert_eq!(events[1], data("a"));
        assert!(events[2].too_large);
        assert_eq!(events[3..], [data("b")]);
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
            parser.push(&bytes, |_| {});
        }
    }
}
