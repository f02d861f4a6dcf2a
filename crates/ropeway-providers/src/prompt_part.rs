//! A content part from a user or a tool, in a form that models accept.

use std::borrow::Cow;

use serde::{Serialize, Serializer};

use ropeway_core::content::{Blob, ContentPart, EmbeddedResource, ResourceContents, decode_base64, sniff_media_type};

/// Maximum base64 size for decoding a text blob.
const MAX_TEXT: usize = 4 << 20;

/// A content part in a form that models accept. Its base64 is valid, padded and without line breaks.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PromptPart<'a> {
    Text(Cow<'a, str>),
    Image(MediaData<'a>),
    Audio(MediaData<'a>),
    Pdf(MediaData<'a>),
    /// A text document.
    Document {
        name: Cow<'a, str>,
        text: Cow<'a, str>,
    },
}

/// Binary data.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MediaData<'a> {
    pub(super) mime_type: Cow<'a, str>,
    pub(super) name: Option<Cow<'a, str>>,
    pub(super) base64: Cow<'a, str>,
}

impl<'a> PromptPart<'a> {
    /// Converts a content part.
    pub(super) fn of(part: &'a ContentPart) -> Self {
        match part {
            ContentPart::Text { text, .. } => Self::Text(Cow::Borrowed(text)),
            ContentPart::Image(blob) => from_blob(blob, "image"),
            ContentPart::Audio(blob) => from_blob(blob, "audio"),
            ContentPart::Resource(resource) => from_resource(resource),
            ContentPart::ResourceLink(link) => Self::Text(link.describe().into()),
        }
    }

    /// Returns the text, or the media's text description.
    pub(super) fn into_text(self) -> Cow<'a, str> {
        match self {
            Self::Text(text) => text,
            Self::Image(data) => data.description("image").into(),
            Self::Audio(data) => data.description("sound").into(),
            Self::Pdf(data) => data.description("document").into(),
            Self::Document { name, text } => format!("[{name}]\n{text}").into(),
        }
    }
}

/// Serializes data as a `data:` URL (RFC 2397) without copying it.
#[derive(Debug)]
pub(super) struct DataUrl<'a>(pub(super) MediaData<'a>);

impl Serialize for DataUrl<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("data:{};base64,{}", self.0.mime_type, self.0.base64))
    }
}

impl MediaData<'_> {
    /// Returns a PDF's file name. Providers check its extension.
    pub(super) fn file_name(&self) -> String {
        let path = self.name.as_deref().unwrap_or_default().split(['?', '#']).next().unwrap_or_default();
        match path.rsplit(['/', '\\', ':']).next().unwrap_or_default() {
            "" => "document.pdf".to_owned(),
            name if name.to_ascii_lowercase().ends_with(".pdf") => name.to_owned(),
            name => format!("{name}.pdf"),
        }
    }

    /// Returns a one-line description.
    pub(super) fn description(&self, kind: &str) -> String {
        let name = self.name.as_deref().map(|name| format!(" `{name}`")).unwrap_or_default();
        let padding = self.base64.bytes().rev().take_while(|byte| *byte == b'=').count();
        let bytes = size(self.base64.len() / 4 * 3 - padding);
        format!("[{kind}{name}, {}, {bytes}: it cannot be shown here]", self.mime_type)
    }
}

/// Joins texts with line breaks.
pub(super) fn join_lines<'a>(texts: impl IntoIterator<Item = Cow<'a, str>>) -> Cow<'a, str> {
    let mut texts = texts.into_iter();
    let first = texts.next().unwrap_or_default();
    texts.fold(first, |mut all, text| {
        let growing = all.to_mut();
        growing.push('\n');
        growing.push_str(&text);
        all
    })
}

fn size(bytes: usize) -> String {
    match bytes {
        0..1000 => format!("{bytes} bytes"),
        1000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

fn from_blob<'a>(blob: &'a Blob, family: &str) -> PromptPart<'a> {
    match from_binary(Cow::Borrowed(&blob.mime_type), None, &blob.base64) {
        // An image or audio block never holds a PDF, even if its media type says so.
        PromptPart::Pdf(data) => PromptPart::Text(data.description(family).into()),
        part => part,
    }
}

fn from_resource(resource: &EmbeddedResource) -> PromptPart<'_> {
    match &resource.contents {
        ResourceContents::Text(text) => {
            PromptPart::Document { name: Cow::Borrowed(&resource.uri), text: Cow::Borrowed(text) }
        }
        ResourceContents::Blob(base64) => {
            let mime_type = resource.mime_type.as_deref().unwrap_or("application/octet-stream");
            from_binary(Cow::Borrowed(mime_type), Some(Cow::Borrowed(&resource.uri)), base64)
        }
    }
}

