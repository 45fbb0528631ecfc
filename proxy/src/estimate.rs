//! `estimate`: what a bucket would take here, from a sample of it. Reads only, and runs the real
//! engine over what it read, in a temporary store.
//!
//! ```text
//! listing ─► series of similar names ─► runs, by size class ─► a sample of runs ─► the real engine ─► shares of heads and followers
//!                                                                                                   └► bootstrap ─► an interval
//! ```
//!
//! Deltas live between similar names, so what is sampled are runs of neighbours in a series and not
//! single objects. The first object of a series is stored whole (a *head*), the others mostly as
//! deltas (*followers*): each kind has its own share, and a run's first object counts as a head
//! wherever in its series the run began.

mod money;
mod predict;
mod series;

pub use money::{PriceTable, Prices};

use crate::{
    engine::{
        BucketHandle, BucketSettings, ContentDigest, Destination, Encryption, Engine, EngineConfig, EngineError,
        Metrics, StoreError, VersionFacts,
    },
    stores::{StoresConfig, open_engine},
};
use catalog::Precondition;
use futures::{StreamExt, TryStreamExt};
use object_format::Kek;
use predict::predict;
pub use predict::{ClassEstimate, Prediction};
use serde::Serialize;
use series::{Listed, Observed, Population, Run};
use std::{path::Path, sync::Arc, time::Duration};
use storage_backends::{BackendError, ErrorKind, PlainRead, PlainStore};

/// Most objects of a source that are looked at; what is more is estimated by prefixes.
const LISTED_MAX: usize = 2_000_000;
/// Bytes that are read of one object: what a longer one begins with stands for all of it.
const OBJECT_BYTES_MAX: u64 = 256 << 20;
/// Bytes of an object that are read in one request.
const READ_BYTES: u64 = 8 << 20;
/// The longest that the converter may take for one object.
const CONVERSION_MAX: Duration = Duration::from_secs(3600);
/// The temporary store's bucket.
const BUCKET: &str = "estimate";

/// What is estimated, and how well.
pub struct EstimateOptions {
    /// Only keys that start with this.
    pub prefix: String,
    /// Bytes that may be read, about.
    pub sample_bytes: u64,
    /// Whether at most so many bytes are read, and one object, at the cost of short runs. Otherwise
    /// each class has its eight runs, however long they are.
    pub bounded: bool,
    /// Where the choice of the sample begins: the same seed takes the same sample.
    pub seed: u64,
    /// The settings of the bucket it would be.
    pub settings: BucketSettings,
}

/// What a bucket would take.
#[derive(Debug, Serialize)]
pub struct Estimate {
    /// Objects of the source.
    pub objects: u64,
    /// Their bytes.
    pub logical_bytes: u64,
    /// Bytes of objects that the listing shows to be copies of others: they would take nothing.
    pub duplicate_bytes: u64,
    /// What was read.
    pub sample: Sample,
    /// What all of it would take.
    pub stored_bytes: Prediction,
    /// CPU seconds that storing all of it would take, on this machine.
    pub cpu_seconds: f64,
    /// The same for each size class.
    pub classes: Vec<ClassEstimate>,
    /// What that costs a month, by each line of the price table.
    pub money: Vec<money::Cost>,
    /// Since when the prices are, and in what.
    pub prices: money::PriceFacts,
    /// What chose the sample.
    pub seed: u64,
}

/// What was read.
#[derive(Debug, Default, Serialize)]
pub struct Sample {
    /// Runs of neighbours.
    pub runs: u64,
    /// Objects.
    pub objects: u64,
    /// Bytes read and stored.
    pub bytes: u64,
    /// What they took.
    pub stored_bytes: u64,
    /// Objects of which only the beginning was read, because they are long.
    pub truncated: u64,
    /// Objects that could not be read, or changed or vanished meanwhile.
    pub skipped: u64,
}

