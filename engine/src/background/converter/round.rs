//! One round of the converter: what it has done, and whether it may go on.

use crate::{
    background::{
        jobs::run::JobRun,
        reencode::{Occasion, Reform, Wish},
        settling::Settling,
    },
    bases::base::Avoided,
    bucket::BucketHandle,
    config::ConvertConfig,
    resources::{clock::now_ms, disks::Disks, pace::Pace, pool::CodecPool},
};
use delta_codec::Effort;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Looks at the codec pool that must find it idle before a blob is taken on.
const IDLE_LOOKS: usize = 3;
/// Between two such looks.
const IDLE_LOOK_EVERY: Duration = Duration::from_millis(20);
/// What was encoded anew, by why.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tallies {
    /// By occasion.
    pub(super) converted: BTreeMap<String, Tally>,
    /// Blobs left as they were, because it would have gained nothing.
    pub(super) kept: u64,
    /// Blobs that could not be read or written; the log has why.
    pub(super) failed: u64,
    /// Blobs left for want of room in their backend's file system.
    pub(super) without_room: u64,
    /// Blobs left for want of memory for their base.
    #[serde(default)]
    pub(super) without_memory: u64,
}

/// Sums of one occasion.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(super) blobs: u64,
    pub(super) plain_bytes: u64,
    pub(super) stored_before: u64,
    pub(super) stored_after: u64,
}

impl Tallies {
    /// For a progress line.
    pub(crate) fn in_words(&self) -> String {
        let (blobs, before, after) = self.converted.values().fold((0, 0, 0), |(blobs, before, after), tally| {
            (blobs + tally.blobs, before + tally.stored_before, after + tally.stored_after)
        });
        format!("{blobs} blobs, {before} bytes became {after}")
    }
}

/// One round of work.
pub(super) struct Round<'a> {
    pub(super) run: &'a JobRun,
    /// Do not wait for idle cores.
    pub(super) now: bool,
    pub(super) pace: Arc<Pace>,
    pub(super) tallies: Tallies,
}

impl Round<'_> {
    pub(super) fn reform(&self, occasion: Occasion, wish: Wish, effort: Effort) -> Reform {
        Reform {
            occasion,
            wish,
            effort,
            pace: self.pace.clone(),
            regardless: !matches!(occasion, Occasion::Deferred | Occasion::Cooled | Occasion::Between),
            avoid: Avoided::default(),
        }
    }

    pub(super) fn show(&self) {
        let done: u64 = self.tallies.converted.values().map(|tally| tally.blobs).sum();
        self.run.progress(done + self.tallies.kept, None);
        self.run.note(self.tallies.in_words());
    }
}

/// Whether the converter may go on beside clients.
pub(crate) struct Allowance {
    pub(crate) config: ConvertConfig,
    pub(crate) disks: Arc<Disks>,
    pub(crate) pool: Arc<CodecPool>,
    pub(crate) settling: Arc<Settling>,
}

impl Allowance {
    /// Whether a blob may be taken on: somebody waits for it, it has waited too long, or the codec
    /// pool is idle.
    pub(super) async fn may_work(&self, round: &Round<'_>, since_ms: i64) -> bool {
        let patience = i64::try_from(self.config.defer_age_max.as_millis()).unwrap_or(i64::MAX);
        if round.now || self.settling.is_on() || now_ms().saturating_sub(since_ms) > patience {
            return true;
        }
        for _ in 0..IDLE_LOOKS {
            if self.pool.busy() > 0 {
                return false;
            }
            tokio::time::sleep(IDLE_LOOK_EVERY).await;
        }
        true
    }

    /// Whether the file system of a bucket's backend has room for so many bytes more. Stores
    /// elsewhere say themselves when they are full.
    pub(crate) fn has_room(&self, bucket: &BucketHandle, bytes: u64) -> bool {
        let free = self.disks.free_bytes(&bucket.settings.backend);
        free.is_none_or(|free| free >= bytes.saturating_add(self.config.free_bytes_min))
    }
}
