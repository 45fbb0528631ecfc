//! What a change is going to ask, so that a far database can be asked everything at once.
//!
//! Foreseen answers come from the same transaction, behind the lock on the number and before
//! anything of the change is written, as if the change had asked itself.

use crate::{
    mutation::Mutation,
    relational::{
        change::Change,
        multipart,
        session::{Row, Statement, Value},
        versions::{self, NEWEST_NONCURRENT},
    },
};
use std::{
    collections::{HashSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// How many buckets are remembered.
const BUCKETS_MAX: usize = 10_000;

/// The buckets of which changes are known to ask for older versions. A bucket that once kept some
/// goes on to be asked. A change of a bucket that is not remembered asks a second time.
#[derive(Default)]
pub(super) struct Foresight(Mutex<HashSet<i64>>);

impl Foresight {
    /// What `change` will ask once it has its number, from the first statement on.
    pub(super) fn reads(&self, change: &Change) -> Vec<Statement> {
        let Change::Journaled(mutation) = change else { return Vec::new() };
        let (mut reads, bucket, key) = match mutation {
            Mutation::Put { commit, .. } => (versions::reads_of_put(commit), commit.bucket, &commit.key),
            Mutation::Delete { commit, .. } => {
                (versions::reads_of_key(commit.bucket, &commit.key), commit.bucket, &commit.key)
            }
            Mutation::Complete { commit, .. } => (multipart::reads_of_completion(commit), commit.bucket, &commit.key),
            Mutation::PutPart { commit } => return multipart::reads_of_part(commit),
            _ => return Vec::new(),
        };
        if self.keep_versions().contains(&bucket.0) {
            reads.extend(versions::read_older(bucket, key));
        }
        reads
    }

    /// Learns from what a change asked that was not foreseen.
    pub(super) fn learn(&self, asked: &[Statement]) {
        if let Some(Statement { sql, params, .. }) = asked.first()
            && sql == NEWEST_NONCURRENT
            && let Some(Value::Int(bucket)) = params.first()
        {
            let mut buckets = self.keep_versions();
            if buckets.len() == BUCKETS_MAX {
                buckets.clear();
            }
            buckets.insert(*bucket);
        }
    }

    fn keep_versions(&self) -> MutexGuard<'_, HashSet<i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Foreseen statements of a change and their answers, in the order in which it will ask.
#[derive(Default)]
pub(super) struct Foreseen(VecDeque<(Statement, Vec<Row>)>);

impl Foreseen {
    pub(super) fn of(statements: Vec<Statement>, answers: Vec<Vec<Row>>) -> Self {
        Foreseen(statements.into_iter().zip(answers).collect())
    }

    /// The answers of `statements`, if they are what is asked next; each once.
    pub(super) fn answers(&mut self, statements: &[Statement]) -> Option<Vec<Vec<Row>>> {
        let same = |(one, other): (&Statement, &Statement)| {
            one.sql == other.sql && one.params == other.params && one.lock == other.lock
        };
        let foreseen = self.0.iter().map(|(statement, _)| statement);
        if statements.len() > self.0.len() || !foreseen.zip(statements).all(same) {
            return None;
        }
        Some(self.0.drain(..statements.len()).map(|(_, rows)| rows).collect())
    }
}
