//! Who may do what here: every operation is decided in this one place, from the user's policy, the
//! bucket's row and, where they matter, the object's facts. What a bucket says stands in its row,
//! which every request reads anyway: a change counts for the next request of every replica.

mod compartments;
mod configure;
mod context;
mod grants;
mod rules;
mod trial;

pub(super) use configure::{
    delete_ownership, get_ownership, get_policy, get_policy_status, get_public_access_block, put_ownership, put_policy,
    put_public_access_block,
};
pub(super) use context::user_id;
pub use grants::NEW_BUCKETS_OWNERSHIP;
pub(super) use grants::{get_acl, of_new_bucket, put_acl, reset_bucket_acl};

pub use trial::{Trial, TrialError, Verdict};

pub(super) use rules::{AccessCache, POLICY, PUBLIC_ACCESS_BLOCK};

use super::request::{InBucket, Result, S3Request};
use crate::engine::{BucketHandle, EngineError, Named, ObjectInfo};
use access::{AclOf, Document, MapContext, NoContext, OfObject, Permission, Question, Reason, Scope, decide, scope_of};
use catalog::VersionRef;
use context::RequestContext;
use http::HeaderMap;
use rules::{BucketAccess, Seen};
use s3_wire::{
    ErrorCode, Operation, S3Error, TagSet,
    headers::{AclHeaders, TaggingDirective, is_given, single},
};
use std::{collections::BTreeMap, sync::Arc};

/// What is to be done to what.
#[derive(Clone, Copy)]
struct Asked<'a> {
    action: &'a str,
    bucket: &'a BucketHandle,
    key: Option<&'a str>,
    version: Option<VersionRef>,
}

/// Lets a request in, or refuses it: the addressed bucket is looked up, and every action that the
/// request is made of must be allowed. Operations whose body matters to the decision, and those on
/// many keys, go on asking themselves. The bucket is noted in the request.
///
/// # Errors
/// `NoSuchBucket`, told to everybody, as S3 does, but by DeleteObjects; `AccessDenied`.
pub async fn admit(request: &mut S3Request) -> Result<()> {
    tracing::trace!(target: "path", "admit()");
    match request.operation {
        // A preflight is about a request that is still to come; who sends a form stands in it.
        Operation::OptionsObject | Operation::PostObject => return Ok(()),
        Operation::ListBuckets => {
            request.authorize_nowhere("s3:ListAllMyBuckets", "*")?;
            return Ok(());
        }
        Operation::CreateBucket if request.principal.user().is_none() => return Err(ErrorCode::AccessDenied.into()),
        Operation::CreateBucket => return Ok(()),
        _ => {}
    }
    let bucket = match request.bucket(request.bucket_name()?).await {
        // Its keys are decided one by one, as if the bucket were there: to who may delete none of
        // them, it looks like a bucket of somebody else.
        Err(error) if request.operation == Operation::DeleteObjects && error.code() == ErrorCode::NoSuchBucket => {
            return if request.principal.user().is_some() { Ok(()) } else { Err(request.denied("anything")) };
        }
        found => found?,
    };
    request.found = Some(bucket.clone());
    if request.operation == Operation::CreateMultipartUpload && request.principal.user().is_none() {
        let message = "Anonymous users cannot initiate multipart uploads. Please authenticate.";
        return Err(S3Error::with_message(ErrorCode::AccessDenied, message));
    }
    if matches!(request.operation, Operation::DeleteObjects | Operation::PutObjectTagging) {
        request.refuse_strangers(&bucket)?;
        return Ok(());
    }
    let version = request.version().ok().flatten();
    let action = if request.target.query.has("versionId") {
        request.operation.action_on_version()
    } else {
        request.operation.action()
    };
    let key = request.target.key.as_ref().map(|key| key.as_str());
    request.judge(Asked { action, bucket: &bucket, key, version }).await?;
    if matches!(request.operation, Operation::PutObject | Operation::CopyObject | Operation::CreateMultipartUpload) {
        request.authorize_additions(&bucket, request.key()?, None)?;
    }
    Ok(())
}

impl S3Request {
    /// Refuses what is not allowed on a bucket or a key of it.
    ///
    /// # Errors
    /// `AccessDenied`.
    pub(super) async fn authorize(&self, action: &str, bucket: &BucketHandle, key: Option<&str>) -> Result<()> {
        self.judge(Asked { action, bucket, key, version: None }).await
    }

    /// As [`S3Request::authorize`] for one version of a key.
    pub(super) async fn authorize_version(
        &self,
        action: &str,
        bucket: &BucketHandle,
        key: &str,
        version: Option<VersionRef>,
    ) -> Result<()> {
        self.judge(Asked { action, bucket, key: Some(key), version }).await
    }

    /// Whether an action is allowed on a bucket or a key, as far as that can be told without
    /// looking at the object.
    pub(super) fn may(&self, action: &str, bucket: &BucketHandle, key: Option<&str>) -> Result<bool> {
        let access = self.access_of(bucket)?;
        Ok(self.decide(&access, Asked { action, bucket, key, version: None }, None).0)
    }

