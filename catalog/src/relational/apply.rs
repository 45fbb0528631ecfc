//! Where every mutation enters, and what all of them have in common.

use super::{
    blobs, buckets, checksums, conversion, copies, hooks,
    jobs::{self, JobChange},
    locks, multipart, replay,
    session::{Lock, Row, Session, Statement, statement},
    snapshot, trash, verification, versions, writers,
};
use crate::{CatalogError, Result, mutation::Mutation, snapshot::TableRows, types::*};
use std::time::{SystemTime, UNIX_EPOCH};

/// Something to be done to the catalog.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// A mutation: takes a sequence number, goes to the journal.
    Journaled(Mutation),
    /// Drops shipped journal rows. Not a mutation: it changes nothing that a rebuild would need.
    TrimJournal(Seq),
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
    Rows(TableRows),
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
            ),
            Self::Import(_) => true,
            Self::TrimJournal(_)
            | Self::RememberHooks(_)
            | Self::CutJournal { .. }
            | Self::Heartbeat(_)
            | Self::NoteVerified { .. }
            | Self::Job(_) => false,
        }
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

/// A decided mutation: what it gave, and the statements that make it so.
pub(crate) struct Decision {
    pub(crate) outcome: Outcome,
    pub(crate) writes: Vec<Statement>,
}

impl Decision {
    pub(crate) fn done(writes: Vec<Statement>) -> Result<Decision> {
        Ok(Decision { outcome: Outcome::Done, writes })
    }

    pub(crate) fn unchanged() -> Result<Decision> {
        Ok(Decision { outcome: Outcome::Unchanged, writes: Vec::new() })
    }
}

/// Makes one change inside the session's transaction. After an error, or [`Outcome::Unchanged`],
/// the caller rolls back to where it began.
pub(crate) async fn apply<S: Session>(session: &mut S, change: &mut Change) -> Result<Outcome> {
    match change {
        Change::Journaled(mutation) => journaled(session, mutation).await,
        Change::TrimJournal(seq) => {
            // 1 is only an anchor: the rows themselves are not wanted.
            let gone = session.query(statement!("DELETE FROM journal WHERE seq <= $1 RETURNING 1", *seq)).await?;
            Ok(Outcome::Count(gone.len() as u64))
        }
        Change::RememberHooks(blobs) => hooks::remember(session, blobs).await,
        Change::CutJournal { after, to } => snapshot::cut(session, *after, *to).await,
        Change::Heartbeat(epoch) => writers::heartbeat(session, *epoch).await,
        Change::NoteVerified { blobs, at_ms } => verification::note_verified(session, blobs, *at_ms).await,
        Change::Job(change) => jobs::apply(session, change).await,
        Change::Import(Import::Begin) => snapshot::begin(session).await,
        Change::Import(Import::Rows(rows)) => snapshot::import(session, rows).await,
        Change::Import(Import::Replay(entries)) => replay::replay(session, entries).await,
        Change::Import(Import::ReplayBehindHole(entry)) => replay::behind_hole(session, entry).await,
        Change::Import(Import::Skip(seq)) => replay::skip(session, *seq).await,
        Change::Import(Import::End { epoch_min }) => snapshot::end(session, *epoch_min).await,
    }
}

async fn journaled<S: Session>(session: &mut S, mutation: &mut Mutation) -> Result<Outcome> {
    // Taking the number locks its row until the transaction ends. Where several processes write,
    // this makes the order of numbers the order of commits, and mutations serial
    // (docs/reference/postgres.md).
    let mut opening = vec![statement!("UPDATE counters SET value = value + 1 WHERE name = 'seq' RETURNING value")];
    if let Some(epoch) = mutation.epoch() {
        opening.push(Statement::locking(
            "SELECT closed FROM writers WHERE epoch = $1",
            vec![epoch.into()],
            Lock::Share,
        ));
    }
    let answers = session.run(opening).await?;
    let seq = only(&answers, 0)?.int(0)?;
    if mutation.epoch().is_some() && (answers[1].is_empty() || only(&answers, 1)?.int(0)? != 0) {
        return Err(CatalogError::Fenced);
    }
    let Decision { outcome, mut writes } = decide(session, seq, mutation).await?;
    if !matches!(outcome, Outcome::Unchanged) {
        writes.push(journal_row(seq, mutation)?);
        session.run(writes).await?;
    }
    Ok(outcome)
}

