//! Checks for clients that are command lines: one process per request.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::endpoint::Endpoint;
use super::outcome::{Outcome, Outcomes, Seen};
use super::program;

/// A command line that makes single requests.
pub trait CommandLine {
    /// Returns a tool's name, which has a prefix if the gateway has several servers.
    fn tool(&self, name: &str) -> Result<String, String>;
    /// Calls a tool and returns what was printed.
    fn call(&self, tool: &str, arguments: &Value) -> Result<String, String>;
    /// Returns the resources' URIs.
    fn resources(&self) -> Result<Vec<String>, String>;
    fn read(&self, uri: &str) -> Result<String, String>;
    /// Returns the listed templates, or `None` if it cannot list them.
    fn templates(&self) -> Option<Result<String, String>>;
    /// Returns a prompt's text, or `None` if it has no prompts.
    fn prompt(&self, name: Option<&str>, arguments: &Value) -> Option<Result<String, String>>;
}

/// Runs the checks that a command line is able to make.
pub fn run(line: &dyn CommandLine, checks: &Value) -> Outcomes {
    let checks = checks.as_object().into_iter().flatten();
    checks.map(|(name, wanted)| (name.clone(), check(line, name, wanted))).collect()
}

fn check(line: &dyn CommandLine, name: &str, wanted: &Value) -> Seen {
    let unsupported = || Seen::new(Outcome::Unsupported, "");
    match name {
        "tools" | "structured" | "image" => Seen::of(call(line, wanted).and_then(|said| contains(&said, wanted))),
        // A 4 MiB argument does not fit on a command line.
        "big" if wanted.get("fill").is_none() => Seen::of(call(line, wanted).and_then(|said| {
            let bytes = wanted["bytes"].as_u64().unwrap_or_default();
            if said.len() as u64 >= bytes { Ok(()) } else { Err(format!("{} bytes", said.len())) }
        })),
        "resources" => match line.resources() {
            Ok(uris) if uris.is_empty() => Seen::new(Outcome::Absent, "no resources"),
            Ok(uris) => Seen::of(read_listed(line, &uris, wanted)),
            Err(reason) => Seen::new(Outcome::Failed, reason),
        },
        "template" => match line.templates() {
            Some(listed) => Seen::of(listed.and_then(|listed| {
                contains(&listed, &json!({ "expect": wanted["template"] }))?;
                contains(&line.read(wanted["uri"].as_str().unwrap_or_default())?, wanted)
            })),
            None => unsupported(),
        },
        "prompts" => match line.prompt(wanted["prompt"].as_str(), &wanted["arguments"]) {
            Some(said) => Seen::of(said.and_then(|said| contains(&said, wanted))),
            None => unsupported(),
        },
        "unknown-tool" => {
            let said = line.call(wanted["tool"].as_str().unwrap_or_default(), &json!({}));
            let is_refused = said.as_ref().map_or(true, |said| said.contains("rror"));
            let detail = said.unwrap_or_else(|reason| reason);
            Seen::new(if is_refused { Outcome::Ok } else { Outcome::Failed }, detail)
        }
        _ => unsupported(),
    }
}

fn call(line: &dyn CommandLine, wanted: &Value) -> Result<String, String> {
    let tool = line.tool(wanted["tool"].as_str().unwrap_or_default())?;
    line.call(&tool, &wanted["arguments"])
}

fn read_listed(line: &dyn CommandLine, uris: &[String], wanted: &Value) -> Result<(), String> {
    let uri = wanted["uri"].as_str().unwrap_or(&uris[0]);
    if !uris.iter().any(|listed| listed == uri) {
        return Err(format!("`{uri}` is not in {uris:?}"));
    }
    contains(&line.read(uri)?, wanted)
}

/// Fails unless the text has the expected part, apart from spaces: the command lines print JSON in several forms.
fn contains(said: &str, wanted: &Value) -> Result<(), String> {
    let expected = wanted["expect"].as_str().unwrap_or_default();
    let plain = |text: &str| text.split_whitespace().collect::<String>();
    if plain(said).contains(&plain(expected)) {
        return Ok(());
    }
    Err(format!("`{expected}` is not in {said:.250}"))
}

/// The Inspector's command line.
pub struct Inspector<'a> {
    program: &'a [PathBuf],
    endpoint: &'a Endpoint,
    file: PathBuf,
}

