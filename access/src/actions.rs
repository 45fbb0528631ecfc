//! The actions of S3 and what each is done to.

/// What an action is done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All buckets of an account.
    Service,
    /// A bucket.
    Bucket,
    /// An object or a version of one.
    Object,
}

/// What an action is done to; `None` when S3 has no such action. Names are compared without regard
/// to case.
pub fn scope_of(action: &str) -> Option<Scope> {
    let name = strip(action)?;
    let has = |names: &[&str]| names.iter().any(|known| known.eq_ignore_ascii_case(name));
    if has(OBJECT) {
        Some(Scope::Object)
    } else if has(BUCKET) {
        Some(Scope::Bucket)
    } else if has(SERVICE) {
        Some(Scope::Service)
    } else {
        None
    }
}

/// Every action, as `s3:…`.
pub(crate) fn all() -> impl Iterator<Item = (String, Scope)> {
    let named = |names: &'static [&'static str], scope| names.iter().map(move |name| (format!("s3:{name}"), scope));
    named(OBJECT, Scope::Object).chain(named(BUCKET, Scope::Bucket)).chain(named(SERVICE, Scope::Service))
}

fn strip(action: &str) -> Option<&str> {
    action.split_once(':').filter(|(service, _)| service.eq_ignore_ascii_case("s3")).map(|(_, name)| name)
}

/// Source: Service Authorization Reference, "Actions, resources, and condition keys for Amazon S3".
const OBJECT: &[&str] = &[
    "AbortMultipartUpload",
    "BypassGovernanceRetention",
    "DeleteObject",
    "DeleteObjectTagging",
    "DeleteObjectVersion",
    "DeleteObjectVersionTagging",
    "GetObject",
    "GetObjectAcl",
    "GetObjectAttributes",
    "GetObjectLegalHold",
    "GetObjectRetention",
    "GetObjectTagging",
    "GetObjectTorrent",
    "GetObjectVersion",
    "GetObjectVersionAcl",
    "GetObjectVersionAttributes",
    "GetObjectVersionForReplication",
    "GetObjectVersionTagging",
    "GetObjectVersionTorrent",
    "InitiateReplication",
    "ListMultipartUploadParts",
    "ObjectOwnerOverrideToBucketOwner",
    "PutObject",
    "PutObjectAcl",
    "PutObjectLegalHold",
    "PutObjectRetention",
    "PutObjectTagging",
    "PutObjectVersionAcl",
    "PutObjectVersionTagging",
    "ReplicateDelete",
    "ReplicateObject",
    "ReplicateTags",
    "RestoreObject",
    "UpdateObjectEncryption",
];

const BUCKET: &[&str] = &[
    "CreateBucket",
    "CreateBucketMetadataTableConfiguration",
    "DeleteBucket",
    "DeleteBucketMetadataTableConfiguration",
    "DeleteBucketPolicy",
    "DeleteBucketWebsite",
    "GetAccelerateConfiguration",
    "GetAnalyticsConfiguration",
    "GetBucketAbac",
    "GetBucketAcl",
    "GetBucketCORS",
    "GetBucketLocation",
    "GetBucketLogging",
    "GetBucketMetadataTableConfiguration",
    "GetBucketNotification",
    "GetBucketObjectLockConfiguration",
    "GetBucketOwnershipControls",
    "GetBucketPolicy",
    "GetBucketPolicyStatus",
    "GetBucketPublicAccessBlock",
    "GetBucketRequestPayment",
    "GetBucketTagging",
    "GetBucketVersioning",
    "GetBucketWebsite",
    "GetEncryptionConfiguration",
    "GetIntelligentTieringConfiguration",
    "GetInventoryConfiguration",
    "GetLifecycleConfiguration",
    "GetMetricsConfiguration",
    "GetReplicationConfiguration",
    "ListBucket",
    "ListBucketMultipartUploads",
    "ListBucketVersions",
    "PutAccelerateConfiguration",
    "PutAnalyticsConfiguration",
    "PutBucketAbac",
    "PutBucketAcl",
    "PutBucketCORS",
    "PutBucketLogging",
    "PutBucketNotification",
    "PutBucketObjectLockConfiguration",
    "PutBucketOwnershipControls",
    "PutBucketPolicy",
    "PutBucketPublicAccessBlock",
    "PutBucketRequestPayment",
    "PutBucketTagging",
    "PutBucketVersioning",
    "PutBucketWebsite",
    "PutEncryptionConfiguration",
    "PutIntelligentTieringConfiguration",
    "PutInventoryConfiguration",
    "PutLifecycleConfiguration",
    "PutMetricsConfiguration",
    "PutReplicationConfiguration",
];

const SERVICE: &[&str] = &[
    "GetAccountPublicAccessBlock",
    "HeadBucket",
    "ListAllMyBuckets",
    "PutAccountPublicAccessBlock",
    "TagResource",
    "UntagResource",
    "ListTagsForResource",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_known_in_any_case() {
        assert_eq!(scope_of("S3:getobject"), Some(Scope::Object));
        assert_eq!(scope_of("s3:PutBucketPolicy"), Some(Scope::Bucket));
        assert_eq!(scope_of("s3:ListAllMyBuckets"), Some(Scope::Service));
        for unknown in ["GetObject", "s3:", "s3:GetObjects", "ec2:GetObject"] {
            assert_eq!(scope_of(unknown), None, "{unknown}");
        }
    }
}
