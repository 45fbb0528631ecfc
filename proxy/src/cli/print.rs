//! Answers of the admin API for people.

use serde_json::Value;
use std::fmt::Write as _;

/// A table of buckets and a line of totals.
pub(super) fn stats(stats: &Value) -> String {
    let heads =
        ["bucket", "objects", "logical", "stored", "history", "deleting", "foreign", "saved", "ratio", "settings"];
    let mut rows = vec![heads.map(str::to_owned)];
    for bucket in stats["buckets"].as_array().into_iter().flatten() {
        let name = bucket["name"].as_str().unwrap_or_default();
        rows.push(row(if name.is_empty() { "(deleted)" } else { name }, bucket));
    }
    rows.push(row("total", &stats["totals"]));
    table(&rows) + &money(stats)
}

/// Lines of money; none where the configuration has no prices.
fn money(stats: &Value) -> String {
    let Some(told) = stats["money"].as_object() else { return String::new() };
    let (currency, totals) = (word(&told["currency"]), &stats["totals"]);
    let amount = |value: &Value| format!("{:.2} {currency}", value.as_f64().unwrap_or(0.0));
    let mut text = String::new();
    let stored = &totals["stored"];
    let deleting = number(&stored["tombstoned"]);
    let kept = number(&stored["total"]).saturating_sub(deleting);
    for (name, size, cost) in [
        ("saved", signed_bytes(totals["saved_bytes"].as_i64().unwrap_or(0)), &told["saved_month"]),
        ("stored", bytes(kept), &told["stored_month"]),
        ("deleting", bytes(deleting), &told["deleting_month"]),
    ] {
        let _ = writeln!(text, "{name:<9} {size:>9}: {} a month", amount(cost));
    }
    let requests = &told["requests"];
    let (writes, reads, since) = (number(&requests["writes"]), number(&requests["reads"]), date(&requests["since_ms"]));
    if writes + reads > 0 {
        let _ = writeln!(text, "requests  {writes} writes, {reads} reads since {since}: {}", amount(&requests["cost"]));
    }
    text
}

/// A table of a file's streams and a line for each kind of container.
pub(super) fn streams(found: &Value) -> String {
    let heads = ["offset", "in", "compressed", "plain", "replayed", "predicted", "nearest encoder"];
    let mut rows = vec![heads.map(str::to_owned)];
    let percent = |value: &Value| value.as_f64().map_or("-".to_owned(), |percent| format!("{percent:.1} %"));
    for stream in found["streams"].as_array().into_iter().flatten() {
        rows.push([
            number(&stream["offset"]).to_string(),
            stream["container"].as_str().unwrap_or_default().to_owned(),
            bytes(number(&stream["compressed_bytes"])),
            bytes(number(&stream["plain_bytes"])),
            percent(&stream["replayed_percent"]),
            percent(&stream["predicted_percent"]),
            stream["encoder"].as_str().unwrap_or("none").to_owned(),
        ]);
    }
    let mut text = table(&rows);
    let mut line = |before: &str, kind: &str, sums: &Value| {
        let (streams, plain) = (number(&sums["streams"]), bytes(number(&sums["plain_bytes"])));
        let compressed = bytes(number(&sums["compressed_bytes"]));
        let _ = writeln!(text, "{before}{kind}: {streams} streams, {compressed} for {plain}");
    };
    for stream in found["streams"].as_array().into_iter().flatten() {
        for (kind, sums) in stream["nested"].as_object().into_iter().flatten() {
            line(&format!("in the stream at {}, ", number(&stream["offset"])), kind, sums);
        }
    }
    for (kind, sums) in found["containers"].as_object().into_iter().flatten() {
        line("", kind, sums);
    }
    let (outside, all) = (bytes(number(&found["outside_bytes"])), bytes(number(&found["bytes"])));
    let _ = write!(text, "{outside} of {all} in no stream");
    text
}

