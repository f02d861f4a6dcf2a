//! The principal of a request: its identity, its rights and its limits.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::client::shares::Holdings;
use ropeway_config::{Glob, PrincipalLimits, Rate};
use ropeway_core::sync::{lock, read, write};
use ropeway_core::tool::{Alias, CancelToken};
use ropeway_mcp::RateLimit;

/// The identity that a client has proven. Cloning is cheap.
///
/// All clients with the same id share one record, so that a change to their rights takes effect at once, and their limits count
/// for all clients together.
#[derive(Clone)]
pub(crate) struct Principal {
    record: Arc<PrincipalRecord>,
    /// Until when this request's token makes its principal an operator, in seconds since 1970. It belongs to the token and not to
    /// the record: the user's other tokens may not have the scope.
    operator_until: u64,
}

struct PrincipalRecord {
    id: Arc<str>,
    grant: RwLock<Arc<Grant>>,
    /// The token bucket, and its rate.
    bucket: Mutex<Option<(Rate, RateLimit)>>,
    /// What its clients hold in the gateway's tables.
    holdings: Holdings,
    /// When the last of its tokens expires, in seconds since 1970; 0 for principals without tokens.
    valid_until: AtomicU64,
    /// Cancelled when the principal's key is revoked, or when its key or token has expired.
    revoked: CancelToken,
}

/// A principal's rights and limits.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Grant {
    /// The public part of the principal's key.
    pub(crate) key_id: Option<Arc<str>>,
    /// Whether the principal is an operator, whichever token it has.
    pub(crate) is_operator: bool,
    /// The profiles and servers that the principal may select. `None` allows all.
    pub(crate) profiles: Option<Vec<String>>,
    /// The tools that the principal may use. `None` allows all.
    pub(crate) tools: Option<Arc<ToolAccess>>,
    pub(crate) limits: PrincipalLimits,
}

/// The tools that a principal may use.
#[derive(Debug)]
pub(crate) struct ToolAccess {
    /// Unique within the process.
    id: u64,
    patterns: Vec<String>,
    globs: Vec<AccessGlob>,
}

#[derive(Debug)]
enum AccessGlob {
    /// A glob over the server's own tool names.
    Tool(Glob),
    /// `SERVER.TOOL`: a glob over servers, unless it matches every server for some tools only, and a glob over the whole name.
    Qualified { server: Option<Glob>, whole: Glob },
}

impl PartialEq for ToolAccess {
    fn eq(&self, other: &Self) -> bool {
        self.patterns == other.patterns
    }
}

impl ToolAccess {
    /// Compiles globs. Fails with the first one that is invalid.
    pub(crate) fn new(patterns: &[String]) -> Result<Self, String> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let compile = |pattern: &String| {
            let whole = Glob::new(pattern).map_err(|error| format!("`{}`: {error}", pattern.escape_debug()))?;
            Ok(match pattern.split_once('.') {
                // A pattern with a dot never matches another server's tool whose own name happens to contain the dot.
                Some((server, tool)) => {
                    let names_servers = server != "*" || tool == "*";
                    let server = Glob::new(server).ok().filter(|_| names_servers);
                    AccessGlob::Qualified { server, whole }
                }
                None => AccessGlob::Tool(whole),
            })
        };
        let globs = patterns.iter().map(compile).collect::<Result<_, String>>()?;
        Ok(Self { id: NEXT.fetch_add(1, Ordering::Relaxed), patterns: patterns.to_vec(), globs })
    }

    /// Compiles globs. If any glob is invalid, no tool is allowed.
    pub(crate) fn new_or_none(patterns: &[String]) -> Self {
        Self::new(patterns).unwrap_or_else(|problem| {
            tracing::warn!("no tool is allowed, because of the glob {problem}");
            Self { id: 0, patterns: Vec::new(), globs: Vec::new() }
        })
    }

    /// Returns a number that identifies these globs.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Returns `true` if the principal may use a tool, given by the server's own tool name.
    pub(crate) fn allows(&self, server: &Alias, own_name: &str) -> bool {
        self.globs.iter().any(|glob| match glob {
            AccessGlob::Tool(glob) => glob.matches(own_name),
            AccessGlob::Qualified { whole, .. } => whole.matches(&format!("{server}.{own_name}")),
        })
    }

    /// Returns `true` if a glob names the server, whichever tools it has.
    pub(crate) fn names_server(&self, server: &Alias) -> bool {
        self.globs.iter().any(|glob| match glob {
            AccessGlob::Tool(_) => false,
            AccessGlob::Qualified { server: named, .. } => {
                named.as_ref().is_some_and(|named| named.matches(server.as_str()))
            }
        }) || self.patterns.iter().any(|pattern| pattern == "*")
    }
}

