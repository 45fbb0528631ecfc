//! What clients ask an engine for.

use crate::{
    content::{Content, HEAD_LEN},
    history::Held,
};
use bytes::Bytes;
use catalog::{ListEntry, ListQuery, Precondition, UploadsQuery, VersionEntry, VersionRef, VersionsQuery};
use engine::{
    BucketHandle, Completion, ContentDigest, Destination, Engine, EngineError, Named, OpenObject, PartFacts, PartName,
    StagedBody, StoreError, VersionFacts,
};
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::Value;
use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Bytes of a body that come at once.
const PIECE_LEN: usize = 9_000;

/// One thing that is asked for.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Put {
        content: Content,
        if_absent: bool,
        pause: Duration,
    },
    Upload {
        content: Content,
        parts: usize,
    },
    Get,
    Range {
        from: u64,
        to: u64,
    },
    Head,
    Delete,
    /// `seen` is what the source held, as soon as that is known.
    Copy {
        to: String,
        seen: Arc<Mutex<Held>>,
    },
    GetVersion {
        version: VersionRef,
        content: u64,
    },
    DeleteVersion {
        version: VersionRef,
    },
    Job {
        name: &'static str,
        parameters: Value,
    },
}

/// What came of it.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// It was written under this version.
    Written(VersionRef),
    /// The condition did not hold.
    Refused,
    /// It holds this.
    Found(Held),
    /// It is gone.
    Removed,
    /// There was something to copy, and it was copied; or there was nothing.
    Copied(Option<VersionRef>),
    /// A version is there, or not.
    IsThere(bool),
    /// A job ended.
    Done,
    /// Bytes that nobody stored.
    Wrong(String),
    /// What was acknowledged a moment ago is not there.
    Lacks(String),
    /// It failed, and may have been done. Why, for the trace.
    #[expect(dead_code, reason = "read through Debug")]
    Failed(String),
}

impl From<EngineError> for Answer {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::PreconditionFailed => Self::Refused,
            // Bytes are lost, or a row is.
            EngineError::Integrity(_) | EngineError::Damaged(_) | EngineError::Original(_) => {
                Self::Wrong(error.to_string())
            }
            error => Self::Failed(error.to_string()),
        }
    }
}

/// Does it for a key of a bucket.
pub(crate) async fn perform(engine: Arc<Engine>, bucket: String, key: String, operation: Operation) -> Answer {
    if let Operation::Job { name, parameters } = operation {
        return match engine.jobs.run_job(name, parameters).await {
            Ok(_) => Answer::Done,
            Err(error) => error.into(),
        };
    }
    let bucket = match engine.buckets.bucket(&bucket).await {
        Ok(Some(bucket)) => bucket,
        Ok(None) => return Answer::Wrong(format!("bucket {bucket} is not there")),
        Err(error) => return error.into(),
    };
    Box::pin(act(&engine, &bucket, &key, operation)).await.unwrap_or_else(Answer::from)
}

async fn act(
    engine: &Arc<Engine>,
    bucket: &BucketHandle,
    key: &str,
    operation: Operation,
) -> Result<Answer, EngineError> {
    match operation {
        Operation::Put { content, if_absent, pause } => {
            let staged =
                Box::pin(stage(engine, bucket, Destination::Object { key: key.into() }, content.bytes(), pause))
                    .await?;
            let condition = if if_absent { Precondition::Absent } else { Precondition::None };
            let published = engine.publisher.publish(bucket, key, staged, facts_of(content), condition).await?;
            Ok(Answer::Written(published.reference()))
        }
        Operation::Upload { content, parts } => Box::pin(upload(engine, bucket, key, content, parts)).await,
        Operation::Get => match engine.read.open_object(bucket, key).await? {
            None => Ok(Answer::Found(None)),
            Some(object) => read(engine, &object, None).await,
        },
        Operation::Range { from, to } => match engine.read.open_object(bucket, key).await? {
            None => Ok(Answer::Found(None)),
            Some(object) => read(engine, &object, Some((from, to))).await,
        },
        Operation::Head => {
            let Some(info) = engine.read.head(bucket, key).await? else { return Ok(Answer::Found(None)) };
            let content = content_of(&info.facts);
            match content.filter(|content| content.len() as u64 == info.version.size) {
                Some(content) => Ok(Answer::Found(Some(content.number))),
                None => Ok(Answer::Wrong(format!("HEAD {key}: {info:?}"))),
            }
        }
        Operation::Delete => {
            engine.changes.delete(bucket, key, Precondition::None, None).await?;
            Ok(Answer::Removed)
        }
        Operation::Copy { to, seen } => {
            let Some(object) = engine.read.open_object(bucket, key).await? else { return Ok(Answer::Copied(None)) };
            let number = content_of(&object.info.facts).map(|content| content.number);
            *seen.lock().unwrap_or_else(PoisonError::into_inner) = number;
            let facts = object.info.facts.clone();
            let copied = engine.publisher.publish_copy(bucket, &to, &object, facts, Precondition::None).await?;
            Ok(Answer::Copied(Some(copied.reference())))
        }
        Operation::GetVersion { version, content } => match engine.read.open_version(bucket, key, version).await? {
            None | Some(Named::Marker(_)) => Ok(Answer::IsThere(false)),
            Some(Named::Object(object)) => Ok(match read(engine, &object, None).await? {
                Answer::Found(Some(found)) if found == content => Answer::IsThere(true),
                other => Answer::Wrong(format!("version {version} of {key} should hold {content}: {other:?}")),
            }),
        },
        Operation::DeleteVersion { version } => {
            engine.changes.delete_version(bucket, key, version, Precondition::None, false, None).await?;
            Ok(Answer::Removed)
        }
        Operation::Job { .. } => Ok(Answer::Done),
    }
}

