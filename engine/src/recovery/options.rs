//! What a recovery is asked for.

use catalog::{Catalog, Remains, Seq};
use std::{fmt, sync::Arc};

/// Is told how far a recovery is.
pub type RecoveryProgress = dyn Fn(&str, u64) + Send + Sync;

/// A catalog that went on from a state of its store while the store went on too. It is only read.
#[derive(Clone)]
pub struct Fork(pub Arc<dyn Catalog>);

impl fmt::Debug for Fork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fork")
    }
}

/// What is to be made of the store's remains.
#[derive(Clone, Debug)]
pub struct RecoveryOptions {
    /// The backup to begin with; the newest when absent.
    pub backup: Option<String>,
    /// Look into the manifests of blobs that neither backup nor journal knows.
    pub manifests: bool,
    /// Put what only manifests know under its own key where that holds nothing, instead of in
    /// quarantine.
    pub in_place: bool,
    /// End the replay at a journal blob that is damaged or missing, instead of giving up.
    pub stop_at_damage: bool,
    /// Go on behind journal blobs that are missing, instead of giving up.
    pub accept_hole: bool,
    /// Read documents that are not sealed and reach no further than this mutation, although the
    /// store has keys: it was sealed later.
    pub accept_unsealed_until: Option<Seq>,
    /// Make a catalog although it ends before what the anchor outside of the store knows.
    pub accept_less_than_anchor: bool,
    /// What a catalog that was set aside because it was damaged still tells: its journal goes on
    /// behind the one in the store.
    pub remains: Option<Remains>,
    /// A catalog that went on from a state of this store, while the store went on too: what only it
    /// knows is made again behind the store's journal.
    pub fork: Option<Fork>,
    /// The ETag of a multipart object from those of its parts in order, which is S3's business;
    /// `None` when one of them is none.
    pub etag_of_parts: fn(&[String]) -> Option<String>,
}
