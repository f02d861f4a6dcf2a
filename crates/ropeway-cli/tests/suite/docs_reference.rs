//! The configuration reference: every key of the JSON Schema, with its type, its description and an example that is valid.

use std::fmt::Write as _;
use std::path::Path;

use ropeway_config::{Config, Secrets, json_schema};
use serde_json::Value;

use crate::docs::keep;

const PAGE: &str = "docs/configuration.md";
const FROM: &str = "<!-- reference -->\n";
const TO: &str = "<!-- /reference -->";

/// A section of the reference: its heading, the pointer to its keys in the schema, and where its examples stand in a file.
struct Section {
    title: &'static str,
    pointer: &'static str,
    around: &'static str,
    examples: &'static [(&'static str, &'static str)],
}

/// `EXAMPLE` in `around` is replaced by each example. A line that starts with it may hold several keys.
const SECTIONS: [Section; 28] = [
    Section {
        title: "Top level",
        pointer: "/properties",
        around: "EXAMPLE",
        examples: &[
            ("$schema", r#""$schema": ./ropeway.schema.json"#),
            ("defaults", "defaults: {timeouts: {connect: 30s}}"),
            ("servers", "servers: [{alias: time, command: uvx, args: [mcp-server-time]}]"),
            ("enabled_servers", "enabled_servers: []"),
            ("tool_allowlist", r#"tool_allowlist: ["read_*"]"#),
            ("collisions", "collisions: suffix"),
            ("lock", "lock: strict"),
            ("secrets_file", "secrets_file: secrets.env"),
            ("chat", "chat: {provider: anthropic}"),
            ("gateway", "gateway: {listen: 127.0.0.1:8931}"),
        ],
    },
    Section {
        title: "`servers[]`",
        pointer: "/$defs/Server/properties",
        around: "servers: [{EXAMPLE}]",
        examples: &[
            ("alias", "alias: files, command: npx"),
            ("transport", "alias: a, transport: sse, url: https://example.com/sse"),
            ("command", "alias: a, command: npx"),
            ("args", "alias: a, command: npx, args: [-y, some-server]"),
            ("env", r#"alias: a, command: x, env: {TOKEN: "${TOKEN}"}"#),
            ("env_file", "alias: a, command: x, env_file: server.env"),
            ("inherit_env", "alias: a, command: x, inherit_env: true"),
            ("cwd", "alias: a, command: x, cwd: ~/data"),
            ("sandbox", "alias: a, command: x, sandbox: true"),
            ("url", "alias: a, url: https://example.com/mcp"),
            ("headers", "alias: a, url: https://example.com/mcp, headers: {X-Team: blue}"),
            ("auth", r#"alias: a, url: https://example.com/mcp, auth: {bearer: "${TOKEN}"}"#),
            ("tools", r#"alias: a, command: x, tools: ["read_*"]"#),
            ("tool_allowlist", r#"alias: a, command: x, tool_allowlist: ["read_*"]"#),
            ("prefix", r#"alias: a, command: x, prefix: "fs_""#),
            ("description_prefix", r#"alias: a, command: x, description_prefix: "[{alias}] ""#),
            ("enabled", "alias: a, command: x, enabled: false"),
            ("required", "alias: a, command: x, required: true"),
            ("start", "alias: a, command: x, start: lazy"),
            ("timeouts", "alias: a, command: x, timeouts: {idle: 2m}"),
            ("limits", "alias: a, command: x, limits: {list_entries: 500}"),
            ("reconnect", "alias: a, command: x, reconnect: false"),
            ("resources", "alias: a, command: x, resources: true"),
            ("prompts", "alias: a, command: x, prompts: true"),
            ("instructions", "alias: a, command: x, instructions: true"),
            ("trust_hints", "alias: a, command: x, trust_hints: true"),
            ("era", "alias: a, command: x, era: legacy"),
            ("isolation", "alias: a, command: x, isolation: client"),
            ("connection", "alias: a, connection: {url: https://example.com/mcp}"),
        ],
    },
    Section {
        title: "`defaults`",
        pointer: "/$defs/Defaults/properties",
        around: "defaults: {EXAMPLE}",
        examples: &[
            ("env", "env: {LOG_LEVEL: info}"),
            ("inherit_env", "inherit_env: true"),
            ("cwd", "cwd: /srv"),
            ("sandbox", "sandbox: {files: 256}"),
            ("tools", r#"tools: {deny: ["delete_*"]}"#),
            ("tool_allowlist", r#"tool_allowlist: ["read_*"]"#),
            ("prefix", r#"prefix: "{alias}_""#),
            ("description_prefix", r#"description_prefix: "[{alias}] ""#),
            ("enabled", "enabled: false"),
            ("required", "required: true"),
            ("start", "start: lazy"),
            ("timeouts", "timeouts: {connect: 30s}"),
            ("limits", "limits: {message_bytes: 8M}"),
            ("reconnect", "reconnect: {max_delay: 1m}"),
            ("resources", "resources: {tools: true}"),
            ("prompts", "prompts: {tools: true}"),
            ("instructions", "instructions: true"),
            ("era", "era: auto"),
            ("isolation", "isolation: shared"),
        ],
    },
    Section {
        title: "`sandbox`",
        pointer: "/$defs/Sandbox/properties",
        around: "servers: [{alias: a, command: x, sandbox: {EXAMPLE}}]",
        examples: &[
            ("mode", "mode: best-effort"),
            ("read", "read: [./docs]"),
            ("write", "write: [./notes]"),
            ("network", "network: true"),
            ("unix_sockets", "unix_sockets: true"),
            ("memory", "memory: 512M"),
            ("processes", "processes: 64"),
            ("files", "files: 256"),
        ],
    },
    Section {
        title: "`auth`",
        pointer: "/$defs/Auth/properties",
        around: "servers: [{alias: a, url: https://example.com/mcp, auth: {EXAMPLE}}]",
        examples: &[
            ("bearer", r#"bearer: "${TOKEN}""#),
            ("basic", r#"basic: {user: ada, password: "${PASSWORD}"}"#),
            ("oauth", "oauth: {scopes: [files]}"),
            ("command", "command: [vault, read, token]"),
            ("env", "command: [vault, read, token], env: {VAULT_ADDR: https://vault.example}"),
            ("cwd", "command: [./token.sh], cwd: ."),
            ("timeout", "command: [vault, read, token], timeout: 10s"),
            ("type", r#"type: bearer, token: "${TOKEN}""#),
            ("token", r#"type: bearer, token: "${TOKEN}""#),
            ("user", r#"type: basic, user: ada, password: "${PASSWORD}""#),
            ("password", r#"type: basic, user: ada, password: "${PASSWORD}""#),
        ],
    },
    Section {
        title: "`auth.basic`",
        pointer: "/$defs/BasicAuth/properties",
        around: "servers: [{alias: a, url: https://example.com/mcp, auth: {basic: {EXAMPLE}}}]",
        examples: &[
            ("user", r#"user: ada, password: "${PASSWORD}""#),
            ("password", r#"user: ada, password: "${PASSWORD}""#),
        ],
    },
    Section {
        title: "`auth.oauth`",
        pointer: "/$defs/OAuth/properties",
        around: "servers: [{alias: a, url: https://example.com/mcp, auth: {oauth: {EXAMPLE}}}]",
        examples: &[
            ("grant", r#"grant: client_credentials, client_id: ci, client_secret: "${CLIENT_SECRET}""#),
            ("client_id", "client_id: ropeway"),
            ("client_secret", r#"client_id: ropeway, client_secret: "${CLIENT_SECRET}""#),
            ("client_metadata_url", r#"client_metadata_url: "https://example.com/client.json""#),
            ("private_key", r#"grant: client_credentials, client_id: ci, private_key: {pem: "${CLIENT_KEY}"}"#),
            (
                "token_endpoint_auth",
                r#"client_id: a, client_secret: "${CLIENT_SECRET}", token_endpoint_auth: client_secret_post"#,
            ),
            ("scopes", "scopes: [files]"),
            ("issuer", r#"issuer: "https://auth.example""#),
            ("redirect_port", "client_id: ropeway, redirect_port: 8765"),
            ("dpop", "dpop: true"),
            ("allow_private", "allow_private: [auth.internal]"),
            ("account", "account: work"),
            ("per_principal", "per_principal: true"),
            ("assertion", "grant: workload_identity, assertion: {file: /var/run/secrets/token}"),
            (
                "identity_provider",
                r#"grant: enterprise_managed, client_id: a, identity_provider: {issuer: "https://idp.example", id_token: {command: [idp, id-token]}}"#,
            ),
        ],
    },
    Section {
        title: "`auth.oauth.private_key`",
        pointer: "/$defs/PrivateKey/properties",
        around: "servers: [{alias: a, url: https://example.com/mcp, auth: {oauth: {grant: client_credentials, client_id: ci, private_key: {EXAMPLE}}}}]",
        examples: &[
            ("pem", r#"pem: "${CLIENT_KEY}""#),
            ("algorithm", r#"pem: "${CLIENT_KEY}", algorithm: ES256"#),
            ("key_id", r#"pem: "${CLIENT_KEY}", key_id: key-1"#),
        ],
    },
    Section {
        title: "`auth.oauth.identity_provider`",
        pointer: "/$defs/IdentityProvider/properties",
        around: "servers: [{alias: a, url: https://example.com/mcp, auth: {oauth: {grant: enterprise_managed, client_id: a, identity_provider: {EXAMPLE}}}}]",
        examples: &[
            ("issuer", r#"issuer: "https://idp.example", id_token: "${ID_TOKEN}""#),
            ("token_endpoint", r#"token_endpoint: "https://idp.example/token", id_token: "${ID_TOKEN}""#),
            ("client_id", r#"issuer: "https://idp.example", client_id: a, id_token: "${ID_TOKEN}""#),
            (
                "client_secret",
                r#"issuer: "https://idp.example", client_id: a, client_secret: "${IDP_SECRET}", id_token: "${ID_TOKEN}""#,
            ),
            ("id_token", r#"issuer: "https://idp.example", id_token: {command: [idp, id-token]}"#),
        ],
    },
    Section {
        title: "`assertion`, `id_token`",
        pointer: "/$defs/TokenSource/properties",
        around: "servers: [{alias: a, url: https://example.com/mcp, auth: {oauth: {grant: workload_identity, assertion: {EXAMPLE}}}}]",
        examples: &[
            ("file", "file: /var/run/secrets/token"),
            ("command", "command: [idp, id-token]"),
            ("env", "command: [idp, id-token], env: {PROFILE: ci}"),
            ("cwd", "command: [./token.sh], cwd: ."),
            ("timeout", "command: [idp, id-token], timeout: 10s"),
        ],
    },
    Section {
        title: "`tools`",
        pointer: "/$defs/Tools/properties",
        around: "servers: [{alias: a, command: x, tools: {EXAMPLE}}]",
        examples: &[
            ("allow", r#"allow: ["read_*"]"#),
            ("deny", r#"deny: ["delete_*"]"#),
            ("rename", "rename: {read_text_file: read}"),
            ("describe", "describe: {read_text_file: Reads a file}"),
            ("description_prefix", r#"description_prefix: "Files: ""#),
            ("hide", "hide: {search_files: [path]}"),
            ("preset", "preset: {search_files: {path: /srv}}"),
            ("provider_options", r#"provider_options: {"*": {openai: {strict: true}}}"#),
        ],
    },
    Section {
        title: "`timeouts`",
        pointer: "/$defs/Timeouts/properties",
        around: "defaults: {timeouts: {EXAMPLE}}",
        examples: &[
            ("connect", "connect: 30s"),
            ("download", "download: 20m"),
            ("probe", "probe: 2s"),
            ("idle", "idle: 2m"),
            ("total", "total: 1h"),
            ("close", "close: 1s"),
            ("grace", "grace: 500ms"),
        ],
    },
    Section {
        title: "`limits`",
        pointer: "/$defs/Limits/properties",
        around: "defaults: {limits: {EXAMPLE}}",
        examples: &[
            ("message_bytes", "message_bytes: 8M"),
            ("pages", "pages: 100"),
            ("list_entries", "list_entries: 500"),
            ("list_bytes", "list_bytes: 4M"),
            ("input_rounds", "input_rounds: 3"),
            ("questions", "questions: 3"),
            ("stderr_bytes", "stderr_bytes: 16K"),
            ("calls", "calls: 4"),
            ("rate", "rate: 10/s"),
        ],
    },
    Section {
        title: "`reconnect`",
        pointer: "/$defs/Reconnect/properties",
        around: "defaults: {reconnect: {EXAMPLE}}",
        examples: &[
            ("enabled", "enabled: false"),
            ("initial_delay", "initial_delay: 1s"),
            ("max_delay", "max_delay: 1m"),
        ],
    },
    Section {
        title: "`resources`",
        pointer: "/$defs/Resources/properties",
        around: "defaults: {resources: {EXAMPLE}}",
        examples: &[
            ("tools", "tools: true"),
            ("context", r#"context: ["file:///srv/data/README.md"]"#),
            ("context_bytes", "context_bytes: 64K"),
        ],
    },
    Section {
        title: "`prompts`",
        pointer: "/$defs/Prompts/properties",
        around: "defaults: {prompts: {EXAMPLE}}",
        examples: &[("tools", "tools: true")],
    },
    Section {
        title: "`chat`",
        pointer: "/$defs/Chat/properties",
        around: "chat: {EXAMPLE}",
        examples: &[
            ("provider", "provider: anthropic"),
            ("model", "model: qwen2.5:7b"),
            ("base_url", "base_url: http://127.0.0.1:11434/v1"),
            ("key", r#"key: "${MY_KEY}""#),
            ("system", "system: Be brief."),
            ("max_tokens", "max_tokens: 4000"),
            ("temperature", "temperature: 0.2"),
            ("effort", "effort: high"),
            ("max_steps", "max_steps: 50"),
            ("tools", r#"tools: {allow: ["time.*"]}"#),
        ],
    },
    Section {
        title: "`chat.tools`",
        pointer: "/$defs/ToolApproval/properties",
        around: "chat: {tools: {EXAMPLE}}",
        examples: &[
            ("allow", r#"allow: ["time.*"]"#),
            ("ask", r#"ask: ["files.*"]"#),
            ("deny", r#"deny: ["*.delete_*"]"#),
        ],
    },
    Section {
        title: "`gateway`",
        pointer: "/$defs/Gateway/properties",
        around: "gateway: {EXAMPLE}",
        examples: &[
            ("listen", "listen: 127.0.0.1:8931"),
            ("name", "name: team"),
            ("instructions", "instructions: Read before you write."),
            ("prefix", "prefix: always"),
            ("allowed_hosts", "allowed_hosts: [gateway.local]"),
            ("allowed_origins", r#"allowed_origins: ["https://app.example"]"#),
            ("keys", r#"keys: ["${GATEWAY_KEY}"]"#),
            ("page_size", "page_size: 100"),
            ("list_timeout", "list_timeout: 2s"),
            ("session_life", "session_life: 30d"),
            ("tls", "tls: {cert: gateway.pem, key: gateway.key}"),
            ("drain", "drain: {delay: 5s, timeout: 25s}"),
            ("page", "page: false"),
            ("limits", "limits: {calls_per_client: 16}"),
            ("audit", "audit: {file: audit.jsonl}"),
            ("access_log", "access_log: {file: access.jsonl}"),
            ("auth", "auth: {keys_file: keys.json}"),
            ("profiles", r#"profiles: {reading: {tools: ["read_*"]}}"#),
        ],
    },
    Section {
        title: "`gateway.limits`",
        pointer: "/$defs/GatewayLimits/properties",
        around: "gateway: {limits: {EXAMPLE}}",
        examples: &[
            ("body", "body: 4M"),
            ("message", "message: 4M"),
            ("sessions", "sessions: 1000"),
            ("connections", "connections: 1000"),
            ("calls_per_client", "calls_per_client: 16"),
            ("calls", "calls: 256"),
            ("streams_per_client", "streams_per_client: 4"),
            ("parked", "parked: 64"),
            ("parked_for", "parked_for: 5m"),
            ("isolated", "isolated: 8"),
            ("isolated_idle", "isolated_idle: 2m"),
            ("rate", "rate: 10/s"),
            ("calls_per_principal", "calls_per_principal: 16"),
            ("sessions_per_principal", "sessions_per_principal: 100"),
            ("result", "result: 4M"),
        ],
    },
    Section {
        title: "`gateway.auth`",
        pointer: "/$defs/GatewayAuth/properties",
        around: "gateway: {auth: {EXAMPLE}}",
        examples: &[
            ("keys_file", "keys_file: keys.json"),
            ("jwt", r#"jwt: {issuer: "https://auth.example", audience: "https://gateway.example/mcp"}"#),
        ],
    },
    Section {
        title: "`gateway.auth.jwt`",
        pointer: "/$defs/GatewayJwt/properties",
        around: "gateway: {auth: {jwt: {EXAMPLE}}}",
        examples: &[
            ("issuer", r#"issuer: "https://auth.example", audience: api"#),
            ("audience", r#"issuer: "https://auth.example", audience: "https://gateway.example/mcp""#),
            ("resource", r#"issuer: "https://auth.example", audience: api, resource: "https://gateway.example/mcp""#),
            ("jwks_url", r#"issuer: "https://auth.example", audience: api, jwks_url: "https://auth.example/jwks""#),
            ("algorithms", r#"issuer: "https://auth.example", audience: api, algorithms: [RS256, ES256]"#),
            ("clock_skew", r#"issuer: "https://auth.example", audience: api, clock_skew: 30s"#),
            ("principal_claim", r#"issuer: "https://auth.example", audience: api, principal_claim: email"#),
            ("scopes", r#"issuer: "https://auth.example", audience: api, scopes: [mcp]"#),
            ("profiles", r#"issuer: "https://auth.example", audience: api, profiles: [coding]"#),
            ("tools", r#"issuer: "https://auth.example", audience: api, tools: ["git.*"]"#),
            ("operators", r#"issuer: "https://auth.example", audience: api, operators: {scope: "ropeway:operator"}"#),
        ],
    },
    Section {
        title: "`gateway.auth.jwt.operators`",
        pointer: "/$defs/GatewayOperators/properties",
        around: "gateway: {auth: {jwt: {issuer: \"https://auth.example\", audience: api, operators: {EXAMPLE}}}}",
        examples: &[
            ("scope", r#"scope: "ropeway:operator""#),
            ("claim", "claim: groups, values: [ops]"),
            ("values", "claim: groups, values: [ops, sre]"),
        ],
    },
    Section {
        title: "`gateway.tls`",
        pointer: "/$defs/Tls/properties",
        around: "gateway: {tls: {EXAMPLE}}",
        examples: &[("cert", "cert: gateway.pem, key: gateway.key"), ("key", "cert: gateway.pem, key: gateway.key")],
    },
    Section {
        title: "`gateway.drain`",
        pointer: "/$defs/Drain/properties",
        around: "gateway: {drain: {EXAMPLE}}",
        examples: &[("delay", "delay: 5s"), ("timeout", "timeout: 25s")],
    },
    Section {
        title: "`gateway.audit`",
        pointer: "/$defs/GatewayAudit/properties",
        around: "gateway: {audit: {EXAMPLE}}",
        examples: &[("file", "file: /var/log/ropeway/audit.jsonl"), ("arguments", "arguments: true")],
    },
    Section {
        title: "`gateway.access_log`",
        pointer: "/$defs/GatewayAccessLog/properties",
        around: "gateway: {access_log: {EXAMPLE}}",
        examples: &[("file", "file: stderr")],
    },
    Section {
        title: "`gateway.profiles.NAME`",
        pointer: "/$defs/Profile/properties",
        around: "servers: [{alias: files, command: x}]\ngateway: {profiles: {reading: {EXAMPLE}}}",
        examples: &[
            ("servers", "servers: [files]"),
            ("tools", r#"tools: ["read_*", "files.list_*"]"#),
            ("prefix", "prefix: never"),
            ("search", "search: true"),
        ],
    },
];

/// Returns the type of a key in words.
fn kind(schema: &Value, key: &Value) -> String {
    if let Some(reference) = key.get("$ref").and_then(Value::as_str) {
        let target = schema.pointer(&reference[1..]).expect("a definition");
        return if target.get("properties").is_some() { "map".to_owned() } else { kind(schema, target) };
    }
    if let Some(values) = key.get("enum").and_then(Value::as_array) {
        let values: Vec<String> = values.iter().filter_map(|value| Some(format!("`{}`", value.as_str()?))).collect();
        return values.join(", ");
    }
    if let Some(value) = key.get("const").and_then(Value::as_str) {
        return format!("`{value}`");
    }
    for word in ["anyOf", "oneOf"] {
        if let Some(alternatives) = key.get(word).and_then(Value::as_array)
            && key.get("properties").is_none()
        {
            let kinds = alternatives.iter().map(|alternative| kind(schema, alternative));
            let mut kinds: Vec<String> = kinds.filter(|kind| kind != "null" && !kind.is_empty()).collect();
            kinds.dedup();
            return kinds.join(if kinds.iter().all(|kind| kind.starts_with('`')) { ", " } else { " or " });
        }
    }
    let name = |name: &str| match name {
        "array" => "list".to_owned(),
        "object" => "map".to_owned(),
        other => other.to_owned(),
    };
    match key.get("type") {
        Some(Value::String(one)) => name(one),
        Some(Value::Array(several)) => {
            let names = several.iter().filter_map(Value::as_str).filter(|name| *name != "null");
            names.map(name).collect::<Vec<_>>().join(" or ")
        }
        _ => String::new(),
    }
}

fn reference() -> String {
    let schema = json_schema();
    let mut text = String::new();
    for Section { title, pointer, examples, .. } in &SECTIONS {
        let keys = schema.pointer(pointer).and_then(Value::as_object).unwrap_or_else(|| panic!("{pointer}"));
        let names: Vec<&str> = examples.iter().map(|(name, _)| *name).collect();
        assert_eq!(
            keys.keys().collect::<Vec<_>>(),
            names,
            "{title}: one example for each key, in the order of the schema"
        );
        writeln!(text, "\n### {title}\n\n| key | type | description | example |\n|---|---|---|---|").expect("text");
        for ((name, key), (_, example)) in keys.iter().zip(*examples) {
            let description = key["description"].as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|");
            let example = example.replace('|', "\\|");
            writeln!(text, "| `{name}` | {} | {description} | `{example}` |", kind(&schema, key)).expect("text");
        }
    }
    text
}

#[test]
fn the_reference_has_every_key_of_the_schema() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
    let text = std::fs::read_to_string(path).expect(PAGE);
    let (front, rest) = text.split_once(FROM).expect("the marker");
    let (_, back) = rest.split_once(TO).expect("the end marker");
    keep(PAGE, &format!("{front}{FROM}{}\n{TO}{back}", reference()));
    let schema = json_schema();
    let objects = schema["$defs"].as_object().expect("definitions").iter();
    for (name, _) in objects.filter(|(_, definition)| definition.get("properties").is_some()) {
        let pointer = format!("/$defs/{name}/properties");
        assert!(SECTIONS.iter().any(|section| section.pointer == pointer), "no section for {name}");
    }
}

#[test]
fn every_example_of_the_reference_is_valid() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["secrets.env", "server.env"] {
        std::fs::write(folder.path().join(name), "").expect("a file");
    }
    for Section { around, examples, title, .. } in &SECTIONS {
        for (name, example) in *examples {
            let text = around.replace("EXAMPLE", example);
            let text = if text.starts_with("servers:") { text } else { format!("servers: []\n{text}") };
            let config = Config::parse(&text, &folder.path().join("ropeway.yaml"), &Secrets::none());
            assert!(config.is_ok(), "{title} {name}: {text}\n{:?}", config.err());
        }
    }
}
