//! Multipart uploads: their rows, their parts, and the one transaction that makes a version of
//! them.

use super::{
    blobs, buckets,
    change::{Decision, Outcome, only},
    checksums,
    quotas::Charge,
    rows,
    rows::upload_columns,
    session::{Lock, Session, Statement, signed, statement},
    versions,
};
use crate::{CatalogError, Result, admission::Content, types::*};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) async fn create<S: Session>(session: &mut S, upload: &Upload) -> Result<Decision> {
    if upload.completed.is_some() {
        return Err(CatalogError::Invalid("a new upload cannot be completed".into()));
    }
    let answers = session
        .run(vec![buckets::lock_bucket(upload.bucket), statement!("SELECT id FROM uploads WHERE id = $1", upload.id.0)])
        .await?;
    if answers[0].is_empty() {
        return Err(CatalogError::NoBucket);
    }
    if !answers[1].is_empty() {
        return Err(CatalogError::Exists);
    }
    Decision::done(vec![statement!(
        "INSERT INTO uploads (id, bucket, key, created_ms, owner, facts) VALUES ($1, $2, $3, $4, $5, $6)",
        upload.id.0,
        upload.bucket.0,
        rows::key(&upload.key),
        upload.created_ms,
        upload.owner.as_str(),
        upload.facts.as_slice(),
    )])
}

/// Reads and locks an open upload: its bucket and key.
fn lock_open(upload: UploadId, lock: Lock) -> Statement {
    Statement::locking(
        "SELECT bucket, key FROM uploads WHERE id = $1 AND completed_ms IS NULL",
        vec![upload.0.into()],
        lock,
    )
}

pub(crate) fn content_of_part(commit: &PartCommit) -> Content<'_> {
    let PartCommit { part, bucket, epoch, new_blobs, .. } = commit;
    Content { bucket: *bucket, epoch: *epoch, new_blobs, extents: &part.extents, size: part.size }
}

/// What [`put_part`] reads.
pub(crate) fn reads_of_part(commit: &PartCommit) -> Vec<Statement> {
    let number = commit.part.number;
    let mut reads = vec![
        lock_open(commit.upload, Lock::Share),
        statement!("SELECT DISTINCT blob FROM part_extents WHERE upload = $1 AND number = $2", commit.upload.0, number),
        statement!("SELECT size FROM parts WHERE upload = $1 AND number = $2", commit.upload.0, number),
    ];
    reads.extend(blobs::lock_existing(&content_of_part(commit)));
    reads
}

pub(crate) async fn put_part<S: Session>(session: &mut S, commit: &PartCommit) -> Result<Decision> {
    let part = &commit.part;
    if !(1..=10_000).contains(&part.number) {
        return Err(CatalogError::Invalid(format!("part number {}", part.number)));
    }
    let content = content_of_part(commit);
    content.check_shape()?;
    let answers = session.run(reads_of_part(commit)).await?;
    match answers[0].first() {
        Some(row) if row.int(0)? == commit.bucket.0 => {}
        _ => return Err(CatalogError::NoUpload),
    }
    let replaced = answers[2].first().map_or(Ok(0), |row| row.unsigned(0))?;
    let charge = Charge::of(commit.bucket).stores(part.size)?.frees(replaced)?;
    content.check_references(blobs::known(&answers[3..])?)?;

    let kept: BTreeSet<_> = part.extents.iter().map(|extent| extent.blob).collect();
    let mut writes = blobs::insert(&commit.new_blobs, part.modified_ms)?;
    writes.extend(drop_part(commit.upload, part.number));
    writes.push(statement!(
        "INSERT INTO parts (upload, number, id, size, modified_ms, facts, checksum) VALUES ($1, $2, $3, $4, $5, $6, $7)",
        commit.upload.0,
        part.number,
        part.id,
        signed(part.size)?,
        part.modified_ms,
        part.facts.as_slice(),
        checksums::of_part(commit.upload, part),
    ));
    for (ordinal, extent) in part.extents.iter().enumerate() {
        writes.push(statement!(
            "INSERT INTO part_extents (upload, number, ordinal, blob, plain_offset, plain_len) \
             VALUES ($1, $2, $3, $4, $5, $6)",
            commit.upload.0,
            part.number,
            ordinal as i64,
            extent.blob.0,
            signed(extent.offset)?,
            signed(extent.len)?,
        ));
    }
    writes.extend(blobs::release_all(rows::blob_keys(&answers[1])?, &kept, part.modified_ms));
    Ok(Decision::done(writes)?.charging(charge))
}

fn drop_part(upload: UploadId, number: u32) -> [Statement; 2] {
    [
        statement!("DELETE FROM part_extents WHERE upload = $1 AND number = $2", upload.0, number),
        statement!("DELETE FROM parts WHERE upload = $1 AND number = $2", upload.0, number),
    ]
}

