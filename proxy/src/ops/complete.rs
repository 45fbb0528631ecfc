//! CompleteMultipartUpload: checks the client's list against the parts, then one commit that moves
//! no bytes. Sent twice it answers the same twice.

use super::{
    body::RequestBody,
    encryption,
    late::{Done, answer_late},
    multipart::{OpenUpload, id_text, kind_of, no_such_upload, wanted_checksum},
    object_facts,
    object_lock::WantedLock,
    put::DEFAULT_CHECKSUM,
    request::{Answer, InBucket, Result, S3Request, document},
    versions,
};
use crate::engine::{
    BucketHandle, Completion, EngineError, ObjectEncryption, PartFacts, PartSize, Terms, VersionFacts, notify::Event,
};
use catalog::{Part, UploadId};
use crypto::{Digest as _, Sha256};
use http::HeaderMap;
use s3_wire::{
    ETag, ErrorCode, S3Error,
    checksum::{Checksum, ChecksumAlgorithm, ChecksumType, Claims, combine_parts},
    headers::ChecksumRequest,
    xml::{
        Document as _,
        request::{CompleteMultipartUpload, CompletedPart},
        response::CompleteMultipartUploadResult,
    },
};
use std::collections::HashMap;

/// The smallest part, except for the last one: 5 MiB.
const PART_BYTES_MIN: u64 = 5 << 20;
/// The largest object: 5 TiB. A single PUT or part has at most `PUT_BYTES_MAX` (`request.rs`).
const OBJECT_BYTES_MAX: u64 = 5 << 40;
/// Rows of parts read at once.
const PARTS_PAGE: usize = 1000;

/// Completes an upload.
pub(super) async fn complete(request: &S3Request, body: &mut RequestBody) -> Result<Answer> {
    tracing::trace!(target: "path", "complete()");
    let here = request.in_bucket().await?;
    let key = request.key()?.to_owned();
    let claims = Claims::without_checksum(&request.headers, &request.payload)?;
    let list = CompleteMultipartUpload::parse(&request.document(claims, body).await?)?.parts;
    let asked = ChecksumRequest::of_complete(&request.headers)?;
    let open = here.upload(&key).await?;
    request.unlock_listed(&open.facts)?;
    let digest = list_digest(&list);
    if open.upload.completed.is_some() {
        return Ok(here.completed_before(&key, &open, &list).await?.answer);
    }
    let mut told = HeaderMap::new();
    encryption::write(&mut told, open.facts.encryption.as_ref(), &request.headers, &here.bucket);
    let resource = request.target.resource();
    let request = request.clone();
    let work = async move {
        let here = InBucket { request: &request, bucket: here.bucket };
        let failed = match complete_now(&here, &key, &open, &list, &asked).await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        // Another request with the same list may have been quicker: then both have completed the
        // upload.
        let now = here.upload(&key).await?;
        match &now.upload.completed {
            Some(completed) if completed.parts_digest == digest => here.completed_before(&key, &now, &list).await,
            _ => Err(failed),
        }
    };
    answer_late(Box::pin(work), told, move |error| error.resource(resource)).await
}

/// One attempt at an upload that is open.
async fn complete_now(
    here: &InBucket<'_>,
    key: &str,
    open: &OpenUpload,
    list: &[CompletedPart],
    asked: &ChecksumRequest,
) -> Result<Done> {
    let (conditions, precondition) = here.precondition_of_upload(&here.bucket, key, &open.facts).await?;
    check_listed(&open.facts, list)?;
    let chosen = here.chosen_parts(key, open.id, list).await?;
    let facts = facts_of_whole(&open.facts, &chosen, asked)?;
    let result = result_of(here, &here.bucket, key, &facts);
    let encryption = facts.encryption.clone();
    let cause = here.cause(&here.bucket, Event::CompleteMultipartUpload);
    let terms = Terms { precondition, lock: here.lock_now(WantedLock::of(open.facts.lock))?, cause };
    let (size, tags) = (chosen.iter().map(|(part, _)| part.size).sum(), facts.tags.clone());
    let completion = Completion { upload: open.id, parts: chosen, parts_digest: list_digest(list) };
    match here.service.engine.publisher.complete(&here.bucket, key, completion, facts, terms).await {
        Ok(published) => {
            let mut done = done(&result, here, encryption.as_ref());
            here.write_expiration(done.answer.headers_mut(), key, size, &tags, published.committed.modified_ms)?;
            versions::write_made(done.answer.headers_mut(), published.reference());
            object_facts::note_form(done.answer.extensions_mut(), published.storage.form);
            Ok(done)
        }
        // A part was replaced while we looked: the list no longer says what is there.
        Err(EngineError::Conflict) => Err(ErrorCode::InvalidPart.into()),
        Err(error) => Err(here.commit_refusal(&here.bucket, key, &conditions, error).await),
    }
}

