//! GetObject and HeadObject: conditions, range and headers are settled before any content is read.

use super::{
    body::AnswerBody,
    encryption, object_facts, object_lock,
    request::{Answer, InBucket, Result, S3Request, empty, no_such_key, set, time_of},
    versions,
};
use crate::engine::{Form, ObjectInfo, StorageHeaders, Veil, VersionFacts};
use futures::StreamExt as _;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use s3_wire::{
    ETag, ErrorCode, S3Error,
    checksum::Checksum,
    headers::{
        ByteRange, Outcome, PartNumber, ReadConditions, ResponseOverrides, multipart::checksum_mode,
        range::content_range,
    },
    timestamp,
};
use std::{ops::Range, sync::Arc, time::SystemTime};

/// Answers with an object's content, or a range of it.
pub(super) async fn get_object(request: &S3Request) -> Result<Answer> {
    tracing::trace!(target: "path", "get_object()");
    let here = request.in_bucket().await?;
    let key = request.key()?;
    // A number that is none is refused whether the key is there or not.
    PartNumber::from_query(&request.target.query)?;
    let engine = &request.service.engine;
    let object = match request.version()? {
        None => match engine.read.open_object(&here.bucket, key).await.map_err(|error| request.refusal(error))? {
            Some(object) => object,
            None => return Err(here.missing(key).await?),
        },
        Some(version) => {
            let found = engine.read.open_version(&here.bucket, key, version).await;
            let found = found.map_err(|error| request.refusal(error))?;
            versions::object_of(request, found.ok_or_else(|| here.missing_version(key, version))?)?
        }
    };
    let head = here.head_of(&object.info)?;
    let Some(range) = head.content else { return Ok(head.answer) };
    engine.read.note_read(&object);
    let len = range.end - range.start;
    let body = if len == 0 {
        AnswerBody::Whole(bytes::Bytes::new())
    } else {
        let mut content = engine.read.read_unveiled(&object, range, head.unlocked);
        // The first bytes are awaited so that content that cannot be read is an error status and
        // not a broken 200.
        let first = match content.next().await {
            Some(Ok(first)) => first,
            Some(Err(error)) => return Err(request.refusal(error)),
            None => return Err(request.refusal(crate::engine::EngineError::Other("a range has no content".into()))),
        };
        if first.len() as u64 == len {
            AnswerBody::Whole(first)
        } else {
            let rest = content.map(|piece| piece.map_err(Into::into));
            let stream = futures::stream::once(async move { Ok(first) }).chain(rest);
            AnswerBody::Stream { len: Some(len), stream: stream.boxed() }
        }
    };
    Ok(head.answer.map(|_| body))
}

/// Answers with an object's headers.
pub(super) async fn head_object(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    PartNumber::from_query(&request.target.query)?;
    let info = here.addressed(request.key()?).await?;
    Ok(here.head_of(&info)?.answer)
}

/// An answer without its body, and the content that belongs there.
struct Head {
    answer: Answer,
    content: Option<Range<u64>>,
    unlocked: Option<Arc<dyn Veil>>,
}

