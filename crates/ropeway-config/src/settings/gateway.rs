//! Gateway settings: address, names, limits and profiles.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::entry::ToolSettings;
use super::gateway_auth::{AuthSettings, PrincipalLimits};
use super::gateway_observe::{AuditSettings, LogTarget};
use ropeway_core::parse_error::ParseError;
use ropeway_core::secret::Secret;
use ropeway_core::tool::Alias;

/// The address that a gateway listens on by default.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8931);

/// Gateway settings: one MCP endpoint in front of all servers in a configuration.
///
/// # Examples
///
/// ```
/// use ropeway::config::{GatewaySettings, PrefixMode, ProfileSettings};
///
/// let settings = GatewaySettings::default()
///     .with_prefix(PrefixMode::Always)
///     .with_profile(ProfileSettings::new("reading").with_search(true))
///     .with_keys_file("/etc/ropeway/keys.json")
///     .with_tls("/etc/ropeway/cert.pem", "/etc/ropeway/key.pem");
/// assert_eq!(settings.name, "ropeway");
/// assert_eq!(settings.profiles.len(), 1);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GatewaySettings {
    /// The address to listen on.
    pub listen: ListenAddress,
    /// The server name that the gateway reports.
    pub name: String,
    /// Instructions for clients. `None` joins the servers' instructions.
    pub instructions: Option<String>,
    /// When tool and prompt names get their server's prefix.
    pub prefix: PrefixMode,
    /// `Host` header values that are accepted in addition to loopback names and the listen address.
    pub allowed_hosts: Vec<String>,
    /// `Origin` header values that are accepted in addition to loopback origins.
    pub allowed_origins: Vec<String>,
    /// The keys that seal sessions and cursors: 32 bytes each, as base64 or hex. The first one seals; each one opens.
    ///
    /// `GatewayBuilder::session_keys` and `session_key_file` replace them.
    pub keys: Vec<Secret>,
    /// The secrets that `keys` refers to and that are not set. A gateway must not start with other keys then: it would refuse
    /// its clients' sessions.
    pub missing_keys: Vec<String>,
    /// Maximum entries per list page. Zero returns a list in one page.
    pub page_size: usize,
    /// Maximum time that a list waits for a server. The list names the servers that are missing.
    pub list_timeout: Duration,
    /// How long a session is valid.
    pub session_life: Duration,
    /// Whether HTTP listeners serve the gateway's web page at `/`, with its API at `/api`.
    pub page: bool,
    /// Limits on clients.
    pub limits: GatewayLimits,
    /// The certificate for HTTPS. `None` serves HTTP.
    pub tls: Option<TlsSettings>,
    /// How `ropeway serve` ends.
    pub drain: DrainSettings,
    /// The audit log: one line for each client request.
    pub audit: Option<AuditSettings>,
    /// The access log: one line for each HTTP request.
    pub access_log: Option<LogTarget>,
    /// How clients authenticate.
    pub auth: AuthSettings,
    /// Limits on each principal, unless its key has others. Without authentication, all HTTP clients are one principal.
    pub principal_limits: PrincipalLimits,
    /// The profiles, in file order.
    pub profiles: Vec<ProfileSettings>,
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            listen: ListenAddress::default(),
            name: "ropeway".to_owned(),
            instructions: None,
            prefix: PrefixMode::default(),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            keys: Vec::new(),
            missing_keys: Vec::new(),
            page_size: 0,
            list_timeout: Duration::from_secs(5),
            session_life: Duration::from_secs(7 * 24 * 3600),
            page: true,
            limits: GatewayLimits::default(),
            tls: None,
            drain: DrainSettings::default(),
            audit: None,
            access_log: None,
            auth: AuthSettings::default(),
            principal_limits: PrincipalLimits::default(),
            profiles: Vec::new(),
        }
    }
}

