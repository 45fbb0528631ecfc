//! Server-side encryption of single objects: by the customer's key (SSE-C), by a named key
//! (SSE-KMS), and by the server's own where the bucket does not seal (SSE-S3). The engine
//! stores content under a veil, whose key it does not know: it resembles nothing and is nobody's
//! base. Keys and ciphers are in `sealing.rs`; what requests say of them is here.

use super::{
    body::RequestBody,
    request::{Answer, InBucket, Result, S3Request, document, empty, set},
};
pub(super) use crate::sealing::Sealing;
use crate::{
    engine::{BucketHandle, EngineError, ObjectEncryption, PartFacts, Stretch, Veil, VersionFacts},
    sealing::{AES256, CUSTOMER, DEFAULT_KMS_KEY, ENCRYPTION, KMS, Secret, bound, default_of, is_key, is_named},
};
use http::{HeaderMap, StatusCode};
use s3_wire::{
    ErrorCode, S3Error,
    encryption::EncryptionConfiguration,
    headers::{CustomerKey, EncryptionHeaders, KmsContext, ServerSide, TOLD_BUCKET_KEY, refuse_encryption_of_read},
    xml::{Document as _, response::DefaultConfiguration},
};
use std::sync::Arc;

impl S3Request {
    /// The customer's key of this request, over a connection that may carry it.
    fn customer_key(&self, key: Option<CustomerKey>) -> Result<Option<CustomerKey>> {
        if key.is_some() && !self.service.sse_c {
            return Err(S3Error::with_message(
                ErrorCode::InvalidRequest,
                "Requests specifying Server Side Encryption with Customer provided keys must be made over a secure connection.",
            ));
        }
        Ok(key)
    }

    /// Whether a name is one of a key.
    fn check_name(&self, name: &str) -> Result<()> {
        if is_named(&self.service.kms_keys, name) {
            return Ok(());
        }
        let error = S3Error::with_message(ErrorCode::KmsNotFoundException, format!("Key '{name}' does not exist"));
        Err(error)
    }

    /// Opens what an object or upload is encrypted with. `None`: it is not encrypted here.
    pub(super) fn unlock(&self, facts: &VersionFacts, key: Option<CustomerKey>) -> Result<Option<Sealing>> {
        let key = self.customer_key(key)?;
        let Some(encryption) = &facts.encryption else {
            return match key {
                None => Ok(None),
                Some(_) => Err(S3Error::with_message(
                    ErrorCode::InvalidRequest,
                    "The encryption parameters are not applicable to this object.",
                )),
            };
        };
        let root = match (encryption.algorithm.as_str(), key) {
            (CUSTOMER, None) => {
                return Err(S3Error::with_message(
                    ErrorCode::InvalidRequest,
                    "The object was stored using a form of Server Side Encryption. The correct parameters must be provided to retrieve the object.",
                ));
            }
            (CUSTOMER, Some(key)) if is_key(&key.key, &encryption.check) => key.key,
            (CUSTOMER, Some(_)) => {
                return Err(S3Error::with_message(
                    ErrorCode::InvalidRequest,
                    "The provided encryption parameters did not match the ones used originally.",
                ));
            }
            (_, Some(_)) => {
                return Err(S3Error::with_message(
                    ErrorCode::InvalidRequest,
                    "The encryption parameters are not applicable to this object.",
                ));
            }
            (algorithm, None) => {
                let name = match algorithm {
                    KMS => encryption.key_id.as_deref().unwrap_or(DEFAULT_KMS_KEY),
                    _ => "",
                };
                if algorithm == KMS {
                    self.check_name(name)?;
                }
                self.root_of(name, encryption)?
            }
        };
        Ok(Some(Sealing::of(encryption, root)))
    }

