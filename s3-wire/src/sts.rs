//! The Security Token Service on the S3 port: its requests, its answers and its errors.
//!
//! Source: AWS Security Token Service API Reference, version 2011-06-15.

mod request;
mod response;

pub use request::{AssumeRole, GetSessionToken, StsAction, VERSION, is_for};
pub use response::{Assumed, CallerIdentity, IssuedCredentials, SessionTokenIssued, StsError, StsErrorCode};

/// The shortest life of temporary credentials, in seconds.
pub const DURATION_S_MIN: u64 = 900;
/// The longest life of a role's credentials, in seconds: twelve hours.
pub const ROLE_DURATION_S_MAX: u64 = 43_200;
/// The longest life of a user's session, in seconds: a day and a half.
pub const SESSION_DURATION_S_MAX: u64 = 129_600;
/// The life of a role's credentials when nobody asks for another.
pub const ROLE_DURATION_S: u64 = 3_600;
/// The life of a user's session when nobody asks for another.
pub const SESSION_DURATION_S: u64 = 43_200;
