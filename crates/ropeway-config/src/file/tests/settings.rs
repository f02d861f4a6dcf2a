//! The settings of valid files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use super::{known, parse, parse_with};
use crate::{
    CollisionPolicy, Config, EraChoice, HttpServer, LockPolicy, Secret, Secrets, ServerConfig, ServerEntry,
    ServerSettings, StartMode, StdioServer, ToolOverride, Transport,
};

#[test]
fn a_minimal_file_uses_default_settings() {
    let config =
        parse("servers:\n  - alias: git\n    command: uvx\n    args: [mcp-server-git, --port, 8080]\n").unwrap();
    let server = StdioServer::new("uvx", ["mcp-server-git", "--port", "8080"]);
    let mut expected = Config::new([ServerConfig::new("git", server)]);
    expected.collisions = CollisionPolicy::Error;
    expected.files = vec!["nowhere/.env".into()];
    assert_eq!(config, expected);
}

#[test]
fn keys_without_an_effect_on_the_transport_are_warnings() {
    let config = parse(
        "servers:\n- {alias: a, command: npx -y foo, headers: {X: y}}\n\
         - {alias: b, url: 'http://b/', transport: websocket, args: [x], env: {}}\n- {alias: c, command: c, reconnect: {first: 1s, max_delay: 1m}}\n",
    );
    assert_eq!(
        config.unwrap().warnings,
        [
            "ignored `headers` of server `a` (2:35): it applies to a `url`; pass secrets in `env`",
            "`command` of server `a` contains spaces and is started without a shell; \
             set `command: npx` and move the other words to `args`",
            "ignored `args` of server `b` (3:54): it applies to a `command`",
            "`transport: websocket` of server `b` is treated as `streamable-http`: MCP defines no WebSocket transport",
            "`reconnect.first` of server `c` (4:45) is deprecated; use `reconnect.initial_delay`",
        ]
    );
}

