//! What buckets and objects say about access, as it stands in their rows.

use crate::engine::{BucketHandle, EngineError, VersionFacts};
use access::{Acl, Document, OfBucket, PublicAccessBlock, ResourceOwner};
use s3_wire::xml::request::ObjectOwnership;
use serde_json::Value;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

/// The names of a bucket's configurations that are about access.
pub(in crate::ops) const POLICY: &str = "policy";
pub(super) const ACL: &str = "acl";
pub(super) const OWNERSHIP: &str = "ownershipControls";
pub(in crate::ops) const PUBLIC_ACCESS_BLOCK: &str = "publicAccessBlock";
/// Set before the first object of another account is written: without it no object's owner has to
/// be looked up.
pub(super) const FOREIGN_OBJECTS: &str = "foreignObjects";
/// The value of [`OWNERSHIP`] in a bucket that has no controls. Buckets that were made before there
/// were any have no value, and behave as under `BucketOwnerEnforced`.
pub(super) const NO_CONTROLS: &str = "none";

/// What a bucket says about access.
#[derive(Debug, Default)]
pub(in crate::ops) struct BucketAccess {
    pub(super) policy: Option<Document>,
    pub(super) acl: Option<Acl>,
    pub(super) ownership: Ownership,
    pub(super) block: Option<PublicAccessBlock>,
    pub(super) foreign_objects: bool,
}

/// Who owns the objects of a bucket, and whether anybody said so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::ops) enum Ownership {
    /// The controls that were set.
    Controlled(ObjectOwnership),
    /// The bucket is older than controls: as under `BucketOwnerEnforced`, but that what its clients
    /// always sent goes on passing.
    Older,
    /// No controls: as under `ObjectWriter`.
    #[default]
    Uncontrolled,
}

impl Ownership {
    pub(super) fn acls_count(self) -> bool {
        !matches!(self, Self::Older | Self::Controlled(ObjectOwnership::BucketOwnerEnforced))
    }
}

/// What buckets say, parsed; each entry is held against the row before it is used.
#[derive(Default)]
pub(in crate::ops) struct AccessCache(Mutex<HashMap<i64, (Written, Arc<BucketAccess>)>>);

/// Buckets whose configuration is kept parsed.
const CACHED_MAX: usize = 4096;

/// The configurations as they stand in the row.
type Written = [Option<Value>; 3];

impl AccessCache {
    /// What a bucket says. Most say nothing, which costs nothing.
    pub(super) fn of(&self, bucket: &BucketHandle) -> Result<Arc<BucketAccess>, EngineError> {
        let configurations = &bucket.settings.configurations;
        let written = [POLICY, ACL, PUBLIC_ACCESS_BLOCK].map(|name| configurations.get(name));
        let foreign_objects = configurations.contains_key(FOREIGN_OBJECTS);
        let ownership = match configurations.get(OWNERSHIP).map(|value| value.as_str().unwrap_or_default()) {
            None => Ownership::Older,
            Some(NO_CONTROLS) => Ownership::Uncontrolled,
            Some(name) => Ownership::Controlled(ObjectOwnership::from_name(name).ok_or_else(|| {
                EngineError::Other(format!("ownership controls of bucket {}: {name:?}", bucket.row.name))
            })?),
        };
        if written.iter().all(Option::is_none) {
            return Ok(Arc::new(BucketAccess { ownership, foreign_objects, ..BucketAccess::default() }));
        }
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((then, access)) = cache.get(&bucket.row.id.0)
            && then.iter().map(Option::as_ref).eq(written)
            && (access.ownership, access.foreign_objects) == (ownership, foreign_objects)
        {
            return Ok(access.clone());
        }
        let access = Arc::new(BucketAccess::parse(bucket, written, ownership, foreign_objects)?);
        if cache.len() >= CACHED_MAX {
            cache.clear();
        }
        cache.insert(bucket.row.id.0, (written.map(Option::<&Value>::cloned), access.clone()));
        Ok(access)
    }
}

impl BucketAccess {
    fn parse(
        bucket: &BucketHandle,
        [policy, acl, block]: [Option<&Value>; 3],
        ownership: Ownership,
        foreign_objects: bool,
    ) -> Result<Self, EngineError> {
        let unreadable = |what: &str, error: &dyn std::fmt::Display| {
            EngineError::Other(format!("{what} of bucket {}: {error}", bucket.row.name))
        };
        let document = |text: &Value| {
            Document::of_bucket(text.as_str().unwrap_or_default().as_bytes(), &bucket.row.name)
                .map_err(|error| unreadable("policy", &error))
        };
        Ok(Self {
            policy: policy.map(document).transpose()?,
            acl: acl.map(acl_of_value).transpose().map_err(|error| unreadable("ACL", &error))?,
            ownership,
            block: block
                .map(|value| serde_json::from_value(value.clone()))
                .transpose()
                .map_err(|error| unreadable("public access block", &error))?,
            foreign_objects,
        })
    }

    pub(super) fn block(&self) -> PublicAccessBlock {
        self.block.unwrap_or_default()
    }

    /// The same for a decision, of a bucket with this owner.
    pub(super) fn owned_by<'a>(&'a self, owner: ResourceOwner<'a>) -> OfBucket<'a> {
        OfBucket {
            owner,
            policy: self.policy.as_ref(),
            acl: self.acl.as_ref(),
            acls_count: self.ownership.acls_count(),
            block: self.block(),
        }
    }
}

fn acl_of_value(value: &Value) -> Result<Acl, serde_json::Error> {
    serde_json::from_value(value.clone())
}

/// What an object has that decisions ask for.
pub(super) struct Seen {
    pub(super) owner: String,
    pub(super) acl: Option<Acl>,
    pub(super) tags: BTreeMap<String, String>,
}

impl Seen {
    pub(super) fn of(facts: &VersionFacts, bucket: &BucketHandle) -> Result<Self, EngineError> {
        let acl = facts.acl.as_ref().map(acl_of_value).transpose();
        Ok(Self {
            owner: facts.owner.clone().unwrap_or_else(|| bucket.row.owner.clone()),
            acl: acl
                .map_err(|error| EngineError::Other(format!("ACL of an object of {}: {error}", bucket.row.name)))?,
            tags: facts.tags.clone(),
        })
    }
}