impl InBucket<'_> {
    /// The object, or the version of it, that the request is about.
    pub(super) async fn addressed(&self, key: &str) -> Result<ObjectInfo> {
        let engine = &self.service.engine;
        let Some(version) = self.version()? else {
            return match engine.read.head(&self.bucket, key).await.map_err(|error| self.refusal(error))? {
                Some(info) => Ok(info),
                None => Err(self.missing(key).await?),
            };
        };
        let found = engine.read.head_version(&self.bucket, key, version).await.map_err(|error| self.refusal(error))?;
        versions::object_of(self.request, found.ok_or_else(|| self.missing_version(key, version))?)
    }

    /// A key that is not there, or hidden by a delete marker. Whoever may not list the bucket is
    /// not told so (C41).
    pub(super) async fn missing(&self, key: &str) -> Result<S3Error> {
        if !self.may_miss(key)? {
            return Ok(S3Error::new(ErrorCode::AccessDenied));
        }
        let marker = self.service.engine.read.newest_marker(&self.bucket, key).await;
        Ok(match marker.map_err(|error| self.refusal(error))? {
            Some(marker) => versions::marked(no_such_key(key), &marker),
            None => no_such_key(key),
        })
    }

    fn head_of(&self, info: &ObjectInfo) -> Result<Head> {
        let facts = &info.facts;
        if let Some(number) = PartNumber::from_query(&self.target.query)? {
            part_of(facts, info.version.size, number.get())?;
        }
        let unlocked = self.unlock_addressed(facts)?;
        let etag = ETag::from_wire(&facts.etag);
        let modified = time_of(info.version.modified_ms);
        let overrides = ResponseOverrides::from_query(&self.target.query, self.principal.user().is_none())?;
        let checksum_wanted = checksum_mode(&self.headers)?;
        let content = overrides.apply(object_facts::content_headers(facts));
        let conditions = ReadConditions::from_headers(&self.headers)?;
        if conditions.evaluate(&etag, modified, SystemTime::now())? == Outcome::NotModified {
            let mut answer = empty(StatusCode::NOT_MODIFIED);
            let headers = answer.headers_mut();
            object_facts::write_validators(headers, &etag, modified);
            versions::write(headers, &self.bucket, info.version.reference());
            // What RFC 9110 §15.4.5 wants of a 304.
            for (name, value) in [("cache-control", &content.cache_control), ("expires", &content.expires)] {
                if let Some(value) = value {
                    set(headers, name, value);
                }
            }
            return Ok(Head { answer, content: None, unlocked: None });
        }

        let selection = self.select(facts, info.version.size, &etag, modified)?;
        let mut answer = empty(if selection.partial { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK });
        object_facts::note_form(answer.extensions_mut(), facts.storage.form);
        let headers = answer.headers_mut();
        object_facts::write_validators(headers, &etag, modified);
        versions::write(headers, &self.bucket, info.version.reference());
        object_facts::write_description(headers, content, facts);
        if !self.target.query.has("versionId") {
            let (key, modified_ms) = (&info.version.key, info.version.modified_ms);
            self.write_expiration(headers, key, info.version.size, &facts.tags, modified_ms)?;
        }
        let may = |action: &str| self.may(action, &self.bucket, Some(&info.version.key)).unwrap_or(false);
        object_lock::write(headers, &info.version.lock, &self.bucket, may);
        object_facts::write_tag_count(headers, facts, || may(self.tagging_action()));
        // What lies in an original is not sealed, whatever its bucket is.
        if facts.storage.form != Form::Foreign {
            encryption::write(headers, facts.encryption.as_ref(), &self.headers, &self.bucket);
        }
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(selection.range.end - selection.range.start));
        if selection.partial {
            set(headers, "content-range", &content_range(&selection.range, info.version.size));
        }
        if let Some(parts) = selection.parts_count {
            headers.insert("x-amz-mp-parts-count", HeaderValue::from(parts));
        }
        if checksum_wanted && let Some(checksum) = &selection.checksum {
            object_facts::write_checksum(headers, checksum);
        }
        let to_all = self.bucket.settings.storage_headers == StorageHeaders::Readers;
        if self.service.storage_headers && (to_all || self.principal.is_admin()) {
            let may_read = |key: &str| self.may("s3:GetObject", &self.bucket, Some(key)).unwrap_or(false);
            let sizes =
                if self.principal.is_admin() { object_facts::Sizes::Exact } else { object_facts::Sizes::Padded };
            object_facts::write_storage(headers, facts, sizes, may_read);
        }
        Ok(Head { answer, content: Some(selection.range), unlocked })
    }

    /// What shows the tags of the version that the request is about.
    fn tagging_action(&self) -> &'static str {
        match self.target.query.has("versionId") {
            true => "s3:GetObjectVersionTagging",
            false => "s3:GetObjectTagging",
        }
    }

    fn select(&self, facts: &VersionFacts, size: u64, etag: &ETag, modified: SystemTime) -> Result<Selection> {
        let range = ByteRange::from_headers(&self.headers)
            .filter(|range| range_is_meant(&self.headers, etag, modified) && !range.is_all_of_nothing(size));
        let checksum = object_facts::first_checksum(&facts.checksums);
        let part = PartNumber::from_query(&self.target.query)?;
        match (range, part) {
            (Some(_), Some(_)) => Err(S3Error::with_message(
                ErrorCode::InvalidRequest,
                "Cannot specify both Range header and partNumber query parameter",
            )),
            (None, None) => Ok(Selection { range: 0..size, partial: false, checksum, parts_count: None }),
            (Some(range), None) => {
                let range = range.resolve(size)?;
                let whole = range == (0..size);
                // A checksum is over all of the object, so a part of it comes without.
                Ok(Selection { partial: true, checksum: checksum.filter(|_| whole), range, parts_count: None })
            }
            (None, Some(number)) => part_of(facts, size, number.get()),
        }
    }
}

/// What of an object is answered with.
#[derive(Debug, PartialEq, Eq)]
struct Selection {
    range: Range<u64>,
    partial: bool,
    checksum: Option<Checksum>,
    parts_count: Option<u32>,
}

