//! Files attached to a prompt. Their content determines their type, not their name.

use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use ropeway_config::open_regular;
use ropeway_core::content::{Blob, ContentPart, EmbeddedResource, ResourceContents, sniff_media_type};
use ropeway_core::message::Dialect;
use serde_json::Map;

use super::save_file::expand_home;
use crate::failure::Failure;
use crate::terminal::text::{clean_line, size};

/// Maximum text size in bytes.
pub(super) const MAX_TEXT: usize = 10 << 20;

/// Maximum image or PDF size in bytes.
const MAX_MEDIA: usize = 32 << 20;

/// Maximum total size of a prompt's attachments, in bytes.
const MAX_TOTAL: usize = 64 << 20;

/// Maximum attachments per prompt.
const MAX_FILES: usize = 100;

/// Maximum path length after `@`, in bytes.
const MAX_PATH: usize = 4096;

/// Characters that may follow a file name in a sentence.
const PUNCTUATION: [char; 11] = ['.', ',', ';', ':', '!', '?', ')', ']', '}', '>', '\''];

/// Characters other than whitespace that may precede `@`.
const OPENING: [char; 4] = ['(', '[', '{', '<'];

/// Extensions that mark a mention as a file: if it is missing, that is an error.
const FILE_EXTENSIONS: [&str; 42] = [
    "bmp", "c", "cpp", "cs", "css", "csv", "diff", "doc", "docx", "gif", "go", "h", "heic", "htm", "html", "ini",
    "java", "jpeg", "jpg", "json", "jsonl", "js", "log", "md", "patch", "pdf", "png", "ppt", "pptx", "py", "rs", "rtf",
    "sql", "svg", "toml", "ts", "tsv", "txt", "webp", "xlsx", "yaml", "yml",
];

/// Image and PDF extensions.
const MEDIA_EXTENSIONS: [&str; 12] =
    ["png", "jpg", "jpeg", "gif", "webp", "pdf", "heic", "heif", "avif", "bmp", "tif", "tiff"];

/// An attachment's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Image(&'static str),
    Pdf,
}

/// A file to send to the model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Attachment {
    name: String,
    kind: Kind,
    bytes: usize,
    part: ContentPart,
}

impl Attachment {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let name = clean_line(&path.to_string_lossy());
        let failed = |problem: &str| Failure::usage(format!("could not attach `{name}`: {problem}"));
        let unreadable = |error: std::io::Error| match error.kind() {
            ErrorKind::NotFound => failed("no such file"),
            ErrorKind::IsADirectory => failed("is a directory").hint("attach its files one by one"),
            _ => failed(&error.to_string()),
        };
        let too_large = |limit: usize| failed(&format!("larger than {} MiB", limit >> 20));
        let file = open_regular(&expand_home(path)).map_err(unreadable)?;
        if file.metadata().is_ok_and(|metadata| metadata.len() > MAX_MEDIA as u64) {
            return Err(too_large(MAX_MEDIA));
        }
        let mut bytes = Vec::new();
        file.take(MAX_MEDIA as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() > MAX_MEDIA {
            return Err(too_large(MAX_MEDIA));
        }
        let kind = kind(&bytes).map_err(|problem| failed(&problem))?;
        let extension = extension(path);
        if kind == Kind::Text && extension.as_deref().is_some_and(|known| MEDIA_EXTENSIONS.contains(&known)) {
            let extension = extension.unwrap_or_default();
            return Err(failed(&format!("contains text, but its name ends in `.{extension}`")));
        }
        if kind == Kind::Text && bytes.len() > MAX_TEXT {
            return Err(too_large(MAX_TEXT));
        }
        let length = bytes.len();
        let part = match kind {
            Kind::Text => {
                let text = String::from_utf8(bytes).map_err(|_| failed("not UTF-8"))?;
                document(&name, text)
            }
            Kind::Image(mime_type) => ContentPart::Image(Blob::new(mime_type, &bytes)),
            Kind::Pdf => {
                let base64 = Blob::new("application/pdf", &bytes).base64().to_owned();
                resource(&name, Some("application/pdf"), ResourceContents::Blob(base64))
            }
        };
        Ok(Self { name, kind, bytes: length, part })
    }