/// A table of the streams in an object, and a line for each kind of container.
pub(super) fn inside(found: &Value) -> String {
    let mut rows = vec![["offset", "compressed", "plain", "streams inside", "in"].map(str::to_owned)];
    for stream in found["streams"].as_array().into_iter().flatten() {
        rows.push([
            number(&stream["offset"]).to_string(),
            bytes(number(&stream["compressed_bytes"])),
            bytes(number(&stream["plain_bytes"])),
            number(&stream["nested"]).to_string(),
            word(&stream["container"]),
        ]);
    }
    let mut text = table(&rows);
    if found["more"] == true {
        text.push_str("… more behind them\n");
    }
    for (before, sums) in [("", &found["containers"]), ("inside streams, ", &found["nested"])] {
        for (kind, sums) in sums.as_object().into_iter().flatten() {
            let (compressed, plain) = (bytes(number(&sums["compressed_bytes"])), bytes(number(&sums["plain_bytes"])));
            let _ = writeln!(text, "{before}{kind}: {} streams, {compressed} for {plain}", number(&sums["streams"]));
        }
    }
    let (outside, all) = (bytes(number(&found["outside_bytes"])), bytes(number(&found["bytes"])));
    let _ = writeln!(text, "{outside} of {all} in no stream");
    text
}

/// A table of buckets.
pub(super) fn buckets(found: &Value) -> String {
    let mut rows = vec![["bucket", "objects", "logical", "stored", "ratio", "created"].map(str::to_owned)];
    for bucket in found["buckets"].as_array().into_iter().flatten() {
        let (logical, stored) = (number(&bucket["logical_bytes"]), number(&bucket["stored_bytes"]));
        rows.push([
            word(&bucket["name"]),
            number(&bucket["objects"]).to_string(),
            bytes(logical),
            bytes(stored),
            ratio(logical, stored),
            word(&bucket["created"]),
        ]);
    }
    table(&rows)
}

/// A table of a page of keys.
pub(super) fn entries(found: &Value) -> String {
    let mut rows = vec![["changed", "form", "size", "stored", "ratio", "key"].map(str::to_owned)];
    for entry in found["entries"].as_array().into_iter().flatten() {
        if let Some(prefix) = entry["prefix"].as_str() {
            rows.push(["", "", "", "", "", prefix].map(str::to_owned));
            continue;
        }
        let (size, stored) = (number(&entry["size"]), number(&entry["stored_bytes"]));
        rows.push([
            date(&entry["last_modified_ms"]),
            word(&entry["form"]),
            bytes(size),
            bytes(stored),
            ratio(size, stored),
            word(&entry["key"]),
        ]);
    }
    table(&rows)
}

/// A table of jobs.
pub(super) fn jobs(jobs: &Value) -> String {
    let mut rows = vec![["job", "state", "done", "waiting", "last run", "result"].map(str::to_owned)];
    for job in jobs.as_array().into_iter().flatten() {
        let is = |name: &str| job[name].as_bool() == Some(true);
        let state = match (is("running"), is("paused"), is("waiting")) {
            (true, ..) if job["first_run"].is_i64() && job["first_run"] != job["run"] => "resumed",
            (true, ..) => "running",
            (_, true, _) => "paused",
            (_, _, true) => "can go on",
            _ => "idle",
        };
        let progress = &job["progress"];
        let done = match (is("running"), progress["total"].as_u64()) {
            (false, _) => "-".to_owned(),
            (true, Some(total)) => format!("{} of {total} {}", number(&progress["done"]), word(&progress["unit"])),
            (true, None) => format!("{} {}", number(&progress["done"]), word(&progress["unit"])),
        };
        let waiting = job["backlog"].as_u64().map_or_else(|| "-".to_owned(), |count| count.to_string());
        let last = [date(&job["last_run_ms"]), word(&job["last_result"])];
        let [run, result] = last;
        rows.push([word(&job["name"]), state.to_owned(), done, waiting, run, result]);
    }
    table(&rows)
}

/// Lines of a list that `explain` shows before it says how many more there are.
const LISTED: usize = 5;