impl Principal {
    pub(crate) fn new(id: &str, grant: Grant) -> Self {
        Self::with_holdings(id, grant, Holdings::new(!id.is_empty()))
    }

    fn with_holdings(id: &str, grant: Grant, holdings: Holdings) -> Self {
        let record = PrincipalRecord {
            id: id.into(),
            grant: RwLock::new(Arc::new(grant)),
            bucket: Mutex::default(),
            holdings,
            valid_until: AtomicU64::new(0),
            revoked: CancelToken::new(),
        };
        Self { record: Arc::new(record), operator_until: 0 }
    }

    /// Returns the principal with an operator's rights until a time, in seconds since 1970, as its token grants.
    pub(crate) fn with_operator_until(self, time: u64) -> Self {
        Self { operator_until: time, ..self }
    }

    /// Returns the principal that replaces this one: the same id with another key or token. Its clients' holdings count for both.
    pub(crate) fn successor(&self, grant: Grant) -> Self {
        Self::with_holdings(&self.record.id, grant, self.record.holdings.clone())
    }

    /// Returns the text that identifies the principal in logs, and that sealed ids are bound to: `key:NAME`, `jwt:ISSUER|SUBJECT`,
    /// or empty without authentication.
    pub(crate) fn id(&self) -> &str {
        &self.record.id
    }

    /// Returns the same text as [`id`](Self::id), shared.
    pub(crate) fn shared_id(&self) -> Arc<str> {
        self.record.id.clone()
    }

    /// Returns the public part of the principal's key.
    pub(crate) fn key_id(&self) -> Option<Arc<str>> {
        read(&self.record.grant).key_id.clone()
    }

    /// Returns the principal's current rights and limits.
    pub(crate) fn grant(&self) -> Arc<Grant> {
        read(&self.record.grant).clone()
    }

    /// Replaces the rights and limits. Equal ones stay.
    pub(crate) fn set_grant(&self, grant: Grant) {
        if *self.grant() != grant {
            *write(&self.record.grant) = Arc::new(grant);
        }
    }

    /// Returns `true` if the principal may select a profile or server.
    pub(crate) fn allows_profile(&self, name: &str) -> bool {
        read(&self.record.grant).profiles.as_ref().is_none_or(|profiles| profiles.iter().any(|profile| profile == name))
    }

    /// Returns `true` if the principal may not use everything.
    pub(crate) fn is_restricted(&self) -> bool {
        let grant = read(&self.record.grant);
        grant.profiles.is_some() || grant.tools.is_some()
    }

    /// Returns `true` if the principal may see and change what concerns all clients: metrics, statistics, events, servers'
    /// standard error, and the sign-ins to shared accounts.
    pub(crate) fn is_operator(&self) -> bool {
        read(&self.record.grant).is_operator || self.operator_until > unix_now()
    }

    /// Returns the tools that the principal may use; `None` if it may use all.
    pub(crate) fn tools(&self) -> Option<Arc<ToolAccess>> {
        read(&self.record.grant).tools.clone()
    }

    /// Returns the principal's limits.
    pub(crate) fn limits(&self) -> PrincipalLimits {
        read(&self.record.grant).limits
    }

    /// Returns what the principal's clients hold together.
    pub(crate) fn holdings(&self) -> &Holdings {
        &self.record.holdings
    }

