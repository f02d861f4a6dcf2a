//! The `with_*` methods on server settings.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use super::{
    AuditSettings, AuthSettings, CollisionPolicy, Config, EraChoice, GatewayLimits, GatewaySettings, HttpServer,
    Isolation, JwtAlgorithm, JwtSettings, LogTarget, OAuthSettings, OperatorTokens, PrefixMode, PrincipalLimits,
    ProfileSettings, Rate, ReconnectPolicy, ResourceSettings, Sandbox, SandboxLauncher, SandboxMode, ServerConfig,
    ServerEntry, ServerLimits, ServerTimeouts, StartMode, StdioServer, TlsSettings, TokenCommand, ToolOverride,
    ToolSettings, Transport,
};
use ropeway_core::secret::{Redactor, Secret};
use ropeway_core::setters::setters;
use ropeway_core::tool::Alias;

setters!(Config {
    with_collisions => collisions: CollisionPolicy,
    with_gateway => gateway: GatewaySettings,
});

setters!(ServerConfig {
    with_alias => alias: Alias,
    with_era => era: EraChoice,
    with_timeouts => timeouts: ServerTimeouts,
    with_limits => limits: ServerLimits,
    with_reconnect => reconnect: ReconnectPolicy,
    with_redactor => redactor: Redactor,
});

impl ServerConfig {
    /// Sets the sandbox's [launcher](Sandbox::with_launcher), if the server has a sandbox without one.
    #[must_use]
    pub fn with_sandbox_launcher(mut self, program: impl Into<PathBuf>) -> Self {
        if let Transport::Stdio(StdioServer { sandbox: Some(sandbox), .. }) = &mut self.transport {
            sandbox.launcher.get_or_insert_with(|| SandboxLauncher::new(program));
        }
        self
    }
}

setters!(StdioServer {
    with_cwd => cwd: Option<PathBuf>,
    with_base_dir => base_dir: Option<PathBuf>,
    with_inherit_env => inherit_env: bool,
    with_sandbox => sandbox: Option<Sandbox>,
});

setters!(Sandbox {
    with_network => network: bool,
    with_unix_sockets => unix_sockets: bool,
    with_memory => memory: Option<u64>,
    with_processes => processes: Option<u64>,
    with_files => files: Option<u64>,
});

setters!(Sandbox {
    /// Sets the behavior if the system does not support a restriction.
    with_mode(mode: SandboxMode) => mode = mode;
});

setters!(HttpServer {
    with_sse_fallback => sse_fallback: bool,
});

setters!(HttpServer {
    /// Sets the server's OAuth settings. Without them, a server that needs a sign-in is used with default settings.
    with_oauth(settings: OAuthSettings) => auth = Some(settings.into());
    /// Sends the access tokens that a command prints.
    with_token_command(command: TokenCommand) => auth = Some(command.into());
});

setters!(ServerTimeouts {
    with_connect => connect: Duration,
    with_download => download: Duration,
    with_probe => probe: Duration,
    with_idle => idle: Duration,
    with_total => total: Duration,
    with_close => close: Duration,
    with_grace => grace: Duration,
});

setters!(ServerLimits {
    with_message_bytes => message_bytes: usize,
    with_pages => pages: usize,
    with_list_entries => list_entries: usize,
    with_list_bytes => list_bytes: usize,
    with_input_rounds => input_rounds: usize,
    with_questions => questions: usize,
    with_stderr_bytes => stderr_bytes: usize,
});

setters!(ReconnectPolicy {
    with_enabled => enabled: bool,
    with_initial_delay => initial_delay: Duration,
    with_max_delay => max_delay: Duration,
});

setters!(ServerEntry {
    with_enabled => enabled: bool,
    with_required => required: bool,
    with_start => start: StartMode,
    with_prefix => prefix: String,
    with_description_prefix => description_prefix: Option<String>,
    with_tools => tools: ToolSettings,
    with_resources => resources: ResourceSettings,
    with_prompt_tools => prompt_tools: bool,
    with_instructions => instructions: bool,
    with_trust_hints => trust_hints: bool,
    with_isolation => isolation: Isolation,
});

