//! `deltaweir convert`: what waits for the converter, or an order for a bucket or a prefix.

use super::{
    ask::{Call, Store},
    follow,
    outcome::Failure,
};
use clap::Args;
use serde_json::{Map, Value, json};

/// The jobs that encode stored content anew: by themselves, and on order.
const JOBS: [&str; 2] = ["converter", "convert"];

#[derive(Args)]
pub(super) struct ConvertFlags {
    /// s3://BUCKET or s3://BUCKET/PREFIX; all deferred content if omitted
    location: Option<String>,
    /// Compression of the content; for a whole bucket this becomes its setting
    #[arg(long, value_name = "HOW", value_parser = ["off", "zstd", "delta"])]
    compression: Option<String>,
    /// How hard the codec tries; for a whole bucket this becomes its setting
    #[arg(long, value_name = "EFFORT", value_parser = ["auto", "fast", "balanced", "high", "max"])]
    effort: Option<String>,
    /// Move the bucket to this backend
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// Pause converting after the current blob, until --resume
    #[arg(long, conflicts_with_all = ["resume", "location", "compression", "effort", "backend"])]
    pause: bool,
    /// Resume converting
    #[arg(long, conflicts_with_all = ["location", "compression", "effort", "backend"])]
    resume: bool,
}

/// Does what the flags say, and gives what there is to print.
///
/// # Errors
/// [`Failure`] when the order makes no sense, is refused, or fails.
pub(super) async fn convert(flags: ConvertFlags, store: Store, quiet: bool) -> Result<Value, Failure> {
    match (flags.pause, flags.resume) {
        (true, _) => Box::pin(act(store, "pause")).await,
        (_, true) => Box::pin(act(store, "resume")).await,
        _ => {
            let (job, parameters) = flags.order()?;
            Box::pin(follow::start(store, job, parameters, quiet)).await
        }
    }
}

async fn act(store: Store, action: &str) -> Result<Value, Failure> {
    let answerer = store.connect().await?;
    let mut states = Map::new();
    let mut outcome = Ok(());
    for job in JOBS {
        match answerer.ask(&Call::post(&format!("jobs/{job}"), &[("action", action)])).await {
            Ok(state) => drop(states.insert(job.to_owned(), json!({ "paused": state["paused"] }))),
            Err(failure) => outcome = Err(failure),
        }
    }
    answerer.close().await;
    outcome.map(|()| Value::Object(states))
}

impl ConvertFlags {
    /// The job that does it, and its parameters.
    fn order(self) -> Result<(&'static str, Value), Failure> {
        let Self { location, compression, effort, backend, .. } = self;
        let Some(location) = location else {
            if compression.is_some() || effort.is_some() || backend.is_some() {
                return Err(Failure("which bucket? Name it as s3://BUCKET".into()));
            }
            return Ok(("converter", json!({ "now": true })));
        };
        let named = location.strip_prefix("s3://").map(|rest| rest.split_once('/').unwrap_or((rest, "")));
        let Some((bucket, prefix)) = named.filter(|(bucket, _)| !bucket.is_empty()) else {
            return Err(Failure(format!("expected s3://BUCKET or s3://BUCKET/PREFIX, not {location:?}")));
        };
        let order = json!({
            "bucket": bucket, "prefix": prefix, "compression": compression, "effort": effort, "backend": backend,
        });
        Ok(("convert", order))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(location: Option<&str>, backend: Option<&str>) -> Result<(&'static str, Value), String> {
        let flags = ConvertFlags {
            location: location.map(str::to_owned),
            compression: None,
            effort: None,
            backend: backend.map(str::to_owned),
            pause: false,
            resume: false,
        };
        flags.order().map_err(|Failure(message)| message)
    }

    #[test]
    fn a_location_is_a_bucket_and_perhaps_a_prefix() {
        for (location, bucket, prefix) in
            [("s3://b", "b", ""), ("s3://b/", "b", ""), ("s3://b/a/c", "b", "a/c"), ("s3://b//", "b", "/")]
        {
            let (job, order) = order(Some(location), None).expect(location);
            assert_eq!((job, &order["bucket"], &order["prefix"]), ("convert", &json!(bucket), &json!(prefix)));
        }
        for location in ["b", "s3://", "s3:///k", ""] {
            assert!(order(Some(location), None).is_err(), "{location}");
        }
    }

    #[test]
    fn without_a_location_it_is_the_converters_own_work() {
        assert_eq!(order(None, None), Ok(("converter", json!({ "now": true }))));
        assert!(order(None, Some("cloud")).is_err());
    }
}
