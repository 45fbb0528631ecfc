//! Who a request comes from when a proxy stands in between. What a proxy says of it is believed
//! only where the configuration trusts that proxy: anybody can send the header.

use access::Network;
use http::HeaderMap;
use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

/// Where each proxy adds the address that it was called from, at the end.
const FORWARDED_FOR: &str = "x-forwarded-for";

/// Networks of proxies that are believed.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies(Arc<[Network]>);

impl TrustedProxies {
    /// These networks, and no other.
    pub fn new(networks: Vec<Network>) -> Self {
        Self(networks.into())
    }

    /// The client of a request that came from `peer`: the peer itself, or, behind trusted proxies,
    /// the right-most address of `X-Forwarded-For` that is not one of theirs. What stands left of
    /// it was sent by the client and proves nothing. Where every address is a proxy's, the
    /// left-most. An element that is no address is not passed over: the client is the proxy that
    /// wrote it.
    pub fn client_of(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Option<IpAddr> {
        let mut client = peer?.to_canonical();
        let lines = headers.get_all(FORWARDED_FOR).iter().rev();
        for element in lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b',')).map(<[u8]>::trim_ascii) {
            if !self.trusts(client) {
                break;
            }
            // A list may have empty elements (RFC 9110, 5.6.1).
            if element.is_empty() {
                continue;
            }
            let Some(address) = address(element) else { break };
            client = address;
        }
        Some(client)
    }

    /// True for the address of a trusted proxy, in its canonical form.
    pub fn trusts(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }
}

/// An address, perhaps with a port: some proxies write one.
fn address(element: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(element).ok()?;
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    let address: IpAddr = text.parse().ok().or_else(with_port).or_else(bracketed)?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn client(trusted: &[&str], peer: &str, lines: &[&str]) -> String {
        let networks = trusted.iter().map(|text| Network::parse(text).unwrap()).collect();
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(FORWARDED_FOR, HeaderValue::from_bytes(line.as_bytes()).unwrap());
        }
        TrustedProxies::new(networks).client_of(Some(peer.parse().unwrap()), &headers).unwrap().to_string()
    }

    #[test]
    fn the_header_of_a_peer_that_is_not_trusted_is_not_read() {
        assert_eq!(client(&[], "127.0.0.1", &["203.0.113.7"]), "127.0.0.1");
        assert_eq!(client(&["10.0.0.0/8"], "11.0.0.1", &["203.0.113.7"]), "11.0.0.1");
        assert_eq!(TrustedProxies::default().client_of(None, &HeaderMap::new()), None);
    }

    #[test]
    fn the_client_is_the_right_most_address_that_is_no_proxys() {
        let trusted = ["10.0.0.0/8", "::1"];
        for (peer, lines, expected) in [
            ("10.0.0.1", vec!["203.0.113.7"], "203.0.113.7"),
            ("10.0.0.1", vec![], "10.0.0.1"),
            ("10.0.0.1", vec!["1.2.3.4, 203.0.113.7"], "203.0.113.7"),
            ("10.0.0.1", vec!["1.2.3.4,203.0.113.7,10.9.9.9 , 10.0.0.2"], "203.0.113.7"),
            ("10.0.0.1", vec!["1.2.3.4, 203.0.113.7", "10.0.0.2"], "203.0.113.7"),
            ("10.0.0.1", vec!["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            ("10.0.0.1", vec!["203.0.113.7, , "], "203.0.113.7"),
            ("10.0.0.1", vec!["203.0.113.7, unknown"], "10.0.0.1"),
            ("10.0.0.1", vec!["203.0.113.7, unknown, 10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", vec!["203.0.113.7:4711"], "203.0.113.7"),
            ("::1", vec!["[2001:db8::7]:443"], "2001:db8::7"),
            ("::1", vec!["[2001:db8::7]"], "2001:db8::7"),
            ("::ffff:10.0.0.1", vec!["::ffff:203.0.113.7"], "203.0.113.7"),
            ("10.0.0.1", vec!["\u{e9}"], "10.0.0.1"),
        ] {
            assert_eq!(client(&trusted, peer, &lines), expected, "{peer} {lines:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_a_client_sends_the_address_that_its_proxy_saw_counts(sent in "[ -~]{0,60}") {
            prop_assert_eq!(client(&["10.0.0.0/8"], "10.0.0.1", &[&sent, "203.0.113.7"]), "203.0.113.7");
            prop_assert_eq!(client(&["10.0.0.0/8"], "10.0.0.1", &[&format!("{sent}, 203.0.113.7")]), "203.0.113.7");
        }

        #[test]
        fn asking_again_about_the_client_gives_the_same(sent in r"(10\.0\.0\.[1-3]|203\.0\.113\.[1-3]|unknown|,| ){0,8}") {
            let once = client(&["10.0.0.0/8"], "10.0.0.1", &[&sent]);
            prop_assert_eq!(client(&["10.0.0.0/8"], &once, &[&sent]), once);
        }
    }
}
