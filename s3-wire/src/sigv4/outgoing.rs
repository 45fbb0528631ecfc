//! Signs requests of ours to services of AWS.

use super::{SecretKey, canonical::string_to_sign, signing::SigningKey};
use crate::{address::percent, timestamp};
use aws_credential_types::Credentials;
use aws_sigv4::{
    http_request::{SignableBody, SignableRequest, SigningSettings, sign},
    sign::v4,
};
use crypto::{Digest, FIPS, Sha256};
use std::{collections::BTreeMap, time::SystemTime};

/// Who signs, and for which service.
pub struct Sender<'a> {
    /// The name of the key pair.
    pub access_key_id: &'a str,
    /// Its secret.
    pub secret: &'a SecretKey,
    /// Of a temporary one.
    pub session_token: Option<&'a str>,
    /// The region in the scope.
    pub region: &'a str,
    /// The service in the scope.
    pub service: &'a str,
}

impl Sender<'_> {
    /// The headers that sign a POST, to be sent beside `headers`, whose names are in lower case.
    /// `host` and `path` are those of the URL as they are sent, without segments of dots.
    ///
    /// # Errors
    /// In words, when `host`, `path` or a header cannot be sent.
    pub fn sign_post(
        &self,
        (host, path): (&str, &str),
        headers: &[(&str, &str)],
        body: &[u8],
        at: SystemTime,
    ) -> Result<Vec<(String, String)>, String> {
        if FIPS {
            return Ok(self.sign_here((host, path), headers, body, at));
        }
        let token = self.session_token.map(str::to_owned);
        let identity = Credentials::new(self.access_key_id, self.secret.expose(), token, None, "deltaweir").into();
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(self.region)
            .name(self.service)
            .time(at)
            .settings(SigningSettings::default())
            .build()
            .map_err(|error| error.to_string())?
            .into();
        let url = format!("https://{host}{path}");
        // Else aws-sigv4 would leave a port of 443 out, whatever is sent.
        let headers = headers.iter().copied().chain([("host", host)]);
        let request = SignableRequest::new("POST", &url, headers, SignableBody::Bytes(body));
        let signed = request.and_then(|request| sign(request, &parameters)).map_err(|error| error.to_string())?;
        let (instructions, _) = signed.into_parts();
        Ok(instructions.headers().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// The same from the HMAC of this build.
    fn sign_here(
        &self,
        (host, path): (&str, &str),
        headers: &[(&str, &str)],
        body: &[u8],
        at: SystemTime,
    ) -> Vec<(String, String)> {
        let moment = timestamp::compact(at);
        let date = &moment[..8];
        let mut added = vec![("x-amz-date".to_owned(), moment.clone())];
        added.extend(self.session_token.map(|token| ("x-amz-security-token".to_owned(), token.to_owned())));
        let mut signed: BTreeMap<&str, &str> = headers.iter().copied().collect();
        signed.extend(added.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        signed.insert("host", host);
        let names = signed.keys().copied().collect::<Vec<_>>().join(";");
        let lines: String = signed.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
        let body = hex::encode(Sha256::digest(body));
        // Services other than S3 sign the path as it is sent, encoded once more.
        let canonical = format!("POST\n{}\n\n{lines}\n{names}\n{body}", percent::encode_path(path));
        let scope = format!("{date}/{}/{}/aws4_request", self.region, self.service);
        let key = SigningKey::chained(self.secret, date, self.region, self.service);
        let signature = key.sign_here(&string_to_sign(&moment, &scope, canonical.as_bytes()));
        let id = self.access_key_id;
        let proof = format!("AWS4-HMAC-SHA256 Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}");
        added.push(("authorization".to_owned(), proof));
        added
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::{Duration, UNIX_EPOCH};

    proptest! {
        #[test]
        fn a_build_with_fips_signs_a_post_as_the_sdk_does(
            secret in "[!-~]{1,60}",
            token in prop::option::of("[!-~]{1,60}"),
            host in "[a-z][a-z0-9.-]{0,20}[a-z](:(80|443|[1-9][0-9]{0,3}))?",
            path in "(/[a-z0-9_~-][a-z0-9._~-]{0,7}(%2B)?){0,3}/",
            body in prop::collection::vec(any::<u8>(), 0..300),
            second in 0_u64..4_000_000_000,
        ) {
            let at = UNIX_EPOCH + Duration::from_secs(second);
            let headers = [("content-type", "application/x-amz-json-1.1"), ("x-amz-target", "TrentService.Encrypt")];
            let secret = SecretKey::new(secret);
            let sender = Sender {
                access_key_id: "AKID",
                secret: &secret,
                session_token: token.as_deref(),
                region: "eu-central-1",
                service: "kms",
            };
            let mut theirs = sender.sign_post((&host, &path), &headers, &body, at).expect("a URL");
            let mut ours = sender.sign_here((&host, &path), &headers, &body, at);
            ours.sort();
            theirs.sort();
            prop_assert_eq!(ours, theirs);
        }
    }
}
