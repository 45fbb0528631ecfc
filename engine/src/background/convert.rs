//! Conversions that somebody asked for: a bucket or a prefix is encoded anew, or a bucket moves to
//! another backend while it is used.
//!
//! The job goes from version to version and remembers the last one, so that a run which was
//! interrupted goes on there. Old versions are converted like current ones: a backend that a bucket
//! has left must not be needed by its history. What the job does to one blob is
//! [`Reencoder::reencode`](crate::background::reencode::Reencoder::reencode); doing it twice does
//! no harm.

use crate::{
    background::{
        converter::{Converter, round::Tallies},
        jobs::run::JobRun,
        reencode::{Occasion, Reform, Reformed, Wish},
    },
    bases::base::Avoided,
    blobs::open::Blobs,
    bucket::{BucketHandle, Buckets},
    config::{Compression, EffortSetting},
    deployment::{
        keyring::{Keyring, discard},
        writer::Writer,
    },
    error::EngineError,
    resources::pace::Pace,
    write::{effort, parts::Uploads},
};
use catalog::{
    BlobForm, BlobRow, Bucket, Catalog, CatalogError, Version, VersionEntry, VersionRef, VersionsPage, VersionsQuery,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;

/// Versions of one page of the bucket's listing.
const VERSIONS_AT_ONCE: usize = 100;
/// How often a moving bucket is gone through for what was written to the old backend meanwhile, by
/// uploads that had begun before.
const PASSES_MAX: u32 = 8;
/// How often a change of settings is tried against changes by others.
const CHANGES_MAX: usize = 16;

/// What is asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConvertOrder {
    /// The bucket.
    bucket: String,
    /// Only keys that start with this.
    #[serde(default)]
    prefix: String,
    /// How the content is to be reduced. For a whole bucket this becomes its setting.
    #[serde(default)]
    compression: Option<Compression>,
    /// How hard the codec tries. For a whole bucket this becomes its setting.
    #[serde(default)]
    effort: Option<EffortSetting>,
    /// Where the bucket's blobs are to be. This becomes its setting before the first blob is moved.
    #[serde(default)]
    backend: Option<String>,
}

/// Where a run is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Place {
    /// How often the bucket has been gone through.
    pass: u32,
    /// The key of the last version that is done in this pass.
    after: Option<String>,
    /// That version; the key as a whole when there is none.
    #[serde(default)]
    after_version: Option<VersionRef>,
    /// Blobs that were moved in this pass.
    moved: u64,
    report: OrderReport,
}

/// What an order came to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct OrderReport {
    /// Versions looked at.
    objects: u64,
    /// Blobs that versions use and that stay in another backend than the bucket's: they could not
    /// be moved.
    elsewhere: u64,
    /// What was encoded anew.
    #[serde(flatten)]
    tallies: Tallies,
}

/// Encodes anew what somebody asks for.
pub(crate) struct OrderedConverter {
    pub(crate) bytes_per_second_max: u64,
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) blobs: Arc<Blobs>,
    pub(crate) buckets: Arc<Buckets>,
    pub(crate) keyring: Arc<Keyring>,
    pub(crate) writer: Arc<Writer>,
    pub(crate) converter: Arc<Converter>,
    pub(crate) uploads: Arc<Uploads>,
}

impl OrderedConverter {
    /// Refuses an order that nothing here can follow.
    ///
    /// # Errors
    /// [`EngineError::NoBucket`]; [`EngineError::JobRefused`] for a backend that is not configured,
    /// and for one that a part of a bucket is to move to.
    pub(crate) async fn admit(&self, order: &ConvertOrder) -> Result<(), EngineError> {
        let refused = |why: &str| Err(EngineError::JobRefused(format!("convert: {why}")));
        if order.backend.is_some() && !order.prefix.is_empty() {
            return refused("a bucket moves to another backend as a whole");
        }
        if let Some(backend) = &order.backend
            && self.blobs.backend(backend).is_err()
        {
            return refused(&format!("backend {backend:?} is not configured"));
        }
        self.buckets.bucket(&order.bucket).await?.map(drop).ok_or(EngineError::NoBucket)
    }

