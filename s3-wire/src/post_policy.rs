//! Browser uploads with a form: who signed its policy, and whether the form is what the policy
//! allows.
//!
//! Source: "Browser-based uploads using POST" (Amazon S3 API Reference): "Creating a POST policy",
//! "Form fields".

use crate::{
    error::{ErrorCode, Result, S3Error},
    timestamp,
};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::Value;
use std::time::SystemTime;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// The fields of a form before its file, names in lower case, in the order they came.
#[derive(Clone, Debug, Default)]
pub struct FormFields(Vec<(String, String)>);

impl FormFields {
    /// Adds a field.
    ///
    /// # Errors
    /// `InvalidArgument` when it was given before: two parsers might pick different ones.
    pub fn push(&mut self, name: &str, value: String) -> Result<()> {
        let name = name.to_ascii_lowercase();
        if self.get(&name).is_some() {
            let message = format!("The form has the field {name} more than once.");
            return Err(S3Error::invalid_argument("form", name, message));
        }
        self.0.push((name, value));
        Ok(())
    }

    /// The value of a field.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Replaces the value of a field that is there.
    pub fn set(&mut self, name: &str, value: String) {
        if let Some(field) = self.0.iter_mut().find(|(n, _)| n == name) {
            field.1 = value;
        }
    }

    /// All fields.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// A policy that was read: when it ends and what it allows.
#[derive(Debug)]
pub struct PostPolicy {
    expires: OffsetDateTime,
    conditions: Vec<Condition>,
    /// The least and the most bytes of the file.
    length: Option<(u64, u64)>,
}

#[derive(Debug)]
struct Condition {
    field: String,
    value: String,
    prefix: bool,
}

impl PostPolicy {
    /// Reads the field `policy`: base64 of a JSON document.
    ///
    /// # Errors
    /// `InvalidPolicyDocument`.
    pub fn parse(encoded: &str) -> Result<Self> {
        let json =
            BASE64_STANDARD.decode(encoded.trim()).map_err(|_| invalid("Invalid Policy: invalid Base64 encoding."))?;
        let document: Value = serde_json::from_slice(&json).map_err(|_| invalid("Invalid Policy: Invalid JSON."))?;
        let expires = document
            .get("expiration")
            .ok_or_else(|| invalid("Invalid Policy: Policy missing expiration."))?
            .as_str()
            .filter(|text| text.contains('T'))
            .and_then(|text| OffsetDateTime::parse(text, &Rfc3339).ok())
            .ok_or_else(|| invalid("Invalid Policy: Invalid 'expiration' value."))?;
        let written = document.get("conditions").and_then(Value::as_array);
        let written = written.ok_or_else(|| invalid("Invalid Policy: Policy missing conditions."))?;
        let mut policy = Self { expires, conditions: Vec::new(), length: None };
        for condition in written {
            policy.read(condition).ok_or_else(|| invalid("Invalid Policy: Invalid condition."))?;
        }
        Ok(policy)
    }

    fn read(&mut self, written: &Value) -> Option<()> {
        if let Some(object) = written.as_object() {
            if object.is_empty() {
                return None;
            }
            for (field, value) in object {
                let value = value.as_str()?.to_owned();
                self.conditions.push(Condition { field: field.to_ascii_lowercase(), value, prefix: false });
            }
            return Some(());
        }
        let [operator, first, second] = written.as_array()?.as_slice() else { return None };
        let operator = operator.as_str()?.to_ascii_lowercase();
        if operator == "content-length-range" {
            let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok());
            self.length = Some((number(first)?, number(second)?));
            return Some(());
        }
        let field = first.as_str()?.strip_prefix('$')?.to_ascii_lowercase();
        let prefix = match operator.as_str() {
            "eq" => false,
            "starts-with" => true,
            _ => return None,
        };
        self.conditions.push(Condition { field, value: second.as_str()?.to_owned(), prefix });
        Some(())
    }

    /// The least and the most bytes the file may have.
    pub fn length(&self) -> Option<(u64, u64)> {
        self.length
    }

