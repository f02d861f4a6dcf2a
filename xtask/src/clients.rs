//! `cargo xtask clients`: real MCP clients against the gateway, or against one endpoint.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::gateway::{self, Gateway};
use crate::process::{self, cargo};
use crate::{paths, servers};

/// What the clients connect to.
#[derive(Clone, Debug, PartialEq)]
enum Endpoint {
    Url(String),
    Command(Vec<String>),
}

impl Endpoint {
    fn to_json(&self) -> Value {
        match self {
            Self::Url(url) => json!({ "url": url }),
            Self::Command(words) => json!({ "command": words }),
        }
    }
}

/// The endpoint, and the call that every client makes.
#[derive(Clone, Debug, PartialEq)]
struct Visit {
    endpoint: Endpoint,
    tool: String,
    arguments: String,
}

/// Runs `clients` against the gateway, or
/// `clients [--tool NAME] [--arguments JSON] URL | --stdio COMMAND [ARGUMENT...]` against another endpoint.
pub fn run(args: &[String]) -> Result<()> {
    let visit = if args.is_empty() { None } else { Some(parse(args)?) };
    servers::run()?;
    process::run(&mut cargo(&["build", "--package", "ropeway-peers", "--bin", "rmcp-client"]))?;
    process::run(&mut cargo(&["build", "--package", "ropeway-cli", "--bin", "ropeway"]))?;
    let failed = match visit {
        Some(visit) => table(&[(visit, "")])?,
        None => through_gateway()?,
    };
    if failed > 0 {
        bail!("{failed} clients failed");
    }
    Ok(())
}

/// Lets each client call a tool of each of five servers, over HTTP and stdio. Returns the number of failed clients.
fn through_gateway() -> Result<u32> {
    let ropeway = paths::program("ropeway");
    let folder = paths::target().join("gateway").join("files");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("hello.txt"), "hello\n")?;
    let config = gateway::write_config("clients", &five_servers(&ropeway, &folder))?;
    let calls = [
        ("everything_echo", json!({ "message": "hello" }), "hello"),
        ("files_list_directory", json!({ "path": folder }), "hello.txt"),
        ("memory_read_graph", json!({}), "entities"),
        ("time_get_current_time", json!({ "timezone": "UTC" }), "UTC"),
        ("demo_calculate", json!({ "expression": "6*7" }), "42"),
    ];
    let visits = |endpoint: Endpoint| {
        calls.clone().map(|(tool, arguments, expected)| {
            let (tool, arguments) = (tool.to_owned(), arguments.to_string());
            (Visit { endpoint: endpoint.clone(), tool, arguments }, expected)
        })
    };
    let gateway = Gateway::start(&ropeway, &config, "127.0.0.1:0")?;
    println!("\nHTTP, {}", gateway.url);
    let mut failed = table(&visits(Endpoint::Url(gateway.url.clone())))?;
    gateway.program.stop()?;
    println!("\nstdio");
    let words = [ropeway.as_os_str(), "serve".as_ref(), "--stdio".as_ref(), "--config".as_ref(), config.as_os_str()];
    let words = words.map(|word| word.to_string_lossy().into_owned());
    failed += table(&visits(Endpoint::Command(words.into())))?;
    Ok(failed)
}

/// Returns a configuration with five servers: three on Node, one on Python, one native.
pub fn five_servers(ropeway: &Path, folder: &Path) -> Value {
    let node = servers::node();
    let package = |name: &str| {
        let modules = paths::servers().join("npm/node_modules/@modelcontextprotocol");
        modules.join(name).join("dist/index.js")
    };
    let time = paths::servers().join("mcp2/bin/mcp-server-time");
    json!({ "servers": [
        { "alias": "everything", "command": node, "args": [package("server-everything")] },
        { "alias": "files", "command": node, "args": [package("server-filesystem"), folder] },
        { "alias": "memory", "command": node, "args": [package("server-memory")],
            "env": { "MEMORY_FILE_PATH": folder.with_file_name("clients-memory.json") } },
        { "alias": "time", "command": time, "args": ["--local-timezone", "UTC"] },
        { "alias": "demo", "command": ropeway, "args": ["demo-server"] },
    ] })
}

/// Makes all visits with each client and prints a table. Returns the number of clients that failed.
fn table(visits: &[(Visit, &str)]) -> Result<u32> {
    let mut failed = 0;
    println!(
        "{:<20} {:<8} {:<12} {:>5} {:>5}  {:<28} {:<30} {:<22} time",
        "client", "result", "protocol", "tools", "calls", "last call", "resource", "prompt"
    );
    for (name, client) in clients()? {
        let started = Instant::now();
        let seen = client.and_then(|client| visit_all(&client, visits));
        print(&name, &seen, visits.len(), started.elapsed());
        failed += u32::from(seen.is_err());
    }
    Ok(failed)
}

