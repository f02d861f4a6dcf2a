//! The gateway settings.

use std::path::Path;
use std::time::Duration;

use super::{parse, parse_with, problems};
use crate::{
    AuditSettings, AuthSettings, Config, DrainSettings, GatewayLimits, GatewaySettings, Isolation, JwtAlgorithm,
    JwtSettings, ListenAddress, LogTarget, OperatorTokens, PrefixMode, PrincipalLimits, ProfileSettings, Rate, Secret,
    Secrets, TlsSettings, ToolOverride, ToolSettings, read_foreign,
};

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// Gateway settings with every key.
const WHOLE: &str = r#"
gateway:
  listen: 127.0.0.1:0
  name: team
  instructions: Ask first.
  prefix: always
  allowed_hosts: [Gateway.local, "10.0.0.1:8931", "[::1]:80"]
  allowed_origins: ["https://app.example", "http://localhost:3000", "vscode-webview://abc"]
  keys: ["${GATEWAY_KEY}", 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f]
  page_size: 100
  list_timeout: 500ms
  session_life: 2d
  page: false
  limits: {body: 1M, message: 2M, sessions: 3, connections: 4, calls_per_client: 5, calls: 6, streams_per_client: 7, parked: 8, parked_for: 9m, isolated: 10, isolated_idle: 11m, rate: 12/s, calls_per_principal: 13, sessions_per_principal: 14, result: 15M}
  tls: {cert: gateway.pem, key: gateway.key}
  drain: {delay: 16s, timeout: 17s}
  audit: {file: logs/audit.jsonl, arguments: true}
  access_log: {file: stderr}
  auth:
    keys_file: keys.json
    jwt: {issuer: "https://auth.example", audience: [api, "https://gw.example/mcp"], resource: "https://gw.example/mcp", jwks_url: "https://auth.example/jwks", algorithms: [ES256, EdDSA], clock_skew: 5s, principal_claim: email, scopes: [mcp], profiles: [coding], tools: ["git.*"], operators: {claim: groups, values: [ops]}}
  profiles:
    coding: {servers: [files, git], tools: ["read_*", git.log], prefix: never}
    all: {search: true, tools: {deny: ["*.delete_*"], rename: {read_file: read}, hide: {search: [page]}}}
    default: {}
servers:
  - {alias: git, command: x, isolation: client}
  - {alias: files, command: x, isolation: shared}
  - {alias: web, command: x, isolation: auto}
"#;

fn gateway(text: &str) -> GatewaySettings {
    parse(&format!("gateway: {text}\nservers: [{{alias: a, command: x}}]\n")).unwrap().gateway
}

/// Returns the problems of a file with these gateway settings in its first line.
fn gateway_problems(text: &str) -> Vec<String> {
    problems(&format!("gateway: {text}\nservers: [{{alias: web, command: x}}]\n"))
}

