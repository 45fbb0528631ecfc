//! Server-side encryption of single objects: by the customer's key (SSE-C), by a named key
//! (SSE-KMS), and by the server's own where the bucket does not seal (SSE-S3). The engine
//! stores content under a veil, whose key it does not know: it resembles nothing and is nobody's
//! base.
//!
//! `docs/decisions/0023-object-encryption.md` and `0051-veils.md` say why so,
//! `docs/format/object-encryption-v1.md` how.

use super::{
    body::RequestBody,
    request::{Answer, InBucket, Result, S3Request, document, empty, set},
};
use crate::engine::{BucketHandle, EngineError, ObjectEncryption, PartFacts, Stretch, Veil, VersionFacts};
use aws_lc_rs::cipher::{AES_256, EncryptingKey, EncryptionContext, UnboundCipherKey};
use crypto::{HmacSha256, KeyInit as _, Mac as _, fill_random};
use http::{HeaderMap, StatusCode};
use s3_wire::{
    ETag, ErrorCode, S3Error,
    encryption::EncryptionConfiguration,
    headers::{CustomerKey, EncryptionHeaders, KmsContext, ServerSide, TOLD_BUCKET_KEY, refuse_encryption_of_read},
    xml::{Document as _, response::DefaultConfiguration},
};
use std::sync::Arc;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// The name of a bucket's default encryption among its configurations; kept as its document.
const ENCRYPTION: &str = "encryption";
/// The key of `aws:kms` without a name.
const DEFAULT_KMS_KEY: &str = "aws/s3";

const AES256: &str = "AES256";
const KMS: &str = "aws:kms";
const CUSTOMER: &str = "SSE-C";
/// Bytes of a block of AES.
const BLOCK: usize = 16;

type Secret = Zeroizing<[u8; 32]>;

/// What one object or upload is encrypted with, unlocked.
#[derive(Clone)]
pub(super) struct Sealing {
    /// As its facts keep it, stretches left out.
    facts: ObjectEncryption,
    root: Secret,
}

/// What encrypts one stretch of content. Every stretch has a key of its own, so the keystream of
/// each begins at zero.
struct Cipher(EncryptingKey);

impl Cipher {
    fn of(root: &Secret, salt: &[u8]) -> Self {
        let key = derive(root, b"content", salt);
        let key = UnboundCipherKey::new(&AES_256, &*key).and_then(EncryptingKey::ctr);
        Self(key.expect("a key of 32 bytes is one of AES-256"))
    }

    /// Encrypts, or decrypts: it is the same. `at` is the place of the first byte in the stretch.
    fn apply(&self, at: u64, bytes: &mut [u8]) -> Result<(), EngineError> {
        // Whole blocks where they are; the end of a block before them elsewhere.
        let (mut block, skip) = (at / BLOCK as u64, usize::try_from(at % BLOCK as u64).unwrap_or(0));
        let mut whole = bytes;
        if skip > 0 {
            let (first, rest) = whole.split_at_mut(whole.len().min(BLOCK - skip));
            let mut around = [0; BLOCK];
            around[skip..skip + first.len()].copy_from_slice(first);
            self.apply_from(block, &mut around)?;
            first.copy_from_slice(&around[skip..skip + first.len()]);
            (block, whole) = (block + 1, rest);
        }
        self.apply_from(block, whole)
    }

    fn apply_from(&self, block: u64, bytes: &mut [u8]) -> Result<(), EngineError> {
        let counter = EncryptionContext::Iv128(u128::from(block).to_be_bytes().into());
        let applied = self.0.less_safe_encrypt(bytes, counter);
        applied.map(drop).map_err(|_| EngineError::Other("AES failed".into()))
    }
}

/// One stretch.
impl Veil for Cipher {
    fn apply(&self, at: u64, bytes: &mut [u8]) -> Result<(), EngineError> {
        Self::apply(self, at, bytes)
    }
}

/// A key for one purpose.
fn derive(root: &Secret, purpose: &[u8], salt: &[u8]) -> Secret {
    let mut mac = HmacSha256::new_from_slice(&**root).expect("HMAC takes keys of any length");
    mac.update(b"deltaweir object encryption 1 ");
    mac.update(purpose);
    mac.update(&[0]);
    mac.update(salt);
    Zeroizing::new(mac.finalize().into_bytes().into())
}

/// A named key bound to a context: another key for each.
fn bound(root: Secret, context: Option<&str>) -> Secret {
    context.map_or_else(|| root.clone(), |context| derive(&root, b"context", context.as_bytes()))
}

fn salt() -> Result<[u8; 16]> {
    let mut salt = [0; 16];
    fill_random(&mut salt).map_err(|_| S3Error::new(ErrorCode::InternalError))?;
    Ok(salt)
}

