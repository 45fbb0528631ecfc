//! The S3 backend against a real S3 server.

use crate::gateway::{ACCESS_KEY_ID, Gateway, SECRET_ACCESS_KEY};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};
use storage_backends::{
    Backend, BlobName, ErrorKind, RetryPolicy, Retrying, S3Checksum, S3Config, S3Credentials, Unobserved,
    UploadOptions,
    conformance::{self, ALL_PROMISES, Promises},
    get_all, put_bytes,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// The server keeps objects as files, so one cannot be called like a directory.
const PROMISES: Promises = Promises { nested_names: false, ..ALL_PROMISES };

fn name(text: &str) -> BlobName {
    BlobName::new(text).expect("a name")
}

/// Small parts, so that a test's blob has several.
fn small_parts(config: S3Config) -> S3Config {
    S3Config { upload: UploadOptions { part_bytes: 5 << 20, parts_in_flight: 2 }, ..config }
}

fn files_below(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path());
    entries.map(|path| if path.is_dir() { files_below(&path) } else { 1 }).sum()
}

#[tokio::test]
async fn s3_conforms_with_every_checksum() {
    let gateway = Gateway::start().await;
    for checksum in [S3Checksum::Sha256, S3Checksum::Crc64Nvme, S3Checksum::None] {
        let backend: Arc<dyn Backend> =
            Arc::new(S3Config { checksum, ..small_parts(gateway.config()) }.open().expect("a valid configuration"));
        conformance::run(|| async { backend.clone() }, PROMISES).await;
    }
    nothing_is_left(&gateway).await;
}

#[tokio::test]
async fn s3_conforms_through_the_retrying_wrapper() {
    let gateway = Gateway::start().await;
    let s3 = small_parts(gateway.config()).open().expect("a valid configuration");
    let backend: Arc<dyn Backend> = Arc::new(Retrying::new(s3, RetryPolicy::default(), Arc::new(Unobserved)));
    conformance::run(|| async { backend.clone() }, PROMISES).await;
}

#[tokio::test]
async fn a_missing_bucket_is_an_error_and_never_an_absent_blob() {
    let gateway = Gateway::start().await;
    let backend = S3Config { bucket: "no-such-bucket".to_owned(), ..gateway.config() }.open().expect("valid");
    let name = name("blobs/a");
    assert!(backend.head(&name).await.is_err());
    assert!(backend.get(&name, 0..1).await.is_err());
    assert!(backend.get(&name, 0..0).await.is_err());
    assert!(backend.delete(&name).await.is_err());
    assert!(backend.list("").try_collect::<Vec<_>>().await.is_err());
    assert!(backend.probe().await.is_err());
    assert!(put_bytes(&backend, &name, Bytes::new()).await.is_err());
}

#[tokio::test]
async fn wrong_credentials_are_denied_and_never_absence() {
    let gateway = Gateway::start().await;
    let credentials = S3Credentials::Static {
        access_key_id: ACCESS_KEY_ID.to_owned(),
        secret_access_key: "wrong".into(),
        session_token: None,
    };
    let backend = S3Config { credentials, ..gateway.config() }.open().expect("valid");
    let name = name("blobs/a");
    let kinds = [
        backend.head(&name).await.err().map(|error| error.kind()),
        backend.get(&name, 0..1).await.err().map(|error| error.kind()),
        backend.delete(&name).await.err().map(|error| error.kind()),
        backend.probe().await.err().map(|error| error.kind()),
        put_bytes(&backend, &name, Bytes::from_static(b"x")).await.err().map(|error| error.kind()),
    ];
    assert_eq!(kinds, [Some(ErrorKind::Denied); 5]);
}

#[tokio::test]
async fn a_server_that_is_gone_is_a_transient_error() {
    let gateway = Gateway::start().await;
    let backend = gateway.config().open().expect("valid");
    put_bytes(&backend, &name("blobs/a"), Bytes::from_static(b"x")).await.expect("stored");
    drop(gateway);
    assert_eq!(backend.head(&name("blobs/a")).await.expect_err("gone").kind(), ErrorKind::Transient);
    assert_eq!(backend.get(&name("blobs/a"), 0..1).await.err().expect("gone").kind(), ErrorKind::Transient);
    assert_eq!(backend.probe().await.expect_err("gone").kind(), ErrorKind::Transient);
}

