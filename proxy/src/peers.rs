//! Who is at the other end of a connection, and how much of the server one peer may take.

mod failures;
mod places;
mod rate;
mod shares;
mod trusted;

pub use failures::{Failures, Held};
pub use places::{Place, Places, UnderWay};
pub use rate::PeerRate;
pub use shares::{Holder, Share, Shares};
pub use trusted::TrustedProxies;

use std::net::{IpAddr, Ipv6Addr};

/// What a connection tells of its two ends.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ends {
    /// The address it comes from; `None` for a Unix socket.
    pub peer: Option<IpAddr>,
    /// The address it came to.
    pub local: Option<IpAddr>,
    /// Whether it stands in the reserve, whose connections may only ask for health.
    pub reserve: bool,
}

/// One peer: an IPv4 address, or a /64 of IPv6, which one customer gets as a whole.
pub fn network_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(peer) => peer.into(),
        IpAddr::V6(peer) => Ipv6Addr::from_bits(peer.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_ipv6_network_are_one_peer() {
        let network = |text: &str| network_of(text.parse().unwrap());
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_eq!(network("::ffff:10.0.0.1"), network("10.0.0.1"));
    }
}
