//! Who may sign in to a server, and for which account.

use std::path::Path;

use crate::client::principal::Principal;
use crate::shared::{GatewayShared, permitted};
use crate::upstream::sign_in::AccountKey;
use ropeway_core::tool::Alias;

/// Why a principal may not sign in to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignInDenied {
    /// The server does not exist, the principal may not use it, or it has no sign-in.
    Unknown,
    /// All principals share the account, and this one is not an operator.
    NotOperator,
}

impl SignInDenied {
    /// Returns the rule's name in the audit log.
    pub(crate) fn rule(self) -> &'static str {
        match self {
            Self::Unknown => "servers",
            Self::NotOperator => "operators",
        }
    }
}

/// Returns the account that a principal may sign in to: its own one, or the shared one if it is an operator.
pub(crate) fn sign_in_account(
    shared: &GatewayShared,
    principal: &Principal,
    server: &Alias,
) -> Result<AccountKey, SignInDenied> {
    if !may_use(shared, principal, server) || shared.bridge.sign_in_target(server).is_none() {
        return Err(SignInDenied::Unknown);
    }
    match shared.upstreams.account(server, principal) {
        None if !principal.is_operator() => Err(SignInDenied::NotOperator),
        account => Ok((server.clone(), account)),
    }
}

/// Returns `true` if a principal may use a server in one of its profiles, or operates all servers.
fn may_use(shared: &GatewayShared, principal: &Principal, server: &Alias) -> bool {
    let routers = shared.routers();
    let mut allowed = routers.all().filter(|router| principal.allows_profile(&router.profile.name));
    principal.is_operator()
        || !principal.is_restricted()
        || allowed.any(|router| permitted(router.clone(), principal).has_server(server))
}

/// Returns the command that signs in to an account on the gateway's machine.
pub(crate) fn login_command(shared: &GatewayShared, server: &Alias, account: Option<&str>) -> String {
    command(server, account, shared.config_file.as_deref())
}

fn command(server: &Alias, account: Option<&str>, config: Option<&Path>) -> String {
    let account = account.map(|account| format!(" --account {}", quoted(account))).unwrap_or_default();
    let config = config.map(|path| format!(" --config {}", shown_path(path))).unwrap_or_default();
    format!("ropeway login {server}{account}{config}")
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Returns a path as a word for a shell, quoted if necessary.
fn shown_path(path: &Path) -> String {
    let text = path.to_string_lossy();
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+@:".contains(&byte));
    if is_plain { text.into_owned() } else { quoted(&text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_command_quotes_the_account_and_the_file() {
        let command = |account, file: Option<&str>| command(&Alias::new("web"), account, file.map(Path::new));
        assert_eq!(command(None, None), "ropeway login web");
        assert_eq!(command(Some("key:o'neil"), None), r"ropeway login web --account 'key:o'\''neil'");
        let plain = command(Some("key:ann"), Some("/etc/ropeway.yaml"));
        assert_eq!(plain, "ropeway login web --account 'key:ann' --config /etc/ropeway.yaml");
        assert_eq!(command(None, Some("/a b/$x.yaml")), "ropeway login web --config '/a b/$x.yaml'");
    }
}
