//! How much each bucket holds, and how much it and its owner may hold
//! (docs/reference/catalog.md, "Usage and quotas").
//!
//! Usage is counted in the transaction of the mutation that changes it, and a mutation that would
//! exceed a quota is not made: mutations are serial, so no number of writers goes beyond it.

use super::session::{Row, Session, Statement, statement};
use crate::{CatalogError, Result, types::*};

/// What a recount of everything gives: versions that are no markers, and the bytes of stored parts.
pub(crate) const RECOUNT: &str = "INSERT INTO usage (bucket, bytes, objects) \
     SELECT t.bucket, CAST(sum(t.bytes) AS BIGINT), CAST(sum(t.objects) AS BIGINT) FROM \
     (SELECT v.bucket, v.size AS bytes, 1 AS objects FROM versions v WHERE v.marker = 0 \
     UNION ALL SELECT u.bucket, p.size, 0 FROM parts p JOIN uploads u ON u.id = p.upload) t GROUP BY t.bucket";

/// By how much a mutation changes what its bucket holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    bucket: BucketId,
    bytes: i64,
    objects: i64,
    /// Whether a quota can refuse it.
    refusable: bool,
}

impl Charge {
    pub(crate) fn of(bucket: BucketId) -> Self {
        Self { bucket, bytes: 0, objects: 0, refusable: true }
    }

    /// The same, whatever a quota says.
    pub(crate) fn unrefused(self) -> Self {
        Self { refusable: false, ..self }
    }

    /// A new version of so many bytes.
    pub(crate) fn version(self, size: u64) -> Result<Self> {
        Ok(Self { objects: self.objects + 1, ..self.stores(size)? })
    }

    /// Without this version. Delete markers weigh nothing, so that a full bucket can be emptied.
    pub(crate) fn without(self, version: Option<&Version>) -> Result<Self> {
        match version.filter(|version| !version.marker) {
            Some(version) => Ok(Self { objects: self.objects - 1, ..self.frees(version.size)? }),
            None => Ok(self),
        }
    }

    /// So many bytes more of parts.
    pub(crate) fn stores(self, bytes: u64) -> Result<Self> {
        self.changed_by(counted(bytes)?)
    }

    /// So many bytes less of parts.
    pub(crate) fn frees(self, bytes: u64) -> Result<Self> {
        self.changed_by(-counted(bytes)?)
    }

    fn changed_by(self, bytes: i64) -> Result<Self> {
        let bytes = self.bytes.checked_add(bytes);
        Ok(Self { bytes: bytes.ok_or_else(|| CatalogError::Invalid("sizes overflow".into()))?, ..self })
    }

    /// The statements that count it; the last one asks what [`Charge::check`] wants to know.
    pub(crate) fn statements(&self) -> Vec<Statement> {
        if self.bytes == 0 && self.objects == 0 {
            return Vec::new();
        }
        let mut statements = vec![statement!(
            "INSERT INTO usage (bucket, bytes, objects) VALUES ($1, $2, $3) ON CONFLICT (bucket) DO UPDATE \
             SET bytes = usage.bytes + excluded.bytes, objects = usage.objects + excluded.objects",
            self.bucket.0,
            self.bytes,
            self.objects,
        )];
        if self.grows() {
            statements.push(statement!(HELD, self.bucket.0));
        }
        statements
    }

    /// Whether a quota decides about it; then [`Charge::check`] needs an answer.
    pub(crate) fn grows(&self) -> bool {
        self.refusable && (self.bytes > 0 || self.objects > 0)
    }

    /// Compares what is held now with what may be. `row` is the last statement's, when there was
    /// one.
    ///
    /// # Errors
    /// [`CatalogError::QuotaExceeded`].
    pub(crate) fn check(&self, row: Option<&Row>) -> Result<()> {
        self.compare(row, (0, 0))
    }

    /// `ahead`: bytes and objects that will be held besides.
    fn compare(&self, row: Option<&Row>, ahead: (i64, i64)) -> Result<()> {
        let Some(row) = row.filter(|_| self.grows()) else { return Ok(()) };
        for (first, whose) in [(0, "bucket"), (3, "owner")] {
            let Some(quota) = limits(row, first)? else { continue };
            let held = usage(row, first + 1)?;
            let beyond = |grows: i64, held: u64, ahead: i64, most: Option<u64>| {
                grows > 0 && most.is_some_and(|most| held.saturating_add_signed(ahead) > most)
            };
            if beyond(self.bytes, held.bytes, ahead.0, quota.bytes)
                || beyond(self.objects, held.objects, ahead.1, quota.objects)
            {
                return Err(CatalogError::QuotaExceeded(whose));
            }
        }
        Ok(())
    }
}

