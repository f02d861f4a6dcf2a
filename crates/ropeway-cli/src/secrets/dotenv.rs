//! The `.env` next to a configuration file.

use std::path::{Path, PathBuf};

use ropeway_config::{Secret, dotenv_variables};

use crate::secrets::literal::ExtractedSecret;

/// A new file's header.
const HEADER: &str = "# Secrets of ropeway.yaml. Do not commit this file.\n";

/// Returns the `.env` next to a configuration file.
pub(crate) fn beside(config: &Path) -> PathBuf {
    config.with_file_name(".env")
}

/// Returns the variables in a `.env`, with their values if these are complete.
pub(crate) fn names(text: &str) -> Vec<(String, Option<Secret>)> {
    dotenv_variables(text).into_iter().collect()
}

/// Appends secrets that the text does not contain yet.
pub(crate) fn with(text: Option<&str>, extracted: &[ExtractedSecret]) -> String {
    let mut text = text.unwrap_or(HEADER).to_owned();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let mut known: Vec<String> = names(&text).into_iter().map(|(name, _)| name).collect();
    for ExtractedSecret { name, value, .. } in extracted {
        if !known.contains(name) {
            text.push_str(&format!("{name}={}\n", quoted(value.expose())));
            known.push(name.clone());
        }
    }
    text
}

fn quoted(value: &str) -> String {
    if !value.contains(['\'', '\n', '\r']) {
        return format!("'{value}'");
    }
    let escaped = value.chars().fold(String::new(), |mut text, c| {
        match c {
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '"' | '\\' | '$' | '`' => text.extend(['\\', c]),
            c => text.push(c),
        }
        text
    });
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use ropeway_config::{Config, Secrets, ServerSettings, Transport};

    use super::*;

    fn extracted(name: &str, value: &str) -> ExtractedSecret {
        ExtractedSecret { name: name.to_owned(), value: value.into(), key: String::new() }
    }

    #[test]
    fn every_secret_is_read_again_as_it_was() {
        let folder = tempfile::tempdir().expect("a folder");
        for value in ["plain", "a b # c", "$HOME `x` ${Y}", "it's \"it\"", "-----BEGIN\nkey\n'", "\\n", "ends with \\"]
        {
            std::fs::write(folder.path().join(".env"), with(None, &[extracted("TOKEN", value)])).expect("a file");
            let text = "servers: [{alias: a, command: x, env: {T: '${TOKEN}'}}]";
            let config = Config::parse(text, &folder.path().join("ropeway.yaml"), &Secrets::none()).expect("a config");
            let ServerSettings::Known(config) = &config.servers[0].settings else {
                panic!("{value}: the secret is missing")
            };
            let Transport::Stdio(server) = &config.transport else { panic!("a command") };
            assert_eq!(server.env[0].1.expose(), value);
        }
    }

    #[test]
    fn existing_variables_are_kept_and_not_repeated() {
        let text =
            with(Some("# mine\nexport A=1\nB='two'"), &[extracted("B", "x"), extracted("C", "3"), extracted("C", "3")]);
        assert_eq!(text, "# mine\nexport A=1\nB='two'\nC='3'\n");
        let known = names(&text);
        let expected = [("A", Some("1")), ("B", Some("two")), ("C", Some("3"))];
        assert_eq!(known, expected.map(|(name, value)| (name.to_owned(), value.map(Secret::new))));
    }
}
