//! Small samples of every kind of content.

use ropeway::content::{Blob, ContentPart};
use serde_json::{Value, json};

/// One red pixel.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x02\0\0\0\x90wS\xde\0\0\0\x0cIDATx\x9cc\xf8\xcf\xc0\0\0\x03\x01\x01\0\xc9\xfe\x92\xef\0\0\0\0IEND\xaeB`\x82";
const JPEG: &[u8] = b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0\xff\xd9";
const GIF: &[u8] = b"GIF89a\x01\0\x01\0\x80\0\0\xff\0\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";
const WEBP: &[u8] = b"RIFF\x1a\0\0\0WEBPVP8L\x0d\0\0\0/\0\0\0\x10\x07\x10\x11\x11\x88\x88\xfe\x07\0";
const SVG: &[u8] = b"<svg xmlns=\"http://www.w3.org/2000/svg\"><circle r=\"4\"/></svg>";
const WAV: &[u8] =
    b"RIFF\x25\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\x01\0\x08\0data\x01\0\0\0\x80";
const MP3: &[u8] = b"ID3\x04\0\0\0\0\0\0\xff\xfb\x90\0";
const PDF: &[u8] = b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF";
const ZIP: &[u8] = b"PK\x05\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// A content part, as a row of the documented table.
pub(super) struct Sample {
    /// The name in file names.
    pub(super) name: &'static str,
    /// The name in the table.
    pub(super) title: &'static str,
    /// Its text, if it has any.
    pub(super) says: Option<&'static str>,
    /// The content part.
    pub(super) part: ContentPart,
}

/// Returns a part of every kind.
pub(super) fn samples() -> Vec<Sample> {
    let sample = |name, title, says, part| Sample { name, title, says, part };
    vec![
        sample("text", "text", Some("clear sky"), ContentPart::text("clear sky")),
        sample("png", "image, PNG", None, image("image/png", PNG)),
        sample("jpeg", "image, JPEG", None, image("image/jpeg", JPEG)),
        sample("gif", "image, GIF", None, image("image/gif", GIF)),
        sample("webp", "image, WebP", None, image("image/webp", WEBP)),
        sample("svg", "image, SVG", Some("<circle r=\"4\"/>"), image("image/svg+xml", SVG)),
        sample("tiff", "image, any other", None, image("image/tiff", b"II*\0\x08\0\0\0\0\0\0\0\0\0")),
        sample("wav", "audio, WAV", None, ContentPart::Audio(Blob::new("audio/wav", WAV))),
        sample("mp3", "audio, MP3", None, ContentPart::Audio(Blob::new("audio/mpeg", MP3))),
        sample("ogg", "audio, any other", None, ContentPart::Audio(Blob::new("audio/ogg", b"OggS\0\x02\0\0\0\0\0\0"))),
        sample("text_resource", "embedded text", Some("# Wind"), resource("text/markdown", json!({"text": "# Wind"}))),
        sample(
            "json_blob",
            "embedded JSON as a blob",
            Some("{\"wind\":41}"),
            blob("application/json", b"{\"wind\":41}"),
        ),
        sample("pdf", "embedded PDF", None, blob("application/pdf", PDF)),
        sample("png_resource", "embedded image", None, blob("image/png", PNG)),
        sample("zip", "embedded blob, any other", None, blob("application/zip", ZIP)),
        sample(
            "link",
            "resource link",
            Some("file:///log.txt"),
            read(
                json!({"type": "resource_link", "uri": "file:///log.txt", "name": "log", "mimeType": "text/plain", "description": "The log of today"}),
            ),
        ),
    ]
}

/// Returns the part of one sample.
pub(super) fn part(name: &str) -> ContentPart {
    samples().into_iter().find(|sample| sample.name == name).expect("a sample").part
}

fn image(mime_type: &str, bytes: &[u8]) -> ContentPart {
    ContentPart::Image(Blob::new(mime_type, bytes))
}

fn blob(mime_type: &str, bytes: &[u8]) -> ContentPart {
    resource(mime_type, json!({"blob": Blob::new(mime_type, bytes).base64()}))
}

fn resource(mime_type: &str, contents: Value) -> ContentPart {
    let mut resource = json!({"uri": "file:///wind", "mimeType": mime_type});
    resource.as_object_mut().expect("an object").extend(contents.as_object().cloned().expect("an object"));
    read(json!({"type": "resource", "resource": resource}))
}

fn read(part: Value) -> ContentPart {
    serde_json::from_value(part).expect("a part")
}
