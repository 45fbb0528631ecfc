//! Where an S3 backend's credentials come from.

use crate::{BackendError, ErrorKind, Result};
use async_trait::async_trait;
use object_store::{
    CredentialProvider,
    aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential},
};
use secrecy::{ExposeSecret, SecretString};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::Mutex;

/// Who asks the store. Nothing here reads the process's environment: the caller hands over what it
/// holds.
#[derive(Debug, Clone)]
pub enum S3Credentials {
    /// A key pair.
    Static {
        /// The public half.
        access_key_id: String,
        /// The secret half.
        secret_access_key: SecretString,
        /// For temporary keys.
        session_token: Option<SecretString>,
    },
    /// A profile of a file as the AWS tools keep it (`~/.aws/credentials`), read again every 10 s
    /// at most, so that keys can be rotated under a running server.
    File {
        /// The file.
        path: PathBuf,
        /// The profile in it; `default` when absent.
        profile: Option<String>,
    },
    /// A token of an OpenID provider, exchanged for temporary keys (`AssumeRoleWithWebIdentity`);
    /// on Kubernetes the service account's.
    WebIdentity {
        /// The file that holds the token; it is read again for every exchange.
        token_file: PathBuf,
        /// The role to take.
        role_arn: String,
        /// The session's name in the audit log of the account.
        session_name: Option<String>,
        /// The token service; that of AWS in the backend's region when absent.
        sts_endpoint: Option<String>,
    },
    /// The role of the machine, as its metadata service hands it out (IMDSv2).
    Instance {
        /// Where that answers; the address AWS gives it when absent.
        endpoint: Option<String>,
    },
    /// The variables of the AWS tools: a key pair, a web identity or a container's credentials,
    /// whichever they name, else the metadata service of the machine. Variables about anything but
    /// credentials are ignored.
    Environment(BTreeMap<String, SecretString>),
}

impl S3Credentials {
    pub(super) fn apply(&self, builder: AmazonS3Builder) -> Result<AmazonS3Builder> {
        Ok(match self {
            Self::Static { access_key_id, secret_access_key, session_token } => {
                let builder =
                    builder.with_access_key_id(access_key_id).with_secret_access_key(secret_access_key.expose_secret());
                match session_token {
                    Some(token) => builder.with_token(token.expose_secret()),
                    None => builder,
                }
            }
            Self::File { path, profile } => builder.with_credentials(Arc::new(ProfileFile {
                path: path.clone(),
                profile: profile.clone().unwrap_or_else(|| "default".to_owned()),
                latest: Mutex::default(),
            })),
            Self::WebIdentity { token_file, role_arn, session_name, sts_endpoint } => {
                let token_file = token_file.to_str().ok_or_else(|| {
                    BackendError::new(ErrorKind::Invalid, "the path of the token file is not valid UTF-8")
                })?;
                let settings = [
                    (AmazonS3ConfigKey::WebIdentityTokenFile, Some(token_file)),
                    (AmazonS3ConfigKey::RoleArn, Some(role_arn.as_str())),
                    (AmazonS3ConfigKey::RoleSessionName, Some(session_name.as_deref().unwrap_or("deltaweir"))),
                    (AmazonS3ConfigKey::StsEndpoint, sts_endpoint.as_deref()),
                ];
                settings.into_iter().fold(builder, |builder, (key, value)| match value {
                    Some(value) => builder.with_config(key, value),
                    None => builder,
                })
            }
            Self::Instance { endpoint: None } => builder,
            Self::Instance { endpoint: Some(endpoint) } => builder.with_metadata_endpoint(endpoint),
            Self::Environment(variables) => variables
                .iter()
                .filter_map(|(name, value)| Some((credential_key(name)?, value)))
                .fold(builder, |builder, (key, value)| builder.with_config(key, value.expose_secret())),
        })
    }
}

/// The setting a variable stands for, when it is about credentials.
fn credential_key(variable: &str) -> Option<AmazonS3ConfigKey> {
    Some(match variable {
        "AWS_ACCESS_KEY_ID" => AmazonS3ConfigKey::AccessKeyId,
        "AWS_SECRET_ACCESS_KEY" => AmazonS3ConfigKey::SecretAccessKey,
        "AWS_SESSION_TOKEN" => AmazonS3ConfigKey::Token,
        "AWS_WEB_IDENTITY_TOKEN_FILE" => AmazonS3ConfigKey::WebIdentityTokenFile,
        "AWS_ROLE_ARN" => AmazonS3ConfigKey::RoleArn,
        "AWS_ROLE_SESSION_NAME" => AmazonS3ConfigKey::RoleSessionName,
        "AWS_ENDPOINT_URL_STS" => AmazonS3ConfigKey::StsEndpoint,
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI" => AmazonS3ConfigKey::ContainerCredentialsRelativeUri,
        "AWS_CONTAINER_CREDENTIALS_FULL_URI" => AmazonS3ConfigKey::ContainerCredentialsFullUri,
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE" => AmazonS3ConfigKey::ContainerAuthorizationTokenFile,
        _ => return None,
    })
}

/// A profile that is read from its file now and then.
#[derive(Debug)]
struct ProfileFile {
    path: PathBuf,
    profile: String,
    latest: Mutex<Option<(Instant, Arc<AwsCredential>)>>,
}

