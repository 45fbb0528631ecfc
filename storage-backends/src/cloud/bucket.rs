//! What all calls to one bucket of a cloud share.

use super::{connector::ExclusiveCreate, queue::Removals, refusal::failure, settings::UploadOptions};
use crate::{BackendError, BlobName, ErrorKind, KeyBound, Listed, Repeats, Result, UnfinishedUploads};
use object_store::{
    GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, list::PaginatedListStore, multipart::MultipartStore,
    path::Path,
};
use std::sync::{Arc, OnceLock};

/// The faces of a store that are used here.
pub(crate) trait Store: ObjectStore + PaginatedListStore + MultipartStore {}

impl<S: ObjectStore + PaginatedListStore + MultipartStore> Store for S {}

/// What all calls share.
pub(crate) struct Bucket {
    pub(crate) store: Arc<dyn Store>,
    /// Where the store can say which uploads in parts were never completed.
    pub(crate) unfinished: Option<Box<dyn UnfinishedUploads>>,
    /// Starts every name in the bucket; empty or with a `/` at its end.
    pub(crate) prefix: String,
    pub(crate) upload: UploadOptions,
    pub(crate) exclusive: ExclusiveCreate,
    /// Whether a single put is followed by a HEAD, because the store does not check a checksum of
    /// ours.
    pub(crate) confirms_single_puts: bool,
    /// Whether a listing lacks the object that is called exactly like the prefix, as `object_store`
    /// makes it for Azure.
    pub(crate) listing_lacks_the_prefix: bool,
    pub(crate) key_bound: KeyBound,
    /// Where the store takes lists of names to remove.
    pub(crate) removals: Option<Removals>,
    /// What repeats the requests of uploads and lists of removals; without it none is.
    pub(crate) repeats: OnceLock<Repeats>,
}

/// What the next page of a listing is asked for with, behind the page asked for with `token`.
///
/// # Errors
/// [`ErrorKind::Corrupt`] where the store points to the page that it has just given: it would be
/// asked without end.
pub(crate) fn next_page(token: Option<&str>, next: Option<String>) -> Result<Option<String>> {
    match next.is_some() && next.as_deref() == token {
        true => Err(BackendError::new(ErrorKind::Corrupt, "the listing does not move on")),
        false => Ok(next),
    }
}

impl Bucket {
    pub(super) fn path(&self, name: &BlobName) -> Result<Path> {
        self.path_of(name.as_str())
    }

    pub(super) fn path_of(&self, name: &str) -> Result<Path> {
        Path::parse(format!("{}{name}", self.prefix)).map_err(|error| {
            let message = format!("the prefix {:?} is no path", self.prefix);
            BackendError::with_source(ErrorKind::Invalid, message, error)
        })
    }

    /// The length of the object at `path`, if there is one.
    pub(crate) async fn head(&self, path: &Path) -> Result<Option<u64>> {
        match self.store.head(path).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(error) => {
                let (refused, error) = failure("ask for", path, error);
                match refused {
                    Some(refused) if refused.means_absent() => Ok(None),
                    // An answer to HEAD has no body, hence no code: a missing bucket looks the
                    // same. GET tells.
                    Some(refused) if refused.status == 404 => self.head_by_get(path).await,
                    _ => Err(error),
                }
            }
        }
    }

    async fn head_by_get(&self, path: &Path) -> Result<Option<u64>> {
        match self.store.get_opts(path, GetOptions::default()).await {
            Ok(found) => Ok(Some(found.meta.size)),
            Err(error) => match failure("ask for", path, error) {
                (Some(refused), _) if refused.means_absent() => Ok(None),
                (_, error) => Err(error),
            },
        }
    }

    /// Removes the object at `path`, if there is one.
    pub(crate) async fn delete(&self, path: &Path) -> Result<()> {
        let Err(error) = self.store.delete(path).await else { return Ok(()) };
        // Azure removes in batches, whose inner answers object_store has judged itself: it knows a
        // missing blob from a missing container.
        let judged_absent = matches!(error, object_store::Error::NotFound { .. });
        match failure("remove", path, error) {
            (Some(refused), _) if refused.means_absent() => Ok(()),
            (None, _) if judged_absent => Ok(()),
            (_, error) => Err(error),
        }
    }

    /// What a listing says of one object; `None` for objects that are not blobs.
    pub(super) fn listed(&self, object: ObjectMeta) -> Option<Listed> {
        let name = object.location.as_ref().strip_prefix(&self.prefix)?;
        let name = BlobName::new(name).ok()?;
        Some(Listed { name, stored_len: object.size, modified: Some(object.last_modified.into()) })
    }

    /// What a listing would say of one object.
    pub(super) async fn listed_alone(&self, name: BlobName) -> Result<Option<Listed>> {
        let stored_len = self.head(&self.path(&name)?).await?;
        Ok(stored_len.map(|stored_len| Listed { name, stored_len, modified: None }))
    }
}