#[test]
fn every_gateway_key_is_resolved() {
    let config = parse_with(WHOLE, &Secrets::from_map([("GATEWAY_KEY", format!("{KEY}\n"))])).unwrap();
    let owned = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
    let renamed = ToolOverride { name: Some("read".into()), ..ToolOverride::default() };
    let hiding = ToolOverride { hide: vec!["page".into()], ..ToolOverride::default() };
    let expected = GatewaySettings {
        listen: ListenAddress::Tcp(([127, 0, 0, 1], 0).into()),
        name: "team".into(),
        instructions: Some("Ask first.".into()),
        prefix: PrefixMode::Always,
        allowed_hosts: owned(&["gateway.local", "10.0.0.1:8931", "[::1]:80"]),
        allowed_origins: owned(&["https://app.example", "http://localhost:3000", "vscode-webview://abc"]),
        keys: [KEY, "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"].map(Secret::new).to_vec(),
        missing_keys: Vec::new(),
        page_size: 100,
        list_timeout: Duration::from_millis(500),
        session_life: Duration::from_secs(2 * 24 * 3600),
        page: false,
        limits: GatewayLimits {
            body: 1 << 20,
            message: 2 << 20,
            sessions: 3,
            connections: 4,
            calls_per_client: 5,
            calls: 6,
            streams_per_client: 7,
            parked: 8,
            parked_for: Duration::from_secs(9 * 60),
            isolated: 10,
            isolated_idle: Duration::from_secs(11 * 60),
        },
        tls: Some(TlsSettings::new("nowhere/gateway.pem", "nowhere/gateway.key")),
        drain: DrainSettings { delay: Duration::from_secs(16), timeout: Duration::from_secs(17) },
        audit: Some(AuditSettings::new(Path::new("nowhere/logs/audit.jsonl").to_owned()).with_arguments(true)),
        access_log: Some(LogTarget::Stderr),
        auth: AuthSettings::default().with_keys_file(Some("nowhere/keys.json".into())).with_jwt(Some(
            JwtSettings::new("https://auth.example", "")
                .with_audience(owned(&["api", "https://gw.example/mcp"]))
                .with_resource(Some("https://gw.example/mcp".to_owned()))
                .with_jwks_url(Some("https://auth.example/jwks".to_owned()))
                .with_algorithms(vec![JwtAlgorithm::Es256, JwtAlgorithm::EdDsa])
                .with_clock_skew(Duration::from_secs(5))
                .with_principal_claim("email")
                .with_scopes(owned(&["mcp"]))
                .with_profiles(Some(owned(&["coding"])))
                .with_tools(Some(owned(&["git.*"])))
                .with_operators(Some(OperatorTokens::Claim { name: "groups".to_owned(), values: owned(&["ops"]) })),
        )),
        principal_limits: PrincipalLimits::default()
            .with_rate(Some(Rate::per_second(12)))
            .with_calls(Some(13))
            .with_sessions(Some(14))
            .with_result(Some(15 << 20)),
        profiles: vec![
            ProfileSettings::new("coding")
                .with_servers(vec!["files".into(), "git".into()])
                .with_tools(ToolSettings::default().with_allow(owned(&["read_*", "git.log"])))
                .with_prefix(PrefixMode::Never),
            ProfileSettings::new("all").with_search(true).with_tools(
                ToolSettings::default()
                    .with_deny(owned(&["*.delete_*"]))
                    .with_overrides(vec![("read_file".to_owned(), renamed), ("search".to_owned(), hiding)]),
            ),
            ProfileSettings::new("default"),
        ],
    };
    assert_eq!((config.gateway, config.warnings), (expected, Vec::new()));
    let isolation: Vec<Isolation> = config.servers.iter().map(|server| server.isolation).collect();
    assert_eq!(isolation, [Isolation::Client, Isolation::Shared, Isolation::Auto]);
}

#[test]
fn gateway_settings_are_optional() {
    for text in ["", "{}", "{profiles: {}, keys: [], limits: {}}"] {
        assert_eq!(gateway(text), GatewaySettings::default(), "{text}");
    }
    assert_eq!(parse("servers: []\n").unwrap().gateway, GatewaySettings::default());
    let isolated = parse("defaults: {isolation: client}\nservers: [{alias: a, command: x}]\n").unwrap();
    assert_eq!(isolated.servers[0].isolation, Isolation::Client);
}

#[test]
fn logs_go_to_standard_error_by_default() {
    let settings = gateway("{audit: {}, access_log: {file: access.jsonl}}");
    assert_eq!(settings.audit, Some(AuditSettings { file: LogTarget::Stderr, arguments: false }));
    assert_eq!(settings.access_log, Some(LogTarget::File("nowhere/access.jsonl".into())));
    let empty = gateway_problems("{audit: {file: ''}}");
    assert_eq!(empty, ["ropeway.yaml:1:25: gateway.audit.file: file is empty (try `stderr`)"]);
}

