//! PutObject.

use super::{InBucket, PUT_BYTES_MAX, Result, digest::PayloadDigest, empty, object_facts, set};
use crate::{
    engine::{Destination, Staged},
    server::{
        RequestBody,
        service::{Answer, S3Request},
    },
};
use http::StatusCode;
use s3_wire::{
    DecodedBody, ETag, ErrorCode, Framing, S3Error,
    checksum::{Checksum, ChecksumAlgorithm, Claims, DigestValues},
};

/// Stores the body as the key's current version.
pub(super) async fn put_object(request: &S3Request, body: &mut RequestBody) -> Result<Answer> {
    let here = request.in_bucket().await?;
    let key = request.key()?;
    let mut facts = object_facts::from_headers(&request.headers)?;
    object_facts::check_encryption(&request.headers, &here.bucket)?;
    let (conditions, precondition) = request.precondition(&here.bucket, key).await?;

    let received = here.receive(Destination::Object { key: key.to_owned() }, None, body).await?;
    facts.etag = received.etag.as_str().to_owned();
    if let Some(checksum) = &received.checksum {
        facts.checksums = vec![object_facts::kept(checksum)];
        facts.checksum_type = Some(checksum.checksum_type().as_str().to_owned());
    }
    let engine = &request.service.engine;
    let published = match engine.publish(&here.bucket, key, received.staged, facts, precondition).await {
        Ok(published) => published,
        Err(error) => return Err(request.commit_refusal(&here.bucket, key, &conditions, error).await),
    };

    let mut answer = empty(StatusCode::OK);
    object_facts::note_form(answer.extensions_mut(), published.storage.form);
    let headers = answer.headers_mut();
    set(headers, "etag", &received.etag.quoted());
    object_facts::write_encryption(headers, &here.bucket);
    if let Some(checksum) = &received.checksum {
        object_facts::write_checksum(headers, checksum);
    }
    Ok(answer)
}

/// A payload that came whole and is what the client said it is.
pub(super) struct Received {
    pub(super) staged: Staged<DigestValues>,
    pub(super) etag: ETag,
    pub(super) checksum: Option<Checksum>,
}

impl InBucket<'_> {
    /// Reads the payload towards the store and holds it against every claim (E24). `wanted` is a checksum to compute although the client did not name it;
    /// one the client names is the one that is kept.
    pub(super) async fn receive(
        &self,
        destination: Destination,
        wanted: Option<ChecksumAlgorithm>,
        body: &mut RequestBody,
    ) -> Result<Received> {
        let framing = Framing::from_headers(&self.headers, &self.payload)?;
        if framing.decoded_len > PUT_BYTES_MAX {
            return Err(S3Error::new(ErrorCode::EntityTooLarge)
                .field("ProposedSize", framing.decoded_len.to_string())
                .field("MaxSizeAllowed", PUT_BYTES_MAX.to_string())
                .closing());
        }
        let mut claims = Claims::from_headers(&self.headers, &self.payload)?;
        let algorithm = claims.stored_algorithm().or(wanted);
        let mut set = claims.digests();
        if let Some(algorithm) = algorithm {
            set = set.with(algorithm);
        }
        let len = framing.decoded_len;
        let mut body = DecodedBody::new(body, framing);
        let engine = &self.service.engine;
        let staged = engine
            .stage(&self.bucket, destination, Some(len), &mut body, PayloadDigest::new(set))
            .await
            .map_err(|error| self.store_refusal(error))?;
        // Only a body that ended well has trailers, if only empty ones: without them nothing has been vouched for.
        let trailers = body.trailers().ok_or_else(|| S3Error::new(ErrorCode::IncompleteBody).closing())?;
        claims.settle(trailers)?;
        if let Err(error) = claims.verify(&staged.digests) {
            self.service.metrics.checksum_failures_total.with_label_values(&["request"]).inc();
            return Err(error);
        }
        let md5 = staged.digests.md5.expect("MD5 is in the set of every payload digest");
        let checksum = algorithm.and_then(|algorithm| staged.digests.checksum(algorithm));
        Ok(Received { etag: ETag::from_md5(md5), checksum, staged })
    }
}