impl GatewaySettings {
    /// Adds a profile.
    #[must_use]
    pub fn with_profile(mut self, profile: ProfileSettings) -> Self {
        self.profiles.push(profile);
        self
    }
}

/// Selects servers and tools, with its own URL: `/mcp/NAME`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ProfileSettings {
    /// Profile name. `default` is the profile at `/mcp`.
    pub name: String,
    /// The profile's servers. `None` selects all servers.
    pub servers: Option<Vec<Alias>>,
    /// Filters and overrides, applied after each server's own. Globs match the server's own tool names, or `SERVER.TOOL`.
    pub tools: ToolSettings,
    /// When names get their server's prefix. `None` uses [`GatewaySettings::prefix`].
    pub prefix: Option<PrefixMode>,
    /// Whether the profile lists two tools, `find_tools` and `call_tool`, instead of all tools.
    pub search: bool,
}

impl ProfileSettings {
    /// Creates a profile with all tools from all servers.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), servers: None, tools: ToolSettings::default(), prefix: None, search: false }
    }
}

/// Limits that a gateway sets for its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatewayLimits {
    /// Maximum HTTP request body size in bytes.
    pub body: usize,
    /// Maximum message size in bytes, on standard input or a socket.
    pub message: usize,
    /// Maximum sessions in memory.
    pub sessions: usize,
    /// Maximum open connections.
    pub connections: usize,
    /// Maximum concurrent calls per client.
    pub calls_per_client: usize,
    /// Maximum concurrent calls from all clients.
    pub calls: usize,
    /// Maximum open event streams per client, apart from its calls' streams.
    pub streams_per_client: usize,
    /// Maximum calls that wait for a client's response to a server request.
    pub parked: usize,
    /// Maximum time that a call waits for such an answer.
    pub parked_for: Duration,
    /// Maximum connections that are used by one client each ([`Isolation::Client`]).
    pub isolated: usize,
    /// How long such a connection stays open without a call.
    pub isolated_idle: Duration,
}

impl Default for GatewayLimits {
    fn default() -> Self {
        Self {
            body: 16 << 20,
            message: 16 << 20,
            sessions: 10_000,
            connections: 4096,
            calls_per_client: 64,
            calls: 4096,
            streams_per_client: 8,
            parked: 256,
            parked_for: Duration::from_secs(10 * 60),
            isolated: 64,
            isolated_idle: Duration::from_secs(10 * 60),
        }
    }
}

/// Certificate files, in PEM format. They are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsSettings {
    /// Path to the certificate chain.
    pub certificate: PathBuf,
    /// Path to the private key.
    pub key: PathBuf,
}

impl TlsSettings {
    /// Creates settings with paths to a certificate chain and its private key.
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self { certificate: certificate.into(), key: key.into() }
    }
}

/// How a gateway ends after a SIGTERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DrainSettings {
    /// Time in which clients are still served, so that a load balancer can send them elsewhere.
    pub delay: Duration,
    /// Maximum time for the calls in progress after that.
    pub timeout: Duration,
}

impl Default for DrainSettings {
    fn default() -> Self {
        Self { delay: Duration::ZERO, timeout: Duration::from_secs(10) }
    }
}

/// When a gateway adds the prefix of a server to the names of its tools and prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(description = "When names get the prefix of their server.")]
pub enum PrefixMode {
    /// If the profile has more than one server in the configuration, connected or not.
    #[default]
    #[schemars(description = "If the profile has more than one server in this file.")]
    Auto,
    /// Always.
    Always,
    /// Only for a name that an earlier server has already.
    Never,
}

/// Whether the clients of a gateway share the connection to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// Clients share a connection, until the server asks a question while several clients use it. Clients that can answer
    /// questions then get connections of their own.
    #[default]
    #[schemars(description = "Share a connection, until the server asks a question while several clients use it.")]
    Auto,
    /// Share one connection among all clients.
    Shared,
    /// Give each client its own process or session, for servers with state such as a browser or a shell.
    Client,
}

