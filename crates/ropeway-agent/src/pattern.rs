//! Tool patterns, anchored to servers.

use ropeway_config::Glob;
use ropeway_core::parse_error::ParseError;
use ropeway_core::tool::{Origin, ToolDefinition};

/// Maximum number of patterns that `{one,two}` may expand to.
const MAX_ALTERNATIVES: usize = 256;

/// The default prefix for server tool names.
const DEFAULT_PREFIX: &str = "mcp_";

/// A pattern over tools: `SERVER.TOOL`, or a tool name as models see it.
///
/// `*`, `?`, `[ab]` and `{one,two}` are wildcards, and `\` escapes the next character. A wildcard never spans both the server and
/// the tool:
///
/// - `files.read_*`: the server `files`' tools `read_*`. The server's part ends at the last dot before the first wildcard, or at
///   the first dot after it, as in `*.read_*`.
/// - `mcp_files_*`: all tools from the server whose tools begin with `mcp_files_`. The text before the wildcard must be the whole
///   prefix: `mcp_my_files_*` does not match server `my`'s tool `files_wipe`. To match some of a server's tools, write
///   `my.files_*`.
/// - `mcp_files_read`: the tool with this name. `*`: all tools. `mcp_*`: all tools whose prefix begins with `mcp_`.
/// - `read_*`: local tools, and tools from servers without a prefix. Those servers' tools never match a pattern that begins with
///   `mcp_`, which is reserved for servers with a prefix.
#[derive(Clone, Debug)]
pub struct ToolPattern {
    text: String,
    whole: Glob,
    alternatives: Vec<Alternative>,
}

/// A pattern without `{one,two}`.
#[derive(Clone, Debug)]
struct Alternative {
    whole: Glob,
    /// The text before the first wildcard.
    head: String,
    /// The pattern from the first wildcard on.
    tail: Option<Tail>,
    /// Server and tool patterns; several if it is ambiguous where the server ends.
    parts: Vec<(Glob, Glob)>,
}

#[derive(Clone, Debug)]
struct Tail {
    glob: Glob,
    /// Whether it is `*`.
    matches_all: bool,
}

impl ToolPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// Fails if a wildcard is malformed, or `{one,two}` expands to more than 256 patterns.
    pub fn new(text: &str) -> Result<Self, ParseError> {
        let whole = glob(text)?;
        let alternatives = expand(text)?.iter().map(|text| Alternative::new(text)).collect::<Result<_, _>>()?;
        Ok(Self { text: text.to_owned(), whole, alternatives })
    }

    /// Returns the pattern's text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns `true` if the pattern matches this tool.
    pub fn matches(&self, definition: &ToolDefinition) -> bool {
        match &definition.origin {
            Origin::Local => self.whole.matches(&definition.name),
            Origin::Server { .. } => self.alternatives.iter().any(|alternative| alternative.matches(definition)),
        }
    }

    /// Returns `true` if the pattern matches this tool, even if a wildcard spans both the server and the tool. Used by ask and
    /// deny rules.
    pub fn matches_loosely(&self, definition: &ToolDefinition) -> bool {
        let dotted = || match &definition.origin {
            Origin::Server { server, tool } => self.whole.matches(&format!("{server}.{tool}")),
            Origin::Local => false,
        };
        self.matches(definition) || self.whole.matches(&definition.name) || dotted()
    }

    /// Returns `true` if the pattern may match a tool from this server, whose tools are unknown. `prefix` is the server's tool
    /// name prefix.
    pub fn may_match_server(&self, alias: &str, prefix: &str) -> bool {
        self.alternatives.iter().any(|alternative| {
            let head = alternative.head.as_str();
            let by_name = alternative.tail.is_some() && prefix.starts_with(head);
            by_name || head.starts_with(prefix) || alternative.parts.iter().any(|(server, _)| server.matches(alias))
        })
    }
}

impl Alternative {
    fn new(text: &str) -> Result<Self, ParseError> {
        let Scan { head, wildcard, dots } = scan(text);
        let tail = match wildcard {
            Some(at) => {
                let rest = &text[at..];
                Some(Tail { glob: glob(rest)?, matches_all: rest.bytes().all(|byte| byte == b'*') })
            }
            None => None,
        };
        let before = |dot: &&usize| wildcard.is_none_or(|at| **dot < at);
        let splits: Vec<usize> = match (wildcard, dots.iter().rfind(before)) {
            // Without wildcards it names one tool, and any dot may separate it from the server.
            (None, _) => dots,
            (Some(_), Some(&last)) => vec![last],
            (Some(_), None) => dots.first().copied().into_iter().collect(),
        };
        let parts = splits
            .into_iter()
            .map(|dot| Ok((glob(&text[..dot])?, glob(&text[dot + 1..])?)))
            .collect::<Result<_, ParseError>>()?;
        Ok(Self { whole: glob(text)?, head, tail, parts })
    }

