//! What a program may want to count about a backend: the words and the callbacks.

use crate::ErrorKind;
use std::{fmt, time::Duration};

/// Told about every request; implementations feed metrics. All methods must be cheap and must not
/// block.
pub trait Observer: Send + Sync + 'static {
    /// A request has ended. `busy` is the time spent waiting for the backend: for a `get` or `list`
    /// that includes every piece of its stream but not the time the reader took between pieces, for
    /// a `put` not the time its body took to arrive.
    fn request(&self, op: Op, outcome: Outcome, busy: Duration);

    /// `count` bytes of a blob have passed, reported as they stream.
    fn bytes(&self, direction: Direction, count: u64);

    /// A request is being repeated because of `reason`.
    fn retry(&self, op: Op, reason: ErrorKind);
}

/// An observer that does nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn request(&self, _: Op, _: Outcome, _: Duration) {}
    fn bytes(&self, _: Direction, _: u64) {}
    fn retry(&self, _: Op, _: ErrorKind) {}
}

/// The calls of [`Backend`](crate::Backend).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// [`Backend::put`](crate::Backend::put)
    Put,
    /// [`Backend::get`](crate::Backend::get)
    Get,
    /// [`Backend::head`](crate::Backend::head)
    Head,
    /// [`Backend::delete`](crate::Backend::delete)
    Delete,
    /// [`Backend::list`](crate::Backend::list)
    List,
    /// [`Backend::probe`](crate::Backend::probe)
    Probe,
}

impl Op {
    /// Every call.
    pub const ALL: [Self; 6] = [Self::Put, Self::Get, Self::Head, Self::Delete, Self::List, Self::Probe];

    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Get => "get",
            Self::Head => "head",
            Self::Delete => "delete",
            Self::List => "list",
            Self::Probe => "probe",
        }
    }
}

/// How a request ended. A stream that its reader drops early counts as [`Outcome::Ok`]: the backend
/// did its part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Done.
    Ok,
    /// Done, and there is no such blob.
    Absent,
    /// Failed.
    Failed(ErrorKind),
    /// The caller went away before the call returned.
    Abandoned,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 3 + ErrorKind::ALL.len()] = {
        let mut all = [Self::Ok; 3 + ErrorKind::ALL.len()];
        all[1] = Self::Absent;
        all[2] = Self::Abandoned;
        let mut i = 0;
        while i < ErrorKind::ALL.len() {
            all[3 + i] = Self::Failed(ErrorKind::ALL[i]);
            i += 1;
        }
        all
    };

    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Absent => "absent",
            Self::Failed(kind) => kind.as_str(),
            Self::Abandoned => "abandoned",
        }
    }
}

/// Which way bytes of blobs go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the backend.
    Read,
    /// To the backend.
    Written,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Read, Self::Written];

    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Written => "written",
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
