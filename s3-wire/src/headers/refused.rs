//! Headers that change what a request means and that this server does not implement.

use crate::error::Result;
use http::HeaderMap;

/// Refuses requests whose meaning depends on a header we would otherwise ignore: SSE-C, object lock, tagging, website redirect, request payer…
/// Call it for every request, before the operation runs.
///
/// # Errors
/// `NotImplemented` naming the header; as [`super::check_acl`].
pub fn refuse_unsupported(_headers: &HeaderMap) -> Result<()> {
    unimplemented!()
}
