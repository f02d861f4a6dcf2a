//! Full-text search over tools, ranked by BM25 (<https://en.wikipedia.org/wiki/Okapi_BM25>).

use std::collections::HashMap;

use super::schema_arguments;
use ropeway_core::tool::{Origin, ToolDefinition};

/// Word weight, by the field that contains the word.
const WEIGHT_NAME: f64 = 5.0;
const WEIGHT_TITLE: f64 = 3.0;
const WEIGHT_ARGUMENT: f64 = 1.5;
const WEIGHT_DESCRIPTION: f64 = 1.0;

/// BM25 parameters `k1` and `b`.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// Weight for a word that only shares a prefix with the query.
const PREFIX_WEIGHT: f64 = 0.5;

/// Bonus for a tool whose name contains only query words.
const EXACT_NAME_BONUS: f64 = 0.2;

/// Maximum words in a query.
const MAX_WORDS: usize = 64;

/// An inverted index over tools.
#[derive(Debug)]
pub(super) struct Index {
    /// Maps each word to the indices of the tools that contain it, with its weight in each.
    words: HashMap<String, Vec<(usize, f64)>>,
    /// The words in each tool's own name.
    names: Vec<Vec<String>>,
    /// Each tool's weighted word count.
    lengths: Vec<f64>,
    mean_length: f64,
}

impl Index {
    pub(super) fn new<'a>(definitions: impl Iterator<Item = &'a ToolDefinition>) -> Self {
        let mut index = Self { words: HashMap::new(), names: Vec::new(), lengths: Vec::new(), mean_length: 0.0 };
        for definition in definitions {
            let at = index.lengths.len();
            let weights = word_weights(definition);
            index.names.push(words(definition.own_name()));
            index.lengths.push(weights.values().sum());
            for (word, count) in weights {
                index.words.entry(word).or_default().push((at, count));
            }
        }
        index.mean_length = index.lengths.iter().sum::<f64>() / index.lengths.len().max(1) as f64;
        index
    }

    /// Returns the best matches, as indices and scores.
    pub(super) fn search(&self, question: &str, limit: usize) -> Vec<(usize, f64)> {
        let mut scores: HashMap<usize, f64> = HashMap::new();
        let mut query = words(question);
        query.truncate(MAX_WORDS);
        for word in &query {
            let found = self.tools_with(word);
            let (all, having) = (self.lengths.len() as f64, found.len() as f64);
            let idf = (1.0 + (all - having + 0.5) / (having + 0.5)).ln();
            for (at, count) in found {
                let length = 1.0 - B + B * self.lengths[at] / self.mean_length;
                let score = idf * count * (K1 + 1.0) / (count + K1 * length);
                *scores.entry(at).or_default() += score;
            }
        }
        let name_match = |at: usize| {
            let name = &self.names[at];
            name.iter().filter(|word| query.contains(word)).count() as f64 / name.len().max(1) as f64
        };
        let mut ranked: Vec<(usize, f64)> =
            scores.into_iter().map(|(at, score)| (at, score * (1.0 + EXACT_NAME_BONUS * name_match(at)))).collect();
        ranked.sort_by(|(at, score), (other_at, other)| other.total_cmp(score).then(at.cmp(other_at)));
        ranked.truncate(limit);
        ranked
    }

    /// Returns the tools with a word, or with one that shares a prefix: `repo` finds `repository`, and `creating` finds `create`.
    ///
    /// They are ranked as one word. Otherwise a rare ending would outrank the word itself.
    fn tools_with(&self, word: &str) -> HashMap<usize, f64> {
        let stem = ["ing", "ed"].iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word);
        let long_enough = stem.chars().count() >= 3;
        let mut found: HashMap<usize, f64> = HashMap::new();
        for (known, tools) in &self.words {
            let weight = if known == word {
                1.0
            } else if (long_enough && known.starts_with(stem)) || (known.len() > 3 && stem.starts_with(known.as_str()))
            {
                PREFIX_WEIGHT
            } else {
                continue;
            };
            for (at, count) in tools {
                let counted = found.entry(*at).or_default();
                *counted = counted.max(weight * count);
            }
        }
        found
    }
}

