//! The AWS SDK for Rust against an endpoint: `rust-sdk ENDPOINT REGION KEY-ID SECRET BUCKET CHECK`.
//! The bucket exists and is empty. Ends with 0 when the check held. `tests/e2e/test_rust_sdk.py`
//! builds and runs it.

#![forbid(unsafe_code)]

use aws_sdk_s3::{
    Client,
    config::{BehaviorVersion, Credentials, Region, retry::RetryConfig},
    error::{ProvideErrorMetadata, SdkError},
    primitives::ByteStream,
    types::{ChecksumAlgorithm, ChecksumMode, CompletedMultipartUpload, CompletedPart, Delete, ObjectIdentifier},
};
use std::{collections::BTreeSet, error::Error, process::ExitCode};

type Outcome = Result<(), Box<dyn Error>>;

const PART_LEN: usize = 5 << 20;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [endpoint, region, key_id, secret, bucket, check] = arguments.as_slice() else {
        eprintln!("rust-sdk ENDPOINT REGION KEY-ID SECRET BUCKET CHECK");
        return ExitCode::from(2);
    };
    let config = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .endpoint_url(endpoint)
        .region(Region::new(region.clone()))
        .credentials_provider(Credentials::new(key_id, secret, None, None, "arguments"))
        .retry_config(RetryConfig::disabled())
        .force_path_style(true)
        .build();
    let at = Place { s3: Client::from_conf(config), bucket: bucket.clone() };
    let outcome = match check.as_str() {
        "objects" => at.objects().await,
        "checksums" => at.checksums().await,
        "multipart" => at.multipart().await,
        "listing" => at.listing().await,
        "conditions" => at.conditions().await,
        "copy" => at.copy().await,
        other => Err(format!("no check is called {other}").into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{check}: {error}: {error:?}");
            ExitCode::FAILURE
        }
    }
}

struct Place {
    s3: Client,
    bucket: String,
}

impl Place {
    /// A PUT with metadata, whole and ranged GETs, HEAD, DELETE.
    async fn objects(&self) -> Outcome {
        let content = noise(1, 3 << 20);
        let put = self.s3.put_object().bucket(&self.bucket).key("größe & more").content_type("text/x-test");
        let put = put.metadata("colour", "blue").body(content.clone().into()).send().await?;
        let key = "größe & more";
        let head = self.s3.head_object().bucket(&self.bucket).key(key).send().await?;
        same(head.content_length(), Some(3 << 20), "length")?;
        same(head.e_tag(), put.e_tag(), "tag")?;
        same(head.content_type(), Some("text/x-test"), "content type")?;
        same(head.metadata().and_then(|all| all.get("colour")).map(String::as_str), Some("blue"), "metadata")?;
        same(self.get(key, None).await?, content.clone(), "content")?;
        same(self.get(key, Some("bytes=1000000-1000999")).await?, content[1_000_000..1_001_000].to_vec(), "range")?;
        self.s3.delete_object().bucket(&self.bucket).key(key).send().await?;
        let gone = self.s3.get_object().bucket(&self.bucket).key(key).send().await;
        refused(gone, "NoSuchKey")
    }

    /// Every checksum algorithm, sent as a trailer and checked on the way back.
    async fn checksums(&self) -> Outcome {
        let content = noise(2, 200_000);
        for algorithm in [
            ChecksumAlgorithm::Crc32,
            ChecksumAlgorithm::Crc32C,
            ChecksumAlgorithm::Crc64Nvme,
            ChecksumAlgorithm::Sha1,
            ChecksumAlgorithm::Sha256,
        ] {
            let key = algorithm.as_str();
            let put = self.s3.put_object().bucket(&self.bucket).key(key).checksum_algorithm(algorithm.clone());
            put.body(content.clone().into()).send().await?;
            let got = self.s3.get_object().bucket(&self.bucket).key(key);
            let got = got.checksum_mode(ChecksumMode::Enabled).send().await?;
            let told = [
                got.checksum_crc32(),
                got.checksum_crc32_c(),
                got.checksum_crc64_nvme(),
                got.checksum_sha1(),
                got.checksum_sha256(),
            ];
            same(told.iter().filter(|sum| sum.is_some()).count(), 1, "number of checksums")?;
            same(got.body.collect().await?.to_vec(), content.clone(), "content")?;
        }
        Ok(())
    }

