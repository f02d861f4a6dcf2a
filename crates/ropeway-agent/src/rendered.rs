//! Output rendering: all of an output as one text, with a line for each piece of binary data.

use std::borrow::Cow;

pub(crate) use ropeway_core::content::{
    Blob, ContentPart, EmbeddedResource, ResourceContents, SharedText, decode_base64,
};

/// Maximum bytes between a cut and the line break before it that the cut moves back to.
const MAX_STEP_BACK: usize = 200;

/// Maximum bytes for a name in a line.
const MAX_NAME: usize = 500;

/// One part of an output, rendered.
#[derive(Debug)]
pub(super) enum RenderedPart<'a> {
    /// Text, after a line with its name if it has one.
    Text {
        /// The line with the name and its line break, or nothing.
        head: Cow<'a, str>,
        body: Cow<'a, str>,
    },
    /// Data that is not text.
    Binary(BinaryData<'a>),
}

/// A part's binary data.
#[derive(Clone, Copy, Debug)]
pub(super) struct BinaryData<'a> {
    kind: &'static str,
    name: Option<&'a str>,
    mime_type: &'a str,
    base64: &'a str,
    /// The same base64, if it can be shared without a copy.
    shared: Option<&'a SharedText>,
}

impl<'a> RenderedPart<'a> {
    pub(super) fn new(part: &'a ContentPart) -> Self {
        let named = |name: &str, body: Cow<'a, str>| Self::Text { head: format!("[{name}]\n").into(), body };
        let of_data = |name: &str, data: BinaryData<'a>| match data.text() {
            Some(text) => named(name, text.into()),
            None => Self::Binary(data),
        };
        match part {
            ContentPart::Text { text, .. } => Self::Text { head: Cow::Borrowed(""), body: Cow::Borrowed(text) },
            ContentPart::ResourceLink(link) => Self::Text { head: Cow::Borrowed(""), body: link.describe().into() },
            ContentPart::Image(blob) => of_data(&blob.mime_type, BinaryData::of_blob("image", blob)),
            ContentPart::Audio(blob) => of_data(&blob.mime_type, BinaryData::of_blob("audio", blob)),
            ContentPart::Resource(resource) => match &resource.contents {
                ResourceContents::Text(text) => named(&resource.uri, Cow::Borrowed(text)),
                ResourceContents::Blob(base64) => of_data(&resource.uri, BinaryData::of_resource(resource, base64)),
            },
        }
    }

    /// Returns its length in bytes.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Text { head, body } => head.len() + body.len(),
            Self::Binary(data) => data.line("").len(),
        }
    }
}

/// Returns a rendered output's length in bytes, with line breaks between parts.
pub(super) fn rendered_len(content: &[ContentPart]) -> usize {
    let parts: usize = content.iter().map(|part| RenderedPart::new(part).len()).sum();
    parts + content.len().saturating_sub(1)
}

impl<'a> BinaryData<'a> {
    /// Returns a part's data, if it has any.
    pub(super) fn of(part: &'a ContentPart) -> Option<Self> {
        match part {
            ContentPart::Image(blob) => Some(Self::of_blob("image", blob)),
            ContentPart::Audio(blob) => Some(Self::of_blob("audio", blob)),
            ContentPart::Resource(resource) => match &resource.contents {
                ResourceContents::Blob(base64) => Some(Self::of_resource(resource, base64)),
                ResourceContents::Text(_) => None,
            },
            ContentPart::Text { .. } | ContentPart::ResourceLink(_) => None,
        }
    }

    fn of_blob(kind: &'static str, blob: &'a Blob) -> Self {
        Self { kind, name: None, mime_type: &blob.mime_type, base64: &blob.base64, shared: Some(&blob.base64) }
    }

    fn of_resource(resource: &'a EmbeddedResource, base64: &'a str) -> Self {
        let mime_type = resource.mime_type.as_deref().unwrap_or("application/octet-stream");
        Self { kind: "data", name: Some(&resource.uri), mime_type, base64, shared: None }
    }

    /// Returns how many bytes it adds to a model request.
    pub(super) fn request_bytes(&self) -> usize {
        self.base64.len() + self.mime_type.len() + self.name.map_or(0, str::len)
    }

    /// Returns the decoded data's length. Line breaks inside the base64 are counted as data.
    pub(super) fn decoded_len(&self) -> usize {
        let bare = self.base64.trim_end_matches(['=', '\n', '\r']).len();
        bare / 4 * 3 + bare % 4 * 3 / 4
    }

    /// Returns `true` if the MIME type is a text type. Providers send such data as text.
    pub(super) fn has_text_type(&self) -> bool {
        let mime_type = self.essence();
        mime_type.starts_with("text/")
            || matches!(&*mime_type, "application/json" | "application/xml")
            || mime_type.ends_with("+json")
            || mime_type.ends_with("+xml")
    }

    fn text(&self) -> Option<String> {
        if !self.has_text_type() {
            return None;
        }
        decode_base64(self.base64).ok().and_then(|bytes| String::from_utf8(bytes).ok())
    }

    fn essence(&self) -> String {
        self.mime_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }

