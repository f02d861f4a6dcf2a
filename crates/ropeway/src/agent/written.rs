//! An output as it is written down: its text in one piece, and lines in the place of its data.

use std::borrow::Cow;

use crate::content::{Blob, ContentPart, EmbeddedResource, ResourceContents, SharedText, decode_base64};

/// A cut goes back to the end of a line that is at most this many bytes away.
const NEAR: usize = 200;

/// A name in a line is told up to this many bytes.
const LONGEST_NAME: usize = 500;

/// One part of an output as it is written down.
#[derive(Debug)]
pub(super) enum Written<'a> {
    /// Text, below a line that names it where it has a name.
    Text {
        /// The line, with its end; empty where there is no name.
        head: Cow<'a, str>,
        /// The text.
        body: Cow<'a, str>,
    },
    /// What is not text.
    Data(Data<'a>),
}

/// Binary data of a part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data<'a> {
    kind: &'static str,
    name: Option<&'a str>,
    mime_type: &'a str,
    base64: &'a str,
    /// The same, where its memory can be shared.
    shared: Option<&'a SharedText>,
}

impl<'a> Written<'a> {
    pub(super) fn of(part: &'a ContentPart) -> Self {
        let named = |name: &str, body: Cow<'a, str>| Self::Text { head: format!("[{name}]\n").into(), body };
        let of_data = |name: &str, data: Data<'a>| match data.text() {
            Some(text) => named(name, text.into()),
            None => Self::Data(data),
        };
        match part {
            ContentPart::Text(part) => Self::Text { head: Cow::Borrowed(""), body: Cow::Borrowed(&part.text) },
            ContentPart::ResourceLink(link) => Self::Text { head: Cow::Borrowed(""), body: link.describe().into() },
            ContentPart::Image(blob) => of_data(&blob.mime_type, Data::of_blob("image", blob)),
            ContentPart::Audio(blob) => of_data(&blob.mime_type, Data::of_blob("sound", blob)),
            ContentPart::Resource(resource) => match &resource.contents {
                ResourceContents::Text(text) => named(&resource.uri, Cow::Borrowed(text)),
                ResourceContents::Blob(base64) => of_data(&resource.uri, Data::of_resource(resource, base64)),
            },
        }
    }

    /// How many bytes it is.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Text { head, body } => head.len() + body.len(),
            Self::Data(data) => data.line("").len(),
        }
    }
}

/// How many bytes an output is when it is written down, a line break between two parts.
pub(super) fn written_len(content: &[ContentPart]) -> usize {
    let parts: usize = content.iter().map(|part| Written::of(part).len()).sum();
    parts + content.len().saturating_sub(1)
}

impl<'a> Data<'a> {
    /// The data of a part that has some.
    pub(super) fn of(part: &'a ContentPart) -> Option<Self> {
        match part {
            ContentPart::Image(blob) => Some(Self::of_blob("image", blob)),
            ContentPart::Audio(blob) => Some(Self::of_blob("sound", blob)),
            ContentPart::Resource(resource) => match &resource.contents {
                ResourceContents::Blob(base64) => Some(Self::of_resource(resource, base64)),
                ResourceContents::Text(_) => None,
            },
            ContentPart::Text(_) | ContentPart::ResourceLink(_) => None,
        }
    }

    fn of_blob(kind: &'static str, blob: &'a Blob) -> Self {
        Self { kind, name: None, mime_type: &blob.mime_type, base64: &blob.base64, shared: Some(&blob.base64) }
    }

    fn of_resource(resource: &'a EmbeddedResource, base64: &'a str) -> Self {
        let mime_type = resource.mime_type.as_deref().unwrap_or("application/octet-stream");
        Self { kind: "data", name: Some(&resource.uri), mime_type, base64, shared: None }
    }

    /// What it weighs in a request.
    pub(super) fn weight(&self) -> usize {
        self.base64.len() + self.mime_type.len() + self.name.map_or(0, str::len)
    }

    /// How many bytes it stands for; line breaks in the base64 are not looked for.
    pub(super) fn size(&self) -> usize {
        let bare = self.base64.trim_end_matches(['=', '\n', '\r']).len();
        bare / 4 * 3 + bare % 4 * 3 / 4
    }

    /// Is it called text? Providers show such data as text.
    pub(super) fn is_called_text(&self) -> bool {
        let mime_type = self.essence();
        mime_type.starts_with("text/")
            || matches!(&*mime_type, "application/json" | "application/xml")
            || mime_type.ends_with("+json")
            || mime_type.ends_with("+xml")
    }

    fn text(&self) -> Option<String> {
        if !self.is_called_text() {
            return None;
        }
        decode_base64(self.base64).ok().and_then(|bytes| String::from_utf8(bytes).ok())
    }

    fn essence(&self) -> String {
        self.mime_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }

    /// A line that says what it was, and what has become of it.
    pub(super) fn line(&self, fate: &str) -> String {
        let name = self.name.map(|name| format!(" `{}`", in_a_line(name))).unwrap_or_default();
        format!("[{}{name}, {}, {}{fate}]", self.kind, in_a_line(self.mime_type), size(self.size()))
    }

    /// The data for somebody who lives longer.
    pub(super) fn share(&self) -> SharedText {
        self.shared.cloned().unwrap_or_else(|| self.base64.into())
    }

