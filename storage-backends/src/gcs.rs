//! A bucket of Google Cloud Storage, through its XML interface.
//!
//! A blob that fits one part is created exclusively; the completion of one in parts is not, and
//! random names keep them apart. Since no checksum of ours goes with the body, every upload is
//! confirmed by the length the store then reports.

use crate::{
    BackendError, ErrorKind, KeyBound, Result,
    cloud::{
        CloudBackend,
        bucket::Bucket,
        connector::{Connector, ExclusiveCreate, client_options, no_retries},
        directory,
        endpoint::PlainHttp,
        not_set_up,
        settings::{Timeouts, TrustedCertificates, UploadOptions},
    },
};
use object_store::gcp::GoogleCloudStorageBuilder;
use secrecy::{ExposeSecret, SecretString};
use std::{path::PathBuf, sync::Arc};

/// Where a bucket is and how it is reached.
#[derive(Debug, Clone)]
pub struct GcsConfig {
    /// The bucket's name. It must exist.
    pub bucket: String,
    /// Put before every name, with a `/` between; may be empty.
    pub prefix: String,
    /// The store's address; Google's when absent.
    pub endpoint: Option<String>,
    /// Plain HTTP also to other machines.
    pub allow_http: bool,
    /// Who asks.
    pub credentials: GcsCredentials,
    /// Whose certificates are trusted, beside those the machine trusts.
    pub trusted: TrustedCertificates,
    /// How blobs are cut into parts.
    pub upload: UploadOptions,
    /// How long a silent store is waited for.
    pub timeouts: Timeouts,
}

/// Who asks Google Cloud Storage.
#[derive(Debug, Clone)]
pub enum GcsCredentials {
    /// A service account's key file, read when the backend is opened.
    ServiceAccountFile(PathBuf),
    /// The contents of such a file.
    ServiceAccountKey(SecretString),
    /// This file of application default credentials, or where absent the user's own, or else the
    /// metadata service of the machine, which on GKE stands for the pod's identity.
    ApplicationDefault(Option<PathBuf>),
    /// No credentials: for emulators.
    Anonymous,
}

impl GcsConfig {
    /// A bucket of Google's, with the given credentials and defaults for all else.
    pub fn new(bucket: impl Into<String>, credentials: GcsCredentials) -> Self {
        Self {
            bucket: bucket.into(),
            prefix: String::new(),
            endpoint: None,
            allow_http: false,
            credentials,
            trusted: TrustedCertificates::default(),
            upload: UploadOptions::default(),
            timeouts: Timeouts::default(),
        }
    }

    /// Prepares the backend. Sends nothing: [`probe`](crate::Backend::probe) asks whether the store
    /// answers.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when the configuration contradicts itself or a key cannot be read.
    pub fn open(self) -> Result<CloudBackend> {
        let plain = PlainHttp::for_endpoint(self.endpoint.as_deref(), self.allow_http)?;
        let connector = Connector { exclusive_completion: None, allow_http: plain.to_token_services };
        let mut builder = GoogleCloudStorageBuilder::new()
            .with_bucket_name(&self.bucket)
            .with_retry(no_retries())
            .with_client_options(client_options(self.timeouts, &self.trusted, plain.to_store))
            .with_http_connector(connector);
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_base_url(endpoint.trim_end_matches('/'));
        }
        builder = match &self.credentials {
            GcsCredentials::ServiceAccountFile(path) => builder.with_service_account_path(text(path)?),
            GcsCredentials::ServiceAccountKey(key) => builder.with_service_account_key(key.expose_secret()),
            GcsCredentials::ApplicationDefault(Some(path)) => builder.with_application_credentials(text(path)?),
            GcsCredentials::ApplicationDefault(None) => builder,
            // The token is never sent, and keeps the builder from looking for others.
            GcsCredentials::Anonymous => builder.with_skip_signature(true).with_bearer_token("unused"),
        };
        CloudBackend::new(Bucket {
            store: Arc::new(builder.build().map_err(not_set_up)?),
            // Its XML interface has no lists.
            removals: None,
            unfinished: None,
            prefix: directory(&self.prefix),
            upload: self.upload,
            exclusive: ExclusiveCreate::new(),
            confirms_single_puts: true,
            listing_lacks_the_prefix: false,
            key_bound: KeyBound::Bytes,
            repeats: std::sync::OnceLock::new(),
        })
    }
}

fn text(path: &std::path::Path) -> Result<&str> {
    path.to_str().ok_or_else(|| BackendError::new(ErrorKind::Invalid, "the path of a key file is not valid UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_cannot_be_read_is_refused_at_once() {
        for credentials in [
            GcsCredentials::ServiceAccountFile("/nonexistent/key.json".into()),
            GcsCredentials::ServiceAccountKey("{}".into()),
        ] {
            let error = GcsConfig::new("bucket", credentials).open().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
        }
    }

    #[test]
    fn a_printed_configuration_holds_no_secret() {
        let config = GcsConfig::new("bucket", GcsCredentials::ServiceAccountKey("not-a-secret".into()));
        assert!(!format!("{config:?}").contains("not-a-secret"));
    }
}