/// An explanation in at most 25 lines, the ratio first.
pub(super) fn explanation(told: &Value) -> String {
    let (bucket, key) = (word(&told["bucket"]), word(&told["key"]));
    if told["delete_marker"] == true {
        return format!("s3://{bucket}/{key}: a delete marker of {}\n", date(&told["last_modified_ms"]));
    }
    let (size, stored) = (number(&told["size"]), number(&told["stored_bytes"]));
    let mut text = format!(
        "{}: {} of {} ({}×)\n",
        format_args!("s3://{bucket}/{key}"),
        bytes(stored),
        bytes(size),
        ratio(size, stored)
    );
    let current = if told["current"] == true { ", the current one" } else { "" };
    let setting = |name: &str| told["settings"][name].as_str().map(|value| format!("{name}={value}"));
    let settings: Vec<String> = ["compression", "encryption", "effort"].into_iter().filter_map(setting).collect();
    let _ = writeln!(text, "form        {}: {}", word(&told["form"]), word(&told["reason"]));
    let _ = writeln!(text, "version     {}{current}", word(&told["version"]));
    let _ = writeln!(text, "changed     {}", date(&told["last_modified_ms"]));
    let _ = writeln!(text, "etag        {}", word(&told["etag"]));
    let _ = writeln!(text, "bucket      {}", settings.join(" "));
    if let Some(algorithm) = told["encryption"].as_str() {
        let _ = writeln!(text, "encrypted   {algorithm}, by a key of its own: such content resembles no other");
    }
    if let Some(default) = told["plain_before"].as_str() {
        let _ = writeln!(
            text,
            "plain       written before the bucket's default encryption ({default}): \
             `deltaweir keys reencrypt {bucket}` encrypts it"
        );
    }
    let none = Vec::new();
    let list = |name: &str| told[name].as_array().unwrap_or(&none);
    let blobs = list("blobs");
    let described = |blob: &Value| {
        let coded = blob["segments_by_coding"].as_object().into_iter().flatten();
        let coded: Vec<String> = coded.map(|(coding, count)| format!("{count} {coding}")).collect();
        let (plain, stored) = (bytes(number(&blob["plain_len"])), bytes(number(&blob["stored_len"])));
        format!("{} {plain} in {stored}; segments: {}", word(&blob["id"]), coded.join(", "))
    };
    let candidates = blobs.iter().flat_map(|blob| blob["choices"].as_array().unwrap_or(&none));
    let candidates = candidates.flat_map(|choice| choice["candidates"].as_array().unwrap_or(&none));
    let candidates: Vec<String> = candidates.map(candidate).collect();
    let _ = writeln!(text, "reads       {}", reads(list("reads")));
    if let Some(told) = conversions(blobs) {
        let _ = writeln!(text, "converted   {told}");
    }
    listed(&mut text, "base", &list("bases").iter().map(word).collect::<Vec<_>>());
    listed(&mut text, "blob", &blobs.iter().map(described).collect::<Vec<_>>());
    listed(&mut text, "candidate", &candidates);
    text.push_str("--all shows the rest\n");
    text
}

/// How often clients read a version, and when they did last.
fn reads(hours: &[Value]) -> String {
    let sum: u64 = hours.iter().map(|hour| number(&hour["count"])).sum();
    match hours.last() {
        None => "no GET in the last 24 hours".to_owned(),
        Some(last) => format!("{sum} GETs in the last 24 hours, the last in the hour from {}", date(&last["at_ms"])),
    }
}

/// The newest conversion of an object's blobs, and how many there were before it.
fn conversions(blobs: &[Value]) -> Option<String> {
    let all = || blobs.iter().flat_map(|blob| blob["conversions"].as_array().into_iter().flatten());
    let newest = all().max_by_key(|conversion| number(&conversion["at_ms"]))?;
    let before = all().count() - 1;
    let more = if before > 0 { format!("; {before} more before") } else { String::new() };
    let (occasion, form) = (word(&newest["occasion"]), word(&newest["form"]));
    let stored = bytes(number(&newest["stored_bytes"]));
    Some(format!("{} ({occasion}); was {form} in {stored}{more}", date(&newest["at_ms"])))
}