fn facts_of(content: Content) -> VersionFacts {
    VersionFacts { etag: format!("{:032x}", content.number), ..VersionFacts::default() }
}

/// Which content an object says that it holds.
fn content_of(facts: &VersionFacts) -> Option<Content> {
    u64::from_str_radix(&facts.etag, 16).ok().map(Content::of)
}

async fn stage(
    engine: &Arc<Engine>,
    bucket: &BucketHandle,
    destination: Destination,
    bytes: Vec<u8>,
    pause: Duration,
) -> Result<StagedBody<()>, EngineError> {
    let len = bytes.len() as u64;
    let bytes = Bytes::from(bytes);
    let pieces: Vec<Bytes> =
        (0..bytes.len()).step_by(PIECE_LEN).map(|at| bytes.slice(at..bytes.len().min(at + PIECE_LEN))).collect();
    let body = futures::stream::iter(pieces).then(move |piece| async move {
        tokio::time::sleep(pause).await;
        Ok::<_, Infallible>(piece)
    });
    let staged = engine.stager.stage(bucket, destination, Some(len), body.boxed(), ContentDigest::default());
    let staged = Box::pin(staged).await;
    staged.map_err(|error| match error {
        StoreError::Engine(error) => error,
        StoreError::Body(never) => match never {},
    })
}

async fn upload(
    engine: &Arc<Engine>,
    bucket: &BucketHandle,
    key: &str,
    content: Content,
    parts: usize,
) -> Result<Answer, EngineError> {
    let upload = engine.uploads.create_upload(bucket, key, "owner", VersionFacts::default()).await?;
    let bytes = content.bytes();
    for (number, part) in (1..).zip(bytes.chunks(bytes.len().div_ceil(parts))) {
        let destination = Destination::Part { key: key.into(), upload, number };
        let staged = Box::pin(stage(engine, bucket, destination, part.to_vec(), Duration::ZERO)).await?;
        let facts = PartFacts { size: part.len() as u64, etag: format!("{number:032x}"), ..PartFacts::default() };
        engine.publisher.publish_part(bucket, PartName { key, upload, number }, staged, facts).await?;
    }
    let parts = engine.uploads.parts(bucket, key, upload, 0, 1000).await?;
    let whole: u64 = parts.iter().map(|(_, facts)| facts.size).sum();
    if whole != bytes.len() as u64 {
        return Ok(Answer::Lacks(format!(
            "upload {upload:?} of {key} has {whole} of {} acknowledged bytes",
            bytes.len()
        )));
    }
    let completion = Completion { upload, parts, parts_digest: [7; 32] };
    let published = engine.publisher.complete(bucket, key, completion, facts_of(content), Precondition::None).await?;
    Ok(Answer::Written(published.reference()))
}

/// Reads an object whole, or a range of it given in thousandths, and recognises it.
async fn read(engine: &Arc<Engine>, object: &OpenObject, share: Option<(u64, u64)>) -> Result<Answer, EngineError> {
    let size = object.info.version.size;
    let range = share.map_or(0..size, |(from, to)| size * from / 1000..size * to / 1000);
    let pieces: Vec<Bytes> = engine.read.read(object, range.clone()).try_collect().await?;
    let bytes = pieces.concat();
    let said = content_of(&object.info.facts);
    let expected = said.filter(|said| said.len() as u64 == size).map(Content::bytes);
    let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
    let is_right = expected.as_ref().and_then(|all| all.get(at(range.start)..at(range.end))) == Some(&bytes[..]);
    let is_itself = share.is_some() || Content::recognised(&bytes) == said;
    Ok(match said {
        Some(said) if is_right && is_itself => Answer::Found(Some(said.number)),
        _ => {
            let head = hex::encode(&bytes[..bytes.len().min(HEAD_LEN)]);
            Answer::Wrong(format!("{:?} {range:?} of {size} begins with {head}", object.info.facts.etag))
        }
    })
}

/// The keys of a bucket as a listing has them.
pub(crate) async fn listed(engine: &Engine, bucket: &BucketHandle) -> Result<Vec<String>, EngineError> {
    let (mut keys, mut after) = (Vec::new(), None);
    loop {
        let query = ListQuery { bucket: bucket.row.id, prefix: String::new(), delimiter: None, after, limit: 5 };
        let page = engine.catalog().list(&query).await?;
        keys.extend(page.entries.into_iter().filter_map(|entry| match entry {
            ListEntry::Key(version) => Some(version.key),
            ListEntry::CommonPrefix(_) => None,
        }));
        after = page.next;
        if after.is_none() {
            return Ok(keys);
        }
    }
}

/// Removes everything that a bucket holds: versions, markers, uploads.
pub(crate) async fn empty(engine: &Arc<Engine>, bucket: &BucketHandle) -> Result<(), EngineError> {
    loop {
        let query = VersionsQuery {
            bucket: bucket.row.id,
            prefix: String::new(),
            delimiter: None,
            key_after: None,
            version_after: None,
            limit: 1000,
        };
        let page = engine.catalog().list_versions(&query).await?;
        if page.entries.is_empty() {
            break;
        }
        for entry in page.entries {
            if let VersionEntry::Version { version, .. } = entry {
                let (key, name) = (version.key.clone(), version.reference());
                engine.changes.delete_version(bucket, &key, name, Precondition::None, false, None).await?;
            }
        }
    }
    let query = UploadsQuery {
        bucket: bucket.row.id,
        prefix: String::new(),
        delimiter: None,
        key_after: None,
        upload_after: None,
        limit: 1000,
    };
    for upload in engine.catalog().uploads(&query).await?.uploads {
        engine.uploads.abort(bucket, &upload.key, upload.id).await?;
    }
    Ok(())
}
