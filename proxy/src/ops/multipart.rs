//! Multipart uploads but their completion: each part is stored as it arrives.

use super::{
    body::RequestBody,
    encryption, object_facts,
    put::{DEFAULT_CHECKSUM, Wanted},
    request::{Answer, InBucket, Result, S3Request, document, empty, ms_of, set, time_of},
};
use crate::engine::{BegunOver, Destination, PartFacts, PartName, VersionFacts};
use catalog::UploadId;
use http::StatusCode;
use s3_wire::{
    ETag, ErrorCode, S3Error,
    checksum::{ChecksumAlgorithm, ChecksumType, Claims},
    headers::{
        ChecksumRequest, ListPartsParams, PartNumber,
        multipart::{if_match_initiated_time, upload_id},
    },
    xml::response::{InitiateMultipartUploadResult, ListPartsResult, PartEntry},
};
use std::time::SystemTime;

/// An open upload, its id checked and its owner compared.
pub(super) struct OpenUpload {
    pub(super) id: UploadId,
    pub(super) upload: catalog::Upload,
    pub(super) facts: VersionFacts,
}

/// Starts an upload.
pub(super) async fn create(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    let key = request.key()?;
    let mut facts = object_facts::from_headers(&request.headers)?;
    here.own(&mut facts).await?;
    facts.encryption = here.sealing()?.map(|sealing| sealing.facts_of(Vec::new()));
    let encryption = facts.encryption.clone();
    facts.lock = here.wanted_lock()?.kept();
    let checksum = ChecksumRequest::of_create(&request.headers)?.algorithm;
    if let Some((algorithm, kind)) = checksum {
        facts.checksum_algorithm = Some(algorithm.as_str().to_owned());
        facts.checksum_type = Some(kind.as_str().to_owned());
    }
    let owner = request.principal.canonical_id();
    let engine = &request.service.engine;
    let current = engine.read.head(&here.bucket, key).await.map_err(|error| request.refusal(error))?;
    facts.begun_over = Some(BegunOver { current: current.map(|info| info.version.id) });
    let id =
        engine.uploads.create_upload(&here.bucket, key, owner, facts).await.map_err(|error| request.refusal(error))?;
    let mut answer = document(&InitiateMultipartUploadResult {
        bucket: here.bucket.row.name.clone(),
        key: key.to_owned(),
        upload_id: id_text(id),
    });
    let headers = answer.headers_mut();
    encryption::write(headers, encryption.as_ref(), &request.headers, &here.bucket);
    encryption::write_context(headers, encryption.as_ref());
    here.write_abort(headers, key, ms_of(SystemTime::now()))?;
    if let Some((algorithm, kind)) = checksum {
        set(headers, "x-amz-checksum-algorithm", algorithm.as_str());
        set(headers, "x-amz-checksum-type", kind.as_str());
    }
    Ok(answer)
}

/// Stores one part.
pub(super) async fn upload_part(request: &S3Request, body: &mut RequestBody) -> Result<Answer> {
    let key = request.key()?;
    let here = request.in_bucket().await?.writing(key)?;
    let number = part_number(request)?;
    let open = here.open_upload(key).await?;
    let sealing = request.unlock_upload(&open.facts)?;
    let wanted = wanted_checksum(&open.facts);
    let claimed = Claims::from_headers(&request.headers, &request.payload)?.stored_algorithm();
    check_algorithm(wanted, kind_of(&open.facts), claimed)?;

    let destination = Destination::Part { key: key.to_owned(), upload: open.id, number };
    let default = wanted.is_none().then_some(DEFAULT_CHECKSUM);
    let wanted = Wanted { unless_claimed: wanted, always: default };
    let received = here.receive(destination, wanted, sealing.as_ref(), body).await?;
    let facts = PartFacts {
        size: received.staged.plain_len,
        etag: received.etag.as_str().to_owned(),
        checksums: received.checksums.iter().map(object_facts::kept).collect(),
        salt: received.salt,
        ..PartFacts::default()
    };
    let engine = &request.service.engine;
    engine
        .publisher
        .publish_part(&here.bucket, PartName { key, upload: open.id, number }, received.staged, facts)
        .await
        .map_err(|error| request.refusal(error))?;

    let mut answer = empty(StatusCode::OK);
    let headers = answer.headers_mut();
    set(headers, "etag", &received.etag.quoted());
    encryption::write(headers, open.facts.encryption.as_ref(), &request.headers, &here.bucket);
    if let Some(checksum) = received.checksums.first().filter(|checksum| Some(checksum.algorithm()) != default) {
        set(headers, checksum.algorithm().header(), &checksum.to_wire());
    }
    Ok(answer)
}

