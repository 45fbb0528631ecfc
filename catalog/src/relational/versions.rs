//! Versions: put, delete, rewrite.

use super::{
    blobs, buckets,
    change::{Decision, Outcome, only},
    checksums, columns,
    quotas::Charge,
    rows,
    session::{Lock, Row, Session, Statement, Value, signed, statement},
};
use crate::{CatalogError, Result, admission::Content, types::*};
use std::collections::BTreeSet;

/// How many statements [`lock_current`] gives.
pub(crate) const CURRENT_STATEMENTS: usize = 3;

/// The statements that read and lock a key's current version, name the blobs it references (once
/// for each extent: for `DISTINCT` SQLite makes a table), and tell whether the key is hidden.
pub(crate) fn lock_current(bucket: BucketId, key: &str) -> [Statement; CURRENT_STATEMENTS] {
    [
        Statement::locking(
            concat!(
                "SELECT ",
                rows::version_columns!(),
                " FROM versions v WHERE v.bucket = $1 AND v.key = $2 AND v.current = 1"
            ),
            vec![bucket.0.into(), rows::key(key)],
            Lock::Update,
        ),
        statement!(
            "SELECT e.blob FROM extents e JOIN versions v ON e.version = v.seq \
             WHERE v.bucket = $1 AND v.key = $2 AND v.current = 1",
            bucket.0,
            rows::key(key),
        ),
        hidden_key(bucket, key),
    ]
}

fn hidden_key(bucket: BucketId, key: &str) -> Statement {
    statement!("SELECT 1 FROM hidden_keys WHERE bucket = $1 AND key = $2", bucket.0, rows::key(key))
}

pub(crate) async fn hidden<S: Session>(session: &mut S, bucket: BucketId, key: &str) -> Result<bool> {
    Ok(session.first(hidden_key(bucket, key)).await?.is_some())
}

/// What a commit finds under its key.
pub(crate) struct Current {
    pub(crate) version: Option<Version>,
    pub(crate) blobs: Vec<BlobKey>,
    hidden: bool,
    versioning: Versioning,
    object_lock: bool,
    older: Older,
}

/// What lies behind a key's current version. Empty in a bucket that never kept versions.
#[derive(Default)]
struct Older {
    /// The newest of them; a delete marker when the key has no current version.
    newest: Option<Version>,
    /// The null version.
    null: Option<Version>,
    null_blobs: Vec<BlobKey>,
}

/// The statements that read what lies behind a key's current version.
pub(crate) fn read_older(bucket: BucketId, key: &str) -> [Statement; 3] {
    [
        statement!(NEWEST_NONCURRENT, bucket.0, rows::key(key)),
        statement!(
            concat!(
                "SELECT ",
                rows::version_columns!(),
                " FROM versions v WHERE v.bucket = $1 AND v.key = $2 AND v.current = 0 AND v.named = 0"
            ),
            bucket.0,
            rows::key(key)
        ),
        statement!(
            "SELECT e.blob FROM extents e JOIN versions v ON e.version = v.seq \
             WHERE v.bucket = $1 AND v.key = $2 AND v.current = 0 AND v.named = 0",
            bucket.0,
            rows::key(key)
        ),
    ]
}

impl Older {
    async fn read<S: Session>(session: &mut S, bucket: BucketId, key: &str) -> Result<Older> {
        let answers = session.run(read_older(bucket, key).into()).await?;
        Ok(Older {
            newest: answers[0].first().map(rows::version).transpose()?,
            null: answers[1].first().map(rows::version).transpose()?,
            null_blobs: rows::blob_keys(&answers[2])?,
        })
    }
}

/// The newest of a key's versions that are not current.
pub(crate) const NEWEST_NONCURRENT: &str = concat!(
    "SELECT ",
    rows::version_columns!(),
    " FROM versions v WHERE v.bucket = $1 AND v.key = $2 AND v.current = 0 ORDER BY v.seq DESC LIMIT 1"
);