/// Makes all visits, and returns what the client saw in the last one.
fn visit_all(client: &Client, visits: &[(Visit, &str)]) -> Result<Value, String> {
    let mut last = Value::Null;
    for (visit, expected) in visits {
        let seen = client.visit(visit).map_err(|reason| format!("{}: {reason}", visit.tool))?;
        if !seen["call"].as_str().unwrap_or_default().contains(expected) {
            return Err(format!("{}: `{expected}` is missing in {}", visit.tool, seen["call"]));
        }
        last = seen;
    }
    Ok(last)
}

fn parse(args: &[String]) -> Result<Visit> {
    let (mut tool, mut arguments) = ("echo".to_owned(), json!({ "message": "hello" }).to_string());
    let mut rest = args.iter();
    let usage = "usage: cargo xtask clients [--tool NAME] [--arguments JSON] URL | --stdio COMMAND [ARGUMENT...]";
    loop {
        let endpoint = match rest.next().context(usage)?.as_str() {
            "--tool" => {
                tool.clone_from(rest.next().context(usage)?);
                continue;
            }
            "--arguments" => {
                arguments.clone_from(rest.next().context(usage)?);
                serde_json::from_str::<Value>(&arguments).context("`--arguments` is not JSON")?;
                continue;
            }
            "--stdio" => Endpoint::Command(rest.by_ref().cloned().collect()),
            url if url.starts_with("http://") || url.starts_with("https://") => Endpoint::Url(url.to_owned()),
            _ => bail!(usage),
        };
        if rest.next().is_some() || endpoint == Endpoint::Command(Vec::new()) {
            bail!(usage);
        }
        return Ok(Visit { endpoint, tool, arguments });
    }
}

/// A client, and how it is run.
#[derive(Debug)]
enum Client {
    /// A program that makes the whole visit and prints one line of JSON; the variables select the era.
    Script { program: Vec<PathBuf>, variables: Vec<(&'static str, &'static str)> },
    /// The Inspector's command line: one process per request.
    Inspector(Vec<PathBuf>),
    /// mcporter's command line, which has no prompts.
    Mcporter(Vec<PathBuf>),
    /// This workspace's own command line.
    Ropeway(PathBuf),
}

/// Returns the clients by name, or the reason why one is missing.
fn clients() -> Result<Vec<(String, Result<Client, String>)>> {
    let fixtures = paths::root().join("fixtures").join("clients");
    let folder = paths::target().join("clients").join("node");
    let proof = ["@modelcontextprotocol/sdk/package.json", "@modelcontextprotocol/client/package.json"];
    let node = servers::npm_packages(&folder, &fixtures, &proof)?;
    if node.is_ok() {
        // Node resolves imports from the folder of the script, so it must be next to its `node_modules`.
        for script in ["visit.mjs", "typescript1.mjs", "typescript2.mjs"] {
            fs::copy(fixtures.join(script), folder.join(script))?;
        }
    }
    let script = |program: Vec<PathBuf>, variables: &[(&'static str, &'static str)]| Client::Script {
        program,
        variables: variables.to_vec(),
    };
    let typescript = |name: &str, variables: &[(&'static str, &'static str)]| {
        node.clone().map(|node| script(vec![node, folder.join(name)], variables))
    };
    let python = |venv: &str, name: &str, variables: &[(&'static str, &'static str)]| {
        Ok(script(vec![paths::servers().join(venv).join("bin/python"), fixtures.join(name)], variables))
    };
    let lines = servers::command_lines()?;
    Ok([
        ("typescript1", typescript("typescript1.mjs", &[])),
        ("typescript2", typescript("typescript2.mjs", &[("MCP_ERA", "legacy")])),
        ("typescript2-modern", typescript("typescript2.mjs", &[("MCP_ERA", "modern")])),
        ("python1", python("mcp1", "python1.py", &[])),
        ("python2", python("mcp2", "python2.py", &[("MCP_ERA", "legacy")])),
        ("python2-modern", python("mcp2", "python2.py", &[("MCP_ERA", "modern")])),
        ("fastmcp", python("fastmcp", "fastmcp_client.py", &[("MCP_ERA", "legacy")])),
        ("fastmcp-modern", python("fastmcp", "fastmcp_client.py", &[("MCP_ERA", "modern")])),
        ("rmcp", Ok(script(vec![paths::program("rmcp-client")], &[]))),
        ("inspector", lines.inspector.map(Client::Inspector)),
        ("mcporter", lines.mcporter.map(Client::Mcporter)),
        ("ropeway", Ok(Client::Ropeway(paths::program("ropeway")))),
    ]
    .map(|(name, client)| (name.to_owned(), client))
    .into())
}