    /// Returns a line that describes the data, followed by a notice.
    pub(super) fn line(&self, notice: &str) -> String {
        let name = self.name.map(|name| format!(" `{}`", single_line(name))).unwrap_or_default();
        format!("[{}{name}, {}, {}{notice}]", self.kind, single_line(self.mime_type), format_size(self.decoded_len()))
    }

    /// Returns the base64 as a value that outlives the part.
    pub(super) fn share(&self) -> SharedText {
        self.shared.cloned().unwrap_or_else(|| self.base64.into())
    }

    /// Returns the file extension, from a fixed table: server text must not become part of a path.
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

/// Returns where to cut a text to at most `room` bytes: between two characters, and after a line break if one is near.
pub(super) fn cut_position(text: &str, room: usize) -> usize {
    if text.len() <= room {
        return text.len();
    }
    let end = text.floor_char_boundary(room);
    // With little room, give up only a small part of it.
    let near = end - (room / 8).min(MAX_STEP_BACK).min(end);
    let line_break = text.as_bytes()[near..end].iter().rposition(|byte| *byte == b'\n');
    line_break.map_or(end, |at| near + at + 1)
}

/// Formats a number with thousands separators: `50,000`.
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

/// Returns an untrusted name as a single line with limited length.
pub(super) fn single_line(name: &str) -> String {
    let end = name.floor_char_boundary(MAX_NAME);
    let mut line: String = name[..end].chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if end < name.len() {
        line.push('…');
    }
    line
}

fn format_size(bytes: usize) -> String {
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

    fn rendered(block: serde_json::Value) -> String {
        match RenderedPart::new(&part(block)) {
            RenderedPart::Text { head, body } => format!("{head}{body}"),
            RenderedPart::Binary(data) => data.line(""),
        }
    }

    #[test]
    fn every_kind_of_part_is_rendered() {
        assert_eq!(rendered(json!({"type": "text", "text": "a\nb"})), "a\nb");
        assert_eq!(
            rendered(json!({"type": "resource", "resource": {"uri": "file:///a", "text": "b"}})),
            "[file:///a]\nb"
        );
        assert_eq!(
            rendered(json!({"type": "image", "data": "AAAA", "mimeType": "image/png"})),
            "[image, image/png, 3 bytes]"
        );
        assert_eq!(
            rendered(json!({"type": "audio", "data": "A".repeat(4000), "mimeType": "audio/ogg"})),
            "[audio, audio/ogg, 3.0 kB]"
        );
        assert_eq!(
            rendered(json!({"type": "resource", "resource": {"uri": "file:///z\n", "blob": "AA=="}})),
            "[data `file:///z `, application/octet-stream, 1 bytes]"
        );
        assert_eq!(
            rendered(json!({"type": "resource_link", "uri": "file:///a", "name": "a", "description": "d"})),
            "[resource `a`, file:///a: d]"
        );
    }

    #[test]
    fn data_with_a_text_type_and_valid_utf8_is_text() {
        let resource = json!({"type": "resource", "resource": {"uri": "a:b", "mimeType": "Application/JSON; x=1", "blob": "e30="}});
        assert_eq!(rendered(resource), "[a:b]\n{}");
        let drawing = json!({"type": "image", "data": "PHN2Zy8+", "mimeType": "image/svg+xml"});
        assert_eq!(rendered(drawing), "[image/svg+xml]\n<svg/>");
        let broken = json!({"type": "resource", "resource": {"uri": "a:b", "mimeType": "text/plain", "blob": "/w=="}});
        assert_eq!(rendered(broken), "[data `a:b`, text/plain, 1 bytes]");
    }

    #[test]
    fn numbers_have_commas_between_thousands() {
        assert_eq!([0, 999, 1000, 50_000, 1_234_567].map(thousands), ["0", "999", "1,000", "50,000", "1,234,567"]);
    }

    #[test]
    fn the_size_of_data_is_its_decoded_length() {
        for length in 0..20 {
            let part = ContentPart::Image(Blob::new("image/png", &vec![7; length]));
            assert_eq!(BinaryData::of(&part).map(|data| data.decoded_len()), Some(length));
        }
    }

    #[test]
    fn a_cut_moves_back_to_a_line_break_that_is_near() {
        let text = format!("{}\n{}", "a".repeat(1900), "b".repeat(300));
        assert_eq!(cut_position(&text, 2000), 1901);
        assert_eq!(cut_position(&text, 2150), 2150, "the line break is too far away");
        assert_eq!(cut_position(&text, 5000), text.len());
        assert_eq!(cut_position("a\nbbbbbbbbbbbbbbbbb", 10), 10, "no line break is near with little room");
    }

    proptest! {
        #[test]
        fn a_cut_is_between_characters_and_within_the_limit(text in "(\\PC|\n){0,80}", room in 0usize..400) {
            let cut = cut_position(&text, room);
            prop_assert!(text.is_char_boundary(cut) && cut <= room);
            prop_assert!(cut + 200 + 4 > room.min(text.len()), "no more is omitted than necessary");
        }
    }
}
