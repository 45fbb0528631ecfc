//! The journal's entries, and the jobs of background work.

use super::ids::{Seq, UnixMs};
use serde::{
    Serialize,
    de::{DeserializeOwned, IgnoredAny},
};

/// One journal row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// Sequence number: consecutive with every other mutation's.
    pub seq: Seq,
    /// When, by the writer's clock.
    pub at_ms: UnixMs,
    /// The mutation.
    pub mutation: MutationText,
}

/// A mutation as it is recorded: JSON. It stays text on its way from the catalog to the store,
/// because each of them passes there, and is read when a catalog is made again. Two are equal when
/// they say the same, whatever the order of their members.
#[derive(Clone, Debug)]
pub struct MutationText(String);

impl MutationText {
    /// What was recorded elsewhere.
    ///
    /// # Errors
    /// When it is not JSON.
    pub fn parse(text: String) -> serde_json::Result<Self> {
        serde_json::from_str::<IgnoredAny>(&text).map(|_| Self(text))
    }

    /// What is to be recorded.
    ///
    /// # Errors
    /// When it cannot be said in JSON.
    pub fn of<T: Serialize + ?Sized>(mutation: &T) -> serde_json::Result<Self> {
        serde_json::to_string(mutation).map(Self)
    }

    /// Text that is known to be JSON.
    pub(crate) fn known(text: String) -> Self {
        Self(text)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What it says.
    pub fn value(&self) -> serde_json::Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }

    /// What it says, as a mutation.
    ///
    /// # Errors
    /// When it is of another version of this program.
    pub fn read<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(&self.0)
    }
}

impl PartialEq for MutationText {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0 || self.value() == other.value()
    }
}

impl Eq for MutationText {}

/// A wish to run a background job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobTake {
    /// The job's name.
    pub name: String,
    /// The writer that would run it.
    pub epoch: u32,
    /// How long the lease lasts when it is not renewed.
    pub lease_ms: UnixMs,
    /// How long ago the job must have ended; 0 for at once.
    pub rest_ms: UnixMs,
}

/// A lease as its holder shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobLease {
    /// The job's name.
    pub name: String,
    /// The number it was taken under.
    pub fence: i64,
}

/// What an operator asks of a job, whichever process runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobWish {
    /// Stop where it is and do not go on until resumed.
    Pause,
    /// Go on.
    Resume,
    /// Give the run up that is under way. Forgotten when the run ends.
    Cancel,
}

/// A background job as the catalog knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    /// Its name.
    pub name: String,
    /// Epoch of the writer that took it last and has not released it.
    pub holder: Option<u32>,
    /// How often it was taken.
    pub fence: i64,
    /// Whether the holder's lease is good now: not over, and its epoch open.
    pub held: bool,
    /// When it was last taken.
    pub started_ms: Option<UnixMs>,
    /// When it was last released.
    pub ended_ms: Option<UnixMs>,
    /// How long ago that was, by the catalog's clock; `None` also where nobody knows, because it
    /// was set back by more than a minute since.
    pub idle_ms: Option<UnixMs>,
    /// Whether it is to rest until resumed.
    pub paused: bool,
    /// Whether the run under way is to be given up.
    pub cancelled: bool,
    /// What it remembers (opaque here).
    pub state: serde_json::Value,
}
