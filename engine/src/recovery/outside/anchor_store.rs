//! An anchor in another store: small documents, each named by the place in the history that it
//! notes. Stores replace nothing on a condition, so nothing is replaced: who notes a later place
//! writes another document, and then removes those that it stands on. Of two replicas that do so at
//! once, neither removes what the other says.
//!
//! ```text
//! PREFIX/LINEAGE-SEQ-RANDOM       00000001-0000000a-00000000000004d2-9f86d081
//! ```

use super::anchor_file::{AnchorDocument, NotedPlace, failed};
use crate::{deployment::keyring::random, error::EngineError, recovery::names::Lineage};
use catalog::Seq;
use futures::TryStreamExt as _;
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use storage_backends::{Backend, BackendError, BlobName, put_bytes};

/// Documents that could not be removed yet are remembered up to so many.
const LEFT_MAX: usize = 64;

/// What this process knows of the documents.
#[derive(Default)]
struct Known {
    /// Whether it has looked.
    is_listed: bool,
    /// Those that are there and not removed.
    documents: Vec<(BlobName, NotedPlace)>,
}

/// An anchor in a store, which replicas share.
pub(super) struct AnchorStore {
    backend: Arc<dyn Backend>,
    /// What an operator calls it.
    name: String,
    prefix: String,
    known: Mutex<Known>,
}

impl fmt::Display for AnchorStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "store:{}/{}", self.name, self.prefix)
    }
}

impl AnchorStore {
    pub(super) fn new(backend: Arc<dyn Backend>, name: String, prefix: String) -> Self {
        Self { backend, name, prefix, known: Mutex::default() }
    }

    /// What the documents say.
    ///
    /// # Errors
    /// [`EngineError::Other`] when the store cannot be asked, or one of them is not understood:
    /// then nothing is known.
    pub(super) async fn read(&self) -> Result<Vec<NotedPlace>, EngineError> {
        Ok(self.list().await?.into_iter().map(|(_, place)| place).collect())
    }

    /// Notes a place, unless one that stands on it is noted already.
    ///
    /// # Errors
    /// [`EngineError::Other`] when the store does not take it, or cannot be asked.
    pub(super) async fn raise(&self, place: NotedPlace) -> Result<(), EngineError> {
        if !self.known().is_listed {
            let documents = self.list().await?;
            *self.known() = Known { is_listed: true, documents };
        }
        if self.known().documents.iter().any(|(_, noted)| stands_on(*noted, place)) {
            return Ok(());
        }
        let name = self.write(place).await?;
        let documents = std::mem::take(&mut self.known().documents);
        let (passed, mut left): (Vec<_>, Vec<_>) =
            documents.into_iter().partition(|(_, noted)| stands_on(place, *noted));
        for (passed, noted) in passed {
            // The note stands. What is still there says less, and goes another time.
            if let Err(error) = self.backend.delete(&passed).await {
                tracing::debug!(%error, anchor = %self, "an older document is left for now");
                left.push((passed, noted));
            }
        }
        left.truncate(LEFT_MAX);
        left.push((name, place));
        self.known().documents = left;
        Ok(())
    }

    /// Notes a place and removes whatever else is noted.
    ///
    /// # Errors
    /// [`EngineError::Other`] when the store cannot be asked, or does not do it.
    pub(super) async fn set(&self, place: NotedPlace) -> Result<(), EngineError> {
        let others = self.list().await?;
        let name = self.write(place).await?;
        for (other, _) in others {
            self.backend.delete(&other).await.map_err(|error| self.failed("lower", &error))?;
        }
        *self.known() = Known { is_listed: true, documents: vec![(name, place)] };
        Ok(())
    }

    async fn list(&self) -> Result<Vec<(BlobName, NotedPlace)>, EngineError> {
        let listed = self.backend.list(&format!("{}/", self.prefix)).map_err(|error| self.failed("read", &error));
        let understood = listed.and_then(|found| async move {
            let place = place_in(&found.name, &self.prefix);
            let place =
                place.ok_or_else(|| failed("understand", self, &format!("{} is no document of it", found.name)));
            place.map(|place| (found.name, place))
        });
        understood.try_collect().await
    }

    async fn write(&self, place: NotedPlace) -> Result<BlobName, EngineError> {
        let text = AnchorDocument::of(place).encode().map_err(|error| failed("write", self, &error))?;
        let (lineage, seq) = place;
        let name = format!("{}/{lineage}-{seq:016x}-{}", self.prefix, hex::encode(random::<4>()?));
        let name = BlobName::new(name).map_err(|error| self.failed("write", &error))?;
        put_bytes(&*self.backend, &name, text.into()).await.map_err(|error| self.failed("write", &error))?;
        Ok(name)
    }