    /// The job `convert`.
    pub(crate) async fn convert_as_ordered(self: &Arc<Self>, run: &JobRun) -> Result<OrderReport, EngineError> {
        let order: ConvertOrder = run.parameters()?;
        let mut place: Place = run.cursor()?.unwrap_or_default();
        self.settle_order(&order).await?;
        let total = match order.prefix.is_empty() {
            true => self.versions_of(&order.bucket).await?,
            false => None,
        };
        let pace = Arc::new(Pace::new(self.bytes_per_second_max));
        loop {
            // Asked for anew for every page: another order may have changed the bucket's settings.
            let bucket = self.ordered_bucket(&order).await?;
            let page = self.versions_behind(&bucket, &order.prefix, (place.after.clone(), place.after_version)).await?;
            for entry in page.entries {
                let VersionEntry::Version { version, .. } = entry else { continue };
                run.check()?;
                if !version.marker {
                    self.convert_version(&bucket, &version, &order, &pace, &mut place).await?;
                    place.report.objects += u64::from(place.pass == 0);
                }
                (place.after_version, place.after) = (Some(version.reference()), Some(version.key));
                run.progress(place.report.objects, total);
                run.note(place.report.tallies.in_words());
                run.checkpoint(&place).await?;
            }
            if page.next.is_some() {
                continue;
            }
            // What began before the bucket's settings changed may have ended in the old backend
            // behind our back.
            if order.backend.is_none() || place.moved == 0 || place.pass + 1 >= PASSES_MAX {
                return Ok(place.report);
            }
            place = Place { pass: place.pass + 1, after: None, after_version: None, moved: 0, ..place };
            place.report.elsewhere = 0;
            run.checkpoint(&place).await?;
        }
    }

    /// A page of a bucket's versions: those under a prefix that come behind one.
    pub(super) async fn versions_behind(
        &self,
        bucket: &BucketHandle,
        prefix: &str,
        (key_after, version_after): (Option<String>, Option<VersionRef>),
    ) -> Result<VersionsPage, EngineError> {
        let query = VersionsQuery {
            bucket: bucket.row.id,
            prefix: prefix.to_owned(),
            delimiter: None,
            key_after,
            version_after,
            limit: VERSIONS_AT_ONCE,
        };
        Ok(self.catalog.list_versions(&query).await?)
    }

    /// How many versions a bucket has, as the catalog counts them.
    pub(super) async fn versions_of(&self, bucket: &str) -> Result<Option<u64>, EngineError> {
        let stats = self.catalog.stats().await?;
        let stats = stats.iter().find(|stats| stats.name == bucket);
        Ok(stats.map(|stats| stats.objects + stats.noncurrent_versions))
    }

    /// Changes the bucket's settings as a whole bucket's order says, before anything is converted:
    /// what is written from now on is as it is to be.
    async fn settle_order(&self, order: &ConvertOrder) -> Result<(), EngineError> {
        self.admit(order).await?;
        for _ in 0..CHANGES_MAX {
            let bucket = self.buckets.bucket(&order.bucket).await?.ok_or(EngineError::NoBucket)?;
            if !order.prefix.is_empty() || self.settled(order, &bucket).await? {
                return Ok(());
            }
        }
        Err(EngineError::Conflict)
    }

