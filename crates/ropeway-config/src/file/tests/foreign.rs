//! The files of other clients.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::known;
use crate::{
    Config, HttpServer, Secrets, ServerConfig, ServerEntry, ServerSettings, StdioServer, Transport, edit, read_foreign,
    read_foreign_in,
};

fn load(origin: &str, text: &str) -> Config {
    let secrets = Secrets::from_map([("HOME", "/home/me"), ("TOKEN", "from-environment")]);
    Config::parse(text, Path::new(origin), &secrets).unwrap()
}

fn stdio(alias: &str, server: StdioServer) -> ServerEntry {
    ServerEntry::new(ServerConfig::new(alias, server))
}

/// Returns the entries without their redactors and directories, which other tests cover.
fn servers(config: &Config) -> Vec<ServerEntry> {
    let mut servers = config.servers.clone();
    for entry in &mut servers {
        if let ServerSettings::Known(config) = &mut entry.settings {
            config.redactor = Default::default();
            if let Transport::Stdio(server) = &mut config.transport {
                server.base_dir = None;
            }
        }
    }
    servers
}

#[test]
fn claude_desktop() {
    let config = load(
        "Claude/claude_desktop_config.json",
        r#"{
  "globalShortcut": "",
  "mcpServers": {
    "filesystem": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "/Users/me/Desktop"]
    },
    "brave search": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-brave-search"],
      "env": { "BRAVE_API_KEY": "abcdef" }
    }
  }
}"#,
    );
    let files = ["-y", "@modelcontextprotocol/server-filesystem", "/Users/me/Desktop"];
    let brave = StdioServer::new("npx", ["-y", "@modelcontextprotocol/server-brave-search"]);
    let expected = [
        stdio("filesystem", StdioServer::new("npx", files)),
        stdio("brave-search", brave.with_env("BRAVE_API_KEY", "abcdef")),
    ];
    assert_eq!(servers(&config), expected);
    assert_eq!(config.warnings, ["server `brave search` is renamed to `brave-search`"]);
}

#[test]
fn claude_code_with_the_servers_of_its_projects() {
    let config = load(
        ".claude.json",
        r#"{
  "numStartups": 184,
  "tipsHistory": { "shift-enter": 3 },
  "projects": {
    "/home/me/shop": {
      "allowedTools": [],
      "mcpServers": {
        "db": { "type": "stdio", "command": "uvx", "args": ["db"], "env": {} },
        "same": { "type": "http", "url": "https://same.example/mcp" },
        "docs": { "type": "sse", "url": "https://docs.example/sse" }
      }
    },
    "/home/me/blog": { "mcpServers": {}, "history": [] }
  },
  "mcpServers": {
    "docs": { "type": "http", "url": "https://docs.example/mcp", "headers": { "Authorization": "Bearer ${TOKEN}" } },
    "same": { "type": "http", "url": "https://same.example/mcp" }
  }
}"#,
    );
    let mut db = StdioServer::new("uvx", ["db"]);
    db.cwd = Some(PathBuf::from("/home/me/shop"));
    let docs = HttpServer::new("https://docs.example/mcp").with_header("Authorization", "Bearer from-environment");
    let expected = [
        ServerEntry::new(ServerConfig::new("docs", docs)),
        ServerEntry::new(ServerConfig::new("same", HttpServer::new("https://same.example/mcp"))),
        stdio("db", db),
        ServerEntry::new(ServerConfig::new("docs-shop", Transport::Sse(HttpServer::new("https://docs.example/sse")))),
    ];
    assert_eq!(servers(&config), expected);
    assert_eq!(config.warnings, ["server `docs` is renamed to `docs-shop`"]);
}

#[test]
fn cursor() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join(".cursor")).unwrap();
    std::fs::write(folder.path().join(".env"), "LEVEL=7\nNAME=file\n").unwrap();
    let text = r#"{
  "mcpServers": {
    "local": {
      "type": "stdio",
      "command": "${workspaceFolder}/run",
      "args": ["${userHome}/data", "${env:TOKEN}"],
      "env": { "NAME": "own" },
      "envFile": "${workspaceFolder}/.env"
    },
    "remote": { "url": "https://api.example/mcp", "headers": { "X-Key": "${env:ABSENT}" } }
  }
}"#;
    let config = load(folder.path().join(".cursor/mcp.json").to_str().unwrap(), text);
    let run = folder.path().join("run").to_string_lossy().into_owned();
    let server = StdioServer::new(run, ["/home/me/data", "from-environment"]);
    let local = stdio("local", server.with_env("LEVEL", "7").with_env("NAME", "own"));
    let remote = ServerEntry::with_settings("remote", ServerSettings::Missing { secrets: vec!["ABSENT".into()] });
    assert_eq!(servers(&config), [local, remote]);
    assert_eq!(config.warnings, ["server `remote` is skipped: secret `ABSENT` is not set"]);
}

