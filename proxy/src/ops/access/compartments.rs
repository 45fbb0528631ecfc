//! Among whose content a write may look for bases and duplicates: among what the writer may read
//! anyway, so that neither sizes nor times tell it anything new
//! (docs/decisions/0036-compartments.md).

use super::{
    super::request::{InBucket, Result},
    rules::BucketAccess,
};
use crate::engine::{Isolation, Sharing};
use access::{Question, allows_all_below};

impl InBucket<'_> {
    /// The same bucket for writing one of its keys.
    pub(in crate::ops) fn writing(mut self, key: &str) -> Result<Self> {
        let writer = self.principal.writer_id();
        let own = writer.as_deref().map_or(Sharing::Nothing, Sharing::Writer);
        let sharing = match self.bucket.settings.isolation {
            Some(Isolation::Bucket) => Sharing::Bucket,
            Some(Isolation::Prefix) => Sharing::Prefix(first_element(key)),
            Some(Isolation::Strict) => own,
            None | Some(Isolation::Policy) => self.sharing_by_policy(key)?.unwrap_or(own),
        };
        let bucket = self.bucket.sharing(sharing).map_err(|error| self.refusal(error))?;
        let peer = || self.peer.map_or_else(|| "nobody".to_owned(), |peer| format!("peer {peer}"));
        self.bucket = bucket.acting_for(&self.principal.party().unwrap_or_else(peer));
        Ok(self)
    }

    /// The most of the bucket that the writer may read all of; `None`: not even its prefix.
    fn sharing_by_policy<'k>(&self, key: &'k str) -> Result<Option<Sharing<'k>>> {
        let access = self.access_of(&self.bucket)?;
        let prefix = first_element(key);
        Ok(if self.reads_all_below(&access, "") {
            Some(Sharing::Bucket)
        } else if !prefix.is_empty() && self.reads_all_below(&access, prefix) {
            Some(Sharing::Prefix(prefix))
        } else {
            None
        })
    }

    fn reads_all_below(&self, access: &BucketAccess, prefix: &str) -> bool {
        let bucket = &self.bucket;
        let identity = self.principal.identity();
        // What other accounts own is theirs to show, object by object.
        if access.foreign_objects && access.ownership.acls_count() && !identity.admin {
            return false;
        }
        let resource = format!("arn:aws:s3:::{}/{prefix}", bucket.row.name);
        let may = |action| {
            allows_all_below(&Question {
                caller: self.principal.caller(),
                identity,
                action,
                resource: &resource,
                context: &self.context(bucket),
                bucket: Some(access.owned_by(self.users.resource_owner(&bucket.row.owner))),
                object: None,
            })
        };
        may("s3:GetObject") && (bucket.row.versioning.is_off() || may("s3:GetObjectVersion"))
    }
}

/// A key's first path element with its slash; empty for a key without one.
fn first_element(key: &str) -> &str {
    key.find('/').map_or("", |slash| &key[..=slash])
}
