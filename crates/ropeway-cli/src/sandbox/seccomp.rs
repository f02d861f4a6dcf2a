//! Restricts sockets and system calls with seccomp. A refused call fails with `EPERM`.

use std::collections::BTreeMap;
use std::fs;

use ropeway_config::SandboxProfile;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

use super::access::FileAccess;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Calls that a server does not need: they inspect other processes, change the system, or reach parts of the kernel that other
/// restrictions do not cover. `io_uring` sockets would bypass this filter, and System V shared memory belongs to all the user's
/// processes.
const REFUSED: [i64; 58] = [
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_migrate_pages,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_move_pages,
    libc::SYS_msgctl,
    libc::SYS_msgget,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_semctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmget,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_userfaultfd,
    KEXEC_FILE_LOAD,
    QUOTACTL_FD,
    PROCESS_MRELEASE,
    OPEN_TREE_ATTR,
];

#[cfg(target_arch = "x86_64")]
const KEXEC_FILE_LOAD: i64 = 320;
#[cfg(not(target_arch = "x86_64"))]
const KEXEC_FILE_LOAD: i64 = 294;

// Calls that `libc` does not name on every architecture. Their numbers are the same on all.
const OPENAT2: i64 = 437;
const QUOTACTL_FD: i64 = 443;
const PROCESS_MRELEASE: i64 = 448;
const FCHMODAT2: i64 = 452;
const SETXATTRAT: i64 = 463;
const REMOVEXATTRAT: i64 = 466;
const OPEN_TREE_ATTR: i64 = 467;
const FILE_SETATTR: i64 = 469;

/// Calls that change file permissions, owners, times and attributes. Landlock does not restrict them, so they are all refused
/// to a server that may not change any file. With an open file, they need no permission to change it.
const METADATA: [i64; 15] = [
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fremovexattr,
    libc::SYS_fsetxattr,
    libc::SYS_lremovexattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_setxattr,
    libc::SYS_utimensat,
    FCHMODAT2,
    FILE_SETATTR,
    REMOVEXATTRAT,
    SETXATTRAT,
];

/// Calls that change metadata on one architecture only.
#[cfg(target_arch = "x86_64")]
const OLD_METADATA: [i64; 6] =
    [libc::SYS_chmod, libc::SYS_chown, libc::SYS_futimesat, libc::SYS_lchown, libc::SYS_utime, libc::SYS_utimes];
#[cfg(not(target_arch = "x86_64"))]
const OLD_METADATA: [i64; 0] = [];

/// `ioctl` commands that change an open file's attributes: `FS_IOC_SETFLAGS`, its 32-bit form, `FS_IOC_FSSETXATTR` and
/// `FS_IOC_SETVERSION`.
const ATTRIBUTE_COMMANDS: [u32; 4] = [0x4008_6602, 0x4004_6602, 0x401c_5820, 0x4008_7602];

/// Calls that create files or change their permissions, each with the mode argument's index.
const MODES: [(i64, u8); 4] = [(libc::SYS_fchmod, 1), (libc::SYS_fchmodat, 2), (FCHMODAT2, 2), (libc::SYS_mknodat, 2)];
#[cfg(target_arch = "x86_64")]
const OLD_MODES: [(i64, u8); 3] = [(libc::SYS_chmod, 1), (libc::SYS_creat, 1), (libc::SYS_mknod, 1)];
#[cfg(not(target_arch = "x86_64"))]
const OLD_MODES: [(i64, u8); 0] = [];

/// Calls that open files, each with the flags argument's index. The mode follows the flags.
#[cfg(target_arch = "x86_64")]
const OPENS: [(i64, u8); 2] = [(libc::SYS_openat, 2), (libc::SYS_open, 1)];
#[cfg(not(target_arch = "x86_64"))]
const OPENS: [(i64, u8); 1] = [(libc::SYS_openat, 2)];

