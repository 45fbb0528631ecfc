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
/// Regions of one blob in an answer: a long repetitive text must not crowd out what others have.
const REGIONS_OF_ONE: usize = 2;
/// Bytes of one stored hook.
const HOOK_LEN: usize = 4;

/// A blob whose hooks are taken in.
struct Taken {
    /// The number of its first region, if one is known.
    first: Option<i64>,
    /// What is to be known of it, by region: hooks as they stand in the index.
    regions: BTreeMap<u32, BTreeSet<u32>>,
}

/// Takes in the hooks of those regions of blobs that are live and whole which are not known yet;
/// the others are left out. Gives of how many blobs it took some.
///
/// The numbers of a blob's regions lie side by side, so one that gets further regions gets other
/// numbers for all of them.
pub(crate) async fn remember<S: Session>(session: &mut S, blobs: &[BlobHooks]) -> Result<Outcome> {
    let mut fresh = taken(session, blobs).await?;
    let mut writes = Vec::new();
    let known = fresh.iter_mut().filter_map(|(id, blob)| {
        let first = blob.first?;
        Some((*id, blob, first))
    });
    let known: Vec<(BlobKey, &mut Taken, i64)> = known.collect();
    let asked = known.iter().map(|(id, _, first)| regions_asked(*id, *first)).collect();
    let answers = session.run(asked).await?;
    for ((_, blob, first), rows) in known.into_iter().zip(&answers) {
        let known = regions_of(rows, first)?;
        blob.regions.retain(|region, _| known.iter().all(|(other, _)| other != region));
        if blob.regions.is_empty() {
            continue;
        }
        writes.extend(forgetting(first, &known));
        blob.regions.extend(known);
    }
    fresh.retain(|_, blob| !blob.regions.is_empty());
    let numbers: i64 = fresh.values().map(Taken::numbers).sum();
    if numbers == 0 {
        return Ok(Outcome::Unchanged);
    }
    let last = session
        .run(vec![statement!("UPDATE counters SET value = value + $1 WHERE name = 'region' RETURNING value", numbers)])
        .await?;
    let mut first = only(&last, 0)?.int(0)? - numbers + 1;
    for (id, blob) in &fresh {
        writes.push(statement!("UPDATE blobs SET first_region = $1 WHERE id = $2", first, id.0));
        for (region, hooks) in &blob.regions {
            let number = first + i64::from(*region);
            writes.push(statement!(
                "INSERT INTO sketched_regions (number, blob, region, hooks) VALUES ($1, $2, $3, $4)",
                number,
                id.0,
                i64::from(*region),
                hooks.iter().flat_map(|hook| hook.to_le_bytes()).collect::<Vec<u8>>(),
            ));
            let posting =
                |hook: &u32| statement!("INSERT INTO hooks (hook, number) VALUES ($1, $2)", stored(*hook), number);
            writes.extend(hooks.iter().map(posting));
        }
        first += blob.numbers();
    }
    session.run(writes).await?;
    Ok(Outcome::Count(fresh.len() as u64))
}

impl Taken {
    /// Numbers that its regions take.
    fn numbers(&self) -> i64 {
        self.regions.last_key_value().map_or(0, |(region, _)| i64::from(*region) + 1)
    }
}

/// What is told of blobs that are live and whole.
async fn taken<S: Session>(session: &mut S, blobs: &[BlobHooks]) -> Result<BTreeMap<BlobKey, Taken>> {
    let one = |blob: &BlobHooks| {
        Statement::locking(
            "SELECT bucket, key_epoch, backend, compartment, first_region FROM blobs WHERE id = $1 AND state = 0 \
             AND form = 0 AND original IS NULL",
            vec![blob.blob.0.into()],
            Lock::Update,
        )
    };
    let rows = session.run(blobs.iter().map(one).collect()).await?;
    let mut taken: BTreeMap<BlobKey, Taken> = BTreeMap::new();
    for (blob, row) in blobs.iter().zip(&rows) {
        let Some(row) = row.first() else { continue };
        let domain = Domain {
            bucket: BucketId(row.int(0)?),
            key_epoch: row.small(1)?,
            backend: row.text(2)?.to_owned(),
            compartment: if row.is_null(3) { None } else { Some(Compartment(row.array(3)?)) },
        };
        let first = if row.is_null(4) { None } else { Some(row.int(4)?) };
        let salt = salt(&domain);
        let blob_taken = taken.entry(blob.blob).or_insert_with(|| Taken { first, regions: BTreeMap::new() });
        for (region, hooks) in (blob.first..REGIONS_MAX as u32).zip(&blob.regions) {
            let hooks = hooks.iter().take(REGION_HOOKS_MAX).map(|hook| hook ^ salt);
            blob_taken.regions.insert(region, hooks.collect());
        }
    }
    Ok(taken)
}

/// Asks for the known regions of a blob whose first one has number `first`.
fn regions_asked(blob: BlobKey, first: i64) -> Statement {
    statement!(
        "SELECT number, hooks FROM sketched_regions WHERE number >= $1 AND number < $2 AND blob = $3",
        first,
        first + REGIONS_MAX as i64,
        blob.0,
    )
}

/// Those regions, with the hooks of each as they stand in the index.
fn regions_of(rows: &[Row], first: i64) -> Result<Vec<(u32, BTreeSet<u32>)>> {
    let mut regions = Vec::with_capacity(rows.len());
    for row in rows {
        let number = row.int(0)?;
        let (hooks, rest) = row.bytes(1)?.as_chunks::<HOOK_LEN>();
        if !rest.is_empty() {
            return Err(CatalogError::Other(format!("the hooks of region {number} have an impossible length")));
        }
        let region = u32::try_from(number - first).unwrap_or_default();
        regions.push((region, hooks.iter().map(|hook| u32::from_le_bytes(*hook)).collect()));
    }
    Ok(regions)
}

/// The statements that remove what is remembered of a blob whose first region has number `first`.
pub(crate) async fn forget<S: Session>(session: &mut S, blob: BlobKey, first: i64) -> Result<Vec<Statement>> {
    let rows = session.query(regions_asked(blob, first)).await?;
    Ok(forgetting(first, &regions_of(&rows, first)?))
}

/// The statements that remove these regions.
fn forgetting(first: i64, regions: &[(u32, BTreeSet<u32>)]) -> Vec<Statement> {
    let mut writes = Vec::new();
    for (region, hooks) in regions {
        let number = first + i64::from(*region);
        let posting =
            |hook: &u32| statement!("DELETE FROM hooks WHERE hook = $1 AND number = $2", stored(*hook), number);
        writes.extend(hooks.iter().map(posting));
        writes.push(statement!("DELETE FROM sketched_regions WHERE number = $1", number));
    }
    writes
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
    let mut of_blob: BTreeMap<BlobKey, usize> = BTreeMap::new();
    let is_among_best = |found: &Result<Resembling>| {
        let Ok(Resembling { blob, .. }) = found else { return true };
        let count = of_blob.entry(blob.id).or_default();
        *count += 1;
        *count <= REGIONS_OF_ONE
    };
    let found = best.iter().map(|(shared, _)| *shared).zip(&found).filter_map(resembling);
    found.filter(is_among_best).take(query.limit).collect()
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
