//! Ownership records that were damaged or removed are written again by a process that has seen
//! them and finds its blobs where they were.

use super::{Claim, Deployment, Place, Places, Record, foreign, read_record, record_name};
use crate::{
    deployment::documents::{Found, Look, look, verdict, write_again},
    error::EngineError,
};
use futures::TryStreamExt;
use std::sync::Arc;
use storage_backends::{Backend, BlobName};

/// A record that is not what it was.
pub(crate) struct LostRecord {
    generation: u64,
    found: Look<Record>,
}

/// The chain of a place as it was found.
pub(crate) struct Records {
    /// Records that are well.
    pub(crate) well: u64,
    /// And those that are not.
    pub(crate) lost: Vec<LostRecord>,
}

impl Places {
    /// Names of the backends.
    pub(crate) fn names(&self) -> Vec<String> {
        self.places.iter().map(|place| place.name.clone()).collect()
    }

    /// Reads the chain of a place, as far as this process has seen it.
    ///
    /// # Errors
    /// [`EngineError::NotCurrent`] when another deployment has the place; what the backend says.
    pub(crate) async fn records(&self, name: &str) -> Result<Records, EngineError> {
        let (place, seen) = self.seen(name)?;
        place.refuse_newer(seen.generation).await?;
        let mut records = Records { well: 0, lost: Vec::new() };
        for generation in 1..=seen.generation {
            match place.look_at(&seen, generation).await? {
                Look::Good(record) if generation == seen.generation && record.deployment != self.deployment.id => {
                    return Err(foreign(name, &record));
                }
                Look::Good(_) => records.well += 1,
                found => records.lost.push(LostRecord { generation, found }),
            }
        }
        Ok(records)
    }

    /// Writes them again. Call it when the place is known to be the one that was opened.
    pub(crate) async fn write_records(&self, name: &str, lost: Vec<LostRecord>) -> Vec<(BlobName, Found)> {
        let mut outcomes = Vec::new();
        for LostRecord { generation, found } in lost {
            let Ok(record_name) = record_name(generation) else { continue };
            let outcome = match self.seen(name) {
                Ok((place, seen)) => place.write_record(&self.deployment, &seen, generation, &found).await,
                Err(error) => Found::Unreachable(error.to_string()),
            };
            outcomes.push((record_name, outcome));
        }
        outcomes
    }

    fn seen(&self, name: &str) -> Result<(&Place, Arc<Claim>), EngineError> {
        let place = self.places.iter().find(|place| place.name == name);
        let place = place.ok_or_else(|| EngineError::Other(format!("backend {name:?} is not configured")))?;
        let seen = place.seen().ok_or_else(|| EngineError::Unavailable(format!("backend {name:?} was never seen")))?;
        Ok((place, seen))
    }
}

impl Place {
    async fn look_at(&self, seen: &Claim, generation: u64) -> Result<Look<Record>, EngineError> {
        let name = record_name(generation)?;
        let read = || async {
            let Some((_, record)) = read_record(&*self.backend, &name).await? else { return Ok(None) };
            // A directory creates exclusively, so what came after ours has another name.
            if self.is_local && generation == seen.generation && record != seen.record {
                return Err(EngineError::Integrity(format!("{name} is not the record that was there")));
            }
            Ok(Some(record))
        };
        look(read).await
    }

    /// What came after the record that counted is for the next look to judge.
    async fn refuse_newer(&self, generation: u64) -> Result<(), EngineError> {
        let last = record_name(generation)?;
        let mut listing = self.backend.list("owner/");
        while let Some(listed) = listing.try_next().await? {
            if listed.name.as_str() > last.as_str() {
                return Err(EngineError::NotCurrent(format!(
                    "backend {:?} has an ownership record {} that this process has not seen",
                    self.name, listed.name
                )));
            }
        }
        Ok(())
    }

    async fn write_record(
        &self,
        deployment: &Deployment,
        seen: &Claim,
        generation: u64,
        found: &Look<Record>,
    ) -> Found {
        // Of an earlier one nobody knows whose it was; the last one counts.
        let record = match generation == seen.generation {
            true => seen.record.clone(),
            false => Record { deployment: deployment.id.clone(), ..seen.record.clone() },
        };
        let written = async {
            let bytes = serde_json::to_vec(&record).map_err(|error| EngineError::Other(error.to_string()))?;
            write_again(&*self.backend, &record_name(generation)?, found, bytes.into()).await
        };
        let written = written.await;
        verdict(found.why().unwrap_or_default(), written, self.look_at(seen, generation).await)
    }
}
