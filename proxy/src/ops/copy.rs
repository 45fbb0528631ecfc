//! CopyObject and UploadPartCopy: a row inside one domain, a read and a write between two. A source
//! whose tag is no MD5 is read inside a domain too: the copy is one object with a tag of its own.

use super::{
    digest::{PayloadDigest, digest_of},
    encryption::{self, Sealing},
    late::{Done, answer_late},
    multipart::{part_number, wanted_checksum},
    object_facts,
    put::DEFAULT_CHECKSUM,
    request::{
        Answer, InBucket, PUT_BYTES_MAX, Result, S3Request, document, no_such_key, no_such_version, set, time_of,
    },
    versions,
};
use crate::engine::{
    BucketHandle, Destination, EngineError, Named, ObjectEncryption, OpenObject, PartFacts, PartName, StoreError,
    Stretch, Terms, Veil, VersionFacts, notify::Event,
};
use catalog::VersionRef;
use http::HeaderMap;
use s3_wire::{
    ETag, ErrorCode, S3Error,
    checksum::{Checksum, ChecksumAlgorithm, DigestSet},
    headers::{
        CopyConditions, CopySource, CopySourceRange, CustomerKey, MetadataDirective, TaggingDirective, is_given, single,
    },
    xml::{Document as _, response::CopyResult},
};
use std::{ops::Range, sync::Arc, time::SystemTime};

/// Headers of which one makes a copy of an object to itself a change.
const CHANGES: [&str; 3] = ["x-amz-storage-class", "x-amz-website-redirect-location", "x-amz-server-side-encryption"];

/// Where a copy comes from, allowed, open, and its conditions held.
struct Source {
    bucket: BucketHandle,
    key: String,
    /// The version the client named.
    version: Option<VersionRef>,
    object: OpenObject,
}

impl Source {
    fn facts(&self) -> &VersionFacts {
        &self.object.info.facts
    }

    fn size(&self) -> u64 {
        self.object.info.version.size
    }

    /// Which version it is, for the answer.
    fn reference(&self) -> VersionRef {
        self.object.info.version.reference()
    }
}

/// How a copy is described: as its source, or as the request says.
fn described_anew(
    headers: &HeaderMap,
    source: &VersionFacts,
    (directive, tagging): (MetadataDirective, TaggingDirective),
) -> Result<VersionFacts> {
    let (storage_class, redirect_location) =
        (object_facts::storage_class(headers)?, object_facts::redirect_location(headers)?);
    let described = match directive {
        MetadataDirective::Copy => VersionFacts {
            headers: source.headers.clone(),
            user_metadata: source.user_metadata.clone(),
            storage_class,
            redirect_location,
            ..VersionFacts::default()
        },
        MetadataDirective::Replace => object_facts::from_headers(headers)?,
    };
    let tags = match tagging {
        TaggingDirective::Copy => source.tags.clone(),
        TaggingDirective::Replace => object_facts::tags(headers)?,
    };
    Ok(VersionFacts { tags, ..described })
}

