//! Several servers over one PostgreSQL and one store: whichever is asked, the answer is the same.

use crate::{
    cluster::Cluster,
    content::content,
    running::{Running, open},
    wire::Reply,
    wire::Wire,
};
use futures::{StreamExt as _, TryStreamExt as _};
use std::sync::LazyLock;
use tempfile::TempDir;

static CLUSTER: LazyLock<Cluster> = LazyLock::new(Cluster::start);

/// Three servers, each with a data directory of its own.
struct Replicas {
    servers: Vec<Running>,
    /// The catalog's address.
    url: String,
    store: TempDir,
}

impl Replicas {
    async fn start() -> Self {
        let mut replicas = Self {
            servers: Vec::new(),
            url: CLUSTER.url(&CLUSTER.schema().await),
            store: tempfile::tempdir().unwrap(),
        };
        for _ in 0..3 {
            replicas.add().await;
        }
        replicas
    }

    async fn add(&mut self) {
        let config = format!(
            "[storage]\ncatalog = \"{}\"\nbackend = \"shared\"\n[backends.shared]\ntype = \"local\"\npath = \"{}\"\n",
            self.url,
            self.store.path().join("blobs").display()
        );
        self.servers.push(Running::start_in(tempfile::tempdir().unwrap(), &config, open).await);
    }

    async fn call(&self, server: usize, method: &str, target: &str, body: &[u8]) -> Reply {
        Wire::to(self.servers[server].s3).await.call(method, target, body).await
    }

    async fn ok(&self, server: usize, method: &str, target: &str, body: &[u8]) -> Reply {
        let reply = self.call(server, method, target, body).await;
        assert!((200..300).contains(&reply.status), "{method} {target} on {server}: {reply:?}");
        reply
    }
}

