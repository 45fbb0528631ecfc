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
    types::BucketId,
};
use std::{
    collections::{HashSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// How many buckets are remembered.
const BUCKETS_MAX: usize = 10_000;

/// What changes of a bucket are known to need. A bucket that is not remembered, or not any more,
/// costs its changes another journey.
#[derive(Default)]
pub(super) struct Foresight {
    /// Those of which older versions are asked for. A bucket that once kept some goes on to be
    /// asked.
    versioned: Remembered,
    /// Those whose changes a quota may refuse. A bucket that once had one goes on to count.
    limited: Remembered,
}

/// Some buckets.
#[derive(Default)]
struct Remembered(Mutex<HashSet<i64>>);

impl Remembered {
    fn has(&self, bucket: BucketId) -> bool {
        self.buckets().contains(&bucket.0)
    }

    fn add(&self, bucket: BucketId) {
        let mut buckets = self.buckets();
        if buckets.len() == BUCKETS_MAX {
            buckets.clear();
        }
        buckets.insert(bucket.0);
    }

    fn buckets(&self) -> MutexGuard<'_, HashSet<i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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
        if self.versioned.has(bucket) {
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
            self.versioned.add(BucketId(*bucket));
        }
    }

    /// Learns that writes to a bucket are looked at because of a quota.
    pub(super) fn learn_limit(&self, bucket: BucketId) {
        self.limited.add(bucket);
    }

    /// Whether writes to a bucket are known to be looked at because of a quota.
    pub(super) fn is_limited(&self, bucket: BucketId) -> bool {
        self.limited.has(bucket)
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
