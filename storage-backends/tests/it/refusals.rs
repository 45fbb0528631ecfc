//! What the backends of the clouds make of answers that a store gives on a bad day.

use crate::scripted::{Answer, Scripted, answer, error};
use bytes::Bytes;
use futures::StreamExt;
use std::{sync::Arc, time::Duration};
use storage_backends::{
    AzureConfig, AzureCredentials, Backend, BlobName, CloudBackend, ErrorKind, GcsConfig, GcsCredentials, PlainStore,
    RetryPolicy, Retrying, S3Config, S3Credentials, Timeouts, Unobserved, UploadOptions, collect, get_all, put_bytes,
};

fn name() -> BlobName {
    BlobName::new("blobs/a").expect("a name")
}

fn s3(store: &Scripted) -> S3Config {
    let credentials = S3Credentials::Static {
        access_key_id: "key".to_owned(),
        secret_access_key: "secret".into(),
        session_token: None,
    };
    S3Config { endpoint: Some(store.endpoint.clone()), ..S3Config::new("bucket", credentials) }
}

/// The same store taken for each cloud's.
fn all_clouds(store: &Scripted) -> [CloudBackend; 3] {
    let endpoint = Some(store.endpoint.clone());
    let gcs = GcsConfig { endpoint: endpoint.clone(), ..GcsConfig::new("bucket", GcsCredentials::Anonymous) };
    let key = AzureCredentials::AccessKey("c2VjcmV0".into());
    let azure = AzureConfig { endpoint, ..AzureConfig::new("account", "bucket", key) };
    [s3(store).open(), gcs.open(), azure.open()].map(|opened| opened.expect("valid"))
}

fn small_parts() -> UploadOptions {
    UploadOptions { part_bytes: 5 << 20, parts_in_flight: 2 }
}

/// A ranged answer of `sent` bytes that announces `announced`, of a blob of `total`.
fn partial(announced: u64, sent: usize, total: u64) -> Answer {
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\nconnection: close\r\ncontent-length: {announced}\r\netag: \"e\"\r\n\
         last-modified: Thu, 01 Jan 2026 00:00:00 GMT\r\ncontent-range: bytes 0-{}/{total}\r\n\r\n",
        announced - 1
    );
    Answer::Bytes([head.into_bytes(), vec![7; sent]].concat())
}

#[tokio::test]
async fn a_blob_is_absent_when_the_store_says_so_of_the_blob_itself() {
    for code in ["NoSuchKey", "BlobNotFound"] {
        let store = Scripted::start(move |head| match head.starts_with("head ") {
            true => answer("404 Not Found", &[], ""),
            false => error("404 Not Found", code),
        })
        .await;
        for backend in all_clouds(&store) {
            assert_eq!(backend.head(&name()).await.expect("answers"), None, "{backend:?} {code}");
            assert!(backend.get(&name(), 0..1).await.expect("answers").is_none(), "{backend:?} {code}");
        }
    }
}

#[tokio::test]
async fn nothing_else_makes_a_blob_absent() {
    let answers: [(&str, &str); 8] = [
        ("404 Not Found", "NoSuchBucket"),
        ("404 Not Found", "ContainerNotFound"),
        ("404 Not Found", ""),
        ("403 Forbidden", "NoSuchKey"),
        ("500 Internal Server Error", "NoSuchKey"),
        ("503 Service Unavailable", "SlowDown"),
        ("301 Moved Permanently", "PermanentRedirect"),
        ("410 Gone", ""),
    ];
    for (status, code) in answers {
        let store = Scripted::start(move |head| match head.starts_with("head ") {
            true => answer(status, &[], ""),
            false => error(status, code),
        })
        .await;
        for backend in all_clouds(&store) {
            assert!(backend.head(&name()).await.is_err(), "{backend:?} {status} {code}");
            assert!(backend.get(&name(), 0..1).await.is_err(), "{backend:?} {status} {code}");
            assert!(backend.get(&name(), 0..0).await.is_err(), "{backend:?} {status} {code}");
            assert!(backend.delete(&name()).await.is_err(), "{backend:?} {status} {code}");
            assert!(backend.probe().await.is_err(), "{backend:?} {status} {code}");
        }
    }
}

#[tokio::test]
async fn an_empty_404_of_a_proxy_in_between_is_not_absence() {
    let store = Scripted::start(|_| answer("404 Not Found", &[], "<html>no such host</html>")).await;
    for backend in all_clouds(&store) {
        assert!(backend.head(&name()).await.is_err());
        assert!(backend.get(&name(), 0..1).await.is_err());
    }
}

