//! JSON lines on byte streams: bounded when read, batched when written.

use std::collections::VecDeque;
use std::io;

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::client::shares::{Hold, Holdings, Resource, ShareError, Shares};

/// Minimum read size.
const CHUNK: usize = 64 << 10;

/// Size above which an incomplete line's buffer is counted.
const MAX_UNCOUNTED: usize = 2 * CHUNK;

/// A larger empty buffer is replaced by a small one.
const MAX_RETAINED: usize = 1 << 20;

/// Maximum size of a message that is copied to be written together with others.
const MAX_COPIED: usize = 16 << 10;

/// One line from a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A line that is not blank.
    Message(Bytes),
    /// A line over the limit, which was skipped.
    TooLong,
    /// A long line that was skipped because messages take too much memory already.
    NoRoom(ShareError),
}

/// Why the rest of a line is skipped.
#[derive(Clone, Copy, Debug)]
enum Skipped {
    TooLong,
    NoRoom(ShareError),
}

/// Counts long lines as held by a principal, while they are incomplete and until the message is dropped.
struct LineBudget {
    shares: Shares,
    principal: Holdings,
    /// The buffer's size, once a line is long.
    hold: Option<Hold>,
}

/// Reads lines.
pub(crate) struct LineReader<R> {
    input: R,
    buffer: BytesMut,
    /// Length of the buffer's beginning that contains no newline.
    searched: usize,
    /// Set while the rest of a line is skipped.
    skipped: Option<Skipped>,
    limit: usize,
    budget: Option<LineBudget>,
    has_ended: bool,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(crate) fn new(input: R, limit: usize) -> Self {
        Self { input, buffer: BytesMut::new(), searched: 0, skipped: None, limit, budget: None, has_ended: false }
    }

    /// Counts long lines as held by a principal.
    pub(crate) fn with_budget(mut self, shares: &Shares, principal: &Holdings) -> Self {
        self.budget = Some(LineBudget { shares: shares.clone(), principal: principal.clone(), hold: None });
        self
    }

    /// Changes the maximum line length.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Returns the next line; `None` at the end of the input. Cancel-safe.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            if let Some(line) = self.split() {
                return Ok(Some(line));
            }
            if self.has_ended {
                return Ok(None);
            }
            self.make_room();
            if self.input.read_buf(&mut self.buffer).await? == 0 {
                self.has_ended = true;
                // The last line need not end in a newline.
                self.buffer.extend_from_slice(b"\n");
            }
        }
    }

    fn make_room(&mut self) {
        if self.buffer.is_empty() && self.buffer.capacity() > MAX_RETAINED {
            self.buffer = BytesMut::new();
        }
        if self.buffer.capacity() - self.buffer.len() < CHUNK / 8 {
            // Doubles the buffer, to copy a long line only a few times.
            let more = CHUNK.max(self.buffer.len());
            if let Err(error) = self.take(more) {
                // The memory is given back, and the rest of the line is skipped.
                (self.buffer, self.searched) = (BytesMut::new(), 0);
                self.skipped = Some(Skipped::NoRoom(error));
            }
            self.buffer.reserve(CHUNK.max(self.buffer.len()));
        }
    }

    /// Counts a long line that is incomplete before its buffer grows by this size.
    fn take(&mut self, more: usize) -> Result<(), ShareError> {
        let size = self.buffer.len() + more;
        let Some(budget) = self.budget.as_mut().filter(|_| size > MAX_UNCOUNTED) else { return Ok(()) };
        // The buffer before it is released when its content is copied.
        budget.hold = None;
        budget.hold = Some(budget.shares.take(Resource::BodyBytes, &budget.principal, size)?);
        Ok(())
    }

    /// Returns the amount that is held for the line that ends now.
    fn held(&mut self) -> Option<Hold> {
        self.budget.as_mut()?.hold.take()
    }

    /// Takes the first complete line that is not blank out of the buffer.
    fn split(&mut self) -> Option<Line> {
        while let Some(end) = memchr::memchr(b'\n', &self.buffer[self.searched..]) {
            let line = self.buffer.split_to(self.searched + end + 1).freeze();
            self.searched = 0;
            let hold = self.held();
            match self.skipped.take() {
                Some(Skipped::NoRoom(error)) => return Some(Line::NoRoom(error)),
                Some(Skipped::TooLong) => return Some(Line::TooLong),
                None if line.len() > self.limit.saturating_add(1) => return Some(Line::TooLong),
                None => {}
            }
            let line = match hold {
                Some(hold) => hold.attach(line),
                None => line,
            };
            let text = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&line).trim_ascii();
            if !text.is_empty() {
                return Some(Line::Message(line.slice_ref(text)));
            }
        }
        self.searched = self.buffer.len();
        if self.buffer.len() > self.limit {
            self.skipped.get_or_insert(Skipped::TooLong);
        }
        if self.skipped.is_some() {
            self.buffer.clear();
            self.searched = 0;
        }
        None
    }
}

/// Writes lines. Small ones that wait are written together.
pub(crate) struct LineWriter<W> {
    output: W,
    /// Complete output parts.
    chunks: VecDeque<Bytes>,
    /// Lines behind the chunks.
    tail: BytesMut,
    bytes: usize,
    needs_flush: bool,
}

impl<W: AsyncWrite + Unpin> LineWriter<W> {
    pub(crate) fn new(output: W) -> Self {
        Self { output, chunks: VecDeque::new(), tail: BytesMut::new(), bytes: 0, needs_flush: false }
    }

    /// Queues one message without line breaks.
    pub(crate) fn push(&mut self, message: Bytes) {
        self.bytes += message.len() + 1;
        if message.len() <= MAX_COPIED {
            self.tail.extend_from_slice(&message);
        } else {
            self.end_chunk();
            self.chunks.push_back(message);
        }
        self.tail.extend_from_slice(b"\n");
    }