/// Where a part of an object lies. An object that was not uploaded in parts is its own part 1.
fn part_of(facts: &VersionFacts, size: u64, number: u32) -> Result<Selection> {
    let checksum = object_facts::first_checksum(&facts.checksums);
    if facts.parts.is_empty() {
        if number != 1 {
            return Err(no_such_part(number, 1));
        }
        return Ok(Selection { range: 0..size, partial: size > 0, checksum, parts_count: None });
    }
    let parts_count = u32::try_from(facts.parts.len()).unwrap_or(u32::MAX);
    let mut start = 0_u64;
    for part in &facts.parts {
        let end = start + part.size;
        if part.number == number {
            let algorithm = checksum.as_ref().map(Checksum::algorithm);
            let of_part = |value: &String| Checksum::parse(algorithm?, value).ok();
            return Ok(Selection {
                range: start..end,
                partial: true,
                checksum: part.checksum.as_ref().and_then(of_part),
                parts_count: Some(parts_count),
            });
        }
        start = end;
    }
    Err(no_such_part(number, parts_count))
}

fn no_such_part(number: u32, parts: u32) -> S3Error {
    S3Error::new(ErrorCode::InvalidPart)
        .field("PartNumberRequested", number.to_string())
        .field("ActualPartCount", parts.to_string())
}

/// `If-Range`: a range is only meant for the object the client already knows (RFC 9110 §13.1.5).
fn range_is_meant(headers: &HeaderMap, etag: &ETag, modified: SystemTime) -> bool {
    let Some(validator) = headers.get(header::IF_RANGE) else { return true };
    let Ok(validator) = validator.to_str() else { return false };
    match timestamp::parse_http_date(validator) {
        Some(date) => timestamp::http_date(modified) == timestamp::http_date(date),
        None => validator.trim() == etag.quoted(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::PartSize;
    use s3_wire::checksum::ChecksumAlgorithm;
    use std::time::{Duration, UNIX_EPOCH};

    fn facts(parts: &[(u32, u64)]) -> VersionFacts {
        let parts = parts.iter().map(|&(number, size)| PartSize { number, size, checksum: None }).collect();
        VersionFacts { parts, ..VersionFacts::default() }
    }

    #[test]
    fn a_part_number_selects_the_part_the_client_uploaded_under_it() {
        let facts = facts(&[(1, 10), (5, 20), (7, 3)]);
        let selection = part_of(&facts, 33, 5).unwrap();
        assert_eq!((selection.range, selection.partial, selection.parts_count), (10..30, true, Some(3)));
        let error = part_of(&facts, 33, 2).unwrap_err();
        assert_eq!((error.code(), error.get_field("ActualPartCount")), (ErrorCode::InvalidPart, Some("3")));
    }

    #[test]
    fn an_object_of_one_put_is_its_own_first_part() {
        assert_eq!(part_of(&facts(&[]), 33, 1).unwrap().range, 0..33);
        assert_eq!(part_of(&facts(&[]), 0, 1).unwrap().range, 0..0);
        assert_eq!(part_of(&facts(&[]), 33, 2).unwrap_err().code(), ErrorCode::InvalidPart);
    }

    #[test]
    fn parts_of_five_tebibytes_are_found_without_overflow() {
        let parts: Vec<(u32, u64)> = (1..=10_000).map(|number| (number, (5 << 40) / 10_000)).collect();
        let selection = part_of(&facts(&parts), 5 << 40, 10_000).unwrap();
        assert_eq!(selection.range.end - selection.range.start, (5 << 40) / 10_000);
    }

    #[test]
    fn if_range_keeps_the_range_only_for_the_same_object() {
        let etag = ETag::from_md5([1; 16]);
        let modified = UNIX_EPOCH + Duration::from_millis(1_700_000_000_500);
        let meant = |value: &str| {
            let headers = [(header::IF_RANGE, HeaderValue::from_str(value).unwrap())].into_iter().collect();
            range_is_meant(&headers, &etag, modified)
        };
        assert!(range_is_meant(&HeaderMap::new(), &etag, modified));
        assert!(meant(&etag.quoted()) && meant(&timestamp::http_date(modified)));
        assert!(
            !meant("\"other\"") && !meant(&format!("W/{}", etag.quoted())) && !meant("Thu, 01 Jan 1970 00:00:00 GMT")
        );
    }

    #[test]
    fn a_part_checksum_is_read_with_the_objects_algorithm() {
        let of_part = Checksum::full(ChecksumAlgorithm::Crc32, &[1, 2, 3, 4]).unwrap();
        let whole = Checksum::composite(ChecksumAlgorithm::Crc32, &[9, 9, 9, 9], 1).unwrap();
        let mut facts = facts(&[(1, 10)]);
        facts.checksums = vec![object_facts::kept(&whole)];
        facts.parts[0].checksum = Some(of_part.to_wire());
        assert_eq!(part_of(&facts, 10, 1).unwrap().checksum, Some(of_part));
    }
}
