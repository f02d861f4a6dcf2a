//! `cargo xtask page`: the gateway's web page in a real browser.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, anyhow, bail};
use serde_json::{Value, json};

use crate::gateway::{self, Gateway};
use crate::needs::{CHROMIUM, Missing};
use crate::process;
use crate::protected::ProtectedServers;
use crate::{clients, paths, servers};

/// Number of tools on the server that has many.
const MANY_TOOLS: &str = "2000";

/// Installs the servers and builds the gateway, and tests its page.
pub fn run() -> Result<()> {
    servers::run()?;
    process::build(&["ropeway"])?;
    test()
}

/// Tests a gateway's page. The gateway must be built and the servers installed.
pub fn test() -> Result<()> {
    if !CHROMIUM.ensure() {
        return Err(anyhow!(Missing(vec![CHROMIUM])));
    }
    let fixtures = paths::root().join("fixtures").join("page");
    let home = paths::target().join("page");
    let folder = home.join("node");
    let node = servers::npm_packages(&folder, &fixtures, &["puppeteer-core/package.json", "axe-core/axe.min.js"])?;
    let Ok(node) = node.map_err(|reason| eprintln!("{reason}")) else { bail!("the browser driver is not installed") };
    // Node resolves imports from the script's folder, so it must be next to its `node_modules`.
    for script in ["browser.mjs", "sign_in.mjs", "test.mjs", "workbench.mjs"] {
        fs::copy(fixtures.join(script), folder.join(script))?;
    }
    let ropeway = paths::program("ropeway");
    let files = home.join("files");
    fs::create_dir_all(&files)?;
    fs::write(files.join("hello.txt"), "hello\n")?;
    // The memory server would find the last run's entities.
    let _ = fs::remove_file(home.join("clients-memory.json"));
    let mut config = clients::five_servers(&ropeway, &files);
    let hostile = fixtures.join("hostile.mjs");
    if let Some(servers) = config["servers"].as_array_mut() {
        servers.push(json!({ "alias": "hostile", "command": node, "args": [hostile] }));
        servers.push(json!({ "alias": "many", "command": node, "args": [hostile, MANY_TOOLS] }));
        servers.push(json!({ "alias": "down", "command": "/nonexistent/server" }));
    }
    config["gateway"] =
        json!({ "profiles": { "coding": { "servers": ["files", "memory"] }, "searching": { "search": true } } });
    let config = gateway::write_config("page", &config)?;
    let gateway = Gateway::start(&ropeway, &config, "127.0.0.1:0")?;
    let (keyed_gateway, keyed) = start_keyed(&ropeway, &home, &files)?;
    let protected = start_protected(&ropeway, &home)?;
    let mut browser = Command::new(&node);
    browser
        .arg(folder.join("test.mjs"))
        .args([gateway.url.trim_end_matches("/mcp"), "chromium"])
        .arg(&home)
        .arg(&files)
        // Unlike an argument, this does not appear in error messages.
        .env("KEYED", keyed.to_string())
        .env("SIGN_IN", protected.description.to_string());
    process::run(&mut browser)?;
    protected.stop()?;
    keyed_gateway.program.stop()?;
    gateway.program.stop()
}

/// Starts a gateway that requires keys, and describes it and its keys to the script.
fn start_keyed(ropeway: &Path, home: &Path, files: &Path) -> Result<(Gateway, Value)> {
    let keys = home.join("keys.json");
    let [key, restricted] = new_keys(ropeway, &keys)?;
    let mut config = clients::five_servers(ropeway, files);
    if let Some(servers) = config["servers"].as_array_mut() {
        servers.retain(|server| ["files", "time", "demo"].iter().any(|alias| server["alias"] == *alias));
    }
    config["gateway"] =
        json!({ "auth": { "keys_file": keys }, "profiles": { "coding": { "servers": ["files", "time"] } } });
    let gateway = Gateway::start(ropeway, &gateway::write_config("page-keys", &config)?, "127.0.0.1:0")?;
    let url = gateway.url.trim_end_matches("/mcp");
    let revoke = json!([ropeway, "key", "revoke", "--file", keys, "alice"]);
    let keyed = json!({ "url": url, "key": key, "restricted": restricted, "revoke": revoke });
    Ok((gateway, keyed))
}

/// Starts servers that need a sign-in, and gateways in front of them.
fn start_protected(ropeway: &Path, home: &Path) -> Result<ProtectedServers> {
    let keys = home.join("sign-in-keys.json");
    let [key, restricted] = new_keys(ropeway, &keys)?;
    ProtectedServers::start(ropeway, &keys, &key, &restricted)
}

/// Writes a key file with an operator's key and a key for the profile `coding`, and returns both.
fn new_keys(ropeway: &Path, file: &Path) -> Result<[String; 2]> {
    // The last run's keys.
    let _ = fs::remove_file(file);
    let new_key = |args: &[&str]| gateway::new_key(ropeway, file, args);
    Ok([new_key(&["alice", "--operator"])?, new_key(&["coder", "--profile", "coding"])?])
}
