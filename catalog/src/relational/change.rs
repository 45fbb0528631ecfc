//! What can be done to the catalog, and what comes of it.

use super::{
    quotas::Charge,
    session::{Row, Statement},
};
use crate::{
    CatalogError, Result,
    mutation::Mutation,
    snapshot::{JournalLink, TableRows},
    types::*,
};
use std::time::{SystemTime, UNIX_EPOCH};

/// What is done to a job's row.
#[derive(Clone, Debug)]
pub(crate) enum JobChange {
    Take(JobTake),
    Renew { lease: JobLease, lease_ms: UnixMs },
    Save { lease: JobLease, state: serde_json::Value },
    Release { lease: JobLease, state: serde_json::Value },
    Wish { name: String, wish: JobWish },
}

/// Something to be done to the catalog.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// A mutation: takes a sequence number, goes to the journal.
    Journaled(Mutation),
    /// Drops shipped journal rows. Not a mutation: it changes nothing that a rebuild would need.
    TrimJournal(JournalEntry, JournalLink),
    /// What whole blobs resemble. Not a mutation: advice.
    RememberHooks(Vec<BlobHooks>),
    /// Decides where a journal blob ends. Not a mutation: no catalog that is made again needs it.
    CutJournal { after: Seq, to: Seq },
    /// Renews a writer's lease. Not a mutation: leases are advice (E23).
    Heartbeat(u32),
    /// Remembers when blobs were found well. Not a mutation: it is advice.
    NoteVerified { blobs: Vec<BlobKey>, at_ms: UnixMs },
    /// Takes, renews or gives up a job's lease. Not a mutation, for the same reason.
    Job(JobChange),
    /// Fills an empty catalog. Its journal is the one that is replayed, so none of this goes into
    /// another.
    Import(Import),
}

/// A step of filling an empty catalog.
#[derive(Clone, Debug)]
pub(crate) enum Import {
    /// Empties it.
    Begin,
    /// Rows of a snapshot.
    Rows(Vec<TableRows>),
    /// Mutations as they were recorded.
    Replay(Vec<JournalEntry>),
    /// One of them, behind a hole in what was recorded.
    ReplayBehindHole(JournalEntry),
    /// Numbers up to here are taken.
    Skip(Seq),
    /// It may be used.
    End { epoch_min: u32 },
}

impl Change {
    /// Whether it may write rows of buckets. What is not known not to counts as if it did.
    pub(crate) fn may_change_buckets(&self) -> bool {
        match self {
            Self::Journaled(mutation) => !matches!(
                mutation,
                Mutation::Put { .. }
                    | Mutation::Delete { .. }
                    | Mutation::DeleteVersion { .. }
                    | Mutation::Rewrite { .. }
                    | Mutation::CreateUpload { .. }
                    | Mutation::PutPart { .. }
                    | Mutation::Complete { .. }
                    | Mutation::Abort { .. }
                    | Mutation::SetLock { .. }
                    | Mutation::NoticesDone { .. }
            ),
            Self::Import(_) => true,
            Self::TrimJournal(..)
            | Self::RememberHooks(_)
            | Self::CutJournal { .. }
            | Self::Heartbeat(_)
            | Self::NoteVerified { .. }
            | Self::Job(_) => false,
        }
    }

    /// Whether it is one of the many steps of filling an empty catalog. None of them is relied on
    /// before the import's end is committed: a catalog that is not filled to its end is filled
    /// again.
    pub(crate) fn is_filling(&self) -> bool {
        matches!(self, Self::Import(Import::Rows(_) | Import::Replay(_)))
    }

    /// Whether it brings content, or could as well be made later: a full disk has no space for it.
    /// Every other change may be one that makes space, or is needed by those that do.
    pub(crate) fn takes_space(&self) -> bool {
        match self {
            Self::Journaled(mutation) => matches!(
                mutation,
                Mutation::CreateBucket { .. }
                    | Mutation::Put { .. }
                    | Mutation::Rewrite { .. }
                    | Mutation::CreateUpload { .. }
                    | Mutation::PutPart { .. }
                    | Mutation::Complete { .. }
                    | Mutation::Copy { .. }
            ),
            Self::RememberHooks(_) | Self::NoteVerified { .. } => true,
            _ => false,
        }
    }
}

/// What a change gave.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// Nothing was to be done: the caller rolls back, and no sequence number is used.
    Unchanged,
    Done,
    Count(u64),
    Seq(Seq),
    Epoch(u32),
    Epochs(Vec<u32>),
    Bucket(Bucket),
    Committed(Committed),
    Deleted(Box<Deleted>),
    Removed(Box<Version>),
    Job(Box<JobRow>),
}

impl Outcome {
    /// The same of a change that was given its number at its end.
    #[cfg(feature = "postgres")]
    pub(crate) fn numbered(mut self, number: Seq) -> Self {
        use super::session::LATE;
        let late = match &mut self {
            Outcome::Committed(committed) => Some(&mut committed.seq),
            Outcome::Deleted(deleted) => deleted.marker.as_mut().map(|marker| &mut marker.seq),
            _ => None,
        };
        if let Some(late) = late.filter(|seq| **seq == LATE) {
            *late = number;
        }
        self
    }
}

/// A decided mutation: what it gave, and the statements that make it so.
pub(crate) struct Decision {
    pub(crate) outcome: Outcome,
    pub(crate) writes: Vec<Statement>,
    /// What it makes its bucket hold.
    pub(crate) charge: Option<Charge>,
}

impl Decision {
    pub(crate) fn of(outcome: Outcome, writes: Vec<Statement>) -> Decision {
        Decision { outcome, writes, charge: None }
    }

    pub(crate) fn done(writes: Vec<Statement>) -> Result<Decision> {
        Ok(Self::of(Outcome::Done, writes))
    }

    pub(crate) fn unchanged() -> Result<Decision> {
        Ok(Self::of(Outcome::Unchanged, Vec::new()))
    }

    /// The same with what it makes its bucket hold.
    pub(crate) fn charging(self, charge: Charge) -> Decision {
        Decision { charge: Some(charge), ..self }
    }
}

/// The one row of the answer at `index`.
pub(crate) fn only(answers: &[Vec<Row>], index: usize) -> Result<&Row> {
    answers
        .get(index)
        .and_then(|rows| rows.first())
        .ok_or_else(|| CatalogError::Other(format!("statement {index} gave no row")))
}

/// This process's clock, for records only; nothing is decided by it.
pub(crate) fn now_ms() -> UnixMs {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as UnixMs)
}