impl InBucket<'_> {
    /// The answer to a list that was completed before. A different list names an upload that is no
    /// more (C86).
    async fn completed_before(&self, key: &str, open: &OpenUpload, list: &[CompletedPart]) -> Result<Done> {
        if open.upload.completed.as_ref().is_none_or(|completed| completed.parts_digest != list_digest(list)) {
            return Err(no_such_upload(&id_text(open.id)));
        }
        let engine = &self.service.engine;
        let made = match open.upload.completed {
            Some(completed) => engine
                .read
                .committed(&self.bucket, key, completed.version)
                .await
                .map_err(|error| self.refusal(error))?,
            None => None,
        };
        let (facts, version) = match made {
            Some(info) => (info.facts, Some(info.version.reference())),
            // Overwritten or deleted since: the tag follows from the list, the checksum is not
            // known any more.
            None => {
                let md5s: Option<Vec<[u8; 16]>> = list.iter().map(|part| part.etag.md5()).collect();
                let etag = ETag::of_parts(md5s.ok_or_else(|| no_such_upload(&id_text(open.id)))?);
                (VersionFacts { etag: etag.as_str().to_owned(), ..VersionFacts::default() }, None)
            }
        };
        let mut done = done(&result_of(self.request, &self.bucket, key, &facts), self, facts.encryption.as_ref());
        if let Some(version) = version {
            versions::write_made(done.answer.headers_mut(), version);
        }
        Ok(done)
    }

    /// The rows of the parts the client lists, in its order.
    async fn chosen_parts(
        &self,
        key: &str,
        upload: UploadId,
        list: &[CompletedPart],
    ) -> Result<Vec<(Part, PartFacts)>> {
        let mut stored = HashMap::new();
        let mut after = 0;
        loop {
            let page = self.service.engine.uploads.parts(&self.bucket, key, upload, after, PARTS_PAGE).await;
            let page = page.map_err(|error| self.refusal(error))?;
            let more = page.len() == PARTS_PAGE;
            after = page.last().map_or(after, |(part, _)| part.number);
            stored.extend(page.into_iter().map(|part| (part.0.number, part)));
            if !more {
                break;
            }
        }
        let last = list.last().map(|part| part.number);
        list.iter().map(|wanted| choose(wanted, Some(wanted.number) == last, stored.remove(&wanted.number))).collect()
    }
}

/// A composite checksum is vouched for part by part: the list must name the checksum of each.
fn check_listed(upload: &VersionFacts, list: &[CompletedPart]) -> Result<()> {
    let (Some(algorithm), Some(ChecksumType::Composite)) = (wanted_checksum(upload), kind_of(upload)) else {
        return Ok(());
    };
    match list.iter().find(|part| part.checksum.is_none_or(|checksum| checksum.algorithm() != algorithm)) {
        None => Ok(()),
        Some(part) => Err(S3Error::with_message(
            ErrorCode::InvalidRequest,
            format!(
                "The upload was created using a {} checksum. The complete request must include the checksum for each part. \
                 It was missing for part {} in the request.",
                algorithm.as_str().to_ascii_lowercase(),
                part.number
            ),
        )),
    }
}

/// One part of the list against what is stored under its number.
fn choose(wanted: &CompletedPart, is_last: bool, stored: Option<(Part, PartFacts)>) -> Result<(Part, PartFacts)> {
    let invalid = || S3Error::new(ErrorCode::InvalidPart).field("PartNumber", wanted.number.to_string());
    let (part, facts) = stored.ok_or_else(invalid)?;
    if facts.etag != wanted.etag.as_str() {
        return Err(invalid().field("ETag", wanted.etag.as_str()));
    }
    if let Some(claimed) = wanted.checksum.as_ref().filter(|_| !facts.checksums.is_empty()) {
        let name = claimed.algorithm().as_str().to_ascii_lowercase();
        let number = wanted.number;
        let kept = object_facts::checksum_of(&facts.checksums, claimed.algorithm()).ok_or_else(|| {
            let message = format!("The {name} you specified for part {number} did not match what we received.");
            S3Error::with_message(ErrorCode::BadDigest, message)
        })?;
        if kept.bytes() != claimed.bytes() {
            return Err(invalid());
        }
    }
    if !is_last && part.size < PART_BYTES_MIN {
        return Err(S3Error::new(ErrorCode::EntityTooSmall)
            .field("ProposedSize", part.size.to_string())
            .field("MinSizeAllowed", PART_BYTES_MIN.to_string())
            .field("PartNumber", wanted.number.to_string())
            .field("ETag", wanted.etag.as_str()));
    }
    Ok((part, facts))
}

