//! The HTTP client under `object_store`: every answer but success becomes a typed error, and the
//! completion of an upload becomes exclusive.

use super::{
    refusal::Refusal,
    settings::{Timeouts, TrustedCertificates},
};
use async_trait::async_trait;
use http::{Method, StatusCode, header::IF_NONE_MATCH};
use http_body_util::{BodyExt, Limited};
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
        ReqwestConnector,
    },
};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Whether creations carry `If-None-Match: *`. On until the store says it does not know that;
/// shared by all requests to one bucket.
#[derive(Clone, Debug)]
pub(crate) struct ExclusiveCreate(Arc<AtomicBool>);

impl ExclusiveCreate {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    pub(crate) fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn turn_off(&self) {
        if self.0.swap(false, Ordering::Relaxed) {
            tracing::warn!("the store has no conditional writes: only random names prevent collisions");
        }
    }
}

/// The options all clouds share. There is no limit on the time of a whole request, because a body
/// is read as slowly as the client at the far end wants it; a connection that is silent is given
/// up.
pub(crate) fn client_options(timeouts: Timeouts, trusted: &TrustedCertificates, allow_http: bool) -> ClientOptions {
    let options = ClientOptions::new()
        .with_allow_http(allow_http)
        .with_timeout_disabled()
        .with_connect_timeout(timeouts.connect)
        .with_read_timeout(timeouts.silence);
    trusted.0.iter().cloned().fold(options, ClientOptions::with_root_certificate)
}

/// No second attempts inside `object_store`.
pub(crate) fn no_retries() -> object_store::RetryConfig {
    object_store::RetryConfig { max_retries: 0, ..object_store::RetryConfig::default() }
}

/// Makes [`Judge`]s.
pub(crate) struct Connector {
    /// Completions of multipart uploads are made exclusive; `None` for stores that sign that
    /// header.
    pub(crate) exclusive_completion: Option<ExclusiveCreate>,
    /// Plain HTTP also where `object_store` insists on TLS: for token services on the same machine.
    pub(crate) allow_http: bool,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let options = if self.allow_http { options.clone().with_allow_http(true) } else { options.clone() };
        let client = ReqwestConnector::default().connect(&options)?;
        Ok(HttpClient::new(Judge { client, exclusive_completion: self.exclusive_completion.clone() }))
    }
}

/// Passes requests on and judges the answers.
#[derive(Debug)]
struct Judge {
    client: HttpClient,
    exclusive_completion: Option<ExclusiveCreate>,
}

#[async_trait]
impl HttpService for Judge {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if !completes_an_upload(&request) {
            return judge(self.client.execute(request).await?).await;
        }
        let exclusive = self.exclusive_completion.as_ref().filter(|exclusive| exclusive.is_on());
        let mut conditional = request.clone();
        if exclusive.is_some() {
            // object_store offers this for copies only. The header may stand outside the signature.
            conditional.headers_mut().insert(IF_NONE_MATCH, http::HeaderValue::from_static("*"));
        }
        let answer = self.client.execute(conditional).await?;
        match exclusive {
            Some(exclusive) if answer.status() == StatusCode::NOT_IMPLEMENTED => {
                exclusive.turn_off();
                judge_completion(self.client.execute(request).await?).await
            }
            _ => judge_completion(answer).await,
        }
    }
}

/// `POST …?uploadId=…`, in S3's and GCS's protocol.
fn completes_an_upload(request: &HttpRequest) -> bool {
    let query = request.uri().query().unwrap_or_default();
    request.method() == Method::POST && query.split('&').any(|pair| pair.starts_with("uploadId="))
}

async fn judge(answer: HttpResponse) -> Result<HttpResponse, HttpError> {
    if answer.status().is_success() {
        return Ok(answer);
    }
    let (head, body) = answer.into_parts();
    // A body that cannot be read is no reason to forget the status.
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    Err(refused(Refusal::read(head.status, &head.headers, &body)))
}

/// A completion may begin its answer with 200 to keep the connection alive and then fail
/// (<https://docs.aws.amazon.com/AmazonS3/latest/API/API_CompleteMultipartUpload.html>).
async fn judge_completion(answer: HttpResponse) -> Result<HttpResponse, HttpError> {
    let (head, body) = judge(answer).await?.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX)
        .collect()
        .await
        .map_err(|error| HttpError::new_boxed(HttpErrorKind::Interrupted, error))?
        .to_bytes();
    let refusal = Refusal::read(StatusCode::INTERNAL_SERVER_ERROR, &head.headers, &body);
    if refusal.code.is_some() {
        return Err(refused(refusal));
    }
    Ok(HttpResponse::from_parts(head, HttpResponseBody::from(body)))
}

fn refused(refusal: Refusal) -> HttpError {
    HttpError::new(HttpErrorKind::Unknown, refusal)
}

/// Answers that are not blobs are short.
const ANSWER_BYTES_MAX: usize = 256 << 10;