#[test]
fn every_key_is_resolved() {
    let config = parse(
        r#"
defaults:
  timeouts: {connect: 90, idle: 2m}
  prefix: "{alias}__"
collisions: suffix
enabled_servers: [files]
servers:
  - alias: files
    transport: stdio
    command: npx
    args: [-y, server-filesystem]
    env: {DEBUG: true, LEVEL: 3, NAME: x}
    inherit_env: true
    cwd: data
    tools:
      allow: ["read_*"]
      deny: ["*_secret"]
      rename: {read_file: read}
      describe: {read_file: Reads.}
      description_prefix: "[files] "
      hide: {read_file: [encoding]}
      preset: {read_file: {encoding: utf-8, lines: 10}}
      provider_options: {"read_*": {openai: {strict: true}}}
    description_prefix: "[{alias}] "
    required: true
    start: lazy
    timeouts: {idle: 500ms, total: 1h, download: 2h}
    limits: {message_bytes: 1M, pages: 3, list_entries: 5, list_bytes: 6M, input_rounds: 4, questions: 5, stderr_bytes: 2 KiB}
    reconnect: {enabled: false, initial_delay: 1s, max_delay: 5s}
    resources: {tools: true, context: ["file:///*"], context_bytes: 1k}
    prompts: true
    instructions: true
    era: modern
  - alias: web
    url: https://example.com/mcp
    transport: websocket
    headers: {X-Team: blue, X-Number: 7}
    auth: {bearer: tokentoken}
    prefix: ""
    reconnect: false
    resources: true
    prompts: {tools: false}
  - alias: old
    url: http://localhost:1/sse
    transport: sse
    auth: {basic: {user: me, password: swordfish}}
    enabled: false
"#,
    )
    .unwrap();
    let [files, web, old] = config.servers.as_slice() else { panic!("three servers: {config:?}") };

    let mut server = StdioServer::new("npx", ["-y", "server-filesystem"]);
    server = server.with_env("DEBUG", "true").with_env("LEVEL", "3").with_env("NAME", "x");
    server.inherit_env = true;
    server.cwd = Some(PathBuf::from("nowhere/data"));
    let mut expected = ServerConfig::new("files", server);
    expected.era = EraChoice::Modern;
    expected.timeouts.connect = Duration::from_secs(90);
    expected.timeouts.download = Duration::from_secs(7200);
    expected.timeouts.idle = Duration::from_millis(500);
    expected.timeouts.total = Duration::from_secs(3600);
    expected.limits.message_bytes = 1 << 20;
    expected.limits.pages = 3;
    expected.limits.list_entries = 5;
    expected.limits.list_bytes = 6 << 20;
    expected.limits.input_rounds = 4;
    expected.limits.questions = 5;
    expected.limits.stderr_bytes = 2048;
    expected.reconnect.enabled = false;
    expected.reconnect.initial_delay = Duration::from_secs(1);
    expected.reconnect.max_delay = Duration::from_secs(5);
    let mut expected = ServerEntry::new(expected);
    expected.prefix = "{alias}__".into();
    expected.description_prefix = Some("[{alias}] ".into());
    expected.required = true;
    expected.start = StartMode::Lazy;
    expected.instructions = true;
    expected.prompt_tools = true;
    expected.resources.tools = true;
    expected.resources.context = vec!["file:///*".into()];
    expected.resources.context_bytes = 1024;
    expected.tools.allow = vec!["read_*".into()];
    expected.tools.deny = vec!["*_secret".into()];
    let all = ToolOverride { description_prefix: Some("[files] ".into()), ..ToolOverride::default() };
    let mut read = ToolOverride { name: Some("read".into()), ..ToolOverride::default() };
    read.description = Some("Reads.".into());
    read.hide = vec!["encoding".into()];
    read.preset.insert("encoding".into(), json!("utf-8"));
    read.preset.insert("lines".into(), json!(10));
    let mut reads = ToolOverride::default();
    reads.provider_options.insert("openai".into(), json!({"strict": true}));
    expected.tools.overrides = vec![("*".into(), all), ("read_file".into(), read), ("read_*".into(), reads)];
    assert_eq!(files, &expected);

    assert_eq!(config.collisions, CollisionPolicy::Suffix);
    assert_eq!((files.enabled, web.enabled, old.enabled), (true, false, false));
    let server = HttpServer::new("https://example.com/mcp").with_header("X-Team", "blue").with_header("X-Number", "7");
    assert_eq!(known(web).transport, Transport::Http(server.with_bearer("tokentoken")));
    assert_eq!(web.prefix, "");
    assert!(!known(web).reconnect.enabled && web.resources.tools && !web.prompt_tools);
    let server = HttpServer::new("http://localhost:1/sse").with_header("Authorization", "Basic bWU6c3dvcmRmaXNo");
    assert_eq!(known(old).transport, Transport::Sse(server));
}

#[test]
fn secrets_come_from_code_then_the_environment_then_dot_env_then_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write(".env", "# mine\nexport A=env-file\nB='second file' # why\nC=\"two\\nlines\"\n");
    write("more.yaml", "B: yaml\nD: 7\nE: yaml-e\n");
    write("named.env", "E=named\nF=named-f\n");
    write(
        "ropeway.yaml",
        "secrets_file: named.env\nservers:\n  - alias: a\n    command: x\n    args: ['${A}', '${B}', '${C}', '${D}', '${E}', '${F}', '${G}', '${H:-eight}', '$$5 $x ${env:I}']\n",
    );
    let secrets =
        Secrets::from_map([("A", "environment"), ("I", "environment")]).with_file(folder.path().join("more.yaml"));
    let secrets = secrets.with("A", "code").with("G", "code-g");
    let config = Config::load(&folder.path().join("ropeway.yaml"), &secrets).unwrap();
    let expected =
        ["code", "second file", "two\nlines", "7", "yaml-e", "named-f", "code-g", "eight", "$5 $x environment"];
    let expected = StdioServer::new("x", expected).with_base_dir(Some(folder.path().to_owned()));
    assert_eq!(known(&config.servers[0]).transport, Transport::Stdio(expected));
}

#[test]
fn a_missing_secret_skips_only_its_server() {
    let text = "servers:\n  - {alias: a, url: 'https://x/${ONE}', auth: {bearer: '${TWO}'}, headers: {H: '${ONE}'}}\n  - {alias: b, command: x}\n  - {alias: c, command: x, args: ['${THREE}'], enabled: false}\n";
    let config = parse(text).unwrap();
    assert_eq!(config.servers[0].settings, ServerSettings::Missing { secrets: vec!["ONE".into(), "TWO".into()] });
    assert_eq!(config.warnings, ["server `a` is skipped: secrets `ONE`, `TWO` are not set"]);
    known(&config.servers[1]);
    assert_eq!(config.servers[2].settings, ServerSettings::Missing { secrets: vec!["THREE".into()] });
}