    /// Creates an attachment from standard input.
    pub(crate) fn standard_input(text: String) -> Self {
        let name = "standard input".to_owned();
        Self { bytes: text.len(), part: document(&name, text), kind: Kind::Text, name }
    }

    /// Describes the attachment in one line.
    pub(crate) fn describe(&self) -> String {
        let kind = match self.kind {
            Kind::Text => "text",
            Kind::Image(mime_type) => mime_type,
            Kind::Pdf => "application/pdf",
        };
        format!("attached {} ({kind}, {})", self.name, size(self.bytes))
    }

    /// Returns an error if the provider does not support the file.
    fn check(&self, dialect: Dialect) -> Result<(), Failure> {
        // https://ai.google.dev/gemini-api/docs/image-understanding#supported-formats
        if dialect == Dialect::Gemini && self.kind == Kind::Image("image/gif") {
            let failure =
                Failure::usage(format!("could not attach `{}`: Gemini does not support GIF images", self.name));
            return Err(failure.hint("convert it to PNG, JPEG or WebP"));
        }
        Ok(())
    }
}

/// Detects a file's type from its content.
fn kind(bytes: &[u8]) -> Result<Kind, String> {
    let media = sniff_media_type(bytes);
    match media {
        Some("application/pdf") => return Ok(Kind::Pdf),
        Some(mime_type @ ("image/png" | "image/jpeg" | "image/webp")) => return Ok(Kind::Image(mime_type)),
        Some(mime_type @ "image/gif") if bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a") => {
            return Ok(Kind::Image(mime_type));
        }
        _ => {}
    }
    if bytes.is_empty() {
        return Err("file is empty".to_owned());
    }
    // Some signatures, such as `BM`, are also valid text.
    if std::str::from_utf8(bytes).is_ok() && !bytes.contains(&0) {
        return Ok(Kind::Text);
    }
    match (media, bytes) {
        (Some(mime_type), _) if mime_type.starts_with("image/") => {
            Err(format!("{mime_type} is not supported; convert it to PNG or JPEG"))
        }
        (Some(mime_type), _) => {
            Err(format!("{mime_type} is not supported; only text, images and PDFs can be attached"))
        }
        (None, [0xff, 0xfe, ..] | [0xfe, 0xff, ..]) => {
            Err("UTF-16 text is not supported; convert it to UTF-8".to_owned())
        }
        (None, _) => Err("binary data is not supported; only text, images and PDFs can be attached".to_owned()),
    }
}

fn extension(path: &Path) -> Option<String> {
    path.extension().and_then(|extension| extension.to_str()).map(str::to_ascii_lowercase)
}

fn document(name: &str, text: String) -> ContentPart {
    resource(name, None, ResourceContents::Text(text))
}

fn resource(name: &str, mime_type: Option<&str>, contents: ResourceContents) -> ContentPart {
    ContentPart::Resource(EmbeddedResource {
        uri: name.to_owned(),
        mime_type: mime_type.map(str::to_owned),
        contents,
        resource_extra: Map::new(),
        extra: Map::new(),
    })
}

/// Returns the message parts: the attachments, each with its name, and then the prompt.
pub(crate) fn compose(
    prompt: String,
    attachments: &[Attachment],
    dialect: Dialect,
) -> Result<Vec<ContentPart>, Failure> {
    if attachments.len() > MAX_FILES {
        return Err(Failure::usage(format!("too many attachments: {} (maximum {MAX_FILES})", attachments.len())));
    }
    let total: usize = attachments.iter().map(|attachment| attachment.bytes).sum();
    if total > MAX_TOTAL {
        let (total, most) = (size(total), MAX_TOTAL >> 20);
        return Err(Failure::usage(format!("attachments too large: {total} in total (maximum {most} MiB)")));
    }
    let mut parts = Vec::new();
    for attachment in attachments {
        attachment.check(dialect)?;
        // Text carries its name; not every provider passes on image and PDF names.
        if attachment.kind != Kind::Text {
            parts.push(ContentPart::text(format!("[attached file: {}]", attachment.name)));
        }
        parts.push(attachment.part.clone());
    }
    parts.push(ContentPart::text(prompt));
    Ok(parts)
}

