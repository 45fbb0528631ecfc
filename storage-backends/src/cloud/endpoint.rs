//! When a store may be reached without TLS.

use crate::{BackendError, ErrorKind, Result};

/// What the HTTP client may do, as an endpoint and the operator's word allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlainHttp {
    /// The store itself is reached without TLS.
    pub(crate) to_store: bool,
    /// Services that hand out credentials may be, too.
    pub(crate) to_token_services: bool,
}

impl PlainHttp {
    /// Plain HTTP is fine on this machine; to another one it must be asked for.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when the endpoint is plain HTTP to another machine and `allowed` is
    /// false.
    pub(crate) fn for_endpoint(endpoint: Option<&str>, allowed: bool) -> Result<Self> {
        let to_store = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
        let is_near = endpoint.is_some_and(is_loopback);
        if to_store && !is_near && !allowed {
            let message = "the endpoint is plain HTTP to another machine; allow_http = true accepts that";
            return Err(BackendError::new(ErrorKind::Invalid, message));
        }
        Ok(Self { to_store, to_token_services: is_near || allowed })
    }
}

/// Whether an address is this machine's own.
fn is_loopback(address: &str) -> bool {
    let host = address.split_once("://").map_or(address, |(_, rest)| rest);
    let host = host.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let is_port = |port: &str| port.bytes().all(|b| b.is_ascii_digit());
    let bare = host.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(host, |(bare, _)| bare);
    let bare = bare.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_to_another_machine_must_be_asked_for() {
        for near in ["http://127.0.0.1:7070", "http://localhost", "http://[::1]:9000/", "http://127.0.0.1:1/account"] {
            let expected = PlainHttp { to_store: true, to_token_services: true };
            assert_eq!(PlainHttp::for_endpoint(Some(near), false).unwrap(), expected, "{near}");
        }
        for far in [
            "http://s3.example.com",
            "http://127.0.0.1.example.com",
            "http://localhost@example.com:80",
            "http://example.com/127.0.0.1",
            "http://example.com#@127.0.0.1",
        ] {
            assert_eq!(PlainHttp::for_endpoint(Some(far), false).unwrap_err().kind(), ErrorKind::Invalid, "{far}");
            assert!(PlainHttp::for_endpoint(Some(far), true).unwrap().to_store, "{far}");
        }
    }

    #[test]
    fn tls_stays_tls() {
        let expected = PlainHttp { to_store: false, to_token_services: false };
        assert_eq!(PlainHttp::for_endpoint(Some("https://s3.example.com"), false).unwrap(), expected);
        assert_eq!(PlainHttp::for_endpoint(None, false).unwrap(), expected);
    }
}
