//! Tool results for people.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anstyle::Style;
use ropeway_core::content::{ContentPart, EmbeddedResource, ResourceContents, decode_base64};
use ropeway_core::envelope::{Envelope, EnvelopeData};
use serde_json::Value;

use crate::failure::{Failure, problem_line};
use crate::terminal::text::{clean, clean_line, size};

const FAINT: Style = Style::new().dimmed();

/// The directory for a result's files.
pub(crate) struct SaveFolder {
    path: PathBuf,
    stem: String,
    /// The file that the user named, for a result with one file.
    file: Option<PathBuf>,
}

impl SaveFolder {
    /// Files are named after the tool. The directory is created on first use.
    pub(crate) fn new(path: &Path, tool: &str) -> Self {
        Self { path: path.to_owned(), stem: safe_name(tool), file: None }
    }

    /// Like [`new`](Self::new), but a path with an extension is a file, unless it ends with `/` or is a directory. Several
    /// files are numbered beside it.
    pub(crate) fn for_parts(path: &Path, tool: &str, parts: &[ContentPart]) -> Self {
        let is_folder = path.as_os_str().as_encoded_bytes().ends_with(b"/") || path.is_dir();
        let (Some(stem), Some(_), false) = (path.file_stem(), path.extension(), is_folder) else {
            return Self::new(path, tool);
        };
        let file = (parts.iter().filter(|part| bytes_of(part).is_some()).count() == 1).then(|| path.to_owned());
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Self { path: folder.to_owned(), stem: stem.to_string_lossy().into_owned(), file }
    }

    /// Writes a new file and never overwrites an existing one, unless the user named it.
    pub(crate) fn save(&self, mime_type: &str, bytes: &[u8]) -> Result<PathBuf, Failure> {
        let failed = |path: &Path, error: std::io::Error| {
            Failure::usage(format!("could not write `{}`", path.display())).caused_by(&error)
        };
        std::fs::create_dir_all(&self.path).map_err(|error| failed(&self.path, error))?;
        if let Some(path) = &self.file {
            write_regular(path, bytes).map_err(|error| failed(path, error))?;
            return Ok(path.clone());
        }
        let extension = extension(mime_type);
        for number in 1..=100_000 {
            let path = self.path.join(format!("{}-{number}.{extension}", self.stem));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(mut file) => {
                    file.write_all(bytes).map_err(|error| failed(&path, error))?;
                    return Ok(path);
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(&path, error)),
            }
        }
        Err(Failure::usage(format!("too many files with this name in `{}`", self.path.display())))
    }
}

/// Writes a file. A pipe or device would block or do something else.
fn write_regular(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return Err(std::io::Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    std::fs::write(path, bytes)
}

/// Returns a binary part's bytes.
pub(crate) fn bytes_of(part: &ContentPart) -> Option<Vec<u8>> {
    let base64 = match part {
        ContentPart::Image(blob) | ContentPart::Audio(blob) => blob.base64(),
        ContentPart::Resource(EmbeddedResource { contents: ResourceContents::Blob(base64), .. }) => base64.as_str(),
        _ => return None,
    };
    decode_base64(base64).ok()
}

/// Returns the note that `--save` had nothing to save, if so.
pub(crate) fn nothing_saved(parts: &[ContentPart]) -> Option<String> {
    let is_any = parts.iter().any(|part| bytes_of(part).is_some());
    (!is_any).then(|| "nothing to save: no binary content".to_owned())
}

/// Decodes a resource that a server sends as a blob although it is text.
pub(crate) fn decode_text(part: ContentPart) -> ContentPart {
    let ContentPart::Resource(EmbeddedResource { mime_type: Some(mime_type), .. }) = &part else { return part };
    let essence = mime_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_text = essence.starts_with("text/")
        || ["json", "xml", "yaml", "javascript"].iter().any(|kind| essence.ends_with(kind));
    let text = bytes_of(&part).filter(|_| is_text).and_then(|bytes| String::from_utf8(bytes).ok());
    match (part, text) {
        (ContentPart::Resource(resource), Some(text)) => {
            ContentPart::Resource(EmbeddedResource { contents: ResourceContents::Text(text), ..resource })
        }
        (part, _) => part,
    }
}

/// Returns a safe file name for a tool.
fn safe_name(tool: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
    let name: String = tool.chars().map(safe).take(60).collect();
    match name.trim_start_matches(['.', '-', '_']) {
        "" => "result".to_owned(),
        name => name.to_owned(),
    }
}

/// Returns the usual file extension for a media type.
fn extension(mime_type: &str) -> String {
    let essence = mime_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let known = match essence.as_str() {
        "image/jpeg" => "jpg",
        "image/svg+xml" => "svg",
        "image/x-icon" | "image/vnd.microsoft.icon" => "ico",
        "audio/mpeg" => "mp3",
        "audio/x-wav" | "audio/wave" => "wav",
        "audio/mp4" => "m4a",
        "text/plain" => "txt",
        "text/markdown" => "md",
        "text/javascript" => "js",
        "application/gzip" => "gz",
        "application/octet-stream" => "bin",
        _ => "",
    };
    if !known.is_empty() {
        return known.to_owned();
    }
    let subtype = essence.split_once('/').map_or("", |(_, subtype)| subtype);
    let plain = !subtype.is_empty() && subtype.len() <= 8 && subtype.chars().all(|c| c.is_ascii_alphanumeric());
    if plain { subtype.to_owned() } else { "bin".to_owned() }
}

/// A result as text.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct RenderedResult {
    pub(crate) text: String,
    /// Notes for standard error.
    pub(crate) notes: Vec<String>,
}

