//! The README and the pages of `docs/`: commands work, programs are the examples, links lead somewhere.

use std::path::{Path, PathBuf};

use ropeway_config::{Config, Secrets};

use crate::Ropeway;

/// Pages whose `sh` blocks are run.
const RUN: [&str; 2] = ["README.md", "docs/terminal.md"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(page: &str) -> String {
    std::fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// Returns all pages for users, as paths from the root of the repository.
fn pages() -> Vec<String> {
    let entries = std::fs::read_dir(root().join("docs")).expect("docs").map(|entry| entry.expect("an entry").path());
    let pages = entries.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let names = pages.filter_map(|path| Some(format!("docs/{}", path.file_name()?.to_str()?)));
    names.chain(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(str::to_owned)).collect()
}

/// Returns the code blocks of a language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let text = read(page);
    let start = format!("```{language}\n");
    text.split(&start).skip(1).filter_map(|rest| Some(rest.split("```").next()?.to_owned())).collect()
}

/// Returns an example without the comment at its head.
fn program(example: &str) -> String {
    let text = read(&format!("crates/ropeway/examples/{example}.rs"));
    let lines = text.lines().skip_while(|line| line.starts_with("//!") || line.is_empty());
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_output_of_serve_names_its_page() {
    for page in pages() {
        for line in read(&page).lines().filter(|line| line.contains("listening on http")) {
            assert!(line.contains(", page at http"), "{page}: {line}");
        }
    }
}

#[test]
fn the_program_in_the_readme_is_an_example() {
    assert_eq!(blocks("README.md", "rust"), [program("many_servers")]);
}

#[test]
fn the_programs_in_the_library_guide_are_the_examples() {
    let page = "docs/library.md";
    let mut text = read(page);
    let names: Vec<String> =
        text.split("<!-- example: ").skip(1).filter_map(|rest| Some(rest.split(' ').next()?.to_owned())).collect();
    assert_eq!(names, ["first_call", "discover", "ask_a_model", "agent", "embedded_gateway"]);
    for name in names {
        let start = format!("<!-- example: {name} -->\n");
        let (front, rest) = text.split_once(&start).expect("the marker");
        let (_, back) = rest.split_once("<!-- /example -->").expect("the end marker");
        text = format!("{front}{start}\n```rust,no_run\n{}```\n\n<!-- /example -->{back}", program(&name));
    }
    keep(page, &text);
}

/// Compares a generated page with the stored one, or stores it if `UPDATE_DOCS` is set.
pub(crate) fn keep(page: &str, text: &str) {
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(root().join(page), text).expect(page);
    }
    assert_eq!(read(page), text, "run `UPDATE_DOCS=1 cargo test -p ropeway-cli --test suite docs`");
}

#[test]
fn the_library_guide_lists_every_example() {
    let files = std::fs::read_dir(root().join("crates/ropeway/examples")).expect("a folder");
    let mut examples: Vec<String> = files
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    let guide = read("docs/library.md");
    let rows = guide.lines().filter(|line| line.contains("](../crates/ropeway/examples/"));
    let mut named: Vec<String> = rows.filter_map(|row| Some(row.split('`').nth(1)?.to_owned())).collect();
    examples.sort();
    named.sort();
    assert_eq!(named, examples);
}

#[test]
fn the_configuration_files_in_the_docs_are_valid() {
    let blocks = blocks("docs/configuration.md", "yaml");
    assert_eq!(blocks.len(), 2, "a native file and a manifest");
    for block in blocks {
        let config = Config::parse(&block, Path::new("ropeway.yaml"), &Secrets::none()).expect("a configuration");
        assert_eq!(config.servers.len(), 2);
    }
}

#[test]
fn every_command_for_the_demo_server_in_the_docs_works() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut tried = 0;
    for line in RUN.iter().flat_map(|page| blocks(page, "sh")).collect::<String>().lines() {
        let line = line.split(" #").next().unwrap_or_default().trim();
        let Some(rest) = line.strip_prefix("ropeway") else { continue };
        // These need a network.
        if ["--stdio", "--url", "https://", "npx"].iter().any(|word| rest.contains(word)) {
            continue;
        }
        let words = shlex::split(rest).expect("words of a shell");
        let elsewhere = Ropeway::new(&[]).with(|command| {
            command.args(&words).current_dir(&folder);
        });
        elsewhere.run().expect(0);
        tried += 1;
    }
    assert!(tried >= 6, "{tried}");
}

#[test]
fn links_between_pages_lead_to_files_and_headings() {
    for page in pages() {
        let text = read(&page);
        let folder = root().join(&page).parent().expect("a folder").to_owned();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") || link.contains(' ') || link.starts_with("crate::") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { root().join(&page) } else { folder.join(file) };
            assert!(target.exists(), "{page}: {link}");
            if !heading.is_empty() {
                let target = std::fs::read_to_string(&target).expect("a page");
                let headings = target.lines().filter_map(|line| Some(line.strip_prefix('#')?.trim_start_matches('#')));
                let anchor = |title: &str| title.trim().to_lowercase().replace(' ', "-").replace(['`', ',', ':'], "");
                assert!(headings.map(anchor).any(|found| found == heading), "{page}: {link}");
            }
        }
    }
}

#[test]
fn the_table_of_contents_names_every_page() {
    let summary = read("docs/SUMMARY.md");
    for page in pages() {
        let Some(name) = page.strip_prefix("docs/").filter(|name| *name != "SUMMARY.md") else { continue };
        assert!(summary.contains(&format!("]({name})")), "{name}");
    }
}

#[test]
fn the_readme_is_short() {
    let lines = read("README.md").lines().count();
    assert!(lines < 200, "{lines} lines");
}