/// The address that a gateway listens on: `127.0.0.1:8931`, `localhost:0` or `unix:/run/user/1000/gateway.sock`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListenAddress {
    /// An IP address and a port. Port zero selects a free port.
    Tcp(SocketAddr),
    /// Unix socket path.
    Unix(PathBuf),
}

impl ListenAddress {
    /// Returns `true` if only programs on this machine can connect.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

impl Default for ListenAddress {
    fn default() -> Self {
        Self::Tcp(DEFAULT_LISTEN)
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for ListenAddress {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let invalid = || {
            let text: String = text.chars().take(200).collect();
            ParseError::new(format!("`{text}` is not an address such as `127.0.0.1:8931` or `unix:/run/gateway.sock`"))
        };
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(invalid()) } else { Ok(Self::Unix(path.into())) };
        }
        // A name is never resolved, since it may belong to another interface tomorrow.
        let address = match text.strip_prefix("localhost:") {
            Some(port) => format!("{}:{port}", Ipv4Addr::LOCALHOST).parse(),
            None => text.parse(),
        };
        address.map(Self::Tcp).map_err(|_| invalid())
    }
}

/// Decodes a key from [`GatewaySettings::keys`]: 32 bytes as hex, or as base64 in either alphabet.
pub fn decode_gateway_key(text: &str) -> Option<[u8; 32]> {
    use base64::Engine as _;
    use base64::alphabet::{STANDARD, URL_SAFE};
    use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

    let text = text.trim();
    if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let mut key = [0; 32];
        for (byte, digits) in key.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        return Some(key);
    }
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let alphabet = if text.contains(['-', '_']) { &URL_SAFE } else { &STANDARD };
    GeneralPurpose::new(alphabet, config).decode(text).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listen_address_is_an_ip_address_or_a_path() {
        for text in ["127.0.0.1:8931", "[::1]:0", "0.0.0.0:80", "unix:/run/x.sock"] {
            assert_eq!(text.parse::<ListenAddress>().expect("an address").to_string(), text);
        }
        assert_eq!("localhost:1".parse().ok(), Some(ListenAddress::Tcp(([127, 0, 0, 1], 1).into())));
        for text in
            ["", "8931", ":8931", "127.0.0.1", "example.com:80", "127.0.0.1:99999", "unix:", "http://127.0.0.1:1"]
        {
            let error = text.parse::<ListenAddress>().expect_err("no address").to_string();
            assert_eq!(
                error,
                format!("`{text}` is not an address such as `127.0.0.1:8931` or `unix:/run/gateway.sock`")
            );
        }
        let is_local = |text: &str| text.parse::<ListenAddress>().expect("an address").is_local();
        assert!(
            is_local("127.0.0.1:1") && is_local("[::1]:1") && is_local("[::ffff:127.0.0.1]:1") && is_local("unix:x")
        );
        assert!(!is_local("0.0.0.0:1") && !is_local("[::]:1") && !is_local("10.0.0.1:1"));
    }

    #[test]
    fn a_key_is_hex_or_base64_of_32_bytes() {
        let key = std::array::from_fn(|at| 0xff - at as u8);
        let standard = "//79/Pv6+fj39vX08/Lx8O/u7ezr6uno5+bl5OPi4eA=";
        let url = standard.replace('/', "_").replace('+', "-");
        let hex: String = key.iter().map(|byte: &u8| format!("{byte:02x}")).collect();
        for text in [standard, &standard[..43], &url, &hex, &hex.to_uppercase(), &format!(" {hex}\n")] {
            assert_eq!(decode_gateway_key(text), Some(key), "{text}");
        }
        for text in ["", "secret", &standard[..40], &hex[1..], &"g".repeat(64), &standard.repeat(2)] {
            assert_eq!(decode_gateway_key(text), None, "{text}");
        }
    }
}