/// The bit in `O_TMPFILE` that no other flag includes.
const TMPFILE: u32 = 0o20_000_000;

/// Programs with these bits run with their owner's or group's rights, outside the sandbox.
const SET_ID_BITS: [u32; 2] = [libc::S_ISUID, libc::S_ISGID];

/// `PRIO_PROCESS`, whose type depends on the C library.
const PRIO_PROCESS: u32 = 0;

/// `IOPRIO_WHO_PROCESS`.
const IOPRIO_PROCESS: u32 = 1;

/// Socket types whose pairs stay connected. A datagram pair could send to any path.
const PAIRS: [u32; 2] = [libc::SOCK_STREAM.cast_unsigned(), libc::SOCK_SEQPACKET.cast_unsigned()];

/// Set in x32 call numbers, which a filter sees as another call's.
#[cfg(target_arch = "x86_64")]
const X32: i64 = 0x4000_0000;

/// x32 calls with their own numbers: `ptrace`, `kexec_load`, `process_vm_readv` and `process_vm_writev`.
#[cfg(target_arch = "x86_64")]
const X32_REFUSED: [i64; 4] = [521, 528, 539, 540];

/// Returns `true` if the kernel and this architecture support filters.
pub(super) fn is_supported() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.starts_with("Seccomp:")) && TargetArch::try_from(std::env::consts::ARCH).is_ok()
}

/// Restricts this process.
pub(super) fn restrict(profile: &SandboxProfile, access: &FileAccess) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("could not restrict system calls: {error}");
    let refused = with_x32(refused(profile, access).map_err(|error| failed(&error))?);
    // Their flags are in memory, which a filter cannot read. C libraries use `clone` and `openat` if they do not exist.
    let absent = with_x32(Rules::from([(libc::SYS_clone3, Vec::new()), (OPENAT2, Vec::new())]));
    for (rules, error) in [(refused, libc::EPERM), (absent, libc::ENOSYS)] {
        let program = program(rules, error.cast_unsigned()).map_err(|error| failed(&error))?;
        apply_filter(&program).map_err(|error| failed(&error))?;
    }
    Ok(())
}

fn program(rules: Rules, error: u32) -> Result<BpfProgram, BackendError> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(error), architecture)?.try_into()
}

/// Returns the refused calls, each with its conditions.
fn refused(profile: &SandboxProfile, access: &FileAccess) -> Result<Rules, BackendError> {
    let mut rules: Rules = REFUSED.into_iter().map(|call| (call, Vec::new())).collect();
    rules.extend(sockets(profile)?);
    rules.extend(other_processes()?);
    rules.extend(set_id_modes()?);
    // In its own user namespace, a process has capabilities.
    let new_user = libc::CLONE_NEWUSER.cast_unsigned();
    for call in [libc::SYS_clone, libc::SYS_unshare] {
        rules.insert(call, vec![SeccompRule::new(vec![has_bits(0, new_user)?])?]);
    }
    // These type into the terminal that ropeway runs in.
    let mut commands = vec![libc::TIOCSTI as u32, libc::TIOCLINUX as u32];
    if !access.changes_files {
        rules.extend(METADATA.into_iter().chain(OLD_METADATA).map(|call| (call, Vec::new())));
        commands.extend(ATTRIBUTE_COMMANDS);
    }
    rules.insert(libc::SYS_ioctl, any_of(commands.into_iter().map(|command| is(1, command)))?);
    Ok(rules)
}

