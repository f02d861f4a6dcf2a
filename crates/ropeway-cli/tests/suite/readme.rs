//! The README: what it says can be typed, works.

use std::path::Path;

use ropeway::config::{Config, Secrets};

use crate::Ropeway;

const README: &str = include_str!("../../../../README.md");
const EXAMPLES: [&str; 5] = [
    include_str!("../../../ropeway/examples/many_servers.rs"),
    include_str!("../../../ropeway/examples/discover.rs"),
    include_str!("../../../ropeway/examples/first_call.rs"),
    include_str!("../../../ropeway/examples/ask_a_model.rs"),
    include_str!("../../../ropeway/examples/agent.rs"),
];

/// The lines of all code blocks of a language.
fn code(language: &str) -> String {
    let mut code = String::new();
    let mut inside = false;
    for line in README.lines() {
        match line.strip_prefix("```") {
            Some(mark) => inside = mark == language,
            None if inside => code.push_str(&format!("{line}\n")),
            None => {}
        }
    }
    code
}

#[test]
fn the_rust_in_the_readme_is_the_examples() {
    let program = |example: &str| {
        let lines = example.lines().skip_while(|line| line.starts_with("//!") || line.is_empty());
        lines.map(|line| format!("{line}\n")).collect::<String>()
    };
    assert_eq!(code("rust"), EXAMPLES.map(program).concat());
}

#[test]
fn the_readme_names_every_example() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ropeway/examples");
    let files = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut examples: Vec<String> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    let rows = README.lines().filter(|line| line.contains("](crates/ropeway/examples/"));
    let mut named: Vec<String> = rows.filter_map(|row| Some(row.split('`').nth(1)?.to_owned())).collect();
    examples.sort();
    named.sort();
    assert_eq!(named, examples);
}

#[test]
fn the_configuration_in_the_readme_is_one() {
    let blocks: Vec<&str> = README.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.len(), 2, "a native file and a manifest");
    for block in blocks {
        let config = Config::parse(block, Path::new("ropeway.yaml"), &Secrets::none()).expect("a configuration");
        assert_eq!(config.servers.len(), 2);
    }
}

#[test]
fn every_command_for_the_demo_server_in_the_readme_works() {
    let folder = tempfile::tempdir().expect("a folder");
    let commands = code("sh");
    let mut tried = 0;
    for line in commands.lines() {
        let line = line.split(" #").next().unwrap_or_default().trim();
        let Some(rest) = line.strip_prefix("ropeway") else { continue };
        // Those need a network.
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
    assert!(tried >= 3, "{commands}");
}