    /// Holds a form against the policy. Every field must be named by a condition, but for the
    /// signature's own, `x-ignore-*` and checksums, which claim something of the file and grant
    /// nothing.
    ///
    /// # Errors
    /// `AccessDenied` saying which condition failed or which field is one too many, or that the
    /// policy has expired.
    pub fn check(&self, bucket: &str, form: &FormFields, now: SystemTime) -> Result<()> {
        let denied = |message: String| {
            Err(S3Error::with_message(ErrorCode::AccessDenied, format!("Invalid according to Policy: {message}")))
        };
        if OffsetDateTime::from(now) > self.expires {
            return denied("Policy expired.".to_owned());
        }
        for condition in &self.conditions {
            let value = if condition.field == "bucket" { Some(bucket) } else { form.get(&condition.field) };
            let holds = value.is_some_and(|value| match condition.prefix {
                true => value.starts_with(&condition.value),
                false => value == condition.value,
            });
            // A prefix of nothing also allows that the field is not there.
            let may_be_absent = condition.prefix && condition.value.is_empty();
            if !holds && (value.is_some() || !may_be_absent) {
                let operator = if condition.prefix { "starts-with" } else { "eq" };
                let Condition { field, value, .. } = condition;
                return denied(format!("Policy Condition failed: [\"{operator}\", \"${field}\", \"{value}\"]"));
            }
        }
        if !self.conditions.iter().any(|condition| condition.field == "bucket") {
            return denied("Extra input fields: bucket".to_owned());
        }
        let covered = |name: &str| {
            UNCOVERED.contains(&name)
                || EXEMPT.iter().any(|prefix| name.starts_with(prefix))
                || self.conditions.iter().any(|condition| condition.field == name)
        };
        match form.iter().find(|(name, _)| !covered(name)) {
            None => Ok(()),
            Some((name, _)) => denied(format!("Extra input fields: {name}")),
        }
    }
}

/// Fields that no condition has to name, by how they begin.
const EXEMPT: [&str; 2] = ["x-ignore-", "x-amz-checksum-"];

/// Fields that belong to the signature.
const UNCOVERED: [&str; 5] = ["awsaccesskeyid", "file", "policy", "signature", "x-amz-signature"];

/// What signs a form, before any of it is believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FormSignature<'f> {
    /// Version 4: the credential's parts and the signature.
    V4 {
        /// The access key.
        access_key_id: &'f str,
        /// `YYYYMMDD`
        date: &'f str,
        /// The region.
        region: &'f str,
        /// Hex.
        signature: &'f str,
    },
    /// Version 2.
    V2 {
        /// The access key.
        access_key_id: &'f str,
        /// Base64.
        signature: &'f str,
    },
}

impl<'f> FormSignature<'f> {
    /// Reads the fields of either version.
    ///
    /// # Errors
    /// `InvalidArgument` for a field that is missing or not well-formed.
    pub(crate) fn of(form: &'f FormFields) -> Result<Self> {
        let needed =
            |name: &'static str| form.get(name).filter(|value| !value.is_empty()).ok_or_else(|| missing_field(name));
        if form.get("x-amz-algorithm").is_none() && form.get("x-amz-signature").is_none() {
            return Ok(Self::V2 { access_key_id: needed("awsaccesskeyid")?, signature: needed("signature")? });
        }
        let algorithm = needed("x-amz-algorithm")?;
        if algorithm != "AWS4-HMAC-SHA256" {
            return Err(S3Error::invalid_argument("x-amz-algorithm", algorithm, "Only AWS4-HMAC-SHA256 is supported"));
        }
        let credential = needed("x-amz-credential")?;
        let (access_key_id, date, region) = credential_parts(credential).ok_or_else(|| {
            let message =
                "the Credential is mal-formed; expecting \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\".";
            S3Error::invalid_argument("x-amz-credential", credential, message)
        })?;
        let signed_at = needed("x-amz-date")?;
        if timestamp::parse_compact(signed_at).is_none() {
            let message = "X-Amz-Date must be formated via ISO8601 Long format";
            return Err(S3Error::invalid_argument("X-Amz-Date", signed_at, message));
        }
        let same_day = signed_at.get(..8) == Some(date);
        if !same_day {
            return Err(S3Error::invalid_argument("x-amz-date", signed_at, "The date is not that of the Credential."));
        }
        Ok(Self::V4 { access_key_id, date, region, signature: needed("x-amz-signature")? })
    }
}

/// What S3 says of a form without one of these.
pub fn missing_field(name: &'static str) -> S3Error {
    let message = format!(
        "Bucket POST must contain a field named '{name}'.  If it is specified, please check the order of the fields."
    );
    S3Error::invalid_argument(name, "", message)
}

/// Access key, date and region of `ACCESS-KEY/DATE/REGION/s3/aws4_request`.
fn credential_parts(credential: &str) -> Option<(&str, &str, &str)> {
    let rest = credential.strip_suffix("/s3/aws4_request")?;
    let mut parts = rest.rsplitn(3, '/');
    let (region, date, access_key_id) = (parts.next()?, parts.next()?, parts.next()?);
    (!access_key_id.is_empty()).then_some((access_key_id, date, region))
}

