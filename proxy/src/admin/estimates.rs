//! What a bucket's objects would take under other settings: one question at a time, since each has
//! a temporary store.

use super::{
    AdminError, AdminService, ApiResult,
    calls::{count, required},
};
use crate::{
    engine::{Compression, EffortSetting},
    preview::{PREVIEW_DIRECTORY, PreviewOptions, preview},
};
use http::StatusCode;
use s3_wire::Query;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::path::Path;
use tokio::runtime::Handle;

/// Bytes that are read when nobody says how many, and most of them.
const SAMPLE_BYTES: usize = 64 << 20;
const SAMPLE_BYTES_MAX: usize = 512 << 20;

impl AdminService {
    /// Answers previews from now on, with temporary stores below this data directory.
    pub fn preview_in(&self, data: &Path) {
        self.previews.get_or_init(|| data.join(PREVIEW_DIRECTORY));
    }

    /// The body of `POST /api/v1/preview`.
    pub(super) async fn preview(&self, query: &Query) -> ApiResult {
        let bucket = required(query, "bucket")?.to_owned();
        let options = PreviewOptions {
            prefix: query.get("prefix").unwrap_or_default().to_owned(),
            compression: chosen::<Compression>(query, "compression")?,
            effort: chosen::<EffortSetting>(query, "effort")?,
            sample_bytes: count(query, "sample_bytes", SAMPLE_BYTES, SAMPLE_BYTES_MAX)? as u64,
            seed: count(query, "seed", 1, usize::MAX)? as u64,
        };
        let none = || AdminError::new(StatusCode::SERVICE_UNAVAILABLE, "there is no room for a temporary store");
        let work = self.previews.get().ok_or_else(none)?.clone();
        let busy = || AdminError::new(StatusCode::CONFLICT, "another preview is under way");
        let turn = self.preview_turn.clone().try_lock_owned().map_err(|_| busy())?;
        let (engine, name) = (self.engine.clone(), bucket.clone());
        // It goes on when its caller leaves: half a temporary store would have nobody to end it. A
        // thread that may wait drives it, beside those that serve.
        let runtime = Handle::current();
        let found = tokio::task::spawn_blocking(move || {
            let found = runtime.block_on(Box::pin(preview(engine, &bucket, &work, options)));
            drop(turn);
            found
        });
        let found =
            found.await.map_err(|error| AdminError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        let found = found?.ok_or_else(|| AdminError::unknown("bucket", &name))?;
        Ok(serde_json::to_value(found).unwrap_or_default())
    }
}

/// A setting that a parameter names, as the configuration does; `None` when it is left out.
fn chosen<T: DeserializeOwned>(query: &Query, name: &str) -> Result<Option<T>, AdminError> {
    let Some(text) = query.get(name).filter(|text| !text.is_empty()) else { return Ok(None) };
    let read = serde_json::from_value::<T>(json!(text));
    read.map(Some).map_err(|error| AdminError::invalid(format!("{name}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_named_as_in_the_configuration() {
        let read = |raw: &str| chosen::<Compression>(&Query::parse(raw).unwrap(), "compression").map_err(|e| e.status);
        assert_eq!(read("compression=zstd"), Ok(Some(Compression::Zstd)));
        assert_eq!((read(""), read("compression=")), (Ok(None), Ok(None)));
        assert_eq!(read("compression=best"), Err(StatusCode::BAD_REQUEST));
    }
}
