//! Compares a request's signature with the one that its secret gives. How far the client's clock
//! may be off, and when a presigned URL expires, is checked before, in `presented.rs`.

use super::{
    ChunkSigner, CredentialStore, NoSecret, Presented, Scope, SecretKey, SigningService,
    identity::{Authenticated, Identity, PayloadMode},
    presented::{PayloadClaim, Proof, Request},
    presign_v2::sign_v2,
    signing::{SigningKey, same_signature},
};
use crate::{
    address::Target,
    error::{ErrorCode, Result, S3Error},
    headers::single,
    post_policy::{FormFields, FormSignature, missing_field},
};
use crypto::{Digest as _, Sha256};
use http::{HeaderMap, Method};
use std::time::SystemTime;

/// Verifies signatures for one region and service `s3`.
#[derive(Clone, Debug)]
pub struct Verifier {
    region: String,
    presign_v2: bool,
    header_v2: bool,
}

impl Verifier {
    /// A verifier for a region such as `us-east-1`.
    pub fn new(region: impl Into<String>) -> Self {
        Self { region: region.into(), presign_v2: false, header_v2: false }
    }

    /// Whether URLs presigned with Signature Version 2 are accepted, for GET, HEAD and PUT. They
    /// are not unless this says so.
    #[must_use]
    pub fn presign_v2(self, accepted: bool) -> Self {
        Self { presign_v2: accepted, ..self }
    }

    /// Whether Signature Version 2 is accepted in the `Authorization` header. It is not unless this
    /// says so.
    #[must_use]
    pub fn header_v2(self, accepted: bool) -> Self {
        Self { header_v2: accepted, ..self }
    }

    /// Says who sent the request: [`Verifier::present`], the store's secret, then
    /// [`Verifier::verify`]. `headers` are those of the request as it was sent.
    ///
    /// # Errors
    /// As those two.
    pub fn authenticate(
        &self,
        method: &Method,
        target: &Target,
        headers: &HeaderMap,
        now: SystemTime,
        store: &dyn CredentialStore,
    ) -> Result<Identity> {
        match self.present(method, target, headers, now)? {
            None => anonymous(headers),
            Some(presented) => self.verify_by(presented, store).map(Identity::Authenticated),
        }
    }

    /// Says who sent a request to the Security Token Service; `None` when nobody signed it. Its
    /// signature covers the body, whatever its headers say.
    ///
    /// # Errors
    /// As [`Verifier::authenticate`].
    pub fn authenticate_sts(
        &self,
        parts: &http::request::Parts,
        target: &Target,
        body: &[u8],
        now: SystemTime,
        store: &dyn CredentialStore,
    ) -> Result<Option<Authenticated>> {
        let body_sha256 = hex::encode(Sha256::digest(body));
        let request = Request {
            method: &parts.method,
            target,
            headers: &parts.headers,
            now,
            region: &self.region,
            presign_v2: false,
            header_v2: false,
            service: SigningService::Sts,
            body_sha256: Some(&body_sha256),
        };
        request.present()?.map(|presented| self.verify_by(presented, store)).transpose()
    }

    fn verify_by(&self, presented: Presented, store: &dyn CredentialStore) -> Result<Authenticated> {
        match store.secret(&presented.access_key_id, presented.session_token.as_deref()) {
            Ok(secret) => self.verify(presented, Some(&secret)),
            Err(NoSecret::Unknown) => self.verify(presented, None),
            Err(NoSecret::Expired) => Err(ErrorCode::ExpiredToken.into()),
            Err(NoSecret::NotNow) => Err(ErrorCode::ServiceUnavailable.into()),
        }
    }