#[test]
fn secrets_are_redacted_and_never_in_debug_output() {
    let text = r#"
servers:
  - alias: web
    url: https://user:pass-in-url@host/${IN_URL}?api_key=key-in-url&page=ordinary
    headers: {X-Api-Key: literal-key, Accept: ordinary, H: "${IN_HEADER}"}
    auth: {bearer: "${IN_AUTH}"}
  - alias: run
    command: x
    args: ["--token=${IN_ARG}", "${HOME}", "${D:-default-in-file}"]
    env: {GITHUB_TOKEN: literal-token, LEVEL: ordinary, V: "${IN_ENV}"}
  - {alias: basic, url: "http://h", auth: {basic: {user: me, password: swordfish}}}
"#;
    let names = ["IN_URL", "IN_HEADER", "IN_AUTH", "IN_ARG", "IN_ENV"];
    let secrets = Secrets::from_map(names.map(|name| (name, format!("\"value\\of-{name}"))));
    let secrets = secrets.with("HOME", "/home/somebody");
    let config = parse_with(text, &secrets).unwrap();
    let hide = |index: usize, text: &str| known(&config.servers[index]).secrets().redact(text).into_owned();
    for value in [
        "\"value\\of-IN_URL",
        "\"value\\of-IN_HEADER",
        "\"value\\of-IN_AUTH",
        "pass-in-url",
        "key-in-url",
        "literal-key",
    ] {
        assert_eq!(hide(0, &format!("<{value}>")), "<***>");
    }
    for value in ["\"value\\of-IN_ARG", "\"value\\of-IN_ENV", "literal-token"] {
        assert_eq!(hide(1, &format!("<{value}>")), "<***>");
    }
    for value in ["swordfish", "bWU6c3dvcmRmaXNo", "c3dvcmRmaXNo"] {
        assert_eq!(hide(2, &format!("<{value}>")), "<***>");
    }
    for value in ["ordinary", "/home/somebody", "default-in-file"] {
        assert_eq!((hide(0, value), hide(1, value)), (value.to_owned(), value.to_owned()));
    }
    let shown = format!("{config:?} {config:#?} {secrets:?}");
    for value in ["value", "pass-in-url", "key-in-url", "literal-", "swordfish", "bWU6"] {
        assert!(!shown.contains(value), "{value} in {shown}");
    }
    assert!(shown.contains("/home/somebody") && shown.contains("--token=***"));
}

#[test]
fn anchors_aliases_and_merge_keys_are_resolved() {
    let text = "\u{feff}defaults: &d {start: lazy}\nservers:\n  - &a {alias: a, command: x, env: {K: v}}\n  - {<<: *a, alias: b}\n  - {<<: [*a, {command: y, era: legacy}], alias: c}\n";
    let config = parse(text).unwrap();
    let server = StdioServer::new("x", [""; 0]).with_env("K", Secret::new("v"));
    assert_eq!(known(&config.servers[1]).transport, Transport::Stdio(server.clone()));
    assert_eq!(known(&config.servers[2]).transport, Transport::Stdio(server));
    assert_eq!(known(&config.servers[2]).era, EraChoice::Legacy);
    assert_eq!(config.servers[2].start, StartMode::Lazy);
}

#[test]
fn secrets_are_redacted_in_every_encoding() {
    let key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\n-----END KEY-----";
    let secrets = Secrets::from_map([("ODD", "p\"ä s/w"), ("PEM", key)]);
    let config = parse_with("servers:\n  - {alias: a, command: x, args: ['${ODD}', '${PEM}']}\n", &secrets).unwrap();
    let mask = &known(&config.servers[0]).redactor;
    for form in ["p\"ä s/w", "p\\\"ä s/w", "p%22%C3%A4%20s/w", "p%22%C3%A4+s%2Fw", key, "MIIEvQIBADANBgkq"] {
        assert_eq!(mask.redact(&format!("<{form}>")), "<***>", "{form}");
    }
}

