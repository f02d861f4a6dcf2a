//! Installs real servers, SDKs, command lines and agents for tests and benchmarks, at pinned versions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::{Map, Value, json};

use crate::needs::{DBUS, FISH, GIT, GNOME_KEYRING, LESS, Missing, NPM, Need, PYTHON, SECRET_TOOL, ZSH};
use crate::paths;
use crate::process::run_quietly;

/// Maximum installation attempts, since downloads may fail.
const TRIES: u32 = 3;

/// The file that marks a complete installation.
const STAMP: &str = "installed.stamp";

/// Installs missing parts and writes `servers.json`.
pub fn run() -> Result<()> {
    let home = paths::servers();
    let _guard = guard(&home)?;

    let started = Instant::now();
    let parts = parts(&home);
    let due: Vec<&Part> = parts.iter().filter(|part| !part.is_installed()).collect();
    if let Some(missing) = missing() {
        return Err(anyhow!(missing));
    }
    if !due.is_empty() {
        // In parallel, since downloads take most of the time.
        let results: Vec<Result<()>> = std::thread::scope(|scope| {
            let running: Vec<_> = due.iter().map(|part| scope.spawn(|| part.install())).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join().unwrap_or(Err(anyhow!("panicked")));
            running.into_iter().map(join).collect()
        });
        results.into_iter().collect::<Result<()>>()?;
    }
    // Node resolves imports from the script's folder, so it must be next to its `node_modules`.
    for script in ["typescript_server.mjs", "protected_server.mjs"] {
        fs::copy(paths::fixtures().join(script), home.join("npm").join(script))?;
    }
    fs::copy(paths::auth_fixtures().join("oidc.mjs"), home.join("auth").join("oidc.mjs"))?;

    let table = serde_json::to_string_pretty(&table(&home))?;
    fs::write(home.join("servers.json"), table + "\n")?;
    println!("installed {} of {} parts ({:.1?})", due.len(), parts.len(), started.elapsed());
    Ok(())
}

/// Returns the servers' missing requirements, after trying to install them.
pub fn missing() -> Option<Missing> {
    let is_due = parts(&paths::servers()).iter().any(|part| !part.is_installed());
    // Tests use all these except Python, even if all parts are installed.
    let of_tests = [NPM, GIT, ZSH, FISH, LESS, DBUS, GNOME_KEYRING, SECRET_TOOL];
    let needs = of_tests.into_iter().chain(is_due.then_some(PYTHON));
    let missing: Vec<Need> = needs.filter(|need| !need.ensure()).collect();
    (!missing.is_empty()).then_some(Missing(missing))
}

/// Other command lines, each with its program and first arguments, or the reason why it is missing.
#[derive(Debug)]
pub struct CommandLines {
    pub mcporter: Result<Vec<PathBuf>, String>,
    pub inspector: Result<Vec<PathBuf>, String>,
    pub fastmcp: Result<Vec<PathBuf>, String>,
}

/// Installs the benchmark's other command lines, as far as possible.
pub fn command_lines() -> Result<CommandLines> {
    let home = paths::servers();
    let _guard = guard(&home)?;
    let folder = home.join("clis");
    let modules = folder.join("node_modules");
    let node = node_in(&modules);
    let mcporter = vec![node.clone(), modules.join("mcporter/dist/cli.js")];
    let inspector = vec![node, modules.join("@modelcontextprotocol/inspector/clients/launcher/build/index.js")];
    let npm = Part {
        folder,
        pins: paths::command_line_fixtures().join("package-lock.json"),
        kind: Kind::Npm,
        proof: [mcporter.as_slice(), &inspector].concat(),
    };
    let fastmcp = python(&home, "fastmcp", FASTMCP);
    let program = vec![fastmcp.folder.join("bin/fastmcp")];
    let (npm, fastmcp) = (npm.ensure(&NPM), fastmcp.ensure(&PYTHON));
    Ok(CommandLines {
        mcporter: npm.clone().map(|()| mcporter),
        inspector: npm.map(|()| inspector),
        fastmcp: fastmcp.map(|()| program),
    })
}

/// Other agents, each with its program and first arguments, or the reason why it is missing.
#[derive(Debug)]
pub struct Agents {
    pub ai_sdk: Result<Vec<PathBuf>, String>,
    pub openai_agents: Result<Vec<PathBuf>, String>,
    pub pydantic_ai: Result<Vec<PathBuf>, String>,
}