fn text<'r>(reply: &'r Reply, element: &str) -> &'r str {
    let body = std::str::from_utf8(&reply.body).unwrap();
    let (_, rest) = body.split_once(&format!("<{element}>")).unwrap();
    rest.split_once("</").unwrap().0
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_replica_acknowledged_every_other_gives_at_once() {
    let replicas = Replicas::start().await;
    replicas.ok(0, "PUT", "/bucket", b"").await;
    let mut current = content(1, 600_000);
    for round in 0..6_usize {
        // A delta against what another replica stored, read through caches that hold the earlier
        // versions.
        let at = round * 90_000;
        current[at..at + 100].fill(round as u8);
        replicas.ok(round % 3, "PUT", "/bucket/key", &current).await;
        for server in 0..3 {
            assert!(replicas.ok(server, "GET", "/bucket/key", b"").await.body == current, "{round} on {server}");
        }
    }
    replicas.ok(1, "DELETE", "/bucket/key", b"").await;
    for server in 0..3 {
        assert_eq!(replicas.call(server, "GET", "/bucket/key", b"").await.status, 404);
        let listed = replicas.ok(server, "GET", "/bucket?list-type=2", b"").await;
        assert_eq!(text(&listed, "KeyCount"), "0");
    }
    // A name that is used again is another bucket, to those too who knew the first.
    replicas.ok(2, "DELETE", "/bucket", b"").await;
    assert_eq!(replicas.call(0, "GET", "/bucket/key", b"").await.code().as_deref(), Some("NoSuchBucket"));
    replicas.ok(1, "PUT", "/bucket", b"").await;
    replicas.ok(0, "PUT", "/bucket/key", b"new").await;
    assert_eq!(replicas.ok(2, "GET", "/bucket/key", b"").await.body, b"new");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_may_touch_every_replica() {
    let replicas = Replicas::start().await;
    replicas.ok(0, "PUT", "/bucket", b"").await;
    replicas.ok(1, "PUT", "/bucket/app-1", &content(7, 11 << 20)).await;
    let created = replicas.ok(0, "POST", "/bucket/app-2?uploads", b"").await;
    let id = text(&created, "UploadId").to_owned();
    let parts = [content(7, 5 << 20), content(9, 5 << 20), content(11, 77)];
    let mut listed = String::new();
    for (number, part) in parts.iter().enumerate() {
        let target = format!("/bucket/app-2?partNumber={}&uploadId={id}", number + 1);
        let stored = replicas.ok((number + 1) % 3, "PUT", &target, part).await;
        let etag = stored.header("etag").unwrap();
        listed += &format!("<Part><PartNumber>{}</PartNumber><ETag>{etag}</ETag></Part>", number + 1);
    }
    for server in 0..3 {
        let seen = replicas.ok(server, "GET", &format!("/bucket/app-2?uploadId={id}"), b"").await;
        assert_eq!(String::from_utf8_lossy(&seen.body).matches("<PartNumber>").count(), 3);
        let uploads = replicas.ok(server, "GET", "/bucket?uploads", b"").await;
        assert_eq!(text(&uploads, "UploadId"), id);
    }
    let document = format!("<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>");
    let target = format!("/bucket/app-2?uploadId={id}");
    let completed = replicas.ok(2, "POST", &target, document.as_bytes()).await;
    assert!(!String::from_utf8_lossy(&completed.body).contains("<Error>"), "{completed:?}");
    for server in 0..3 {
        assert!(replicas.ok(server, "GET", "/bucket/app-2", b"").await.body == parts.concat());
    }
    // Again, on another one: the answer of the first time.
    let again = replicas.ok(1, "POST", &target, document.as_bytes()).await;
    assert_eq!(text(&again, "ETag"), text(&completed, "ETag"));

    let created = replicas.ok(1, "POST", "/bucket/app-3?uploads", b"").await;
    let id = text(&created, "UploadId").to_owned();
    replicas.ok(0, "PUT", &format!("/bucket/app-3?partNumber=1&uploadId={id}"), b"part").await;
    replicas.ok(2, "DELETE", &format!("/bucket/app-3?uploadId={id}"), b"").await;
    let late = replicas.call(0, "PUT", &format!("/bucket/app-3?partNumber=2&uploadId={id}"), b"late").await;
    assert_eq!(late.code().as_deref(), Some("NoSuchUpload"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_on_one_replica_survives_a_collection_on_another() {
    let replicas = Replicas::start().await;
    replicas.ok(0, "PUT", "/bucket", b"").await;
    let body = content(3, 9 << 20);
    replicas.ok(0, "PUT", "/bucket/key", &body).await;

    let reader = &replicas.servers[1].engine;
    let bucket = reader.buckets.bucket("bucket").await.unwrap().unwrap();
    let object = reader.read.open_object(&bucket, "key").await.unwrap().unwrap();
    let mut stream = reader.read.read(&object, 0..body.len() as u64);
    let first = stream.next().await.unwrap().unwrap();
    replicas.ok(2, "DELETE", "/bucket/key", b"").await;
    let report = replicas.servers[0].engine.collect(true).await.unwrap();
    assert_eq!(report.deleted_blobs, 0, "another process may be reading: the grace is not skipped");
    reader.drop_caches();
    let rest: Vec<_> = stream.try_collect().await.unwrap();
    assert!([vec![first], rest].concat().concat() == body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_was_fenced_refuses_what_it_began_and_goes_on_in_a_new_epoch() {
    let replicas = Replicas::start().await;
    replicas.ok(0, "PUT", "/bucket", b"").await;
    let closed = replicas.servers[1].engine.catalog().close_epochs(&[1]).await.unwrap();
    assert_eq!(closed, [1], "the first replica's, which nobody else writes in");
    let mut refused = 0;
    loop {
        let reply = replicas.call(0, "PUT", "/bucket/key", b"content").await;
        match (reply.status, reply.code().as_deref()) {
            (200, _) => break,
            (503, Some("ServiceUnavailable")) => refused += 1,
            _ => panic!("{reply:?}"),
        }
    }
    assert!(refused > 0, "a closed epoch commits nothing");
    assert_eq!(replicas.servers[0].metrics.engine.writer_epochs_lost_total.get(), 1);
    assert_eq!(replicas.ok(2, "GET", "/bucket/key", b"").await.body, b"content");
    let report = replicas.servers[2].engine.collect(true).await.unwrap();
    assert_eq!(report.errors, 0);
    assert_eq!(replicas.ok(1, "GET", "/bucket/key", b"").await.body, b"content");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_runs_once_at_a_time_in_the_whole_deployment() {
    let replicas = Replicas::start().await;
    let collections = replicas.servers.iter().map(|server| server.engine.collect(false));
    for report in futures::future::join_all(collections).await {
        assert_eq!(report.unwrap().errors, 0);
    }
    let runs = replicas.servers[0].engine.jobs.job("gc").await.unwrap()["run"].as_i64().unwrap();
    assert!(runs >= 3, "each asked for one and got one: {runs}");
    assert!(replicas.servers[1].engine.jobs.settle(std::time::Duration::from_secs(60)).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_ends_in_good_order_leaves_no_open_epoch() {
    let mut replicas = Replicas::start().await;
    replicas.servers[2].engine.shutdown().await;
    let catalog = replicas.servers[0].engine.catalog().clone();
    assert_eq!(catalog.closed_epochs().await.unwrap(), [3]);
    replicas.add().await;
    replicas.ok(3, "PUT", "/bucket", b"").await;
    assert_eq!(catalog.closed_epochs().await.unwrap(), [3], "a new replica closes nobody else's");
}
