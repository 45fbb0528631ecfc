//! A process dies at each call it makes to its store and its database, before the call is carried
//! out and once it has been; after each death nothing may be lost. Prints a line of JSON.
//!
//! `POINTS_SEEDS` and `POINTS_FIRST` say how many runs are gone through, from which seed on;
//! `POINTS_SECONDS` how long each is; `POINTS_EVERY` at which of its points it dies: 1 means at
//! each.

use simulator::{Death, Mutant, Outcome, Plan, Report, run_to_a_point};
use std::{
    env,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

fn number(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

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
    let next = AtomicUsize::new(0);
    let some = || {
        let mut sum = Report::default();
        while let Some(at) = points.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = dies_at(seed, *at, None);
            if outcome.report.is_bad() {
                println!("seed {seed}, point {at}: {:#?}", outcome.report);
            }
            sum += &outcome.report;
        }
        sum
    };
    let mut sum = Report::default();
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(some)).collect();
        for thread in running {
            sum += &thread.join().expect("a run does not panic");
        }
    });
    sum
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