/// Installs the benchmark's other agents, as far as possible.
pub fn agents() -> Result<Agents> {
    let home = paths::target().join("agents");
    let _guard = guard(&home)?;
    let fixtures = paths::agent_fixtures();
    let folder = home.join("node");
    let (node, script) = (node_in(&folder.join("node_modules")), folder.join("ai_sdk.mjs"));
    let npm = Part {
        folder: folder.clone(),
        pins: fixtures.join("package-lock.json"),
        kind: Kind::Npm,
        proof: vec![node.clone(), folder.join("node_modules/ai/package.json")],
    };
    let folder = home.join("python");
    let program = folder.join("bin/python");
    let pip = Part { folder, pins: fixtures.join("python.txt"), kind: Kind::Python, proof: vec![program.clone()] };
    let (npm, pip) = (npm.ensure(&NPM), pip.ensure(&PYTHON));
    if npm.is_ok() {
        // Node resolves imports from the script's folder, so it must be next to its `node_modules`.
        fs::copy(fixtures.join("ai_sdk.mjs"), &script)?;
    }
    let python = |script: &str| pip.clone().map(|()| vec![program.clone(), fixtures.join(script)]);
    Ok(Agents {
        ai_sdk: npm.map(|()| vec![node, script]),
        openai_agents: python("openai_agents_run.py"),
        pydantic_ai: python("pydantic_ai_run.py"),
    })
}

/// Installs the npm packages that a fixture folder pins, as far as possible, and returns the Node that runs them.
pub fn npm_packages(folder: &Path, fixtures: &Path, proof: &[&str]) -> Result<Result<PathBuf, String>> {
    let _guard = guard(folder.parent().unwrap_or(folder))?;
    let modules = folder.join("node_modules");
    let node = node_in(&modules);
    let part = Part {
        folder: folder.to_owned(),
        pins: fixtures.join("package-lock.json"),
        kind: Kind::Npm,
        proof: proof.iter().map(|file| modules.join(file)).chain([node.clone()]).collect(),
    };
    Ok(part.ensure(&NPM).map(|()| node))
}

/// Locks the folder against concurrent installations.
fn guard(home: &Path) -> Result<fs::File> {
    fs::create_dir_all(home).with_context(|| format!("could not create `{}`", home.display()))?;
    let guard = fs::File::create(home.join("lock"))?;
    guard.lock()?;
    Ok(guard)
}

/// Returns the pinned Node that runs the servers.
pub fn node() -> PathBuf {
    node_in(&paths::servers().join("npm/node_modules"))
}

/// Returns a `node_modules` folder's Node, inside this architecture's npm package.
///
/// npm 9 from Debian 12 leaves no `.bin/node`: it removes the link together with the other architecture's package.
fn node_in(modules: &Path) -> PathBuf {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    modules.join(format!("node-linux-{architecture}/bin/node"))
}

/// Returns the official conformance suite's program, to be run with [`node`].
pub fn conformance() -> PathBuf {
    paths::servers().join("npm/node_modules/@modelcontextprotocol/conformance/dist/index.js")
}

/// Packages that are installed together into one folder.
struct Part {
    folder: PathBuf,
    /// The file with the exact versions.
    pins: PathBuf,
    kind: Kind,
    /// Files that a complete installation has.
    proof: Vec<PathBuf>,
}

enum Kind {
    Npm,
    Python,
}

/// The FastMCP programs that tests and the benchmark use.
const FASTMCP: &[&str] = &["python", "fastmcp"];

fn python(home: &Path, name: &str, programs: &[&str]) -> Part {
    let folder = home.join(name);
    let proof = programs.iter().map(|program| folder.join("bin").join(program)).collect();
    Part { folder, pins: paths::fixtures().join(format!("{name}.txt")), kind: Kind::Python, proof }
}