    /// Whether the caller may be told that a key is not there: whoever may list a prefix that is
    /// the key sees as much.
    pub(super) fn may_miss(&self, bucket: &BucketHandle, key: &str) -> Result<bool> {
        let asked = Asked { action: "s3:ListBucket", bucket, key: None, version: None };
        let access = self.access_of(bucket)?;
        let context = RequestContext { prefix: Some(key), ..self.context(bucket) };
        Ok(self.decide_in(&access, asked, None, &context).0)
    }

    /// Refuses an action that is about no bucket that is there.
    pub(super) fn authorize_nowhere(&self, action: &str, resource: &str) -> Result<()> {
        let context = RequestContext { request: self, bucket: None, version: None, tags: None, prefix: None };
        let question = Question {
            caller: self.principal.caller(),
            identity: self.principal.identity(),
            action,
            resource,
            context: &context,
            bucket: None,
            object: None,
        };
        if decide(&question).allowed { Ok(()) } else { Err(self.denied(action)) }
    }

    fn context<'a>(&'a self, bucket: &'a BucketHandle) -> RequestContext<'a> {
        RequestContext { request: self, bucket: Some(bucket), version: None, tags: None, prefix: None }
    }

    /// The same request, whose body says that an object is to have these tags.
    pub(super) fn saying_tags(&self, tags: &TagSet) -> Self {
        let mut said = MapContext::default();
        for (key, value) in tags.clone().into_map() {
            said.add(&format!("s3:RequestObjectTag/{key}"), value);
            said.add("s3:RequestObjectTagKeys", key);
        }
        Self { said: Arc::new(said), ..self.clone() }
    }

    /// What a bucket says about access.
    pub(super) fn access_of(&self, bucket: &BucketHandle) -> Result<Arc<BucketAccess>> {
        self.service.access.of(bucket).map_err(|error| self.refusal(error))
    }

    /// Refuses those who do not sign where nothing could be open to them, before anything of their
    /// body is read.
    fn refuse_strangers(&self, bucket: &BucketHandle) -> Result<()> {
        let access = self.access_of(bucket)?;
        let closed = access.policy.is_none() && access.acl.is_none();
        if closed && self.principal.user().is_none() { Err(self.denied("anything")) } else { Ok(()) }
    }

    /// What a new object brings along needs to be allowed, too: tags, in a header or in `document`,
    /// grants, a lock. It is its owner's to say.
    pub(super) fn authorize_additions(
        &self,
        bucket: &BucketHandle,
        key: &str,
        document: Option<&TagSet>,
    ) -> Result<()> {
        let mut additions = additions(&self.headers)?;
        if document.is_some_and(|tags| !tags.is_empty()) {
            additions.push("s3:PutObjectTagging");
        }
        if additions.is_empty() {
            return Ok(());
        }
        let access = self.access_of(bucket)?;
        let owner = self.new_owner(&access, bucket)?.unwrap_or_else(|| bucket.row.owner.clone());
        let seen = Seen { owner, acl: None, tags: BTreeMap::new() };
        for action in additions {
            let asked = Asked { action, bucket, key: Some(key), version: None };
            let (allowed, open) = self.decide(&access, asked, Some(&seen));
            // Nobody has no policy that could allow it.
            let nobodys = self.principal.user().is_none() && seen.owner == self.principal.canonical_id();
            let own = matches!(action, "s3:PutObjectAcl" | "s3:PutObjectTagging");
            if !(allowed || open && nobodys && own) {
                return Err(self.denied(action));
            }
        }
        Ok(())
    }

    /// Decides. The object is looked at only when something asks for it: a condition about its
    /// tags, other owners in the bucket, or its own grants after everything else was silent.
    async fn judge(&self, asked: Asked<'_>) -> Result<()> {
        let access = self.access_of(asked.bucket)?;
        let of_object = asked.key.is_some() && scope_of(asked.action) == Some(Scope::Object);
        let asks = |document: Option<&Document>| document.is_some_and(Document::asks_for_the_object);
        let mut seen = None;
        let needed = access.foreign_objects && access.ownership.acls_count()
            || asks(access.policy.as_ref())
            || asks(self.principal.identity().policy)
            || asks(self.principal.identity().session);
        if of_object && needed && !self.principal.is_admin() || of_object && asks(access.policy.as_ref()) {
            seen = self.look(asked).await?;
        }
        let (mut allowed, open) = self.decide(&access, asked, seen.as_ref());
        let by_grant = Permission::for_action(asked.action).is_some_and(|(_, of)| of == AclOf::Object);
        if !allowed && open && seen.is_none() && of_object && by_grant && access.ownership.acls_count() {
            seen = self.look(asked).await?;
            allowed = seen.is_some() && self.decide(&access, asked, seen.as_ref()).0;
            if let (None, Some(key), None) = (&seen, asked.key, asked.version)
                && self.may_miss(asked.bucket, key)?
            {
                // Whoever may list sees that it is not there. What comes to be there in this moment
                // is still not given to those who may not read it.
                return Err(InBucket { request: self, bucket: asked.bucket.clone() }.missing(key).await?);
            }
        }
        if allowed { Ok(()) } else { Err(self.denied(asked.action)) }
    }