    fn failed(&self, what: &str, error: &BackendError) -> EngineError {
        failed(what, self, error)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Nothing panics while it holds the lock.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place that a document's name notes; `None` for what is none.
fn place_in(name: &BlobName, prefix: &str) -> Option<NotedPlace> {
    let name = name.as_str().strip_prefix(prefix)?.strip_prefix('/')?;
    let (rest, random) = name.rsplit_once('-')?;
    let (lineage, seq) = rest.rsplit_once('-')?;
    let lineage: Lineage = lineage.parse().ok()?;
    let place = (lineage, Seq::from_str_radix(seq, 16).ok()?);
    let is_ours = random.len() == 8 && name == format!("{lineage}-{:016x}-{random}", place.1);
    is_ours.then_some(place)
}

/// Whether who is there has all that another place tells of. Of two lineages of one generation
/// neither has what the other has.
fn stands_on(place: NotedPlace, other: NotedPlace) -> bool {
    place.0.generation() > other.0.generation() || place.0 == other.0 && place.1 >= other.1
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage_backends::MemoryBackend;

    fn place(generation: u32, id: u32, seq: Seq) -> NotedPlace {
        (format!("{generation:08x}-{id:08x}").parse().expect("a lineage"), seq)
    }

    fn replica(backend: &Arc<MemoryBackend>) -> AnchorStore {
        AnchorStore::new(backend.clone(), "elsewhere".into(), "anchor".into())
    }

    async fn noted(backend: &Arc<MemoryBackend>) -> Vec<NotedPlace> {
        let mut found = replica(backend).read().await.expect("read");
        found.sort_by_key(|(lineage, seq)| (lineage.to_string(), *seq));
        found
    }

    #[tokio::test]
    async fn a_later_place_takes_the_room_of_those_it_stands_on_and_an_earlier_one_is_not_noted() {
        let backend = Arc::new(MemoryBackend::new());
        let one = replica(&backend);
        for seq in [3, 10, 7] {
            one.raise(place(1, 10, seq)).await.expect("noted");
            assert!(noted(&backend).await.iter().all(|noted| noted.1 >= seq));
        }
        assert_eq!(noted(&backend).await, [place(1, 10, 10)]);
        // A process that starts now finds it.
        let other = replica(&backend);
        other.raise(place(1, 10, 9)).await.expect("said already");
        assert_eq!(noted(&backend).await, [place(1, 10, 10)]);
        other.raise(place(2, 11, 4)).await.expect("noted");
        assert_eq!(noted(&backend).await, [place(2, 11, 4)], "a later lineage stands on it");
        other.raise(place(2, 12, 900)).await.expect("noted");
        assert_eq!(noted(&backend).await.len(), 2, "a sibling does not");
        one.set(place(2, 12, 3)).await.expect("an operator said so");
        assert_eq!(noted(&backend).await, [place(2, 12, 3)]);
    }

    #[tokio::test]
    async fn of_two_replicas_that_note_at_once_neither_removes_what_the_other_says() {
        let backend = Arc::new(MemoryBackend::new());
        let replicas = [replica(&backend), replica(&backend)];
        for seq in 1..200 {
            let [one, other] = &replicas;
            let (one, other) =
                futures::join!(one.raise(place(1, 10, seq * 2)), other.raise(place(1, 10, seq * 2 + seq % 3)));
            one.and(other).expect("noted");
            let found = noted(&backend).await;
            assert!(found.iter().any(|noted| noted.1 >= seq * 2 + seq % 3), "{seq}: {found:?}");
            assert!(found.len() <= replicas.len(), "{seq}: {found:?}");
        }
    }

    #[tokio::test]
    async fn what_is_no_document_of_it_is_no_permission() {
        for name in ["anchor/x", "anchor/00000001-0000000a-4d2-9f86d081", "anchor/00000001-0000000a-00000000000004d2-"]
        {
            let backend = Arc::new(MemoryBackend::new());
            let Ok(name) = BlobName::new(name) else { continue };
            put_bytes(&*backend, &name, "x".into()).await.expect("stored");
            assert!(replica(&backend).read().await.is_err(), "{name}");
            assert!(replica(&backend).raise(place(1, 10, 1)).await.is_err(), "{name}");
        }
        assert_eq!(noted(&Arc::new(MemoryBackend::new())).await, []);
    }
}