impl<'a> Inspector<'a> {
    pub fn new(program: &'a [PathBuf], endpoint: &'a Endpoint, folder: &Path) -> Result<Self, String> {
        Ok(Self { program, endpoint, file: write_entry(&folder.join("inspector.json"), endpoint)? })
    }

    fn ask(&self, method: &str, args: &[String]) -> Result<Value, String> {
        let mut command = program::command(self.program)?;
        command.arg("--cli");
        match self.endpoint {
            Endpoint::Url { url, key } => {
                command.args([url.as_str(), "--transport", "http"]);
                if let Some(key) = key {
                    command.args(["--header", &format!("Authorization: Bearer {key}")]);
                }
            }
            // A command's options on the command line would be taken for the Inspector's.
            Endpoint::Command(_) => {
                command.arg("--config").arg(&self.file).args(["--server", "peer"]);
            }
        }
        json_of(&program::output(command.args(["--method", method]).args(args))?)
    }
}

impl CommandLine for Inspector<'_> {
    fn tool(&self, name: &str) -> Result<String, String> {
        find(&self.ask("tools/list", &[])?["tools"], name)
    }

    fn call(&self, tool: &str, arguments: &Value) -> Result<String, String> {
        let mut args = vec!["--tool-name".to_owned(), tool.to_owned()];
        for pair in pairs(arguments) {
            args.extend(["--tool-arg".to_owned(), pair]);
        }
        self.ask("tools/call", &args).map(|result| result.to_string())
    }

    fn resources(&self) -> Result<Vec<String>, String> {
        Ok(uris(&self.ask("resources/list", &[])?))
    }

    fn read(&self, uri: &str) -> Result<String, String> {
        self.ask("resources/read", &["--uri".to_owned(), uri.to_owned()]).map(|result| result.to_string())
    }

    fn templates(&self) -> Option<Result<String, String>> {
        Some(self.ask("resources/templates/list", &[]).map(|result| result.to_string()))
    }

    fn prompt(&self, name: Option<&str>, arguments: &Value) -> Option<Result<String, String>> {
        let get = || {
            let listed = self.ask("prompts/list", &[])?;
            let name = match name {
                Some(name) => find(&listed["prompts"], name)?,
                None => plain_prompt(&listed["prompts"]).ok_or("no prompt without arguments")?.to_owned(),
            };
            let mut args = vec!["--prompt-name".to_owned(), name];
            for pair in pairs(arguments) {
                args.extend(["--prompt-args".to_owned(), pair]);
            }
            self.ask("prompts/get", &args).map(|result| result.to_string())
        };
        Some(get())
    }
}

/// mcporter's command line, which has no prompts.
pub struct Mcporter<'a> {
    program: &'a [PathBuf],
    file: PathBuf,
}

impl<'a> Mcporter<'a> {
    pub fn new(program: &'a [PathBuf], endpoint: &'a Endpoint, folder: &Path) -> Result<Self, String> {
        Ok(Self { program, file: write_entry(&folder.join("mcporter.json"), endpoint)? })
    }

    fn ask(&self, args: &[&str]) -> Result<String, String> {
        let mut command: Command = program::command(self.program)?;
        program::output(command.arg("--config").arg(&self.file).args(args))
    }
}

impl CommandLine for Mcporter<'_> {
    fn tool(&self, name: &str) -> Result<String, String> {
        find(&json_of(&self.ask(&["list", "peer", "--json"])?)?["tools"], name)
    }

    fn call(&self, tool: &str, arguments: &Value) -> Result<String, String> {
        let (tool, pairs) = (format!("peer.{tool}"), pairs(arguments));
        let mut args = vec!["call", tool.as_str(), "--output", "json"];
        args.extend(pairs.iter().map(String::as_str));
        self.ask(&args)
    }

    fn resources(&self) -> Result<Vec<String>, String> {
        Ok(uris(&json_of(&self.ask(&["resource", "peer", "--json"])?)?))
    }

    fn read(&self, uri: &str) -> Result<String, String> {
        self.ask(&["resource", "peer", uri])
    }

    fn templates(&self) -> Option<Result<String, String>> {
        None
    }

    fn prompt(&self, _: Option<&str>, _: &Value) -> Option<Result<String, String>> {
        None
    }
}

/// This workspace's own command line.
pub struct Ropeway<'a> {
    pub program: &'a Path,
    pub endpoint: &'a Endpoint,
}