    /// Parts out of order, completed; and an upload that is given up.
    async fn multipart(&self) -> Outcome {
        let content = noise(3, 2 * PART_LEN + 12_345);
        let (bucket, key) = (&self.bucket, "parts");
        let upload = self.s3.create_multipart_upload().bucket(bucket).key(key).send().await?;
        let id = upload.upload_id().ok_or("no upload id")?;
        let mut parts = Vec::new();
        for (number, part) in (1..).zip(content.chunks(PART_LEN)).collect::<Vec<_>>().into_iter().rev() {
            let sent = self.s3.upload_part().bucket(bucket).key(key).upload_id(id).part_number(number);
            let sent = sent.body(ByteStream::from(part.to_vec())).send().await?;
            parts.push(CompletedPart::builder().part_number(number).set_e_tag(sent.e_tag).build());
        }
        parts.reverse();
        let list = CompletedMultipartUpload::builder().set_parts(Some(parts)).build();
        let done = self.s3.complete_multipart_upload().bucket(bucket).key(key).upload_id(id);
        let done = done.multipart_upload(list).send().await?;
        same(done.e_tag().is_some_and(|tag| tag.ends_with("-3\"")), true, "a tag of three parts")?;
        same(self.get(key, None).await?, content, "content")?;
        let upload = self.s3.create_multipart_upload().bucket(bucket).key("given up").send().await?;
        let id = upload.upload_id().ok_or("no upload id")?;
        self.s3.abort_multipart_upload().bucket(bucket).key("given up").upload_id(id).send().await?;
        let parts = self.s3.list_parts().bucket(bucket).key("given up").upload_id(id).send().await;
        refused(parts, "NoSuchUpload")
    }

    /// Pages, prefixes, a delimiter, and the removal of many keys at once.
    async fn listing(&self) -> Outcome {
        let keys: BTreeSet<String> = (0..25).map(|number| format!("{}/{number:02}", number % 3)).collect();
        for key in &keys {
            self.s3.put_object().bucket(&self.bucket).key(key).body(noise(4, 10).into()).send().await?;
        }
        let pages = self.s3.list_objects_v2().bucket(&self.bucket).max_keys(7).into_paginator();
        let mut pages = pages.send();
        let mut found = BTreeSet::new();
        while let Some(page) = pages.next().await {
            for entry in page?.contents() {
                same(found.insert(entry.key().ok_or("no key")?.to_owned()), true, "a key is listed once")?;
            }
        }
        same(&found, &keys, "keys")?;
        let shallow = self.s3.list_objects_v2().bucket(&self.bucket).delimiter("/").send().await?;
        let prefixes: Vec<_> = shallow.common_prefixes().iter().filter_map(|entry| entry.prefix()).collect();
        same(prefixes, vec!["0/", "1/", "2/"], "common prefixes")?;
        let names = keys.iter().map(|key| ObjectIdentifier::builder().key(key).build());
        let delete = Delete::builder().set_objects(Some(names.collect::<Result<_, _>>()?)).build()?;
        let deleted = self.s3.delete_objects().bucket(&self.bucket).delete(delete).send().await?;
        same(deleted.deleted().len(), keys.len(), "deleted")?;
        let left = self.s3.list_objects_v2().bucket(&self.bucket).send().await?;
        same(left.key_count(), Some(0), "keys left")
    }

    /// Create once, swap by tag, refuse the rest.
    async fn conditions(&self) -> Outcome {
        let put = || self.s3.put_object().bucket(&self.bucket).key("k");
        let first = put().if_none_match("*").body(noise(5, 100).into()).send().await?;
        let tag = first.e_tag().ok_or("no tag")?;
        refused(put().if_none_match("*").body(noise(6, 100).into()).send().await, "PreconditionFailed")?;
        put().if_match(tag).body(noise(7, 100).into()).send().await?;
        refused(put().if_match(tag).body(noise(8, 100).into()).send().await, "PreconditionFailed")?;
        same(self.get("k", None).await?, noise(7, 100), "content")
    }

    /// A copy with other metadata, read back.
    async fn copy(&self) -> Outcome {
        let content = noise(9, 300_000);
        let put = self.s3.put_object().bucket(&self.bucket).key("from");
        put.body(content.clone().into()).send().await?;
        let copy = self.s3.copy_object().bucket(&self.bucket).key("to");
        copy.copy_source(format!("{}/from", self.bucket)).send().await?;
        self.s3.delete_object().bucket(&self.bucket).key("from").send().await?;
        same(self.get("to", None).await?, content, "content")
    }

    async fn get(&self, key: &str, range: Option<&str>) -> Result<Vec<u8>, Box<dyn Error>> {
        let got = self.s3.get_object().bucket(&self.bucket).key(key).set_range(range.map(Into::into)).send().await?;
        Ok(got.body.collect().await?.to_vec())
    }
}

/// The same bytes for the same seed, and nothing that shrinks (xorshift).
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn same<T: PartialEq>(found: T, expected: T, what: &str) -> Outcome {
    if found == expected { Ok(()) } else { Err(format!("{what} is not what was expected").into()) }
}

/// Whether a call failed with an S3 error code.
fn refused<T, E: ProvideErrorMetadata + Error, R>(outcome: Result<T, SdkError<E, R>>, code: &str) -> Outcome {
    match outcome {
        Ok(_) => Err(format!("accepted, but {code} was expected").into()),
        Err(error) if error.code() == Some(code) => Ok(()),
        Err(error) => Err(format!("{:?} instead of {code}", error.code()).into()),
    }
}