#[test]
fn a_socket_path_is_relative_to_the_file() {
    let secrets = Secrets::from_map([("HOME", "/home/me")]);
    for (written, expected) in
        [("unix:x.sock", "nowhere/x.sock"), ("unix:/run/x.sock", "/run/x.sock"), ("unix:~/x.sock", "/home/me/x.sock")]
    {
        let config = parse_with(&format!("gateway: {{listen: '{written}'}}\nservers: []\n"), &secrets).unwrap();
        assert_eq!(config.gateway.listen, ListenAddress::Unix(expected.into()));
    }
}

#[test]
fn values_of_the_wrong_type_are_reported() {
    for (text, expected) in [
        (
            "{listen: 8931}",
            "1:19: gateway.listen: expected an address such as `127.0.0.1:8931` or `unix:gateway.sock`, found `8931` (did you mean `127.0.0.1:8931`?)",
        ),
        ("{name: [a]}", "1:17: gateway.name: expected a string, found a list"),
        ("{instructions: {}}", "1:25: gateway.instructions: expected a string, found a map"),
        ("{prefix: sometimes}", "1:19: gateway.prefix: expected one of `auto`, `always`, `never`, found `sometimes`"),
        ("{allowed_hosts: a}", "1:26: gateway.allowed_hosts: expected a list, found `a`"),
        ("{allowed_origins: a}", "1:28: gateway.allowed_origins: expected a list, found `a`"),
        ("{keys: a}", "1:17: gateway.keys: expected a list, found `a`"),
        ("{page_size: many}", "1:22: gateway.page_size: expected a non-negative integer, found `many`"),
        (
            "{list_timeout: soon}",
            "1:25: gateway.list_timeout: expected a duration such as `30s`, `500ms` or `2m`, or a number of seconds, found `soon`",
        ),
        (
            "{session_life: []}",
            "1:25: gateway.session_life: expected a duration such as `30s`, `500ms` or `2m`, or a number of seconds, found a list",
        ),
        (
            "{limits: {body: big}}",
            "1:26: gateway.limits.body: expected a number of bytes such as `64M` or `512K`, found `big`",
        ),
        ("{limits: {calls: -1}}", "1:27: gateway.limits.calls: expected a non-negative integer, found `-1`"),
        ("{profiles: [a]}", "1:21: gateway.profiles: expected a map, found a list"),
        ("{profiles: {a: {search: 3}}}", "1:34: gateway.profiles.a.search: expected `true` or `false`, found `3`"),
        ("{profiles: {a: {servers: web}}}", "1:35: gateway.profiles.a.servers: expected a list, found `web`"),
        ("{profiles: {a: {tools: 3}}}", "1:33: gateway.profiles.a.tools: expected a list of globs or a map, found `3`"),
    ] {
        assert_eq!(gateway_problems(text), [format!("ropeway.yaml:{expected}")], "{text}");
    }
    let isolation = "servers: [{alias: a, command: x, isolation: clinet}]\n";
    let expected = "ropeway.yaml:1:45: servers[0].isolation: expected one of `auto`, `shared`, `client`, found `clinet` (did you mean `client`?)";
    assert_eq!(problems(isolation), [expected]);
}

#[test]
fn unknown_gateway_keys_are_reported() {
    for (text, expected) in [
        ("{lisen: x}", "1:11: gateway: unknown key `lisen` (did you mean `listen`?)"),
        ("{limits: {sesions: 1}}", "1:20: gateway.limits: unknown key `sesions` (did you mean `sessions`?)"),
        ("{profiles: {a: {server: []}}}", "1:26: gateway.profiles.a: unknown key `server` (did you mean `servers`?)"),
    ] {
        assert_eq!(gateway_problems(text), [format!("ropeway.yaml:{expected}")], "{text}");
    }
    assert_eq!(
        problems("gatway: {}\nservers: []\n"),
        ["ropeway.yaml:1:1: unknown key `gatway` (did you mean `gateway`?)"]
    );
}