#[test]
fn an_invalid_dot_env_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ropeway.yaml");
    std::fs::write(&path, "servers:\n  - {alias: a, command: x, args: ['${A}', '${B}', '${C}']}\n").unwrap();
    std::fs::write(folder.path().join(".env"), "A=1\nwhat is this\nB=\"two\nlines\" # yes\n\nC='3'\nD=\"open\n")
        .unwrap();
    let config = Config::load(&path, &Secrets::none()).unwrap();
    let server = StdioServer::new("x", ["1", "two\nlines", "3"]).with_base_dir(Some(folder.path().to_owned()));
    assert_eq!(known(&config.servers[0]).transport, Transport::Stdio(server));
    let expected =
        ["ignored line 2 of `.env`: missing `=` after the name", "ignored line 7 of `.env`: missing closing quote \""];
    assert_eq!(config.warnings, expected);

    std::fs::remove_file(folder.path().join(".env")).unwrap();
    std::fs::create_dir(folder.path().join(".env")).unwrap();
    let config = Config::load(&path, &Secrets::none()).unwrap();
    assert_eq!(config.warnings, ["server `a` is skipped: secrets `A`, `B`, `C` are not set"]);
}

#[test]
fn an_unreadable_dot_env_skips_servers_that_need_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ropeway.yaml");
    std::fs::write(&path, "servers:\n  - {alias: a, command: x, args: ['${A}']}\n  - {alias: b, command: x}\n")
        .unwrap();
    for (bytes, problem) in
        [(b"A=\xff".to_vec(), "file is not valid UTF-8"), (vec![b'#'; 2 << 20], "file is larger than 1 MiB")]
    {
        std::fs::write(folder.path().join(".env"), bytes).unwrap();
        let config = Config::load(&path, &Secrets::none()).unwrap();
        let warning = format!("ignored `.env`: {problem}");
        assert_eq!(config.warnings, [warning.as_str(), "server `a` is skipped: secret `A` is not set"]);
        known(&config.servers[1]);
    }
}

#[test]
fn env_file_values_are_redacted_except_public_variables() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ropeway.yaml");
    std::fs::write(&path, "servers:\n  - {alias: a, command: x, env_file: a.env, env: {LEVEL: ordinary}}\n").unwrap();
    std::fs::write(folder.path().join("a.env"), "DSN=postgres-of-mine\nHOME=/home/somebody\nDEBUG=true\n").unwrap();
    let config = Config::load(&path, &Secrets::none()).unwrap();
    let shown =
        known(&config.servers[0]).secrets().redact("postgres-of-mine /home/somebody true ordinary").into_owned();
    assert_eq!(shown, "*** /home/somebody true ordinary");
}

#[test]
fn servers_with_different_secrets_are_not_equal() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ropeway.yaml");
    let ways = [
        "command: x, args: ['${S}']",
        "command: x, env: {A: '${S}'}",
        "command: x, env_file: s.env",
        "command: x, args: ['${file:s.env}']",
        "url: 'http://h/${S}'",
        "url: http://h, headers: {H: '${S}'}",
        "url: http://h, auth: {bearer: '${S}'}",
        "url: http://h, auth: {basic: {user: me, password: '${S}'}}",
    ];
    let with = |way: &str, value: &str| {
        std::fs::write(&path, format!("servers:\n  - {{alias: a, {way}}}\n")).unwrap();
        std::fs::write(folder.path().join("s.env"), format!("S={value}\n")).unwrap();
        Config::load(&path, &Secrets::from_map([("S", value)])).unwrap().servers
    };
    for way in ways {
        assert_eq!(with(way, "first"), with(way, "first"), "{way}");
        assert_ne!(with(way, "first"), with(way, "other"), "{way}");
    }
}