fn candidate(candidate: &Value) -> String {
    let share = |name: &str| candidate[name].as_f64().map(|permille| format!("{:.1} %", permille / 10.0));
    let common = share("overlap_permille").map(|share| format!(", {share} in common"));
    let trial = share("trial_permille").map(|share| format!(", a trial delta took {share}"));
    let verdict = if candidate["chosen"] == true { ": chosen" } else { ": lost" };
    let [common, trial] = [common, trial].map(Option::unwrap_or_default);
    format!("{} by {}{common}{trial}{verdict}", word(&candidate["key"]), word(&candidate["source"]))
}

fn listed(text: &mut String, name: &str, lines: &[String]) {
    for line in lines.iter().take(LISTED - 1) {
        let _ = writeln!(text, "{name:<11} {line}");
    }
    if let Some(more) = lines.len().checked_sub(LISTED - 1).filter(|more| *more > 0) {
        let _ = writeln!(text, "            … and {more} more");
    }
}

pub(super) fn word(value: &Value) -> String {
    value.as_str().unwrap_or("-").to_owned()
}

pub(super) fn date(value: &Value) -> String {
    let Some(ms) = value.as_u64() else { return "-".to_owned() };
    s3_wire::timestamp::iso8601(std::time::UNIX_EPOCH + std::time::Duration::from_millis(ms))
}

fn ratio(logical: u64, stored: u64) -> String {
    if stored == 0 { "-".to_owned() } else { format!("{:.2}", logical as f64 / stored as f64) }
}

fn row(name: &str, numbers: &Value) -> [String; 10] {
    let (logical, deleting) = (number(&numbers["logical_bytes"]), number(&numbers["stored"]["tombstoned"]));
    let stored = number(&numbers["stored"]["total"]).saturating_sub(deleting);
    // Originals are where they were: they count on both sides.
    let foreign = number(&numbers["foreign_bytes"]);
    let ratio = if stored + foreign == 0 {
        "-".to_owned()
    } else {
        let all = logical + number(&numbers["noncurrent_bytes"]);
        format!("{:.2}", all as f64 / (stored + foreign) as f64)
    };
    let setting = |name: &str| numbers["settings"][name].as_str().map(|value| format!("{name}={value}"));
    let settings: Vec<String> = ["compression", "encryption"].into_iter().filter_map(setting).collect();
    [
        name.to_owned(),
        number(&numbers["objects"]).to_string(),
        bytes(logical),
        bytes(stored),
        bytes(number(&numbers["noncurrent_stored_bytes"])),
        bytes(deleting),
        bytes(foreign),
        signed_bytes(numbers["saved_bytes"].as_i64().unwrap_or(0)),
        ratio,
        settings.join(" "),
    ]
}

pub(super) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// Columns as wide as their widest cell; the first and last flush left.
pub(super) fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let widths: [usize; N] = std::array::from_fn(|n| rows.iter().map(|row| row[n].chars().count()).max().unwrap_or(0));
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (n, (cell, width)) in row.iter().zip(widths).enumerate() {
            let gap = if n == 0 { "" } else { "  " };
            let _ = if n == 0 || n == N - 1 {
                write!(line, "{gap}{cell:<width$}")
            } else {
                write!(line, "{gap}{cell:>width$}")
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A number of milliseconds from here on is a time, and none a duration: September 2001.
const LATER_MS: u64 = 1_000_000_000_000;

/// Any value as an indented outline; numbers of bytes in units as well, times as dates.
pub(super) fn outline(value: &Value) -> String {
    let mut text = String::new();
    write_outline(&mut text, value, 0);
    text
}

fn write_outline(text: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(map) => {
            // What fits a line comes first, so that it is not lost behind long lists.
            for (key, value) in map.iter().filter(|(_, value)| !is_branch(value)) {
                let _ = writeln!(text, "{indent}{key}: {}", leaf(key, value));
            }
            for (key, value) in map.iter().filter(|(_, value)| is_branch(value)) {
                let _ = writeln!(text, "{indent}{key}:");
                write_outline(text, value, depth + 1);
            }
        }
        Value::Array(list) => {
            for value in list {
                if is_branch(value) {
                    let _ = writeln!(text, "{indent}-");
                    write_outline(text, value, depth + 1);
                } else {
                    let _ = writeln!(text, "{indent}- {}", leaf("", value));
                }
            }
        }
        value => {
            let _ = writeln!(text, "{indent}{}", leaf("", value));
        }
    }
}

fn is_branch(value: &Value) -> bool {
    match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => false,
    }
}