/// Returns the rules for sockets.
fn sockets(profile: &SandboxProfile) -> Result<Rules, BackendError> {
    // Routes and interface addresses are read through netlink sockets.
    let mut families = vec![libc::AF_NETLINK];
    families.extend([libc::AF_INET, libc::AF_INET6].into_iter().filter(|_| profile.network));
    families.extend([libc::AF_UNIX].into_iter().filter(|_| profile.unix_sockets));
    let others = families.into_iter().map(|family| is_not(0, family.cast_unsigned())).collect::<Result<_, _>>()?;
    let mut refused = vec![SeccompRule::new(others)?];
    if !profile.network {
        // The other protocols list the machine's sockets and devices.
        let protocol = is_not(2, libc::NETLINK_ROUTE.cast_unsigned())?;
        refused.push(SeccompRule::new(vec![is(0, libc::AF_NETLINK.cast_unsigned())?, protocol])?);
    }
    let mut rules = Rules::from([(libc::SYS_socket, refused)]);
    if !profile.unix_sockets {
        let mut pairs = any_of((0..16).filter(|kind| !PAIRS.contains(kind)).map(|kind| masked(1, 0xf, kind)))?;
        pairs.push(SeccompRule::new(vec![is_not(0, libc::AF_UNIX.cast_unsigned())?])?);
        rules.insert(libc::SYS_socketpair, pairs);
    }
    Ok(rules)
}

/// Returns the rules for calls that change limits and priorities: they are refused for other processes, which include the
/// server's threads and children.
fn other_processes() -> Result<Rules, BackendError> {
    let sets_limit = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?;
    let mut rules = Rules::from([(libc::SYS_prlimit64, vec![SeccompRule::new(vec![sets_limit, is_not(0, 0)?])?])]);
    for call in
        [libc::SYS_sched_setaffinity, libc::SYS_sched_setattr, libc::SYS_sched_setparam, libc::SYS_sched_setscheduler]
    {
        rules.insert(call, any_of([is_not(0, 0)])?);
    }
    rules.insert(libc::SYS_setpriority, any_of([is_not(0, PRIO_PROCESS), is_not(1, 0)])?);
    rules.insert(libc::SYS_ioprio_set, any_of([is_not(0, IOPRIO_PROCESS), is_not(1, 0)])?);
    Ok(rules)
}

/// Returns the rules against programs that run with their owner's rights.
fn set_id_modes() -> Result<Rules, BackendError> {
    let mut rules = Rules::new();
    for (call, argument) in MODES.into_iter().chain(OLD_MODES) {
        rules.insert(call, any_of(SET_ID_BITS.into_iter().map(|bit| has_bits(argument, bit)))?);
    }
    for (call, flags) in OPENS {
        let mut cases = Vec::new();
        for bit in SET_ID_BITS {
            for creates in [libc::O_CREAT.cast_unsigned(), TMPFILE] {
                cases.push(SeccompRule::new(vec![has_bits(flags, creates)?, has_bits(flags + 1, bit)?])?);
            }
        }
        rules.insert(call, cases);
    }
    Ok(rules)
}

type Condition = Result<SeccompCondition, BackendError>;

/// Returns rules with one condition each.
fn any_of(conditions: impl IntoIterator<Item = Condition>) -> Result<Vec<SeccompRule>, BackendError> {
    conditions.into_iter().map(|condition| SeccompRule::new(vec![condition?])).collect()
}

fn is(argument: u8, value: u32) -> Condition {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value.into())
}

fn is_not(argument: u8, value: u32) -> Condition {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, value.into())
}

fn has_bits(argument: u8, bits: u32) -> Condition {
    masked(argument, bits, bits)
}

fn masked(argument: u8, mask: u32, value: u32) -> Condition {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(mask.into()), value.into())
}

/// Adds the rules for the same calls in the x32 interface.
#[cfg(target_arch = "x86_64")]
fn with_x32(rules: Rules) -> Rules {
    let own = X32_REFUSED.into_iter().filter(|_| rules.contains_key(&libc::SYS_ptrace));
    let own: Vec<(i64, Vec<SeccompRule>)> = own.map(|call| (call | X32, Vec::new())).collect();
    let same: Vec<(i64, Vec<SeccompRule>)> = rules.iter().map(|(call, rules)| (call | X32, rules.clone())).collect();
    rules.into_iter().chain(same).chain(own).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn with_x32(rules: Rules) -> Rules {
    rules
}
