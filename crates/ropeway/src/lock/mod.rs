//! A lock: the tool definitions that a person accepted, and how those of today differ.

mod file;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::file::{LockFile, NAME};
use crate::tool::{Alias, Annotations, DefinitionChange, Digest, Origin, ToolDefinition, differences};

/// Version of the format.
const VERSION: u64 = 1;

/// Size of a definition that is kept beside its digest, in bytes of JSON. Of a larger one only the digest is kept.
const LARGEST_DEFINITION: usize = 64 << 10;

/// A lock file cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The file is not a lock.
    #[error("{}: {problem}", place(.path, *.line))]
    Broken {
        /// The file.
        path: PathBuf,
        /// The line, where one is to blame.
        line: Option<usize>,
        /// What is wrong.
        problem: String,
    },
    /// The file was written by a later version.
    #[error("{}: lock version {found} is newer than version {VERSION}, which this program supports", .path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
    /// The file cannot be read.
    #[error("could not read `{}`", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file cannot be written.
    #[error("could not write `{}`", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

fn place(path: &std::path::Path, line: Option<usize>) -> String {
    match line {
        Some(line) => format!("{}:{line}", path.display()),
        None => path.display().to_string(),
    }
}

/// The tool definitions that a person accepted, by server and by the server's own name for the tool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lock {
    servers: BTreeMap<Alias, BTreeMap<String, LockedTool>>,
}

/// A tool that a person accepted.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LockedTool {
    /// The digest of its definition ([`Digest::of_source`]).
    pub digest: Digest,
    /// The digest of what a person allowed for good ([`Digest::of_approved`]).
    pub always: Option<Digest>,
    /// The definition, unless it is too large to be kept.
    pub definition: Option<ToolDefinition>,
}

/// How a tool differs from the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// The server.
    pub server: Alias,
    /// The server's own name for the tool.
    pub tool: String,
    /// What the difference is.
    pub kind: DifferenceKind,
}

/// What differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "difference", content = "changes", rename_all = "lowercase")]
pub enum DifferenceKind {
    /// The lock does not have the tool.
    New,
    /// The definition is another one.
    Changed(Vec<DefinitionChange>),
    /// The server does not have the tool.
    Gone,
}

impl Difference {
    /// Returns why a tool that differs so is hidden.
    pub fn reason(&self) -> String {
        match &self.kind {
            DifferenceKind::New => "new since the tools were locked; run `ropeway lock`".to_owned(),
            DifferenceKind::Changed(changes) => {
                format!("changed since it was locked ({}); run `ropeway lock`", list(changes))
            }
            DifferenceKind::Gone => "the server does not have it any more".to_owned(),
        }
    }
}

fn list(changes: &[DefinitionChange]) -> String {
    changes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tool = DefinitionChange::from_words(&self.tool);
        write!(f, "tool `{}.{tool}` ", self.server)?;
        match &self.kind {
            DifferenceKind::New => f.write_str("is not in the lock"),
            DifferenceKind::Changed(changes) => write!(f, "changed since it was locked: {}", list(changes)),
            DifferenceKind::Gone => f.write_str("is in the lock, but its server does not have it"),
        }
    }
}

impl Lock {
    /// Creates an empty lock.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the servers that the lock has.
    pub fn servers(&self) -> impl Iterator<Item = &Alias> {
        self.servers.keys()
    }

    /// Returns the tools of a server, by the server's own names.
    pub fn tools(&self, server: &Alias) -> impl Iterator<Item = (&str, &LockedTool)> {
        self.servers.get(server).into_iter().flatten().map(|(name, tool)| (name.as_str(), tool))
    }

    /// Returns a tool.
    pub fn get(&self, server: &Alias, tool: &str) -> Option<&LockedTool> {
        self.servers.get(server)?.get(tool)
    }

