//! The lock's text format.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::error::Category;
use serde_json::{Map, Value};

use super::accepted::{Lock, LockedServer, LockedTool};
use super::error::{LockError, SUPPORTED_VERSION};
use crate::SandboxSummary;
use ropeway_core::tool::{Alias, Annotations, Digest, Origin, ToolDefinition, escape_invisible};

/// Maximum size, in bytes of JSON, for a stored definition. For a larger one, only the digest is stored.
const MAX_DEFINITION: usize = 64 << 10;

impl Lock {
    /// Returns the lock as JSON. Equal locks have equal text.
    pub fn to_text(&self) -> String {
        let servers = self.servers.iter().map(|(alias, LockedServer { tools, sandbox })| {
            let tools = tools.iter().map(|(name, tool)| (name.clone(), tool.to_json()));
            let tools = ("tools".to_owned(), Value::Object(tools.collect()));
            let sandbox = sandbox.as_ref().and_then(|sandbox| serde_json::to_value(sandbox).ok());
            let sandbox = sandbox.map(|sandbox| ("sandbox".to_owned(), sandbox));
            (alias.to_string(), Value::Object(sandbox.into_iter().chain([tools]).collect()))
        });
        let lock = Map::from_iter([
            ("version".to_owned(), SUPPORTED_VERSION.into()),
            ("servers".to_owned(), Value::Object(servers.collect())),
        ]);
        format!("{:#}\n", Value::Object(lock))
    }

    /// Parses a lock's text. `path` is used in errors.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is not a valid lock, or has a newer version.
    pub fn parse(text: &str, path: impl Into<PathBuf>) -> Result<Self, LockError> {
        let path = path.into();
        let broken = |error: serde_json::Error| {
            let line = Some(error.line()).filter(|line| *line > 0);
            let words = error.to_string();
            let problem = match words.split(" at line ").next().unwrap_or(&words) {
                // serde_json's term for a misspelled literal such as `null`.
                "expected ident" => "invalid value",
                problem => problem,
            };
            let problem = escape_invisible(problem);
            let is_json = error.classify() == Category::Data;
            let problem = if is_json { problem } else { format!("not valid JSON: {problem}") };
            LockError::Broken { path: path.clone(), line, problem }
        };
        // A newer version may differ in everything else.
        let Version { version } = serde_json::from_str(text).map_err(broken)?;
        if version > SUPPORTED_VERSION {
            return Err(LockError::Newer { path, found: version });
        }
        if version != SUPPORTED_VERSION {
            let problem = format!("unknown lock version {version}");
            return Err(LockError::Broken { path, line: None, problem });
        }
        let raw: RawLock = serde_json::from_str(text).map_err(broken)?;
        let mut lock = Self::default();
        for (alias, RawServer { tools, sandbox }) in raw.servers {
            let alias = Alias::from(alias);
            let mut locked = BTreeMap::new();
            for (name, tool) in tools {
                let tool = tool.read(&alias, &name).ok_or_else(|| LockError::Broken {
                    path: path.clone(),
                    line: None,
                    problem: format!("digest mismatch for `{alias}.{}`", escape_invisible(&name)),
                })?;
                locked.insert(name, tool);
            }
            lock.servers.insert(alias, LockedServer { tools: locked, sandbox });
        }
        Ok(lock)
    }
}

impl LockedTool {
    pub(super) fn new(definition: &ToolDefinition) -> Self {
        let mut kept = definition.original().clone();
        // Only the fields that the digest covers.
        (kept.name, kept.meta) = (definition.own_name().to_owned(), None);
        kept.extra.clear();
        kept.provider_options.clear();
        kept.provenance = Default::default();
        // Sorted, so that the order in which a server sends keys does not change the file.
        kept.input_schema = sorted(&kept.input_schema.read()).into();
        kept.output_schema = kept.output_schema.map(|schema| sorted(&schema.read()).into());
        let locked = Self { digest: Digest::of_source(definition), always: None, definition: Some(kept) };
        let is_large = locked.to_json().to_string().len() > MAX_DEFINITION;
        if is_large { Self { definition: None, ..locked } } else { locked }
    }
}

impl LockedTool {
    fn to_json(&self) -> Value {
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
struct RawLock {
    #[serde(rename = "version")]
    _version: u64,
    servers: BTreeMap<String, RawServer>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawServer {
    sandbox: Option<SandboxSummary>,
    tools: BTreeMap<String, RawTool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTool {
    digest: Digest,
    always: Option<Digest>,
    title: Option<String>,
    description: Option<String>,
    input_schema: Option<Value>,
    output_schema: Option<Value>,
    #[serde(default)]
    annotations: Map<String, Value>,
}

impl RawTool {
    /// Returns `None` if the digest does not match the definition.
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
