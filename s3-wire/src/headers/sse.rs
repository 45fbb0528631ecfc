//! Server-side encryption: what the headers of a request ask for, and the customer's key.
//!
//! Source: "Protecting data with server-side encryption" (Amazon S3 User Guide), PutObject and
//! GetObject (API Reference).

use super::{flag, is_given, single};
use crate::{
    checksum::{DigestSet, Digests},
    error::{ErrorCode, Result, S3Error},
};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::HeaderMap;
use std::{collections::BTreeMap, fmt};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

const SERVER_SIDE: &str = "x-amz-server-side-encryption";
const KMS_KEY_ID: &str = "x-amz-server-side-encryption-aws-kms-key-id";
const KMS_CONTEXT: &str = "x-amz-server-side-encryption-context";
const BUCKET_KEY: &str = "x-amz-server-side-encryption-bucket-key-enabled";
/// Bytes of a context at most, as JSON (AWS KMS Developer Guide, "Encryption context").
const CONTEXT_BYTES_MAX: usize = 8192;

/// Encryption with keys of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerSide {
    /// `AES256`: the server's own key.
    Aes256,
    /// `aws:kms`: a named key, or the default one.
    Kms(Option<String>),
}

/// What a write asks for.
#[derive(Clone, Debug, Default)]
pub struct EncryptionHeaders {
    /// Keys of the server.
    pub server: Option<ServerSide>,
    /// What the key of `aws:kms` is bound to.
    pub context: Option<KmsContext>,
    /// Whether `aws:kms` is to use the bucket's key; `None`: as the bucket says.
    pub bucket_key: Option<bool>,
    /// The customer's key.
    pub customer: Option<CustomerKey>,
}

impl EncryptionHeaders {
    /// Reads the headers of a write.
    ///
    /// # Errors
    /// `InvalidArgument` for an unknown method and for headers that contradict each other or are
    /// not whole; `InvalidEncryptionAlgorithmError` for an unknown algorithm of a customer's key;
    /// `NotImplemented` for `aws:kms:dsse`.
    pub fn from_headers(headers: &HeaderMap) -> Result<Self> {
        let key_id = single(headers, KMS_KEY_ID)?.map(str::to_owned);
        let server = match single(headers, SERVER_SIDE)? {
            None => None,
            Some("AES256") => Some(ServerSide::Aes256),
            Some("aws:kms") => Some(ServerSide::Kms(key_id.clone())),
            Some("aws:kms:dsse") => return Err(S3Error::new(ErrorCode::NotImplemented).field("Value", "aws:kms:dsse")),
            Some(other) => {
                let message = "The encryption method specified is not supported";
                return Err(S3Error::invalid_argument(SERVER_SIDE, other, message));
            }
        };
        if let Some(key_id) = key_id
            && !matches!(server, Some(ServerSide::Kms(_)))
        {
            let message = "Server Side Encryption with AWS KMS managed key requires HTTP header x-amz-server-side-encryption : aws:kms";
            return Err(S3Error::invalid_argument(KMS_KEY_ID, key_id, message));
        }
        let context = KmsContext::from_headers(headers)?;
        if context.is_some() && !matches!(server, Some(ServerSide::Kms(_))) {
            let message = "An encryption context requires the HTTP header x-amz-server-side-encryption : aws:kms";
            return Err(S3Error::invalid_argument(KMS_CONTEXT, "", message));
        }
        let bucket_key = flag(headers, BUCKET_KEY)?;
        let customer = CustomerKey::from_headers(headers)?;
        if server.is_some() && customer.is_some() {
            let message = "Server Side Encryption with Customer provided key is incompatible with the encryption method specified";
            return Err(S3Error::invalid_argument(SERVER_SIDE, "", message));
        }
        Ok(Self { server, context, bucket_key, customer })
    }
}

/// The header that tells that an object is encrypted with the key of its bucket.
pub const TOLD_BUCKET_KEY: (&str, &str) = (BUCKET_KEY, "true");

/// Refuses a read that asks for encryption: what is stored is stored.
///
/// # Errors
/// `InvalidArgument`.
pub fn refuse_encryption_of_read(headers: &HeaderMap) -> Result<()> {
    for name in [SERVER_SIDE, KMS_KEY_ID, KMS_CONTEXT] {
        if is_given(headers, name) {
            return Err(S3Error::invalid_argument(name, "", "The header is not supported for this operation."));
        }
    }
    Ok(())
}

/// An encryption context: names and values that the key of an object is bound to. They are no
/// secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KmsContext(BTreeMap<String, String>);