    /// Returns how a tool differs from the lock; nothing when it is what was accepted. Local tools are the host's and never differ.
    pub fn check(&self, definition: &ToolDefinition) -> Option<Difference> {
        let definition = definition.source();
        let Origin::Server { server, tool } = &definition.origin else { return None };
        let kind = match self.get(server, tool) {
            None => DifferenceKind::New,
            Some(locked) if locked.digest == Digest::of_source(definition) => return None,
            Some(locked) => {
                let mut changes =
                    locked.definition.as_ref().map(|was| differences(was, definition)).unwrap_or_default();
                if changes.is_empty() {
                    changes.push(DefinitionChange::from_words("definition changed"));
                }
                DifferenceKind::Changed(changes)
            }
        };
        Some(Difference { server: server.clone(), tool: tool.to_string(), kind })
    }

    /// Returns how all tools of a server differ from the lock, those that are gone last.
    pub fn compare<'a>(&self, server: &Alias, tools: impl IntoIterator<Item = &'a ToolDefinition>) -> Vec<Difference> {
        let (mut found, mut seen) = (Vec::new(), HashSet::new());
        for definition in tools {
            seen.insert(definition.own_name());
            found.extend(self.check(definition));
        }
        found.sort_by(|one, other| one.tool.cmp(&other.tool));
        let gone = self.tools(server).filter(|(name, _)| !seen.contains(name));
        found.extend(gone.map(|(name, _)| Difference {
            server: server.clone(),
            tool: name.to_owned(),
            kind: DifferenceKind::Gone,
        }));
        found
    }

    /// Accepts the tools of a server in the place of those that were accepted before. What was allowed for good stays so for tools
    /// that are what they were.
    pub fn accept<'a>(&mut self, server: &Alias, tools: impl IntoIterator<Item = &'a ToolDefinition>) {
        let before = self.servers.remove(server).unwrap_or_default();
        let tools = tools.into_iter().map(|definition| {
            let mut locked = LockedTool::new(definition);
            let known = before.get(definition.own_name()).filter(|known| known.digest == locked.digest);
            locked.always = known.and_then(|known| known.always);
            (definition.own_name().to_owned(), locked)
        });
        self.servers.insert(server.clone(), tools.collect());
    }

    /// Accepts a tool and allows it for good.
    pub fn allow(&mut self, definition: &ToolDefinition) {
        if let Origin::Server { server, tool } = &definition.origin {
            let mut locked = LockedTool::new(definition);
            locked.always = Some(Digest::of_approved(definition));
            self.servers.entry(server.clone()).or_default().insert(tool.to_string(), locked);
        }
    }

    /// Removes a server.
    pub fn remove(&mut self, server: &Alias) {
        self.servers.remove(server);
    }

    /// Forgets what was allowed for good, which counts only where a person said so on this machine.
    pub fn forget_approvals(&mut self) {
        self.servers.values_mut().flat_map(BTreeMap::values_mut).for_each(|tool| tool.always = None);
    }

    /// Returns whether anything was allowed for good.
    pub fn has_approvals(&self) -> bool {
        self.servers.values().flat_map(BTreeMap::values).any(|tool| tool.always.is_some())
    }

    /// Returns the text of the lock: JSON, the same for the same contents.
    pub fn to_text(&self) -> String {
        let servers = self.servers.iter().map(|(alias, tools)| {
            let tools = tools.iter().map(|(name, tool)| (name.clone(), tool.written()));
            let server = Map::from_iter([("tools".to_owned(), Value::Object(tools.collect()))]);
            (alias.to_string(), Value::Object(server))
        });
        let lock = Map::from_iter([
            ("version".to_owned(), VERSION.into()),
            ("servers".to_owned(), Value::Object(servers.collect())),
        ]);
        format!("{:#}\n", Value::Object(lock))
    }

    /// Reads the text of a lock. `path` is for errors.
    pub fn parse(text: &str, path: impl Into<PathBuf>) -> Result<Self, LockError> {
        let path = path.into();
        let broken = |error: serde_json::Error| {
            let line = Some(error.line()).filter(|line| *line > 0);
            let words = error.to_string();
            let problem = words.split(" at line ").next().unwrap_or(&words);
            LockError::Broken { path: path.clone(), line, problem: DefinitionChange::from_words(problem).to_string() }
        };
        // A later version may differ in everything else.
        let Version { version } = serde_json::from_str(text).map_err(broken)?;
        if version > VERSION {
            return Err(LockError::Newer { path, found: version });
        }
        if version != VERSION {
            let problem = format!("unknown lock version {version}");
            return Err(LockError::Broken { path, line: None, problem });
        }
        let written: Written = serde_json::from_str(text).map_err(broken)?;
        let mut lock = Self::default();
        for (alias, WrittenServer { tools }) in written.servers {
            let alias = Alias::from(alias);
            let mut locked = BTreeMap::new();
            for (name, tool) in tools {
                let tool = tool.read(&alias, &name).ok_or_else(|| LockError::Broken {
                    path: path.clone(),
                    line: None,
                    problem: format!("digest mismatch for `{alias}.{}`", DefinitionChange::from_words(&name)),
                })?;
                locked.insert(name, tool);
            }
            lock.servers.insert(alias, locked);
        }
        Ok(lock)
    }
}