    /// The same of what a bucket was a moment ago; false when others have changed its settings
    /// since.
    async fn settled(&self, order: &ConvertOrder, bucket: &BucketHandle) -> Result<bool, EngineError> {
        let mut settings = bucket.row.settings.clone();
        let mut copies = Vec::new();
        if let Some(backend) = order.backend.as_ref().filter(|backend| **backend != bucket.settings.backend) {
            // The wrapped key lies in a backend before the first blob that needs it (I11).
            if bucket.is_sealed() {
                let (row, catalog) = (&bucket.row, &*self.catalog);
                copies = self.keyring.copy_keysets(row, backend, catalog, &self.blobs, self.writer.epoch()).await?;
                let keysets = [&bucket.settings.keysets[..], &copies[..]].concat();
                settings["keysets"] = json!(keysets);
            }
            settings["backend"] = json!(backend);
        }
        if let Some(compression) = order.compression {
            settings["compression"] = json!(compression);
        }
        if let Some(effort) = order.effort {
            settings["effort"] = json!(effort);
        }
        if settings == bucket.row.settings {
            return Ok(true);
        }
        let expected = bucket.row.settings.clone();
        match self.catalog.change_bucket_settings(bucket.row.id, expected, settings.clone()).await {
            Ok(()) => {}
            Err(CatalogError::Conflict) => {
                if let Some(backend) = &order.backend {
                    discard(&copies, backend, &self.blobs).await?;
                }
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        if !copies.is_empty() {
            // A key that came between the copies and the change is in the catalog by now, or its
            // maker has seen the change.
            let row = Bucket { settings, ..Bucket::clone(&bucket.row) };
            self.keyring.keyset_files(&row, &*self.catalog, &self.blobs).await?.rewrap(&self.keyring).await?;
        }
        Ok(true)
    }

    /// The bucket with what the order says of a prefix in place of its settings.
    async fn ordered_bucket(&self, order: &ConvertOrder) -> Result<BucketHandle, EngineError> {
        let bucket = self.buckets.bucket(&order.bucket).await?.ok_or(EngineError::NoBucket)?;
        Ok(bucket.with(|settings| {
            settings.compression = order.compression.unwrap_or(settings.compression);
            settings.effort = order.effort.unwrap_or(settings.effort);
        }))
    }

    async fn convert_version(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        version: &Version,
        order: &ConvertOrder,
        pace: &Arc<Pace>,
        place: &mut Place,
    ) -> Result<(), EngineError> {
        let found = self.catalog.version(bucket.row.id, &version.key, version.id).await?;
        let Some(content) = found else { return Ok(()) };
        for row in content.blobs.into_iter().filter(|row| row.inline.is_none()) {
            let Some(reform) = order.reform(bucket, &row, pace) else { continue };
            if reform.occasion == Occasion::Move && row.form == BlobForm::Delta {
                // Its bases first: then it can stay the delta that it is.
                let bases = self.catalog.bases_of(row.id).await?;
                for base in self.catalog.blobs(&bases).await? {
                    if base.backend != bucket.settings.backend {
                        self.convert_blob(bucket, &base, &reform, place).await?;
                    }
                }
            }
            if !self.convert_blob(bucket, &row, &reform, place).await? && reform.occasion == Occasion::Move {
                place.report.elsewhere += 1;
            }
        }
        Ok(())
    }

    /// True when versions use another blob now.
    async fn convert_blob(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        row: &BlobRow,
        reform: &Reform,
        place: &mut Place,
    ) -> Result<bool, EngineError> {
        if !self.converter.allowance.has_room(bucket, row.plain_len) {
            return Err(EngineError::Full);
        }
        let outcome = self.converter.reencode_counted(bucket, row, reform, &mut place.report.tallies).await?;
        let moved = matches!(outcome, Some(Reformed::Moved(_)));
        place.moved += u64::from(moved);
        Ok(moved || matches!(outcome, Some(Reformed::Unused)))
    }
}

impl ConvertOrder {
    /// What is to become of a blob; `None` when it is as it should be.
    fn reform(&self, bucket: &BucketHandle, row: &BlobRow, pace: &Arc<Pace>) -> Option<Reform> {
        let settings = &bucket.settings;
        let effort = effort::in_background(settings.effort, false);
        let reform = |occasion, wish, regardless| {
            Some(Reform { occasion, wish, effort, pace: pace.clone(), regardless, avoid: Avoided::default() })
        };
        let foreign = row.original.is_some();
        if self.backend.is_some() && self.compression.is_none() && self.effort.is_none() {
            return match row.backend == settings.backend && !foreign {
                true => None,
                false if foreign => reform(Occasion::Move, Wish::Best, true),
                false => reform(Occasion::Move, Wish::Kept, true),
            };
        }
        let all_raw = row.forms.raw_plain == row.plain_len;
        let elsewhere = foreign || row.backend != settings.backend;
        match settings.compression {
            Compression::Off if all_raw && !elsewhere => None,
            Compression::Off => reform(Occasion::Asked, Wish::Whole, true),
            Compression::Zstd => reform(Occasion::Asked, Wish::Whole, elsewhere || row.form == BlobForm::Delta),
            Compression::Delta => reform(Occasion::Asked, Wish::Best, elsewhere),
        }
    }
}