    /// Counts a request. Fails with the time until the next one is allowed.
    pub(crate) fn take_request(&self) -> Result<(), Duration> {
        let Some(rate) = self.limits().rate else { return Ok(()) };
        let mut bucket = lock(&self.record.bucket);
        let (_, limit) = match &mut *bucket {
            Some(bucket) if bucket.0 == rate => bucket,
            other => other.insert((rate, RateLimit::per(rate.count(), rate.period()))),
        };
        limit.try_take()
    }

    /// Notes that the principal has a token that is valid until a time, in seconds since 1970.
    pub(crate) fn extend(&self, valid_until: u64) {
        self.record.valid_until.fetch_max(valid_until, Ordering::Relaxed);
    }

    /// Returns `true` if the principal had tokens, and all have expired.
    pub(crate) fn has_expired(&self, now: u64) -> bool {
        let valid_until = self.record.valid_until.load(Ordering::Relaxed);
        valid_until != 0 && valid_until <= now
    }

    /// Ends the principal's streams, because its key or token is revoked or expired.
    pub(crate) fn revoke(&self) {
        self.record.revoked.cancel();
    }

    /// Returns a cancel token that fires when the principal's key or access token is revoked or expires.
    pub(crate) fn revoked(&self) -> CancelToken {
        self.record.revoked.clone()
    }

    /// Returns `true` if both share one record. Equal principals may have different rights if one was revoked.
    pub(crate) fn is_clone(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.record, &other.record)
    }

    /// Returns `true` if only the caller holds the record.
    pub(crate) fn is_unused(&self) -> bool {
        Arc::strong_count(&self.record) == 1
    }
}

/// Returns the seconds since 1970.
fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl From<&str> for Principal {
    fn from(id: &str) -> Self {
        Self::new(id, Grant::default())
    }
}

impl PartialEq for Principal {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.record, &other.record) || self.record.id == other.record.id
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Principal").field(&self.record.id).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(patterns: &[&str]) -> ToolAccess {
        ToolAccess::new(&patterns.iter().map(ToString::to_string).collect::<Vec<_>>()).expect("globs")
    }

    #[test]
    fn a_glob_names_tools_of_all_servers_or_of_one() {
        let (git, web) = (Alias::from("git"), Alias::from("web"));
        let access = access(&["read_*", "git.log"]);
        assert!(access.allows(&git, "read_file") && access.allows(&web, "read_page"));
        assert!(access.allows(&git, "log") && !access.allows(&web, "log") && !access.allows(&git, "push"));
        assert!(access.names_server(&git) && !access.names_server(&web));
        let names_web = |pattern: &str| self::access(&[pattern]).names_server(&web);
        assert!(names_web("*") && names_web("*.*") && names_web("w*.read"));
        assert!(!names_web("read_*") && !names_web("*.read_*"));
    }

    #[test]
    fn a_tool_cannot_take_the_name_of_another_servers_tool() {
        let access = access(&["git.*"]);
        assert!(access.allows(&"git".into(), "log"));
        assert!(!access.allows(&"evil".into(), "git.log") && !access.allows(&"evil".into(), "log"));
    }

    #[test]
    fn an_invalid_glob_is_named() {
        assert!(ToolAccess::new(&["a".to_owned(), "{".to_owned()]).expect_err("an error").starts_with("`{`: "));
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_holds_for_all_clones_and_can_change() {
        let limited = |rate| Grant { limits: PrincipalLimits::default().with_rate(Some(rate)), ..Grant::default() };
        let principal = Principal::new("key:a", limited(Rate::per_second(2)));
        let clone = principal.clone();
        assert_eq!((principal.take_request(), clone.take_request()), (Ok(()), Ok(())));
        let wait = principal.take_request().expect_err("a wait");
        assert_eq!(wait, Duration::from_millis(500));
        tokio::time::sleep(wait).await;
        assert_eq!(clone.take_request(), Ok(()));
        principal.set_grant(limited(Rate::per_second(5)));
        assert_eq!((0..9).filter(|_| clone.take_request().is_ok()).count(), 5);
        principal.set_grant(Grant::default());
        assert_eq!(principal.take_request(), Ok(()));
    }
}
