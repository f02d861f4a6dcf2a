//! Attachments: files that go to the model with a prompt. Their first bytes tell what they are, not their names.

use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use ropeway::config::open_regular;
use ropeway::content::{Blob, ContentPart, EmbeddedResource, ResourceContents, sniff_media_type};
use ropeway::message::Dialect;
use serde_json::Map;

use super::record::at_home;
use crate::failure::Failure;
use crate::terminal::text::{clean_line, size};

/// Maximum bytes of a text.
pub(super) const MAX_TEXT: usize = 10 << 20;

/// Maximum bytes of an image or a PDF.
const MAX_MEDIA: usize = 32 << 20;

/// Maximum bytes of all attachments of a prompt.
const MAX_TOTAL: usize = 64 << 20;

/// Maximum attachments of a prompt.
const MAX_FILES: usize = 100;

/// Maximum bytes of a path after `@`.
const MAX_PATH: usize = 4096;

/// What may stand behind the name of a file in a sentence.
const PUNCTUATION: [char; 11] = ['.', ',', ';', ':', '!', '?', ')', ']', '}', '>', '\''];

/// What may stand before `@`, besides space.
const OPENING: [char; 4] = ['(', '[', '{', '<'];

/// Extensions of names that are files and hardly anything else: a missing one is an error, not text.
const FILE_EXTENSIONS: [&str; 42] = [
    "bmp", "c", "cpp", "cs", "css", "csv", "diff", "doc", "docx", "gif", "go", "h", "heic", "htm", "html", "ini",
    "java", "jpeg", "jpg", "json", "jsonl", "js", "log", "md", "patch", "pdf", "png", "ppt", "pptx", "py", "rs", "rtf",
    "sql", "svg", "toml", "ts", "tsv", "txt", "webp", "xlsx", "yaml", "yml",
];

/// Extensions that promise an image or a PDF.
const MEDIA_EXTENSIONS: [&str; 12] =
    ["png", "jpg", "jpeg", "gif", "webp", "pdf", "heic", "heif", "avif", "bmp", "tif", "tiff"];

/// What an attachment is to a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Image(&'static str),
    Pdf,
}

/// A file that goes to the model.
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
            ErrorKind::IsADirectory => failed("it is a folder").hint("attach its files one by one"),
            _ => failed(&error.to_string()),
        };
        let too_large = |limit: usize| failed(&format!("it is larger than {} MiB", limit >> 20));
        let file = open_regular(&at_home(path)).map_err(unreadable)?;
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
            return Err(failed(&format!("it is text, although its name ends with `.{extension}`")));
        }
        if kind == Kind::Text && bytes.len() > MAX_TEXT {
            return Err(too_large(MAX_TEXT));
        }
        let length = bytes.len();
        let part = match kind {
            Kind::Text => {
                let text = String::from_utf8(bytes).map_err(|_| failed("it is not UTF-8"))?;
                document(&name, text)
            }
            Kind::Image(mime_type) => ContentPart::Image(Blob::new(mime_type, &bytes)),
            Kind::Pdf => {
                let base64 = Blob::new("application/pdf", &bytes).base64.to_string();
                resource(&name, Some("application/pdf"), ResourceContents::Blob(base64))
            }
        };
        Ok(Self { name, kind, bytes: length, part })
    }

    /// Text that came over standard input.
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

    /// Returns an error if the provider takes no such file.
    fn check(&self, dialect: Dialect) -> Result<(), Failure> {
        // https://ai.google.dev/gemini-api/docs/image-understanding#supported-formats
        if dialect == Dialect::Gemini && self.kind == Kind::Image("image/gif") {
            let failure = Failure::usage(format!("could not attach `{}`: Gemini takes no GIF images", self.name));
            return Err(failure.hint("convert it to PNG, JPEG or WebP"));
        }
        Ok(())
    }
}

