//! Drops capabilities, which root has and other users seldom.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities};

/// Capabilities that only concern file content, and ports, which other restrictions cover. In containers, root often serves other
/// users' files. With further capabilities, root could change any file's owner and permissions (`CAP_CHOWN`, `CAP_FOWNER`), read
/// other processes' memory (`CAP_PERFMON`) or raise its limits (`CAP_SYS_RESOURCE`).
const KEPT: CapabilitySet = CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::NET_BIND_SERVICE);

/// Drops this process's other capabilities. Because of `no_new_privs`, `exec` does not restore them.
pub(super) fn restrict() -> Result<(), String> {
    let dropped = capabilities(None).and_then(|current| {
        let permitted = current.permitted & KEPT;
        let sets = CapabilitySets { effective: permitted, permitted, inheritable: CapabilitySet::empty() };
        set_capabilities(None, sets)?;
        clear_ambient_capability_set()
    });
    dropped.map_err(|error| format!("could not drop capabilities: {error}"))
}