#[test]
fn values_out_of_range_are_reported() {
    for (text, expected) in [
        (
            "{listen: 'example.com:80'}",
            "1:19: gateway.listen: expected an address such as `127.0.0.1:8931` or `unix:gateway.sock`, found `example.com:80`",
        ),
        ("{name: ' '}", "1:17: gateway.name: name is empty"),
        (
            "{allowed_hosts: ['https://a.b/']}",
            "1:27: gateway.allowed_hosts[0]: expected a host name such as `gateway.local` or `gateway.local:8931`, found `https://a.b/` (did you mean `a.b`?)",
        ),
        (
            "{allowed_hosts: ['*']}",
            "1:27: gateway.allowed_hosts[0]: expected a host name such as `gateway.local` or `gateway.local:8931`, found `*`",
        ),
        (
            "{allowed_origins: ['https://a.b/c']}",
            "1:29: gateway.allowed_origins[0]: expected an origin such as `https://app.example`, found `https://a.b/c` (did you mean `https://a.b`?)",
        ),
        (
            "{allowed_origins: [a.b]}",
            "1:29: gateway.allowed_origins[0]: expected an origin such as `https://app.example`, found `a.b` (did you mean `https://a.b`?)",
        ),
        (
            "{allowed_origins: ['*']}",
            "1:29: gateway.allowed_origins[0]: expected an origin such as `https://app.example`, found `*`",
        ),
        (
            "{keys: [s3cret-s3cret]}",
            "1:18: gateway.keys[0]: key is not 32 bytes as base64 or hex (try `openssl rand -base64 32`)",
        ),
        ("{page_size: 10001}", "1:22: gateway.page_size: expected at most 10000, found `10001`"),
        ("{list_timeout: 6m}", "1:25: gateway.list_timeout: expected `0s` to `5m`, found `6m`"),
        ("{session_life: 1s}", "1:25: gateway.session_life: expected `1m` to `365d`, found `1s`"),
        ("{limits: {body: 10}}", "1:26: gateway.limits.body: expected `1K` to `1G`, found `10`"),
        ("{limits: {message: 2G}}", "1:29: gateway.limits.message: expected `1K` to `1G`, found `2147483648`"),
        ("{limits: {sessions: 0}}", "1:30: gateway.limits.sessions: expected 1 to 1000000, found `0`"),
        (
            "{limits: {connections: 1000001}}",
            "1:33: gateway.limits.connections: expected 1 to 1000000, found `1000001`",
        ),
        ("{limits: {calls_per_client: 0}}", "1:38: gateway.limits.calls_per_client: expected 1 to 1000000, found `0`"),
        ("{limits: {calls: 0}}", "1:27: gateway.limits.calls: expected 1 to 1000000, found `0`"),
        (
            "{limits: {streams_per_client: 0}}",
            "1:40: gateway.limits.streams_per_client: expected 1 to 1000000, found `0`",
        ),
        ("{limits: {parked: 0}}", "1:28: gateway.limits.parked: expected 1 to 1000000, found `0`"),
        ("{limits: {parked_for: 10ms}}", "1:32: gateway.limits.parked_for: expected `1s` to `1d`, found `10ms`"),
        ("{limits: {isolated: 0}}", "1:30: gateway.limits.isolated: expected 1 to 1000000, found `0`"),
        ("{limits: {isolated_idle: 25h}}", "1:35: gateway.limits.isolated_idle: expected `1s` to `1d`, found `25h`"),
        (
            "{profiles: {'a b': {}}}",
            "1:22: gateway.profiles[\"a b\"]: expected a name of up to 64 letters, digits, `_`, `.` and `-`, found `a b` (did you mean `a-b`?)",
        ),
        (
            "{profiles: {a: {servers: []}}}",
            "1:35: gateway.profiles.a.servers: expected a list of aliases, found an empty list",
        ),
        (
            "{profiles: {a: {servers: [webb]}}}",
            "1:36: gateway.profiles.a.servers[0]: unknown server `webb` (did you mean `web`?)",
        ),
        ("{profiles: {a: {servers: [web, web]}}}", "1:41: gateway.profiles.a.servers[1]: duplicate server `web`"),
        (
            "{profiles: {a: {tools: ['[a']}}}",
            "1:34: gateway.profiles.a.tools[0]: expected a valid glob (unclosed character class; missing ']'), found `[a`",
        ),
    ] {
        assert_eq!(gateway_problems(text), [format!("ropeway.yaml:{expected}")], "{text}");
    }
}

