//! A piece: a content part as models take it, be it of a person or of a tool.

use std::borrow::Cow;

use serde::{Serialize, Serializer};

use crate::content::{Blob, ContentPart, EmbeddedResource, ResourceContents, decode_base64, sniff_media_type};

/// A text in a blob is shown up to this many bytes of base64.
const MOST_TEXT: usize = 4 << 20;

/// A content part as models take it. Base64 in it is valid, without line breaks, and padded.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Piece<'a> {
    /// Text.
    Text(Cow<'a, str>),
    /// A picture.
    Image(Data<'a>),
    /// A sound.
    Audio(Data<'a>),
    /// A PDF.
    Pdf(Data<'a>),
    /// A text that has a name.
    Document {
        /// What it is called.
        name: Cow<'a, str>,
        /// What it says.
        text: Cow<'a, str>,
    },
}

/// Binary data.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Data<'a> {
    /// The media type.
    pub(super) mime_type: Cow<'a, str>,
    /// What it is called, if it has a name.
    pub(super) name: Option<Cow<'a, str>>,
    /// The data as base64.
    pub(super) base64: Cow<'a, str>,
}

impl<'a> Piece<'a> {
    /// What a part is for a model.
    pub(super) fn of(part: &'a ContentPart) -> Self {
        match part {
            ContentPart::Text(part) => Self::Text(Cow::Borrowed(&part.text)),
            ContentPart::Image(blob) => blob_piece(blob, "image"),
            ContentPart::Audio(blob) => blob_piece(blob, "audio"),
            ContentPart::Resource(resource) => resource_piece(resource),
            ContentPart::ResourceLink(link) => Self::Text(link.describe().into()),
        }
    }

    /// The same in words, for a model that can take nothing else.
    pub(super) fn into_text(self) -> Cow<'a, str> {
        match self {
            Self::Text(text) => text,
            Self::Image(data) => data.line("image").into(),
            Self::Audio(data) => data.line("sound").into(),
            Self::Pdf(data) => data.line("document").into(),
            Self::Document { name, text } => format!("[{name}]\n{text}").into(),
        }
    }
}

/// Data that is made a `data:` URL of while it is written, and so is never copied for it.
#[derive(Debug)]
pub(super) struct DataUrl<'a>(pub(super) Data<'a>);

impl Serialize for DataUrl<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("data:{};base64,{}", self.0.mime_type, self.0.base64))
    }
}

impl Data<'_> {
    /// The name of a PDF as a file's: the last of its address. Providers look at how it ends.
    pub(super) fn file_name(&self) -> String {
        let path = self.name.as_deref().unwrap_or_default().split(['?', '#']).next().unwrap_or_default();
        match path.rsplit(['/', '\\', ':']).next().unwrap_or_default() {
            "" => "document.pdf".to_owned(),
            name if name.to_ascii_lowercase().ends_with(".pdf") => name.to_owned(),
            name => format!("{name}.pdf"),
        }
    }

    /// A line that says what is not shown.
    pub(super) fn line(&self, kind: &str) -> String {
        let name = self.name.as_deref().map(|name| format!(" `{name}`")).unwrap_or_default();
        let padding = self.base64.bytes().rev().take_while(|byte| *byte == b'=').count();
        let bytes = size(self.base64.len() / 4 * 3 - padding);
        format!("[{kind}{name}, {}, {bytes}: it cannot be shown here]", self.mime_type)
    }
}

fn size(bytes: usize) -> String {
    match bytes {
        0..1000 => format!("{bytes} bytes"),
        1000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

fn blob_piece<'a>(blob: &'a Blob, family: &str) -> Piece<'a> {
    let piece = binary(Cow::Borrowed(&blob.mime_type), None, &blob.base64);
    // A tool that calls something a picture means one, whatever else it says of it.
    match piece {
        Piece::Pdf(data) => Piece::Text(data.line(family).into()),
        piece => piece,
    }
}

