//! Advice for known messages on a server's standard error.

use super::source::ConfigSource;

/// Messages from servers and package runners, and the advice for them. The first match wins.
const KNOWN_ERRORS: [(&[&str], &str); 14] = [
    (
        &[
            "e404",
            "404 not found - get",
            "no solution found when resolving",
            "was not found in the package registry",
            "could not determine executable",
        ],
        "package not found or not executable; correct its name or version",
    ),
    (
        &["self signed certificate", "self-signed certificate", "unable to get local issuer"],
        "it does not trust a certificate; use --env NODE_EXTRA_CA_CERTS=FILE or --env SSL_CERT_FILE=FILE",
    ),
    (
        &["cannot find module", "err_module_not_found", "cannot find package"],
        "a module is missing; run `npm install`, and `npm run build` if needed, in its directory",
    ),
    (
        &["no module named", "modulenotfounderror", "importerror"],
        "a Python module is missing; install it, or start the server with `uv run` or `uvx`",
    ),
    (
        &["enotfound", "eai_again", "econnrefused", "etimedout", "failed to fetch", "dns error"],
        "it needs the network; behind a proxy, use --env HTTPS_PROXY=… or --inherit-env",
    ),
    (
        &["syntaxerror: unexpected token", "unsupported engine", "ebadengine"],
        "Node.js may be too old; run `nvm install --lts`",
    ),
    (&["eaddrinuse", "address already in use"], "its port is in use; stop the other program, or choose another port"),
    (&["eacces", "permission denied"], "it lacks permission for a file; check the owner and mode of the file"),
    (&["enospc", "no space left"], "the disk is full"),
    (&["heap out of memory", "enomem", "cannot allocate memory"], "it is out of memory"),
    (
        &["pull access denied", "manifest unknown", "unable to find image"],
        "image not found; correct its name, or run `docker login`",
    ),
    (
        &["usage:", "unrecognized arguments", "unknown option", "missing required argument", "expected one argument"],
        "invalid arguments; check its documentation",
    ),
    (
        &["api key", "api_key", "apikey", "token", "credential", "unauthorized"],
        "it needs a credential; set it with --env NAME=VALUE, since servers do not inherit the environment",
    ),
    (
        &["environment variable", "env var", "is not set", "not defined", "must be set"],
        "it needs an environment variable; set it with --env NAME=VALUE, since servers do not inherit the environment",
    ),
];

/// Replaces the options in the advice with configuration file keys.
const FILE_ADVICE: [(&str, &str); 4] = [
    (
        "use --env NODE_EXTRA_CA_CERTS=FILE or --env SSL_CERT_FILE=FILE",
        "set `NODE_EXTRA_CA_CERTS` or `SSL_CERT_FILE` in its `env`",
    ),
    ("use --env HTTPS_PROXY=… or --inherit-env", "set `HTTPS_PROXY` in its `env`, or `inherit_env: true`"),
    ("a credential; set it with --env NAME=VALUE", "a credential; add `NAME: ${NAME}` to its `env`"),
    (
        "an environment variable; set it with --env NAME=VALUE",
        "an environment variable; add `NAME: value` to its `env`",
    ),
];

/// Returns the advice for a server's standard error.
pub(super) fn advice(lines: &[String], source: ConfigSource) -> Option<String> {
    let said = lines.join("\n").to_lowercase();
    let matches = |words: &&[&str]| words.iter().any(|words| said.contains(words));
    let (_, advice) = KNOWN_ERRORS.iter().find(|(words, _)| matches(words))?;
    Some(match source {
        ConfigSource::CommandLine => (*advice).to_owned(),
        ConfigSource::File => {
            FILE_ADVICE.iter().fold((*advice).to_owned(), |advice, (line, file)| advice.replace(line, file))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_messages_have_advice() {
        let advice = |line: &str| {
            advice(&["starting".to_owned(), line.to_owned()], ConfigSource::CommandLine).unwrap_or_default()
        };
        for (line, expected) in [
            ("npm error 404 Not Found - GET https://registry/x - Not found", "package not found"),
            ("npm error code ENOTFOUND", "needs the network"),
            ("Error: Cannot find module '/srv/dist/index.js'", "npm install"),
            ("ModuleNotFoundError: No module named 'mcp'", "uvx"),
            ("Error: GITHUB_TOKEN is required", "a credential"),
            ("DATABASE_URL environment variable is not set", "an environment variable"),
            ("usage: server [-h] --db DB", "invalid arguments"),
        ] {
            assert!(advice(line).contains(expected), "{line}: {}", advice(line));
        }
        assert_eq!(advice("something else"), "");
    }

    #[test]
    fn advice_for_a_server_in_a_file_names_no_option() {
        for (words, line) in KNOWN_ERRORS {
            let said = [words[0].to_owned()];
            let advice = advice(&said, ConfigSource::File).expect("advice");
            assert!(!advice.contains("--env") && !advice.contains("--inherit"), "{advice}");
            assert_eq!(line.contains("--env"), advice != line, "{advice}");
        }
    }
}