impl LockedTool {
    fn new(definition: &ToolDefinition) -> Self {
        let mut kept = definition.source().clone();
        // Only what the digest is about.
        (kept.name, kept.meta) = (definition.own_name().to_owned(), None);
        kept.extra.clear();
        kept.provider_options.clear();
        kept.provenance = Default::default();
        // Sorted, so that a server that sends its keys in another order changes nothing.
        kept.input_schema = sorted(&kept.input_schema.read()).into();
        kept.output_schema = kept.output_schema.map(|schema| sorted(&schema.read()).into());
        let locked = Self { digest: Digest::of_source(definition), always: None, definition: Some(kept) };
        let is_large = locked.written().to_string().len() > LARGEST_DEFINITION;
        if is_large { Self { definition: None, ..locked } } else { locked }
    }

    fn written(&self) -> Value {
        let mut fields = Map::new();
        let mut put = |name: &str, value: Value| drop(fields.insert(name.to_owned(), value));
        put("digest", self.digest.to_string().into());
        if let Some(always) = self.always {
            put("always", always.to_string().into());
        }
        if let Some(definition) = &self.definition {
            let ToolDefinition { title, description, input_schema, output_schema, annotations, .. } = definition;
            if let Some(title) = title {
                put("title", title.as_str().into());
            }
            if let Some(description) = description {
                put("description", description.as_str().into());
            }
            put("input_schema", sorted(&input_schema.read()));
            if let Some(schema) = output_schema {
                put("output_schema", sorted(&schema.read()));
            }
            if !annotations.0.is_empty() {
                put("annotations", sorted(&Value::Object(annotations.0.clone())));
            }
        }
        Value::Object(fields)
    }
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let sorted: BTreeMap<&String, &Value> = fields.iter().collect();
            Value::Object(sorted.into_iter().map(|(name, value)| (name.clone(), self::sorted(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        value => value.clone(),
    }
}

#[derive(Deserialize)]
struct Version {
    version: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(rename = "version")]
    _version: u64,
    servers: BTreeMap<String, WrittenServer>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenServer {
    tools: BTreeMap<String, WrittenTool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenTool {
    digest: Digest,
    always: Option<Digest>,
    title: Option<String>,
    description: Option<String>,
    input_schema: Option<Value>,
    output_schema: Option<Value>,
    #[serde(default)]
    annotations: Map<String, Value>,
}

impl WrittenTool {
    /// The tool, unless its definition does not have its digest.
    fn read(self, server: &Alias, name: &str) -> Option<LockedTool> {
        let Self { digest, always, title, description, input_schema, output_schema, annotations } = self;
        let Some(input_schema) = input_schema else { return Some(LockedTool { digest, always, definition: None }) };
        let mut definition = ToolDefinition::new(name).with_input_schema(input_schema);
        definition.title = title;
        definition.description = description;
        definition.output_schema = output_schema.map(Into::into);
        definition.annotations = Annotations(annotations);
        definition.origin = Origin::Server { server: server.clone(), tool: name.into() };
        (Digest::of_source(&definition) == digest).then_some(LockedTool {
            digest,
            always,
            definition: Some(definition),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(name: &str, description: &str) -> ToolDefinition {
        let mut definition = ToolDefinition::new(format!("mcp_files_{name}"))
            .with_description(description)
            .with_input_schema(json!({"type": "object", "properties": {"b": {"type": "string"}, "a": {}}}));
        definition.origin = Origin::Server { server: "files".into(), tool: name.into() };
        definition
    }

    fn files() -> Alias {
        "files".into()
    }

    fn lock() -> Lock {
        let mut lock = Lock::new();
        lock.accept(&files(), &[tool("note", "Writes a note"), tool("list", "Lists")]);
        lock
    }

    #[test]
    fn a_lock_is_written_the_same_way_each_time_and_read_back() {
        let text = lock().to_text();
        assert!(text.find("\"list\"") < text.find("\"note\"") && text.find("\"a\"") < text.find("\"b\""), "{text}");
        let read = Lock::parse(&text, "ropeway.lock").expect("a lock");
        assert_eq!((read.to_text(), &read), (text, &lock()));
        assert_eq!(read.compare(&files(), &[tool("note", "Writes a note"), tool("list", "Lists")]), []);
    }

    #[test]
    fn what_is_new_changed_and_gone_is_told_in_words() {
        let words: Vec<String> = lock()
            .compare(&files(), &[tool("note", "Runs a shell"), tool("exec", "Runs")])
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            words,
            [
                "tool `files.exec` is not in the lock",
                "tool `files.note` changed since it was locked: description changed",
                "tool `files.list` is in the lock, but its server does not have it",
            ]
        );
    }

    #[test]
    fn what_was_allowed_for_good_is_kept_for_tools_that_stay_what_they_are() {
        let mut lock = lock();
        lock.allow(&tool("note", "Writes a note"));
        let always = |lock: &Lock| lock.get(&files(), "note").and_then(|tool| tool.always);
        assert_eq!(always(&lock), Some(Digest::of_approved(&tool("note", "Writes a note"))));
        lock.accept(&files(), &[tool("note", "Writes a note")]);
        assert!(always(&lock).is_some() && lock.has_approvals());
        let read = Lock::parse(&lock.to_text(), "x").expect("a lock");
        assert_eq!(read, lock);
        lock.accept(&files(), &[tool("note", "Runs a shell")]);
        assert_eq!(always(&lock), None);
        let mut untrusted = read;
        untrusted.forget_approvals();
        assert!(!untrusted.has_approvals());
    }

    #[test]
    fn a_huge_definition_is_kept_as_its_digest_alone() {
        let mut lock = Lock::new();
        let huge = tool("note", &"x".repeat(1 << 20));
        lock.accept(&files(), [&huge]);
        assert!(lock.to_text().len() < 1000);
        let lock = Lock::parse(&lock.to_text(), "x").expect("a lock");
        assert_eq!(lock.check(&huge), None);
        let difference = lock.check(&tool("note", "y")).expect("a difference");
        assert_eq!(difference.to_string(), "tool `files.note` changed since it was locked: definition changed");
    }

    #[test]
    fn a_file_that_is_no_lock_is_an_error_with_its_line() {
        let said = |text: &str| Lock::parse(text, "ropeway.lock").expect_err("no lock").to_string();
        assert_eq!(said(""), "ropeway.lock:1: EOF while parsing a value");
        assert_eq!(said("{\n \"version\": 1,\n oops}"), "ropeway.lock:3: key must be a string");
        assert_eq!(
            said("{\"version\": 1, \"servers\": {}, \"x\": 1}"),
            "ropeway.lock:1: unknown field `x`, expected `version` or `servers`"
        );
        assert_eq!(
            said("{\"version\": 7, \"new\": true}"),
            "ropeway.lock: lock version 7 is newer than version 1, which this program supports"
        );
        let forged = lock().to_text().replace("Writes a note", "Writes a Note");
        assert_eq!(said(&forged), "ropeway.lock: digest mismatch for `files.note`");
        assert_eq!(said("{\"version\": 0}"), "ropeway.lock: unknown lock version 0");
        let deep = format!("{{\"version\": 1, \"servers\": {}1{}}}", "[".repeat(1000), "]".repeat(1000));
        assert!(said(&deep).starts_with("ropeway.lock:1: "), "{}", said(&deep));
    }
}
