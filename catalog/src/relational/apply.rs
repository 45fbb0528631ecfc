//! Where every mutation enters, and what all of them have in common.

use super::{
    change::{Change, Decision, Import, Outcome, only},
    checksums,
    decide::decide,
    hooks, jobs, keys,
    quotas::{self, Charge},
    replay,
    session::{LATE, Lock, Session, Statement, statement},
    snapshot, stripes, verification, writers,
};
use crate::{
    CatalogError, Result,
    mutation::Mutation,
    types::{BucketId, Seq, UnixMs},
};

/// Makes one change inside the session's transaction. After an error, or [`Outcome::Unchanged`],
/// the caller rolls back to where it began.
pub(crate) async fn apply<S: Session>(session: &mut S, change: &mut Change) -> Result<Outcome> {
    match change {
        Change::Journaled(mutation) => journaled(session, mutation).await,
        Change::TrimJournal(last, link) => snapshot::trim(session, last, *link).await,
        Change::RememberHooks(blobs) => hooks::remember(session, blobs).await,
        Change::CutJournal { after, to } => snapshot::cut(session, *after, *to).await,
        Change::Heartbeat(epoch) => writers::heartbeat(session, *epoch).await,
        Change::NoteVerified { blobs, at_ms } => verification::note_verified(session, blobs, *at_ms).await,
        Change::Job(change) => jobs::apply(session, change).await,
        Change::Import(Import::Begin) => snapshot::begin(session).await,
        Change::Import(Import::Rows(pieces)) => snapshot::import(session, pieces).await,
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
    // Where one process writes, they are so anyway: the number is written with the mutation, and a
    // refused one has written nothing.
    let mut opening = vec![statement!(S::NEXT_NUMBER)];
    if let Some(epoch) = mutation.epoch() {
        opening.push(Statement::locking(
            "SELECT closed FROM writers WHERE epoch = $1",
            vec![epoch.into()],
            Lock::Share,
        ));
    }
    // Where asking is a journey it is asked now whether a quota can refuse this.
    let limits = grown_bucket(mutation).filter(|_| S::ROUND_TRIPS).map(quotas::are_limited);
    let is_asked_for_limits = limits.is_some();
    opening.extend(limits);
    let seals = mutation.seals();
    opening.extend(seals.as_ref().map(keys::present));
    let answers = session.run(opening).await?;
    let seq = only(&answers, 0)?.int(0)?;
    if mutation.epoch().is_some() && (answers[1].is_empty() || only(&answers, 1)?.int(0)? != 0) {
        return Err(CatalogError::Fenced);
    }
    if let Some(seals) = &seals {
        // Mutations are serial, so a key that is there now is there until this one is committed.
        keys::check_present(seals, answers.last().map_or(&[][..], Vec::as_slice))?;
    }
    let at = 1 + usize::from(mutation.epoch().is_some());
    // Quotas are set by mutations: none is set before this one is committed.
    let is_unlimited = is_asked_for_limits && answers[at].is_empty();
    let Decision { outcome, mut writes, charge } = decide(session, seq, mutation).await?;
    let charge = charge.map(|charge| if is_unlimited { charge.unrefused() } else { charge });
    if !matches!(outcome, Outcome::Unchanged) {
        if S::EXCLUSIVE {
            writes.push(statement!("UPDATE counters SET value = $1 WHERE name = 'mutations'", seq));
        }
        writes.push(journal_row(seq, mutation, session.now_ms())?);
        // One without a number yet is counted with it.
        writes.extend(stripes::of(mutation).filter(|_| S::ROUND_TRIPS && seq != LATE).map(stripes::count));
        writes.extend(charge.iter().flat_map(Charge::statements));
        match charge.filter(Charge::grows) {
            Some(charge) => {
                let answers = session.run(writes).await?;
                charge.check(answers.last().and_then(|rows| rows.first()))?;
            }
            None => session.run_last(writes).await?,
        }
    }
    Ok(outcome)
}

/// The bucket that a mutation may make hold more.
fn grown_bucket(mutation: &Mutation) -> Option<BucketId> {
    match mutation {
        Mutation::Put { commit, .. } => Some(commit.bucket),
        Mutation::PutPart { commit } => Some(commit.bucket),
        Mutation::Complete { commit, .. } => Some(commit.bucket),
        _ => None,
    }
}

fn journal_row(seq: Seq, mutation: &Mutation, now_ms: UnixMs) -> Result<Statement> {
    let text = serde_json::to_string(mutation).map_err(|error| CatalogError::Other(error.to_string()))?;
    let at_ms = mutation.at_ms().unwrap_or(now_ms);
    let sum = checksums::of_entry(seq, at_ms, &text);
    Ok(statement!(
        "INSERT INTO journal (seq, at_ms, mutation, checksum) VALUES ($1, $2, $3, $4)",
        seq,
        at_ms,
        text,
        sum
    )
    .numbered(seq, &[1, 4]))
}
