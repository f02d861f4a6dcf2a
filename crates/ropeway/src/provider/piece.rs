//! A piece: a content part as models take it, be it of a person or of a tool.

use std::borrow::Cow;

use crate::content::{Blob, ContentPart, EmbeddedResource, ResourceContents, ResourceLink, decode_base64};

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
            ContentPart::ResourceLink(link) => Self::Text(link_line(link).into()),
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

impl Data<'_> {
    /// `data:image/png;base64,…`
    pub(super) fn url(&self) -> String {
        format!("data:{};base64,{}", self.mime_type, self.base64)
    }

    /// A line that says what is not shown.
    pub(super) fn line(&self, kind: &str) -> String {
        let name = self.name.as_deref().map(|name| format!(" `{name}`")).unwrap_or_default();
        format!("[{kind}{name}, {}, {}: it cannot be shown here]", self.mime_type, size(self.base64.len() / 4 * 3))
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
        Piece::Image(_) | Piece::Audio(_) | Piece::Text(_) => piece,
        _ => Piece::Text(format!("[{family}, {}: it cannot be shown here]", blob.mime_type).into()),
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

fn link_line(link: &ResourceLink) -> String {
    let mime_type = link.mime_type.as_deref().map(|mime| format!(", {mime}")).unwrap_or_default();
    let description = link.extra.get("description").and_then(serde_json::Value::as_str);
    let description = description.map(|text| format!(": {text}")).unwrap_or_default();
    match link.name == link.uri {
        true => format!("[resource {}{mime_type}{description}]", link.uri),
        false => format!("[resource `{}`, {}{mime_type}{description}]", link.name, link.uri),
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
    let bytes = decode_base64(head).ok()?;
    match &bytes[..] {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P'] => Some("image/webp"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E'] => Some("audio/wav"),
        [b'I', b'D', b'3', ..] => Some("audio/mpeg"),
        [b'O', b'g', b'g', b'S', ..] => Some("audio/ogg"),
        [b'%', b'P', b'D', b'F', ..] => Some("application/pdf"),
        _ => None,
    }
}

/// Base64 as providers want it: the usual alphabet, no line breaks, padded. `None` if it is none.
fn tidy(base64: &str) -> Option<Cow<'_, str>> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let bare = base64.trim_end_matches('=');
    if bare.bytes().all(legal) && base64.len() % 4 == 0 && base64.len() - bare.len() <= 2 {
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
    while tidy.len() % 4 != 0 {
        tidy.push('=');
    }
    Some(Cow::Owned(tidy))
}
