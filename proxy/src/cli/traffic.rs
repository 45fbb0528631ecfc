//! `deltaweir top` and `deltaweir requests`: what a server answers now.

use super::{
    ask::{Answerer, Call, Store},
    outcome::{Failure, Outcome, note, out, show},
    print::{bytes, date, number, table, word},
};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fmt::Write as _, io::IsTerminal as _, time::Duration};

/// How often `--follow` asks for more.
const FOLLOW_EVERY: Duration = Duration::from_millis(500);
/// The most requests of one call.
const PAGE: usize = 1000;
/// Moves to the top left and clears the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

#[derive(Args)]
pub(super) struct TopFlags {
    /// Group lines by
    #[arg(long, value_enum, default_value_t = By::Both)]
    by: By,
    /// Seconds between updates
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    interval: f64,
    /// Print one interval and exit
    #[arg(long)]
    once: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    Both,
    Operation,
    Bucket,
}

/// Shows traffic until Ctrl-C; once with `--once`, with JSON, or where nobody looks at a terminal.
pub(super) async fn top(store: Store, flags: &TopFlags, json: bool) -> Outcome {
    let interval = Duration::try_from_secs_f64(flags.interval).ok().filter(|interval| !interval.is_zero());
    let interval = interval.ok_or_else(|| Failure("--interval is a number of seconds above 0".into()))?;
    let is_live = !flags.once && !json && std::io::stdout().is_terminal();
    let answerer = store.connect().await?;
    let shown = async {
        let ask = async || answerer.ask(&Call::get("traffic", &[])).await;
        let mut before = ask().await?;
        loop {
            tokio::select! {
                signal = tokio::signal::ctrl_c() => return Ok(signal?),
                () = tokio::time::sleep(interval) => {}
            }
            let now = ask().await?;
            let rates = rates(&before, &now, flags.by);
            if is_live {
                out(&format!("{CLEAR}{}", screen(&rates).trim_end()))?;
            } else {
                return show(json, &rates, screen);
            }
            before = now;
        }
    };
    let shown = shown.await;
    answerer.close().await;
    shown
}

/// What happened between two looks, a second: JSON with `rows`, the busiest first.
fn rates(before: &Value, now: &Value, by: By) -> Value {
    let name = |row: &Value| {
        let (op, bucket) = (word(&row["op"]), word(&row["bucket"]));
        match by {
            By::Both => (op, bucket),
            By::Operation => (op, String::new()),
            By::Bucket => (String::new(), bucket),
        }
    };
    const COUNTED: [&str; 7] = ["requests", "client_errors", "server_errors", "cut", "bytes_in", "bytes_out", "ms"];
    // A server that was started anew begins at zero.
    let same = before["since_ms"] == now["since_ms"];
    let mut sums: BTreeMap<(String, String), [f64; COUNTED.len()]> = BTreeMap::new();
    for (look, sign) in [(now, 1.0), (before, if same { -1.0 } else { 0.0 })] {
        for row in look["traffic"].as_array().into_iter().flatten() {
            let sum = sums.entry(name(row)).or_default();
            for (sum, counted) in sum.iter_mut().zip(COUNTED) {
                *sum += sign * row[counted].as_f64().unwrap_or(0.0);
            }
        }
    }
    let begin = if same { number(&before["now_ms"]) } else { number(&now["since_ms"]) };
    let seconds = (number(&now["now_ms"]).saturating_sub(begin) as f64 / 1e3).max(1e-3);
    let mut rows: Vec<_> = sums.into_iter().filter(|(_, sums)| sums[0] > 0.0).collect();
    rows.sort_by(|(_, a), (_, b)| b[0].total_cmp(&a[0]));
    type Row = ((String, String), [f64; COUNTED.len()]);
    let row = |((op, bucket), [requests, client, server, cut, bytes_in, bytes_out, ms]): Row| {
        json!({
            "op": op, "bucket": bucket,
            "requests": requests, "client_errors": client, "server_errors": server, "cut": cut,
            "requests_per_second": requests / seconds,
            "bytes_in_per_second": bytes_in / seconds,
            "bytes_out_per_second": bytes_out / seconds,
            "mean_ms": ms / requests,
        })
    };
    let rows: Vec<Value> = rows.into_iter().map(row).collect();
    json!({ "seconds": seconds, "now_ms": now["now_ms"], "under_way": now["under_way"], "rows": rows })
}

