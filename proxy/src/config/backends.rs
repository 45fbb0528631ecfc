//! Backends and stores: from the keys of the file to what `storage_backends` takes. Every store has
//! exactly one source of credentials, and a key that another one makes meaningless is refused.

use super::{
    error::ConfigError,
    file::backend::{self, Checksum, Reach, S3Source, TIMEOUT_MIN},
    modes::Holds,
    reader::Reader,
    values::SecretText,
};
use crate::stores::{BackendConfig, CloudConfig, CloudStore};
use secrecy::{ExposeSecret, SecretString};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};
use storage_backends::{
    AzureConfig, AzureCredentials, GcsConfig, GcsCredentials, RetryPolicy, S3Checksum, S3Config, S3Credentials,
    TrustedCertificates,
};

impl Reader<'_> {
    /// Stores of plain objects. A name means one thing wherever it stands.
    pub(super) fn stores(&self) -> Result<BTreeMap<String, BackendConfig>, ConfigError> {
        let stores = self.backends("stores", &self.file.stores)?;
        match stores.keys().find(|name| self.file.backends.contains_key(*name)) {
            Some(name) => Err(ConfigError::at(&format!("stores.{name}"), "a backend has this name")),
            None => Ok(stores),
        }
    }

    pub(super) fn backends(
        &self,
        table: &str,
        entries: &BTreeMap<String, backend::Backend>,
    ) -> Result<BTreeMap<String, BackendConfig>, ConfigError> {
        let mut backends = BTreeMap::new();
        for (name, backend) in entries {
            let at = format!("{table}.{name}");
            if name.is_empty()
                || name.len() > 64
                || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            {
                return Err(ConfigError::at(&at, "a name is 1 to 64 letters, digits, hyphens and underscores"));
            }
            let entry = Entry { reader: self, at };
            backends.insert(name.clone(), entry.read(backend)?);
        }
        Ok(backends)
    }
}

/// One table of the file.
struct Entry<'a> {
    reader: &'a Reader<'a>,
    /// Its path.
    at: String,
}

