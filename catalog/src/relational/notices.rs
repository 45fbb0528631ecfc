//! Notices of changes: left in the transaction of the change, taken away once somebody was told.

use super::{
    change::{Decision, Outcome},
    rows,
    session::{Row, Session, Statement, signed, statement},
};
use crate::{Result, mutation::Mutation, types::*};
use std::collections::{BTreeMap, BTreeSet};

/// Adds to a decided mutation what it tells of itself. Costs nothing when nobody is told.
pub(crate) async fn leave<S: Session>(
    session: &mut S,
    seq: Seq,
    mutation: &Mutation,
    decision: &mut Decision,
) -> Result<()> {
    let notices = mutation.notices();
    if notices.is_empty() {
        return Ok(());
    }
    let Some(told) = Told::of(mutation, &decision.outcome) else { return Ok(()) };
    let due: Vec<&NewNotice> = notices.iter().filter(|notice| told.concerns(notice.of)).collect();
    let mut lanes: BTreeMap<&str, Use> = due.iter().map(|notice| (notice.lane.as_str(), Use::default())).collect();
    let reads = lanes.keys().map(|lane| statement!("SELECT waiting FROM notice_lanes WHERE lane = $1", *lane));
    let answers = session.run(reads.collect()).await?;
    for (used, rows) in lanes.values_mut().zip(&answers) {
        used.waiting = rows.first().map(|row| row.unsigned(0)).transpose()?.unwrap_or(0);
    }
    for (ordinal, notice) in (0_u32..).zip(due) {
        let Some(used) = lanes.get_mut(notice.lane.as_str()) else { continue };
        if used.waiting + used.added >= notice.waiting_max {
            used.lost += 1;
            continue;
        }
        used.added += 1;
        decision.writes.push(insert(seq, ordinal, notice, told.version));
    }
    for (lane, used) in lanes {
        decision.writes.push(statement!(
            "INSERT INTO notice_lanes (lane, waiting, lost) VALUES ($1, $2, $3) ON CONFLICT (lane) DO UPDATE SET \
             waiting = notice_lanes.waiting + excluded.waiting, lost = notice_lanes.lost + excluded.lost",
            lane,
            signed(used.added)?,
            signed(used.lost)?,
        ));
    }
    Ok(())
}

/// What becomes of a lane by one mutation.
#[derive(Default)]
struct Use {
    waiting: u64,
    added: u64,
    lost: u64,
}

/// What a mutation gave, as far as notices tell of it.
struct Told {
    version: Option<VersionId>,
    removed: bool,
    marker: bool,
}

impl Told {
    /// `None` when nothing was changed.
    fn of(mutation: &Mutation, outcome: &Outcome) -> Option<Self> {
        let told = |version| Told { version, removed: false, marker: false };
        let named = |version: &Version| version.named.then_some(version.id);
        match (outcome, mutation) {
            (Outcome::Committed(committed), Mutation::Put { commit, .. }) => {
                Some(told(committed.named.then_some(commit.id)))
            }
            (Outcome::Committed(committed), Mutation::Complete { commit, .. }) => {
                Some(told(committed.named.then_some(commit.id)))
            }
            (Outcome::Deleted(deleted), _) => match &deleted.marker {
                Some(marker) => Some(Told { marker: true, ..told(named(marker)) }),
                None => deleted.removed.as_ref().map(|removed| Told { removed: true, ..told(named(removed)) }),
            },
            (Outcome::Removed(version), _) => Some(Told { removed: true, ..told(named(version)) }),
            (Outcome::Done, _) => Some(told(None)),
            _ => None,
        }
    }

    fn concerns(&self, of: NoticeOf) -> bool {
        match of {
            NoticeOf::Any => true,
            NoticeOf::Removal => self.removed,
            NoticeOf::Marker => self.marker,
        }
    }
}

fn insert(seq: Seq, ordinal: u32, notice: &NewNotice, version: Option<VersionId>) -> Statement {
    statement!(
        "INSERT INTO notices (lane, seq, ordinal, key, version, at_ms, body) VALUES ($1, $2, $3, $4, $5, $6, $7)",
        notice.lane.as_str(),
        seq,
        ordinal,
        rows::key(&notice.key),
        version.map(|version| version.0),
        notice.at_ms,
        notice.body.to_string().as_str(),
    )
}

/// Takes notices away. Those that are gone already are no change.
pub(crate) async fn done<S: Session>(session: &mut S, done: &NoticesDone) -> Result<Decision> {
    let lane = done.lane.as_str();
    let reads = done.places.iter().map(|(seq, ordinal)| {
        statement!("SELECT seq FROM notices WHERE lane = $1 AND seq = $2 AND ordinal = $3", lane, *seq, *ordinal)
    });
    let answers = session.run(reads.collect()).await?;
    let there: BTreeSet<(Seq, u32)> =
        done.places.iter().zip(&answers).filter(|(_, rows)| !rows.is_empty()).map(|(place, _)| *place).collect();
    if there.is_empty() {
        return Decision::unchanged();
    }
    let count = there.len() as u64;
    let mut writes: Vec<Statement> = there
        .into_iter()
        .map(|(seq, ordinal)| {
            statement!("DELETE FROM notices WHERE lane = $1 AND seq = $2 AND ordinal = $3", lane, seq, ordinal)
        })
        .collect();
    writes.push(statement!(
        "UPDATE notice_lanes SET waiting = waiting - $1, lost = lost + $2 WHERE lane = $3",
        signed(count)?,
        signed(if done.lost { count } else { 0 })?,
        lane,
    ));
    Ok(Decision::of(Outcome::Count(count), writes))
}

/// Notices of a lane behind a place, in the order of the changes.
pub(crate) async fn waiting<S: Session>(
    session: &mut S,
    lane: &str,
    (seq, ordinal): (Seq, u32),
    limit: usize,
) -> Result<Vec<Notice>> {
    let sql = "SELECT seq, ordinal, key, version, at_ms, body FROM notices WHERE lane = $1 AND (seq, ordinal) > ($2, $3) \
               ORDER BY seq, ordinal LIMIT $4";
    session.query(statement!(sql, lane, seq, ordinal, limit as i64)).await?.iter().map(notice).collect()
}

fn notice(row: &Row) -> Result<Notice> {
    Ok(Notice {
        seq: row.int(0)?,
        ordinal: row.small(1)?,
        key: row.key(2)?,
        version: if row.is_null(3) { None } else { Some(VersionId(row.array(3)?)) },
        at_ms: row.int(4)?,
        body: row.json(5)?,
    })
}

/// Every lane that ever had a notice, by name.
pub(crate) async fn lanes<S: Session>(session: &mut S) -> Result<Vec<NoticeLane>> {
    let sql = "SELECT l.lane, l.waiting, l.lost, \
               (SELECT n.at_ms FROM notices n WHERE n.lane = l.lane ORDER BY n.seq, n.ordinal LIMIT 1) FROM notice_lanes l";
    let lane = |row: &Row| {
        Ok(NoticeLane {
            lane: row.text(0)?.to_owned(),
            waiting: row.unsigned(1)?,
            lost: row.unsigned(2)?,
            oldest_ms: row.optional_int(3)?,
        })
    };
    let mut lanes = session.query(statement!(sql)).await?.iter().map(lane).collect::<Result<Vec<_>>>()?;
    lanes.sort_by(|a, b| a.lane.cmp(&b.lane));
    Ok(lanes)
}