/// Converts binary data by its media type, corrected by its first bytes: providers reject an image whose type differs from the
/// declared one.
fn from_binary<'a>(mime_type: Cow<'a, str>, name: Option<Cow<'a, str>>, base64: &'a str) -> PromptPart<'a> {
    let Some(base64) = normalize_base64(base64) else {
        let name = name.map(|name| format!(" `{name}`")).unwrap_or_default();
        return PromptPart::Text(
            format!("[data{name}, {mime_type}: it is not valid base64, so it cannot be shown]").into(),
        );
    };
    let bare = mime_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let mime_type = match sniff(&base64) {
        Some(found) if same_family(&bare, found) => Cow::Borrowed(found),
        _ if bare == "image/jpg" => Cow::Borrowed("image/jpeg"),
        _ => Cow::Owned(bare),
    };
    let is_text = mime_type.starts_with("text/")
        || matches!(&*mime_type, "application/json" | "application/xml" | "image/svg+xml")
        || mime_type.ends_with("+json")
        || mime_type.ends_with("+xml");
    if is_text
        && base64.len() <= MAX_TEXT
        && let Some(text) = decode_base64(&base64).ok().and_then(|bytes| String::from_utf8(bytes).ok())
    {
        let name = name.unwrap_or(mime_type);
        return PromptPart::Document { name, text: text.into() };
    }
    let data = MediaData { mime_type, name, base64 };
    match &*data.mime_type {
        "image/png" | "image/jpeg" | "image/gif" | "image/webp" => PromptPart::Image(data),
        "application/pdf" => PromptPart::Pdf(data),
        mime if mime.starts_with("audio/") => PromptPart::Audio(data),
        mime if mime.starts_with("image/") => PromptPart::Text(data.description("image").into()),
        _ => PromptPart::Text(data.description("data").into()),
    }
}

/// Returns `true` if two media types agree up to the subtype. `RIFF` starts both audio and images.
fn same_family(declared: &str, found: &str) -> bool {
    let family = |mime: &str| mime.split('/').next().map(str::to_owned);
    declared == "application/octet-stream" || family(declared) == family(found)
}

/// Detects the media type by the first bytes.
fn sniff(base64: &str) -> Option<&'static str> {
    let head = base64.get(..16)?;
    sniff_media_type(&decode_base64(head).ok()?)
}

