//! Drops capabilities, which root has and other users seldom.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities};

/// Capabilities that only concern the content of files, and ports, which other restrictions cover. In containers, root often serves
/// files of other users. With further capabilities, root could change owners and permissions of any file (`CAP_CHOWN`, `CAP_FOWNER`),
/// read the memory of other processes (`CAP_PERFMON`) or raise its limits (`CAP_SYS_RESOURCE`).
const KEPT: CapabilitySet = CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::NET_BIND_SERVICE);

/// Drops all other capabilities of this process. Because of `no_new_privs`, `exec` does not restore them.
pub(super) fn restrict() -> Result<(), String> {
    let dropped = capabilities(None).and_then(|current| {
        let permitted = current.permitted & KEPT;
        let sets = CapabilitySets { effective: permitted, permitted, inheritable: CapabilitySet::empty() };
        set_capabilities(None, sets)?;
        clear_ambient_capability_set()
    });
    dropped.map_err(|error| format!("could not drop capabilities: {error}"))
}
