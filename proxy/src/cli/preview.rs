//! `deltaweir preview`: what a bucket's objects would take under other settings.

use super::{
    ask::{Call, Store},
    outcome::Failure,
    print, waiting,
};
use clap::Args;
use serde_json::{Value, json};

/// What a bucket can be set to.
const COMPRESSIONS: [&str; 3] = ["off", "zstd", "delta"];

#[derive(Args)]
pub(super) struct PreviewFlags {
    /// s3://BUCKET or s3://BUCKET/PREFIX
    location: String,
    /// Compression to try; each one in turn if omitted
    #[arg(long, value_name = "HOW", value_parser = COMPRESSIONS)]
    compression: Option<String>,
    /// How hard the codec tries; as the bucket is set if omitted
    #[arg(long, value_name = "EFFORT", value_parser = ["auto", "fast", "balanced", "high", "max"])]
    effort: Option<String>,
    /// About how many bytes may be read, at most 512MiB
    #[arg(long, default_value = "64MiB", value_name = "BYTES")]
    sample: String,
    /// Random seed of the sample; the same seed draws the same sample
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Tries one setting after the other.
pub(super) async fn preview(store: Store, flags: &PreviewFlags) -> Result<Value, Failure> {
    let named = flags.location.strip_prefix("s3://").map(|rest| rest.split_once('/').unwrap_or((rest, "")));
    let Some((bucket, prefix)) = named.filter(|(bucket, _)| !bucket.is_empty()) else {
        return Err(Failure(format!("expected s3://BUCKET or s3://BUCKET/PREFIX, not {:?}", flags.location)));
    };
    let sample = crate::config::bytes_of(&flags.sample).map_err(Failure)?.to_string();
    let (seed, effort) = (flags.seed.to_string(), flags.effort.as_deref().unwrap_or_default());
    let tried = flags.compression.as_deref().map_or(COMPRESSIONS.to_vec(), |one| vec![one]);
    let answerer = store.connect().await?;
    let mut found = Vec::new();
    let mut outcome = Ok(());
    for compression in tried {
        let parameters = [
            ("bucket", bucket),
            ("prefix", prefix),
            ("compression", compression),
            ("effort", effort),
            ("sample_bytes", &sample),
            ("seed", &seed),
        ];
        match waiting::answer(&answerer, &Call::post("preview", &parameters)).await {
            Ok(preview) => found.push(preview),
            Err(failure) => {
                outcome = Err(failure);
                break;
            }
        }
    }
    answerer.close().await;
    outcome.map(|()| json!({ "previews": found }))
}

/// A line for each setting.
pub(super) fn print(found: &Value) -> String {
    let previews: Vec<&Value> = found["previews"].as_array().into_iter().flatten().collect();
    let Some(first) = previews.first() else { return String::new() };
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let share = |part: &Value, whole: &Value| match number(whole) {
        0 => "-".to_owned(),
        #[expect(clippy::cast_precision_loss, reason = "a share of bytes")]
        all => format!("{:.1} %", number(part) as f64 * 100.0 / all as f64),
    };
    let logical = &first["logical_bytes"];
    let which = if first["more"] == true { "the first " } else { "" };
    let mut text = format!(
        "{which}{} objects, {}; now they take {} ({})\n",
        number(&first["objects"]),
        print::bytes(number(logical)),
        print::bytes(number(&first["stored_now_bytes"])),
        share(&first["stored_now_bytes"], logical),
    );
    let mut rows = vec![["setting", "stored", "share", "from", "to", "CPU s/GB", "sample"].map(str::to_owned)];
    let truncated = previews.iter().map(|preview| number(&preview["sample"]["truncated"])).max().unwrap_or(0);
    for preview in previews {
        let stored = &preview["stored_bytes"];
        rows.push([
            preview["compression"].as_str().unwrap_or_default().to_owned(),
            print::bytes(number(&stored["predicted"])),
            share(&stored["predicted"], &preview["logical_bytes"]),
            share(&stored["low"], &preview["logical_bytes"]),
            share(&stored["high"], &preview["logical_bytes"]),
            format!("{:.2}", preview["cpu_s_per_gb"].as_f64().unwrap_or(0.0)),
            print::bytes(number(&preview["sample"]["bytes"])),
        ]);
    }
    text.push_str(&print::table(&rows));
    if truncated > 0 {
        let told = format!("only the beginning was read of {truncated} long objects; a larger --sample reads more\n");
        text.push_str(&told);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_has_a_line_with_its_share_and_its_interval() {
        let preview = |compression: &str, predicted: u64| {
            json!({
                "compression": compression, "objects": 12, "more": true, "logical_bytes": 1000, "stored_now_bytes": 340,
                "stored_bytes": { "predicted": predicted, "low": predicted - 10, "high": predicted + 10 },
                "cpu_s_per_gb": 3.0, "sample": { "bytes": 512 },
            })
        };
        let text = print(&json!({ "previews": [preview("zstd", 340), preview("delta", 210)] }));
        assert!(text.starts_with("the first 12 objects, 1000 B; now they take 340 B (34.0 %)\n"), "{text}");
        assert!(text.contains("delta") && text.contains("21.0 %") && text.contains("20.0 %  22.0 %"), "{text}");
        assert!(!text.contains("beginning"), "{text}");
        let mut cut = preview("zstd", 340);
        cut["sample"]["truncated"] = json!(3);
        assert!(print(&json!({ "previews": [cut] })).contains("only the beginning was read of 3 long objects"));
    }
}
