//! Fills a store with many small objects, much faster than clients could: `fill_store CONFIG BUCKET
//! OBJECTS [BYTES]`.
//!
//! CONFIG is the file that `deltaweir serve` would read, with the same environment. Every object
//! takes an upload's way through the engine, so every row and every byte is real; only HTTP and
//! flushing are left out, and no background job runs. Prints a line of JSON. What
//! `docs/benchmark/goalbench` measures at many objects stands on it.

use bytes::Bytes;
use deltaweir::{
    config::{Environment, Overrides, ServeConfig},
    engine::{BucketHandle, ContentDigest, Destination, Engine, Metrics, VersionFacts},
    stores::open_engine,
};
use serde_json::json;
use std::{convert::Infallible, error::Error, sync::Arc, time::Instant};
use tokio::task::JoinSet;

/// Uploads under way together: the catalog commits them as a group.
const TOGETHER: usize = 128;
/// Objects below one prefix.
const PER_PREFIX: u64 = 1000;
/// Length of an object when nobody says.
const BYTES: usize = 1024;

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let usage = "usage: fill_store CONFIG BUCKET OBJECTS [BYTES]";
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, bucket, objects, rest @ ..] = arguments.as_slice() else { return Err(usage.into()) };
    let objects: u64 = objects.parse()?;
    let len: usize = rest.first().map_or(Ok(BYTES), |bytes| bytes.parse())?;
    let overrides = Overrides { config: Some(file.into()), ..Overrides::default() };
    let mut config = ServeConfig::load(&overrides, &Environment::of_process())?;
    config.engine.schedule_jobs = false;
    config.stores.sync = false;
    let engine = open_engine(config.engine, &config.stores, Metrics::new()).await?;
    let bucket = match engine.buckets.bucket(bucket).await? {
        Some(bucket) => bucket,
        None => engine.buckets.create_bucket(bucket, "fill").await?.ok_or("the bucket's name is taken")?,
    };
    let started = Instant::now();
    let mut putting = JoinSet::new();
    for number in 0..objects {
        if putting.len() == TOGETHER {
            putting.join_next().await.transpose()?.transpose()?;
        }
        putting.spawn(put(engine.clone(), bucket.clone(), number, len));
    }
    while let Some(done) = putting.join_next().await {
        done??;
    }
    let seconds = started.elapsed().as_secs_f64();
    engine.shutdown().await;
    println!("{}", json!({"objects": objects, "bytes": len, "seconds": seconds}));
    Ok(())
}

async fn put(engine: Arc<Engine>, bucket: BucketHandle, number: u64, len: usize) -> Result<(), Failure> {
    let key = format!("fill/{:06}/object-{number:010}", number / PER_PREFIX);
    let body = futures::stream::iter([Ok::<_, Infallible>(Bytes::from(content(number, len)))]);
    let destination = Destination::Object { key: key.clone() };
    let staged = engine.stager.stage(&bucket, destination, Some(len as u64), body, ContentDigest::default()).await?;
    let facts = VersionFacts { etag: format!("{number:032x}"), ..VersionFacts::default() };
    engine.publisher.publish(&bucket, &key, staged, facts, catalog::Precondition::None).await?;
    Ok(())
}

/// Text that no other number gives, and that compresses about as records do.
fn content(number: u64, len: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(len + 64);
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while text.len() < len {
        // xorshift64: no two numbers below 2^64 share a sequence from the same place on.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.extend_from_slice(format!("record {number} value {state:016x}\n").as_bytes());
    }
    text.truncate(len);
    text
}