#[test]
fn a_disabled_server_with_missing_secrets_is_not_a_warning() {
    let text =
        "enabled_servers: [b]\nservers:\n  - {alias: a, command: x, args: ['${ONE}']}\n  - {alias: b, command: x}\n";
    let config = parse(text).unwrap();
    assert_eq!(config.warnings, [""; 0]);
    assert_eq!(config.servers.iter().map(|entry| entry.enabled).collect::<Vec<_>>(), [false, true]);
    assert_eq!(config.servers.iter().map(|entry| config.excludes(&entry.alias)).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn paths_are_relative_to_the_file_and_expand_the_home_folder() {
    let secrets = Secrets::from_map([("HOME", "/home/me")]);
    for (written, expected) in
        [("sub", "nowhere/sub"), ("~", "/home/me"), ("~/x", "/home/me/x"), ("/abs", "/abs"), ("~x", "nowhere/~x")]
    {
        let text = format!("servers:\n  - {{alias: a, command: x, cwd: \"{written}\"}}\n");
        let config = parse_with(&text, &secrets).unwrap();
        let mut server = StdioServer::new("x", [""; 0]);
        server.cwd = Some(PathBuf::from(expected));
        assert_eq!(known(&config.servers[0]).transport, Transport::Stdio(server));
    }
}

#[test]
fn every_file_that_is_read_is_listed() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("secrets", "A=1\n"), ("variables", "B=2\n"), ("token", "t0ken")] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let text = "secrets_file: secrets\nservers:\n  - {alias: a, command: x, env_file: variables}\n  \
        - {alias: b, url: http://h, auth: {bearer: '${file:token}'}}\n";
    let config = Config::parse(text, &folder.path().join("ropeway.yaml"), &Secrets::none()).unwrap();
    let names: Vec<_> = config.files.iter().map(|file| file.strip_prefix(folder.path()).unwrap()).collect();
    assert_eq!(names, [".env", "secrets", "variables", "token"].map(std::path::Path::new));
}

#[test]
fn hints_and_locks_are_off_by_default() {
    let file = |more: &str, top: &str| format!("servers:\n  - alias: a\n    command: x\n{more}{top}");
    let config = parse(&file("", "")).unwrap();
    assert_eq!((config.servers[0].trust_hints, config.lock), (false, None));
    let config = parse(&file("    trust_hints: true\n", "lock: off\n")).unwrap();
    assert_eq!((config.servers[0].trust_hints, config.lock), (true, Some(LockPolicy::Off)));
    assert_eq!(parse(&file("", "lock: strict\n")).unwrap().lock, Some(LockPolicy::Strict));
    let wrong = parse(&file("", "lock: strickt\n")).unwrap_err().to_string();
    assert!(wrong.contains("did you mean `strict`?"), "{wrong}");
    // Trust is granted to each server separately.
    let wrong = parse("defaults: {trust_hints: true}\nservers: []\n").unwrap_err().to_string();
    assert!(wrong.contains("`trust_hints` is not allowed here; set it for each server"), "{wrong}");
    // Files of other clients cannot enable it.
    let foreign = r#"{"mcpServers": {"a": {"command": "x", "trust_hints": true}}}"#;
    let config = Config::parse(foreign, std::path::Path::new("nowhere/mcp.json"), &Secrets::none()).unwrap();
    assert!(!config.servers[0].trust_hints);
}

#[test]
fn a_server_runs_in_the_directory_of_its_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = r#"{"mcpServers": {"a": {"command": "x"}, "b": {"command": "x", "cwd": "/srv"}}}"#;
    for (file, text, directory) in [
        ("p/ropeway.yaml", "servers: [{alias: a, command: x}, {alias: b, command: x, cwd: /srv}]", "p"),
        ("p/.mcp.json", text, "p"),
        ("p/.cursor/mcp.json", text, "p"),
        ("p/client/mcp.json", text, "p/client"),
    ] {
        let path = folder.path().join(file);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        let config = Config::parse(text, &path, &Secrets::none()).expect("servers");
        let directories = config.servers.iter().map(|entry| match &known(entry).transport {
            Transport::Stdio(server) => server.working_dir().map(Path::to_owned),
            other => panic!("{other:?}"),
        });
        let expected = [Some(folder.path().join(directory)), Some(PathBuf::from("/srv"))];
        assert_eq!(directories.collect::<Vec<_>>(), expected, "{file}");
    }
    // Approvals do not depend on the directory of their file.
    let server = StdioServer::new("x", [""; 0]);
    let moved = server.clone().with_base_dir(Some(folder.path().to_owned()));
    assert_eq!(ServerConfig::new("a", server).endpoint(), ServerConfig::new("a", moved).endpoint());
}
