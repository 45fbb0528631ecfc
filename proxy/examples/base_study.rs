//! How well bases are chosen: puts objects into an engine one after the other, and encodes each
//! against every earlier object of its package.
//!
//! `base_study LIST`: LIST has a line `package TAB key TAB path` per object, in the order of the
//! puts. Prints a JSON line per object: what the engine stored, what the object takes alone, and
//! what it takes against each earlier one. `docs/benchmark/basestudy` makes the list and the
//! verdict of it.
//!
//! The engine is the one that serves, with its catalog and a local backend in a temporary
//! directory, effort balanced. What is encoded beside it uses the same codec and effort, one window
//! of the whole earlier object, and takes for every segment whatever is shortest.

use bytes::Bytes;
use delta_codec::{BaseIndex, Effort, EncodeJob, Encoder, FootprintLimits, WINDOW_LEN_MAX, WindowUnit, whole};
use deltaweir::{
    engine::{
        BucketSettings, Compression, ContentDigest, Destination, EffortSetting, Encryption, EngineConfig, Metrics,
        VersionFacts,
    },
    stores::{StoresConfig, open_engine},
};
use serde_json::json;
use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    error::Error,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

const SEGMENT_LEN: usize = 4 << 20;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let list = std::env::args().nth(1).ok_or("usage: base_study LIST")?;
    let list = std::fs::read_to_string(list)?;
    let directory = tempfile::tempdir()?;
    let engine =
        open_engine(config(directory.path()), &StoresConfig::temporary(directory.path()), Metrics::new()).await?;
    let bucket = engine.buckets.create_bucket("study", "study").await?.ok_or("a new engine has no buckets")?;
    let mut earlier: HashMap<&str, Vec<(&str, PathBuf)>> = HashMap::new();
    for line in list.lines() {
        let mut fields = line.split('\t');
        let (Some(package), Some(key), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            return Err(format!("not a line of a list: {line}").into());
        };
        let plain = std::fs::read(path)?;
        let started = Instant::now();
        let body = futures::stream::iter([Ok::<_, Infallible>(Bytes::from(plain.clone()))]);
        let destination = Destination::Object { key: key.to_owned() };
        let staged =
            engine.stager.stage(&bucket, destination, Some(plain.len() as u64), body, ContentDigest::default()).await?;
        let published = engine
            .publisher
            .publish(&bucket, key, staged, VersionFacts::default(), catalog::Precondition::None)
            .await?;
        let put_s = started.elapsed().as_secs_f64();
        // The next object is to find this one's hooks.
        engine.jobs.settle(Duration::from_secs(60)).await?;
        let known = earlier.entry(package).or_default();
        let mut costs = BTreeMap::new();
        for (earlier_key, path) in known.iter() {
            costs.insert(*earlier_key, cost(Some(&std::fs::read(path)?), &plain));
        }
        let storage = published.storage;
        println!(
            "{}",
            json!({
                "package": package,
                "key": key,
                "size": plain.len(),
                "put_s": put_s,
                "stored_bytes": storage.stored_bytes,
                "form": storage.form.as_str(),
                "reason": storage.reason,
                "bases": storage.bases,
                "alone_bytes": cost(None, &plain),
                "against_bytes": costs,
            })
        );
        known.push((key, path.into()));
    }
    engine.shutdown().await;
    Ok(())
}

fn config(data: &Path) -> EngineConfig {
    let settings = BucketSettings {
        compression: Compression::Delta,
        encryption: Encryption::Off,
        effort: EffortSetting::Balanced,
        backend: "local".into(),
        keysets: Vec::new(),
        configurations: BTreeMap::new(),
        isolation: None,
        storage_headers: Default::default(),
        read_through: None,
    };
    EngineConfig { memory_bytes_max: 1 << 30, schedule_jobs: true, ..EngineConfig::temporary(data, settings) }
}

/// What an object's segments take at best, each alone or against all of `base`.
fn cost(base: Option<&[u8]>, target: &[u8]) -> usize {
    let base = base.map(|base| &base[..base.len().min(WINDOW_LEN_MAX)]);
    let index = base.map(|base| BaseIndex::build(base, Effort::Balanced));
    let layout: Vec<WindowUnit> = base
        .unwrap_or_default()
        .chunks(SEGMENT_LEN)
        .map(|unit| {
            let plain_len = u32::try_from(unit.len()).unwrap_or(u32::MAX);
            WindowUnit { plain_len, stored_len: plain_len / 2, divisible: false }
        })
        .collect();
    let mut encoder = Encoder::new();
    let mut bytes = Vec::new();
    let mut total = 0;
    for segment in target.chunks(SEGMENT_LEN) {
        bytes.clear();
        let alone = whole::compress(segment, 1, segment.len(), &mut bytes).unwrap_or(segment.len());
        let delta = base.zip(index.as_ref()).and_then(|(window, index)| {
            bytes.clear();
            let job = EncodeJob {
                window,
                index,
                layout: &layout,
                target: segment,
                effort: Effort::Balanced,
                limits: FootprintLimits::default(),
                delta_len_max: segment.len(),
            };
            encoder.encode(&job, &mut bytes).map(|_| bytes.len())
        });
        total += delta.map_or(alone, |delta| delta.min(alone));
    }
    total
}
