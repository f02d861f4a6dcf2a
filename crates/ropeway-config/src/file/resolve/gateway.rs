//! Resolves the gateway settings.

use std::collections::HashMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::resolver::{ResolveContext, Resolver, key};
use crate::file::alias::{MAX_ALIAS, sanitize_alias};
use crate::file::node::{Entry, Node, PathStep, format_path};
use crate::file::position::Position;
use crate::file::problem::{ConfigProblem, in_backticks, nearest};
use crate::file::raw::{RawByteSize, RawDrain, RawDuration, RawGateway, RawGatewayLimits, RawProfile, RawText};
use crate::settings::{
    DrainSettings, GatewayLimits, GatewaySettings, ListenAddress, ProfileSettings, TlsSettings, decode_gateway_key,
};
use ropeway_core::secret::Secret;
use ropeway_core::tool::Alias;

const MAX_PAGE_SIZE: u32 = 10_000;
const MAX_COUNT: u32 = 1_000_000;
const MAX_KEYS: usize = 16;
const MAX_PROFILES: usize = 1_000;
const MAX_NAME: usize = 200;
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Maximum aliases that an unknown one is compared with.
const MAX_CANDIDATES: usize = 1_000;

/// Resolved gateway settings.
pub(crate) struct ResolvedGateway {
    pub(crate) gateway: GatewaySettings,
    pub(crate) warnings: Vec<String>,
    /// The files that were read for them.
    pub(crate) files: Vec<PathBuf>,
}

/// Resolves the gateway settings. `node` is their tree, `base` its path, and `aliases` are the servers in the file.
pub(crate) fn resolve_gateway(
    raw: &RawGateway,
    node: &Node,
    base: &str,
    aliases: &HashMap<String, Position>,
    context: &ResolveContext<'_>,
) -> Result<ResolvedGateway, Vec<ConfigProblem>> {
    let mut resolver = Resolver::new(context, node, base);
    let default = GatewaySettings::default();
    let (keys, missing_keys) = resolver.keys(&raw.keys);
    let gateway = GatewaySettings {
        listen: resolver.listen(raw.listen.as_deref()),
        name: resolver.name_of_gateway(raw.name.as_deref()).unwrap_or(default.name),
        instructions: raw.instructions.clone(),
        prefix: raw.prefix.unwrap_or_default(),
        allowed_hosts: resolver.hosts(&raw.allowed_hosts),
        allowed_origins: resolver.origins(&raw.allowed_origins),
        keys,
        missing_keys,
        page_size: match raw.page_size {
            Some(size) if size > MAX_PAGE_SIZE => {
                resolver.out_of_range(&[key("page_size")], size, format!("at most {MAX_PAGE_SIZE}"));
                0
            }
            size => size.unwrap_or(0) as usize,
        },
        list_timeout: resolver.time(
            &["list_timeout"],
            raw.list_timeout,
            default.list_timeout,
            Duration::ZERO..=5 * MINUTE,
        ),
        session_life: resolver.time(&["session_life"], raw.session_life, default.session_life, MINUTE..=365 * DAY),
        tls: raw.tls.as_ref().map(|tls| TlsSettings::new(resolver.path(&tls.cert), resolver.path(&tls.key))),
        drain: resolver.drain(raw.drain.unwrap_or_default()),
        page: raw.page.unwrap_or(default.page),
        limits: resolver.gateway_limits(&raw.limits.unwrap_or_default()),
        audit: resolver.audit(raw.audit.as_ref()),
        access_log: resolver.access_log(raw.access_log.as_ref()),
        auth: resolver.gateway_auth(raw.auth.as_ref()),
        principal_limits: resolver.principal_limits(&raw.limits.unwrap_or_default()),
        profiles: resolver.profiles(raw, base, aliases),
    };
    if resolver.problems.is_empty() {
        Ok(ResolvedGateway { gateway, warnings: resolver.warnings, files: resolver.files })
    } else {
        Err(resolver.problems)
    }
}

