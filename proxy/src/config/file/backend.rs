//! `[backends.NAME]` and `[stores.NAME]`: a directory, or a bucket of one of the clouds.

use super::super::values::{ByteSize, Interval, SecretText};
use serde::{Deserialize, Serialize};
use std::{path::PathBuf, time::Duration};
use storage_backends::{RetryPolicy, Timeouts, UploadOptions};

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum Backend {
    Local(Local),
    S3(Box<S3>),
    Gcs(Box<Gcs>),
    Azure(Box<Azure>),
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Local {
    pub(crate) path: PathBuf,
}

/// What the clouds have in common: where the store is, and how it is dealt with.
pub(crate) struct Reach<'a> {
    pub(crate) endpoint: Option<&'a str>,
    pub(crate) prefix: &'a str,
    pub(crate) allow_http: bool,
    pub(crate) ca_file: Option<&'a PathBuf>,
    pub(crate) timeouts: Timeouts,
    pub(crate) attempts_max: u32,
    pub(crate) upload: UploadOptions,
}

/// A cloud's own keys and those that all clouds have. Keys stand side by side in the file, and an
/// unknown one must be refused, which serde's `flatten` does not do.
macro_rules! cloud {
    ($(#[$about:meta])* $name:ident { $($keys:tt)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Deserialize, Serialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            $($keys)*
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub(crate) endpoint: Option<String>,
            #[serde(default)]
            pub(crate) prefix: String,
            #[serde(default)]
            pub(crate) allow_http: bool,
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub(crate) ca_file: Option<PathBuf>,
            #[serde(default = "connect_timeout")]
            pub(crate) connect_timeout: Interval,
            #[serde(default = "stall_timeout")]
            pub(crate) stall_timeout: Interval,
            #[serde(default = "attempts_max")]
            pub(crate) attempts_max: u32,
            #[serde(default = "part_bytes")]
            pub(crate) part_bytes: ByteSize,
            #[serde(default = "parts_in_flight")]
            pub(crate) parts_in_flight: usize,
        }

        impl $name {
            pub(crate) fn reach(&self) -> Reach<'_> {
                Reach {
                    endpoint: self.endpoint.as_deref(),
                    prefix: &self.prefix,
                    allow_http: self.allow_http,
                    ca_file: self.ca_file.as_ref(),
                    timeouts: Timeouts { connect: self.connect_timeout.0, silence: self.stall_timeout.0 },
                    attempts_max: self.attempts_max,
                    upload: UploadOptions {
                        part_bytes: usize::try_from(self.part_bytes.0).unwrap_or(usize::MAX),
                        parts_in_flight: self.parts_in_flight,
                    },
                }
            }
        }
    };
}

cloud!(S3 {
    pub(crate) bucket: String,
    #[serde(default = "default_region")]
    pub(crate) region: String,
    #[serde(default = "yes")]
    pub(crate) path_style: bool,
    #[serde(default)]
    pub(crate) checksum: Checksum,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) access_key_id: Option<SecretText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret_access_key: Option<SecretText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) session_token: Option<SecretText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) credentials_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) profile: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) role_arn: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) web_identity_token_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) role_session_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sts_endpoint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) credentials: Option<S3Source>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) metadata_endpoint: Option<String>,
});

cloud!(Gcs {
    pub(crate) bucket: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) service_account_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) service_account_key: Option<SecretText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) application_credentials: Option<PathBuf>,
    #[serde(default)]
    pub(crate) anonymous: bool,
});

cloud!(Azure {
    pub(crate) account: String,
    pub(crate) container: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) access_key: Option<SecretText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sas_token: Option<SecretText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenant_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client_secret: Option<SecretText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) federated_token_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) authority: Option<String>,
});

/// The checksum a store is asked to check and keep.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Checksum {
    #[default]
    Sha256,
    Crc64nvme,
    None,
}

/// Where credentials come from that no other key names.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum S3Source {
    Environment,
    Instance,
}

fn default_region() -> String {
    "us-east-1".into()
}

fn yes() -> bool {
    true
}

fn connect_timeout() -> Interval {
    Interval(Timeouts::default().connect)
}

fn stall_timeout() -> Interval {
    Interval(Timeouts::default().silence)
}

fn attempts_max() -> u32 {
    RetryPolicy::default().attempts_max
}

fn part_bytes() -> ByteSize {
    ByteSize(UploadOptions::default().part_bytes as u64)
}

fn parts_in_flight() -> usize {
    UploadOptions::default().parts_in_flight
}

/// The shortest time that is a timeout and no mistake.
pub(crate) const TIMEOUT_MIN: Duration = Duration::from_millis(100);
