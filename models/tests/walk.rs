//! Walks through each protocol, and prints a line of JSON that says how many states there were and
//! whether each mutant was found.
//!
//! `DELTAWEIR_MODELS_WHOLE=1` widens the bounds to more than a million states each.

use models::{Protocol, collector::Collector, examine, journal::Journal, lease::Lease, turns::Turns};
use serde_json::json;

fn check<P: Protocol>(name: &str) {
    let whole = std::env::var_os("DELTAWEIR_MODELS_WHOLE").is_some();
    let report = examine::<P>(whole);
    let line = json!({
        "campaign": format!("model of {name}"),
        "ops": report.states,
        "wrong": report.broken.len(),
        "mutants": report.mutants,
        "mutant_detected": report.missed.is_empty(),
        "whole": whole,
    });
    println!("{line}");
    assert!(report.broken.is_empty(), "{report:?}");
    assert!(report.unreached.is_empty(), "a property that nothing reaches proves nothing: {report:?}");
    assert!(report.missed.is_empty(), "{report:?}");
    assert!(report.states > if whole { 1_000_000 } else { 1000 }, "{report:?}");
}

#[test]
fn the_collector_deletes_nothing_that_a_history_needs_and_each_mutant_is_found() {
    check::<Collector>("collector");
}

#[test]
fn a_job_follows_its_latest_holder_and_each_mutant_is_found() {
    check::<Lease>("lease");
}

#[test]
fn the_journal_in_the_store_loses_no_row_and_each_mutant_is_found() {
    check::<Journal>("journal");
}

#[test]
fn what_is_read_before_a_turn_is_committed_once_and_unchanged_and_each_mutant_is_found() {
    check::<Turns>("turns");
}
