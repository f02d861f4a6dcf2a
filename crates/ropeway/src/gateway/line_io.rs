//! JSON lines on byte streams: bounded when read, batched when written.

use std::collections::VecDeque;
use std::io;

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Minimum size of a read.
const CHUNK: usize = 64 << 10;

/// A larger empty buffer is replaced by a small one.
const MAX_RETAINED: usize = 1 << 20;

/// Maximum size of a message that is copied to be written together with others.
const MAX_COPIED: usize = 16 << 10;

/// One line of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A line that is not blank.
    Message(Bytes),
    /// A line over the limit, which was skipped.
    TooLong,
}

/// Reads lines.
pub(crate) struct LineReader<R> {
    input: R,
    buffer: BytesMut,
    /// Length of the buffer's beginning that contains no newline.
    searched: usize,
    /// Whether the rest of a line over the limit is skipped.
    is_skipping: bool,
    limit: usize,
    has_ended: bool,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(crate) fn new(input: R, limit: usize) -> Self {
        Self { input, buffer: BytesMut::new(), searched: 0, is_skipping: false, limit, has_ended: false }
    }

    /// Changes the maximum length of a line.
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
            self.buffer.reserve(CHUNK.max(self.buffer.len()));
        }
    }

    /// Takes the first complete line that is not blank out of the buffer.
    fn split(&mut self) -> Option<Line> {
        while let Some(end) = memchr::memchr(b'\n', &self.buffer[self.searched..]) {
            let line = self.buffer.split_to(self.searched + end + 1).freeze();
            self.searched = 0;
            if std::mem::take(&mut self.is_skipping) || line.len() > self.limit.saturating_add(1) {
                return Some(Line::TooLong);
            }
            let text = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&line).trim_ascii();
            if !text.is_empty() {
                return Some(Line::Message(line.slice_ref(text)));
            }
        }
        self.searched = self.buffer.len();
        if self.buffer.len() > self.limit || self.is_skipping {
            self.is_skipping = true;
            self.buffer.clear();
            self.searched = 0;
        }
        None
    }
}

/// Writes lines. Small ones that wait are written together.
pub(crate) struct LineWriter<W> {
    output: W,
    /// Complete parts of the output.
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