#[tokio::test]
async fn throttling_says_how_long_to_wait() {
    let store = Scripted::start(|_| answer("503 Service Unavailable", &["retry-after: 3"], "")).await;
    for backend in all_clouds(&store) {
        let error = backend.head(&name()).await.expect_err("it is throttled");
        assert_eq!((error.kind(), error.retry_after()), (ErrorKind::Throttled, Some(Duration::from_secs(3))));
    }
    assert_eq!(store.heads().len(), 3, "nothing is repeated below the retrying wrapper");
}

#[tokio::test]
async fn a_body_cut_short_is_an_error_and_is_resumed_by_the_wrapper() {
    let store = Scripted::start(|head| match head.contains("bytes=0-") {
        true => partial(1000, 600, 1000),
        false => {
            let head = "HTTP/1.1 206 Partial Content\r\nconnection: close\r\ncontent-length: 400\r\netag: \"e\"\r\n\
                        last-modified: Thu, 01 Jan 2026 00:00:00 GMT\r\ncontent-range: bytes 600-999/1000\r\n\r\n";
            Answer::Bytes([head.as_bytes(), &[7; 400]].concat())
        }
    })
    .await;
    for backend in all_clouds(&store) {
        let stream = backend.get(&name(), 0..1000).await.expect("answers").expect("there");
        assert_eq!(collect(stream, 1000).await.expect_err("it is cut").kind(), ErrorKind::Transient);
        let policy = RetryPolicy { pause_first: Duration::from_millis(1), ..RetryPolicy::default() };
        let retrying = Retrying::new(backend, policy, Arc::new(Unobserved));
        let whole = get_all(&retrying, &name(), 1000).await.expect("it is resumed").expect("there");
        assert_eq!(whole, vec![7; 1000]);
    }
}

#[tokio::test]
async fn an_answer_to_another_question_is_an_error() {
    // The range is ignored; then it is another one than asked for.
    let whole = Scripted::start(|_| {
        answer("200 OK", &["etag: \"e\"", "last-modified: Thu, 01 Jan 2026 00:00:00 GMT"], vec![7; 1000])
    })
    .await;
    let other = Scripted::start(|_| partial(50, 50, 1000)).await;
    for store in [whole, other] {
        for backend in all_clouds(&store) {
            assert!(backend.get(&name(), 0..100).await.is_err(), "{backend:?}");
        }
    }
}

#[tokio::test]
async fn a_silent_store_is_given_up() {
    let store = Scripted::start(|_| Answer::Silence).await;
    let timeouts = Timeouts { silence: Duration::from_millis(200), ..Timeouts::default() };
    let backend = S3Config { timeouts, ..s3(&store) }.open().expect("valid");
    assert_eq!(backend.head(&name()).await.expect_err("silent").kind(), ErrorKind::Transient);
    assert_eq!(backend.get(&name(), 0..1).await.err().expect("silent").kind(), ErrorKind::Transient);
    assert_eq!(put_bytes(&backend, &name(), Bytes::new()).await.expect_err("silent").kind(), ErrorKind::Transient);
}

#[tokio::test]
async fn a_store_without_conditional_writes_is_written_to_all_the_same() {
    let store = Scripted::start(|head| match head.contains("if-none-match") {
        true => error("501 Not Implemented", "NotImplemented"),
        false => answer("200 OK", &["etag: \"e\""], ""),
    })
    .await;
    let backend = s3(&store).open().expect("valid");
    for _ in 0..2 {
        put_bytes(&backend, &name(), Bytes::from_static(b"x")).await.expect("stored");
    }
    let conditional = store.heads().iter().filter(|head| head.contains("if-none-match")).count();
    assert_eq!((conditional, store.heads().len()), (1, 3), "it is asked once");
}

/// A store that takes parts, answers a completion with `completion`, and says that every blob has
/// `stored_len` bytes.
async fn multipart_store(completion: fn() -> Answer, stored_len: u64) -> Scripted {
    Scripted::start(move |head| multipart_answer(head, completion, stored_len)).await
}

fn multipart_answer(head: &str, completion: fn() -> Answer, stored_len: u64) -> Answer {
    if head.starts_with("post ") && head.contains("?uploads") {
        let body = "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>";
        answer("200 OK", &[], body)
    } else if head.starts_with("post ") {
        completion()
    } else if head.starts_with("head ") {
        let head = format!(
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {stored_len}\r\netag: \"e\"\r\n\
             last-modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n"
        );
        Answer::Bytes(head.into_bytes())
    } else {
        answer("200 OK", &["etag: \"e\""], "")
    }
}

