//! A gateway's principals: one record for each id, so that all requests by a principal share its limits.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::client::principal::{Grant, Principal};
use crate::client::shares::Shares;
use ropeway_core::sync::lock;

/// Maximum number of principals that are remembered while nothing uses them.
const MAX_UNUSED: usize = 10_000;

/// All principals by their ids.
pub(crate) struct Principals {
    table: Mutex<HashMap<Box<str>, Principal>>,
    shares: Shares,
    /// Number of principals with keys.
    keys: AtomicUsize,
    /// Whether tokens are accepted, whose principals are not known in advance.
    has_tokens: AtomicBool,
}

impl Principals {
    pub(crate) fn new(shares: Shares) -> Self {
        Self { table: Mutex::default(), shares, keys: AtomicUsize::new(0), has_tokens: AtomicBool::new(false) }
    }

    /// Sets the number of principals with keys.
    pub(crate) fn set_keys(&self, keys: usize) {
        self.keys.store(keys, Ordering::Relaxed);
        self.update_shares();
    }

    /// Sets whether tokens are accepted.
    pub(crate) fn set_tokens(&self, has_tokens: bool) {
        self.has_tokens.store(has_tokens, Ordering::Relaxed);
        self.update_shares();
    }

    /// Lets the only principal hold everything.
    fn update_shares(&self) {
        let is_alone = self.keys.load(Ordering::Relaxed) == 1 && !self.has_tokens.load(Ordering::Relaxed);
        self.shares.set_one_principal(is_alone);
    }

    /// Returns the principal with an id, with these rights and limits from now on.
    pub(crate) fn enter(&self, id: &str, grant: Grant) -> Principal {
        let mut principals = lock(&self.table);
        let before = principals.get(id).cloned();
        if let Some(principal) = &before {
            if !principal.revoked().is_cancelled() && principal.key_id() == grant.key_id {
                principal.set_grant(grant);
                return principal.clone();
            }
            // Another key with the same name replaces it, or a new token.
            principal.revoke();
        }
        if principals.len() >= MAX_UNUSED {
            principals.retain(|_, principal| !principal.is_unused());
        }
        let principal = match before {
            Some(before) => before.successor(grant),
            None => Principal::new(id, grant),
        };
        principals.insert(id.into(), principal.clone());
        principal
    }

    /// Ends streams whose principals' tokens have expired.
    pub(crate) fn end_streams(&self, now: u64) {
        let mut principals = lock(&self.table);
        principals.retain(|_, principal| {
            let has_expired = principal.has_expired(now);
            if has_expired {
                principal.revoke();
            }
            // What its clients still hold counts for its next token, too.
            !has_expired || !principal.is_unused()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::shares::Resource;
    use ropeway_config::GatewayLimits;

    impl Default for Principals {
        fn default() -> Self {
            Self::new(Shares::new(&GatewayLimits::default()))
        }
    }

    #[test]
    fn requests_of_one_principal_share_its_record() {
        let principals = Principals::default();
        let first = principals.enter("key:a", Grant::default());
        let limits = ropeway_config::PrincipalLimits::default().with_calls(Some(1));
        let second = principals.enter("key:a", Grant { limits, ..Grant::default() });
        assert_eq!((first.limits().calls, second.limits().calls), (Some(1), Some(1)));
        assert_eq!(first.holdings().address(), second.holdings().address());
    }

    #[test]
    fn principals_that_nothing_uses_are_forgotten() {
        let principals = Principals::default();
        let kept = principals.enter("jwt:0", Grant::default());
        for number in 1..=2 * MAX_UNUSED {
            principals.enter(&format!("jwt:{number}"), Grant::default());
        }
        assert!(lock(&principals.table).len() <= MAX_UNUSED + 1);
        assert!(principals.enter("jwt:0", Grant::default()) == kept);
    }

    #[test]
    fn streams_end_when_the_last_token_of_a_principal_expires() {
        let principals = Principals::default();
        let (keyed, signed_in) =
            (principals.enter("key:a", Grant::default()), principals.enter("jwt:a", Grant::default()));
        signed_in.extend(200);
        signed_in.extend(100);
        principals.end_streams(199);
        assert!(!signed_in.revoked().is_cancelled());
        principals.end_streams(200);
        assert!(signed_in.revoked().is_cancelled() && !keyed.revoked().is_cancelled());
        // A new token makes a new record, and what the old record's clients hold still counts.
        let shares = Shares::new(&GatewayLimits { sessions: 8, ..GatewayLimits::default() });
        let _session = shares.take(Resource::Sessions, signed_in.holdings(), 1).expect("room");
        let renewed = principals.enter("jwt:a", Grant::default());
        assert!(!renewed.revoked().is_cancelled());
        assert_eq!(renewed.holdings().held(Resource::Sessions), 1);
    }
}
