//! Media types for binary data.

/// Detects an image, audio or PDF file's media type from its first bytes.
///
/// File names are unreliable, and providers reject images whose declared type is wrong.
pub fn sniff_media_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E', ..] => Some("audio/wav"),
        [_, _, _, _, b'f', b't', b'y', b'p', b'a', b'v', b'i', b'f' | b's', ..] => Some("image/avif"),
        [_, _, _, _, b'f', b't', b'y', b'p', b'h', b'e', b'i', b'c' | b'x', ..] => Some("image/heic"),
        [_, _, _, _, b'f', b't', b'y', b'p', b'm', b'i', b'f', b'1', ..] => Some("image/heif"),
        [b'B', b'M', ..] => Some("image/bmp"),
        [b'I', b'I', b'*', 0, ..] | [b'M', b'M', 0, b'*', ..] => Some("image/tiff"),
        [b'I', b'D', b'3', ..] => Some("audio/mpeg"),
        [b'O', b'g', b'g', b'S', ..] => Some("audio/ogg"),
        [b'%', b'P', b'D', b'F', ..] => Some("application/pdf"),
        _ => None,
    }
}

/// First base64 characters of common images.
pub(super) const IMAGE_SIGNATURES: [(&str, &str); 4] =
    [("iVBORw0KGgo", "image/png"), ("/9j/", "image/jpeg"), ("R0lGOD", "image/gif"), ("UklGR", "image/webp")];

/// First base64 characters of common audio formats.
pub(super) const AUDIO_SIGNATURES: [(&str, &str); 3] =
    [("UklGR", "audio/wav"), ("T2dnUw", "audio/ogg"), ("SUQz", "audio/mpeg")];

/// Returns the media type for data without a declared type.
pub(super) fn guess_type(base64: &str, signatures: &[(&str, &'static str)]) -> &'static str {
    signatures
        .iter()
        .find(|(signature, _)| base64.starts_with(signature))
        .map_or("application/octet-stream", |(_, mime)| mime)
}