fn parts(home: &Path) -> Vec<Part> {
    let npm = Part {
        folder: home.join("npm"),
        pins: paths::fixtures().join("package-lock.json"),
        kind: Kind::Npm,
        proof: vec![
            node(),
            conformance(),
            home.join("npm/node_modules/@modelcontextprotocol/server/package.json"),
            home.join("npm/node_modules/.bin/mcp-server-everything"),
            home.join("npm/node_modules/.bin/mcp-server-filesystem"),
            home.join("npm/node_modules/.bin/mcp-server-memory"),
            home.join("npm/node_modules/.bin/mcp-server-sequential-thinking"),
        ],
    };
    vec![
        npm,
        python(home, "mcp1", &["python", "uvicorn", "mcp-server-sqlite"]),
        python(home, "mcp2", &["python", "uvicorn", "mcp-server-time", "mcp-server-git", "mcp-server-fetch", "uvx"]),
        python(home, "fastmcp", FASTMCP),
        Part {
            folder: home.join("sdks-python"),
            pins: paths::sdk_fixtures().join("python.txt"),
            kind: Kind::Python,
            proof: vec![home.join("sdks-python/bin/python")],
        },
        Part {
            folder: home.join("telemetry"),
            pins: paths::telemetry_fixtures().join("python.txt"),
            kind: Kind::Python,
            proof: vec![home.join("telemetry/bin/python")],
        },
        Part {
            folder: home.join("sdks-node"),
            pins: paths::sdk_fixtures().join("package-lock.json"),
            kind: Kind::Npm,
            proof: ["typescript/lib/tsc.js", "@anthropic-ai/sdk", "@google/genai", "openai"]
                .map(|package| home.join("sdks-node/node_modules").join(package))
                .to_vec(),
        },
        Part {
            folder: home.join("auth"),
            pins: paths::auth_fixtures().join("package-lock.json"),
            kind: Kind::Npm,
            proof: vec![home.join("auth/node_modules/oidc-provider/package.json")],
        },
    ]
}

impl Part {
    /// Returns the stamp's contents. It has the path, since a virtual environment cannot be moved.
    fn stamp(&self) -> Result<String> {
        let pins =
            fs::read_to_string(&self.pins).with_context(|| format!("could not read `{}`", self.pins.display()))?;
        Ok(format!("{}\n{pins}", self.folder.display()))
    }

    fn is_installed(&self) -> bool {
        let stamped = fs::read_to_string(self.folder.join(STAMP));
        let right = matches!((stamped, self.stamp()), (Ok(found), Ok(wanted)) if found == wanted);
        // `exists` follows links, so a link to a removed Python counts as missing.
        right && self.proof.iter().all(|file| file.exists())
    }

    /// Installs it if necessary, or returns why that is not possible.
    fn ensure(&self, need: &Need) -> Result<(), String> {
        if self.is_installed() {
            return Ok(());
        }
        if !need.ensure() {
            return Err(Missing(vec![*need]).to_string());
        }
        self.install().map_err(|error| format!("{error:#}"))
    }

    fn install(&self) -> Result<()> {
        let name = self.folder.file_name().unwrap_or_default().to_string_lossy();
        let started = Instant::now();
        let mut tries = 1;
        loop {
            match self.try_install() {
                Ok(()) => break,
                Err(error) if tries < TRIES => eprintln!("{name}: try {tries} of {TRIES} failed: {error:#}"),
                Err(error) => return Err(error.context(format!("could not install {name}"))),
            }
            tries += 1;
        }
        // Standard output belongs to the caller, which may print JSON.
        eprintln!("{name} installed ({:.1?})", started.elapsed());
        Ok(())
    }

    fn try_install(&self) -> Result<()> {
        let folder = &self.folder;
        if folder.exists() {
            fs::remove_dir_all(folder).with_context(|| format!("could not remove `{}`", folder.display()))?;
        }
        fs::create_dir_all(folder)?;
        match self.kind {
            Kind::Npm => {
                for file in ["package.json", "package-lock.json"] {
                    fs::copy(self.pins.with_file_name(file), folder.join(file))?;
                }
                let mut npm = Command::new("npm");
                npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
                run_quietly(npm.arg("--prefix").arg(folder).current_dir(folder))?;
            }
            Kind::Python => {
                run_quietly(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
                let mut pip = Command::new(folder.join("bin/python"));
                pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]);
                run_quietly(pip.arg(&self.pins))?;
            }
        }
        if let Some(absent) = self.proof.iter().find(|file| !file.exists()) {
            bail!("`{}` is missing after the installation", absent.display());
        }
        fs::write(folder.join(STAMP), self.stamp()?)?;
        Ok(())
    }
}

