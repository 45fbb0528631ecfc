//! Processor time of this thread: what else the machine does is not in it.

use std::{fs, thread, time::Duration};

/// A moment.
pub(crate) struct Clock(Duration);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        now() - self.0
    }
}

/// The time that this thread has run: the first number of Linux's statistics of its scheduling,
/// which are brought up to date when it gives way.
fn now() -> Duration {
    thread::yield_now();
    let told = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells how long a thread has run");
    let nanoseconds = told.split(' ').next().and_then(|number| number.parse().ok()).expect("a number");
    Duration::from_nanos(nanoseconds)
}