impl Ropeway<'_> {
    fn ask(&self, args: &[&str]) -> Result<String, String> {
        let mut command = program::command(&[self.program.to_owned()])?;
        command.args(args);
        match self.endpoint {
            Endpoint::Url { url, key } => {
                command.args(["--url", url]);
                if let Some(key) = key {
                    command.args(["--header", &format!("Authorization: Bearer {key}")]);
                }
            }
            Endpoint::Command(words) => {
                command.args(["--stdio", &words.join(" ")]);
            }
        }
        program::output(&command)
    }
}

impl CommandLine for Ropeway<'_> {
    fn tool(&self, name: &str) -> Result<String, String> {
        let listed = self.ask(&["tools", "--names"])?;
        let listed: Vec<Value> = listed.lines().map(|name| json!({ "name": name })).collect();
        find(&Value::Array(listed), name)
    }

    fn call(&self, tool: &str, arguments: &Value) -> Result<String, String> {
        let pairs = pairs(arguments);
        let mut args = vec!["call", tool];
        args.extend(pairs.iter().map(String::as_str));
        self.ask(&args)
    }

    fn resources(&self) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }

    fn read(&self, _: &str) -> Result<String, String> {
        Err("not used".to_owned())
    }

    fn templates(&self) -> Option<Result<String, String>> {
        None
    }

    fn prompt(&self, _: Option<&str>, _: &Value) -> Option<Result<String, String>> {
        None
    }
}

/// Writes another client's configuration file, with the endpoint as `peer`.
fn write_entry(file: &Path, endpoint: &Endpoint) -> Result<PathBuf, String> {
    let entry = match endpoint {
        Endpoint::Url { url, key: None } => json!({ "url": url, "allowHttp": true }),
        Endpoint::Url { url, key: Some(key) } => {
            json!({ "url": url, "allowHttp": true, "headers": { "Authorization": format!("Bearer {key}") } })
        }
        Endpoint::Command(words) => json!({ "command": words[0], "args": words[1..] }),
    };
    let written = fs::write(file, json!({ "mcpServers": { "peer": entry }, "imports": [] }).to_string());
    written.map(|()| file.to_owned()).map_err(|error| error.to_string())
}

/// Returns the arguments as `name=value`.
fn pairs(arguments: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let members = arguments.as_object().into_iter().flatten();
    members.map(|(name, value)| format!("{name}={}", text(value))).collect()
}

/// Returns the entry with this name, or with this name after a prefix.
fn find(entries: &Value, name: &str) -> Result<String, String> {
    let names = entries.as_array().into_iter().flatten().filter_map(|entry| entry["name"].as_str());
    let suffix = format!("_{name}");
    let found = names.clone().find(|listed| *listed == name || listed.ends_with(&suffix));
    found.map(str::to_owned).ok_or_else(|| format!("no `{name}` in {:?}", names.collect::<Vec<_>>()))
}

fn uris(listed: &Value) -> Vec<String> {
    let resources = listed["resources"].as_array().into_iter().flatten();
    resources.filter_map(|resource| resource["uri"].as_str().map(str::to_owned)).collect()
}

/// Returns the first prompt without required arguments.
fn plain_prompt(prompts: &Value) -> Option<&str> {
    let is_plain = |prompt: &&Value| {
        let mut arguments = prompt["arguments"].as_array().into_iter().flatten();
        !arguments.any(|argument| argument["required"] == true)
    };
    prompts.as_array()?.iter().find(is_plain)?["name"].as_str()
}

/// Returns the JSON in an output that may begin with other lines.
fn json_of(text: &str) -> Result<Value, String> {
    let start = text.find('{').ok_or_else(|| format!("no JSON in the output: {text}"))?;
    serde_json::from_str(&text[start..]).map_err(|error| format!("{error}: {text:.300}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_with_required_arguments_is_not_plain() {
        let prompts = json!([{ "name": "a", "arguments": [{ "name": "x", "required": true }] }, { "name": "b" }]);
        assert_eq!(plain_prompt(&prompts), Some("b"));
    }

    #[test]
    fn an_entry_is_found_with_and_without_a_prefix() {
        let entries = json!([{ "name": "files_echo" }, { "name": "add" }]);
        assert_eq!(find(&entries, "echo").as_deref(), Ok("files_echo"));
        assert_eq!(find(&entries, "add").as_deref(), Ok("add"));
        assert!(find(&entries, "ech").is_err());
    }
}