/// Returns how each server is started. `{PORT}` stands for a free port, `{DIR}` for the test's folder, `{ISSUER}` for its
/// authorization server's URL.
fn table(home: &Path) -> Value {
    let at = |path: &str| home.join(path).to_string_lossy().into_owned();
    let fixture = |name: &str| paths::fixtures().join(name).to_string_lossy().into_owned();
    let package = |name: &str, script: &str| at(&format!("npm/node_modules/@modelcontextprotocol/{name}/{script}"));
    let node = node().to_string_lossy().into_owned();
    const MCP: &str = "http://127.0.0.1:{PORT}/mcp";
    const SSE: &str = "http://127.0.0.1:{PORT}/sse";

    let mut table = Map::new();
    let mut add = |name: &str, command: &str, args: &[&str], env: &[(&str, &str)], url: Option<&str>| {
        let env: Map<String, Value> = env.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        let mut entry = json!({"command": command, "args": args, "env": env});
        if let Some(url) = url {
            entry["url"] = json!(url);
        }
        table.insert(name.to_owned(), entry);
    };

    let everything = package("server-everything", "dist/index.js");
    add("everything", &node, &[&everything], &[], None);
    add("everything-http", &node, &[&everything, "streamableHttp"], &[("PORT", "{PORT}")], Some(MCP));
    add("everything-sse", &node, &[&everything, "sse"], &[("PORT", "{PORT}")], Some(SSE));
    add("filesystem", &node, &[&package("server-filesystem", "dist/index.js"), "{DIR}"], &[], None);
    let memory = [("MEMORY_FILE_PATH", "{DIR}/memory.json")];
    add("memory", &node, &[&package("server-memory", "dist/index.js")], &memory, None);
    // It keeps its thoughts in memory, and writes them to standard error unless that is switched off.
    let quiet = [("DISABLE_THOUGHT_LOGGING", "true")];
    add("thinking", &node, &[&package("server-sequential-thinking", "dist/index.js")], &quiet, None);

    add("time", &at("mcp2/bin/mcp-server-time"), &["--local-timezone", "UTC"], &[], None);
    add("git", &at("mcp2/bin/mcp-server-git"), &[], &[], None);
    // Tests fetch from 127.0.0.1, which it refuses by default. If it finds Node, its first fetch runs `npm install` in its own package,
    // which fails in a sandbox and for other processes that fetch at the same time.
    let programs = at("mcp2/bin");
    add("fetch", &at("mcp2/bin/mcp-server-fetch"), &["--allow-private-ips"], &[("PATH", &programs)], None);
    add("sqlite", &at("mcp1/bin/mcp-server-sqlite"), &["--db-path", "{DIR}/test.db"], &[], None);

    let typescript = at("npm/typescript_server.mjs");
    add("typescript", &node, &[&typescript], &[], None);
    let oidc = at("auth/oidc.mjs");
    let resource = "https://gateway.example/mcp";
    add("oidc", &node, &[&oidc, "{PORT}", resource], &[], Some("http://127.0.0.1:{PORT}"));
    add("typescript-http", &node, &[&typescript, "{PORT}"], &[], Some(MCP));
    let protected = at("npm/protected_server.mjs");
    add("protected-typescript", &node, &[&protected, "{PORT}", "{ISSUER}"], &[], Some(MCP));
    let protected = fixture("protected_server.py");
    for (sdk, scopes) in [("mcp1", &["mcp"][..]), ("mcp2", &["mcp", "write"])] {
        let args = [&[protected.as_str(), "{PORT}", "{ISSUER}"], scopes].concat();
        add(&format!("protected-{sdk}"), &at(&format!("{sdk}/bin/python")), &args, &[], Some(MCP));
    }

    for sdk in ["mcp1", "mcp2", "fastmcp"] {
        let python = at(&format!("{sdk}/bin/python"));
        let script = fixture(&format!("{sdk}_server.py"));
        add(sdk, &python, &[&script, "stdio"], &[], None);
        add(&format!("{sdk}-http"), &python, &[&script, "http", "{PORT}"], &[], Some(MCP));
        add(&format!("{sdk}-sse"), &python, &[&script, "sse", "{PORT}"], &[], Some(SSE));
        if sdk != "mcp1" {
            add(&format!("{sdk}-http-stateless"), &python, &[&script, "http-stateless", "{PORT}"], &[], Some(MCP));
        }
    }

    // Part of this workspace, on the official Rust SDK.
    let rmcp = paths::program("rmcp-server").to_string_lossy().into_owned();
    add("rmcp", &rmcp, &[], &[], None);
    add("rmcp-http", &rmcp, &["--http", "{PORT}"], &[], Some(MCP));
    Value::Object(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_is_found_inside_its_own_package() {
        let path = node_in(Path::new("m"));
        assert!(path.starts_with("m") && path.ends_with("bin/node"), "{}", path.display());
        assert!(!path.components().any(|part| part.as_os_str() == ".bin"), "{}", path.display());
    }
}
