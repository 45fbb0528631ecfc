//! Access control lists: grants to accounts and groups.
//!
//! Source: Amazon S3 User Guide, "Access control list (ACL) overview".

use serde::{Deserialize, Serialize};

/// What a grant permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Permission {
    /// Listing a bucket; reading an object.
    Read,
    /// Writing objects into a bucket. Nothing for an object.
    Write,
    /// Reading the list of grants.
    ReadAcp,
    /// Replacing the list of grants.
    WriteAcp,
    /// All of these.
    FullControl,
}

impl Permission {
    /// Every permission, in the order S3's documents list them.
    pub const ALL: [Self; 5] = [Self::FullControl, Self::Read, Self::ReadAcp, Self::Write, Self::WriteAcp];

    /// The name in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "READ",
            Self::Write => "WRITE",
            Self::ReadAcp => "READ_ACP",
            Self::WriteAcp => "WRITE_ACP",
            Self::FullControl => "FULL_CONTROL",
        }
    }

    /// Reads a name; `None` when there is no such permission.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|permission| permission.as_str() == text)
    }

    /// The permission that an action on a bucket or object needs; `None` when no list grants it.
    pub fn for_action(action: &str) -> Option<(Self, AclOf)> {
        Some(match action {
            "s3:ListBucket" | "s3:ListBucketVersions" | "s3:ListBucketMultipartUploads" => (Self::Read, AclOf::Bucket),
            "s3:PutObject" | "s3:DeleteObject" | "s3:AbortMultipartUpload" | "s3:ListMultipartUploadParts" => {
                (Self::Write, AclOf::Bucket)
            }
            "s3:GetBucketAcl" => (Self::ReadAcp, AclOf::Bucket),
            "s3:PutBucketAcl" => (Self::WriteAcp, AclOf::Bucket),
            "s3:GetObject" | "s3:GetObjectVersion" => (Self::Read, AclOf::Object),
            "s3:GetObjectAcl" | "s3:GetObjectVersionAcl" => (Self::ReadAcp, AclOf::Object),
            "s3:PutObjectAcl" | "s3:PutObjectVersionAcl" => (Self::WriteAcp, AclOf::Object),
            _ => return None,
        })
    }
}

/// Whose list an action asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclOf {
    /// The bucket's.
    Bucket,
    /// The object's.
    Object,
}

/// Who is granted something.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grantee {
    /// An account, by canonical id.
    Id(String),
    /// Everybody, anonymous requests too.
    AllUsers,
    /// Everybody who signs.
    AuthenticatedUsers,
    /// The service that delivers server access logs.
    LogDelivery,
}

impl Grantee {
    /// The URI of a group; `None` for an account.
    pub fn uri(&self) -> Option<&'static str> {
        match self {
            Self::Id(_) => None,
            Self::AllUsers => Some("http://acs.amazonaws.com/groups/global/AllUsers"),
            Self::AuthenticatedUsers => Some("http://acs.amazonaws.com/groups/global/AuthenticatedUsers"),
            Self::LogDelivery => Some("http://acs.amazonaws.com/groups/s3/LogDelivery"),
        }
    }

    /// The group of a URI; `None` when there is no such group.
    pub fn of_uri(uri: &str) -> Option<Self> {
        [Self::AllUsers, Self::AuthenticatedUsers, Self::LogDelivery].into_iter().find(|group| group.uri() == Some(uri))
    }

    fn is_public(&self) -> bool {
        matches!(self, Self::AllUsers | Self::AuthenticatedUsers)
    }
}

/// One grant.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Grant {
    /// To whom.
    pub grantee: Grantee,
    /// What.
    pub permission: Permission,
}

/// A list of grants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Acl {
    grants: Vec<Grant>,
}

/// A list of grants that has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the S3 User Guide")]
pub enum Canned {
    Private,
    PublicRead,
    PublicReadWrite,
    AwsExecRead,
    AuthenticatedRead,
    BucketOwnerRead,
    BucketOwnerFullControl,
    LogDeliveryWrite,
}

impl Canned {
    /// Reads a name; `None` when there is no such list.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "private" => Self::Private,
            "public-read" => Self::PublicRead,
            "public-read-write" => Self::PublicReadWrite,
            "aws-exec-read" => Self::AwsExecRead,
            "authenticated-read" => Self::AuthenticatedRead,
            "bucket-owner-read" => Self::BucketOwnerRead,
            "bucket-owner-full-control" => Self::BucketOwnerFullControl,
            "log-delivery-write" => Self::LogDeliveryWrite,
            _ => return None,
        })
    }
}

/// Who asks, as lists of grants see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester<'a> {
    /// Nobody signed.
    Anonymous,
    /// An account: its canonical id, and the user's own.
    Signed(&'a str, &'a str),
}

impl Acl {
    /// The list that holds where none was set: everything to the owner.
    pub fn private(owner: &str) -> Self {
        Self { grants: vec![full(owner)] }
    }

    /// A list of these grants.
    pub fn new(grants: Vec<Grant>) -> Self {
        Self { grants }
    }