fn invalid(message: &'static str) -> S3Error {
    S3Error::with_message(ErrorCode::InvalidPolicyDocument, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::{Duration, UNIX_EPOCH};

    fn policy(json: &str) -> Result<PostPolicy> {
        PostPolicy::parse(&BASE64_STANDARD.encode(json))
    }

    fn form(pairs: &[(&str, &str)]) -> FormFields {
        let mut form = FormFields::default();
        pairs.iter().for_each(|(name, value)| form.push(name, (*value).to_owned()).unwrap());
        form
    }

    const CONDITIONS: &str = r#"{"expiration": "2026-11-23T12:00:00.000Z", "conditions": [{"bucket": "b"}, ["starts-with", "$key", "user/"],
        {"acl": "private"}, ["eq", "$Content-Type", "text/plain"], ["starts-with", "$x-amz-meta-tag", ""],
        ["content-length-range", 1, "1000"]]}"#;

    fn at(seconds: u64) -> SystemTime {
        // 2026-11-23T12:00:00Z
        UNIX_EPOCH + Duration::from_secs(1_795_435_200 + seconds)
    }

    #[test]
    fn a_form_must_be_all_that_its_policy_says_and_no_more() {
        let policy = policy(CONDITIONS).unwrap();
        assert_eq!(policy.length(), Some((1, 1000)));
        let good = [("key", "user/k"), ("acl", "private"), ("Content-Type", "text/plain"), ("X-Amz-Signature", "s")];
        let check =
            |bucket, pairs: &[(&str, &str)], now| policy.check(bucket, &form(pairs), now).map_err(|e| e.to_string());
        assert_eq!(check("b", &good, at(0)), Ok(()));
        let with_more = [&good[..], &[("x-amz-meta-tag", "t"), ("x-ignore-me", "i"), ("policy", "p")]].concat();
        assert_eq!(check("b", &with_more, at(0)), Ok(()));
        assert!(check("b", &good, at(1)).unwrap_err().contains("expired"));
        assert!(check("other", &good, at(0)).unwrap_err().contains("$bucket"));
        assert!(check("b", &good[1..], at(0)).unwrap_err().contains("$key"));
        let elsewhere = [&[("key", "admin/k")], &good[1..]].concat();
        assert!(check("b", &elsewhere, at(0)).unwrap_err().contains("starts-with"));
        let extra = [&good[..], &[("success_action_status", "200")]].concat();
        assert!(check("b", &extra, at(0)).unwrap_err().contains("Extra input fields: success_action_status"));
    }

    #[test]
    fn a_policy_that_is_none_is_refused() {
        for json in [
            "",
            "[]",
            "{}",
            r#"{"expiration": "2026-11-23T12:00:00Z"}"#,
            r#"{"conditions": []}"#,
            r#"{"Expiration": "2026-11-23T12:00:00Z", "conditions": []}"#,
            r#"{"expiration": "2026-11-23T12:00:00Z", "Conditions": []}"#,
            r#"{"expiration": "tomorrow", "conditions": []}"#,
            r#"{"expiration": "2026-11-23 12:00:00+00:00", "conditions": []}"#,
            r#"{"expiration": "2026-11-23T12:00:00Z", "conditions": [{}]}"#,
            r#"{"expiration": "2026-11-23T12:00:00Z", "conditions": [["like", "$key", "a"]]}"#,
            r#"{"expiration": "2026-11-23T12:00:00Z", "conditions": [["eq", "key", "a"]]}"#,
            r#"{"expiration": "2026-11-23T12:00:00Z", "conditions": [["content-length-range", -1, 5]]}"#,
        ] {
            assert_eq!(policy(json).unwrap_err().code(), ErrorCode::InvalidPolicyDocument, "{json}");
        }
        assert_eq!(PostPolicy::parse("!").unwrap_err().code(), ErrorCode::InvalidPolicyDocument);
        assert!(form(&[("a", "1")]).clone().push("A", "2".to_owned()).is_err());
    }

    proptest! {
        /// As the fuzz target `post_form`, without a fuzzer.
        #[test]
        fn any_text_is_read_or_refused_and_what_no_condition_names_never_passes(
            text in any::<String>(),
            conditions in prop::collection::vec(
                (prop::sample::select(vec!["eq", "starts-with"]), "[$]?[a-c]{1,2}", "[xy]{0,2}"), 0..4,
            ),
            fields in prop::collection::btree_map("[a-c]{1,2}", "[xy]{0,2}", 0..4),
        ) {
            let _ = (PostPolicy::parse(&text), policy(&text));
            let mut written = vec![serde_json::json!({ "bucket": "b" })];
            written.extend(conditions.iter().map(|(operator, field, value)| serde_json::json!([operator, field, value])));
            let document = serde_json::json!({ "expiration": "2026-11-23T12:00:00Z", "conditions": written });
            let Ok(policy) = policy(&document.to_string()) else { return Ok(()) };
            let pairs: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let named = |name: &str| conditions.iter().any(|(_, field, _)| field.strip_prefix('$') == Some(name));
            let passes = policy.check("b", &form(&pairs), at(0)).is_ok();
            prop_assert!(!passes || fields.keys().all(|name| named(name)));
            prop_assert!(policy.check("other", &form(&pairs), at(0)).is_err());
        }
    }
}
