//! The decision: identity policy, bucket policy and lists of grants together.
//!
//! 1. A Deny of any policy wins. (A bucket's account can always repair its policy.)
//! 2. Within one account the identity policy or the bucket policy must allow.
//! 3. Between accounts the caller's identity policy must allow, and the owner's side too: the
//!    bucket policy or a grant.
//! 4. Who does not sign is allowed what the bucket policy or a grant allows everybody.
//!
//! Nothing is allowed by default. A bucket without a policy and without grants is open to users of
//! its own account whose identity policy allows the action, and to nobody else.
//!
//! An object that another account wrote into a bucket that leaves objects to their writers belongs
//! to that account: the bucket's policy allows nothing about it, its own list of grants does.

use crate::{
    acl::{Acl, AclOf, Grant, Permission, Requester},
    actions::{Scope, scope_of},
    context::Context,
    document::{Document, Finding, FindingBelow, Statement},
    principal::{Caller, Match},
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The four switches of PublicAccessBlock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PublicAccessBlock {
    /// Lists that grant something to the public are refused.
    pub block_public_acls: bool,
    /// Grants to the public count for nothing.
    pub ignore_public_acls: bool,
    /// Public policies are refused.
    pub block_public_policy: bool,
    /// A public policy allows nothing to other accounts and to those who do not sign.
    pub restrict_public_buckets: bool,
}

/// What the caller's own side allows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Identity<'a> {
    /// Whether the caller may do everything that no policy denies.
    pub admin: bool,
    /// The caller's policy.
    pub policy: Option<&'a Document>,
    /// The policy of the session, which allows no more than it says.
    pub session: Option<&'a Document>,
}

/// Who owns a bucket or object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceOwner<'a> {
    /// The number of the account.
    pub account: &'a str,
    /// The canonical id it owns it by.
    pub id: &'a str,
}

/// The bucket a request is about.
#[derive(Clone, Copy, Debug)]
pub struct OfBucket<'a> {
    /// Its owner.
    pub owner: ResourceOwner<'a>,
    /// Its policy.
    pub policy: Option<&'a Document>,
    /// Its grants; `None` where none were set.
    pub acl: Option<&'a Acl>,
    /// Whether grants count; they do not where the bucket's owner owns everything.
    pub acls_count: bool,
    /// Its PublicAccessBlock.
    pub block: PublicAccessBlock,
}

/// The object a request is about.
#[derive(Clone, Copy, Debug)]
pub struct OfObject<'a> {
    /// Its owner.
    pub owner: ResourceOwner<'a>,
    /// Its grants; `None` where none were set.
    pub acl: Option<&'a Acl>,
}

/// May this caller do this?
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// Who asks; `None` when nobody signed.
    pub caller: Option<&'a Caller>,
    /// The caller's side.
    pub identity: Identity<'a>,
    /// Such as `s3:GetObject`.
    pub action: &'a str,
    /// The ARN of what it is done to; `*` for none.
    pub resource: &'a str,
    /// The values of condition keys.
    pub context: &'a dyn Context,
    /// The bucket, when there is one.
    pub bucket: Option<OfBucket<'a>>,
    /// The object, when it is there and has been looked at.
    pub object: Option<OfObject<'a>>,
}

/// The answer, and what decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision<'a> {
    /// Whether the caller may.
    pub allowed: bool,
    /// What decided.
    pub reason: Reason<'a>,
}