/// Copies an object.
pub(super) async fn copy_object(request: &S3Request) -> Result<Answer> {
    let key = request.key()?.to_owned();
    let here = request.in_bucket().await?.writing(&key)?;
    let sealing = here.sealing()?;
    let directive = MetadataDirective::from_headers(&request.headers)?;
    let tagging = TaggingDirective::from_headers(&request.headers)?;
    let wanted = requested_algorithm(&request.headers)?;
    let source = request.copy_source(CopySource::from_headers(&request.headers)?).await?;
    if source.size() > PUT_BYTES_MAX {
        return Err(too_large());
    }
    let unlocked = request.unlock_content(source.facts(), CustomerKey::of_copy_source(&request.headers)?)?;
    let keyed = sealing.is_some() || unlocked.is_some();
    // Copying a named version to its own key is how an older one is brought back.
    let to_itself = source.bucket.row.id == here.bucket.row.id && source.key == key && source.version.is_none();
    // What a header says anew counts as a change, whatever it was; what none says does not.
    let changed = keyed
        || directive == MetadataDirective::Replace
        || tagging == TaggingDirective::Replace
        || CHANGES.iter().any(|name| is_given(&request.headers, name));
    if to_itself && !changed {
        return Err(S3Error::with_message(
            ErrorCode::InvalidRequest,
            "This copy request is illegal because it is trying to copy an object to itself without changing the object's metadata, \
             storage class, website redirect location or encryption attributes.",
        ));
    }
    let mut described = described_anew(&request.headers, source.facts(), (directive, tagging))?;
    here.own(&mut described).await?;
    let lock = here.wanted_lock()?;
    let (conditions, precondition) = request.precondition(&here.bucket, &key).await?;
    let cause = request.cause(&here.bucket, Event::Copy);
    let terms = Terms { precondition, lock: here.lock_now(lock)?, cause };
    let mut told = HeaderMap::new();
    let kept = sealing.as_ref().map(|sealing| sealing.facts_of(Vec::new()));
    encryption::write(&mut told, kept.as_ref(), &request.headers, &here.bucket);
    encryption::write_context(&mut told, kept.as_ref());

    let (bucket, request) = (here.bucket, request.clone());
    let resource = request.target.resource();
    let work = async move {
        let engine = request.service.engine.clone();
        let (facts, published) = if !keyed && source.object.shares_extents(&bucket) {
            let facts = request.facts_of_shared(&source, described, wanted).await?;
            let published = engine.publisher.publish_copy(&bucket, &key, &source.object, facts.clone(), terms).await;
            (facts, published)
        } else {
            let kept = object_facts::first_checksum(&source.facts().checksums);
            let algorithm = wanted.or_else(|| kept.map(|checksum| checksum.algorithm())).or(Some(DEFAULT_CHECKSUM));
            let destination = Destination::Object { key: key.clone() };
            let range = 0..source.size();
            let keys = (unlocked, sealing.as_ref());
            let copied = request.stage_copy(&bucket, destination, (&source, range), algorithm, keys).await?;
            let stretches = copied.salt.iter().map(|salt| Stretch { len: source.size(), salt: salt.clone() }).collect();
            let encryption = sealing.map(|sealing| sealing.facts_of(stretches));
            let facts = VersionFacts { encryption, ..described_by(described, &copied.etag, copied.checksum) };
            let published = engine.publisher.publish(&bucket, &key, copied.staged, facts.clone(), terms).await;
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
        let mut done = done(&result, &source, facts.encryption.as_ref(), &request, &bucket);
        encryption::write_context(done.answer.headers_mut(), facts.encryption.as_ref());
        versions::write_made(done.answer.headers_mut(), published.reference());
        let here = InBucket { request: &request, bucket: bucket.clone() };
        let modified_ms = published.committed.modified_ms;
        here.write_expiration(done.answer.headers_mut(), &key, source.size(), &facts.tags, modified_ms)?;
        object_facts::note_form(done.answer.extensions_mut(), published.storage.form);
        Ok(done)
    };
    answer_late(Box::pin(work), told, move |error| error.resource(resource)).await
}

/// Copies a range of an object into a part of an upload.
pub(super) async fn upload_part_copy(request: &S3Request) -> Result<Answer> {
    let key = request.key()?.to_owned();
    let here = request.in_bucket().await?.writing(&key)?;
    let number = part_number(request)?;
    // What is wrong with the request's own text comes before what the server has.
    let source = CopySource::from_headers(&request.headers)?;
    let open = here.open_upload(&key).await?;
    let source = request.copy_source(source).await?;
    let sealing = request.unlock_upload(&open.facts)?;
    let unlocked = request.unlock_content(source.facts(), CustomerKey::of_copy_source(&request.headers)?)?;
    let keyed = sealing.is_some() || unlocked.is_some();
    let range = match CopySourceRange::from_headers(&request.headers)? {
        Some(range) => range.resolve(source.size())?,
        None => 0..source.size(),
    };
    if range.end - range.start > PUT_BYTES_MAX {
        return Err(too_large());
    }
    let algorithm = wanted_checksum(&open.facts);
    // The default costs nothing where bytes are read anyway; no copy is read for it alone.
    let default = algorithm.is_none().then_some(DEFAULT_CHECKSUM);
    let mut told = HeaderMap::new();
    encryption::write(&mut told, open.facts.encryption.as_ref(), &request.headers, &here.bucket);

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
        let (facts, stored) = if !keyed && source.object.shares_extents(&bucket) {
            let (etag, checksum) = request.digests_of(&source, range.clone(), algorithm, default).await?;
            let facts = facts(&etag, checksum);
            let stored = engine.publisher.publish_part_copy(&bucket, part, &source.object, range, facts.clone()).await;
            (facts, stored)
        } else {
            let destination = Destination::Part { key: key.clone(), upload: open.id, number };
            let keys = (unlocked, sealing.as_ref());
            let copied =
                request.stage_copy(&bucket, destination, (&source, range), algorithm.or(default), keys).await?;
            let facts = PartFacts { salt: copied.salt, ..facts(&copied.etag, copied.checksum) };
            (facts.clone(), engine.publisher.publish_part(&bucket, part, copied.staged, facts).await)
        };
        let modified_ms = stored.map_err(|error| request.refusal(error))?;
        let result = CopyResult {
            part: true,
            etag: ETag::from_wire(&facts.etag),
            last_modified: time_of(modified_ms),
            checksum: object_facts::first_checksum(&facts.checksums).filter(|_| algorithm.is_some()),
        };
        Ok(done(&result, &source, open.facts.encryption.as_ref(), &request, &bucket))
    };
    answer_late(Box::pin(work), told, move |error| error.resource(resource)).await
}