#[async_trait]
impl CredentialProvider for ProfileFile {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let mut latest = self.latest.lock().await;
        if let Some((read_at, credential)) = &*latest
            && read_at.elapsed() < REREAD_AFTER
        {
            return Ok(credential.clone());
        }
        match read_profile(&self.path, &self.profile).await {
            Ok(credential) => {
                let credential = Arc::new(credential);
                *latest = Some((Instant::now(), credential.clone()));
                Ok(credential)
            }
            Err(error) => match &mut *latest {
                // A file being replaced is no reason to stop: the keys at hand are tried for
                // another while.
                Some((read_at, credential)) => {
                    tracing::warn!(%error, path = %self.path.display(), "the credentials could not be reloaded");
                    *read_at = Instant::now();
                    Ok(credential.clone())
                }
                None => Err(object_store::Error::Unauthenticated {
                    path: self.path.display().to_string(),
                    source: Box::new(error),
                }),
            },
        }
    }
}

/// The key pair of a profile in a file of the AWS tools. The text of the file is wiped.
///
/// # Errors
/// [`ErrorKind::Denied`]: the file cannot be read, or has no such pair.
pub async fn read_profile(path: &Path, profile: &str) -> Result<AwsCredential> {
    let text = tokio::fs::read_to_string(path)
        .await
        .map_err(|error| BackendError::with_source(ErrorKind::Denied, "cannot read the credentials file", error))?;
    parse_profile(SecretString::from(text).expose_secret(), profile)
        .ok_or_else(|| BackendError::new(ErrorKind::Denied, format!("no key pair in the profile {profile:?}")))
}

/// The key pair of `[profile]` in the format of the AWS tools
/// (<https://docs.aws.amazon.com/sdkref/latest/guide/file-format.html>).
fn parse_profile(text: &str, profile: &str) -> Option<AwsCredential> {
    let mut in_profile = false;
    let (mut key_id, mut secret_key, mut token) = (None, None, None);
    for line in text.lines().map(str::trim) {
        if line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(section) = line.strip_prefix('[') {
            in_profile = section.split(']').next().is_some_and(|name| name.trim() == profile);
        } else if let Some((key, value)) = line.split_once('=').filter(|_| in_profile) {
            // The AWS tools do not look at the case of a key.
            let slot = match key.trim().to_ascii_lowercase().as_str() {
                "aws_access_key_id" => &mut key_id,
                "aws_secret_access_key" => &mut secret_key,
                "aws_session_token" => &mut token,
                _ => continue,
            };
            *slot = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
        }
    }
    Some(AwsCredential { key_id: key_id?, secret_key: secret_key?, token })
}

const REREAD_AFTER: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FILE: &str = "
        # two accounts
        [default]
        aws_access_key_id = AKID1
        aws_secret_access_key=se=cret
        [other]
        region = eu-central-1
        AWS_Access_Key_ID = AKID2
        ; aws_access_key_id = AKID3
        aws_secret_access_key = secret2
        aws_session_token = token2
        [half]
        aws_access_key_id = AKID4
    ";

    #[test]
    fn a_profile_has_the_keys_below_its_own_heading() {
        let default = parse_profile(FILE, "default").unwrap();
        assert_eq!((&*default.key_id, &*default.secret_key, default.token), ("AKID1", "se=cret", None));
        let other = parse_profile(FILE, "other").unwrap();
        assert_eq!((&*other.key_id, &*other.secret_key, other.token.as_deref()), ("AKID2", "secret2", Some("token2")));
        assert!(parse_profile(FILE, "half").is_none());
        assert!(parse_profile(FILE, "none").is_none());
    }

    #[tokio::test]
    async fn keys_at_hand_outlive_a_file_that_is_being_replaced() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), FILE).unwrap();
        let provider =
            ProfileFile { path: file.path().to_owned(), profile: "default".to_owned(), latest: Mutex::default() };
        assert_eq!(provider.get_credential().await.unwrap().key_id, "AKID1");
        let expire = async || {
            if let Some((read_at, _)) = &mut *provider.latest.lock().await {
                *read_at -= REREAD_AFTER;
            }
        };
        std::fs::write(file.path(), "").unwrap();
        expire().await;
        assert_eq!(provider.get_credential().await.unwrap().key_id, "AKID1");
        std::fs::write(file.path(), FILE.replace("AKID1", "AKID9")).unwrap();
        expire().await;
        assert_eq!(provider.get_credential().await.unwrap().key_id, "AKID9");
    }

    #[tokio::test]
    async fn a_missing_file_is_an_error_not_anonymous_access() {
        let path = PathBuf::from("/nonexistent/credentials");
        let provider = ProfileFile { path, profile: "default".to_owned(), latest: Mutex::default() };
        assert!(provider.get_credential().await.is_err());
    }

    #[test]
    fn only_variables_about_credentials_count() {
        assert!(credential_key("AWS_ACCESS_KEY_ID").is_some());
        for other in ["AWS_ENDPOINT_URL", "AWS_BUCKET", "AWS_REGION", "AWS_SKIP_SIGNATURE", "PATH"] {
            assert!(credential_key(other).is_none(), "{other}");
        }
    }

    proptest! {
        #[test]
        fn any_file_can_be_read(text in "(\\[[a-z]{0,3}\\]?|[a-z_]{0,8}=?[ -~]{0,8}|\\PC{0,9}|\\n){0,30}") {
            let _ = parse_profile(&text, "a");
        }

        #[test]
        fn a_written_profile_is_read_back(id in "[A-Z0-9]{1,20}", secret in "[A-Za-z0-9/+=]{1,40}") {
            let text = format!("[p]\naws_secret_access_key = {secret}\naws_access_key_id = {id}\n");
            let read = parse_profile(&text, "p").unwrap();
            prop_assert_eq!((read.key_id, read.secret_key), (id, secret));
        }
    }
}