fn screen(rates: &Value) -> String {
    let rows: Vec<&Value> = rates["rows"].as_array().into_iter().flatten().collect();
    // The sum of no rows is -0.0, and would be shown so.
    let sum = |name: &str| rows.iter().map(|row| row[name].as_f64().unwrap_or(0.0)).sum::<f64>() + 0.0;
    let under_way: u64 = rates["under_way"].as_object().into_iter().flatten().map(|(_, count)| number(count)).sum();
    let mut text = format!(
        "{}  {:.1} requests/s, {}/s in, {}/s out, {} client errors, {} server errors, {under_way} under way\n\n",
        date(&rates["now_ms"]),
        sum("requests_per_second"),
        rate(sum("bytes_in_per_second")),
        rate(sum("bytes_out_per_second")),
        sum("client_errors"),
        sum("server_errors") + sum("cut"),
    );
    let heads = ["operation", "requests/s", "4xx", "5xx", "in/s", "out/s", "mean ms", "bucket"];
    let mut lines = vec![heads.map(str::to_owned)];
    let or_dash = |value: &Value| if word(value).is_empty() { "-".to_owned() } else { word(value) };
    for row in rows {
        let figure = |name: &str| row[name].as_f64().unwrap_or(0.0);
        lines.push([
            or_dash(&row["op"]),
            format!("{:.1}", figure("requests_per_second")),
            figure("client_errors").to_string(),
            (figure("server_errors") + figure("cut")).to_string(),
            rate(figure("bytes_in_per_second")),
            rate(figure("bytes_out_per_second")),
            format!("{:.1}", figure("mean_ms")),
            or_dash(&row["bucket"]),
        ]);
    }
    text.push_str(&table(&lines));
    text
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate that is not negative, rounded")]
fn rate(per_second: f64) -> String {
    bytes(per_second.round() as u64)
}

#[derive(Args)]
pub(super) struct RequestsFlags {
    /// A request's id: show that one, step by step
    id: Option<String>,
    /// Only this operation, such as GetObject
    #[arg(long)]
    op: Option<String>,
    /// Only requests about this bucket
    #[arg(long)]
    bucket: Option<String>,
    /// Only requests of this user
    #[arg(long)]
    user: Option<String>,
    /// Only requests from this address
    #[arg(long, value_name = "ADDRESS")]
    peer: Option<String>,
    /// Only this status, such as 404, or class, such as 5xx
    #[arg(long)]
    status: Option<String>,
    /// Only requests that took at least this many milliseconds
    #[arg(long, value_name = "MILLISECONDS")]
    slower: Option<u64>,
    /// Show this many, the newest
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20)]
    limit: usize,
    /// Keep printing requests as they complete
    #[arg(long, conflicts_with = "id")]
    follow: bool,
}

/// Shows the newest requests that fit, or one of them.
pub(super) async fn requests(store: Store, flags: &RequestsFlags, json: bool) -> Outcome {
    let answerer = store.connect().await?;
    let shown = match &flags.id {
        Some(id) => one(&answerer, id, json).await,
        None => many(&answerer, flags, json).await,
    };
    answerer.close().await;
    shown
}

async fn one(answerer: &Answerer, id: &str, json: bool) -> Outcome {
    let told = answerer.ask(&Call::get(&format!("requests/{id}"), &[])).await?;
    show(json, &told, trace)
}