impl Resolver<'_> {
    fn listen(&mut self, written: Option<&str>) -> ListenAddress {
        let Some(text) = written else { return ListenAddress::default() };
        match text.parse() {
            Ok(ListenAddress::Unix(_)) => ListenAddress::Unix(self.path(text.trim_start_matches("unix:"))),
            Ok(address) => address,
            Err(_) => {
                let port = text.trim_start_matches(':');
                let suggestion = port.parse::<u16>().is_ok().then(|| format!("127.0.0.1:{port}"));
                let expected = "an address such as `127.0.0.1:8931` or `unix:gateway.sock`";
                self.mismatch(&[key("listen")], in_backticks(text), expected, suggestion);
                ListenAddress::default()
            }
        }
    }

    fn name_of_gateway(&mut self, written: Option<&str>) -> Option<String> {
        let name = written?;
        if name.trim().is_empty() {
            self.problem(&[key("name")], "name is empty");
        } else if name.len() > MAX_NAME || name.contains(|c: char| c.is_control()) {
            let expected = format!("up to {MAX_NAME} bytes without control characters");
            self.mismatch(&[key("name")], in_backticks(name), expected, None::<String>);
        }
        Some(name.to_owned())
    }

    fn hosts(&mut self, written: &[String]) -> Vec<String> {
        for (at, host) in written.iter().enumerate() {
            if !is_host(host) {
                let bare = host.split_once("://").map_or(host.as_str(), |(_, rest)| rest).trim_end_matches('/');
                let expected = "a host name such as `gateway.local` or `gateway.local:8931`";
                let suggestion = Some(bare.to_owned()).filter(|bare| is_host(bare));
                self.mismatch(&[key("allowed_hosts"), PathStep::Index(at)], in_backticks(host), expected, suggestion);
            }
        }
        written.iter().map(|host| host.to_ascii_lowercase()).collect()
    }

    fn origins(&mut self, written: &[String]) -> Vec<String> {
        for (at, origin) in written.iter().enumerate() {
            if !is_origin(origin) {
                let scheme_and_host = origin.split_once("://").map(|(scheme, rest)| {
                    format!("{scheme}://{}", rest.split(['/', '?', '#']).next().unwrap_or_default())
                });
                let suggestion = scheme_and_host.or_else(|| Some(format!("https://{origin}")));
                let suggestion = suggestion.filter(|origin| is_origin(origin));
                let expected = "an origin such as `https://app.example`";
                self.mismatch(
                    &[key("allowed_origins"), PathStep::Index(at)],
                    in_backticks(origin),
                    expected,
                    suggestion,
                );
            }
        }
        written.iter().map(|origin| origin.to_ascii_lowercase()).collect()
    }

    /// Resolves the keys. Returns missing secret names as well.
    fn keys(&mut self, written: &[RawText]) -> (Vec<Secret>, Vec<String>) {
        if written.len() > MAX_KEYS {
            self.out_of_range(&[key("keys")], format!("{} keys", written.len()), format!("at most {MAX_KEYS}"));
            return Default::default();
        }
        let mut keys = Vec::new();
        for (at, RawText(text)) in written.iter().enumerate() {
            let steps = [key("keys"), PathStep::Index(at)];
            let missing = self.missing.names.len();
            let problems = self.problems.len();
            let value = self.text(&steps, text);
            if self.missing.names.len() > missing || self.problems.len() > problems {
                continue;
            }
            if decode_gateway_key(&value).is_none() {
                // The value is a secret.
                self.problem(&steps, "key is not 32 bytes as base64 or hex (try `openssl rand -base64 32`)");
            }
            keys.push(Secret::new(value.trim()));
        }
        (keys, std::mem::take(&mut self.missing).names)
    }

    fn gateway_limits(&mut self, raw: &RawGatewayLimits) -> GatewayLimits {
        let default = GatewayLimits::default();
        let life = Duration::from_secs(1)..=DAY;
        GatewayLimits {
            body: self.size("body", raw.body, default.body),
            message: self.size("message", raw.message, default.message),
            sessions: self.count("sessions", raw.sessions, default.sessions),
            connections: self.count("connections", raw.connections, default.connections),
            calls_per_client: self.count("calls_per_client", raw.calls_per_client, default.calls_per_client),
            calls: self.count("calls", raw.calls, default.calls),
            streams_per_client: self.count("streams_per_client", raw.streams_per_client, default.streams_per_client),
            parked: self.count("parked", raw.parked, default.parked),
            parked_for: self.time(&["limits", "parked_for"], raw.parked_for, default.parked_for, life.clone()),
            isolated: self.count("isolated", raw.isolated, default.isolated),
            isolated_idle: self.time(&["limits", "isolated_idle"], raw.isolated_idle, default.isolated_idle, life),
        }
    }

    fn drain(&mut self, raw: RawDrain) -> DrainSettings {
        let default = DrainSettings::default();
        let mut settings = default;
        settings.delay = self.time(&["drain", "delay"], raw.delay, default.delay, Duration::ZERO..=5 * MINUTE);
        settings.timeout = self.time(&["drain", "timeout"], raw.timeout, default.timeout, Duration::ZERO..=60 * MINUTE);
        settings
    }

    pub(super) fn count(&mut self, name: &str, written: Option<u32>, default: usize) -> usize {
        if let Some(count) = written.filter(|count| !(1..=MAX_COUNT).contains(count)) {
            self.out_of_range(&[key("limits"), key(name)], count, format!("1 to {MAX_COUNT}"));
        }
        written.map_or(default, |count| count as usize)
    }

    pub(super) fn size(&mut self, name: &str, written: Option<RawByteSize>, default: usize) -> usize {
        if let Some(RawByteSize(size)) = written.filter(|size| !(1 << 10..=1 << 30).contains(&size.0)) {
            self.out_of_range(&[key("limits"), key(name)], size, "`1K` to `1G`");
        }
        written.map_or(default, |RawByteSize(size)| size)
    }

    pub(super) fn time(
        &mut self,
        steps: &[&str],
        written: Option<RawDuration>,
        default: Duration,
        range: RangeInclusive<Duration>,
    ) -> Duration {
        let Some(RawDuration(time)) = written else { return default };
        if !range.contains(&time) {
            let steps: Vec<PathStep> = steps.iter().map(|step| key(step)).collect();
            let expected = format!("{} to {}", short(*range.start()), short(*range.end()));
            self.out_of_range(&steps, short(time).trim_matches('`').to_owned(), expected);
        }
        time
    }

    fn out_of_range(&mut self, steps: &[PathStep], found: impl Display, expected: impl Into<String>) {
        self.mismatch(steps, format!("`{found}`"), expected, None::<String>);
    }

    fn profiles(&mut self, raw: &RawGateway, base: &str, aliases: &HashMap<String, Position>) -> Vec<ProfileSettings> {
        let node = self.node;
        let entries = node.get("profiles").map(Node::entries).unwrap_or_default();
        if entries.len() > MAX_PROFILES {
            let found = format!("{} profiles", entries.len());
            self.out_of_range(&[key("profiles")], found, format!("at most {MAX_PROFILES}"));
            return Vec::new();
        }
        let mut profiles = Vec::new();
        for ((name, raw), entry) in raw.profiles.0.iter().zip(entries) {
            if self.is_full() {
                break;
            }
            profiles.push(self.profile(name, raw, entry, base, aliases));
        }
        profiles
    }

    fn profile(
        &mut self,
        name: &str,
        raw: &RawProfile,
        entry: &Entry,
        base: &str,
        aliases: &HashMap<String, Position>,
    ) -> ProfileSettings {
        let path = format_path(base, &[key("profiles"), key(name)]);
        let legal = sanitize_alias(name);
        if name.is_empty() || legal != name {
            let expected = format!("a name of up to {MAX_ALIAS} letters, digits, `_`, `.` and `-`");
            let problem = ConfigProblem::mismatch(entry.position, &path, in_backticks(name), expected);
            self.problems.push(problem.suggest(Some(legal).filter(|legal| !legal.is_empty())));
        }
        if let Some(Position { line, column }) = aliases.get(name) {
            let message = format!("profile {} has the name of a server ({line}:{column})", in_backticks(name));
            self.problems.push(ConfigProblem::new(entry.position, &path, message));
        }
        let mut own = Resolver::new(self.context, &entry.value, &path);
        let tools = own.tool_settings(raw.tools.as_ref(), &format!("profile `{name}`"));
        let servers = raw.servers.as_ref().map(|servers| own.profile_servers(servers, aliases));
        let Resolver { problems, warnings, .. } = own;
        self.problems.extend(problems);
        self.warnings.extend(warnings);
        ProfileSettings {
            name: name.to_owned(),
            servers,
            tools,
            prefix: raw.prefix,
            search: raw.search.unwrap_or(false),
        }
    }

    fn profile_servers(&mut self, written: &[String], aliases: &HashMap<String, Position>) -> Vec<Alias> {
        if written.is_empty() {
            self.mismatch(&[key("servers")], "an empty list", "a list of aliases", None::<String>);
        }
        let mut servers: Vec<Alias> = Vec::new();
        for (at, alias) in written.iter().enumerate() {
            if self.is_full() {
                break;
            }
            let steps = [key("servers"), PathStep::Index(at)];
            if !aliases.contains_key(alias) {
                let mut candidates: Vec<&str> = aliases.keys().map(String::as_str).take(MAX_CANDIDATES).collect();
                candidates.sort_unstable();
                let message = format!("unknown server {}", in_backticks(alias));
                self.problem_with(&steps, message, nearest(alias, candidates));
            } else if servers.iter().any(|known| known.as_str() == alias) {
                self.problem(&steps, format!("duplicate server {}", in_backticks(alias)));
            } else {
                servers.push(alias.as_str().into());
            }
        }
        servers
    }
}