fn resource_piece(resource: &EmbeddedResource) -> Piece<'_> {
    match &resource.contents {
        ResourceContents::Text(text) => {
            Piece::Document { name: Cow::Borrowed(&resource.uri), text: Cow::Borrowed(text) }
        }
        ResourceContents::Blob(base64) => {
            let mime_type = resource.mime_type.as_deref().unwrap_or("application/octet-stream");
            binary(Cow::Borrowed(mime_type), Some(Cow::Borrowed(&resource.uri)), base64)
        }
    }
}

/// Binary data by its media type, or by what its first bytes say: a provider refuses a picture that is not what it is called.
fn binary<'a>(mime_type: Cow<'a, str>, name: Option<Cow<'a, str>>, base64: &'a str) -> Piece<'a> {
    let Some(base64) = tidy(base64) else {
        let name = name.map(|name| format!(" `{name}`")).unwrap_or_default();
        return Piece::Text(format!("[data{name}, {mime_type}: it is not valid base64, so it cannot be shown]").into());
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
        && base64.len() <= MOST_TEXT
        && let Some(text) = decode_base64(&base64).ok().and_then(|bytes| String::from_utf8(bytes).ok())
    {
        let name = name.unwrap_or(mime_type);
        return Piece::Document { name, text: text.into() };
    }
    let data = Data { mime_type, name, base64 };
    match &*data.mime_type {
        "image/png" | "image/jpeg" | "image/gif" | "image/webp" => Piece::Image(data),
        "application/pdf" => Piece::Pdf(data),
        mime if mime.starts_with("audio/") => Piece::Audio(data),
        mime if mime.starts_with("image/") => Piece::Text(data.line("image").into()),
        _ => Piece::Text(data.line("data").into()),
    }
}

/// A type that is said may be wrong, but a sound is no picture: `RIFF` begins both.
fn same_family(said: &str, found: &str) -> bool {
    let family = |mime: &str| mime.split('/').next().map(str::to_owned);
    said == "application/octet-stream" || family(said) == family(found)
}

/// The media type that the first bytes tell.
fn sniff(base64: &str) -> Option<&'static str> {
    let head = base64.get(..16)?;
    sniff_media_type(&decode_base64(head).ok()?)
}