/// Formats a result for people and saves its files to the directory, if any.
pub(crate) fn render(envelope: &Envelope, folder: Option<&SaveFolder>) -> Result<RenderedResult, Failure> {
    // Servers repeat structured content as text for older clients.
    let structured = envelope.meta.structured_content.as_ref();
    let repeats = |part: &&ContentPart| structured.is_some_and(|value| is_structured_copy(part, value));
    let mut shown = render_parts(envelope.meta.content.iter().filter(|part| !repeats(part)), folder)?;
    if let EnvelopeData::Json(value) = envelope.data()
        && !is_text_copy(value, &envelope.meta.content)
    {
        shown.text.push_str(&clean(&serde_json::to_string_pretty(value).unwrap_or_default()));
        shown.text.push('\n');
    }
    let odd = |problem| format!("warning: the result does not match its schema: {}", problem_line(problem));
    shown.notes.extend(envelope.warnings.iter().map(odd));
    Ok(shown)
}

/// Returns `true` if a text part is the structured content as JSON, as the specification recommends
/// (<https://modelcontextprotocol.io/specification/2025-06-18/server/tools#structured-content>).
pub(crate) fn is_structured_copy(part: &ContentPart, structured: &Value) -> bool {
    match part {
        ContentPart::Text { text, .. } => {
            ropeway_core::json::from_str::<Value>(text).is_ok_and(|text| text == *structured)
        }
        _ => false,
    }
}

/// Returns `true` if an object has only one field, which repeats the text.
pub(crate) fn is_text_copy(value: &Value, parts: &[ContentPart]) -> bool {
    let texts: Vec<&str> = parts.iter().filter_map(ContentPart::as_text).collect();
    let only = value.as_object().filter(|fields| fields.len() == 1).and_then(|fields| fields.values().next());
    !texts.is_empty() && only.and_then(Value::as_str) == Some(&texts.join("\n"))
}

/// Formats content parts for people and saves files to the directory, if any.
pub(crate) fn render_parts<'a>(
    parts: impl Iterator<Item = &'a ContentPart>,
    folder: Option<&SaveFolder>,
) -> Result<RenderedResult, Failure> {
    let mut shown = RenderedResult::default();
    let mut unsaved = 0;
    for part in parts {
        let line = match part {
            ContentPart::Text { text, .. } => clean(text),
            ContentPart::Image(blob) | ContentPart::Audio(blob) => {
                render_file(&blob.mime_type, blob.base64(), folder, &mut unsaved)?
            }
            ContentPart::Resource(EmbeddedResource { uri, mime_type, contents, .. }) => {
                let uri = clean_line(uri);
                match contents {
                    ResourceContents::Text(text) => format!("{FAINT}{uri}{FAINT:#}\n{}", clean(text)),
                    ResourceContents::Blob(base64) => {
                        let mime_type = mime_type.as_deref().unwrap_or("application/octet-stream");
                        format!("{FAINT}{uri}{FAINT:#}\n{}", render_file(mime_type, base64, folder, &mut unsaved)?)
                    }
                }
            }
            ContentPart::ResourceLink(link) => match (clean_line(&link.name), clean_line(&link.uri)) {
                (name, uri) if name == uri => format!("{FAINT}→{FAINT:#} {uri}"),
                (name, uri) => format!("{name} {FAINT}→{FAINT:#} {uri}"),
            },
        };
        shown.text.push_str(line.trim_end_matches('\n'));
        shown.text.push('\n');
    }
    if unsaved > 0 {
        shown.notes.push("use --save PATH to save binary content".to_owned());
    }
    Ok(shown)
}