/// The `partNumber` an upload of a part must have.
pub(super) fn part_number(request: &S3Request) -> Result<u32> {
    let number = PartNumber::from_query(&request.target.query)?;
    let missing = || S3Error::invalid_argument("partNumber", "", "UploadPart needs a part number.");
    Ok(number.ok_or_else(missing)?.get())
}

/// The algorithm every part of an upload gets.
pub(super) fn wanted_checksum(upload: &VersionFacts) -> Option<ChecksumAlgorithm> {
    upload.checksum_algorithm.as_deref().and_then(|name| ChecksumAlgorithm::parse(name).ok())
}

/// Whether the checksum of an upload's object covers its bytes or its parts' checksums; `None` when
/// no algorithm was asked for.
pub(super) fn kind_of(upload: &VersionFacts) -> Option<ChecksumType> {
    wanted_checksum(upload).and_then(|_| Some(object_facts::checksum_kind(upload)?.1))
}

/// A part brings the algorithm of its upload. It may bring none unless the upload's checksum is
/// made of what clients say of each part.
fn check_algorithm(
    wanted: Option<ChecksumAlgorithm>,
    kind: Option<ChecksumType>,
    claimed: Option<ChecksumAlgorithm>,
) -> Result<()> {
    match (wanted, claimed) {
        (Some(wanted), Some(claimed)) if wanted == claimed => Ok(()),
        (Some(wanted), claimed) if claimed.is_some() || kind == Some(ChecksumType::Composite) => {
            let actual = claimed.map_or("null".to_owned(), |claimed| claimed.as_str().to_ascii_lowercase());
            Err(S3Error::with_message(
                ErrorCode::InvalidRequest,
                format!(
                    "Checksum Type mismatch occurred, expected checksum Type: {}, actual checksum Type: {actual}",
                    wanted.as_str().to_ascii_lowercase(),
                ),
            ))
        }
        _ => Ok(()),
    }
}

/// Gives an upload up.
pub(super) async fn abort(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    let key = request.key()?;
    let initiated = if_match_initiated_time(&request.headers)?;
    let open = match here.open_upload(key).await {
        // Who says when it began means: if it is there, end it.
        Err(error) if initiated.is_some() && error.code() == ErrorCode::NoSuchUpload => {
            return Ok(empty(StatusCode::NO_CONTENT));
        }
        found => found?,
    };
    // Headers carry whole seconds.
    if initiated.is_some_and(|at| ms_of(at) / 1000 != open.upload.created_ms / 1000) {
        return Err(S3Error::new(ErrorCode::PreconditionFailed).field("Condition", "x-amz-if-match-initiated-time"));
    }
    let engine = &request.service.engine;
    if engine.uploads.abort(&here.bucket, key, open.id).await.map_err(|error| request.refusal(error))? {
        Ok(empty(StatusCode::NO_CONTENT))
    } else {
        Err(no_such_upload(&id_text(open.id)))
    }
}