/// Salt and check value of a key.
fn check_of(root: &Secret, salt: &[u8]) -> String {
    format!("{}:{}", hex::encode(salt), hex::encode(*derive(root, b"check", salt)))
}

fn is_key(root: &Secret, check: &str) -> bool {
    let Some(salt) = check.split(':').next().and_then(|salt| hex::decode(salt).ok()) else { return false };
    check_of(root, &salt).as_bytes().ct_eq(check.as_bytes()).into()
}

impl Sealing {
    /// Of something new under this key; `facts` say which one it is.
    fn under(root: Secret, facts: ObjectEncryption) -> Result<Self> {
        let check = check_of(&root, &salt()?);
        Ok(Self { facts: ObjectEncryption { check, ..facts }, root })
    }

    /// A stretch of content to be written: the salt to keep, and what encrypts it.
    pub(super) fn begin(&self) -> Result<(String, Arc<dyn Veil>)> {
        let salt = salt()?;
        Ok((hex::encode(salt), Arc::new(Cipher::of(&self.root, &salt))))
    }

    /// The facts of content in these stretches.
    pub(super) fn facts_of(&self, stretches: Vec<Stretch>) -> ObjectEncryption {
        ObjectEncryption { stretches, ..self.facts.clone() }
    }

    /// The tag of content with this MD5: only what the server's own key encrypts is tagged by it,
    /// as in S3.
    pub(super) fn etag(&self, md5: [u8; 16]) -> ETag {
        if self.facts.algorithm == AES256 {
            return ETag::from_md5(md5);
        }
        let tag = derive(&self.root, b"etag", &md5);
        ETag::from_md5(std::array::from_fn(|index| tag[index]))
    }
}

/// What decrypts content that is read.
pub(super) struct Unlocked {
    /// Where each stretch ends, and its salt.
    stretches: Vec<(u64, Vec<u8>)>,
    root: Secret,
}

impl Veil for Unlocked {
    fn apply(&self, mut at: u64, mut bytes: &mut [u8]) -> Result<(), EngineError> {
        let mut index = self.stretches.partition_point(|(end, _)| *end <= at);
        while !bytes.is_empty() {
            let start = index.checked_sub(1).map_or(0, |before| self.stretches[before].0);
            let lacks = || EngineError::Integrity(format!("no salt is kept for the byte at {at}"));
            let (end, salt) = self.stretches.get(index).ok_or_else(lacks)?;
            let len = usize::try_from(end - at).unwrap_or(usize::MAX).min(bytes.len());
            let (here, rest) = bytes.split_at_mut(len);
            Cipher::of(&self.root, salt).apply(at - start, here)?;
            (at, bytes, index) = (*end, rest, index + 1);
        }
        Ok(())
    }
}

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
        if name == DEFAULT_KMS_KEY || self.service.kms_keys.has(name) {
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
        Ok(Some(Sealing { facts: ObjectEncryption { stretches: Vec::new(), ..encryption.clone() }, root }))
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
        let mut end = 0;
        let of = |stretch: &Stretch| {
            end += stretch.len;
            let salt = hex::decode(&stretch.salt).map_err(|_| S3Error::new(ErrorCode::InternalError))?;
            Ok((end, salt))
        };
        let stretches = facts.encryption.iter().flat_map(|encryption| &encryption.stretches).map(of);
        Ok(Some(Arc::new(Unlocked { stretches: stretches.collect::<Result<_>>()?, root: sealing.root })))
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
            let facts = ObjectEncryption { algorithm: CUSTOMER.to_owned(), ..ObjectEncryption::default() };
            return Sealing::under(key.key, facts).map(Some);
        }
        let of_bucket = by_default.as_ref().is_some_and(|configuration| configuration.bucket_key);
        let server = asked.server.or_else(|| by_default.and_then(|configuration| configuration.server));
        let (algorithm, key_id, root) = match server {
            None => return Ok(None),
            Some(ServerSide::Aes256) if self.bucket.is_sealed() => return Ok(None),
            Some(ServerSide::Aes256) => (AES256, None, self.object_key("")?),
            Some(ServerSide::Kms(name)) => {
                let name = name.unwrap_or_else(|| DEFAULT_KMS_KEY.to_owned());
                self.check_name(&name)?;
                let root = self.object_key(&name)?;
                (KMS, Some(name), root)
            }
        };
        let context = asked.context.map(|context| context.to_json());
        let root = bound(root, context.as_deref());
        let bucket_key = algorithm == KMS && asked.bucket_key.unwrap_or(of_bucket);
        let algorithm = algorithm.to_owned();
        let facts = ObjectEncryption { algorithm, key_id, context, bucket_key, ..ObjectEncryption::default() };
        Sealing::under(root, facts).map(Some)
    }

    fn object_key(&self, name: &str) -> Result<Secret> {
        match self.service.kms_keys.newest(name) {
            Some(own) => Ok(own),
            None => self.service.engine.buckets.object_key(name).map_err(|error| self.refusal(error)),
        }
    }

    fn default_encryption(&self) -> Result<Option<EncryptionConfiguration>> {
        let Some(kept) = self.bucket.settings.configurations.get(ENCRYPTION) else { return Ok(None) };
        EncryptionConfiguration::parse(kept.as_str().unwrap_or_default().as_bytes()).map(Some).map_err(|error| {
            self.refusal(EngineError::Other(format!("encryption of bucket {}: {error}", self.bucket.row.name)))
        })
    }
}