impl Client {
    /// Lists the tools, calls one, reads a resource and gets a prompt; returns what the client saw.
    fn visit(&self, visit: &Visit) -> Result<Value, String> {
        match self {
            Self::Script { program, variables } => {
                let mut command = command(program)?;
                command.envs(variables.iter().copied());
                command.args([visit.endpoint.to_json().to_string(), visit.tool.clone(), visit.arguments.clone()]);
                let said = output(&mut command)?;
                serde_json::from_str(said.lines().last().unwrap_or_default())
                    .map_err(|error| format!("{error}: {said}"))
            }
            Self::Inspector(program) => inspector(program, visit),
            Self::Mcporter(program) => mcporter(program, visit),
            Self::Ropeway(program) => ropeway(program, visit),
        }
    }
}

fn inspector(program: &[PathBuf], visit: &Visit) -> Result<Value, String> {
    let file = write_entry("inspector.json", &visit.endpoint)?;
    let ask = |args: &[String]| {
        let mut command = command(program)?;
        command.arg("--cli");
        match &visit.endpoint {
            Endpoint::Url(url) => command.args([url.as_str(), "--transport", "http"]),
            // Options of a command on the command line would be taken for those of the Inspector.
            Endpoint::Command(_) => command.arg("--config").arg(&file).args(["--server", "peer"]),
        };
        json_of(&output(command.args(args))?)
    };
    let method = |name: &str| vec!["--method".to_owned(), name.to_owned()];
    let tools = ask(&method("tools/list"))?;
    let mut call = method("tools/call");
    call.extend(["--tool-name".to_owned(), visit.tool.clone()]);
    for pair in pairs(visit, "=") {
        call.extend(["--tool-arg".to_owned(), pair]);
    }
    let called = ask(&call)?;
    let mut seen = json!({ "tools": names(&tools["tools"]), "call": called["content"][0]["text"] });
    if let Ok(listed) = ask(&method("resources/list"))
        && let Some(uri) = listed["resources"][0]["uri"].as_str()
    {
        let mut read = method("resources/read");
        read.extend(["--uri".to_owned(), uri.to_owned()]);
        let contents = &ask(&read)?["contents"][0];
        let length = contents["text"].as_str().or(contents["blob"].as_str()).unwrap_or_default().len();
        seen["resource"] = json!({ "uri": uri, "length": length });
    }
    if let Ok(listed) = ask(&method("prompts/list"))
        && let Some(name) = plain_prompt(&listed["prompts"])
    {
        let mut get = method("prompts/get");
        get.extend(["--prompt-name".to_owned(), name.to_owned()]);
        let messages = ask(&get)?["messages"].as_array().map_or(0, Vec::len);
        seen["prompt"] = json!({ "name": name, "messages": messages });
    }
    Ok(seen)
}

fn mcporter(program: &[PathBuf], visit: &Visit) -> Result<Value, String> {
    // Resources need a server of a configuration file.
    let file = write_entry("mcporter.json", &visit.endpoint)?;
    let ask = |args: &[String]| {
        let mut command = command(program)?;
        output(command.arg("--config").arg(&file).args(args))
    };
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let listed = json_of(&ask(&words(&["list", "peer", "--json"]))?)?;
    let mut call = words(&["call", &format!("peer.{}", visit.tool), "--output", "json"]);
    call.extend(pairs(visit, "="));
    let called = ask(&call)?;
    // It prints structured content instead of a result that has it.
    let result = json_of(&called).unwrap_or_default();
    let called = result["content"][0]["text"].as_str().unwrap_or(called.trim());
    let mut seen = json!({ "tools": names(&listed["tools"]), "call": called });
    let resources = ask(&words(&["resource", "peer", "--json"])).and_then(|text| json_of(&text));
    if let Ok(resources) = resources
        && let Some(uri) = resources["resources"][0]["uri"].as_str()
    {
        let length = ask(&words(&["resource", "peer", uri]))?.trim().len();
        seen["resource"] = json!({ "uri": uri, "length": length });
    }
    Ok(seen)
}

/// Writes a configuration file of another client, with the endpoint as `peer`.
fn write_entry(name: &str, endpoint: &Endpoint) -> Result<PathBuf, String> {
    let entry = match endpoint {
        Endpoint::Url(url) => json!({ "url": url, "allowHttp": true }),
        Endpoint::Command(words) => json!({ "command": words[0], "args": words[1..] }),
    };
    let file = paths::target().join("clients").join(name);
    let written = fs::write(&file, json!({ "mcpServers": { "peer": entry }, "imports": [] }).to_string());
    written.map(|()| file).map_err(|error| error.to_string())
}

