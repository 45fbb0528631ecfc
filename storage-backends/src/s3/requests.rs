//! Requests that `object_store` has no call for, with its client, its credentials and its
//! signature.

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body_util::{BodyExt, Limited};
use object_store::{
    ObjectStore,
    aws::{AmazonS3, AwsAuthorizer},
    client::{HttpClient, HttpError, HttpErrorKind, HttpRequestBody, HttpResponse},
};
use std::fmt::{self, Write};

/// A bucket that can be asked for anything.
pub(crate) struct S3Requests {
    pub(super) store: AmazonS3,
    pub(super) http: HttpClient,
    /// The bucket's own address.
    pub(super) address: String,
    pub(super) region: String,
}

/// One request.
pub(crate) struct Asked {
    pub(crate) method: Method,
    /// What stands behind the bucket's address: `/key`, `?query` or both, encoded.
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Asked {
    /// A question without headers and body.
    pub(crate) fn get(target: String) -> Self {
        Self { method: Method::GET, target, headers: HeaderMap::new(), body: Bytes::new() }
    }
}

impl S3Requests {
    /// Sends a request. An answer other than success is an error that holds the store's refusal.
    pub(crate) async fn send(&self, asked: Asked) -> object_store::Result<HttpResponse> {
        let mut request = http::Request::builder()
            .method(asked.method)
            .uri(format!("{}{}", self.address, asked.target))
            .body(HttpRequestBody::from(asked.body))
            .map_err(|error| generic(error.into()))?;
        request.headers_mut().extend(asked.headers);
        let credential = self.store.credentials().get_credential().await?;
        AwsAuthorizer::new(&credential, "s3", &self.region).try_authorize(&mut request, None)?;
        self.http.execute(request).await.map_err(|error| generic(error.into()))
    }

    /// Sends a request and reads its answer, a short text.
    pub(crate) async fn text(&self, asked: Asked) -> object_store::Result<String> {
        let body = Limited::new(self.send(asked).await?.into_body(), TEXT_BYTES_MAX).collect().await;
        let body = body.map_err(|error| generic(HttpError::new_boxed(HttpErrorKind::Interrupted, error).into()))?;
        Ok(String::from_utf8_lossy(&body.to_bytes()).into_owned())
    }
}

impl fmt::Debug for S3Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", &self.store as &dyn ObjectStore)
    }
}

fn generic(source: Box<dyn std::error::Error + Send + Sync>) -> object_store::Error {
    object_store::Error::Generic { store: "S3", source }
}

/// A part of a path or a query as RFC 3986 wants it, which is also what the signature covers.
pub(crate) fn encoded(value: &str) -> String {
    value.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            write!(text, "%{byte:02X}").expect("writing to a string cannot fail");
        }
        text
    })
}

/// A thousand entries with long keys.
const TEXT_BYTES_MAX: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_encoded_byte_by_byte() {
        assert_eq!(encoded("prod/é&x=~"), "prod%2F%C3%A9%26x%3D~");
    }
}
