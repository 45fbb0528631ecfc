//! PutObject.

use super::{
    body::RequestBody,
    digest::PayloadDigest,
    encryption::{self, Sealing},
    object_facts,
    request::{Answer, InBucket, PUT_BYTES_MAX, Result, S3Request, empty, set},
    versions,
};
use crate::engine::{Destination, ObjectEncryption, StagedBody, Stretch, Terms, notify::Event};
use http::StatusCode;
use s3_wire::{
    DecodedBody, ETag, ErrorCode, Framing, S3Error,
    checksum::{Checksum, ChecksumAlgorithm, Claims, DigestValues},
};

/// Stores the body as the key's current version.
pub(super) async fn put_object(request: &S3Request, body: &mut RequestBody) -> Result<Answer> {
    tracing::trace!(target: "path", "put_object()");
    let key = request.key()?;
    let here = request.in_bucket().await?.writing(key)?;
    let mut facts = object_facts::from_headers(&request.headers)?;
    here.own(&mut facts).await?;
    let sealing = here.sealing()?;
    let lock = here.wanted_lock()?;
    here.expect_digest(lock, &Claims::from_headers(&request.headers, &request.payload)?)?;
    let (conditions, precondition) = request.precondition(&here.bucket, key).await?;

    let wanted = Wanted { unless_claimed: Some(DEFAULT_CHECKSUM), always: None };
    let received = here.receive(Destination::Object { key: key.to_owned() }, wanted, sealing.as_ref(), body).await?;
    facts.etag = received.etag.as_str().to_owned();
    facts.encryption = received.encryption(sealing.as_ref());
    if let Some(checksum) = received.checksums.first() {
        facts.checksums = vec![object_facts::kept(checksum)];
        facts.checksum_type = Some(checksum.checksum_type().as_str().to_owned());
    }
    let (size, tags) = (received.staged.plain_len, facts.tags.clone());
    let cause = here.cause(&here.bucket, Event::Put);
    let terms = Terms { precondition, lock: here.lock_now(lock)?, cause };
    let encryption = facts.encryption.clone();
    let engine = &request.service.engine;
    let published = match engine.publisher.publish(&here.bucket, key, received.staged, facts, terms).await {
        Ok(published) => published,
        Err(error) => return Err(request.commit_refusal(&here.bucket, key, &conditions, error).await),
    };

    let mut answer = empty(StatusCode::OK);
    object_facts::note_form(answer.extensions_mut(), published.storage.form);
    let headers = answer.headers_mut();
    set(headers, "etag", &received.etag.quoted());
    versions::write_made(headers, published.reference());
    encryption::write(headers, encryption.as_ref(), &request.headers, &here.bucket);
    encryption::write_context(headers, encryption.as_ref());
    here.write_expiration(headers, key, size, &tags, published.committed.modified_ms)?;
    if let Some(checksum) = received.checksums.first() {
        object_facts::write_checksum(headers, checksum);
    }
    Ok(answer)
}

/// What S3 computes and keeps for an object whose client claims nothing.
pub(super) const DEFAULT_CHECKSUM: ChecksumAlgorithm = ChecksumAlgorithm::Crc64Nvme;

/// Checksums to compute although the client did not name them.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// When the client names none.
    pub(super) unless_claimed: Option<ChecksumAlgorithm>,
    /// Whatever the client names.
    pub(super) always: Option<ChecksumAlgorithm>,
}

/// A payload that came whole and is what the client said it is.
pub(super) struct Received {
    pub(super) staged: StagedBody<DigestValues>,
    pub(super) etag: ETag,
    /// The checksum the client named or that stands for it, then the one that was wanted besides.
    pub(super) checksums: Vec<Checksum>,
    /// The salt of its key, when it was encrypted on its way.
    pub(super) salt: Option<String>,
}

impl Received {
    /// How content that is one object was encrypted.
    pub(super) fn encryption(&self, sealing: Option<&Sealing>) -> Option<ObjectEncryption> {
        let stretch = Stretch { len: self.staged.plain_len, salt: self.salt.clone()? };
        sealing.map(|sealing| sealing.facts_of(vec![stretch]))
    }
}

impl InBucket<'_> {
    /// Reads the payload towards the store and holds it against every claim (E24).
    pub(super) async fn receive(
        &self,
        destination: Destination,
        wanted: Wanted,
        sealing: Option<&Sealing>,
        body: &mut RequestBody,
    ) -> Result<Received> {
        let framing = Framing::from_headers(&self.headers, &self.payload)?;
        if framing.decoded_len > PUT_BYTES_MAX {
            return Err(S3Error::new(ErrorCode::EntityTooLarge)
                .field("ProposedSize", framing.decoded_len.to_string())
                .field("MaxSizeAllowed", PUT_BYTES_MAX.to_string())
                .closing());
        }
        let engine = &self.service.engine;
        let (salt, bucket) = encryption::begun(&self.bucket, sealing)?;
        let room = engine.publisher.check_room(&bucket, &destination, framing.decoded_len).await;
        room.map_err(|error| self.refusal(error))?;
        let mut claims = Claims::from_headers(&self.headers, &self.payload)?;
        let mut algorithms: Vec<ChecksumAlgorithm> =
            claims.stored_algorithm().or(wanted.unless_claimed).into_iter().collect();
        algorithms.extend(wanted.always.filter(|always| !algorithms.contains(always)));
        let set = algorithms.iter().fold(claims.digests(), |set, algorithm| set.with(*algorithm));
        let len = framing.decoded_len;
        let mut body = DecodedBody::new(body, framing);
        let digest = PayloadDigest::new(set, &bucket);
        let staged = Box::pin(engine.stager.stage(&bucket, destination, Some(len), &mut body, digest))
            .await
            .map_err(|error| self.store_refusal(error))?;
        // Only a body that ended well has trailers, if only empty ones: without them nothing has
        // been vouched for.
        let trailers = body.trailers().ok_or_else(|| S3Error::new(ErrorCode::IncompleteBody).closing())?;
        claims.settle(trailers)?;
        if let Err(error) = claims.verify(&staged.digests) {
            self.service.metrics.engine.checksum_failures_total.with_label_values(&["request"]).inc();
            return Err(error);
        }
        let md5 = staged.digests.md5.expect("MD5 is in the set of every payload digest");
        let checksums = algorithms.into_iter().filter_map(|algorithm| staged.digests.checksum(algorithm)).collect();
        let etag = sealing.map_or_else(|| ETag::from_md5(md5), |sealing| sealing.etag(md5));
        Ok(Received { etag, checksums, salt, staged })
    }
}
