//! What whole blobs resemble: an inverted index from hooks to the regions that have them
//! (docs/reference/catalog.md, "Hooks").
//!
//! It is advice: no mutation, no journal row, and nothing is wrong when some of it is missing. What
//! it must never do is name a blob of another domain, or one that may not be a base; so what the
//! index finds is looked up among the blobs before it is given out.

use super::{
    change::{Outcome, only},
    rows,
    session::{Lock, Row, Session, Statement, Value, statement},
};
use crate::{CatalogError, Result, types::*};
use std::collections::{BTreeMap, BTreeSet};

/// Regions looked at per hook, the newest first: what very many objects have in common tells little
/// about any of them.
const POSTINGS_PER_HOOK: i64 = 64;
/// Candidates looked up among the blobs for every one that is asked for: some may have died.
const SPARE: usize = 3;
/// Bytes of one stored hook.
const HOOK_LEN: usize = 4;

/// Takes in the hooks of blobs that are live, whole and not known yet; the others are left out.
/// Gives how many.
pub(crate) async fn remember<S: Session>(session: &mut S, blobs: &[BlobHooks]) -> Result<Outcome> {
    let one = |blob: &BlobHooks| {
        Statement::locking(
            "SELECT id, bucket, key_epoch, backend, compartment FROM blobs WHERE id = $1 AND state = 0 AND form = 0 \
             AND original IS NULL AND first_region IS NULL",
            vec![blob.blob.0.into()],
            Lock::Update,
        )
    };
    let known = session.run(blobs.iter().map(one).collect()).await?;
    let mut fresh: BTreeMap<BlobKey, (&BlobHooks, u32)> = BTreeMap::new();
    for (blob, row) in blobs.iter().zip(&known) {
        if let Some(row) = row.first().filter(|_| !blob.regions.is_empty()) {
            let domain = Domain {
                bucket: BucketId(row.int(1)?),
                key_epoch: row.small(2)?,
                backend: row.text(3)?.to_owned(),
                compartment: if row.is_null(4) { None } else { Some(Compartment(row.array(4)?)) },
            };
            fresh.insert(blob.blob, (blob, salt(&domain)));
        }
    }
    let regions: usize = fresh.values().map(|(blob, _)| blob.regions.len().min(REGIONS_MAX)).sum();
    if regions == 0 {
        return Ok(Outcome::Unchanged);
    }
    let last = session
        .run(vec![statement!(
            "UPDATE counters SET value = value + $1 WHERE name = 'region' RETURNING value",
            regions as i64
        )])
        .await?;
    let mut number = only(&last, 0)?.int(0)? - regions as i64;
    let mut writes = Vec::new();
    for (blob, salt) in fresh.values() {
        writes.push(statement!("UPDATE blobs SET first_region = $1 WHERE id = $2", number + 1, blob.blob.0));
        for (region, hooks) in (0i64..).zip(blob.regions.iter().take(REGIONS_MAX)) {
            number += 1;
            let hooks: BTreeSet<u32> = hooks.iter().take(REGION_HOOKS_MAX).map(|hook| hook ^ salt).collect();
            writes.push(statement!(
                "INSERT INTO sketched_regions (number, blob, region, hooks) VALUES ($1, $2, $3, $4)",
                number,
                blob.blob.0,
                region,
                hooks.iter().flat_map(|hook| hook.to_le_bytes()).collect::<Vec<u8>>(),
            ));
            writes.extend(
                hooks
                    .into_iter()
                    .map(|hook| statement!("INSERT INTO hooks (hook, number) VALUES ($1, $2)", stored(hook), number)),
            );
        }
    }
    session.run(writes).await?;
    Ok(Outcome::Count(fresh.len() as u64))
}