/// Tells what a file is by its content.
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
        return Err("it is empty".to_owned());
    }
    // Some signatures are words, such as `BM`: text is text.
    if std::str::from_utf8(bytes).is_ok() && !bytes.contains(&0) {
        return Ok(Kind::Text);
    }
    match (media, bytes) {
        (Some(mime_type), _) if mime_type.starts_with("image/") => {
            Err(format!("models take no {mime_type}; convert it to PNG or JPEG"))
        }
        (Some(mime_type), _) => Err(format!("it is {mime_type}, and only text, images and PDFs can be attached")),
        (None, [0xff, 0xfe, ..] | [0xfe, 0xff, ..]) => Err("it is UTF-16 text; convert it to UTF-8".to_owned()),
        (None, _) => Err("it is binary data, and only text, images and PDFs can be attached".to_owned()),
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

/// Returns the parts of a message: the attachments, each with its name, and then the prompt.
pub(crate) fn compose(
    prompt: String,
    attachments: &[Attachment],
    dialect: Dialect,
) -> Result<Vec<ContentPart>, Failure> {
    if attachments.len() > MAX_FILES {
        return Err(Failure::usage(format!("{} files are attached, more than {MAX_FILES}", attachments.len())));
    }
    let total: usize = attachments.iter().map(|attachment| attachment.bytes).sum();
    if total > MAX_TOTAL {
        let (total, most) = (size(total), MAX_TOTAL >> 20);
        return Err(Failure::usage(format!("the attached files have {total} together, more than {most} MiB")));
    }
    let mut parts = Vec::new();
    for attachment in attachments {
        attachment.check(dialect)?;
        // A text has its name in itself; not every provider passes on those of images and PDFs.
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
/// `@` begins a mention at the beginning of a word. A name with spaces is quoted: `@"my file.txt"`. What is no file stays text, such as the handle
/// `@ada`, unless it cannot be anything else: it is quoted, begins with `/`, `./`, `../` or `~/`, or ends like a file.
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
        return Err(Failure::usage(format!("the prompt mentions {} files, more than {MAX_FILES}", paths.len())));
    }
    paths.iter().map(|path| Attachment::read(path)).collect()
}

/// What stands behind an `@`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mention<'a> {
    text: &'a str,
    quoted: bool,
}