/// The salt of content that is written now, if it is encrypted, and the bucket as it goes there.
pub(super) fn begun(bucket: &BucketHandle, sealing: Option<&Sealing>) -> Result<(Option<String>, BucketHandle)> {
    let Some(sealing) = sealing else { return Ok((None, bucket.clone())) };
    let (salt, veil) = sealing.begin()?;
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
    Ok(empty(StatusCode::OK))
}

/// Removes it.
pub(super) async fn delete_configuration(request: &S3Request) -> Result<Answer> {
    request.in_bucket().await?.configure(ENCRYPTION, None).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use aes::cipher::{KeyIvInit as _, StreamCipher as _, StreamCipherSeek as _};

    fn root(byte: u8) -> Secret {
        Zeroizing::new([byte; 32])
    }

    /// As versions before wrote it: one keystream from the beginning of the stretch to its end.
    fn by_keystream(salt: &[u8], from: u64, bytes: &mut [u8]) {
        let key = derive(&root(7), b"content", salt);
        let mut keystream = ctr::Ctr128BE::<aes::Aes256>::new((&*key).into(), &[0; BLOCK].into());
        keystream.seek(from);
        keystream.apply_keystream(bytes);
    }

    #[test]
    fn any_range_of_stretches_is_decrypted_however_it_is_cut() {
        let plain: Vec<u8> = (0..5000_u32).map(|n| n as u8).collect();
        let lens = [1_usize, 1000, 16, 3983];
        let (mut stored, mut stretches, mut at) = (plain.clone(), Vec::new(), 0);
        for (number, len) in lens.into_iter().enumerate() {
            let salt = vec![number as u8; 16];
            by_keystream(&salt, 0, &mut stored[at..at + len]);
            at += len;
            stretches.push((at as u64, salt));
        }
        let unlocked = Unlocked { stretches, root: root(7) };
        for (from, to, piece) in [(0, 5000, 4096), (0, 5000, 1), (1, 1001, 7), (999, 1020, 3), (1017, 5000, 5000)] {
            let mut read = stored[from..to].to_vec();
            for (number, piece_of) in read.chunks_mut(piece).enumerate() {
                unlocked.apply((from + number * piece) as u64, piece_of).unwrap();
            }
            assert_eq!(read, plain[from..to], "{from}..{to} by {piece}");
        }
        let beyond = unlocked.apply(4999, &mut [0; 2]);
        assert!(matches!(beyond, Err(EngineError::Integrity(_))), "content without a salt is no content");
    }

    #[test]
    fn a_stretch_is_encrypted_as_it_always_was_wherever_its_counter_stands() {
        let (salt, wraps) = ([3; 16], (1_u64 << 32) * BLOCK as u64);
        let cipher = Cipher::of(&root(7), &salt);
        for from in [0, 1, 15, 16, 17, 4096, wraps - 40, wraps - 1, wraps, (1 << 40) + 5] {
            for len in [0, 1, 15, 16, 17, 33, 1000] {
                let (mut old, mut new) = (vec![0x5a; len], vec![0x5a; len]);
                by_keystream(&salt, from, &mut old);
                cipher.apply(from, &mut new).unwrap();
                assert_eq!(new, old, "{len} bytes at {from}");
            }
        }
    }

    #[test]
    fn no_two_contents_have_the_same_keystream() {
        let sealing = Sealing::under(root(1), ObjectEncryption::default()).unwrap();
        let zeros = || {
            let mut zeros = [0; 64];
            sealing.begin().unwrap().1.apply(0, &mut zeros).unwrap();
            zeros
        };
        assert_ne!(zeros(), zeros());
    }

    #[test]
    fn a_key_is_known_by_its_check_and_no_other_is() {
        let check = check_of(&root(1), &[9; 16]);
        assert!(is_key(&root(1), &check) && !is_key(&root(2), &check) && !is_key(&root(1), ""));
        assert_ne!(check, check_of(&root(1), &[8; 16]), "the same key looks different each time");
    }
}
