//! A bucket of plain objects in any store that speaks S3's protocol.
//!
//! `object_store` takes keys for paths: it drops slashes at their ends and refuses empty
//! components, and both are common in buckets. So requests are made here, with its client, its
//! credentials and its signature, and keys go as they are.

use super::{PlainEntry, PlainObject, PlainRead, PlainRemoval, PlainStore, listing, unnamable};
use crate::{
    BackendError, ErrorKind, Result,
    cloud::{
        bucket::next_page,
        exactly,
        refusal::{Refusal, failure},
    },
    s3::requests::{Asked, S3Requests, encoded},
};
use async_trait::async_trait;
use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use http::{HeaderMap, Method, header};
use object_store::client::HttpResponse;
use std::{ops::Range, sync::Arc};
use time::{PrimitiveDateTime, format_description::BorrowedFormatItem, macros::format_description};

/// A bucket, or what lies below a prefix of it. Clones share connections.
#[derive(Clone, Debug)]
pub struct PlainBucket {
    pub(super) requests: Arc<S3Requests>,
    /// Starts every key; empty or with a `/` at its end.
    pub(super) prefix: String,
}

impl PlainBucket {
    pub(crate) fn new(requests: S3Requests, prefix: String) -> Self {
        Self { requests: Arc::new(requests), prefix }
    }

    /// A key as it stands in a URL below the bucket.
    pub(super) fn address(&self, key: &str) -> Result<String> {
        let full = format!("{}{key}", self.prefix);
        if full.split('/').any(|part| matches!(part, "." | "..")) {
            return Err(unnamable(key, "no URL keeps its dot components"));
        }
        if key.is_empty() {
            return Err(unnamable(key, "it is empty"));
        }
        Ok(format!("/{}", full.split('/').map(encoded).collect::<Vec<_>>().join("/")))
    }

    pub(super) async fn ask(
        &self,
        method: Method,
        key: &str,
        headers: HeaderMap,
    ) -> Result<std::result::Result<HttpResponse, (Option<Refusal>, BackendError)>> {
        let attempt = if method == Method::DELETE { "remove" } else { "read" };
        let asked = Asked { method, target: self.address(key)?, headers, body: bytes::Bytes::new() };
        Ok(self.requests.send(asked).await.map_err(|error| failure(attempt, &format!("{key:?}"), error)))
    }

    async fn page(&self, prefix: &str, after: Option<&str>, token: Option<&str>) -> Result<listing::Page> {
        let mut query = format!("?list-type=2&encoding-type=url&prefix={}", encoded(prefix));
        match (token, after) {
            (Some(token), _) => query.push_str(&format!("&continuation-token={}", encoded(token))),
            (None, Some(after)) => query.push_str(&format!("&start-after={}", encoded(after))),
            (None, None) => {}
        }
        let asked = Asked { method: Method::GET, target: query, headers: HeaderMap::new(), body: bytes::Bytes::new() };
        let text = self.requests.text(asked).await.map_err(|error| failure("list", &prefix, error).1)?;
        listing::parse(&text).ok_or_else(|| BackendError::new(ErrorKind::Corrupt, "the listing cannot be read"))
    }

    /// The object's headers when a HEAD was refused with 404: an answer to HEAD has no body, so a
    /// missing bucket looks like a missing object. GET tells.
    async fn is_absent(&self, key: &str) -> Result<bool> {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, http::HeaderValue::from_static("bytes=0-0"));
        match self.ask(Method::GET, key, headers).await? {
            Ok(_) => Ok(false),
            Err((Some(refused), _)) if refused.means_absent() => Ok(true),
            // An empty object has no first byte.
            Err((Some(refused), _)) if refused.status == 416 => Ok(false),
            Err((_, error)) => Err(error),
        }
    }
}