impl Entry<'_> {
    fn read(&self, backend: &backend::Backend) -> Result<BackendConfig, ConfigError> {
        let (reach, store) = match backend {
            backend::Backend::Local(local) => return Ok(BackendConfig::Local { path: local.path.clone() }),
            backend::Backend::S3(s3) => (s3.reach(), CloudStore::S3(self.s3(s3)?)),
            backend::Backend::Gcs(gcs) => (gcs.reach(), CloudStore::Gcs(self.gcs(gcs)?)),
            backend::Backend::Azure(azure) => (azure.reach(), CloudStore::Azure(self.azure(azure)?)),
        };
        self.check(&reach)?;
        let retry = RetryPolicy { attempts_max: reach.attempts_max, ..RetryPolicy::default() };
        // Opening sends nothing, and knows best what cannot be.
        store.open().map_err(|error| ConfigError::at(&self.at, error.to_string()))?;
        Ok(BackendConfig::Cloud(Box::new(CloudConfig { store, retry })))
    }

    fn wrong(&self, key: &str, message: impl Into<String>) -> ConfigError {
        ConfigError::at(&format!("{}.{key}", self.at), message)
    }

    fn check(&self, reach: &Reach<'_>) -> Result<(), ConfigError> {
        if !reach.prefix.is_empty() && !reach.prefix.ends_with('/') {
            return Err(self.wrong("prefix", "expected a prefix that ends in \"/\""));
        }
        if !(1..=20).contains(&reach.attempts_max) {
            return Err(self.wrong("attempts_max", "expected 1 to 20"));
        }
        if !(5 << 20..=1 << 30).contains(&reach.upload.part_bytes) {
            return Err(self.wrong("part_bytes", "expected \"5MiB\" to \"1GiB\""));
        }
        if !(1..=64).contains(&reach.upload.parts_in_flight) {
            return Err(self.wrong("parts_in_flight", "expected 1 to 64"));
        }
        for (key, value) in [("connect_timeout", reach.timeouts.connect), ("stall_timeout", reach.timeouts.silence)] {
            if value < TIMEOUT_MIN {
                return Err(self.wrong(key, "expected at least \"100ms\""));
            }
        }
        if reach.endpoint.is_some_and(|endpoint| !endpoint.starts_with("http://") && !endpoint.starts_with("https://"))
        {
            return Err(self.wrong("endpoint", "expected an http:// or https:// URL"));
        }
        if reach.ca_file.is_some() && reach.endpoint.is_none_or(|endpoint| endpoint.starts_with("http://")) {
            return Err(self.wrong("ca_file", "it belongs to an https:// endpoint"));
        }
        Ok(())
    }

    fn s3(&self, s3: &backend::S3) -> Result<S3Config, ConfigError> {
        let reach = s3.reach();
        Ok(S3Config {
            prefix: reach.prefix.to_owned(),
            region: s3.region.clone(),
            endpoint: reach.endpoint.map(str::to_owned),
            path_style: s3.path_style,
            allow_http: reach.allow_http,
            checksum: match s3.checksum {
                Checksum::Sha256 => S3Checksum::Sha256,
                Checksum::Crc64nvme => S3Checksum::Crc64Nvme,
                Checksum::None => S3Checksum::None,
            },
            trusted: self.trusted(&reach)?,
            upload: reach.upload,
            timeouts: reach.timeouts,
            ..S3Config::new(s3.bucket.clone(), self.s3_credentials(s3)?)
        })
    }

    fn s3_credentials(&self, s3: &backend::S3) -> Result<S3Credentials, ConfigError> {
        self.both(
            ("access_key_id", s3.access_key_id.is_some()),
            ("secret_access_key", s3.secret_access_key.is_some()),
        )?;
        self.both(
            ("role_arn", s3.role_arn.is_some()),
            ("web_identity_token_file", s3.web_identity_token_file.is_some()),
        )?;
        self.only_with("session_token", s3.session_token.is_some(), "access_key_id", s3.access_key_id.is_some())?;
        self.only_with("profile", s3.profile.is_some(), "credentials_file", s3.credentials_file.is_some())?;
        self.only_with("role_session_name", s3.role_session_name.is_some(), "role_arn", s3.role_arn.is_some())?;
        self.only_with("sts_endpoint", s3.sts_endpoint.is_some(), "role_arn", s3.role_arn.is_some())?;
        let from_instance = matches!(s3.credentials, Some(S3Source::Instance));
        self.only_with(
            "metadata_endpoint",
            s3.metadata_endpoint.is_some(),
            "credentials = \"instance\"",
            from_instance,
        )?;
        self.one_of(&[
            ("access_key_id", s3.access_key_id.is_some()),
            ("credentials_file", s3.credentials_file.is_some()),
            ("role_arn", s3.role_arn.is_some()),
            ("credentials", s3.credentials.is_some()),
        ])?;
        if let (Some(id), Some(secret)) = (&s3.access_key_id, &s3.secret_access_key) {
            return Ok(S3Credentials::Static {
                access_key_id: self.secret("access_key_id", id)?.expose_secret().to_owned(),
                secret_access_key: self.secret("secret_access_key", secret)?,
                session_token: self.secret_if_any("session_token", s3.session_token.as_ref())?,
            });
        }
        if let Some(path) = &s3.credentials_file {
            return Ok(S3Credentials::File { path: self.file("credentials_file", path)?, profile: s3.profile.clone() });
        }
        if let (Some(role_arn), Some(token_file)) = (&s3.role_arn, &s3.web_identity_token_file) {
            return Ok(S3Credentials::WebIdentity {
                token_file: self.file("web_identity_token_file", token_file)?,
                role_arn: role_arn.clone(),
                session_name: s3.role_session_name.clone(),
                sts_endpoint: s3.sts_endpoint.clone(),
            });
        }
        if from_instance {
            return Ok(S3Credentials::Instance { endpoint: s3.metadata_endpoint.clone() });
        }
        self.s3_environment()
    }

    /// The variables of the AWS tools, which must name credentials: otherwise the metadata service
    /// would be asked, and waited for, where there is none.
    fn s3_environment(&self) -> Result<S3Credentials, ConfigError> {
        let set = |name: &str| self.reader.environment.get(name).is_some_and(|value| !value.is_empty());
        let named = [
            ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"],
            ["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"],
            ["AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"],
            ["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"; 2],
        ];
        if !named.iter().any(|names| names.iter().all(|name| set(name))) {
            return Err(ConfigError::at(
                &self.at,
                "no credentials: set access_key_id and secret_access_key, or credentials_file, or role_arn and \
                 web_identity_token_file, or the environment variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; \
                 credentials = \"instance\" takes the role of the machine",
            ));
        }
        let variables = self.reader.environment.all().filter(|(name, _)| name.starts_with("AWS_"));
        Ok(S3Credentials::Environment(
            variables.map(|(name, value)| (name.to_owned(), SecretString::from(value.to_owned()))).collect(),
        ))
    }

    fn gcs(&self, gcs: &backend::Gcs) -> Result<GcsConfig, ConfigError> {
        let reach = gcs.reach();
        self.one_of(&[
            ("service_account_file", gcs.service_account_file.is_some()),
            ("service_account_key", gcs.service_account_key.is_some()),
            ("application_credentials", gcs.application_credentials.is_some()),
            ("anonymous", gcs.anonymous),
        ])?;
        let credentials = if let Some(path) = &gcs.service_account_file {
            GcsCredentials::ServiceAccountFile(self.file("service_account_file", path)?)
        } else if let Some(key) = &gcs.service_account_key {
            GcsCredentials::ServiceAccountKey(self.secret("service_account_key", key)?)
        } else if let Some(path) = &gcs.application_credentials {
            GcsCredentials::ApplicationDefault(Some(self.file("application_credentials", path)?))
        } else if gcs.anonymous {
            GcsCredentials::Anonymous
        } else {
            let named = self.reader.environment.get("GOOGLE_APPLICATION_CREDENTIALS").map(PathBuf::from);
            GcsCredentials::ApplicationDefault(named)
        };
        Ok(GcsConfig {
            prefix: reach.prefix.to_owned(),
            endpoint: reach.endpoint.map(str::to_owned),
            allow_http: reach.allow_http,
            trusted: self.trusted(&reach)?,
            upload: reach.upload,
            timeouts: reach.timeouts,
            ..GcsConfig::new(gcs.bucket.clone(), credentials)
        })
    }

    fn azure(&self, azure: &backend::Azure) -> Result<AzureConfig, ConfigError> {
        let reach = azure.reach();
        Ok(AzureConfig {
            prefix: reach.prefix.to_owned(),
            endpoint: reach.endpoint.map(str::to_owned),
            authority: azure.authority.clone(),
            allow_http: reach.allow_http,
            trusted: self.trusted(&reach)?,
            upload: reach.upload,
            timeouts: reach.timeouts,
            ..AzureConfig::new(azure.account.clone(), azure.container.clone(), self.azure_credentials(azure)?)
        })
    }

    fn azure_credentials(&self, azure: &backend::Azure) -> Result<AzureCredentials, ConfigError> {
        let is_application = azure.client_secret.is_some() || azure.federated_token_file.is_some();
        self.one_of(&[
            ("access_key", azure.access_key.is_some()),
            ("sas_token", azure.sas_token.is_some()),
            ("client_secret", azure.client_secret.is_some()),
            ("federated_token_file", azure.federated_token_file.is_some()),
        ])?;
        let application = "client_secret or federated_token_file";
        self.only_with("tenant_id", azure.tenant_id.is_some(), application, is_application)?;
        self.only_with("authority", azure.authority.is_some(), application, is_application)?;
        let has_key = azure.access_key.is_some() || azure.sas_token.is_some();
        if has_key && azure.client_id.is_some() {
            return Err(self.wrong("client_id", "it has no meaning beside access_key or sas_token"));
        }
        if let Some(key) = &azure.access_key {
            return Ok(AzureCredentials::AccessKey(self.secret("access_key", key)?));
        }
        if let Some(query) = &azure.sas_token {
            return Ok(AzureCredentials::SharedAccessSignature(self.secret("sas_token", query)?));
        }
        if !is_application {
            return Ok(AzureCredentials::ManagedIdentity(azure.client_id.clone()));
        }
        let (Some(tenant_id), Some(client_id)) = (azure.tenant_id.clone(), azure.client_id.clone()) else {
            return Err(ConfigError::at(&self.at, "an application of Entra ID needs tenant_id and client_id"));
        };
        if let Some(secret) = &azure.client_secret {
            let client_secret = self.secret("client_secret", secret)?;
            return Ok(AzureCredentials::ClientSecret { tenant_id, client_id, client_secret });
        }
        let token_file = azure.federated_token_file.as_deref().unwrap_or(Path::new(""));
        let token_file = self.file("federated_token_file", token_file)?;
        Ok(AzureCredentials::WorkloadIdentity { tenant_id, client_id, token_file })
    }

    fn trusted(&self, reach: &Reach<'_>) -> Result<TrustedCertificates, ConfigError> {
        let Some(path) = reach.ca_file else { return Ok(TrustedCertificates::default()) };
        let path = self.reader.directory.join(path);
        self.reader.modes.check(&format!("{}.ca_file", self.at), &path, Holds::Settings)?;
        let unusable = |error: &dyn std::fmt::Display| self.wrong("ca_file", format!("{}: {error}", path.display()));
        let pem = std::fs::read(&path).map_err(|error| unusable(&error))?;
        TrustedCertificates::from_pem(&pem).map_err(|error| unusable(&error))
    }

    fn secret(&self, key: &str, text: &SecretText) -> Result<SecretString, ConfigError> {
        self.reader.secret(&format!("{}.{key}", self.at), text)
    }

    fn secret_if_any(&self, key: &str, text: Option<&SecretText>) -> Result<Option<SecretString>, ConfigError> {
        text.map(|text| self.secret(key, text)).transpose()
    }

    /// A file that is read again and again while the server runs: that it can be read at all is
    /// known now.
    fn file(&self, key: &str, path: &Path) -> Result<PathBuf, ConfigError> {
        let path = self.reader.directory.join(path);
        self.reader.modes.check(&format!("{}.{key}", self.at), &path, Holds::Secret)?;
        match std::fs::File::open(&path) {
            Ok(_) => Ok(path),
            Err(error) => Err(self.wrong(key, format!("cannot read {}: {error}", path.display()))),
        }
    }

    fn both(&self, (one, has_one): (&str, bool), (other, has_other): (&str, bool)) -> Result<(), ConfigError> {
        if has_one == has_other {
            return Ok(());
        }
        Err(ConfigError::at(&self.at, format!("{one} and {other} belong together")))
    }

    fn only_with(&self, key: &str, has_key: bool, other: &str, has_other: bool) -> Result<(), ConfigError> {
        if !has_key || has_other {
            return Ok(());
        }
        Err(self.wrong(key, format!("it has a meaning only with {other}")))
    }

    /// At most one source of credentials.
    fn one_of(&self, sources: &[(&str, bool)]) -> Result<(), ConfigError> {
        let given: Vec<&str> = sources.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
        match given.as_slice() {
            [] | [_] => Ok(()),
            several => {
                let message = format!("{} are different sources of credentials: keep one", several.join(" and "));
                Err(ConfigError::at(&self.at, message))
            }
        }
    }
}
