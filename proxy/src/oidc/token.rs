//! Whether an ID token is the issuer's, for this server, and of this sign-in (OpenID Connect Core
//! 1.0, §3.1.3.7). Parsing and claims are `jsonwebtoken`'s; signatures are checked by the library
//! that does TLS.

use aws_lc_rs::signature as aws;
use jsonwebtoken::{
    Algorithm, DecodingKey, DecodingKeyKind, TokenData, Validation,
    crypto::{CryptoProvider, JwtVerifier, KeyUtils},
    decode, decode_header,
    errors::{Error, ErrorKind},
    jwk::{Jwk, JwkSet, KeyAlgorithm, PublicKeyUse},
};
use serde_json::Value;
use signature::Verifier;

/// Algorithms of public keys. None of a shared secret: who knows a public key could sign with it as
/// if it were one.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];
/// How far the clocks of issuer and server may be apart.
const LEEWAY_S: u64 = 60;

/// What a token must be.
pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    pub(super) client_id: &'a str,
    pub(super) nonce: &'a str,
}

/// Why a token counts for nothing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rejected {
    /// No key of the set has its key id: the issuer may have a new one.
    UnknownKey,
    /// Anything else, in words of our own.
    Because(String),
}

/// The claims of a token that is what it must be.
///
/// # Errors
/// [`Rejected`].
pub(super) fn claims(token: &str, keys: &JwkSet, expected: &Expected<'_>) -> Result<Value, Rejected> {
    let header = decode_header(token).map_err(|_| because("it is no signed token"))?;
    if !ALGORITHMS.contains(&header.alg) {
        return Err(because("its algorithm is not one of public keys"));
    }
    let key = key_of(keys, header.kid.as_deref(), header.alg).ok_or(Rejected::UnknownKey)?;
    let key = DecodingKey::from_jwk(key).map_err(|_| because("the issuer's key cannot be read"))?;
    let mut validation = Validation::new(header.alg);
    validation.leeway = LEEWAY_S;
    validation.validate_nbf = true;
    validation.set_issuer(&[expected.issuer]);
    validation.set_audience(&[expected.client_id]);
    validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
    let TokenData { claims, .. } = decode::<Value>(token, &key, &validation).map_err(|error| because(why(&error)))?;
    if claims["nonce"].as_str() != Some(expected.nonce) {
        return Err(because("it is of another sign-in: the nonce differs"));
    }
    // Meant for somebody else, and for us besides.
    let is_shared = claims["aud"].as_array().is_some_and(|audiences| audiences.len() > 1);
    let party = claims.get("azp").map(|party| party.as_str() == Some(expected.client_id));
    if party == Some(false) || (is_shared && party.is_none()) {
        return Err(because("it was given to another client"));
    }
    Ok(claims)
}

fn because(why: &str) -> Rejected {
    Rejected::Because(why.to_owned())
}

fn why(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::InvalidSignature => "its signature is not the issuer's",
        ErrorKind::ExpiredSignature => "it has expired",
        ErrorKind::ImmatureSignature => "it is not good yet",
        ErrorKind::InvalidIssuer => "it is of another issuer",
        ErrorKind::InvalidAudience => "it is for another client",
        ErrorKind::MissingRequiredClaim(_) => "a claim is missing that it must have",
        _ => "it is no good token",
    }
}

/// The key of an id; where a token names none, the only key that fits.
fn key_of<'k>(keys: &'k JwkSet, id: Option<&str>, algorithm: Algorithm) -> Option<&'k Jwk> {
    let signs = |key: &&Jwk| !matches!(key.common.public_key_use, Some(PublicKeyUse::Encryption));
    let agrees = |key: &&Jwk| key.common.key_algorithm.is_none_or(|told| told == KeyAlgorithm::from(algorithm));
    let fits = |key: &&Jwk| {
        DecodingKey::from_jwk(key).is_ok_and(|decoding| decoding.family().algorithms().contains(&algorithm))
    };
    let mut found = keys.keys.iter().filter(signs).filter(agrees).filter(fits);
    match id {
        Some(id) => found.find(|key| key.common.key_id.as_deref() == Some(id)),
        None => found.next().filter(|_| found.next().is_none()),
    }
}

/// Checks signatures for `jsonwebtoken`; signs nothing.
static CHECKS: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
    verifier_factory: |algorithm, key| Ok(Box::new(Check::new(*algorithm, key.clone())?)),
    key_utils: KeyUtils::new_unimplemented(),
};

/// Has signatures checked from now on.
pub(super) fn install() {
    // The second of two servers of a process finds the first one's, which is the same.
    let _ = CHECKS.install_default();
}

struct Check {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl Check {
    fn new(algorithm: Algorithm, key: DecodingKey) -> Result<Self, Error> {
        match ALGORITHMS.contains(&algorithm) && key.family().algorithms().contains(&algorithm) {
            true => Ok(Self { algorithm, key }),
            false => Err(ErrorKind::InvalidAlgorithm.into()),
        }
    }

