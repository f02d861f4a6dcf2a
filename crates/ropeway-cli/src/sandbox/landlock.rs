//! Restricts files, TCP ports, signals and abstract sockets with Landlock.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use ::landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, PathBeneath, RestrictSelf,
    RestrictSelfAttr as _, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};
use ropeway_config::SandboxProfile;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2};
use rustix::io::Errno;

use super::access::FileAccess;

/// The newest version whose rights are used. Older kernels use the rights that they know; see [`version`].
const NEWEST: ABI = ABI::V9;

/// All versions, newest first.
const VERSIONS: [ABI; 9] = [ABI::V9, ABI::V8, ABI::V7, ABI::V6, ABI::V5, ABI::V4, ABI::V3, ABI::V2, ABI::V1];

/// Returns the newest version that the kernel supports, or 0.
pub(super) fn version() -> u8 {
    VERSIONS.into_iter().find(|version| supports(*version)).map_or(0, |version| version as u8)
}

/// Returns `true` if the kernel knows everything that a version has added.
fn supports(version: ABI) -> bool {
    let strict = || Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let flags = || RestrictSelf::default().set_compatibility(CompatLevel::HardRequirement);
    let files = strict().handle_access(AccessFs::from_all(version)).is_ok();
    let ports = version < ABI::V4 || strict().handle_access(AccessNet::from_all(version)).is_ok();
    let scopes = version < ABI::V6 || strict().scope(Scope::from_all(version)).is_ok();
    let logs = version < ABI::V7 || flags().log_subdomains(false).is_ok();
    let threads = version < ABI::V8 || flags().all_threads(true).is_ok();
    files && ports && scopes && logs && threads
}

/// Restricts this process.
pub(super) fn restrict(profile: &SandboxProfile, access: &FileAccess) -> Result<(), String> {
    match try_restrict(profile, access) {
        Ok(RulesetStatus::NotEnforced) => Err("files are not restricted".to_owned()),
        Ok(RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced) => Ok(()),
        Err(error) => Err(format!("could not restrict files: {error}")),
    }
}

fn try_restrict(profile: &SandboxProfile, access: &FileAccess) -> Result<RulesetStatus, RulesetError> {
    let mut handled = AccessFs::from_all(NEWEST);
    let mut scopes: BitFlags<Scope> = Scope::Signal.into();
    if profile.unix_sockets {
        handled.remove(AccessFs::ResolveUnix);
    } else {
        scopes |= Scope::AbstractUnixSocket;
    }
    let read = AccessFs::from_read(NEWEST);
    // Device files and their control commands need more than a directory that may be changed.
    let change = handled & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev);
    let mut ruleset = Ruleset::default().handle_access(handled)?.scope(scopes)?;
    if !profile.network {
        ruleset = ruleset.handle_access(AccessNet::from_all(NEWEST))?;
    }
    let status = ruleset
        .create()?
        .add_rules(rules(&access.read, read))?
        .add_rules(rules(&access.write, change))?
        .restrict_self()?;
    Ok(status.ruleset)
}

/// Returns the rules for paths. Those that do not exist are left out.
fn rules(
    paths: &[PathBuf],
    access: BitFlags<AccessFs>,
) -> impl Iterator<Item = Result<PathBeneath<OwnedFd>, RulesetError>> {
    paths.iter().filter_map(move |path| {
        let place = open_without_links(path).ok()?;
        let is_folder = FileType::from_raw_mode(fstat(&place).ok()?.st_mode) == FileType::Directory;
        let access = if is_folder { access } else { access & AccessFs::from_file(NEWEST) };
        Some(Ok(PathBeneath::new(place, access)))
    })
}

/// Opens a path that was resolved before. Does not follow a link that has replaced a part of it meanwhile.
fn open_without_links(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // A sandbox around this one may lack the call.
        Err(Errno::NOSYS | Errno::PERM) => open(path, flags | OFlags::NOFOLLOW, Mode::empty()),
        opened => opened,
    }
}
