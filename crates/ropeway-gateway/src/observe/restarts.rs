//! Server restarts, for the audit log.

use std::sync::Arc;
use std::time::SystemTime;

use serde::ser::{Serialize, SerializeMap as _, Serializer};

use crate::client::principal::Principal;
use ropeway_core::event::timestamp;
use ropeway_core::tool::Alias;

/// A server restart that an operator has requested, once it has ended.
#[derive(Clone, Debug)]
pub(crate) struct RestartRecord {
    time: SystemTime,
    principal: Arc<str>,
    key_id: Option<Arc<str>>,
    server: Alias,
    is_connected: bool,
}

impl RestartRecord {
    pub(crate) fn new(principal: &Principal, server: Alias, is_connected: bool) -> Self {
        let (principal, key_id) = (principal.shared_id(), principal.key_id());
        Self { time: SystemTime::now(), principal, key_id, server, is_connected }
    }
}

impl Serialize for RestartRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("time", &timestamp(self.time))?;
        map.serialize_entry("principal", &*self.principal)?;
        if let Some(key) = &self.key_id {
            map.serialize_entry("key_id", &**key)?;
        }
        map.serialize_entry("action", "restart")?;
        map.serialize_entry("server", &self.server)?;
        map.serialize_entry("decision", "allow")?;
        map.serialize_entry("outcome", if self.is_connected { "ok" } else { "error" })?;
        map.end()
    }
}
