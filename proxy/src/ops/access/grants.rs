//! Lists of grants: what a request asks for, what is kept, and what is answered. Where everything
//! stands as it would without a list, none is kept.

use super::{
    super::{
        body::RequestBody,
        request::{Answer, InBucket, Result, S3Request, document, empty},
        versions,
    },
    rules::{ACL, BucketAccess, FOREIGN_OBJECTS, NO_CONTROLS, OWNERSHIP, Ownership, Seen},
};
use crate::{
    auth::Users,
    engine::{BucketHandle, VersionFacts, notify::Event},
};
use access::{Acl, Canned, Grant, Grantee, Permission, PublicAccessBlock};
use http::StatusCode;
use s3_wire::{
    ErrorCode, Operation, S3Error,
    checksum::Claims,
    headers::{AclHeaders, single},
    xml::{
        request::{AccessControlRequest, ObjectOwnership, WrittenGrant, WrittenGrantee},
        response::{AccessControlPolicy, ListedGrant, ListedGrantee},
    },
};
use serde_json::{Value, json};

/// The ownership of a bucket whose creator does not say: none is controlled, objects are their
/// writers', and lists of grants count.
pub const NEW_BUCKETS_OWNERSHIP: &str = NO_CONTROLS;

/// How often a list is set on a key that others overwrite all the time.
const TRIES_MAX: usize = 16;

/// The configurations of a new bucket that are about access.
pub(in crate::ops) fn of_new_bucket(request: &S3Request) -> Result<Vec<(&'static str, Value)>> {
    let ownership = match single(&request.headers, "x-amz-object-ownership")? {
        None => None,
        Some(name) => Some(ObjectOwnership::from_name(name).ok_or_else(|| {
            S3Error::invalid_argument(
                "x-amz-object-ownership",
                name,
                format!("Invalid x-amz-object-ownership header: {name}"),
            )
        })?),
    };
    let name = ownership.map_or(NEW_BUCKETS_OWNERSHIP, ObjectOwnership::as_str);
    let mut configurations = vec![(OWNERSHIP, Value::from(name))];
    let owner = request.principal.canonical_id();
    let asked = AclHeaders::from_headers(&request.headers)?;
    let acl = asked.map(|asked| acl_of_headers(&request.users, &asked, owner, owner)).transpose()?;
    if let Some(acl) = acl.filter(|acl| !acl.is_private(owner)) {
        if name == ObjectOwnership::BucketOwnerEnforced.as_str() {
            return Err(ErrorCode::InvalidBucketAclWithObjectOwnership.into());
        }
        configurations.push((ACL, json!(acl)));
    }
    Ok(configurations)
}

impl S3Request {
    /// The owner of an object that this request makes; `None`: the bucket's.
    pub(super) fn new_owner(&self, access: &BucketAccess, bucket: &BucketHandle) -> Result<Option<String>> {
        let account = self.principal.caller().map_or("", |caller| &caller.account);
        if account == self.users.resource_owner(&bucket.row.owner).account {
            return Ok(None);
        }
        let writer = Some(self.principal.canonical_id().to_owned());
        Ok(match access.ownership {
            Ownership::Older | Ownership::Controlled(ObjectOwnership::BucketOwnerEnforced) => None,
            Ownership::Controlled(ObjectOwnership::BucketOwnerPreferred) => {
                writer.filter(|_| self.headers.get("x-amz-acl").is_none_or(|name| name != "bucket-owner-full-control"))
            }
            Ownership::Controlled(ObjectOwnership::ObjectWriter) | Ownership::Uncontrolled => writer,
        })
    }
}

