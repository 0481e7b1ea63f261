//! Where the server goes on behalf of others. What a pod, a node or a slice of endpoints gives as its address is written by
//! somebody; it must not lead to what only this machine is meant to reach.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use ferry_meta::ApiError;

/// What upstream answers.
pub(crate) fn not_allowed() -> ApiError {
    ApiError::bad_request("address not allowed")
}

/// An address that others can have: neither this machine's own loopback nor a link's, neither a group's nor nobody's.
pub fn is_global_unicast(address: IpAddr) -> bool {
    let none = |address: IpAddr| address.is_unspecified() || address.is_loopback() || address.is_multicast();
    match address.to_canonical() {
        IpAddr::V4(v4) => !none(v4.into()) && !v4.is_link_local() && !v4.is_broadcast(),
        IpAddr::V6(v6) => !none(v6.into()) && !v6.is_unicast_link_local(),
    }
}

/// Whether it is an address of this very machine. The kernel says so: it sends there from there. Nothing is sent.
pub(crate) fn is_own(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let any: IpAddr = if address.is_ipv4() { [0, 0, 0, 0].into() } else { [0_u16; 8].into() };
    let from = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    from.is_ok_and(|from| from.ip() == address)
}

/// The addresses of a host, all of which must be allowed: of several the server cannot know which one answers.
pub(crate) async fn addresses(host: &str, port: u16) -> Result<Vec<SocketAddr>, Unreached> {
    let found: Vec<SocketAddr> = match host.parse::<IpAddr>() {
        Ok(address) => vec![(address, port).into()],
        Err(_) => tokio::net::lookup_host((host, port)).await.map_err(Unreached::Unknown)?.collect(),
    };
    if found.is_empty() {
        return Err(Unreached::Unknown(std::io::Error::other("no addresses for hostname")));
    }
    if found.iter().all(|address| is_global_unicast(address.ip())) { Ok(found) } else { Err(Unreached::NotAllowed) }
}

pub(crate) enum Unreached {
    NotAllowed,
    Unknown(std::io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_others_can_have() {
        for (text, want) in [
            ("10.0.0.1", true),
            ("192.0.2.1", true),
            ("fd00::1", true),
            ("2001:db8::1", true),
            ("::ffff:10.0.0.1", true),
            ("127.0.0.1", false),
            ("127.8.8.8", false),
            ("::1", false),
            ("::ffff:127.0.0.1", false),
            ("169.254.169.254", false),
            ("::ffff:169.254.169.254", false),
            ("fe80::1", false),
            ("0.0.0.0", false),
            ("::", false),
            ("224.0.0.1", false),
            ("ff02::1", false),
            ("255.255.255.255", false),
        ] {
            assert_eq!(is_global_unicast(text.parse().expect("an address")), want, "{text}");
        }
    }

    #[tokio::test]
    async fn this_machine_is_known_to_itself() {
        assert!(is_own([127, 0, 0, 1].into()));
        assert!(is_own("::ffff:127.0.0.1".parse().expect("an address")));
        assert!(!is_own([192, 0, 2, 1].into()));
        assert!(matches!(addresses("localhost", 1).await, Err(Unreached::NotAllowed)));
        assert!(matches!(addresses("127.0.0.1", 1).await, Err(Unreached::NotAllowed)));
        assert!(addresses("192.0.2.1", 1).await.is_ok());
    }
}