/// The facts of the object: the upload's, the tag of the parts, and their combined checksum.
fn facts_of_whole(upload: &VersionFacts, parts: &[(Part, PartFacts)], asked: &ChecksumRequest) -> Result<VersionFacts> {
    let internal = || S3Error::new(ErrorCode::InternalError);
    let size = parts.iter().try_fold(0_u64, |sum, (part, _)| sum.checked_add(part.size));
    let size = size.filter(|size| *size <= OBJECT_BYTES_MAX).ok_or_else(|| S3Error::new(ErrorCode::EntityTooLarge))?;
    if let Some(asked) = asked.object_size.filter(|asked| *asked != size) {
        let message = format!(
            "The provided 'x-amz-mp-object-size' header value {asked} does not match what was computed: {size}"
        );
        return Err(S3Error::with_message(ErrorCode::InvalidRequest, message));
    }
    let md5s: Option<Vec<[u8; 16]>> = parts.iter().map(|(_, facts)| ETag::from_wire(&facts.etag).md5()).collect();
    let etag = ETag::of_parts(md5s.ok_or_else(internal)?);
    let checksum = combined_checksum(upload, parts, asked)?;
    let checksum_of = |facts: &PartFacts| {
        let kept = object_facts::checksum_of(&facts.checksums, checksum?.algorithm())?;
        Some(kept.to_wire())
    };
    let joined = |kept| encryption::joined(kept, parts.iter().map(|(_, part)| part)).ok_or_else(internal);
    Ok(VersionFacts {
        etag: etag.as_str().to_owned(),
        checksum_algorithm: None,
        lock: None,
        begun_over: None,
        encryption: upload.encryption.as_ref().map(joined).transpose()?,
        checksum_type: checksum.map(|checksum| checksum.checksum_type().as_str().to_owned()),
        parts: parts
            .iter()
            .map(|(part, facts)| PartSize { number: part.number, size: part.size, checksum: checksum_of(facts) })
            .collect(),
        checksums: checksum.iter().map(object_facts::kept).collect(),
        ..upload.clone()
    })
}

fn combined_checksum(
    upload: &VersionFacts,
    parts: &[(Part, PartFacts)],
    asked: &ChecksumRequest,
) -> Result<Option<Checksum>> {
    let asked_for = wanted_checksum(upload);
    let algorithm = asked_for.unwrap_or(DEFAULT_CHECKSUM);
    let kind = upload.checksum_type.as_deref().map(ChecksumType::parse).transpose()?;
    let kind = kind.unwrap_or(algorithm.default_type());
    if asked.checksum_type.is_some_and(|asked| asked != kind) {
        return Err(S3Error::with_message(
            ErrorCode::InvalidRequest,
            format!(
                "The upload was created using the {} checksum mode. The complete request must use the same checksum mode.",
                kind.as_str()
            ),
        ));
    }
    let of_part =
        |(part, facts): &(Part, PartFacts)| Some((object_facts::checksum_of(&facts.checksums, algorithm)?, part.size));
    let of_parts: Vec<(Checksum, u64)> = match parts.iter().map(of_part).collect() {
        Some(of_parts) => of_parts,
        // Nobody asked, and a part is older than the default or was copied without being read.
        None if asked_for.is_none() => return Ok(None),
        None => return Err(S3Error::new(ErrorCode::InvalidPart)),
    };
    let whole = combine_parts(algorithm, kind, of_parts)?;
    if let Some(claimed) = &asked.object
        && is_looked_at(claimed.algorithm(), asked_for)?
        && (claimed.algorithm() != whole.algorithm() || claimed.bytes() != whole.bytes())
    {
        let message =
            format!("The {} you specified did not match the calculated checksum.", claimed.algorithm().as_str());
        return Err(S3Error::with_message(ErrorCode::BadDigest, message));
    }
    Ok(Some(whole))
}

