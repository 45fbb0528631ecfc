//! ACLs: S3's default bucket setting has them disabled; so are they here.

use super::single;
use crate::error::{ErrorCode, Result, S3Error};
use http::HeaderMap;

/// Accepts the ACLs that say what is true anyway (`private`, `bucket-owner-full-control`).
///
/// # Errors
/// `AccessControlListNotSupported` for every other `x-amz-acl` and for `x-amz-grant-*`.
pub fn check_acl(headers: &HeaderMap) -> Result<()> {
    let unsupported = || Err(S3Error::new(ErrorCode::AccessControlListNotSupported));
    if headers.keys().any(|name| name.as_str().starts_with("x-amz-grant-")) {
        return unsupported();
    }
    match single(headers, "x-amz-acl")? {
        None | Some("private" | "bucket-owner-full-control") => Ok(()),
        Some(_) => unsupported(),
    }
}