/// Estimates a source, in a temporary store below `work`.
///
/// # Errors
/// [`EngineError`] when the source cannot be listed, has more than two million objects, or the
/// temporary store fails.
pub async fn estimate(
    source: Arc<dyn PlainStore>,
    work: &Path,
    options: EstimateOptions,
    prices: &PriceTable,
    progress: impl Fn(&Sample, u64),
) -> Result<Estimate, EngineError> {
    let population = Population::of(list(&*source, &options.prefix).await?);
    let (sample_bytes, seed) = (options.sample_bytes, options.seed);
    let (object_bytes, bytes_max, chosen) = if options.bounded {
        let object_bytes = population.object_bytes(sample_bytes).min(OBJECT_BYTES_MAX);
        (object_bytes, sample_bytes, population.choose_within(sample_bytes, object_bytes, seed))
    } else {
        (OBJECT_BYTES_MAX, u64::MAX, population.choose(sample_bytes, seed))
    };
    let mut config = EngineConfig::temporary(work, options.settings.clone());
    config.convert.defer = true;
    if options.settings.encryption == Encryption::Aes256 {
        config.kek = Some(new_kek()?);
    }
    let engine = open_engine(config, &StoresConfig::temporary(work), Metrics::new()).await?;
    let cpu_before = cpu_seconds();
    let sampled = async {
        let bucket = engine.buckets.create_bucket(BUCKET, "estimate").await?.ok_or(EngineError::NoBucket)?;
        let (mut sample, mut observed) = (Sample::default(), Vec::new());
        let upload = Upload { engine: &engine, bucket: &bucket, source: &*source, object_bytes, bytes_max };
        for run in chosen {
            observed.push(upload.run(&population, &run, &mut sample).await?);
            progress(&sample, sample_bytes.min(population.logical_bytes));
        }
        Ok::<_, EngineError>((sample, observed))
    };
    let sampled = sampled.await;
    let cpu = cpu_seconds() - cpu_before;
    engine.shutdown().await;
    let (sample, observed) = sampled?;
    let (total, classes) = predict(&population, &observed, options.seed);
    #[expect(clippy::cast_precision_loss, reason = "a share of bytes")]
    let cpu_seconds = match sample.bytes {
        0 => 0.0,
        bytes => cpu * population.logical_bytes as f64 / bytes as f64,
    };
    Ok(Estimate {
        objects: population.objects(),
        logical_bytes: population.logical_bytes,
        duplicate_bytes: population.duplicate_bytes,
        money: prices.costs(population.logical_bytes, &total, cpu_seconds),
        prices: prices.facts(),
        sample,
        stored_bytes: total,
        cpu_seconds,
        classes,
        seed: options.seed,
    })
}

/// A KEK that nobody else has, and that ends with the temporary store.
fn new_kek() -> Result<Kek, EngineError> {
    let mut secret = [0; 32];
    crypto::fill_random(&mut secret).map_err(|error| EngineError::Other(error.to_string()))?;
    Ok(Kek::new(secret))
}

async fn list(source: &dyn PlainStore, prefix: &str) -> Result<Vec<Listed>, EngineError> {
    let mut listing = source.list(prefix, None);
    let mut listed = Vec::new();
    while let Some(entry) = listing.next().await {
        let entry = match entry {
            Ok(entry) => entry,
            // An object that cannot be named cannot be adopted either.
            Err(error) if error.kind() == ErrorKind::Invalid => continue,
            Err(error) => return Err(error.into()),
        };
        if listed.len() == LISTED_MAX {
            let message = format!("the source has more than {LISTED_MAX} objects: estimate its prefixes one by one");
            return Err(EngineError::Other(message));
        }
        listed.push(Listed::of(entry));
    }
    Ok(listed)
}

/// How the sample is stored.
struct Upload<'a> {
    engine: &'a Arc<Engine>,
    bucket: &'a BucketHandle,
    source: &'a dyn PlainStore,
    /// Bytes that are read of one object.
    object_bytes: u64,
    /// After so many bytes no further object is read: some may have grown since they were listed.
    bytes_max: u64,
}