#[test]
fn a_profile_named_like_a_server_is_an_error() {
    let expected = "ropeway.yaml:1:22: gateway.profiles.web: profile `web` has the name of a server (2:19)";
    assert_eq!(gateway_problems("{profiles: {web: {}}}"), [expected]);
}

#[test]
fn a_missing_gateway_key_is_recorded() {
    let text = format!("gateway: {{keys: ['${{ONE}}', '${{TWO}}', '{KEY}']}}\nservers: [{{alias: a, command: x}}]\n");
    let config = parse(&text).unwrap();
    assert_eq!(config.gateway.missing_keys, ["ONE", "TWO"]);
    assert_eq!(config.gateway.keys, [Secret::new(KEY)]);
    assert_eq!(config.warnings, [""; 0]);
    assert!(!format!("{:?}", config.gateway).contains(KEY));
}

#[test]
fn an_empty_tool_list_of_a_profile_is_a_warning() {
    let config = parse("gateway: {profiles: {a: {tools: []}}}\nservers: []\n").unwrap();
    assert_eq!(config.warnings, ["`tools` of profile `a` is empty: all its tools are hidden"]);
    assert_eq!(config.gateway.profiles[0].tools.allowlists, [Vec::<String>::new()]);
}

#[test]
fn a_manifest_has_gateway_settings_under_config() {
    let text = "config: {servers: [{alias: a, command: x}], gateway: {page_size: 7}}\n";
    assert_eq!(parse(text).unwrap().gateway.page_size, 7);
    let wrong = "config: {servers: [{alias: a, command: x}], gateway: {page_size: 70000}}\n";
    let expected = "ropeway.yaml:1:66: config.gateway.page_size: expected at most 10000, found `70000`";
    assert_eq!(problems(wrong), [expected]);
    let outside = "config: {servers: [{alias: a, command: x}]}\ngateway: {page_size: 7}\n";
    let config = parse(outside).unwrap();
    assert_eq!(config.gateway, GatewaySettings::default());
    assert_eq!(config.warnings, ["ignored `gateway` (2:1): use `config.gateway`"]);
    let imported = read_foreign(text, Path::new("nowhere/manifest.yaml")).unwrap();
    assert_eq!(imported.warnings, ["`config.gateway` is not imported; add `gateway` to the new file"]);
}

#[test]
fn gateway_settings_in_another_clients_file_are_an_error() {
    let text = r#"{"mcpServers": {"a": {"command": "x", "isolation": "client"}}, "gateway": {}}"#;
    let error = Config::parse(text, Path::new("nowhere/mcp.json"), &Secrets::none()).unwrap_err().to_string();
    assert_eq!(error, "nowhere/mcp.json:1:64: `gateway` is only supported in a `ropeway.yaml`");
}

