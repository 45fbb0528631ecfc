//! The commands of those who come and of those who leave: `import`, `eject`, `estimate`.

use super::{
    ask::Store,
    follow,
    outcome::{Failure, Outcome, runtime, show},
    print,
};
use crate::{
    config::{Environment, ServeConfig, secret_of},
    engine::{BucketSettings, Compression},
    estimate::{EstimateOptions, PriceTable, estimate},
    stores::{BackendConfig, CloudStore, open_plain},
};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use secrecy::ExposeSecret as _;
use serde_json::json;
use std::path::{Path, PathBuf};
use storage_backends::{S3Config, S3Credentials};

/// Register the objects of a store as versions of a bucket, without moving content
#[derive(Args)]
pub(super) struct ImportFlags {
    /// A configured store or backend: NAME or NAME/prefix
    source: String,
    /// s3://BUCKET or s3://BUCKET/prefix
    target: String,
    /// Replace existing versions, and bring back deleted keys
    #[arg(long)]
    overwrite: bool,
    /// Remove originals once their content is no longer needed
    #[arg(long)]
    take_over: bool,
    /// List the source again and compare
    #[arg(long)]
    verify: bool,
}

/// Write a bucket's objects as plain files, or as objects of another store
#[derive(Args)]
pub(super) struct EjectFlags {
    /// s3://BUCKET or s3://BUCKET/prefix
    source: String,
    /// A directory, or store:NAME or store:NAME/prefix
    target: String,
    /// Replace existing objects with other content in the target store
    #[arg(long)]
    overwrite: bool,
}

/// Estimate the stored size of a bucket from a sample
#[derive(Args)]
pub(super) struct EstimateFlags {
    /// A configured store or backend (NAME or NAME/prefix), a directory, or s3://BUCKET/prefix with
    /// the flags below
    source: String,
    /// Approximate number of bytes to read, such as 4GiB
    #[arg(long, default_value = "1GiB", value_name = "BYTES")]
    sample: String,
    /// Random seed of the sample; the same seed draws the same sample
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Compression to estimate with
    #[arg(long, value_enum, default_value_t = Reduction::Delta)]
    compression: Reduction,
    /// Directory for the temporary store; the system's temporary directory if omitted
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// A table of prices (docs/reference/prices.toml)
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// Address of the S3 store; AWS if omitted
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// Allow an http:// address of another machine: others on the network can read the traffic
    #[arg(long)]
    allow_http: bool,
    /// Region of the S3 store
    #[arg(long, default_value = "us-east-1")]
    region: String,
    /// Access key id, or env:NAME or file:PATH
    #[arg(long, default_value = "env:AWS_ACCESS_KEY_ID", value_name = "ID")]
    access_key_id: String,
    /// Where the secret access key is: env:NAME or file:PATH
    #[arg(long, default_value = "env:AWS_SECRET_ACCESS_KEY", value_name = "SECRET")]
    secret_access_key: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Reduction {
    Off,
    Zstd,
    Delta,
}

pub(super) fn import(store: Store, flags: &ImportFlags, json: bool) -> Outcome {
    let (bucket, prefix) = parse_bucket(&flags.target)?;
    let parameters = json!({
        "source": flags.source,
        "bucket": bucket,
        "prefix": prefix,
        "overwrite": flags.overwrite,
        "take_over": flags.take_over,
        "verify": flags.verify,
    });
    let report = runtime()?.block_on(follow::start(store, "import", parameters, json))?;
    show(json, &report, print::outline)?;
    let different = report["verified"]["different"].as_u64().unwrap_or(0);
    match (report["failed"].as_u64().unwrap_or(0), different) {
        (0, 0) => Ok(()),
        (failed, different) => Err(Failure(format!(
            "{failed} objects could not be registered, {different} are not as the source has them"
        ))),
    }
}

pub(super) fn eject(store: Store, flags: &EjectFlags, json: bool) -> Outcome {
    let (bucket, prefix) = parse_bucket(&flags.source)?;
    let target = match (&store, flags.target.starts_with("store:")) {
        (_, true) | (Store::Elsewhere(_), _) => flags.target.clone(),
        // The server may stand in another directory.
        (Store::Here { .. }, false) => {
            std::path::absolute(&flags.target)?.to_str().map(str::to_owned).ok_or("the directory is no UTF-8")?
        }
    };
    let parameters = json!({ "bucket": bucket, "prefix": prefix, "target": target, "overwrite": flags.overwrite });
    let report = runtime()?.block_on(follow::start(store, "eject", parameters, json))?;
    show(json, &report, print::outline)?;
    match report["failed"].as_u64().unwrap_or(0) {
        0 => Ok(()),
        failed => Err(Failure(format!("{failed} objects could not be written"))),
    }
}

pub(super) fn run_estimate(config: &ServeConfig, flags: EstimateFlags, json: bool) -> Outcome {
    let prices = PriceTable::load(flags.prices.as_deref())?;
    let (store, prefix) = source_of(config, &flags)?;
    let options = EstimateOptions {
        prefix,
        sample_bytes: crate::config::bytes_of(&flags.sample).map_err(Failure)?,
        bounded: false,
        seed: flags.seed,
        settings: BucketSettings {
            compression: match flags.compression {
                Reduction::Off => Compression::Off,
                Reduction::Zstd => Compression::Zstd,
                Reduction::Delta => Compression::Delta,
            },
            ..config.engine.defaults.clone()
        },
    };
    let work = match &flags.work {
        Some(directory) => tempfile::tempdir_in(directory)?,
        None => tempfile::tempdir()?,
    };
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if json {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} {msg} {eta}") {
        bar.set_style(style);
    }
    let found = runtime()?.block_on(estimate(store, work.path(), options, &prices, |sample, total| {
        bar.set_length(total);
        bar.set_position(sample.bytes.min(total));
        bar.set_message(format!("{} objects", sample.objects));
    }));
    bar.finish_and_clear();
    show(json, &serde_json::to_value(found?)?, print::estimate)
}