/// What a mutation that takes number `seq` gives and writes; values that the catalog chooses are
/// filled in.
pub(crate) async fn decide<S: Session>(session: &mut S, seq: Seq, mutation: &mut Mutation) -> Result<Decision> {
    match mutation {
        Mutation::OpenEpoch { epoch, closes } => writers::open(session, epoch, closes).await,
        Mutation::CloseEpochs { epochs } => writers::close(session, epochs).await,
        Mutation::PutSetting { name, value, creates } => buckets::put_setting(session, name, value, *creates).await,
        Mutation::CreateBucket { bucket } => buckets::create(session, bucket).await,
        Mutation::SetBucketSettings { bucket, settings, expected } => {
            buckets::set_settings(session, *bucket, settings, expected.as_ref()).await
        }
        Mutation::SetVersioning { bucket, versioning } => buckets::set_versioning(session, *bucket, *versioning).await,
        Mutation::EnableObjectLock { bucket } => buckets::enable_object_lock(session, *bucket).await,
        Mutation::SetLock { commit } => locks::set(session, commit).await,
        Mutation::DeleteBucket { bucket, now_ms } => buckets::delete(session, *bucket, *now_ms).await,
        Mutation::PutKey { key } => buckets::put_key(session, key).await,
        Mutation::Put { commit, modified_ms, named } => versions::put(session, seq, commit, (modified_ms, named)).await,
        Mutation::Delete { commit, removed, modified_ms, named } => {
            let choices = versions::DeleteChoices { removed, modified_ms, named };
            versions::delete(session, seq, commit, choices).await
        }
        Mutation::DeleteVersion { commit, removed } => versions::delete_version(session, commit, removed).await,
        Mutation::Rewrite { commit } => versions::rewrite(session, commit).await,
        Mutation::CreateUpload { upload } => multipart::create(session, upload).await,
        Mutation::PutPart { commit } => multipart::put_part(session, commit).await,
        Mutation::Complete { commit, modified_ms, named } => {
            multipart::complete(session, seq, commit, (modified_ms, named)).await
        }
        Mutation::Abort { bucket, key, upload, now_ms, .. } => {
            multipart::abort(session, *bucket, key, *upload, *now_ms).await
        }
        Mutation::ForgetCompletedUploads { before_ms } => multipart::forget_completed(session, *before_ms).await,
        Mutation::Cool { blob } => conversion::cool(session, *blob).await,
        Mutation::Undefer { blob } => conversion::undefer(session, *blob).await,
        Mutation::Quarantine { blob, damage, now_ms } => {
            verification::quarantine(session, *blob, damage, *now_ms).await
        }
        Mutation::EndQuarantine { blob } => verification::end_quarantine(session, *blob).await,
        Mutation::Copy { commit } => copies::set(session, commit).await,
        Mutation::Sweep { epochs, found } => trash::sweep(epochs, found),
        Mutation::Untrash { files } => trash::forget(session, files).await,
        Mutation::Purge { blob, now_ms } => blobs::purge(session, *blob, *now_ms).await,
    }
}

fn journal_row(seq: Seq, mutation: &Mutation) -> Result<Statement> {
    let text = serde_json::to_string(mutation).map_err(|error| CatalogError::Other(error.to_string()))?;
    let at_ms = mutation.at_ms().unwrap_or_else(now_ms);
    Ok(statement!(
        "INSERT INTO journal (seq, at_ms, mutation, checksum) VALUES ($1, $2, $3, $4)",
        seq,
        at_ms,
        text.as_str(),
        checksums::of_entry(seq, at_ms, &text),
    ))
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