/// Whether a number of this name counts bytes.
fn is_bytes(key: &str) -> bool {
    key.ends_with("bytes")
        || key.ends_with("_len")
        || key == "size"
        || key.starts_with("stored_")
        || ["raw", "zstd", "delta"].iter().any(|form| key == format!("{form}_plain") || key == format!("{form}_stored"))
}

fn leaf(key: &str, value: &Value) -> String {
    match value {
        Value::Null | Value::Object(_) | Value::Array(_) => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) if key.ends_with("_ms") && number.as_u64().is_some_and(|ms| ms >= LATER_MS) => {
            date(value)
        }
        Value::Number(number) if is_bytes(key) => match number.as_u64() {
            Some(count) if count >= 1024 => format!("{count} ({})", bytes(count)),
            _ => number.to_string(),
        },
        value => value.to_string(),
    }
}

/// An estimate, for reading.
pub(super) fn estimate(found: &Value) -> String {
    let mut text = String::new();
    let (logical, sample, stored) = (number(&found["logical_bytes"]), &found["sample"], &found["stored_bytes"]);
    let interval = |of: &Value| {
        let [predicted, low, high] = ["predicted", "low", "high"].map(|name| bytes(number(&of[name])));
        format!("{predicted}, between {low} and {high}")
    };
    let _ = writeln!(
        text,
        "source   {} objects, {}; {} of them exact copies",
        number(&found["objects"]),
        bytes(logical),
        bytes(number(&found["duplicate_bytes"]))
    );
    let _ = writeln!(
        text,
        "sample   {} objects in {} runs of similar names: {} that took {}",
        number(&sample["objects"]),
        number(&sample["runs"]),
        bytes(number(&sample["bytes"])),
        bytes(number(&sample["stored_bytes"]))
    );
    let ratio = logical as f64 / number(&stored["predicted"]).max(1) as f64;
    let _ = writeln!(text, "stored   {} (95 % interval): {ratio:.2}× smaller", interval(stored));
    for class in found["classes"].as_array().into_iter().flatten() {
        let _ = writeln!(
            text,
            "         from {}: {} objects in {} series, {} -> {}",
            bytes(number(&class["from_bytes"])),
            number(&class["objects"]),
            number(&class["series"]),
            bytes(number(&class["logical_bytes"])),
            interval(&class["stored_bytes"])
        );
    }
    let cpu = found["cpu_seconds"].as_f64().unwrap_or(0.0);
    let _ = writeln!(text, "CPU      {:.2} core hours to store all of it, on this machine", cpu / 3600.0);
    let prices = &found["prices"];
    let (currency, as_of) = (prices["currency"].as_str().unwrap_or(""), prices["as_of"].as_str().unwrap_or(""));
    let _ = writeln!(text, "money    {currency} a month, by list prices of {as_of} (CPU once)");
    let mut rows = vec![["", "now", "then", "between", "and", "CPU", "store"].map(str::to_owned)];
    for cost in found["money"].as_array().into_iter().flatten() {
        let amount = |name: &str| format!("{:.2}", cost[name].as_f64().unwrap_or(0.0));
        let [now, then, low, high, cpu] =
            ["month_now", "month_predicted", "month_low", "month_high", "cpu_once"].map(amount);
        let store = cost["store"].as_str().unwrap_or_default().to_owned();
        rows.push(["        ".to_owned(), now, then, low, high, cpu, store]);
    }
    text + &table(&rows)
}

/// A number of bytes in the largest unit that leaves at least one.
pub(super) fn bytes(count: u64) -> String {
    let mut scaled = count as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if scaled < 1024.0 {
            return if unit == "B" { format!("{count} B") } else { format!("{scaled:.1} {unit}") };
        }
        scaled /= 1024.0;
    }
    format!("{scaled:.1} TiB")
}

