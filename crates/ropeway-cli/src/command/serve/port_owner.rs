//! Finds the process that listens on a port, for an error message.

use std::fs;

use crate::terminal::text::clean_line;

/// A listening socket's state in /proc/net/tcp.
const LISTENING: &str = "0A";

/// Returns the id and the program of the process that listens on a port, if it belongs to this user. Linux only.
pub(super) fn port_owner(port: u16) -> Option<(u32, String)> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let inode = tables.iter().find_map(|table| listening_inode(table, port))?;
    let socket = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let pid = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).find(|pid| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files.filter_map(|file| fs::read_link(file.path()).ok()).any(|target| target.as_os_str() == socket.as_str())
    })?;
    let program = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some((pid, clean_line(program.trim())))
}

/// Returns the inode for the socket that listens on a port, from a table as in proc_net(5).
fn listening_inode(table: &str, port: u16) -> Option<u64> {
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (_, local) = fields.next()?.rsplit_once(':')?;
        let state = fields.nth(1)?;
        let is_it = state == LISTENING && u16::from_str_radix(local, 16) == Ok(port);
        is_it.then(|| fields.nth(5)?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_port_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        assert_eq!(port_owner(port).map(|(pid, _)| pid), Some(std::process::id()));
        drop(listener);
        assert_eq!(port_owner(port), None);
    }
}