/// Formats a duration as it is written in a file: `5m`.
fn short(time: Duration) -> String {
    let seconds = time.as_secs();
    match (time.subsec_millis(), seconds) {
        (0, 0) => "`0s`".to_owned(),
        (0, _) if seconds.is_multiple_of(24 * 3600) => format!("`{}d`", seconds / (24 * 3600)),
        (0, _) if seconds.is_multiple_of(3600) => format!("`{}h`", seconds / 3600),
        (0, _) if seconds.is_multiple_of(60) => format!("`{}m`", seconds / 60),
        (0, _) => format!("`{seconds}s`"),
        _ => format!("`{}ms`", time.as_millis()),
    }
}

/// Returns `true` for a host name or an IP address, with or without a port.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) if host.parse::<std::net::Ipv6Addr>().is_ok() => (host, port),
        Some(_) => return false,
        None => text.find(':').map_or((text, ""), |at| text.split_at(at)),
    };
    let is_port = |port: &str| port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':');
    !host.is_empty() && host.len() <= 253 && host.chars().all(is_name) && (port.is_empty() || is_port(port))
}

/// Returns `true` for a scheme and a host, without a path.
fn is_origin(text: &str) -> bool {
    let Some((scheme, host)) = text.split_once("://") else { return false };
    let mut letters = scheme.chars();
    let is_scheme = letters.next().is_some_and(|c| c.is_ascii_alphabetic())
        && letters.all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    is_scheme && is_host(host)
}
