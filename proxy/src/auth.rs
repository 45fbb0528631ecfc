//! Users with their accounts, key pairs and policies, and sessions of them. Signatures are verified
//! by `s3_wire::sigv4`; this module holds the secrets it asks for. The accounts
//! lie in the catalog, and the configuration seeds them. What a user may do is decided by
//! the crate `access`, asked in `ops/access.rs`.

pub mod accounts;
pub mod admin_token;
pub mod audit_key;
mod freshness;
mod policy;
mod principal;
mod private_file;
pub mod root;
mod sessions;
mod users;

pub use accounts::{Accounts, FileAccounts, check_access_key, check_secret};
pub use policy::{Policy, Written};
pub use principal::{Look, Principal};
pub use sessions::{IssueError, Issued, Wanted};
pub use users::{ANONYMOUS_ID, Credentials, RoleConfig, User, UserConfig, Users, canonical_id_of};
