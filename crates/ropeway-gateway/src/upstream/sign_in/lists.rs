//! Tool lists from servers where only principals have signed in: whose tokens listed them, and which tokens were tried.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use super::open::AccountKey;
use ropeway_core::sync::lock;
use ropeway_core::tool::Alias;
use ropeway_mcp::oauth::store::StoreStamp;

/// Maximum number of accounts whose attempts are remembered.
const MAX_TRIED: usize = 10_000;

/// The lists' state.
#[derive(Default)]
pub(crate) struct PrincipalLists {
    /// The tokens that were tried. They are tried again when they have changed.
    tried: Mutex<HashMap<AccountKey, StoreStamp>>,
    /// The accounts whose tokens have listed a server's tools.
    listers: Mutex<HashMap<Alias, Arc<str>>>,
    /// The servers that have reported changed tools.
    changed: Mutex<HashSet<Alias>>,
    /// Held while lists are refreshed in the background.
    pub(crate) refreshing: tokio::sync::Mutex<()>,
}

impl PrincipalLists {
    /// Returns `true` if an account's tokens were tried and have not changed.
    pub(crate) fn was_tried(&self, key: &AccountKey, stamp: &StoreStamp) -> bool {
        lock(&self.tried).get(key) == Some(stamp)
    }

    /// Remembers that an account's tokens were tried.
    pub(crate) fn set_tried(&self, key: &AccountKey, stamp: StoreStamp) {
        let mut tried = lock(&self.tried);
        if tried.len() >= MAX_TRIED {
            tried.clear();
        }
        tried.insert(key.clone(), stamp);
    }

    /// Returns the account that has listed a server's tools.
    pub(crate) fn lister(&self, server: &Alias) -> Option<Arc<str>> {
        lock(&self.listers).get(server).cloned()
    }

    pub(crate) fn set_lister(&self, server: &Alias, account: &Arc<str>) {
        lock(&self.listers).insert(server.clone(), account.clone());
    }

    /// Remembers that a server's tools have changed.
    pub(crate) fn set_changed(&self, server: &Alias) {
        lock(&self.changed).insert(server.clone());
    }

    /// Returns the servers whose tools have changed since the last call.
    pub(crate) fn take_changed(&self) -> HashSet<Alias> {
        std::mem::take(&mut *lock(&self.changed))
    }
}