impl KmsContext {
    /// Reads `x-amz-server-side-encryption-context`: an object of strings as JSON, base64.
    ///
    /// # Errors
    /// `InvalidArgument` for anything else, for no name at all, and for more than 8,192 bytes.
    pub fn from_headers(headers: &HeaderMap) -> Result<Option<Self>> {
        let Some(text) = single(headers, KMS_CONTEXT)? else { return Ok(None) };
        let json = BASE64_STANDARD.decode(text).ok().filter(|json| json.len() <= CONTEXT_BYTES_MAX);
        let pairs = json.and_then(|json| serde_json::from_slice::<BTreeMap<String, String>>(&json).ok());
        match pairs.filter(|pairs| !pairs.is_empty()) {
            Some(pairs) => Ok(Some(Self(pairs))),
            None => {
                let message =
                    "The encryption context must be the base64 of a JSON object of strings, at most 8192 bytes.";
                Err(S3Error::invalid_argument(KMS_CONTEXT, "", message))
            }
        }
    }

    /// The same text for the same pairs, in whatever order a client wrote them: JSON, names in
    /// order.
    pub fn to_json(&self) -> String {
        serde_json::json!(self.0).to_string()
    }

    /// The header that tells of a context in an answer, of what [`KmsContext::to_json`] gave.
    pub fn told(json: &str) -> (&'static str, String) {
        (KMS_CONTEXT, BASE64_STANDARD.encode(json))
    }
}

/// A key that the customer keeps. `Debug` shows nothing of it.
#[derive(Clone)]
pub struct CustomerKey {
    /// The key.
    pub key: Zeroizing<[u8; 32]>,
    /// Its MD5, base64, for the answer.
    pub md5: String,
}

impl fmt::Debug for CustomerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomerKey").finish_non_exhaustive()
    }
}

