//! Runs seeds, one of them twice to see that it is the same run, and each bug on purpose until it
//! is found. Prints a line of JSON.
//!
//! `SIMULATOR_SEEDS` and `SIMULATOR_FIRST` say how many seeds, from which on; `SIMULATOR_SECONDS`
//! how long each is simulated. `SIMULATOR_TRACE` names a file for the trace of the first one.

use simulator::{Mutant, Outcome, Plan, Report, requests_of_an_idle_hour, run};
use std::{env, time::Duration};

/// Seeds within which a bug must show.
const MUTANT_SEEDS: u64 = 40;

fn number(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

fn plan(seed: u64, mutant: Option<Mutant>) -> Plan {
    let simulated = Duration::from_secs(number("SIMULATOR_SECONDS", 150));
    Plan { seed, simulated, mutant, keeps_trace: env::var_os("SIMULATOR_TRACE").is_some() }
}

fn keep(outcome: &Outcome, suffix: &str) {
    if let Some(file) = env::var_os("SIMULATOR_TRACE") {
        let file = format!("{}{suffix}", file.to_string_lossy());
        std::fs::write(file, outcome.trace.concat()).expect("the trace is written");
    }
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
fn whatever_goes_wrong_nothing_is_lost_nothing_is_stuck_and_bugs_are_found() {
    let (first, seeds) = (number("SIMULATOR_FIRST", 1), number("SIMULATOR_SEEDS", 12));
    let mut sum = Report::default();
    for seed in first..first + seeds {
        let outcome = run(&plan(seed, None));
        println!("seed {seed}: trace {}, {} events", outcome.hash, outcome.report.events);
        sum += &outcome.report;
    }
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
    assert_eq!((more("get"), more("head"), more("list"), more("probe")), (60, 60, 0, 0));
}