/// What decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason<'a> {
    /// The caller is an administrator.
    Admin,
    /// A statement, counted from 0, of the caller's policy.
    IdentityPolicy(usize, &'a Statement),
    /// A statement of the session's policy.
    SessionPolicy(usize, &'a Statement),
    /// A statement of the bucket's policy.
    BucketPolicy(usize, &'a Statement),
    /// A grant of a list.
    Grant(AclOf, &'a Grant),
    /// The caller's own account owns it, and the caller's policy allows it.
    Owner,
    /// No statement and no grant allows it.
    Nothing,
    /// The owner's side allows it, the caller's own account does not.
    NotByIdentity,
    /// The caller's policy allows it, the account that owns it does not.
    NotByOwner,
}

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let statement = |f: &mut fmt::Formatter<'_>, of: &str, index: &usize, statement: &Statement| {
            let effect = if statement.allow { "allows" } else { "denies" };
            match statement.sid() {
                Some(sid) => write!(f, "statement {index} ({sid}) of {of} {effect} it"),
                None => write!(f, "statement {index} of {of} {effect} it"),
            }
        };
        match self {
            Self::Admin => f.write_str("the user is an administrator"),
            Self::IdentityPolicy(index, which) => statement(f, "the user's policy", index, which),
            Self::SessionPolicy(index, which) => statement(f, "the session's policy", index, which),
            Self::BucketPolicy(index, which) => statement(f, "the bucket policy", index, which),
            Self::Grant(of, grant) => {
                let of = if *of == AclOf::Bucket { "bucket" } else { "object" };
                let whom = grant.grantee.uri().map(str::to_owned).unwrap_or_else(|| match &grant.grantee {
                    crate::Grantee::Id(id) => id.clone(),
                    _ => String::new(),
                });
                write!(f, "the {of}'s ACL grants {} to {whom}", grant.permission.as_str())
            }
            Self::Owner => f.write_str("the user's account owns the object"),
            Self::Nothing => f.write_str("no statement and no grant allows it"),
            Self::NotByIdentity => f.write_str("the bucket's side allows it, but the user's own policy does not"),
            Self::NotByOwner => f.write_str(
                "the user's policy allows it, but the bucket or object is another account's, which does not",
            ),
        }
    }
}

/// Decides.
pub fn decide<'a>(question: &Question<'a>) -> Decision<'a> {
    let Question { caller, identity, action, resource, context, .. } = *question;
    let of = |policy: Option<&'a Document>| {
        policy.map_or(Finding::Nothing, |policy| policy.evaluate(caller, action, resource, context))
    };
    let deny = |reason| Decision { allowed: false, reason };
    let allow = |reason| Decision { allowed: true, reason };
    let (own, session) = (of(identity.policy), of(identity.session));
    if let Finding::Deny(index, statement) = own {
        return deny(Reason::IdentityPolicy(index, statement));
    }
    if let Finding::Deny(index, statement) = session {
        return deny(Reason::SessionPolicy(index, statement));
    }
    let by_bucket = of(question.bucket.and_then(|bucket| bucket.policy));
    if let Finding::Deny(index, statement) = by_bucket
        && !question.repairs_the_policy()
    {
        return deny(Reason::BucketPolicy(index, statement));
    }
    if identity.session.is_some() && session == Finding::Nothing {
        return deny(Reason::NotByIdentity);
    }
    if identity.admin {
        return allow(Reason::Admin);
    }
    let by_identity = match own {
        Finding::Allow { index, statement, .. } => Some(Reason::IdentityPolicy(index, statement)),
        _ => None,
    };
    let Some(bucket) = question.bucket else {
        return by_identity.map_or(deny(Reason::Nothing), allow);
    };
    let object = question.foreign_object(&bucket);
    let owner = object.map_or(bucket.owner, |object| object.owner);
    let in_account = caller.is_some_and(|caller| caller.account == owner.account);
    let by_policy = match by_bucket {
        Finding::Allow { index, statement, directly } if object.is_none() && bucket.policy_counts_for(caller) => {
            Some((Reason::BucketPolicy(index, statement), directly))
        }
        _ => None,
    };
    if in_account {
        let by_name = by_policy.filter(|(_, directly)| *directly).map(|(reason, _)| reason);
        let by_owner = by_identity.map(|reason| if object.is_some() { Reason::Owner } else { reason });
        return by_owner.or(by_name).map_or(deny(Reason::Nothing), allow);
    }
    let by_owner = by_policy.map(|(reason, _)| reason).or_else(|| question.by_grant(&bucket));
    match (by_owner, caller, by_identity) {
        (Some(reason), None, _) | (Some(reason), Some(_), Some(_)) => allow(reason),
        (Some(_), Some(_), None) => deny(Reason::NotByIdentity),
        (None, Some(_), Some(_)) => deny(Reason::NotByOwner),
        (None, ..) => deny(Reason::Nothing),
    }
}

