//! A bucket of AWS S3, or of any store that speaks its protocol: MinIO, Ceph, Garage, versitygw,
//! R2, B2 and others.
//!
//! Every body is signed with its SHA-256, which every store checks; a checksum is sent beside it by
//! default and kept by the store.

mod credentials;
pub(crate) mod requests;
mod unfinished;

pub use credentials::{S3Credentials, read_profile};

use crate::{
    KeyBound, PlainBucket, Result,
    cloud::{
        CloudBackend,
        bucket::Bucket,
        connector::{Connector, ExclusiveCreate, client_options, no_retries},
        directory,
        endpoint::PlainHttp,
        not_set_up,
        queue::Removals,
        settings::{Timeouts, TrustedCertificates, UploadOptions},
    },
};
use object_store::{
    ClientOptions,
    aws::{AmazonS3Builder, Checksum},
    client::HttpConnector,
};
use requests::S3Requests;
use std::sync::Arc;
use unfinished::S3Uploads;

/// Most names of one `DeleteObjects` request.
const LIST_NAMES_MAX: usize = 1000;

/// Where a bucket is and how it is reached.
#[derive(Debug, Clone)]
pub struct S3Config {
    /// The bucket's name. It must exist.
    pub bucket: String,
    /// Put before every name, with a `/` between; may be empty.
    pub prefix: String,
    /// The region requests are signed for.
    pub region: String,
    /// The store's address without the bucket, such as `http://127.0.0.1:7070`; AWS when absent.
    pub endpoint: Option<String>,
    /// The bucket goes into the path (`endpoint/bucket/…`), as most stores want it, and not into
    /// the host name.
    pub path_style: bool,
    /// Plain HTTP also to other machines. Names and sizes of blobs, and blobs of unencrypted
    /// buckets, are then seen on the network.
    pub allow_http: bool,
    /// Who asks.
    pub credentials: S3Credentials,
    /// The checksum the store is asked to check and keep.
    pub checksum: S3Checksum,
    /// Whose certificates are trusted, beside those the machine trusts.
    pub trusted: TrustedCertificates,
    /// How blobs are cut into parts.
    pub upload: UploadOptions,
    /// How long a silent store is waited for.
    pub timeouts: Timeouts,
}

/// A checksum sent with every blob or part, beside the SHA-256 that the signature covers in any
/// case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum S3Checksum {
    /// `x-amz-checksum-sha256`. Costs nothing, since the signature needs it too.
    #[default]
    Sha256,
    /// `x-amz-checksum-crc64nvme`: for a multipart blob the store keeps one checksum of the whole.
    Crc64Nvme,
    /// None, for stores that refuse the headers.
    None,
}

impl S3Config {
    /// A bucket of AWS in `us-east-1`, with the given credentials and defaults for all else.
    pub fn new(bucket: impl Into<String>, credentials: S3Credentials) -> Self {
        Self {
            bucket: bucket.into(),
            prefix: String::new(),
            region: "us-east-1".to_owned(),
            endpoint: None,
            path_style: true,
            allow_http: false,
            credentials,
            checksum: S3Checksum::default(),
            trusted: TrustedCertificates::default(),
            upload: UploadOptions::default(),
            timeouts: Timeouts::default(),
        }
    }

    /// Prepares the backend. Sends nothing: [`probe`](crate::Backend::probe) asks whether the store
    /// answers.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when the configuration contradicts itself.
    pub fn open(self) -> Result<CloudBackend> {
        let exclusive = ExclusiveCreate::new();
        let requests = self.requests(Some(&exclusive))?;
        let store = requests.store.clone();
        let in_lists = self.builder(None, true)?.build().map_err(not_set_up)?;
        let prefix = directory(&self.prefix);
        CloudBackend::new(Bucket {
            store: Arc::new(store),
            removals: Some(Removals::new(Arc::new(in_lists), LIST_NAMES_MAX)),
            unfinished: Some(Box::new(S3Uploads { requests, prefix: prefix.clone() })),
            prefix,
            upload: self.upload,
            exclusive,
            // The store has checked the signed SHA-256 of what it acknowledges.
            confirms_single_puts: false,
            listing_lacks_the_prefix: false,
            key_bound: KeyBound::Bytes,
            repeats: std::sync::OnceLock::new(),
        })
    }