/// The headers of a customer's key: algorithm, key, MD5 of the key.
type Names = [&'static str; 3];

const OF_OBJECT: Names = [
    "x-amz-server-side-encryption-customer-algorithm",
    "x-amz-server-side-encryption-customer-key",
    "x-amz-server-side-encryption-customer-key-md5",
];
const OF_SOURCE: Names = [
    "x-amz-copy-source-server-side-encryption-customer-algorithm",
    "x-amz-copy-source-server-side-encryption-customer-key",
    "x-amz-copy-source-server-side-encryption-customer-key-md5",
];

impl CustomerKey {
    /// The key of the object that is written or read.
    ///
    /// # Errors
    /// `InvalidArgument` when one of the three headers is missing or wrong,
    /// `InvalidEncryptionAlgorithmError` for another algorithm than `AES256`.
    pub fn from_headers(headers: &HeaderMap) -> Result<Option<Self>> {
        Self::named(headers, OF_OBJECT)
    }

    /// The key of a copy's source.
    ///
    /// # Errors
    /// As [`CustomerKey::from_headers`].
    pub fn of_copy_source(headers: &HeaderMap) -> Result<Option<Self>> {
        Self::named(headers, OF_SOURCE)
    }

    fn named(headers: &HeaderMap, [algorithm, key, md5]: Names) -> Result<Option<Self>> {
        let given = [single(headers, algorithm)?, single(headers, key)?, single(headers, md5)?];
        if given.iter().all(Option::is_none) {
            return Ok(None);
        }
        let refused = |name, message| Err(S3Error::invalid_argument(name, "", message));
        match given[0] {
            Some("AES256") => {}
            Some(_) => return Err(S3Error::new(ErrorCode::InvalidEncryptionAlgorithmError)),
            None => {
                let message = "Requests specifying Server Side Encryption with Customer provided keys must provide a valid encryption algorithm.";
                return refused(algorithm, message);
            }
        }
        let Some(text) = given[1] else {
            let message = "Requests specifying Server Side Encryption with Customer provided keys must provide an appropriate secret key.";
            return refused(key, message);
        };
        let Some(claimed) = given[2] else {
            let message = "Requests specifying Server Side Encryption with Customer provided keys must provide the client calculated MD5 of the secret key.";
            return refused(md5, message);
        };
        let decoded = Zeroizing::new(BASE64_STANDARD.decode(text).unwrap_or_default());
        let Ok(secret) = <[u8; 32]>::try_from(decoded.as_slice()) else {
            return refused(key, "The secret key was invalid for the specified algorithm.");
        };
        let secret = Zeroizing::new(secret);
        let mut digest = Digests::new(DigestSet::MD5);
        digest.update(&*secret);
        let computed = BASE64_STANDARD.encode(digest.finish().md5.unwrap_or_default());
        if !bool::from(computed.as_bytes().ct_eq(claimed.as_bytes())) {
            return refused(md5, "The calculated MD5 hash of the key did not match the hash that was provided.");
        }
        Ok(Some(Self { key: secret, md5: computed }))
    }

    /// The headers that tell of it in an answer.
    pub fn told(&self) -> [(&'static str, &str); 2] {
        [(OF_OBJECT[0], "AES256"), (OF_OBJECT[2], &self.md5)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    const KEY: &str = "pO3upElrwuEXSoFwCfnZPdSSmt/xWeFa0N9KgDijwVs=";
    const MD5: &str = "scAEuccI2Nd8c/0KvwK3qQ==";

    fn read(pairs: &[(&'static str, &'static str)]) -> Result<EncryptionHeaders, ErrorCode> {
        let headers = pairs.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect();
        EncryptionHeaders::from_headers(&headers).map_err(|error| error.code())
    }

    #[test]
    fn a_customers_key_comes_whole_or_is_refused() {
        let [algorithm, key, md5] = OF_OBJECT;
        let whole = read(&[(algorithm, "AES256"), (key, KEY), (md5, MD5)]).unwrap().customer.unwrap();
        assert_eq!((whole.key[0], whole.md5.as_str()), (0xa4, MD5));
        assert!(!format!("{whole:?}").contains("164"));
        for wrong in [
            &[(key, KEY), (md5, MD5)][..],
            &[(algorithm, "AES256"), (md5, MD5)],
            &[(algorithm, "AES256"), (key, KEY)],
            &[(algorithm, "AES256"), (key, "c2hvcnQ="), (md5, MD5)],
            &[(algorithm, "AES256"), (key, KEY), (md5, "AAAAAAAAAAAAAAAAAAAAAA==")],
            &[(algorithm, "AES256"), (key, KEY), (md5, MD5), (SERVER_SIDE, "AES256")],
        ] {
            assert_eq!(read(wrong).err(), Some(ErrorCode::InvalidArgument), "{wrong:?}");
        }
        let other = [(algorithm, "AES128"), (key, KEY), (md5, MD5)];
        assert_eq!(read(&other).err(), Some(ErrorCode::InvalidEncryptionAlgorithmError));
    }

    #[test]
    fn a_context_comes_with_a_named_key_and_is_an_object_of_strings() {
        let encoded = |json: &str| HeaderValue::from_str(&BASE64_STANDARD.encode(json)).unwrap();
        let asked = |algorithm: &'static str, context: HeaderValue| {
            let algorithm = (HeaderName::from_static(SERVER_SIDE), HeaderValue::from_static(algorithm));
            let headers = [algorithm, (HeaderName::from_static(KMS_CONTEXT), context)].into_iter().collect();
            EncryptionHeaders::from_headers(&headers).map_err(|error| error.code())
        };
        let context = asked("aws:kms", encoded(r#"{"b": "2", "a": "\u00e9"}"#)).unwrap().context.unwrap();
        assert_eq!(context.to_json(), r#"{"a":"é","b":"2"}"#);
        assert_eq!(KmsContext::told(&context.to_json()).1, BASE64_STANDARD.encode(r#"{"a":"é","b":"2"}"#));
        let long = format!(r#"{{"a": "{}"}}"#, "x".repeat(CONTEXT_BYTES_MAX));
        for wrong in ["", "{}", "[]", r#"{"a": 1}"#, r#"{"a": {"b": "c"}}"#, "{", long.as_str()] {
            assert_eq!(asked("aws:kms", encoded(wrong)).err(), Some(ErrorCode::InvalidArgument), "{wrong:.20}");
        }
        assert_eq!(asked("aws:kms", HeaderValue::from_static("?")).err(), Some(ErrorCode::InvalidArgument));
        assert_eq!(asked("AES256", encoded(r#"{"a": "b"}"#)).err(), Some(ErrorCode::InvalidArgument));
    }

    #[test]
    fn the_key_of_the_bucket_is_asked_for_or_not_or_left_to_the_bucket() {
        let asked = |text: &'static str| {
            read(&[(SERVER_SIDE, "aws:kms"), (BUCKET_KEY, text)]).map(|headers| headers.bucket_key)
        };
        assert_eq!(read(&[(SERVER_SIDE, "aws:kms")]).map(|headers| headers.bucket_key), Ok(None));
        assert_eq!((asked("true"), asked("False")), (Ok(Some(true)), Ok(Some(false))));
        assert_eq!(asked("yes"), Err(ErrorCode::InvalidArgument));
    }

    #[test]
    fn keys_of_the_server_are_named_with_their_algorithm() {
        let server = |pairs: &[(&'static str, &'static str)]| read(pairs).map(|headers| headers.server);
        assert_eq!(server(&[]), Ok(None));
        assert_eq!(server(&[(SERVER_SIDE, "AES256")]), Ok(Some(ServerSide::Aes256)));
        assert_eq!(server(&[(SERVER_SIDE, "aws:kms")]), Ok(Some(ServerSide::Kms(None))));
        let named = server(&[(SERVER_SIDE, "aws:kms"), (KMS_KEY_ID, "k")]);
        assert_eq!(named, Ok(Some(ServerSide::Kms(Some("k".into())))));
        assert_eq!(server(&[(SERVER_SIDE, "aes256")]), Err(ErrorCode::InvalidArgument));
        assert_eq!(server(&[(SERVER_SIDE, "aws:kms:dsse")]), Err(ErrorCode::NotImplemented));
        assert_eq!(server(&[(KMS_KEY_ID, "k")]), Err(ErrorCode::InvalidArgument));
        assert_eq!(server(&[(SERVER_SIDE, "AES256"), (KMS_KEY_ID, "k")]), Err(ErrorCode::InvalidArgument));
    }
}
