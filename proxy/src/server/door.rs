//! The console's door to S3: `/s3/…` on the admin listener leads to the same service as the S3
//! listener, so that a page may send requests it has signed without being of another origin.
//! Whoever comes through needs an admin session and an S3 signature: the one lets in, the other
//! decides.

use super::{ResponseBody, S3Service};
use crate::{
    admin::{AdminService, Caller, SESSION_HEADER},
    peers::Ends,
};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use std::sync::Arc;

/// What paths through the door begin with.
const DOOR: &str = "/s3";

/// Whatever an object holds, nothing of it runs on the console's origin.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; sandbox; frame-ancestors 'none'";

/// Answers a request of the admin listener.
pub(super) async fn answer(
    admin: Arc<AdminService>,
    s3: Arc<S3Service>,
    ends: Ends,
    request: Request<Incoming>,
) -> Response<Either<Full<Bytes>, ResponseBody>> {
    let Some(target) = behind(request.uri()) else {
        return Box::pin(admin.answer(Caller::Network(ends), request)).await.map(Either::Left);
    };
    let (mut parts, body) = request.into_parts();
    if let Err(refused) = admin.let_through(ends, &parts).await {
        return refused.map(Either::Left);
    }
    parts.uri = target;
    parts.headers.remove(header::COOKIE);
    parts.headers.remove(SESSION_HEADER);
    // The page's own origin is not another one.
    parts.headers.remove(header::ORIGIN);
    let mut answer = s3.answer(ends.peer, Request::from_parts(parts, body)).await;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer.map(Either::Right)
}

/// The target behind the door; `None` for one that does not lead through it.
fn behind(uri: &Uri) -> Option<Uri> {
    let target = uri.path_and_query()?.as_str().strip_prefix(DOOR)?;
    target.starts_with('/').then(|| target.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_goes_through_the_door_as_it_was_signed() {
        let through = |path: &str| behind(&path.parse().unwrap()).map(|uri| uri.to_string());
        assert_eq!(through("/s3/b/a%20b?x=%2F"), Some("/b/a%20b?x=%2F".to_owned()));
        assert_eq!(through("/s3//b"), Some("//b".to_owned()));
        for path in ["/s3", "/s3b/k", "/", "/api/v1/stats"] {
            assert_eq!(through(path), None, "{path}");
        }
    }
}
