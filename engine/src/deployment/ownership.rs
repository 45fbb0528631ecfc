//! Whose place is this? A backend's directory or prefix belongs to one deployment (E22;
//! docs/format/owner-v1.md).
//!
//! A deployment is its catalog: all its replicas find one id there. In every backend lies a chain
//! of records, `owner/…1`, `owner/…2` and so on, each written once; the last one says who owns the
//! place. A catalog that finds another deployment's id does not start: both would take the other's
//! blobs for garbage. `restore` and `rebuild` append a record, and what ran over the place before
//! stops collecting and reports itself unready.

mod records;

use crate::{deployment::keyring::random, error::EngineError, resources::clock::now_ms};
use catalog::{Catalog, CatalogError, UnixMs};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};
use storage_backends::{Backend, BlobName, get_all, put_bytes};

/// The setting that holds the deployment's id.
pub(crate) const DEPLOYMENT_SETTING: &str = "deployment";
/// What a record says it is. Part of the format (docs/format/owner-v1.md).
const FORMAT: &str = "deltaweir owner 1";
/// The longest record that is read.
const RECORD_LEN_MAX: u64 = 4096;
/// How often a record is written before the store is not believed any more; once, unless others
/// come at the same time.
const ROUNDS_MAX: usize = 8;

/// A deployment's id: 128 random bits in hex.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Deployment {
    id: String,
}

/// What to do about a place that is another deployment's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strangers {
    /// Leave it to them.
    Refuse,
    /// Take it over.
    Replace,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    format: String,
    deployment: String,
    since_ms: UnixMs,
}

/// A record with its place in the chain.
#[derive(Clone)]
struct Claim {
    generation: u64,
    name: BlobName,
    len: u64,
    record: Record,
    /// The record before it names the same deployment.
    is_second: bool,
}

/// The backends of a running process, and the records by which they were this deployment's at the
/// last look.
pub(crate) struct Places {
    deployment: Deployment,
    places: Vec<Place>,
}

struct Place {
    name: String,
    backend: Arc<dyn Backend>,
    /// A directory of this machine: asking it costs next to nothing, and one that does not answer
    /// is gone.
    is_local: bool,
    seen: Mutex<Option<Arc<Claim>>>,
}

impl Deployment {
    /// A new one.
    ///
    /// # Errors
    /// [`EngineError::Other`] without randomness.
    pub(crate) fn new() -> Result<Self, EngineError> {
        Ok(Self { id: hex::encode(random::<16>()?) })
    }