/// Lists the parts of an open upload.
pub(super) async fn list_parts(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    let key = request.key()?;
    let params = ListPartsParams::from_query(&request.target.query)?;
    let open = here.open_upload(key).await?;
    let limit = usize::try_from(params.max_parts).unwrap_or(usize::MAX);
    // One more than asked for says whether there is more.
    let engine = &request.service.engine;
    let mut parts = engine
        .uploads
        .parts(&here.bucket, key, open.id, params.part_number_marker, limit + 1)
        .await
        .map_err(|error| request.refusal(error))?;
    let is_truncated = limit > 0 && parts.len() > limit;
    parts.truncate(limit);
    let users = request.service.users();
    let asked = wanted_checksum(&open.facts).is_some();
    let entries: Vec<PartEntry> = parts
        .into_iter()
        .map(|(part, facts)| PartEntry {
            number: part.number,
            last_modified: time_of(part.modified_ms),
            etag: ETag::from_wire(&facts.etag),
            size: part.size,
            checksum: object_facts::first_checksum(&facts.checksums)
                .filter(|kept| asked || kept.algorithm() != DEFAULT_CHECKSUM),
        })
        .collect();
    let mut answer = document(&ListPartsResult {
        bucket: here.bucket.row.name.clone(),
        key: key.to_owned(),
        upload_id: id_text(open.id),
        initiator: users.owner(&open.upload.owner),
        owner: users.owner(here.owner_of(&open.facts)),
        storage_class: object_facts::storage_class_name(open.facts.storage_class.as_deref()),
        part_number_marker: params.part_number_marker,
        next_part_number_marker: entries.last().map(|part| part.number),
        max_parts: params.max_parts,
        is_truncated,
        encoding_type_url: params.encoding_type_url,
        checksum: wanted_checksum(&open.facts).and_then(|_| object_facts::checksum_kind(&open.facts)),
        parts: entries,
    });
    here.write_abort(answer.headers_mut(), key, open.upload.created_ms)?;
    Ok(answer)
}

impl InBucket<'_> {
    /// The upload a request names, completed or not. Another user's is as good as none (C43).
    pub(super) async fn upload(&self, key: &str) -> Result<OpenUpload> {
        let text = upload_id(&self.target.query)?;
        let id = parse_id(text).ok_or_else(|| no_such_upload(text))?;
        let found =
            self.service.engine.uploads.upload(&self.bucket, key, id).await.map_err(|error| self.refusal(error))?;
        let (upload, facts) = found.ok_or_else(|| no_such_upload(text))?;
        if upload.owner != self.principal.canonical_id() && !self.principal.is_admin() {
            return Err(no_such_upload(text));
        }
        Ok(OpenUpload { id, upload, facts })
    }

    /// As [`InBucket::upload`] for one that is still open.
    pub(super) async fn open_upload(&self, key: &str) -> Result<OpenUpload> {
        let found = self.upload(key).await?;
        if found.upload.completed.is_some() {
            return Err(no_such_upload(&id_text(found.id)));
        }
        Ok(found)
    }
}

pub(super) fn no_such_upload(id: &str) -> S3Error {
    S3Error::new(ErrorCode::NoSuchUpload).field("UploadId", id)
}

/// An upload's id as clients see it.
pub(super) fn id_text(id: UploadId) -> String {
    hex::encode(id.0)
}

/// Reads it again; nothing but its one spelling.
pub(super) fn parse_id(text: &str) -> Option<UploadId> {
    let mut id = [0; 16];
    hex::decode_to_slice(text, &mut id).ok()?;
    Some(UploadId(id)).filter(|id| id_text(*id) == text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parts_bring_the_algorithm_of_their_upload_and_may_bring_none_unless_it_is_composite() {
        use ChecksumAlgorithm::{Crc32, Sha256};
        let (composite, full) = (Some(ChecksumType::Composite), Some(ChecksumType::FullObject));
        assert!(check_algorithm(Some(Crc32), composite, Some(Crc32)).is_ok());
        assert!(check_algorithm(Some(Crc32), full, None).is_ok());
        assert!(check_algorithm(None, None, Some(Sha256)).is_ok());
        for (kind, claimed) in [(composite, Some(Sha256)), (full, Some(Sha256)), (composite, None)] {
            let error = check_algorithm(Some(Crc32), kind, claimed).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidRequest);
        }
    }

    #[test]
    fn an_upload_id_has_one_spelling() {
        let text = id_text(UploadId([0xab; 16]));
        assert_eq!(parse_id(&text), Some(UploadId([0xab; 16])));
        for other in [text.to_uppercase(), text[1..].to_owned(), format!("{text}00"), "x".repeat(32)] {
            assert_eq!(parse_id(&other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn ids_survive_their_text(id in any::<[u8; 16]>(), text in any::<String>()) {
            prop_assert_eq!(parse_id(&id_text(UploadId(id))), Some(UploadId(id)));
            let _ = parse_id(&text);
        }
    }
}
