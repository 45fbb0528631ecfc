//! Who may do what: users with their key pairs and policies. Signatures are verified by `s3_wire::sigv4`; this module holds the
//! secrets it asks for and decides about actions.

mod policy;
pub mod root;
mod users;

pub use policy::{Policy, PolicyDocument, PolicyError};
pub use users::{Credentials, Principal, User, UserConfig, Users};
