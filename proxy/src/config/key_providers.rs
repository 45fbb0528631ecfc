//! The configuration of key providers.

use super::{
    error::ConfigError,
    file::key_providers::{KmsKeys, Provider, VaultKeys},
    modes::Holds,
    notifications::outward_timeout,
    oidc::is_trustworthy,
    reader::Reader,
    values::SecretText,
};
use crate::key_providers::{KmsConfig, KmsCredentials, ProviderConfig, ProviderReach, VaultConfig, VaultLogin};
use engine::{KeyProvider, KeyProviders};
use reqwest::{Certificate, Url};
use secrecy::{ExposeSecret as _, SecretString};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

const URL_EXPECTED: &str = "expected an https:// URL (http:// on loopback alone)";

impl Reader<'_> {
    /// Who keeps KEKs, and which of them the KEK of now.
    pub(super) fn key_providers(&self) -> Result<KeyProviders, ConfigError> {
        let mut all: BTreeMap<&str, Arc<dyn KeyProvider>> = BTreeMap::new();
        for (name, provider) in &self.file.key_providers {
            let entry = Entry { reader: self, at: format!("key_providers.{name}") };
            let opened = entry.read(provider)?;
            if let Some((other, _)) =
                all.iter().find(|(_, known)| (known.kind(), known.key()) == (opened.kind(), opened.key()))
            {
                return Err(ConfigError::at(&entry.at, format!("key_providers.{other} names the same key")));
            }
            all.insert(name, opened);
        }
        let storage = &self.file.storage;
        let active = match &storage.key_provider {
            None => None,
            Some(name) => {
                let message = || ConfigError::at("storage.key_provider", format!("there is no [key_providers.{name}]"));
                Some(all.get(name.as_str()).ok_or_else(message)?.clone())
            }
        };
        let lifetime = storage.key_lifetime.0;
        if !(Duration::from_secs(1)..=Duration::from_secs(7 * 86_400)).contains(&lifetime) {
            return Err(ConfigError::at("storage.key_lifetime", "expected \"1s\" to \"7d\""));
        }
        Ok(KeyProviders { all: all.into_values().collect(), active, lifetime })
    }
}

/// One table of the file.
struct Entry<'a> {
    reader: &'a Reader<'a>,
    /// Its path.
    at: String,
}