/// Returns each word in a definition with its weight.
fn word_weights(definition: &ToolDefinition) -> HashMap<String, f64> {
    let mut weights = HashMap::new();
    let mut add = |words: Vec<String>, weight: f64| {
        for word in words {
            *weights.entry(word).or_insert(0.0) += weight;
        }
    };
    // The exposed name may be truncated, so the server's own name is added.
    let mut name = words(&definition.name);
    name.extend(words(definition.own_name()));
    if let Origin::Server { server, .. } = &definition.origin {
        name.extend(words(server.as_str()));
    }
    name.sort();
    name.dedup();
    add(name, WEIGHT_NAME);
    add(definition.title.as_deref().map(words).unwrap_or_default(), WEIGHT_TITLE);
    for argument in schema_arguments::arguments(&definition.input_schema.read()) {
        add(words(argument), WEIGHT_ARGUMENT);
    }
    add(definition.description.as_deref().map(words).unwrap_or_default(), WEIGHT_DESCRIPTION);
    weights
}

/// Splits text into lower-case words without plural endings: `listOpenIssues` is `list`, `open`, `issue`.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut before = ' ';
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let begins = c.is_uppercase()
            && (before.is_lowercase()
                || (before.is_uppercase() && rest.peek().is_some_and(|next| next.is_lowercase())));
        if begins || !c.is_alphanumeric() || is_ideograph(c) || is_ideograph(before) {
            push_word(&mut word, &mut words);
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    push_word(&mut word, &mut words);
    words
}

fn push_word(word: &mut String, words: &mut Vec<String>) {
    if !word.is_empty() {
        words.push(singular(std::mem::take(word)));
    }
}