impl InBucket<'_> {
    /// Who owns an object of the bucket, or what an upload will make.
    pub(in crate::ops) fn owner_of<'a>(&'a self, facts: &'a VersionFacts) -> &'a str {
        facts.owner.as_deref().unwrap_or(&self.bucket.row.owner)
    }

    /// Gives a new object its owner and the grants that the request asks for.
    pub(in crate::ops) async fn own(&self, facts: &mut VersionFacts) -> Result<()> {
        let access = self.access_of(&self.bucket)?;
        facts.owner = self.new_owner(&access, &self.bucket)?;
        let bucket_owner = &self.bucket.row.owner;
        let owner = facts.owner.as_ref().unwrap_or(bucket_owner).clone();
        facts.acl = None;
        if let Some(asked) = AclHeaders::from_headers(&self.headers)? {
            let acl = acl_of_headers(&self.users, &asked, &owner, bucket_owner)?;
            if !access.ownership.acls_count() {
                access.ownership.check_unlisted(&asked)?;
            } else if !acl.is_private(&owner) {
                check_public(&acl, access.block())?;
                facts.acl = Some(json!(acl));
            }
        }
        if facts.owner.is_some() && !access.foreign_objects {
            self.configure(FOREIGN_OBJECTS, Some(true.into())).await?;
        }
        Ok(())
    }

    fn listed(&self, owner: &str, acl: Option<&Acl>) -> Answer {
        let private = Acl::private(owner);
        // Groups first, as in the ACLs that have a name.
        let (groups, accounts): (Vec<_>, Vec<_>) =
            acl.unwrap_or(&private).grants().iter().partition(|grant| !matches!(grant.grantee, Grantee::Id(_)));
        let grants = groups.into_iter().chain(accounts).map(|Grant { grantee, permission }| ListedGrant {
            grantee: match grantee {
                Grantee::Id(id) => ListedGrantee::Account(self.users.owner(id)),
                group => ListedGrantee::Group(group.uri().unwrap_or_default()),
            },
            permission: permission.as_str(),
        });
        document(&AccessControlPolicy { owner: self.users.owner(owner), grants: grants.collect() })
    }

    /// The list a request sets: by name, by headers, or as its document.
    async fn wanted_acl(&self, owner: &str, body: &[u8], access: &BucketAccess) -> Result<Acl> {
        let by_headers = AclHeaders::from_headers(&self.headers)?;
        let bucket_owner = &self.bucket.row.owner;
        let (acl, unlisted) = match (by_headers, body) {
            (Some(asked), []) => {
                let unlisted = access.ownership.check_unlisted(&asked).is_ok();
                (acl_of_headers(&self.users, &asked, owner, bucket_owner)?, unlisted)
            }
            (None, []) => return Err(ErrorCode::MissingSecurityHeader.into()),
            (Some(_), _) => return Err(ErrorCode::UnexpectedContent.into()),
            (None, document) => {
                let request = AccessControlRequest::parse(document)?;
                if request.grants.iter().any(|grant| Permission::parse(&grant.permission).is_none()) {
                    return Err(ErrorCode::MalformedACLError.into());
                }
                if request.owner.is_some_and(|named| named != owner) {
                    return Err(ErrorCode::AccessDenied.into());
                }
                let acl = acl_of_grants(&self.users, &request.grants)?;
                let unlisted = acl.is_private(owner);
                (acl, unlisted)
            }
        };
        if !access.ownership.acls_count() {
            return if unlisted {
                Ok(Acl::private(owner))
            } else {
                Err(ErrorCode::AccessControlListNotSupported.into())
            };
        }
        check_public(&acl, access.block())?;
        Ok(acl)
    }
}

/// Gives a bucket that its owner makes again the grants of the request: none, when it names none.
pub(in crate::ops) async fn reset_bucket_acl(request: &S3Request, bucket: BucketHandle) -> Result<()> {
    let here = InBucket { request, bucket };
    let access = request.access_of(&here.bucket)?;
    let owner = &here.bucket.row.owner;
    let asked = AclHeaders::from_headers(&request.headers)?;
    let acl = match &asked {
        None => Acl::private(owner),
        Some(asked) => acl_of_headers(&request.users, asked, owner, owner)?,
    };
    let kept = Some(acl).filter(|acl| !acl.is_private(owner));
    if access.acl == kept {
        return Ok(());
    }
    if !access.ownership.acls_count() {
        return asked.map_or(Ok(()), |asked| access.ownership.check_unlisted(&asked));
    }
    request.authorize("s3:PutBucketAcl", &here.bucket, None).await?;
    if let Some(acl) = &kept {
        check_public(acl, access.block())?;
    }
    here.configure(ACL, kept.map(|acl| json!(acl))).await
}

/// Answers with the grants of a bucket, of an object or of a version of it.
pub(in crate::ops) async fn get_acl(request: &S3Request) -> Result<Answer> {
    match request.operation {
        Operation::GetBucketAcl => get_bucket_acl(request).await,
        _ => get_object_acl(request).await,
    }
}

/// Replaces them.
pub(in crate::ops) async fn put_acl(request: &S3Request, body: &mut RequestBody) -> Result<Answer> {
    match request.operation {
        Operation::PutBucketAcl => put_bucket_acl(request, body).await,
        _ => put_object_acl(request, body).await,
    }
}

async fn get_bucket_acl(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    let access = request.access_of(&here.bucket)?;
    let acl = access.acl.as_ref().filter(|_| access.ownership.acls_count());
    Ok(here.listed(&here.bucket.row.owner, acl))
}

