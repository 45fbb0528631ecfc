//! CopyObject and UploadPartCopy: a row inside one domain, a read and a write between two.

use super::{
    PUT_BYTES_MAX, Result,
    digest::{PayloadDigest, digest_of},
    document,
    late::{Done, answer_late},
    multipart::{part_number, wanted_checksum},
    no_such_key, no_such_version, object_facts, set, time_of,
};
use crate::{
    engine::{BucketHandle, Destination, EngineError, Facts, OpenObject, PartFacts, PartName, StoreError},
    server::service::{Answer, S3Request},
};
use http::HeaderMap;
use s3_wire::{
    ETag, ErrorCode, S3Error,
    checksum::{Checksum, ChecksumAlgorithm, DigestSet},
    headers::{CopyConditions, CopySource, CopySourceRange, MetadataDirective, single},
    xml::{Document as _, response::CopyResult},
};
use std::ops::Range;

/// Where a copy comes from, allowed, open, and its conditions held.
struct Source {
    bucket: BucketHandle,
    key: String,
    object: OpenObject,
}

impl Source {
    fn facts(&self) -> &Facts {
        &self.object.info.facts
    }

    fn size(&self) -> u64 {
        self.object.info.version.size
    }
}

/// Copies an object.
pub(super) async fn copy_object(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    let key = request.key()?.to_owned();
    object_facts::check_encryption(&request.headers, &here.bucket)?;
    let directive = MetadataDirective::from_headers(&request.headers)?;
    let wanted = requested_algorithm(&request.headers)?;
    let source = request.copy_source().await?;
    if source.size() > PUT_BYTES_MAX {
        return Err(too_large());
    }
    let storage_class = object_facts::storage_class(&request.headers)?;
    let to_itself = source.bucket.row.id == here.bucket.row.id && source.key == key;
    if to_itself && directive == MetadataDirective::Copy && storage_class == source.facts().storage_class {
        return Err(S3Error::with_message(
            ErrorCode::InvalidRequest,
            "This copy request is illegal because it is trying to copy an object to itself without changing the object's metadata, \
             storage class, website redirect location or encryption attributes.",
        ));
    }
    let described = match directive {
        MetadataDirective::Copy => Facts {
            headers: source.facts().headers.clone(),
            user_metadata: source.facts().user_metadata.clone(),
            storage_class,
            ..Facts::default()
        },
        MetadataDirective::Replace => object_facts::from_headers(&request.headers)?,
    };
    let (conditions, precondition) = request.precondition(&here.bucket, &key).await?;

    let (bucket, request) = (here.bucket, request.clone());
    let resource = request.target.resource();
    let work = async move {
        let engine = request.service.engine.clone();
        let (facts, published) = if engine.shares_extents(&source.bucket, &source.object, &bucket) {
            let facts = request.facts_of_shared(&source, described, wanted).await?;
            let published = engine.publish_copy(&bucket, &key, &source.object, facts.clone(), precondition).await;
            (facts, published)
        } else {
            let kept = object_facts::first_checksum(&source.facts().checksums);
            let algorithm = wanted.or_else(|| kept.map(|checksum| checksum.algorithm()));
            let destination = Destination::Object { key: key.clone() };
            let copied = request.stage_copy(&bucket, destination, &source, 0..source.size(), algorithm).await?;
            let facts = described_by(described, &copied.etag, copied.checksum);
            let published = engine.publish(&bucket, &key, copied.staged, facts.clone(), precondition).await;
            (facts, published)
        };
        let published = match published {
            Ok(published) => published,
            Err(error) => return Err(request.commit_refusal(&bucket, &key, &conditions, error).await),
        };
        let result = CopyResult {
            part: false,
            etag: ETag::from_wire(&facts.etag),
            last_modified: time_of(published.committed.modified_ms),
            checksum: object_facts::first_checksum(&facts.checksums),
        };
        let mut done = done(&result, &bucket);
        object_facts::note_form(done.answer.extensions_mut(), published.storage.form);
        Ok(done)
    };
    answer_late(Box::pin(work), move |error| error.resource(resource)).await
}