#[test]
fn windsurf() {
    let config = load(
        ".codeium/windsurf/mcp_config.json",
        r#"{
  "mcpServers": {
    "figma": { "serverUrl": "https://figma.example/mcp", "disabledTools": ["delete_file", "odd[1]"] },
    "off": { "command": "x", "args": [], "disabled": true, "autoApprove": ["y"], "timeout": 60 }
  }
}"#,
    );
    let mut figma = ServerEntry::new(ServerConfig::new("figma", HttpServer::new("https://figma.example/mcp")));
    figma.tools.deny = vec!["delete_file".into(), "odd[[]1[]]".into()];
    let mut off = stdio("off", StdioServer::new("x", [""; 0]));
    off.enabled = false;
    assert_eq!(servers(&config), [figma, off]);
    let expected = [
        "`disabledTools` of server `figma`: `odd[1]` is matched as a name, not as a glob",
        "ignored unsupported key `timeout` of server `off`",
    ];
    assert_eq!(config.warnings, expected);
}

const VS_CODE: &str = r#"{
  // asked once, then kept
  "inputs": [
    { "type": "promptString", "id": "perplexity-key", "description": "Perplexity API Key", "password": true },
  ],
  "servers": {
    /* from the gallery */
    "perplexity": {
      "type": "stdio",
      "command": "npx",
      "args": ["-y", "server-perplexity-ask", "--root=${workspaceFolder}"],
      "env": { "PERPLEXITY_API_KEY": "${input:perplexity-key}", "PRICE": "5$$" },
      "cwd": "tools",
      "gallery": true,
      "dev": { "watch": "**/*.ts" },
    },
    "github": { "type": "http", "url": "https://api.githubcopilot.com/mcp/" },
  },
}
"#;

#[test]
fn vs_code() {
    let config = load("project/.vscode/mcp.json", VS_CODE);
    let perplexity = ServerSettings::Missing { secrets: vec!["perplexity-key".into()] };
    let github = HttpServer::new("https://api.githubcopilot.com/mcp/");
    let expected =
        [ServerEntry::with_settings("perplexity", perplexity), ServerEntry::new(ServerConfig::new("github", github))];
    assert_eq!(servers(&config), expected);
    assert_eq!(
        config.warnings,
        [
            "ignored unsupported key `dev` of server `perplexity`",
            "server `perplexity` is skipped: secret `perplexity-key` is not set",
        ]
    );

    let settings = r#"{ "editor.fontSize": 12, "mcp": { "servers": { "a": { "command": "x" } } }, }"#;
    assert_eq!(servers(&load("User/settings.json", settings)), [stdio("a", StdioServer::new("x", [""; 0]))]);
}

#[test]
fn imported_servers_are_portable_and_keep_their_references() {
    let foreign = read_foreign(VS_CODE, Path::new("/p/.vscode/mcp.json")).unwrap();
    let server = &foreign.servers[0];
    assert_eq!(server.notes, ["${perplexity_key}: Perplexity API Key"]);
    assert_eq!(
        serde_json::to_value(&server.server).unwrap(),
        serde_json::json!({
            "alias": "perplexity",
            "transport": "stdio",
            "command": "npx",
            "args": ["-y", "server-perplexity-ask", "--root=/p"],
            "env": {"PERPLEXITY_API_KEY": "${perplexity_key}", "PRICE": "5$$"},
            "cwd": "/p/.vscode/tools",
        })
    );
    assert_eq!(foreign.warnings, ["ignored unsupported key `dev` of server `perplexity`"]);
    let ours = read_foreign("servers: []\n", Path::new("ropeway.yaml")).unwrap_err();
    assert_eq!(ours.to_string(), "ropeway.yaml:1:1: no servers of another client found, such as `mcpServers`");
}

