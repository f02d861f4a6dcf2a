//! Advice for servers that do not fit their MCP SDK's version.

use ropeway_config::StdioServer;

use super::program;

/// Python errors for a package that uses names another one does not have.
const PYTHON_ERRORS: [&str; 4] = ["AttributeError:", "ImportError:", "ModuleNotFoundError:", "TypeError:"];

/// Node.js errors for the same.
const NODE_ERRORS: [&str; 3] =
    ["does not provide an export named", "ERR_PACKAGE_PATH_NOT_EXPORTED", "is not defined by \"exports\""];

const PROBLEM: &str = "the server does not fit the version of its MCP SDK";

/// Returns the advice for a server that ended because its SDK has other names than it uses.
pub(super) fn advice(server: &StdioServer, lines: &[String]) -> Option<String> {
    let has = |words: &str| lines.iter().any(|line| line.contains(words));
    if NODE_ERRORS.iter().any(|error| has(error)) && has("@modelcontextprotocol/") {
        return Some(format!("{PROBLEM}; use another version of the server, or one with its dependencies pinned"));
    }
    let error = lines.iter().rev().find(|line| PYTHON_ERRORS.iter().any(|error| line.starts_with(error)))?;
    // If the SDK is not installed at all, its version is not the problem.
    let names_sdk =
        ["/mcp/", "from mcp", "import mcp", "'mcp.", "'mcp'", "fastmcp", "FastMCP"].iter().any(|name| has(name));
    let is_missing = error.contains("No module named 'mcp'");
    let is_pinned = server.args.iter().any(|word| word.starts_with("mcp<") || word.starts_with("mcp=="));
    if !names_sdk || is_missing || is_pinned {
        return None;
    }
    let words = |before: &[&str], args: &[String]| {
        let words = before.iter().copied().chain(args.iter().map(String::as_str));
        shlex::try_join(words).unwrap_or_default()
    };
    let command = server.command.as_str();
    Some(match (program::name(command), &server.args[..]) {
        ("uvx", args) => format!("{PROBLEM}; pin the SDK: `{}`", words(&[command, "--with", "mcp<2"], args)),
        ("uv", [run, args @ ..]) if run == "run" => {
            format!("{PROBLEM}; pin the SDK: `{}`", words(&[command, "run", "--with", "mcp<2"], args))
        }
        ("pipx", [run, package, args @ ..]) if run == "run" && !package.starts_with('-') => {
            format!("{PROBLEM}; pin the SDK with uv: `{}`", words(&["uvx", "--with", "mcp<2", package], args))
        }
        _ => format!("{PROBLEM}; install `mcp<2` in its environment"),
    })
}

/// Returns `true` for a line that only marks a part of the line above it.
pub(super) fn is_marker(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && line.chars().all(|c| matches!(c, '^' | '~' | ' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advise(command: &str, lines: &[&str]) -> Option<String> {
        let words = shlex::split(command).expect("words");
        let server = StdioServer::new(words[0].as_str(), words[1..].iter().cloned());
        advice(&server, &lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>())
    }

    const CRASH: [&str; 4] = [
        "Traceback (most recent call last):",
        "  File \"/cache/lib/python3.12/site-packages/mcp_server_sqlite/server.py\", line 9, in <module>",
        "    from mcp.server.fastmcp import FastMCP",
        "ImportError: cannot import name 'FastMCP' from 'mcp.server'",
    ];

    #[test]
    fn a_python_server_that_does_not_fit_its_sdk_is_pinned() {
        for (command, expected) in [
            ("uvx mcp-server-sqlite --db-path 'a b'", "`uvx --with 'mcp<2' mcp-server-sqlite --db-path 'a b'`"),
            ("/bin/uv run server.py", "`/bin/uv run --with 'mcp<2' server.py`"),
            ("pipx run mcp-server-sqlite x", "`uvx --with 'mcp<2' mcp-server-sqlite x`"),
            ("python3 server.py", "install `mcp<2` in its environment"),
        ] {
            let advice = advise(command, &CRASH).unwrap_or_default();
            assert!(advice.contains(expected), "{advice}");
        }
        assert_eq!(advise("uvx --with mcp<2 mcp-server-sqlite", &CRASH), None, "it is pinned");
    }

    #[test]
    fn other_failures_get_no_advice_about_the_sdk() {
        for lines in [
            &["ModuleNotFoundError: No module named 'mcp'"][..],
            &["  File \"/srv/server.py\"", "AttributeError: 'NoneType' object has no attribute 'x'"],
            &["from mcp import x", "something else"],
            &["SyntaxError: The requested module './a.js' does not provide an export named 'b'"],
        ] {
            assert_eq!(advise("uvx x", lines), None, "{lines:?}");
        }
        let node = "Error [ERR_PACKAGE_PATH_NOT_EXPORTED]: in /x/node_modules/@modelcontextprotocol/sdk/package.json";
        assert!(advise("npx -y x", &[node]).is_some_and(|advice| advice.contains("another version of the server")));
    }

    #[test]
    fn markers_of_a_traceback_are_recognized() {
        assert!(is_marker("    ^^^^^^^^^^") && is_marker("  ~~~^^^~~") && !is_marker("  a ^ b") && !is_marker(""));
    }
}
