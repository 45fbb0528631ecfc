//! What the catalog keeps of a user, group, policy or access key. Member names are part of the
//! format (docs/format/accounts-v1.md).

use s3_wire::sigv4::SecretKey;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use subtle::ConstantTimeEq as _;

/// A user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UserEntry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) canonical_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) email: Option<String>,
    pub(super) enabled: bool,
    pub(super) groups: BTreeSet<String>,
    pub(super) policies: BTreeSet<String>,
    /// The configuration file brought it.
    pub(super) from_file: bool,
    /// It is gone, and the file does not bring it back.
    pub(super) removed: bool,
    pub(super) created_ms: i64,
}

/// A group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupEntry {
    pub(super) policies: BTreeSet<String>,
}

/// A policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyEntry {
    pub(super) document: String,
}

/// An access key.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyEntry {
    pub(super) user: String,
    #[serde(with = "secret_text")]
    pub(super) secret: SecretKey,
    pub(super) enabled: bool,
    pub(super) created_ms: i64,
}

impl KeyEntry {
    /// Whether a secret is this key's.
    pub(super) fn has_secret(&self, secret: &SecretKey) -> bool {
        self.secret.expose().as_bytes().ct_eq(secret.expose().as_bytes()).into()
    }
}

impl PartialEq for KeyEntry {
    fn eq(&self, other: &Self) -> bool {
        let of = |key: &Self| (key.user.clone(), key.enabled, key.created_ms);
        of(self) == of(other) && self.has_secret(&other.secret)
    }
}

mod secret_text {
    use super::SecretKey;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(secret: &SecretKey, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(secret.expose())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<SecretKey, D::Error> {
        String::deserialize(input).map(SecretKey::new)
    }
}