/// A copy that has been read and encoded.
struct Copied {
    staged: crate::engine::StagedBody<s3_wire::checksum::DigestValues>,
    etag: ETag,
    checksum: Option<Checksum>,
    /// The salt of its key, when it was encrypted on its way.
    salt: Option<String>,
}

impl S3Request {
    /// Authorizes, finds and pins the source (C29–C33).
    async fn copy_source(&self, source: CopySource) -> Result<Source> {
        let (bucket, key) = (source.bucket.as_str(), source.key.as_str());
        let version = source.version_id.as_deref().map(|text| versions::parse("versionId", text)).transpose()?;
        let bucket = self.bucket(bucket).await?;
        let action = if version.is_some() { "s3:GetObjectVersion" } else { "s3:GetObject" };
        self.authorize_version(action, &bucket, key, version).await?;
        self.expect_owner("x-amz-source-expected-bucket-owner", &bucket)?;
        let engine = &self.service.engine;
        let opened = match version {
            None => engine.read.open_object(&bucket, key).await.map(|object| object.map(Named::Object)),
            Some(version) => engine.read.open_version(&bucket, key, version).await,
        };
        let object = match (opened.map_err(|error| self.refusal(error))?, version) {
            (Some(Named::Object(object)), _) => object,
            (Some(Named::Marker(_)), _) => {
                return Err(S3Error::with_message(
                    ErrorCode::InvalidRequest,
                    "The source of a copy request may not specifically refer to a delete marker by version id.",
                ));
            }
            (None, version) if self.may_miss(&bucket, key)? => {
                return Err(version.map_or_else(|| no_such_key(key), |version| no_such_version(&version.to_string())));
            }
            (None, _) => return Err(ErrorCode::AccessDenied.into()),
        };
        let etag = ETag::from_wire(&object.info.facts.etag);
        let modified = time_of(object.info.version.modified_ms);
        CopyConditions::from_headers(&self.headers)?.evaluate(&etag, modified, SystemTime::now())?;
        Ok(Source { bucket, key: source.key.into_string(), version, object })
    }