#[async_trait]
impl PlainStore for PlainBucket {
    fn list(&self, prefix: &str, after: Option<&str>) -> BoxStream<'static, Result<PlainEntry>> {
        let full = format!("{}{prefix}", self.prefix);
        let after = after.filter(|after| !after.is_empty()).map(|after| format!("{}{after}", self.prefix));
        let pages = stream::try_unfold(Some((self.clone(), None::<String>)), move |at| {
            let (full, after) = (full.clone(), after.clone());
            async move {
                let Some((store, token)) = at else { return Ok(None) };
                let page = store.page(&full, after.as_deref(), token.as_deref()).await?;
                let next = next_page(token.as_deref(), page.next)?;
                let own = store.prefix.clone();
                let entries = page.entries.into_iter().filter_map(move |entry| {
                    // The object that is called like the prefix itself has no key below it.
                    let key = entry.key.strip_prefix(&own).filter(|key| !key.is_empty())?.to_owned();
                    Some(Ok(PlainEntry { key, ..entry }))
                });
                let entries: Vec<_> = entries.collect();
                Ok(Some((stream::iter(entries), next.map(|next| (store, Some(next))))))
            }
        });
        pages.try_flatten().boxed()
    }

    async fn head(&self, key: &str) -> Result<Option<PlainObject>> {
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-checksum-mode", http::HeaderValue::from_static("ENABLED"));
        match self.ask(Method::HEAD, key, headers).await? {
            Ok(answer) => described(key, answer.headers()).map(Some),
            Err((Some(refused), error)) if refused.status == 404 => match self.is_absent(key).await? {
                true => Ok(None),
                false => Err(error),
            },
            Err((_, error)) => Err(error),
        }
    }

    async fn read(&self, key: &str, etag: &str, range: Range<u64>) -> Result<PlainRead> {
        if range.is_empty() {
            return Ok(PlainRead::Bytes(stream::empty().boxed()));
        }
        let invalid = |what: &str| BackendError::new(ErrorKind::Invalid, format!("{what} of {key:?} is no header"));
        let value = |what: &str, text: String| http::HeaderValue::from_str(&text).map_err(|_| invalid(what));
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, value("the range", format!("bytes={}-{}", range.start, range.end - 1))?);
        headers.insert(header::IF_MATCH, value("the ETag", format!("\"{etag}\""))?);
        let answer = match self.ask(Method::GET, key, headers).await? {
            Ok(answer) => answer,
            Err((Some(refused), _)) if refused.means_absent() => return Ok(PlainRead::Absent),
            // 416: shorter than it was, and so another content.
            Err((Some(refused), _)) if matches!(refused.status.as_u16(), 412 | 416) => return Ok(PlainRead::Changed),
            Err((_, error)) => return Err(error),
        };
        // A store that does not know If-Match still says whose bytes these are.
        if text_of(answer.headers(), "etag").is_none_or(|found| found.trim_matches('"') != etag) {
            return Ok(PlainRead::Changed);
        }
        let wanted = format!("bytes {}-{}/", range.start, range.end - 1);
        if !text_of(answer.headers(), "content-range").is_some_and(|found| found.starts_with(&wanted)) {
            let message = format!("the store gave other bytes of {key:?} than {}..{}", range.start, range.end);
            return Err(BackendError::new(ErrorKind::Corrupt, message));
        }
        let key = format!("{key:?}");
        let broken = move |error: object_store::client::HttpError| {
            BackendError::with_source(ErrorKind::Transient, format!("reading {key} broke off: {error}"), error)
        };
        let pieces = answer.into_body().bytes_stream().map_err(broken).boxed();
        Ok(PlainRead::Bytes(exactly(pieces, range.end - range.start)))
    }

    async fn remove(&self, key: &str, etag: &str) -> Result<PlainRemoval> {
        match self.head(key).await? {
            None => return Ok(PlainRemoval::Gone),
            Some(found) if found.etag != etag => return Ok(PlainRemoval::Changed),
            Some(_) => {}
        }
        match self.ask(Method::DELETE, key, HeaderMap::new()).await? {
            Ok(_) => Ok(PlainRemoval::Gone),
            Err((Some(refused), _)) if refused.means_absent() => Ok(PlainRemoval::Gone),
            Err((_, error)) => Err(error),
        }
    }
}