/// Formats one line for each file in a result and saves it to the directory, if any.
pub(crate) fn render_files<'a>(
    parts: impl Iterator<Item = &'a ContentPart>,
    folder: Option<&SaveFolder>,
) -> Result<Vec<String>, Failure> {
    let files = parts.filter(|part| !is_text(part));
    Ok(render_parts(files, folder)?.text.lines().map(str::to_owned).collect())
}

fn is_text(part: &ContentPart) -> bool {
    match part {
        ContentPart::Image(_) | ContentPart::Audio(_) => false,
        ContentPart::Resource(resource) => matches!(resource.contents, ResourceContents::Text(_)),
        _ => true,
    }
}

fn render_file(
    mime_type: &str,
    base64: &str,
    folder: Option<&SaveFolder>,
    unsaved: &mut usize,
) -> Result<String, Failure> {
    let label = clean_line(mime_type);
    let Ok(bytes) = decode_base64(base64) else {
        return Ok(format!("{label}, {} (invalid base64)", size(base64.len())));
    };
    let label = format!("{label}, {}", size(bytes.len()));
    match folder {
        Some(folder) => {
            let path = folder.save(mime_type, &bytes)?;
            Ok(format!("{label} {FAINT}→{FAINT:#} {}", path.display()))
        }
        None => {
            *unsaved += 1;
            Ok(label)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ropeway_core::tool::{CallId, Origin};
    use serde_json::json;

    use super::*;

    fn read(result: Value) -> Envelope {
        let output = serde_json::from_value(result).expect("an object always reads");
        Envelope::from_output(CallId("1".to_owned()), "t", Origin::Local, Duration::ZERO, output)
    }

    fn plain(envelope: &Envelope, folder: Option<&SaveFolder>) -> String {
        let shown = render(envelope, folder).expect("an answer");
        anstream::adapter::strip_str(&shown.text).to_string()
    }

    #[test]
    fn every_kind_of_part_is_shown() {
        let output = read(json!({"content": [
            {"type": "text", "text": "hello\u{1b}[31m"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "audio", "data": "!", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
            {"type": "resource_link", "uri": "file:///b", "name": "b"},
            {"type": "hologram"},
        ], "structuredContent": {"a": 1}}));
        let expected = "hello\nimage/png, 3 B\naudio/wav, 1 B (invalid base64)\nfile:///a\ninside\n\
            b → file:///b\n{\"type\":\"hologram\"}\n{\n  \"a\": 1\n}\n";
        assert_eq!(plain(&output, None), expected);
        assert_eq!(render(&output, None).expect("an answer").notes, ["use --save PATH to save binary content"]);
    }

    #[test]
    fn structured_content_that_is_repeated_as_text_is_shown_once() {
        let output = read(json!({"content": [{"type": "text", "text": "{\"a\":1}"}], "structuredContent": {"a": 1}}));
        assert_eq!(plain(&output, None), "{\n  \"a\": 1\n}\n");
    }

    #[test]
    fn text_that_is_repeated_as_the_only_field_of_an_object_is_shown_once() {
        let answer = |structured: Value| {
            let parts = json!([{"type": "text", "text": "one"}, {"type": "text", "text": "two\n"}]);
            plain(&read(json!({"content": parts, "structuredContent": structured})), None)
        };
        assert_eq!(answer(json!({"content": "one\ntwo\n"})), "one\ntwo\n");
        assert_eq!(answer(json!({"content": "one"})), "one\ntwo\n{\n  \"content\": \"one\"\n}\n");
        assert_eq!(plain(&read(json!({"content": [], "structuredContent": {"a": ""}})), None), "{\n  \"a\": \"\"\n}\n");
    }

    #[test]
    fn files_are_saved_under_names_of_their_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = folder.path().join("new/out");
        let output = read(json!({"content": [
            {"type": "image", "data": "aGk=", "mimeType": "image/jpeg"},
            {"type": "image", "data": "aG8=", "mimeType": "image/jpeg"},
        ]}));
        let target = SaveFolder::new(&inner, "../ev/il");
        render(&output, Some(&target)).expect("saved");
        render(&output, Some(&target)).expect("saved again");
        let mut names: Vec<_> =
            inner.read_dir().expect("a folder").map(|entry| entry.expect("a file").file_name()).collect();
        names.sort();
        assert_eq!(names, ["ev_il-1.jpg", "ev_il-2.jpg", "ev_il-3.jpg", "ev_il-4.jpg"]);
        assert_eq!(std::fs::read(inner.join("ev_il-1.jpg")).expect("a file"), b"hi");
    }

    #[test]
    fn a_path_with_an_extension_is_the_file_of_a_result_with_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let image = |data: &str| json!({"type": "image", "data": data, "mimeType": "image/jpeg"});
        let save = |path: &str, images: &[Value]| {
            let text = json!({"type": "text", "text": "x"});
            let content = [&[text][..], images].concat();
            let output = read(json!({"content": content}));
            let target = SaveFolder::for_parts(Path::new(path), "t", &output.meta.content);
            render(&output, Some(&target)).map(drop).map_err(|failure| failure.message().to_owned())
        };
        let file = at("new/out.png").display().to_string();
        for data in ["aGk=", "aG8="] {
            assert_eq!(save(&file, &[image(data)]), Ok(()));
        }
        assert_eq!(std::fs::read(&file).expect("the file, replaced"), b"ho");
        assert_eq!(save(&file, &[image("aGk="), image("aG8=")]), Ok(()));
        assert!(at("new/out-1.jpg").is_file() && at("new/out-2.jpg").is_file());
        std::fs::create_dir(at("v1.2")).expect("a folder");
        for (path, saved) in [("v1.2", "v1.2/t-1.jpg"), ("v1.3/", "v1.3/t-1.jpg"), ("plain", "plain/t-1.jpg")] {
            assert_eq!(save(&format!("{}/{path}", folder.path().display()), &[image("aGk=")]), Ok(()));
            assert!(at(saved).is_file(), "{saved}");
        }
        let pipe = at("pipe.png");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
        let pipe = pipe.display().to_string();
        assert_eq!(save(&pipe, &[image("aGk=")]), Err(format!("could not write `{pipe}`")));
    }

    #[test]
    fn a_blob_with_a_text_type_is_text() {
        let part = |mime: &str, data: &str| {
            let part = json!({"type": "resource", "resource": {"uri": "a:b", "mimeType": mime, "blob": data}});
            decode_text(serde_json::from_value(part).expect("a part"))
        };
        let is_text = |part: ContentPart| {
            matches!(part, ContentPart::Resource(EmbeddedResource {
            contents: ResourceContents::Text(text), .. }) if text == "hi")
        };
        for mime in ["text/plain", "Text/Markdown; charset=utf-8", "application/json", "image/svg+xml"] {
            assert!(is_text(part(mime, "aGk=")), "{mime}");
        }
        for (mime, data) in [("image/png", "aGk="), ("text/plain", "/////w=="), ("text/plain", "!")] {
            assert!(!is_text(part(mime, data)), "{mime}");
        }
    }

    #[test]
    fn file_names_and_extensions_from_servers_are_safe() {
        assert_eq!(safe_name("../../etc/passwd"), "etc_passwd");
        assert_eq!(safe_name("日本"), "result");
        assert_eq!(safe_name("-rf"), "rf");
        let extensions =
            ["image/png", "image/svg+xml", "audio/mpeg; x=1", "a/../../x", "", "IMAGE/WebP"].map(extension);
        assert_eq!(extensions, ["png", "svg", "mp3", "bin", "bin", "webp"]);
    }

    #[test]
    fn a_result_is_converted_by_its_schema_with_warnings() {
        let schema = json!({"properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}}});
        let envelope = read(json!({"content": [], "structuredContent": {"a": "1", "b": "maybe"}})).cast_to(&schema);
        let shown = render(&envelope, None).expect("an answer");
        assert_eq!(shown.text, "{\n  \"a\": 1,\n  \"b\": \"maybe\"\n}\n");
        assert_eq!(
            shown.notes,
            ["warning: the result does not match its schema: at `/b`: must be a boolean, not a string"]
        );
    }
}