    /// Parses what the request presents, and checks all that needs no secret. `None` when it is
    /// anonymous (see [`anonymous`]). For callers whose secrets have to be awaited; they must
    /// answer "no secret" for a session token they do not know (C26).
    ///
    /// # Errors
    /// `InvalidRequest` for SigV2 where it is not accepted, SigV4A and other mechanisms;
    /// `InvalidArgument` for two at once;
    /// `AuthorizationHeaderMalformed`, `AuthorizationQueryParametersError`; `RequestTimeTooSkewed`;
    /// `AccessDenied` for expired URLs and for headers that are not signed; `SignatureDoesNotMatch`
    /// for an impossible `SignedHeaders`.
    pub fn present(
        &self,
        method: &Method,
        target: &Target,
        headers: &HeaderMap,
        now: SystemTime,
    ) -> Result<Option<Presented>> {
        Request {
            method,
            target,
            headers,
            now,
            region: &self.region,
            presign_v2: self.presign_v2,
            header_v2: self.header_v2,
            service: SigningService::S3,
            body_sha256: None,
        }
        .present()
    }

    /// Compares the signature, in constant time. A key that does not exist (`None`), or has an
    /// empty secret, takes as long as a wrong signature (C22).
    ///
    /// # Errors
    /// `SignatureDoesNotMatch`; without a secret `InvalidAccessKeyId`, or `InvalidToken` when a
    /// session token came along.
    pub fn verify(&self, presented: Presented, secret: Option<&SecretKey>) -> Result<Authenticated> {
        let known = secret.filter(|secret| !secret.expose().is_empty());
        let stand_in = SecretKey::new("a key nobody has: its signature is computed and never accepted");
        let secret = known.unwrap_or(&stand_in);
        let key = match &presented.proof {
            Proof::V4 { scope, .. } => Some(SigningKey::derive(secret, scope)),
            Proof::V2 => None,
        };
        let ours = match &key {
            Some(key) => key.sign(&presented.string_to_sign),
            None => sign_v2(secret, &presented.string_to_sign),
        };
        let same = same_signature(&ours, &presented.signature);
        if known.is_none() {
            if presented.session_token.is_some() {
                return Err(S3Error::new(ErrorCode::InvalidToken));
            }
            return Err(S3Error::new(ErrorCode::InvalidAccessKeyId).field("AWSAccessKeyId", presented.access_key_id));
        }
        if !same {
            return Err(mismatch(&presented));
        }
        let payload = match (presented.payload, key, presented.proof) {
            (PayloadClaim::Unsigned, ..) => PayloadMode::Unsigned,
            (PayloadClaim::Signed(sha256), ..) => PayloadMode::Signed(sha256),
            (PayloadClaim::StreamingUnsignedTrailer, ..) => PayloadMode::StreamingUnsignedTrailer,
            (PayloadClaim::StreamingSigned { trailer }, Some(key), Proof::V4 { timestamp, scope, .. }) => {
                let signer = ChunkSigner::new(key, timestamp, scope, presented.signature);
                PayloadMode::StreamingSigned { signer, trailer }
            }
            (PayloadClaim::StreamingSigned { .. }, ..) => return Err(S3Error::new(ErrorCode::AccessDenied)),
        };
        Ok(Authenticated {
            access_key_id: presented.access_key_id,
            kind: presented.kind,
            signed_at: presented.signed_at,
            payload,
        })
    }
}