/// Whether a checksum that CompleteMultipartUpload claims is compared. Where the upload named no
/// algorithm, S3 takes those that it has had for long and does not look at them.
fn is_looked_at(claimed: ChecksumAlgorithm, asked_for: Option<ChecksumAlgorithm>) -> Result<bool> {
    use ChecksumAlgorithm::{Crc32, Crc32c, Sha1, Sha256};
    match (asked_for, claimed) {
        (Some(_), _) | (None, DEFAULT_CHECKSUM) => Ok(true),
        (None, Crc32 | Crc32c | Sha1 | Sha256) => Ok(false),
        (None, _) => Err(S3Error::with_message(
            ErrorCode::InvalidRequest,
            format!("The upload was created without the {} checksum algorithm.", claimed.as_str()),
        )),
    }
}

/// What makes two lists the same list.
fn list_digest(list: &[CompletedPart]) -> [u8; 32] {
    let mut digest = Sha256::new();
    for part in list {
        digest.update(part.number.to_be_bytes());
        digest.update([part.etag.as_str().len() as u8]);
        digest.update(part.etag.as_str());
    }
    digest.finalize().into()
}

fn result_of(
    request: &S3Request,
    bucket: &BucketHandle,
    key: &str,
    facts: &VersionFacts,
) -> CompleteMultipartUploadResult {
    CompleteMultipartUploadResult {
        location: location(request),
        bucket: bucket.row.name.clone(),
        key: key.to_owned(),
        etag: ETag::from_wire(&facts.etag),
        checksum: object_facts::first_checksum(&facts.checksums),
    }
}

/// The object's URL in path style.
fn location(request: &S3Request) -> String {
    let path = object_facts::encoded_path(&request.target.resource());
    format!("{}://{}{path}", request.service.scheme, request.target.host)
}

