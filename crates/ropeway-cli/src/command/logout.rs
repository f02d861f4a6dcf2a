//! `ropeway logout`: revokes and removes stored sign-ins.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use ropeway_config::OAuthSettings;
use ropeway_core::duration::format_duration;
use ropeway_mcp::oauth::store::{CredentialsSummary, canonical_server};
use ropeway_mcp::oauth::{Revocation, TokenStore, revoke};
use serde_json::{Value, json};

use crate::connect::command_context::CommandContext;
use crate::failure::{Exit, Failure, chain_text};
use crate::output::print::{print, print_json, say};
use crate::sign_in::failure::{redact_credentials, store_failure};
use crate::sign_in::target::{SignInTarget, configured_targets};
use crate::terminal::style::warning;
use crate::terminal::text::clean_line;

/// Appended to `--help`.
pub(super) const EXAMPLES: &str = "\
Examples:
  ropeway logout github
  ropeway logout github --account key:alice
  ropeway logout github --all
  ropeway logout --all

The tokens are revoked at the authorization server if it supports revocation, and are always removed from this machine.";

/// Time limit for revoking one sign-in.
const REVOKE_TIMEOUT: Duration = Duration::from_secs(15);

/// Sign out of a server
///
/// Revokes the tokens of a sign-in, and removes them from this machine.
#[derive(Debug, clap::Args)]
pub(super) struct Logout {
    /// Name of a server in the configuration, or its URL
    #[arg(value_name = "SERVER", required_unless_present = "all")]
    server: Option<String>,
    /// Account to sign out
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    account: Option<String>,
    /// All accounts of the server, or of all servers if none is given
    #[arg(long)]
    all: bool,
    /// Configuration file, if not the one in use
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// A sign-in that was removed.
struct Removed {
    server: String,
    /// The server's name in the configuration.
    name: Option<String>,
    account: Option<String>,
    /// What the authorization server did; `None` if it did not respond, or if the tokens could not be read.
    revocation: Option<Revocation>,
    /// When the access token expires.
    expires_at: Option<SystemTime>,
    /// Why a token was not revoked.
    problem: Option<String>,
}

impl Logout {
    pub(super) async fn run(self, context: CommandContext) -> Result<Exit, Failure> {
        let store = TokenStore::default_location().map_err(|error| store_failure(&error))?;
        let target = match &self.server {
            Some(server) => Some(SignInTarget::find(server, self.config.as_deref(), &context)?),
            None => None,
        };
        let targets = match &target {
            Some(target) => vec![target.clone()],
            None => configured_targets(self.config.as_deref(), &context)?,
        };
        let wanted = match &target {
            Some(target) if !self.all => {
                let account = self.account.clone().or_else(|| target.settings().account);
                vec![(canonical_server(&target.url), account)]
            }
            _ => listed(&store, target.as_ref()).await?,
        };
        let mut removed = Vec::new();
        for (server, account) in wanted {
            let of = SignInTarget::of_sign_in(&targets, &server, account.as_deref());
            let settings = of.map(SignInTarget::settings).unwrap_or_default();
            let done = sign_out(&store, server, account, &settings).await?;
            let name = of.map(|target| target.name.clone());
            removed.extend(done.map(|done| Removed { name, ..done }));
        }
        if target.is_none() {
            // Also removes damaged entries, which are not listed.
            store.remove_all().await.map_err(|error| store_failure(&error))?;
        }
        report(&removed, target.as_ref(), context.json)
    }
}

/// Returns a server's stored sign-ins, or all.
async fn listed(store: &TokenStore, target: Option<&SignInTarget>) -> Result<Vec<(String, Option<String>)>, Failure> {
    let list = store.list().await.map_err(|error| store_failure(&error))?;
    let is_wanted = |entry: &CredentialsSummary| target.is_none_or(|target| target.is_of(&entry.server));
    let wanted = list.entries.into_iter().filter(is_wanted);
    Ok(wanted.map(|entry| (entry.server, entry.account)).collect())
}

/// Removes a sign-in, then revokes its tokens. Returns `None` if it does not exist.
async fn sign_out(
    store: &TokenStore,
    server: String,
    account: Option<String>,
    settings: &OAuthSettings,
) -> Result<Option<Removed>, Failure> {
    // A refresh in another process would store new tokens afterwards. One that hangs must not prevent the removal.
    let lock = store.lock_within(&server, account.as_deref(), Duration::from_secs(10)).await.ok();
    let loaded = store.load(&server, account.as_deref()).await;
    let is_removed = store.remove(&server, account.as_deref()).await.map_err(|error| store_failure(&error))?;
    drop(lock);
    let mut removed = Removed { server, name: None, account, revocation: None, expires_at: None, problem: None };
    match loaded {
        Ok(Some(credentials)) => {
            redact_credentials(&credentials);
            removed.expires_at = credentials.tokens.expires_at;
            match tokio::time::timeout(REVOKE_TIMEOUT, revoke(&credentials, settings)).await {
                Ok(Ok(revocation)) => {
                    removed.problem = revocation.problem.as_ref().map(|error| chain_text(error));
                    removed.revocation = Some(revocation);
                }
                Ok(Err(error)) => removed.problem = Some(chain_text(&error)),
                Err(_) => removed.problem = Some("the authorization server did not respond".to_owned()),
            }
        }
        Ok(None) if !is_removed => return Ok(None),
        Ok(None) => {}
        Err(error) => removed.problem = Some(chain_text(&error)),
    }
    Ok(Some(removed))
}

/// Describes what was revoked, and how long the other token may stay valid.
fn describe(revocation: Option<&Revocation>, expires_at: Option<SystemTime>, now: SystemTime) -> String {
    let Some(revocation) = revocation else { return "tokens not revoked".to_owned() };
    let end = match expires_at.map(|expires| expires.duration_since(now)) {
        Some(Ok(left)) => format!("for {}", format_duration(left)),
        Some(Err(_)) | None => "until it expires".to_owned(),
    };
    match (revocation.refresh_token, revocation.access_token) {
        _ if !revocation.is_supported => {
            "the authorization server does not support revocation; the tokens stay valid until they expire".to_owned()
        }
        (Some(true), true) => "tokens revoked".to_owned(),
        (None, true) => "access token revoked".to_owned(),
        (Some(true), false) => format!("refresh token revoked; the access token may stay valid {end}"),
        (Some(false), true) => "access token revoked; the refresh token may stay valid until it expires".to_owned(),
        (Some(false) | None, false) => "tokens not revoked".to_owned(),
    }
}

/// Returns a removed sign-in as JSON. `revoked` is `null` if the authorization server has no revocation.
fn document(removed: &Removed) -> Value {
    let of = |read: fn(&Revocation) -> Option<bool>| removed.revocation.as_ref().map_or(Some(false), read);
    let is_revoked = of(|revocation| {
        let all = revocation.refresh_token.unwrap_or(true) && revocation.access_token;
        revocation.is_supported.then_some(all)
    });
    json!({
        "name": removed.name,
        "server": removed.server,
        "account": removed.account,
        "revoked": is_revoked,
        "refresh_token_revoked": of(|revocation| revocation.refresh_token),
        "access_token_revoked": of(|revocation| Some(revocation.access_token)),
        "problem": removed.problem,
    })
}

fn report(removed: &[Removed], target: Option<&SignInTarget>, json: bool) -> Result<Exit, Failure> {
    if json {
        print_json(&json!({"removed": removed.iter().map(document).collect::<Vec<_>>()}))?;
        return Ok(Exit::Done);
    }
    if removed.is_empty() {
        match target {
            Some(target) => print(&format!("not signed in to `{}`\n", clean_line(&target.name)))?,
            None => print("not signed in to any server\n")?,
        }
    }
    for Removed { server, name, account, revocation, expires_at, problem } in removed {
        let name = name.as_ref().unwrap_or(server);
        let account = account.as_deref().map(|account| format!(" as `{account}`")).unwrap_or_default();
        let note = describe(revocation.as_ref(), *expires_at, SystemTime::now());
        print(&format!("{}\n", clean_line(&format!("signed out of `{name}`{account} · {note}"))))?;
        if let Some(problem) = problem {
            say(&warning(&format!("tokens of `{name}` may stay valid until they expire: {problem}")));
        }
    }
    Ok(Exit::Done)
}