    /// How the name of a file of it ends. From a table: what a server says does not become a part of a path.
    pub(super) fn extension(&self) -> &'static str {
        match &*self.essence() {
            "image/png" => "png",
            "image/jpeg" | "image/jpg" => "jpg",
            "image/gif" => "gif",
            "image/webp" => "webp",
            "image/svg+xml" => "svg",
            "audio/wav" | "audio/x-wav" | "audio/wave" => "wav",
            "audio/mpeg" | "audio/mp3" => "mp3",
            "audio/ogg" => "ogg",
            "audio/flac" => "flac",
            "video/mp4" => "mp4",
            "application/pdf" => "pdf",
            "application/zip" => "zip",
            _ => "bin",
        }
    }
}

/// Where a text that is too long for the room ends: between two characters, at the end of a line if one is near.
pub(super) fn cut_at(text: &str, room: usize) -> usize {
    if text.len() <= room {
        return text.len();
    }
    let end = text.floor_char_boundary(room);
    // In little room, nothing is near.
    let near = end - (room / 8).min(NEAR).min(end);
    let line_break = text.as_bytes()[near..end].iter().rposition(|byte| *byte == b'\n');
    line_break.map_or(end, |at| near + at + 1)
}

/// A number as people read it: `50,000`.
pub(super) fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A name that came from outside, as far as a line has room for it.
pub(super) fn in_a_line(name: &str) -> String {
    let end = name.floor_char_boundary(LONGEST_NAME);
    let mut line: String = name[..end].chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if end < name.len() {
        line.push('…');
    }
    line
}

fn size(bytes: usize) -> String {
    match bytes {
        0..1000 => format!("{bytes} bytes"),
        1000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn part(block: serde_json::Value) -> ContentPart {
        serde_json::from_value(block).expect("a part")
    }

    fn written(block: serde_json::Value) -> String {
        match Written::of(&part(block)) {
            Written::Text { head, body } => format!("{head}{body}"),
            Written::Data(data) => data.line(""),
        }
    }

    #[test]
    fn every_kind_of_part_has_a_text() {
        assert_eq!(written(json!({"type": "text", "text": "a\nb"})), "a\nb");
        assert_eq!(
            written(json!({"type": "resource", "resource": {"uri": "file:///a", "text": "b"}})),
            "[file:///a]\nb"
        );
        assert_eq!(
            written(json!({"type": "image", "data": "AAAA", "mimeType": "image/png"})),
            "[image, image/png, 3 bytes]"
        );
        assert_eq!(
            written(json!({"type": "audio", "data": "A".repeat(4000), "mimeType": "audio/ogg"})),
            "[sound, audio/ogg, 3.0 kB]"
        );
        assert_eq!(
            written(json!({"type": "resource", "resource": {"uri": "file:///z\n", "blob": "AA=="}})),
            "[data `file:///z `, application/octet-stream, 1 bytes]"
        );
        assert_eq!(
            written(json!({"type": "resource_link", "uri": "file:///a", "name": "a", "description": "d"})),
            "[resource `a`, file:///a: d]"
        );
    }

    #[test]
    fn data_that_is_called_text_and_is_some_is_text() {
        let resource = json!({"type": "resource", "resource": {"uri": "a:b", "mimeType": "Application/JSON; x=1", "blob": "e30="}});
        assert_eq!(written(resource), "[a:b]\n{}");
        let drawing = json!({"type": "image", "data": "PHN2Zy8+", "mimeType": "image/svg+xml"});
        assert_eq!(written(drawing), "[image/svg+xml]\n<svg/>");
        let broken = json!({"type": "resource", "resource": {"uri": "a:b", "mimeType": "text/plain", "blob": "/w=="}});
        assert_eq!(written(broken), "[data `a:b`, text/plain, 1 bytes]");
    }

    #[test]
    fn numbers_have_commas_between_thousands() {
        assert_eq!([0, 999, 1000, 50_000, 1_234_567].map(thousands), ["0", "999", "1,000", "50,000", "1,234,567"]);
    }

    #[test]
    fn the_size_of_data_is_that_of_what_it_decodes_to() {
        for length in 0..20 {
            let part = ContentPart::Image(Blob::new("image/png", &vec![7; length]));
            assert_eq!(Data::of(&part).map(|data| data.size()), Some(length));
        }
    }

    #[test]
    fn a_cut_goes_back_to_the_end_of_a_line_that_is_near() {
        let text = format!("{}\n{}", "a".repeat(1900), "b".repeat(300));
        assert_eq!(cut_at(&text, 2000), 1901);
        assert_eq!(cut_at(&text, 2150), 2150, "the line ends too far back");
        assert_eq!(cut_at(&text, 5000), text.len());
        assert_eq!(cut_at("a\nbbbbbbbbbbbbbbbbb", 10), 10, "in little room nothing is near");
    }

    proptest! {
        #[test]
        fn a_cut_is_between_characters_and_within_the_room(text in "(\\PC|\n){0,80}", room in 0usize..400) {
            let cut = cut_at(&text, room);
            prop_assert!(text.is_char_boundary(cut) && cut <= room);
            prop_assert!(cut + 200 + 4 > room.min(text.len()), "no more is left out than must be");
        }
    }
}