impl Verifier {
    /// Says who signed the policy of a form; `None` when it has none. The policy itself is still to
    /// be held against the form.
    ///
    /// # Errors
    /// `InvalidArgument` for fields that are missing or not well-formed; `InvalidAccessKeyId`,
    /// `InvalidToken`, `SignatureDoesNotMatch`; `InvalidRequest` for version 2 where it is not
    /// accepted.
    pub fn authenticate_form(&self, form: &FormFields, store: &dyn CredentialStore) -> Result<Option<String>> {
        let Some(policy) = form.get("policy") else {
            let signed = ["x-amz-signature", "x-amz-credential", "x-amz-algorithm", "signature", "awsaccesskeyid"];
            if signed.iter().any(|name| form.get(name).is_some()) {
                return Err(missing_field("policy"));
            }
            return Ok(None);
        };
        let stand_in = SecretKey::new("a key nobody has: its signature is computed and never accepted");
        let token = form.get("x-amz-security-token");
        let known = |access_key_id: &str| match store.secret(access_key_id, token) {
            Ok(secret) => Ok(Some(secret).filter(|secret| !secret.expose().is_empty())),
            Err(NoSecret::Unknown) => Ok(None),
            Err(NoSecret::Expired) => Err(S3Error::new(ErrorCode::ExpiredToken)),
            Err(NoSecret::NotNow) => Err(S3Error::new(ErrorCode::ServiceUnavailable)),
        };
        let (access_key_id, secret, ours, theirs) = match FormSignature::of(form)? {
            FormSignature::V4 { access_key_id, date, region, signature } => {
                if region != self.region {
                    let message = format!("the region '{region}' is wrong; expecting '{}'", self.region);
                    return Err(S3Error::invalid_argument("x-amz-credential", region, message));
                }
                let secret = known(access_key_id)?;
                let service = SigningService::S3;
                let scope = Scope { date: date.to_owned(), region: region.to_owned(), service };
                let ours = SigningKey::derive(secret.as_ref().unwrap_or(&stand_in), &scope).sign(policy);
                (access_key_id, secret, ours, signature)
            }
            FormSignature::V2 { access_key_id, signature } if self.presign_v2 => {
                let secret = known(access_key_id)?;
                let ours = sign_v2(secret.as_ref().unwrap_or(&stand_in), policy);
                (access_key_id, secret, ours, signature)
            }
            FormSignature::V2 { .. } => {
                return Err(S3Error::with_message(
                    ErrorCode::InvalidRequest,
                    "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.",
                ));
            }
        };
        let same = same_signature(&ours, theirs);
        match secret {
            None if token.is_some() => Err(S3Error::new(ErrorCode::InvalidToken)),
            None => Err(S3Error::new(ErrorCode::InvalidAccessKeyId).field("AWSAccessKeyId", access_key_id)),
            Some(_) if !same => {
                // What is signed of a form is its policy, which its sender has.
                Err(S3Error::new(ErrorCode::SignatureDoesNotMatch)
                    .field("AWSAccessKeyId", access_key_id)
                    .field("StringToSign", policy)
                    .field("SignatureProvided", theirs))
            }
            Some(_) => Ok(Some(access_key_id.to_owned())),
        }
    }
}

/// The identity of a request that presents no signature: only its payload framing is left to read.
///
/// # Errors
/// `InvalidRequest` when it claims signed chunks (C7); `InvalidArgument` for an unknown framing.
pub fn anonymous(headers: &HeaderMap) -> Result<Identity> {
    let claim = single(headers, "x-amz-content-sha256")?.map_or(Ok(PayloadClaim::Unsigned), PayloadClaim::parse)?;
    let payload = match claim {
        PayloadClaim::Unsigned => PayloadMode::Unsigned,
        PayloadClaim::Signed(sha256) => PayloadMode::Signed(sha256),
        PayloadClaim::StreamingUnsignedTrailer => PayloadMode::StreamingUnsignedTrailer,
        PayloadClaim::StreamingSigned { .. } => {
            return Err(S3Error::with_message(
                ErrorCode::InvalidRequest,
                "Anonymous requests don't support this x-amz-content-sha256 value. Please use UNSIGNED-PAYLOAD or \
                 STREAMING-UNSIGNED-PAYLOAD-TRAILER.",
            ));
        }
    };
    Ok(Identity::Anonymous { payload })
}

/// What S3 tells a client whose signature is wrong: the texts we signed, so that it can compare
/// them with its own. A session token is a credential and stays out, and so do the keys of objects
/// (C134).
fn mismatch(presented: &Presented) -> S3Error {
    let error = S3Error::new(ErrorCode::SignatureDoesNotMatch).field("AWSAccessKeyId", &presented.access_key_id);
    if presented.session_token.is_some() || presented.has_customer_key() {
        return error;
    }
    let error = error.field("StringToSign", &presented.string_to_sign).field("SignatureProvided", &presented.signature);
    match &presented.proof {
        Proof::V4 { canonical_request, .. } => {
            error.field("CanonicalRequest", String::from_utf8_lossy(canonical_request))
        }
        Proof::V2 => error,
    }
}
