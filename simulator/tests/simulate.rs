//! Runs seeds, one of them twice to see that it is the same run, and each bug on purpose until it
//! is found. Prints a line of JSON.
//!
//! `SIMULATOR_SEEDS` and `SIMULATOR_FIRST` say how many seeds, from which on; `SIMULATOR_SECONDS`
//! how long each is simulated. `SIMULATOR_TRACE` names a file for the trace of the first one.
//! `SIMULATOR_AGAIN` names seeds that are run again instead of those that ended badly once,
//! `SIMULATOR_LOG` a file to which each seed is written when it has ended. Seeds run side by side,
//! each in a thread of its own: `SIMULATOR_THREADS` of them. `SIMULATOR_ROUGH_SEEDS` says how many
//! are run in rough weather, and `SIMULATOR_ROUGH` makes every run such a one.

mod common;

use common::{number, processors, side_by_side};
use simulator::{Mutant, Outcome, Plan, Report, requests_of_an_idle_hour, run};
use std::{env, fs::OpenOptions, io::Write as _, time::Duration};

/// Seeds within which a bug must show.
const MUTANT_SEEDS: u64 = 40;

/// Seeds that ended badly once: what was mended stays mended.
const AGAIN: &str = "10,11,23,39,53,61,67,69,89,103,105,122,138,163,174,224,378,384,399,494,795";

/// Those of rough weather.
const AGAIN_ROUGH: [u64; 1] = [130];

fn plan(seed: u64, mutant: Option<Mutant>) -> Plan {
    let simulated = Duration::from_secs(number("SIMULATOR_SECONDS", 150));
    let is_rough = number("SIMULATOR_ROUGH", 0) > 0;
    Plan { seed, simulated, mutant, keeps_trace: env::var_os("SIMULATOR_TRACE").is_some(), is_rough }
}

fn keep(outcome: &Outcome, suffix: &str) {
    if let Some(file) = env::var_os("SIMULATOR_TRACE") {
        let file = format!("{}{suffix}", file.to_string_lossy());
        std::fs::write(file, outcome.trace.concat()).expect("the trace is written");
    }
}

fn tell(seed: u64, outcome: &Outcome) {
    let Outcome { report, hash, .. } = outcome;
    let line = format!("seed {seed}: trace {hash}, {} events", report.events);
    println!("{line}");
    if let Some(file) = env::var_os("SIMULATOR_LOG") {
        let mut log = OpenOptions::new().create(true).append(true).open(file).expect("the log opens");
        let notes = if report.is_bad() { format!("{report:#?}") } else { String::new() };
        writeln!(log, "{line} {notes}").expect("the log is written");
    }
}

/// Runs `seeds` from `first` on as planned; the sum of what they found.
fn runs(first: u64, seeds: u64, planned: impl Fn(u64) -> Plan + Sync) -> Report {
    side_by_side(first..first + seeds, number("SIMULATOR_THREADS", processors()), |seed| {
        let outcome = run(&planned(seed));
        tell(seed, &outcome);
        outcome.report
    })
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let seed = number("SIMULATOR_FIRST", 1);
    let [first, second] = ["", ".again"].map(|suffix| {
        let outcome = run(&plan(seed, None));
        keep(&outcome, suffix);
        outcome
    });
    println!("seed {seed}: trace {} of {} events", first.hash, first.report.events);
    let first = {
        assert_eq!((&first.hash, first.report), (&second.hash, second.report));
        first.hash
    };
    assert_ne!(run(&plan(seed + 1, None)).hash, first, "another seed is another run");
}

#[test]
fn seeds_that_ended_badly_once_end_well() {
    let named = env::var("SIMULATOR_AGAIN").unwrap_or_else(|_| AGAIN.to_owned());
    let named = named.split(',').map(|seed| seed.parse().unwrap_or_else(|_| panic!("{seed:?} is not a seed")));
    let usual = named.map(|seed| plan(seed, None));
    let rough = AGAIN_ROUGH.into_iter().map(|seed| Plan { is_rough: true, ..plan(seed, None) });
    let mut bad = Vec::new();
    for plan in usual.chain(rough) {
        let seed = plan.seed;
        let outcome = run(&plan);
        keep(&outcome, &format!(".{seed}"));
        if outcome.report.is_bad() {
            println!("seed {seed}: {:#?}", outcome.report);
            bad.push(seed);
        }
    }
    assert_eq!(bad, [] as [u64; 0], "these seeds end badly");
}

#[test]
fn whatever_goes_wrong_nothing_is_lost_nothing_is_stuck_and_bugs_are_found() {
    let (first, seeds) = (number("SIMULATOR_FIRST", 1), number("SIMULATOR_SEEDS", 12));
    let sum = runs(first, seeds, |seed| plan(seed, None));
    let missed: Vec<Mutant> = Mutant::ALL
        .into_iter()
        .filter(|mutant| !(first..first + MUTANT_SEEDS).any(|seed| run(&plan(seed, Some(*mutant))).report.is_bad()))
        .collect();
    println!("{}", sum.line(seeds, Some((Mutant::ALL.len(), missed.is_empty()))));
    assert!(!sum.is_bad(), "{sum:#?}");
    assert_eq!(missed, [], "these bugs went by unseen");
    assert!(sum.acked > seeds && sum.faults > seeds && sum.crashes > 0 && sum.stalls > 0, "{sum:?}");
}

#[test]
fn clocks_that_jump_old_listings_and_requests_that_come_twice_change_nothing() {
    let (first, seeds) = (number("SIMULATOR_FIRST", 1), number("SIMULATOR_ROUGH_SEEDS", 4));
    let sum = runs(first, seeds, |seed| Plan { is_rough: true, ..plan(seed, None) });
    let mut line = sum.line(seeds, None);
    line["campaign"] = "simulator, rough weather".into();
    println!("{line}");
    assert!(!sum.is_bad(), "{sum:#?}");
    assert!(sum.acked > seeds && sum.faults > seeds, "{sum:?}");
}

#[test]
fn a_server_without_clients_sends_its_store_one_request_a_minute_at_most() {
    let made = requests_of_an_idle_hour(1, None);
    println!("{made:?}");
    assert!(made.values().sum::<u64>() <= 60, "{made:?}");
}

#[test]
fn being_asked_whether_it_is_ready_costs_two_reads_and_no_listing() {
    let minute = Duration::from_secs(60);
    let [alone, probed] = [None, Some(minute)].map(|every| requests_of_an_idle_hour(1, every));
    println!("{alone:?} {probed:?}");
    let more = |kind: &str| probed.get(kind).unwrap_or(&0) - alone.get(kind).unwrap_or(&0);
    assert_eq!((more("get"), more("head"), more("list"), more("probe")), (120, 0, 0, 0));
}
