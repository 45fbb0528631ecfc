//! Users, groups, policies and access keys. What they say is sealed by whoever writes them: the
//! catalog knows kinds and names.

use super::ids::Seq;
use serde::{Deserialize, Serialize};

/// What an account's row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum AccountKind {
    /// A user, by its name.
    User,
    /// A group of users, by its name.
    Group,
    /// A policy, by its name.
    Policy,
    /// An access key, by its id: one in the whole deployment.
    AccessKey,
}

/// Which row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AccountName {
    /// Its kind.
    pub kind: AccountKind,
    /// Its name, unique in its kind.
    pub name: String,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountRow {
    /// Which one.
    #[serde(flatten)]
    pub name: AccountName,
    /// What it says, sealed.
    #[serde(with = "crate::encoding::base64_bytes")]
    pub sealed: Vec<u8>,
}

/// Every row, as of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountRows {
    /// The mutation that changed them last; 0 when none did.
    pub version: Seq,
    /// The rows, by kind and name.
    pub rows: Vec<AccountRow>,
}

/// Rows that are changed together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountsChange {
    /// New rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub creates: Vec<AccountRow>,
    /// Rows that say something else from now on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaces: Vec<AccountRow>,
    /// Rows that end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removes: Vec<AccountName>,
    /// Refused when the rows have another version; not in the journal, which has what was not
    /// refused.
    #[serde(skip)]
    pub expected: Option<Seq>,
}