fn completed() -> Answer {
    let body = "<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>";
    answer("200 OK", &[], body)
}

/// Waits for a request that is sent after the call has returned.
async fn asked(store: &Scripted, start: &str) {
    let waiting = async {
        while !store.heads().iter().any(|head| head.starts_with(start)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), waiting).await.expect(start);
}

#[tokio::test]
async fn a_completion_that_fails_after_its_200_is_a_failure() {
    let store = multipart_store(|| error("200 OK", "InternalError"), 6 << 20).await;
    let backend = S3Config { upload: small_parts(), ..s3(&store) }.open().expect("valid");
    let error = put_bytes(&backend, &name(), Bytes::from(vec![1; 6 << 20])).await.expect_err("not completed");
    assert_eq!(error.kind(), ErrorKind::Transient);
    asked(&store, "delete /bucket/blobs/a?uploadid=u").await;
}

#[tokio::test]
async fn a_completed_upload_of_the_wrong_length_is_corrupt_and_taken_back() {
    let store = multipart_store(completed, (6 << 20) - 1).await;
    let backend = S3Config { upload: small_parts(), ..s3(&store) }.open().expect("valid");
    let error = put_bytes(&backend, &name(), Bytes::from(vec![1; 6 << 20])).await.expect_err("too short");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    asked(&store, "delete /bucket/blobs/a ").await;
}

#[tokio::test]
async fn a_completion_is_exclusive_until_the_store_does_not_know_that() {
    let store = multipart_store(completed, 6 << 20).await;
    let backend = S3Config { upload: small_parts(), ..s3(&store) }.open().expect("valid");
    put_bytes(&backend, &name(), Bytes::from(vec![1; 6 << 20])).await.expect("stored");
    let completions = |store: &Scripted| -> Vec<bool> {
        let heads = store.heads();
        let completions = heads.iter().filter(|head| head.starts_with("post ") && head.contains("uploadid="));
        completions.map(|head| head.contains("if-none-match: *")).collect()
    };
    assert_eq!(completions(&store), [true]);

    let ignorant = Scripted::start(|head| match head.contains("if-none-match") {
        true => error("501 Not Implemented", "NotImplemented"),
        false => multipart_answer(head, completed, 6 << 20),
    })
    .await;
    let backend = S3Config { upload: small_parts(), ..s3(&ignorant) }.open().expect("valid");
    for _ in 0..2 {
        put_bytes(&backend, &name(), Bytes::from(vec![1; 6 << 20])).await.expect("stored");
    }
    assert_eq!(completions(&ignorant), [true, false, false]);
}

/// A page of one object, behind which the same page comes again, as S3, GCS and Azure write it.
fn page_that_comes_again(head: &str) -> Answer {
    let body = match head.contains("restype=container") {
        true => {
            "<EnumerationResults><Blobs><Blob><Name>blobs/a</Name><Properties>\
             <Last-Modified>Thu, 01 Jan 2026 00:00:00 GMT</Last-Modified><Content-Length>7</Content-Length>\
             <Content-Type>text/plain</Content-Type><Etag>e</Etag></Properties></Blob></Blobs>\
             <NextMarker>again</NextMarker></EnumerationResults>"
        }
        false => {
            "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>again</NextContinuationToken>\
             <Contents><Key>blobs/a</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>7</Size>\
             <ETag>&quot;e&quot;</ETag></Contents></ListBucketResult>"
        }
    };
    answer("200 OK", &["content-type: application/xml"], body)
}

#[tokio::test]
async fn a_listing_that_does_not_move_on_is_an_error_and_no_listing_without_end() {
    let ends = |listed: Vec<Option<ErrorKind>>| assert_eq!(listed, [None, Some(ErrorKind::Corrupt)]);
    for cloud in 0..3 {
        let store = Scripted::start(page_that_comes_again).await;
        let backend = &all_clouds(&store)[cloud];
        ends(backend.list("blobs/").take(9).map(|item| item.err().map(|error| error.kind())).collect().await);
        assert_eq!(store.heads().len(), 2, "{backend:?} is asked for no page twice");
        ends(
            backend
                .plain()
                .list("blobs/", None)
                .take(9)
                .map(|item| item.err().map(|error| error.kind()))
                .collect()
                .await,
        );
    }
    let store = Scripted::start(page_that_comes_again).await;
    let plain = s3(&store).open_plain().expect("valid");
    ends(plain.list("blobs/", None).take(9).map(|item| item.err().map(|error| error.kind())).collect().await);
}