    fn matches(&self, definition: &ToolDefinition) -> bool {
        let Origin::Server { server, tool } = &definition.origin else { return false };
        if self.parts.iter().any(|(servers, tools)| servers.matches(server.as_str()) && tools.matches(tool)) {
            return true;
        }
        let (name, prefix) = (definition.name.as_str(), &*definition.provenance.prefix);
        match &self.tail {
            Some(tail) if tail.matches_all && prefix.starts_with(&self.head) => true,
            // A server without a prefix could choose the tool names of other servers.
            _ if prefix.is_empty() => !self.head.starts_with(DEFAULT_PREFIX) && self.whole.matches(name),
            Some(tail) => self.head == prefix && name.strip_prefix(prefix).is_some_and(|rest| tail.glob.matches(rest)),
            None => self.head == name,
        }
    }
}

fn glob(text: &str) -> Result<Glob, ParseError> {
    Glob::new(text).map_err(|error| ParseError::new(error.to_string()))
}

/// The parts of a pattern without `{one,two}`.
struct Scan {
    /// The text before the first wildcard, without backslashes.
    head: String,
    wildcard: Option<usize>,
    /// The dots outside brackets.
    dots: Vec<usize>,
}

fn scan(text: &str) -> Scan {
    let mut scan = Scan { head: String::new(), wildcard: None, dots: Vec::new() };
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        let plain = match c {
            '\\' => characters.next().map(|(_, escaped)| escaped),
            '*' | '?' => None,
            '[' => {
                // The first character in a class, after an optional `!` or `^`, may be `]`.
                let inside = text[at + 1..].strip_prefix(['!', '^']).unwrap_or(&text[at + 1..]);
                let from = text.len() - inside.len();
                let skip = inside.chars().next().map_or(0, char::len_utf8);
                let end = text[from + skip..].find(']').map_or(text.len(), |end| from + skip + end + 1);
                scan.wildcard.get_or_insert(at);
                while characters.offset() < end && characters.next().is_some() {}
                continue;
            }
            '.' => {
                scan.dots.push(at);
                Some(c)
            }
            c => Some(c),
        };
        match (plain, scan.wildcard) {
            (Some(c), None) => scan.head.push(c),
            (None, None) => scan.wildcard = Some(at),
            _ => {}
        }
    }
    scan
}

/// Expands `{one,two}`.
fn expand(text: &str) -> Result<Vec<String>, ParseError> {
    let mut done = Vec::new();
    let mut open = vec![text.to_owned()];
    while let Some(text) = open.pop() {
        if open.len() + done.len() > MAX_ALTERNATIVES {
            return Err(ParseError::new(format!("expands to more than {MAX_ALTERNATIVES} patterns")));
        }
        match braces(&text) {
            Some((before, alternatives, behind)) => {
                open.extend(alternatives.iter().map(|alternative| format!("{before}{alternative}{behind}")));
            }
            None => done.push(text),
        }
    }
    Ok(done)
}