    fn end_chunk(&mut self) {
        if !self.tail.is_empty() {
            self.chunks.push_back(self.tail.split().freeze());
        }
    }

    /// Returns the number of bytes that are not written yet.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// Returns `true` if everything is written and flushed.
    pub(crate) fn is_done(&self) -> bool {
        self.bytes == 0 && !self.needs_flush
    }

    /// Writes everything that is queued. Cancel-safe.
    pub(crate) async fn write(&mut self) -> io::Result<()> {
        self.end_chunk();
        while let Some(chunk) = self.chunks.front_mut() {
            let written = self.output.write(chunk).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.needs_flush = true;
            self.bytes -= written;
            chunk.advance(written);
            if chunk.is_empty() {
                self.chunks.pop_front();
            }
        }
        self.output.flush().await?;
        self.needs_flush = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_config::GatewayLimits;

    async fn lines(input: &[u8], limit: usize) -> Vec<Line> {
        let mut reader = LineReader::new(input, limit);
        let mut lines = Vec::new();
        while let Some(line) = reader.next().await.unwrap() {
            lines.push(line);
        }
        lines
    }

    fn message(text: &str) -> Line {
        Line::Message(Bytes::copy_from_slice(text.as_bytes()))
    }

    #[tokio::test]
    async fn lines_are_split_and_blank_ones_ignored() {
        let input = b"\xEF\xBB\xBF{\"a\":1}\n\r\n  \n{\"b\":2}\r\n{\"c\":3}";
        assert_eq!(lines(input, 100).await, [message("{\"a\":1}"), message("{\"b\":2}"), message("{\"c\":3}")]);
    }

    #[tokio::test]
    async fn a_line_over_the_limit_is_skipped_and_reading_continues() {
        let long = "x".repeat(300_000);
        let input = format!("12345\n123456\n{long}\nok\n{long}");
        let expected = [message("12345"), Line::TooLong, Line::TooLong, message("ok"), Line::TooLong];
        assert_eq!(lines(input.as_bytes(), 5).await, expected);
    }

    #[tokio::test]
    async fn a_line_that_never_ends_takes_bounded_memory() {
        let (mut writer, reader) = tokio::io::duplex(CHUNK);
        let mut reader = LineReader::new(reader, CHUNK);
        let client = tokio::spawn(async move {
            for _ in 0..200 {
                writer.write_all(&[b'x'; CHUNK]).await.unwrap();
            }
            writer.write_all(b"\n{}\n").await.unwrap();
        });
        assert_eq!(reader.next().await.unwrap(), Some(Line::TooLong));
        assert!(reader.buffer.capacity() <= 4 * CHUNK, "{}", reader.buffer.capacity());
        assert_eq!(reader.next().await.unwrap(), Some(message("{}")));
        client.await.unwrap();
    }

    #[tokio::test]
    async fn long_lines_are_held_until_their_message_is_dropped() {
        let shares = Shares::new(&GatewayLimits::default());
        let (alice, held) = (Holdings::new(true), || shares.held(Resource::BodyBytes));
        let (mut writer, reader) = tokio::io::duplex(CHUNK);
        let mut reader = LineReader::new(reader, 100 << 20).with_budget(&shares, &alice);
        let share = shares.share(Resource::BodyBytes, &alice);
        let client = tokio::spawn(async move {
            for length in [1 << 20, share + 1, 10] {
                for _ in 0..length / CHUNK {
                    writer.write_all(&[b'x'; CHUNK]).await.unwrap();
                }
                writer.write_all(b"{}\n").await.unwrap();
            }
            writer
        });
        let Some(Line::Message(first)) = reader.next().await.unwrap() else { panic!("the line is not read") };
        assert!(first.len() == (1 << 20) + 2 && (1 << 20..4 << 20).contains(&held()), "{}", held());
        let slice = first.slice(..1);
        drop(first);
        assert!(held() > 1 << 20);
        drop(slice);
        assert_eq!(held(), 0);
        assert!(matches!(reader.next().await.unwrap(), Some(Line::NoRoom(ShareError::Principal { .. }))));
        assert_eq!(held(), 0);
        assert_eq!(reader.next().await.unwrap(), Some(message("{}")));
        drop(client.await.unwrap());
    }

    #[tokio::test]
    async fn messages_are_written_in_order_whatever_their_size() {
        let large = Bytes::from("l".repeat(MAX_COPIED + 1));
        let mut writer = LineWriter::new(Vec::new());
        for message in
            [Bytes::from_static(b"one"), Bytes::from_static(b"two"), large.clone(), Bytes::from_static(b"three")]
        {
            writer.push(message);
        }
        assert_eq!(writer.len(), 4 + 4 + large.len() + 1 + 6);
        writer.write().await.unwrap();
        assert!(writer.is_done());
        let expected = [b"one\ntwo\n".as_slice(), &large, b"\nthree\n"].concat();
        assert!(writer.output == expected);
    }

    #[tokio::test]
    async fn an_interrupted_write_continues() {
        let (output, mut reader) = tokio::io::duplex(10);
        let mut writer = LineWriter::new(output);
        writer.push(Bytes::from("x".repeat(25)));
        let interrupted = tokio::time::timeout(std::time::Duration::from_millis(10), writer.write());
        assert!(interrupted.await.is_err());
        assert_eq!(writer.len(), 16);
        let client = tokio::spawn(async move {
            let mut read = vec![0; 26];
            reader.read_exact(&mut read).await.map(|_| read)
        });
        writer.write().await.unwrap();
        assert_eq!(client.await.unwrap().unwrap(), [vec![b'x'; 25], vec![b'\n']].concat());
    }
}