/// What [`complete`] reads.
pub(crate) fn reads_of_completion(commit: &CompleteCommit) -> Vec<Statement> {
    let mut reads = vec![
        buckets::lock_bucket(commit.bucket),
        lock_open(commit.upload, Lock::Update),
        Statement::locking(
            "SELECT number, id, size FROM parts WHERE upload = $1",
            vec![commit.upload.0.into()],
            Lock::Update,
        ),
    ];
    reads.extend(versions::lock_current(commit.bucket, &commit.key));
    reads
}

pub(crate) async fn complete<S: Session>(
    session: &mut S,
    seq: Seq,
    commit: &CompleteCommit,
    (modified_ms, named): (&mut UnixMs, &mut bool),
) -> Result<Decision> {
    if commit.parts.is_empty() || !commit.parts.is_sorted_by(|a, b| a.0 < b.0) {
        return Err(CatalogError::Invalid("chosen parts are none, or not ascending".into()));
    }
    let answers = session.run(reads_of_completion(commit)).await?;
    let current = versions::Current::read(session, (commit.bucket, &commit.key), &answers, (0, 3)).await?;
    match answers[1].first() {
        Some(row) if row.int(0)? == commit.bucket.0 && row.key(1)? == commit.key => {}
        _ => return Err(CatalogError::NoUpload),
    }
    let mut stored = BTreeMap::new();
    let mut charge = Charge::of(commit.bucket).version(commit.size)?;
    for row in &answers[2] {
        stored.insert(row.small(0)?, (row.array::<16>(1)?, row.unsigned(2)?));
        charge = charge.frees(row.unsigned(2)?)?;
    }
    choose(commit, &mut stored)?;
    current.check(commit.precondition)?;
    current.check_lock(&commit.lock)?;

    // What is left in `stored` was not chosen.
    let dropped_blobs = |number: &u32| {
        statement!("SELECT DISTINCT blob FROM part_extents WHERE upload = $1 AND number = $2", commit.upload.0, *number)
    };
    let dropped = session.run(stored.keys().map(dropped_blobs).collect()).await?;

    *modified_ms = current.clamp(commit.now_ms);
    let room = current.make_room();
    *named = room.named;
    let charge = charge.without(room.removed.as_ref())?;
    let version = Version {
        bucket: commit.bucket,
        key: commit.key.clone(),
        id: commit.id,
        seq,
        modified_ms: *modified_ms,
        size: commit.size,
        facts: commit.facts.clone(),
        extents_digest: commit.extents_digest,
        named: *named,
        marker: false,
        lock: commit.lock,
    };
    let mut writes = room.writes;
    writes.push(versions::insert(&version)?);
    writes.extend(stored.keys().flat_map(|number| drop_part(commit.upload, *number)));
    writes.push(statement!(
        "INSERT INTO extents (version, ordinal, blob, plain_offset, plain_len) \
         SELECT CAST($1 AS BIGINT), row_number() OVER (ORDER BY p.number, p.ordinal) - 1, p.blob, p.plain_offset, p.plain_len \
         FROM part_extents p WHERE p.upload = $2",
        seq,
        commit.upload.0,
    ));
    writes.push(statement!("DELETE FROM part_extents WHERE upload = $1", commit.upload.0));
    writes.push(statement!("DELETE FROM parts WHERE upload = $1", commit.upload.0));
    writes.push(statement!(
        "UPDATE uploads SET version = $1, parts_digest = $2, completed_ms = $3 WHERE id = $4",
        commit.id.0,
        commit.parts_digest,
        commit.now_ms,
        commit.upload.0,
    ));
    let mut gone = room.gone;
    for rows in &dropped {
        gone.extend(rows::blob_keys(rows)?);
    }
    writes.extend(blobs::release_all(gone, &BTreeSet::new(), commit.now_ms));
    let committed = Committed { seq, modified_ms: *modified_ms, named: *named };
    Ok(Decision::of(Outcome::Committed(committed), writes).charging(charge))
}

/// Takes the parts that were chosen out of the stored ones: id and length of each, by number.
///
/// # Errors
/// [`CatalogError::Conflict`] when one was replaced; [`CatalogError::Invalid`] when their lengths
/// do not add up.
fn choose(commit: &CompleteCommit, stored: &mut BTreeMap<u32, ([u8; 16], u64)>) -> Result<()> {
    let mut size = 0u64;
    for (number, id) in &commit.parts {
        match stored.remove(number) {
            Some((found, len)) if found == *id => size = size.saturating_add(len),
            _ => return Err(CatalogError::Conflict),
        }
    }
    match size == commit.size {
        true => Ok(()),
        false => Err(CatalogError::Invalid(format!("chosen parts add up to {size}, not {}", commit.size))),
    }
}

