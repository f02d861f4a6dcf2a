//! File ownership and permissions.

/// Returns why users other than `user` may have written a file with this owner and mode.
pub(crate) fn ownership_problem(owner: u32, mode: u32, user: u32) -> Option<String> {
    if owner != user && owner != 0 {
        return Some(format!("owned by another user (uid {owner})"));
    }
    match (mode & 0o020 != 0, mode & 0o002 != 0) {
        (_, true) => Some("writable by all users".to_owned()),
        (true, false) => Some("writable by its group".to_owned()),
        (false, false) => None,
    }
}