    /// The key of a name that content was encrypted under: one of its own, or the keyring's,
    /// whichever KEK it is of.
    fn root_of(&self, name: &str, encryption: &ObjectEncryption) -> Result<Secret> {
        let buckets = &self.service.engine.buckets;
        let bound = |root| bound(root, encryption.context.as_deref());
        let own = || self.service.kms_keys.own(name);
        let find = || own().chain(buckets.object_keys(name)).map(bound).find(|root| is_key(root, &encryption.check));
        let found = match find() {
            // Another process may have taken up a new KEK.
            None if buckets.reload_keyring().map_err(|error| self.refusal(error))? => find(),
            found => found,
        };
        found.ok_or_else(|| {
            self.refusal(EngineError::Other(
                "an object was encrypted under another key: give the store's KEK as storage.kek or DELTAWEIR_KEK, put its \
                 keyring.json back into the data directory, or give the secret that [kms.keys] had for the key's name"
                    .into(),
            ))
        })
    }

    /// Opens what an upload is encrypted with, by the key that this request brings for a part of
    /// it.
    pub(super) fn unlock_upload(&self, upload: &VersionFacts) -> Result<Option<Sealing>> {
        self.unlock(upload, CustomerKey::from_headers(&self.headers)?)
    }

    /// Refuses a list of parts that comes with another customer's key than the upload's. It may
    /// come without one: nothing is read.
    pub(super) fn unlock_listed(&self, upload: &VersionFacts) -> Result<()> {
        if CustomerKey::from_headers(&self.headers)?.is_some() {
            self.unlock_upload(upload)?;
        }
        Ok(())
    }

    /// As [`S3Request::unlock`] for content that is read.
    pub(super) fn unlock_content(
        &self,
        facts: &VersionFacts,
        key: Option<CustomerKey>,
    ) -> Result<Option<Arc<dyn Veil>>> {
        let Some(sealing) = self.unlock(facts, key)? else { return Ok(None) };
        let stretches = facts.encryption.as_ref().map_or(&[][..], |encryption| &encryption.stretches);
        let unlocked = sealing.unlocked(stretches).map_err(|error| self.refusal(error))?;
        Ok(Some(Arc::new(unlocked)))
    }

    /// As [`S3Request::unlock_content`], with the key that this request brings for the object it
    /// reads.
    pub(super) fn unlock_addressed(&self, facts: &VersionFacts) -> Result<Option<Arc<dyn Veil>>> {
        refuse_encryption_of_read(&self.headers)?;
        self.unlock_content(facts, CustomerKey::from_headers(&self.headers)?)
    }
}

impl InBucket<'_> {
    /// What the request's headers, or the bucket's default, ask a new object to be encrypted with.
    /// `None`: the engine seals it, or nothing does.
    pub(super) fn sealing(&self) -> Result<Option<Sealing>> {
        let asked = EncryptionHeaders::from_headers(&self.headers)?;
        let by_default = self.default_encryption()?;
        if let Some(key) = self.customer_key(asked.customer)? {
            if by_default.is_some_and(|configuration| configuration.blocks_customer_keys == Some(true)) {
                let message =
                    "This bucket's encryption configuration blocks writes with customer-provided keys (SSE-C).";
                return Err(S3Error::with_message(ErrorCode::AccessDenied, message));
            }
            return Sealing::by_customer(key.key).map(Some).map_err(|error| self.refusal(error));
        }
        let of_bucket = by_default.as_ref().is_some_and(|configuration| configuration.bucket_key);
        let server = asked.server.or_else(|| by_default.and_then(|configuration| configuration.server));
        let server = match server {
            None => return Ok(None),
            Some(ServerSide::Aes256) if self.bucket.is_sealed() => return Ok(None),
            Some(server) => server,
        };
        if let ServerSide::Kms(Some(name)) = &server {
            self.check_name(name)?;
        }
        let context = asked.context.map(|context| context.to_json());
        let bucket_key = asked.bucket_key.unwrap_or(of_bucket);
        let buckets = &self.service.engine.buckets;
        let named = |name: &str| self.service.kms_keys.newest_or(name, &|name| buckets.object_key(name));
        let sealing = Sealing::by_server(server, context, bucket_key, &named);
        sealing.map(Some).map_err(|error| self.refusal(error))
    }

    fn default_encryption(&self) -> Result<Option<EncryptionConfiguration>> {
        default_of(&self.bucket.settings.configurations).map_err(|error| self.refusal(error))
    }
}