/// Base64 as providers want it: the usual alphabet, no line breaks, padded. `None` if it is none.
fn tidy(base64: &str) -> Option<Cow<'_, str>> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let bare = base64.trim_end_matches('=');
    if bare.bytes().all(legal) && base64.len().is_multiple_of(4) && base64.len() - bare.len() <= 2 {
        return (!bare.is_empty()).then_some(Cow::Borrowed(base64));
    }
    let mut tidy: String = base64
        .chars()
        .filter(|c| !c.is_ascii_whitespace() && *c != '=')
        .map(|c| match c {
            '-' => '+',
            '_' => '/',
            other => other,
        })
        .collect();
    if tidy.is_empty() || tidy.len() % 4 == 1 || !tidy.bytes().all(legal) {
        return None;
    }
    while !tidy.len().is_multiple_of(4) {
        tidy.push('=');
    }
    Some(Cow::Owned(tidy))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PNG: &str = "iVBORw0KGgoAAAANSUhEUg==";

    fn part(block: serde_json::Value) -> ContentPart {
        serde_json::from_value(block).expect("a part")
    }

    fn image<'a>(mime_type: &'a str, base64: &'a str) -> Piece<'a> {
        Piece::Image(Data { mime_type: mime_type.into(), name: None, base64: base64.into() })
    }

    #[test]
    fn a_picture_is_what_its_bytes_say_whatever_it_is_called() {
        for said in ["image/png", "image/jpeg", "image/jpg", "IMAGE/PNG; q=1", "image/x-odd"] {
            let part = part(json!({"type": "image", "data": PNG, "mimeType": said}));
            assert_eq!(Piece::of(&part), image("image/png", PNG), "{said}");
        }
        let unknown = part(json!({"type": "image", "data": "AAAA", "mimeType": "image/jpg"}));
        assert_eq!(Piece::of(&unknown), image("image/jpeg", "AAAA"));
    }

    #[test]
    fn a_picture_that_models_do_not_take_is_told_whatever_it_is_called() {
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
            assert_eq!(Piece::of(&part), Piece::Text(line.into()));
        }
    }

    #[test]
    fn base64_is_tidied_and_what_is_none_is_told() {
        for written in ["iVBORw0KGgoAAAANSUhEUg", "iVBORw0K\nGgoAAAAN\r\nSUhEUg==\n", " iVBORw0KGgoAAAANSUhEUg="] {
            let part = part(json!({"type": "image", "data": written, "mimeType": "image/png"}));
            assert_eq!(Piece::of(&part), image("image/png", PNG), "{written}");
        }
        for broken in ["", "====", "iVBORw0K!", "AAAAA"] {
            let part = part(json!({"type": "image", "data": broken, "mimeType": "image/png"}));
            let expected = "[data, image/png: it is not valid base64, so it cannot be shown]";
            assert_eq!(Piece::of(&part), Piece::Text(expected.into()), "{broken}");
        }
    }

    #[test]
    fn a_resource_is_a_picture_a_sound_a_document_or_text() {
        let resource = |mime: &str, blob: &str| {
            part(json!({"type": "resource", "resource": {"uri": "file:///a", "mimeType": mime, "blob": blob}}))
        };
        let named = |mime: &'static str, base64: &'static str| Data {
            mime_type: mime.into(),
            name: Some("file:///a".into()),
            base64: base64.into(),
        };
        assert_eq!(Piece::of(&resource("application/octet-stream", PNG)), Piece::Image(named("image/png", PNG)));
        assert_eq!(Piece::of(&resource("audio/wav", "AAAA")), Piece::Audio(named("audio/wav", "AAAA")));
        assert_eq!(
            Piece::of(&resource("application/pdf", "JVBERi0x")),
            Piece::Pdf(named("application/pdf", "JVBERi0x"))
        );
        let json = Piece::Document { name: "file:///a".into(), text: "{}".into() };
        assert_eq!(Piece::of(&resource("application/json", "e30=")), json);
        let zip = "[data `file:///a`, application/zip, 3 bytes: it cannot be shown here]";
        assert_eq!(Piece::of(&resource("application/zip", "AAAA")), Piece::Text(zip.into()));
        let text = part(json!({"type": "resource", "resource": {"uri": "file:///b", "text": "hello"}}));
        assert_eq!(Piece::of(&text).into_text(), "[file:///b]\nhello");
    }

    #[test]
    fn what_a_model_cannot_take_is_a_line_of_text() {
        let sound = part(json!({"type": "audio", "data": "A".repeat(4000), "mimeType": "audio/ogg"}));
        assert_eq!(Piece::of(&sound).into_text(), "[sound, audio/ogg, 3.0 kB: it cannot be shown here]");
        let tiff = part(json!({"type": "image", "data": "AAAA", "mimeType": "image/tiff"}));
        assert_eq!(Piece::of(&tiff).into_text(), "[image, image/tiff, 3 bytes: it cannot be shown here]");
        let link = part(
            json!({"type": "resource_link", "uri": "file:///a", "name": "a", "mimeType": "text/x", "description": "d"}),
        );
        assert_eq!(Piece::of(&link).into_text(), "[resource `a`, file:///a, text/x: d]");
        let bare = part(json!({"type": "resource_link", "uri": "file:///a"}));
        assert_eq!(Piece::of(&bare).into_text(), "[resource file:///a]");
    }

    #[test]
    fn a_drawing_in_svg_is_text() {
        let svg = part(json!({"type": "image", "data": "PHN2Zy8+", "mimeType": "image/svg+xml"}));
        assert_eq!(Piece::of(&svg), Piece::Document { name: "image/svg+xml".into(), text: "<svg/>".into() });
    }
}
