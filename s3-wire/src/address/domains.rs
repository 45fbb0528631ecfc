//! The host names under which buckets are addressed as sub-domains.

/// Domains of virtual-host addressing: `bucket.domain` names a bucket, `domain` alone (and any other host) is path-style.
#[derive(Clone, Debug, Default)]
pub struct Domains(Vec<String>);

impl Domains {
    /// Takes the configured domains, such as `s3.example.com`. Case does not matter; a leading dot is ignored.
    pub fn new(domains: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let mut domains: Vec<String> = domains
            .into_iter()
            .map(|d| d.as_ref().trim_matches('.').to_ascii_lowercase())
            .filter(|d| !d.is_empty())
            .collect();
        domains.sort_by_key(|d| std::cmp::Reverse(d.len()));
        Self(domains)
    }

    /// The bucket label of a `Host` value (port allowed), or `None` for path-style.
    pub fn bucket_of<'h>(&self, _host: &'h str) -> Option<&'h str> {
        unimplemented!()
    }
}