fn ropeway(program: &Path, visit: &Visit) -> Result<Value, String> {
    let ask = |args: &[&str]| {
        let mut command = command(&[program.to_owned()])?;
        command.args(args);
        match &visit.endpoint {
            Endpoint::Url(url) => command.args(["--url", url]),
            Endpoint::Command(words) => command.args(["--stdio", &words.join(" ")]),
        };
        output(&mut command)
    };
    let listed = ask(&["tools", "--names"])?;
    let pairs = pairs(visit, "=");
    let mut call = vec!["call", visit.tool.as_str()];
    call.extend(pairs.iter().map(String::as_str));
    let called = ask(&call)?;
    Ok(json!({ "tools": listed.lines().collect::<Vec<_>>(), "call": called.trim() }))
}

/// Returns the arguments as `name=value`.
fn pairs(visit: &Visit, sign: &str) -> Vec<String> {
    let arguments: Value = serde_json::from_str(&visit.arguments).unwrap_or_default();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let members = arguments.as_object().into_iter().flatten();
    members.map(|(name, value)| format!("{name}{sign}{}", text(value))).collect()
}

fn names(tools: &Value) -> Vec<&str> {
    tools.as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str()).collect()
}

/// Returns the first prompt without required arguments.
fn plain_prompt(prompts: &Value) -> Option<&str> {
    let is_plain = |prompt: &&Value| {
        let mut arguments = prompt["arguments"].as_array().into_iter().flatten();
        !arguments.any(|argument| argument["required"] == true)
    };
    prompts.as_array()?.iter().find(is_plain)?["name"].as_str()
}

/// Returns the JSON of an output that may begin with other lines.
fn json_of(text: &str) -> Result<Value, String> {
    let start = text.find('{').ok_or_else(|| format!("no JSON in the output: {text}"))?;
    serde_json::from_str(&text[start..]).map_err(|error| format!("{error}: {text}"))
}

/// Returns a command with an empty home folder and without update checks.
fn command(program: &[PathBuf]) -> Result<Command, String> {
    let (program, first) = program.split_first().ok_or("no program")?;
    let home = paths::target().join("clients").join("home");
    fs::create_dir_all(&home).map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(first).env("HOME", &home).env("NO_COLOR", "1").env("NO_UPDATE_NOTIFIER", "1");
    command.env("FASTMCP_CHECK_FOR_UPDATES", "off").env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(command)
}

/// Runs a command and returns its standard output.
fn output(command: &mut Command) -> Result<String, String> {
    let mut timed = Command::new("timeout");
    timed.arg("60").arg(command.get_program()).args(command.get_args());
    timed.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = process::output(&mut timed).map_err(|error| format!("{error:#}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = process::output_text(&output);
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    Err(format!("{}: {}", output.status, lines[lines.len().saturating_sub(6)..].join(" | ")))
}

fn print(name: &str, seen: &Result<Value, String>, calls: usize, took: Duration) {
    match seen {
        Err(reason) => println!("{name:<20} FAILED   {reason}"),
        Ok(seen) => {
            let tools = seen["tools"].as_array().map_or(0, Vec::len);
            let call: String = seen["call"].as_str().unwrap_or("-").chars().take(26).collect();
            let resource = match seen["resource"]["uri"].as_str() {
                Some(uri) => format!("{:.20} ({} B)", uri, seen["resource"]["length"]),
                None => "-".to_owned(),
            };
            let prompt = seen["prompt"]["name"].as_str().unwrap_or("-");
            let protocol = seen["protocol"].as_str().unwrap_or("-");
            let call = call.replace('\n', " ");
            println!(
                "{name:<20} ok       {protocol:<12} {tools:>5} {calls:>5}  {call:<28} {resource:<30} {prompt:<22} {took:.1?}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn an_endpoint_is_a_url_or_a_command() {
        let visit = parse(&words("--tool a --arguments {} http://127.0.0.1:1/mcp")).expect("a visit");
        assert_eq!(visit.endpoint, Endpoint::Url("http://127.0.0.1:1/mcp".to_owned()));
        assert_eq!((visit.tool.as_str(), visit.arguments.as_str()), ("a", "{}"));
        let visit = parse(&words("--stdio node server.js --flag")).expect("a visit");
        assert_eq!(visit.endpoint, Endpoint::Command(words("node server.js --flag")));
        assert!(parse(&[]).is_err() && parse(&words("--stdio")).is_err() && parse(&words("x")).is_err());
    }

    #[test]
    fn a_prompt_with_required_arguments_is_not_plain() {
        let prompts = json!([{ "name": "a", "arguments": [{ "name": "x", "required": true }] }, { "name": "b" }]);
        assert_eq!(plain_prompt(&prompts), Some("b"));
    }
}