/// Returns `true` for scripts without spaces between words. Each character counts as a word.
fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// Removes an English plural ending. The result is only compared with other results.
fn singular(mut word: String) -> String {
    let ends = |end: &str| word.ends_with(end);
    if word.len() <= 3 || !ends("s") || ends("ss") || ends("us") || ends("is") {
        return word;
    }
    if ends("ies") && word.len() > 4 {
        word.truncate(word.len() - 3);
        word.push('y');
    } else if ["ches", "shes", "sses", "xes"].into_iter().any(ends) {
        word.truncate(word.len() - 2);
    } else {
        word.truncate(word.len() - 1);
    }
    word
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;

    /// Tools from common servers: server, name, arguments, description.
    const CATALOGUE: [(&str, &str, &[&str], &str); 32] = [
        (
            "fs",
            "read_text_file",
            &["path", "head", "tail"],
            "Read the complete contents of a file from the file system as text. Handles various encodings. Only works within allowed directories.",
        ),
        (
            "fs",
            "write_file",
            &["path", "content"],
            "Create a new file or completely overwrite an existing file with new content. Use with caution. Only works within allowed directories.",
        ),
        (
            "fs",
            "edit_file",
            &["path", "edits", "dryRun"],
            "Make line-based edits to a text file. Returns a git-style diff showing the changes made. Only works within allowed directories.",
        ),
        (
            "fs",
            "list_directory",
            &["path"],
            "Get a detailed listing of all files and directories in a specified path. Only works within allowed directories.",
        ),
        (
            "fs",
            "move_file",
            &["source", "destination"],
            "Move or rename files and directories. If the destination exists, the operation will fail. Only works within allowed directories.",
        ),
        (
            "fs",
            "search_files",
            &["path", "pattern", "excludePatterns"],
            "Recursively search for files and directories matching a pattern. Great for finding files when you don't know their exact location.",
        ),
        (
            "fs",
            "get_file_info",
            &["path"],
            "Retrieve detailed metadata about a file or directory: size, creation time, last modified time, permissions, and type.",
        ),
        (
            "github",
            "create_issue",
            &["owner", "repo", "title", "body", "labels"],
            "Create a new issue in a GitHub repository",
        ),
        (
            "github",
            "list_issues",
            &["owner", "repo", "state", "since"],
            "List issues in a GitHub repository with filtering options",
        ),
        (
            "github",
            "create_pull_request",
            &["owner", "repo", "title", "head", "base", "draft"],
            "Create a new pull request in a GitHub repository",
        ),
        ("github", "merge_pull_request", &["owner", "repo", "pull_number", "merge_method"], "Merge a pull request"),
        ("github", "search_repositories", &["query", "page", "perPage"], "Search for GitHub repositories"),
        (
            "github",
            "create_branch",
            &["owner", "repo", "branch", "from_branch"],
            "Create a new branch in a GitHub repository",
        ),
        (
            "github",
            "fork_repository",
            &["owner", "repo", "organization"],
            "Fork a GitHub repository to your account or specified organization",
        ),
        ("git", "git_commit", &["repo_path", "message"], "Records changes to the repository"),
        ("git", "git_log", &["repo_path", "max_count", "start_timestamp"], "Shows the commit logs"),
        ("git", "git_diff_staged", &["repo_path", "context_lines"], "Shows changes that are staged for commit"),
        (
            "browser",
            "browser_take_screenshot",
            &["type", "filename", "element", "fullPage"],
            "Take a screenshot of the current page. You can't perform actions based on the screenshot, use browser_snapshot for actions.",
        ),
        ("browser", "browser_click", &["element", "ref", "doubleClick", "button"], "Perform click on a web page"),
        ("browser", "browser_navigate", &["url"], "Navigate to a URL"),
        ("browser", "browser_fill_form", &["fields"], "Fill multiple form fields"),
        (
            "fetch",
            "fetch",
            &["url", "max_length", "start_index", "raw"],
            "Fetches a URL from the internet and optionally extracts its contents as markdown.",
        ),
        ("db", "read_query", &["query"], "Execute a SELECT query on the SQLite database"),
        ("db", "list_tables", &[], "List all tables in the SQLite database"),
        ("db", "describe_table", &["table_name"], "Get the schema information for a specific table"),
        ("time", "get_current_time", &["timezone"], "Get current time in a specific timezone"),
        ("time", "convert_time", &["source_timezone", "time", "target_timezone"], "Convert time between timezones"),
        ("maps", "maps_geocode", &["address"], "Convert an address into geographic coordinates"),
        ("maps", "maps_directions", &["origin", "destination", "mode"], "Get directions between two points"),
        ("weather", "getForecast", &["latitude", "longitude", "days"], "Weather forecast for a location"),
        ("slack", "slack_post_message", &["channel_id", "text"], "Post a new message to a Slack channel"),
        ("cook", "whatToEat", &["peopleCount"], "不知道吃什么？根据人数直接推荐适合的菜品组合"),
    ];

    fn index() -> (Vec<ToolDefinition>, Index) {
        let definition = |(server, tool, arguments, description): (&str, &str, &[&str], &str)| {
            let mut definition = ToolDefinition::new(format!("mcp_{server}_{tool}")).with_description(description);
            definition.origin = Origin::Server { server: server.into(), tool: tool.into() };
            let properties: Map<String, Value> = arguments.iter().map(|name| (name.to_string(), json!({}))).collect();
            definition.with_input_schema(json!({"type": "object", "properties": properties}))
        };
        let definitions: Vec<ToolDefinition> = CATALOGUE.into_iter().map(definition).collect();
        let index = Index::new(definitions.iter());
        (definitions, index)
    }

    #[test]
    fn the_expected_tool_ranks_first() {
        let (definitions, index) = index();
        let expected = [
            ("open a new issue", "create_issue"),
            ("list issues", "list_issues"),
            ("merge the pull requests", "merge_pull_request"),
            ("take a screenshot of the page", "browser_take_screenshot"),
            ("read file", "read_text_file"),
            ("rename a file", "move_file"),
            ("search repos on github", "search_repositories"),
            ("repository search", "search_repositories"),
            ("search files", "search_files"),
            ("what time is it in a timezone", "get_current_time"),
            ("convert between time zones", "convert_time"),
            ("send slack messages", "slack_post_message"),
            ("WEATHER forecasts", "getForecast"),
            ("sql select query", "read_query"),
            ("which tables are in the database", "list_tables"),
            ("commit history log", "git_log"),
            ("latitude", "getForecast"),
            ("download a url as markdown", "fetch"),
            ("directions", "maps_directions"),
            ("coordinates of an address", "maps_geocode"),
            ("creating branches", "create_branch"),
            ("吃什么", "whatToEat"),
        ];
        let mut wrong = Vec::new();
        for (question, tool) in expected {
            let found: Vec<&str> =
                index.search(question, 3).into_iter().map(|(at, _)| definitions[at].own_name()).collect();
            if found.first() != Some(&tool) {
                wrong.push(format!("{question}: {found:?}, not {tool}"));
            }
        }
        assert_eq!(wrong, [""; 0]);
    }

    #[test]
    fn an_exact_name_ranks_before_longer_ones() {
        let names = ["batch_create_issues", "create_issue_link", "create_issue", "create_issue_comment"];
        let mut definitions = names.map(|name| ToolDefinition::new(name).with_description("Create an issue or so."));
        definitions[2].description = Some("Create one, with a title and a type.".to_owned());
        assert_eq!(Index::new(definitions.iter()).search("create issue", 9).first().map(|(at, _)| *at), Some(2));
    }

    #[test]
    fn a_rare_ending_does_not_outrank_the_word_itself() {
        let names = ["drug_searcher", "gene_searcher", "find_all", "web_search", "file_search", "code_search"];
        let definitions = names.map(ToolDefinition::new);
        let found = Index::new(definitions.iter()).search("search", 9);
        assert_eq!(found.into_iter().map(|(at, _)| at).collect::<Vec<_>>(), [3, 4, 5, 0, 1]);
    }

    #[test]
    fn results_are_limited_and_sorted() {
        let (_, index) = index();
        let found = index.search("file", 4);
        assert_eq!(found.len(), 4);
        assert!(found.windows(2).all(|pair| pair[0].1 >= pair[1].1));
        assert_eq!(index.search("file", 0), []);
        assert_eq!(found, index.search("FILES", 4));
    }

    #[test]
    fn unknown_words_have_no_results() {
        let (_, index) = index();
        for question in ["", "   ", "xylophone", "_-.", "🦀"] {
            assert_eq!(index.search(question, 9), [], "{question}");
        }
        assert_eq!(Index::new(std::iter::empty()).search("file", 9), []);
    }

    #[test]
    fn a_very_long_query_is_truncated() {
        let (_, index) = index();
        assert_eq!(index.search(&"zebra file ".repeat(100_000), 6).len(), 6);
    }

    #[test]
    fn names_are_split_into_words() {
        assert_eq!(words("mcp_web-search.v2"), ["mcp", "web", "search", "v2"]);
        assert_eq!(words("getHTTPResponse, listOpenIssues"), ["get", "http", "response", "list", "open", "issue"]);
        assert_eq!(words("Größen ändern 菜品abc"), ["größen", "ändern", "菜", "品", "abc"]);
    }

    #[test]
    fn plurals_lose_their_ends() {
        let cut = |word: &str| singular(word.to_owned());
        for (plural, expected) in [
            ("files", "file"),
            ("repositories", "repository"),
            ("branches", "branch"),
            ("boxes", "box"),
            ("classes", "class"),
            ("class", "class"),
            ("status", "status"),
            ("analysis", "analysis"),
            ("is", "is"),
            ("messages", "message"),
            ("ties", "tie"),
        ] {
            assert_eq!(cut(plural), expected);
        }
    }
}