    /// The catalog's; it gets one when it has none. Replicas that start together find the same.
    /// `true`: it was made just now.
    ///
    /// # Errors
    /// What the catalog says.
    pub(crate) async fn of(catalog: &dyn Catalog) -> Result<(Self, bool), EngineError> {
        let mut made = false;
        loop {
            if let Some(setting) = catalog.setting(DEPLOYMENT_SETTING).await? {
                let deployment = serde_json::from_value(setting).map_err(|error| {
                    EngineError::Other(format!("the catalog's setting {DEPLOYMENT_SETTING}: {error}"))
                })?;
                return Ok((deployment, made));
            }
            made = true;
            let value = serde_json::to_value(Self::new()?).map_err(|error| EngineError::Other(error.to_string()))?;
            match catalog.create_setting(DEPLOYMENT_SETTING, value).await {
                Ok(()) | Err(CatalogError::Exists) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sees to it that every backend is this deployment's.
    ///
    /// # Errors
    /// [`EngineError::Other`] that says what to do when one is another's; what the backends say.
    pub(crate) async fn own(
        &self,
        backends: &BTreeMap<String, Arc<dyn Backend>>,
        strangers: Strangers,
    ) -> Result<(), EngineError> {
        for (name, backend) in backends {
            self.own_one(name, &**backend, strangers).await?;
        }
        Ok(())
    }

    async fn own_one(&self, name: &str, backend: &dyn Backend, strangers: Strangers) -> Result<(), EngineError> {
        for _ in 0..ROUNDS_MAX {
            let last = last_claim(backend).await?;
            let generation = match &last {
                // Who takes a place over writes two records: a write of somebody who gave up may
                // still be on its way, and it is for the name that was free before the first.
                Some(claim)
                    if claim.record.deployment == self.id && (strangers == Strangers::Refuse || claim.is_second) =>
                {
                    return Ok(());
                }
                Some(claim) if claim.record.deployment == self.id => claim.generation + 1,
                Some(claim) if strangers == Strangers::Refuse => return Err(foreign(name, &claim.record)),
                Some(claim) => {
                    tracing::warn!(backend = name, from = claim.record.deployment, "a place is taken over");
                    claim.generation + 1
                }
                None => 1,
            };
            let record = Record { format: FORMAT.to_owned(), deployment: self.id.clone(), since_ms: now_ms() };
            let bytes = serde_json::to_vec(&record).map_err(|error| EngineError::Other(error.to_string()))?;
            let put = put_bytes(backend, &record_name(generation)?, bytes.into()).await;
            // What counts is what is there afterwards: somebody was faster, or ours was stored and
            // we did not hear of it, or, where creation is not exclusive, another one has written
            // over it.
            if let Err(error) = put
                && last_claim(backend).await?.is_none_or(|claim| claim.generation < generation)
            {
                return Err(error.into());
            }
        }
        Err(EngineError::Unavailable(format!("backend {name:?} does not give back the ownership record it was given")))
    }

    /// Refuses a place without a record although the catalog knows blobs in it: a disk that is not
    /// mounted, another bucket. Stores of before there were records have a catalog without a
    /// deployment: they are not asked.
    ///
    /// # Errors
    /// [`EngineError::Other`] that says what to do; what catalog and backends say.
    pub(crate) async fn refuse_empty(
        catalog: &dyn Catalog,
        backends: &BTreeMap<String, Arc<dyn Backend>>,
    ) -> Result<(), EngineError> {
        for (name, backend) in backends {
            if last_claim(&**backend).await?.is_none() && catalog.has_blobs_in(name).await? {
                return Err(EngineError::Other(format!(
                    "{}, and the catalog knows blobs in it. Mount the disk, or name the bucket and prefix that hold them. If they are \
                     gone for good, `--accept-older-catalog` serves what is left, once",
                    recordless(name)
                )));
            }
        }
        Ok(())
    }
}

/// A place that is not this deployment's any more.
#[derive(Debug)]
pub(crate) struct LostPlace {
    /// What to do.
    pub(crate) why: EngineError,
    /// Whether it is a directory.
    pub(crate) is_directory: bool,
}

impl Places {
    /// The backends that are this deployment's now. One that cannot be asked is not known to be.
    ///
    /// # Errors
    /// [`EngineError`] that says what to do when one was taken over since the start.
    pub(crate) async fn owned(&self) -> Result<BTreeSet<String>, EngineError> {
        let mut owned = BTreeSet::new();
        for place in &self.places {
            match place.lost(&self.deployment).await {
                Ok(None) => drop(owned.insert(place.name.clone())),
                Ok(Some(why)) => return Err(why),
                Err(error) => {
                    tracing::warn!(%error, backend = place.name, "a backend has no readable owner: nothing is removed");
                }
            }
        }
        Ok(owned)
    }

    pub(crate) fn new(
        deployment: Deployment,
        backends: &BTreeMap<String, Arc<dyn Backend>>,
        is_local: impl Fn(&str) -> bool,
    ) -> Self {
        let place = |(name, backend): (&String, &Arc<dyn Backend>)| Place {
            name: name.clone(),
            backend: backend.clone(),
            is_local: is_local(name),
            seen: Mutex::default(),
        };
        Self { deployment, places: backends.iter().map(place).collect() }
    }

    /// How many requests a look takes, once it has found the records.
    pub(crate) fn requests(&self) -> u32 {
        2 * u32::try_from(self.places.len()).unwrap_or(1)
    }

    /// Why some place is not this deployment's any more; `None` while all are. A directory that
    /// does not answer is lost; another store that does not is not known to be.
    ///
    /// # Errors
    /// What a backend says when it cannot be asked.
    pub(crate) async fn lost(&self) -> Result<Option<LostPlace>, EngineError> {
        for place in &self.places {
            let lost = |why| Some(LostPlace { why, is_directory: place.is_local });
            match place.lost(&self.deployment).await {
                Ok(None) => {}
                Ok(Some(why)) => return Ok(lost(why)),
                Err(error) if place.is_local => return Ok(lost(unreadable(&place.name, &error))),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Whether a place is a directory.
    pub(crate) fn has_directory(&self) -> bool {
        self.places.iter().any(|place| place.is_local)
    }

    /// The same of directories alone, by whether their last record is where it was: cheap enough to
    /// be asked before every commit.
    pub(crate) async fn directory_lost(&self) -> Option<EngineError> {
        for place in self.places.iter().filter(|place| place.is_local) {
            let Some(claim) = place.seen() else { continue };
            let found = match place.backend.head_at_once(&claim.name) {
                Some(found) => found,
                None => place.backend.head(&claim.name).await,
            };
            match found {
                Ok(Some(len)) if len == claim.len => {}
                Ok(_) => return Some(EngineError::NotCurrent(recordless(&place.name))),
                Err(error) => return Some(unreadable(&place.name, &EngineError::from(error))),
            }
        }
        None
    }
}

impl Place {
    fn seen(&self) -> Option<Arc<Claim>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why it is not `deployment`'s any more; `None` while it is.
    async fn lost(&self, deployment: &Deployment) -> Result<Option<EngineError>, EngineError> {
        // What counted at the last look is still there, and nothing came after it: two requests,
        // however long the chain.
        if let Some(seen) = self.seen()
            && self.still_counts(&seen).await?
        {
            return Ok(None);
        }
        let (lost, found) = match last_claim(&*self.backend).await? {
            Some(claim) if claim.record.deployment == deployment.id => (None, Some(claim)),
            Some(claim) => (Some(foreign(&self.name, &claim.record)), None),
            None => (Some(EngineError::NotCurrent(recordless(&self.name))), None),
        };
        // What was seen before stays where the place is lost: directories are held against it.
        if found.is_some() {
            *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = found.map(Arc::new);
        }
        Ok(lost)
    }

    async fn still_counts(&self, seen: &Claim) -> Result<bool, EngineError> {
        let name = &seen.name;
        // A directory is the one that was opened, so its record is the one that was read; another
        // store may be another one by now.
        let same = match self.is_local {
            true => self.backend.head(name).await? == Some(seen.len),
            false => match get_all(&*self.backend, name, seen.len).await? {
                Some(bytes) => serde_json::from_slice::<Record>(&bytes).ok().as_ref() == Some(&seen.record),
                None => false,
            },
        };
        if !same {
            return Ok(false);
        }
        let next = record_name(seen.generation + 1)?;
        // Stores answer HEAD without a code, so an absent name costs a second question there: GET
        // is one.
        match self.is_local {
            true => Ok(self.backend.head(&next).await?.is_none()),
            false => Ok(self.backend.get(&next, 0..1).await?.is_none()),
        }
    }
}

/// A record with its length; `None` when there is none of this name.
///
/// # Errors
/// [`EngineError::Integrity`] when it is no record; what the backend says.
async fn read_record(backend: &dyn Backend, name: &BlobName) -> Result<Option<(u64, Record)>, EngineError> {
    let Some(len) = backend.head(name).await? else { return Ok(None) };
    let unclear = |why: &str| EngineError::Integrity(format!("{name} is no ownership record: {why}"));
    if len > RECORD_LEN_MAX {
        return Err(unclear("it is too long"));
    }
    let Some(bytes) = get_all(backend, name, len).await? else { return Ok(None) };
    let record: Record = serde_json::from_slice(&bytes).map_err(|error| unclear(&error.to_string()))?;
    if record.format != FORMAT {
        return Err(unclear("it is of another format"));
    }
    Ok(Some((len, record)))
}

/// The record that counts; records are few, since each takes a restore.
async fn last_claim(backend: &dyn Backend) -> Result<Option<Claim>, EngineError> {
    let mut last: Option<Claim> = None;
    for generation in 1.. {
        let name = record_name(generation)?;
        let Some((len, record)) = read_record(backend, &name).await? else { break };
        let is_second = last.is_some_and(|before| before.record.deployment == record.deployment);
        last = Some(Claim { generation, name, len, record, is_second });
    }
    Ok(last)
}

fn record_name(generation: u64) -> Result<BlobName, EngineError> {
    Ok(BlobName::new(format!("owner/{generation:016x}"))?)
}

fn recordless(backend: &str) -> String {
    format!(
        "backend {backend:?} has lost its ownership record: what it holds was removed, or another place is mounted there"
    )
}

fn unreadable(backend: &str, error: &EngineError) -> EngineError {
    EngineError::NotCurrent(format!("the directory of backend {backend:?} cannot be read: {error}"))
}

fn foreign(backend: &str, record: &Record) -> EngineError {
    EngineError::NotCurrent(format!(
        "backend {backend:?} belongs to another deployment ({}, for {}): two catalogs over one place would remove each \
         other's blobs. Give this deployment a bucket, a prefix or a directory of its own. If the other one is gone for good, \
         `deltaweir restore` or `deltaweir rebuild` with an empty catalog makes its catalog again and takes the place over",
        record.deployment,
        ago(now_ms() - record.since_ms),
    ))
}

/// A span of time as a person says it.
fn ago(span_ms: UnixMs) -> String {
    let minutes = span_ms.max(0) / 60_000;
    match (minutes / (24 * 60), minutes / 60) {
        (0, 0) => format!("{minutes} minutes"),
        (0, hours) => format!("{hours} hours"),
        (days, _) => format!("{days} days"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::iter::once;
    use storage_backends::{Fault, FaultSchedule, Faulty, MemoryBackend};

    fn places(backend: impl Backend) -> BTreeMap<String, Arc<dyn Backend>> {
        once(("cloud".to_owned(), Arc::new(backend) as Arc<dyn Backend>)).collect()
    }

    fn refusal(outcome: Result<(), EngineError>) -> String {
        outcome.expect_err("another deployment's").to_string()
    }

    async fn has(deployment: &Deployment, places: &BTreeMap<String, Arc<dyn Backend>>) -> bool {
        Places::new(deployment.clone(), places, |_| false).lost().await.unwrap().is_none()
    }

    #[tokio::test]
    async fn a_place_belongs_to_who_came_first() {
        let places = places(MemoryBackend::new());
        let (first, second) = (Deployment::new().unwrap(), Deployment::new().unwrap());
        for _ in 0..2 {
            first.own(&places, Strangers::Refuse).await.unwrap();
        }
        let why = refusal(second.own(&places, Strangers::Refuse).await);
        assert!(why.contains("\"cloud\" belongs to another deployment") && why.contains(&first.id), "{why}");
        assert!(why.contains("a prefix or a directory of its own") && why.contains("deltaweir rebuild"), "{why}");
        assert!(has(&first, &places).await);
    }

    #[tokio::test]
    async fn of_many_that_come_at_once_one_gets_the_place() {
        for _ in 0..50 {
            let places = places(MemoryBackend::new());
            let racers: Vec<Deployment> = (0..8).map(|_| Deployment::new().unwrap()).collect();
            let outcomes =
                futures::future::join_all(racers.iter().map(|racer| racer.own(&places, Strangers::Refuse))).await;
            let winners: Vec<_> = racers.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_ok()).collect();
            assert_eq!(winners.len(), 1);
            assert!(has(winners[0].0, &places).await);
        }
    }

    #[tokio::test]
    async fn who_takes_a_place_over_has_it_and_who_had_it_knows() {
        let places = places(MemoryBackend::new());
        let (old, new) = (Deployment::new().unwrap(), Deployment::new().unwrap());
        old.own(&places, Strangers::Replace).await.unwrap();
        new.own(&places, Strangers::Replace).await.unwrap();
        assert!(has(&new, &places).await && !has(&old, &places).await);
        refusal(old.own(&places, Strangers::Refuse).await);
        old.own(&places, Strangers::Replace).await.unwrap();
        assert!(has(&old, &places).await && !has(&new, &places).await);
    }

    /// A take-over that gave up: its record is still on its way, to the name that was free then.
    async fn late_record(places: &BTreeMap<String, Arc<dyn Backend>>) -> (BlobName, bytes::Bytes) {
        let free = last_claim(&*places["cloud"]).await.unwrap().map_or(1, |claim| claim.generation + 1);
        let record = Record { format: FORMAT.to_owned(), deployment: Deployment::new().unwrap().id, since_ms: 1 };
        (record_name(free).unwrap(), serde_json::to_vec(&record).unwrap().into())
    }

    #[tokio::test]
    async fn a_record_that_arrives_after_the_next_take_over_takes_nothing_away() {
        for earlier_writes in 0..3 {
            let places = places(MemoryBackend::new());
            Deployment::new().unwrap().own(&places, Strangers::Refuse).await.unwrap();
            let mut late = vec![late_record(&places).await];
            // Further ones gave up behind their first record.
            for _ in 0..earlier_writes {
                let (name, bytes) = late_record(&places).await;
                put_bytes(&*places["cloud"], &name, bytes).await.unwrap();
                late.push(late_record(&places).await);
            }
            let owner = Deployment::new().unwrap();
            owner.own(&places, Strangers::Replace).await.unwrap();
            let watched = Places::new(owner.clone(), &places, |_| false);
            assert!(watched.lost().await.unwrap().is_none());
            for (name, bytes) in late {
                // As in a store that knows no conditions: what was there is replaced.
                places["cloud"].delete(&name).await.unwrap();
                put_bytes(&*places["cloud"], &name, bytes).await.unwrap();
                assert!(watched.lost().await.unwrap().is_none() && has(&owner, &places).await, "{name}");
                owner.own(&places, Strangers::Refuse).await.unwrap();
            }
        }
    }

    #[tokio::test]
    async fn a_record_whose_answer_was_lost_is_found_again() {
        let lost = FaultSchedule::At { call: 1, fault: Fault::CommitThenError };
        let places = places(Faulty::new(MemoryBackend::new(), lost));
        Deployment::new().unwrap().own(&places, Strangers::Refuse).await.unwrap();
    }

    #[tokio::test]
    async fn a_place_that_was_emptied_is_not_owned_any_more() {
        let places = places(MemoryBackend::new());
        let owner = Deployment::new().unwrap();
        owner.own(&places, Strangers::Refuse).await.unwrap();
        let watched = Places::new(owner.clone(), &places, |_| true);
        assert!(watched.lost().await.unwrap().is_none() && watched.directory_lost().await.is_none());
        places["cloud"].delete(&record_name(1).unwrap()).await.unwrap();
        let lost = watched.lost().await.unwrap().expect("it is lost");
        assert!(lost.is_directory);
        for lost in [Some(lost.why), watched.directory_lost().await] {
            let why = lost.expect("it is lost").to_string();
            assert!(why.contains("has lost its ownership record"), "{why}");
        }
    }

    #[tokio::test]
    async fn a_place_that_became_anothers_while_it_was_watched_is_lost() {
        let places = places(MemoryBackend::new());
        let (old, new) = (Deployment::new().unwrap(), Deployment::new().unwrap());
        old.own(&places, Strangers::Refuse).await.unwrap();
        let watched = Places::new(old.clone(), &places, |_| false);
        assert!(watched.lost().await.unwrap().is_none());
        new.own(&places, Strangers::Replace).await.unwrap();
        let lost = watched.lost().await.unwrap().expect("it is lost");
        assert!(!lost.is_directory && lost.why.to_string().contains("belongs to another deployment"), "{lost:?}");
    }

    #[tokio::test]
    async fn what_is_no_record_is_an_error_and_nobodys_place() {
        for content in ["", "{}", "{\"format\": \"other\", \"deployment\": \"d\", \"since_ms\": 1}"] {
            let places = places(MemoryBackend::new());
            put_bytes(&*places["cloud"], &record_name(1).unwrap(), content.into()).await.unwrap();
            let why = refusal(Deployment::new().unwrap().own(&places, Strangers::Replace).await);
            assert!(why.contains("is no ownership record"), "{why}");
        }
    }
}
