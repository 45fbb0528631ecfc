//! Where the memory of this process is, for whoever looks at `/metrics`: what the allocator has
//! given out and what it keeps, and which of the resident pages are the process's own. And what the
//! allocator keeps beyond what the process may have is given back ([`give_back`]).

use crate::metrics::Metrics;
use prometheus::IntCounter;
use std::{convert::Infallible, time::Duration};
use tikv_jemalloc_ctl::{Access, AsName, Mib, arenas, epoch, stats};

/// How often [`give_back`] looks, once half of the bound is held.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// And before that, as in a server that idles.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(1);

/// What a process has beside its budget before [`give_back`] begins: its program, requests, rows,
/// page caches.
const BESIDE_BUDGET: u64 = 64 << 20;

/// Less than this is not worth the page faults of those who need it again.
const WORTH_GIVING: usize = 16 << 20;

/// Sets the gauges of memory as they are now.
pub(crate) fn observe(metrics: &Metrics) {
    for (state, bytes) in allocator() {
        metrics.allocator_bytes.with_label_values(&[state]).set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    for (kind, name) in [("anonymous", "RssAnon"), ("file", "RssFile"), ("shared", "RssShmem")] {
        if let Some(bytes) = bytes_of(&status, name) {
            metrics.resident_bytes.with_label_values(&[kind]).set(bytes);
        }
    }
}

/// The allocator's figures, all of one moment; none where it keeps none.
fn allocator() -> Vec<(&'static str, usize)> {
    // What is read below is as old as the last call of this.
    let _ = epoch::advance();
    let figures = [
        ("allocated", stats::allocated::read()),
        ("active", stats::active::read()),
        ("metadata", stats::metadata::read()),
        ("resident", stats::resident::read()),
        ("retained", stats::retained::read()),
    ];
    figures.into_iter().filter_map(|(state, bytes)| Some((state, bytes.ok()?))).collect()
}

/// The bytes of a line of `/proc/PID/status` such as `RssAnon:     123 kB`.
fn bytes_of(status: &str, name: &str) -> Option<i64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kilobytes: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// Has the allocator give back what it keeps for the next allocation, while the process holds more
/// than its `budget` and some beside it. It would keep each free page for ten seconds, so that
/// two kinds of work one after the other hold the memory of both (decision 0078). Runs until it is
/// dropped; counts what was given back.
pub(crate) async fn give_back(budget: u64, given_back: IntCounter) -> Infallible {
    let bound = budget.saturating_add(BESIDE_BUDGET);
    loop {
        let held = resident().unwrap_or(0);
        if held > bound && kept() >= WORTH_GIVING {
            // Pages go back by system calls, a hundred megabytes in some ten milliseconds.
            let given = tokio::task::spawn_blocking(|| {
                let before = kept();
                give_back_pages();
                before.saturating_sub(kept())
            });
            given_back.inc_by(given.await.unwrap_or(0) as u64);
        }
        tokio::time::sleep(if held > bound / 2 { LOOK_EVERY } else { LOOK_AT_LEAST_EVERY }).await;
    }
}

/// Resident pages of this process, in bytes.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    u64::try_from(bytes_of(&status, "VmRSS")?).ok()
}

/// Resident pages of the allocator in which nothing lies, in bytes.
fn kept() -> usize {
    let figures = allocator();
    let of = |wanted| figures.iter().find(|(state, _)| *state == wanted).map_or(0, |(_, bytes)| *bytes);
    of("resident").saturating_sub(of("active")).saturating_sub(of("metadata"))
}

/// An arena whose pages may be kept for no time at all gives them back at once. Then it may keep
/// pages as before. An arena that nobody uses yet has no such setting.
fn give_back_pages() {
    let Ok(mut decay) = "arena.0.dirty_decay_ms\0".name().mib() as Result<Mib<[usize; 3]>, _> else { return };
    for arena in 0..arenas::narenas::read().unwrap_or(0) {
        decay[1] = arena as usize;
        if let Ok(as_before) = Access::<isize>::read(&decay) {
            let _ = decay.write(0_isize);
            let _ = decay.write(as_before);
        }
    }
}