impl Upload<'_> {
    async fn run(&self, population: &Population, run: &Run, sample: &mut Sample) -> Result<Observed, EngineError> {
        let mut observed = run.unobserved();
        sample.runs += 1;
        for listed in population.objects_of(run) {
            if sample.bytes >= self.bytes_max {
                break;
            }
            let Some(plain) = self.object(listed).await? else {
                sample.skipped += 1;
                continue;
            };
            sample.objects += 1;
            sample.bytes += plain.len;
            sample.stored_bytes += plain.stored;
            sample.truncated += u64::from(plain.is_truncated);
            observed.add(plain.len, plain.stored);
        }
        Ok(observed)
    }

    /// Stores an object, or what a very long one begins with. `None` when it cannot be read any
    /// more.
    async fn object(&self, listed: &Listed) -> Result<Option<Stored>, EngineError> {
        let found = match self.source.head(&listed.key).await {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(None),
            Err(error) if matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Denied) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let len = found.len.min(self.object_bytes);
        let ranges = (0..len.div_ceil(READ_BYTES)).map(|n| n * READ_BYTES..len.min((n + 1) * READ_BYTES));
        let body = futures::stream::iter(ranges)
            .then(|range| async {
                match self.source.read(&listed.key, &found.etag, range).await? {
                    PlainRead::Bytes(pieces) => Ok(pieces),
                    PlainRead::Changed | PlainRead::Absent => {
                        Err(BackendError::new(ErrorKind::Body, "it changed while it was read"))
                    }
                }
            })
            .try_flatten();
        let destination = Destination::Object { key: listed.key.clone() };
        let staged = self
            .engine
            .stager
            .stage(self.bucket, destination, Some(len), Box::pin(body), ContentDigest::default())
            .await;
        let staged = match staged {
            Ok(staged) => staged,
            Err(StoreError::Body(error)) if error.is_transient() => return Err(error.into()),
            Err(StoreError::Body(_)) => return Ok(None),
            Err(StoreError::Engine(error)) => return Err(error),
        };
        let published = self
            .engine
            .publisher
            .publish(self.bucket, &listed.key, staged, VersionFacts::default(), Precondition::None)
            .await?;
        let stored = self.converted(&listed.key).await?.unwrap_or(published.storage.stored_bytes);
        Ok(Some(Stored { len, stored, is_truncated: len < found.len }))
    }

    /// What an object takes once the converter has done what it would do later, as for compressed
    /// files; `None` where nothing waits for it.
    async fn converted(&self, key: &str) -> Result<Option<u64>, EngineError> {
        if self.engine.catalog().deferred_sum().await?.blobs == 0 {
            return Ok(None);
        }
        if !self.engine.jobs.settle(CONVERSION_MAX).await? {
            let waited = CONVERSION_MAX.as_secs();
            return Err(EngineError::Unavailable(format!("the converter was not done after {waited} seconds")));
        }
        Ok(self.engine.read.head(self.bucket, key).await?.map(|found| found.facts.storage.stored_bytes))
    }
}

/// An object of the sample.
struct Stored {
    len: u64,
    stored: u64,
    is_truncated: bool,
}

/// CPU time of this process so far, in seconds; 0 where the system does not say.
fn cpu_seconds() -> f64 {
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return 0.0 };
    // Fields 14 and 15, counted behind the name, which may hold anything (proc_pid_stat(5)).
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |n: usize| fields.get(n).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    #[expect(clippy::cast_precision_loss, reason = "a hundred or so")]
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    (ticks(11) + ticks(12)) / per_second
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{Environment, Overrides, ServeConfig},
        stores::{BackendConfig, open_plain},
    };

    /// Whether some file below a directory holds these bytes.
    fn holds(directory: &Path, wanted: &[u8]) -> bool {
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).any(|path| match path.is_dir() {
            true => holds(&path, wanted),
            false => std::fs::read(&path).unwrap().windows(wanted.len()).any(|window| window == wanted),
        })
    }

    #[tokio::test]
    async fn the_sample_of_an_encrypted_bucket_is_encrypted_too() {
        const CANARY: &[u8] = b"a canary that nobody may see";
        let source = tempfile::tempdir().unwrap();
        std::fs::write(source.path().join("one"), CANARY.repeat(400)).unwrap();
        let defaults = ServeConfig::from_text("", Path::new(""), &Overrides::default(), &Environment::default());
        let defaults = defaults.unwrap().engine.defaults;
        for (encryption, shows) in [(Encryption::Off, true), (Encryption::Aes256, false)] {
            let work = tempfile::tempdir().unwrap();
            let store = open_plain(&BackendConfig::Local { path: source.path().to_owned() }).unwrap();
            let compression = crate::engine::Compression::Off;
            let settings = BucketSettings { compression, encryption, ..defaults.clone() };
            let options =
                EstimateOptions { prefix: String::new(), sample_bytes: 1 << 20, bounded: false, seed: 1, settings };
            let prices = PriceTable::load(None).unwrap();
            let found = Box::pin(estimate(store, work.path(), options, &prices, |_, _| ())).await.unwrap();
            assert_eq!(found.sample.bytes, 400 * CANARY.len() as u64);
            assert_eq!(holds(work.path(), CANARY), shows, "{encryption:?}");
        }
    }
}
