//! The web page's files, embedded in the library.

use std::sync::LazyLock;

use bytes::Bytes;

use ropeway_core::hash::Fnv;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asset {
    /// The URL path.
    path: &'static str,
    pub(crate) media_type: &'static str,
    pub(crate) bytes: Bytes,
    /// The entity tag, with its quotes. It changes with the contents, so that browsers load a new version after an upgrade.
    pub(crate) etag: String,
}

impl Asset {
    fn new(path: &'static str, media_type: &'static str, source: &'static str) -> Self {
        let compacted = compact(source);
        let bytes: Bytes = if path.ends_with(".css") { compact_style(&compacted).into() } else { compacted.into() };
        let mut hash = Fnv::default();
        hash.write(bytes.iter().copied());
        Self { path, media_type, etag: format!("\"{:016x}\"", hash.finish()), bytes }
    }
}

/// Builds the file table, each file with its URL and its media type.
macro_rules! assets {
    ($($path:literal => $file:literal, $media_type:literal;)*) => {
        static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
            vec![$(Asset::new($path, $media_type, include_str!(concat!("assets/", $file)))),*]
        });
    };
}

assets! {
    "/" => "index.html", "text/html; charset=utf-8";
    "/ui/app.css" => "app.css", "text/css; charset=utf-8";
    "/ui/app.js" => "app.js", "text/javascript; charset=utf-8";
    "/ui/call.js" => "call.js", "text/javascript; charset=utf-8";
    "/ui/calls.js" => "calls.js", "text/javascript; charset=utf-8";
    "/ui/catalog.js" => "catalog.js", "text/javascript; charset=utf-8";
    "/ui/charts.js" => "charts.js", "text/javascript; charset=utf-8";
    "/ui/client.js" => "client.js", "text/javascript; charset=utf-8";
    "/ui/command.js" => "command.js", "text/javascript; charset=utf-8";
    "/ui/content.js" => "content.js", "text/javascript; charset=utf-8";
    "/ui/dom.js" => "dom.js", "text/javascript; charset=utf-8";
    "/ui/features.js" => "features.js", "text/javascript; charset=utf-8";
    "/ui/form.js" => "form.js", "text/javascript; charset=utf-8";
    "/ui/history.js" => "history.js", "text/javascript; charset=utf-8";
    "/ui/list.js" => "list.js", "text/javascript; charset=utf-8";
    "/ui/markdown.js" => "markdown.js", "text/javascript; charset=utf-8";
    "/ui/monitor.js" => "monitor.js", "text/javascript; charset=utf-8";
    "/ui/questions.js" => "questions.js", "text/javascript; charset=utf-8";
    "/ui/roots.js" => "roots.js", "text/javascript; charset=utf-8";
    "/ui/schema.js" => "schema.js", "text/javascript; charset=utf-8";
    "/ui/icon.svg" => "icon.svg", "image/svg+xml";
}

/// Returns the file with a path.
pub(crate) fn asset(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

/// Leaves out comments in scripts and style sheets, and indentation. Only lines that consist entirely of a comment, and comments
/// that are alone in a block, are recognized.
fn compact(source: &str) -> String {
    let mut compacted = String::with_capacity(source.len());
    let mut is_comment = false;
    for line in source.lines().map(str::trim_start) {
        is_comment |= line.starts_with("/**");
        if !is_comment && !line.starts_with("//") && !line.is_empty() {
            match (line.find("{ /* "), line.split_once(" */ }")) {
                (Some(start), Some((comment, rest))) if start < comment.len() => {
                    compacted.push_str(&line[..start]);
                    compacted.push_str("{}");
                    compacted.push_str(rest);
                }
                _ => compacted.push_str(line),
            }
            compacted.push('\n');
        }
        is_comment &= !line.ends_with("*/");
    }
    compacted
}

/// Leaves out spaces and line breaks next to punctuation in a style sheet, whose texts have no punctuation.
fn compact_style(source: &str) -> String {
    let spaced = [(" {", "{"), ("{ ", "{"), ("; }", "}"), ("; ", ";"), (": ", ":"), (", ", ","), (" > ", ">")];
    let broken = [("}\n", "}"), ("{\n", "{"), (";\n", ";"), ("} }", "}}")];
    spaced.iter().chain(&broken).fold(source.to_owned(), |text, (spaced, bare)| text.replace(spaced, bare))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Maximum size of all files together.
    const MAX_BYTES: usize = 150_000;

    fn texts() -> impl Iterator<Item = (&'static str, &'static str)> {
        ASSETS.iter().map(|asset| (asset.path, std::str::from_utf8(&asset.bytes).expect("UTF-8")))
    }

    #[test]
    fn all_files_together_are_small() {
        let size: usize = ASSETS.iter().map(|asset| asset.bytes.len()).sum();
        assert!(size < MAX_BYTES, "{size} bytes");
    }

    #[test]
    fn every_file_is_referred_to_by_another_one() {
        for asset in ASSETS.iter().filter(|asset| asset.path != "/") {
            let name = asset.path.trim_start_matches("/ui");
            assert!(texts().any(|(_, text)| text.contains(&format!("{name}\""))), "{name}");
        }
    }

    #[test]
    fn no_script_writes_html_or_compiles_text() {
        let forbidden =
            ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "srcdoc"];
        for (path, text) in texts().filter(|(path, _)| path.ends_with(".js")) {
            let found = forbidden.iter().find(|word| text.contains(**word));
            assert_eq!(found, None, "{path}");
        }
    }

    #[test]
    fn no_file_has_inline_scripts_styles_or_outside_resources() {
        let forbidden = [" style=\"", "<style", " onclick=", "@import", "src=\"http", "href=\"http"];
        for (path, text) in texts() {
            let found = forbidden.iter().find(|word| text.contains(**word));
            assert_eq!(found, None, "{path}");
        }
    }

    #[test]
    fn only_comments_and_indentation_are_left_out() {
        let source =
            "// One.\n\n/** Two. */\na();\n  /**\n   * Three.\n   */\n  b(); // four\n  c(() => { /* Five. */ }, d);\n";
        assert_eq!(compact(source), "a();\nb(); // four\nc(() => {}, d);\n");
        for (path, text) in texts().filter(|(path, _)| path.ends_with(".js")) {
            // A text over several lines would lose its indentation.
            let torn = text
                .lines()
                .find(|line| line.matches('`').count() % 2 == 1 && !line.contains("/^") && !line.contains("= /"));
            assert_eq!(torn, None, "{path}");
        }
    }

    #[test]
    fn spaces_of_a_style_sheet_are_left_out_where_they_have_no_meaning() {
        let source = ".a :not(p) > b, i { margin: 0 calc(1px + 2px); content: \"← \"; }\n@media (width: 1px) { p { top: 0; } }\n";
        let expected = ".a :not(p)>b,i{margin:0 calc(1px + 2px);content:\"← \"}@media (width:1px){p{top:0}}";
        assert_eq!(compact_style(source), expected);
    }

    #[test]
    fn tags_differ_between_files() {
        let tag = |path: &str| &asset(path).expect("a file").etag;
        assert_ne!(tag("/"), tag("/ui/app.js"));
        assert!(tag("/").starts_with('"') && tag("/").ends_with('"'));
        assert!(asset("/ui/unknown.js").is_none());
    }
}
