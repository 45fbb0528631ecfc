//! What the tests of the simulator share.

use simulator::Report;
use std::{
    env,
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

/// The number in a variable of the environment; `default` where there is none.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

/// As many threads as there are processors.
pub(crate) fn processors() -> u64 {
    thread::available_parallelism().map_or(1, |count| count.get() as u64)
}

/// Does `one` for each number, in so many threads; the sum of what was found.
pub(crate) fn side_by_side(numbers: Range<u64>, threads: u64, one: impl Fn(u64) -> Report + Sync) -> Report {
    let next = AtomicU64::new(numbers.start);
    let some = || {
        let mut sum = Report::default();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if !numbers.contains(&number) {
                return sum;
            }
            sum += &one(number);
        }
    };
    let mut sum = Report::default();
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(some)).collect();
        for thread in running {
            sum += &thread.join().expect("a run does not panic");
        }
    });
    sum
}
