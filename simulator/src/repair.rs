//! What an operator does when catalog and store tell different stories: both histories are merged
//! into a new catalog (docs/guide/disaster.md).

use crate::world::World;
use catalog::SimulatedDatabase;
use engine::{EngineError, Fork, Metrics, RecoveryOptions, RecoveryReport, recover};
use std::sync::Arc;

/// How often it is tried: the store goes on failing meanwhile.
const ATTEMPTS: usize = 40;

impl World {
    /// Ends every process and merges. Where nothing that was shipped was lost with the database
    /// there is nothing to merge.
    pub(crate) fn repair(&mut self) {
        self.note("the operator merges");
        for number in 0..self.replicas.len() {
            self.replicas[number].kill();
            self.lose_pending_of(number);
            self.replicas[number].stopped_until_ms = 0;
        }
        self.merge();
        self.forked_ms = None;
        self.doubtful_until = self.moment;
    }

    fn merge(&mut self) {
        let forked = self.database_file();
        self.shared.database.copy_to(&forked).expect("a copy is made");
        // The same one each time: a command that was interrupted is run again.
        let made = self.database_file();
        for attempt in 1..=ATTEMPTS {
            match self.try_merge(&forked, &made) {
                Ok(report) => {
                    if report.damage.is_some() || !report.holes.is_empty() {
                        self.unexpected(format!("a merge met damage: {report:?}"));
                    }
                    self.note(&format!("merged at attempt {attempt}: {:?}", report.merged));
                    self.shared.database.go_on_from(made).expect("what was made opens");
                    self.report.merges += 1;
                    return;
                }
                // As `recover --merge` says of a catalog that only came back to where the store is.
                Err(EngineError::Other(why)) if why.contains("nothing to merge") => {
                    self.note("there is nothing to merge");
                    return;
                }
                Err(EngineError::Other(why)) if why.contains("what the last recovery made, serve it") => {
                    self.note(&format!("merged before attempt {attempt}"));
                    self.shared.database.go_on_from(made).expect("what was made opens");
                    self.report.merges += 1;
                    return;
                }
                Err(error) => self.note(&format!("the merge failed: {error}")),
            }
        }
        self.unexpected("catalog and store could not be merged".into());
    }

    fn try_merge(&mut self, forked: &std::path::Path, made: &std::path::Path) -> Result<RecoveryReport, EngineError> {
        let replica = &self.replicas[0];
        let metrics = Metrics::new();
        let [fork, target] = [forked, made].map(|file| SimulatedDatabase::open(file).expect("a database opens"));
        let fork = replica.stores(&fork, &metrics).catalog;
        let options = RecoveryOptions {
            accept_less_than_anchor: false,
            backup: None,
            manifests: true,
            in_place: false,
            stop_at_damage: false,
            accept_hole: false,
            accept_unsealed_until: None,
            remains: None,
            fork: Some(Fork(fork)),
            etag_of_parts: |_| None,
        };
        let stores = replica.stores(&target, &metrics);
        let work = async {
            let stores = async { Ok(stores) };
            Box::pin(recover(replica.config(), stores, &options, Arc::clone(&metrics), &|_, _| {})).await
        };
        let (done, took) = replica.command(&self.shared.clock, work);
        self.shared.clock.advance(took);
        done
    }
}