impl Mention<'_> {
    /// The file that is meant, if one is.
    fn path(&self) -> Result<Option<PathBuf>, Failure> {
        let exists = |path: &str| std::fs::metadata(at_home(Path::new(path))).is_ok();
        let missing = |path: &str| {
            let failure = Failure::usage(format!("could not attach `{}`: no such file", clean_line(path)));
            Err(failure.hint("without `@` the name is sent as text"))
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

/// Finds what is mentioned in a prompt.
fn mentions(prompt: &str) -> Vec<Mention<'_>> {
    let mut found = Vec::new();
    let mut before = None;
    let mut at = 0;
    while let Some(c) = prompt[at..].chars().next() {
        let begins = before.is_none_or(|before: char| before.is_whitespace() || OPENING.contains(&before));
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
mod tests {
    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";

    fn written(name: &str, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("a file");
        (folder, path)
    }

    fn problem(path: &Path) -> String {
        let failure = Attachment::read(path).expect_err("no attachment");
        let message = failure.message();
        let start = format!("could not attach `{}`: ", path.display());
        message.strip_prefix(&start).unwrap_or_else(|| panic!("{message}")).to_owned()
    }

    #[test]
    fn a_file_is_what_its_first_bytes_say() {
        for (name, bytes, kind) in [
            ("a.png", PNG, Kind::Image("image/png")),
            ("a.jpg", PNG, Kind::Image("image/png")),
            ("a", b"\xff\xd8\xff\xe0 jpeg", Kind::Image("image/jpeg")),
            ("a.txt", b"GIF89a\0\0", Kind::Image("image/gif")),
            ("a.bin", b"%PDF-1.7\n\xff", Kind::Pdf),
            ("a.pdf", b"%PDF-1.4 all ASCII", Kind::Pdf),
            ("a.txt", b"BMW is a car", Kind::Text),
            ("a.svg", b"<svg/>", Kind::Text),
            ("a", "GIF8 is no image, é".as_bytes(), Kind::Text),
        ] {
            let (_folder, path) = written(name, bytes);
            let attachment = Attachment::read(&path).expect("an attachment");
            assert_eq!((attachment.kind, attachment.bytes), (kind, bytes.len()), "{name}");
        }
    }

    #[test]
    fn what_cannot_be_attached_is_refused_with_a_reason() {
        for (name, bytes, reason) in [
            ("a.png", &b"<html>404</html>"[..], "it is text, although its name ends with `.png`"),
            ("a.PDF", b"plain", "it is text, although its name ends with `.pdf`"),
            ("a", b"", "it is empty"),
            ("a.zip", b"PK\x03\x04\0\0", "it is binary data, and only text, images and PDFs can be attached"),
            ("a.txt", b"\xff\xfeh\0i\0", "it is UTF-16 text; convert it to UTF-8"),
            ("a.txt", b"caf\xe9", "it is binary data, and only text, images and PDFs can be attached"),
            ("a.txt", b"with \0 zero", "it is binary data, and only text, images and PDFs can be attached"),
            ("a.bmp", b"BM\0\0\0\0\xff", "models take no image/bmp; convert it to PNG or JPEG"),
            ("a.ogg", b"OggS\0\xff", "it is audio/ogg, and only text, images and PDFs can be attached"),
        ] {
            let (_folder, path) = written(name, bytes);
            assert_eq!(problem(&path), reason, "{name}");
        }
    }

    #[test]
    fn what_is_no_file_is_refused_without_waiting() {
        let (folder, path) = written("a.txt", b"x");
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
        assert!(made.success());
        assert_eq!(problem(folder.path()), "it is a folder");
        assert_eq!(problem(&pipe), "it is not a regular file");
        assert_eq!(problem(Path::new("/dev/zero")), "it is not a regular file");
        assert_eq!(problem(&path.with_file_name("missing")), "no such file");
        // A sparse file is large without taking space, and nothing of it is read.
        let huge = folder.path().join("huge.txt");
        std::fs::File::create(&huge).and_then(|file| file.set_len(1 << 30)).expect("a sparse file");
        assert_eq!(problem(&huge), "it is larger than 32 MiB");
        let text = folder.path().join("long.txt");
        std::fs::write(&text, vec![b'x'; MAX_TEXT + 1]).expect("a file");
        assert_eq!(problem(&text), "it is larger than 10 MiB");
    }

    #[test]
    fn mentions_are_found_at_the_beginning_of_words() {
        let found = |prompt: &'static str| {
            mentions(prompt).into_iter().map(|mention| (mention.text, mention.quoted)).collect::<Vec<_>>()
        };
        assert_eq!(found("compare @a.txt with (@b/c.md), please"), [("a.txt", false), ("b/c.md),", false)]);
        assert_eq!(found("@\"my file.txt\" and @'it''s'"), [("my file.txt", true), ("it", true)]);
        assert_eq!(found("mail ada@example.com @ noon @"), []);
        assert_eq!(found("@\"open @ada"), [("ada", false)]);
        assert_eq!(found("@@x"), [("@x", false)]);
    }

    #[test]
    fn only_what_must_be_a_file_is_an_error_when_it_is_missing() {
        let (folder, _path) = written("notes.txt", b"x");
        let text =
            |name: &str| Mention { text: name, quoted: false }.path().map_err(|failure| failure.message().to_owned());
        let path = folder.path().join("notes.txt").display().to_string();
        for end in ["", ".", "),", "!?"] {
            assert_eq!(text(&format!("{path}{end}")), Ok(Some(path.clone().into())), "{end}");
        }
        for words in ["ada", "types/node", "app.route", "user@example.com", "", "...", "example.com", "/"] {
            assert_eq!(text(words), Ok(None), "{words}");
        }
        for (words, shown) in [
            ("/no/such", "/no/such"),
            ("./missing,", "./missing"),
            ("~/missing", "~/missing"),
            ("missing.txt", "missing.txt"),
            ("a/missing.PDF?", "a/missing.PDF"),
        ] {
            assert_eq!(text(words), Err(format!("could not attach `{shown}`: no such file")));
        }
        assert!(Mention { text: "ada", quoted: true }.path().is_err());
    }

    #[test]
    fn the_model_sees_the_name_of_each_file_before_the_prompt() {
        let (_one, text) = written("notes.txt", b"remember");
        let (_two, image) = written("photo.png", PNG);
        let read = |path: &Path| Attachment::read(path).expect("an attachment");
        let parts = compose("look".into(), &[read(&text), read(&image)], Dialect::Gemini).expect("parts");
        let [ContentPart::Resource(notes), ContentPart::Text(name), ContentPart::Image(_), ContentPart::Text(prompt)] =
            &parts[..]
        else {
            panic!("{parts:?}")
        };
        assert!(notes.uri.ends_with("/notes.txt") && name.text.ends_with("/photo.png]"), "{parts:?}");
        assert_eq!(prompt.text, "look");
    }

    #[test]
    fn what_a_provider_does_not_take_is_refused_before_the_request() {
        let (_folder, path) = written("a.gif", b"GIF89a\0");
        let gif = [Attachment::read(&path).expect("an attachment")];
        for dialect in [Dialect::Anthropic, Dialect::Responses, Dialect::Chat] {
            assert!(compose("look".into(), &gif, dialect).is_ok());
        }
        let failure = compose("look".into(), &gif, Dialect::Gemini).expect_err("a GIF");
        assert!(failure.message().ends_with("Gemini takes no GIF images"), "{}", failure.message());
    }
}