fn done(result: &CompleteMultipartUploadResult, here: &InBucket<'_>, kept: Option<&ObjectEncryption>) -> Done {
    let mut answer = document(result);
    encryption::write(answer.headers_mut(), kept, &here.headers, &here.bucket);
    Done { answer, document_bare: result.to_bytes_bare() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(number: u32, size: u64, checksum: Option<Checksum>) -> (Part, PartFacts) {
        let etag = ETag::from_md5([number as u8; 16]).as_str().to_owned();
        let checksums = checksum.iter().map(object_facts::kept).collect();
        let part = Part { number, id: [0; 16], size, modified_ms: 0, facts: Vec::new(), extents: Vec::new() };
        (part, PartFacts { size, etag, checksums, ..PartFacts::default() })
    }

    fn wanted(number: u32) -> CompletedPart {
        CompletedPart { number, etag: ETag::from_md5([number as u8; 16]), checksum: None }
    }

    fn crc(byte: u8) -> Checksum {
        Checksum::full(ChecksumAlgorithm::Crc32, &[byte; 4]).unwrap()
    }

    #[test]
    fn a_part_must_be_there_have_its_tag_and_be_large_enough_unless_it_is_the_last() {
        // C85
        let code = |result: Result<(Part, PartFacts)>| result.err().map(|error| error.code());
        assert_eq!(code(choose(&wanted(1), false, Some(stored(1, PART_BYTES_MIN, None)))), None);
        assert_eq!(
            code(choose(&wanted(1), false, Some(stored(1, PART_BYTES_MIN - 1, None)))),
            Some(ErrorCode::EntityTooSmall)
        );
        assert_eq!(code(choose(&wanted(1), true, Some(stored(1, 1, None)))), None);
        assert_eq!(code(choose(&wanted(1), true, None)), Some(ErrorCode::InvalidPart));
        assert_eq!(code(choose(&wanted(2), true, Some(stored(1, 1, None)))), Some(ErrorCode::InvalidPart));
        let claiming = CompletedPart { checksum: Some(crc(2)), ..wanted(1) };
        assert_eq!(code(choose(&claiming, true, Some(stored(1, 1, Some(crc(1)))))), Some(ErrorCode::InvalidPart));
        assert_eq!(code(choose(&claiming, true, Some(stored(1, 1, Some(crc(2)))))), None);
    }

    #[test]
    fn the_tag_is_made_of_the_parts_and_counts_them() {
        let facts = facts_of_whole(
            &VersionFacts::default(),
            &[stored(1, 5 << 20, None), stored(3, 7, None)],
            &ChecksumRequest::default(),
        );
        let facts = facts.unwrap();
        assert!(facts.etag.ends_with("-2"));
        assert_eq!(facts.parts.iter().map(|part| (part.number, part.size)).collect::<Vec<_>>(), [(1, 5 << 20), (3, 7)]);
        assert!(facts.checksums.is_empty());
    }

    #[test]
    fn sizes_are_held_against_the_clients_word_and_the_limit_without_overflow() {
        let whole = |sizes: &[u64], asked: Option<u64>| {
            let parts: Vec<_> = sizes.iter().enumerate().map(|(n, size)| stored(n as u32 + 1, *size, None)).collect();
            let asked = ChecksumRequest { object_size: asked, ..ChecksumRequest::default() };
            facts_of_whole(&VersionFacts::default(), &parts, &asked).err().map(|error| error.code())
        };
        assert_eq!(whole(&[5 << 20, 1], Some((5 << 20) + 1)), None);
        assert_eq!(whole(&[5 << 20, 1], Some(5 << 20)), Some(ErrorCode::InvalidRequest));
        assert_eq!(whole(&[OBJECT_BYTES_MAX], None), None);
        assert_eq!(whole(&[OBJECT_BYTES_MAX, 1], None), Some(ErrorCode::EntityTooLarge));
        assert_eq!(whole(&[u64::MAX, u64::MAX], None), Some(ErrorCode::EntityTooLarge));
    }

    #[test]
    fn the_checksum_of_the_whole_is_combined_and_held_against_the_claim() {
        let upload = VersionFacts {
            checksum_algorithm: Some("CRC32".into()),
            checksum_type: Some("COMPOSITE".into()),
            ..VersionFacts::default()
        };
        let parts = [stored(1, 5 << 20, Some(crc(1))), stored(2, 9, Some(crc(2)))];
        let facts = facts_of_whole(&upload, &parts, &ChecksumRequest::default()).unwrap();
        let whole = object_facts::first_checksum(&facts.checksums).unwrap();
        assert_eq!((whole.parts(), facts.checksum_type.as_deref()), (Some(2), Some("COMPOSITE")));
        assert_eq!(facts.parts[0].checksum.as_deref(), Some(crc(1).to_wire().as_str()));
        let claim = |object| ChecksumRequest { object: Some(object), ..ChecksumRequest::default() };
        assert!(facts_of_whole(&upload, &parts, &claim(whole)).is_ok());
        let error = facts_of_whole(&upload, &parts, &claim(crc(9))).unwrap_err();
        assert_eq!(error.code(), ErrorCode::BadDigest);
        let without = [stored(1, 5 << 20, Some(crc(1))), stored(2, 9, None)];
        let error = facts_of_whole(&upload, &without, &ChecksumRequest::default()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidPart);
    }

    #[test]
    fn a_composite_checksum_needs_that_of_every_part_in_the_list() {
        let upload = |algorithm: &str, kind: &str| VersionFacts {
            checksum_algorithm: Some(algorithm.into()),
            checksum_type: Some(kind.into()),
            ..VersionFacts::default()
        };
        let claiming = |number, byte| CompletedPart { checksum: Some(crc(byte)), ..wanted(number) };
        let composite = upload("CRC32", "COMPOSITE");
        assert!(check_listed(&composite, &[claiming(1, 1), claiming(2, 2)]).is_ok());
        let error = check_listed(&composite, &[claiming(1, 1), wanted(2)]).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidRequest);
        assert!(error.message().contains("missing for part 2"), "{error}");
        assert!(check_listed(&upload("SHA1", "COMPOSITE"), &[claiming(1, 1)]).is_err());
        assert!(check_listed(&upload("CRC32", "FULL_OBJECT"), &[wanted(1)]).is_ok());
        assert!(check_listed(&VersionFacts::default(), &[wanted(1)]).is_ok());
    }

    #[test]
    fn a_list_is_the_same_only_with_the_same_parts_in_the_same_order() {
        assert_eq!(list_digest(&[wanted(1), wanted(2)]), list_digest(&[wanted(1), wanted(2)]));
        assert_ne!(list_digest(&[wanted(1), wanted(2)]), list_digest(&[wanted(1)]));
        assert_ne!(list_digest(&[wanted(1), wanted(2)]), list_digest(&[wanted(2), wanted(1)]));
    }
}