async fn many(answerer: &Answerer, flags: &RequestsFlags, json: bool) -> Outcome {
    let mut told = answerer.ask(&call(flags, flags.limit.min(PAGE), None)).await?;
    if !flags.follow {
        return show(json, &told, listed);
    }
    loop {
        if number(&told["missed"]) > 0 {
            note(format_args!("{} requests came and went between two looks", told["missed"]));
        }
        for request in told["requests"].as_array().into_iter().flatten() {
            out(&if json { request.to_string() } else { line(request).join("  ") })?;
        }
        tokio::select! {
            signal = tokio::signal::ctrl_c() => return Ok(signal?),
            () = tokio::time::sleep(FOLLOW_EVERY) => {}
        }
        told = answerer.ask(&call(flags, PAGE, told["next"].as_u64())).await?;
    }
}

fn call(flags: &RequestsFlags, limit: usize, after: Option<u64>) -> Call {
    let (limit, slower) = (limit.to_string(), flags.slower.unwrap_or(0).to_string());
    let after = after.map(|after| after.to_string()).unwrap_or_default();
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let [op, bucket, user, peer, status] =
        [&flags.op, &flags.bucket, &flags.user, &flags.peer, &flags.status].map(text);
    let parameters = [
        ("op", op.as_str()),
        ("bucket", &bucket),
        ("user", &user),
        ("peer", &peer),
        ("status", &status),
        ("slower_ms", &slower),
        ("after", &after),
        ("limit", &limit),
    ];
    Call::get("requests", &parameters)
}

fn listed(told: &Value) -> String {
    let heads = ["began", "id", "op", "status", "ms", "in", "out", "form", "user", "peer", "object"];
    let rows = told["requests"].as_array().into_iter().flatten().map(line);
    table(&std::iter::once(heads.map(str::to_owned)).chain(rows).collect::<Vec<_>>())
}

/// One request in columns.
fn line(request: &Value) -> [String; 11] {
    let or_dash = |name: &str| request[name].as_str().unwrap_or("-").to_owned();
    [
        date(&request["at_ms"]),
        or_dash("request_id"),
        or_dash("op"),
        number(&request["status"]).to_string(),
        format!("{:.1}", request["ms"].as_f64().unwrap_or(0.0)),
        bytes(number(&request["bytes_in"])),
        bytes(number(&request["bytes_out"])),
        or_dash("form"),
        or_dash("user"),
        or_dash("peer"),
        object(request),
    ]
}

fn object(request: &Value) -> String {
    match (request["bucket"].as_str(), request["key"].as_str()) {
        (None, _) => "-".into(),
        (Some(bucket), None) => bucket.to_owned(),
        (Some(bucket), Some(key)) => format!("{bucket}/{}", key.escape_debug()),
    }
}