#[tokio::test]
async fn blobs_of_two_prefixes_do_not_see_each_other() {
    let gateway = Gateway::start().await;
    let [one, two, root] = ["one", "two", ""]
        .map(|prefix| S3Config { prefix: prefix.to_owned(), ..gateway.config() }.open().expect("valid"));
    put_bytes(&one, &name("blobs/a"), Bytes::from_static(b"1")).await.expect("stored");
    put_bytes(&two, &name("blobs/a"), Bytes::from_static(b"22")).await.expect("stored");
    assert_eq!(one.head(&name("blobs/a")).await.expect("answers"), Some(1));
    assert_eq!(two.list("").count().await, 1);
    assert_eq!(root.head(&name("two/blobs/a")).await.expect("answers"), Some(2));
    assert!(gateway.bucket_dir().join("one/blobs/a").is_file());
}

#[tokio::test]
async fn objects_that_are_no_blobs_are_not_listed() {
    let gateway = Gateway::start().await;
    let backend = S3Config { prefix: String::new(), ..gateway.config() }.open().expect("valid");
    put_bytes(&backend, &name("blobs/a"), Bytes::from_static(b"x")).await.expect("stored");
    std::fs::write(gateway.bucket_dir().join("README.TXT"), b"not ours").expect("written");
    let listed: Vec<_> = backend.list("").try_collect().await.expect("a listing");
    assert_eq!(listed.into_iter().map(|item| item.name).collect::<Vec<_>>(), [name("blobs/a")]);
}

#[tokio::test]
async fn an_upload_that_is_given_up_leaves_no_parts() {
    let gateway = Gateway::start().await;
    let backend = small_parts(gateway.config()).open().expect("valid");
    let name = name("blobs/a");
    {
        let (taken, mut all_taken) = tokio::sync::mpsc::channel(1);
        let endless = stream::unfold((0u32, taken), |(i, taken)| async move {
            if i == 40 {
                taken.send(()).await.expect("awaited");
                std::future::pending::<()>().await;
            }
            Some((Ok(Bytes::from(vec![i as u8; 1 << 20])), (i + 1, taken)))
        });
        tokio::select! {
            _ = backend.put(&name, endless.boxed(), None) => panic!("a body without an end cannot be stored"),
            _ = all_taken.recv() => {}
        }
        assert!(files_below(&gateway.bucket_dir()) > 0, "parts had been sent");
    }
    nothing_is_left(&gateway).await;
}

#[tokio::test]
async fn uploads_that_a_crash_interrupted_are_removed_by_age_and_prefix() {
    let gateway = Gateway::start().await;
    // A process that ends in the middle: its runtime is gone before anything can be aborted.
    for (prefix, parts_before) in [("prod", 0), ("other", 6)] {
        let bucket_dir = gateway.bucket_dir();
        let config = S3Config { prefix: prefix.to_owned(), ..small_parts(gateway.config()) };
        let crashed = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let backend = config.open().expect("valid");
            let (taken, mut all_taken) = tokio::sync::mpsc::channel(1);
            let body = stream::unfold((0u32, taken), |(i, taken)| async move {
                if i == 30 {
                    taken.send(()).await.expect("awaited");
                    std::future::pending::<()>().await;
                }
                Some((Ok(Bytes::from(vec![0; 1 << 20])), (i + 1, taken)))
            });
            runtime.spawn(async move { backend.put(&name("blobs/a"), body.boxed(), None).await });
            runtime.block_on(async {
                all_taken.recv().await;
                // No part is under way any more: the server would finish it whenever it likes.
                while files_below(&bucket_dir) < parts_before + 6 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            });
            runtime.shutdown_background();
        });
        crashed.join().expect("it ran");
    }
    let backend = gateway.config().open().expect("valid");
    let an_hour = Duration::from_secs(3600);
    assert_eq!(backend.abort_unfinished_uploads(an_hour, &|_| true).await.expect("answers"), 0, "it is young");
    let is_other = |found: &BlobName| *found != name("blobs/a");
    assert_eq!(
        backend.abort_unfinished_uploads(Duration::ZERO, &is_other).await.expect("answers"),
        0,
        "it has an owner"
    );
    assert_eq!(files_below(&gateway.bucket_dir()), 12);
    assert_eq!(backend.abort_unfinished_uploads(Duration::ZERO, &|_| true).await.expect("answers"), 1);
    let other = S3Config { prefix: "other".to_owned(), ..gateway.config() }.open().expect("valid");
    assert_eq!(
        other.abort_unfinished_uploads(Duration::ZERO, &|_| true).await.expect("answers"),
        1,
        "that of the other prefix stayed"
    );
    nothing_is_left(&gateway).await;
    assert_eq!(other.abort_unfinished_uploads(Duration::ZERO, &|_| true).await.expect("answers"), 0);
}

