//! `deltaweir status`: how a store is, on one screen.

use super::{
    ask::{Call, Store},
    outcome::{Failure, Outcome, out, show},
    print::{bytes, date, number, word},
};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Asks for the overview, prints it, and fails when the store is not ready.
pub(super) async fn status(store: Store, json: bool) -> Outcome {
    let answerer = store.connect().await?;
    let told = answerer.ask(&Call::get("overview", &[])).await;
    let served = answerer.outlives_us();
    answerer.close().await;
    let mut told = told?;
    told["served"] = json!(served);
    if json {
        show(true, &told, |_| String::new())?;
    } else {
        out(screen(&told).trim_end())?;
    }
    match told["health"]["ready"] == true {
        true => Ok(()),
        false => Err(Failure(format!("not ready: {}", word(&told["health"]["reason"])))),
    }
}

/// One line for each thing that an operator looks at first.
fn screen(told: &Value) -> String {
    let mut text = String::new();
    let mut line = |name: &str, said: &str| {
        let _ = writeln!(text, "{name:<10} {said}");
    };
    let health = match (told["health"]["ready"] == true, told["served"] == true) {
        (true, true) => "ready".to_owned(),
        (true, false) => "OK; no server is running".to_owned(),
        (false, _) => format!("not ready: {}", word(&told["health"]["reason"])),
    };
    line("health", &health);
    line("version", &format!("{} ({})", word(&told["version"]), word(&told["commit"])));
    line("replicas", &replicas(told));
    let totals = &told["totals"];
    let stored = &totals["stored"];
    let deleting = number(&stored["tombstoned"]);
    let kept = number(&stored["total"]).saturating_sub(deleting);
    let (objects, buckets) = (number(&totals["objects"]), number(&told["buckets"]));
    let held = number(&totals["logical_bytes"]) + number(&totals["noncurrent_bytes"]);
    line("store", &format!("{objects} objects in {buckets} buckets, {} in {}", bytes(held), bytes(kept)));
    for backend in told["backends"].as_array().into_iter().flatten() {
        line("backend", &format!("{}: {}", word(&backend["name"]), bytes(number(&backend["stored_bytes"]))));
    }
    for disk in told["disks"].as_array().into_iter().flatten() {
        let (free, size) = (bytes(number(&disk["free_bytes"])), bytes(number(&disk["size_bytes"])));
        line("disk", &format!("{}: {free} of {size} free", word(&disk["place"])));
    }
    line("deleting", &format!("{} wait for their deletion", bytes(deleting)));
    let journal = &told["journal"];
    let lag = match number(&journal["lag_entries"]) {
        0 => "shipped".to_owned(),
        entries => format!("{entries} changes wait, the oldest for {} s", number(&journal["lag_s"])),
    };
    line("journal", &lag);
    if number(&told["quarantined"]) > 0 {
        line("damage", &format!("{} blobs are in quarantine: deltaweir scrub --quarantined", told["quarantined"]));
    }
    for job in told["jobs"].as_array().into_iter().flatten().filter(|job| is_worth_a_line(job)) {
        line("job", &format!("{}: {}", word(&job["name"]), doing(job)));
    }
    text
}

fn replicas(told: &Value) -> String {
    if told["served"] != true && told["shared"] != true {
        return "none".into();
    }
    let replicas: Vec<&Value> = told["replicas"].as_array().into_iter().flatten().collect();
    let silent: Vec<String> = replicas
        .iter()
        .filter(|replica| replica["alive"] != true)
        .map(|replica| format!("epoch {} silent for {} s", replica["epoch"], number(&replica["silent_ms"]) / 1000))
        .collect();
    let alive = replicas.len() - silent.len();
    if silent.is_empty() { alive.to_string() } else { format!("{alive}; {}", silent.join(", ")) }
}

/// Jobs that run, wait, were stopped, or failed last.
fn is_worth_a_line(job: &Value) -> bool {
    let is = |name: &str| job[name] == true;
    is("running") || is("paused") || is("waiting") || job["last_result"] == "failed" || number(&job["backlog"]) > 0
}

fn doing(job: &Value) -> String {
    let mut said = Vec::new();
    let is = |name: &str| job[name] == true;
    if is("running") {
        let progress = &job["progress"];
        said.push(format!("running, {} {} done", number(&progress["done"]), word(&progress["unit"])));
    }
    if is("paused") {
        said.push("paused".into());
    }
    if is("waiting") {
        said.push("can go on".into());
    }
    if number(&job["backlog"]) > 0 {
        said.push(format!("{} waiting", number(&job["backlog"])));
    }
    if job["last_result"] == "failed" {
        said.push(format!("failed at {}", date(&job["last_run_ms"])));
    }
    said.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_screen_says_health_with_its_reason_and_what_waits() {
        let told = json!({
            "served": true, "shared": true, "version": "1.0.0", "commit": "abc",
            "health": { "ready": false, "reason": "backend cloud: timed out" },
            "replicas": [{ "epoch": 3, "silent_ms": 900, "alive": true }, { "epoch": 4, "silent_ms": 70_000, "alive": false }],
            "totals": {
                "objects": 2, "logical_bytes": 4096, "noncurrent_bytes": 0,
                "stored": { "total": 3072, "tombstoned": 1024 },
            },
            "buckets": 1,
            "backends": [{ "name": "cloud", "stored_bytes": 3072 }],
            "disks": [{ "place": "data", "free_bytes": 1024, "size_bytes": 2048 }],
            "journal": { "lag_entries": 5, "lag_s": 9 },
            "quarantined": 1,
            "jobs": [
                { "name": "gc", "last_result": "ok", "backlog": null },
                { "name": "converter", "backlog": 7 },
            ],
        });
        let expected = "health     not ready: backend cloud: timed out\n\
                        version    1.0.0 (abc)\n\
                        replicas   1; epoch 4 silent for 70 s\n\
                        store      2 objects in 1 buckets, 4.0 KiB in 2.0 KiB\n\
                        backend    cloud: 3.0 KiB\n\
                        disk       data: 1.0 KiB of 2.0 KiB free\n\
                        deleting   1.0 KiB wait for their deletion\n\
                        journal    5 changes wait, the oldest for 9 s\n\
                        damage     1 blobs are in quarantine: deltaweir scrub --quarantined\n\
                        job        converter: 7 waiting\n";
        assert_eq!(screen(&told), expected);
    }
}
