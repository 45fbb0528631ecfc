//! What is inside an object: its containers and their deflate streams.

use super::Reports;
use crate::{
    bases::base::VIEW_LEN_MAX,
    error::EngineError,
    read::object::{Named, OpenObject},
    resources::pace::Pace,
    write::scans::ScanFor,
};
use catalog::VersionRef;
use deflate_view::Stream;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Streams that are listed one by one.
const LISTED_MAX: usize = 1000;

/// Sums over the streams of one kind of container.
#[derive(Default, Serialize)]
struct StreamSums {
    streams: u64,
    compressed_bytes: u64,
    plain_bytes: u64,
}

type ByContainer = BTreeMap<&'static str, StreamSums>;

fn add<'s>(sums: &mut ByContainer, streams: impl IntoIterator<Item = &'s Stream>) {
    for stream in streams {
        let sum = sums.entry(stream.container.name()).or_default();
        sum.streams += 1;
        sum.compressed_bytes += stream.end - stream.start;
        sum.plain_bytes += stream.plain_len;
    }
}

impl Reports {
    /// The body of `POST /api/v1/streams`: the containers and deflate streams in a version, or in
    /// the current one; `None` when there is none. Reads all of its content, one object at a time.
    ///
    /// # Errors
    /// [`EngineError::Busy`] while another one is read, [`EngineError::TooLarge`] for what is too
    /// long for views; else as [`Reports::explain`].
    pub async fn streams(
        &self,
        bucket: &str,
        key: &str,
        version: Option<VersionRef>,
    ) -> Result<Option<Value>, EngineError> {
        let Ok(_one_at_a_time) = self.looking_inside.try_lock() else {
            return Err(EngineError::Busy("another object is being looked into"));
        };
        let Some(handle) = self.buckets.bucket(bucket).await? else { return Ok(None) };
        let found: Option<OpenObject> = match version {
            None => self.read.open_object(&handle, key).await?,
            Some(version) => match self.read.open_version(&handle, key, version).await? {
                Some(Named::Object(object)) => Some(object),
                Some(Named::Marker(_)) | None => None,
            },
        };
        let Some(object) = found else { return Ok(None) };
        let size = object.info.version.size;
        if size > VIEW_LEN_MAX {
            return Err(EngineError::TooLarge);
        }
        let scanned = self.views.scan(&handle, &object, ScanFor::Report, &Pace::new(0)).await?;
        let streams = &scanned.index.streams;
        let (mut containers, mut nested) = (ByContainer::new(), ByContainer::new());
        add(&mut containers, streams);
        add(&mut nested, streams.iter().flat_map(|stream| &stream.nested));
        let within: u64 = streams.iter().map(|stream| stream.end - stream.start).sum();
        let listed = streams.iter().take(LISTED_MAX).map(|stream| {
            json!({
                "container": stream.container.name(),
                "offset": stream.start,
                "compressed_bytes": stream.end - stream.start,
                "plain_bytes": stream.plain_len,
                "nested": stream.nested.len(),
            })
        });
        Ok(Some(json!({
            "bucket": bucket,
            "key": key,
            "version": object.info.version.reference().to_string(),
            "bytes": size,
            "outside_bytes": size.saturating_sub(within),
            "containers": containers,
            "nested": nested,
            "streams": listed.collect::<Vec<_>>(),
            "more": streams.len() > LISTED_MAX,
        })))
    }
}
