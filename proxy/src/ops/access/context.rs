//! The values of condition keys in a request.
//!
//! Source: Service Authorization Reference, "Condition keys for Amazon S3"; IAM User Guide, "AWS
//! global condition context keys".

use crate::engine::BucketHandle;
use crate::ops::request::S3Request;
use access::{Caller, Context, Key};
use catalog::VersionRef;
use s3_wire::{Operation, TagSet, sigv4::SignatureKind, timestamp};
use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

/// A request as conditions see it.
pub(super) struct RequestContext<'a> {
    pub(super) request: &'a S3Request,
    pub(super) bucket: Option<&'a BucketHandle>,
    /// The version an action is about.
    pub(super) version: Option<VersionRef>,
    /// The tags of the object, when it was looked at.
    pub(super) tags: Option<&'a BTreeMap<String, String>>,
    /// The prefix that is asked about, where the request is no listing.
    pub(super) prefix: Option<&'a str>,
}

impl Context for RequestContext<'_> {
    fn values(&self, key: &Key) -> Option<Vec<String>> {
        if let Some(said) = self.request.said.values(key) {
            return Some(said);
        }
        let one = |value: String| Some(vec![value]);
        match key.name() {
            "s3:existingobjecttag" => one(self.tags?.get(key.tag()?)?.clone()),
            "s3:requestobjecttag" => one(self.request_tags()?.get(key.tag()?)?.clone()),
            "s3:requestobjecttagkeys" => Some(self.request_tags()?.into_keys().collect()),
            name if name.starts_with("aws:") => self.global(name).map(|value| vec![value]),
            name => self.of_s3(name.strip_prefix("s3:")?).map(|value| vec![value]),
        }
    }
}

impl RequestContext<'_> {
    fn global(&self, name: &str) -> Option<String> {
        let request = self.request;
        let header = |name: &str| Some(request.headers.get(name)?.to_str().ok()?.to_owned());
        match name {
            "aws:sourceip" => Some(request.peer?.to_canonical().to_string()),
            "aws:securetransport" => Some((request.service.scheme == "https").to_string()),
            "aws:useragent" => header("user-agent"),
            "aws:referer" => header("referer"),
            "aws:requestedregion" => Some(request.service.region.clone()),
            "aws:resourceaccount" => self.resource_account(),
            "aws:tokenissuetime" => request.principal.session_began().map(timestamp::iso8601),
            name => of_caller(name, request.principal.caller()),
        }
    }

    fn of_s3(&self, name: &'static str) -> Option<String> {
        let request = self.request;
        match name {
            "prefix" if self.prefix.is_some() => self.prefix.map(str::to_owned),
            "prefix" | "delimiter" | "max-keys" if self.lists() => {
                request.target.query.single(name).ok()?.map(str::to_owned)
            }
            "versionid" => Some(self.version?.to_string()),
            "resourceaccount" => self.resource_account(),
            "signatureversion" => Some(
                match request.signed?.kind {
                    SignatureKind::PresignedV2 | SignatureKind::HeaderV2 => "AWS",
                    SignatureKind::Header | SignatureKind::Presigned => "AWS4-HMAC-SHA256",
                }
                .to_owned(),
            ),
            "authtype" => Some(
                match (request.operation, request.signed) {
                    (Operation::PostObject, _) => "POST",
                    (_, Some(signed)) if matches!(signed.kind, SignatureKind::Header | SignatureKind::HeaderV2) => {
                        "REST-HEADER"
                    }
                    (_, Some(_)) => "REST-QUERY-STRING",
                    (_, None) => return None,
                }
                .to_owned(),
            ),
            "signatureage" => {
                let age = SystemTime::now().duration_since(request.signed?.at).unwrap_or_default();
                Some(age.as_millis().to_string())
            }
            "objectcreationoperation" => match request.operation {
                Operation::PutObject
                | Operation::CopyObject
                | Operation::PostObject
                | Operation::CompleteMultipartUpload => Some("true".to_owned()),
                Operation::CreateMultipartUpload | Operation::UploadPart | Operation::UploadPartCopy => {
                    Some("false".to_owned())
                }
                _ => None,
            },
            "object-lock-remaining-retention-days" => {
                let until = request.headers.get("x-amz-object-lock-retain-until-date")?.to_str().ok()?;
                let until = time::OffsetDateTime::parse(until, &time::format_description::well_known::Rfc3339).ok()?;
                Some((until.unix_timestamp() - seconds(SystemTime::now())).div_euclid(86_400).to_string())
            }
            "object-lock-mode" | "object-lock-legal-hold" | "object-lock-retain-until-date" => {
                self.header(&format!("x-amz-{name}"))
            }
            name if name.starts_with("x-amz-") || name.starts_with("if-") => self.header(name),
            _ => None,
        }
    }

    fn header(&self, name: &str) -> Option<String> {
        let value = self.request.headers.get(name)?;
        String::from_utf8(value.as_bytes().to_vec()).ok()
    }

    fn lists(&self) -> bool {
        use Operation::{ListMultipartUploads, ListObjectVersions, ListObjects, ListObjectsV2};
        matches!(self.request.operation, ListObjects | ListObjectsV2 | ListObjectVersions | ListMultipartUploads)
    }

    fn request_tags(&self) -> Option<BTreeMap<String, String>> {
        Some(TagSet::from_headers(&self.request.headers).ok()??.into_map())
    }

    fn resource_account(&self) -> Option<String> {
        Some(self.request.users.resource_owner(&self.bucket?.row.owner).account.to_owned())
    }
}

/// The value of a key that follows from the caller and the clock alone.
pub(super) fn of_caller(name: &str, caller: Option<&Caller>) -> Option<String> {
    match name {
        "aws:currenttime" => Some(timestamp::iso8601(SystemTime::now())),
        "aws:epochtime" => Some(seconds(SystemTime::now()).to_string()),
        "aws:username" => caller?.user.clone(),
        "aws:userid" => Some(caller.map_or_else(|| "anonymous".to_owned(), user_id)),
        "aws:principalarn" => Some(caller?.principal_arn()),
        "aws:principalaccount" => Some(caller?.account.clone()),
        "aws:principaltype" => Some(
            match caller {
                None => "Anonymous",
                Some(caller) if caller.role.is_some() => "AssumedRole",
                Some(caller) if caller.user.is_none() => "Account",
                Some(_) => "User",
            }
            .to_owned(),
        ),
        "aws:principalisawsservice" | "aws:viaawsservice" => Some("false".to_owned()),
        _ => None,
    }
}

/// `aws:userid`: the canonical id, and of a role's session its name behind it.
pub(in crate::ops) fn user_id(caller: &Caller) -> String {
    match &caller.role {
        Some(role) => format!("{}:{}", caller.own_id, role.session),
        None => caller.own_id.clone(),
    }
}

fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
