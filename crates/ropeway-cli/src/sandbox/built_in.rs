//! System paths that every server may use.

/// Files and directories that programs need to start, without the user's secrets. Landlock itself protects other processes'
/// environment and memory below `/proc`.
pub(super) const SYSTEM: [&str; 64] = [
    "/bin",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/crypto-policies",
    "/etc/debian_version",
    "/etc/fonts",
    "/etc/gai.conf",
    "/etc/gnutls",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/inputrc",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/locale.alias",
    "/etc/locale.conf",
    "/etc/localtime",
    "/etc/lsb-release",
    "/etc/mime.types",
    "/etc/networks",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/openssl.cnf",
    "/etc/pki/trust",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/shells",
    // Not the private keys, which root can read.
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/static",
    "/etc/terminfo",
    "/etc/timezone",
    "/gnu/store",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/proc",
    "/run/NetworkManager/resolv.conf",
    "/run/current-system",
    "/run/resolvconf",
    // The file behind `/etc/resolv.conf` is replaced when the network changes; the directory stays.
    "/run/systemd/resolve",
    "/sbin",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/sys/fs/cgroup",
    "/sys/kernel/mm/transparent_hugepage",
    "/usr",
    "/var/lib/ca-certificates",
    "/dev/fd",
    "/dev/random",
    "/dev/urandom",
];

/// Devices that programs write to.
#[cfg(target_os = "linux")]
pub(super) const DEVICES: [&str; 3] = ["/dev/full", "/dev/null", "/dev/zero"];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn no_path_of_the_system_contains_the_home_directory() {
        for path in SYSTEM {
            assert!(!Path::new("/etc/ssl/private/key.pem").starts_with(path), "{path}");
            assert!(!Path::new("/home/ada").starts_with(path) && !Path::new("/root").starts_with(path), "{path}");
        }
    }
}