fn counted(bytes: u64) -> Result<i64> {
    i64::try_from(bytes).map_err(|_| CatalogError::Invalid("a size is beyond what can be counted".into()))
}

/// A bucket's quota and what it holds, then the same of its owner. What an owner holds is added up
/// only where there is a quota for it.
macro_rules! held {
    ($from:literal) => {
        concat!(
            "SELECT q.value, u.bytes, u.objects, o.value, \
             CASE WHEN o.value IS NULL THEN NULL ELSE (SELECT CAST(sum(w.bytes) AS BIGINT) FROM usage w JOIN buckets c ON c.id = w.bucket WHERE c.owner = b.owner) END, \
             CASE WHEN o.value IS NULL THEN NULL ELSE (SELECT CAST(sum(w.objects) AS BIGINT) FROM usage w JOIN buckets c ON c.id = w.bucket WHERE c.owner = b.owner) END \
             FROM ",
            $from,
            " LEFT JOIN settings q ON q.name = 'quota/bucket/' || CAST(b.id AS TEXT) \
             LEFT JOIN settings o ON o.name = 'quota/owner/' || b.owner WHERE "
        )
    };
}

/// Of a bucket that has just been counted.
const HELD: &str = concat!(held!("usage u JOIN buckets b ON b.id = u.bucket"), "u.bucket = $1");
/// Of any bucket.
const HELD_OF_ANY: &str = concat!(held!("buckets b LEFT JOIN usage u ON u.bucket = b.id"), "b.id = $1");

/// Whether something would be let in now.
///
/// # Errors
/// [`CatalogError::QuotaExceeded`].
pub(crate) async fn has_room<S: Session>(session: &mut S, bucket: BucketId, growth: Growth) -> Result<()> {
    let charge = Charge::of(bucket).stores(growth.bytes)?.frees(growth.replaces.unwrap_or(0))?;
    let charge = Charge { objects: i64::from(growth.is_version && growth.replaces.is_none()), ..charge };
    let rows = session.query(statement!(HELD_OF_ANY, bucket.0)).await?;
    charge.compare(rows.first(), (charge.bytes, charge.objects))
}

/// Asks whether there is a quota for a bucket or its owner: a row if so.
pub(crate) fn are_limited(bucket: BucketId) -> Statement {
    statement!(
        "SELECT 1 FROM buckets b WHERE b.id = $1 AND EXISTS \
         (SELECT 1 FROM settings s WHERE s.name IN ('quota/bucket/' || CAST(b.id AS TEXT), 'quota/owner/' || b.owner))",
        bucket.0
    )
}

fn limits(row: &Row, column: usize) -> Result<Option<QuotaLimits>> {
    if row.is_null(column) {
        return Ok(None);
    }
    serde_json::from_value(row.json(column)?).map_err(|error| CatalogError::Other(format!("a quota: {error}")))
}

/// Counters that were damaged downwards hold nothing, and never a very large number.
fn usage(row: &Row, first: usize) -> Result<Usage> {
    let count = |column| Ok(u64::try_from(row.optional_int(column)?.unwrap_or(0)).unwrap_or(0));
    Ok(Usage { bytes: count(first)?, objects: count(first + 1)? })
}

/// The statements that forget a bucket.
pub(crate) fn forget(bucket: BucketId) -> [Statement; 2] {
    [
        statement!("DELETE FROM usage WHERE bucket = $1", bucket.0),
        statement!("DELETE FROM settings WHERE name = $1", QuotaOf::Bucket(bucket).setting().as_str()),
    ]
}

/// The statements that count everything anew.
pub(crate) fn recount() -> [Statement; 2] {
    [statement!("DELETE FROM usage"), statement!(RECOUNT)]
}

pub(crate) async fn held<S: Session>(session: &mut S) -> Result<Vec<(BucketId, Usage)>> {
    let rows = session.query(statement!("SELECT bucket, bytes, objects FROM usage ORDER BY bucket")).await?;
    rows.iter().map(|row| Ok((BucketId(row.int(0)?), usage(row, 1)?))).collect()
}

pub(crate) async fn all<S: Session>(session: &mut S) -> Result<Vec<(QuotaOf, QuotaLimits)>> {
    let rows =
        session.query(statement!("SELECT name, value FROM settings WHERE name LIKE 'quota/%' ORDER BY name")).await?;
    let mut quotas = Vec::new();
    for row in &rows {
        if let (Some(of), Some(limits)) = (QuotaOf::of_setting(row.text(0)?), limits(row, 1)?) {
            quotas.push((of, limits));
        }
    }
    Ok(quotas)
}
