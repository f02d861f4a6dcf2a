//! IP address classes, to restrict the hosts that untrusted metadata may name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address class ([special-purpose addresses](https://www.rfc-editor.org/rfc/rfc6890)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddressClass {
    /// An address on the internet.
    Public,
    /// This machine.
    Loopback,
    /// A private network: RFC 1918, or a unique local address.
    Private,
    /// A link-local address, as used by cloud metadata services.
    LinkLocal,
    /// The carriers' shared address space (RFC 6598).
    Shared,
    /// Anything else that is not reachable on the internet.
    Reserved,
}

impl AddressClass {
    pub(super) fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => of_v4(address),
            IpAddr::V6(address) => of_v6(address),
        }
    }

    /// Returns the class of a URL's host, if it follows from the text alone: an address or `localhost`.
    pub(super) fn of_host(host: &str) -> Option<Self> {
        let host = host.trim_end_matches('.');
        if host.eq_ignore_ascii_case("localhost") || host.to_ascii_lowercase().ends_with(".localhost") {
            return Some(Self::Loopback);
        }
        host.trim_matches(['[', ']']).parse().ok().map(Self::of)
    }

    /// Returns the class name for messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Public => "a public address",
            Self::Loopback => "an address of this machine",
            Self::Private => "an address of a private network",
            Self::LinkLocal => "a link-local address",
            Self::Shared => "a shared address (RFC 6598)",
            Self::Reserved => "a reserved address",
        }
    }
}

fn of_v4(address: Ipv4Addr) -> AddressClass {
    let [a, b, c, _] = address.octets();
    match (a, b, c) {
        (127, ..) => AddressClass::Loopback,
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => AddressClass::Private,
        (169, 254, _) => AddressClass::LinkLocal,
        // One cloud's metadata service has an address in this range.
        (100, 64..=127, _) => AddressClass::Shared,
        (0 | 224..=255, ..) | (192, 0, 0 | 2) | (198, 18 | 19, _) | (198, 51, 100) | (203, 0, 113) | (192, 88, 99) => {
            AddressClass::Reserved
        }
        _ => AddressClass::Public,
    }
}

fn of_v6(address: Ipv6Addr) -> AddressClass {
    if address.is_loopback() {
        return AddressClass::Loopback;
    }
    if let Some(inner) = embedded_v4(address) {
        return of_v4(inner);
    }
    let [a, b, ..] = address.segments();
    match a {
        0xfc00..=0xfdff => AddressClass::Private,
        0xfe80..=0xfeff => AddressClass::LinkLocal,
        0x2001 if matches!(b, 0 | 0xdb8) || (0x10..=0x2f).contains(&b) => AddressClass::Reserved,
        0x2000..=0x3ffe => AddressClass::Public,
        _ => AddressClass::Reserved,
    }
}

/// Returns the IPv4 address that packets to an IPv6 address may be delivered to.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let segments = address.segments();
    let pair = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match segments {
        // Mapped and translated addresses.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => Some(pair(high, low)),
        // NAT64 (RFC 6052).
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(pair(high, low)),
        // 6to4 (RFC 3056).
        [0x2002, high, low, ..] => Some(pair(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_right_class() {
        for (class, addresses) in [
            (
                AddressClass::Public,
                &["1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2002:0101:0101::1"][..],
            ),
            (AddressClass::Loopback, &["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"]),
            (
                AddressClass::Private,
                &["10.0.0.1", "172.16.0.1", "192.168.1.1", "fd00::1", "::ffff:10.0.0.1", "2002:0a00:1::"],
            ),
            (AddressClass::LinkLocal, &["169.254.169.254", "fe80::1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"]),
            (AddressClass::Shared, &["100.100.100.200"]),
            (
                AddressClass::Reserved,
                &["0.0.0.0", "::", "255.255.255.255", "224.0.0.1", "ff02::1", "192.0.2.1", "2001:db8::1"],
            ),
        ] {
            for address in addresses {
                assert_eq!(AddressClass::of(address.parse().expect("an address")), class, "{address}");
            }
        }
    }

    #[test]
    fn hosts_that_are_names_have_no_class_except_localhost() {
        assert_eq!(AddressClass::of_host("LOCALHOST"), Some(AddressClass::Loopback));
        assert_eq!(AddressClass::of_host("a.localhost."), Some(AddressClass::Loopback));
        assert_eq!(AddressClass::of_host("[::1]"), Some(AddressClass::Loopback));
        assert_eq!(AddressClass::of_host("a.example"), None);
    }
}