fn text_of<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// What an answer to HEAD says.
fn described(key: &str, headers: &HeaderMap) -> Result<PlainObject> {
    let lacks = |what: &str| BackendError::new(ErrorKind::Corrupt, format!("the store gives no {what} for {key:?}"));
    let len = text_of(headers, "content-length").and_then(|len| len.parse().ok()).ok_or_else(|| lacks("length"))?;
    let etag = text_of(headers, "etag").map(|etag| etag.trim_matches('"')).filter(|etag| !etag.is_empty());
    let etag = etag.ok_or_else(|| lacks("ETag"))?.to_owned();
    // Neither of an upload in parts nor of content that the store encrypts with a key of its own or
    // the client's (https://docs.aws.amazon.com/AmazonS3/latest/API/API_Object.html).
    let other_encryption = text_of(headers, "x-amz-server-side-encryption").is_some_and(|kind| kind != "AES256")
        || headers.contains_key("x-amz-server-side-encryption-customer-algorithm");
    let mut object = PlainObject {
        len,
        etag_is_md5: etag.len() == 32 && etag.bytes().all(|byte| byte.is_ascii_hexdigit()) && !other_encryption,
        etag,
        modified: text_of(headers, "last-modified")
            .and_then(|date| PrimitiveDateTime::parse(date, HTTP_DATE).ok())
            .map(|date| date.assume_utc().into()),
        checksum_type: text_of(headers, "x-amz-checksum-type").map(str::to_owned),
        storage_class: text_of(headers, "x-amz-storage-class").filter(|class| *class != "STANDARD").map(str::to_owned),
        tags: text_of(headers, "x-amz-tagging-count").and_then(|count| count.parse().ok()).unwrap_or(0),
        ..PlainObject::default()
    };
    for (name, value) in headers {
        // Bytes above ASCII are UTF-8 or nothing that could be kept.
        let Ok(value) = std::str::from_utf8(value.as_bytes()) else { continue };
        let (name, value) = (name.as_str(), value.to_owned());
        if let Some(name) = name.strip_prefix("x-amz-meta-") {
            object.user_metadata.insert(name.to_owned(), value);
        } else if CONTENT_HEADERS.contains(&name) {
            object.headers.insert(name.to_owned(), value);
        } else if let Some(algorithm) = CHECKSUMS.iter().find(|algorithm| {
            name.strip_prefix("x-amz-checksum-").is_some_and(|name| name.eq_ignore_ascii_case(algorithm))
        }) {
            object.checksums.insert((*algorithm).to_owned(), value);
        }
    }
    Ok(object)
}

/// Headers that describe content and are given back with it.
const CONTENT_HEADERS: [&str; 6] =
    ["content-type", "content-encoding", "content-disposition", "content-language", "cache-control", "expires"];

/// Checksums as S3 names them.
const CHECKSUMS: [&str; 5] = ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"];

/// RFC 9110 §5.6.7, the form that is written today.
const HTTP_DATE: &[BorrowedFormatItem<'_>] =
    format_description!("[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT");

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn an_answer_is_read_with_everything_that_is_given_back() {
        let headers: HeaderMap = [
            ("content-length", "7"),
            ("etag", "\"0123\""),
            ("last-modified", "Thu, 01 Jan 1970 00:00:10 GMT"),
            ("content-type", "text/plain"),
            ("x-amz-meta-k", "v"),
            ("x-amz-checksum-crc64nvme", "AAAA"),
            ("x-amz-checksum-type", "FULL_OBJECT"),
            ("x-amz-tagging-count", "2"),
            ("x-amz-storage-class", "STANDARD"),
            ("server", "s"),
        ]
        .into_iter()
        .map(|(name, value)| (http::HeaderName::from_static(name), http::HeaderValue::from_static(value)))
        .collect();
        let object = described("k", &headers).unwrap();
        assert_eq!((object.len, object.etag.as_str(), object.tags), (7, "0123", 2));
        assert_eq!(object.modified, Some(UNIX_EPOCH + Duration::from_secs(10)));
        assert_eq!(object.headers, [("content-type".to_owned(), "text/plain".to_owned())].into());
        assert_eq!(object.user_metadata, [("k".to_owned(), "v".to_owned())].into());
        assert_eq!(object.checksums, [("CRC64NVME".to_owned(), "AAAA".to_owned())].into());
        assert_eq!(object.storage_class, None);
        let md5 = "0123456789abcdef0123456789abcdef";
        let is_md5 = |etag: &str, encryption: Option<&'static str>| {
            let mut headers = headers.clone();
            headers.insert("etag", http::HeaderValue::from_str(etag).unwrap());
            if let Some(kind) = encryption {
                headers.insert("x-amz-server-side-encryption", http::HeaderValue::from_static(kind));
            }
            described("k", &headers).unwrap().etag_is_md5
        };
        assert!(is_md5(md5, None) && is_md5(md5, Some("AES256")));
        assert!(!is_md5(md5, Some("aws:kms")) && !is_md5("0123", None) && !is_md5(&format!("{md5}-2"), None));
        for name in ["content-length", "etag"] {
            let mut headers = headers.clone();
            headers.remove(name);
            assert_eq!(described("k", &headers).unwrap_err().kind(), ErrorKind::Corrupt, "{name}");
        }
    }
}
