//! What the catalog adds to a request: commits alone and in company, content of one key, pages of
//! listings. SQLite always; PostgreSQL where Debian's server is installed, started here and gone
//! afterwards.
//!
//! Neither flushes: what a flush costs is the disk's matter, and differs more between two runs than
//! anything measured here.

#![allow(clippy::unwrap_used, reason = "a bench fails by panicking")]

#[allow(dead_code, unreachable_pub, reason = "the tests use all of it")]
#[path = "../tests/it/cluster.rs"]
mod cluster;

use std::hint::black_box;
use std::sync::Arc;

use catalog::conformance::desk::Desk;
use catalog::{Catalog, ListQuery, PostgresCatalog, PostgresOptions, SqliteCatalog, SqliteOptions};
use criterion::{Criterion, Throughput};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::cluster::Cluster;

/// Keys in the bucket that is listed, under a hundred common prefixes.
const KEYS: u32 = 10_000;
const PREFIXES: u32 = 100;
/// Commits that wait for each other.
const TOGETHER: u64 = 32;

/// A bucket with [`KEYS`] keys.
async fn fill<C: Catalog>(catalog: Arc<C>) -> Desk<C> {
    let desk = Desk::new(catalog).await;
    let mut putting = JoinSet::new();
    for number in 0..KEYS {
        let desk = desk.clone();
        putting.spawn(async move { desk.put(&key(number)).await });
        if putting.len() == 256 {
            putting.join_next().await.unwrap().unwrap();
        }
    }
    putting.join_all().await;
    desk
}

fn key(number: u32) -> String {
    format!("dir-{:03}/object-{number:08}", number % PREFIXES)
}

fn page<C>(desk: &Desk<C>, delimiter: Option<&str>) -> ListQuery {
    ListQuery {
        bucket: desk.bucket.id,
        prefix: String::new(),
        delimiter: delimiter.map(str::to_owned),
        after: delimiter.is_none().then(|| "dir-050/".to_owned()),
        limit: 1000,
    }
}

fn measure<C: Catalog>(criterion: &mut Criterion, runtime: &Runtime, name: &str, catalog: C) {
    let desk = runtime.block_on(fill(Arc::new(catalog)));
    let mut group = criterion.benchmark_group(format!("catalog/{name}"));

    group.throughput(Throughput::Elements(1));
    group.bench_function("commit", |bencher| {
        let mut number = 0u32;
        bencher.iter(|| {
            number += 1;
            runtime.block_on(desk.put(&format!("written/{:05}", number % 1000)))
        });
    });
    group.bench_function("content", |bencher| {
        bencher.iter(|| runtime.block_on(desk.content(black_box("dir-042/object-00000042"))));
    });
    group.throughput(Throughput::Elements(TOGETHER));
    group.bench_function("commit_together", |bencher| {
        bencher.iter(|| {
            runtime.block_on(async {
                let mut putting = JoinSet::new();
                for number in 0..TOGETHER {
                    let desk = desk.clone();
                    putting.spawn(async move { desk.put(&format!("together/{number:05}")).await });
                }
                putting.join_all().await
            })
        });
    });
    for (what, delimiter, entries) in [("page", None, 1000), ("page_of_prefixes", Some("/"), u64::from(PREFIXES))] {
        let query = page(&desk, delimiter);
        let listed = runtime.block_on(desk.catalog.list(&query)).unwrap().entries.len() as u64;
        assert!(listed >= entries, "{listed}");
        group.throughput(Throughput::Elements(listed));
        group.bench_function(what, |bencher| {
            bencher.iter(|| runtime.block_on(desk.catalog.list(black_box(&query))).unwrap());
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();

    let directory = tempfile::tempdir().unwrap();
    let options = SqliteOptions { sync: false, ..SqliteOptions::default() };
    let sqlite = runtime.block_on(SqliteCatalog::open(directory.path().join("catalog.db"), options)).unwrap();
    measure(&mut criterion, &runtime, "sqlite", sqlite);

    if Cluster::is_installed() {
        let cluster = Cluster::start();
        let schema = runtime.block_on(cluster.schema());
        let url = cluster.url(&schema);
        let postgres = runtime.block_on(PostgresCatalog::open(&url, PostgresOptions::default())).unwrap();
        measure(&mut criterion, &runtime, "postgres", postgres);
        // The catalog's connections end before their server does.
        drop(runtime);
    } else {
        eprintln!("PostgreSQL 15 or later is not installed: the shared catalog is not measured");
    }
    criterion.final_summary();
}