/// Copies a range of an object into a part of an upload.
pub(super) async fn upload_part_copy(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    let key = request.key()?.to_owned();
    let number = part_number(request)?;
    let open = here.open_upload(&key).await?;
    let source = request.copy_source().await?;
    let range = match CopySourceRange::from_headers(&request.headers)? {
        Some(range) => range.resolve(source.size())?,
        None => 0..source.size(),
    };
    if range.end - range.start > PUT_BYTES_MAX {
        return Err(too_large());
    }
    let algorithm = wanted_checksum(&open.facts);

    let (bucket, request) = (here.bucket, request.clone());
    let resource = request.target.resource();
    let work = async move {
        let engine = request.service.engine.clone();
        let part = PartName { key: &key, upload: open.id, number };
        let size = range.end - range.start;
        let facts = |etag: &ETag, checksum: Option<Checksum>| PartFacts {
            size,
            etag: etag.as_str().to_owned(),
            checksums: checksum.iter().map(object_facts::kept).collect(),
            ..PartFacts::default()
        };
        let (facts, stored) = if engine.shares_extents(&source.bucket, &source.object, &bucket) {
            let (etag, checksum) = request.digests_of(&source, range.clone(), algorithm).await?;
            let facts = facts(&etag, checksum);
            let stored = engine.publish_part_copy(&bucket, part, &source.object, range, facts.clone()).await;
            (facts, stored)
        } else {
            let destination = Destination::Part { key: key.clone(), upload: open.id, number };
            let copied = request.stage_copy(&bucket, destination, &source, range, algorithm).await?;
            let facts = facts(&copied.etag, copied.checksum);
            (facts.clone(), engine.publish_part(&bucket, part, copied.staged, facts).await)
        };
        let modified_ms = stored.map_err(|error| request.refusal(error))?;
        let result = CopyResult {
            part: true,
            etag: ETag::from_wire(&facts.etag),
            last_modified: time_of(modified_ms),
            checksum: object_facts::first_checksum(&facts.checksums),
        };
        Ok(done(&result, &bucket))
    };
    answer_late(Box::pin(work), move |error| error.resource(resource)).await
}

/// A copy that has been read and encoded.
struct Copied {
    staged: crate::engine::Staged<s3_wire::checksum::DigestValues>,
    etag: ETag,
    checksum: Option<Checksum>,
}

impl S3Request {
    /// Authorizes, finds and pins the source (C29–C33).
    async fn copy_source(&self) -> Result<Source> {
        let source = CopySource::from_headers(&self.headers)?;
        let (bucket, key) = (source.bucket.as_str(), source.key.as_str());
        self.principal.authorize("s3:GetObject", Some(bucket), Some(key))?;
        if let Some(version) = source.version_id.as_deref().filter(|version| *version != "null") {
            return Err(no_such_version(version));
        }
        let bucket = self.bucket(bucket).await?;
        let opened = self.service.engine.open_object(&bucket, key).await.map_err(|error| self.refusal(error))?;
        let object = match opened {
            Some(object) => object,
            None if self.principal.may("s3:ListBucket", Some(&bucket.row.name), None) => return Err(no_such_key(key)),
            None => return Err(ErrorCode::AccessDenied.into()),
        };
        let etag = ETag::from_wire(&object.info.facts.etag);
        let modified = time_of(object.info.version.modified_ms);
        CopyConditions::from_headers(&self.headers)?.evaluate(&etag, modified)?;
        Ok(Source { bucket, key: source.key.into_string(), object })
    }

    /// The facts of a copy that shares its source's extents: its tag and parts are the source's. A checksum the source has not is
    /// computed from its content.
    async fn facts_of_shared(
        &self,
        source: &Source,
        described: Facts,
        wanted: Option<ChecksumAlgorithm>,
    ) -> Result<Facts> {
        let of_source = source.facts();
        let mut facts = Facts {
            etag: of_source.etag.clone(),
            checksums: of_source.checksums.clone(),
            checksum_type: of_source.checksum_type.clone(),
            parts: of_source.parts.clone(),
            ..described
        };
        let kept = object_facts::first_checksum(&of_source.checksums);
        if let Some(wanted) = wanted.filter(|wanted| kept.is_none_or(|kept| kept.algorithm() != *wanted)) {
            let content = self.service.engine.read(&source.object, 0..source.size());
            let values =
                digest_of(content, DigestSet::EMPTY.with(wanted)).await.map_err(|error| self.refusal(error))?;
            let checksum = values.checksum(wanted);
            facts.checksums = checksum.iter().map(object_facts::kept).collect();
            facts.checksum_type = checksum.map(|checksum| checksum.checksum_type().as_str().to_owned());
            facts.parts.iter_mut().for_each(|part| part.checksum = None);
        }
        Ok(facts)
    }

