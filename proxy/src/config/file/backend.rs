//! `[backends.NAME]` and `[stores.NAME]`: a directory, or a bucket of one of the clouds.

use crate::config::values::{ByteSize, Interval, SecretText};
use serde::{Deserialize, Serialize};
use std::{path::PathBuf, time::Duration};
use storage_backends::{RetryPolicy, Timeouts, UploadOptions};

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(in crate::config) enum Backend {
    Local(Local),
    S3(Box<S3>),
    Gcs(Box<Gcs>),
    Azure(Box<Azure>),
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Local {
    pub(in crate::config) path: PathBuf,
}

/// What the clouds have in common: where the store is, and how it is dealt with.
pub(in crate::config) struct Reach<'a> {
    pub(in crate::config) endpoint: Option<&'a str>,
    pub(in crate::config) prefix: &'a str,
    pub(in crate::config) allow_http: bool,
    pub(in crate::config) ca_file: Option<&'a PathBuf>,
    pub(in crate::config) timeouts: Timeouts,
    pub(in crate::config) attempts_max: u32,
    pub(in crate::config) upload: UploadOptions,
}

/// A cloud's own keys and those that all clouds have. Keys stand side by side in the file, and an
/// unknown one must be refused, which serde's `flatten` does not do.
macro_rules! cloud {
    ($(#[$about:meta])* $name:ident { $($keys:tt)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Deserialize, Serialize)]
        #[serde(deny_unknown_fields)]
        pub(in crate::config) struct $name {
            $($keys)*
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub(in crate::config) endpoint: Option<String>,
            #[serde(default)]
            pub(in crate::config) prefix: String,
            #[serde(default)]
            pub(in crate::config) allow_http: bool,
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub(in crate::config) ca_file: Option<PathBuf>,
            #[serde(default = "connect_timeout")]
            pub(in crate::config) connect_timeout: Interval,
            #[serde(default = "stall_timeout")]
            pub(in crate::config) stall_timeout: Interval,
            #[serde(default = "attempts_max")]
            pub(in crate::config) attempts_max: u32,
            #[serde(default = "part_bytes")]
            pub(in crate::config) part_bytes: ByteSize,
            #[serde(default = "parts_in_flight")]
            pub(in crate::config) parts_in_flight: usize,
        }

        impl $name {
            pub(in crate::config) fn reach(&self) -> Reach<'_> {
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
    pub(in crate::config) bucket: String,
    #[serde(default = "default_region")]
    pub(in crate::config) region: String,
    #[serde(default = "yes")]
    pub(in crate::config) path_style: bool,
    #[serde(default)]
    pub(in crate::config) checksum: Checksum,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) access_key_id: Option<SecretText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) secret_access_key: Option<SecretText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) session_token: Option<SecretText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) credentials_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) profile: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) role_arn: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) web_identity_token_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) role_session_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) sts_endpoint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) credentials: Option<S3Source>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) metadata_endpoint: Option<String>,
});

cloud!(Gcs {
    pub(in crate::config) bucket: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) service_account_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) service_account_key: Option<SecretText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) application_credentials: Option<PathBuf>,
    #[serde(default)]
    pub(in crate::config) anonymous: bool,
});

cloud!(Azure {
    pub(in crate::config) account: String,
    pub(in crate::config) container: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) access_key: Option<SecretText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) sas_token: Option<SecretText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) tenant_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) client_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) client_secret: Option<SecretText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) federated_token_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) authority: Option<String>,
});

/// The checksum a store is asked to check and keep.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum Checksum {
    #[default]
    Sha256,
    Crc64nvme,
    None,
}

/// Where credentials come from that no other key names.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum S3Source {
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
pub(in crate::config) const TIMEOUT_MIN: Duration = Duration::from_millis(100);