/// The statements that remove what is remembered of a blob whose first region has number `first`.
pub(crate) async fn forget<S: Session>(session: &mut S, blob: BlobKey, first: i64) -> Result<Vec<Statement>> {
    let rows = session
        .query(statement!(
            "SELECT number, hooks FROM sketched_regions WHERE number >= $1 AND number < $2 AND blob = $3",
            first,
            first + REGIONS_MAX as i64,
            blob.0,
        ))
        .await?;
    let mut writes = Vec::new();
    for row in rows {
        let number = row.int(0)?;
        let (hooks, rest) = row.bytes(1)?.as_chunks::<HOOK_LEN>();
        if !rest.is_empty() {
            return Err(CatalogError::Other(format!("the hooks of region {number} have an impossible length")));
        }
        writes.extend(hooks.iter().map(|hook| {
            let hook = stored(u32::from_le_bytes(*hook));
            statement!("DELETE FROM hooks WHERE hook = $1 AND number = $2", hook, number)
        }));
        writes.push(statement!("DELETE FROM sketched_regions WHERE number = $1", number));
    }
    Ok(writes)
}

pub(crate) async fn resembling<S: Session>(session: &mut S, query: &HookQuery) -> Result<Vec<Resembling>> {
    let domain = &query.domain;
    let salt = salt(domain);
    let hooks: BTreeSet<u32> = query.hooks.iter().map(|hook| hook ^ salt).collect();
    let one = |hook| {
        statement!(
            "SELECT number FROM hooks WHERE hook = $1 ORDER BY number DESC LIMIT $2",
            stored(hook),
            POSTINGS_PER_HOOK
        )
    };
    let postings = session.run(hooks.into_iter().map(one).collect()).await?;
    let mut shared: BTreeMap<i64, u32> = BTreeMap::new();
    for row in postings.iter().flatten() {
        *shared.entry(row.int(0)?).or_default() += 1;
    }
    let mut best: Vec<(u32, i64)> = shared.into_iter().map(|(number, shared)| (shared, number)).collect();
    best.sort_unstable_by(|a, b| b.cmp(a));
    best.truncate(query.limit * SPARE);
    let one = |number: i64| {
        statement!(
            concat!(
                "SELECT r.region, ",
                rows::blob_columns!(),
                " FROM sketched_regions r JOIN blobs b ON b.id = r.blob WHERE r.number = $1 AND b.state = 0 AND b.form = 0 AND b.damage IS NULL \
                 AND b.bucket = $2 AND b.key_epoch = $3 AND b.backend = $4 AND b.compartment IS NOT DISTINCT FROM $5"
            ),
            number,
            domain.bucket.0,
            domain.key_epoch,
            domain.backend.as_str(),
            domain.compartment.map(|compartment| compartment.0),
        )
    };
    let found = session.run(best.iter().map(|(_, number)| one(*number)).collect()).await?;
    let resembling = |(shared, rows): (u32, &Vec<Row>)| {
        let row = rows.first()?;
        let region = match row.small(0) {
            Ok(region) => region,
            Err(error) => return Some(Err(error)),
        };
        Some(rows::blob(row, 1).map(|blob| Resembling { blob, region, shared }))
    };
    best.iter().map(|(shared, _)| *shared).zip(&found).filter_map(resembling).take(query.limit).collect()
}

/// What a domain's hooks are mixed with, so that what is common in one bucket does not crowd the
/// postings of another. Part of the schema: FNV-1a over bucket, key epoch, backend and, where there
/// is one, compartment; its upper half.
fn salt(Domain { bucket, key_epoch, backend, compartment }: &Domain) -> u32 {
    let bytes = bucket.0.to_le_bytes().into_iter().chain(key_epoch.to_le_bytes()).chain(backend.bytes());
    let bytes = bytes.chain(compartment.iter().flat_map(|compartment| compartment.0));
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    (hash >> 32) as u32
}

/// A hook as it stands in the index: signed, because four bytes are all it takes then.
fn stored(hook: u32) -> Value {
    Value::Int(i64::from(hook.cast_signed()))
}