impl Entry<'_> {
    fn read(&self, provider: &Provider) -> Result<Arc<dyn KeyProvider>, ConfigError> {
        let (config, timeout, ca_file) = match provider {
            Provider::Vault(vault) => (ProviderConfig::Vault(self.vault(vault)?), vault.timeout, &vault.ca_file),
            Provider::AwsKms(kms) => (ProviderConfig::Kms(self.kms(kms)?), kms.timeout, &kms.ca_file),
        };
        let timeout = outward_timeout(&format!("{}.timeout", self.at), timeout)?;
        let authorities = ca_file.as_deref().map(|path| self.authorities(path)).transpose()?.unwrap_or_default();
        config.open(&ProviderReach { timeout, authorities }).map_err(|error| ConfigError::at(&self.at, error))
    }

    fn wrong(&self, key: &str, message: impl Into<String>) -> ConfigError {
        ConfigError::at(&format!("{}.{key}", self.at), message)
    }

    fn secret(&self, key: &str, text: &SecretText) -> Result<SecretString, ConfigError> {
        self.reader.secret(&format!("{}.{key}", self.at), text)
    }

    /// A secret's file, which is read again and again while the server runs.
    fn file(&self, key: &str, path: &Path) -> Result<PathBuf, ConfigError> {
        let path = self.reader.directory.join(path);
        self.reader.modes.check(&format!("{}.{key}", self.at), &path, Holds::Secret)?;
        match std::fs::File::open(&path) {
            Ok(_) => Ok(path),
            Err(error) => Err(self.wrong(key, format!("cannot read {}: {error}", path.display()))),
        }
    }

    fn authorities(&self, path: &Path) -> Result<Vec<Certificate>, ConfigError> {
        let path = self.reader.directory.join(path);
        self.reader.modes.check(&format!("{}.ca_file", self.at), &path, Holds::Settings)?;
        let unusable = |why: String| self.wrong("ca_file", format!("{}: {why}", path.display()));
        let pem = std::fs::read(&path).map_err(|error| unusable(error.to_string()))?;
        let found = Certificate::from_pem_bundle(&pem).map_err(|error| unusable(error.to_string()))?;
        if found.is_empty() { Err(unusable("there is no certificate in it".into())) } else { Ok(found) }
    }

    fn url(&self, key: &str, text: &str) -> Result<String, ConfigError> {
        let url = Url::parse(text).ok().filter(|url| is_trustworthy(url) && url.query().is_none());
        url.filter(|url| url.fragment().is_none()).map(|_| text.to_owned()).ok_or_else(|| self.wrong(key, URL_EXPECTED))
    }

    /// A path below the API's root.
    fn path(&self, key: &str, text: &str, may_have_slashes: bool) -> Result<String, ConfigError> {
        let text = text.trim_matches('/');
        let fits = |part: &str| {
            let is_fine = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
            !part.is_empty() && part.bytes().all(is_fine) && !part.bytes().all(|c| c == b'.')
        };
        let parts: Vec<&str> = text.split('/').collect();
        match parts.iter().all(|part| fits(part)) && (may_have_slashes || parts.len() == 1) && text.len() <= 256 {
            true => Ok(text.to_owned()),
            false => Err(self.wrong(key, "expected a name of letters, digits, hyphens, underscores and dots")),
        }
    }

    fn vault(&self, vault: &VaultKeys) -> Result<VaultConfig, ConfigError> {
        if vault.role_id.is_some() != vault.secret_id.is_some() {
            return Err(ConfigError::at(&self.at, "role_id and secret_id belong together"));
        }
        let login = match (&vault.token, &vault.token_file, &vault.role_id, &vault.secret_id) {
            (Some(token), None, None, _) => VaultLogin::Token(self.secret("token", token)?),
            (None, Some(path), None, _) => VaultLogin::TokenFile(self.file("token_file", path)?),
            (None, None, Some(role_id), Some(secret_id)) => VaultLogin::AppRole {
                mount: self.path("approle_mount", &vault.approle_mount, true)?,
                role_id: self.secret("role_id", role_id)?,
                secret_id: self.secret("secret_id", secret_id)?,
            },
            _ => {
                let message = "set one of token, token_file, or role_id and secret_id";
                return Err(ConfigError::at(&self.at, message));
            }
        };
        Ok(VaultConfig {
            address: self.url("address", &vault.address)?,
            mount: self.path("mount", &vault.mount, true)?,
            key: self.path("key", &vault.key, false)?,
            namespace: vault.namespace.as_deref().map(|name| self.path("namespace", name, true)).transpose()?,
            login,
        })
    }

    fn kms(&self, kms: &KmsKeys) -> Result<KmsConfig, ConfigError> {
        if !(1..=2048).contains(&kms.key.len()) || !kms.key.bytes().all(|c| c.is_ascii_graphic()) {
            return Err(self.wrong("key", "expected a key's id, ARN or alias"));
        }
        if kms.region.is_empty() || !kms.region.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-') {
            return Err(self.wrong("region", "expected a region such as \"eu-central-1\""));
        }
        let usual = || format!("https://kms.{}.amazonaws.com", kms.region);
        let endpoint = kms.endpoint.clone().unwrap_or_else(usual);
        Ok(KmsConfig {
            key: kms.key.clone(),
            region: kms.region.clone(),
            endpoint: self.url("endpoint", &endpoint)?,
            credentials: self.kms_credentials(kms)?,
        })
    }

    fn kms_credentials(&self, kms: &KmsKeys) -> Result<KmsCredentials, ConfigError> {
        if kms.profile.is_some() && kms.credentials_file.is_none() {
            return Err(self.wrong("profile", "it has a meaning only with credentials_file"));
        }
        if kms.session_token.is_some() && kms.access_key_id.is_none() {
            return Err(self.wrong("session_token", "it has a meaning only with access_key_id"));
        }
        match (&kms.access_key_id, &kms.secret_access_key, &kms.credentials_file) {
            (Some(id), Some(secret), None) => Ok(KmsCredentials::Static {
                access_key_id: self.secret("access_key_id", id)?.expose_secret().to_owned(),
                secret_access_key: self.secret("secret_access_key", secret)?,
                session_token: kms.session_token.as_ref().map(|text| self.secret("session_token", text)).transpose()?,
            }),
            (None, None, Some(path)) => Ok(KmsCredentials::File {
                path: self.file("credentials_file", path)?,
                profile: kms.profile.clone().unwrap_or_else(|| "default".into()),
            }),
            (None, None, None) => self.environment(),
            (Some(_), Some(_), Some(_)) => {
                Err(ConfigError::at(&self.at, "access_key_id and credentials_file are different sources: keep one"))
            }
            _ => Err(ConfigError::at(&self.at, "access_key_id and secret_access_key belong together")),
        }
    }

    fn environment(&self) -> Result<KmsCredentials, ConfigError> {
        let value = |name: &str| self.reader.environment.get(name).filter(|value| !value.is_empty());
        let (Some(id), Some(secret)) = (value("AWS_ACCESS_KEY_ID"), value("AWS_SECRET_ACCESS_KEY")) else {
            return Err(ConfigError::at(
                &self.at,
                "no credentials: set access_key_id and secret_access_key, or credentials_file, or the environment variables \
                 AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            ));
        };
        Ok(KmsCredentials::Static {
            access_key_id: id.to_owned(),
            secret_access_key: secret.to_owned().into(),
            session_token: value("AWS_SESSION_TOKEN").map(|token| token.to_owned().into()),
        })
    }
}