#[test]
fn invalid_authentication_is_reported() {
    let jwt = |more: &str| format!("{{auth: {{jwt: {{issuer: 'https://a', audience: b{more}}}}}}}");
    for (text, expected) in [
        ("{auth: {}}".to_owned(), "gateway.auth: expected `keys_file`, `jwt` or both, found neither"),
        ("{auth: {keys_file: ''}}".to_owned(), "gateway.auth.keys_file: path is empty"),
        ("{auth: {jwt: {audience: b}}}".to_owned(), "gateway.auth.jwt: missing key `issuer`"),
        ("{auth: {jwt: {issuer: 'https://a'}}}".to_owned(), "gateway.auth.jwt: missing key `audience`"),
        (
            "{auth: {jwt: {issuer: 'http://a', audience: b}}}".to_owned(),
            "gateway.auth.jwt.issuer: expected a URL that starts with `https://`, or with `http://` on this machine, found `http://a`",
        ),
        (
            jwt(", algorithms: [HS256]"),
            "gateway.auth.jwt.algorithms[0]: expected a signature algorithm with public keys such as `RS256`, found `HS256` (did you mean `RS256`?)",
        ),
        (jwt(", clock_skew: 1h"), "gateway.auth.jwt.clock_skew: expected `0s` to `10m`, found `1h`"),
        (jwt(", tools: []"), "gateway.auth.jwt.tools: expected a list with at least one entry, found an empty list"),
        (
            jwt(", operators: {}"),
            "gateway.auth.jwt.operators: expected either `scope`, or `claim` and `values`, found another combination of keys",
        ),
        (
            jwt(", operators: {claim: groups}"),
            "gateway.auth.jwt.operators: expected either `scope`, or `claim` and `values`, found another combination of keys",
        ),
        (
            jwt(", operators: {scope: ops, claim: groups, values: [ops]}"),
            "gateway.auth.jwt.operators: expected either `scope`, or `claim` and `values`, found another combination of keys",
        ),
        (
            jwt(", operators: {claim: groups, values: []}"),
            "gateway.auth.jwt.operators.values: expected a list of values, found an empty list or value",
        ),
        (
            jwt(", operators: {scope: 'a b'}"),
            "gateway.auth.jwt.operators.scope: expected a scope without spaces and quotes, found `a b`",
        ),
        (
            jwt(", scopes: ['a b']"),
            "gateway.auth.jwt.scopes[0]: expected a scope without spaces and quotes, found `a b`",
        ),
        (
            "{limits: {rate: 10}}".to_owned(),
            "gateway.limits.rate: expected a rate such as `10/s`, `600/m` or `1000/h`, found `10`",
        ),
    ] {
        let problems = gateway_problems(&text);
        assert_eq!(problems.len(), 1, "{text}: {problems:?}");
        assert!(problems[0].ends_with(expected), "{text}: {problems:?}");
    }
}

#[test]
fn the_schema_accepts_the_same_gateway_settings_as_the_parser() {
    let schema = jsonschema::validator_for(&crate::json_schema()).unwrap();
    let check = |gateway: &str, good: bool| {
        let text = format!(r#"{{"gateway": {gateway}, "servers": [{{"alias": "web", "command": "x"}}]}}"#);
        assert_eq!(schema.is_valid(&serde_json::from_str(&text).unwrap()), good, "{gateway}");
        assert_eq!(parse(&text).is_ok(), good, "{gateway}");
    };
    check(
        r#"{"listen": "127.0.0.1:1", "prefix": "never", "allowed_hosts": ["a"], "keys": [], "session_life": "7d"}"#,
        true,
    );
    check(
        r#"{"limits": {"rate": "10/s"}, "auth": {"keys_file": "k", "jwt": {"issuer": "https://a", "audience": "b"}}}"#,
        true,
    );
    check(r#"{"limits": {"body": "1M"}, "profiles": {"a": {"servers": ["web"], "tools": {"deny": ["*"]}}}}"#, true);
    for gateway in [
        r#"{"listen": 3.5}"#,
        r#"{"name": ""}"#,
        r#"{"prefix": "x"}"#,
        r#"{"page_size": 10001}"#,
        r#"{"limits": {"calls": 0}}"#,
        r#"{"limits": {"rate": "10"}}"#,
        r#"{"limits": {"calls_per_principal": 0}}"#,
        r#"{"auth": {"jwt": {"issuer": "https://a"}}}"#,
        r#"{"auth": {"jwt": {"issuer": "https://a", "audience": []}}}"#,
        r#"{"auth": {"jwt": {"issuer": "https://a", "audience": "b", "algorithms": ["none"]}}}"#,
        r#"{"auth": {"keys": []}}"#,
        r#"{"profiles": {"a": {"servers": []}}}"#,
        r#"{"profiles": {"a": {"tols": []}}}"#,
    ] {
        check(gateway, false);
    }
}
