//! Pages of stored outputs.

use std::io::{self, Read};

use memchr::{memmem, memrchr};

use super::output_store::{StoredText, TextReader};
use super::rendered::{cut_position, thousands};
use ropeway_core::content::ContentPart;

/// Size of the pieces in which a text is searched.
pub(super) const CHUNK: usize = 64 << 10;

/// Bytes shown before a match in a line that is longer than a page.
const BYTES_BEFORE_MATCH: u64 = 200;

/// One page of a stored output.
pub(super) struct Page {
    start: u64,
    text: String,
}

impl Page {
    /// Reads at most `page` bytes as a page. With `find`, the page begins at the next line that contains it; `None` if no line
    /// does.
    pub(super) fn read(
        text: &StoredText,
        length: u64,
        from: u64,
        find: Option<&str>,
        page: usize,
    ) -> io::Result<Option<Self>> {
        let mut file = text.open()?;
        let mut start = from;
        if let Some(find) = find {
            match find_line(&mut file, from, find.as_bytes(), page as u64)? {
                Some(found) => start = found,
                None => return Ok(None),
            }
        }
        // A page that would begin inside a character begins with it.
        let early = start.saturating_sub(3);
        file.seek(early);
        let mut bytes = Vec::new();
        file.take((start - early).saturating_add(page as u64)).read_to_end(&mut bytes)?;
        let mut skip = ((start - early) as usize).min(bytes.len());
        while skip > 0 && skip < bytes.len() && is_continuation(bytes[skip]) {
            skip -= 1;
        }
        start = early + skip as u64;
        bytes.drain(..skip);
        if bytes.is_empty() && start < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let is_end = start + bytes.len() as u64 >= length;
        if !is_end
            && let Err(error) = std::str::from_utf8(&bytes)
            && error.error_len().is_none()
        {
            bytes.truncate(error.valid_up_to());
        }
        let mut text = String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        // With another character after the text, the cut moves back to a line break if one is near.
        if !is_end || text.len() > page {
            text.truncate(cut_position(&format!("{text} "), text.len().min(page)));
        }
        Ok(Some(Self { start, text }))
    }

    /// Returns the page's text and a footer that says where to continue.
    pub(super) fn render(mut self, output: &str, length: u64) -> String {
        let end = self.start + self.text.len() as u64;
        let next = if end >= length { "end of output".to_owned() } else { format!("continue with from {end}") };
        let [start, to, of] = [self.start, end, length].map(|number| thousands(number as usize));
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        self.text.push_str(&format!("[bytes {start} to {to} of {of} of output {output}; {next}]"));
        self.text
    }
}

/// Shortens a rendered page to `room` text bytes and adapts its footer. Returns `None` if the content is not a page.
pub(super) fn shorten(page: &[ContentPart], room: usize) -> Option<Vec<ContentPart>> {
    let [ContentPart::Text { text, .. }] = page else { return None };
    let (text, footer) = text.rsplit_once("[bytes ")?;
    if text.len() <= room {
        return Some(page.to_vec());
    }
    let (start, footer) = footer.split_once(" to ")?;
    let (length, footer) = footer.split_once(" of ")?.1.split_once(" of output ")?;
    let (output, _) = footer.rsplit_once("; ")?;
    let number = |text: &str| text.replace(',', "").parse().ok();
    let page = Page { start: number(start)?, text: text[..cut_position(text, room)].to_owned() };
    Some(vec![ContentPart::text(page.render(output, number(length)?))])
}

/// Returns `true` for a UTF-8 character's bytes other than its first.
fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// Returns the start of the next line that contains the text at or after `from`; never less than `from`. In a line that is longer
/// than a page, returns a position shortly before the text.
fn find_line(file: &mut TextReader, from: u64, text: &[u8], page: u64) -> io::Result<Option<u64>> {
    let finder = memmem::Finder::new(text);
    file.seek(from);
    let mut window = Vec::with_capacity(CHUNK + text.len());
    // The window's offset, and the offset of the line that it begins in.
    let (mut offset, mut line) = (from, from);
    loop {
        let read = file.by_ref().take(CHUNK as u64).read_to_end(&mut window)?;
        if let Some(at) = finder.find(&window) {
            let found = offset + at as u64;
            let line = memrchr(b'\n', &window[..at]).map_or(line, |end| offset + end as u64 + 1);
            let is_far = found + text.len() as u64 > line.saturating_add(page);
            let before = || found.saturating_sub(BYTES_BEFORE_MATCH.min(page / 2)).max(line);
            return Ok(Some(if is_far { before() } else { line }));
        }
        if read == 0 {
            return Ok(None);
        }
        // The text may begin at the end of the window.
        let done = window.len() - window.len().min(text.len() - 1);
        if let Some(end) = memrchr(b'\n', &window[..done]) {
            line = offset + end as u64 + 1;
        }
        window.drain(..done);
        offset += done as u64;
    }
}