type Source = (std::sync::Arc<dyn storage_backends::PlainStore>, String);

/// What is estimated: a store of the configuration, an S3 store by flags, or a directory.
fn source_of(config: &ServeConfig, flags: &EstimateFlags) -> Result<Source, Failure> {
    if flags.source.starts_with("s3://") {
        let (bucket, prefix) = parse_bucket(&flags.source)?;
        let environment = Environment::of_process();
        let secret = |flag: &str, text: &str| secret_of(flag, text, &environment);
        let credentials = S3Credentials::Static {
            access_key_id: secret("--access-key-id", &flags.access_key_id)?.expose_secret().to_owned(),
            secret_access_key: secret("--secret-access-key", &flags.secret_access_key)?,
            session_token: None,
        };
        let store = S3Config {
            endpoint: flags.endpoint.clone(),
            region: flags.region.clone(),
            allow_http: flags.allow_http,
            ..S3Config::new(bucket, credentials)
        };
        return Ok((CloudStore::S3(store).open_plain()?, prefix.to_owned()));
    }
    let (name, prefix) = flags.source.split_once('/').unwrap_or((&flags.source, ""));
    if let Some(store) = config.stores.stores.get(name).or_else(|| config.stores.backends.get(name)) {
        return Ok((open_plain(store)?, prefix.to_owned()));
    }
    if Path::new(&flags.source).is_dir() {
        let path = PathBuf::from(&flags.source);
        return Ok((open_plain(&BackendConfig::Local { path })?, String::new()));
    }
    let file = match &config.file {
        Some(path) => format!("{} names no such store", path.display()),
        None => "no configuration file is named: --config or DELTAWEIR_CONFIG names one".to_owned(),
    };
    Err(Failure(format!("{:?} is no directory, no s3:// address and no configured store ({file})", flags.source)))
}

/// `s3://BUCKET` or `s3://BUCKET/prefix`.
fn parse_bucket(text: &str) -> Result<(&str, &str), Failure> {
    let rest = text.strip_prefix("s3://").map(|rest| rest.split_once('/').unwrap_or((rest, "")));
    let named = rest.filter(|(bucket, _)| !bucket.is_empty());
    named.ok_or_else(|| Failure(format!("expected s3://BUCKET or s3://BUCKET/prefix, not {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_named_with_or_without_a_prefix() {
        let parse = |text| parse_bucket(text).map_err(|Failure(message)| message);
        assert_eq!(parse("s3://b"), Ok(("b", "")));
        assert_eq!(parse("s3://b/"), Ok(("b", "")));
        assert_eq!(parse("s3://b/p/q"), Ok(("b", "p/q")));
        for text in ["b", "s3://", "s3:///p", ""] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