fn signed_bytes(count: i64) -> String {
    let sign = if count < 0 { "-" } else { "" };
    sign.to_owned() + &bytes(count.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn stats_are_a_table_with_its_columns_in_line() {
        let numbers = |logical: u64, stored: u64| {
            json!({
                "objects": 2, "logical_bytes": logical, "saved_bytes": 3072,
                "stored": {"total": stored + 512, "tombstoned": 512},
            })
        };
        let mut bucket = numbers(4096, 1024);
        bucket["name"] = json!("photos");
        bucket["settings"] = json!({"compression": "delta", "encryption": "off"});
        let told = json!({"buckets": [bucket], "totals": numbers(4096, 0)});
        let expected = "\
bucket  objects  logical   stored  history  deleting  foreign    saved  ratio  settings
photos        2  4.0 KiB  1.0 KiB      0 B     512 B      0 B  3.0 KiB   4.00  compression=delta encryption=off
total         2  4.0 KiB      0 B      0 B     512 B      0 B  3.0 KiB      -
";
        assert_eq!(stats(&told), expected);
    }

    #[test]
    fn stats_tell_money_where_there_are_prices() {
        let told = json!({
            "buckets": [],
            "totals": {"saved_bytes": -2048, "stored": {"total": 4096, "tombstoned": 1024}},
            "money": {
                "currency": "EUR", "saved_month": -0.004, "stored_month": 12.5, "deleting_month": 0.1,
                "requests": {"since_ms": 0, "writes": 3, "reads": 4, "cost": 0.25},
            },
        });
        let expected = "saved      -2.0 KiB: -0.00 EUR a month\n\
                        stored      3.0 KiB: 12.50 EUR a month\n\
                        deleting    1.0 KiB: 0.10 EUR a month\n\
                        requests  3 writes, 4 reads since 1970-01-01T00:00:00.000Z: 0.25 EUR\n";
        let text = stats(&told);
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn an_explanation_takes_at_most_25_lines_with_the_ratio_first() {
        let candidates: Vec<Value> = (0..9)
            .map(|n| json!({"key": format!("k{n}"), "source": "name", "overlap_permille": 930, "chosen": n == 0}))
            .collect();
        let blobs = vec![
            json!({"id": "b", "plain_len": 4096, "stored_len": 1024, "segments_by_coding": {"delta": 1}, "choices": [{"candidates": candidates}],
                   "conversions": [{"at_ms": 1_795_791_731_616_u64, "occasion": "deferred", "form": "raw", "stored_bytes": 4096}]});
            30
        ];
        let bases: Vec<String> = (0..40).map(|n| format!("base {n}")).collect();
        let told = json!({"bucket": "b", "key": "k", "size": 4096, "stored_bytes": 1024, "form": "delta", "bases": bases, "blobs": blobs,
                           "encryption": "AES256", "reads": [{"at_ms": 1_795_788_000_000_u64, "count": 3}]});
        let text = explanation(&told);
        assert!(text.starts_with("s3://b/k: 1.0 KiB of 4.0 KiB (4.00×)\n"), "{text}");
        assert!(text.lines().count() <= 25, "{text}");
        assert!(text.contains("reads       3 GETs in the last 24 hours, the last in the hour from 2026-"), "{text}");
        assert!(text.contains("(deferred); was raw in 4.0 KiB; 29 more before"), "{text}");
        assert!(text.contains("… and 36 more") && text.contains("k0 by name, 93.0 % in common: chosen"), "{text}");
    }

    #[test]
    fn an_outline_tells_times_as_dates_and_durations_as_they_are() {
        let text = outline(&json!({"last_run_ms": 1_795_791_731_616_u64, "silent_ms": 900, "stored_after": 3_953_400}));
        let expected = "last_run_ms: 2026-11-27T15:02:11.616Z\nsilent_ms: 900\nstored_after: 3953400 (3.8 MiB)\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn an_outline_shows_every_leaf_once() {
        let text = outline(&json!({"key": "a", "size": 2048, "bases": ["x", "y"], "blobs": [{"id": "1"}], "none": []}));
        let expected = "key: a\nnone: -\nsize: 2048 (2.0 KiB)\nbases:\n  - x\n  - y\nblobs:\n  -\n    id: 1\n";
        assert_eq!(text, expected);
    }
}
