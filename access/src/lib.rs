//! Who may do what: policies in AWS's language, access control lists, and the rule that decides
//! between them. Pure: no HTTP, no storage, no clock of its own.
//!
//! 1. [`Document`] is a policy: parsed and checked once, then asked many times. Identity policies
//!    and bucket policies are the same type.
//! 2. [`Context`] gives the values of condition keys, such as `aws:SourceIp`. Keys without a value
//!    are absent, which operators know how to treat.
//! 3. [`Acl`] is the list of grants of a bucket or object.
//! 4. [`decide`] puts them together and says which statement or grant decided ([`Decision`]).
//!
//! Source: AWS IAM User Guide ("IAM JSON policy elements reference", "Policy evaluation logic"),
//! Amazon S3 User Guide ("How Amazon S3 authorizes a request", "Access control list (ACL)
//! overview", "Blocking public access to your Amazon S3 storage").

mod acl;
mod actions;
mod condition;
mod context;
mod decision;
mod document;
mod error;
mod network;
mod pattern;
mod principal;
mod public;

pub use acl::{Acl, AclOf, Canned, Grant, Grantee, Permission, Requester};
pub use actions::{Scope, scope_of};
pub use context::{Context, Key, MapContext, NoContext};
pub use decision::{
    Decision, Identity, OfBucket, OfObject, PublicAccessBlock, Question, Reason, ResourceOwner, allows_all_below,
    decide,
};
pub use document::{Document, Finding, Statement};
pub use error::PolicyError;
pub use network::Network;
pub use principal::{Caller, RoleSession};
