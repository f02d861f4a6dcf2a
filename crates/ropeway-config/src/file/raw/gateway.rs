//! The settings of the gateway, key for key.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::gateway_auth::RawGatewayAuth;
use super::gateway_observe::{RawAccessLog, RawAudit};
use super::server::RawTools;
use super::shorthand::RawShorthand;
use super::values::{RawByteSize, RawDuration, RawMap, RawRate, RawText, record};
use crate::settings::PrefixMode;

record! {
    /// The gateway that `ropeway serve` runs: one MCP endpoint in front of all servers.
    #[serde(default)]
    #[schemars(rename = "Gateway")]
    pub struct RawGateway {
        /// The address to listen on: an IP address and a port, where port 0 selects a free one, or `unix:` and a path relative to this
        /// file. Defaults to `127.0.0.1:8931`.
        pub listen: Option<String>,
        /// The server name that the gateway reports. A profile with one server uses the name of that server. Defaults to `ropeway`.
        #[schemars(length(min = 1))]
        pub name: Option<String>,
        /// Instructions for clients. Defaults to the instructions of the servers, joined.
        pub instructions: Option<String>,
        /// When names of tools and prompts get the prefix of their server: the `prefix` of the server, or `{alias}_` if it has none.
        /// Defaults to `auto`.
        pub prefix: Option<PrefixMode>,
        /// Values of the `Host` header that are accepted in addition to loopback names and the listen address. Example:
        /// `[gateway.local]`.
        pub allowed_hosts: Vec<String>,
        /// Values of the `Origin` header that are accepted in addition to loopback origins. Example: `["https://app.example"]`.
        pub allowed_origins: Vec<String>,
        /// The keys that seal sessions and cursors: 32 bytes each, as base64 or hex. The first key seals, and all keys open. `${NAME}` is
        /// replaced by the value of a secret or variable. Defaults to `ROPEWAY_GATEWAY_KEYS`, otherwise to a file that is created at the
        /// first start. Example: `["${GATEWAY_KEY}"]`.
        pub keys: Vec<RawText>,
        /// Maximum entries of one page of a list. Defaults to 0: a list is one page.
        #[schemars(range(max = 10000))]
        pub page_size: Option<u32>,
        /// Maximum time that a list waits for a server, up to `5m`. The list names the servers that are missing. Defaults to `5s`.
        pub list_timeout: Option<RawDuration>,
        /// How long a session is valid, from `1m` to `365d`. Defaults to `7d`.
        pub session_life: Option<RawDuration>,
        /// The certificate for HTTPS. Defaults to HTTP without TLS. Example: `{cert: gateway.pem, key: gateway.key}`.
        pub tls: Option<RawTls>,
        /// How the gateway stops after a SIGTERM. Example: `{delay: 5s, timeout: 25s}`.
        pub drain: Option<RawDrain>,
        /// Whether the web page of the gateway is served at `/`, with its API at `/api`. Defaults to `true`.
        pub page: Option<bool>,
        /// Limits on clients. Example: `{calls_per_client: 16}`.
        pub limits: Option<RawGatewayLimits>,
        /// The audit log: one line of JSON for each request of a client. Example: `{file: audit.jsonl}`.
        pub audit: Option<RawAudit>,
        /// The access log: one line of JSON for each HTTP request. Example: `{file: access.jsonl}`.
        pub access_log: Option<RawAccessLog>,
        /// How clients authenticate: keys, and tokens of an authorization server. Without it, clients are not authenticated, and
        /// the gateway listens on loopback addresses and Unix sockets only. Example: `{keys_file: keys.json}`.
        pub auth: Option<RawGatewayAuth>,
        /// Selections of servers and tools by name, each with its own URL: `/mcp/NAME`. `default` is the profile of `/mcp`.
        /// Example: `{coding: {servers: [files, git], prefix: never}}`.
        pub profiles: RawMap<RawProfile>,
    }
}

/// The files of a certificate, in PEM format, relative to this file. They are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Tls")]
#[non_exhaustive]
pub struct RawTls {
    /// The path of the certificate chain. Example: `gateway.pem`.
    pub cert: String,
    /// The path of the private key. Example: `gateway.key`.
    pub key: String,
}

