//! The last words of a server that died, and what usually helps.

use super::Given;

/// Words that servers and their package runners say, and what to do then. The first that is said counts.
const USUAL: [(&[&str], &str); 14] = [
    (
        &[
            "e404",
            "404 not found - get",
            "no solution found when resolving",
            "was not found in the package registry",
            "could not determine executable",
        ],
        "there is no such package, or it is no program: correct its name or version",
    ),
    (
        &["self signed certificate", "self-signed certificate", "unable to get local issuer"],
        "it does not trust a certificate: give it --env NODE_EXTRA_CA_CERTS=FILE or --env SSL_CERT_FILE=FILE",
    ),
    (
        &["cannot find module", "err_module_not_found", "cannot find package"],
        "a part of it is missing: run `npm install`, and `npm run build` if it has to be built, in its folder",
    ),
    (
        &["no module named", "modulenotfounderror", "importerror"],
        "a part of it is missing: install it into the Python that runs it, or run it with `uv run` or `uvx`",
    ),
    (
        &["enotfound", "eai_again", "econnrefused", "etimedout", "failed to fetch", "dns error"],
        "it needs the network; behind a proxy give it the variables, such as --env HTTPS_PROXY=…, or --inherit-env",
    ),
    (
        &["syntaxerror: unexpected token", "unsupported engine", "ebadengine"],
        "its Node may be too old: `nvm install --lts`",
    ),
    (&["eaddrinuse", "address already in use"], "its port is taken: end the other program, or give it another port"),
    (&["eacces", "permission denied"], "it may not read or write what it needs: look at the owner of that file"),
    (&["enospc", "no space left"], "the disk is full"),
    (&["heap out of memory", "enomem", "cannot allocate memory"], "the memory is full"),
    (
        &["pull access denied", "manifest unknown", "unable to find image"],
        "there is no such image: correct its name, or `docker login`",
    ),
    (
        &["usage:", "unrecognized arguments", "unknown option", "missing required argument", "expected one argument"],
        "its arguments are not what it expects: compare them with its documentation",
    ),
    (
        &["api key", "api_key", "apikey", "token", "credential", "unauthorized"],
        "it wants a secret: give it with --env NAME=VALUE; it does not get our whole environment",
    ),
    (
        &["environment variable", "env var", "is not set", "not defined", "must be set"],
        "it wants a variable: give it with --env NAME=VALUE; it does not get our whole environment",
    ),
];

/// What stands in place of an option for a server that a file names.
const IN_A_FILE: [(&str, &str); 4] = [
    (
        "give it --env NODE_EXTRA_CA_CERTS=FILE or --env SSL_CERT_FILE=FILE",
        "set `NODE_EXTRA_CA_CERTS` or `SSL_CERT_FILE` under its `env`",
    ),
    (
        "give it the variables, such as --env HTTPS_PROXY=…, or --inherit-env",
        "set the variables, such as `HTTPS_PROXY`, under its `env`, or `inherit_env: true`",
    ),
    ("it wants a secret: give it with --env NAME=VALUE", "it wants a secret: `NAME: ${NAME}` under its `env`"),
    ("it wants a variable: give it with --env NAME=VALUE", "it wants a variable: `NAME: value` under its `env`"),
];

/// What usually helps a server that said this.
pub(super) fn advice(lines: &[String], given: Given) -> Option<String> {
    let said = lines.join("\n").to_lowercase();
    let heard = |words: &&[&str]| words.iter().any(|words| said.contains(words));
    let (_, advice) = USUAL.iter().find(|(words, _)| heard(words))?;
    Some(match given {
        Given::Line => (*advice).to_owned(),
        Given::File => IN_A_FILE.iter().fold((*advice).to_owned(), |advice, (line, file)| advice.replace(line, file)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_words_have_usual_advice() {
        let advice = |line: &str| advice(&["starting".to_owned(), line.to_owned()], Given::Line).unwrap_or_default();
        for (line, expected) in [
            ("npm error 404 Not Found - GET https://registry/x - Not found", "there is no such package"),
            ("npm error code ENOTFOUND", "needs the network"),
            ("Error: Cannot find module '/srv/dist/index.js'", "npm install"),
            ("ModuleNotFoundError: No module named 'mcp'", "uvx"),
            ("Error: GITHUB_TOKEN is required", "a secret"),
            ("DATABASE_URL environment variable is not set", "a variable"),
            ("usage: server [-h] --db DB", "its arguments"),
        ] {
            assert!(advice(line).contains(expected), "{line}: {}", advice(line));
        }
        assert_eq!(advice("something else"), "");
    }
    #[test]
    fn of_a_server_in_a_file_no_advice_names_an_option() {
        for (words, line) in USUAL {
            let said = [words[0].to_owned()];
            let advice = advice(&said, Given::File).expect("advice");
            assert!(!advice.contains("--env") && !advice.contains("--inherit"), "{advice}");
            assert_eq!(line.contains("--env"), advice != line, "{advice}");
        }
    }
}
