//! Tests of attachments.

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
fn the_type_of_a_file_is_detected_from_its_content() {
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
fn unsupported_files_are_refused_with_a_reason() {
    for (name, bytes, reason) in [
        ("a.png", &b"<html>404</html>"[..], "contains text, but its name ends in `.png`"),
        ("a.PDF", b"plain", "contains text, but its name ends in `.pdf`"),
        ("a", b"", "file is empty"),
        ("a.zip", b"PK\x03\x04\0\0", "binary data is not supported; only text, images and PDFs can be attached"),
        ("a.txt", b"\xff\xfeh\0i\0", "UTF-16 text is not supported; convert it to UTF-8"),
        ("a.txt", b"caf\xe9", "binary data is not supported; only text, images and PDFs can be attached"),
        ("a.txt", b"with \0 zero", "binary data is not supported; only text, images and PDFs can be attached"),
        ("a.bmp", b"BM\0\0\0\0\xff", "image/bmp is not supported; convert it to PNG or JPEG"),
        ("a.ogg", b"OggS\0\xff", "audio/ogg is not supported; only text, images and PDFs can be attached"),
    ] {
        let (_folder, path) = written(name, bytes);
        assert_eq!(problem(&path), reason, "{name}");
    }
}

#[test]
fn only_regular_files_are_attached_and_others_do_not_block() {
    let (folder, path) = written("a.txt", b"x");
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    assert_eq!(problem(folder.path()), "is a directory");
    assert_eq!(problem(&pipe), "not a regular file");
    assert_eq!(problem(Path::new("/dev/zero")), "not a regular file");
    assert_eq!(problem(&path.with_file_name("missing")), "no such file");
    // A sparse file is large without taking space, and nothing of it is read.
    let huge = folder.path().join("huge.txt");
    std::fs::File::create(&huge).and_then(|file| file.set_len(1 << 30)).expect("a sparse file");
    assert_eq!(problem(&huge), "larger than 32 MiB");
    let text = folder.path().join("long.txt");
    std::fs::write(&text, vec![b'x'; MAX_TEXT + 1]).expect("a file");
    assert_eq!(problem(&text), "larger than 10 MiB");
}

#[test]
fn mentions_are_found_at_the_start_of_words() {
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
fn a_missing_file_is_an_error_only_where_it_must_be_a_file() {
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
fn the_model_gets_the_name_of_each_file_before_the_prompt() {
    let (_one, text) = written("notes.txt", b"remember");
    let (_two, image) = written("photo.png", PNG);
    let read = |path: &Path| Attachment::read(path).expect("an attachment");
    let parts = compose("look".into(), &[read(&text), read(&image)], Dialect::Gemini).expect("parts");
    let [ContentPart::Resource(notes), name, ContentPart::Image(_), prompt] = &parts[..] else { panic!("{parts:?}") };
    let name = name.as_text().expect("the name of the photo");
    assert!(notes.uri.ends_with("/notes.txt") && name.ends_with("/photo.png]"), "{parts:?}");
    assert_eq!(prompt.as_text(), Some("look"));
}

#[test]
fn files_that_a_provider_does_not_support_are_refused_early() {
    let (_folder, path) = written("a.gif", b"GIF89a\0");
    let gif = [Attachment::read(&path).expect("an attachment")];
    for dialect in [Dialect::Anthropic, Dialect::Responses, Dialect::Chat] {
        assert!(compose("look".into(), &gif, dialect).is_ok());
    }
    let failure = compose("look".into(), &gif, Dialect::Gemini).expect_err("a GIF");
    assert!(failure.message().ends_with("Gemini does not support GIF images"), "{}", failure.message());
}
