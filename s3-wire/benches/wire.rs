//! What every request costs before and after its bytes: verifying its signature, undoing
//! aws-chunked, writing a listing.

#![allow(clippy::unwrap_used, reason = "a bench fails by panicking")]

use std::convert::Infallible;
use std::hint::black_box;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput};
use futures::FutureExt;
use http::{Request, request::Parts};
use http_body::Frame;
use http_body_util::StreamBody;
use s3_wire::sigv4::{Identity, PayloadMode, SecretKey, Verifier};
use s3_wire::xml::Document;
use s3_wire::xml::response::{ListObjectsV2Result, ObjectEntry};
use s3_wire::{DecodedBody, Domains, ETag, Framing, Target};

const ACCESS_KEY: &str = "AKIAIOSFODNN7EXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
/// The moment of AWS's examples: 2013-05-24T00:00:00Z.
const THEN_S: u64 = 1_369_353_600;
/// How a body arrives from hyper: in pieces of about this size.
const FRAME_LEN: usize = 64 << 10;
const UNSIGNED_LEN: usize = 1 << 20;
/// A full page.
const KEYS: u64 = 1000;

fn request(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

/// "GET Object" of AWS's documentation, signed by header.
fn get_object() -> Parts {
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/20130524/us-east-1/s3/aws4_request,SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,\
         Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    );
    let headers = [
        ("host", "examplebucket.s3.amazonaws.com"),
        ("range", "bytes=0-9"),
        ("x-amz-content-sha256", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ("x-amz-date", "20130524T000000Z"),
        ("authorization", &authorization),
    ];
    request("GET", "/test.txt", &headers)
}

/// The presigned GET of AWS's documentation.
fn presigned() -> Parts {
    let uri = "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\
               &X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
               &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
    request("GET", uri, &[("host", "examplebucket.s3.amazonaws.com")])
}

/// "Transferring payload in multiple chunks" of AWS's documentation.
fn put_chunked() -> Parts {
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/20130524/us-east-1/s3/aws4_request,\
         SignedHeaders=content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class,\
         Signature=4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"
    );
    let headers = [
        ("host", "s3.amazonaws.com"),
        ("x-amz-date", "20130524T000000Z"),
        ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),
        ("content-encoding", "aws-chunked"),
        ("x-amz-decoded-content-length", "66560"),
        ("content-length", "66824"),
        ("authorization", &authorization),
    ];
    request("PUT", "/examplebucket/chunkObject.txt", &headers)
}

/// The body of [`put_chunked`] as it is on the wire.
fn signed_chunks() -> Vec<u8> {
    let mut wire = Vec::new();
    for (size, signature) in [
        (65536, "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"),
        (1024, "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"),
        (0, "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"),
    ] {
        wire.extend_from_slice(format!("{size:x};chunk-signature={signature}\r\n").as_bytes());
        wire.resize(wire.len() + size, b'a');
        wire.extend_from_slice(b"\r\n");
    }
    wire
}

/// A body in chunks without signatures, as SDKs send it over TLS.
fn unsigned_chunks() -> Vec<u8> {
    let mut wire = Vec::new();
    for _ in 0..UNSIGNED_LEN / FRAME_LEN {
        wire.extend_from_slice(format!("{FRAME_LEN:x}\r\n").as_bytes());
        wire.resize(wire.len() + FRAME_LEN, b'a');
        wire.extend_from_slice(b"\r\n");
    }
    wire.extend_from_slice(b"0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n");
    wire
}

fn authenticate(verifier: &Verifier, domains: &Domains, parts: &Parts) -> Identity {
    let target = Target::parse(parts, domains).unwrap();
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(THEN_S);
    let store = |access_key: &str| (access_key == ACCESS_KEY).then(|| SecretKey::new(SECRET));
    verifier.authenticate(&parts.method, &target, &parts.headers, now, &store).unwrap()
}

/// Decodes a whole body and gives the length of its payload.
fn decode(frames: Vec<Bytes>, framing: Framing) -> usize {
    let frames = futures::stream::iter(frames.into_iter().map(|data| Ok::<_, Infallible>(Frame::data(data))));
    let mut body = DecodedBody::new(StreamBody::new(frames), framing);
    let mut len = 0;
    while let Some(piece) = body.next().now_or_never().unwrap() {
        len += piece.unwrap().len();
    }
    len
}

fn frames(wire: &[u8]) -> Vec<Bytes> {
    wire.chunks(FRAME_LEN).map(Bytes::copy_from_slice).collect()
}

fn listing() -> ListObjectsV2Result {
    let objects = (0..KEYS).map(|number| ObjectEntry {
        key: format!("releases/2026/{:02}/deltaweir-{number:06}.tar", number % 12),
        last_modified: SystemTime::UNIX_EPOCH + Duration::from_secs(THEN_S + number),
        etag: ETag::from_md5([number as u8; 16]),
        size: number * 12_345,
        storage_class: "STANDARD".into(),
        owner: None,
        checksum: None,
    });
    ListObjectsV2Result {
        bucket: "bucket".into(),
        prefix: "releases/".into(),
        delimiter: None,
        start_after: None,
        continuation_token: None,
        next_continuation_token: Some("b3BhcXVl".into()),
        max_keys: KEYS as u32,
        is_truncated: true,
        encoding_type_url: true,
        objects: objects.collect(),
        common_prefixes: Vec::new(),
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let verifier = Verifier::new("us-east-1");
    let domains = Domains::new(["s3.amazonaws.com"]);
    let mut group = criterion.benchmark_group("wire");

    group.throughput(Throughput::Elements(1));
    for (name, parts) in [("header", get_object()), ("presigned", presigned()), ("streaming", put_chunked())] {
        group.bench_function(format!("sigv4/{name}"), |bencher| {
            bencher.iter(|| authenticate(&verifier, &domains, black_box(&parts)));
        });
    }

    let parts = put_chunked();
    let identity = authenticate(&verifier, &domains, &parts);
    let signed = Framing::from_headers(&parts.headers, identity.payload()).unwrap();
    let unsigned = Framing {
        payload: PayloadMode::StreamingUnsignedTrailer,
        decoded_len: UNSIGNED_LEN as u64,
        wire_len: None,
        trailer: Some(s3_wire::checksum::ChecksumAlgorithm::Crc32),
    };
    for (name, framing, wire) in
        [("signed", signed, frames(&signed_chunks())), ("unsigned", unsigned, frames(&unsigned_chunks()))]
    {
        assert_eq!(decode(wire.clone(), framing.clone()) as u64, framing.decoded_len);
        group.throughput(Throughput::Bytes(framing.decoded_len));
        group.bench_function(format!("aws_chunked/{name}"), |bencher| {
            bencher.iter_batched(
                || (wire.clone(), framing.clone()),
                |(wire, framing)| decode(wire, framing),
                BatchSize::SmallInput,
            );
        });
    }

    let listing = listing();
    group.throughput(Throughput::Elements(KEYS));
    group.bench_function("xml_listing", |bencher| bencher.iter(|| black_box(&listing).to_bytes()));
    group.finish();
    criterion.final_summary();
}