record! {
    /// How the gateway stops after a SIGTERM.
    #[derive(Copy, Eq)]
    #[schemars(rename = "Drain")]
    pub struct RawDrain {
        /// Time in which clients are still served while `/ready` answers 503, up to `5m`, so that a load balancer can send them elsewhere.
        /// Defaults to `0s`.
        pub delay: Option<RawDuration>,
        /// Maximum time for the calls in progress after that, up to `1h`. Defaults to `10s`.
        pub timeout: Option<RawDuration>,
    }
}

record! {
    /// Limits of the gateway on its clients. Sizes are bytes, with an optional unit: `512K`, `64M`, `1G`.
    #[derive(Copy, Eq)]
    #[schemars(rename = "GatewayLimits")]
    pub struct RawGatewayLimits {
        /// Maximum bytes of an HTTP request body, from `1K` to `1G`. Defaults to `16M`.
        pub body: Option<RawByteSize>,
        /// Maximum bytes of a message on standard input or a socket, from `1K` to `1G`. Defaults to `16M`.
        pub message: Option<RawByteSize>,
        /// Maximum sessions in memory. Defaults to 10000.
        #[schemars(range(min = 1, max = 1000000))]
        pub sessions: Option<u32>,
        /// Maximum open connections. Defaults to 4096.
        #[schemars(range(min = 1, max = 1000000))]
        pub connections: Option<u32>,
        /// Maximum concurrent calls of one client. Defaults to 64.
        #[schemars(range(min = 1, max = 1000000))]
        pub calls_per_client: Option<u32>,
        /// Maximum concurrent calls of all clients. Defaults to 4096.
        #[schemars(range(min = 1, max = 1000000))]
        pub calls: Option<u32>,
        /// Maximum open event streams of one client, apart from those of its calls, which `calls_per_client` limits. Defaults to 8.
        #[schemars(range(min = 1, max = 1000000))]
        pub streams_per_client: Option<u32>,
        /// Maximum calls that wait for the answer of a client to a question. Defaults to 256.
        #[schemars(range(min = 1, max = 1000000))]
        pub parked: Option<u32>,
        /// Maximum time that a call waits for such an answer, from `1s` to `1d`. Defaults to `10m`.
        pub parked_for: Option<RawDuration>,
        /// Maximum connections that are used by one client each, see `isolation`. Defaults to 64.
        #[schemars(range(min = 1, max = 1000000))]
        pub isolated: Option<u32>,
        /// How long such a connection stays open without a call, from `1s` to `1d`. Defaults to `10m`.
        pub isolated_idle: Option<RawDuration>,
        /// Maximum requests per time of one principal, unless its key has another rate: `10/s`, `600/m`, `1000/h`. Bursts of this size
        /// are allowed. Without `auth`, all HTTP clients are one principal. Not limited by default.
        pub rate: Option<RawRate>,
        /// Maximum concurrent calls of one principal, over all its clients. Defaults to a quarter of `calls` if there are several.
        #[schemars(range(min = 1, max = 1000000))]
        pub calls_per_principal: Option<u32>,
        /// Maximum sessions of one principal in memory. Defaults to a quarter of `sessions` if there are several.
        #[schemars(range(min = 1, max = 1000000))]
        pub sessions_per_principal: Option<u32>,
        /// Maximum bytes of a result, from `1K` to `1G`. Not limited by default, apart from `limits.message_bytes` of its server.
        pub result: Option<RawByteSize>,
    }
}

record! {
    /// A selection of servers and tools.
    #[schemars(rename = "Profile")]
    pub struct RawProfile {
        /// The aliases of the servers. Defaults to all servers. Example: `[files, git]`.
        #[schemars(length(min = 1))]
        pub servers: Option<Vec<String>>,
        /// Which tools are exposed, and how they are changed, after the `tools` of each server: a list of globs of allowed tools, or a map.
        /// Globs match the server's own tool names, or `SERVER.TOOL`. Example: `[read_*, "git.*"]`.
        pub tools: Option<RawShorthand<Vec<String>, RawTools>>,
        /// When names get the prefix of their server. Defaults to the `prefix` of the gateway.
        pub prefix: Option<PrefixMode>,
        /// Whether to list two tools, `find_tools` and `call_tool`, instead of all tools. Defaults to `false`.
        pub search: Option<bool>,
    }
}