/// Reads the files that a prompt mentions as `@FILE`, each once.
///
/// A mention starts with `@` at the start of a word. Names with spaces are quoted: `@"my file.txt"`. A mention that is not an
/// existing file stays text, such as the handle `@ada`, unless it must be a file: it is quoted, starts with `/`, `./`, `../`
/// or `~/`, or has a known extension.
pub(crate) fn mentioned(prompt: &str) -> Result<Vec<Attachment>, Failure> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for mention in mentions(prompt) {
        if let Some(path) = mention.path()?
            && !paths.contains(&path)
        {
            paths.push(path);
        }
    }
    if paths.len() > MAX_FILES {
        return Err(Failure::usage(format!("too many files mentioned: {} (maximum {MAX_FILES})", paths.len())));
    }
    paths.iter().map(|path| Attachment::read(path)).collect()
}

/// The text behind an `@`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mention<'a> {
    text: &'a str,
    quoted: bool,
}

impl Mention<'_> {
    /// Returns the file that is mentioned, or `None` if the mention is text.
    fn path(&self) -> Result<Option<PathBuf>, Failure> {
        let exists = |path: &str| std::fs::metadata(expand_home(Path::new(path))).is_ok();
        let missing = |path: &str| {
            let failure = Failure::usage(format!("could not attach `{}`: no such file", clean_line(path)));
            Err(failure.hint("remove the `@` to send the name as text"))
        };
        if self.text.len() > MAX_PATH || !self.text.contains(char::is_alphanumeric) {
            return Ok(None);
        }
        if self.quoted {
            return if exists(self.text) { Ok(Some(self.text.into())) } else { missing(self.text) };
        }
        let mut rest = self.text;
        loop {
            if !rest.is_empty() && exists(rest) {
                return Ok(Some(rest.into()));
            }
            match rest.strip_suffix(PUNCTUATION) {
                Some(shorter) => rest = shorter,
                None => break,
            }
        }
        let begins_as_path =
            ["/", "./", "../", "~/"].iter().any(|start| rest.len() > start.len() && rest.starts_with(start));
        let ends_as_file = extension(Path::new(rest)).is_some_and(|end| FILE_EXTENSIONS.contains(&end.as_str()));
        if begins_as_path || (ends_as_file && !rest.contains('@')) {
            return missing(rest);
        }
        Ok(None)
    }
}

/// Returns `true` if an `@` behind this character begins a mention.
pub(super) fn begins_mention(before: Option<char>) -> bool {
    before.is_none_or(|before| before.is_whitespace() || OPENING.contains(&before))
}

/// Finds a prompt's mentions.
fn mentions(prompt: &str) -> Vec<Mention<'_>> {
    let mut found = Vec::new();
    let mut before = None;
    let mut at = 0;
    while let Some(c) = prompt[at..].chars().next() {
        let begins = begins_mention(before);
        at += c.len_utf8();
        before = Some(c);
        if c != '@' || !begins {
            continue;
        }
        let rest = &prompt[at..];
        let quote = rest.chars().next().filter(|quote| matches!(quote, '"' | '\''));
        let closed = quote.and_then(|quote| rest[1..].split_once(quote)).filter(|(text, _)| !text.contains('\n'));
        let mention = match (quote, closed) {
            (Some(_), Some((text, _))) => {
                at += text.len() + 2;
                before = Some('"');
                Mention { text, quoted: true }
            }
            (Some(_), None) => continue,
            (None, _) => {
                let text = rest.split(char::is_whitespace).next().unwrap_or_default();
                at += text.len();
                before = text.chars().next_back().or(before);
                Mention { text, quoted: false }
            }
        };
        if !mention.text.is_empty() {
            found.push(mention);
        }
    }
    found
}

#[cfg(test)]
mod tests;