#[test]
fn zed() {
    let config = load(
        ".config/zed/settings.json",
        r#"// Zed settings
{
  "theme": "One Dark",
  "context_servers": {
    "new": { "source": "custom", "enabled": true, "command": "uv", "args": ["run", "a${b}"], "env": null },
    "old": { "source": "custom", "command": { "path": "/bin/x", "args": ["y"], "env": { "A": "1" } }, "settings": {} },
    "remote": { "url": "https://z.example/mcp", "headers": { "X": "y" }, },
    "mcp-server-context7": { "source": "extension", "settings": { "context7_api_key": "k" } },
  },
}
"#,
    );
    let expected = [
        stdio("new", StdioServer::new("uv", ["run", "a${b}"])),
        stdio("old", StdioServer::new("/bin/x", ["y"]).with_env("A", "1")),
        ServerEntry::new(ServerConfig::new("remote", HttpServer::new("https://z.example/mcp").with_header("X", "y"))),
    ];
    assert_eq!(servers(&config), expected);
    assert_eq!(config.warnings, ["server `mcp-server-context7` is skipped: it is provided by an extension"]);
}

#[test]
fn codex() {
    let config = load(
        ".codex/config.toml",
        r#"model = "gpt-5"
approval_policy = "on-request"

[mcp_servers.docs]
command = "npx"
args = ["-y", "docs", "$$x"]
cwd = "/srv"
env_vars = ["TOKEN"]
startup_timeout_sec = 20
tool_timeout_sec = 1.5
enabled_tools = ["search"]
disabled_tools = ["write"]

[mcp_servers.docs.env]
LEVEL = "3"

[mcp_servers.figma]
url = "https://mcp.figma.com/mcp"
bearer_token_env_var = "TOKEN"
http_headers = { "X-Region" = "eu" }
env_http_headers = { "X-Other" = "TOKEN" }
enabled = false

[mcp_servers."my tool".tools.search]
approval_mode = "approve"

[mcp_servers."my tool"]
command = "x"
"#,
    );
    let mut server = StdioServer::new("npx", ["-y", "docs", "$$x"]);
    server.cwd = Some(PathBuf::from("/srv"));
    let mut docs = ServerConfig::new("docs", server.with_env("LEVEL", "3").with_env("TOKEN", "from-environment"));
    docs.timeouts.connect = Duration::from_secs(20);
    docs.timeouts.download = docs.timeouts.connect;
    docs.timeouts.total = Duration::from_millis(1500);
    let mut docs = ServerEntry::new(docs);
    docs.tools.allow = vec!["search".into()];
    docs.tools.deny = vec!["write".into()];
    let figma = HttpServer::new("https://mcp.figma.com/mcp").with_bearer("from-environment");
    let figma = figma.with_header("X-Other", "from-environment").with_header("X-Region", "eu");
    let mut figma = ServerEntry::new(ServerConfig::new("figma", figma));
    figma.enabled = false;
    assert_eq!(servers(&config), [docs, figma, stdio("my-tool", StdioServer::new("x", [""; 0]))]);
    assert_eq!(known(&config.servers[0]).redactor.redact("from-environment"), "***");
    assert_eq!(
        config.warnings,
        ["server `my tool` is renamed to `my-tool`", "ignored unsupported key `tools` of server `my tool`"]
    );
}