setters!(GatewaySettings {
    with_name => name: String,
    with_instructions => instructions: Option<String>,
    with_prefix => prefix: PrefixMode,
    with_allowed_hosts => allowed_hosts: Vec<String>,
    with_allowed_origins => allowed_origins: Vec<String>,
    with_keys => keys: Vec<Secret>,
    with_page_size => page_size: usize,
    with_list_timeout => list_timeout: Duration,
    with_session_life => session_life: Duration,
    with_page => page: bool,
    with_limits => limits: GatewayLimits,
    with_audit => audit: Option<AuditSettings>,
    with_principal_limits => principal_limits: PrincipalLimits,
    with_profiles => profiles: Vec<ProfileSettings>,
});

setters!(GatewaySettings {
    /// Serves HTTPS with the certificate chain and private key in these files, which are in PEM format. They are read again when
    /// they change.
    with_tls(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) => tls = Some(TlsSettings::new(certificate, key));
    /// Writes one line for each HTTP request to a file, which is created with mode 0600.
    with_access_log(file: impl Into<PathBuf>) => access_log = Some(LogTarget::File(file.into()));
    /// Accepts clients with a key from this file, which `ropeway key` changes.
    with_keys_file(file: impl Into<PathBuf>) => auth.keys_file = Some(file.into());
    /// Accepts clients with an access token from an authorization server.
    with_jwt(jwt: JwtSettings) => auth.jwt = Some(jwt);
    /// Sets how clients prove their identity.
    with_auth(auth: AuthSettings) => auth = auth;
});

setters!(AuditSettings {
    with_arguments => arguments: bool,
});

setters!(GatewayLimits {
    with_body => body: usize,
    with_message => message: usize,
    with_sessions => sessions: usize,
    with_connections => connections: usize,
    with_calls_per_client => calls_per_client: usize,
    with_calls => calls: usize,
    with_streams_per_client => streams_per_client: usize,
    with_parked => parked: usize,
    with_parked_for => parked_for: Duration,
    with_isolated => isolated: usize,
    with_isolated_idle => isolated_idle: Duration,
});

setters!(AuthSettings {
    with_keys_file => keys_file: Option<PathBuf>,
    with_jwt => jwt: Option<JwtSettings>,
});

setters!(JwtSettings {
    with_audience => audience: Vec<String>,
    with_resource => resource: Option<String>,
    with_jwks_url => jwks_url: Option<String>,
    with_clock_skew => clock_skew: Duration,
    with_principal_claim => principal_claim: String,
    with_scopes => scopes: Vec<String>,
    with_profiles => profiles: Option<Vec<String>>,
    with_tools => tools: Option<Vec<String>>,
    with_operators => operators: Option<OperatorTokens>,
});

setters!(JwtSettings {
    /// Sets the accepted signature algorithms.
    with_algorithms(algorithms: Vec<JwtAlgorithm>) => algorithms = algorithms;
});

setters!(PrincipalLimits {
    with_rate => rate: Option<Rate>,
    with_calls => calls: Option<usize>,
    with_sessions => sessions: Option<usize>,
    with_body => body: Option<usize>,
    with_result => result: Option<usize>,
});

setters!(ProfileSettings {
    with_servers => servers: Option<Vec<Alias>>,
    with_tools => tools: ToolSettings,
    with_prefix => prefix: Option<PrefixMode>,
    with_search => search: bool,
});

setters!(ToolSettings {
    with_allow => allow: Vec<String>,
    with_deny => deny: Vec<String>,
    with_overrides => overrides: Vec<(String, ToolOverride)>,
});

setters!(ToolOverride {
    with_name => name: Option<String>,
    with_name_prefix => name_prefix: Option<String>,
    with_description => description: Option<String>,
    with_description_prefix => description_prefix: Option<String>,
    with_hide => hide: Vec<String>,
    with_preset => preset: Map<String, Value>,
    with_provider_options => provider_options: BTreeMap<String, Value>,
});

setters!(ResourceSettings {
    with_tools => tools: bool,
    with_context => context: Vec<String>,
    with_context_bytes => context_bytes: usize,
});
