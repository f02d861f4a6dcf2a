//! Sign-ins to servers, for the web page.

use serde::Serialize;

use crate::client::principal::Principal;
use crate::shared::GatewayShared;
use crate::upstream::sign_in_rights::{login_command, sign_in_account};
use ropeway_bridge::registry::{ServerState, ServerStatus};
use ropeway_core::event::timestamp;
use ropeway_mcp::oauth::store::{CredentialsSummary, canonical_server};

/// A principal's sign-in to a server.
#[derive(Serialize)]
pub(super) struct LoginRecord {
    /// Whether calls need a sign-in now, or one waits for it.
    needed: bool,
    /// Whether tokens are stored.
    signed_in: bool,
    /// Whether the principal may sign in here.
    allowed: bool,
    /// The account, if each principal has its own tokens.
    account: Option<String>,
    issuer: Option<String>,
    /// When the access token expires. It is refreshed if possible.
    expires: Option<String>,
    refreshable: bool,
    /// Whether a sign-in was started on the page and is not finished.
    in_progress: bool,
    /// Why the latest sign-in on the page failed.
    failure: Option<String>,
    /// The command that signs in on the gateway's machine. Only operators get it for a shared account.
    command: Option<String>,
}

/// The stored sign-ins at one moment.
pub(super) struct Logins(Vec<CredentialsSummary>);

impl Logins {
    pub(super) async fn read(shared: &GatewayShared) -> Self {
        let listed = shared.sign_ins.store.list().await;
        Self(listed.map(|list| list.entries).unwrap_or_else(|error| {
            tracing::debug!("could not list the stored tokens: {error}");
            Vec::new()
        }))
    }

    /// Describes the sign-in to a server, if users can sign in to it.
    pub(super) fn of(
        &self,
        shared: &GatewayShared,
        principal: &Principal,
        status: &ServerStatus,
    ) -> Option<LoginRecord> {
        let target = shared.bridge.sign_in_target(&status.server)?;
        let account = shared.upstreams.account(&status.server, principal);
        let url = canonical_server(&target.url);
        let stored_as = account.as_deref().or(target.settings.account.as_deref());
        let is_own = |entry: &&CredentialsSummary| entry.server == url && entry.account.as_deref() == stored_as;
        let stored = self.0.iter().find(is_own);
        let key = sign_in_account(shared, principal, &status.server).ok();
        let progress = key.as_ref().map(|key| shared.sign_ins.progress(key)).unwrap_or_default();
        let is_refused = matches!(status.state, ServerState::NeedsAuth);
        // The shared account concerns all principals: only operators see and change it.
        let is_shown = account.is_some() || principal.is_operator();
        let shown = stored.filter(|_| is_shown);
        // A connected server's tokens may lack a scope that a call needs.
        let is_awaited = key.as_ref().is_some_and(|key| shared.sign_ins.waiting.has_call(key));
        Some(LoginRecord {
            needed: is_awaited || if account.is_some() { stored.is_none() } else { is_refused },
            signed_in: stored.is_some(),
            allowed: key.is_some(),
            in_progress: progress.is_open,
            failure: progress.failure.map(|reason| reason.to_string()),
            issuer: shown.map(|entry| entry.issuer.clone()),
            expires: shown.and_then(|entry| entry.expires_at).map(timestamp),
            refreshable: shown.is_some_and(|entry| entry.refreshable),
            command: is_shown.then(|| login_command(shared, &status.server, account.as_deref())),
            account: account.map(|account| account.to_string()),
        })
    }
}
