//! The host names under which buckets are addressed as sub-domains.

/// Domains of virtual-host addressing: `bucket.domain` names a bucket, `domain` alone (and any
/// other host) is path-style.
#[derive(Clone, Debug, Default)]
pub struct Domains(Vec<String>);

impl Domains {
    /// Takes the configured domains, such as `s3.example.com`. Case does not matter; a leading dot
    /// is ignored.
    pub fn new(domains: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let mut domains: Vec<String> = domains
            .into_iter()
            .map(|d| d.as_ref().trim_matches('.').to_ascii_lowercase())
            .filter(|d| !d.is_empty())
            .collect();
        domains.sort_by_key(|d| std::cmp::Reverse(d.len()));
        Self(domains)
    }

    /// The bucket part of a `Host` value (port and trailing dot allowed), in lower case as host
    /// names are; `None` for path-style. The part may be empty or not be a bucket name: `.domain`
    /// is no request for the service.
    pub fn bucket_of(&self, host: &str) -> Option<String> {
        let host = without_port(host);
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        if self.0.contains(&host) {
            return None;
        }
        self.0.iter().find_map(|domain| host.strip_suffix(domain.as_str())?.strip_suffix('.').map(str::to_owned))
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_before_a_domain_is_the_bucket() {
        let domains = Domains::new(["s3.example.com", ".LOCAL"]);
        for (host, bucket) in [
            ("bucket.s3.example.com", Some("bucket")),
            ("a.b.s3.example.com:9000", Some("a.b")), // C75
            ("BUCKET.S3.Example.Com", Some("bucket")),
            ("b.s3.example.com.", Some("b")),
            ("x.local", Some("x")),
            (".s3.example.com", Some("")),
            ("s3.example.com", None),
            ("s3.example.com:9000", None),
            ("evils3.example.com", None),
            ("127.0.0.1:9000", None),
            ("[::1]:9000", None),
            ("localhost", None),
        ] {
            assert_eq!(domains.bucket_of(host).as_deref(), bucket, "{host}");
        }
        assert_eq!(Domains::default().bucket_of("bucket.s3.example.com"), None);
    }

    #[test]
    fn the_longest_domain_decides() {
        let domains = Domains::new(["example.com", "s3.example.com"]);
        assert_eq!(domains.bucket_of("b.s3.example.com").as_deref(), Some("b"));
        assert_eq!(domains.bucket_of("s3.example.com"), None);
        assert_eq!(domains.bucket_of("b.example.com").as_deref(), Some("b"));
    }
}
