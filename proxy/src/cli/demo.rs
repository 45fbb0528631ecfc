//! `deltaweir demo`: a store of successive builds made here, what they take, and the console.
//! Needs no network, no client and no data.

use super::{
    outcome::{Failure, out},
    print,
    serve::steps,
};
use crate::{
    auth::{Principal, Users, admin_token, root},
    config::{Environment, Overrides, ServeConfig},
    engine::{BucketHandle, ContentDigest, Destination, Engine, StoreError, VersionFacts},
    metrics::Metrics,
    stores::open_engine,
};
use bytes::Bytes;
use catalog::Precondition;
use clap::Args;
use crypto::Digest as _;
use indicatif::ProgressBar;
use md5::Md5;
use std::{collections::BTreeMap, net::TcpListener, path::PathBuf, sync::Arc};
use storage_backends::BackendError;

/// Builds that are made.
const BUILDS: u64 = 8;
/// Parts of a build, and bytes of each: contents that no compressor shrinks.
const PARTS: usize = 48;
const PART_BYTES: usize = 64 << 10;
/// Parts that each build replaces.
const REPLACED: u64 = 1;
const BUCKET: &str = "releases";

#[derive(Args)]
pub(super) struct DemoFlags {
    /// Keep the demo's store in this directory, which must not exist yet
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Exit after the figures instead of serving the console
    #[arg(long)]
    once: bool,
}

/// Where a demo listens, and what it needs to go on as a server.
pub(super) struct Demo {
    pub(super) overrides: Overrides,
    /// The folder goes when this is dropped, unless the caller named it.
    _folder: Option<tempfile::TempDir>,
}

/// Makes the store and shows what it takes; `None` when that was all.
pub(super) async fn demo(flags: DemoFlags) -> Result<Option<Demo>, Failure> {
    let (folder, temporary) = match flags.folder {
        Some(folder) if folder.exists() => {
            return Err(Failure(format!("{} already exists: name another folder", folder.display())));
        }
        Some(folder) => (folder, None),
        None => {
            let temporary = tempfile::Builder::new().prefix("deltaweir-demo-").tempdir()?;
            (temporary.path().join("data"), Some(temporary))
        }
    };
    let overrides = Overrides {
        data: Some(folder.clone()),
        listen: Some(free_address()?),
        admin_listen: Some(free_address()?),
        log: Some("warn".into()),
        ..Overrides::default()
    };
    let config = ServeConfig::load(&overrides, &Environment::default())?;
    let pair = root::load_or_create(&folder)?;
    let users = Users::new(Some(pair.credentials.clone()), Vec::new());
    let owner = Principal::named(&users, "root").map(|root| root.canonical_id().to_owned()).unwrap_or_default();
    let (listen, admin, region) = (config.server.listen, config.server.admin_listen, config.server.region.clone());
    let engine = open_engine(config.engine, &config.stores, Metrics::new()?.engine.clone()).await?;
    let stored = store(&engine, &owner).await;
    let stats = engine.reports.stats().await;
    engine.shutdown().await;
    stored?;
    out(print::stats(&stats?).trim_end())?;
    if flags.once {
        return Ok(None);
    }
    let token = admin_token::load_or_create(&folder)?;
    let secret = pair.printed_once.ok_or("the demo's key pair was not made here")?;
    out(&steps(&pair.credentials, &secret, &region, &format!("http://{listen}"), &folder))?;
    use secrecy::ExposeSecret as _;
    out(&format!("Console: http://{admin}/\nToken:   {}\nCtrl-C ends the demo.", token.expose_secret()))?;
    Ok(Some(Demo { overrides, _folder: temporary }))
}

/// An address of loopback that nobody listens on now.
fn free_address() -> std::io::Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

async fn store(engine: &Arc<Engine>, owner: &str) -> Result<(), Failure> {
    let bucket = engine.buckets.create_bucket(BUCKET, owner).await?.ok_or("the demo's bucket is there already")?;
    let bar = ProgressBar::new(BUILDS);
    let mut builds = Builds::new();
    for number in 1..=BUILDS {
        let content = builds.next(number);
        let (len, key) = (content.len(), format!("app/build-{number}.tar"));
        let stored = put(engine, &bucket, &key, content).await?;
        bar.inc(1);
        bar.suspend(|| out(&format!("{key}  {:>9}  stored in {:>9}", print::bytes(len as u64), print::bytes(stored))))?;
    }
    bar.finish_and_clear();
    Ok(())
}

/// Stores an object as an upload does, and gives the bytes it took.
async fn put(engine: &Engine, bucket: &BucketHandle, key: &str, content: Bytes) -> Result<u64, Failure> {
    let etag = hex::encode(Md5::digest(&content));
    let headers = BTreeMap::from([("content-type".to_owned(), "application/x-tar".to_owned())]);
    let len = content.len() as u64;
    let body = futures::stream::iter([Ok::<_, BackendError>(content)]);
    let destination = Destination::Object { key: key.to_owned() };
    let staged = engine.stager.stage(bucket, destination, Some(len), Box::pin(body), ContentDigest::default()).await;
    let staged = staged.map_err(|error| match error {
        StoreError::Body(error) => Failure(error.to_string()),
        StoreError::Engine(error) => Failure(error.to_string()),
    })?;
    let facts = VersionFacts { etag, headers, ..VersionFacts::default() };
    let published = engine.publisher.publish(bucket, key, staged, facts, Precondition::None).await?;
    Ok(published.storage.stored_bytes)
}

/// Successive builds: each has the one before it, but for some parts and the text of its log. The
/// same ones in each demo.
struct Builds {
    state: u64,
    parts: Vec<Vec<u8>>,
}

impl Builds {
    fn new() -> Self {
        let mut builds = Self { state: 0x9e37_79b9_7f4a_7c15, parts: Vec::new() };
        builds.parts = (0..PARTS).map(|_| builds.part()).collect();
        builds
    }

    /// xorshift64 (Marsaglia, "Xorshift RNGs", 2003): looks random, costs nothing.
    fn number(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    fn part(&mut self) -> Vec<u8> {
        (0..PART_BYTES / 8).flat_map(|_| self.number().to_le_bytes()).collect()
    }

    fn next(&mut self, number: u64) -> Bytes {
        for _ in 0..REPLACED {
            let place = usize::try_from(self.number() % PARTS as u64).unwrap_or(0);
            self.parts[place] = self.part();
        }
        let line = |line: u64| format!("{line:06} step {} of build {number}\n", line % 97);
        let log: String = (0..4000).map(line).collect();
        [self.parts.concat(), log.into_bytes()].concat().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_is_mostly_the_one_before_it() {
        let mut builds = Builds::new();
        let (first, second) = (builds.next(1), builds.next(2));
        let same = first.chunks(PART_BYTES).zip(second.chunks(PART_BYTES)).filter(|(a, b)| a == b).count();
        assert!(same >= PARTS - REPLACED as usize && same < PARTS, "{same}");
        assert_eq!(Builds::new().next(1), first);
    }
}