    /// Whether it is allowed, and if not, whether a grant could still allow it.
    fn decide(&self, access: &BucketAccess, asked: Asked<'_>, seen: Option<&Seen>) -> (bool, bool) {
        let context =
            RequestContext { version: asked.version, tags: seen.map(|seen| &seen.tags), ..self.context(asked.bucket) };
        self.decide_in(access, asked, seen, &context)
    }

    fn decide_in(
        &self,
        access: &BucketAccess,
        asked: Asked<'_>,
        seen: Option<&Seen>,
        context: &RequestContext<'_>,
    ) -> (bool, bool) {
        let Asked { action, bucket, key, version: _ } = asked;
        let resource = match key {
            Some(key) => format!("arn:aws:s3:::{}/{key}", bucket.row.name),
            None => format!("arn:aws:s3:::{}", bucket.row.name),
        };
        let question = Question {
            caller: self.principal.caller(),
            identity: self.principal.identity(),
            action,
            resource: &resource,
            context,
            bucket: Some(access.owned_by(self.users.resource_owner(&bucket.row.owner))),
            object: seen.map(|seen| OfObject { owner: self.users.resource_owner(&seen.owner), acl: seen.acl.as_ref() }),
        };
        let decision = decide(&question);
        if !decision.allowed {
            tracing::debug!(action, bucket = bucket.row.name, reason = %decision.reason, "not allowed");
        }
        (decision.allowed, matches!(decision.reason, Reason::Nothing | Reason::NotByOwner))
    }

    async fn look(&self, asked: Asked<'_>) -> Result<Option<Seen>> {
        let Some(key) = asked.key else { return Ok(None) };
        let engine = &self.service.engine;
        let found: Result<Option<ObjectInfo>, EngineError> = match asked.version {
            None => engine.read.head(asked.bucket, key).await,
            Some(version) => engine.read.head_version(asked.bucket, key, version).await.map(|found| match found {
                Some(Named::Object(info)) => Some(info),
                _ => None,
            }),
        };
        let found = found.map_err(|error| self.refusal(error))?;
        let seen = found.map(|info| Seen::of(&info.facts, asked.bucket)).transpose();
        seen.map_err(|error| self.refusal(error))
    }

    fn denied(&self, action: &str) -> S3Error {
        tracing::debug!(action, user = self.principal.user().map(|user| user.name.as_str()), "refused");
        self.service.metrics.auth_total.with_label_values(&["refused", "AccessDenied"]).inc();
        ErrorCode::AccessDenied.into()
    }
}

impl InBucket<'_> {
    /// Whether the caller may be told that a key is not there.
    pub(super) fn may_miss(&self, key: &str) -> Result<bool> {
        self.request.may_miss(&self.bucket, key)
    }
}

/// The further actions of a request that makes an object.
fn additions(headers: &HeaderMap) -> Result<Vec<&'static str>> {
    let mut actions = Vec::new();
    let replaced =
        TaggingDirective::from_headers(headers).is_ok_and(|directive| directive == TaggingDirective::Replace);
    let copied = is_given(headers, "x-amz-copy-source");
    if (replaced || !copied) && TagSet::from_headers(headers)?.is_some_and(|tags| !tags.is_empty()) {
        actions.push("s3:PutObjectTagging");
    }
    match AclHeaders::from_headers(headers)? {
        // What an object has without them.
        None => {}
        Some(AclHeaders::Canned(name)) if matches!(name.as_str(), "private" | "bucket-owner-full-control") => {}
        Some(_) => actions.push("s3:PutObjectAcl"),
    }
    if is_given(headers, "x-amz-object-lock-mode") || is_given(headers, "x-amz-object-lock-retain-until-date") {
        actions.push("s3:PutObjectRetention");
    }
    if single(headers, "x-amz-object-lock-legal-hold")?.is_some_and(|hold| hold != "OFF") {
        actions.push("s3:PutObjectLegalHold");
    }
    Ok(actions)
}

/// Refuses who may not create a bucket, or not give it what the request gives it.
pub(super) fn authorize_creation(request: &S3Request, name: &str) -> Result<()> {
    let resource = format!("arn:aws:s3:::{name}");
    request.authorize_nowhere("s3:CreateBucket", &resource)?;
    if request.headers.contains_key("x-amz-object-ownership") {
        request.authorize_nowhere("s3:PutBucketOwnershipControls", &resource)?;
    }
    match AclHeaders::from_headers(&request.headers)? {
        None => Ok(()),
        Some(AclHeaders::Canned(name)) if name == "private" => Ok(()),
        Some(_) => request.authorize_nowhere("s3:PutBucketAcl", &resource),
    }
}

/// Whether a user's policy lets it see a bucket that is its account's.
pub(super) fn sees(request: &S3Request, bucket: &str) -> bool {
    let question = Question {
        caller: request.principal.caller(),
        identity: request.principal.identity(),
        action: "s3:ListBucket",
        resource: &format!("arn:aws:s3:::{bucket}"),
        context: &NoContext,
        bucket: None,
        object: None,
    };
    decide(&question).allowed
}