    /// The facts of a copy that shares its source's extents. Its tag and its checksum are the
    /// source's, as far as they cover the content: what an upload in parts was combined from is
    /// computed, and so is a checksum that the source has not.
    async fn facts_of_shared(
        &self,
        source: &Source,
        described: VersionFacts,
        wanted: Option<ChecksumAlgorithm>,
    ) -> Result<VersionFacts> {
        let kept = object_facts::first_checksum(&source.facts().checksums);
        let algorithm = wanted.or_else(|| kept.map(|kept| kept.algorithm()));
        let (etag, checksum) = self.digests_of(source, 0..source.size(), algorithm, Some(DEFAULT_CHECKSUM)).await?;
        Ok(described_by(described, &etag, checksum))
    }

    /// MD5 and checksum of a range, read only where the source's facts do not say them. A `welcome`
    /// checksum is no reason to read.
    async fn digests_of(
        &self,
        source: &Source,
        range: Range<u64>,
        algorithm: Option<ChecksumAlgorithm>,
        welcome: Option<ChecksumAlgorithm>,
    ) -> Result<(ETag, Option<Checksum>)> {
        let facts = source.facts();
        let etag = ETag::from_wire(&facts.etag);
        let kept = object_facts::first_checksum(&facts.checksums).filter(|kept| kept.parts().is_none());
        let known = kept.filter(|kept| Some(kept.algorithm()) == algorithm.or(welcome));
        if range == (0..source.size()) && etag.md5().is_some() && (algorithm.is_none() || known.is_some()) {
            return Ok((etag, known));
        }
        let algorithm = algorithm.or(welcome);
        let set = algorithm.map_or(DigestSet::MD5, |algorithm| DigestSet::MD5.with(algorithm));
        let content = self.service.engine.read.read(&source.object, range);
        let values = digest_of(content, set).await.map_err(|error| self.refusal(error))?;
        let md5 = values.md5.expect("MD5 is in the set");
        Ok((ETag::from_md5(md5), algorithm.and_then(|algorithm| values.checksum(algorithm))))
    }

    /// Reads a range of the source and stages it in another domain.
    async fn stage_copy(
        &self,
        bucket: &BucketHandle,
        destination: Destination,
        (source, range): (&Source, Range<u64>),
        algorithm: Option<ChecksumAlgorithm>,
        (unlocked, sealing): (Option<Arc<dyn Veil>>, Option<&Sealing>),
    ) -> Result<Copied> {
        let engine = &self.service.engine;
        let set = algorithm.map_or(DigestSet::EMPTY, |algorithm| DigestSet::EMPTY.with(algorithm));
        let len = range.end - range.start;
        let (salt, bucket) = encryption::begun(bucket, sealing)?;
        let content = engine.read.read_unveiled(&source.object, range, unlocked);
        let digest = PayloadDigest::new(set, &bucket);
        let staged = engine.stager.stage(&bucket, destination, Some(len), content, digest).await;
        let staged = staged.map_err(|error: StoreError<EngineError>| match error {
            StoreError::Body(error) | StoreError::Engine(error) => self.refusal(error),
        })?;
        let md5 = staged.digests.md5.expect("MD5 is in the set of every payload digest");
        let checksum = algorithm.and_then(|algorithm| staged.digests.checksum(algorithm));
        let etag = sealing.map_or_else(|| ETag::from_md5(md5), |sealing| sealing.etag(md5));
        Ok(Copied { etag, checksum, salt, staged })
    }
}

fn described_by(described: VersionFacts, etag: &ETag, checksum: Option<Checksum>) -> VersionFacts {
    VersionFacts {
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

fn done(
    result: &CopyResult,
    source: &Source,
    kept: Option<&ObjectEncryption>,
    request: &S3Request,
    bucket: &BucketHandle,
) -> Done {
    let mut answer = document(result);
    let headers = answer.headers_mut();
    if !source.bucket.row.versioning.is_off() {
        set(headers, "x-amz-copy-source-version-id", &source.reference().to_string());
    }
    encryption::write(headers, kept, &request.headers, bucket);
    if let Some(checksum) = &result.checksum {
        set(headers, "x-amz-checksum-type", checksum.checksum_type().as_str());
    }
    Done { answer, document_bare: result.to_bytes_bare() }
}