async fn put_bucket_acl(request: &S3Request, body: &mut RequestBody) -> Result<Answer> {
    let claims = Claims::from_headers(&request.headers, &request.payload)?;
    let text = request.document(claims, body).await?;
    let here = request.in_bucket().await?;
    let access = request.access_of(&here.bucket)?;
    let owner = &here.bucket.row.owner;
    let acl = here.wanted_acl(owner, &text, &access).await?;
    here.configure(ACL, (!acl.is_private(owner)).then(|| json!(acl))).await?;
    Ok(empty(StatusCode::OK))
}

async fn get_object_acl(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    let info = here.addressed(request.key()?).await?;
    let seen = Seen::of(&info.facts, &here.bucket).map_err(|error| request.refusal(error))?;
    let counts = request.access_of(&here.bucket)?.ownership.acls_count();
    let mut answer =
        if counts { here.listed(&seen.owner, seen.acl.as_ref()) } else { here.listed(&here.bucket.row.owner, None) };
    versions::write(answer.headers_mut(), &here.bucket, info.version.reference());
    Ok(answer)
}

async fn put_object_acl(request: &S3Request, body: &mut RequestBody) -> Result<Answer> {
    let claims = Claims::from_headers(&request.headers, &request.payload)?;
    let text = request.document(claims, body).await?;
    let here = request.in_bucket().await?;
    let key = request.key()?;
    let access = request.access_of(&here.bucket)?;
    for _ in 0..TRIES_MAX {
        let info = here.addressed(key).await?;
        let owner = here.owner_of(&info.facts);
        let acl = here.wanted_acl(owner, &text, &access).await?;
        let kept = (!acl.is_private(owner)).then(|| json!(acl));
        let cause = request.cause(&here.bucket, Event::AclPut);
        let set = request
            .service
            .engine
            .changes
            .amend(&here.bucket, key, info.version.id, cause.as_ref(), |facts| facts.acl.clone_from(&kept))
            .await;
        // A version that is gone was overwritten: the grants are for its successor.
        if set.map_err(|error| request.refusal(error))? {
            let mut answer = empty(StatusCode::OK);
            versions::write(answer.headers_mut(), &here.bucket, info.version.reference());
            return Ok(answer);
        }
    }
    Err(ErrorCode::OperationAborted.into())
}

impl Ownership {
    /// Where grants do not count, only the one passes that S3 lets pass: that the bucket's owner
    /// may do everything. `private` does not.
    fn check_unlisted(self, asked: &AclHeaders) -> Result<()> {
        match asked {
            AclHeaders::Canned(name) if name == "bucket-owner-full-control" => Ok(()),
            AclHeaders::Canned(name) if name == "private" && self == Self::Older => Ok(()),
            _ => Err(ErrorCode::AccessControlListNotSupported.into()),
        }
    }
}

fn check_public(acl: &Acl, block: PublicAccessBlock) -> Result<()> {
    if block.block_public_acls && acl.is_public() { Err(ErrorCode::AccessDenied.into()) } else { Ok(()) }
}

fn acl_of_headers(users: &Users, asked: &AclHeaders, owner: &str, bucket_owner: &str) -> Result<Acl> {
    match asked {
        AclHeaders::Canned(name) => {
            let canned = Canned::parse(name).ok_or_else(|| S3Error::invalid_argument("x-amz-acl", name, ""))?;
            Ok(Acl::canned(canned, owner, bucket_owner))
        }
        AclHeaders::Grants(grants) => acl_of_grants(users, grants),
    }
}

fn acl_of_grants(users: &Users, grants: &[WrittenGrant]) -> Result<Acl> {
    let grant = |WrittenGrant { grantee, permission }: &WrittenGrant| {
        let grantee = match grantee {
            WrittenGrantee::Id(id) if users.knows(id) => Grantee::Id(id.clone()),
            WrittenGrantee::Id(id) => return Err(S3Error::invalid_argument("CanonicalUser/ID", id, "Invalid id")),
            WrittenGrantee::Uri(uri) => {
                Grantee::of_uri(uri).ok_or_else(|| S3Error::invalid_argument("Group/URI", uri, "Invalid group uri"))?
            }
            WrittenGrantee::Email(email) => Grantee::Id(
                users
                    .id_of_email(email)
                    .ok_or_else(|| {
                        S3Error::new(ErrorCode::UnresolvableGrantByEmailAddress).field("EmailAddress", email)
                    })?
                    .to_owned(),
            ),
        };
        let permission = Permission::parse(permission).ok_or_else(|| S3Error::new(ErrorCode::MalformedACLError))?;
        Ok(Grant { grantee, permission })
    };
    Ok(Acl::new(grants.iter().map(grant).collect::<Result<_>>()?))
}
