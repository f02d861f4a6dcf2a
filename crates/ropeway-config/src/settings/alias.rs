//! The rules for server aliases, and aliases that are derived from a command or a URL.

use std::path::Path;

use ropeway_core::tool::Alias;

/// Programs that run the script in their first argument.
const INTERPRETERS: [&str; 3] = ["node", "python", "python3"];

/// Package runner subcommands before the package.
const SUBCOMMANDS: [&str; 5] = ["dlx", "exec", "run", "tool", "x"];

/// Package runner options whose value is not the package.
const OPTIONS_WITH_VALUES: [&str; 11] =
    ["--env", "--from", "--mount", "--name", "--network", "--python", "--volume", "--with", "-e", "-p", "-v"];

/// Name prefixes that almost every server has.
const PREFIXES: [&str; 5] = ["mcp-server-", "mcp_server_", "server-", "mcp-", "mcp_"];
const SUFFIXES: [&str; 4] = ["-mcp-server", "-server", "-mcp", "_mcp"];

/// Maximum alias length in characters.
pub(crate) const MAX_ALIAS: usize = 64;

/// Returns an alias for a command: the package, script or program name, without `mcp-server-` and the like.
pub(super) fn of_command(command: &str, args: &[String], is_package_runner: bool) -> Alias {
    let program = file_stem(command);
    let is_indirect = is_package_runner || INTERPRETERS.contains(&program);
    let name = if is_indirect { package(args).unwrap_or(program) } else { program };
    derived(short(name))
}

/// Returns an alias for a URL: the first label in its host that is not `mcp`, `api` or `www`, or an IP address.
pub(super) fn of_url(url: &str) -> Alias {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        Some((address, _)) => address,
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_address = !host.contains(|c: char| c.is_ascii_alphabetic()) || host.contains(':');
    let labels = if is_address { None } else { host.rsplit_once('.') };
    let mut labels = labels.map_or(host, |(labels, _)| labels).split('.');
    let is_common = |label: &&str| ["mcp", "api", "www"].contains(label);
    let name = if is_address { host } else { labels.find(|label| !is_common(label)).unwrap_or(host) };
    derived(short(name))
}

/// Returns the package or script in a runner's arguments, without its scope and version.
fn package(args: &[String]) -> Option<&str> {
    let mut words = args.iter().map(String::as_str);
    let word = loop {
        let word = words.next()?;
        if OPTIONS_WITH_VALUES.contains(&word) {
            words.next();
        } else if !word.starts_with('-') && !SUBCOMMANDS.contains(&word) {
            break word;
        }
    };
    let name = word.rsplit('/').next().unwrap_or(word);
    let name = name.split(['@', '=', '[', ':', '<', '>']).next().unwrap_or(name);
    Some(file_stem(name)).filter(|name| !name.is_empty())
}

fn file_stem(path: &str) -> &str {
    Path::new(path).file_stem().and_then(|name| name.to_str()).unwrap_or_default()
}

/// Removes the name parts that almost every server has, unless nothing would be left.
fn short(name: &str) -> &str {
    let is_left = |rest: &&str| !rest.is_empty();
    let name = PREFIXES.iter().find_map(|part| name.strip_prefix(part).filter(is_left)).unwrap_or(name);
    SUFFIXES.iter().find_map(|part| name.strip_suffix(part).filter(is_left)).unwrap_or(name)
}

fn derived(name: &str) -> Alias {
    Alias::new(if name.is_empty() { "server".to_owned() } else { sanitize_alias(name) })
}

/// Replaces characters that an alias cannot contain, and shortens it.
pub(crate) fn sanitize_alias(alias: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') { c } else { '-' };
    alias.chars().take(MAX_ALIAS).map(legal).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ServerConfig, StdioServer};

    #[test]
    fn an_alias_is_derived_from_the_package_or_program() {
        for (line, alias) in [
            ("npx -y @modelcontextprotocol/server-filesystem /tmp", "filesystem"),
            ("npx @scope/thing-mcp@1.2.3", "thing"),
            ("uvx mcp-server-time==1.0", "time"),
            ("uvx --from git+https://example.com/x.git some-tool", "some-tool"),
            ("uv tool run mcp-server-fetch[all]", "fetch"),
            ("docker run -i --rm -e TOKEN mcp/github:latest", "github"),
            ("python3 -m mcp_server_git", "git"),
            ("node /srv/weather.js --port 1", "weather"),
            ("/usr/bin/mcp-server-sqlite --db x", "sqlite"),
            ("npx", "npx"),
            ("mcp-server", "server"),
            ("", "server"),
        ] {
            let mut words = line.split(' ');
            let server = StdioServer::new(words.next().unwrap_or_default(), words);
            assert_eq!(ServerConfig::from(server).alias.as_str(), alias, "{line}");
        }
    }

    #[test]
    fn an_alias_is_derived_from_the_host() {
        for (url, alias) in [
            ("https://mcp.figma.com/mcp", "figma"),
            ("https://docs.example.com/mcp?x=a.b", "docs"),
            ("https://user:p@ss@example.com", "example"),
            ("http://localhost:3000/mcp", "localhost"),
            ("http://127.0.0.1:3000/mcp", "127.0.0.1"),
            ("http://[::1]:3000/mcp", "--1"),
            ("https://mcp.com/", "mcp.com"),
            ("", "server"),
        ] {
            assert_eq!(of_url(url).as_str(), alias, "{url}");
        }
    }
}