/// Returns the text before the first `{one,two}`, its alternatives, and the text after it.
fn braces(text: &str) -> Option<(&str, Vec<&str>, &str)> {
    let (mut depth, mut begin, mut from, mut within) = (0_usize, 0, 0, Vec::new());
    let mut in_class = false;
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '\\' => drop(characters.next()),
            ']' => in_class = false,
            _ if in_class => {}
            '[' => {
                in_class = true;
                // A `]` at the start of a class does not close it.
                let rest = characters.as_str();
                if rest.starts_with(['!', '^']) {
                    characters.next();
                }
                if characters.as_str().starts_with(']') {
                    characters.next();
                }
            }
            '{' => {
                depth += 1;
                if depth == 1 {
                    (begin, from) = (at, at + 1);
                }
            }
            ',' if depth == 1 => {
                within.push(&text[from..at]);
                from = at + 1;
            }
            '}' if depth == 1 => {
                within.push(&text[from..at]);
                return Some((&text[..begin], within, &text[at + 1..]));
            }
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(server: &str, name: &str) -> ToolDefinition {
        prefixed(&format!("mcp_{server}_"), server, name)
    }

    fn prefixed(prefix: &str, server: &str, name: &str) -> ToolDefinition {
        let mut definition = ToolDefinition::new(format!("{prefix}{name}"));
        definition.origin = Origin::Server { server: server.into(), tool: name.into() };
        definition.provenance.prefix = prefix.into();
        definition
    }

    fn matches(pattern: &str, tool: &ToolDefinition) -> bool {
        ToolPattern::new(pattern).expect("a pattern").matches(tool)
    }

    #[test]
    fn a_glob_never_reaches_from_the_server_into_the_tool() {
        let wipe = tool("my", "files_wipe");
        for pattern in ["mcp_my_files_*", "mcp_*_wipe", "*_wipe", "m*wipe", "mcp_m?_*", "my_*", "my*"] {
            assert!(!matches(pattern, &wipe), "{pattern}");
            // Only ask and deny rules match loosely.
            let broad = ToolPattern::new(pattern).expect("a pattern").matches_loosely(&wipe);
            assert_eq!(broad, pattern != "my_*", "{pattern}");
        }
        assert!(matches("mcp_my_*_wipe", &wipe), "the server is pinned");
        assert!(matches("mcp_my_files_*", &tool("my_files", "wipe")));
        let dotted = tool("my", "files.wipe");
        assert!(!matches("my.files.*", &dotted) && !matches("*.wipe", &dotted));
        assert!(matches("my.files.*", &tool("my.files", "wipe")));
    }

    #[test]
    fn patterns_with_a_server_match_its_tools() {
        let read = tool("files", "read_it");
        for pattern in [
            "files.*",
            "files.read_*",
            "files.read_it",
            "mcp_files_*",
            "mcp_files_read_it",
            "*",
            "**",
            "mcp_*",
            "*.read_*",
            "f*.read_it",
            "{web,files}.read_*",
            "{web.get,files.read_it}",
            "files.[r]ead_it",
            r"files.read\_it",
            "fil?s.*",
        ] {
            assert!(matches(pattern, &read), "{pattern}");
        }
        for pattern in
            ["file.*", "files", "read_*", "read_it", "files.write", "mcp_file_*", "mcp_filesx_*", "*.it", "{files,web}"]
        {
            assert!(!matches(pattern, &read), "{pattern}");
        }
        assert!(matches("my.files.read", &tool("my", "files.read")));
    }

    #[test]
    fn tools_without_a_prefix_match_by_name_but_not_as_others() {
        let local = ToolDefinition::new("read_it");
        let bare = prefixed("", "s", "read_it");
        for pattern in ["read_*", "*_it", "read_it", "*"] {
            assert!(matches(pattern, &local) && matches(pattern, &bare), "{pattern}");
        }
        let posing = prefixed("", "s", "mcp_files_read");
        for pattern in ["mcp_files_*", "mcp_files_read", "mcp_f*"] {
            assert!(!matches(pattern, &posing), "{pattern}");
        }
        assert!(matches("s.*", &posing) && matches("s.mcp_files_read", &posing));
        let own = prefixed("fs_", "files", "read");
        assert!(matches("fs_*", &own) && matches("fs_read", &own) && !matches("fs_r*", &own));
    }

    #[test]
    fn a_pattern_names_the_servers_that_it_may_match() {
        let may = |pattern: &str| ToolPattern::new(pattern).expect("a pattern").may_match_server("files", "mcp_files_");
        for pattern in ["files.x", "*", "mcp_*", "mcp_files_x", "mcp_files_*", "*.x", "f*.x"] {
            assert!(may(pattern), "{pattern}");
        }
        for pattern in ["web.x", "mcp_web_*", "mcp_web_x"] {
            assert!(!may(pattern), "{pattern}");
        }
    }

    #[test]
    fn an_invalid_pattern_is_reported_with_the_reason() {
        for (text, why) in [
            ("a[", "unclosed character class; missing ']'"),
            ("a.{b", "unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)"),
        ] {
            assert_eq!(ToolPattern::new(text).expect_err("no pattern").to_string(), why);
        }
        let many = "{a,b}".repeat(20);
        assert_eq!(ToolPattern::new(&many).expect_err("too many").to_string(), "expands to more than 256 patterns");
        for odd in ["[]a].x", "[!]].x", "{a,b", "[{]", r"\{a", "a]b", "[a-z].{b,[,]}"] {
            // Must not panic.
            let _ = ToolPattern::new(odd);
        }
    }
}