pub(crate) async fn abort<S: Session>(
    session: &mut S,
    bucket: BucketId,
    key: &str,
    upload: UploadId,
    now_ms: UnixMs,
) -> Result<Decision> {
    let answers = session
        .run(vec![
            lock_open(upload, Lock::Update),
            statement!("SELECT DISTINCT blob FROM part_extents WHERE upload = $1", upload.0),
            statement!("SELECT COALESCE(CAST(sum(size) AS BIGINT), 0) FROM parts WHERE upload = $1", upload.0),
        ])
        .await?;
    match answers[0].first() {
        Some(row) if row.int(0)? == bucket.0 && row.key(1)? == key => {}
        _ => return Decision::unchanged(),
    }
    let mut writes = vec![
        statement!("DELETE FROM part_extents WHERE upload = $1", upload.0),
        statement!("DELETE FROM parts WHERE upload = $1", upload.0),
        statement!("DELETE FROM uploads WHERE id = $1", upload.0),
    ];
    writes.extend(blobs::release_all(rows::blob_keys(&answers[1])?, &BTreeSet::new(), now_ms));
    let charge = Charge::of(bucket).frees(only(&answers, 2)?.unsigned(0)?)?;
    Ok(Decision::done(writes)?.charging(charge))
}

pub(crate) async fn forget_completed<S: Session>(session: &mut S, before_ms: UnixMs) -> Result<Decision> {
    let gone = session
        .query(statement!(
            "DELETE FROM uploads WHERE completed_ms IS NOT NULL AND completed_ms < $1 RETURNING id",
            before_ms
        ))
        .await?;
    if gone.is_empty() {
        return Decision::unchanged();
    }
    Ok(Decision::of(Outcome::Count(gone.len() as u64), Vec::new()))
}

pub(crate) async fn by_id<S: Session>(
    session: &mut S,
    bucket: BucketId,
    key: &str,
    id: UploadId,
) -> Result<Option<Upload>> {
    let row = session
        .first(statement!(
            concat!("SELECT ", upload_columns!(), " FROM uploads WHERE id = $1 AND bucket = $2 AND key = $3"),
            id.0,
            bucket.0,
            rows::key(key),
        ))
        .await?;
    row.as_ref().map(rows::upload).transpose()
}

pub(crate) async fn stale<S: Session>(session: &mut S, before_ms: UnixMs, limit: usize) -> Result<Vec<Upload>> {
    let rows = session
        .query(statement!(
            concat!(
                "SELECT ",
                upload_columns!(),
                " FROM uploads WHERE completed_ms IS NULL AND created_ms < $1 ORDER BY created_ms LIMIT $2"
            ),
            before_ms,
            limit as i64,
        ))
        .await?;
    rows.iter().map(rows::upload).collect()
}

/// How many open uploads an owner has, counted no further than `limit`.
pub(crate) async fn open_of<S: Session>(session: &mut S, owner: &str, limit: u64) -> Result<u64> {
    let rows = session
        .query(statement!(
            "SELECT count(*) FROM (SELECT 1 FROM uploads WHERE completed_ms IS NULL AND owner = $1 LIMIT $2) AS open",
            owner,
            i64::try_from(limit).unwrap_or(i64::MAX),
        ))
        .await?;
    rows.first().map_or(Ok(0), |row| row.unsigned(0))
}

/// Parts and their extents come from one statement each; the caller's session reads one snapshot.
pub(crate) async fn parts<S: Session>(
    session: &mut S,
    upload: UploadId,
    after: u32,
    limit: usize,
    with_extents: bool,
) -> Result<Vec<Part>> {
    let rows = session
        .query(statement!(
            "SELECT number, id, size, modified_ms, facts, checksum FROM parts WHERE upload = $1 AND number > $2 ORDER BY number LIMIT $3",
            upload.0,
            after,
            limit as i64,
        ))
        .await?;
    let mut parts = rows.iter().map(|row| rows::part(row, 0)).collect::<Result<Vec<_>>>()?;
    if let (true, Some(last)) = (with_extents, parts.last().map(|part| part.number)) {
        let extents = session
            .query(statement!(
                "SELECT number, blob, plain_offset, plain_len FROM part_extents \
                 WHERE upload = $1 AND number > $2 AND number <= $3 ORDER BY number, ordinal",
                upload.0,
                after,
                last,
            ))
            .await?;
        let mut of_part: BTreeMap<u32, Vec<Extent>> = BTreeMap::new();
        for row in &extents {
            of_part.entry(row.small(0)?).or_default().push(rows::extent(row, 1)?);
        }
        for (part, row) in parts.iter_mut().zip(&rows) {
            part.extents = of_part.remove(&part.number).unwrap_or_default();
            let name = || format!("{} of upload {}", part.number, hex::encode(upload.0));
            checksums::compare(row, 5, checksums::of_part(upload, part), "part", name)?;
        }
    }
    Ok(parts)
}