#[test]
fn an_unsupported_restricting_key_stops_its_server() {
    let config = load(
        "mcp.json",
        r#"{"mcpServers": {
  "a": {"url": "https://a.example/", "auth": {"type": "bearer", "token": "${TOKEN}"}, "tools": {"allow": ["x*"], "deny": ["y"]}},
  "b": {"url": "https://b.example/", "oauth": {"tokenUrl": "c"}},
  "c": {"command": "x", "allow": ["y"], "timeout": 5},
  "d": {"command": "x", "tools": {"y": true}, "disabled": true},
  "e": {"command": "x", "toolCallTimeout": 5, "alwaysAllow": ["y"], "trust": true},
  "f": {"command": "x", "required": true, "tool_allowlist": ["z"]}
}}"#,
    );
    let why =
        |key: &str, place: &str| format!("`{key}` ({place}) is not supported and may restrict access or authenticate");
    let invalid = |at: usize| match &config.servers[at].settings {
        ServerSettings::Invalid { reason } => Some(reason.clone()),
        _ => None,
    };
    assert_eq!(known(&config.servers[0]).redactor.redact("from-environment"), "***");
    assert_eq!(
        (&config.servers[0].tools.allow, &config.servers[0].tools.deny),
        (&vec!["x*".into()], &vec!["y".into()])
    );
    assert_eq!(invalid(1), Some(why("oauth.tokenUrl", "3:48")));
    assert_eq!(invalid(2), Some(why("allow", "4:25")));
    assert_eq!((invalid(3), config.servers[3].enabled), (Some(why("tools", "5:25")), false));
    assert_eq!(known(&config.servers[4]).alias.as_str(), "e");
    assert_eq!(config.servers[5].tools.allowlists, [["z"]]);
    let expected = [
        "ignored unsupported key `timeout` of server `c`".to_owned(),
        "ignored unsupported key `toolCallTimeout` of server `e`".to_owned(),
        "ignored unsupported key `trust` of server `e`".to_owned(),
        format!("server `b` is not started: {}", why("oauth.tokenUrl", "3:48")),
        format!("server `c` is not started: {}", why("allow", "4:25")),
    ];
    assert_eq!(config.warnings, expected);

    let text = r#"{"mcpServers": {"b": {"url": "https://b.example/", "headersHelper": "x"}, "e": {"command": "x"}}}"#;
    let foreign = read_foreign(text, Path::new("/p/mcp.json")).unwrap();
    assert_eq!(foreign.servers.len(), 1);
    assert_eq!(foreign.warnings, [format!("server `b` is skipped: {}", why("headersHelper", "1:52"))]);
}

#[test]
fn problems_of_a_foreign_file_use_its_own_paths() {
    let text = "{\n  \"mcpServers\": {\n    \"a.b\": { \"command\": \"x\", \"args\": \"y\" }\n  }\n}";
    let error = Config::parse(text, Path::new("mcp.json"), &Secrets::none()).unwrap_err();
    assert_eq!(error.to_string(), "mcp.json:3:38: mcpServers[\"a.b\"].args: expected a list, found a string");
    let error = Config::parse("{\"mcpServers\": ", Path::new("mcp.json"), &Secrets::none()).unwrap_err();
    assert!(error.to_string().starts_with("mcp.json:1:16: invalid JSON: "), "{error}");
}

#[test]
fn an_invalid_server_does_not_prevent_importing_others() {
    let text = r#"{"mcpServers": {"a": {"command": "x", "args": 5}, "b": {"command": "y"}, "c": 1}}"#;
    let foreign = read_foreign(text, Path::new("/p/mcp.json")).unwrap();
    let aliases: Vec<&str> = foreign.servers.iter().map(|server| server.server.alias.as_str()).collect();
    assert_eq!(aliases, ["b"]);
    assert_eq!(foreign.warnings[0], "a server is skipped: 1:47: mcpServers.a.args: expected a list, found a string");
    assert_eq!(foreign.warnings.len(), 2);
}