    /// The bucket's objects under their own keys, below the prefix. Sends nothing.
    ///
    /// # Errors
    /// As [`S3Config::open`].
    pub fn open_plain(self) -> Result<PlainBucket> {
        Ok(PlainBucket::new(self.requests(None)?, directory(&self.prefix)))
    }

    /// How the bucket is asked; `exclusive`: completions of uploads in parts create, and never
    /// replace.
    fn requests(&self, exclusive: Option<&ExclusiveCreate>) -> Result<S3Requests> {
        let (connector, options) = self.connector(exclusive)?;
        Ok(S3Requests {
            store: self.builder(exclusive, false)?.build().map_err(not_set_up)?,
            http: connector.connect(&options).map_err(not_set_up)?,
            address: self.bucket_address(),
            region: self.region.clone(),
        })
    }

    fn connector(&self, exclusive: Option<&ExclusiveCreate>) -> Result<(Connector, ClientOptions)> {
        let plain = PlainHttp::for_endpoint(self.endpoint.as_deref(), self.allow_http)?;
        let options = client_options(self.timeouts, &self.trusted, plain.to_store);
        Ok((Connector { exclusive_completion: exclusive.cloned(), allow_http: plain.to_token_services }, options))
    }

    /// A store that removes objects in lists, or each alone.
    fn builder(&self, exclusive: Option<&ExclusiveCreate>, in_lists: bool) -> Result<AmazonS3Builder> {
        let (connector, options) = self.connector(exclusive)?;
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&self.bucket)
            .with_region(&self.region)
            .with_virtual_hosted_style_request(!self.path_style)
            .with_disable_bulk_delete(!in_lists)
            .with_retry(no_retries())
            .with_client_options(options)
            .with_http_connector(connector);
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(self.address(endpoint));
        }
        builder = match self.checksum {
            S3Checksum::Sha256 => builder.with_checksum_algorithm(Checksum::SHA256),
            S3Checksum::Crc64Nvme => builder.with_checksum_algorithm(Checksum::CRC64NVME),
            S3Checksum::None => builder,
        };
        self.credentials.apply(builder)
    }

    /// Where the bucket itself answers.
    fn bucket_address(&self) -> String {
        let aws = format!("https://s3.{}.amazonaws.com", self.region);
        let address = self.address(self.endpoint.as_deref().unwrap_or(&aws));
        if self.path_style { format!("{address}/{}", self.bucket) } else { address }
    }

    /// The address of the bucket for `object_store`, which adds the bucket in path style only.
    fn address(&self, endpoint: &str) -> String {
        let endpoint = endpoint.trim_end_matches('/');
        match endpoint.split_once("://") {
            Some((scheme, host)) if !self.path_style => format!("{scheme}://{}.{host}", self.bucket),
            _ => endpoint.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    fn config() -> S3Config {
        let credentials = S3Credentials::Static {
            access_key_id: "AKIDEXAMPLE".to_owned(),
            secret_access_key: "not-a-secret".into(),
            session_token: None,
        };
        S3Config::new("bucket", credentials)
    }

    #[test]
    fn the_bucket_stands_in_the_host_or_in_the_path() {
        let virtual_host = S3Config { path_style: false, ..config() };
        assert_eq!(virtual_host.address("https://s3.example.com/"), "https://bucket.s3.example.com");
        assert_eq!(config().address("https://s3.example.com/"), "https://s3.example.com");
        assert_eq!(config().bucket_address(), "https://s3.us-east-1.amazonaws.com/bucket");
        assert_eq!(virtual_host.bucket_address(), "https://bucket.s3.us-east-1.amazonaws.com");
    }

    #[test]
    fn a_prefix_that_is_no_path_is_refused_at_once() {
        for (prefix, accepted) in [("", true), ("prod", true), ("/prod/a/", true), ("a//b", false), ("a/../b", false)] {
            let opened = S3Config { prefix: prefix.to_owned(), ..config() }.open();
            assert_eq!(opened.is_ok(), accepted, "{prefix:?}");
        }
    }

    #[test]
    fn parts_that_no_store_takes_are_refused_at_once() {
        for upload in [
            UploadOptions { part_bytes: 1 << 20, ..UploadOptions::default() },
            UploadOptions { parts_in_flight: 0, ..UploadOptions::default() },
        ] {
            assert_eq!(S3Config { upload, ..config() }.open().unwrap_err().kind(), ErrorKind::Invalid);
        }
    }

    #[test]
    fn a_printed_configuration_holds_no_secret() {
        assert!(!format!("{:?}", config()).contains("not-a-secret"));
    }
}