/// A request step by step.
fn trace(request: &Value) -> String {
    let mut text = String::new();
    let known = |name: &str| request[name].as_str();
    let code = known("code").map(|code| format!(" {code}")).unwrap_or_default();
    let _ = writeln!(text, "request   {}", word(&request["request_id"]));
    let _ = writeln!(text, "began     {}", date(&request["at_ms"]));
    let _ = writeln!(text, "call      {} {}: {}{code}", word(&request["op"]), object(request), request["status"]);
    let via = known("via").map(|via| format!(" through {via}")).unwrap_or_default();
    let by = known("program").map(|program| format!(", by {program}")).unwrap_or_default();
    let user = known("user").unwrap_or("nobody who signed");
    let _ = writeln!(text, "from      {} at {}{via}{by}", user, known("peer").unwrap_or("-"));
    let (sent, got) = (bytes(number(&request["bytes_in"])), bytes(number(&request["bytes_out"])));
    let form = known("form").map(|form| format!(", stored as {form}")).unwrap_or_default();
    let _ = writeln!(text, "bytes     {sent} in, {got} out{form}");
    for step in request["steps"].as_array().into_iter().flatten() {
        let _ = writeln!(text, "{:>9.3} ms  {}", step["ms"].as_f64().unwrap_or(0.0), word(&step["step"]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(since: u64, now: u64, rows: &[(&str, &str, u64, u64, u64)]) -> Value {
        let row = |(op, bucket, requests, client, server): &(&str, &str, u64, u64, u64)| {
            json!({
                "op": op, "bucket": bucket, "requests": requests, "client_errors": client, "server_errors": server,
                "cut": 0, "bytes_in": 0, "bytes_out": requests * 1024, "ms": *requests as f64 * 5.0,
            })
        };
        let traffic: Vec<Value> = rows.iter().map(row).collect();
        json!({ "since_ms": since, "now_ms": now, "under_way": { "GetObject": 2 }, "traffic": traffic })
    }

    #[test]
    fn rates_are_of_what_came_between_two_looks() {
        let before = look(1, 10_000, &[("GetObject", "a", 100, 5, 0), ("PutObject", "a", 7, 0, 0)]);
        let now =
            look(1, 12_000, &[("GetObject", "a", 140, 9, 1), ("GetObject", "b", 2, 0, 0), ("PutObject", "a", 7, 0, 0)]);
        let both = rates(&before, &now, By::Both);
        assert_eq!(both["rows"].as_array().unwrap().len(), 2, "an idle operation has no row");
        let first = &both["rows"][0];
        assert_eq!((&first["op"], &first["bucket"]), (&json!("GetObject"), &json!("a")));
        assert_eq!((&first["client_errors"], &first["server_errors"]), (&json!(4.0), &json!(1.0)));
        assert_eq!((&first["requests_per_second"], &first["mean_ms"]), (&json!(20.0), &json!(5.0)));
        let by_op = rates(&before, &now, By::Operation);
        assert_eq!((&by_op["rows"][0]["requests"], &by_op["rows"][0]["bucket"]), (&json!(42.0), &json!("")));
        assert_eq!(rates(&before, &now, By::Bucket)["rows"][1]["bucket"], "b");
        let restarted = rates(
            &look(5, 0, &[("GetObject", "a", 900, 0, 0)]),
            &look(9_000, 10_000, &[("GetObject", "a", 3, 0, 0)]),
            By::Both,
        );
        assert_eq!(restarted["rows"][0]["requests_per_second"], json!(3.0), "since the new start");
    }

    #[test]
    fn top_is_a_table_with_a_line_of_sums() {
        let before = look(1, 10_000, &[]);
        let now = look(1, 12_000, &[("GetObject", "photos", 40, 3, 1)]);
        let text = screen(&rates(&before, &now, By::Both));
        let expected = "1970-01-01T00:00:12.000Z  20.0 requests/s, 0 B/s in, 20.0 KiB/s out, 3 client errors, 1 server errors, 2 under way\n\
                        \n\
                        operation  requests/s  4xx  5xx  in/s     out/s  mean ms  bucket\n\
                        GetObject        20.0    3    1   0 B  20.0 KiB      5.0  photos\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_trace_tells_each_step() {
        let request = json!({
            "request_id": "4D05EAEF5F682042", "at_ms": 0, "op": "GetObject", "bucket": "b", "key": "a\nb", "status": 404,
            "code": "NoSuchKey", "peer": "203.0.113.7", "via": "10.0.0.1", "program": "aws-cli/2", "bytes_in": 0, "bytes_out": 300,
            "steps": [{ "step": "allowed", "ms": 1.25 }, { "step": "complete", "ms": 9.0 }],
        });
        let expected = "request   4D05EAEF5F682042\n\
                        began     1970-01-01T00:00:00.000Z\n\
                        call      GetObject b/a\\nb: 404 NoSuchKey\n\
                        from      nobody who signed at 203.0.113.7 through 10.0.0.1, by aws-cli/2\n\
                        bytes     0 B in, 300 B out\n    1.250 ms  allowed\n    9.000 ms  complete\n";
        assert_eq!(trace(&request), expected);
    }
}
