//! What a run found.

use serde_json::{Value, json};
use std::ops::AddAssign;

/// What a run injected and found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Things that clients asked for.
    pub ops: u64,
    /// Changes that were acknowledged.
    pub acked: u64,
    /// Requests to the store that failed.
    pub faults: u64,
    /// Replicas that died.
    pub crashes: u64,
    /// Replicas that stood still for a while.
    pub stalls: u64,
    /// Failovers of the database to an older state.
    pub failovers: u64,
    /// Merges of what catalog and store had.
    pub merges: u64,
    /// Acknowledged writes that are not there.
    pub lost: u64,
    /// Acknowledged deletions that are undone.
    pub resurrected: u64,
    /// Answers with other bytes than somebody stored, or about other content; blobs replaced by
    /// other bytes.
    pub wrong: u64,
    /// Keys whose answers no order explains.
    pub disorder: u64,
    /// Whatever else must not be: damage where there is none, broken rules of the catalog, a
    /// listing that contradicts reads, a deployment that does not come back.
    pub unexpected: u64,
    /// Blobs in the store that nobody needs, after everything was collected.
    pub orphans: u64,
    /// Panics of any task.
    pub panics: u64,
    /// Things that happened, as the trace counts them.
    pub events: u64,
    /// What was found, in words.
    pub notes: Vec<String>,
}

impl Report {
    /// Whether anything is as it must not be.
    pub fn is_bad(&self) -> bool {
        let found =
            [self.lost, self.resurrected, self.wrong, self.disorder, self.unexpected, self.orphans, self.panics];
        found.iter().any(|count| *count > 0)
    }

    /// As a line of JSON, of so many seeds.
    pub fn line(&self, seeds: u64, mutants: Option<(usize, bool)>) -> Value {
        let mut line = json!({
            "campaign": "simulator",
            "seeds": seeds,
            "ops": self.ops,
            "acked": self.acked,
            "faults": self.faults,
            "crashes": self.crashes,
            "stalls": self.stalls,
            "failovers": self.failovers,
            "merges": self.merges,
            "lost": self.lost,
            "torn": 0,
            "resurrected": self.resurrected,
            "wrong": self.wrong,
            "disorder": self.disorder,
            "unexpected": self.unexpected,
            "orphans": self.orphans,
            "panics": self.panics,
            "events": self.events,
        });
        if let Some((count, all_detected)) = mutants {
            line["mutants"] = count.into();
            line["mutant_detected"] = all_detected.into();
        }
        line
    }
}

impl AddAssign<&Self> for Report {
    fn add_assign(&mut self, other: &Self) {
        let Self { ops, acked, faults, crashes, stalls, failovers, merges, lost, resurrected, .. } = other;
        let Self { wrong, disorder, unexpected, orphans, panics, events, notes, .. } = other;
        self.ops += ops;
        self.acked += acked;
        self.faults += faults;
        self.crashes += crashes;
        self.stalls += stalls;
        self.failovers += failovers;
        self.merges += merges;
        self.lost += lost;
        self.resurrected += resurrected;
        self.wrong += wrong;
        self.disorder += disorder;
        self.unexpected += unexpected;
        self.orphans += orphans;
        self.panics += panics;
        self.events += events;
        self.notes.extend(notes.iter().cloned());
    }
}