/// How a key's versions make room for a new one.
pub(crate) struct Room {
    pub(crate) writes: Vec<Statement>,
    /// Blobs that lost a reference by that; they are still to be released.
    pub(crate) gone: Vec<BlobKey>,
    /// What was removed.
    pub(crate) removed: Option<Version>,
    /// Whether the new version has a name of its own.
    pub(crate) named: bool,
}

impl Current {
    /// Reads the answers of [`buckets::lock_bucket`] and [`lock_current`], which follow each other
    /// from `first` on, and, in a bucket that keeps versions, what else is there.
    pub(crate) async fn read<S: Session>(
        session: &mut S,
        (bucket, key): (BucketId, &str),
        answers: &[Vec<Row>],
        (locked, first): (usize, usize),
    ) -> Result<Current> {
        let Some(row) = answers[locked].first() else { return Err(CatalogError::NoBucket) };
        let versioning = rows::versioning(row.int(1)?)?;
        Ok(Current {
            version: answers[first].first().map(rows::version).transpose()?,
            blobs: rows::blob_keys(&answers[first + 1])?,
            hidden: !answers[first + 2].is_empty(),
            versioning,
            object_lock: row.int(2)? != 0,
            older: match versioning {
                Versioning::Off => Older::default(),
                _ => Older::read(session, bucket, key).await?,
            },
        })
    }

    /// A version is locked only where versions can be.
    pub(crate) fn check_lock(&self, lock: &VersionLock) -> Result<()> {
        if lock.is_none() || self.object_lock { Ok(()) } else { Err(CatalogError::BucketState) }
    }

    /// A key that was deleted is as good as hidden: what is adopted by itself brings neither back.
    pub(crate) fn check(&self, precondition: Precondition) -> Result<()> {
        let deleted = self.hidden || self.older.newest.is_some();
        precondition.check(self.version.as_ref().map(|version| version.id), deleted)
    }

    /// Last-Modified of the version that follows: never before its predecessor's (I12).
    pub(crate) fn clamp(&self, now_ms: UnixMs) -> UnixMs {
        let newest = self.version.as_ref().or(self.older.newest.as_ref());
        newest.map_or(now_ms, |version| version.modified_ms.max(now_ms))
    }

    /// Makes room for a new newest version: what it replaces is removed, what it follows is kept.
    pub(crate) fn make_room(self) -> Room {
        let Current { version, blobs, versioning, older, .. } = self;
        let keep = |version: &Version| statement!("UPDATE versions SET current = 0 WHERE seq = $1", version.seq);
        let mut room = Room { writes: Vec::new(), gone: Vec::new(), removed: None, named: false };
        match (versioning, version) {
            (Versioning::Enabled, version) => {
                room.named = true;
                room.writes.extend(version.iter().map(keep));
            }
            // The null version is the one that is replaced, wherever it stands.
            (Versioning::Suspended, Some(version)) if version.named => {
                room.writes.push(keep(&version));
                room.remove(older.null, older.null_blobs);
            }
            (Versioning::Suspended, None) => room.remove(older.null, older.null_blobs),
            (Versioning::Suspended | Versioning::Off, version) => room.remove(version, blobs),
        }
        room
    }
}

impl Room {
    fn remove(&mut self, version: Option<Version>, blobs: Vec<BlobKey>) {
        let Some(version) = version else { return };
        self.writes.extend(remove(version.seq));
        self.gone.extend(blobs);
        self.removed = Some(version);
    }
}

/// Removes a version and its extents.
fn remove(seq: Seq) -> [Statement; 2] {
    [statement!("DELETE FROM extents WHERE version = $1", seq), statement!("DELETE FROM versions WHERE seq = $1", seq)]
}