    fn is_signed(&self, message: &[u8], signed: &[u8]) -> bool {
        let rsa = match self.algorithm {
            Algorithm::RS256 => Some(&aws::RSA_PKCS1_2048_8192_SHA256),
            Algorithm::RS384 => Some(&aws::RSA_PKCS1_2048_8192_SHA384),
            Algorithm::RS512 => Some(&aws::RSA_PKCS1_2048_8192_SHA512),
            Algorithm::PS256 => Some(&aws::RSA_PSS_2048_8192_SHA256),
            Algorithm::PS384 => Some(&aws::RSA_PSS_2048_8192_SHA384),
            Algorithm::PS512 => Some(&aws::RSA_PSS_2048_8192_SHA512),
            _ => None,
        };
        let curve: Option<&'static dyn aws::VerificationAlgorithm> = match self.algorithm {
            Algorithm::ES256 => Some(&aws::ECDSA_P256_SHA256_FIXED),
            Algorithm::ES384 => Some(&aws::ECDSA_P384_SHA384_FIXED),
            Algorithm::EdDSA => Some(&aws::ED25519),
            _ => None,
        };
        match (self.key.kind(), rsa, curve) {
            (DecodingKeyKind::RsaModulusExponent { n, e }, Some(parameters), _) => {
                aws::RsaPublicKeyComponents { n, e }.verify(parameters, message, signed).is_ok()
            }
            (DecodingKeyKind::SecretOrDer(point), _, Some(algorithm)) => {
                aws::UnparsedPublicKey::new(algorithm, point).verify(message, signed).is_ok()
            }
            _ => false,
        }
    }
}

impl Verifier<Vec<u8>> for Check {
    fn verify(&self, message: &[u8], signed: &Vec<u8>) -> Result<(), signature::Error> {
        self.is_signed(message, signed).then_some(()).ok_or_else(signature::Error::new)
    }
}

impl JwtVerifier for Check {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::{
        rand::SystemRandom,
        signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
    };
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    use serde_json::json;
    use std::time::{SystemTime, UNIX_EPOCH};

    const EXPECTED: Expected<'_> = Expected { issuer: "https://id.example", client_id: "deltaweir", nonce: "n" };

    struct Issuer(EcdsaKeyPair);

    impl Issuer {
        fn new() -> Self {
            install();
            Self(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap())
        }

        fn keys(&self, id: &str) -> JwkSet {
            let point = self.0.public_key().as_ref();
            let [x, y] = [&point[1..33], &point[33..]].map(|half| URL_SAFE_NO_PAD.encode(half));
            let key = json!({"kty": "EC", "crv": "P-256", "x": x, "y": y, "kid": id, "alg": "ES256", "use": "sig"});
            serde_json::from_value(json!({ "keys": [key] })).unwrap()
        }

        fn token(&self, header: &Value, claims: &Value) -> String {
            let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
            let message = format!("{header}.{claims}");
            let signed = self.0.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
            format!("{message}.{}", URL_SAFE_NO_PAD.encode(signed.as_ref()))
        }
    }

    fn now_s() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
    }

    fn good() -> Value {
        json!({"iss": "https://id.example", "aud": "deltaweir", "sub": "ann", "nonce": "n", "exp": now_s() + 300})
    }

    #[test]
    fn only_the_issuers_token_for_this_server_and_this_sign_in_counts() {
        let issuer = Issuer::new();
        let keys = issuer.keys("k");
        let header = json!({"alg": "ES256", "kid": "k"});
        let read = |claims: &Value| super::claims(&issuer.token(&header, claims), &keys, &EXPECTED);
        assert_eq!(read(&good()).unwrap()["sub"], "ann");
        let shared = json!(["deltaweir", "other"]);
        for (claim, value) in [
            ("iss", json!("https://id.example/")),
            ("aud", json!("other")),
            ("aud", json!([])),
            ("aud", shared.clone()),
            ("nonce", json!("m")),
            ("nonce", json!(["n"])),
            ("exp", json!(now_s() - 61)),
            ("nbf", json!(now_s() + 90)),
            ("azp", json!("other")),
        ] {
            let mut claims = good();
            claims[claim] = value;
            assert!(matches!(read(&claims), Err(Rejected::Because(_))), "{claim}: {claims}");
        }
        for missing in ["iss", "aud", "sub", "nonce", "exp"] {
            let mut claims = good();
            claims.as_object_mut().unwrap().remove(missing);
            assert!(read(&claims).is_err(), "{missing}");
        }
        let mut claims = good();
        (claims["aud"], claims["azp"]) = (shared, json!("deltaweir"));
        assert!(read(&claims).is_ok(), "shared, and ours");
    }

    #[test]
    fn a_token_of_another_key_or_of_none_is_refused() {
        let (issuer, other) = (Issuer::new(), Issuer::new());
        let keys = issuer.keys("k");
        let read = |token: &str| super::claims(token, &keys, &EXPECTED);
        let header = |alg: &str, kid: &str| json!({"alg": alg, "kid": kid});
        assert!(read(&issuer.token(&json!({"alg": "ES256"}), &good())).is_ok(), "the only key there is");
        assert!(matches!(read(&other.token(&header("ES256", "k"), &good())), Err(Rejected::Because(_))));
        assert_eq!(read(&issuer.token(&header("ES256", "new"), &good())), Err(Rejected::UnknownKey));
        for alg in ["none", "None", "HS256", "RS256", "ES384"] {
            assert!(read(&issuer.token(&header(alg, "k"), &good())).is_err(), "{alg}");
        }
        let token = issuer.token(&header("ES256", "k"), &good());
        let (message, _) = token.rsplit_once('.').unwrap();
        for changed in [message.to_owned(), format!("{message}."), format!("{token}A"), token.replacen('.', "", 1)] {
            assert!(read(&changed).is_err(), "{changed}");
        }
    }
}