/// Whether policies let a caller do something to every object whose ARN begins with the question's
/// resource, whatever it is called, whoever wrote it, and whatever tags it has. Errs on the side of
/// no; grants do not count. Where other accounts own objects, which no policy of the bucket's
/// speaks for, only an administrator's yes is one: the question's object says nothing here.
pub fn allows_all_below(question: &Question<'_>) -> bool {
    let Question { caller, identity, action, resource, context, bucket, .. } = *question;
    let of = |policy: Option<&Document>| {
        policy.map_or(FindingBelow::default(), |policy| policy.evaluate_below(caller, action, resource, context))
    };
    let (own, session, by_bucket) =
        (of(identity.policy), of(identity.session), of(bucket.and_then(|bucket| bucket.policy)));
    let narrowed = identity.session.is_some() && session.allows == Match::No;
    if own.may_deny || session.may_deny || by_bucket.may_deny || narrowed {
        return false;
    }
    if identity.admin {
        return true;
    }
    let Some(bucket) = bucket else { return false };
    let by_policy = if bucket.policy_counts_for(caller) { by_bucket.allows } else { Match::No };
    match caller {
        Some(caller) if caller.account == bucket.owner.account => own.allows != Match::No || by_policy == Match::Caller,
        Some(_) => own.allows != Match::No && by_policy != Match::No,
        None => by_policy != Match::No,
    }
}

impl OfBucket<'_> {
    fn policy_counts_for(&self, caller: Option<&Caller>) -> bool {
        let in_account = caller.is_some_and(|caller| caller.account == self.owner.account);
        in_account || !self.block.restrict_public_buckets || !self.policy.is_some_and(Document::is_public)
    }
}

impl<'a> Question<'a> {
    /// An administrator of the bucket's account may always replace a policy that locks everybody
    /// out.
    fn repairs_the_policy(&self) -> bool {
        let about_policy = ["s3:GetBucketPolicy", "s3:PutBucketPolicy", "s3:DeleteBucketPolicy"].contains(&self.action);
        about_policy && self.identity.admin && self.identity.session.is_none()
    }

    /// The object, when it is another account's than the bucket and the action is its owner's to
    /// allow. Who may write and delete keys is the bucket's.
    fn foreign_object(&self, bucket: &OfBucket<'a>) -> Option<OfObject<'a>> {
        let of_owner = scope_of(self.action) == Some(Scope::Object)
            && !matches!(
                self.action,
                "s3:PutObject"
                    | "s3:DeleteObject"
                    | "s3:DeleteObjectVersion"
                    | "s3:AbortMultipartUpload"
                    | "s3:ListMultipartUploadParts"
                    | "s3:BypassGovernanceRetention"
            );
        self.object.filter(|object| of_owner && bucket.acls_count && object.owner.account != bucket.owner.account)
    }

    fn by_grant(&self, bucket: &OfBucket<'a>) -> Option<Reason<'a>> {
        if !bucket.acls_count {
            return None;
        }
        let (permission, of) = Permission::for_action(self.action)?;
        let acl = match of {
            AclOf::Bucket => bucket.acl,
            AclOf::Object => self.object?.acl,
        }?;
        let requester = match self.caller {
            None => Requester::Anonymous,
            Some(caller) => Requester::Signed(&caller.canonical_id, &caller.own_id),
        };
        let grant = acl.grant(requester, permission, bucket.block.ignore_public_acls)?;
        Some(Reason::Grant(of, grant))
    }
}

#[cfg(test)]
#[path = "decision_tests.rs"]
mod tests;
