//! SHA-256 digests.

/// Returns a content's SHA-256 in hexadecimal digits.
pub(crate) fn sha256(content: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, content.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