/// The salt of content that is written now, if it is encrypted, and the bucket as it goes there.
pub(super) fn begun(bucket: &BucketHandle, sealing: Option<&Sealing>) -> Result<(Option<String>, BucketHandle)> {
    let Some(sealing) = sealing else { return Ok((None, bucket.clone())) };
    let (salt, veil) = sealing.begin().map_err(|_| S3Error::new(ErrorCode::InternalError))?;
    Ok((Some(salt), bucket.veiled(veil)))
}

/// The facts of the parts of an upload, joined. `None`: a part has no salt.
pub(super) fn joined<'p>(
    upload: &ObjectEncryption,
    parts: impl Iterator<Item = &'p PartFacts>,
) -> Option<ObjectEncryption> {
    let stretch = |part: &PartFacts| Some(Stretch { len: part.size, salt: part.salt.clone()? });
    let stretches = parts.map(stretch).collect::<Option<Vec<_>>>()?;
    Some(ObjectEncryption { stretches, ..upload.clone() })
}

/// Says how an object or upload is encrypted. Nothing is said where it is not.
pub(super) fn write(
    headers: &mut HeaderMap,
    encryption: Option<&ObjectEncryption>,
    request: &HeaderMap,
    bucket: &BucketHandle,
) {
    const SERVER_SIDE: &str = "x-amz-server-side-encryption";
    match encryption.map(|encryption| (encryption.algorithm.as_str(), encryption)) {
        None if bucket.is_sealed() => set(headers, SERVER_SIDE, AES256),
        None => {}
        Some((CUSTOMER, _)) => {
            if let Ok(Some(key)) = CustomerKey::from_headers(request) {
                key.told().into_iter().for_each(|(name, value)| set(headers, name, value));
            }
        }
        Some((algorithm, encryption)) => {
            set(headers, SERVER_SIDE, algorithm);
            if let Some(key_id) = &encryption.key_id {
                set(headers, "x-amz-server-side-encryption-aws-kms-key-id", key_id);
            }
            if encryption.bucket_key {
                let (name, value) = TOLD_BUCKET_KEY;
                set(headers, name, value);
            }
        }
    }
}

/// Says what the key of a new object or upload is bound to. Reads are not told, as in S3.
pub(super) fn write_context(headers: &mut HeaderMap, encryption: Option<&ObjectEncryption>) {
    if let Some(context) = encryption.and_then(|encryption| encryption.context.as_deref()) {
        let (name, value) = KmsContext::told(context);
        set(headers, name, &value);
    }
}

/// Answers with a bucket's default encryption.
pub(super) async fn get_configuration(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    match here.default_encryption()? {
        Some(mut configuration) => {
            // A rule that only blocks leaves the default as it is.
            let sealed = here.bucket.is_sealed().then_some(ServerSide::Aes256);
            configuration.server = configuration.server.or(sealed);
            Ok(document(&configuration))
        }
        None if here.bucket.is_sealed() => Ok(document(&DefaultConfiguration::Aes256)),
        None => {
            let error = S3Error::new(ErrorCode::ServerSideEncryptionConfigurationNotFoundError);
            Err(error.field("BucketName", &here.bucket.row.name))
        }
    }
}

/// Replaces it.
pub(super) async fn put_configuration(request: &S3Request, body: &mut RequestBody) -> Result<Answer> {
    let claims = request.demanded_digest()?;
    let configuration = EncryptionConfiguration::parse(&request.document(claims, body).await?)?;
    let here = request.in_bucket().await?;
    // Whether there is a key of that name is seen when an object is written, as in S3.
    let text = String::from_utf8(configuration.to_bytes().to_vec()).map_err(|_| ErrorCode::MalformedXML)?;
    here.configure(ENCRYPTION, Some(text.into())).await?;
    if configuration.server.is_some() && !here.bucket.is_sealed() {
        let bucket = &here.bucket.row.name;
        tracing::info!(
            bucket,
            "new objects are encrypted by default from now on; those that are there stay as they are until \
             `deltaweir keys reencrypt {bucket}`"
        );
    }
    Ok(empty(StatusCode::OK))
}

/// Removes it.
pub(super) async fn delete_configuration(request: &S3Request) -> Result<Answer> {
    request.in_bucket().await?.configure(ENCRYPTION, None).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}