/// Waits until the bucket is empty, parts of given-up uploads included: they are removed after the
/// call that left them has returned.
async fn nothing_is_left(gateway: &Gateway) {
    let cleaned = async {
        while files_below(&gateway.bucket_dir()) > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), cleaned).await.expect("given-up uploads are aborted");
}

/// Stores and reads a blob with these credentials.
async fn works_with(gateway: &Gateway, credentials: S3Credentials) {
    let backend = S3Config { credentials, ..gateway.config() }.open().expect("valid");
    backend.probe().await.expect("the credentials are taken");
    put_bytes(&backend, &name("blobs/a"), Bytes::from_static(b"x")).await.expect("stored");
    assert_eq!(get_all(&backend, &name("blobs/a"), 1).await.expect("answers").expect("there"), "x");
    backend.delete(&name("blobs/a")).await.expect("removed");
}

#[tokio::test]
async fn credentials_come_from_a_file_and_are_rotated_in_it() {
    let gateway = Gateway::start().await;
    let file = tempfile::NamedTempFile::new().expect("a file");
    let text = format!("[store]\naws_access_key_id = {ACCESS_KEY_ID}\naws_secret_access_key = {SECRET_ACCESS_KEY}\n");
    std::fs::write(file.path(), text).expect("written");
    let credentials = S3Credentials::File { path: file.path().to_owned(), profile: Some("store".to_owned()) };
    works_with(&gateway, credentials).await;
    let missing = S3Credentials::File { path: "/nonexistent".into(), profile: None };
    let backend = S3Config { credentials: missing, ..gateway.config() }.open().expect("valid");
    assert!(backend.head(&name("blobs/a")).await.is_err());
}

#[tokio::test]
async fn credentials_come_from_the_environment() {
    let gateway = Gateway::start().await;
    let variables = BTreeMap::from([
        ("AWS_ACCESS_KEY_ID".to_owned(), ACCESS_KEY_ID.into()),
        ("AWS_SECRET_ACCESS_KEY".to_owned(), SECRET_ACCESS_KEY.into()),
        // The backend's own endpoint stands.
        ("AWS_ENDPOINT_URL".to_owned(), "http://127.0.0.1:1".into()),
    ]);
    works_with(&gateway, S3Credentials::Environment(variables)).await;
}

/// The test's server takes no temporary keys, so one fake plays the token service and the store.
#[tokio::test]
async fn a_web_identity_is_exchanged_for_temporary_keys_that_sign_every_request() {
    let token_file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(token_file.path(), "the-token").expect("written");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("bound"));
    let (asked, mut requests) = tokio::sync::mpsc::unbounded_channel();
    let fake = tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            asked.send(answer(connection).await).expect("awaited");
        }
    });
    let credentials = S3Credentials::WebIdentity {
        token_file: token_file.path().to_owned(),
        role_arn: "arn:aws:iam::123456789012:role/store".to_owned(),
        session_name: None,
        sts_endpoint: Some(address.clone()),
    };
    let config = S3Config { endpoint: Some(address), ..S3Config::new("bucket", credentials) };
    let backend = config.open().expect("valid");
    for _ in 0..2 {
        backend.probe().await.expect("the fake says yes");
    }
    fake.abort();
    let exchange = requests.recv().await.expect("the token service was asked first");
    assert!(exchange.contains("Action=AssumeRoleWithWebIdentity"), "{exchange}");
    assert!(exchange.contains("WebIdentityToken=the-token"), "{exchange}");
    assert!(exchange.contains("RoleSessionName=deltaweir"), "{exchange}");
    for _ in 0..2 {
        let request = requests.recv().await.expect("the store was asked");
        assert!(request.contains("Credential=TEMPORARY/"), "{request}");
        assert!(request.contains("x-amz-security-token: session"), "{request}");
    }
    assert!(requests.try_recv().is_err(), "the keys are kept until they expire");
}

/// Answers one request as a token service and a store would; gives back its head.
async fn answer(mut connection: TcpStream) -> String {
    let mut request = Vec::new();
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        assert!(connection.read_buf(&mut request).await.expect("readable") > 0, "a whole request comes");
    }
    let head = String::from_utf8_lossy(&request).into_owned();
    let body = if head.contains("AssumeRoleWithWebIdentity") {
        "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>\
         <AccessKeyId>TEMPORARY</AccessKeyId><SecretAccessKey>secret</SecretAccessKey>\
         <SessionToken>session</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration>\
         </Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
    } else {
        "<ListBucketResult><Name>bucket</Name><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>"
    };
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
    connection.write_all(answer.as_bytes()).await.expect("writable");
    head
}