/// The row of a key's new newest version.
pub(crate) fn insert(version: &Version) -> Result<Statement> {
    let (lock, retain_until_ms) = columns::lock_columns(&version.lock);
    Ok(statement!(
        "INSERT INTO versions (bucket, key, id, seq, modified_ms, size, facts, extents_digest, named, marker, current, lock, retain_until_ms, \
         checksum) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
        version.bucket.0,
        rows::key(&version.key),
        version.id.0,
        version.seq,
        version.modified_ms,
        signed(version.size)?,
        version.facts.as_slice(),
        version.extents_digest,
        i64::from(version.named),
        i64::from(version.marker),
        // The newest version is current, and a delete marker never is.
        i64::from(!version.marker),
        lock,
        retain_until_ms,
        checksums::of_version(version),
    )
    .numbered(version.seq, &[4, 14]))
}

fn insert_extents(version: Seq, extents: &[Extent]) -> Result<Vec<Statement>> {
    let one = |(ordinal, extent): (usize, &Extent)| {
        Ok(statement!(
            "INSERT INTO extents (version, ordinal, blob, plain_offset, plain_len) VALUES ($1, $2, $3, $4, $5)",
            version,
            ordinal as i64,
            extent.blob.0,
            signed(extent.offset)?,
            signed(extent.len)?,
        )
        .numbered(version, &[1]))
    };
    extents.iter().enumerate().map(one).collect()
}

pub(crate) fn content_of_put(commit: &PutCommit) -> Content<'_> {
    Content {
        bucket: commit.bucket,
        epoch: commit.epoch,
        new_blobs: &commit.new_blobs,
        extents: &commit.extents,
        size: commit.size,
    }
}

/// What [`put`] reads.
pub(crate) fn reads_of_put(commit: &PutCommit) -> Vec<Statement> {
    let mut reads = reads_of_key(commit.bucket, &commit.key);
    reads.extend(blobs::lock_existing(&content_of_put(commit)));
    reads
}

/// What [`delete`] reads.
pub(crate) fn reads_of_key(bucket: BucketId, key: &str) -> Vec<Statement> {
    let mut reads = vec![buckets::lock_bucket(bucket)];
    reads.extend(lock_current(bucket, key));
    reads
}

pub(crate) async fn put<S: Session>(
    session: &mut S,
    seq: Seq,
    commit: &PutCommit,
    (modified_ms, named): (&mut UnixMs, &mut bool),
) -> Result<Decision> {
    let content = content_of_put(commit);
    content.check_shape()?;
    let answers = session.run(reads_of_put(commit)).await?;
    let current = Current::read(session, (commit.bucket, &commit.key), &answers, (0, 1)).await?;
    current.check(commit.precondition)?;
    current.check_lock(&commit.lock)?;
    content.check_references(blobs::known(&answers[1 + CURRENT_STATEMENTS..])?)?;

    *modified_ms = current.clamp(commit.now_ms);
    let room = current.make_room();
    *named = room.named;
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
    let mut charge = Charge::of(commit.bucket).version(commit.size)?.without(room.removed.as_ref())?;
    if commit.precondition == Precondition::Adoptable {
        // A read that finds an object elsewhere is no upload.
        charge = charge.unrefused();
    }
    let kept: BTreeSet<_> = commit.extents.iter().map(|extent| extent.blob).collect();
    let mut writes = blobs::insert(&commit.new_blobs, commit.now_ms)?;
    writes.extend(room.writes);
    writes.push(insert(&version)?);
    writes.extend(insert_extents(seq, &commit.extents)?);
    writes.extend(blobs::release_all(room.gone, &kept, commit.now_ms));
    let committed = Committed { seq, modified_ms: *modified_ms, named: *named };
    Ok(Decision::of(Outcome::Committed(committed), writes).charging(charge))
}

/// What the catalog chooses of a deletion.
pub(crate) struct DeleteChoices<'a> {
    pub(crate) removed: &'a mut VersionId,
    pub(crate) modified_ms: &'a mut Option<UnixMs>,
    pub(crate) named: &'a mut bool,
}

