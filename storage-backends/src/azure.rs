//! A container of Azure Blob Storage.
//!
//! A blob that fits one part is created exclusively; the completion of one in parts is not, and
//! random names keep them apart. Since no checksum of ours goes with the body, every upload is
//! confirmed by the length the store then reports. Parts of an upload that is given up cannot be
//! removed: Azure drops them after a week.

use crate::{
    BackendError, ErrorKind, KeyBound, Result,
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
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use secrecy::{ExposeSecret, SecretString};
use std::{path::PathBuf, sync::Arc};

/// Most requests of one batch.
const BATCH_NAMES_MAX: usize = 256;

/// Where a container is and how it is reached.
#[derive(Debug, Clone)]
pub struct AzureConfig {
    /// The storage account.
    pub account: String,
    /// The container's name. It must exist.
    pub container: String,
    /// Put before every name, with a `/` between; may be empty.
    pub prefix: String,
    /// The account's address, such as `http://127.0.0.1:10000/devstoreaccount1` for an emulator;
    /// Azure's when absent.
    pub endpoint: Option<String>,
    /// Where Entra ID answers; Azure's public cloud when absent.
    pub authority: Option<String>,
    /// Plain HTTP also to other machines.
    pub allow_http: bool,
    /// Who asks.
    pub credentials: AzureCredentials,
    /// Whose certificates are trusted, beside those the machine trusts.
    pub trusted: TrustedCertificates,
    /// How blobs are cut into parts.
    pub upload: UploadOptions,
    /// How long a silent store is waited for.
    pub timeouts: Timeouts,
}

/// Who asks Azure.
#[derive(Debug, Clone)]
pub enum AzureCredentials {
    /// One of the account's two keys, in base64.
    AccessKey(SecretString),
    /// A shared access signature: the query string.
    SharedAccessSignature(SecretString),
    /// An application of Entra ID and its secret.
    ClientSecret {
        /// The directory.
        tenant_id: String,
        /// The application.
        client_id: String,
        /// Its secret.
        client_secret: SecretString,
    },
    /// A token of an OpenID provider that Entra ID trusts; on Kubernetes the service account's.
    WorkloadIdentity {
        /// The directory.
        tenant_id: String,
        /// The application.
        client_id: String,
        /// The file that holds the token.
        token_file: PathBuf,
    },
    /// The identity of the machine, or of the user-assigned identity with this client id.
    ManagedIdentity(Option<String>),
}

impl AzureConfig {
    /// A container of Azure's, with the given credentials and defaults for all else.
    pub fn new(account: impl Into<String>, container: impl Into<String>, credentials: AzureCredentials) -> Self {
        Self {
            account: account.into(),
            container: container.into(),
            prefix: String::new(),
            endpoint: None,
            authority: None,
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
    /// [`ErrorKind::Invalid`] when the configuration contradicts itself.
    pub fn open(self) -> Result<CloudBackend> {
        let plain = PlainHttp::for_endpoint(self.endpoint.as_deref(), self.allow_http)?;
        // The header would have to be signed.
        let connector = Connector { exclusive_completion: None, allow_http: plain.to_token_services };
        let mut builder = MicrosoftAzureBuilder::new()
            .with_account(&self.account)
            .with_container_name(&self.container)
            .with_retry(no_retries())
            .with_client_options(client_options(self.timeouts, &self.trusted, plain.to_store))
            .with_http_connector(connector);
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint.trim_end_matches('/').to_owned());
        }
        if let Some(authority) = &self.authority {
            builder = builder.with_authority_host(authority.trim_end_matches('/').to_owned());
        }
        let store = self.credentials.apply(builder)?.build().map_err(not_set_up)?;
        let store = Arc::new(store);
        CloudBackend::new(Bucket {
            removals: Some(Removals::new(store.clone(), BATCH_NAMES_MAX)),
            store,
            unfinished: None,
            prefix: directory(&self.prefix),
            upload: self.upload,
            exclusive: ExclusiveCreate::new(),
            confirms_single_puts: true,
            listing_lacks_the_prefix: true,
            key_bound: KeyBound::Characters,
            repeats: std::sync::OnceLock::new(),
        })
    }
}

impl AzureCredentials {
    fn apply(&self, builder: MicrosoftAzureBuilder) -> Result<MicrosoftAzureBuilder> {
        Ok(match self {
            Self::AccessKey(key) => builder.with_access_key(key.expose_secret()),
            Self::SharedAccessSignature(query) => builder.with_config(AzureConfigKey::SasKey, query.expose_secret()),
            Self::ClientSecret { tenant_id, client_id, client_secret } => {
                builder.with_client_secret_authorization(client_id, client_secret.expose_secret(), tenant_id)
            }
            Self::WorkloadIdentity { tenant_id, client_id, token_file } => {
                let not_text =
                    || BackendError::new(ErrorKind::Invalid, "the path of the token file is not valid UTF-8");
                builder
                    .with_tenant_id(tenant_id)
                    .with_client_id(client_id)
                    .with_federated_token_file(token_file.to_str().ok_or_else(not_text)?)
            }
            Self::ManagedIdentity(None) => builder,
            Self::ManagedIdentity(Some(client_id)) => builder.with_client_id(client_id),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_not_base64_is_refused_at_once() {
        let config = AzureConfig::new("account", "container", AzureCredentials::AccessKey("§".into()));
        assert_eq!(config.open().unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[test]
    fn a_printed_configuration_holds_no_secret() {
        let credentials = AzureCredentials::ClientSecret {
            tenant_id: "tenant".to_owned(),
            client_id: "client".to_owned(),
            client_secret: "not-a-secret".into(),
        };
        assert!(!format!("{:?}", AzureConfig::new("account", "container", credentials)).contains("not-a-secret"));
    }
}
