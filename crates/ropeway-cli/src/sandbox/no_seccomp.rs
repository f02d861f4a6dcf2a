//! Architectures for which system call filters cannot be compiled.

use ropeway_config::SandboxProfile;

use super::access::FileAccess;

/// Returns `false`: filters are not supported.
pub(super) fn is_supported() -> bool {
    false
}

/// Does nothing, which [`is_supported`] has reported.
pub(super) fn restrict(_: &SandboxProfile, _: &FileAccess) -> Result<(), String> {
    Ok(())
}