pub(crate) async fn delete<S: Session>(
    session: &mut S,
    seq: Seq,
    commit: &DeleteCommit,
    choices: DeleteChoices<'_>,
) -> Result<Decision> {
    let answers = session.run(reads_of_key(commit.bucket, &commit.key)).await?;
    let current = Current::read(session, (commit.bucket, &commit.key), &answers, (0, 1)).await?;
    current.check(commit.precondition)?;
    let marks = !current.versioning.is_off();
    let modified_ms = current.clamp(commit.now_ms);
    let hides = commit.hide && !current.hidden;
    let mut room = current.make_room();
    let mut writes = std::mem::take(&mut room.writes);
    if hides {
        writes.push(hide(commit.bucket, &commit.key));
    }
    let mut deleted = Deleted { removed: room.removed, marker: None };
    if marks {
        let id = commit.marker.ok_or_else(|| CatalogError::Invalid("a deletion here needs a marker's id".into()))?;
        let marker = Version {
            bucket: commit.bucket,
            key: commit.key.clone(),
            id,
            seq,
            modified_ms,
            size: 0,
            facts: Vec::new(),
            extents_digest: [0; 32],
            named: room.named,
            marker: true,
            lock: VersionLock::default(),
        };
        writes.push(insert(&marker)?);
        (*choices.modified_ms, *choices.named) = (Some(modified_ms), room.named);
        deleted.marker = Some(marker);
    }
    if writes.is_empty() {
        return Decision::unchanged();
    }
    if let Some(removed) = &deleted.removed {
        *choices.removed = removed.id;
    }
    writes.extend(blobs::release_all(room.gone, &BTreeSet::new(), commit.now_ms));
    let charge = Charge::of(commit.bucket).without(deleted.removed.as_ref())?;
    Ok(Decision::of(Outcome::Deleted(Box::new(deleted)), writes).charging(charge))
}

fn hide(bucket: BucketId, key: &str) -> Statement {
    statement!("INSERT INTO hidden_keys (bucket, key) VALUES ($1, $2)", bucket.0, rows::key(key))
}

/// The place of a version that a request names. Both halves are found in an index of the key's
/// versions.
pub(crate) fn locate(bucket: BucketId, key: &str, version: VersionRef) -> (&'static str, Vec<Value>) {
    let params = vec![bucket.0.into(), rows::key(key)];
    match version {
        VersionRef::Null => (
            "SELECT n.seq FROM versions n WHERE n.bucket = $1 AND n.key = $2 AND n.current = 1 AND n.named = 0 \
             UNION ALL SELECT o.seq FROM versions o WHERE o.bucket = $1 AND o.key = $2 AND o.current = 0 AND o.named = 0",
            params,
        ),
        VersionRef::Id(id) => (
            "SELECT n.seq FROM versions n WHERE n.bucket = $1 AND n.key = $2 AND n.id = $3 AND n.named = 1",
            [params, vec![id.0.into()]].concat(),
        ),
    }
}

