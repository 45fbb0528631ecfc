//! A process dies at each call it makes to its store and its database, before the call is carried
//! out and once it has been; after each death nothing may be lost. Prints a line of JSON.
//!
//! `POINTS_SEEDS` and `POINTS_FIRST` say how many runs are gone through, from which seed on;
//! `POINTS_SECONDS` how long each is; `POINTS_EVERY` at which of its points it dies: 1 means at
//! each.

mod common;

use common::{number, processors, side_by_side};
use simulator::{Death, Mutant, Outcome, Plan, Report, run_to_a_point};
use std::time::Duration;

fn plan(seed: u64, mutant: Option<Mutant>) -> Plan {
    let simulated = Duration::from_secs(number("POINTS_SECONDS", 30));
    Plan { seed, simulated, mutant, keeps_trace: false, is_rough: false }
}

fn dies_at(seed: u64, at: u64, mutant: Option<Mutant>) -> Outcome {
    let (outcome, passed) = run_to_a_point(&plan(seed, mutant), Death { at });
    assert!(passed >= at, "seed {seed} has a point {at} each time");
    assert_eq!(outcome.report.crashes, 1, "seed {seed} dies at its point {at}");
    outcome
}

/// Runs of `seed` that die at `points`, on all processors; the sum of what they found.
fn deaths(seed: u64, points: &[u64]) -> Report {
    side_by_side(0..points.len() as u64, processors(), |number| {
        let at = points[number as usize];
        let report = dies_at(seed, at, None).report;
        if report.is_bad() {
            println!("seed {seed}, point {at}: {report:#?}");
        }
        report
    })
}

#[test]
fn a_death_at_any_call_loses_nothing_and_a_store_that_answers_early_is_found() {
    let (first, seeds, every) =
        (number("POINTS_FIRST", 1), number("POINTS_SEEDS", 1), number("POINTS_EVERY", 40).max(1));
    let (mut sum, mut died, mut there) = (Report::default(), 0, 0);
    for seed in first..first + seeds {
        let (calm, count) = run_to_a_point(&plan(seed, None), Death { at: 0 });
        assert!(!calm.report.is_bad(), "without a death: {:#?}", calm.report);
        let points: Vec<u64> = (1..=count).filter(|at| (at + seed) % every == 0).collect();
        sum += &deaths(seed, &points);
        (died, there) = (died + points.len() as u64, there + count);
    }
    let early = Some(Mutant::EarlyAnswer);
    let (_, count) = run_to_a_point(&plan(first, early), Death { at: 0 });
    let is_found = (1..=count).step_by(20).any(|at| dies_at(first, at, early).report.is_bad());
    let mut line = sum.line(seeds, Some((1, is_found)));
    line["campaign"] = "points".into();
    (line["points"], line["deaths"]) = (there.into(), died.into());
    println!("{line}");
    assert!(!sum.is_bad(), "{sum:#?}");
    assert!(is_found, "the bug went by unseen");
    assert!(died > 0 && sum.crashes == died, "{died} points, {} deaths", sum.crashes);
}