    /// A named list. The bucket's owner matters to objects that another account owns.
    pub fn canned(canned: Canned, owner: &str, bucket_owner: &str) -> Self {
        let to = |grantee: Grantee, permission| Grant { grantee, permission };
        let id = || Grantee::Id(bucket_owner.to_owned());
        let mut grants = match canned {
            Canned::Private | Canned::AwsExecRead => Vec::new(),
            Canned::PublicRead => vec![to(Grantee::AllUsers, Permission::Read)],
            Canned::PublicReadWrite => {
                vec![to(Grantee::AllUsers, Permission::Read), to(Grantee::AllUsers, Permission::Write)]
            }
            Canned::AuthenticatedRead => vec![to(Grantee::AuthenticatedUsers, Permission::Read)],
            Canned::LogDeliveryWrite => {
                vec![to(Grantee::LogDelivery, Permission::Write), to(Grantee::LogDelivery, Permission::ReadAcp)]
            }
            Canned::BucketOwnerRead if owner != bucket_owner => vec![to(id(), Permission::Read)],
            Canned::BucketOwnerFullControl if owner != bucket_owner => vec![to(id(), Permission::FullControl)],
            Canned::BucketOwnerRead | Canned::BucketOwnerFullControl => Vec::new(),
        };
        grants.push(full(owner));
        Self { grants }
    }

    /// The grants in order.
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// Whether it says no more than that the owner has everything.
    pub fn is_private(&self, owner: &str) -> bool {
        matches!(self.grants.as_slice(), [only] if *only == full(owner))
    }

    /// Whether it grants anything to everybody, or to everybody who signs.
    pub fn is_public(&self) -> bool {
        self.grants.iter().any(|grant| grant.grantee.is_public())
    }

    /// The grant that gives a requester a permission. `private` takes no notice of grants to the
    /// public.
    pub fn grant(&self, requester: Requester<'_>, permission: Permission, private: bool) -> Option<&Grant> {
        self.grants.iter().find(|grant| {
            let to_requester = match (&grant.grantee, requester) {
                (Grantee::AllUsers, _) => !private,
                (Grantee::AuthenticatedUsers, Requester::Signed(..)) => !private,
                (Grantee::Id(id), Requester::Signed(account, own)) => id == account || id == own,
                _ => false,
            };
            to_requester && (grant.permission == permission || grant.permission == Permission::FullControl)
        })
    }
}

fn full(owner: &str) -> Grant {
    Grant { grantee: Grantee::Id(owner.to_owned()), permission: Permission::FullControl }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(canned: Canned) -> Vec<(String, &'static str)> {
        let acl = Acl::canned(canned, "o", "b");
        let name = |grantee: &Grantee| match grantee {
            Grantee::Id(id) => id.clone(),
            group => group.uri().unwrap().rsplit('/').next().unwrap().to_owned(),
        };
        acl.grants().iter().map(|grant| (name(&grant.grantee), grant.permission.as_str())).collect()
    }

    #[test]
    fn canned_lists_grant_what_they_are_named_for() {
        let owner = ("o".to_owned(), "FULL_CONTROL");
        let all = |permission| ("AllUsers".to_owned(), permission);
        for (canned, expected) in [
            (Canned::Private, vec![]),
            (Canned::AwsExecRead, vec![]),
            (Canned::PublicRead, vec![all("READ")]),
            (Canned::PublicReadWrite, vec![all("READ"), all("WRITE")]),
            (Canned::AuthenticatedRead, vec![("AuthenticatedUsers".to_owned(), "READ")]),
            (Canned::BucketOwnerRead, vec![("b".to_owned(), "READ")]),
            (Canned::BucketOwnerFullControl, vec![("b".to_owned(), "FULL_CONTROL")]),
            (
                Canned::LogDeliveryWrite,
                vec![("LogDelivery".to_owned(), "WRITE"), ("LogDelivery".to_owned(), "READ_ACP")],
            ),
        ] {
            let expected: Vec<_> = expected.into_iter().chain([owner.clone()]).collect();
            assert_eq!(grants(canned), expected, "{canned:?}");
        }
        assert!(Acl::canned(Canned::BucketOwnerRead, "o", "o").is_private("o"));
    }

    #[test]
    fn groups_hold_whom_they_say() {
        let permits = |canned, requester, private| {
            Acl::canned(canned, "o", "b").grant(requester, Permission::Read, private).is_some()
        };
        let (nobody, stranger, owner) =
            (Requester::Anonymous, Requester::Signed("x", "x"), Requester::Signed("o", "u"));
        assert!(permits(Canned::PublicRead, nobody, false) && !permits(Canned::PublicRead, nobody, true));
        assert!(
            permits(Canned::AuthenticatedRead, stranger, false) && !permits(Canned::AuthenticatedRead, nobody, false)
        );
        assert!(!permits(Canned::Private, stranger, false) && permits(Canned::Private, owner, true));
        assert!(!permits(Canned::LogDeliveryWrite, stranger, false));
    }

    #[test]
    fn a_list_survives_being_kept() {
        let acl = Acl::canned(Canned::PublicReadWrite, "o", "b");
        let kept = serde_json::to_string(&acl).unwrap();
        assert!(kept.contains(r#"{"grantee":"all_users","permission":"READ"}"#), "{kept}");
        assert_eq!(serde_json::from_str::<Acl>(&kept).unwrap(), acl);
    }
}
