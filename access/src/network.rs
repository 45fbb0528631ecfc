//! Networks: addresses with a common prefix.

use std::net::IpAddr;

/// Addresses with a common prefix, written as in CIDR (RFC 4632): `10.0.0.0/8`, `2001:db8::/32`, or
/// one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// The network that a text names; `None` when it names none.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            None => (text, None),
            Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
        };
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        (bits <= most).then_some(Self { address, bits })
    }

    /// Whether an address is of this network. An IPv4 address written as IPv6 is an IPv4 address.
    pub fn contains(self, address: IpAddr) -> bool {
        let shares = |a: u128, b: u128, width: u8| self.bits == 0 || (a ^ b) >> (width - self.bits) == 0;
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => shares(a.to_bits().into(), b.to_bits().into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => shares(a.to_bits(), b.to_bits(), 128),
            _ => false,
        }
    }

    /// S3 takes networks wider than these for public.
    pub(crate) fn is_narrow(self) -> bool {
        self.bits >= if self.address.is_ipv4() { 8 } else { 32 }
    }
}