pub(crate) async fn delete_version<S: Session>(
    session: &mut S,
    commit: &DeleteVersionCommit,
    removed: &mut VersionId,
) -> Result<Decision> {
    let (bucket, key) = (commit.bucket, commit.key.as_str());
    let (place, params) = locate(bucket, key, commit.version);
    let mut reads = vec![buckets::lock_bucket(bucket)];
    reads.extend(lock_current(bucket, key));
    reads.push(Statement::made(
        concat!("SELECT ", rows::version_columns!(), " FROM versions v WHERE v.seq IN (?)").replace('?', place),
        params.clone(),
    ));
    reads.push(Statement::made(format!("SELECT e.blob FROM extents e WHERE e.version IN ({place})"), params));
    // Two, because the newest may be the one that goes.
    reads.push(statement!(
        "SELECT v.seq, v.marker FROM versions v WHERE v.bucket = $1 AND v.key = $2 AND v.current = 0 ORDER BY v.seq DESC LIMIT 2",
        bucket.0,
        rows::key(key)
    ));
    let answers = session.run(reads).await?;
    let current = Current::read(session, (bucket, key), &answers, (0, 1)).await?;
    current.check(commit.precondition)?;
    let [found, blobs, older] = &answers[1 + CURRENT_STATEMENTS..] else {
        return Err(CatalogError::Other("a version's place was not answered".into()));
    };
    let Some(version) = found.first().map(rows::version).transpose()? else { return Decision::unchanged() };
    if version.lock.holds(commit.now_ms, commit.bypass_governance) {
        return Err(CatalogError::Locked);
    }
    *removed = version.id;
    let mut writes = Vec::from(remove(version.seq));
    let stays_current = current.version.as_ref().is_some_and(|current| current.seq != version.seq);
    let mut left = stays_current;
    for row in older {
        let seq = row.int(0)?;
        if seq == version.seq {
            continue;
        }
        if !left && row.int(1)? == 0 {
            writes.push(statement!("UPDATE versions SET current = 1 WHERE seq = $1", seq));
        }
        left = true;
    }
    if commit.hide && !current.hidden && !left {
        writes.push(hide(bucket, key));
    }
    writes.extend(blobs::release_all(rows::blob_keys(blobs)?, &BTreeSet::new(), commit.now_ms));
    let charge = Charge::of(bucket).without(Some(&version))?;
    Ok(Decision::of(Outcome::Removed(Box::new(version)), writes).charging(charge))
}

pub(crate) async fn rewrite<S: Session>(session: &mut S, commit: &RewriteCommit) -> Result<Decision> {
    let content = Content {
        bucket: commit.bucket,
        epoch: commit.epoch,
        new_blobs: &commit.new_blobs,
        extents: &commit.new_extents,
        size: commit.old_extents.iter().fold(0, |sum, extent| sum.saturating_add(extent.len)),
    };
    content.check_shape()?;
    let mut reads = vec![
        Statement::locking(
            concat!(
                "SELECT ",
                rows::version_columns!(),
                " FROM versions v WHERE v.id = $1 AND v.bucket = $2 AND v.key = $3"
            ),
            vec![commit.id.0.into(), commit.bucket.0.into(), rows::key(&commit.key)],
            Lock::Update,
        ),
        statement!(
            "SELECT e.blob, e.plain_offset, e.plain_len FROM extents e JOIN versions v ON e.version = v.seq \
             WHERE v.id = $1 ORDER BY e.ordinal",
            commit.id.0
        ),
    ];
    reads.extend(blobs::lock_existing(&content));
    let answers = session.run(reads).await?;
    if answers[0].is_empty() {
        return Err(CatalogError::Conflict);
    }
    let mut version = rows::version(only(&answers, 0)?)?;
    let seq = version.seq;
    if commit.old_facts.as_deref().is_some_and(|read| version.facts != read) {
        return Err(CatalogError::Conflict);
    }
    let extents = answers[1].iter().map(|row| rows::extent(row, 0)).collect::<Result<Vec<_>>>()?;
    if extents != commit.old_extents {
        return Err(CatalogError::Conflict);
    }
    content.check_references(blobs::known(&answers[2..])?)?;

    let kept: BTreeSet<_> = commit.new_extents.iter().map(|extent| extent.blob).collect();
    let mut writes = blobs::insert(&commit.new_blobs, commit.now_ms)?;
    writes.push(statement!("DELETE FROM extents WHERE version = $1", seq));
    writes.extend(insert_extents(seq, &commit.new_extents)?);
    (version.facts, version.extents_digest) = (commit.facts.clone(), commit.extents_digest);
    writes.push(statement!(
        "UPDATE versions SET facts = $1, extents_digest = $2, checksum = $3 WHERE seq = $4",
        commit.facts.as_slice(),
        commit.extents_digest,
        checksums::of_version(&version),
        seq,
    ));
    writes.extend(blobs::release_all(extents.iter().map(|extent| extent.blob), &kept, commit.now_ms));
    Decision::done(writes)
}