    /// MD5 and checksum of a range, read only where the source's facts do not say them.
    async fn digests_of(
        &self,
        source: &Source,
        range: Range<u64>,
        algorithm: Option<ChecksumAlgorithm>,
    ) -> Result<(ETag, Option<Checksum>)> {
        let facts = source.facts();
        let etag = ETag::from_wire(&facts.etag);
        let kept = object_facts::first_checksum(&facts.checksums).filter(|kept| kept.parts().is_none());
        let known = kept.filter(|kept| Some(kept.algorithm()) == algorithm);
        if range == (0..source.size()) && etag.md5().is_some() && (algorithm.is_none() || known.is_some()) {
            return Ok((etag, known));
        }
        let set = algorithm.map_or(DigestSet::MD5, |algorithm| DigestSet::MD5.with(algorithm));
        let content = self.service.engine.read(&source.object, range);
        let values = digest_of(content, set).await.map_err(|error| self.refusal(error))?;
        let md5 = values.md5.expect("MD5 is in the set");
        Ok((ETag::from_md5(md5), algorithm.and_then(|algorithm| values.checksum(algorithm))))
    }

    /// Reads a range of the source and stages it in another domain.
    async fn stage_copy(
        &self,
        bucket: &BucketHandle,
        destination: Destination,
        source: &Source,
        range: Range<u64>,
        algorithm: Option<ChecksumAlgorithm>,
    ) -> Result<Copied> {
        let engine = &self.service.engine;
        let set = algorithm.map_or(DigestSet::EMPTY, |algorithm| DigestSet::EMPTY.with(algorithm));
        let len = range.end - range.start;
        let content = engine.read(&source.object, range);
        let staged = engine.stage(bucket, destination, Some(len), content, PayloadDigest::new(set)).await;
        let staged = staged.map_err(|error: StoreError<EngineError>| match error {
            StoreError::Body(error) | StoreError::Engine(error) => self.refusal(error),
        })?;
        let md5 = staged.digests.md5.expect("MD5 is in the set of every payload digest");
        let checksum = algorithm.and_then(|algorithm| staged.digests.checksum(algorithm));
        Ok(Copied { etag: ETag::from_md5(md5), checksum, staged })
    }
}

fn described_by(described: Facts, etag: &ETag, checksum: Option<Checksum>) -> Facts {
    Facts {
        etag: etag.as_str().to_owned(),
        checksums: checksum.iter().map(object_facts::kept).collect(),
        checksum_type: checksum.map(|checksum| checksum.checksum_type().as_str().to_owned()),
        ..described
    }
}

/// `x-amz-checksum-algorithm`: a checksum the copy is to have.
fn requested_algorithm(headers: &HeaderMap) -> Result<Option<ChecksumAlgorithm>> {
    single(headers, "x-amz-checksum-algorithm")?.map(ChecksumAlgorithm::parse).transpose()
}

fn too_large() -> S3Error {
    S3Error::with_message(
        ErrorCode::InvalidRequest,
        format!(
            "The specified copy source is larger than the maximum allowable size for a copy source: {PUT_BYTES_MAX}"
        ),
    )
}

fn done(result: &CopyResult, bucket: &BucketHandle) -> Done {
    let mut answer = document(result);
    let headers = answer.headers_mut();
    object_facts::write_encryption(headers, bucket);
    if let Some(checksum) = &result.checksum {
        set(headers, "x-amz-checksum-type", checksum.checksum_type().as_str());
    }
    Done { answer, document_bare: result.to_bytes_bare() }
}