#[test]
fn a_large_file_with_other_data_is_read() {
    let text = format!(r#"{{"history": "{}", "mcpServers": {{"a": {{"command": "x"}}}}}}"#, "é".repeat(3 << 20));
    assert_eq!(servers(&load("nowhere/.claude.json", &text)), [stdio("a", StdioServer::new("x", [""; 0]))]);
}

/// Returns why a server is not started.
fn reason(entry: &ServerEntry) -> Option<&str> {
    match &entry.settings {
        ServerSettings::Invalid { reason } => Some(reason),
        _ => None,
    }
}

/// Loads one server in the YAML of another client.
fn one(keys: &str) -> Config {
    load("mcp.yaml", &format!("mcpServers:\n  a: {{command: x, {keys}}}\n"))
}

#[test]
fn disabled_accepts_every_boolean_or_stops_its_server() {
    for spelling in ["true", "True", "TRUE", "'true'"] {
        assert!(!one(&format!("disabled: {spelling}")).servers[0].enabled, "{spelling}");
    }
    for spelling in ["false", "False", "FALSE", "'false'", "null"] {
        let config = one(&format!("disabled: {spelling}"));
        assert!(config.servers[0].enabled && reason(&config.servers[0]).is_none(), "{spelling}");
    }
    for (value, found) in [("yes", "`yes`"), ("1", "`1`"), ("''", "no value"), ("[true]", "a list")] {
        let config = one(&format!("disabled: {value}"));
        let expected = format!("`disabled` (2:19) is invalid: expected `true` or `false`, found {found}");
        assert_eq!(reason(&config.servers[0]), Some(expected.as_str()), "{value}");
    }
}

#[test]
fn a_filter_that_is_not_a_list_stops_its_server() {
    for key in ["disabledTools", "disabled_tools", "excludeTools", "enabledTools", "enabled_tools", "includeTools"] {
        for value in ["calculate", "{calculate: true}", "[[calculate]]", "true"] {
            let config = one(&format!("{key}: {value}"));
            let reason = reason(&config.servers[0]).unwrap_or_else(|| panic!("{key}: {value}"));
            assert!(reason.starts_with(&format!("`{key}` (2:19) is invalid: expected ")), "{reason}");
        }
    }
    let text = r#"{"mcpServers": {"a": {"command": "x", "disabledTools": "b"}, "c": {"command": "x"}}}"#;
    let foreign = read_foreign(text, Path::new("/p/mcp.json")).unwrap();
    assert_eq!(foreign.servers.iter().map(|server| server.server.alias.as_str()).collect::<Vec<_>>(), ["c"]);
    let expected = "server `a` is skipped: `disabledTools` (1:39) is invalid: expected a list, found `b`";
    assert_eq!(foreign.warnings, [expected]);
    assert_eq!(one("enabledTools: null").warnings, ["ignored unsupported key `enabledTools` of server `a`"]);
}

#[test]
fn two_keys_for_one_restriction_never_widen_it() {
    for (keys, deny) in [
        ("disabledTools: [b], excludeTools: [c]", ["b", "c"]),
        ("tools: {deny: [b*]}, disabledTools: [c]", ["b*", "c"]),
        ("disabledTools: [c], tools: {deny: [b*]}", ["c", "b*"]),
    ] {
        assert_eq!(one(keys).servers[0].tools.deny, deny, "{keys}");
    }
    for keys in [
        "disabled: true, enabled: true",
        "enabled: true, disabled: true",
        "enabled: false, disabled: false",
        "disabled: false, enabled: False",
        "enabled: true, tool_configuration: {enabled: false}",
    ] {
        assert!(!one(keys).servers[0].enabled, "{keys}");
    }
    assert!(one("enabled: true, disabled: false").servers[0].enabled);
    for (keys, key, first) in [
        ("tools: [b], enabledTools: ['*']", "enabledTools", "tools"),
        ("enabledTools: [b], tools: {allow: ['*']}", "tools.allow", "enabledTools"),
        ("includeTools: [], enabled_tools: [b]", "enabled_tools", "includeTools"),
    ] {
        let config = one(keys);
        let reason = reason(&config.servers[0]).unwrap_or_else(|| panic!("{keys}"));
        assert!(reason.starts_with(&format!("`{key}` (2:")), "{reason}");
        assert!(
            reason.ends_with(&format!("conflicts with `{first}`: both list the allowed tools; keep one of them")),
            "{reason}"
        );
    }
    for keys in ["enabledTools: [b], tools: {allow: []}", "tools: {allow: []}, enabledTools: [b]"] {
        assert_eq!(one(keys).servers[0].tools.allow, ["b"], "{keys}");
    }
    for keys in ["enabledTools: [], tool_allowlist: [b]", "tool_allowlist: [b], enabledTools: []"] {
        assert_eq!(one(keys).servers[0].tools.allowlists, [Vec::<String>::new()], "{keys}");
    }
}

#[test]
fn native_restrictions_in_a_foreign_file_are_an_error() {
    let fail = |text: &str| Config::parse(text, Path::new("mcp.yaml"), &Secrets::none()).unwrap_err().to_string();
    for (key, rest) in [
        ("lock", "strict"),
        ("tool_allowlist", "[b]"),
        ("toolAllowlist", "[b]"),
        ("enabled_servers", "[b]"),
        ("chat", "{tools: {deny: ['*']}}"),
        ("enabled", "false"),
        ("enabled", "no"),
        ("disabled", "true"),
        ("defaults", "{enabled: false}"),
        ("collisions", "error"),
    ] {
        let text = format!("mcpServers: {{a: {{command: x}}}}\n{key}: {rest}");
        let expected = format!("mcp.yaml:2:1: `{key}` is only supported in a `ropeway.yaml`");
        assert_eq!(fail(&text), expected);
        assert_eq!(read_foreign(&text, Path::new("mcp.yaml")).unwrap_err().to_string(), expected);
    }
    let expected = "mcp.yaml:1:1: `chat` is only supported in a `ropeway.yaml`, where `servers` is a list";
    assert_eq!(fail("chat: {tools: {deny: ['*']}}\nservers: {a: {command: x}}"), expected);
    assert!(load("mcp.yaml", "mcpServers: {a: {command: x}}\nenabled: true\ndisabled: false").servers[0].enabled);
    let list = fail("mcpServers: [{name: a, command: x}]");
    assert_eq!(list, "mcp.yaml:1:13: mcpServers: expected a map of servers by name, found a list");
}

#[test]
fn gemini_starts_only_servers_that_are_allowed_and_not_excluded() {
    let enabled = |settings: &str| {
        let servers = r#""a": {"command": "x"}, "b c": {"command": "x"}, "d": {"command": "x", "disabled": true}"#;
        let config = load(".gemini/settings.json", &format!(r#"{{{settings} "mcpServers": {{{servers}}}}}"#));
        config.servers.iter().map(|entry| entry.enabled).collect::<Vec<_>>()
    };
    assert_eq!(enabled(""), [true, true, false]);
    assert_eq!(enabled(r#""mcp": {"allowed": ["b c", "d"]},"#), [false, true, false]);
    assert_eq!(enabled(r#""mcp": {"allowed": []},"#), [false, false, false]);
    assert_eq!(enabled(r#""mcp": {"excluded": ["B c"]},"#), [true, false, false]);
    assert_eq!(enabled(r#""mcp": {"allowed": ["a", "b c"], "excluded": ["a"]},"#), [false, true, false]);
    assert_eq!(enabled(r#""allowMCPServers": ["a", "b c"], "excludeMCPServers": ["a"],"#), [false, true, false]);
    let text = r#"{"mcp": {"allowed": "a"}, "mcpServers": {"a": {"command": "x"}}}"#;
    let error = Config::parse(text, Path::new("settings.json"), &Secrets::none()).unwrap_err();
    assert_eq!(error.to_string(), "settings.json:1:21: mcp.allowed: expected a list, found `a`");
    let text = r#"{"mcp": {"excluded": ["a"]}, "mcpServers": {"a": {"command": "x"}}}"#;
    assert_eq!(read_foreign(text, Path::new("/p/settings.json")).unwrap().servers[0].server.enabled, Some(false));
}

#[test]
fn restricting_keys_are_recognized_by_name() {
    for key in [
        "hiddenTools",
        "hidden_tools",
        "skipTools",
        "toolNames",
        "only",
        "onlyTools",
        "permit",
        "permitted",
        "hide",
        "omit",
        "confirm",
        "requireConfirmation",
        "access",
        "bearer",
        "jwt",
        "JWT",
        "cookie",
        "cookies",
        "username",
        "key",
        "apiKey",
        "API-KEY",
        "network",
        "isolation",
        "isolated",
        "tool",
        "toolset",
        "ignoreTools",
        "login",
        "enableTools",
        "noNetwork",
        "access_level",
    ] {
        assert!(reason(&one(&format!("{key}: x")).servers[0]).is_some(), "{key}");
    }
    for key in [
        "alwaysAllow",
        "autoApprove",
        "trust",
        "timeout",
        "networkTimeout",
        "author",
        "keywords",
        "dev",
        "watchPaths",
        "supports_parallel_tool_calls",
        "iconPath",
        "keepAlive",
        "initTimeout",
        "monkey",
        "commonly",
        "passive",
    ] {
        assert_eq!(reason(&one(&format!("{key}: x")).servers[0]), None, "{key}");
    }
}

#[test]
fn the_tool_configuration_of_anthropic_is_applied() {
    let config = one("tool_configuration: {enabled: true, allowed_tools: [b, c]}");
    assert_eq!((config.servers[0].enabled, &config.servers[0].tools.allow), (true, &vec!["b".into(), "c".into()]));
    assert!(!one("tool_configuration: {enabled: false}").servers[0].enabled);
    assert_eq!(one("tool_configuration: {allowed_tools: null}").servers[0].tools.allow, [""; 0]);
    for (value, key) in [
        ("{enabled: off}", "tool_configuration.enabled"),
        ("{allowed_tools: b}", "tool_configuration.allowed_tools"),
        ("{denied_tools: [b]}", "tool_configuration.denied_tools"),
        ("[b]", "tool_configuration"),
    ] {
        let config = one(&format!("tool_configuration: {value}"));
        let reason = reason(&config.servers[0]).unwrap_or_else(|| panic!("{value}"));
        assert!(reason.starts_with(&format!("`{key}` (2:")), "{reason}");
    }
}

#[test]
fn an_empty_foreign_allowlist_hides_all_tools() {
    for key in ["enabledTools", "enabled_tools", "includeTools", "tools"] {
        let config = one(&format!("{key}: []"));
        assert_eq!(config.servers[0].tools.allowlists, [Vec::<String>::new()], "{key}");
        assert_eq!(config.warnings, ["`tool_allowlist` of server `a` is empty: all its tools are hidden"]);
    }
    assert!(one("disabledTools: []").servers[0].tools.allowlists.is_empty());
}

#[test]
fn a_glob_in_a_foreign_tool_list_is_a_name_with_a_warning() {
    let config = one("disabledTools: ['calc*', '*', plain]");
    assert_eq!(config.servers[0].tools.deny, ["calc[*]", "*", "plain"]);
    assert_eq!(config.warnings, ["`disabledTools` of server `a`: `calc*` is matched as a name, not as a glob"]);
}

#[test]
fn a_server_that_needs_a_workspace_is_skipped_without_one() {
    let text = r#"{"mcpServers": {"a": {"command": "x", "args": ["${workspaceFolder}"]}, "b": {"command": "y"}}}"#;
    let read = |folder: Option<&str>| {
        let foreign =
            read_foreign_in(text, Path::new("/home/ada/.cursor/mcp.json"), folder.map(Path::new)).expect("servers");
        let names: Vec<String> = foreign.servers.iter().map(|server| server.server.alias.clone()).collect();
        (names, foreign)
    };
    let (names, foreign) = read(None);
    assert_eq!((names, foreign.without_workspace), (vec!["b".to_owned()], vec!["a".to_owned()]));
    assert_eq!(foreign.warnings, ["server `a` is skipped: `${workspaceFolder}` is unknown outside of a project"]);
    let (names, foreign) = read(Some("/srv/shop"));
    assert_eq!(names, ["a", "b"]);
    assert_eq!(foreign.servers[0].server.args, ["/srv/shop".into()]);
}

#[test]
fn an_object_that_does_not_end_is_reported_at_the_end() {
    let text = "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"}\n\n";
    let error = Config::parse(text, Path::new("mcp.json"), &Secrets::none()).expect_err("a broken file");
    assert_eq!((error.problems[0].line, error.problems[0].message()), (3, "invalid JSON: unterminated object".into()));
}

#[test]
fn extensions_of_goose_are_servers() {
    let text = "\
GOOSE_PROVIDER: openai
extensions:
  developer: {bundled: true, enabled: true, name: developer, timeout: 300, type: builtin}
  code: {type: inline_python, name: code, code: print(1)}
  github:
    name: GitHub
    cmd: npx
    args: [-y, 'a${b}']
    enabled: true
    envs: {HOST: $x}
    env_keys: [GITHUB_TOKEN, HOST]
    type: stdio
    timeout: 60
    bundled: null
    available_tools: [search]
  web:
    name: web
    type: streamable_http
    uri: https://example.com/${PLACE}/mcp?a=$b
    headers: {Authorization: 'Bearer $TOKEN', X: '${ TOKEN } ${other}'}
    envs: {PLACE: here$}
    env_keys: [TOKEN]
    enabled: false
    available_tools: []
";
    let foreign = read_foreign(text, Path::new("/home/ada/.config/goose/config.yaml")).expect("servers");
    assert_eq!(foreign.warnings, [""; 0]);
    let servers = foreign.servers.iter().map(|server| (&server.server, &[][..]));
    let written = edit::write(servers);
    let expected = "\
servers:
  - alias: github
    transport: stdio
    command: npx
    args: [-y, \"a$${b}\"]
    env:
      GITHUB_TOKEN: \"${GITHUB_TOKEN}\"
      HOST: \"$$x\"
    tools:
      allow: [search]
    enabled: true
    timeouts:
      total: 60s

  - alias: web
    transport: streamable-http
    url: \"https://example.com/here$$/mcp?a=$$b\"
    headers:
      Authorization: \"Bearer ${TOKEN}\"
      X: \"${TOKEN} $${other}\"
    enabled: false
";
    assert_eq!(
        written.split_once("servers:").map(|(_, servers)| servers),
        expected.split_once("servers:").map(|(_, servers)| servers)
    );
}
