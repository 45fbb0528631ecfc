//! Writing a plain object into a bucket: with the headers and the metadata it had, in parts when it
//! is long.

use super::{KeyBound, PlainBucket, PlainPut, PlainWriter};
use crate::{
    BackendError, ByteStream, ErrorKind, Result,
    batches::Batches,
    cloud::refusal::{element, failure, plain_text},
    s3::requests::{Asked, encoded},
};
use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use std::fmt::Write;

#[async_trait]
impl PlainWriter for PlainBucket {
    fn key_bound(&self) -> KeyBound {
        KeyBound::Bytes
    }

    async fn write(&self, key: &str, object: &PlainPut, body: ByteStream) -> Result<()> {
        self.put(key, object, body).await.map(drop)
    }
}

impl PlainBucket {
    /// [`PlainWriter::write`](super::PlainWriter::write), which gives the ETag.
    ///
    /// # Errors
    /// As there.
    pub async fn put(&self, key: &str, object: &PlainPut, body: ByteStream) -> Result<String> {
        let target = self.address(key)?;
        let part_bytes = usize::try_from(object.part_bytes())
            .map_err(|_| BackendError::new(ErrorKind::Invalid, "a part does not fit in memory"))?;
        let mut batches = Batches::new(body, part_bytes, Some(object.len));
        if object.len <= object.part_bytes() {
            let content = batches.next().await?.pieces.concat();
            let asked = Asked { method: Method::PUT, target, headers: described(object)?, body: content.into() };
            return self.etag_of(key, asked).await;
        }
        let asked = Asked {
            method: Method::POST,
            target: format!("{target}?uploads="),
            headers: described(object)?,
            body: Bytes::new(),
        };
        let begun = self.requests.text(asked).await.map_err(|error| failure("begin", &format!("{key:?}"), error).1)?;
        let upload = element(&begun, "UploadId").map(plain_text);
        let upload =
            upload.ok_or_else(|| BackendError::new(ErrorKind::Corrupt, "an upload was begun without an id"))?;
        let upload = format!("uploadId={}", encoded(&upload));
        let written = self.put_parts(key, &target, &upload, batches).await;
        if written.is_err() {
            let asked =
                Asked { method: Method::DELETE, target: format!("{target}?{upload}"), ..Asked::get(String::new()) };
            if let Err(error) = self.requests.send(asked).await {
                tracing::warn!(%error, "an upload could not be aborted: its parts stay in the bucket");
            }
        }
        written
    }

    async fn put_parts(&self, key: &str, target: &str, upload: &str, mut batches: Batches) -> Result<String> {
        let mut parts = String::from("<CompleteMultipartUpload>");
        for number in 1.. {
            let batch = batches.next().await?;
            let asked = Asked {
                method: Method::PUT,
                target: format!("{target}?partNumber={number}&{upload}"),
                headers: HeaderMap::new(),
                body: batch.pieces.concat().into(),
            };
            let etag = self.etag_of(key, asked).await?;
            let etag = etag.replace('&', "&amp;").replace('<', "&lt;");
            write!(parts, "<Part><PartNumber>{number}</PartNumber><ETag>\"{etag}\"</ETag></Part>")
                .expect("writing to a string cannot fail");
            if batch.is_last {
                break;
            }
        }
        parts.push_str("</CompleteMultipartUpload>");
        let asked = Asked {
            method: Method::POST,
            target: format!("{target}?{upload}"),
            headers: HeaderMap::new(),
            body: parts.into(),
        };
        let done =
            self.requests.text(asked).await.map_err(|error| failure("complete", &format!("{key:?}"), error).1)?;
        let etag = element(&done, "ETag").map(|etag| plain_text(etag).trim_matches('"').to_owned());
        etag.ok_or_else(|| BackendError::new(ErrorKind::Corrupt, "an upload was completed without an ETag"))
    }

    async fn etag_of(&self, key: &str, asked: Asked) -> Result<String> {
        let answer = self.requests.send(asked).await.map_err(|error| failure("write", &format!("{key:?}"), error).1)?;
        let etag = answer.headers().get("etag").and_then(|etag| etag.to_str().ok());
        let etag = etag.map(|etag| etag.trim_matches('"').to_owned());
        etag.ok_or_else(|| BackendError::new(ErrorKind::Corrupt, "the store gave no ETag for what it took"))
    }
}

/// What is sent beside the content.
fn described(object: &PlainPut) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    let metadata = object.user_metadata.iter().map(|(name, value)| (format!("x-amz-meta-{name}"), value));
    let class = object.storage_class.iter().map(|class| ("x-amz-storage-class".to_owned(), class));
    let content = object.headers.iter().map(|(name, value)| (name.clone(), value));
    for (name, value) in content.chain(metadata).chain(class) {
        let pair = HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_str(value).ok());
        let (name, value) = pair
            .ok_or_else(|| BackendError::new(ErrorKind::Invalid, format!("{name:?} cannot be written as a header")))?;
        headers.insert(name, value);
    }
    Ok(headers)
}