/// Converts base64 to the standard alphabet, padded and without line breaks. Returns `None` if it is invalid.
fn normalize_base64(base64: &str) -> Option<Cow<'_, str>> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let bare = base64.trim_end_matches('=');
    if bare.bytes().all(is_valid) && base64.len().is_multiple_of(4) && base64.len() - bare.len() <= 2 {
        return (!bare.is_empty()).then_some(Cow::Borrowed(base64));
    }
    let mut normalized: String = base64
        .chars()
        .filter(|c| !c.is_ascii_whitespace() && *c != '=')
        .map(|c| match c {
            '-' => '+',
            '_' => '/',
            other => other,
        })
        .collect();
    if normalized.is_empty() || normalized.len() % 4 == 1 || !normalized.bytes().all(is_valid) {
        return None;
    }
    while !normalized.len().is_multiple_of(4) {
        normalized.push('=');
    }
    Some(Cow::Owned(normalized))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PNG: &str = "iVBORw0KGgoAAAANSUhEUg==";

    fn part(block: serde_json::Value) -> ContentPart {
        serde_json::from_value(block).expect("a part")
    }

    fn image<'a>(mime_type: &'a str, base64: &'a str) -> PromptPart<'a> {
        PromptPart::Image(MediaData { mime_type: mime_type.into(), name: None, base64: base64.into() })
    }

    #[test]
    fn the_type_of_an_image_is_detected_by_its_bytes() {
        for declared in ["image/png", "image/jpeg", "image/jpg", "IMAGE/PNG; q=1", "image/x-odd"] {
            let part = part(json!({"type": "image", "data": PNG, "mimeType": declared}));
            assert_eq!(PromptPart::of(&part), image("image/png", PNG), "{declared}");
        }
        let unknown = part(json!({"type": "image", "data": "AAAA", "mimeType": "image/jpg"}));
        assert_eq!(PromptPart::of(&unknown), image("image/jpeg", "AAAA"));
    }

    #[test]
    fn unsupported_image_types_are_described() {
        let kinds = [
            ("AAAAHGZ0eXBhdmlm", "image/avif"),
            ("AAAAHGZ0eXBoZWlj", "image/heic"),
            ("AAAAHGZ0eXBtaWYx", "image/heif"),
            ("Qk1GAAAAAAAAADYA", "image/bmp"),
            ("SUkqAAgAAAAAAAAA", "image/tiff"),
            ("TU0AKgAAAAgAAAAA", "image/tiff"),
        ];
        for (base64, found) in kinds {
            let part = part(json!({"type": "image", "data": base64, "mimeType": "image/jpeg"}));
            let line = format!("[image, {found}, 12 bytes: it cannot be shown here]");
            assert_eq!(PromptPart::of(&part), PromptPart::Text(line.into()));
        }
    }

    #[test]
    fn base64_is_normalized_and_invalid_base64_is_described() {
        for base64 in ["iVBORw0KGgoAAAANSUhEUg", "iVBORw0K\nGgoAAAAN\r\nSUhEUg==\n", " iVBORw0KGgoAAAANSUhEUg="] {
            let part = part(json!({"type": "image", "data": base64, "mimeType": "image/png"}));
            assert_eq!(PromptPart::of(&part), image("image/png", PNG), "{base64}");
        }
        for broken in ["", "====", "iVBORw0K!", "AAAAA"] {
            let part = part(json!({"type": "image", "data": broken, "mimeType": "image/png"}));
            let expected = "[data, image/png: it is not valid base64, so it cannot be shown]";
            assert_eq!(PromptPart::of(&part), PromptPart::Text(expected.into()), "{broken}");
        }
    }

    #[test]
    fn a_resource_is_an_image_audio_a_document_or_text() {
        let resource = |mime: &str, blob: &str| {
            part(json!({"type": "resource", "resource": {"uri": "file:///a", "mimeType": mime, "blob": blob}}))
        };
        let named = |mime: &'static str, base64: &'static str| MediaData {
            mime_type: mime.into(),
            name: Some("file:///a".into()),
            base64: base64.into(),
        };
        assert_eq!(
            PromptPart::of(&resource("application/octet-stream", PNG)),
            PromptPart::Image(named("image/png", PNG))
        );
        assert_eq!(PromptPart::of(&resource("audio/wav", "AAAA")), PromptPart::Audio(named("audio/wav", "AAAA")));
        assert_eq!(
            PromptPart::of(&resource("application/pdf", "JVBERi0x")),
            PromptPart::Pdf(named("application/pdf", "JVBERi0x"))
        );
        let json = PromptPart::Document { name: "file:///a".into(), text: "{}".into() };
        assert_eq!(PromptPart::of(&resource("application/json", "e30=")), json);
        let zip = "[data `file:///a`, application/zip, 3 bytes: it cannot be shown here]";
        assert_eq!(PromptPart::of(&resource("application/zip", "AAAA")), PromptPart::Text(zip.into()));
        let text = part(json!({"type": "resource", "resource": {"uri": "file:///b", "text": "hello"}}));
        assert_eq!(PromptPart::of(&text).into_text(), "[file:///b]\nhello");
    }

    #[test]
    fn unsupported_media_are_described_in_one_line() {
        let sound = part(json!({"type": "audio", "data": "A".repeat(4000), "mimeType": "audio/ogg"}));
        assert_eq!(PromptPart::of(&sound).into_text(), "[sound, audio/ogg, 3.0 kB: it cannot be shown here]");
        let tiff = part(json!({"type": "image", "data": "AAAA", "mimeType": "image/tiff"}));
        assert_eq!(PromptPart::of(&tiff).into_text(), "[image, image/tiff, 3 bytes: it cannot be shown here]");
        let link = part(
            json!({"type": "resource_link", "uri": "file:///a", "name": "a", "mimeType": "text/x", "description": "d"}),
        );
        assert_eq!(PromptPart::of(&link).into_text(), "[resource `a`, file:///a, text/x: d]");
        let bare = part(json!({"type": "resource_link", "uri": "file:///a"}));
        assert_eq!(PromptPart::of(&bare).into_text(), "[resource file:///a]");
    }

    #[test]
    fn an_svg_image_is_a_text_document() {
        let svg = part(json!({"type": "image", "data": "PHN2Zy8+", "mimeType": "image/svg+xml"}));
        assert_eq!(PromptPart::of(&svg), PromptPart::Document { name: "image/svg+xml".into(), text: "<svg/>".into() });
    }
}
